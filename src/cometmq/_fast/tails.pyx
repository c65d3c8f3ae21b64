# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twins of ``codec.tails``: what moves the ends of log, queues and index.

A message passes here without becoming a Python object; whatever is not simple is left to the
caller, which then takes the long way.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport (
    PyBytes_AS_STRING, PyBytes_CheckExact, PyBytes_FromStringAndSize, PyBytes_GET_SIZE,
)
from cpython.dict cimport PyDict_GetItem
from cpython.object cimport PyObject
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t
from libc.stdlib cimport free
from libc.string cimport memcmp, memcpy

from cometmq._fast.headers cimport scan_sent, with_addition
from cometmq._fast.records cimport (
    END, ROLLBACK, UNQUEUED, Choice, Found, Limits, Text, can_choose, choose, copy_runs,
    find_properties, key_hashes, lie_within, link_entry, measure_record, record_fixed, tags_code,
    write_record,
)
from cometmq._fast.words cimport (
    cometmq_crc32, cometmq_crc_prepare, load32, load64, put32, put64, put_number,
)

cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


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
    cdef readonly tuple fresh  # nothing: reading a record again takes no longer
    cdef public int64_t base, end, timestamp
    cdef public Py_ssize_t position, attention, room_end, body_bytes_max, record_bytes_max

    def __init__(self, Py_ssize_t body_bytes_max, Py_ssize_t record_bytes_max, now_ns, make_result, ok):
        self.body_bytes_max = body_bytes_max
        self.record_bytes_max = record_bytes_max
        self.now_ns = now_ns
        self.make_result = make_result
        self.ok = ok
        self.fresh = ()

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
        cdef int64_t now_ms = <int64_t>self.now_ns() // 1000000
        cdef int64_t physical_offset, queue_offset
        PyObject_GetBuffer(self.target, &room, PyBUF_WRITABLE)
        try:
            physical_offset = self.put(
                <uint8_t *>room.buf, room.len, queue, message.queue_id, body, body_bytes,
                properties, message.born_timestamp, message.born_host, message.store_host,
                message.flag, sys_flag, message.reconsume_times,
                message.prepared_transaction_offset, now_ms,
            )
        finally:
            PyBuffer_Release(&room)
        if physical_offset < 0:
            return None
        queue_offset = 0 if sys_flag & UNQUEUED else queue.next_offset - 1
        return self.make_result(self.ok, physical_offset, self.end, queue_offset, now_ms)

    cdef int64_t put(
        self, uint8_t *room, Py_ssize_t room_bytes, QueueTail queue, int queue_id,
        const void *body, Py_ssize_t body_bytes, bytes properties, int64_t born_timestamp,
        bytes born_host, bytes store_host, int flag, int sys_flag, int reconsume_times,
        int64_t prepared_offset, int64_t now_ms,
    ) except -2:
        """Write a record and move on; its physical offset, or -1 when it does not simply fit."""
        cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(queue.topic_bytes)
        cdef Py_ssize_t properties_bytes = PyBytes_GET_SIZE(properties)
        cdef Py_ssize_t size = (
            record_fixed(sys_flag) + body_bytes + topic_bytes + properties_bytes
            + (topic_bytes > 127)
        )
        cdef int64_t physical_offset = self.base + self.position
        cdef int64_t queue_offset = 0 if sys_flag & UNQUEUED else queue.next_offset
        if (
            self.position >= self.attention or self.position + size > self.room_end
            or self.position + size > room_bytes or size > self.record_bytes_max
            or body_bytes > self.body_bytes_max or properties_bytes > LENGTH_MAX
            or topic_bytes > LENGTH_MAX
            or PyBytes_GET_SIZE(born_host) != (20 if sys_flag & BORN_V6 else 8)
            or PyBytes_GET_SIZE(store_host) != (20 if sys_flag & STORE_V6 else 8)
        ):
            return -1
        write_record(
            room + self.position, <int32_t>size,
            cometmq_crc32(<const uint8_t *>body, body_bytes) & 0x7FFFFFFF, queue_id,
            flag, queue_offset, physical_offset, sys_flag, born_timestamp, born_host, now_ms,
            store_host, reconsume_times, prepared_offset, body, body_bytes, queue.topic_bytes,
            PyBytes_AS_STRING(properties), properties_bytes,
        )
        if not sys_flag & UNQUEUED:
            queue.next_offset = queue_offset + 1
        self.position += size
        # In this order: a time that another thread sees belongs to a record before the end.
        self.end = physical_offset + size
        self.timestamp = now_ms
        return physical_offset


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
    list touched, IndexTail index, fresh,
):
    """See ``codec.tails.dispatch``; ``fresh`` is not needed here."""
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


