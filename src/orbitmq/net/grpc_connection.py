"""Calls of gRPC over one connection: requests to handlers, responses to the peer. Must not know what a call means.

Responses of one turn are sent in one write. What a peer may make the server hold is bounded: messages that are not
complete, calls that are open, and responses that it does not take.
"""

from __future__ import annotations

import asyncio
import logging
import math
from collections.abc import Callable, Mapping
from typing import Any, Final, cast

from orbitmq.errors import GrpcError
from orbitmq.net.budget import COUNTED_FROM, Budgets
from orbitmq.net.connection import host_and_port
from orbitmq.net.grpc import Call, Method
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.http2.connection import CONTENT, NO_DATA, REQUEST, Event, Http2Connection, Stream
from orbitmq.wire.http2.grpc import (
    DEADLINE_EXCEEDED,
    GZIP,
    IDENTITY,
    MESSAGE_SIZE_MAX,
    RESOURCE_EXHAUSTED,
    UNAVAILABLE,
    UNIMPLEMENTED,
    http_refusal,
    is_grpc,
    only_trailers,
    parse_timeout,
)

_log = logging.getLogger(__name__)

TURN_EVENTS: Final = 64  # of one read that are handled before others have a turn: some 32 calls
FAIR_FROM: Final = 32 << 10  # bytes of a read after which others get a turn; uvloop makes 32 reads of 250 KiB in one
WRITE_BUFFER_HIGH: Final = 4 << 20  # unsent bytes of the socket at which reading from the peer stops
WRITE_BUFFER_LOW: Final = 1 << 20
UNSENT_MAX: Final = 128 << 20  # bytes that a peer has not taken, of all its calls; beyond this it is disconnected
PENDING_SPARE: Final = 32 << 20  # bytes of incomplete messages of one connection, besides one of the largest size
OPEN_BYTES_MAX: Final = 64 << 20  # messages of the open calls of a connection, as `net.flow` has it
OPEN_COUNTED_FROM: Final = 1 << 20  # bytes of open calls that any connection may have without being counted
CLOSE_GRACE_SECONDS: Final = 3.0  # how long a connection that is closing waits for its peer
TIMER_STEP: Final = 0.01  # seconds between two looks at deadlines, at least
TIMEOUT_MAX: Final = 1e8  # seconds: some clients send the largest number for none, and a timer has to end
FAILURE_LINES: Final = 20  # of handlers that raise, each with its trace, per interval


