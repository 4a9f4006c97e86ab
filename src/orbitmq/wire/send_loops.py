# cython: wraparound=False, boundscheck=False, annotation_typing=False
"""The common send read in place: its header without an object for each field, its properties as they are stored, and
its response. Pure.

In the compiled form Cython makes machine code of it, with the types of the `.pxd` next to this file. Everything that is
not common (escapes, unknown members, other characters than ASCII in names, invalid values) is None: the readable codec
decodes it, and refuses it if need be. A property test compares the two.
"""

from __future__ import annotations

from typing import Final

from orbitmq.message.java_hash import tags_code

IS_COMPILED: Final = not __file__.endswith(".py")

JSON: Final = 0
BINARY: Final = 1

# Constants of this module, inlined where it is compiled.
_JSON = 0
_CODE = 310
_BATCH_CODE = 320
_RESPONSE = 1
_FIXED_SIZE = 17
_QUOTE = 34
_BACKSLASH = 92
_COMMA = 44
_COLON = 58
_OPEN = 123
_CLOSE = 125
_MINUS = 45
_ZERO = 48
_NINE = 57
_BLANK = 32
_ASCII_END = 128
_NAME_END = 1
_PAIR_END = 2
_WORD = 0xFFFFFFFF
_INT_MAX = 0x7FFFFFFF
_DIGITS_MAX = 18
_NEEDED = 0xFF  # of the fields a to h
_TEXTS = 0b10000000000111  # the fields a, b, c and n
_FLAGS = 0b1010000000000  # k and m
_INVALID = -(1 << 62)


SendFields = tuple[int, int, int, str, int, int, int, int, int, int, int, int]
"""Opaque, flag and version of the command; topic, queue id, system flag, born timestamp, flag and reconsume times of
the message; where its properties begin and end; the code of the command.
"""


def read(data: bytes, start: int, end: int, kind: int) -> SendFields | None:
    """The header of a SEND_MESSAGE_V2 of one message, or of a SEND_BATCH_MESSAGE, from `start` to `end` of `data`."""
    text = data
    fields = _Fields()
    if kind == _JSON:
        if not _read_json(text, start, end, fields):
            return None
    elif not _read_binary(text, start, end, fields):
        return None
    if fields.seen & _NEEDED != _NEEDED or fields.flag & _RESPONSE:
        return None
    if fields.code != (_BATCH_CODE if fields.batch else _CODE):
        return None
    topic = data[fields.topic_start : fields.topic_end].decode("ascii")
    return (
        fields.opaque, fields.flag, fields.version, topic, fields.queue_id, fields.sys_flag, fields.born,
        fields.user_flag, fields.times, fields.properties_start, fields.properties_end, fields.code,
    )  # fmt: skip


class _Fields:
    """What was read so far; `seen` has a bit for each field a to n, `members` one for each member of the command."""

    def __init__(self) -> None:
        self.seen = 0
        self.members = 0
        self.code = 0
        self.batch = 0
        self.flag = 0
        self.opaque = 0
        self.version = 0
        self.topic_start = 0
        self.topic_end = 0
        self.queue_id = 0
        self.sys_flag = 0
        self.born = 0
        self.user_flag = 0
        self.times = 0
        self.properties_start = 0
        self.properties_end = 0


def _read_json(text: bytes, start: int, end: int, fields: _Fields) -> bool:
    at = start
    if at >= end or text[at] != _OPEN:
        return False
    at += 1
    while True:
        name_start = at + 1
        name_end = _string(text, at, end)
        if name_end < 0:
            return False
        at = name_end + 1
        if at >= end or text[at] != _COLON:
            return False
        at += 1
        member = _member(text, name_start, name_end)
        if member == 0 or fields.members & member:
            return False
        fields.members |= member
        if member == 2:
            at = _read_ext(text, at, end, fields)
            if at < 0:
                return False
        elif member == 8 or member == 32:
            at = _string(text, at, end)
            if at < 0:
                return False
            at += 1
        else:
            number_end = _number_end(text, at, end)
            value = _number(text, at, number_end)
            if value > _INT_MAX or value < -_INT_MAX - 1:
                return False
            if member == 1:
                if value != _CODE and value != _BATCH_CODE:
                    return False
                fields.code = value
            elif member == 4:
                fields.flag = value
            elif member == 16:
                fields.opaque = value
            else:
                fields.version = value
            at = number_end
        if at >= end:
            return False
        if text[at] == _CLOSE:
            # Without an opaque the command gets a number of its own.
            return at + 1 == end and fields.members & 16 != 0
        if text[at] != _COMMA:
            return False
        at += 1