cdef object _astuple = None
cdef object _send_pieces = None
cdef object _pull_pieces = None
cdef object _protocol_error = None


def bind(astuple, send_pieces, pull_pieces, protocol_error):
    """Receive what lies in the layer above; called once by ``codec.core``."""
    global _astuple, _send_pieces, _pull_pieces, _protocol_error
    _astuple = astuple
    _send_pieces = send_pieces
    _pull_pieces = pull_pieces
    _protocol_error = protocol_error


cdef enum:
    # Of codec.sends: bits of sysFlag that are not a sender's.
    SYSTEM_FLAGS = 0xFC
    ASKS_MORE = ~8
    KEY_BYTES_MAX = 1024
    # Of codec.answer_pieces: what follows a piece.
    MESSAGE_ID = 0
    UNIQUE_KEY = 1
    OPAQUE = 2
    NOTHING = 3
    NUMBER = 8
    # What is written around the facts is not longer.
    HEAD_BYTES_MAX = 4096
    # In a frame with a binary header: the length of the remark. That of the ext fields follows it.
    REMARK_LENGTH_AT = 21
    # Of codec.pulls.
    COMMIT_OFFSET = 1
    SUBSCRIPTION = 4
    VARIES = ~3
    JOINED_BYTES_MAX = 65536
    GATHERED_BYTES_MAX = 524288
    # Where things stand in a pull's header; behind MAX_BYTES the order does not matter.
    MAX_COUNT_AT = 4
    FLAGS_AT = 5
    COMMIT_AT = 6
    EXPRESSION_AT = 8
    VERSION_AT = 9
    EXPRESSION_TYPE_AT = 10
    MAX_BYTES_AT = 11

cdef const char *HEX = "0123456789ABCDEF"


cdef struct Facts:
    # What goes between the pieces of an answer.
    const char *id_prefix
    Py_ssize_t id_prefix_bytes
    int64_t physical_offset
    const uint8_t *key
    Py_ssize_t key_bytes
    int64_t numbers[3]
    int32_t opaque


cdef class Form:
    """How answers are written in one serialization."""

    cdef int serialization
    cdef list literals
    cdef list kinds
    cdef Py_ssize_t fixed_bytes

    def __init__(self, list pieces not None, int serialization):
        self.serialization = serialization
        self.literals = [literal for literal, _ in pieces]
        self.kinds = [kind for _, kind in pieces]
        self.fixed_bytes = sum(map(len, self.literals))

    cdef Py_ssize_t write(
        self, uint8_t *frame, const Facts *facts, Py_ssize_t body_bytes
    ) except -1:
        """Write all of a frame but its body into ``HEAD_BYTES_MAX`` bytes; how long it is."""
        cdef uint8_t *p = frame
        cdef uint8_t *value
        cdef bytes literal
        cdef Py_ssize_t i, size, ext_length_at
        cdef int kind, shift
        if self.fixed_bytes + facts.id_prefix_bytes + facts.key_bytes + 128 > HEAD_BYTES_MAX:
            raise ValueError("an answer this long is not written here")
        for i in range(len(self.literals)):
            literal = <bytes>self.literals[i]
            kind = self.kinds[i]
            memcpy(p, PyBytes_AS_STRING(literal), PyBytes_GET_SIZE(literal))
            p += PyBytes_GET_SIZE(literal)
            value = p
            if kind >= NUMBER:
                p = put_number(p, facts.numbers[kind - NUMBER])
            elif kind == MESSAGE_ID:
                memcpy(p, facts.id_prefix, facts.id_prefix_bytes)
                p += facts.id_prefix_bytes
                for shift in range(60, -4, -4):
                    p[0] = HEX[(facts.physical_offset >> shift) & 15]
                    p += 1
            elif kind == UNIQUE_KEY:
                memcpy(p, facts.key, facts.key_bytes)
                p += facts.key_bytes
            elif kind == OPAQUE:
                p = put_number(p, facts.opaque) if self.serialization == 0 else put32(p, facts.opaque)
                continue
            if kind != NOTHING and self.serialization != 0:
                put32(value - 4, p - value)
        size = p - frame
        put32(frame, size - 4 + body_bytes)
        put32(frame + 4, (<uint32_t>self.serialization << 24) | (size - 8))
        if self.serialization != 0:
            ext_length_at = REMARK_LENGTH_AT + 4 + load32(frame + REMARK_LENGTH_AT)
            put32(frame + ext_length_at, size - ext_length_at - 4)
        return size


