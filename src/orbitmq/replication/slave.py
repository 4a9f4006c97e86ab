"""The slave's end: connects to the master, reports the end of its log, and appends what it receives.

Before the first report it verifies that this log is a prefix of the master's: the last message must be the same there.
A log that differs is not changed, and reported; the operator decides.
"""

from __future__ import annotations

import asyncio
import errno
import logging
from collections import deque
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Protocol, cast

from orbitmq.errors import LogsDiffer, OrbitMQError, StoreError, cause_of
from orbitmq.message.hosts import address_text
from orbitmq.net.remoting import Remoting, split_address
from orbitmq.operations.pulls import view_message
from orbitmq.replication.agreement import check_agreement, log_limits
from orbitmq.replication.protocol import REPORT, Pieces
from orbitmq.store.options import StoreOptions
from orbitmq.store.replica import ReplicaStore

_log = logging.getLogger(__name__)

Confirmed = Callable[[int], object]  # an offset

CONNECT_SECONDS = 5.0
PAUSE_FIRST_SECONDS, PAUSE_MAX_SECONDS = 0.1, 5.0  # RocketMQ waits 5 s each time
REFUSED_PAUSE_SECONDS = 10.0  # logs that differ stay so until an operator acts
TURN_BYTES = 32 << 10  # entered before other work gets its turn of the event loop: some hundred messages
TURN_SECONDS = 0.004  # or for so long
PART_BYTES, PART_BYTES_SLOW = 8 << 10, 2 << 10  # entered before the clock is looked at; where that was too long
BACKLOG_MAX = 4 << 20  # bytes that have come and have no room yet; the master is not read then
PIECE_BYTES = 256  # what a piece takes in memory besides its own: signs of life and single bytes fill the backlog, too
NO_ROOM_SECONDS = 0.2  # until a full or slow disk is asked again
UNREACHABLE = (errno.EHOSTUNREACH, errno.ENETUNREACH, errno.EHOSTDOWN)
REPLICATION_DISTANCE = 1  # how far the port for slaves is above the port for clients, at every broker


@dataclass(slots=True)
class FollowingState:
    """How the copying goes. `refusal` says why it does not; `heard` is the loop's time of the last bytes. `master_end`
    is where the master's log ended when it was asked, at the loop's time `master_end_at`; -1 before that.
    `was_unreachable` says that since the last connection the master was neither copied from nor known to be down.
    `tables_at` is the loop's time when topics, groups and offsets had last been copied, None before that.
    """

    master: str = ""
    is_connected: bool = False
    refusal: str = ""
    heard: float = 0.0
    was_unreachable: bool = False
    master_end: int = -1
    master_end_at: float = 0.0
    tables_at: float | None = None


