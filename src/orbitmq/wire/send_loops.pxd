"""The types of `send_loops` where Cython compiles it."""

cimport cython

cdef long long _CODE, _BATCH_CODE, _RESPONSE, _FIXED_SIZE, _INT_MAX, _DIGITS_MAX, _NEEDED, _TEXTS, _FLAGS, _INVALID, _WORD
cdef int _JSON, _QUOTE, _BACKSLASH, _COMMA, _COLON, _OPEN, _CLOSE, _MINUS, _ZERO, _NINE, _BLANK, _ASCII_END
cdef int _NAME_END, _PAIR_END

cdef class _Fields:
    cdef long long seen, members, code, batch, flag, opaque, version, topic_start, topic_end, queue_id, sys_flag, born
    cdef long long user_flag, times, properties_start, properties_end

@cython.locals(text=cython.p_const_uchar, fields=_Fields)
cpdef read(bytes data, long long start, long long end, int kind)

@cython.locals(
    at=cython.longlong, name_start=cython.longlong, name_end=cython.longlong, member=cython.longlong,
    number_end=cython.longlong, value=cython.longlong,
)
cdef bint _read_json(const unsigned char *text, long long start, long long end, _Fields fields) except -1

@cython.locals(size=cython.longlong, first=cython.int)
cdef long long _member(const unsigned char *text, long long start, long long end) noexcept

@cython.locals(at=cython.longlong)
cdef bint _is(const unsigned char *text, long long start, const unsigned char *name, long long size) noexcept

@cython.locals(at=cython.longlong, letter=cython.int, value_start=cython.longlong, value_end=cython.longlong)
cdef long long _read_ext(const unsigned char *text, long long start, long long end, _Fields fields) except -2

cdef long long _string(const unsigned char *text, long long at, long long end) noexcept
cdef long long _properties_string(const unsigned char *text, long long at, long long end) noexcept

@cython.locals(at=cython.longlong, letter=cython.int, size=cython.longlong)
cdef bint _read_binary(const unsigned char *text, long long start, long long end, _Fields fields) except -1

@cython.locals(at=cython.longlong)
cdef bint _is_ascii(const unsigned char *text, long long start, long long end) noexcept

@cython.locals(bit=cython.int, mask=cython.longlong, value=cython.longlong)
cdef bint _take(const unsigned char *text, int letter, long long start, long long end, _Fields fields) except -1

cdef long long _number_end(const unsigned char *text, long long at, long long end) noexcept

@cython.locals(at=cython.longlong, value=cython.longlong)
cdef long long _number(const unsigned char *text, long long start, long long end) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char *text, long long at) noexcept

@cython.locals(value=cython.longlong)
cdef long long _int16(const unsigned char *text, long long at) noexcept

@cython.locals(
    text=cython.p_const_uchar, extra=cython.p_const_uchar, out=cython.p_uchar, size=cython.longlong,
    kept=cython.longlong, at=cython.longlong, value_start=cython.longlong, value_end=cython.longlong,
    name_end=cython.longlong, pair_end=cython.longlong, length=cython.longlong,
    stop=cython.longlong, number=cython.longlong,
)
cpdef stored(bytes data, long long start, long long end, int kind, bytes more)

cdef bint _decides(const unsigned char *text, long long start, long long size) noexcept

@cython.locals(value=cython.longlong, at=cython.longlong)
cdef _code(bytearray room, const unsigned char *out, long long start, long long end)

@cython.locals(at=cython.longlong)
cdef long long _copied(const unsigned char *text, long long start, long long end, unsigned char *out) noexcept

@cython.locals(at=cython.longlong, size=cython.longlong, value=cython.int)
cdef long long _unescaped(const unsigned char *text, long long start, long long end, unsigned char *out) noexcept

@cython.locals(
    first=cython.p_const_uchar, last=cython.p_const_uchar, host=cython.p_const_uchar, out=cython.p_uchar,
    at=cython.longlong, number=cython.longlong, value_at=cython.longlong,
)
cpdef respond(
    bytes head, bytes tail, int kind, bytes store_host, long long physical_offset, long long queue_id,
    long long queue_offset, long long opaque,
)

cdef int _hex(int value) noexcept

@cython.locals(number=cython.longlong)
cdef long long _literal(unsigned char *out, long long at, const unsigned char *text, long long size) noexcept

@cython.locals(size=cython.longlong, rest=cython.longlong, place=cython.longlong)
cdef long long _digits(unsigned char *out, long long at, long long value) noexcept

cdef void _put4(unsigned char *out, long long at, long long value) noexcept
