"""Header compression of HTTP/2 (RFC 7541): a decoder for requests, and what encodes the few headers of responses.

The decoder keeps the table that the peer fills, of at most 4096 bytes. A list of headers that is too large is decoded
to its end, because the table must not miss an entry, but not kept. The encoder has no table: responses are the same few
fields again and again, which are encoded once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from orbitmq.errors import HpackError
from orbitmq.wire.http2.hpack_tables import CODE_LENGTHS, STATIC_FIELDS

if TYPE_CHECKING:
    from mypy_extensions import i64

TABLE_SIZE_MAX: Final = 4096  # bytes; the default of the protocol, which peers use until they hear otherwise
LIST_SIZE_MAX: Final = 16 << 10  # bytes of all fields of a request; gRPC servers take 8 KiB by default
SIZE_UPDATES_MAX: Final = 2  # at the start of a block; the RFC has a use for two
_FIELD_OVERHEAD: Final = 32  # bytes that each field counts more than its texts, as the RFC says
_INTEGER_BYTES_MAX: Final = 5  # enough for 31 bits; nothing here is larger

REGULAR: Final = 0
PSEUDO: Final = 1  # its name begins with a colon
MALFORMED: Final = 2  # HTTP/2 does not allow it, or its value is not one

_NAME_BYTES: Final = b"!#$%&'*+-.^_`|~0123456789abcdefghijklmnopqrstuvwxyz"
_CONNECTION_NAMES: Final = frozenset(
    (b"connection", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade")
)


class Field:
    """A header. `kind` says whether a request may have it; `size` is what it counts."""

    def __init__(self, name: str, value: str, size: int, kind: int) -> None:
        self.name = name
        self.value = value
        self.size = size
        self.kind = kind


def _field(name: bytes, value: bytes) -> Field:
    return Field(
        name.decode("latin-1"), value.decode("latin-1"), len(name) + len(value) + _FIELD_OVERHEAD, _kind(name, value)
    )


def _kind(name: bytes, value: bytes) -> int:
    """A value with spaces around it is let through, as by other servers: some client ids are one."""
    bare = name[1:] if name[:1] == b":" else name
    if not bare or bare.translate(None, _NAME_BYTES) or b"\0" in value or b"\r" in value or b"\n" in value:
        return MALFORMED
    if name in _CONNECTION_NAMES or (name == b"te" and value.lower() != b"trailers"):
        return MALFORMED
    return REGULAR if bare is name else PSEUDO


_STATIC: Final[list[Field]] = [_field(name.encode(), value.encode()) for name, value in STATIC_FIELDS]
_STATIC_COUNT: Final = 61


class HpackDecoder:
    """Decodes the blocks of one connection, in their order."""

    def __init__(self, list_size_max: int = LIST_SIZE_MAX) -> None:
        self._list_size_max = list_size_max
        self._table: list[Field] = []  # the oldest first
        self._table_size = 0  # the sum of their sizes, at most _table_size_max
        self._table_size_max = TABLE_SIZE_MAX
        self._data = b""
        self._at = 0
        self.is_too_large = False
        """Whether the last list was larger than allowed: then only its beginning was returned."""

    def decode(self, block: bytes) -> list[Field]:
        """The fields of a whole block. HpackError if it cannot be decoded: then no later block can be, either."""
        self._data, self._at, self.is_too_large = block, 0, False
        end = len(block)
        self._take_size_updates()
        fields: list[Field] = []
        size = 0
        while self._at < end:
            field = self._next()
            size += field.size
            if size <= self._list_size_max:
                fields.append(field)
            else:
                self.is_too_large = True
        self._data = b""
        return fields

    def _next(self) -> Field:
        first = self._data[self._at]
        if first & 0x80:
            return self._indexed(self._integer(0x7F))
        if first & 0x40:
            field = self._literal(self._integer(0x3F))
            self._insert(field)
            return field
        if first & 0x20:
            raise HpackError("the size of the header table changes within a block")
        return self._literal(self._integer(0x0F))

    def _take_size_updates(self) -> None:
        count = 0
        while self._at < len(self._data) and self._data[self._at] & 0xE0 == 0x20:
            size = self._integer(0x1F)
            count += 1
            if size > TABLE_SIZE_MAX or count > SIZE_UPDATES_MAX:
                raise HpackError(f"a header table of {size} bytes is asked for in update {count} of a block")
            self._table_size_max = size
            self._evict(0)

    def _indexed(self, index: int) -> Field:
        if 0 < index <= _STATIC_COUNT:
            return _STATIC[index - 1]
        place = len(self._table) - (index - _STATIC_COUNT)
        if index == 0 or place < 0:
            raise HpackError(f"header {index} is not in the table")
        return self._table[place]

    def _literal(self, index: int) -> Field:
        name = self._indexed(index).name.encode("latin-1") if index else self._string()
        return _field(name, self._string())

    def _insert(self, field: Field) -> None:
        self._evict(field.size)
        if field.size <= self._table_size_max:
            self._table.append(field)
            self._table_size += field.size

    def _evict(self, room: int) -> None:
        """Drop the oldest fields until `room` bytes are free, or none is left."""
        count = 0
        while self._table_size + room > self._table_size_max and count < len(self._table):
            self._table_size -= self._table[count].size
            count += 1
        if count:
            del self._table[:count]

    def _integer(self, mask: int) -> int:
        """The number whose first bits are in the current byte, where `mask` is."""
        data = self._data
        at = self._at
        value = data[at] & mask
        at += 1
        if value == mask:
            shift = 0
            while True:
                if at >= len(data) or shift >= 7 * _INTEGER_BYTES_MAX:
                    raise HpackError("a number in a header block is cut off or too large")
                byte = data[at]
                at += 1
                value += (byte & 0x7F) << shift
                shift += 7
                if byte < 0x80:
                    break
        self._at = at
        return value

    def _string(self) -> bytes:
        if self._at >= len(self._data):
            raise HpackError("a header block ends within a field")
        is_coded = self._data[self._at] & 0x80 != 0
        size = self._integer(0x7F)
        start = self._at
        if size > len(self._data) - start:
            raise HpackError("a header block ends within a text")
        self._at = start + size
        raw = self._data[start : start + size]
        return decode_huffman(raw) if is_coded else raw


# ------------------------------------------------------------------------------------------------------- Huffman codes
# Decoding walks the tree of codes four bits at a time. A step is one number: the next node, whether the text may end
# there, and the byte that the four bits complete, if they do: no code is shorter than five bits.

_MAY_END: Final = 0x100
_HAS_BYTE: Final = 0x200
_NODE_SHIFT: Final = 10
_INVALID: Final = -1
_END_MARK: Final = 256


def _codes() -> list[tuple[int, int]]:
    """The code of each byte, and of the mark of the end, with the number of its bits."""
    codes = [(0, 0)] * len(CODE_LENGTHS)
    code = length = 0
    for symbol in sorted(range(len(CODE_LENGTHS)), key=lambda one: (CODE_LENGTHS[one], one)):
        code <<= CODE_LENGTHS[symbol] - length
        length = CODE_LENGTHS[symbol]
        codes[symbol] = (code, length)
        code += 1
    return codes


def _tree() -> list[list[int]]:
    """Nodes, the root first: what follows a 0 and a 1, a node's number or the complement of a byte."""
    nodes = [[0, 0]]
    for symbol, (code, length) in enumerate(_codes()):
        at = 0
        for bit in range(length - 1, 0, -1):
            side = code >> bit & 1
            if not nodes[at][side]:
                nodes[at][side] = len(nodes)
                nodes.append([0, 0])
            at = nodes[at][side]
        nodes[at][code & 1] = ~symbol
    return nodes


