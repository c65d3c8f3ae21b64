"""What is written is read back, and no bytes make a reader fail in any way but its own."""

import zlib
from typing import Any

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from cometmq.codec import bodies, fastjson, java_properties, registration
from cometmq.codec.bodies import documents
from cometmq.codec.bodies.nameserver import RegisterBrokerBody
from cometmq.codec.bodies.offsets import ResetOffsetBody
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.codec.fastjson import PrettyStyle
from cometmq.errors import RemoteProtocolError
from cometmq.model.offsets import MessageQueue
from cometmq.model.topic import DataVersion, TopicConfig, TopicFilterType
from tests.golden.wire_frames import frames

INT32 = st.integers(-(2**31), 2**31 - 1)
INT64 = st.integers(-(2**63), 2**63 - 1)
TEXT = st.text(st.characters(exclude_categories=["Cs"]))
ATOMS = st.one_of(st.booleans(), INT64, st.floats(allow_nan=False, allow_infinity=False), TEXT)
QUEUES = st.builds(MessageQueue, TEXT, TEXT, INT32)
VALUES = st.recursive(
    ATOMS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.dictionaries(TEXT.filter(lambda key: key != "$ref"), inner, max_size=4),
        st.dictionaries(INT64, inner, max_size=4),
    ),
    max_leaves=12,
)
KINDS = [
    *bodies.REQUEST_BODIES.values(),
    *bodies.RESPONSE_BODIES.values(),
    *documents.DOCUMENTS.values(),
]
PIECES = st.sampled_from(
    ["{", "}", "[", "]", ":", ",", '"', "'", "\\", "\\u", "d83d", "0", "-1", "1e9", "a", "true",
     "null", '{"$ref":"', '"}', "$", "$.a", "..", "@", "[0]", '"offsetTable":', " ", "\n", "é"]
)  # fmt: skip
SCRAPS = st.lists(PIECES, max_size=30).map("".join)
RECORDED = sorted({f.body for f in frames() if f.body[:1] == b"{"}, key=len)[:200]


@given(VALUES)
def test_plain_values_are_read_back(value: Any) -> None:
    assert fastjson.loads(fastjson.dumps(value)) == value


@given(VALUES, st.sampled_from(PrettyStyle))
def test_pretty_text_has_the_same_content(value: Any, style: PrettyStyle) -> None:
    assert fastjson.loads(fastjson.dumps_pretty(value, style)) == value


@given(VALUES)
def test_standard_text_is_ascii_and_read_by_any_parser(value: Any) -> None:
    text = fastjson.dumps_standard(value)

    assert text.isascii()
    assert msgspec.json.decode(text) == with_text_keys(value)


@given(st.dictionaries(QUEUES, INT64, max_size=5))
def test_tables_keyed_by_queues_are_read_back(table: dict[MessageQueue, int]) -> None:
    body = ResetOffsetBody(table)

    assert bodies.decode(ResetOffsetBody, bodies.encode(body)) == body


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_doubles_keep_their_value(value: float) -> None:
    assert fastjson.loads(fastjson.dumps([value])) == [value]


@given(st.one_of(st.binary(max_size=60), SCRAPS.map(str.encode)))
def test_any_bytes_are_read_or_refused(data: bytes) -> None:
    try:
        value = fastjson.loads(data)
    except RemoteProtocolError:
        return
    if b"$ref" not in data:
        assert fastjson.loads(fastjson.dumps([value])) is not None


@given(st.sampled_from(KINDS), st.one_of(st.binary(max_size=60), SCRAPS.map(str.encode)))
def test_any_bytes_are_a_body_or_refused(kind: Any, data: bytes) -> None:
    try:
        body = bodies.decode(kind, data)
    except RemoteProtocolError:
        return
    assert bodies.decode(kind, fastjson.dumps(body)) == body


@given(st.sampled_from(KINDS), st.sampled_from(RECORDED), st.data())
def test_a_damaged_body_is_a_body_or_refused(kind: Any, body: bytes, data: st.DataObject) -> None:
    begin = data.draw(st.integers(0, len(body)))
    end = data.draw(st.integers(begin, min(len(body), begin + 20)))
    damaged = body[:begin] + data.draw(SCRAPS).encode() + body[end:]

    try:
        found = bodies.decode(kind, damaged)
    except RemoteProtocolError:
        return
    assert fastjson.dumps(found)


@given(st.dictionaries(st.text(), st.text(), max_size=5))
def test_properties_are_read_back(properties: dict[str, str]) -> None:
    again = java_properties.loads(java_properties.dumps(properties))

    assert again == properties


@given(st.one_of(st.binary(max_size=60), st.text("ab\\u:= \t\r\n#!é", max_size=30).map(str.encode)))
def test_any_bytes_are_properties_or_refused(data: bytes) -> None:
    try:
        properties = java_properties.loads(data)
    except RemoteProtocolError:
        return
    assert java_properties.loads(java_properties.dumps(properties)) == properties


TOPICS = st.builds(
    TopicConfig,
    TEXT.filter(lambda name: " " not in name),
    INT32,
    INT32,
    INT32,
    st.sampled_from(TopicFilterType),
    attributes=st.none() | st.dictionaries(TEXT, TEXT, max_size=3),
)


@given(st.lists(TOPICS, max_size=4), st.lists(TEXT, max_size=3).map(tuple), INT64)
def test_compressed_registrations_are_read_back(
    topics: list[TopicConfig], servers: tuple[str, ...], counter: int
) -> None:
    table = TopicConfigTable(DataVersion(counter), {topic.topic_name: topic for topic in topics})
    body = RegisterBrokerBody(servers, table)

    packed = registration.encode(body, 407, compressed=True)

    assert registration.decode(packed, 407) == body


@given(st.one_of(st.binary(max_size=80), SCRAPS.map(str.encode)), st.sampled_from([1, 407, 513]))
def test_any_bytes_are_a_registration_or_refused(data: bytes, version: int) -> None:
    for candidate in (data, b"x" + data, zlib.compress(data)):
        try:
            body = registration.decode(candidate, version)
        except RemoteProtocolError:
            continue
        assert registration.encode(body, version)


def with_text_keys(value: Any) -> Any:
    if isinstance(value, dict):
        return {str(key): with_text_keys(item) for key, item in value.items()}
    return [with_text_keys(item) for item in value] if isinstance(value, list) else value
