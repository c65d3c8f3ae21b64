# cython: language_level=3
"""What is known about header classes and how their fields are read, for the other modules."""

from cpython.object cimport PyObject

from cometmq._fast.scanner cimport Bytes, Scan

cdef enum:
    FIELDS_MAX = 48

cdef enum:
    K_TEXT, K_INT32, K_INT64, K_BOOL, K_LOOSE_BOOL, K_OTHER


cdef class Layout:
    cdef object header_type
    cdef tuple names
    cdef Bytes name[FIELDS_MAX]
    cdef Py_ssize_t size[FIELDS_MAX]
    cdef int kind[FIELDS_MAX]
    cdef bint required[FIELDS_MAX]
    cdef PyObject *known[FIELDS_MAX]
    cdef Py_ssize_t count


cdef Layout layout_of(object header_type)
cdef object read_json(Scan *s, Layout layout, bint *readable)
cdef object read_binary(Bytes p, Bytes end, Layout layout)
cdef int scan_sent(Bytes p, Bytes end, Bytes *key, Py_ssize_t *key_size) noexcept
cdef bytes with_addition(Bytes text, Py_ssize_t size, bytes addition)
