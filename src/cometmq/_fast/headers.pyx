# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twin of reading a typed header (``Header.from_ext``) from the bytes that came.

Handles canonical values only; everything else goes to the plain rules, which also raise.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.object cimport PyObject
from cpython.ref cimport Py_INCREF, Py_XDECREF
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t
from libc.string cimport memchr, memcmp, memcpy, memset

from cometmq._fast.scanner cimport (
    V_ESCAPED_TEXT,
    V_FALSE,
    V_NULL,
    V_NUMBER,
    V_TEXT,
    V_TRUE,
    Bytes,
    Scan,
    Value,
    as_int32,
    as_int64,
    as_text,
    load16,
    load32,
    scan_string,
    scan_value,
    skip_blanks,
    take,
)


cdef extern from "Python.h":
    object PyObject_Vectorcall(object callee, PyObject **args, size_t count, PyObject *names)
    PyObject *PyDict_GetItem(object table, object key)
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef enum:
    KNOWN_BYTES_MAX = 64

# Field kinds; codec.core translates the plain field tables into these numbers.
TEXT, INT32, INT64, BOOL, LOOSE_BOOL, OTHER = range(6)

cdef object _describe = None
cdef dict _layouts = {}


cdef object _plain_sent_properties = None


def bind(describe, plain_sent_properties):
    """Receive ``describe(header_type) -> (wire names, kinds, required)`` and the plain twin of
    ``read_sent_properties``; called by ``codec.core``.
    """
    global _describe, _plain_sent_properties
    _describe = describe
    _plain_sent_properties = plain_sent_properties


cdef class Layout:
    """The fields of one header class, in constructor order.

    ``names`` are the wire names as bytes; it keeps them alive for the pointers in ``name``.
    """

    def __init__(self, header_type):
        cdef Py_ssize_t i
        names, kinds, required = _describe(header_type)
        assert len(names) <= FIELDS_MAX, header_type
        self.header_type = header_type
        self.names = tuple(names)
        self.count = len(self.names)
        for i in range(self.count):
            self.name[i] = <Bytes>PyBytes_AS_STRING(self.names[i])
            self.size[i] = PyBytes_GET_SIZE(self.names[i])
            self.kind[i] = kinds[i]
            self.required[i] = required[i]
            self.known[i] = NULL


cdef inline bint is_field(Layout layout, Py_ssize_t i, Bytes key, Py_ssize_t size) noexcept:
    return (
        layout.size[i] == size
        and layout.name[i][0] == key[0]
        and (size == 1 or memcmp(layout.name[i], key, size) == 0)
    )


cdef inline Py_ssize_t find(Layout layout, Bytes key, Py_ssize_t size, Py_ssize_t hint) noexcept:
    """Index of a wire name or -1; senders mostly keep the order, so look at ``hint`` first."""
    cdef Py_ssize_t i
    if hint < layout.count and is_field(layout, hint, key, size):
        return hint
    for i in range(layout.count):
        if is_field(layout, i, key, size):
            return i
    return -1


cdef Layout layout_of(object header_type):
    cdef PyObject *found = PyDict_GetItem(_layouts, header_type)
    if found != NULL:
        return <Layout>found
    layout = Layout(header_type)
    _layouts[header_type] = layout
    return layout


def read(command, header_type):
    """See ``codec.core.read``."""
    cdef Scan s
    cdef bint readable = True
    header = command.header
    if type(header) is header_type:
        return header
    header = None
    ext = command.ext
    if type(ext) is bytes:
        s.p = <Bytes>PyBytes_AS_STRING(ext)
        s.end = s.p + PyBytes_GET_SIZE(ext)
        if command.serialization == 1:
            header = read_binary(s.p, s.end, layout_of(header_type))
        else:
            header = read_json(&s, layout_of(header_type), &readable)
    return header_type.from_ext(command.ext_fields) if header is None else header


cdef object build(Layout layout, PyObject **values):
    cdef Py_ssize_t i
    for i in range(layout.count):
        if values[i] == NULL:
            if layout.required[i]:
                return None
            Py_INCREF(None)
            values[i] = <PyObject *>None
    return PyObject_Vectorcall(layout.header_type, values, layout.count, NULL)


cdef void release(Layout layout, PyObject **values) noexcept:
    cdef Py_ssize_t i
    for i in range(layout.count):
        Py_XDECREF(values[i])


cdef inline void keep(PyObject **slot, object value) noexcept:
    Py_INCREF(value)
    Py_XDECREF(slot[0])
    slot[0] = <PyObject *>value


