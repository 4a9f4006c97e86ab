"""One TCP connection, either side of it: frames in, frames out, requests of both directions in flight at once.

Responses of one turn of the event loop are sent in one write. The memory that a peer can occupy is bounded: a server
stops reading from a peer that does not read its responses; a client lets callers wait instead and keeps reading,
otherwise two full buffers would wait for each other for ever. Must not know what any request means.
"""

from __future__ import annotations

import asyncio
import logging
import math
import sys
from collections.abc import Awaitable, Callable
from functools import partial
from inspect import isawaitable
from time import monotonic
from typing import Any, Final, Protocol, TypeAlias, cast

from orbitmq.errors import PeerError, RemotingTimeout, SendRequestError
from orbitmq.message.hosts import encode_host
from orbitmq.net.budget import Budgets
from orbitmq.net.flow import Flow
from orbitmq.net.lateness import Lateness
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.command import FLAG_ONEWAY, FLAG_RESPONSE, Command
from orbitmq.wire.frame import (
    FRAME_SIZE_MAX,
    Frame,
    FrameDecoder,
    SendFrame,
    encode_frame,
    encode_head,
    parts_size,
)

_log = logging.getLogger(__name__)

# Unsent bytes at which reading from the peer stops: one large pull response.
WRITE_BUFFER_HIGH: Final = 4 << 20
WRITE_BUFFER_LOW: Final = 1 << 20
LONG_SECONDS: Final = 0.05  # seconds of a turn from which on the request is logged
TURN_COMMANDS: Final = 32  # of one read that are decoded for a turn, which takes a quarter of a millisecond
WRITE_BUFFER_MAX = 128 << 20  # held pulls may still respond to a paused peer; beyond this it is disconnected
# Bytes a caller that does not wait may queue before others and the socket get a turn.
WRITE_TURN_MAX: Final = 256 << 10
SILENCE_MIN_MS: Final = 1000  # a peer that is slower than a call's shorter timeout is busy, not dead
GATHERED_FROM: Final = 64 << 10  # bytes of a body in parts that go to the kernel as they are: less is cheaper copied,
GATHERED_PART_FROM: Final = 8 << 10  # unless its parts are this large
FAIR_FROM: Final = 32 << 10  # bytes of a read after which others get a turn; uvloop makes 32 reads of 250 KiB in one
CLOSE_GRACE_SECONDS: Final = 3.0  # how long a closed connection may wait for its peer to take the last bytes

Answer = Command | None
Handler = Callable[["Connection", Command], Answer | Awaitable[Answer]]
SendTaker = Callable[["Connection", SendFrame], bytes | None]
"""Handles a common send and returns the frame of its response, empty for none. None: it has done nothing."""


class Waiter(Protocol):
    """What waits for the response to a request: a future, or an object with its methods."""

    def done(self) -> bool:
        """Whether it waits no longer."""

    def set_result(self, response: Command, /) -> None:
        """Take the response."""

    def set_exception(self, error: Exception, /) -> None:
        """The call failed."""


_Call: TypeAlias = tuple[Waiter, float, float]  # its deadline by the loop's clock, and its timeout in milliseconds


class RequestRouter(Protocol):
    """What a connection needs of `net.routing.Router`."""

    handlers: dict[int, Handler]
    unsupported: Handler
    patience_ms: float
    send_taker: SendTaker | None
    taken_from: dict[int, Handler]

    def overdue(self, command: Command, waited_ms: float) -> Command | None: ...
    def failed(self, command: Command, error: BaseException) -> Command: ...


