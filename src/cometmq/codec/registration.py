"""The body of REGISTER_BROKER: JSON, or sections inside a deflate stream.

Compressed, after inflating (all numbers are signed 32-bit big-endian)::

    length   DataVersion as JSON
    count    topics, each: length, text
    length   filter servers as a JSON array
    count    queue mappings, each: length, JSON          (version 5.0.0 and later)

The text of a topic is ``name readQueues writeQueues perm filterType``, from 5.x on followed by its
attributes as JSON; ``order`` and ``topicSysFlag`` do not travel in this form.
"""

import struct
import zlib
from collections.abc import Iterator

from cometmq.codec import fastjson
from cometmq.codec.bodies.nameserver import RegisterBrokerBody
from cometmq.codec.bodies.topics import TopicConfigTable, TopicQueueMapping
from cometmq.codec.java import masked_crc32
from cometmq.errors import RemoteProtocolError
from cometmq.model.topic import DataVersion, TopicConfig

WRAPPED_VERSION_MIN = 37
"""Ordinal of 3.0.11; earlier brokers send the bare topic table."""

MAPPING_VERSION_MIN = 413
"""Ordinal of 5.0.0, the first release with queue mappings."""

INFLATED_BYTES_MAX = 64 * 1024 * 1024
"""What a compressed body may become: some million topics, but no bomb."""

_INT = struct.Struct(">i")
_LEVEL = 9


def encode(body: RegisterBrokerBody, version: int, *, compressed: bool = False) -> bytes:
    """Write a body as a broker of that version (ordinal) does."""
    if not compressed:
        return fastjson.dumps(body)
    table = body.topic_config_serialize_wrapper
    parts = [_section(fastjson.dumps(table.data_version or DataVersion()))]
    parts.append(_INT.pack(len(table.topic_config_table)))
    parts += [_section(topic_line(topic).encode()) for topic in table.topic_config_table.values()]
    parts.append(_section(fastjson.dumps(body.filter_server_list)))
    if version >= MAPPING_VERSION_MIN:
        mappings = table.topic_queue_mapping_info_map or {}
        parts.append(_INT.pack(len(mappings)))
        parts += [_section(fastjson.dumps(mapping)) for mapping in mappings.values()]
    return zlib.compress(b"".join(parts), _LEVEL)


def decode(
    data: bytes, version: int, *, inflated_bytes_max: int = INFLATED_BYTES_MAX
) -> RegisterBrokerBody:
    """Read a body of a broker of that version; no body at all is an empty table.

    Whether it is compressed is taken from its first byte: 5.x brokers say no in the header even
    when it is.
    """
    if not data:
        table = TopicConfigTable(data_version=DataVersion())
        return RegisterBrokerBody(topic_config_serialize_wrapper=table)
    if data[0] == 0x78:
        return _decode_sections(_inflate(data, inflated_bytes_max), version)
    if version < WRAPPED_VERSION_MIN:
        return RegisterBrokerBody((), fastjson.decode(data, TopicConfigTable))
    return fastjson.decode(data, RegisterBrokerBody)


def body_crc32(data: bytes) -> int:
    """The checksum a broker sends in ``bodyCrc32``; there 0 means that it sends none."""
    return masked_crc32(data)


def topic_line(topic: TopicConfig) -> str:
    """The text of one topic; without attributes (None) as a 4.x broker writes it."""
    line = (
        f"{topic.topic_name} {topic.read_queue_nums} {topic.write_queue_nums} {topic.perm} "
        f"{topic.topic_filter_type.name}"
    )
    if topic.attributes is None:
        return line
    return f"{line} {fastjson.dumps(topic.attributes).decode()}"


def parse_topic_line(line: str) -> TopicConfig:
    """Read the text of one topic."""
    name, *fields = line.split(" ", 5)
    if len(fields) < 4:
        raise RemoteProtocolError(f"topic line with {len(fields) + 1} fields: {line[:80]!r}")
    keys = ("readQueueNums", "writeQueueNums", "perm", "topicFilterType")
    members = {"topicName": name, **dict(zip(keys, fields, strict=False))}
    attributes = fastjson.loads(fields[4]) if len(fields) > 4 and fields[4].strip() else None
    return fastjson.convert({**members, "attributes": attributes}, TopicConfig)


def _section(content: bytes) -> bytes:
    return _INT.pack(len(content)) + content


def _inflate(data: bytes, bytes_max: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        content = stream.decompress(data, bytes_max + 1)
    except zlib.error as error:
        raise RemoteProtocolError(f"registration is not a deflate stream: {error}") from error
    if len(content) > bytes_max:
        raise RemoteProtocolError(f"registration inflates to more than {bytes_max} bytes")
    if not stream.eof:
        raise RemoteProtocolError("registration is cut off")
    return content


def _decode_sections(content: bytes, version: int) -> RegisterBrokerBody:
    sections = _Sections(content)
    data_version = fastjson.decode(sections.next(), DataVersion)
    topics = [parse_topic_line(_text(line)) for line in sections.counted()]
    filter_servers = fastjson.decode(sections.next() or b"[]", tuple[str, ...])
    mappings = None
    if version >= MAPPING_VERSION_MIN and sections.has_more:
        found = [fastjson.decode(text, TopicQueueMapping) for text in sections.counted()]
        mappings = {mapping.topic: mapping for mapping in found}
    table = TopicConfigTable(
        data_version=data_version,
        topic_config_table={topic.topic_name: topic for topic in topics},
        topic_queue_mapping_info_map=mappings,
    )
    return RegisterBrokerBody(filter_servers, table)


def _text(line: bytes) -> str:
    try:
        return line.decode()
    except UnicodeDecodeError as error:
        raise RemoteProtocolError("a topic line is not UTF-8") from error


class _Sections:
    """Takes lengths, counts and what they announce from the front of the content."""

    def __init__(self, content: bytes) -> None:
        self._content = content
        self._position = 0

    @property
    def has_more(self) -> bool:
        return self._position < len(self._content)

    def next(self) -> bytes:
        length = self._number("length")
        begin, self._position = self._position, self._position + length
        return self._content[begin : self._position]

    def counted(self) -> Iterator[bytes]:
        for _ in range(self._number("count")):
            yield self.next()

    def _number(self, what: str) -> int:
        if len(self._content) - self._position < _INT.size:
            raise RemoteProtocolError(f"registration ends before a {what}")
        (number,) = _INT.unpack_from(self._content, self._position)
        self._position += _INT.size
        if not 0 <= number <= len(self._content) - self._position:
            raise RemoteProtocolError(f"registration has a {what} of {number}, more than is left")
        return int(number)
