# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twins of what touches every record: writing it, entering it into queues and index.

Whatever does not fit is handed to the plain twin, which refuses it with its reason.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBUF_WRITABLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.memoryview cimport PyMemoryView_GET_BUFFER
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.stdlib cimport calloc, free, malloc
from libc.string cimport memcmp, memcpy, memset

from cometmq._fast.words cimport (
    cometmq_crc32, cometmq_crc_prepare, hash_more, index_hash, is_ascii, load16, load32, load64,
    put16, put32, put64, put_bytes,
)

cdef enum:
    MAGIC_V1 = 0xDAA320A7
    MAGIC_V2 = 0xDAA320AB
    MAGIC_BLANK = 0xCBD43194
    BORN_V6 = 0x10
    STORE_V6 = 0x20
    ENTRY_BYTES = 20
    TAGS_MAX = 64
    INT32_MAX = 0x7FFFFFFF
    RECORD_BYTES_MIN = 91
    BATCH_ITEM_MIN = 22
    SECTOR_BYTES = 512

cdef object _plain = None

cometmq_crc_prepare()


def bind(plain):
    """Receive the plain twins by the names they have here; called once by ``codec.core``."""
    global _plain
    _plain = plain


def crc32(const uint8_t[::1] data not None):
    """The same as zlib's; here to be tested."""
    return cometmq_crc32(&data[0], data.shape[0]) if data.shape[0] else 0


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
                crc = cometmq_crc32(<const uint8_t *>content.buf, content.len) & 0x7FFFFFFF
                write_record(
                    <uint8_t *>room.buf + position, <int32_t>size, crc, queue_id, flag, queue_offset,
                    physical_offset, sys_flag, born_timestamp, born_host, store_timestamp,
                    store_host, reconsume_times, prepared_transaction_offset, content.buf,
                    content.len, topic, PyBytes_AS_STRING(properties), properties_bytes,
                )
                return size
        finally:
            PyBuffer_Release(&room)
    finally:
        PyBuffer_Release(&content)
    return _plain.encode_into(
        target, position, topic, body, properties, queue_id, queue_offset, physical_offset,
        store_timestamp, born_timestamp, born_host, store_host, flag, sys_flag, reconsume_times,
        prepared_transaction_offset,
    )


cdef void write_record(
    uint8_t *p, int32_t size, uint32_t crc, int queue_id, int flag, int64_t queue_offset,
    int64_t physical_offset, int sys_flag, int64_t born_timestamp, bytes born_host,
    int64_t store_timestamp, bytes store_host, int reconsume_times, int64_t prepared_offset,
    const void *body, Py_ssize_t body_bytes, bytes topic, const void *properties,
    Py_ssize_t properties_bytes,
) noexcept:
    cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(topic)
    cdef bint long_topic = topic_bytes > 127
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
    p = put32(p, <uint32_t>body_bytes)
    p = put_bytes(p, body, body_bytes)
    if long_topic:
        p[0] = topic_bytes >> 8
        p += 1
    p[0] = topic_bytes & 255
    p = put_bytes(p + 1, PyBytes_AS_STRING(topic), topic_bytes)
    put_bytes(put16(p, <uint32_t>properties_bytes), properties, properties_bytes)


# --- batches ---


