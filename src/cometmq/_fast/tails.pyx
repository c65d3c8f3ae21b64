# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twins of ``codec.tails``: what moves the ends of log, queues and index.

A message passes here without becoming a Python object; whatever is not simple is left to the
caller, which then takes the long way.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_GET_SIZE
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.string cimport memcmp

from cometmq._fast.records cimport (
    END, ROLLBACK, UNQUEUED, Found, Text, find_properties, key_hashes, link_entry, measure_record,
    record_fixed, tags_code, write_record,
)
from cometmq._fast.words cimport cometmq_crc32, cometmq_crc_prepare, load32, load64, put32, put64

cdef enum:
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    ENTRY_BYTES = 20
    LENGTH_MAX = 32767
    INT32_MAX = 0x7FFFFFFF

# Each module that computes checksums has tables of its own.
cometmq_crc_prepare()


cdef class QueueTail:
    """See ``codec.tails.QueueTail``."""

    cdef public bytes topic_bytes
    cdef public object buffer
    cdef public int64_t next_offset, max_offset, max_physical, buffer_begin, ready_end
    cdef public bint is_hot, is_touched

    def __init__(self, bytes topic_bytes not None):
        self.topic_bytes = topic_bytes
        self.max_physical = -1


cdef class LogTail:
    """See ``codec.tails.LogTail``."""

    cdef public object target, now_ns, make_result, ok
    cdef public int64_t base, end, timestamp
    cdef public Py_ssize_t position, attention, room_end, body_bytes_max, record_bytes_max

    def __init__(self, Py_ssize_t body_bytes_max, Py_ssize_t record_bytes_max, now_ns, make_result, ok):
        self.body_bytes_max = body_bytes_max
        self.record_bytes_max = record_bytes_max
        self.now_ns = now_ns
        self.make_result = make_result
        self.ok = ok

    def append(self, message, QueueTail queue not None):
        """See ``codec.tails.LogTail.append``."""
        cdef Py_buffer content
        cdef bytes properties = message.properties
        cdef int sys_flag = message.sys_flag
        cdef object body = message.body
        if self.target is None or self.position >= self.attention:
            return None
        if PyBytes_CheckExact(body):
            return self.write(
                message, queue, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body), properties, sys_flag
            )
        PyObject_GetBuffer(body, &content, PyBUF_SIMPLE)
        try:
            return self.write(message, queue, content.buf, content.len, properties, sys_flag)
        finally:
            PyBuffer_Release(&content)

    cdef object write(
        self, message, QueueTail queue, const void *body, Py_ssize_t body_bytes, bytes properties,
        int sys_flag,
    ):
        cdef Py_buffer room
        cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(queue.topic_bytes)
        cdef Py_ssize_t properties_bytes = PyBytes_GET_SIZE(properties)
        cdef Py_ssize_t size = (
            record_fixed(sys_flag) + body_bytes + topic_bytes + properties_bytes
            + (topic_bytes > 127)
        )
        cdef bytes born_host = message.born_host
        cdef bytes store_host = message.store_host
        cdef int64_t physical_offset = self.base + self.position
        cdef int64_t queue_offset = 0 if sys_flag & UNQUEUED else queue.next_offset
        cdef int64_t now_ms
        if (
            self.position + size > self.room_end or size > self.record_bytes_max
            or body_bytes > self.body_bytes_max or properties_bytes > LENGTH_MAX
            or topic_bytes > LENGTH_MAX
            or PyBytes_GET_SIZE(born_host) != (20 if sys_flag & BORN_V6 else 8)
            or PyBytes_GET_SIZE(store_host) != (20 if sys_flag & STORE_V6 else 8)
        ):
            return None
        now_ms = <int64_t>self.now_ns() // 1000000
        PyObject_GetBuffer(self.target, &room, PyBUF_WRITABLE)
        try:
            if self.position + size > room.len:
                return None
            write_record(
                <uint8_t *>room.buf + self.position, <int32_t>size,
                cometmq_crc32(<const uint8_t *>body, body_bytes) & 0x7FFFFFFF, message.queue_id,
                message.flag, queue_offset, physical_offset, sys_flag, message.born_timestamp,
                born_host, now_ms, store_host, message.reconsume_times,
                message.prepared_transaction_offset, body, body_bytes, queue.topic_bytes,
                PyBytes_AS_STRING(properties), properties_bytes,
            )
        finally:
            PyBuffer_Release(&room)
        if not sys_flag & UNQUEUED:
            queue.next_offset = queue_offset + 1
        self.position += size
        # In this order: a time that another thread sees belongs to a record before the end.
        self.end = physical_offset + size
        self.timestamp = now_ms
        return self.make_result(self.ok, physical_offset, self.end, queue_offset, now_ms)