cdef object read_binary(Bytes p, Bytes end, Layout layout):
    """The header in these ext entries, or None when the plain rules must decide (and raise)."""
    cdef PyObject *values[FIELDS_MAX]
    memset(values, 0, layout.count * sizeof(PyObject *))
    try:
        return build(layout, values) if walk_binary(p, end, layout, values) else None
    finally:
        release(layout, values)


cdef bint walk_binary(Bytes p, Bytes end, Layout layout, PyObject **values) except -1:
    cdef int64_t length
    cdef Bytes key
    cdef Py_ssize_t key_bytes, i, hint = 0
    cdef Value value
    value.kind = V_TEXT
    while p < end:
        if end - p < 2:
            return False
        key_bytes = load16(p)
        key = p + 2
        if key_bytes < 0 or end - key < key_bytes + 4:
            return False
        p = key + key_bytes
        length = <int32_t>load32(p)
        p += 4
        if length < 0 or end - p < length:
            return False
        value.begin = p
        p += length
        value.end = p
        i = find(layout, key, key_bytes, hint)
        if i >= 0:
            hint = i + 1
            if not store(layout, i, &value, &values[i]):
                return False
    return True


cdef object read_json(Scan *s, Layout layout, bint *readable):
    """The header in the object at ``s.p``, or None when the plain rules must decide.

    ``s`` is left behind the object; ``readable`` tells whether it is an object of scalars at all.
    """
    cdef PyObject *values[FIELDS_MAX]
    cdef bint usual = True
    memset(values, 0, layout.count * sizeof(PyObject *))
    try:
        readable[0] = walk_json(s, layout, values, &usual)
        return build(layout, values) if readable[0] and usual else None
    finally:
        release(layout, values)


cdef bint walk_json(Scan *s, Layout layout, PyObject **values, bint *usual) except -1:
    cdef Value key, value
    cdef Py_ssize_t i, hint = 0
    if not take(s, 123):
        return False
    if take(s, 125):
        return True
    while True:
        skip_blanks(s)
        if s.p >= s.end or s.p[0] != 34 or not scan_string(s, &key) or not take(s, 58):
            return False
        if not scan_value(s, &value):
            return False
        i = find(layout, key.begin, key.end - key.begin, hint)
        if key.kind == V_ESCAPED_TEXT:
            usual[0] = False
        elif i >= 0:
            hint = i + 1
            if not store(layout, i, &value, &values[i]):
                usual[0] = False
        if take(s, 125):
            return True
        if not take(s, 44):
            return False


cdef bint store(Layout layout, Py_ssize_t i, Value *value, PyObject **slot) except -1:
    """Convert one field; False hands the whole header to the plain rules."""
    cdef int kind = layout.kind[i]
    cdef int64_t number = 0
    if value.kind == V_NULL:
        Py_XDECREF(slot[0])
        slot[0] = NULL
        return True
    if kind == K_TEXT:
        return store_text(layout, i, value, slot)
    if value.begin == value.end:
        return False
    if kind == K_INT32 or kind == K_INT64:
        if value.kind != V_NUMBER and value.kind != V_TEXT:
            return False
        if not (as_int32(value, &number) if kind == K_INT32 else as_int64(value, &number)):
            return False
        keep(slot, number)
        return True
    if kind == K_BOOL or kind == K_LOOSE_BOOL:
        return store_bool(value, kind == K_LOOSE_BOOL, slot)
    return False


cdef bint store_text(Layout layout, Py_ssize_t i, Value *value, PyObject **slot) except -1:
    cdef Py_ssize_t size = value.end - value.begin
    cdef bint is_short = size <= KNOWN_BYTES_MAX and value.kind == V_TEXT
    cdef Py_ssize_t known_size = 0
    cdef const char *known
    # Topic, group and broker name come again and again: the same object saves its making here and
    # its hashing wherever it is looked up.
    if is_short and layout.known[i] != NULL:
        known = PyUnicode_AsUTF8AndSize(<object>layout.known[i], &known_size)
        if known_size == size and memcmp(known, value.begin, size) == 0:
            keep(slot, <object>layout.known[i])
            return True
    try:
        text = as_text(value)
    except UnicodeDecodeError:
        return False
    if is_short:
        keep(&layout.known[i], text)
    keep(slot, text)
    return True


