"""The types of `loops` where Cython compiles it."""

cimport cython

cdef long long _HEAD_SIZE, _MAGIC, _SYS_FLAG_AT, _TIME_AT, _V6_EXTRA, _KIND_MASK, _KIND_ROLLBACK
cdef long long _HASH_MAX, _WORD, _SLOTS_AT, _ENTRY_SIZE, _SECONDS_MAX, _ROWS
cdef int _NAME_END, _PAIR_END, _BLANK, _JOINT, _ASCII_END

cdef class _Rows:
    cdef public long long room, count
    cdef public long long[::1] numbers

@cython.locals(rows=_Rows, size=cython.longlong, row=cython.longlong)
cpdef walk(bytes data, long long offset, long long count_max)

@cython.locals(
    bytes_=cython.p_const_uchar, length=cython.longlong, position=cython.longlong, left=cython.longlong,
    flags=cython.longlong, born_extra=cython.longlong, body_at=cython.longlong, end=cython.longlong,
    topic_at=cython.longlong, time_at=cython.longlong, timestamp=cython.longlong,
)
cdef long long _find(bytes data, long long offset, long long count_max, _Rows rows) except -1

@cython.locals(at=cython.longlong)
cdef _append(_Rows rows, long long key_hash_, long long offset, long long timestamp)

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char *data, long long at) noexcept

@cython.locals(
    topic_end=cython.longlong, unique_at=cython.longlong, unique_end=cython.longlong, keys_at=cython.longlong,
    keys_end=cython.longlong, pair_at=cython.longlong, name_end=cython.longlong, pair_end=cython.longlong,
    begun=cython.longlong, word_end=cython.longlong,
)
cdef _add_keys(
    _Rows rows, const unsigned char *data, long long topic_at, long long end, long long offset, long long timestamp
)

cdef long long _hash_on(long long value, const unsigned char *data, long long start, long long end) noexcept

@cython.locals(value=cython.longlong)
cdef long long _hash_of(
    long long begun, const unsigned char *data, long long topic_at, long long topic_end, long long at, long long end
) except -1

@cython.locals(
    table="unsigned char[::1]", count=cython.longlong, at=cython.longlong, fresh=cython.longlong,
    row=cython.longlong, seconds=cython.longlong,
)
cpdef enter(
    data, long long slot_count, long long number, long long begin, hashes, offsets, timestamps
)

@cython.locals(
    rows=_Rows, size=cython.longlong, count=cython.longlong, table="unsigned char[::1]", at=cython.longlong,
    fresh=cython.longlong, row=cython.longlong, seconds=cython.longlong, place=cython.longlong,
)
cpdef enter_found(
    bytes log, long long offset, long long count_max, data, long long slot_count, long long number, long long room,
    long long begin
)

@cython.locals(at=cython.longlong)
cdef long long _place(long long size, long long slot_count, long long number, long long count) except -1

@cython.locals(seconds=cython.longlong)
cdef long long _seconds(long long begin, long long timestamp) noexcept

@cython.locals(slot_at=cython.longlong, previous=cython.longlong)
cdef long long _enter(
    unsigned char[::1] table, long long slot_count, long long at, long long number, long long key_hash_,
    long long offset, long long seconds
) noexcept

cdef void _put(unsigned char[::1] table, long long at, long long value) noexcept
