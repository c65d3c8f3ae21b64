"""Messages put aside for a delay level, compared with how Apache's brokers put them aside."""

import msgspec
import pytest

from cometmq.broker.delay.levels import DelayLevels, level_of, rewritten
from cometmq.codec import properties, record
from cometmq.codec.codes import ResponseCode
from cometmq.codec.properties import Property
from cometmq.codec.record import Record
from cometmq.errors import BrokerError
from cometmq.store import NewMessage, StoreSettings
from tests.golden.store_data import Store, load

LEVELS = DelayLevels((1000, 5000, 10_000))
RECORDED = DelayLevels((1000, 2000, 3000, 4000, 5000, 6000, 7000, 240_000, 300_000))
"""As many levels as the recorded brokers had."""


def message(text: bytes = b"", **fields: object) -> NewMessage:
    return msgspec.structs.replace(NewMessage("orders", 2, b"body", text), **fields)


def test_a_message_is_put_aside_in_the_queue_of_its_level() -> None:
    sent = message(b"TAGS\x01T\x02DELAY\x012\x02", flag=7, reconsume_times=3, born_timestamp=9)

    aside = LEVELS.diverted(sent, 2)

    assert (aside.topic, aside.queue_id) == ("SCHEDULE_TOPIC_XXXX", 1)
    assert (
        aside.properties == b"TAGS\x01T\x02DELAY\x012\x02REAL_TOPIC\x01orders\x02REAL_QID\x012\x02"
    )
    rest = {"topic": "", "queue_id": 0, "properties": b""}
    assert msgspec.structs.replace(aside, **rest) == msgspec.structs.replace(sent, **rest)


def test_a_level_above_the_last_one_is_the_last_one_and_says_so() -> None:
    aside = LEVELS.diverted(message(b"DELAY\x0199\x02"), 99)

    assert aside.queue_id == 2
    assert level_of(aside.properties) == 3


@pytest.mark.parametrize("level", [0, -1])
def test_without_a_level_nothing_is_put_aside(level: int) -> None:
    sent = message(b"TAGS\x01T\x02")

    assert LEVELS.diverted(sent, level) is sent


def test_a_broker_without_levels_puts_nothing_aside() -> None:
    sent = message(b"DELAY\x011\x02")

    assert DelayLevels(()).diverted(sent, 1) is sent


def test_a_message_put_aside_again_forgets_where_it_was_sent_before() -> None:
    text = b"REAL_TOPIC\x01former\x02REAL_QID\x019\x02DELAY\x011\x02"

    aside = LEVELS.diverted(message(text), 1)

    assert properties.decode(aside.properties) == {
        "REAL_TOPIC": "orders",
        "REAL_QID": "2",
        "DELAY": "1",
    }


def test_with_a_level_other_times_of_delivery_do_not_count() -> None:
    text = b"TIMER_DELAY_SEC\x015\x02TIMER_DELAY_MS\x015\x02TIMER_DELIVER_MS\x015\x02DELAY\x011\x02"

    aside = LEVELS.diverted(message(text), 1)

    assert properties.decode(aside.properties).keys() == {"DELAY", "REAL_TOPIC", "REAL_QID"}


def test_the_checksum_of_another_record_is_not_stored_again() -> None:
    text = b"DELAY\x011\x02__CRC32#\x010123456789\x02"

    assert b"CRC32" not in LEVELS.diverted(message(text), 1).properties


def test_the_default_levels_are_those_of_apache() -> None:
    levels = DelayLevels(StoreSettings().delays_ms())

    seconds = [levels.delay_ms(level) // 1000 for level in range(1, levels.count + 1)]
    assert seconds[:4] == [1, 5, 10, 30]
    assert seconds[4:14] == [60 * minutes for minutes in range(1, 11)]
    assert seconds[14:] == [1200, 1800, 3600, 7200]


@pytest.mark.parametrize(
    ("text", "level"),
    [
        (b"", 0),
        (b"TAGS\x01DELAY\x02", 0),
        (b"DELAY\x013\x02", 3),
        (b"DELAY\x01+3", 3),
        (b"DELAY\x01-1\x02", 0),
        (b"DELAY\x010\x02", 0),
        (b"DELAY\x0199\x02", 99),
    ],
)
def test_the_level_is_what_the_property_says(text: bytes, level: int) -> None:
    assert level_of(text) == level


@pytest.mark.parametrize("value", ["soon", "1.5", "-", "٣", "1" * 11, " 1"])
def test_a_level_that_is_no_number_is_refused(value: str) -> None:
    with pytest.raises(BrokerError) as refused:
        level_of(f"DELAY\x01{value}\x02".encode())

    assert refused.value.response_code == ResponseCode.MESSAGE_ILLEGAL
    assert f"'{value}'" in refused.value.remark


def test_rewriting_keeps_order_and_bytes_of_what_does_not_change() -> None:
    text = b"a\x01\xff\xfe\x02b\x01\x01x\x02c\x013"

    assert (
        rewritten(text, {b"b": b"2", b"d": b"4"})
        == b"a\x01\xff\xfe\x02b\x012\x02c\x013\x02d\x014\x02"
    )


def test_rewriting_leaves_out_what_is_no_property_and_what_is_removed() -> None:
    text = b"a\x011\x02empty\x01\x02\x01nameless\x02word\x02b\x012\x02a\x013\x02"

    assert rewritten(text, {b"b": None, b"never": None}) == b"a\x013\x02"


@pytest.mark.slow
@pytest.mark.parametrize("name", ["4.9.7-clean", "5.5.0-clean"])
def test_what_we_put_aside_is_what_apache_put_aside(name: str) -> None:
    golden = load(name)
    recorded = [found for found in records(golden) if found.topic == "SCHEDULE_TOPIC_XXXX"]

    ours = [RECORDED.diverted(as_sent(found), level_of(found.properties)) for found in recorded]

    assert len(recorded) > 15
    for aside, found in zip(ours, recorded, strict=True):
        assert (aside.topic, aside.queue_id) == (found.topic, found.queue_id)
        assert properties.decode(aside.properties) == properties.decode(found.properties)
        # 5.5.0 adds to the end, as we do; the order of 4.9.7 is that of a hash table.
        assert golden.is_4x or aside.properties == found.properties


def records(golden: Store) -> list[Record]:
    """All messages of a recorded log, in order."""
    found = []
    for data in golden.below("commitlog/").values():
        position = 0
        while record.peek(data, position)[0] > 0:
            item = record.parse(data, position)
            if not isinstance(item, Record):
                break
            found.append(item)
            position += item.size
    return found


def as_sent(found: Record) -> NewMessage:
    """A recorded message as it must have been before it was put aside."""
    named = properties.decode(found.properties)
    topic, queue_id = named[Property.REAL_TOPIC], int(named[Property.REAL_QUEUE_ID])
    text = rewritten(found.properties, {b"REAL_TOPIC": None, b"REAL_QID": None})
    return NewMessage(topic, queue_id, found.body, text)
