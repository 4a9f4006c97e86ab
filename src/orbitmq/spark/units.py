"""Decodes runs of message units into Arrow arrays, column by column, without Python work for each message.

The layout is that of `orbitmq.message.unit`, the same in pull responses and in commit logs. Header fields are gathered
through a view of the buffer with one record per *byte*, indexed by the positions of the units. Texts and bodies are
taken from an Arrow array whose offsets alternate between the start and the end of each slice, so that its even items
are the slices. Two loops, over units and over properties, are compiled in the platform wheel (`unit_loops`). Knows no
Spark, brokers or files.
"""

from __future__ import annotations

import struct
from contextlib import suppress
from functools import cached_property
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
from numpy.typing import NDArray

from orbitmq.errors import UnitError
from orbitmq.message.checksum import CRC_MASK, crc32
from orbitmq.message.compression import decompress
from orbitmq.message.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from orbitmq.message.hosts import HOST_V4_SIZE, host_text
from orbitmq.message.properties import NAME_END, PAIR_END
from orbitmq.message.unit import MAGIC, MAGIC_LONG_TOPIC, TOPIC_LENGTHS, UNIT_OVERHEAD, V6_EXTRA
from orbitmq.spark import unit_loops

Buffer = bytes | bytearray | memoryview
Positions = NDArray[np.int64]

BUFFER_SIZE_MAX = (1 << 31) - 1  # Arrow's 32-bit offsets reach no further
KEY_CODES_MAX = 62  # distinct property names that fit a bit set of one 64-bit number

SIZE_AND_MAGIC = struct.Struct(">ii")
# The fields up to the first host have fixed places; a host is 8 or 20 bytes, so the later ones move.
FIXED_FIELDS = [
    ("size", ">i4"),
    ("magic", ">i4"),
    ("body_crc", ">i4"),
    ("queue_id", ">i4"),
    ("flag", ">i4"),
    ("queue_offset", ">i8"),
    ("physical_offset", ">i8"),
    ("sys_flag", ">i4"),
    ("born_timestamp", ">i8"),
]
TAIL_FIELDS = [("reconsume_times", ">i4"), ("prepared_transaction_offset", ">i8"), ("body_size", ">i4")]
HOST_V4 = f"V{HOST_V4_SIZE}"
# All of them as they lie between two IPv4 hosts: a gather costs more than the bytes it copies. Every unit is longer.
HEAD = np.dtype([*FIXED_FIELDS, ("", HOST_V4), ("store_timestamp", ">i8"), ("", HOST_V4), *TAIL_FIELDS])
FIXED_NAMES = frozenset(name for name, _ in FIXED_FIELDS)
BORN_HOST_AT = np.dtype(FIXED_FIELDS).itemsize
TAIL = np.dtype(TAIL_FIELDS)
ANY_V6 = BORN_HOST_V6 | STORE_HOST_V6
INT64 = np.dtype(">i8")
INT16 = np.dtype(">i2")
INT8 = np.dtype("i1")
HEXADECIMAL = np.frombuffer("".join(f"{byte:02X}" for byte in range(256)).encode(), np.uint16)  # byte -> its two digits


def unit_positions(buffer: Buffer) -> Positions:
    """The start of each unit in a buffer of units only. UnitError names the first position without a unit."""
    positions, end = unit_run(buffer, len(buffer))
    if end == len(buffer):
        return positions
    if len(buffer) - end < UNIT_OVERHEAD or SIZE_AND_MAGIC.unpack_from(buffer, end)[1] in TOPIC_LENGTHS:
        raise UnitError(f"the unit at {end} is truncated")
    raise UnitError(f"no message unit at {end}")


