"""The types of `unit_loops` where Cython compiles it."""

cimport cython

@cython.locals(
    text=cython.p_const_uchar, topic_=cython.p_const_uchar, properties_=cython.p_const_uchar,
    born_host_=cython.p_const_uchar, store_host_=cython.p_const_uchar, topic_size=cython.longlong,
    properties_size=cython.longlong, body_size=cython.longlong, size=cython.longlong, out=cython.p_uchar,
    number=cython.longlong, at=cython.longlong,
)
cpdef pack_common(
    bytes data, long long body_start, long long body_end, bytes topic, bytes properties, long long crc,
    long long queue_id, long long flag, long long queue_offset, long long physical_offset, long long sys_flag,
    long long born, bytes born_host, long long stored_at, bytes store_host, long long times,
)

cdef void _put4(unsigned char *out, long long at, long long value) noexcept
cdef void _put8(unsigned char *out, long long at, long long value) noexcept