cdef class IndexTail:
    """See ``codec.tails.IndexTail``."""

    cdef public object data
    cdef public Py_ssize_t slots
    cdef public int32_t number, end, empty
    cdef public int64_t newest_offset, timestamp, begin_timestamp

    def __init__(
        self, data, Py_ssize_t slots, int32_t number, int32_t end, int64_t newest_offset,
        int64_t begin_timestamp,
    ):
        self.data = data
        self.slots = slots
        self.number = number
        self.end = end
        self.newest_offset = newest_offset
        self.begin_timestamp = begin_timestamp

    cdef void put(self, uint8_t *file, tuple hashes, int64_t physical_offset, int64_t stored):
        """Enter a message for which there is room."""
        cdef int64_t seconds = 0
        if self.begin_timestamp > 0 and stored > self.begin_timestamp:
            seconds = min((stored - self.begin_timestamp) // 1000, <int64_t>INT32_MAX)
        for key_hash in hashes:
            self.empty += link_entry(
                file, self.slots, self.number, key_hash, physical_offset, <int32_t>seconds
            )
            self.number += 1
        self.newest_offset = physical_offset
        self.timestamp = stored


def dispatch(
    data, Py_ssize_t begin, Py_ssize_t end, int64_t base, Py_ssize_t limit, dict queues,
    list touched, IndexTail index,
):
    """See ``codec.tails.dispatch``."""
    cdef Py_buffer view, room
    cdef bint has_room = index is not None
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= begin <= end <= view.len:
            raise IndexError(f"no bytes {begin} to {end} in {view.len}")
        if has_room:
            PyObject_GetBuffer(index.data, &room, PyBUF_WRITABLE)
        try:
            if has_room and 40 + 4 * index.slots + 20 * <Py_ssize_t>index.end > room.len:
                raise IndexError(f"no room for {index.end} entries in {room.len} bytes")
            return dispatch_records(
                <const uint8_t *>view.buf, begin, end, base, limit, queues, touched, index,
                <uint8_t *>room.buf if has_room else NULL,
            )
        finally:
            if has_room:
                PyBuffer_Release(&room)
    finally:
        PyBuffer_Release(&view)


cdef tuple dispatch_records(
    const uint8_t *data, Py_ssize_t begin, Py_ssize_t end, int64_t base, Py_ssize_t limit,
    dict queues, list touched, IndexTail index, uint8_t *index_file,
):
    cdef const uint8_t *p
    cdef Found found
    cdef Text last
    cdef PyObject *ids = NULL
    cdef QueueTail queue
    cdef str topic = None
    cdef tuple hashes
    cdef Py_ssize_t count = 0
    cdef int64_t timestamp = 0, stored, physical_offset
    last.size = -1
    while count < limit and begin < end:
        p = data + begin
        physical_offset = base + begin
        if measure_record(p, end - begin, &found) != END:
            break
        if <int64_t>load64(p + 28) != physical_offset:
            break
        if found.topic.size != last.size or memcmp(found.topic.p, last.p, last.size) != 0:
            try:
                topic = PyUnicode_DecodeUTF8(<const char *>found.topic.p, found.topic.size, NULL)
            except UnicodeDecodeError:
                break
            if "\0" in topic:
                break
            last = found.topic
            ids = PyDict_GetItem(queues, topic)
        queue = None
        if not found.sys_flag & UNQUEUED:
            queue = next_queue(ids, <int32_t>load32(p + 12), <int64_t>load64(p + 20), physical_offset)
            if queue is None:
                break
        find_properties(p + found.size, &found)
        stored = <int64_t>load64(p + found.store_timestamp)
        if (
            index_file != NULL and physical_offset > index.newest_offset
            and found.sys_flag & ROLLBACK != ROLLBACK
        ):
            hashes = key_hashes(topic, &found)
            if hashes:
                if index.number + len(hashes) > index.end:
                    break
                index.put(index_file, hashes, physical_offset, stored)
        if queue is not None:
            enter(queue, physical_offset, <int32_t>found.size, tags_code(&found))
            if not queue.is_touched:
                queue.is_touched = True
                touched.append(queue)
        begin += found.size
        timestamp = stored
        count += 1
    return begin, count, timestamp


cdef inline QueueTail next_queue(
    PyObject *ids, int32_t queue_id, int64_t queue_offset, int64_t physical_offset
):
    """The queue, if this is the record it waits for and it has room."""
    cdef PyObject *found
    cdef QueueTail queue
    if ids == NULL:
        return None
    found = PyDict_GetItem(<dict>ids, queue_id)
    if found == NULL:
        return None
    queue = <QueueTail?><object>found
    if (
        queue.buffer is None or queue_offset != queue.max_offset
        or physical_offset < queue.max_physical
        or not queue.buffer_begin <= queue_offset * ENTRY_BYTES < queue.ready_end
    ):
        return None
    return queue


cdef int enter(QueueTail queue, int64_t physical_offset, int32_t size, int64_t code) except -1:
    cdef Py_buffer room
    cdef Py_ssize_t position = queue.max_offset * ENTRY_BYTES - queue.buffer_begin
    PyObject_GetBuffer(queue.buffer, &room, PyBUF_WRITABLE)
    try:
        if position + ENTRY_BYTES > room.len:
            raise IndexError(f"no entry at {position} in {room.len} bytes")
        put64(put32(put64(<uint8_t *>room.buf + position, physical_offset), size), code)
    finally:
        PyBuffer_Release(&room)
    queue.max_physical = physical_offset + size
    queue.max_offset += 1
    if queue.next_offset < queue.max_offset:
        queue.next_offset = queue.max_offset
    queue.is_hot = True
    return 0