class Connection(asyncio.Protocol):
    """Protocol of one connection. `router` handles the peer's requests; `call` sends requests to the peer."""

    def __init__(
        self,
        router: RequestRouter,
        *,
        on_open: Callable[[Connection], None] | None = None,
        on_close: Callable[[Connection], None] | None = None,
        frame_size_max: int = FRAME_SIZE_MAX,
        typed: bool = True,
        serving: bool = True,
        lateness: Lateness | None = None,
        budgets: Budgets | None = None,
        refusals: Refusals | None = None,
    ) -> None:
        """`lateness` measures how long requests wait for the loop; `budgets` and `refusals` are shared."""
        self._router = router
        self._handlers = router.handlers
        self._on_open = on_open
        self._close_callbacks = [on_close] if on_close else []
        count_max = TURN_COMMANDS if serving else sys.maxsize
        self._take_send = router.send_taker if typed else None
        self._taken_from = router.taken_from
        self._decoder = FrameDecoder(
            size_max=frame_size_max, typed=typed, count_max=count_max, sends=self._take_send is not None
        )
        self._out: list[bytes | memoryview] = []
        self._out_size = 0
        self._lateness = lateness
        self.refusals = refusals or Refusals()
        self._budgets = budgets or Budgets(refusals=self.refusals)
        self._flow = Flow(serving=serving)
        self._backlog: list[Frame] = []  # read, but not handled before the peer has read earlier responses
        self._backlog_since = 0.0
        self._goes_on = False  # whether a turn is scheduled that serves it
        self._flush_scheduled = False
        self._gathers = False  # a part of _out is too large to be joined
        self._in_turn = False
        self._writable: asyncio.Future[None] | None = None  # what callers wait for while the peer takes nothing
        self._calls: dict[int, _Call] = {}
        self._timer: asyncio.TimerHandle | None = None  # of all calls: one of its own would be a tenth of a call's cost
        self._timer_at = math.inf
        self._tasks: set[asyncio.Task[None]] = set()
        self._cut_off: asyncio.TimerHandle | None = None
        self._bad_frame: PeerError | None = None  # what ended it
        self.loop = asyncio.get_running_loop()
        self.transport: asyncio.Transport | None = None
        self.is_open = False
        self.peer: tuple[str, int] = ("", 0)
        self.peer_host = b""  # the peer as the host field of a message
        self.local: tuple[str, int] = ("", 0)
        self.last_active = self.loop.time()  # seconds of the loop's clock
        self.last_heard = self.last_active
        self.place_until = 0.0  # by that clock: so long it takes a place of its address, though it ends before
        self.attributes: dict[str, Any] = {}  # state of the layers above about this peer

    def __repr__(self) -> str:
        return f"Connection({self.address})"

    @property
    def address(self) -> str:
        """`ip:port` of the peer."""
        return f"{self.peer[0]}:{self.peer[1]}"

    # ------------------------------------------------------------------------------------------ asyncio's callbacks

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)
        self.transport.set_write_buffer_limits(WRITE_BUFFER_HIGH, WRITE_BUFFER_LOW)
        self.peer = host_and_port(transport.get_extra_info("peername"))
        self.peer_host = encode_host(*self.peer) if self.peer[0] else b""
        self.local = host_and_port(transport.get_extra_info("sockname"))
        self.is_open = True
        if self._on_open:
            self._on_open(self)

    def data_received(self, data: bytes) -> None:
        self.last_active = self.last_heard = self.loop.time()
        if (commands := self._cut(data)) is None:
            return
        if self._backlog:
            self._backlog += commands
        else:
            self._take(commands, self._lateness.waited_ms() if self._lateness is not None else 0.0)
        if len(data) > FAIR_FROM and self._flow.serving and self.is_open and self.transport is not None:
            # Otherwise a peer whose responses fill the buffer again would be read for a third of a second while others
            # wait.
            self.transport.pause_reading()
            self.loop.call_soon(self._regulate)

    def _cut(self, data: bytes) -> list[Frame] | None:
        """The next commands; None if invalid data ended the connection."""
        try:
            commands = self._decoder.frames(data)
        except PeerError as error:
            self._end_by(error)
            return None
        pending = self._decoder.pending_size
        flow = self._flow
        if (pending or flow.frame_since is not None) and flow.receive(
            pending, is_new=bool(commands), now=self.last_heard
        ):
            self._budgets.incomplete.hold(self, flow.frame_bytes)
        return commands if self.is_open else None

    def _end_by(self, error: PeerError) -> None:
        """The peer has sent invalid data. Callers that wait get the error; without any it is logged."""
        self._bad_frame = error
        if self._flow.serving or not self._calls:
            self.refusals.note(Limit.MALFORMED, _log, "event=bad_frame peer=%s error=%s", self.address, error)
        self.abort()

    @property
    def frame_since(self) -> float:
        """When the incomplete frame began, in seconds of the loop's clock; infinite without one or while paused."""
        return self._flow.awaits_frame_since

    def eof_received(self) -> bool:
        return False  # a half-closed peer can no longer use a response

    def connection_lost(self, _exc: Exception | None) -> None:
        self.is_open = False
        if self._cut_off is not None:
            self._cut_off.cancel()
        self._out.clear()
        self._backlog.clear()
        self._decoder.drop()
        for budget in (self._budgets.incomplete, self._budgets.open, self._budgets.unread):
            budget.hold(self, 0)
        self._fail_calls()
        self._release_callers()
        for task in self._tasks:
            task.cancel()
        callbacks, self._close_callbacks = self._close_callbacks, []
        for callback in callbacks:
            callback(self)

    def pause_writing(self) -> None:
        self._flow.is_unread = True
        self._count_unread()
        self._regulate()

    def resume_writing(self) -> None:
        self._flow.is_unread = False
        self._budgets.unread.hold(self, 0)
        self._release_callers()
        self._go_on_soon()

    def _release_callers(self) -> None:
        if self._writable is not None and not self._writable.done():
            self._writable.set_result(None)
        self._writable = None

    # ---------------------------------------------------------------------------------------------------- responses

    def _take(self, commands: list[Frame], waited_ms: float) -> None:
        """Handle commands in order while the peer reads responses; the rest waits in the backlog.

        One read may contain thousands of short requests for long responses: pausing the reader alone would bound
        nothing.
        """
        self._in_turn = True
        begun = ends = monotonic()
        if len(commands) > 1 and self._flow.serving:
            ends = self._budgets.turn.ends(self.loop, begun)
            if begun > ends:
                self._in_turn = False
                self._wait_for_turn(commands, waited_ms)
                return
        if waited_ms > self._router.patience_ms and (busy_ms := self._counted_ms(waited_ms)) > self._router.patience_ms:
            decoded = [one for one in map(self._decoded, commands) if one is not None]
            commands = [one for one in decoded if not self._refuse_overdue(one, busy_ms)] if self.is_open else []
        last = len(commands)
        for count, command in enumerate(commands, 1):
            if not isinstance(command, SendFrame) and command.flag & FLAG_RESPONSE:
                self._resolve(command)
            else:
                if isinstance(command, SendFrame):
                    self._serve_send(command)
                else:
                    self._serve(command)
                if not self.is_open:  # disconnected or closed by this one: the others are dropped
                    break
                if self._out_size > WRITE_BUFFER_HIGH and self._flow.serving:
                    self._flush()
                    if self._flow.is_unread:
                        self._leave(commands[count:], waited_ms)
                        break
                if count < last and monotonic() > ends and self._flow.serving:
                    self._wait_for_turn(commands[count:], waited_ms)
                    break
        else:
            if self._decoder.has_more and self.is_open:
                self._wait_for_turn([], waited_ms)
        self._in_turn = False
        if self._out:
            self._flush()
        if (seconds := monotonic() - begun) >= LONG_SECONDS and commands:
            # The last one: a turn ends after the request that is too long.
            self._note_long(command.code, seconds)

    def _counted_ms(self, waited_ms: float) -> float:
        return waited_ms if self._lateness is None else self._lateness.busy_ms(waited_ms)

    def _note_long(self, code: int, seconds: float) -> None:
        if self._lateness is not None:
            self._lateness.took_long(code, seconds)

    def _leave(self, rest: list[Frame], waited_ms: float) -> None:
        """These, and bytes that are not decoded yet, must wait; they have waited since this time."""
        self._backlog = rest
        self._backlog_since = self.loop.time() - waited_ms / 1000

    def _wait_for_turn(self, rest: list[Frame], waited_ms: float) -> None:
        self._leave(rest, waited_ms)
        self._regulate()
        if not self._goes_on:
            self._goes_on = True
            self._budgets.turn.wait(self.loop, self._go_on)

    def _go_on_soon(self) -> None:
        if not self._goes_on:
            self._goes_on = True
            self.loop.call_soon(self._go_on)

    def _go_on(self) -> None:
        """The peer has read its responses, and others have had their turn: handle the backlog, then read again."""
        self._goes_on = False
        if self._flow.serving and self._flow.is_unread:
            return  # it takes nothing again; another call comes when it does
        backlog, self._backlog = self._backlog, []
        if not backlog and self._decoder.has_more and self.is_open:
            if (more := self._cut(b"")) is None:
                return
            backlog = more
        self._take(backlog, (self.loop.time() - self._backlog_since) * 1000)
        self._regulate()

    def _refuse_overdue(self, command: Command, waited_ms: float) -> bool:
        """Refuse a request that has waited too long; False if it may still be handled."""
        refusal = None if command.flag & FLAG_RESPONSE else self._router.overdue(command, waited_ms)
        if refusal is not None:
            self._answer(command, refusal)
        return refusal is not None

    def _decoded(self, frame: Frame) -> Command | None:
        """None, and the connection ends, if the frame is invalid after all: what a common send needs is read first."""
        if not isinstance(frame, SendFrame):
            return frame
        try:
            return self._decoder.command(frame)
        except PeerError as error:
            self._end_by(error)
            return None

    def _serve_send(self, frame: SendFrame) -> None:
        answer: bytes | None = None
        # A handler that was wrapped or replaced since receives every request.
        if self._take_send is not None and self._handlers.get(frame.code) is self._taken_from.get(frame.code):
            try:
                answer = self._take_send(self, frame)
            except Exception as error:  # as in _serve
                if (failed := self._decoded(frame)) is not None:
                    self._answer(failed, self._router.failed(failed, error))
                return
        if answer is None:
            if (command := self._decoded(frame)) is not None:
                self._serve(command)
        elif answer and self.is_open:
            self._out.append(answer)
            self._out_size += len(answer)

    def _serve(self, command: Command) -> None:
        handler = self._handlers.get(command.code, self._router.unsupported)
        try:
            answer = handler(self, command)
        except Exception as error:  # an error becomes the response; the connection stays open
            answer = self._router.failed(command, error)
        if answer is not None:
            self._give(command, answer)

    def _give(self, command: Command, answer: Answer | Awaitable[Answer]) -> None:
        if type(answer) is Command:
            self._answer(command, answer)
        elif isawaitable(answer):
            self._work(command, answer)

    def _answer(self, command: Command, answer: Command) -> None:
        if not command.flag & FLAG_ONEWAY:
            self.send(answer)

    def _work(self, command: Command, answer: Awaitable[Answer]) -> None:
        """Respond with the result of a coroutine."""
        task = self.loop.create_task(self._finish(command, answer), name=f"request-{command.code}")
        self._tasks.add(task)
        if self._flow.begin(len(command.body)):
            self._check_limits()
        task.add_done_callback(partial(self._worked, len(command.body)))

    async def _finish(self, command: Command, answer: Awaitable[Answer]) -> None:
        try:
            found = await answer
        except Exception as error:  # as in _serve
            found = self._router.failed(command, error)
        if found is not None:
            self._answer(command, found)

    def _worked(self, size: int, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if self._flow.end(size):
            self._lift_limits()

    def defer(self, command: Command) -> None:
        """A handler that returns no response now will `complete` the request: cheaper than a task, same limits."""
        if self._flow.begin(len(command.body)):
            self._check_limits()

    def complete(self, command: Command, answer: Answer | Awaitable[Answer]) -> None:
        """Send the response to a deferred request; `answer` is what its handler would have returned."""
        if self._flow.end(len(command.body)):
            self._lift_limits()
        if answer is not None:
            self._give(command, answer)

    def failed(self, command: Command, error: Exception) -> Command:
        """What to `complete` a request with after an unexpected error."""
        return self._router.failed(command, error)

    def _check_limits(self) -> None:
        """After a request has begun."""
        if self.is_open and (size := self._flow.counted_bytes):
            self._budgets.open.hold(self, size)
        if self._flow.is_full(self._budgets.open.is_tight):
            self._regulate()

    def _lift_limits(self) -> None:
        """After a request has ended."""
        if self.is_open:
            self._budgets.open.hold(self, self._flow.counted_bytes)
        if not self._flow.state:
            self._regulate()

    # ------------------------------------------------------------------------------------------------------ sending

    def send(self, command: Command) -> None:
        """Queue a frame; it leaves with the others of this turn. A closed connection drops it, as the wire would."""
        if not self.is_open:
            return
        body_size = parts_size(command)
        if body_size >= GATHERED_FROM or (body_size and body_size >= GATHERED_PART_FROM * len(command.body_parts)):
            self._out += (encode_head(command, body_size), *command.body_parts)
            self._gathers = True
            self._out_size += body_size
        else:
            frame = encode_frame(command, body_size)
            self._out.append(frame)
            self._out_size += len(frame)
        if not self._in_turn and not self._flush_scheduled:
            self._flush_scheduled = True
            self.loop.call_soon(self._flush)

    def _flush(self) -> None:
        self._flush_scheduled = False
        if not self._out or self.transport is None or not self.is_open:
            return
        out, self._out, self._out_size = self._out, [], 0
        self.last_active = self.loop.time()
        if self._gathers:
            self._gathers = False
            self.transport.writelines(out)
        else:
            self.transport.write(out[0] if len(out) == 1 else b"".join(out))
        if self._flow.is_unread:
            self._count_unread()

    def _count_unread(self) -> None:
        """The unsent bytes of a peer that does not read: too many end the connection."""
        if self.transport is None or not self.is_open:
            return
        size = self.transport.get_write_buffer_size()
        if size > WRITE_BUFFER_MAX:
            text = "event=slow_reader peer=%s unread_bytes=%d limit=%d"
            self.refusals.note(Limit.UNREAD_BYTES, _log, text, self.address, size, WRITE_BUFFER_MAX)
            self.abort()
        else:
            self._budgets.unread.hold(self, size)

    def _regulate(self) -> None:
        """Read from the peer, or stop, as `Flow` decides."""
        if self.transport is None or self.transport.is_closing():
            return
        if self._flow.regulate(self.has_left, self._budgets.open.is_tight, self.loop.time()):
            self.transport.resume_reading()
        else:
            self.transport.pause_reading()

    # ----------------------------------------------------------------------------------------------------- requests

    async def call(self, command: Command, timeout_ms: float) -> Command:
        """Send a request and wait for its response, whatever its code.

        RemotingTimeout if none arrives in `timeout_ms`; SendRequestError if the connection is or gets closed.
        """
        if self._flow.is_unread:
            timeout_ms = await self.wait_writable(timeout_ms)
        if not self.is_open:
            raise SendRequestError(f"connection to {self.address} is closed")
        future: asyncio.Future[Command] = self.loop.create_future()
        opaque = self.start_call(command, timeout_ms, future)
        try:
            return await future
        finally:
            self.forget(opaque)

    def start_call(self, command: Command, timeout_ms: float, waiter: Waiter) -> int:
        """Send a request over an open connection. `waiter` gets the response, or one of the errors of `call`, unless it
        is `done` before. Returns the number for `forget`.
        """
        opaque = command.opaque
        assert opaque is not None, "a request has a number"
        deadline = self.loop.time() + timeout_ms / 1000
        self._calls[opaque] = (waiter, deadline, timeout_ms)
        if deadline < self._timer_at:
            self._arm(deadline)
        try:
            self.send(command)
        except BaseException:
            self.forget(opaque)
            raise
        return opaque

    def forget(self, opaque: int) -> None:
        """Nobody waits for the response any more."""
        self._calls.pop(opaque, None)

    async def wait_writable(self, timeout_ms: float) -> float:
        """Return the milliseconds left once the peer takes bytes again; RemotingTimeout when it does not."""
        started = self.loop.time()
        if self._out_size > WRITE_TURN_MAX:
            await asyncio.sleep(0)
        while self._flow.is_unread and self.is_open:
            if self._writable is None:
                self._writable = self.loop.create_future()
            left_seconds = timeout_ms / 1000 - (self.loop.time() - started)
            try:
                async with asyncio.timeout(left_seconds):
                    await asyncio.shield(self._writable)
            except TimeoutError as error:
                raise RemotingTimeout(f"{self.address} took no bytes for {timeout_ms:.0f} ms") from error
        return timeout_ms - (self.loop.time() - started) * 1000

    def _arm(self, at: float) -> None:
        if self._timer is not None:
            self._timer.cancel()
        self._timer, self._timer_at = self.loop.call_at(at, self._time_out), at

    def _time_out(self) -> None:
        now = max(self.loop.time(), self._timer_at)  # a timer may be half a millisecond early
        self._timer, self._timer_at = None, math.inf
        overdue = [(opaque, call) for opaque, call in self._calls.items() if call[1] <= now]
        for opaque, _ in overdue:
            del self._calls[opaque]
        if self._calls:
            self._arm(min([call[1] for call in self._calls.values()]))
        longest_ms = 0.0
        for _, (waiter, _, timeout_ms) in overdue:
            longest_ms = max(longest_ms, timeout_ms)
            if not waiter.done():
                waiter.set_exception(RemotingTimeout(f"no response from {self.address} in {timeout_ms:.0f} ms"))
        if self._flow.serving or not overdue:
            return  # idle clients send nothing but heartbeats; dead ones do not send these either
        silent_ms = (self.loop.time() - self.last_heard) * 1000
        if longest_ms >= SILENCE_MIN_MS and silent_ms >= longest_ms:
            # Nothing was received at all: a dead host or a network partition would keep this connection, and all calls
            # on it, for long.
            self.abort()

    def _resolve(self, command: Command) -> None:
        call = None if command.opaque is None else self._calls.pop(command.opaque, None)
        if call is None:
            _log.debug("event=late_response peer=%s opaque=%s", self.address, command.opaque)
        elif not call[0].done():
            call[0].set_result(command)

    # ------------------------------------------------------------------------------------------------------ closing

    @property
    def has_left(self) -> bool:
        """Whether some of what was read is not handled yet, and not refused."""
        return bool(self._backlog) or self._decoder.has_more

    @property
    def is_idle(self) -> bool:
        """Whether the connection is idle: no request in flight, nothing unsent."""
        if self._calls or self._flow.open_requests or self._out or self.has_left:
            return False
        return self.transport is None or self.transport.get_write_buffer_size() == 0

    @property
    def takes_more(self) -> bool:
        """Whether the connection is open and the peer reads."""
        return self.is_open and not self._flow.is_unread

    def when_closed(self, callback: Callable[[Connection], None]) -> None:
        """Call back once when the connection is closed."""
        self._close_callbacks.append(callback)

    def close(self) -> None:
        """Write what is queued, then close. Calls in flight fail at once: responses are no longer read."""
        if self.transport is None or not self.is_open:
            return
        self._flush()
        self.is_open = False
        self._backlog.clear()
        self._decoder.drop()
        self.transport.close()
        self._cut_off = self.loop.call_later(CLOSE_GRACE_SECONDS, self.transport.abort)
        self._fail_calls()

    def abort(self) -> None:
        """Close at once; unsent responses are lost."""
        self.is_open = False
        if self.transport is not None:
            self.transport.abort()

    def _fail_calls(self) -> None:
        calls, self._calls = self._calls, {}
        if self._timer is not None:
            self._timer.cancel()
            self._timer, self._timer_at = None, math.inf
        text = f"connection to {self.address} closed before the response arrived"
        if self._bad_frame is not None:
            text = f"{self.address} sent no response that can be read: {self._bad_frame}"
        for waiter, _, _ in calls.values():
            if not waiter.done():
                waiter.set_exception(SendRequestError(text))


def host_and_port(name: Any) -> tuple[str, int]:
    """A socket name as (ip, port); IPv4 in IPv6 clothes (`::ffff:1.2.3.4`) counts as IPv4, as peers expect it."""
    if not isinstance(name, tuple):
        return "", 0
    host = str(name[0])
    return host.removeprefix("::ffff:") if "." in host else host, int(name[1])
