"""Cuts commands out of a byte stream and puts them into one. Pure: chunks of any size go in, commands come out.

total       u32  bytes after this field: 4 + header size + body size
type, size  u8 serialization of the header, u24 size of the header
header      JSON text or binary
body        the rest
"""

from __future__ import annotations

import struct
import sys
from typing import Final

from orbitmq.errors import FrameError, MessageIllegal
from orbitmq.message.properties import UNPAIRED
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command
from orbitmq.wire.header_codec import (
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)
from orbitmq.wire.send_loops import BINARY, SendFields, read

FRAME_SIZE_MAX: Final = 16_777_216  # bytes with the total field; what Java's decoder takes by default
# Bytes; properties of 32 KiB are at most 200 KiB in JSON. Parsing a header delays all other connections, and a waiting
# request keeps its own.
HEADER_SIZE_MAX: Final = 1 << 20
COPIED_MAX: Final = 256 << 10  # bytes of a frame received in parts; below this one more copy is cheaper
_LENGTH_SIZE: Final = 4
_HTTP: Final = int.from_bytes(b"HTTP", "big")  # the beginning of a response, read as a length
_HEAD: Final = struct.Struct(">II")  # total; serialization and header size
_HEAD_SIZE: Final = _HEAD.size
_SETTINGS: Final = 4  # kind of the first frame of HTTP/2: the last byte of what is read as a length here


class SendFrame:
    """A common send that is not decoded: `fields` are what `send_loops.read` found in its header. The header begins at
    `start` of `data`, the body at `body_start`; both end before `end`. `word` is the second one of the frame.
    """

    def __init__(self, data: bytes, start: int, body_start: int, end: int, word: int, fields: SendFields) -> None:
        self.data = data
        self.start = start
        self.body_start = body_start
        self.end = end
        self.word = word
        self.fields = fields

    @property
    def kind(self) -> int:
        """The serialization of its header."""
        return self.word >> 24

    @property
    def code(self) -> int:
        """The code of its request."""
        return self.fields[11]


Frame = Command | SendFrame