def _member(text: bytes, start: int, end: int) -> int:
    """A bit for the name of a member; 0 for others."""
    size = end - start
    first = text[start] if size > 0 else 0
    if size == 4 and first == 99:  # code
        return 1 if _is(text, start, b"code", 4) else 0
    if size == 9 and first == 101:
        return 2 if _is(text, start, b"extFields", 9) else 0
    if size == 4 and first == 102:
        return 4 if _is(text, start, b"flag", 4) else 0
    if size == 8 and first == 108:
        return 8 if _is(text, start, b"language", 8) else 0
    if size == 6 and first == 111:
        return 16 if _is(text, start, b"opaque", 6) else 0
    if size == 23 and first == 115:
        return 32 if _is(text, start, b"serializeTypeCurrentRPC", 23) else 0
    if size == 7 and first == 118:
        return 64 if _is(text, start, b"version", 7) else 0
    return 0


def _is(text: bytes | bytearray, start: int, name: bytes, size: int) -> bool:
    at = 0
    while at < size and text[start + at] == name[at]:
        at += 1
    return at == size


def _read_ext(text: bytes, start: int, end: int, fields: _Fields) -> int:
    """Behind the object of the fields; -1 for one that is not common."""
    at = start
    if at >= end or text[at] != _OPEN:
        return -1
    at += 1
    while True:
        # Quote, letter, quote, colon, quote
        if at + 5 > end or text[at] != _QUOTE or text[at + 2] != _QUOTE or text[at + 3] != _COLON:
            return -1
        letter = text[at + 1]
        at += 4
        value_start = at + 1
        value_end = _properties_string(text, at, end) if letter == 105 else _string(text, at, end)
        if value_end < 0 or not _take(text, letter, value_start, value_end, fields):
            return -1
        at = value_end + 1
        if at >= end:
            return -1
        if text[at] == _CLOSE:
            return at + 1
        if text[at] != _COMMA:
            return -1
        at += 1


def _string(text: bytes, at: int, end: int) -> int:
    """Where the string that begins at `at` has its closing quote; -1 unless it is plain ASCII."""
    if at >= end or text[at] != _QUOTE:
        return -1
    at += 1
    while at < end and text[at] != _QUOTE:
        if text[at] == _BACKSLASH or text[at] < _BLANK or text[at] >= _ASCII_END:
            return -1
        at += 1
    return at if at < end else -1


def _properties_string(text: bytes, at: int, end: int) -> int:
    """The same for a string with escapes, and with text beyond ASCII."""
    if at >= end or text[at] != _QUOTE:
        return -1
    at += 1
    while at < end and text[at] != _QUOTE:
        if text[at] < _BLANK:
            return -1
        at += 2 if text[at] == _BACKSLASH else 1
    return at if at < end else -1


def _read_binary(text: bytes, start: int, end: int, fields: _Fields) -> bool:
    """code i16, language u8, version i16, opaque i32, flag i32, remark length i32, then the fields with their size."""
    if end - start < _FIXED_SIZE + 4:
        return False
    fields.code = _int16(text, start)
    if fields.code != _CODE and fields.code != _BATCH_CODE:
        return False
    fields.version = _int16(text, start + 3)
    fields.opaque = _int32(text, start + 5)
    fields.flag = _int32(text, start + 9)
    at = start + _FIXED_SIZE + 4
    if _int32(text, start + 13) != 0 or _int32(text, start + _FIXED_SIZE) != end - at:
        return False
    while at < end:
        if end - at < 7 or _int16(text, at) != 1:
            return False
        letter = text[at + 2]
        size = _int32(text, at + 3)
        at += 7
        if size < 0 or size > end - at:
            return False
        if size == 0:  # as if it was not there
            continue
        if letter != 105 and not _is_ascii(text, at, at + size):
            return False
        if not _take(text, letter, at, at + size, fields):
            return False
        at += size
    return True


def _is_ascii(text: bytes | bytearray, start: int, end: int) -> bool:
    at = start
    while at < end and text[at] < _ASCII_END:
        at += 1
    return at == end