cdef class SendTail:
    """See ``codec.sends.SendTail``."""

    cdef LogTail tail
    cdef object queues, topics, read
    cdef bytes addition, store_host, id_prefix
    cdef Form json, binary
    # What was taken for one topic and is not added to it yet.
    cdef object counted
    cdef int64_t put_count, put_bytes

    def __init__(
        self, LogTail tail not None, dict queues not None, dict topics not None, bytes addition,
        bytes store_host, str id_prefix, read, answer,
    ):
        self.tail = tail
        self.queues = queues
        self.topics = topics
        self.addition = addition
        self.store_host = store_host
        self.id_prefix = id_prefix.encode()
        self.read = read
        self.json = Form(_send_pieces(answer, 0), 0)
        self.binary = Form(_send_pieces(answer, 1), 1)

    def take(
        self, commands, Py_ssize_t begin, header_type, bytes born_host, int host_flags, list heads
    ):
        """See ``codec.sends.SendTail.take``."""
        cdef Py_buffer room
        cdef Py_ssize_t number = begin
        cdef int64_t now_ms
        if self.tail.target is None:
            return begin
        now_ms = <int64_t>self.tail.now_ns() // 1000000
        PyObject_GetBuffer(self.tail.target, &room, PyBUF_WRITABLE)
        try:
            for number in range(begin, len(commands)):
                if not self.take_one(
                    <uint8_t *>room.buf, room.len, commands[number], header_type, born_host,
                    host_flags, now_ms, heads,
                ):
                    return number
        finally:
            PyBuffer_Release(&room)
            self.settle()
        return len(commands)

    cdef int settle(self) except -1:
        """Add to a topic what was taken for it."""
        if self.counted is not None:
            self.counted.put_count += self.put_count
            self.counted.put_bytes += self.put_bytes
            self.counted = None
            self.put_count = self.put_bytes = 0
        return 0

    cdef bint take_one(
        self, uint8_t *room, Py_ssize_t room_bytes, command, header_type, bytes born_host,
        int host_flags, int64_t now_ms, list heads,
    ) except -1:
        cdef tuple said = _astuple(command)
        cdef object header = said[9]
        cdef bytes body = said[8]
        cdef tuple fields
        cdef PyObject *topic
        cdef PyObject *ids
        cdef PyObject *found
        cdef QueueTail queue
        cdef Facts facts
        cdef Py_ssize_t size = 0, key_size = 0, i
        cdef const uint8_t *text = NULL
        cdef const uint8_t *key = NULL
        cdef int queue_id, sys_flag
        cdef int64_t physical_offset
        if type(header) is not header_type:
            try:
                header = self.read(command, header_type)
            except _protocol_error:
                return False
        fields = _astuple(header)
        topic = PyDict_GetItem(self.topics, fields[1])
        ids = PyDict_GetItem(self.queues, fields[1])
        if topic == NULL or ids == NULL:
            return False
        found = PyDict_GetItem(<dict>ids, fields[4])
        queue_id, sys_flag = fields[4], fields[5]
        if (
            found == NULL or sys_flag & SYSTEM_FLAGS or fields[12] or not body
            or not 0 <= queue_id < (<object>topic).queue_count
        ):
            return False
        queue = <QueueTail?><object>found
        if fields[8] is None:
            return False
        try:
            text = <const uint8_t *>PyUnicode_AsUTF8AndSize(fields[8], &size)
        except UnicodeEncodeError:
            return False
        if scan_sent(text, text + size, &key, &key_size) & ASKS_MORE or key == NULL:
            return False
        if key_size > KEY_BYTES_MAX:
            return False
        for i in range(key_size):
            if not 32 <= key[i] < 127 or key[i] == 34 or key[i] == 92:
                return False
        physical_offset = self.tail.put(
            room, room_bytes, queue, queue_id, PyBytes_AS_STRING(body), PyBytes_GET_SIZE(body),
            with_addition(text, size, self.addition), fields[6], born_host, self.store_host,
            fields[7], sys_flag | host_flags, fields[9] or 0, 0, now_ms,
        )
        if physical_offset < 0:
            return False
        if <PyObject *>self.counted != topic:
            self.settle()
            self.counted = <object>topic
        self.put_count += 1
        self.put_bytes += self.tail.end - physical_offset
        if not <int>said[4] & 2:
            facts.physical_offset = physical_offset
            facts.key = key
            facts.key_bytes = key_size
            facts.numbers[0] = queue_id
            facts.numbers[1] = queue.next_offset - 1
            facts.opaque = said[3]
            heads.append(self.head(self.json if said[6] == 0 else self.binary, &facts))
        return True

    cdef bytes head(self, Form form, Facts *facts):
        """The answer to a send that is stored."""
        cdef uint8_t head[HEAD_BYTES_MAX]
        cdef Py_ssize_t size
        facts.id_prefix = PyBytes_AS_STRING(self.id_prefix)
        facts.id_prefix_bytes = PyBytes_GET_SIZE(self.id_prefix)
        size = form.write(head, facts, 0)
        return PyBytes_FromStringAndSize(<char *>head, size)