class FrameDecoder:
    """One decoder per connection. Holds at most one incomplete frame, so its memory is bounded by `size_max`. A call
    returns at most `count_max` commands; while `has_more`, the next call returns further ones. With `sends`, `frames`
    leaves common sends undecoded.
    """

    def __init__(
        self, *, size_max: int = FRAME_SIZE_MAX, typed: bool = True, count_max: int = sys.maxsize, sends: bool = False
    ) -> None:
        self._size_max = size_max
        self._typed = typed
        self._sends = sends
        self._count_max = count_max
        self._uncut = b""  # what follows the commands that were taken, from `_uncut_at` on
        self._uncut_at = 0
        self._pending = bytearray()
        self._wanted = _HEAD_SIZE  # bytes the pending part must reach before another look is worth it

    @property
    def pending_size(self) -> int:
        """Bytes of the incomplete frame held."""
        return len(self._pending)

    @property
    def has_more(self) -> bool:
        """Whether `feed` stopped at `count_max`; call it again, with new data or none."""
        return bool(self._uncut)

    def drop(self) -> None:
        """Drop the data that `feed` has not decoded."""
        self._uncut = b""

    def feed(self, data: bytes) -> list[Command]:
        """The commands complete with `data`. FrameError or HeaderError: the stream is lost, close the connection."""
        return [self.command(frame) if isinstance(frame, SendFrame) else frame for frame in self.frames(data)]

    def command(self, frame: SendFrame) -> Command:
        """The frame, decoded."""
        return self._command(frame.data, frame.start, frame.word, frame.end)

    def frames(self, data: bytes) -> list[Frame]:
        """As `feed`."""
        if self._uncut:
            uncut, self._uncut = self._uncut, b""
            return self._cut(uncut + data if data else uncut, self._uncut_at)
        if self._pending:
            self._pending += data
            if len(self._pending) < self._wanted:
                return []
            if self._wanted > COPIED_MAX:
                return self._large()
            data = bytes(self._pending)
            self._pending.clear()
        return self._cut(data, 0)

    def _large(self) -> list[Frame]:
        """Take a large frame that is complete now, and what follows; nothing of its body is copied twice."""
        pending, self._pending, size = self._pending, bytearray(), self._wanted
        with memoryview(pending) as view:
            _, word = _HEAD.unpack_from(view)
            body_at = min(_HEAD_SIZE + (word & 0xFFFFFF), size)
            command = self._command(bytes(view[:body_at]), _HEAD_SIZE, word, body_at)
            command.body = bytes(view[body_at:size])
            rest = bytes(view[size:])
        return [command, *self._cut(rest, 0)]

    def _cut(self, data: bytes, at: int) -> list[Frame]:
        """The commands that are complete in `data` from `at` on; the rest is kept."""
        commands: list[Frame] = []
        end, left = len(data), self._count_max
        while end - at >= _HEAD_SIZE:
            if not left:
                self._uncut, self._uncut_at = data, at
                return commands
            left -= 1
            total, word = _HEAD.unpack_from(data, at)
            size = total + _LENGTH_SIZE
            if size > self._size_max:
                raise _oversized(size, f"at most {self._size_max} are allowed")
            if end - at < size:
                break
            frame = self._send_frame(data, at + _HEAD_SIZE, word, at + size) if self._sends else None
            commands.append(self._command(data, at + _HEAD_SIZE, word, at + size) if frame is None else frame)
            at += size
        if at < end:
            self._keep(data[at:])
        return commands

    def _send_frame(self, data: bytes, start: int, word: int, end: int) -> SendFrame | None:
        kind, body_start = word >> 24, start + (word & 0xFFFFFF)
        if kind > BINARY or body_start > end or body_start - start > HEADER_SIZE_MAX:
            return None
        fields = read(data, start, body_start, kind)
        return None if fields is None else SendFrame(data, start, body_start, end, word, fields)

    def _keep(self, rest: bytes) -> None:
        """Hold an incomplete frame. A length that can never be met fails now, not after it was waited for."""
        self._wanted = _LENGTH_SIZE
        if len(rest) >= _LENGTH_SIZE:
            size = int.from_bytes(rest[:_LENGTH_SIZE], "big") + _LENGTH_SIZE
            if not _HEAD_SIZE <= size <= self._size_max:
                raise _oversized(size, f"{_HEAD_SIZE} to {self._size_max} are allowed")
            if len(rest) >= _HEAD_SIZE and rest[3] == _SETTINGS and rest[4:_HEAD_SIZE] == b"\x00\x00\x00\x00":
                # An empty header, which is none: read as a frame, this would be waited for until the connection closes.
                raise FrameError("the peer speaks gRPC: this is a port for clients of RocketMQ 5")
            self._wanted = size
        self._pending += rest

    def _command(self, data: bytes, start: int, word: int, end: int) -> Command:
        kind = word >> 24
        header_end = start + (word & 0xFFFFFF)
        if header_end > end:
            raise FrameError(f"header of {header_end - start} bytes in a frame with {end - start} left")
        if header_end - start > HEADER_SIZE_MAX:
            raise FrameError(f"header of {header_end - start} bytes, at most {HEADER_SIZE_MAX} are allowed")
        if kind == SerializeType.JSON:
            command = decode_json_header(data[start:header_end], typed=self._typed)
        elif kind == SerializeType.ROCKETMQ:
            command = decode_binary_header(data[start:header_end])
        else:
            raise FrameError(f"header serialization {kind} is unknown")
        command.serialize_type = kind
        command.body = data[header_end:end]
        command.body_parts = ()
        return command


def _oversized(size: int, allowed: str) -> FrameError:
    if size - _LENGTH_SIZE == _HTTP:
        return FrameError("the peer speaks HTTP: this is the port of a web server")
    return FrameError(f"frame of {size} bytes, {allowed}")


def parts_size(command: Command) -> int:
    """Bytes of a body in parts, 0 of another."""
    size = 0
    for part in command.body_parts:
        size += len(part)
    return size


def encode_frame(command: Command, size_of_parts: int | None = None) -> bytes:
    """The whole frame of a command; `size_of_parts` is `parts_size`, when that is known."""
    if command.body_parts:
        size = parts_size(command) if size_of_parts is None else size_of_parts
        return b"".join((encode_head(command, size), *command.body_parts))
    return b"".join((encode_head(command, len(command.body)), command.body))


def encode_head(command: Command, body_size: int) -> bytes:
    """The frame up to the body, of which so many bytes must follow. MessageIllegal for text that cannot be written."""
    kind = command.serialize_type
    try:
        header = encode_json_header(command) if kind == SerializeType.JSON else encode_binary_header(command)
    except UnicodeEncodeError as error:
        raise MessageIllegal(f"text {ascii(error.object)[:80]} of a request {UNPAIRED}") from error
    size = len(header)
    return _HEAD.pack(size + body_size + 4, kind << 24 | size) + header
