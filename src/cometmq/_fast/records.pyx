# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twins of ``codec.record.encode_into`` and of packing and scanning queue entries.

Whatever does not fit is handed to the plain twin, which refuses it with its reason.
"""

from zlib import crc32 as _crc32

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_GET_SIZE
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy

cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    ENTRY_BYTES = 20
    TAGS_MAX = 64

cdef object _plain_encode_into = None
cdef object _plain_pack_into = None
cdef object _plain_scan = None


def bind(plain_encode_into, plain_pack_into, plain_scan):
    """Receive the plain twins; called once by ``codec.core``."""
    global _plain_encode_into, _plain_pack_into, _plain_scan
    _plain_encode_into = plain_encode_into
    _plain_pack_into = plain_pack_into
    _plain_scan = plain_scan


cdef inline uint8_t *put32(uint8_t *p, uint32_t value) noexcept:
    p[0] = value >> 24
    p[1] = (value >> 16) & 255
    p[2] = (value >> 8) & 255
    p[3] = value & 255
    return p + 4


cdef inline uint8_t *put64(uint8_t *p, uint64_t value) noexcept:
    return put32(put32(p, <uint32_t>(value >> 32)), <uint32_t>(value & 0xFFFFFFFF))


cdef inline uint32_t load32(const uint8_t *p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t load64(const uint8_t *p) noexcept:
    return (<uint64_t>load32(p) << 32) | load32(p + 4)


cdef inline uint8_t *put_bytes(uint8_t *p, const void *data, Py_ssize_t size) noexcept:
    memcpy(p, data, size)
    return p + size


def encode_into(
    target, Py_ssize_t position, bytes topic, body, bytes properties, int queue_id,
    int64_t queue_offset, int64_t physical_offset, int64_t store_timestamp, int64_t born_timestamp,
    bytes born_host, bytes store_host, int flag, int sys_flag, int reconsume_times,
    int64_t prepared_transaction_offset,
):
    """See ``codec.record.encode_into``."""
    cdef Py_buffer content, room
    cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t properties_bytes = PyBytes_GET_SIZE(properties)
    cdef Py_ssize_t born_bytes = 20 if sys_flag & BORN_V6 else 8
    cdef Py_ssize_t store_bytes = 20 if sys_flag & STORE_V6 else 8
    cdef bint long_topic = topic_bytes > 127
    cdef Py_ssize_t size
    cdef uint32_t crc
    cdef bint fits
    PyObject_GetBuffer(body, &content, PyBUF_SIMPLE)
    try:
        size = (
            75 + born_bytes + store_bytes + content.len + topic_bytes + properties_bytes + long_topic
        )
        PyObject_GetBuffer(target, &room, PyBUF_WRITABLE)
        try:
            fits = (
                PyBytes_GET_SIZE(born_host) == born_bytes
                and PyBytes_GET_SIZE(store_host) == store_bytes
                and topic_bytes <= 32767 and properties_bytes <= 32767
                and position >= 0 and size <= room.len - position and size <= 0x7FFFFFFF
            )
            if fits:
                crc = <uint32_t>_crc32(body) & 0x7FFFFFFF
                write_record(
                    <uint8_t *>room.buf + position, <int32_t>size, crc, queue_id, flag, queue_offset,
                    physical_offset, sys_flag, born_timestamp, born_host, store_timestamp,
                    store_host, reconsume_times, prepared_transaction_offset, &content, topic,
                    long_topic, properties,
                )
                return size
        finally:
            PyBuffer_Release(&room)
    finally:
        PyBuffer_Release(&content)
    return _plain_encode_into(
        target, position, topic, body, properties, queue_id, queue_offset, physical_offset,
        store_timestamp, born_timestamp, born_host, store_host, flag, sys_flag, reconsume_times,
        prepared_transaction_offset,
    )


cdef void write_record(
    uint8_t *p, int32_t size, uint32_t crc, int queue_id, int flag, int64_t queue_offset,
    int64_t physical_offset, int sys_flag, int64_t born_timestamp, bytes born_host,
    int64_t store_timestamp, bytes store_host, int reconsume_times, int64_t prepared_offset,
    Py_buffer *content, bytes topic, bint long_topic, bytes properties,
) noexcept:
    cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t properties_bytes = PyBytes_GET_SIZE(properties)
    p = put32(p, size)
    p = put32(p, <uint32_t>MAGIC_V2 if long_topic else <uint32_t>MAGIC_V1)
    p = put32(p, crc)
    p = put32(p, queue_id)
    p = put32(p, flag)
    p = put64(p, queue_offset)
    p = put64(p, physical_offset)
    p = put32(p, sys_flag)
    p = put64(p, born_timestamp)
    p = put_bytes(p, PyBytes_AS_STRING(born_host), PyBytes_GET_SIZE(born_host))
    p = put64(p, store_timestamp)
    p = put_bytes(p, PyBytes_AS_STRING(store_host), PyBytes_GET_SIZE(store_host))
    p = put32(p, reconsume_times)
    p = put64(p, prepared_offset)
    p = put32(p, <uint32_t>content.len)
    p = put_bytes(p, content.buf, content.len)
    if long_topic:
        p[0] = topic_bytes >> 8
        p += 1
    p[0] = topic_bytes & 255
    p = put_bytes(p + 1, PyBytes_AS_STRING(topic), topic_bytes)
    p[0] = properties_bytes >> 8
    p[1] = properties_bytes & 255
    put_bytes(p + 2, PyBytes_AS_STRING(properties), properties_bytes)


def pack_into(target, Py_ssize_t position, int64_t physical_offset, int32_t size, int64_t tags_code):
    """See ``codec.queue_entry.pack_into``."""
    cdef Py_buffer room
    cdef uint8_t *p
    PyObject_GetBuffer(target, &room, PyBUF_WRITABLE)
    try:
        if position >= 0 and room.len - position >= ENTRY_BYTES:
            p = put64(<uint8_t *>room.buf + position, physical_offset)
            put64(put32(p, size), tags_code)
            return None
    finally:
        PyBuffer_Release(&room)
    return _plain_pack_into(target, position, physical_offset, size, tags_code)


def scan(data, Py_ssize_t begin, Py_ssize_t end, tags, Py_ssize_t limit):
    """See ``codec.queue_entry.scan``."""
    cdef Py_buffer view
    cdef int64_t wanted[TAGS_MAX]
    cdef Py_ssize_t wanted_count = 0
    cdef bint everything = tags is None
    if not everything:
        if len(tags) > TAGS_MAX:
            return _plain_scan(data, begin, end, tags, limit)
        for tag in tags:
            wanted[wanted_count] = tag
            wanted_count += 1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if 0 <= begin <= end <= view.len:
            return scan_entries(
                <const uint8_t *>view.buf + begin, (end - begin) // ENTRY_BYTES, wanted,
                -1 if everything else wanted_count, limit,
            )
    finally:
        PyBuffer_Release(&view)
    return _plain_scan(data, begin, end, tags, limit)


cdef tuple scan_entries(
    const uint8_t *p, Py_ssize_t count, const int64_t *wanted, Py_ssize_t wanted_count,
    Py_ssize_t limit,
):
    cdef list hits = []
    cdef Py_ssize_t number = 0, found = 0
    cdef int64_t offset
    cdef int32_t size
    while number < count and found < limit:
        offset = <int64_t>load64(p)
        size = <int32_t>load32(p + 8)
        if offset < 0 or size <= 0:
            break
        if wanted_count < 0 or matches(<int64_t>load64(p + 12), wanted, wanted_count):
            hits.append((number, offset, size))
            found += 1
        number += 1
        p += ENTRY_BYTES
    return hits, number


cdef inline bint matches(int64_t tags_code, const int64_t *wanted, Py_ssize_t count) noexcept:
    cdef Py_ssize_t i
    # An extension address instead of a hash: the caller decides by the extension.
    if tags_code <= -2147483649:
        return True
    for i in range(count):
        if wanted[i] == tags_code:
            return True
    return False