def measure(data, Py_ssize_t topic_length, int sys_flag, Py_ssize_t record_bytes_max):
    """See ``codec.batch.measure``."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef Py_ssize_t fixed = record_fixed(sys_flag) + topic_length + (topic_length > 127)
    cdef Py_ssize_t size = 0, record, item, body
    cdef int count = 0
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        p = <const uint8_t *>view.buf
        end = p + view.len
        while p < end:
            item = batch_item(p, end - p, &body)
            record = fixed + item - BATCH_ITEM_MIN
            if item < 0 or record > record_bytes_max:
                break
            size += record
            count += 1
            p += item
        else:
            return size, count
    finally:
        PyBuffer_Release(&view)
    return _plain.measure(data, topic_length, sys_flag, record_bytes_max)


def encode_records_into(
    target, Py_ssize_t position, bytes topic, data, int queue_id, int64_t queue_offset,
    int64_t physical_offset, int64_t store_timestamp, int64_t born_timestamp, bytes born_host,
    bytes store_host, int sys_flag, int reconsume_times,
):
    """See ``codec.batch.encode_records_into``."""
    cdef Py_buffer view, room
    cdef Py_ssize_t topic_bytes = PyBytes_GET_SIZE(topic)
    cdef Py_ssize_t fixed = record_fixed(sys_flag) + topic_bytes + (topic_bytes > 127)
    cdef Py_ssize_t size, count
    size, count = measure(data, topic_bytes, sys_flag, INT32_MAX)
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        PyObject_GetBuffer(target, &room, PyBUF_WRITABLE)
        try:
            if (
                PyBytes_GET_SIZE(born_host) == (20 if sys_flag & BORN_V6 else 8)
                and PyBytes_GET_SIZE(store_host) == (20 if sys_flag & STORE_V6 else 8)
                and topic_bytes <= 32767 and position >= 0 and size <= room.len - position
            ):
                return write_batch(
                    <uint8_t *>room.buf + position, fixed, topic, <const uint8_t *>view.buf,
                    view.len, queue_id, queue_offset, physical_offset, store_timestamp,
                    born_timestamp, born_host, store_host, sys_flag, reconsume_times,
                )
        finally:
            PyBuffer_Release(&room)
    finally:
        PyBuffer_Release(&view)
    return _plain.encode_records_into(
        target, position, topic, data, queue_id, queue_offset, physical_offset, store_timestamp,
        born_timestamp, born_host, store_host, sys_flag, reconsume_times,
    )


cdef tuple write_batch(
    uint8_t *room, Py_ssize_t fixed, bytes topic, const uint8_t *p, Py_ssize_t length, int queue_id,
    int64_t queue_offset, int64_t physical_offset, int64_t store_timestamp, int64_t born_timestamp,
    bytes born_host, bytes store_host, int sys_flag, int reconsume_times,
):
    cdef list offsets = []
    cdef const uint8_t *end = p + length
    cdef Py_ssize_t item, body, size, properties
    while p < end:
        item = batch_item(p, end - p, &body)
        size = fixed + item - BATCH_ITEM_MIN
        properties = item - BATCH_ITEM_MIN - body
        write_record(
            room, <int32_t>size, cometmq_crc32(p + 20, body) & 0x7FFFFFFF, queue_id,
            <int32_t>load32(p + 12), queue_offset, physical_offset, sys_flag, born_timestamp,
            born_host, store_timestamp, store_host, reconsume_times, 0, p + 20, body, topic,
            p + BATCH_ITEM_MIN + body, properties,
        )
        offsets.append(physical_offset)
        room += size
        physical_offset += size
        queue_offset += 1
        p += item
    return tuple(offsets)


cdef Py_ssize_t record_fixed(int sys_flag) noexcept:
    return 75 + (20 if sys_flag & BORN_V6 else 8) + (20 if sys_flag & STORE_V6 else 8)


cdef inline Py_ssize_t batch_item(const uint8_t *p, Py_ssize_t room, Py_ssize_t *body) noexcept:
    """Size of the batch message at ``p``, -1 when its lengths do not add up."""
    cdef Py_ssize_t size
    if room < BATCH_ITEM_MIN:
        return -1
    size = <int32_t>load32(p)
    body[0] = <int32_t>load32(p + 16)
    if size < BATCH_ITEM_MIN or size > room or body[0] < 0 or body[0] > size - BATCH_ITEM_MIN:
        return -1
    if load16(p + 20 + body[0]) != size - BATCH_ITEM_MIN - body[0]:
        return -1
    return size


# --- queue entries ---


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
    return _plain.pack_into(target, position, physical_offset, size, tags_code)


def scan(data, Py_ssize_t begin, Py_ssize_t end, tags, Py_ssize_t limit):
    """See ``codec.queue_entry.scan``."""
    cdef Py_buffer view
    cdef int64_t wanted[TAGS_MAX]
    cdef Py_ssize_t wanted_count = 0
    cdef bint everything = tags is None
    if not everything:
        if len(tags) > TAGS_MAX:
            return _plain.scan(data, begin, end, tags, limit)
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
    return _plain.scan(data, begin, end, tags, limit)


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


cdef bint can_choose(object tags):
    """Whether there are not too many tags."""
    return tags is None or len(tags) <= TAGS_MAX


cdef int choose(
    const uint8_t *p, Py_ssize_t entries, tags, const Limits *limits, Choice *choice
) except -1:
    """Look at entries until a limit is reached; ``runs`` is to be freed."""
    cdef int64_t wanted[TAGS_MAX]
    cdef Py_ssize_t wanted_count = -1, run_count_max = min(entries, max(limits.count_max, 1))
    cdef int64_t offset, run_end = -1
    cdef int32_t size
    cdef bint cold
    if tags is not None:
        wanted_count = 0
        for tag in tags:
            wanted[wanted_count] = tag
            wanted_count += 1
    memset(choice, 0, sizeof(Choice))
    choice.runs = <int64_t *>malloc(max(run_count_max, 1) * 2 * sizeof(int64_t))
    if choice.runs == NULL:
        raise MemoryError
    while choice.examined < entries:
        offset = <int64_t>load64(p)
        size = <int32_t>load32(p + 8)
        if size != INT32_MAX or offset != 0:
            # Not their sum: that of a damaged entry may be too large for a number.
            if offset < 0 or size <= 0 or offset > limits.log_end - size:
                break
            if wanted_count < 0 or matches(<int64_t>load64(p + 12), wanted, wanted_count):
                if offset < limits.log_begin:
                    choice.has_gone = True
                else:
                    cold = offset < limits.warm_begin
                    if choice.records and (
                        choice.records >= limits.count_max
                        or choice.bytes + size > limits.bytes_max
                        or (cold and choice.records >= limits.count_cold_max)
                        or (cold and choice.bytes + size > limits.bytes_cold_max)
                    ):
                        break
                    if offset != run_end:
                        choice.runs[2 * choice.run_count] = offset
                        choice.run_count += 1
                    run_end = offset + size
                    choice.runs[2 * choice.run_count - 1] = run_end
                    choice.is_cold = cold
                    choice.records += 1
                    choice.bytes += size
        choice.examined += 1
        p += ENTRY_BYTES
    return 0


def select(
    data, Py_ssize_t begin, Py_ssize_t end, tags, int64_t log_begin, int64_t warm_begin,
    int64_t log_end, Py_ssize_t count_max, int64_t bytes_max, Py_ssize_t count_cold_max,
    int64_t bytes_cold_max,
):
    """See ``codec.queue_entry.select``."""
    cdef Py_buffer view
    cdef Choice choice
    cdef Limits limits = Limits(
        log_begin, warm_begin, log_end, bytes_max, bytes_cold_max, count_max, count_cold_max
    )
    cdef Py_ssize_t i
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= begin <= end <= view.len or not can_choose(tags):
            return _plain.select(
                data, begin, end, tags, log_begin, warm_begin, log_end, count_max, bytes_max,
                count_cold_max, bytes_cold_max,
            )
        choose(
            <const uint8_t *>view.buf + begin, (end - begin) // ENTRY_BYTES, tags, &limits, &choice
        )
    finally:
        PyBuffer_Release(&view)
    try:
        runs = [(choice.runs[2 * i], choice.runs[2 * i + 1]) for i in range(choice.run_count)]
    finally:
        free(choice.runs)
    return (
        runs, choice.records, choice.bytes, choice.examined, choice.is_cold, choice.has_gone
    )


cdef bint lie_within(const Choice *choice, int64_t base, int64_t end) noexcept:
    """Whether all runs lie in this part of the log."""
    cdef Py_ssize_t i
    for i in range(choice.run_count):
        if choice.runs[2 * i] < base or choice.runs[2 * i + 1] > end:
            return False
    return True


cdef void copy_runs(char *target, const uint8_t *log, int64_t base, const Choice *choice) noexcept:
    """Write the bytes of all runs, one after the other."""
    cdef int64_t begin, size
    cdef Py_ssize_t i
    for i in range(choice.run_count):
        begin = choice.runs[2 * i]
        size = choice.runs[2 * i + 1] - begin
        memcpy(target, log + (begin - base), size)
        target += size


def slice_runs(view, int64_t base, list runs, Py_ssize_t begin):
    """See ``codec.queue_entry.slice_runs``."""
    cdef int64_t end = base + PyMemoryView_GET_BUFFER(view).len
    cdef int64_t run_begin, run_end
    cdef list slices = []
    cdef tuple run
    while begin < len(runs):
        run = <tuple>runs[begin]
        run_begin = run[0]
        run_end = run[1]
        if run_begin < base or run_end < run_begin or run_end > end:
            break
        slices.append(view[run_begin - base : run_end - base])
        begin += 1
    assert slices, (base, runs)
    return slices


def count(data, Py_ssize_t begin, Py_ssize_t end):
    """See ``codec.queue_entry.count``."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef Py_ssize_t number = 0, entries
    cdef int64_t offset, physical_end = -1
    cdef int32_t size
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if 0 <= begin <= end <= view.len:
            p = <const uint8_t *>view.buf + begin
            entries = (end - begin) // ENTRY_BYTES
            while number < entries:
                offset = <int64_t>load64(p)
                size = <int32_t>load32(p + 8)
                if size != INT32_MAX or offset != 0:
                    if size <= 0 or offset < 0 or offset < physical_end:
                        break
                    physical_end = offset + size
                number += 1
                p += ENTRY_BYTES
            return number, physical_end
    finally:
        PyBuffer_Release(&view)
    return _plain.count(data, begin, end)


