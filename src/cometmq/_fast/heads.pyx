# cython: language_level=3, boundscheck=False, wraparound=False
"""Compiled twin of writing a frame's head: prefix, header fields and a typed header's ext fields.

Output is byte for byte that of the plain twin: Java's key order, every ext value a string.
"""

from cpython.bytes cimport PyBytes_AS_STRING, PyBytes_FromStringAndSize, PyBytes_GET_SIZE
from cpython.long cimport PyLong_AsLongLongAndOverflow
from cpython.mem cimport PyMem_Realloc
from cpython.tuple cimport PyTuple_GET_ITEM
from libc.stdint cimport int64_t, uint8_t, uint32_t
from libc.string cimport memcpy

from cometmq._fast.headers cimport K_INT64, K_TEXT, Layout, layout_of
from cometmq._fast.scanner cimport Bytes
from cometmq._fast.words cimport put16 as store16, put32 as store32, put_number as store_number


cdef extern from "Python.h":
    const char *PyUnicode_AsUTF8AndSize(object text, Py_ssize_t *size) except NULL


cdef enum:
    HEADER_MASK = 0xFFFFFF
    FRAME_BYTES_MAX = 16777216

cdef object _astuple = None
cdef object _plain_encode_head = None
cdef int _language = 0
cdef int _version = 0
cdef bytes _language_json = b""
cdef bytes _tail = b""


def bind(astuple, plain_encode_head, int language, str language_name, int version):
    """Receive what lies in the layer above; called once by ``codec.core``."""
    global _astuple, _plain_encode_head, _language, _version, _language_json, _tail
    _astuple = astuple
    _plain_encode_head = plain_encode_head
    _language = language
    _version = version
    _language_json = b',"language":"%b","opaque":' % language_name.encode()
    _tail = b',"serializeTypeCurrentRPC":"JSON","version":%d}' % version


cdef struct Out:
    uint8_t *p
    uint8_t *begin
    uint8_t *limit


cdef uint8_t *_scratch = NULL
cdef Py_ssize_t _scratch_bytes = 0


cdef int grow(Out *out, Py_ssize_t more) except -1:
    """Room for ``more`` bytes. One scratch buffer serves all calls: the GIL is never let go here."""
    global _scratch, _scratch_bytes
    cdef Py_ssize_t used = out.p - out.begin
    cdef Py_ssize_t wanted
    cdef uint8_t *bigger
    if out.limit - out.p >= more:
        return 0
    wanted = max(2 * _scratch_bytes, used + more + 1024)
    bigger = <uint8_t *>PyMem_Realloc(_scratch, wanted)
    if bigger == NULL:
        raise MemoryError
    _scratch = bigger
    _scratch_bytes = wanted
    out.begin = bigger
    out.p = bigger + used
    out.limit = bigger + wanted
    return 0


cdef inline void put(Out *out, const void *data, Py_ssize_t size) noexcept:
    memcpy(out.p, data, size)
    out.p += size


cdef inline void put32(Out *out, uint32_t value) noexcept:
    out.p = store32(out.p, value)


cdef inline void put16(Out *out, uint32_t value) noexcept:
    out.p = store16(out.p, value)


cdef inline void put_number(Out *out, int64_t value) noexcept:
    out.p = store_number(out.p, value)


cdef const char *HEX = "0123456789abcdef"


cdef void put_escaped(Out *out, Bytes text, Py_ssize_t size) noexcept:
    """JSON string content; the caller made room for six bytes a byte."""
    cdef Py_ssize_t i
    cdef uint8_t c
    for i in range(size):
        c = text[i]
        if c >= 32 and c != 34 and c != 92:
            out.p[0] = c
            out.p += 1
            continue
        out.p[0] = 92
        if c == 34 or c == 92:
            out.p[1] = c
        elif c == 10:
            out.p[1] = 110
        elif c == 13:
            out.p[1] = 114
        elif c == 9:
            out.p[1] = 116
        elif c == 8:
            out.p[1] = 98
        elif c == 12:
            out.p[1] = 102
        else:
            memcpy(out.p + 1, b"u00", 3)
            out.p[4] = HEX[c >> 4]
            out.p[5] = HEX[c & 15]
            out.p += 4
        out.p += 2


