"""The types of `batch_loops` where Cython compiles it."""

cimport cython

cdef long long _ENTRY_SIZE, _ITEM_HEAD, _ITEM_FLAG, _ITEM_BODY_SIZE, _TEXT_LENGTH, _TEXT_SIZE_MAX
cdef long long _UNIT_CRC, _UNIT_FLAG, _UNIT_QUEUE_OFFSET, _UNIT_PLACE, _BODY_LENGTH, _CRC_MASK, _COPIED_MAX, _WORD
cdef int _NAME_END, _PAIR_END, _ASCII_END, _T, _A, _G, _S

cdef class _Count:
    cdef public long long items

@cython.locals(
    bytes_=cython.p_const_uchar, unit=cython.p_const_uchar, more=cython.p_const_uchar, out_=cython.p_uchar,
    length=cython.longlong, overhead=cython.longlong, more_size=cython.longlong, offset=cython.longlong,
    start=cython.longlong, position=cython.longlong, at=cython.longlong, bodies_size=cython.longlong,
    body_at=cython.longlong, body_size=cython.longlong, text_at=cython.longlong, text_end=cython.longlong,
    crc=cython.longlong, end=cython.longlong, text_start=cython.longlong, entry=cython.p_uchar,
    entry_at=cython.longlong, count=_Count,
)
cpdef pack(
    bytes items, bytes empty_unit, bytes common, long long head_size, long long queue_offset, long long physical_offset,
    long long size_max,
)

@cython.locals(
    position=cython.longlong, total=cython.longlong, end=cython.longlong, body_size=cython.longlong,
    text_at=cython.longlong, text_size=cython.longlong,
)
cdef long long _measure(
    const unsigned char *data, long long length, long long overhead, long long more_size, long long size_max,
    _Count count
) except -1

@cython.locals(
    value_at=cython.longlong, value_end=cython.longlong, name_end=cython.longlong, pair_end=cython.longlong,
    value=cython.longlong,
)
cdef long long _code_of(const unsigned char *data, long long at, long long end) except? -1

cdef bint _is_tags(const unsigned char *data, long long at) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char *data, long long at) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int16(const unsigned char *data, long long at) noexcept

@cython.locals(count=cython.longlong, number=cython.longlong)
cdef long long _copy(
    unsigned char *out, long long at, const unsigned char *data, long long start, long long end
) noexcept

cdef void _put2(unsigned char *out, long long at, long long value) noexcept
cdef void _put4(unsigned char *out, long long at, long long value) noexcept
cdef void _put8(unsigned char *out, long long at, long long value) noexcept
