from collections.abc import Callable

from _typeshed import ReadableBuffer

from cometmq.codec.command import Command
from cometmq.codec.frame import Buffer
from cometmq.codec.headers.base import Header
from cometmq.codec.record import Record

def bind(
    command_type: type[Command],
    plain_frame: Callable[[Buffer, int, int, int, list[Command]], tuple[bool, int]],
    record_type: type[Record],
    plain_records: Callable[[ReadableBuffer], list[Record]],
    languages: dict[bytes, int],
    header_types: dict[int, type[Header]],
) -> None: ...
def decode_frames(
    data: Buffer, begin: int = 0, end: int | None = None, frame_bytes_max: int = 16777216
) -> tuple[list[Command], int]: ...
def parse_records(data: ReadableBuffer) -> list[Record]: ...