def _take(text: bytes, letter: int, start: int, end: int, fields: _Fields) -> bool:
    """Note a field of the message; False for one that is not common, or comes twice."""
    bit = letter - 97
    if bit < 0 or bit > 13:
        return False
    mask = 1 << bit
    if fields.seen & mask:
        return False
    fields.seen |= mask
    if letter == 105:  # i: properties
        fields.properties_start = start
        fields.properties_end = end
        return True
    if mask & _TEXTS:
        if letter == 98:  # b: topic
            fields.topic_start = start
            fields.topic_end = end
        return end > start
    if mask & _FLAGS:  # k and m: a unit makes no difference to a topic that exists
        if end - start == 5 and _is(text, start, b"false", 5):
            return True
        if letter == 109:
            fields.batch = 1
        return end - start == 4 and _is(text, start, b"true", 4)
    if _number_end(text, start, end) != end:
        return False
    value = _number(text, start, end)
    if value == _INVALID or (letter != 103 and (value > _INT_MAX or value < -_INT_MAX - 1)):
        return False
    if letter == 101:  # e
        fields.queue_id = value
    elif letter == 102:  # f
        fields.sys_flag = value
    elif letter == 103:  # g
        fields.born = value
    elif letter == 104:  # h
        fields.user_flag = value
    elif letter == 106:  # j
        fields.times = value
    return True


def _number_end(text: bytes, at: int, end: int) -> int:
    if at < end and text[at] == _MINUS:
        at += 1
    while at < end and _ZERO <= text[at] <= _NINE:
        at += 1
    return at


def _number(text: bytes, start: int, end: int) -> int:
    """A whole number as Java writes it; _INVALID for anything else, and for one that is very long."""
    at = start
    if at < end and text[at] == _MINUS:
        at += 1
    if at >= end or end - at > _DIGITS_MAX or (text[at] == _ZERO and (end - at > 1 or at > start)):
        return _INVALID
    value = 0
    while at < end:
        value = value * 10 + (text[at] - _ZERO)
        at += 1
    return -value if text[start] == _MINUS else value


def _int32(text: bytes, at: int) -> int:
    value = text[at]
    value = value << 24 | text[at + 1] << 16 | text[at + 2] << 8 | text[at + 3]
    return value - ((value >> 31) << 32)


def _int16(text: bytes, at: int) -> int:
    value = text[at]
    value = value << 8 | text[at + 1]
    return value - ((value >> 15) << 16)


def stored(data: bytes, start: int, end: int, kind: int, more: bytes) -> tuple[bytes, int] | None:
    """The properties as they are stored, and the hash of the tags: without the pair WAIT, with the pair `more` at the
    end. None if there is a pair that decides about the message (DELAY, TRAN_MSG, a time, further queues), or one
    that is not common.
    """
    text = data
    extra = more
    room = bytearray(end - start + 1 + len(more))
    out = room
    size = _unescaped(text, start, end, out) if kind == _JSON else _copied(text, start, end, out)
    if size < 0 or (not _is_ascii(out, 0, size) and not _is_text(bytes(room[:size]))):
        return None
    kept = 0
    at = 0
    value_start = 0
    value_end = 0
    while at < size:
        name_end = at
        while name_end < size and out[name_end] != _NAME_END and out[name_end] != _PAIR_END:
            name_end += 1
        if name_end == at or name_end >= size or out[name_end] != _NAME_END:
            return None
        pair_end = name_end + 1
        while pair_end < size and out[pair_end] != _PAIR_END:
            if out[pair_end] == _NAME_END:
                return None
            pair_end += 1
        if pair_end == name_end + 1:
            return None
        length = name_end - at
        if not _is_ascii(out, at, name_end) or _decides(out, at, length):
            return None
        if length == 4 and _is(out, at, b"TAGS", 4):
            if value_end > 0:
                return None
            value_start = kept + (name_end + 1 - at)
            value_end = kept + (pair_end - at)
        if length == 4 and _is(out, at, b"WAIT", 4):
            at = pair_end + 1
            if at > size and kept > 0:  # it was the last pair, and takes the end of the one before along
                kept -= 1
            continue
        stop = pair_end + 1 if pair_end < size else pair_end
        while at < stop:
            out[kept] = out[at]
            kept += 1
            at += 1
        at = stop if pair_end < size else pair_end + 1
    if kept > 0 and out[kept - 1] != _PAIR_END:
        out[kept] = _PAIR_END
        kept += 1
    for number in range(len(more)):
        out[kept] = extra[number]
        kept += 1
    return bytes(room[:kept]), _code(room, out, value_start, value_end)


