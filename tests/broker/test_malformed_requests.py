"""Requests that are not what they should be: each is refused in words, and the next one is served.

None of it is worth a line in the log for people: anybody could fill the disk with such lines.
"""

from collections.abc import Iterator

import pytest

from cometmq.codec.codes import RequestCode, ResponseCode
from cometmq.codec.headers import REQUEST_HEADERS
from cometmq.codec.headers.base import FieldKind, Header, fields
from cometmq.errors import RemoteProtocolError
from cometmq.testing.local_cluster import BlockingCluster
from tests.broker.kit import Peer, complaints, connected, frame

WITH_HEADER = (
    *(10, 11, 14, 15, 17, 29, 30, 31, 32, 35, 36, 37, 38, 310, 320, 361),
    *(202, 203, 204, 207, 208, 215, 300, 307, 309, 317, 343, 345, 351, 352, 353),
    *(12, 33, 222, 223, 303, 308, 314, 324, 325, 370),
    *(30002, 30003),
    315,
)
"""Requests whose ext fields say what is wanted."""

WITH_BODY = (18, 34, 41, 42, 46, 200, 225, 400, 401)
"""Requests whose body does."""

WITH_ALL_LEFT_OPEN = (321,)
"""Requests whose ext fields may all be missing."""

WITHOUT_EITHER = (
    *(21, 43, 45, 201, 305, 316, 328, 30001),
    *(26, 27, 28, 61, 306, 329, 907),
)
"""Requests that need to say nothing."""

WITH_TESTS_OF_THEIR_OWN = (25, 60)
"""Settings are no JSON, and where timers are is not known on every broker."""

BAD_NUMBERS = {
    FieldKind.INT32: ("many", "1.5", "0x10", " 1", "1_000", "2147483648", "-2147483649", "٣"),
    FieldKind.INT64: ("many", "1e3", "--1", "9223372036854775808", "1" * 5_000),
}

BROKEN_BODIES = {
    "nothing": b"",
    "no JSON": b"hello",
    "no text": b"\xff\xfe\x00",
    "a list": b"[]",
    "a text": b'"text"',
    "a number": b"7",
    "cut short": b'{"clientID":"a","consu',
    "deep": b'{"a":' * 5_000,
    "deep lists": b"[" * 20_000,
    "two values": b"{}{}",
}


def right_ext(header: type[Header]) -> dict[str, str]:
    """Ext fields of that header that can be read, whatever they mean."""
    samples = {FieldKind.TEXT: "text", FieldKind.BOOL: "true", FieldKind.LOOSE_BOOL: "false"}
    right = {f.wire_name: samples.get(f.kind, "0") for f in fields(header) if f.is_required}
    if "commitOrRollback" in right:
        right["commitOrRollback"] = "8"  # "unknown" would not be answered, and need not be
    return right


def wrong_exts(header: type[Header]) -> Iterator[dict[str, str]]:
    right = right_ext(header)
    for field in fields(header):
        if field.is_required:
            yield {name: value for name, value in right.items() if name != field.wire_name}
        for text in BAD_NUMBERS.get(field.kind, ()):
            yield {**right, field.wire_name: text}


def words_for(header: type[Header], ext: dict[str, str]) -> str:
    with pytest.raises(RemoteProtocolError) as refused:
        header.from_ext(ext)
    return refused.value.fact


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", WITH_HEADER)
def test_a_header_that_cannot_be_read_is_refused_by_field(
    peer: Peer, code: int, binary: bool, caplog: pytest.LogCaptureFixture
) -> None:
    header = REQUEST_HEADERS[RequestCode(code)]

    for ext in wrong_exts(header):
        answer = peer.ask(code, ext, binary=binary)

        assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words_for(header, ext))
    assert peer.is_served()
    assert complaints(caplog) == []


@pytest.mark.parametrize("code", WITH_HEADER)
def test_a_request_without_any_ext_fields_is_refused(peer: Peer, code: int) -> None:
    header = REQUEST_HEADERS[RequestCode(code)]

    answer = peer.ask(code)

    assert (answer.code, answer.remark) == (ResponseCode.SYSTEM_ERROR, words_for(header, {}))


