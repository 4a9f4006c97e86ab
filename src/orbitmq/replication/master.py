"""The master's end: sends the log to its slaves, and calls back those that wait for a replica.

Only readable messages are sent: with SYNC_FLUSH what is on disk, so that a crash of the master cannot leave a slave
with messages that the master never had. Everything runs on the event loop; a slave that does not read costs one write
buffer.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import logging
from collections import Counter
from collections.abc import Callable
from typing import Protocol, cast

from orbitmq.errors import BodyError, ConfigurationError
from orbitmq.message.hosts import address_text
from orbitmq.net.server import serve
from orbitmq.replication.protocol import CONFIRMED, HEAD, Introduction, Reports, first_place, piece_size
from orbitmq.runtime.clock import Clock
from orbitmq.store.cold import Fetch, Then
from orbitmq.store.engine import MessageStore
from orbitmq.store.flush_waits import FlushWaits
from orbitmq.store.options import StoreOptions
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.records import PutStatus

_log = logging.getLogger(__name__)

SLAVES_MAX = 16  # connections; each costs a write buffer, and the disk's time when it is far behind
SILENT_MAX = 16  # further connections that have not reported yet; RocketMQ's slaves take five seconds for that
TURN_BYTES = 1 << 20  # sent to one slave before other work gets its turn of the event loop
BUFFER_BYTES = 1 << 20  # unsent bytes above which a slave gets no more
LOOK_SECONDS = 0.1  # for data without an arrival, and for heartbeats


class Confirmation(Protocol):
    """How a broker that elects its master learns what its replicas in sync have."""

    def joined(self, member: Introduction) -> bool:
        """A slave has introduced itself; whether it follows this master in its epoch."""

    def reported(self, member: Introduction, place: int) -> None:
        """It has the log up to there."""

    def gone(self, member: Introduction) -> None:
        """Its last connection has ended."""

    def appended(self) -> None:
        """Someone waits for what was appended, or flushed."""


Network = ipaddress.IPv4Network | ipaddress.IPv6Network


class SlaveLink(asyncio.Protocol):
    """One slave's connection. `place` is the offset it gets next, `acknowledged` the one it has reported."""

    def __init__(self, owner: Replicas) -> None:
        self._owner = owner
        self._reports = Reports(elects=owner.elects)
        self._transport: asyncio.Transport | None = None
        self._is_paused = self._is_due = self._fetches = False
        self._heard = self._wrote = 0.0
        self.host = self.address = ""
        self.place: int | None = None  # unknown before the first report
        self._fetched_place = -1
        self.acknowledged = 0
        self.member: Introduction | None = None  # of an election
        self._sent_confirmed = -1

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)  # uvloop has one of its own
        if (peer := transport.get_extra_info("peername")) is None:  # closed already
            self._transport.abort()
            return
        self.host, port, *_ = peer
        self.address = address_text(self.host, port)
        self._heard = self._wrote = asyncio.get_running_loop().time()
        self._transport.set_write_buffer_limits(high=BUFFER_BYTES)
        self._owner.connected(self)

    def connection_lost(self, exc: Exception | None) -> None:
        if self in self._owner.links:
            _log.info("event=slave_gone peer=%s acknowledged=%d error=%s", self.address, self.acknowledged, exc)
        self._owner.gone(self)
        self._transport = None

    def data_received(self, data: bytes) -> None:
        try:
            reported = self._reports.feed(data)
        except BodyError as error:
            self.refuse(str(error))
            return
        if reported is None or self._transport is None or self._transport.is_closing():
            return
        self._heard = asyncio.get_running_loop().time()
        if (introduced := self._reports.introduction) is not None and self.member is None:
            if not self._owner.joined(introduced):
                self.refuse(f"member {introduced.member} follows epoch {introduced.epoch}")
                return
            self.member = introduced
            self.send_confirmed()
        end = self._owner.end_for(self)
        if not 0 <= reported <= end:
            # Its log is another one, or this one has lost its end: bytes sent now would not continue it.
            _log.error("event=slave_ahead peer=%s slave=%d master=%d", self.address, reported, end)
            self._transport.abort()
            return
        if self.place is None:
            place = first_place(reported, end, self._owner.file_size)
            if self._is_too_old(place) or not self._owner.spoke(self):
                return
            self.place = place
        self.acknowledged = reported
        self._owner.reached(self, reported)
        self.wake()

    def pause_writing(self) -> None:
        self._is_paused = True

    def resume_writing(self) -> None:
        self._is_paused = False
        self.send_confirmed()
        self.wake()

    def wake(self) -> None:
        """Send new data, once per turn of the event loop."""
        if not self._is_due and self.place is not None:
            self._is_due = True
            asyncio.get_running_loop().call_soon(self._send)

    def look(self, now: float, silence: float, heartbeat: float) -> None:
        """Every now and then: is the other end alive, and does it know that this one is?"""
        if self._transport is None:
            return
        if now - self._heard > silence:
            _log.warning("event=slave_silent peer=%s seconds=%d", self.address, now - self._heard)
            self._transport.abort()
            return
        self.wake()
        self.send_confirmed()
        if self.place is not None and now - self._wrote > heartbeat and not self._is_paused:
            self._wrote = now
            self._transport.write(HEAD.pack(self.place, 0))

    def send_confirmed(self) -> None:
        """Let a member of the election know what is confirmed."""
        if self.member is None or self._transport is None or self._is_paused:
            return
        if self._sent_confirmed != self._owner.confirmed:
            self._sent_confirmed = self._owner.confirmed
            self._transport.write(HEAD.pack(self._sent_confirmed, CONFIRMED))

    def refuse(self, reason: str) -> None:
        _log.warning("event=slave_refused peer=%s reason=%s", self.address, reason)
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        if self._transport is not None:
            self._transport.close()

    def _is_too_old(self, place: int) -> bool:
        """Whether the data that the slave needs next has expired, from the start or since it fell behind. Then the
        connection is closed, for with heartbeats both ends would believe that all is well; an orbitmq slave that
        reconnects finds the reason and reports it.
        """
        start = self._owner.start
        if place >= start or self._transport is None:
            return False
        _log.error(
            "event=slave_too_old peer=%s slave=%d master_from=%d remedy=empty_its_store", self.address, place, start
        )
        self._transport.abort()
        return True

    def _send(self) -> None:
        self._is_due = False
        place, sent = self.place, 0
        end = self._owner.end_for(self)
        if self._fetches or place is None or place >= end or self._is_too_old(place):
            return
        while self._transport is not None and not self._is_paused and sent < TURN_BYTES:
            piece = self._owner.piece(place, end)
            if piece is None:
                break
            self.place = place
            if place != self._fetched_place and self._owner.must_fetch(place, len(piece), self._fetched):
                self._fetches, self._fetched_place = True, place  # once: some file systems never tell that it is there
                break
            self._transport.writelines((HEAD.pack(place, len(piece)), piece))
            place += len(piece)
            sent += len(piece)
        self.place = place
        if sent:
            self._wrote = asyncio.get_running_loop().time()
            self.wake()

    def _fetched(self, error: BaseException | None) -> None:
        self._fetches = False
        if error is None:
            self.wake()
        elif self._transport is not None:
            _log.error("event=not_replicated peer=%s place=%s error=%s", self.address, self.place, error)
            self._transport.abort()


