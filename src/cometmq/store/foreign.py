"""What other storage engines write into a store directory, and refusing it.

Such data would not be damaged by us but silently missed: messages, queues or settings that a user
believes to be there. The decision is by content, because brokers of 5.5 make the folders of these
engines whether they use them or not.

::

    batchconsumequeue/<topic>/<queue id>/     queues of topics with queue.type=BatchCQ
    compaction/compactionLog/<topic>/<q>/     messages of topics with cleanup.policy=COMPACTION
    consumequeue/*.sst  consumequeue_rocksdb/ queues of storeType=defaultRocksDB
    rocksdbstore/  kvStore/                   index, timers, transactions; popped messages
    config/{rdb,metadata,topics,…}/           topics, groups and offsets kept in RocksDB
    dledger-<id>/data/                        the commit log of a DLedger group
"""

from __future__ import annotations

import struct
from typing import TYPE_CHECKING, Final

from cometmq.codec import fastjson, record
from cometmq.codec.bodies.topics import TopicConfigTable
from cometmq.errors import ForeignStore, RemoteProtocolError
from cometmq.store.directory import CONFIG_FOLDER, QUEUE_FOLDER

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from cometmq.store.files import Files

_BATCH_UNIT = struct.Struct(">qiqqqhii")

_ROCKSDB_FOLDERS: Final = {
    QUEUE_FOLDER: "consume queues",
    f"{QUEUE_FOLDER}_rocksdb": "consume queues",
    "rocksdbstore": "indexes, timers or transactions",
    "kvStore": "popped messages",
    f"{CONFIG_FOLDER}/rdb": "topics, groups and offsets",
    f"{CONFIG_FOLDER}/metadata": "topics, groups and offsets",
    f"{CONFIG_FOLDER}/topics": "topics",
    f"{CONFIG_FOLDER}/subscriptionGroups": "groups",
    f"{CONFIG_FOLDER}/consumerOffsets": "offsets",
}

_ANOTHER_BROKER = "only Apache's broker reads it, with the settings it was written with"


def refuse_foreign(root: Path, files: Files) -> None:
    """Raise ForeignStore when another engine keeps messages, queues or settings below ``root``."""
    _refuse_topics(root, files)
    _refuse_batch_queues(root, files)
    _refuse_compaction(root, files)
    _refuse_rocksdb(root, files)
    _refuse_dledger(root, files)


def _refuse_topics(root: Path, files: Files) -> None:
    path = root / CONFIG_FOLDER / "topics.json"
    content = files.read(path) or files.read(path.with_name("topics.json.bak"))
    if not content:
        return
    try:
        topics = fastjson.decode(content, TopicConfigTable).topic_config_table or {}
    except RemoteProtocolError:
        return  # whoever needs the topics says so, and knows of the backup
    for name, topic in topics.items():
        attributes = topic.attributes or {}
        if attributes.get("queue.type") == "BatchCQ":
            _refuse(path, f"topic '{name}' has batch queues (queue.type=BatchCQ)")
        if attributes.get("cleanup.policy") == "COMPACTION":
            _refuse(path, f"topic '{name}' is compacted (cleanup.policy=COMPACTION)")


def _refuse_batch_queues(root: Path, files: Files) -> None:
    for path in _files_below(root / "batchconsumequeue", files):
        head = _head(path, _BATCH_UNIT.size, files)
        if len(head) == _BATCH_UNIT.size and _is_batch_unit(head):
            _refuse(path, "a queue of batches (queue.type=BatchCQ)")


def _refuse_compaction(root: Path, files: Files) -> None:
    for path in _files_below(root / "compaction" / "compactionLog", files):
        head = _head(path, 8, files)
        if len(head) == 8 and record.peek(head, 0)[0] > 0:
            _refuse(path, "messages of a compacted topic (cleanup.policy=COMPACTION)")


def _refuse_rocksdb(root: Path, files: Files) -> None:
    for name, what in _ROCKSDB_FOLDERS.items():
        folder = root / name
        for entry in files.entries(folder):
            # A database without data has a manifest, options and an empty write-ahead log.
            if entry.size and entry.name.endswith((".sst", ".blob", ".log")):
                _refuse(folder / entry.name, f"{what} in RocksDB")


def _refuse_dledger(root: Path, files: Files) -> None:
    for entry in files.entries(root):
        if entry.is_folder and entry.name.startswith("dledger-"):
            for path in _files_below(root / entry.name / "data", files):
                _refuse(path, "a commit log of DLedger")


def _files_below(folder: Path, files: Files) -> Iterator[Path]:
    """Files that are not empty, at any depth."""
    for entry in files.entries(folder):
        if entry.is_folder:
            yield from _files_below(folder / entry.name, files)
        elif entry.size:
            yield folder / entry.name


def _head(path: Path, count: int, files: Files) -> bytes:
    file = files.open(path)
    try:
        with file.map(writable=False) as mapping:
            return mapping[:count]
    finally:
        file.close()


def _is_batch_unit(data: bytes) -> bool:
    offset, size, _, _, base, count, _, _ = _BATCH_UNIT.unpack(data)
    return bool(offset >= 0 and size > 0 and base >= 0 and count > 0)


def _refuse(path: Path, what: str) -> None:
    raise ForeignStore(str(path), f"{what}, which CometMQ does not read", _ANOTHER_BROKER)