# --- walking the log ---


def walk(data, Py_ssize_t begin, Py_ssize_t end, int64_t base, Py_ssize_t limit, bint check_crc):
    """See ``codec.digest.walk``."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef list digests = []
    cdef Found found
    cdef Text last
    cdef object topic = None
    cdef Py_ssize_t position = begin, done = 0
    cdef int ending = END
    last.size = -1
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if not 0 <= begin <= end <= view.len:
            return _plain.walk(data, begin, end, base, limit, check_crc)
        while position < end and done < limit:
            p = <const uint8_t *>view.buf + position
            ending = measure_record(p, end - position, &found)
            if ending == END and <int64_t>load64(p + 28) != base + position:
                ending = BROKEN
            if ending == END and check_crc and (
                not has_crc(p, &found) or has_lost_sector(p, position, &found)
            ):
                ending = BROKEN
            if ending != END:
                break
            if found.topic.size != last.size or memcmp(found.topic.p, last.p, last.size) != 0:
                try:
                    topic = PyUnicode_DecodeUTF8(
                        <const char *>found.topic.p, found.topic.size, NULL
                    )
                except UnicodeDecodeError:
                    ending = BROKEN
                    break
                if "\0" in topic:
                    ending = BROKEN
                    break
                last = found.topic
            find_properties(p + found.size, &found)
            digests.append((
                topic, <int32_t>load32(p + 12), <int64_t>load64(p + 20), base + position,
                found.size, found.sys_flag, <int64_t>load64(p + found.store_timestamp),
                tags_code(&found), key_hashes(topic, &found),
            ))
            position += found.size
            done += 1
    finally:
        PyBuffer_Release(&view)
    return _plain.walked(digests, position, ending)


cdef int measure_record(const uint8_t *p, Py_ssize_t room, Found *found) noexcept:
    """Find the parts of the record at ``p``; how the walk ends if there is none."""
    cdef Py_ssize_t size, fixed, width, length
    cdef uint32_t magic
    if room < 8:
        return INCOMPLETE
    size = <int32_t>load32(p)
    magic = load32(p + 4)
    if magic == <uint32_t>MAGIC_BLANK:
        return BLANK
    if magic != <uint32_t>MAGIC_V1 and magic != <uint32_t>MAGIC_V2:
        return BROKEN
    if size > room:
        return INCOMPLETE
    if size < RECORD_BYTES_MIN:
        return BROKEN
    found.size = size
    found.sys_flag = <int32_t>load32(p + 36)
    found.store_timestamp = 68 if found.sys_flag & BORN_V6 else 56
    fixed = record_fixed(found.sys_flag) - 3
    if fixed > size:
        return BROKEN
    found.body.p = p + fixed
    found.body.size = <int32_t>load32(p + fixed - 4)
    if found.body.size < 0 or found.body.size > size - fixed:
        return BROKEN
    width = 1 if magic == <uint32_t>MAGIC_V1 else 2
    length = fixed + found.body.size + width
    if length > size:
        return BROKEN
    if width == 1:
        found.topic.size = p[length - 1] if p[length - 1] < 128 else -1
    else:
        found.topic.size = load16(p + length - 2)
    if found.topic.size < 0 or length + found.topic.size + 2 > size:
        return BROKEN
    found.topic.p = p + length
    length += found.topic.size + 2
    if load16(p + length - 2) != size - length:
        return BROKEN
    return END


cdef inline bint has_crc(const uint8_t *p, const Found *found) noexcept:
    return load32(p + 8) == cometmq_crc32(found.body.p, found.body.size) & 0x7FFFFFFF


cdef bint has_lost_sector(const uint8_t *p, Py_ssize_t position, const Found *found) noexcept:
    """Whether a disk sector that lies in the properties, or ends them, is all zeros."""
    cdef Py_ssize_t end = found.size
    cdef Py_ssize_t i = (found.topic.p - p) + found.topic.size + 2
    cdef Py_ssize_t stop
    i += (SECTOR_BYTES - (position + i) % SECTOR_BYTES) % SECTOR_BYTES
    while i < end:
        stop = min(i + SECTOR_BYTES, end)
        while i < stop and p[i] == 0:
            i += 1
        if i == stop:
            return True
        i = stop if stop == end else i + SECTOR_BYTES - (position + i) % SECTOR_BYTES
    return False


cdef void find_properties(const uint8_t *end, Found *found) noexcept:
    """Find the three properties that matter here; of a repeated one the last counts."""
    cdef const uint8_t *p = found.topic.p + found.topic.size + 2
    cdef const uint8_t *name
    cdef const uint8_t *value
    cdef Py_ssize_t name_bytes, value_bytes
    found.unique_key.size = found.keys.size = found.tags.size = 0
    while p < end:
        name = p
        while p < end and p[0] != 1 and p[0] != 2:
            p += 1
        name_bytes = p - name
        value = p + 1
        if p < end and p[0] == 1:
            p += 1
            while p < end and p[0] != 2:
                p += 1
            value_bytes = p - value
            if value_bytes > 0:
                if name_bytes == 4:
                    if memcmp(name, b"TAGS", 4) == 0:
                        found.tags.p, found.tags.size = value, value_bytes
                    elif memcmp(name, b"KEYS", 4) == 0:
                        found.keys.p, found.keys.size = value, value_bytes
                elif name_bytes == 8 and memcmp(name, b"UNIQ_KEY", 8) == 0:
                    found.unique_key.p, found.unique_key.size = value, value_bytes
        p += 1


cdef object tags_code(const Found *found):
    if found.tags.size == 0:
        return 0
    if is_ascii(found.tags.p, found.tags.size):
        return <int32_t>hash_more(0, found.tags.p, found.tags.size)
    return _plain.tags_code(text_of(found.tags.p, found.tags.size))


cdef tuple key_hashes(str topic, const Found *found):
    """Hashes for the index: unique key, each of the keys, tag."""
    cdef uint32_t seed
    cdef const uint8_t *p
    cdef const uint8_t *end
    cdef const uint8_t *key
    cdef bint plain = is_ascii(found.topic.p, found.topic.size)
    cdef list hashes = []
    if found.unique_key.size == 0 and found.keys.size == 0 and found.tags.size == 0:
        return ()
    seed = 31 * hash_more(0, found.topic.p, found.topic.size) + 35
    if found.unique_key.size:
        hashes.append(key_hash(plain, seed, topic, found.unique_key.p, found.unique_key.size))
    if found.keys.size:
        p = found.keys.p
        end = p + found.keys.size
        while p < end:
            key = p
            while p < end and p[0] != 32:
                p += 1
            if p > key:
                hashes.append(key_hash(plain, seed, topic, key, p - key))
            p += 1
    if found.tags.size:
        if plain and is_ascii(found.tags.p, found.tags.size):
            # As the key text "<topic>#T#<tag>".
            seed = 31 * (31 * seed + 84) + 35
            hashes.append(index_hash(hash_more(seed, found.tags.p, found.tags.size)))
        else:
            hashes.append(_plain.tag_hash(topic, text_of(found.tags.p, found.tags.size)))
    return tuple(hashes)


cdef object key_hash(bint plain, uint32_t seed, str topic, const uint8_t *p, Py_ssize_t size):
    if plain and is_ascii(p, size):
        return index_hash(hash_more(seed, p, size))
    return _plain.key_hash(topic, text_of(p, size))


cdef str text_of(const uint8_t *p, Py_ssize_t size):
    return PyUnicode_DecodeUTF8(<const char *>p, size, "replace")


# --- index entries ---


def put_entries(
    data, Py_ssize_t slots, int32_t number, hashes, int64_t physical_offset, int32_t seconds
):
    """See ``codec.index_entry.put_entries``."""
    cdef Py_buffer room
    cdef int32_t value
    cdef int empty = 0
    cdef Py_ssize_t first = 40 + 4 * slots
    PyObject_GetBuffer(data, &room, PyBUF_WRITABLE)
    try:
        if number <= 0 or slots <= 0 or first + 20 * (number + len(hashes)) > room.len:
            return _plain.put_entries(data, slots, number, hashes, physical_offset, seconds)
        for value in hashes:
            assert value >= 0, value
            empty += link_entry(
                <uint8_t *>room.buf, slots, number, value, physical_offset, seconds
            )
            if number == 1:
                seconds = 0
            number += 1
    finally:
        PyBuffer_Release(&room)
    return empty


cdef bint link_entry(
    uint8_t *file, Py_ssize_t slots, int32_t number, int32_t key_hash, int64_t physical_offset,
    int32_t seconds,
) noexcept:
    """Write an entry and make it the newest of its slot; whether that was empty."""
    cdef uint8_t *slot = file + 40 + 4 * (key_hash % slots)
    cdef int32_t previous = <int32_t>load32(slot)
    if previous <= 0 or previous >= number:
        previous = 0
    put_entry(
        file + 40 + 4 * slots + 20 * <Py_ssize_t>number, key_hash, physical_offset, seconds, previous
    )
    put32(slot, number)
    return previous == 0


cdef inline void put_entry(
    uint8_t *p, int32_t key_hash, int64_t physical_offset, int32_t seconds, int32_t previous
) noexcept:
    put32(put32(put64(put32(p, key_hash), physical_offset), seconds), previous)


def relink(data, Py_ssize_t slots, int32_t count):
    """See ``codec.index_entry.relink``."""
    cdef Py_buffer room
    cdef uint8_t *base
    cdef uint8_t *p
    cdef int32_t *newest
    cdef int32_t number
    cdef Py_ssize_t slot, used = 0
    PyObject_GetBuffer(data, &room, PyBUF_WRITABLE)
    try:
        if slots <= 0 or count <= 0 or 40 + 4 * slots + 20 * <Py_ssize_t>count > room.len:
            return _plain.relink(data, slots, count)
        newest = <int32_t *>calloc(slots, 4)
        if newest == NULL:
            raise MemoryError
        base = <uint8_t *>room.buf + 40
        p = base + 4 * slots
        for number in range(1, count):
            p += 20
            slot = load32(p) % slots
            # Only what is different is written: pages that are right stay clean.
            if <int32_t>load32(p + 16) != newest[slot]:
                put32(p + 16, newest[slot])
            newest[slot] = number
        for slot in range(slots):
            used += newest[slot] != 0
            if <int32_t>load32(base + 4 * slot) != newest[slot]:
                put32(base + 4 * slot, newest[slot])
        free(newest)
    finally:
        PyBuffer_Release(&room)
    return used


def valid_count(data, Py_ssize_t slots, int32_t count, int64_t begin_offset, int64_t end_offset):
    """See ``codec.index_entry.valid_count``."""
    cdef Py_buffer view
    cdef const uint8_t *p
    cdef int32_t number = 1
    cdef int64_t offset
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        if slots <= 0 or count <= 0 or 40 + 4 * slots + 20 * <Py_ssize_t>count > view.len:
            return _plain.valid_count(data, slots, count, begin_offset, end_offset)
        p = <const uint8_t *>view.buf + 40 + 4 * slots + 20
        while number < count:
            offset = <int64_t>load64(p + 4)
            if <int32_t>load32(p) < 0 or <int32_t>load32(p + 12) < 0:
                break
            if offset < begin_offset or offset >= end_offset:
                break
            if offset == 0 and load32(p) == 0:
                break
            begin_offset = offset
            number += 1
            p += 20
    finally:
        PyBuffer_Release(&view)
    return number