class MasterLink(asyncio.Protocol):
    """The connection to the master; `ended` gets the reason when it ends. A member of an election begins it with its
    `introduction`, and learns what is `confirmed`.
    """

    def __init__(
        self, store: ReplicaStore, state: FollowingState, introduction: bytes = b"", confirmed: Confirmed | None = None
    ) -> None:
        loop = asyncio.get_running_loop()
        self.ended: asyncio.Future[Exception] = loop.create_future()
        self._store = store
        store.on_room = self._go_on
        self._state = state
        self._loop = loop
        self._pieces = Pieces(elects=bool(introduction))
        self._introduction = introduction
        self._confirmed = confirmed
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[tuple[int, memoryview]] = deque()  # has come and is not copied yet
        self._waiting_bytes = 0
        self._timer: asyncio.Handle | None = None
        self._part = PART_BYTES
        self._is_paused = False
        self._reported = -1
        self._reported_at = 0.0

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has one of its own
        self._state.is_connected = True
        self._state.heard = self._loop.time()
        self._transport.write(self._introduction)
        self._report(self._store.copied_to)

    def connection_lost(self, exc: Exception | None) -> None:
        self._state.is_connected = False
        if self._timer is not None:
            self._timer.cancel()
        self._end(exc or ConnectionResetError("the master closed the connection"))

    def data_received(self, data: bytes) -> None:
        self._state.heard = self._loop.time()
        confirmed = self._pieces.confirmed
        try:
            for piece in self._pieces.feed(data):
                self._waiting.append(piece)
                self._waiting_bytes += len(piece[1]) + PIECE_BYTES
        except OrbitMQError as error:
            self._end(error)
            return
        if self._timer is None:
            self._copy()
        if self._pieces.confirmed != confirmed and self._confirmed is not None:
            self._confirmed(self._pieces.confirmed)
        if self._waiting_bytes > BACKLOG_MAX and not self._is_paused and self._transport is not None:
            self._is_paused = True
            self._transport.pause_reading()

    def look(self, now: float, heartbeat: float, silence: float) -> None:
        """Every now and then: tell the master that this end is there, and notice when it is not."""
        if now - self._state.heard > silence and not self._is_paused:  # who is not listened to is not silent
            self._end(TimeoutError(f"the master has been silent for {now - self._state.heard:.0f} s"))
        elif now - self._reported_at > heartbeat:
            self._report(max(self._reported, self._store.safe_to))

    def close(self) -> None:
        if self._transport is not None:
            self._transport.abort()

    def _go_on(self) -> None:
        """Messages are entered that had found no room in their queues."""
        if self._timer is not None:
            self._timer.cancel()
            self._copy()

    def _copy(self) -> None:
        """A bounded part of what waits; the rest in the next turn, or when there is room again."""
        self._timer = None
        if self.ended.done():
            return
        budget, begun = TURN_BYTES, self._loop.time()
        try:
            while self._waiting and budget > 0 and self._loop.time() - begun < TURN_SECONDS:
                place, data = self._waiting[0]
                part = data[: min(budget, self._part)]
                if not self._store.copy(place, part, True):
                    self._timer = self._loop.call_later(NO_ROOM_SECONDS, self._copy)
                    break
                budget -= len(part) or 1
                self._waiting_bytes -= len(part)
                if len(part) < len(data):
                    self._waiting[0] = place + len(part), data[len(part) :]
                else:
                    self._waiting.popleft()
                    self._waiting_bytes -= PIECE_BYTES
            self._part = PART_BYTES if self._loop.time() - begun < TURN_SECONDS else PART_BYTES_SLOW
        except Exception as error:  # whatever it is, the link ends with it, and is made anew
            self._end(error)
            return
        if self._waiting and self._timer is None:
            self._timer = self._loop.call_soon(self._copy)
        if self._is_paused and self._waiting_bytes <= BACKLOG_MAX // 2 and self._transport is not None:
            self._is_paused, self._state.heard = False, self._loop.time()
            self._transport.resume_reading()
        self._acknowledge()

    def _acknowledge(self) -> None:
        """With SYNC_FLUSH when it is on disk, else at once."""
        copied = self._store.copied_to
        if self._store.safe_to >= copied:
            if copied > self._reported:
                self._report(copied)
        else:
            self._store.when_flushed(copied, lambda ok: self._flushed() if ok else None)

    def _flushed(self) -> None:
        if self._store.safe_to > self._reported:
            self._report(self._store.safe_to)

    def _report(self, place: int) -> None:
        if self._transport is not None and not self._transport.is_closing():
            self._reported, self._reported_at = place, self._loop.time()
            self._transport.write(REPORT.pack(place))

    def _end(self, error: Exception) -> None:
        if not self.ended.done():
            self.ended.set_result(error)
        self.close()


class Observer(Protocol):
    """Is told how the comparison with a master ends; `master` is where that takes requests."""

    async def greet(self, master: str) -> None:
        """The log is about to be compared. ConnectionError when that is not the master any more."""

    async def agreed(self) -> None:
        """The log is the beginning of the master's."""

    async def refused(self, master: str, reason: str) -> None:
        """It is not, or not any more."""


