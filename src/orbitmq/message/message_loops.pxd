"""The types of `message_loops` where Cython compiles it."""

cimport cython

cdef long long _HEAD_SIZE, _OVERHEAD, _MAGIC, _UNCOMMON
cdef int _NAME_END, _PAIR_END

@cython.locals(
    text=cython.p_const_uchar, length=cython.longlong, position=cython.longlong, last=cython.longlong,
    topic_at=cython.longlong, topic_size=cython.longlong, size=cython.longlong, body_end=cython.longlong,
    physical_offset=cython.longlong,
)
cpdef read_messages(bytes data, str broker_name)

@cython.locals(
    size=cython.longlong, body_size=cython.longlong, topic_size=cython.longlong, properties_at=cython.longlong,
    properties_size=cython.longlong,
)
cdef long long _common_size(const unsigned char *text, long long position, long long length) noexcept

@cython.locals(name_end=cython.longlong, pair_end=cython.longlong)
cdef dict _properties(bytes data, const unsigned char *text, long long at, long long end)

@cython.locals(out=cython.p_uchar, number=cython.longlong)
cdef _offset_id(const unsigned char *text, long long host_at, long long physical_offset)

cdef int _digit(long long value) noexcept

@cython.locals(at=cython.longlong)
cdef bint _are_equal(const unsigned char *text, long long one, long long other, long long size) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char *text, long long at) noexcept

cdef long long _int64(const unsigned char *text, long long at) noexcept
