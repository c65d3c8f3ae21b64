# cython: language_level=3
"""What the compiled wire modules share: big-endian loads and a scanner for flat JSON objects.

The scanner accepts strings, integers and literals as strict JSON writes them. For anything else it
returns False and the caller lets the plain reader decide.
"""

from cpython.mem cimport PyMem_Free, PyMem_Malloc
from cpython.unicode cimport PyUnicode_DecodeUTF8
from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcmp

ctypedef const uint8_t *Bytes


cdef extern from *:
    """
    /* 1 for bytes that stand for themselves inside a JSON string: no quote, no backslash, no control
       character, and (so that UTF-8 can be checked) nothing above 0x7F. */
    static const unsigned char cometmq_plain[256] = {
        0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0, 0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,0,
        1,1,0,1,1,1,1,1,1,1,1,1,1,1,1,1, 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,
        1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1, 1,1,1,1,1,1,1,1,1,1,1,1,0,1,1,1,
        1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1, 1,1,1,1,1,1,1,1,1,1,1,1,1,1,1,1
    };
    """
    const unsigned char cometmq_plain[256]


# What a scanned value is.
cdef enum:
    V_NULL, V_TRUE, V_FALSE, V_NUMBER, V_TEXT, V_ESCAPED_TEXT


cdef inline uint32_t load32(Bytes p) noexcept:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline int32_t load16(Bytes p) noexcept:
    return <int32_t><short>((<uint32_t>p[0] << 8) | p[1])


cdef struct Scan:
    Bytes p
    Bytes end
    bint high       # a byte above 0x7F was seen: the whole header must be checked as UTF-8


cdef struct Value:
    int kind
    Bytes begin     # without the quotes
    Bytes end


cdef inline void skip_blanks(Scan *s) noexcept:
    while s.p < s.end and (s.p[0] == 32 or s.p[0] == 10 or s.p[0] == 13 or s.p[0] == 9):
        s.p += 1


cdef inline bint take(Scan *s, uint8_t char) noexcept:
    skip_blanks(s)
    if s.p < s.end and s.p[0] == char:
        s.p += 1
        return True
    return False


cdef inline bint is_hex(uint8_t c) noexcept:
    return 48 <= c <= 57 or 97 <= (c | 32) <= 102


cdef inline bint scan_string(Scan *s, Value *out) noexcept:
    """A string whose opening quote is at ``s.p``."""
    cdef Bytes p = s.p + 1
    cdef Bytes end = s.end
    out.kind = V_TEXT
    out.begin = p
    while True:
        while p < end and cometmq_plain[p[0]]:
            p += 1
        if p >= end or p[0] < 32:
            return False
        if p[0] == 34:
            out.end = p
            s.p = p + 1
            return True
        if p[0] == 92:
            out.kind = V_ESCAPED_TEXT
            s.p = p
            if not skip_escape(s):
                return False
            p = s.p
        else:
            s.high = True
            p += 1


cdef inline bint skip_escape(Scan *s) noexcept:
    """An escape at ``s.p``; surrogates, whole pairs or halves, are left to the plain reader."""
    cdef uint8_t c
    if s.end - s.p < 2:
        return False
    c = s.p[1]
    if c == 117:
        if s.end - s.p < 6 or not (
            is_hex(s.p[2]) and is_hex(s.p[3]) and is_hex(s.p[4]) and is_hex(s.p[5])
        ):
            return False
        if (s.p[2] | 32) == 100 and s.p[3] >= 56:
            return False
        s.p += 6
        return True
    if c == 34 or c == 92 or c == 47 or c == 98 or c == 102 or c == 110 or c == 114 or c == 116:
        s.p += 2
        return True
    return False


cdef inline bint word_at(Scan *s, const char *word, Py_ssize_t size) noexcept:
    if s.end - s.p >= size and memcmp(s.p, word, size) == 0:
        s.p += size
        return True
    return False


cdef inline bint scan_value(Scan *s, Value *out) noexcept:
    """A string, an integer or a literal; anything else is left to the plain reader."""
    cdef uint8_t c
    skip_blanks(s)
    if s.p >= s.end:
        return False
    c = s.p[0]
    if c == 34:
        return scan_string(s, out)
    out.begin = s.p
    if c == 45 or 48 <= c <= 57:
        return scan_integer(s, out)
    out.kind = V_TRUE if c == 116 else V_FALSE if c == 102 else V_NULL
    if word_at(s, "true", 4) or word_at(s, "false", 5) or word_at(s, "null", 4):
        out.end = s.p
        return True
    return False


