"""The server's end of an HTTP/2 connection (RFC 9113): bytes in, events and bytes out. Pure: knows no socket or clock.

    receive(data, now)  -> events: a stream is open, its data, its end
    send_...            -> frames, as far as the windows of the peer allow; the rest follows with its WINDOW_UPDATE
    take()              -> bytes to be written

Bytes that the protocol does not allow end the connection: `failure` says why, and a GOAWAY is among the bytes to be
written. A peer may send frames that cost more to handle than to send; `ALLOWANCES` says how many.
"""

from __future__ import annotations

import math
from collections import deque
from typing import Final

from orbitmq.errors import Http2Error
from orbitmq.wire.http2 import frames
from orbitmq.wire.http2.allowance import Allowance
from orbitmq.wire.http2.frames import (
    ACK,
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    ENHANCE_YOUR_CALM,
    FLOW_CONTROL_ERROR,
    FRAME_SIZE_ERROR,
    FRAME_SIZE_LIMIT,
    FRAME_SIZE_MAX,
    GOAWAY,
    HAS_PRIORITY,
    HEAD_SIZE,
    HEADERS,
    NO_ERROR,
    PADDED,
    PING,
    PREFACE,
    PRIORITY,
    PROTOCOL_ERROR,
    PUSH_PROMISE,
    REFUSED_STREAM,
    RST_STREAM,
    SETTINGS,
    STREAM_CLOSED,
    WINDOW_MAX,
    WINDOW_SIZE,
    WINDOW_UPDATE,
    frame_head,
)
from orbitmq.wire.http2.hpack import LIST_SIZE_MAX, PSEUDO, REGULAR, Field, HpackDecoder

STREAMS_MAX: Final = 1024  # open at a time; as many requests as a remoting connection may have open
STREAM_WINDOW: Final = 4 << 20  # bytes: a body of the largest message without a pause
CONNECTION_WINDOW: Final = 16 << 20  # bytes: data is consumed as it arrives, so this only bounds what is under way
HEADER_BLOCK_MAX: Final = 32 << 10  # bytes of a compressed list: more than one that is allowed can need
CONTINUATIONS_MAX: Final = 16  # frames of one block: peers send as much as fits in each
STREAM_UNSENT_MAX: Final = 64 << 20  # bytes that a stream may keep for a peer that does not enlarge its window
SEND_TURN: Final = 64 << 10  # bytes of one stream after which another one that waits has its turn
SMALL_UPDATE: Final = 64  # bytes: smaller updates, which cut what waits into as many frames, are without use
RESET_IDS_MAX: Final = 2 * STREAMS_MAX  # streams that were reset and of which frames may still be under way

# (burst, per second). Clients that end cancel all their calls at once.
RESETS_ALLOWED: Final = (2 * STREAMS_MAX, 100)
IDLE_FRAMES_ALLOWED: Final = (2048, 200)

REQUEST: Final = 0  # a stream is open; its headers are here
CONTENT: Final = 1  # some of its data
RESET: Final = 2  # the peer, or a fault of it, has ended the stream

NO_DATA: Final = b""
_PSEUDO_NAMES: Final = frozenset((":method", ":path", ":scheme", ":authority"))


class Stream:
    """One request and its response."""

    def __init__(self, number: int, send_window: int) -> None:
        self.number = number
        self.method = ""
        self.path = ""
        self.headers: dict[str, str] = {}
        self.is_too_large = False  # the headers: only some of them are here
        self.send_window = send_window  # bytes that the peer takes; negative after it has made its windows smaller
        self.receive_window = STREAM_WINDOW  # bytes that the peer may send
        self.has_ended = False  # the peer sends nothing more
        self.is_over = False  # nothing more is sent or received
        self.unsent: deque[bytes] | None = None
        self.unsent_count = 0  # pieces that are not wholly sent; those that were lost if the stream was reset
        self.unsent_at = 0  # bytes of the first piece that are sent
        self.unsent_size = 0
        self.last_headers = NO_DATA  # the frame that ends the stream, once everything is sent
        self.owner: object = None
        """What the user of the connection makes of the stream."""