@pytest.mark.parametrize("code", WITH_HEADER)
def test_a_header_of_empty_and_huge_texts_is_answered_in_few_words(
    peer: Peer, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    """An answer that repeats what was sent would let a peer fill our memory with its own words."""
    right = right_ext(REQUEST_HEADERS[RequestCode(code)])

    for text in ("", "a" * 200_000, "ä€😀", "\x00", "\x01\x02", "a" * 300, "../..", "%"):
        ext = {name: text if value == "text" else value for name, value in right.items()}
        answer = peer.ask(code, ext, b"body")

        assert len(answer.remark or "") < 2_000
    assert peer.is_served()
    assert complaints(caplog) == []


@pytest.mark.parametrize("what", BROKEN_BODIES)
@pytest.mark.parametrize("code", WITH_BODY)
def test_a_body_that_cannot_be_read_is_refused(
    peer: Peer, code: int, what: str, caplog: pytest.LogCaptureFixture
) -> None:
    answer = peer.ask(code, {}, BROKEN_BODIES[what])

    assert answer.code in (ResponseCode.SYSTEM_ERROR, ResponseCode.INVALID_PARAMETER)
    assert answer.remark
    assert len(answer.remark) < 2_000
    assert peer.is_served()
    assert complaints(caplog) == []


@pytest.mark.parametrize("code", WITH_BODY)
def test_a_body_larger_than_makes_sense_is_refused(
    peer: Peer, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    answer = peer.ask(code, {}, b'{"clientID":"' + b"a" * 2_000_000 + b'"}')

    assert answer.code == ResponseCode.INVALID_PARAMETER
    assert (answer.remark or "").startswith("body of 2000015 bytes: ")
    assert peer.is_served()
    assert complaints(caplog) == []


@pytest.mark.parametrize("code", WITH_BODY)
def test_members_of_the_wrong_type_are_refused(
    peer: Peer, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    members = ("clientID", "clientId", "consumerGroup", "groupName", "mqSet", "subscriptionData")

    for value in (b"[]", b"{}", b"17", b"true", b'[{"queueId":"many"}]', b"-1e999"):
        body = b"{" + b",".join(b'"%s":%s' % (name.encode(), value) for name in members) + b"}"
        answer = peer.ask(code, {}, body)

        assert len(answer.remark or "") < 2_000
        assert "Error" not in (answer.remark or ""), "an exception nobody planned for"
    assert peer.is_served()
    assert complaints(caplog) == []


@pytest.mark.parametrize("binary", [False, True], ids=["json", "binary"])
@pytest.mark.parametrize("code", WITHOUT_EITHER)
def test_a_request_that_needs_no_words_is_served_without_any(
    peer: Peer, code: int, binary: bool
) -> None:
    assert peer.ask(code, binary=binary).code == ResponseCode.SUCCESS
    assert peer.ask(code, {"a": "many"}, b"hello", binary=binary).code == ResponseCode.SUCCESS


def test_what_is_served_is_what_is_tested_here(peer: Peer) -> None:
    """Every other code is answered with 3, in Apache's words."""
    served = set()
    for code in [*range(-2, 410), *(code.value for code in RequestCode), 2**31 - 1]:
        answer = peer.ask(code, {})
        if answer.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            served.add(code)
        else:
            assert (answer.remark or "").startswith(f" request type {code} not supported")

    assert served == {*WITH_HEADER, *WITH_BODY, *WITH_ALL_LEFT_OPEN, *WITHOUT_EITHER} | {
        *WITH_TESTS_OF_THEIR_OWN
    }


@pytest.mark.parametrize("code", [*WITH_HEADER, *WITH_BODY, *WITHOUT_EITHER, 370, 200050, 999])
def test_a_oneway_request_is_never_answered_not_even_with_a_refusal(
    peer: Peer, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    header = REQUEST_HEADERS.get(RequestCode(code)) if code != 999 else None

    peer.tell(code)
    peer.tell(code, {"a": "many"}, b"hello")
    if header is not None:
        peer.tell(code, right_ext(header))

    assert peer.is_served()
    assert complaints(caplog) == []


def test_a_response_that_nobody_asked_for_is_ignored(peer: Peer) -> None:
    for flag in (1, 3, -1):
        peer.say(frame(0, {"offset": "1"}, opaque=77, flag=flag))

    assert peer.is_served()


def test_requests_behind_a_malformed_one_of_the_same_read_are_served(peer: Peer) -> None:
    right = {"topic": "TBW102", "queueId": "0"}
    peer.say(frame(30, right, opaque=1) + frame(30, {}, opaque=2) + frame(30, right, opaque=3))

    codes = {answer.opaque: answer.code for answer in (peer.next_command() for _ in range(3))}

    assert codes == {1: ResponseCode.SUCCESS, 2: ResponseCode.SYSTEM_ERROR, 3: ResponseCode.SUCCESS}


def test_bytes_that_are_no_frame_cost_their_sender_the_connection_and_nobody_else(
    cluster: BlockingCluster, peer: Peer, caplog: pytest.LogCaptureFixture
) -> None:
    with connected(cluster.broker.address) as rude:
        rude.say(b"GET / HTTP/1.1\r\n\r\n")
        assert rude.until_closed() == b""

    assert peer.is_served()
    assert len(complaints(caplog)) == 1