def _steps() -> list[int]:
    nodes = _tree()
    ends, at = {0}, 0
    for _ in range(7):  # a text is filled up with at most seven ones
        at = nodes[at][1]
        ends.add(at)
    return [_step(nodes, ends, node, nibble) for node in range(len(nodes)) for nibble in range(16)]


def _step(nodes: list[list[int]], ends: set[int], node: int, nibble: int) -> int:
    found = 0
    for bit in (3, 2, 1, 0):
        node = nodes[node][nibble >> bit & 1]
        if node == ~_END_MARK:
            return _INVALID
        if node < 0:
            found, node = _HAS_BYTE | ~node, 0
    return node << _NODE_SHIFT | (_MAY_END if node in ends else 0) | found


_STEPS: Final[list[int]] = _steps()


def decode_huffman(data: bytes) -> bytes:
    """The text of a coded string. HpackError if it has the mark of the end, or is not filled up as it must be."""
    text: list[int] = []  # mypyc has quick lists of small numbers, and no quick bytearray
    node: i64 = 0
    step: i64 = _MAY_END
    steps = _STEPS
    for byte in data:
        step = steps[(node << 4) + (byte >> 4)]
        if step < 0:
            break
        if step & _HAS_BYTE:
            text.append(step & 0xFF)
        node = step >> _NODE_SHIFT
        step = steps[(node << 4) + (byte & 0x0F)]
        if step < 0:
            break
        if step & _HAS_BYTE:
            text.append(step & 0xFF)
        node = step >> _NODE_SHIFT
    if step < 0 or not step & _MAY_END:
        raise HpackError("a text in a header block is not a Huffman code")
    return bytes(text)


# ------------------------------------------------------------------------------------------------------------ encoding

_NAME_INDEXES: Final[dict[str, int]] = {}
for _place, (_name, _) in enumerate(STATIC_FIELDS):
    _NAME_INDEXES.setdefault(_name, _place + 1)
_FIELD_INDEXES: Final[dict[tuple[str, str], int]] = {
    field: place + 1 for place, field in enumerate(STATIC_FIELDS) if field[1]
}


def encode_field(name: str, value: str) -> bytes:
    """A field that no table remembers; `value` is ASCII."""
    if (index := _FIELD_INDEXES.get((name, value))) is not None:
        return encode_integer(index, 0x7F, 0x80)
    index = _NAME_INDEXES.get(name, 0)
    raw = value.encode("latin-1")
    head = encode_integer(index, 0x0F, 0)
    if not index:
        head += encode_integer(len(name), 0x7F, 0) + name.encode("latin-1")
    return head + encode_integer(len(raw), 0x7F, 0) + raw


def encode_integer(value: int, mask: int, bits: int) -> bytes:
    """`value` as the RFC writes it: in the bits of `mask`, next to `bits`, or from there on in further bytes."""
    if value < mask:
        return bytes((bits | value,))
    out = [bits | mask]
    value -= mask
    while value >= 0x80:
        out.append(0x80 | value & 0x7F)
        value >>= 7
    out.append(value)
    return bytes(out)