cdef class PullPlan:
    """See ``codec.pulls.PullPlan``."""

    cdef tuple said
    cdef int flags
    cdef int64_t queue_count
    cdef object tags, online, subscription, message_model
    cdef list taken
    cdef dict pulled
    cdef Limits limits
    cdef Py_ssize_t entries_max
    # Where the pull that was answered last goes on, and where its queue ended.
    cdef int64_t next_offset, queue_end

    def __init__(
        self, header, int64_t queue_count, tags, tuple limits not None, list taken not None,
        dict pulled not None, online,
    ):
        self.said = _astuple(header)
        self.flags = <int>self.said[FLAGS_AT] & VARIES
        self.queue_count = queue_count
        self.tags = tags
        self.limits.count_max = limits[0]
        self.limits.bytes_max = limits[1]
        self.limits.count_cold_max = limits[2]
        self.limits.bytes_cold_max = limits[3]
        self.entries_max = limits[4]
        self.taken = taken
        self.pulled = pulled
        self.online = online
        if online is not None:
            self.subscription = online.subscriptions[header.topic]
            self.message_model = online.message_model

    cdef bint fits(self, tuple fields, dict online) except -1:
        cdef Py_ssize_t i
        cdef tuple said = self.said
        if not 0 <= <int64_t>fields[2] < self.queue_count or len(fields) != len(said):
            return False
        if <int>fields[FLAGS_AT] & VARIES != self.flags or fields[MAX_COUNT_AT] != said[MAX_COUNT_AT]:
            return False
        for i in range(MAX_BYTES_AT, len(said)):
            if fields[i] is not said[i] and fields[i] != said[i]:
                return False
        if self.flags & SUBSCRIPTION and (
            fields[EXPRESSION_AT] != said[EXPRESSION_AT]
            or fields[EXPRESSION_TYPE_AT] != said[EXPRESSION_TYPE_AT]
        ):
            return False
        return self.online is None or (
            online.get(fields[0]) is self.online
            and self.online.message_model is self.message_model
            and self.online.subscriptions.get(fields[1]) is self.subscription
            and fields[VERSION_AT] <= self.subscription.version
        )


