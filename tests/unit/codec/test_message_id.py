import pytest

from cometmq.codec import message_id, record
from cometmq.codec.message_id import OffsetId, UniqueId, UniqueIds
from cometmq.errors import LocalProtocolError, RemoteProtocolError

DAY_MS = 86_400_000
LOCALHOST = bytes([127, 0, 0, 1])


def thirty_days(now_ms: int) -> tuple[int, int]:
    begin = now_ms - now_ms % (30 * DAY_MS)
    return begin, begin + 30 * DAY_MS


def test_the_offset_id_vector_is_written_and_read() -> None:
    host = record.pack_host("127.0.0.1", 10911)

    assert message_id.encode_offset_id(host, 1024) == "7F00000100002A9F0000000000000400"
    for text in ("7F00000100002A9F0000000000000400", "7f00000100002a9f0000000000000400"):
        assert message_id.decode_offset_id(text) == OffsetId("127.0.0.1", 10911, 1024)


def test_an_offset_id_may_hold_an_ipv6_address() -> None:
    text = message_id.encode_offset_id(record.pack_host("2001:db8::1", 10911), 1024)

    assert len(text) == 56
    assert message_id.decode_offset_id(text) == OffsetId("2001:db8::1", 10911, 1024)


@pytest.mark.parametrize(
    "text", ["", "7F", "G" * 32, " " * 32, "\N{ARABIC-INDIC DIGIT ONE}" * 32, "0" * 31, "0" * 40]
)
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(RemoteProtocolError, match="offset message id"):
        message_id.decode_offset_id(text)


def test_an_offset_id_needs_a_packed_host_and_an_offset() -> None:
    with pytest.raises(LocalProtocolError):
        message_id.encode_offset_id(b"127.0.0.1", 0)
    with pytest.raises(LocalProtocolError):
        message_id.encode_offset_id(bytes(8), 1 << 63)


def test_a_unique_id_is_laid_out_as_javas() -> None:
    ids = UniqueIds(LOCALHOST, 0x16AE5, 0x30946E09, thirty_days)
    now = 60 * DAY_MS + 0x4CCE1059

    first, second = ids.next(now), ids.next(now + 1)

    assert first == "7F000001" + "6AE5" + "30946E09" + "4CCE1059" + "0000"
    assert second == "7F000001" + "6AE5" + "30946E09" + "4CCE105A" + "0001"
    assert message_id.parse_unique_id(first) == UniqueId(
        LOCALHOST, 0x6AE5, 0x30946E09, 0x4CCE1059, 0
    )


def test_a_recorded_unique_id_is_understood() -> None:
    found = message_id.parse_unique_id("7F0000016AE530946E094CCE10590015")

    assert found == UniqueId(LOCALHOST, 0x6AE5, 0x30946E09, 0x4CCE1059, 21)


def test_a_unique_id_may_hold_an_ipv6_address() -> None:
    text = UniqueIds(bytes(range(16)), 1, -1, thirty_days).next(0)

    assert len(text) == 56
    assert message_id.parse_unique_id(text) == UniqueId(bytes(range(16)), 1, 0xFFFFFFFF, 0, 0)


def test_the_counter_goes_round() -> None:
    ids = UniqueIds(LOCALHOST, 1, 1, thirty_days)

    texts = [ids.next(5) for _ in range(65537)]

    assert len(set(texts)) == 65536
    assert texts[65535].endswith("FFFF")
    assert texts[65536] == texts[0]


def test_a_new_month_counts_from_its_begin() -> None:
    asked = []

    def month_of(now_ms: int) -> tuple[int, int]:
        asked.append(now_ms)
        return thirty_days(now_ms)

    ids = UniqueIds(LOCALHOST, 1, 1, month_of)
    times = (DAY_MS, 30 * DAY_MS - 1, 30 * DAY_MS, 29 * DAY_MS)
    found = [message_id.parse_unique_id(ids.next(now)) for now in times]

    assert [part and part.month_ms for part in found] == [
        DAY_MS,
        30 * DAY_MS - 1,
        0,
        29 * DAY_MS,
    ]
    assert asked == [DAY_MS, 30 * DAY_MS, 29 * DAY_MS]


def test_the_local_month_contains_its_time() -> None:
    for now in (0, 1_700_000_000_000, 1_704_067_199_999, 1_735_689_600_000):
        begin, end = message_id.local_month(now)

        assert begin <= now < end
        assert 27 * DAY_MS < end - begin < 32 * DAY_MS
        assert message_id.local_month(begin) == (begin, end)
        assert message_id.local_month(end)[0] == end


@pytest.mark.parametrize("text", ["", "order-17", "7F0000", "x" * 32, "AC11\n" + "0" * 27])
def test_an_id_of_another_kind_is_opaque(text: str) -> None:
    assert message_id.parse_unique_id(text) is None


def test_an_id_of_the_go_client_is_parsed_as_far_as_it_goes() -> None:
    found = message_id.parse_unique_id("0A00000516AE00000000" + "4cce10590015")

    assert found is not None
    assert (found.ip, found.pid, found.loader_hash) == (bytes([10, 0, 0, 5]), 0x16AE, 0)


def test_an_address_has_4_or_16_bytes() -> None:
    with pytest.raises(LocalProtocolError):
        UniqueIds(b"127.0.0.1", 1, 1, thirty_days)
