"""The types of `unit_loops` where Cython compiles it."""

cimport cython

cdef long long _MAGIC, _MAGIC_LONG_TOPIC, _OVERHEAD
cdef int _NAME_END, _PAIR_END, _NAMES_MAX

@cython.locals(
    bytes_="const unsigned char[::1]", starts="long long[::1]", length=cython.longlong, position=cython.longlong,
    count=cython.longlong, size=cython.longlong, magic=cython.longlong,
)
cpdef walk(data, long long limit, found)

@cython.locals(
    bytes_="const unsigned char[::1]", starts="const long long[::1]", ends="const long long[::1]",
    out_codes="int[::1]", out_rows="long long[::1]", out_at="long long[::1]", out_end="long long[::1]",
    names_at="long long[::1]", names_size="long long[::1]", row_count=cython.longlong, known=cython.longlong,
    count=cython.longlong, row=cython.longlong, at=cython.longlong, end=cython.longlong, seen=cython.longlong,
    code=cython.longlong, name_end=cython.longlong, pair_end=cython.longlong, bit=cython.longlong,
)
cpdef split(data, texts_at, texts_end, codes, rows, values_at, values_end)

@cython.locals(code=cython.longlong)
cdef long long _code(
    const unsigned char[::1] bytes_, long long at, long long size, long long[::1] names_at, long long[::1] names_size,
    long long known, long long guess
) noexcept

@cython.locals(at=cython.longlong)
cdef bint _are_equal(const unsigned char[::1] bytes_, long long one, long long other, long long size) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char[::1] bytes_, long long at) noexcept
