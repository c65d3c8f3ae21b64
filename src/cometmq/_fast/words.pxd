# cython: language_level=3
"""Big-endian words in memory, checksums and Java's string hash, for the compiled modules."""

from libc.stdint cimport int32_t, int64_t, uint8_t, uint32_t, uint64_t
from libc.string cimport memcpy


cdef extern from "crc32.h":
    void cometmq_crc_prepare() nogil
    uint32_t cometmq_crc32(const uint8_t *data, size_t size) nogil


cdef inline uint8_t *put16(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = (value >> 8) & 255
    p[1] = value & 255
    return p + 2


cdef inline uint8_t *put32(uint8_t *p, uint32_t value) noexcept nogil:
    p[0] = value >> 24
    p[1] = (value >> 16) & 255
    p[2] = (value >> 8) & 255
    p[3] = value & 255
    return p + 4


cdef inline uint8_t *put64(uint8_t *p, uint64_t value) noexcept nogil:
    return put32(put32(p, <uint32_t>(value >> 32)), <uint32_t>value)


cdef inline uint8_t *put_number(uint8_t *p, int64_t value) noexcept nogil:
    """As decimal digits."""
    cdef uint8_t digits[20]
    cdef int n = 0
    cdef uint64_t rest = <uint64_t>value
    if value < 0:
        p[0] = 45
        p += 1
        rest = 0 - rest
    while True:
        digits[n] = 48 + rest % 10
        n += 1
        rest //= 10
        if rest == 0:
            break
    while n:
        n -= 1
        p[0] = digits[n]
        p += 1
    return p


cdef inline uint8_t *put_bytes(uint8_t *p, const void *data, Py_ssize_t size) noexcept nogil:
    memcpy(p, data, size)
    return p + size


cdef inline int32_t load16(const uint8_t *p) noexcept nogil:
    cdef int32_t value = (<int32_t>p[0] << 8) | p[1]
    return value - 65536 if value >= 32768 else value


cdef inline uint32_t load32(const uint8_t *p) noexcept nogil:
    return (<uint32_t>p[0] << 24) | (<uint32_t>p[1] << 16) | (<uint32_t>p[2] << 8) | p[3]


cdef inline uint64_t load64(const uint8_t *p) noexcept nogil:
    return (<uint64_t>load32(p) << 32) | load32(p + 4)


cdef inline bint is_ascii(const uint8_t *p, Py_ssize_t size) noexcept nogil:
    cdef Py_ssize_t i
    cdef uint8_t seen = 0
    for i in range(size):
        seen |= p[i]
    return seen < 128


cdef inline uint32_t hash_more(uint32_t value, const uint8_t *p, Py_ssize_t size) noexcept nogil:
    """Go on with Java's string hash over ASCII characters."""
    cdef Py_ssize_t i
    for i in range(size):
        value = 31 * value + p[i]
    return value


cdef inline int64_t index_hash(uint32_t value) noexcept nogil:
    """What the key index makes of a string hash: never negative."""
    if value == <uint32_t>0x80000000:
        return 0
    return <int64_t>value if value < <uint32_t>0x80000000 else <int64_t>(<uint32_t>(-value))
