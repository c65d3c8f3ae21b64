"""REGISTER_BROKER bodies; the compressed vectors were made by the brokers' own classes."""

import struct
import zlib

import pytest

from cometmq.codec import registration
from cometmq.codec.bodies.nameserver import RegisterBrokerBody
from cometmq.codec.bodies.topics import TopicConfigTable, TopicQueueMapping
from cometmq.errors import RemoteProtocolError
from cometmq.model.topic import DataVersion, TopicConfig, TopicFilterType

V4_9_7 = 407
V5_5_0 = 513

FROM_4_9_7 = bytes.fromhex(
    "78da63606050af564ace2fcd2b492d52b232d7512ac9cc4d2d2e49cc2d50b232343740805a0606062620160e31543001"
    "423385604f3f771fd7f8104777a0b05088918205109a2bf886fa8478424505a3950c0df440d0d0ca186888522c00dd63"
    "188b"
)
FROM_5_5_0 = bytes.fromhex(
    "78da554fb14ec3301035fc010bb37563652abb20527963a055a416841a58506539ee51229238b29da10af9772e6540dc"
    "d31beeddd3bb3bc6d87200e7fb3661009d0988c9267cc3102bdf82960252d520894d075a65f2af46c6d825f1ba50fc8e"
    "70cf77f9d37af3688a87351fa6e9ac58f02521e3dbd74d91ff0e80d2a23de23c9d3a040dab7cf50c93fbea1d949c4f50"
    "fa96f2614fe205f17b80b2b5cd642e83ffc270634180eb43c80f5b4b670d52cb51c0a10ae904fac3d6110560e7dde7ff"
    "93157de7fc79ab31c7da97b63686a292ef2a47e24e9d9b64eb971e7b8ca017e30fe3b24ea4"
)

TABLE_4_9_7 = TopicConfigTable(
    DataVersion(7, None, 1700000000000),
    {
        "T1": TopicConfig("T1", 4, 4, 6),
        "T2": TopicConfig("T2", 8, 8, 7, TopicFilterType.MULTI_TAG),
    },
)
TABLE_5_5_0 = TopicConfigTable(
    DataVersion(7, 0, 1700000000000),
    {
        "T1": TopicConfig("T1", 4, 4, 6, attributes={}),
        "T2": TopicConfig(
            "T2", 8, 8, 7, TopicFilterType.MULTI_TAG, attributes={"message.type": "FIFO"}
        ),
    },
    topic_queue_mapping_info_map={
        "S1": TopicQueueMapping("S1", 2, "broker-a", 1700000000001, "__global__", False, {0: 0})
    },
)


def packed(*sections: bytes | int) -> bytes:
    """A compressed body: numbers are counts, bytes get their length before them."""
    parts = (
        struct.pack(">i", s) if isinstance(s, int) else struct.pack(">i", len(s)) + s
        for s in sections
    )
    return zlib.compress(b"".join(parts), 9)


@pytest.mark.parametrize(
    ("version", "data", "table"),
    [(V4_9_7, FROM_4_9_7, TABLE_4_9_7), (V5_5_0, FROM_5_5_0, TABLE_5_5_0)],
    ids=["4.9.7", "5.5.0"],
)
def test_a_compressed_body_is_java_s_in_both_directions(
    version: int, data: bytes, table: TopicConfigTable
) -> None:
    body = RegisterBrokerBody(("10.0.0.1:3000",), table)

    assert registration.decode(data, version) == body
    assert registration.encode(body, version, compressed=True) == data


def test_the_checksum_is_the_one_java_computes() -> None:
    assert registration.body_crc32(FROM_4_9_7) == 495899905


@pytest.mark.parametrize("version", [V4_9_7, V5_5_0])
def test_plain_bodies_are_known_by_their_first_byte(version: int) -> None:
    body = RegisterBrokerBody((), TABLE_4_9_7)

    written = registration.encode(body, version)

    assert written.startswith(b'{"filterServerList":[],"topicConfigSerializeWrapper":{')
    assert registration.decode(written, version) == body