class Replicas:
    """All slaves of one broker. `networks` are those slaves may connect from; None is any. A connection counts as a
    slave from its first report on. With `confirmation` a message is copied when `confirm` says so, and slaves that are
    no members of the election get nothing before that.
    """

    def __init__(
        self, store: MessageStore, options: StoreOptions, clock: Clock, networks: tuple[Network, ...] | None = None,
        fetch: Fetch | None = None, confirmation: Confirmation | None = None,
    ) -> None:  # fmt: skip
        self._confirmation = confirmation
        self.confirmed = PhysicalOffset(-1)
        self._unconfirmed = PutStatus.FLUSH_SLAVE_TIMEOUT
        self._asks = False
        self._store = store
        self._options = options
        self._networks = networks
        self._fetch = fetch
        self._server: asyncio.Server | None = None
        self._waits = FlushWaits(clock, options.slave_timeout_ms)
        self._looking: asyncio.Task[None] | None = None
        self._told = asyncio.Event()  # a slave has reported, or disconnected
        self.links: set[SlaveLink] = set()
        self._silent: dict[SlaveLink, None] = {}  # the oldest first
        self.acknowledged = PhysicalOffset(0)  # the most that any slave had; it is never less again, as in RocketMQ

    async def bind(self, host: str, port: int, *, reuse: bool = True) -> None:
        """Take the port, `reuse` as in `Listener.bind`. ConfigurationError when it cannot be had."""
        loop = asyncio.get_running_loop()
        try:
            self._server = await loop.create_server(
                lambda: SlaveLink(self), host or None, port, start_serving=False, reuse_address=reuse
            )
        except OSError as error:
            raise ConfigurationError(
                f"cannot listen on {host or '*'}:{port} for slaves, which is listenPort + 1: {error.strerror or error}"
            ) from error

    async def serve(self) -> None:
        assert self._server is not None, "bound before"
        await serve(self._server)
        self._looking = asyncio.get_running_loop().create_task(self._look())

    async def stop(self, patience_seconds: float = 0) -> None:
        """Close every connection, lagging slaves' after a time; waiting callers get FLUSH_SLAVE_TIMEOUT."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(patience_seconds):
                while any(link.acknowledged < self.end for link in self.links):
                    self._told.clear()
                    await self._told.wait()
        if self._looking is not None:
            self._looking.cancel()
        self.release()
        for link in (*self.links, *self._silent):
            link.close()
        self._waits.give_up()

    def release(self) -> None:
        """Give the port back."""
        if self._server is not None:
            self._server.close()
            self._server = None

    def wake(self) -> None:
        """Messages have arrived. Called for each of them, so it costs little."""
        for link in self.links:
            link.wake()

    def expire(self) -> None:
        """Call back those that have waited too long; call this periodically."""
        self._waits.expire()

    def when_copied(self, end: PhysicalOffset, done: Callable[[PutStatus], object]) -> None:
        """Call back when any slave has the log up to `end`: PUT_OK, FLUSH_SLAVE_TIMEOUT if that takes too long, and
        SLAVE_NOT_AVAILABLE at once if there is no slave, or none with a small lag. `end` must not decrease from call to
        call.
        """
        if self._confirmation is not None:
            self._when_confirmed(end, done)
        elif not self.links or self._server is None or end - self.acknowledged >= self._options.ha_slave_fallbehind_max:
            done(PutStatus.SLAVE_NOT_AVAILABLE)
        elif end <= self.acknowledged:
            done(PutStatus.PUT_OK)
        else:
            self._waits.add(end, lambda ok: done(PutStatus.PUT_OK if ok else PutStatus.FLUSH_SLAVE_TIMEOUT))

    def _when_confirmed(self, end: PhysicalOffset, done: Callable[[PutStatus], object]) -> None:
        if end <= self.confirmed:
            done(PutStatus.PUT_OK)
        elif self._server is None:
            done(PutStatus.SERVICE_NOT_AVAILABLE)
        else:
            self._waits.add(end, lambda ok: done(PutStatus.PUT_OK if ok else self._unconfirmed))
            self.ask()

    def ask(self) -> None:
        """Have what is new confirmed, once for all that is appended in this turn of the event loop."""
        if not self._asks and self._confirmation is not None:
            self._asks = True
            asyncio.get_running_loop().call_soon(self._ask, self._confirmation)

    def _ask(self, confirmation: Confirmation) -> None:
        self._asks = False
        self.wake()
        confirmation.appended()

    def confirm(self, end: PhysicalOffset) -> None:
        """Every replica in sync has the log up to `end`."""
        self.confirmed = end
        self._waits.reached(end)
        for link in self.links:
            link.send_confirmed()

    def give_up(self) -> None:
        """Nothing will be confirmed any more. Who waits has to send elsewhere: the next master need not have it, and
        what only this one has is cut off.
        """
        self._unconfirmed = PutStatus.SERVICE_NOT_AVAILABLE
        self._waits.give_up()

    # ------------------------------------------------------------------------------------------------- for the links

    @property
    def start(self) -> int:
        """The first place of the log that still exists."""
        return max(0, self._store.commit_log_min_offset)

    @property
    def end(self) -> int:
        """Behind the last byte that may be sent."""
        return self._store.commit_log.readable

    def end_for(self, link: SlaveLink) -> int:
        """The same for one slave: others than members get what can no longer be replaced."""
        return self.end if self._confirmation is None or link.member is not None else min(self.end, self.confirmed)

    @property
    def elects(self) -> bool:
        """Whether slaves may be members of an election."""
        return self._confirmation is not None

    def joined(self, member: Introduction) -> bool:
        """Whether a slave may follow that takes part in an election."""
        return self._confirmation is not None and self._confirmation.joined(member)

    @property
    def file_size(self) -> int:
        return self._store.commit_log.files.file_size

    def piece(self, place: int, end: int) -> memoryview | None:
        """The data before `end` for a slave that is at `place`; None if there is none."""
        size = piece_size(place, end, self.file_size, self._options.ha_transfer_batch_size)
        return self._store.commit_log.slice(place, size) if size > 0 else None

    def must_fetch(self, place: int, size: int, then: Then) -> bool:
        """Whether the data at this place has left memory; `then` is called when it is back."""
        if self._fetch is None or not (absent := self._store.absent_range(place, size)):
            return False
        self._fetch(absent, then)
        return True

    def reached(self, link: SlaveLink, place: int) -> None:
        """A slave reports its offset."""
        self._told.set()
        if self._confirmation is not None:
            if link.member is not None:
                self._confirmation.reported(link.member, place)
        elif place > self.acknowledged:
            self.acknowledged = PhysicalOffset(place)
            self._waits.reached(self.acknowledged)

    def connected(self, link: SlaveLink) -> None:
        """A new connection without a report. If there are too many, the host with most of them loses its oldest: slaves
        on other hosts can connect however many it opens.
        """
        if not self._may_come_from(link.host):
            link.refuse("haSlaveAddresses does not have its address")
            return
        self._silent[link] = None
        if len(self._silent) > SILENT_MAX:
            crowd = Counter(one.host for one in self._silent)
            oldest = max(self._silent, key=lambda one: crowd[one.host])  # the first of several
            del self._silent[oldest]
            oldest.refuse(f"it has not reported, and {SILENT_MAX} newer ones have not either")

    def spoke(self, link: SlaveLink) -> bool:
        """The first report: whether it is a slave from now on."""
        self._silent.pop(link, None)
        if len(self.links) >= SLAVES_MAX:
            link.refuse(f"there are {SLAVES_MAX} slaves already")
            return False
        self.links.add(link)
        _log.info("event=slave_connected peer=%s", link.address)
        return True

    def gone(self, link: SlaveLink) -> None:
        """A connection has ended."""
        self._silent.pop(link, None)
        self.links.discard(link)
        self._told.set()
        if link.member is not None and self._confirmation is not None and not self._follows(link.member.member):
            self._confirmation.gone(link.member)

    def _follows(self, member: str) -> bool:
        return any(link.member is not None and link.member.member == member for link in self.links)

    def _may_come_from(self, host: str) -> bool:
        if self._networks is None:
            return True
        address = ipaddress.ip_address(host.partition("%")[0])
        return any(address in network for network in self._networks)

    async def _look(self) -> None:
        loop, options = asyncio.get_running_loop(), self._options
        silence, heartbeat = options.ha_housekeeping_interval_ms / 1000, options.ha_send_heartbeat_interval_ms / 1000
        while True:
            await asyncio.sleep(LOOK_SECONDS)
            for link in (*self.links, *self._silent):
                link.look(loop.time(), silence, heartbeat)


def networks_of(text: str, *, only_local: bool) -> tuple[Network, ...] | None:
    """The networks in option haSlaveAddresses. ConfigurationError names an invalid one."""
    parts = [part.strip() for part in text.split(";") if part.strip()]
    if not parts and only_local:
        parts = ["127.0.0.0/8", "::1/128"]
    try:
        return tuple(ipaddress.ip_network(part) for part in parts) or None
    except ValueError as error:
        raise ConfigurationError(f"option haSlaveAddresses: {error}; use networks as in 10.0.1.0/24") from None