cdef class PullTail:
    """See ``codec.pulls.PullTail``."""

    cdef public dict plans
    cdef object log, queues, read, commit
    cdef dict online
    cdef Form json, binary

    def __init__(
        self, log, dict queues not None, dict online not None, read, answer, commit
    ):
        self.plans = {}
        self.log = log
        self.queues = queues
        self.online = online
        self.read = read
        self.commit = commit
        self.json = Form(_pull_pieces(answer, 0), 0)
        self.binary = Form(_pull_pieces(answer, 1), 1)

    def take(
        self, commands, Py_ssize_t begin, header_type, int64_t warm_begin, int64_t log_end,
        list frames,
    ):
        """See ``codec.pulls.PullTail.take``."""
        cdef Py_ssize_t number, gathered = 0
        cdef int64_t log_begin = self.log.begin
        cdef tuple said, fields
        cdef bytes frame
        cdef PullPlan plan
        cdef PyObject *found
        for number in range(begin, len(commands)):
            if gathered > GATHERED_BYTES_MAX:
                return number
            said = _astuple(commands[number])
            header = said[9]
            if type(header) is not header_type:
                try:
                    header = self.read(commands[number], header_type)
                except _protocol_error:
                    return number
            fields = _astuple(header)
            found = PyDict_GetItem(self.plans, (fields[0], fields[1]))
            if found == NULL:
                return number
            plan = <PullPlan?><object>found
            if <int>said[4] & 2 or not plan.fits(fields, self.online):
                return number
            plan.limits.log_begin = log_begin
            plan.limits.warm_begin = warm_begin
            plan.limits.log_end = log_end
            frame = self.find(said, fields, plan)
            if frame is None:
                return number
            plan.pulled[fields[2]] = plan.next_offset
            if <int>fields[FLAGS_AT] & COMMIT_OFFSET and <int64_t>fields[COMMIT_AT] <= plan.queue_end:
                self.commit(fields[0], fields[1], fields[2], fields[COMMIT_AT])
            frames.append(frame)
            gathered += PyBytes_GET_SIZE(frame)
        return len(commands)

    cdef bytes find(self, tuple said, tuple fields, PullPlan plan):
        """The answer with what is there; None when that is nothing, or not simple."""
        cdef PyObject *ids = PyDict_GetItem(self.queues, fields[1])
        cdef PyObject *found = NULL if ids == NULL else PyDict_GetItem(<dict>ids, fields[2])
        cdef Facts facts
        cdef Py_buffer view
        cdef int64_t offset = fields[3], position, file_begin
        cdef Py_ssize_t start, stop
        if found == NULL:
            return None
        queue = <object>found
        facts.numbers[0] = offset
        facts.numbers[1] = queue.min_offset
        facts.numbers[2] = queue.max_offset
        if not facts.numbers[1] <= offset < facts.numbers[2] or queue.extension is not None:
            return None
        position = offset * ENTRY_BYTES
        try:
            buffer, file_begin = queue.bytes_at(position)
        except FileNotFoundError:
            return None
        start = position - file_begin
        stop = min(
            start + plan.entries_max * ENTRY_BYTES, facts.numbers[2] * ENTRY_BYTES - file_begin,
            <int64_t>queue.file_bytes,
        )
        facts.opaque = said[3]
        facts.id_prefix_bytes = facts.key_bytes = 0
        PyObject_GetBuffer(buffer, &view, PyBUF_SIMPLE)
        try:
            if not 0 <= start < stop <= view.len or not can_choose(plan.tags):
                return None
            return self.join(
                <const uint8_t *>view.buf + start, (stop - start) // ENTRY_BYTES, plan,
                self.json if said[6] == 0 else self.binary, &facts,
            )
        finally:
            PyBuffer_Release(&view)

    cdef bytes join(
        self, const uint8_t *entries, Py_ssize_t count, PullPlan plan, Form form, Facts *facts
    ):
        """The frame with the records of these entries, if they lie in one file."""
        cdef Choice choice
        cdef Py_buffer content
        cdef uint8_t head[HEAD_BYTES_MAX]
        cdef Py_ssize_t head_bytes
        cdef int64_t base
        cdef bytes frame = None
        file = self.log.find(<int64_t>load64(entries))
        if file is None:
            return None
        base = file.begin
        choose(entries, count, plan.tags, &plan.limits, &choice)
        try:
            if choice.records == 0 or choice.bytes > JOINED_BYTES_MAX:
                return None
            facts.numbers[0] += choice.examined
            head_bytes = form.write(head, facts, choice.bytes)
            PyObject_GetBuffer(file.view, &content, PyBUF_SIMPLE)
            try:
                if lie_within(&choice, base, base + content.len):
                    frame = PyBytes_FromStringAndSize(NULL, head_bytes + choice.bytes)
                    memcpy(PyBytes_AS_STRING(frame), head, head_bytes)
                    copy_runs(
                        PyBytes_AS_STRING(frame) + head_bytes, <const uint8_t *>content.buf, base,
                        &choice,
                    )
            finally:
                PyBuffer_Release(&content)
            if frame is not None:
                plan.taken[0] += choice.records
                plan.taken[1] += choice.bytes
                plan.next_offset = facts.numbers[0]
                plan.queue_end = facts.numbers[2]
            return frame
        finally:
            free(choice.runs)
