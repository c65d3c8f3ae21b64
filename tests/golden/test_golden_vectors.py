"""Vectors made by Apache's own encoders: what the recordings lack, read and written by our codecs.

Frames are judged in ``test_golden_frames``; how the vectors are made is told beside them.
"""

import base64
import itertools
from ipaddress import IPv4Address, IPv6Address, ip_address
from typing import Any

import pytest

from cometmq.codec import (
    batch,
    fastjson,
    fastjson_writer,
    message_id,
    properties,
    queue_extension,
    record,
)
from cometmq.codec.bodies.clients import HeartbeatData
from cometmq.codec.bodies.nameserver import ClusterInfo, KVTable
from cometmq.codec.bodies.offsets import ConsumeStats, ResetOffsetBody
from cometmq.codec.bodies.queues import LockBatchBody
from cometmq.codec.bodies.topics import TopicConfigTable, TopicStatsTable
from cometmq.codec.fastjson_writer import PrettyStyle
from cometmq.codec.java import masked_crc32, string_hash
from cometmq.codec.queue_extension import ExtensionUnit
from cometmq.codec.record import Record
from cometmq.errors import LocalProtocolError
from cometmq.model.route import TopicRoute
from tests.interop.vectors import Vector, read

RECORDS = read("records")


def data(vector: Vector, member: str) -> bytes:
    return base64.b64decode(vector[member])


def parsed(vector: Vector) -> Record:
    found = record.parse(data(vector, "record"), check_crc=True)
    assert isinstance(found, Record)
    return found


def host(packed: bytes) -> tuple[IPv4Address | IPv6Address, int]:
    ip, port = record.unpack_host(packed)
    return ip_address(ip), port


def wanted_host(ip: str, port: int) -> tuple[IPv4Address | IPv6Address, int]:
    """The same from what Java says, which spells IPv6 in several ways."""
    return ip_address(ip), port


def test_hashes_and_checksums_are_javas() -> None:
    for vector in read("hashes"):
        assert string_hash(vector["text"]) == vector["hash"], vector["name"]
        assert masked_crc32(data(vector, "utf8")) == vector["crc"], vector["name"]


def test_records_are_read_as_apaches_decoder_reads_them() -> None:
    for vector in RECORDS:
        found, fields = parsed(vector), vector["fields"]
        read_properties = properties.decode(found.properties)

        assert (found.topic, found.body) == (fields["topic"], data(fields, "body"))
        assert read_properties == (fields["properties"] or {}), vector["name"]
        assert host(found.born_host) == wanted_host(fields["bornHost"], fields["bornPort"])
        assert host(found.store_host) == wanted_host(fields["storeHost"], fields["storePort"])
        assert (found.size, found.body_crc) == (fields["size"], fields["bodyCrc"])
        assert (found.queue_id, found.queue_offset) == (fields["queueId"], fields["queueOffset"])
        assert (found.flag, found.sys_flag) == (fields["flag"], fields["sysFlag"])
        assert found.physical_offset == fields["physicalOffset"]
        assert found.born_timestamp == fields["bornTimestamp"]
        assert found.store_timestamp == fields["storeTimestamp"]
        assert found.reconsume_times == fields["reconsumeTimes"]
        assert found.prepared_transaction_offset == fields["preparedTransactionOffset"]


def test_records_are_written_again_to_the_same_bytes() -> None:
    for vector in RECORDS:
        assert record.encode(parsed(vector)) == data(vector, "record"), vector["name"]


def test_long_topics_are_in_records_of_version_2_and_short_ones_never() -> None:
    versions = {(len(parsed(vector).topic) > 127, parsed(vector).magic) for vector in RECORDS}

    assert versions == {(False, record.MAGIC_V1), (True, record.MAGIC_V2)}


def test_the_checksum_of_a_whole_record_is_found_right_and_made_again() -> None:
    checked = 0
    for vector in RECORDS:
        raw = data(vector, "record")
        assert record.verify_property_crc(raw) == vector["hasPropertyCrc"], vector["name"]
        if vector["hasPropertyCrc"]:
            again = bytearray(raw)
            again[-11:-1] = b"0" * 10
            record.append_property_crc(again, 0)
            assert again == raw, vector["name"]
            checked += 1

    assert checked > 10


def test_the_id_a_client_shows_is_made_of_store_host_and_position() -> None:
    for vector in RECORDS:
        found = parsed(vector)
        made = message_id.encode_offset_id(found.store_host, found.physical_offset)

        assert made == vector["fields"]["msgId"], vector["name"]


def test_offset_ids_are_taken_apart_as_java_does() -> None:
    for vector in read("message-ids"):
        if vector["kind"] == "offset":
            found = message_id.decode_offset_id(vector["id"])
            packed = record.pack_host(found.ip, found.port)

            assert host(packed) == wanted_host(vector["host"], vector["port"])
            assert found.physical_offset == vector["offset"]
            assert message_id.encode_offset_id(packed, found.physical_offset) == vector["id"]


def test_unique_ids_are_taken_apart_as_java_does() -> None:
    for vector in read("message-ids"):
        if vector["kind"] == "unique":
            found = message_id.parse_unique_id(vector["id"])

            assert found is not None
            assert found.pid == vector["pid"]
            assert host(found.ip + bytes(4)) == wanted_host(vector["host"], 0)


