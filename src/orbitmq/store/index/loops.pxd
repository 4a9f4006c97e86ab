"""The types of `loops` where Cython compiles it."""

cimport cython

cdef long long _HEAD_SIZE, _MAGIC, _SYS_FLAG_AT, _TIME_AT, _V6_EXTRA, _KIND_MASK, _KIND_ROLLBACK
cdef long long _HASH_MAX, _WORD, _SLOTS_AT, _ENTRY_SIZE, _SECONDS_MAX
cdef int _NAME_END, _PAIR_END, _BLANK, _JOINT, _ASCII_END

@cython.locals(
    bytes_=cython.p_const_uchar, length=cython.longlong, position=cython.longlong, left=cython.longlong,
    flags=cython.longlong, born_extra=cython.longlong, body_at=cython.longlong, end=cython.longlong,
    topic_at=cython.longlong, time_at=cython.longlong, timestamp=cython.longlong,
)
cpdef walk(bytes data, long long offset, long long count_max)

@cython.locals(value=cython.longlong)
cdef long long _int32(const unsigned char *data, long long at) noexcept

@cython.locals(
    topic_end=cython.longlong, unique_at=cython.longlong, unique_end=cython.longlong, keys_at=cython.longlong,
    keys_end=cython.longlong, pair_at=cython.longlong, name_end=cython.longlong, pair_end=cython.longlong,
    begun=cython.longlong, word_end=cython.longlong,
)
cdef _add_keys(
    list hashes, list offsets, list timestamps, const unsigned char *data, long long topic_at, long long end,
    object offset, object timestamp,
)

cdef long long _hash_on(long long value, const unsigned char *data, long long start, long long end) noexcept

@cython.locals(value=cython.longlong)
cdef long long _hash_of(
    long long begun, const unsigned char *data, long long topic_at, long long topic_end, long long at, long long end
) except -1

@cython.locals(
    table="unsigned char[::1]", count=cython.longlong, at=cython.longlong, fresh=cython.longlong,
    row=cython.longlong, key_hash_=cython.longlong, offset=cython.longlong, seconds=cython.longlong,
    slot_at=cython.longlong, previous=cython.longlong,
)
cpdef enter(
    data, long long slot_count, long long number, long long begin, hashes, offsets, timestamps
)

cdef void _put(unsigned char[::1] table, long long at, long long value) noexcept
