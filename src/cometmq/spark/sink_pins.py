"""Which brokers the batches of a streaming query are sent to, kept in the query's checkpoint.

A batch that is run again must go to the brokers it went to, also when one of them is down by then
and no name server knows of it. So the list of a topic is fixed: that of option ``topic`` before the
first batch, those that rows name when the first batch with them is committed. A broker that comes
later is taken in by a batch that has not begun: the one after the batch that was just committed.
One that is gone is waited for; only option ``brokers`` gives it up.
"""

from __future__ import annotations

import os
import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, Final, NamedTuple

import msgspec

from cometmq import logs

FILE: Final = "cometmq-sink.json"
VERSION: Final = 1
TOPICS_MAX: Final = 1000
"""Topics whose brokers are fixed; more than these are looked up for each batch."""
_log = logs.get_logger("cometmq.spark")


class Pin(NamedTuple):
    """From batch ``first`` on rows of a topic go to ``brokers``."""

    first: int
    brokers: tuple[str, ...]


class Document(msgspec.Struct):
    """What the file holds: the pins of each topic, in order."""

    version: int = VERSION
    topics: dict[str, tuple[Pin, ...]] = {}


def brokers_for(pins: Sequence[Pin], batch: int) -> tuple[str, ...] | None:
    """The brokers of a batch, or None when nothing is fixed."""
    found = None
    for pin in pins:
        if pin.first <= batch:
            found = pin.brokers
    return found


def extended(pins: Sequence[Pin], committed: int, brokers: Sequence[str]) -> tuple[Pin, ...]:
    """The pins when ``brokers`` are there after a batch was committed; the same if none is new."""
    known = pins[-1].brokers
    if pins[-1].first > committed or set(brokers) <= set(known):
        return tuple(pins)
    return (*pins, Pin(committed + 1, tuple(sorted({*known, *brokers}))))


def with_topics(
    known: Mapping[str, tuple[Pin, ...]], used: Mapping[str, Sequence[str]]
) -> dict[str, tuple[Pin, ...]]:
    """The pins of all topics when a batch has sent rows of topics to the brokers ``used``."""
    pins = dict(known)
    for topic, brokers in used.items():
        if len(pins) < TOPICS_MAX:
            pins.setdefault(topic, (Pin(0, tuple(brokers)),))
    return pins


def uri_of(checkpoint: str) -> str | None:
    """A place with a scheme in the form that pyarrow takes; None for one of this machine."""
    found = re.fullmatch(r"([A-Za-z][A-Za-z0-9+.-]*):(/.*)", checkpoint)
    if found is None or found[1].lower() == "file":
        return None
    scheme = "s3" if found[1] == "s3a" else found[1]
    return f"{scheme}:{found[2]}" if found[2].startswith("//") else f"{scheme}://{found[2]}"


def is_astray(checkpoint: str) -> bool:
    """Whether this is a folder of this machine, and Spark keeps its notes somewhere else.

    A path without a scheme is of Hadoop's default file system, which only Spark knows.
    """
    return uri_of(checkpoint) is None and not (_folder_of(checkpoint) / "offsets").is_dir()


class PinFile:
    """The file in a checkpoint, wherever that is; see ``at``."""

    def __init__(self, files: Any, path: str) -> None:
        self._files = files
        self._path = path

    @classmethod
    def at(cls, checkpoint: str | None) -> PinFile | None:
        """The file of a checkpoint's place; None when it cannot be reached from Python."""
        if not checkpoint:
            return None
        from pyarrow import fs

        uri = uri_of(checkpoint)
        if uri is None:
            return cls(fs.LocalFileSystem(), str(_folder_of(checkpoint) / FILE))
        try:
            files, place = fs.FileSystem.from_uri(uri)
        except (OSError, ValueError, NotImplementedError) as error:
            reason = str(error).partition("\n")[0]
            _log.warning("brokers are not fixed in %s: %s", checkpoint, reason)
            return None
        return cls(files, f"{place.rstrip('/')}/{FILE}")

    def load(self) -> Document:
        """What is fixed; nothing when there is no file. Raises OSError."""
        from pyarrow import fs

        if self._files.get_file_info(self._path).type == fs.FileType.NotFound:
            return Document()
        with self._files.open_input_stream(self._path) as stream:
            return msgspec.json.decode(stream.read(), type=Document)

    def save(self, document: Document) -> None:
        """Replace the file as a whole. Raises OSError."""
        unfinished = f"{self._path}.{os.getpid()}.tmp"
        self._files.create_dir(self._path.rpartition("/")[0], recursive=True)
        with self._files.open_output_stream(unfinished) as stream:
            stream.write(msgspec.json.encode(document))
        self._files.move(unfinished, self._path)


def _folder_of(checkpoint: str) -> Path:
    # Spark takes such a path as it is: what looks like an escape in it is none.
    return Path(re.sub(r"^file:/+", "/", checkpoint)).absolute()