def test_batches_are_read_and_written_as_apache_does() -> None:
    for vector in read("batches"):
        encoded = data(vector, "encoded")
        items = batch.decode(encoded)

        for item, wanted in itertools.zip_longest(items, vector["decoded"]):
            assert (item.flag, item.body) == (wanted["flag"], data(wanted, "body"))
            assert properties.decode(item.properties) == dict(wanted["properties"])
        assert batch.encode(items) == encoded, vector["name"]


def test_property_strings_are_read_as_apache_reads_them() -> None:
    for vector in read("properties"):
        if "text" in vector:
            assert properties.decode(vector["text"]) == vector["read"], repr(vector["text"])


def test_property_strings_are_written_as_release_5_5_0_writes_them() -> None:
    """Except for empty parts, which no reader gets back: we refuse to write those."""
    for vector in read("properties"):
        if "written" in vector and "5.5.0" in vector["releases"]:
            pairs = dict(vector["properties"])
            if "" in pairs or "" in pairs.values():
                with pytest.raises(LocalProtocolError):
                    properties.encode(pairs)
            else:
                assert properties.encode(pairs) == vector["written"]


def test_extension_files_are_read_unit_by_unit() -> None:
    vectors = read("queue-extension")
    files = {
        int(vector["file"][-20:]): data(vector, "bytes") for vector in vectors if "file" in vector
    }
    size = len(files[0])

    for unit in (vector["unit"] for vector in vectors if "unit" in vector):
        bitmap = base64.b64decode(unit["bitmap"] or "")
        wanted = ExtensionUnit(unit["tagsCode"], unit["storeTime"], bitmap)
        offset = queue_extension.tags_code_to_address(unit["address"])
        file, position = files[offset - offset % size], offset % size

        assert offset == unit["offset"]
        assert queue_extension.parse(file, position) == wanted
        assert queue_extension.encode(wanted) == file[position : position + unit["size"]]
        assert queue_extension.address_to_tags_code(offset) == unit["address"]


def test_the_end_of_a_full_extension_file_is_found() -> None:
    vectors = read("queue-extension")
    first = next(data(vector, "bytes") for vector in vectors if "file" in vector)
    position = 0
    while unit := queue_extension.parse(first, position):
        position += unit.size

    assert first[position : position + 2] == queue_extension.END_MARKER


def test_addresses_are_told_from_hashes_as_java_does() -> None:
    for vector in read("queue-extension"):
        if "isAddress" in vector:
            assert queue_extension.is_address(vector["tagsCode"]) == vector["isAddress"]


# Java wants two digits and finds 4.9E-324 for what is shortest as 5E-324; nobody sends this number.
SMALLEST_DOUBLE = "0x0.0000000000001p-1022"


def json_vectors(release: str) -> list[Vector]:
    """The vectors of single values."""
    return [
        vector
        for vector in read("json")
        if vector["name"].split(":")[0] in ("string", "key", "double", "long")
        and release in vector["releases"]
        and vector["input"] != SMALLEST_DOUBLE
    ]


def json_value(vector: Vector) -> Any:
    kind, text = vector["name"].split(":")[0], vector["input"]
    if kind == "key":
        return {text: 1}
    if kind == "double":
        return float.fromhex(text)
    return int(text) if kind == "long" else text


def test_values_are_written_as_release_4_9_7_writes_bodies() -> None:
    vectors = json_vectors("4.9.7")

    for vector in vectors:
        encoded = fastjson_writer.dumps(json_value(vector))
        assert encoded == data(vector, "encoded"), vector["name"]
    assert len(vectors) > 60


@pytest.mark.parametrize(
    ("style", "release"),
    [(PrettyStyle.FASTJSON_1, "4.9.7"), (PrettyStyle.FASTJSON_2, "5.5.0")],
)
def test_values_are_written_as_each_release_writes_files(style: PrettyStyle, release: str) -> None:
    vectors = json_vectors(release)

    for vector in vectors:
        encoded = fastjson_writer.dumps_pretty(json_value(vector), style)
        pretty = data(vector, "pretty" if "pretty" in vector else "encoded")
        assert encoded == pretty, vector["name"]
    assert len(vectors) > 60


BODIES: dict[str, type[Any]] = {
    "TopicRouteData": TopicRoute,
    "ClusterInfo": ClusterInfo,
    "TopicStatsTable": TopicStatsTable,
    "ConsumeStats": ConsumeStats,
    "ResetOffsetBody": ResetOffsetBody,
    "KVTable": KVTable,
    "LockBatchRequestBody": LockBatchBody,
    "HeartbeatData": HeartbeatData,
    "TopicConfigSerializeWrapper": TopicConfigTable,
}


def test_bodies_of_both_releases_are_written_again_to_the_same_bytes() -> None:
    seen: set[tuple[str, str]] = set()
    for vector in read("json"):
        if kind := BODIES.get(vector["name"]):
            encoded = data(vector, "encoded")
            assert fastjson.dumps(fastjson.decode(encoded, kind)) == encoded, vector["name"]
            seen.update((vector["name"], release) for release in vector["releases"])

    assert len(seen) == 2 * len(BODIES)


def test_routes_in_standard_json_mean_the_same_in_both_releases_and_ours_are_4_9_7s() -> None:
    """5.5.0 leaves characters beyond ASCII as they are; escaping them all suits every reader."""
    for vector in read("json"):
        if vector["name"] == "TopicRouteData, standard":
            encoded = data(vector, "encoded")
            route = fastjson.decode(encoded, TopicRoute)
            written = fastjson.dumps_standard(route)

            assert fastjson.decode(written, TopicRoute) == route
            assert written.isascii()
            assert (written == encoded) == ("4.9.7" in vector["releases"])
