"""How a store is set up: Apache's keys, each with what it does here."""

import enum
from pathlib import Path

from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.errors import SettingsError
from cometmq.model.limits import BODY_BYTES_MAX
from cometmq.settings import Settings, setting, settings_class

DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
DELAY_DAYS_MAX = 36_500
"""A hundred years: the time of delivery, 64 bits of milliseconds, has room for it."""

_DELAY_CHARACTERS_MAX = 20
_UNITS_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
_KIB = 1024
_MIB = 1024 * 1024
_GIB = 1024 * _MIB


class FlushMode(enum.StrEnum):
    """Whether a message counts as stored before it is on disk."""

    ASYNC_FLUSH = "ASYNC_FLUSH"
    SYNC_FLUSH = "SYNC_FLUSH"


@settings_class
class StoreSettings(Settings):
    """Sizes, flushing, reading and retention of one store directory."""

    root: Path = setting(
        factory=lambda: Path.home() / "store",
        shown="~/store",
        key="storePathRootDir",
        doc="Directory of the store.",
    )
    log_paths: tuple[str, ...] = setting(
        (),
        key="storePathCommitLog",
        doc="Where the commit log lies, if not below the store directory; several paths share it.",
        separator=",",
    )
    log_paths_read_only: tuple[str, ...] = setting(
        (),
        key="readOnlyCommitLogStorePaths",
        doc="Commit log paths that are read but get no new files.",
        separator=",",
    )

    log_file_bytes: int = setting(
        _GIB,
        key="mappedFileSizeCommitLog",
        doc="Size of a commit log file; files that exist keep theirs.",
        minimum=4096,
        maximum=2 * _GIB - 1,
    )
    queue_file_bytes: int = setting(
        300_000 * ENTRY_BYTES,
        key="mappedFileSizeConsumeQueue",
        doc="Size of a consume queue file, rounded up to whole entries; existing ones keep theirs.",
        minimum=ENTRY_BYTES,
    )
    queue_extension_file_bytes: int = setting(
        48 * _MIB,
        key="mappedFileSizeConsumeQueueExt",
        doc="Size of a consume queue extension file.",
        minimum=64,
    )
    index_slots: int = setting(
        5_000_000, key="maxHashSlotNum", doc="Hash slots of an index file.", minimum=1
    )
    index_entries: int = setting(
        20_000_000, key="maxIndexNum", doc="Entries of an index file.", minimum=2
    )
    has_index: bool = setting(
        True, key="messageIndexEnable", doc="Index messages by their keys, unique keys and tags."
    )
    mapped_queue_files_max: int = setting(
        0,
        doc="Queue files kept mapped at a time; 0 derives it from the limit on open files.",
        minimum=0,
    )

    message_bytes_max: int = setting(
        BODY_BYTES_MAX,
        key="maxMessageSize",
        doc="Largest body; a whole record may have 64 KiB more.",
        minimum=1,
    )
    delay_levels: str = setting(
        DELAY_LEVELS, key="messageDelayLevel", doc="Delay of each level, level 1 first."
    )
    is_record_crc_appended: bool = setting(
        False,
        key="enabledAppendPropCRC",
        doc="Store a checksum over each whole record among its properties.",
    )

    flush_mode: FlushMode = setting(
        FlushMode.ASYNC_FLUSH,
        key="flushDiskType",
        doc="Whether senders wait until their message is on disk.",
    )
    flush_interval_ms: int = setting(
        500, key="flushIntervalCommitLog", doc="Time between two log flushes.", minimum=1
    )
    flush_pages_least: int = setting(
        4,
        key="flushCommitLogLeastPages",
        doc="Unflushed 4 KiB pages below which a flush waits for the thorough one.",
        minimum=0,
    )
    flush_thorough_interval_ms: int = setting(
        10_000,
        key="flushCommitLogThoroughInterval",
        doc="Time after which anything is flushed.",
        minimum=1,
    )
    sync_flush_timeout_ms: int = setting(
        5000,
        key="syncFlushTimeout",
        doc="How long a sender waits for the disk before it is told FLUSH_DISK_TIMEOUT.",
        minimum=1,
    )
    queue_flush_interval_ms: int = setting(
        1000, key="flushIntervalConsumeQueue", doc="Time between two queue flushes.", minimum=1
    )
    queue_flush_pages_least: int = setting(
        2,
        key="flushConsumeQueueLeastPages",
        doc="Unflushed pages below which a queue waits for the thorough flush.",
        minimum=0,
    )
    queue_flush_thorough_interval_ms: int = setting(
        60_000,
        key="flushConsumeQueueThoroughInterval",
        doc="Time after which all queues and the index are flushed and the checkpoint is written.",
        minimum=1,
    )

    has_transient_pool: bool = setting(
        False,
        key="transientStorePoolEnable",
        doc="Collect messages in buffers of memory and write them to the log in batches.",
    )
    transient_pool_size: int = setting(
        5, key="transientStorePoolSize", doc="Buffers of the transient pool.", minimum=1
    )
    commit_interval_ms: int = setting(
        200,
        key="commitIntervalCommitLog",
        doc="Time between two writes from the transient pool to the log.",
        minimum=1,
    )
    commit_pages_least: int = setting(
        4,
        key="commitCommitLogLeastPages",
        doc="Uncommitted pages below which a write waits for the thorough one.",
        minimum=0,
    )
    commit_thorough_interval_ms: int = setting(
        200,
        key="commitCommitLogThoroughInterval",
        doc="Time after which anything is committed.",
        minimum=1,
    )

    read_bytes_memory: int = setting(
        256 * _KIB,
        key="maxTransferBytesOnMessageInMemory",
        doc="Bytes one read returns of messages that are likely in memory.",
        minimum=1,
    )
    read_count_memory: int = setting(
        32,
        key="maxTransferCountOnMessageInMemory",
        doc="Messages one read returns that are likely in memory.",
        minimum=1,
    )
    read_bytes_disk: int = setting(
        64 * _KIB,
        key="maxTransferBytesOnMessageInDisk",
        doc="Bytes one read returns of messages that are likely on disk only.",
        minimum=1,
    )
    read_count_disk: int = setting(
        8,
        key="maxTransferCountOnMessageInDisk",
        doc="Messages one read returns that are likely on disk only.",
        minimum=1,
    )
    memory_percent: int = setting(
        40,
        key="accessMessageInMemoryMaxRatio",
        doc="Share of the machine's memory that the newest messages are taken to fill.",
        minimum=0,
        maximum=100,
    )
    dispatch_records_max: int = setting(
        10_000, doc="Records put into queues and index in one turn of the loop.", minimum=1
    )
    is_crc_checked_on_recovery: bool = setting(
        True, key="checkCRCOnRecover", doc="Verify bodies while recovering."
    )
    query_count_max: int = setting(
        64, key="maxMsgsNumBatch", doc="Messages a query by key returns at most.", minimum=1
    )

    retention_hours: int = setting(
        72, key="fileReservedTime", doc="Age at which log files are deleted.", minimum=0
    )
    deletion_hours: tuple[str, ...] = setting(
        ("04",),
        key="deleteWhen",
        doc="Hours of the day in which expired files are deleted.",
        separator=";",
    )
    disk_clean_percent: int = setting(
        75,
        key="diskMaxUsedSpaceRatio",
        doc="Used share of the disk above which expired files are deleted at any hour.",
        minimum=10,
        maximum=95,
    )
    disk_force_percent: int = setting(
        85,
        key="diskSpaceCleanForciblyRatio",
        doc="Used share above which the oldest files are deleted whatever their age.",
        minimum=30,
        maximum=85,
    )
    disk_refuse_percent: int = setting(
        90,
        key="diskSpaceWarningLevelRatio",
        doc="Used share above which messages are refused, until it falls to the one before.",
        minimum=35,
        maximum=90,
    )
    disk_free_bytes_enough: int = setting(
        20 * _GIB,
        doc="Free space with which the used shares do not matter.",
        minimum=0,
    )
    is_forced_cleaning_allowed: bool = setting(
        True,
        key="cleanFileForciblyEnable",
        doc="Delete unexpired files when the disk fills up; otherwise only refuse messages.",
    )
    clean_interval_ms: int = setting(
        10_000, key="cleanResourceInterval", doc="Time between two looks at the disk.", minimum=1
    )
    clean_files_max: int = setting(
        10, key="deleteFileBatchMax", doc="Log files deleted at a time.", minimum=1
    )

    def __post_init__(self) -> None:
        Settings.__post_init__(self)  # slots: super() would see the class before it had them
        self.delays_ms()

    def delays_ms(self) -> tuple[int, ...]:
        """The delays by level; entry 0 belongs to level 1."""
        return tuple(_delay_ms(text) for text in self.delay_levels.split())

    @property
    def queue_entries_per_file(self) -> int:
        return -(-self.queue_file_bytes // ENTRY_BYTES)


def _delay_ms(text: str) -> int:
    unit = _UNITS_MS.get(text[-1:])
    if unit is None or not text[:-1].isdecimal():
        raise SettingsError(
            "messageDelayLevel", f"'{text}' is no delay", "write numbers with s, m, h or d, as 30s"
        )
    # Digits first: Python refuses to read thousands of them.
    delay_ms = int(text[:-1]) * unit if len(text) <= _DELAY_CHARACTERS_MAX else None
    if delay_ms is None or delay_ms > DELAY_DAYS_MAX * _UNITS_MS["d"]:
        shown = text if delay_ms is not None else f"{text[:_DELAY_CHARACTERS_MAX]}..."
        raise SettingsError(
            "messageDelayLevel", f"'{shown}' is too long", f"use at most {DELAY_DAYS_MAX}d"
        )
    return delay_ms
