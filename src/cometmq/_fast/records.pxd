# cython: language_level=3
"""What ``tails`` shares with ``records``: finding the parts of a record, and writing one."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t

cdef enum:
    UNQUEUED = 0x4
    ROLLBACK = 0xC
    # How a walk ends, see codec.digest.Ending.
    END = 0
    BLANK = 1
    BROKEN = 2
    INCOMPLETE = 3


cdef struct Text:
    const uint8_t *p
    Py_ssize_t size


cdef struct Found:
    # Lengths and places of one record.
    Py_ssize_t size
    int32_t sys_flag
    Py_ssize_t store_timestamp
    Text body
    Text topic
    Text unique_key
    Text keys
    Text tags


cdef Py_ssize_t record_fixed(int sys_flag) noexcept
cdef int measure_record(const uint8_t *p, Py_ssize_t room, Found *found) noexcept
cdef void find_properties(const uint8_t *end, Found *found) noexcept
cdef object tags_code(const Found *found)
cdef tuple key_hashes(str topic, const Found *found)
cdef bint link_entry(
    uint8_t *file, Py_ssize_t slots, int32_t number, int32_t key_hash, int64_t physical_offset,
    int32_t seconds,
) noexcept
cdef void write_record(
    uint8_t *p, int32_t size, uint32_t crc, int queue_id, int flag, int64_t queue_offset,
    int64_t physical_offset, int sys_flag, int64_t born_timestamp, bytes born_host,
    int64_t store_timestamp, bytes store_host, int reconsume_times, int64_t prepared_offset,
    const void *body, Py_ssize_t body_bytes, bytes topic, const void *properties,
    Py_ssize_t properties_bytes,
) noexcept


cdef struct Choice:
    # What of a range of entries fits the limits, see codec.queue_entry.Selection.
    int64_t *runs
    Py_ssize_t run_count, records, examined
    int64_t bytes
    bint is_cold, has_gone


cdef struct Limits:
    int64_t log_begin, warm_begin, log_end, bytes_max, bytes_cold_max
    Py_ssize_t count_max, count_cold_max


cdef bint can_choose(object tags)
cdef int choose(
    const uint8_t *p, Py_ssize_t entries, tags, const Limits *limits, Choice *choice
) except -1
cdef bint lie_within(const Choice *choice, int64_t base, int64_t end) noexcept
cdef void copy_runs(char *target, const uint8_t *log, int64_t base, const Choice *choice) noexcept