cdef bint put_value(Out *out, object value, int kind, bint json) except -1:
    """One ext value: quoted and escaped for JSON, after its length for binary.

    False for what the plain code should look at (a number out of range, an enum).
    """
    cdef Py_ssize_t length_at
    grow(out, 64)
    if json:
        out.p[0] = 34
        out.p += 1
    else:
        out.p += 4
    length_at = out.p - out.begin - 4
    if value is True:
        put(out, b"true", 4)
    elif value is False:
        put(out, b"false", 5)
    elif type(value) is str:
        if not put_text(out, value, json):
            return False
    elif type(value) is not int or not put_integer(out, value, kind):
        return False
    if json:
        out.p[0] = 34
        out.p += 1
    else:
        store32(out.begin + length_at, out.p - out.begin - length_at - 4)
    return True


cdef bint put_text(Out *out, str text, bint json) except -1:
    cdef Py_ssize_t size = 0
    cdef const char *utf8
    try:
        utf8 = PyUnicode_AsUTF8AndSize(text, &size)
    except UnicodeEncodeError:
        return False
    grow(out, 6 * size + 64)
    if json:
        put_escaped(out, <Bytes>utf8, size)
    else:
        put(out, utf8, size)
    return True


cdef bint put_integer(Out *out, object value, int kind) except -1:
    cdef int overflow = 0
    cdef int64_t number = PyLong_AsLongLongAndOverflow(value, &overflow)
    if overflow or (kind != K_INT64 and not -2147483648 <= number <= 2147483647):
        return False
    put_number(out, number)
    return True


def encode_head(
    int serialization, int code, int opaque, int flag, remark, header, Py_ssize_t body_bytes
):
    """See ``codec.core.encode_head``."""
    cdef Out out
    cdef Py_ssize_t header_bytes
    cdef bint written
    out.begin = out.p = _scratch
    out.limit = _scratch + _scratch_bytes
    grow(&out, 512)
    out.p += 8
    if serialization == 0:
        written = write_json(&out, code, opaque, flag, remark, header)
    else:
        written = -32768 <= code <= 32767 and write_binary(&out, code, opaque, flag, remark, header)
    header_bytes = out.p - out.begin - 8
    if not written or header_bytes > HEADER_MASK or header_bytes + body_bytes + 8 > FRAME_BYTES_MAX:
        return _plain_encode_head(serialization, code, opaque, flag, remark, header, body_bytes)
    store32(out.begin, 4 + header_bytes + body_bytes)
    store32(out.begin + 4, (<uint32_t>serialization << 24) | header_bytes)
    return PyBytes_FromStringAndSize(<const char *>out.begin, header_bytes + 8)


cdef bint write_json(Out *out, int code, int opaque, int flag, remark, header) except -1:
    put(out, b'{"code":', 8)
    put_number(out, code)
    if header is not None:
        put(out, b',"extFields":{', 14)
        if not write_fields(out, header, True):
            return False
        out.p[0] = 125
        out.p += 1
    put(out, b',"flag":', 8)
    put_number(out, flag)
    put(out, PyBytes_AS_STRING(_language_json), PyBytes_GET_SIZE(_language_json))
    put_number(out, opaque)
    if remark is not None:
        put(out, b',"remark":', 10)
        if not put_value(out, remark, K_TEXT, True):
            return False
    grow(out, 128)
    put(out, PyBytes_AS_STRING(_tail), PyBytes_GET_SIZE(_tail))
    return True


cdef bint write_binary(Out *out, int code, int opaque, int flag, remark, header) except -1:
    cdef Py_ssize_t ext_at
    put16(out, code)
    out.p[0] = _language
    out.p += 1
    put16(out, _version)
    put32(out, opaque)
    put32(out, flag)
    if remark:
        if not put_value(out, remark, K_TEXT, False):
            return False
    else:
        put32(out, 0)
    grow(out, 64)
    ext_at = out.p - out.begin
    out.p += 4
    if header is not None and not write_fields(out, header, False):
        return False
    store32(out.begin + ext_at, out.p - out.begin - ext_at - 4)
    return True


cdef bint write_fields(Out *out, header, bint json) except -1:
    """The ext fields that have a value, in field order; leaves room for what follows them."""
    cdef Layout layout = layout_of(type(header))
    cdef tuple values = _astuple(header)
    cdef Py_ssize_t i
    cdef bint first = True
    for i in range(layout.count):
        value = <object>PyTuple_GET_ITEM(values, i)
        if value is None:
            if layout.required[i]:
                return False
            continue
        grow(out, layout.size[i] + 64)
        if json:
            if first:
                first = False
            else:
                out.p[0] = 44
                out.p += 1
            out.p[0] = 34
            out.p += 1
            put(out, layout.name[i], layout.size[i])
            put(out, b'":', 2)
        else:
            put16(out, layout.size[i])
            put(out, layout.name[i], layout.size[i])
        if not put_value(out, value, layout.kind[i], json):
            return False
    grow(out, 256)
    return True