class Event:
    """Something a peer has sent. `is_last`: it sends nothing more on this stream."""

    def __init__(self, kind: int, stream: Stream, data: bytes, is_last: bool) -> None:
        self.kind = kind
        self.stream = stream
        self.data = data
        self.is_last = is_last


class Http2Connection:
    """`list_size_max`: bytes of the headers of one request. `streams_max`: requests that may be open at a time."""

    def __init__(self, *, list_size_max: int = LIST_SIZE_MAX, streams_max: int = STREAMS_MAX) -> None:
        self._hpack = HpackDecoder(list_size_max)
        self._streams_max = streams_max
        self._data = NO_DATA  # received, and handled up to _at
        self._at = 0
        self._has_preface = self._has_settings = False
        self._block: list[bytes] = []  # of a block of headers that is not complete
        self._block_stream = self._block_flags = self._block_size = 0
        self._last_stream = 0  # the highest number that the peer has used
        self._refused_from = WINDOW_MAX  # streams above this number are refused since GOAWAY
        self._reset_ids: dict[int, None] = {}  # the oldest first
        self._send_window = WINDOW_SIZE
        self._stream_window = WINDOW_SIZE  # of new streams, to the peer
        self._frame_size_max = FRAME_SIZE_MAX
        self._receive_window = CONNECTION_WINDOW
        self._ready: dict[
            int, Stream
        ] = {}  # streams that wait only for the window of the connection; the next one first
        self._resets = Allowance(*RESETS_ALLOWED)
        self._idle_frames = Allowance(*IDLE_FRAMES_ALLOWED)
        self._has_sent = False  # data, since the last ping
        self._now = 0.0
        self._events: list[Event] = []
        self.streams: dict[int, Stream] = {}
        """Those that are open, by their numbers."""
        self.unsent_size = 0
        """Bytes that wait for the peer's windows, of all streams."""
        self.failure: Http2Error | None = None
        """Why the connection ends."""
        self.incomplete_since = math.inf
        """When the frame, or the block of headers, began of which only a part is here; infinite without one."""
        self.freed: list[Stream] = []
        """Streams whose unsent bytes became fewer; the owner of the connection empties the list."""
        settings = {
            frames.MAX_CONCURRENT_STREAMS: streams_max,
            frames.INITIAL_WINDOW_SIZE: STREAM_WINDOW,
            frames.MAX_HEADER_LIST_SIZE: list_size_max,
        }
        start = frames.settings_frame(settings) + frames.window_update(0, CONNECTION_WINDOW - WINDOW_SIZE)
        self._out: list[bytes] = [start]

    # ------------------------------------------------------------------------------------------------------ receiving

    @property
    def has_more(self) -> bool:
        """Whether a complete frame is left that `receive` has not handled."""
        data, at = self._data, self._at
        left = len(data) - at
        if self.failure is not None or left < HEAD_SIZE or not self._has_preface:
            return False
        return left >= HEAD_SIZE + (data[at] << 16 | data[at + 1] << 8 | data[at + 2])

    def receive(self, data: bytes, now: float, count_max: int) -> list[Event]:
        """Handle bytes from the peer, cut anywhere. `now` is seconds of any clock. After `count_max` events or so the
        rest is left: `has_more` says so, and a call without data continues.
        """
        self._now = now
        self._events = []
        if self.failure is None:
            if data:
                self._data = self._data[self._at :] + data if self._at < len(self._data) else data
                self._at = 0
            try:
                self._read(count_max)
            except Http2Error as error:
                self._fail(error)
        return self._events

    def _read(self, count_max: int) -> None:
        data = self._data
        if not self._has_preface and not self._read_preface():
            return
        begin = at = self._at
        end = len(data)
        while end - at >= HEAD_SIZE and len(self._events) < count_max:
            size = data[at] << 16 | data[at + 1] << 8 | data[at + 2]
            if size > FRAME_SIZE_MAX:
                raise Http2Error(f"a frame of {size} bytes", FRAME_SIZE_ERROR)
            start = at + HEAD_SIZE
            if end - start < size:
                break
            number = (data[at + 5] & 0x7F) << 24 | data[at + 6] << 16 | data[at + 7] << 8 | data[at + 8]
            at = self._at = start + size
            self._take(data[start - 6], data[start - 5], number, data, start, size)
        if at == end and not self._block:
            self.incomplete_since = math.inf
        elif (at > begin and not self._block) or self.incomplete_since == math.inf:
            self.incomplete_since = self._now

    def _read_preface(self) -> bool:
        given = self._data[: len(PREFACE)]
        if not PREFACE.startswith(given):
            raise Http2Error("a connection that does not begin as one of HTTP/2", PROTOCOL_ERROR)
        if len(given) < len(PREFACE):
            return False
        self._has_preface = True
        self._at = len(PREFACE)
        return True

    def _take(self, kind: int, flags: int, number: int, data: bytes, start: int, size: int) -> None:
        if self._block and (kind != CONTINUATION or number != self._block_stream):
            raise Http2Error(f"a frame of type {kind} within a block of headers", PROTOCOL_ERROR)
        if not self._has_settings:
            if kind != SETTINGS or flags & ACK:
                raise Http2Error(f"a frame of type {kind} before the settings", PROTOCOL_ERROR)
            self._has_settings = True
        if kind == DATA:
            self._take_data(flags, number, data, start, size)
        elif kind == HEADERS:
            self._take_headers(flags, number, data[start : start + size])
        elif kind == WINDOW_UPDATE:
            self._take_window_update(number, data, start, size)
        elif kind == CONTINUATION:
            self._take_continuation(flags, data[start : start + size])
        elif kind == RST_STREAM:
            self._take_rst_stream(number, size)
        else:
            self._take_rare(kind, flags, number, data[start : start + size])

    # ----------------------------------------------------------------------------------------------------------- data

    def _take_data(self, flags: int, number: int, data: bytes, start: int, size: int) -> None:
        stream = self.streams.get(number)
        if stream is None or stream.has_ended:
            self._take_late(number, "data")
        if not size and not flags & END_STREAM:
            self._spend_idle_frame("empty data")
        self._receive_window -= size
        if self._receive_window < 0:
            raise Http2Error("more data than the window of the connection allows", FLOW_CONTROL_ERROR)
        if self._receive_window < CONNECTION_WINDOW // 2:
            self._out.append(frames.window_update(0, CONNECTION_WINDOW - self._receive_window))
            self._receive_window = CONNECTION_WINDOW
        end = start + size
        if flags & PADDED:
            start, end = self._without_padding(data, start, end)
        if stream is None or stream.has_ended:
            return
        stream.receive_window -= size
        if stream.receive_window < 0:
            self._reset_by_fault(stream, FLOW_CONTROL_ERROR)
            return
        is_last = flags & END_STREAM != 0
        if is_last:
            self._end_receiving(stream)
        elif stream.receive_window < STREAM_WINDOW // 2:
            self._out.append(frames.window_update(number, STREAM_WINDOW - stream.receive_window))
            stream.receive_window = STREAM_WINDOW
        if end > start or is_last:
            self._events.append(Event(CONTENT, stream, data[start:end], is_last))

    def _without_padding(self, data: bytes, start: int, end: int) -> tuple[int, int]:
        if start == end:
            raise Http2Error("a padded frame without the size of its padding", FRAME_SIZE_ERROR)
        padding = data[start]
        if padding >= end - start:
            raise Http2Error("more padding than the frame is long", PROTOCOL_ERROR)
        return start + 1, end - padding

    def _end_receiving(self, stream: Stream) -> None:
        stream.has_ended = True
        if stream.is_over:
            self._forget(stream)

    def _take_late(self, number: int, what: str) -> None:
        """A frame of a stream that is not open. It was under way when the stream was reset, or is a fault."""
        if number not in self._reset_ids:
            if number > self._refused_from:
                return
            code = PROTOCOL_ERROR if number > self._last_stream or not number & 1 else STREAM_CLOSED
            raise Http2Error(f"{what} on stream {number}, which is not open", code)

    # -------------------------------------------------------------------------------------------------------- headers

    def _take_headers(self, flags: int, number: int, payload: bytes) -> None:
        if not number & 1:
            raise Http2Error(f"headers on stream {number}", PROTOCOL_ERROR)
        start, end = 0, len(payload)
        if flags & PADDED:
            start, end = self._without_padding(payload, 0, end)
        if flags & HAS_PRIORITY:
            start += 5
            if start > end:
                raise Http2Error("headers too short for their priority", FRAME_SIZE_ERROR)
            if int.from_bytes(payload[start - 5 : start - 1], "big") & 0x7FFF_FFFF == number:
                raise Http2Error(f"stream {number} depends on itself", PROTOCOL_ERROR)
        block = payload[start:end] if end - start != len(payload) else payload
        if flags & END_HEADERS:
            self._take_block(number, flags, block)
        else:
            self._block = [block]
            self._block_stream, self._block_flags, self._block_size = number, flags, len(block)

    def _take_continuation(self, flags: int, payload: bytes) -> None:
        if not self._block:
            raise Http2Error("a continuation of nothing", PROTOCOL_ERROR)
        self._block.append(payload)
        self._block_size += len(payload)
        if self._block_size > HEADER_BLOCK_MAX or len(self._block) > CONTINUATIONS_MAX:
            text = f"a block of headers of {self._block_size} bytes in {len(self._block)} frames"
            raise Http2Error(text, ENHANCE_YOUR_CALM)
        if flags & END_HEADERS:
            block, self._block = b"".join(self._block), []
            self._take_block(self._block_stream, self._block_flags, block)

    def _take_block(self, number: int, flags: int, block: bytes) -> None:
        fields = self._hpack.decode(block)
        if number <= self._last_stream:
            self._take_trailers(number, flags, fields)
            return
        self._last_stream = number
        if number > self._refused_from:
            return
        stream = Stream(number, self._stream_window)
        if len(self.streams) >= self._streams_max:
            self._reset_by_fault(stream, REFUSED_STREAM)
        elif not self._take_fields(stream, fields):
            self._reset_by_fault(stream, PROTOCOL_ERROR)
        else:
            self.streams[number] = stream
            stream.has_ended = flags & END_STREAM != 0
            stream.is_too_large = self._hpack.is_too_large
            self._events.append(Event(REQUEST, stream, NO_DATA, stream.has_ended))

    def _take_fields(self, stream: Stream, fields: list[Field]) -> bool:
        """False if the request is malformed."""
        headers = stream.headers
        pseudo: dict[str, str] = {}
        for field in fields:
            name = field.name
            if field.kind == REGULAR:
                headers[name] = f"{headers[name]},{field.value}" if name in headers else field.value
            elif field.kind == PSEUDO:
                if headers or name in pseudo or name not in _PSEUDO_NAMES:
                    return False
                pseudo[name] = field.value
            else:
                return False
        stream.method, stream.path = pseudo.get(":method", ""), pseudo.get(":path", "")
        return self._hpack.is_too_large or (stream.method != "" and stream.path != "" and ":scheme" in pseudo)

    def _take_trailers(self, number: int, flags: int, fields: list[Field]) -> None:
        """Headers after the data: they must end the request. What they say is not used."""
        stream = self.streams.get(number)
        if stream is None or stream.has_ended:
            self._take_late(number, "headers")
            self._spend_reset()
        elif not flags & END_STREAM or [field for field in fields if field.kind != REGULAR]:
            self._reset_by_fault(stream, PROTOCOL_ERROR)
        else:
            self._end_receiving(stream)
            self._events.append(Event(CONTENT, stream, NO_DATA, True))

    # --------------------------------------------------------------------------------------------------- other frames

    def _take_window_update(self, number: int, data: bytes, start: int, size: int) -> None:
        if size != 4:
            raise Http2Error(f"a window update of {size} bytes", FRAME_SIZE_ERROR)
        more = int.from_bytes(data[start : start + 4], "big") & 0x7FFF_FFFF
        if more < SMALL_UPDATE and self.unsent_size:
            self._spend_idle_frame("small windows")
        if number == 0:
            if not more or self._send_window + more > WINDOW_MAX:
                code = FLOW_CONTROL_ERROR if more else PROTOCOL_ERROR
                raise Http2Error(f"a window of {self._send_window} bytes is made larger by {more}", code)
            self._send_window += more
            self._send_unsent()
            return
        stream = self.streams.get(number)
        if stream is None:
            if number > self._last_stream:
                raise Http2Error(f"a window update for stream {number}, which is not open", PROTOCOL_ERROR)
        elif not more or stream.send_window + more > WINDOW_MAX:
            self._reset_by_fault(stream, FLOW_CONTROL_ERROR if more else PROTOCOL_ERROR)
        else:
            stream.send_window += more
            if stream.unsent_size:
                self._line_up(stream)
                self._send_unsent()

    def _take_rst_stream(self, number: int, size: int) -> None:
        if size != 4:
            raise Http2Error(f"a reset of {size} bytes", FRAME_SIZE_ERROR)
        if not number or number > self._last_stream:
            raise Http2Error(f"a reset of stream {number}, which is not open", PROTOCOL_ERROR)
        self._spend_reset()
        stream = self.streams.get(number)
        if stream is not None:
            self._drop(stream)
            self._events.append(Event(RESET, stream, NO_DATA, True))

    def _take_rare(self, kind: int, flags: int, number: int, payload: bytes) -> None:
        if kind == PING and self._has_sent:  # so gRPC's clients measure the bandwidth: when data comes, one at a time
            self._has_sent = False
        else:
            self._spend_idle_frame(f"frames of type {kind}")
        if kind == SETTINGS:
            self._take_settings(flags, number, payload)
        elif kind == PING:
            if number or len(payload) != 8:
                raise Http2Error("a ping of the wrong size or stream", PROTOCOL_ERROR if number else FRAME_SIZE_ERROR)
            if not flags & ACK:
                self._out.append(frames.ping_ack(payload))
        elif kind == PRIORITY:
            if not number or len(payload) != 5:
                raise Http2Error("a priority of no stream", FRAME_SIZE_ERROR if number else PROTOCOL_ERROR)
        elif kind == GOAWAY:
            if number or len(payload) < 8:
                raise Http2Error("a goodbye of a stream", PROTOCOL_ERROR if number else FRAME_SIZE_ERROR)
        elif kind == PUSH_PROMISE:
            raise Http2Error("a client that pushes", PROTOCOL_ERROR)

    def _take_settings(self, flags: int, number: int, payload: bytes) -> None:
        if number:
            raise Http2Error("settings of a stream", PROTOCOL_ERROR)
        if len(payload) % 6 or (flags & ACK and payload):
            raise Http2Error(f"settings of {len(payload)} bytes", FRAME_SIZE_ERROR)
        if flags & ACK:
            return
        for at in range(0, len(payload), 6):
            self._set(int.from_bytes(payload[at : at + 2], "big"), int.from_bytes(payload[at + 2 : at + 6], "big"))
        self._out.append(frames.SETTINGS_ACK)
        self._send_unsent()

    def _set(self, setting: int, value: int) -> None:
        if setting == frames.INITIAL_WINDOW_SIZE:
            if value > WINDOW_MAX:
                raise Http2Error(f"a window of {value} bytes", FLOW_CONTROL_ERROR)
            more, self._stream_window = value - self._stream_window, value
            for stream in self.streams.values():
                stream.send_window += more
                if stream.send_window > WINDOW_MAX:
                    raise Http2Error(f"a window of {stream.send_window} bytes", FLOW_CONTROL_ERROR)
                self._line_up(stream)
        elif setting == frames.MAX_FRAME_SIZE:
            if not FRAME_SIZE_MAX <= value <= FRAME_SIZE_LIMIT:
                raise Http2Error(f"frames of at most {value} bytes", PROTOCOL_ERROR)
            self._frame_size_max = min(value, SEND_TURN)
        elif setting == frames.ENABLE_PUSH and value > 1:
            raise Http2Error(f"{value} for whether to push", PROTOCOL_ERROR)

    # --------------------------------------------------------------------------------------------------------- faults

    def _spend_idle_frame(self, what: str) -> None:
        if not self._idle_frames.spend(self._now):
            raise Http2Error(f"too many frames without use, the last of {what}", ENHANCE_YOUR_CALM)

    def _spend_reset(self) -> None:
        if not self._resets.spend(self._now):
            raise Http2Error("too many streams were reset", ENHANCE_YOUR_CALM)

    def _reset_by_fault(self, stream: Stream, code: int) -> None:
        """End a stream because of what the peer sent. It may not do so endlessly: a stream costs more than a frame."""
        self._spend_reset()
        is_known = stream.number in self.streams
        self.reset(stream, code)
        if is_known:
            self._events.append(Event(RESET, stream, NO_DATA, True))

    def _fail(self, error: Http2Error) -> None:
        self.failure = error
        self._out.append(frames.go_away(self._last_stream, error.code, str(error)))
        self._data, self._at = NO_DATA, 0
        self._block = []

    # -------------------------------------------------------------------------------------------------------- sending

    def take(self) -> bytes:
        """The bytes to be written next; each only once."""
        out = self._out
        if not out:
            return NO_DATA
        self._out = []
        return out[0] if len(out) == 1 else b"".join(out)

    @property
    def has_output(self) -> bool:
        """Whether `take` returns bytes."""
        return bool(self._out)

    def respond(self, stream: Stream, headers: bytes, data: bytes, last_headers: bytes) -> None:
        """A whole response: encoded headers, data, encoded trailers."""
        size = len(data)
        if (
            size > self._send_window
            or size > stream.send_window
            or size > self._frame_size_max
            or stream.unsent_size
            or stream.is_over
        ):
            self.send_headers(stream, headers, is_last=False)
            self.send_data(stream, data)
            self.send_last_headers(stream, last_headers)
            return
        self._send_window -= size
        self._has_sent = True
        number = stream.number
        self._out += (
            frame_head(HEADERS, END_HEADERS, number, len(headers)),
            headers,
            frame_head(DATA, 0, number, size),
            data,
            frame_head(HEADERS, END_HEADERS | END_STREAM, number, len(last_headers)),
            last_headers,
        )
        self._end_sending(stream)

    def send_headers(self, stream: Stream, block: bytes, *, is_last: bool) -> None:
        """Encoded headers of at most one frame, before any data."""
        if not stream.is_over:
            flags = END_HEADERS | END_STREAM if is_last else END_HEADERS
            self._out += (frame_head(HEADERS, flags, stream.number, len(block)), block)
            if is_last:
                self._end_sending(stream)

    def send_data(self, stream: Stream, data: bytes) -> bool:
        """Send what the windows allow, and keep the rest. False, and the stream is reset, if that were too much."""
        if stream.is_over or not data:
            return not stream.is_over
        if stream.unsent is None:
            stream.unsent = deque()
        stream.unsent.append(data)
        stream.unsent_count += 1
        stream.unsent_size += len(data)
        self.unsent_size += len(data)
        self._line_up(stream)
        self._send_unsent()
        if stream.unsent_size > STREAM_UNSENT_MAX and len(stream.unsent) > 1:
            # A single message may be larger: it is here already.
            self.reset(stream, ENHANCE_YOUR_CALM)
            return False
        return True

    def send_last_headers(self, stream: Stream, block: bytes) -> None:
        """Encoded trailers, after all data. Nothing follows."""
        if stream.is_over:
            return
        if stream.unsent_size:
            stream.last_headers = block
        else:
            self.send_headers(stream, block, is_last=True)

    def reset(self, stream: Stream, code: int) -> None:
        """End the stream at once; nothing if it is over."""
        if not stream.is_over:
            self._out.append(frames.rst_stream(stream.number, code))
            self._remember_reset(stream.number)
            self._drop(stream)

    def go_away(self, text: str) -> None:
        """Send GOAWAY: the peer opens no more streams. Those that are open go on."""
        if self.failure is None and self._refused_from == WINDOW_MAX:
            self._refused_from = self._last_stream
            self._out.append(frames.go_away(self._last_stream, NO_ERROR, text))

    def _end_sending(self, stream: Stream) -> None:
        """Everything is sent. If the peer goes on sending, its stream is reset."""
        stream.is_over = True
        if not stream.has_ended:
            self._out.append(frames.rst_stream(stream.number, NO_ERROR))
            self._remember_reset(stream.number)
        self._forget(stream)

    def _remember_reset(self, number: int) -> None:
        if len(self._reset_ids) >= RESET_IDS_MAX:
            del self._reset_ids[next(iter(self._reset_ids))]
        self._reset_ids[number] = None

    def _drop(self, stream: Stream) -> None:
        stream.is_over = stream.has_ended = True
        if stream.unsent is not None:
            self.unsent_size -= stream.unsent_size
            stream.unsent, stream.unsent_size = None, 0
        self._forget(stream)

    def _forget(self, stream: Stream) -> None:
        self.streams.pop(stream.number, None)
        self._ready.pop(stream.number, None)

    def _line_up(self, stream: Stream) -> None:
        """Streams whose own window is full stay out of the line: a peer may have a thousand of them looked at often."""
        if stream.unsent_size and stream.send_window > 0:
            self._ready.setdefault(stream.number, stream)
        else:
            self._ready.pop(stream.number, None)

    def _send_unsent(self) -> None:
        """As much as the windows allow, of each stream a part in turn."""
        while self._ready and self._send_window > 0:
            stream = self._ready.pop(next(iter(self._ready)))
            self._send_some(stream)
            self._line_up(stream)
            if not stream.unsent_size and stream.last_headers:
                self.send_headers(stream, stream.last_headers, is_last=True)

    def _send_some(self, stream: Stream) -> None:
        """Data frames of one stream, of SEND_TURN bytes at most."""
        turn = min(SEND_TURN, self._send_window, stream.send_window, stream.unsent_size)
        self._has_sent = True
        stream.send_window -= turn
        self._send_window -= turn
        self.unsent_size -= turn
        stream.unsent_size -= turn
        while turn > 0:
            size = min(turn, self._frame_size_max)
            self._out.append(frame_head(DATA, 0, stream.number, size))
            self._cut(stream, size)
            turn -= size
        self.freed.append(stream)

    def _cut(self, stream: Stream, size: int) -> None:
        """Move the next `size` unsent bytes to the output."""
        pieces = stream.unsent
        assert pieces is not None
        while size > 0:
            piece, at = pieces[0], stream.unsent_at
            count = min(size, len(piece) - at)
            self._out.append(piece if count == len(piece) else piece[at : at + count])
            size -= count
            if at + count == len(piece):
                pieces.popleft()
                stream.unsent_count -= 1
                stream.unsent_at = 0
            else:
                stream.unsent_at = at + count