def unit_run(buffer: Buffer, limit: int) -> tuple[Positions, int]:
    """The starts of consecutive units from the start of a buffer, as long as they are whole and start before `limit`;
    and the end of the last one. Only sizes and magic numbers are checked.
    """
    if unit_loops.IS_COMPILED:
        found = np.empty(len(buffer) // UNIT_OVERHEAD, np.int64)
        count, end = unit_loops.walk(buffer, limit, found)
        return found[:count], end
    unpack = SIZE_AND_MAGIC.unpack_from
    positions: list[int] = []
    append = positions.append
    position = 0
    with suppress(struct.error):  # the last unit continues after the buffer
        while position < limit:
            size, magic = unpack(buffer, position)
            if (magic != MAGIC and magic != MAGIC_LONG_TOPIC) or size < UNIT_OVERHEAD:
                break
            append(position)
            position += size
    if position > len(buffer):
        position = positions.pop()
    return np.array(positions, np.int64), position


def records_at(buffer: Buffer, dtype: np.dtype[Any], at: Positions) -> NDArray[Any]:
    """The values of `dtype` that start at the given bytes, through a view with one record per byte."""
    every_byte = np.ndarray((len(buffer) - dtype.itemsize + 1,), dtype, buffer, strides=(1,))
    return every_byte[at]


class Units:
    """A run of units in one buffer. Fields are numpy arrays, texts and bodies are Arrow arrays, all decoded on demand.

    There is at least one unit. `positions` are their ascending starts, and each unit is completely inside `buffer`.
    Lengths are checked immediately: UnitError names the first unit with inconsistent lengths. The buffer is not copied
    and must not change.
    """

    def __init__(self, buffer: Buffer, positions: Positions) -> None:
        assert len(buffer) <= BUFFER_SIZE_MAX, "cut a longer region into several"
        assert len(positions), "a run has at least one unit"
        self._buffer = buffer
        self._data = pa.py_buffer(buffer)
        self.positions = positions
        self._head = self._records(HEAD, positions)
        self._locate()

    def __len__(self) -> int:
        return len(self.positions)

    def __getitem__(self, wanted: NDArray[np.bool_] | NDArray[np.int64]) -> Units:
        """Those of the units for which `wanted` is true, or with these numbers; there must be one."""
        return Units(self._buffer, self.positions[wanted])

    def _locate(self) -> None:
        """Find the moving fields and check that they end where the unit does."""
        ends = self.positions + self._head["size"]
        sys_flag = self._head["sys_flag"]
        born_size = HOST_V4_SIZE + V6_EXTRA * (sys_flag & BORN_HOST_V6 != 0)
        store_size = HOST_V4_SIZE + V6_EXTRA * (sys_flag & STORE_HOST_V6 != 0)
        self._born_host_at = self.positions + BORN_HOST_AT
        self._store_timestamp_at = self._born_host_at + born_size
        self._store_host_at = self._store_timestamp_at + INT64.itemsize
        tail_at = self._store_host_at + store_size
        self._body_at = tail_at + TAIL.itemsize
        self._require(self._body_at <= ends - 3)
        self._has_moved = bool((sys_flag & ANY_V6).any())
        self._tail = self._records(TAIL, tail_at) if self._has_moved else self._head
        self._body_end = self._body_at + self._tail["body_size"]
        long_topic = self._head["magic"] == MAGIC_LONG_TOPIC
        self._require((self._body_end >= self._body_at) & (self._body_end <= ends - 3 - long_topic))
        topic_size = self._records(INT8, self._body_end)
        if long_topic.any():
            topic_size = np.where(long_topic, self._records(INT16, self._body_end), topic_size)
        self._topic_at = self._body_end + 1 + long_topic
        self._topic_end = self._topic_at + topic_size
        self._require((self._topic_end >= self._topic_at) & (self._topic_end <= ends - INT16.itemsize))
        self._properties_at = self._topic_end + INT16.itemsize
        self._properties_end = self._properties_at + self._records(INT16, self._topic_end)
        self._require(self._properties_end == ends)

    def _records(self, dtype: np.dtype[Any], at: Positions) -> NDArray[Any]:
        return records_at(self._buffer, dtype, at)

    def _require(self, holds: NDArray[np.bool_]) -> None:
        if not holds.all():
            row = int(np.argmin(holds))
            raise UnitError(f"{self._place(row)}, at byte {self.positions[row]}: its lengths disagree")

    def stored(self, row: int) -> bytes:
        """All bytes of one unit."""
        start = int(self.positions[row])
        return bytes(memoryview(self._buffer)[start : start + int(self._head["size"][row])])

    def field(self, name: str) -> NDArray[Any]:
        """One number per unit, in the machine's byte order: a field of HEAD or TAIL, or `store_timestamp`."""
        if name in FIXED_NAMES or not self._has_moved:
            values = self._head[name]
        elif name == "store_timestamp":
            values = self._records(INT64, self._store_timestamp_at)
        else:
            values = self._tail[name]
        return values.astype(values.dtype.newbyteorder("="))

    def topics(self) -> pa.StringArray:
        return as_text(slices(self._data, self._topic_at, self._topic_end))

    def stored_bodies(self) -> pa.BinaryArray:
        """Bodies as stored, compressed where the producer compressed them."""
        return slices(self._data, self._body_at, self._body_end)

    def bodies(self) -> pa.BinaryArray:
        """Bodies as the producers sent them. UnitError when one cannot be decompressed."""
        stored = self.stored_bodies()
        packed = self._head["sys_flag"] & COMPRESSED != 0
        if not packed.any():
            return stored
        rows = np.flatnonzero(packed).tolist()
        unpacked = [self._unpacked(row, stored[row].as_py()) for row in rows]
        if sum(map(len, unpacked)) + stored.nbytes > BUFFER_SIZE_MAX:
            raise UnitError(f"the bodies from {self._place(0)} to {self._place(-1)} unpack to 2 GiB or more")
        return pc.replace_with_mask(stored, pa.array(packed), pa.array(unpacked, pa.binary()))

    def _unpacked(self, row: int, body: bytes) -> bytes:
        try:
            return decompress(body, int(self._head["sys_flag"][row]))
        except UnitError as error:
            raise UnitError(f"{self._place(row)}: {error}") from error

    def _place(self, row: int) -> str:
        head = self._head[row]
        return f"the unit with queue offset {head['queue_offset']} and physical offset {head['physical_offset']}"

    def check_bodies(self) -> None:
        """UnitError names the first unit whose body does not have the stored CRC."""
        slices_ = map(slice, self._body_at.tolist(), self._body_end.tolist())
        sums = np.fromiter(map(crc32, map(memoryview(self._buffer).__getitem__, slices_)), np.uint32, len(self))
        right = (sums & CRC_MASK) == self._head["body_crc"]
        if not right.all():
            raise UnitError(f"{self._place(int(np.argmin(right)))}: the body does not match its CRC")

    @cached_property
    def born_hosts(self) -> pa.StringArray:
        """`ip:port` of the producers."""
        return hosts_as_text(slices(self._data, self._born_host_at, self._store_timestamp_at))

    @cached_property
    def store_hosts(self) -> pa.StringArray:
        """`ip:port` of the brokers."""
        return hosts_as_text(self._store_hosts)

    @property
    def _store_hosts(self) -> pa.BinaryArray:
        return slices(self._data, self._store_host_at, self._body_at - TAIL.itemsize)

    def offset_ids(self) -> pa.StringArray:
        """Offset message ids: store host and physical offset in upper-case hexadecimal."""
        offsets = pa.py_buffer(np.ascontiguousarray(self._head["physical_offset"]))
        fixed = pa.Array.from_buffers(pa.binary(INT64.itemsize), len(self), [None, offsets])
        return as_hexadecimal(pc.binary_join_element_wise(self._store_hosts, fixed.cast(pa.binary()), b""))

    def properties_text(self) -> pa.StringArray:
        """Properties as stored: `name 0x01 value 0x02 ...`."""
        return as_text(slices(self._data, self._properties_at, self._properties_end))

    @cached_property
    def properties(self) -> UnitProperties:
        """The properties of every unit, split."""
        found = _split(self._buffer, self._properties_at, self._properties_end) if unit_loops.IS_COMPILED else None
        if found is None:
            # One byte more in front: the last of the length, whose place serves as a separator before the first pair.
            found = split_texts(slices(self._data, self._properties_at - 1, self._properties_end))
        names, codes, rows, values_at, values_end, data = found
        values = as_text(slices(self._data if data is None else data, values_at, values_end))
        return UnitProperties(len(self), names, codes, rows, values)


class UnitProperties:
    """The properties of `rows` units as flat arrays: of each pair the number of its name, its row, and its value."""

    def __init__(
        self, rows: int, names: list[bytes], codes: NDArray[Any], row_of_pair: NDArray[Any], values: pa.StringArray
    ) -> None:
        self._rows = rows
        self._known = [name.decode("utf-8", "replace") for name in names]
        self._codes = codes
        self._row_of_pair = row_of_pair
        self._values = values

    def column(self, name: str) -> pa.StringArray:
        """The value of one property per unit, null where it is missing."""
        index = np.full(self._rows, -1, np.int32)
        if name in self._known:
            pairs = np.flatnonzero(self._codes == self._known.index(name))
            index[self._row_of_pair[pairs]] = pairs
        return self._values.take(pa.array(index, mask=index < 0))

    def maps(self) -> pa.MapArray:
        """A map of names and values per unit."""
        counts = np.bincount(self._row_of_pair, minlength=self._rows)
        offsets = np.zeros(self._rows + 1, np.int32)
        np.cumsum(counts, out=offsets[1:])
        names = pa.array(self._known, pa.string()).take(pa.array(self._codes))
        return pa.MapArray.from_arrays(pa.array(offsets), names, self._values)


# Names; of each pair the number of its name, its row, start and end of its value; the buffer of the values, or None for
# that of the units. As in `message.properties.decode_properties` the first 0x01 of a pair ends its name, pairs with an
# empty name or value are dropped, and the last of equal names wins.
Split = tuple[list[bytes], NDArray[Any], NDArray[Any], NDArray[Any], NDArray[Any], pa.Buffer | None]


def _split(buffer: Buffer, texts_at: Positions, texts_end: Positions) -> Split | None:
    """The properties by the compiled loop; None where that leaves them to `split_texts`."""
    room = (int((texts_end - texts_at).sum()) >> 2) + len(texts_at)  # a pair and its separator have four bytes or more
    codes = np.empty(room, np.int32)
    rows, values_at, values_end = np.empty((3, room), np.int64)
    found = unit_loops.split(buffer, texts_at, texts_end, codes, rows, values_at, values_end)
    if found is None:
        return None
    count, names = found
    return names, codes[:count], rows[:count], values_at[:count], values_end[:count], None


def split_texts(texts: pa.BinaryArray) -> Split:
    """The properties by column operations. `texts` has one byte to overlook before each text."""
    _, offsets, data = texts.buffers()
    bounds = np.frombuffer(offsets, np.int32, len(texts) + 1)
    names_at, names_end, values_end, rows = _pairs(np.frombuffer(data, np.uint8, int(bounds[-1])), bounds[:-1])
    names = slices(data, names_at, names_end).dictionary_encode()
    codes, known = names.indices.to_numpy(), names.dictionary.to_pylist()
    latest = _latest_of_equal_names(codes, rows, len(known))
    if latest is not None:
        codes, rows, names_end, values_end = codes[latest], rows[latest], names_end[latest], values_end[latest]
    return known, codes, rows, names_end + 1, values_end, data


def _pairs(raw: NDArray[np.uint8], starts: NDArray[np.int32]) -> tuple[NDArray[Any], ...]:
    """Start and end of each name, end of its value, and the row of each pair that has both."""
    separator = raw == ord(PAIR_END)
    separator[starts] = True
    name_end = raw == ord(NAME_END)
    name_end[starts] = False
    separators = np.flatnonzero(separator)
    first_of_row = np.zeros(len(raw), np.bool_)
    first_of_row[starts] = True
    rows = np.cumsum(first_of_row[separators]) - 1
    pairs_at = separators + 1
    pairs_end = np.append(separators[1:], len(raw))
    long_enough = pairs_end - pairs_at >= 3
    if not long_enough.all():
        pairs_at, pairs_end, rows = pairs_at[long_enough], pairs_end[long_enough], rows[long_enough]
    names_end = np.flatnonzero(name_end)
    if len(names_end) == len(pairs_at) and (names_end > pairs_at).all() and (names_end + 1 < pairs_end).all():
        return pairs_at, names_end, pairs_end, rows
    # Some pair has no 0x01, or several: look up the first one of each.
    names_end = np.append(names_end, len(raw))[np.searchsorted(names_end, pairs_at)]
    whole = (names_end > pairs_at) & (names_end + 1 < pairs_end)
    return pairs_at[whole], names_end[whole], pairs_end[whole], rows[whole]


def _latest_of_equal_names(codes: NDArray[Any], rows: NDArray[Any], names: int) -> NDArray[np.int64] | None:
    """The pairs that stay when a row has a name twice, ascending; None when no row has."""
    if not len(codes):
        return None
    if names <= KEY_CODES_MAX:  # a bit per name: in a row without equal names the sum of bits is their union
        bits = np.left_shift(np.int64(1), codes.astype(np.int64))
        first = np.flatnonzero(np.append(True, rows[1:] != rows[:-1]))
        if (np.add.reduceat(bits, first) == np.bitwise_or.reduceat(bits, first)).all():
            return None
    key = rows.astype(np.int64) * names + codes
    _, from_the_end = np.unique(key[::-1], return_index=True)
    return np.sort(len(key) - 1 - from_the_end) if len(from_the_end) < len(key) else None


def slices(data: pa.Buffer, starts: NDArray[Any], ends: NDArray[Any]) -> pa.BinaryArray:
    """`data[start:end]` for each pair; the slices ascend and do not overlap."""
    count = len(starts)
    if not count:
        return pa.array([b""], pa.binary())[:0]  # an array of nothing that still has its buffers
    offsets = np.empty(2 * count, np.int32)
    offsets[0::2] = starts
    offsets[1::2] = ends
    slices_and_gaps = pa.Array.from_buffers(pa.binary(), 2 * count - 1, [None, pa.py_buffer(offsets), data])
    return pc.take(slices_and_gaps, pa.array(np.arange(0, 2 * count, 2, dtype=np.int32)), boundscheck=False)


def as_text(values: pa.BinaryArray) -> pa.StringArray:
    """The bytes as UTF-8; malformed ones become U+FFFD, as Java reads them."""
    try:
        return values.cast(pa.string())
    except pa.ArrowInvalid:
        return pa.array([value.decode("utf-8", "replace") for value in values.to_pylist()], pa.string())


def as_hexadecimal(values: pa.BinaryArray) -> pa.StringArray:
    """Two upper-case digits for each byte. The values are an array of its own, no slice of one."""
    count = len(values)
    _, offsets, data = values.buffers()
    bounds = np.frombuffer(offsets, np.int32, count + 1)
    text = HEXADECIMAL[np.frombuffer(data, np.uint8, int(bounds[-1]))]
    return pa.StringArray.from_buffers(count, pa.py_buffer(2 * bounds), pa.py_buffer(text))


def hosts_as_text(hosts: pa.BinaryArray) -> pa.StringArray:
    """`ip:port` for each host field."""
    return translated(hosts, host_text)


def translated(values: pa.BinaryArray, text_of: Any) -> pa.StringArray:
    """`text_of` applied once to each distinct value; made for columns with few of them."""
    encoded = values.dictionary_encode()
    texts = pa.array([text_of(value) for value in encoded.dictionary.to_pylist()], pa.string())
    return texts.take(encoded.indices)
