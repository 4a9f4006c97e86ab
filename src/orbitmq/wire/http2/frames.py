"""The frames of HTTP/2 (RFC 9113, section 4), written, and the numbers in them. Pure.

length    u24  bytes of the payload
type      u8
flags     u8
stream    u32  its first bit is reserved; 0 is the connection
payload   `length` bytes
"""

from __future__ import annotations

from typing import Final

PREFACE: Final = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"  # what a client sends first
HEAD_SIZE: Final = 9
FRAME_SIZE_MAX: Final = 16_384  # bytes of a payload, unless the receiver allows more
FRAME_SIZE_LIMIT: Final = (1 << 24) - 1
WINDOW_MAX: Final = (1 << 31) - 1
WINDOW_SIZE: Final = 65_535  # bytes of a new window, unless its owner says otherwise

DATA: Final = 0
HEADERS: Final = 1
PRIORITY: Final = 2
RST_STREAM: Final = 3
SETTINGS: Final = 4
PUSH_PROMISE: Final = 5
PING: Final = 6
GOAWAY: Final = 7
WINDOW_UPDATE: Final = 8
CONTINUATION: Final = 9

END_STREAM: Final = 0x01
ACK: Final = 0x01
END_HEADERS: Final = 0x04
PADDED: Final = 0x08
HAS_PRIORITY: Final = 0x20

HEADER_TABLE_SIZE: Final = 1
ENABLE_PUSH: Final = 2
MAX_CONCURRENT_STREAMS: Final = 3
INITIAL_WINDOW_SIZE: Final = 4
MAX_FRAME_SIZE: Final = 5
MAX_HEADER_LIST_SIZE: Final = 6

# Error codes.
NO_ERROR: Final = 0
PROTOCOL_ERROR: Final = 1
INTERNAL_ERROR: Final = 2
FLOW_CONTROL_ERROR: Final = 3
STREAM_CLOSED: Final = 5
FRAME_SIZE_ERROR: Final = 6
REFUSED_STREAM: Final = 7
CANCEL: Final = 8
COMPRESSION_ERROR: Final = 9
ENHANCE_YOUR_CALM: Final = 11

_PING_ACK_HEAD: Final = b"\0\0\x08\x06\x01\0\0\0\0"
SETTINGS_ACK: Final = b"\0\0\0\x04\x01\0\0\0\0"


def frame_head(kind: int, flags: int, stream: int, size: int) -> bytes:
    """What precedes a payload of `size` bytes."""
    return (size << 48 | kind << 40 | flags << 32 | stream).to_bytes(HEAD_SIZE, "big")


def settings_frame(settings: dict[int, int]) -> bytes:
    """Settings by their numbers."""
    payload = b"".join([number.to_bytes(2, "big") + value.to_bytes(4, "big") for number, value in settings.items()])
    return frame_head(SETTINGS, 0, 0, len(payload)) + payload


def window_update(stream: int, size: int) -> bytes:
    """`size` more bytes may be sent."""
    return frame_head(WINDOW_UPDATE, 0, stream, 4) + size.to_bytes(4, "big")


def rst_stream(stream: int, code: int) -> bytes:
    """The stream ends at once."""
    return frame_head(RST_STREAM, 0, stream, 4) + code.to_bytes(4, "big")


def ping_ack(payload: bytes) -> bytes:
    """The response to a ping of 8 bytes."""
    return _PING_ACK_HEAD + payload


def go_away(last_stream: int, code: int, text: str) -> bytes:
    """No stream after `last_stream` is served; `text` is for people."""
    payload = last_stream.to_bytes(4, "big") + code.to_bytes(4, "big") + text.encode()
    return frame_head(GOAWAY, 0, 0, len(payload)) + payload
