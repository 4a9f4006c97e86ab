"""What gRPC adds to HTTP/2, for a server: messages in a stream of data, status in headers, timeouts. Pure.

flag    u8   1: the message is compressed
length  u32  bytes of the message
message

The source is PROTOCOL-HTTP2.md of gRPC.
"""

from __future__ import annotations

import zlib
from typing import Final

from orbitmq.errors import GrpcError
from orbitmq.wire.http2.frames import FRAME_SIZE_MAX
from orbitmq.wire.http2.hpack import encode_field

OK: Final = 0
CANCELLED: Final = 1
INVALID_ARGUMENT: Final = 3
DEADLINE_EXCEEDED: Final = 4
RESOURCE_EXHAUSTED: Final = 8
UNIMPLEMENTED: Final = 12
INTERNAL: Final = 13
UNAVAILABLE: Final = 14

MESSAGE_SIZE_MAX: Final = 130 << 20  # bytes; RocketMQ's grpcMaxInboundMessageSize
PREFIX_SIZE: Final = 5
IDENTITY: Final = "identity"
GZIP: Final = "gzip"
CONTENT_TYPE: Final = "application/grpc"
TEXT_MAX: Final = 4096  # characters of a status text: escaped it fits into one frame
_GZIP_WINDOW: Final = 31  # bits of zlib's window, and 16 for the header of gzip
_TIMEOUT_DIGITS_MAX: Final = 8
_TIMEOUT_UNITS: Final[dict[str, float]] = {"H": 3600.0, "M": 60.0, "S": 1.0, "m": 1e-3, "u": 1e-6, "n": 1e-9}

_STATUS_200: Final = encode_field(":status", "200")
_TYPE: Final = encode_field("content-type", CONTENT_TYPE)
_ACCEPT: Final = encode_field("grpc-accept-encoding", "identity,gzip")
RESPONSE_HEADERS: Final[bytes] = _STATUS_200 + _TYPE
OK_TRAILERS: Final[bytes] = encode_field("grpc-status", "0")


def trailers(status: int, text: str) -> bytes:
    """The encoded end of a response."""
    if not status and not text:
        return OK_TRAILERS
    block = encode_field("grpc-status", str(status))
    return block + encode_field("grpc-message", percent_encoded(text)) if text else block


def only_trailers(status: int, text: str) -> bytes:
    """The encoded headers of a response that has no messages."""
    accepted = _ACCEPT if status == UNIMPLEMENTED else b""
    return RESPONSE_HEADERS + accepted + trailers(status, text)


def http_refusal(status: int) -> bytes:
    """The encoded headers of the response to a request that is not one of gRPC."""
    block = encode_field(":status", str(status))
    return block + encode_field("allow", "POST") if status == 405 else block


def percent_encoded(text: str) -> str:
    """A status text as its header has it: ASCII, the rest as UTF-8 in percent signs."""
    raw = text[:TEXT_MAX].encode("utf-8", "replace")
    if raw.isascii() and b"%" not in raw and text.isprintable():
        return text[:TEXT_MAX]
    escaped = "".join([chr(byte) if 0x20 <= byte <= 0x7E and byte != 0x25 else f"%{byte:02X}" for byte in raw])
    return escaped[: FRAME_SIZE_MAX // 2]


def parse_timeout(text: str) -> float:
    """The seconds of a `grpc-timeout`: up to eight digits and a unit. GrpcError if it is something else."""
    seconds = _TIMEOUT_UNITS.get(text[-1:])
    digits = text[:-1]
    if seconds is None or not 0 < len(digits) <= _TIMEOUT_DIGITS_MAX or not (digits.isascii() and digits.isdigit()):
        raise GrpcError(INVALID_ARGUMENT, "grpc-timeout is not a number of up to eight digits and a unit")
    return int(digits) * seconds


def is_grpc(content_type: str) -> bool:
    """Whether a request with this content type is one of gRPC."""
    return content_type.startswith(CONTENT_TYPE) and content_type[len(CONTENT_TYPE) :][:1] in ("", "+", ";")


def prefixed(message: bytes) -> bytes:
    """A message as it is sent, not compressed."""
    return len(message).to_bytes(PREFIX_SIZE, "big") + message


class MessageReader:
    """Cuts messages out of the data of one stream. `encoding` is the value of `grpc-encoding`."""

    def __init__(self, size_max: int, encoding: str) -> None:
        self._size_max = size_max
        self._encoding = encoding
        self._buffer: bytearray | None = None  # the beginning of a message that is not complete

    @property
    def pending_size(self) -> int:
        """Bytes of a message that is not complete."""
        return 0 if self._buffer is None else len(self._buffer)

    def feed(self, data: bytes) -> list[bytes]:
        """The messages that `data` completes. GrpcError if one is too large or cannot be decompressed."""
        buffer = self._buffer
        if buffer is None:
            if len(data) >= PREFIX_SIZE and self._size(data, 0) == len(data) - PREFIX_SIZE:
                return [self._plain(data[0], data[PREFIX_SIZE:])]
            return self._cut(data)
        buffer += data
        if len(buffer) < PREFIX_SIZE or len(buffer) < PREFIX_SIZE + self._size(bytes(buffer[:PREFIX_SIZE]), 0):
            return []
        self._buffer = None
        return self._cut(bytes(buffer))

    def _size(self, data: bytes, at: int) -> int:
        size = data[at + 1] << 24 | data[at + 2] << 16 | data[at + 3] << 8 | data[at + 4]
        if size > self._size_max:
            raise GrpcError(RESOURCE_EXHAUSTED, f"a message of {size} bytes, the limit is {self._size_max}")
        return size

    def _cut(self, data: bytes) -> list[bytes]:
        messages: list[bytes] = []
        at, end = 0, len(data)
        while end - at >= PREFIX_SIZE:
            after = at + PREFIX_SIZE + self._size(data, at)
            if after > end:
                break
            messages.append(self._plain(data[at], data[at + PREFIX_SIZE : after]))
            at = after
        if at < end:
            self._buffer = bytearray(data[at:] if at else data)
        return messages

    def _plain(self, flag: int, message: bytes) -> bytes:
        if flag == 0:
            return message
        if flag != 1:
            raise GrpcError(INTERNAL, f"a message with the flag {flag}")
        if self._encoding != GZIP:
            raise GrpcError(INTERNAL, "a compressed message without grpc-encoding")
        return decompressed(message, self._size_max)


def decompressed(message: bytes, size_max: int) -> bytes:
    """A gzip message. GrpcError if it is none, or larger than `size_max` bytes."""
    reader = zlib.decompressobj(_GZIP_WINDOW)
    try:
        found = reader.decompress(message, size_max + 1)
    except zlib.error as error:
        raise GrpcError(INTERNAL, f"a message that is not gzip: {error}") from error
    if len(found) > size_max:
        raise GrpcError(RESOURCE_EXHAUSTED, f"a message of more than {size_max} bytes when decompressed")
    if not reader.eof or reader.unused_data:
        raise GrpcError(INTERNAL, "a gzip message that is cut off, or followed by something else")
    return found