def _decides(text: bytearray, start: int, size: int) -> bool:
    """Whether a property with this name decides about what becomes of the message."""
    if size == 5:
        return _is(text, start, b"DELAY", 5)
    if size == 8:
        return _is(text, start, b"TRAN_MSG", 8)
    if size > 12 and _is(text, start, b"TIMER_D", 7):
        return True
    return size > 10 and _is(text, start, b"INNER_MULT", 10)


def _is_text(text: bytes) -> bool:
    try:
        text.decode()
    except UnicodeDecodeError:
        return False
    return True


def _code(room: bytearray, out: bytearray, start: int, end: int) -> int:
    value = 0
    for at in range(start, end):
        if out[at] >= _ASCII_END:
            return tags_code(bytes(room[start:end]))
        value = (31 * value + out[at]) & _WORD
    return value - ((value >> 31) << 32)


def _copied(text: bytes, start: int, end: int, out: bytearray) -> int:
    for at in range(start, end):
        out[at - start] = text[at]
    return end - start


def _unescaped(text: bytes, start: int, end: int, out: bytearray) -> int:
    """The size of the text of a JSON string; -1 for an escape that is not common."""
    at = start
    size = 0
    while at < end:
        value = text[at]
        at += 1
        if value == _BACKSLASH:
            value = text[at]
            at += 1
            if value == 117:  # u: common are the two that separate properties
                if at + 4 > end or text[at] != _ZERO or text[at + 1] != _ZERO or text[at + 2] != _ZERO:
                    return -1
                value = text[at + 3] - _ZERO
                at += 4
                if value != _NAME_END and value != _PAIR_END:
                    return -1
            elif value != _QUOTE and value != _BACKSLASH:
                return -1
        out[size] = value
        size += 1
    return size


def respond(
    head: bytes, tail: bytes, kind: int, store_host: bytes, physical_offset: int, queue_id: int, queue_offset: int,
    opaque: int,
) -> bytes:  # fmt: skip
    """The frame of the response. `head` is that of an empty one up to the value of the id, `tail` what follows the
    fields; `store_host` has eight bytes.
    """
    first = head
    last = tail
    host = store_host
    room = bytearray(len(head) + len(tail) + 160)
    out = room
    at = 0
    for number in range(len(head)):
        out[number] = first[number]
    at = len(head)
    for number in range(8):
        out[at] = _hex(host[number] >> 4)
        out[at + 1] = _hex(host[number] & 15)
        at += 2
    for number in range(16):
        out[at] = _hex(physical_offset >> (60 - 4 * number) & 15)
        at += 1
    if kind == _JSON:
        at = _literal(out, at, b'","queueId":"', 13)
        at = _digits(out, at, queue_id)
        at = _literal(out, at, b'","queueOffset":"', 17)
        at = _digits(out, at, queue_offset)
        at = _literal(out, at, b'"},"flag":1,"language":"JAVA","opaque":', 39)
        at = _digits(out, at, opaque)
        for number in range(len(tail)):
            out[at] = last[number]
            at += 1
        _put4(out, 4, at - 8)
    else:
        at = _literal(out, at, b"\x00\x07queueId", 9)
        value_at = at + 4
        at = _digits(out, value_at, queue_id)
        _put4(out, value_at - 4, at - value_at)
        at = _literal(out, at, b"\x00\x0bqueueOffset", 13)
        value_at = at + 4
        at = _digits(out, value_at, queue_offset)
        _put4(out, value_at - 4, at - value_at)
        _put4(out, 13, opaque)
        _put4(out, 25, at - 29)
        _put4(out, 4, (at - 8) | 1 << 24)
    _put4(out, 0, at - 4)
    return bytes(room[:at])


def _hex(value: int) -> int:
    return value + _ZERO if value < 10 else value + 55


def _literal(out: bytearray, at: int, text: bytes, size: int) -> int:
    for number in range(size):
        out[at + number] = text[number]
    return at + size


def _digits(out: bytearray, at: int, value: int) -> int:
    if value < 0:
        out[at] = _MINUS
        at += 1
        value = -value
    size = 1
    rest = value
    while rest >= 10:
        rest //= 10
        size += 1
    place = at + size
    while place > at:
        place -= 1
        out[place] = _ZERO + value % 10
        value //= 10
    return at + size


def _put4(out: bytearray, at: int, value: int) -> None:
    out[at] = value >> 24 & 255
    out[at + 1] = value >> 16 & 255
    out[at + 2] = value >> 8 & 255
    out[at + 3] = value & 255
