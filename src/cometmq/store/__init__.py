"""The message store: a library that opens a directory in RocketMQ's format and knows no network.

It appends, reads and publishes how far it is (``Watermarks``); whoever wants to wait for something
waits above it. Records, entries and files are packed by ``cometmq.codec``; what is here decides
where they go, when they are on disk, and what is left of them after a crash.
"""

from cometmq.store.config import FlushMode, StoreSettings
from cometmq.store.consume_queues import Boundary
from cometmq.store.key_index import KeyKind
from cometmq.store.message_store import MessageStore, StoreState
from cometmq.store.results import (
    GetLimits,
    GetResult,
    GetStatus,
    NewMessage,
    PutResult,
    PutStatus,
)

__all__ = [
    "Boundary",
    "FlushMode",
    "GetLimits",
    "GetResult",
    "GetStatus",
    "KeyKind",
    "MessageStore",
    "NewMessage",
    "PutResult",
    "PutStatus",
    "StoreSettings",
    "StoreState",
]