class Following:
    """Keeps the log of `store` a copy of the master's. `found` tells the replication address that name servers gave;
    `ask` has them asked anew while they gave none, and while the log differs from that of the one they gave.
    `introduce` is what a member of an election says first. After a failure it pauses, longer each time, for
    `pause_max_seconds` at most.
    """

    def __init__(
        self,
        store: ReplicaStore,
        options: StoreOptions,
        remoting: Remoting,
        found: Callable[[], str | None],
        ask: Callable[[], Awaitable[None]],
        observer: Observer,
        introduce: Callable[[], bytes] = bytes,
        confirmed: Confirmed | None = None,
        pause_max_seconds: float = PAUSE_MAX_SECONDS,
    ) -> None:
        self._pause_max_seconds = pause_max_seconds
        self._introduce = introduce
        self._confirmed = confirmed
        self._store = store
        self._options = options
        self._remoting = remoting
        self._observer = observer
        self._found = found
        self._ask = ask
        self._task: asyncio.Task[None] | None = None
        self.state = FollowingState()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
            self._task = None

    @property
    def replication_address(self) -> str | None:
        """Where the master gives its log; None while nobody knows."""
        return self._options.ha_master_address or self._found() or None

    @property
    def master_address(self) -> str | None:
        """Where the master takes requests: one port below that of replication."""
        address = self.replication_address
        if address is None:
            return None
        host, port = split_address(address)
        return address_text(host, port - REPLICATION_DISTANCE)

    @property
    def is_following(self) -> bool:
        """Whether this log is being copied from the master that is known: it is the beginning of that one's."""
        return self.state.is_connected and self.replication_address == self.state.master

    async def look(self) -> None:
        """Ask the master where its log ends: what is missing here is known by that when it dies."""
        if self.state.is_connected and (address := self.master_address) is not None:
            _, end = await log_limits(self._remoting, address)
            self.state.master_end, self.state.master_end_at = end, asyncio.get_running_loop().time()

    async def _run(self) -> None:
        pause, logged = PAUSE_FIRST_SECONDS, ""
        while True:
            begun = self._store.copied_to
            try:
                await self._follow()
            except LogsDiffer as error:
                if self.state.refusal != str(error):
                    _log.error("event=replication_refused master=%s reason=%s", self.state.master, error)
                self.state.refusal = str(error)
                pause = REFUSED_PAUSE_SECONDS
                self.state.was_unreachable = True
                if (master := self.master_address) is not None:
                    await self._observer.refused(master, str(error))
            except (OSError, OrbitMQError) as error:
                level = logging.DEBUG if str(error) == logged else logging.WARNING
                logged = str(error)
                _log.log(level, "event=replication_interrupted master=%s error=%s", self.state.master, error)
                has_more = self._store.copied_to > begun
                pause = PAUSE_FIRST_SECONDS if has_more else min(pause * 2, self._pause_max_seconds)
            except Exception:  # the next attempt must still come
                _log.exception("event=replication_failed master=%s", self.state.master)
                pause = PAUSE_MAX_SECONDS
            await asyncio.sleep(pause)

    async def _follow(self) -> None:
        """One connection, until it ends."""
        if self.replication_address is None or self.state.refusal:
            await self._ask()
        address, master = self.replication_address, self.master_address
        if address is None or master is None:
            raise ConnectionError("no name server knows the master yet, and haMasterAddress is not set")
        self.state.master = address
        try:
            transport, link = await self._connected(address, master)
        except (OSError, OrbitMQError) as error:
            self.state.was_unreachable = self.state.was_unreachable or is_unreachable(error)
            raise
        self.state.refusal, self.state.was_unreachable = "", False
        _log.info("event=replication_connected master=%s from=%d", address, self._store.copied_to)
        try:
            await self._watch(link)
        finally:
            transport.abort()
            link.ended.cancel()

    async def _connected(self, address: str, master: str) -> tuple[asyncio.Transport, MasterLink]:
        """A link that begins where this log, compared and without half a message, ends on disk or in memory."""
        self._store.forget_half(True)
        await self._settled()
        begin, end = await log_limits(self._remoting, master)
        self.state.master_end, self.state.master_end_at = end, asyncio.get_running_loop().time()
        await self._observer.greet(master)
        if not self._store.forget_half(True):
            raise StoreError("messages that were copied have no room in their queues, so the log cannot be compared")
        await check_agreement(self._store, self._remoting, master, begin, end)
        await self._observer.agreed()
        if self._store.is_empty and self._options.ha_copy_whole_log and end > begin:
            await self._begin_at_the_first(master, begin)
        host, port = split_address(address)
        loop = asyncio.get_running_loop()
        async with asyncio.timeout(CONNECT_SECONDS):
            return await loop.create_connection(
                lambda: MasterLink(self._store, self.state, self._introduce(), self._confirmed), host, port
            )

    async def _settled(self) -> None:
        """Return when the content of this log is durable: the first report acknowledges it to the master."""
        if self._store.safe_to < self._store.copied_to:
            flushed: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
            self._store.when_flushed(self._store.copied_to, partial(_settle, flushed))
            if not await flushed:
                raise StoreError("the disk does not accept the replicated data")

    async def _begin_at_the_first(self, master: str, begin: int) -> None:
        """A master gives an empty slave its last file only; one with the first message gets all the rest."""
        if not self._store.copy(begin, await view_message(self._remoting, master, begin), True):
            raise StoreError("there is no room for the first message of the master's log")

    async def _watch(self, link: MasterLink) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        heartbeat, silence = options.ha_send_heartbeat_interval_ms / 1000, options.ha_housekeeping_interval_ms / 1000
        while not link.ended.done():
            await asyncio.wait((link.ended,), timeout=heartbeat / 4)
            if self.replication_address != self.state.master:
                raise ConnectionError(f"the master is at {self.replication_address} now")
            if not link.ended.done():
                link.look(loop.time(), heartbeat, silence)
        raise link.ended.result()


def _settle(future: asyncio.Future[bool], ok: bool) -> None:
    if not future.done():
        future.set_result(ok)


def is_refused(error: BaseException) -> bool:
    """Whether the machine refused the connection: then the master is down."""
    return any(isinstance(one, ConnectionRefusedError) for one in _causes(error))


def is_unreachable(error: BaseException) -> bool:
    """Whether there was no response at all: the master may be up behind a network partition."""
    return any(
        isinstance(one, TimeoutError) or (isinstance(one, OSError) and one.errno in UNREACHABLE)
        for one in _causes(error)
    )


def _causes(error: BaseException) -> Iterator[BaseException]:
    cause: BaseException | None = error
    while cause is not None:
        yield cause
        cause = cause_of(cause)