cdef bint store_bool(Value *value, bint loose, PyObject **slot) except -1:
    """``true`` or ``false``, quoted or not; ``1`` too where that is allowed."""
    cdef Py_ssize_t size = value.end - value.begin
    if value.kind == V_TRUE or (size == 4 and memcmp(value.begin, b"true", 4) == 0):
        keep(slot, True)
    elif value.kind == V_FALSE or (size == 5 and memcmp(value.begin, b"false", 5) == 0):
        keep(slot, False)
    elif loose and size == 1 and (value.begin[0] == 48 or value.begin[0] == 49):
        keep(slot, value.begin[0] == 49)
    else:
        return False
    return True


cdef enum:
    # The values of codec.sent_properties.Asks.
    ASKS_DELAY = 1
    ASKS_TIMER = 2
    ASKS_TRANSACTION = 4
    ASKS_NO_WAIT = 8
    ASKS_REWRITE = 16
    ASKS_NOT_TEXT = 32


cdef inline bint is_text(Bytes p, const char *text, Py_ssize_t size) noexcept:
    return memcmp(p, text, size) == 0


cdef int asks_of(Bytes name, Py_ssize_t size) noexcept:
    """What a property of this name asks for, whatever its value."""
    if size == 5 and is_text(name, b"DELAY", 5):
        return ASKS_DELAY
    if size == 6 and is_text(name, b"POP_CK", 6):
        return ASKS_REWRITE
    if size == 7 and is_text(name, b"CLUSTER", 7):
        return ASKS_REWRITE
    if size == 8 and is_text(name, b"TRAN_MSG", 8):
        return ASKS_TRANSACTION
    if size == 8 and is_text(name, b"TRACE_ON", 8):
        return ASKS_REWRITE
    if size == 10 and is_text(name, b"MSG_REGION", 10):
        return ASKS_REWRITE
    if size == 14 and is_text(name, b"TIMER_DELAY_MS", 14):
        return ASKS_TIMER
    if size == 15 and is_text(name, b"TIMER_DELAY_SEC", 15):
        return ASKS_TIMER
    if size == 16 and is_text(name, b"TIMER_DELIVER_MS", 16):
        return ASKS_TIMER
    if size >= 16 and is_text(name, b"__RMQ.TRANSIENT.", 16):
        return ASKS_REWRITE
    return 0


cdef bint says_true(Bytes p, Py_ssize_t size) noexcept:
    return (
        size == 4
        and p[0] | 32 == 116 and p[1] | 32 == 114 and p[2] | 32 == 117 and p[3] | 32 == 101
    )


cdef int scan_sent(Bytes p, Bytes end, Bytes *key, Py_ssize_t *key_size) noexcept:
    """What a property string asks for; ``key`` is its unique key, NULL without one."""
    cdef Bytes stop, mark
    cdef int asks = 0
    key[0] = NULL
    while p < end:
        stop = <Bytes>memchr(p, 2, end - p)
        if stop == NULL:
            stop = end
        mark = <Bytes>memchr(p, 1, stop - p)
        if mark != NULL and mark > p and mark + 1 < stop:
            if mark - p == 8 and is_text(p, b"UNIQ_KEY", 8):
                key[0] = mark + 1
                key_size[0] = stop - mark - 1
            elif mark - p == 4 and is_text(p, b"WAIT", 4):
                if not says_true(mark + 1, stop - mark - 1):
                    asks |= ASKS_NO_WAIT
            else:
                asks |= asks_of(p, mark - p)
        p = stop + 1
    return asks


cdef bytes with_addition(Bytes text, Py_ssize_t size, bytes addition):
    """A property string with more properties behind it, properly separated."""
    cdef Py_ssize_t more = PyBytes_GET_SIZE(addition)
    cdef bint is_open = size > 0 and text[size - 1] != 2
    cdef bytes stored = PyBytes_FromStringAndSize(NULL, size + is_open + more)
    cdef char *out = PyBytes_AS_STRING(stored)
    memcpy(out, text, size)
    if is_open:
        out[size] = 2
    memcpy(out + size + is_open, PyBytes_AS_STRING(addition), more)
    return stored


def read_sent_properties(str text, bytes addition):
    """See ``codec.sent_properties.read``."""
    cdef Py_ssize_t size = 0, key_size = 0
    cdef Bytes begin, key = NULL
    cdef int asks
    try:
        begin = <Bytes>PyUnicode_AsUTF8AndSize(text, &size)
    except UnicodeEncodeError:
        return _plain_sent_properties(text, addition)
    asks = scan_sent(begin, begin + size, &key, &key_size)
    unique_key = None if key == NULL else PyUnicode_DecodeUTF8(<const char *>key, key_size, NULL)
    return asks, unique_key, with_addition(begin, size, addition)
