"""The recorded store directories: their files, and what the broker that wrote them said of them."""

import gzip
import json
import tarfile
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import msgspec

from cometmq.codec import record
from cometmq.codec.record import Record

STORES = ("4.9.7-clean", "4.9.7-killed", "5.5.0-clean", "5.5.0-killed")

_DATA = Path(__file__).parent.parent / "data" / "store"
_TIMER_WHEEL = "timerwheel"


class Store(msgspec.Struct, frozen=True):
    """One directory; paths are relative to it. The timer wheel (39 MB) is not among the files."""

    name: str
    files: dict[str, bytes]
    manifest: dict[str, Any]

    @property
    def is_killed(self) -> bool:
        return self.name.endswith("-killed")

    @property
    def is_4x(self) -> bool:
        return self.name.startswith("4.")

    def below(self, folder: str) -> dict[str, bytes]:
        """The files of a folder by path, in order."""
        return {path: self.files[path] for path in sorted(self.files) if path.startswith(folder)}


@cache
def load(name: str) -> Store:
    files = {path: data for path, data in _members(name) if path != _TIMER_WHEEL}
    with gzip.open(_DATA / f"{name}.manifest.json.gz") as manifest:
        return Store(name, files, json.load(manifest))


def timer_wheel(name: str) -> bytes:
    return next(data for path, data in _members(name) if path == _TIMER_WHEEL)


def _members(name: str) -> Iterator[tuple[str, bytes]]:
    with tarfile.open(_DATA / f"{name}.tar.gz") as archive:
        for member in archive:
            content = archive.extractfile(member) if member.isfile() else None
            if content is not None:
                yield member.name.removeprefix("store/"), content.read()


def facts(item: Record) -> dict[str, Any]:
    """A record as the manifest describes it."""
    return {
        "topic": item.topic,
        "queueId": item.queue_id,
        "queueOffset": item.queue_offset,
        "commitLogOffset": item.physical_offset,
        "storeSize": item.size,
        "bodyCRC": item.body_crc,
        "sysFlag": item.sys_flag,
        "flag": item.flag,
        "bornTimestamp": item.born_timestamp,
        "bornHost": "{}:{}".format(*record.unpack_host(item.born_host)),
        "storeTimestamp": item.store_timestamp,
        "storeHost": "{}:{}".format(*record.unpack_host(item.store_host)),
        "reconsumeTimes": item.reconsume_times,
        "preparedTransactionOffset": item.prepared_transaction_offset,
    }
