from collections.abc import Callable
from typing import Any

from _typeshed import ReadableBuffer, WriteableBuffer

def bind(
    plain_encode_into: Callable[..., int],
    plain_pack_into: Callable[..., None],
    plain_scan: Callable[..., Any],
) -> None: ...
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
