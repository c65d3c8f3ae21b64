from collections.abc import Sequence
from typing import Any

from _typeshed import ReadableBuffer, WriteableBuffer

def bind(plain: Any) -> None: ...
def crc32(data: ReadableBuffer) -> int: ...
def encode_into(
    target: WriteableBuffer,
    position: int,
    topic: bytes,
    body: ReadableBuffer,
    properties: bytes,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    flag: int,
    sys_flag: int,
    reconsume_times: int,
    prepared_transaction_offset: int,
) -> int: ...
def pack_into(
    target: WriteableBuffer, position: int, physical_offset: int, size: int, tags_code: int
) -> None: ...
def scan(
    data: ReadableBuffer, begin: int, end: int, tags: frozenset[int] | None, limit: int
) -> tuple[list[tuple[int, int, int]], int]: ...
def measure(
    data: ReadableBuffer, topic_length: int, sys_flag: int, record_bytes_max: int
) -> tuple[int, int]: ...
def encode_records_into(
    target: WriteableBuffer,
    position: int,
    topic: bytes,
    data: ReadableBuffer,
    queue_id: int,
    queue_offset: int,
    physical_offset: int,
    store_timestamp: int,
    born_timestamp: int,
    born_host: bytes,
    store_host: bytes,
    sys_flag: int,
    reconsume_times: int,
) -> tuple[int, ...]: ...
def select(
    data: ReadableBuffer,
    begin: int,
    end: int,
    tags: frozenset[int] | None,
    log_begin: int,
    warm_begin: int,
    log_end: int,
    count_max: int,
    bytes_max: int,
    count_cold_max: int,
    bytes_cold_max: int,
) -> Any: ...
def slice_runs(
    view: memoryview, base: int, runs: list[tuple[int, int]], begin: int
) -> list[memoryview]: ...
def count(data: ReadableBuffer, begin: int, end: int) -> tuple[int, int]: ...
def walk(
    data: ReadableBuffer, begin: int, end: int, base: int, limit: int, check_crc: bool
) -> Any: ...
def put_entries(
    data: WriteableBuffer,
    slots: int,
    number: int,
    hashes: Sequence[int],
    physical_offset: int,
    seconds: int,
) -> int: ...
def relink(data: WriteableBuffer, slots: int, count: int) -> int: ...
def valid_count(
    data: ReadableBuffer, slots: int, count: int, begin_offset: int, end_offset: int
) -> int: ...
