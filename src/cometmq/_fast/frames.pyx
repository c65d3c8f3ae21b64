# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twins of ``codec.command.decode_frames`` and ``codec.record.parse_records``.

Theory of operation: the code here handles what real clients send, written the way they write it,
and steps aside for everything else. A scanner that meets anything unusual (an escape it does not
know, an integer that is none, invalid UTF-8) gives up without an opinion, and the plain code
decides: there is one set of rules and one set of error messages.
"""

from cpython.buffer cimport PyBUF_SIMPLE, PyBuffer_Release, PyObject_GetBuffer
from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.tuple cimport PyTuple_GET_ITEM
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint32_t
from libc.string cimport memcmp

from cometmq._fast.headers cimport Layout, layout_of, read_binary, read_json
from cometmq._fast.records cimport END, Found, Text, measure_record
from cometmq._fast.scanner cimport (
    V_ESCAPED_TEXT,
    V_NULL,
    V_NUMBER,
    V_TEXT,
    Bytes,
    Scan,
    Value,
    as_int32,
    as_text,
    is_key,
    load16,
    load32,
    scan_string,
    scan_value,
    skip_blanks,
    skip_object,
    take,
)
from cometmq._fast.words cimport load64


cdef extern from "Python.h":
    PyObject *PyDict_GetItem(object table, object key)


cdef enum:
    HEADER_MASK = 0xFFFFFF
    CODES_MAX = 512
    NUMBERS_MAX = 1024

cdef object _command_type = None
cdef object _plain_frame = None
cdef object _record_type = None
cdef object _plain_records = None
cdef dict _languages = {}
cdef dict _layouts = {}
cdef PyObject *_layout_by_code[CODES_MAX]
cdef tuple _numbers = tuple(range(NUMBERS_MAX))


cdef inline object number_of(int64_t value):
    """Codes and versions are few and above the numbers that Python keeps ready."""
    if 0 <= value < NUMBERS_MAX:
        return <object>PyTuple_GET_ITEM(_numbers, value)
    return value


def bind(
    command_type, plain_frame, record_type, plain_records, dict languages, dict header_types
):
    """Receive what lies in the layer above; called once by ``codec.core``.

    Requests with a code in ``header_types`` get their typed header while their bytes are at hand.
    """
    global _command_type, _plain_frame, _record_type, _plain_records, _languages
    _command_type = command_type
    _plain_frame = plain_frame
    _record_type = record_type
    _plain_records = plain_records
    _languages = languages
    for code, header_type in header_types.items():
        layout = _layouts[code] = layout_of(header_type)
        _layout_by_code[<int>code] = <PyObject *>layout


cdef inline PyObject *layout_for(int64_t code, int64_t flag) noexcept:
    """The layout to read at once, or NULL; the code of a response says nothing about its fields."""
    return _layout_by_code[code] if 0 < code < CODES_MAX and not flag & 1 else NULL


def decode_frames(data, Py_ssize_t begin=0, end=None, Py_ssize_t frame_bytes_max=16777216):
    """See ``codec.command.decode_frames``."""
    cdef Py_buffer view
    if type(data) is bytes:
        return decode_all(
            data, <Bytes>PyBytes_AS_STRING(data), PyBytes_GET_SIZE(data), begin, end, frame_bytes_max
        )
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        return decode_all(data, <Bytes>view.buf, view.len, begin, end, frame_bytes_max)
    finally:
        PyBuffer_Release(&view)


cdef tuple decode_all(
    data, Bytes bytes_of, Py_ssize_t size, Py_ssize_t position, end, Py_ssize_t frame_bytes_max
):
    cdef Py_ssize_t stop = size if end is None else min(<Py_ssize_t>end, size)
    cdef list commands = []
    while True:
        position = decode_usual(bytes_of, position, stop, frame_bytes_max, commands)
        if stop - position < 8 and commands:
            return commands, position
        # Incomplete, or something this scanner does not judge: the plain code does.
        found, position = _plain_frame(data, position, stop, frame_bytes_max, commands)
        if not found:
            return commands, position


cdef Py_ssize_t decode_usual(
    Bytes data, Py_ssize_t position, Py_ssize_t stop, Py_ssize_t frame_bytes_max, list commands
) except -1:
    """Append frames while they are complete and ordinary; the position of the first that is not."""
    cdef int64_t length
    cdef uint32_t word
    cdef Py_ssize_t header_bytes
    while stop - position >= 8:
        length = <int32_t>load32(data + position)
        word = load32(data + position + 4)
        header_bytes = word & HEADER_MASK
        if length < 4 or length + 4 > frame_bytes_max or header_bytes > length - 4:
            break
        if length + 4 > stop - position:
            break
        command = decode_one(
            data + position + 8, header_bytes, length - 4 - header_bytes, word >> 24
        )
        if command is None:
            break
        commands.append(command)
        position += 4 + length
    return position


cdef object decode_one(Bytes header, Py_ssize_t header_bytes, Py_ssize_t body_bytes, uint32_t kind):
    if kind == 0:
        return decode_json(header, header_bytes, body_bytes)
    if kind == 1:
        return decode_binary(header, header_bytes, body_bytes)
    return None


cdef object decode_binary(Bytes header, Py_ssize_t size, Py_ssize_t body_bytes):
    cdef int64_t remark_bytes, ext_bytes
    cdef Py_ssize_t position
    cdef PyObject *layout
    cdef Bytes begin
    if size < 21:
        return None
    remark_bytes = <int32_t>load32(header + 13)
    position = 17 + remark_bytes
    if remark_bytes < 0 or position + 4 > size:
        return None
    ext_bytes = <int32_t>load32(header + position)
    if ext_bytes < 0 or position + 4 + ext_bytes > size:
        return None
    remark = None
    if remark_bytes:
        remark = PyUnicode_DecodeUTF8(<const char *>header + 17, remark_bytes, "replace")
    ext = typed = None
    if ext_bytes:
        ext = PyBytes_FromStringAndSize(<const char *>header + position + 4, ext_bytes)
        layout = layout_for(load16(header), header[12])
        if layout != NULL:
            begin = header + position + 4
            typed = read_binary(begin, begin + ext_bytes, <Layout>layout)
    body = PyBytes_FromStringAndSize(<const char *>header + size, body_bytes)
    return _command_type(
        number_of(load16(header)), header[2], number_of(load16(header + 3)),
        <int32_t>load32(header + 5), <int32_t>load32(header + 9), remark, 1, ext, body, typed,
    )


cdef struct Members:
    int64_t code
    int64_t version
    int64_t opaque
    int64_t flag
    Value language
    Value remark
    Value ext
    bint has_code


cdef object decode_json(Bytes header, Py_ssize_t size, Py_ssize_t body_bytes):
    cdef Scan s
    cdef Value key
    cdef Members got
    cdef bint readable = False
    typed = None
    s.p = header
    s.end = header + size
    s.high = False
    got.code = got.version = got.opaque = got.flag = got.has_code = 0
    got.language.kind = got.remark.kind = got.ext.kind = V_NULL
    got.ext.begin = got.ext.end = header
    if not take(&s, 123):
        return None
    while True:
        skip_blanks(&s)
        if s.p >= s.end or s.p[0] != 34 or not scan_string(&s, &key) or not take(&s, 58):
            return None
        if is_key(&key, "extFields", 9):
            typed = scan_ext(&s, &got, &readable)
            if not readable:
                return None
        elif not scan_member(&s, &key, &got):
            return None
        if take(&s, 125):
            break
        if not take(&s, 44):
            return None
    skip_blanks(&s)
    if s.p != s.end or not got.has_code or (s.high and not is_utf8(header, size)):
        return None
    return build_json_command(&got, header + size, body_bytes, None if got.flag & 1 else typed)


cdef object scan_ext(Scan *s, Members *got, bint *readable):
    """Span the ext fields and, for a hot request, read them: clients write the code before them."""
    cdef PyObject *layout = layout_for(got.code, got.flag)
    typed = None
    if layout == NULL:
        readable[0] = skip_object(s, &got.ext)
    else:
        skip_blanks(s)
        got.ext.begin = s.p
        typed = read_json(s, <Layout>layout, readable)
        got.ext.end = s.p
    return typed


cdef bint scan_member(Scan *s, Value *key, Members *got) noexcept:
    cdef Value value
    cdef int64_t *number = NULL
    if key.kind == V_ESCAPED_TEXT or not scan_value(s, &value):
        return False
    if is_key(key, "language", 8):
        got.language = value
        return value.kind == V_TEXT
    if is_key(key, "remark", 6):
        got.remark = value
        return value.kind == V_TEXT or value.kind == V_ESCAPED_TEXT or value.kind == V_NULL
    if is_key(key, "code", 4):
        number = &got.code
        got.has_code = True
    elif is_key(key, "opaque", 6):
        number = &got.opaque
    elif is_key(key, "flag", 4):
        number = &got.flag
    elif is_key(key, "version", 7):
        number = &got.version
    return number == NULL or (value.kind == V_NUMBER and as_int32(&value, number))


cdef bint is_utf8(Bytes text, Py_ssize_t size):
    try:
        PyUnicode_DecodeUTF8(<const char *>text, size, NULL)
    except UnicodeDecodeError:
        return False
    return True


cdef object build_json_command(Members *got, Bytes body, Py_ssize_t body_bytes, typed):
    language = language_code(&got.language)
    if language is None:
        return None
    remark = ext = None
    if got.remark.kind != V_NULL:
        remark = as_text(&got.remark)
    if got.ext.end > got.ext.begin:
        ext = PyBytes_FromStringAndSize(<const char *>got.ext.begin, got.ext.end - got.ext.begin)
    return _command_type(
        number_of(got.code), language, number_of(got.version), got.opaque, got.flag, remark, 0, ext,
        PyBytes_FromStringAndSize(<const char *>body, body_bytes), typed,
    )


cdef object language_code(Value *language):
    """The number of a language given by its name as everyone writes it; None for other forms."""
    cdef PyObject *found
    if language.kind != V_TEXT:
        return None
    if is_key(language, "JAVA", 4):
        return 0
    name = PyBytes_FromStringAndSize(<const char *>language.begin, language.end - language.begin)
    found = PyDict_GetItem(_languages, name)
    return None if found == NULL else <object>found


# --- records of a pull answer ---


cdef struct Last:
    # Where the texts of the last record lie, which those of the next one mostly equal.
    Text topic
    Text born_host
    Text store_host


def parse_records(data):
    """See ``codec.record.parse_records``."""
    cdef Py_buffer view
    PyObject_GetBuffer(data, &view, PyBUF_SIMPLE)
    try:
        records = parse_usual(<Bytes>view.buf, view.len)
    finally:
        PyBuffer_Release(&view)
    return _plain_records(data) if records is None else records


cdef list parse_usual(Bytes p, Py_ssize_t room):
    """The records at ``p``; None when the plain code must say what is wrong with them."""
    cdef list records = []
    cdef Found found
    cdef Last last
    cdef Text part
    cdef Bytes properties
    topic = born_host = store_host = None
    last.topic.size = last.born_host.size = last.store_host.size = -1
    while room > 0:
        if measure_record(p, room, &found) != END:
            return None
        part.p, part.size = p + 48, found.store_timestamp - 48
        if is_other(&part, &last.born_host):
            born_host = PyBytes_FromStringAndSize(<const char *>part.p, part.size)
        part.p = p + found.store_timestamp + 8
        part.size = found.body.p - 16 - part.p
        if is_other(&part, &last.store_host):
            store_host = PyBytes_FromStringAndSize(<const char *>part.p, part.size)
        if is_other(&found.topic, &last.topic):
            try:
                topic = PyUnicode_DecodeUTF8(<const char *>found.topic.p, found.topic.size, NULL)
            except UnicodeDecodeError:
                return None
        properties = found.topic.p + found.topic.size + 2
        records.append(_record_type(
            found.size, <int32_t>load32(p + 4), <int32_t>load32(p + 8), <int32_t>load32(p + 12),
            <int32_t>load32(p + 16), <int64_t>load64(p + 20), <int64_t>load64(p + 28),
            found.sys_flag, <int64_t>load64(p + 40), born_host,
            <int64_t>load64(p + found.store_timestamp), store_host,
            <int32_t>load32(found.body.p - 16), <int64_t>load64(found.body.p - 12),
            PyBytes_FromStringAndSize(<const char *>found.body.p, found.body.size), topic,
            PyBytes_FromStringAndSize(<const char *>properties, p + found.size - properties),
        ))
        p += found.size
        room -= found.size
    return records


cdef inline bint is_other(const Text *part, Text *last) noexcept:
    """Whether a text differs from the one before it, which it becomes."""
    cdef bint other = part.size != last.size or memcmp(part.p, last.p, part.size) != 0
    last[0] = part[0]
    return other
