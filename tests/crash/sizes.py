"""A store so small that a few dozen messages roll every file of it."""

from cometmq.codec.queue_entry import ENTRY_BYTES
from cometmq.store.config import FlushMode, StoreSettings

LOG_FILE_BYTES = 64 * 1024
QUEUE_ENTRIES = 100
INDEX_SLOTS = 50
ALL_HOURS = tuple(f"{hour:02d}" for hour in range(24))


def small(
    *,
    is_sync: bool = False,
    is_cleaning: bool = False,
    log_file_bytes: int = LOG_FILE_BYTES,
    queue_entries: int = QUEUE_ENTRIES,
    index_slots: int = INDEX_SLOTS,
    has_transient_pool: bool = False,
) -> StoreSettings:
    """Small files, a flusher that hardly rests, and a disk whose shares do not matter."""
    return StoreSettings(
        log_file_bytes=log_file_bytes,
        queue_file_bytes=queue_entries * ENTRY_BYTES,
        index_slots=index_slots,
        index_entries=4 * index_slots,
        flush_mode=FlushMode.SYNC_FLUSH if is_sync else FlushMode.ASYNC_FLUSH,
        flush_interval_ms=5,
        flush_thorough_interval_ms=20,
        queue_flush_interval_ms=5,
        queue_flush_thorough_interval_ms=25,
        has_transient_pool=has_transient_pool,
        retention_hours=0 if is_cleaning else 72,
        deletion_hours=ALL_HOURS,
        disk_free_bytes_enough=0,
        clean_files_max=2,
    )
