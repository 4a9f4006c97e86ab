"""Promises of what reads HTTP/2: frames and header blocks of whoever has found the port."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from functools import partial

from fuzz.promise import Target, cuts, is_refused, outcome
from orbitmq.errors import HpackError
from orbitmq.wire.http2 import frames
from orbitmq.wire.http2.connection import REQUEST, Http2Connection
from orbitmq.wire.http2.frames import frame_head
from orbitmq.wire.http2.grpc import OK_TRAILERS, RESPONSE_HEADERS, prefixed
from orbitmq.wire.http2.hpack import LIST_SIZE_MAX, HpackDecoder, encode_field

EVERY = 1 << 30
START = frames.PREFACE + frames.settings_frame({})
UNSENT_MAX = 1 << 20  # bytes of all responses: a thousand requests of a few bytes each

Seen = tuple[list[tuple[int, int, bytes, bool]], bytes, int]


def _served(chunks: Iterable[bytes], *, is_answered: bool) -> Seen:
    """What comes of a stream: events, output, code of the failure. Each request is answered at once, or none."""
    connection = Http2Connection()
    events: list[tuple[int, int, bytes, bool]] = []
    output = b""
    for chunk in (START, *chunks):
        for event in connection.receive(chunk, 0.0, EVERY):
            stream = event.stream
            events.append((event.kind, stream.number, event.data, event.is_last))
            if event.kind == REQUEST and is_answered:
                connection.respond(stream, RESPONSE_HEADERS, b"hello", OK_TRAILERS)
        output += connection.take()
        assert 0 <= connection.unsent_size <= UNSENT_MAX
        if is_answered:
            assert all(one.unsent_size for one in connection.streams.values()), "only their last bytes wait"
    return events, output, -1 if connection.failure is None else connection.failure.code


def check_http2(data: bytes) -> None:
    seen = _served([data[1:]], is_answered=False)
    assert seen == _served(cuts(data), is_answered=False)
    assert sum(len(one[2]) for one in seen[0]) <= len(data)
    _served(cuts(data), is_answered=True)


def check_hpack(data: bytes) -> None:
    """The first byte is the length of the first of two blocks."""
    blocks = [data[1 : 1 + data[0]], data[1 + data[0] :]] if data else []
    decoder = HpackDecoder()
    for block in blocks:
        fields = outcome(HpackError, partial(decoder.decode, block))
        if is_refused(fields):
            return
        assert sum(field.size for field in fields) <= LIST_SIZE_MAX
        again = HpackDecoder().decode(b"".join(encode_field(one.name, one.value) for one in fields))
        assert [(one.name, one.value, one.kind) for one in again] == [(one.name, one.value, one.kind) for one in fields]


def _frame(kind: int, number: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame_head(kind, flags, number, len(payload)) + payload


_FIELDS = b"\x83\x86\x44\x04/a/B" + encode_field("content-type", "application/grpc") + b"\x40\x03x-a\x83\x1c\x64\x5f"
_HEADERS = _frame(frames.HEADERS, 1, _FIELDS, frames.END_HEADERS)
_DATA = _frame(frames.DATA, 1, prefixed(b"hello"), frames.END_STREAM)
_RARE = (
    _frame(frames.PING, 0, b"12345678"),
    frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 3, frames.MAX_FRAME_SIZE: 1 << 20}),
    frames.window_update(0, 1000),
    frames.window_update(1, 2),
    frames.rst_stream(1, frames.CANCEL),
    frames.go_away(0, 0, "bye"),
    _frame(frames.PRIORITY, 1, b"\0\0\0\3\x10"),
    _frame(frames.DATA, 1, b"\2ab\0\0", frames.PADDED),
    _frame(frames.HEADERS, 3, _FIELDS[:9]) + _frame(frames.CONTINUATION, 3, _FIELDS[9:], frames.END_HEADERS),
)


def _http2_seeds() -> Iterator[bytes]:
    yield b"\0" + _HEADERS + _DATA
    yield from (b"\7" + _RARE[1] + _HEADERS + one + _DATA for one in _RARE)
    yield b"\3" + b"".join(_RARE)


def _hpack_seeds() -> Iterator[bytes]:
    for size in (0, 9, len(_FIELDS)):
        yield bytes((size,)) + _FIELDS + b"\xbe\xbf"
    yield b"\1\x20\x3f\xe1\x1f" + _FIELDS


TARGETS = (
    Target(
        "http2", "events and at most one failure; the same however the stream is cut",
        check_http2, _http2_seeds, 30, (*(one[:9] for one in (_HEADERS, _DATA, *_RARE)), _FIELDS),
    ),
    Target(
        "hpack", "fields of a bounded size or HpackError; written again they read the same",
        check_hpack, _hpack_seeds, 30, (b"\x40", b"\x10", b"\x20", b"\xbe", b"\x3f\xe1\x1f", b"\x83\x1c\x64\x5f"),
    ),
)  # fmt: skip
