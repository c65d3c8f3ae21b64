"""The recorded frames of ``tests/data/wire``, split into header and body."""

import base64
import functools
import gzip
import json
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

WIRE_DIRECTORY = Path(__file__).resolve().parent.parent / "data" / "wire"

_SERIALIZATIONS = {"json": 0, "rocketmq": 1}


@dataclass(frozen=True, slots=True)
class RecordedFrame:
    """One remoting frame as it crossed the wire; ``raw`` includes the length prefix."""

    source: str
    server: str
    version: str
    client: str
    client_version: str
    conn: str
    seq: int
    sender: Literal["client", "server"]
    kind: Literal["request", "response", "oneway"]
    code: int
    request_code: int | None
    opaque: int
    serialization: int
    what: str
    raw: bytes
    header: bytes
    body: bytes

    @property
    def label(self) -> str:
        """Short enough for an assertion message, unique enough to find the line again."""
        return f"{self.source}:{self.conn}#{self.seq} {self.kind} {self.code} ({self.what})"


def frames(name: str | None = None) -> Iterator[RecordedFrame]:
    """Every recorded frame, file by file in recorded order; only those of ``name`` when given.

    ``name`` is a file without its endings: ``java-4.9.7``, ``cpp-0.4.4``, ``broker``, ...
    """
    for source in [name] if name is not None else sources():
        yield from _frames_of(source)


def sources() -> list[str]:
    """Names that ``frames`` accepts."""
    return sorted(path.name.removesuffix(".jsonl.gz") for path in WIRE_DIRECTORY.glob("*.jsonl.gz"))


@functools.cache
def _frames_of(source: str) -> tuple[RecordedFrame, ...]:
    path = WIRE_DIRECTORY / f"{source}.jsonl.gz"
    with gzip.open(path, "rt", encoding="utf-8") as lines:
        return tuple(_frame(source, json.loads(line)) for line in lines)


def _frame(source: str, line: dict[str, Any]) -> RecordedFrame:
    raw = base64.b64decode(line["frame_b64"])
    length, word = struct.unpack_from(">II", raw)
    assert length + 4 == len(raw), (source, line["conn"], line["seq"])
    serialization, body_begin = word >> 24, 8 + (word & 0xFFFFFF)
    assert _SERIALIZATIONS[line["header_serialization"]] == serialization
    return RecordedFrame(
        source=source,
        server=line["server"],
        version=line["version"],
        client=line["client"],
        client_version=line["client_version"],
        conn=line["conn"],
        seq=line["seq"],
        sender=line["from"],
        kind=line["kind"],
        code=line["code"],
        request_code=line.get("request_code"),
        opaque=line["opaque"],
        serialization=serialization,
        what=line["what"],
        raw=raw,
        header=raw[8:body_begin],
        body=raw[body_begin:],
    )