class GrpcConnection:
    """Protocol of one connection, for an event loop. `methods` are by their paths."""

    def __init__(
        self,
        methods: Mapping[str, Method],
        *,
        on_open: Callable[[GrpcConnection], None] | None = None,
        on_close: Callable[[GrpcConnection], None] | None = None,
        message_size_max: int = MESSAGE_SIZE_MAX,
        budgets: Budgets | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        """`budgets` and `refusals` are shared. `message_size_max` is bytes, also of a message when decompressed."""
        self._methods = methods
        self._on_open = on_open
        self._close_callbacks = [on_close] if on_close is not None else []
        self.message_size_max = message_size_max
        self.refusals = refusals or Refusals()
        self._budgets = budgets or Budgets(refusals=self.refusals)
        self.http = Http2Connection()
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self.peer: tuple[str, int] = ("", 0)
        self.local: tuple[str, int] = ("", 0)
        self.address = ""
        self.now = self.loop.time()
        """When the bytes came that are handled now, in seconds of the loop's clock."""
        self.place_until = 0.0  # by that clock: so long it takes a place of its address, though it ends before
        self.attributes: dict[str, Any] = {}
        """State of the layers above about this peer."""
        self._last_call = self.now
        self._in_turn = self._write_scheduled = False
        self._goes_on = False  # whether a turn is scheduled that handles the rest of what was read
        self._is_unread = False  # the socket takes nothing
        self._reads = True
        self._is_draining = False
        self._started: list[Call] = []  # calls of this turn with a deadline
        self._unread_held = 0  # bytes that the peer does not take, as far as they count
        self._pending_size = 0  # bytes of incomplete messages
        self._open_size = 0  # bytes of the messages of open calls
        self._timer: asyncio.TimerHandle | None = None  # of the deadlines of all calls
        self._timer_at = math.inf
        self._cut_off: asyncio.TimerHandle | None = None

    def __repr__(self) -> str:
        return f"GrpcConnection({self.address})"

    # ------------------------------------------------------------------------------------------ asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """A transport for this protocol."""
        made = cast("asyncio.Transport", transport)
        self.transport = made
        made.set_write_buffer_limits(WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW)
        self.peer = host_and_port(made.get_extra_info("peername"))
        self.local = host_and_port(made.get_extra_info("sockname"))
        self.address = f"{self.peer[0]}:{self.peer[1]}"
        self.is_open = True
        if self._on_open is not None:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        """Bytes from the peer."""
        if not self.is_open:
            return
        self.now = self.loop.time()
        self._take(data)
        if len(data) > FAIR_FROM:
            self._let_others()

    def _let_others(self) -> None:
        if self.is_open and self.transport is not None and self._reads:
            self._reads = False
            self.transport.pause_reading()
            self.loop.call_soon(self._regulate)

    def eof_received(self) -> bool:
        """A half-closed peer can no longer use a response."""
        return False

    def pause_writing(self) -> None:
        """The socket takes nothing."""
        self._is_unread = True
        self._count_unread()
        self._regulate()

    def resume_writing(self) -> None:
        """The socket takes bytes again."""
        self._is_unread = False
        self._count_unread()
        self._regulate()
        for call in self.calls():
            call.tell_room()

    def connection_lost(self, _exc: Exception | None) -> None:
        """The transport is gone: all calls are over."""
        self.is_open = False
        for timer in (self._cut_off, self._timer):
            if timer is not None:
                timer.cancel()
        self._cut_off = self._timer = None
        for budget in (self._budgets.incomplete, self._budgets.open, self._budgets.unread):
            budget.hold(self, 0)
        for call in self.calls():
            call.cut_off()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)

    # ------------------------------------------------------------------------------------------------------ receiving

    def _take(self, data: bytes) -> None:
        http = self.http
        self._in_turn = True
        for event in http.receive(data, self.now, TURN_EVENTS):
            self._handle(event)
        if http.freed:
            self._tell_of_room()
        self._in_turn = False
        if self._started:
            self._watch()
        self._write()
        if http.failure is not None:
            self._end_by_failure()
        elif http.has_more and self.is_open and not self._goes_on:
            self._goes_on = True
            self._regulate()
            self._budgets.turn.wait(self.loop, self._go_on)

    def _handle(self, event: Event) -> None:
        stream = event.stream
        if event.kind == REQUEST:
            self._begin(stream, is_last=event.is_last)
        elif stream.owner is not None:
            call = cast("Call", stream.owner)
            if event.kind != CONTENT:
                call.cut_off()
            elif not call.is_over:
                call.take(event.data, is_last=event.is_last)

    def _begin(self, stream: Stream, *, is_last: bool) -> None:
        """Begin a call, or say why there is none."""
        self._last_call = self.now
        method = self._methods.get(stream.path)
        refusal = self._refusal(stream, method)
        if refusal or method is None:
            self.http.send_headers(stream, refusal, is_last=True)
            return
        method.count += 1
        call = Call(self, stream, method, stream.headers.get("grpc-encoding", IDENTITY))
        stream.owner = call
        timeout = stream.headers.get("grpc-timeout")
        if timeout is not None and not self._limit_time(call, timeout):
            return
        call.open()
        if is_last and not call.is_over:
            call.take(NO_DATA, is_last=True)

    def _refusal(self, stream: Stream, method: Method | None) -> bytes:
        """The encoded response to a request that is no call; empty if it is one."""
        headers = stream.headers
        if stream.is_too_large:
            return only_trailers(RESOURCE_EXHAUSTED, "the headers are too large")
        if stream.method != "POST":
            return http_refusal(405)
        if not is_grpc(headers.get("content-type", "")):
            return http_refusal(415)
        if method is None:
            return only_trailers(UNIMPLEMENTED, f"there is no method {stream.path}")
        encoding = headers.get("grpc-encoding", IDENTITY)
        if encoding not in (IDENTITY, GZIP):
            return only_trailers(UNIMPLEMENTED, f"grpc-encoding {encoding} is not supported")
        return NO_DATA

    def _tell_of_room(self) -> None:
        freed, self.http.freed = self.http.freed, []
        for stream in freed:
            if stream.owner is not None:
                cast("Call", stream.owner).tell_room()

    def _go_on(self) -> None:
        """Others have had their turn: handle more of what was read."""
        self._goes_on = False
        if self.is_open:
            self.now = self.loop.time()
            self._take(NO_DATA)
            self._regulate()

    def _regulate(self) -> None:
        """Read from the peer, or stop: it takes no responses, much is not handled, or its open calls hold too much."""
        if self.transport is None or not self.is_open or self.transport.is_closing():
            return
        is_full = self._open_size > OPEN_COUNTED_FROM and (
            self._open_size >= OPEN_BYTES_MAX or self._budgets.open.is_tight
        )
        reads = not (self._is_unread or self._goes_on or is_full)
        if reads == self._reads:
            return
        self._reads = reads
        if not reads:
            self.transport.pause_reading()
            return
        if self.http.incomplete_since < math.inf:
            self.http.incomplete_since = self.loop.time()  # the delay was not the peer's
        self.transport.resume_reading()

    def _end_by_failure(self) -> None:
        error = self.http.failure
        assert error is not None
        text = "event=bad_http2 peer=%s code=%d error=%s"
        self.refusals.note(Limit.MALFORMED, _log, text, self.address, error.code, error)
        self._finish()

    # -------------------------------------------------------------------------------------------------------- sending

    def write_soon(self) -> None:
        """Write what calls have sent, with the rest of this turn of the event loop."""
        if not self._in_turn and not self._write_scheduled and self.is_open:
            self._write_scheduled = True
            self.loop.call_soon(self._write)

    def _write(self) -> None:
        self._write_scheduled = False
        http = self.http
        if http.freed:
            http.freed.clear()
        if self.transport is not None and self.is_open and http.has_output:
            self.transport.write(http.take())
        if http.unsent_size or self._is_unread or self._unread_held:
            self._count_unread()
        if self._is_draining:
            self._check_drained()

    @property
    def unread_size(self) -> int:
        """Bytes that the socket does not take; 0 while it takes some."""
        return self.transport.get_write_buffer_size() if self._is_unread and self.transport is not None else 0

    def _count_unread(self) -> None:
        """What the peer does not take: too much ends the connection."""
        if not self.is_open:
            return
        size = self.http.unsent_size + self.unread_size
        if size > UNSENT_MAX:
            text = "event=slow_reader peer=%s unread_bytes=%d limit=%d"
            self.refusals.note(Limit.UNREAD_BYTES, _log, text, self.address, size, UNSENT_MAX)
            self.abort()
            return
        counted = size if size > COUNTED_FROM else 0
        if counted != self._unread_held:
            self._unread_held = counted
            self._budgets.unread.hold(self, counted)

    # ----------------------------------------------------------------------------------------------------- accounting

    def hold_pending(self, call: Call, size: int) -> bool:
        """`size` bytes of an incomplete message of this call are here. False if the connection ends because of it."""
        total = self._pending_size + size - call.pending_size
        if size and total > self.message_size_max + PENDING_SPARE:
            raise GrpcError(RESOURCE_EXHAUSTED, "the incomplete messages of this connection are too large")
        before, self._pending_size, call.pending_size = self._pending_size, total, size
        if (total > COUNTED_FROM or before > COUNTED_FROM) and self.is_open:
            self._budgets.incomplete.hold(self, total if total > COUNTED_FROM else 0)
        return self.is_open

    def hold_open(self, call: Call, size: int) -> None:
        """A call with a message of this size stays open."""
        call.open_size = size
        self._open_size += size
        if self._open_size > OPEN_COUNTED_FROM and self.is_open:
            self._budgets.open.hold(self, self._open_size)
            self._regulate()

    def release(self, call: Call) -> None:
        """The call is over."""
        if not self._in_turn:
            self.now = self.loop.time()
        self._last_call = self.now
        if call.pending_size:
            self.hold_pending(call, 0)
        if call.open_size:
            was_counted = self._open_size > OPEN_COUNTED_FROM
            self._open_size -= call.open_size
            call.open_size = 0
            if was_counted and self.is_open:
                self._budgets.open.hold(self, self._open_size if self._open_size > OPEN_COUNTED_FROM else 0)
                self._regulate()
        self.write_soon()

    def calls(self) -> list[Call]:
        """Those that are open, also such whose last bytes are not sent yet."""
        owners = [stream.owner for stream in self.http.streams.values()]
        return [cast("Call", owner) for owner in owners if owner is not None]

    def note_failure(self, call: Call, error: Exception) -> None:
        """A handler has raised: one line with the trace."""
        text = "event=call_failed peer=%s path=%s"
        self.refusals.log(_log, text, self.address, call.path, level=logging.ERROR, lines=FAILURE_LINES, fault=error)

    def note_unread(self, stream: Stream) -> None:
        """A call is over because the peer does not take its messages."""
        text = "event=slow_stream peer=%s path=%s"
        self.refusals.note(Limit.UNREAD_BYTES, _log, text, self.address, stream.path)

    # ---------------------------------------------------------------------------------------------------------- times

    def _limit_time(self, call: Call, timeout: str) -> bool:
        """Note the deadline. It needs a timer if the call is still open at the end of this turn."""
        try:
            seconds = parse_timeout(timeout)
        except GrpcError as error:
            call.end(error.status, str(error))
            return False
        call.timeout_seconds = seconds
        call.deadline = self.now + min(seconds, TIMEOUT_MAX)
        self._started.append(call)
        return True

    def _watch(self) -> None:
        started, self._started = self._started, []
        for call in started:
            if not call.is_sent and call.deadline < self._timer_at:
                self._arm(call.deadline)

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self.loop.call_at(at, self._time_out), at

    def _time_out(self) -> None:
        """End the calls whose time has passed."""
        self.now = max(self.loop.time(), self._timer_at)  # a timer may be half a millisecond early
        self._timer, self._timer_at = None, math.inf
        for call in self.calls():
            if call.deadline <= self.now:
                call.deadline = math.inf
                call.end_for(DEADLINE_EXCEEDED, "the time of the call has passed")
        next_at = min([call.deadline for call in self.calls()], default=math.inf)
        if next_at < self._timer_at and self.is_open:
            self._arm(max(next_at, self.now + TIMER_STEP))

    @property
    def last_active(self) -> float:
        """When the last call was open, in seconds of the loop's clock; infinite while one is."""
        return math.inf if self.http.streams else self._last_call

    @property
    def frame_since(self) -> float:
        """When the incomplete frame began, by that clock; infinite without one or while nothing is read."""
        return self.http.incomplete_since if self._reads else math.inf

    def end_slow(self, before: float) -> None:
        """End the calls whose request began before this time and is not complete, or whose peer has taken nothing of
        the end of the response since.
        """
        slow = [call for call in self.calls() if call.incomplete_since < before]
        for call in slow:
            text = "event=call_too_slow peer=%s path=%s"
            self.refusals.note(Limit.FRAME_TIME, _log, text, self.address, call.path)
            call.end_for(DEADLINE_EXCEEDED, "the request took too long to arrive")

    # -------------------------------------------------------------------------------------------------------- closing

    @property
    def has_left(self) -> bool:
        """Whether some of what was read is not handled yet."""
        return self.is_open and self.http.has_more

    @property
    def is_idle(self) -> bool:
        """Whether no call is open and nothing unsent."""
        if self.http.streams or self.http.has_output or self.has_left:
            return False
        return self.transport is None or self.transport.get_write_buffer_size() == 0

    def drain(self) -> None:
        """Have the peer open no more calls. The connection closes when those that are open have ended."""
        if self.is_open and not self._is_draining:
            self._is_draining = True
            self.http.go_away("the server closes this connection")
            self._write()

    def _check_drained(self) -> None:
        if not self.http.streams and self._cut_off is None and self.is_open:
            # The peer closes first: then no call that it has just sent is lost without an answer.
            self._cut_off = self.loop.call_later(CLOSE_GRACE_SECONDS, self.close)

    def close(self) -> None:
        """End the open calls with UNAVAILABLE, write what is queued, then close."""
        if self.transport is None or not self.is_open:
            return
        self._is_draining = True
        self.http.go_away("the server closes this connection")
        self._in_turn = True
        for call in self.calls():
            call.end_for(UNAVAILABLE, "the server closes this connection")
        self._in_turn = False
        self._finish()

    def _finish(self) -> None:
        """Write what is queued, then close. Calls that are open are over."""
        if self.transport is None or not self.is_open:
            return
        self._write()
        self.is_open = False
        self.transport.close()
        if self._cut_off is not None:
            self._cut_off.cancel()
        self._cut_off = self.loop.call_later(CLOSE_GRACE_SECONDS, self.transport.abort)
        for call in self.calls():
            call.cut_off()

    def abort(self) -> None:
        """Close at once; unsent responses are lost."""
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()