def test_brokers_before_3_0_11_send_the_bare_table() -> None:
    data = b'{"dataVersion":{"counter":1,"timestamp":2},"topicConfigTable":{"T":{"topicName":"T"}}}'

    body = registration.decode(data, registration.WRAPPED_VERSION_MIN - 1)

    assert body.topic_config_serialize_wrapper.topic_config_table == {"T": TopicConfig("T")}


def test_no_body_is_an_empty_table() -> None:
    table = registration.decode(b"", V4_9_7).topic_config_serialize_wrapper

    assert table.topic_config_table == {}
    assert table.data_version == DataVersion()


def test_mappings_are_read_only_from_releases_that_have_them() -> None:
    table = registration.decode(FROM_5_5_0, V4_9_7).topic_config_serialize_wrapper

    assert table.topic_queue_mapping_info_map is None


def test_a_5_x_body_may_end_before_the_mappings() -> None:
    body = registration.decode(packed(b"{}", 0, b"[]"), V5_5_0)

    assert body == RegisterBrokerBody((), TopicConfigTable(DataVersion()))


def test_a_topic_line_has_attributes_only_when_the_topic_has() -> None:
    topic = TopicConfig("T", 1, 2, 6)
    with_attributes = TopicConfig("T", 1, 2, 6, attributes={"a b": "c d"})

    assert registration.topic_line(topic) == "T 1 2 6 SINGLE_TAG"
    assert registration.topic_line(with_attributes) == 'T 1 2 6 SINGLE_TAG {"a b":"c d"}'
    assert registration.parse_topic_line('T 1 2 6 SINGLE_TAG {"a b":"c d"}') == with_attributes
    assert registration.parse_topic_line("T 1 2 6 SINGLE_TAG ") == topic


@pytest.mark.parametrize(
    "line", ["", "T", "T 1 2 6", "T x 2 6 SINGLE_TAG", "T 1 2 99999999999 SINGLE_TAG",
             "T 1 2 6 NO_TAG", "T 1 2 6 SINGLE_TAG []", "T 1 2 6 SINGLE_TAG {"]
)  # fmt: skip
def test_a_line_that_is_no_topic_is_refused(line: str) -> None:
    with pytest.raises(RemoteProtocolError):
        registration.parse_topic_line(line)


@pytest.mark.parametrize(
    ("data", "fact"),
    [
        (FROM_4_9_7[:-1], "cut off"),
        (b"x" + FROM_4_9_7[1:20], "not a deflate stream|cut off"),
        (packed(), "ends before a length"),
        (packed(b"{}"), "ends before a count"),
        (packed(b"{}", 1000), "count of 1000"),
        (packed(b"{}", -1), "count of -1"),
        (packed(b"{}", 1, 77), "length of 77"),
        (packed(b"{}", 1, b"\xff"), "not UTF-8"),
        (packed(b"[]", 0, b"[]"), "not a DataVersion"),
        (packed(b"{}", 0, b"{}"), "not a tuple"),
        (packed(b"{}", 0, b"[]", 1, b"{}"), "not a TopicQueueMapping"),
    ],
)
def test_malformed_sections_are_refused(data: bytes, fact: str) -> None:
    with pytest.raises(RemoteProtocolError, match=fact):
        registration.decode(data, V5_5_0)


def test_a_bomb_is_not_inflated() -> None:
    bomb = packed(b" " * 5000)

    with pytest.raises(RemoteProtocolError, match="more than 1000 bytes"):
        registration.decode(bomb, V4_9_7, inflated_bytes_max=1000)


def test_the_limit_itself_is_allowed() -> None:
    content = packed(b"{}", 0, b"[]")
    size = len(zlib.decompress(content))

    registration.decode(content, V4_9_7, inflated_bytes_max=size)
    with pytest.raises(RemoteProtocolError):
        registration.decode(content, V4_9_7, inflated_bytes_max=size - 1)
