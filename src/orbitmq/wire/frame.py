"""Cuts commands out of a byte stream and puts them into one. Pure: chunks of any size go in, commands come out.

total       u32  bytes after this field: 4 + header size + body size
type, size  u8 serialization of the header, u24 size of the header
header      JSON text or binary
body        the rest
"""

from __future__ import annotations

from orbitmq.errors import FrameError
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import (
    Command,
    decode_binary_header,
    decode_json_header,
    encode_binary_header,
    encode_json_header,
)

FRAME_SIZE_MAX = 16_777_216  # bytes with the total field; what Java's decoder takes by default
_LENGTH_SIZE = 4


class FrameDecoder:
    """One decoder a connection. Holds at most one incomplete frame, so its memory is bounded by `size_max`."""

    def __init__(self, *, size_max: int = FRAME_SIZE_MAX, typed: bool = True) -> None:
        self._size_max = size_max
        self._typed = typed
        self._pending = bytearray()
        self._wanted = _LENGTH_SIZE  # bytes the pending part must reach before another look is worth it

    @property
    def pending_size(self) -> int:
        """Bytes of the incomplete frame held."""
        return len(self._pending)

    def feed(self, data: bytes) -> list[Command]:
        """All commands complete with `data`. FrameError or HeaderError: the stream is lost, close the connection."""
        if self._pending:
            self._pending += data
            if len(self._pending) < self._wanted:
                return []
            data = bytes(self._pending)
            self._pending.clear()
        commands: list[Command] = []
        at, end = 0, len(data)
        while True:
            if end - at < _LENGTH_SIZE:
                self._wanted = _LENGTH_SIZE
                break
            size = int.from_bytes(data[at : at + 4], "big") + _LENGTH_SIZE
            if size > self._size_max:
                raise FrameError(f"frame of {size} bytes, at most {self._size_max} are allowed")
            if end - at < size:
                self._wanted = size
                break
            commands.append(self._command(data, at + 4, at + size))
            at += size
        if at < end:
            self._pending += data[at:]
        return commands

    def _command(self, data: bytes, at: int, end: int) -> Command:
        start = at + 4
        if start > end:
            raise FrameError(f"frame of {end - at} bytes is too short for a header length")
        kind = data[at]
        header_end = start + int.from_bytes(data[at + 1 : start], "big")
        if header_end > end:
            raise FrameError(f"header of {header_end - start} bytes in a frame with {end - start} left")
        if kind == SerializeType.JSON:
            command = decode_json_header(data[start:header_end], typed=self._typed)
        elif kind == SerializeType.ROCKETMQ:
            command = decode_binary_header(data[start:header_end])
        else:
            raise FrameError(f"header serialization {kind} is unknown")
        command.serialize_type = kind
        command.body = data[header_end:end]
        return command


def encode_frame(command: Command) -> bytes:
    """The whole frame of a command."""
    header = (
        encode_json_header(command) if command.serialize_type == SerializeType.JSON else encode_binary_header(command)
    )
    parts = command.body_parts or (command.body,)
    size = 4 + len(header) + sum(map(len, parts))
    return b"".join(
        (b"%b%c%b" % (size.to_bytes(4, "big"), command.serialize_type, len(header).to_bytes(3, "big")), header, *parts)
    )