cdef inline bint scan_integer(Scan *s, Value *out) noexcept:
    out.kind = V_NUMBER
    if s.p[0] == 45:
        s.p += 1
    if s.p >= s.end or not 48 <= s.p[0] <= 57:
        return False
    if s.p[0] == 48 and s.p + 1 < s.end and 48 <= s.p[1] <= 57:
        return False
    while s.p < s.end and 48 <= s.p[0] <= 57:
        s.p += 1
    out.end = s.p
    return s.p < s.end and s.p[0] != 46 and (s.p[0] | 32) != 101


cdef inline bint skip_object(Scan *s, Value *out) noexcept:
    """A flat object of scalars; ``out`` spans it with its braces."""
    cdef Value ignored
    out.kind = V_NULL
    skip_blanks(s)
    out.begin = s.p
    if word_at(s, "null", 4):
        out.end = out.begin
        return True
    if not take(s, 123):
        return False
    if not take(s, 125):
        while True:
            skip_blanks(s)
            if s.p >= s.end or s.p[0] != 34 or not scan_string(s, &ignored):
                return False
            if not take(s, 58) or not scan_value(s, &ignored):
                return False
            if take(s, 125):
                break
            if not take(s, 44):
                return False
    out.end = s.p
    return True


cdef inline bint as_int64(Value *value, int64_t *out) noexcept:
    """Decimal text within 64 bits."""
    cdef Bytes p = value.begin
    cdef bint negative = False
    cdef uint64_t total = 0
    cdef uint32_t digit
    if p < value.end and p[0] == 45:
        negative = True
        p += 1
    if p >= value.end or value.end - p > 19:
        return False
    while p < value.end:
        digit = <uint32_t>p[0] - 48
        if digit > 9:
            return False
        total = total * 10 + digit
        p += 1
    if total > <uint64_t>0x7FFFFFFFFFFFFFFF:
        return False
    out[0] = -<int64_t>total if negative else <int64_t>total
    return True


cdef inline bint as_int32(Value *value, int64_t *out) noexcept:
    return as_int64(value, out) and -2147483648 <= out[0] <= 2147483647


cdef inline bint is_key(Value *key, const char *name, Py_ssize_t size) noexcept:
    return key.end - key.begin == size and memcmp(key.begin, name, size) == 0


cdef inline object as_text(Value *value):
    """The text of a scalar that was scanned; raises UnicodeDecodeError like any reader."""
    cdef Py_ssize_t size = value.end - value.begin
    cdef char *buffer
    if value.kind != V_ESCAPED_TEXT:
        return PyUnicode_DecodeUTF8(<const char *>value.begin, size, NULL)
    buffer = <char *>PyMem_Malloc(size)
    if buffer == NULL:
        raise MemoryError
    try:
        return PyUnicode_DecodeUTF8(
            buffer, unescape(value.begin, value.end, <uint8_t *>buffer), NULL
        )
    finally:
        PyMem_Free(buffer)


cdef inline uint32_t hex4(Bytes p) noexcept:
    cdef uint32_t total = 0
    cdef int i
    cdef uint8_t c
    for i in range(4):
        c = p[i]
        total = total * 16 + (c - 48 if c <= 57 else (c | 32) - 87)
    return total


cdef inline Py_ssize_t unescape(Bytes p, Bytes end, uint8_t *out) noexcept:
    """Write the UTF-8 of a scanned string and return its length; never longer than its source."""
    cdef uint8_t *begin = out
    while p < end:
        if p[0] != 92:
            out[0] = p[0]
            out += 1
            p += 1
        elif p[1] == 117:
            out += put_utf8(out, hex4(p + 2))
            p += 6
        else:
            out[0] = plain_escape(p[1])
            out += 1
            p += 2
    return out - begin


cdef inline uint8_t plain_escape(uint8_t c) noexcept:
    if c == 110:
        return 10
    if c == 116:
        return 9
    if c == 114:
        return 13
    if c == 98:
        return 8
    if c == 102:
        return 12
    return c


cdef inline int put_utf8(uint8_t *out, uint32_t unit) noexcept:
    if unit < 0x80:
        out[0] = unit
        return 1
    if unit < 0x800:
        out[0] = 0xC0 | (unit >> 6)
        out[1] = 0x80 | (unit & 63)
        return 2
    out[0] = 0xE0 | (unit >> 12)
    out[1] = 0x80 | ((unit >> 6) & 63)
    out[2] = 0x80 | (unit & 63)
    return 3
