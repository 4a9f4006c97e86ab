"""Takes part in the election of the master of one broker name, over all changes of this broker's role.

`failover.replica` decides. Here the agreement store is read, watched and asked, the lease is renewed, and the broker in
its present role, the site, does what was decided. One event loop runs it all; steps that take time, such as a change of
the role, are taken one after the other, and those that are out of date by then are left out.
"""

from __future__ import annotations

import asyncio
import logging
import time
import uuid
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import suppress
from typing import Final, NamedTuple, Protocol, TypeVar

from orbitmq.agreement.store import AgreementStore
from orbitmq.broker.election.member import Member
from orbitmq.errors import AgreementError
from orbitmq.failover.agreed import Agreed
from orbitmq.failover.replica import Command, Confirm, Fence, Follow, Halt, Lead, Propose, Replica, Role, Timing, View
from orbitmq.replication.protocol import Introduction
from orbitmq.runtime.events import wait_at_most
from orbitmq.store.options import SLAVE, SYNC_MASTER, StoreOptions
from orbitmq.store.parting import cut_log

_log = logging.getLogger(__name__)
T = TypeVar("T")

TICK_SECONDS: Final = 0.1
POLL_SECONDS: Final = 1.0  # a watch is faster, but may end unnoticed
KEEPS_A_LEASE: Final = 4  # renewals in the time of a lease: two may fail
ASK_AGAIN_MS: Final = 300.0  # when the store has not responded
RETRY_SECONDS: Final = 0.2
NOTE_SECONDS: Final = 10.0  # how old the end of the log may be that is on disk
HAND_OVER_MS: Final = 1000.0  # for a slave to have everything, while sends are refused
TAKE_OVER_MS: Final = 5000.0
MAINTAIN_MS: Final = 5000.0
LOOK_SECONDS: Final = 0.01  # how often that is looked at
LEAVE_SECONDS: Final = 1.0

LATE_MAX: Final = 10  # reads, one after the other, that are older than what was read before

WENT_BACK: Final = "the agreement store is older than it was, as after a restored backup: restart brokers"
NOT_BEGUN: Final = "it has not found out yet who the master is"


class Address(NamedTuple):
    """Where a broker takes requests, and slaves."""

    clients: str
    slaves: str


class Site(Protocol):
    """The broker in its present role."""

    is_master: bool

    @property
    def address(self) -> Address: ...

    @property
    def log_end(self) -> int:
        """Behind the last whole message; with SYNC_FLUSH of those on disk."""

    async def halt(self) -> int:
        """Have nothing appended any more, and return where the log ends. It may be called again."""

    def fence(self, reason: str) -> None:
        """Accept nothing more, and fail what waits for a confirmation."""

    def follow(self, epoch: int, master: Address) -> None:
        """Copy the log of the master of this epoch."""

    def refuse(self, reason: str) -> None:
        """Serve nothing: this log and the agreed one have nothing in common."""

    def confirm_up_to(self, end: int) -> None:
        """What ends there or before is on all replicas in sync."""

    def become(self, role: str, /) -> object:
        """Stop, and let another broker begin in this role. It becomes the next site."""


def boot_time_ms() -> float:
    """Milliseconds since the machine was started, also while it was suspended: a lease goes on meanwhile."""
    return time.clock_gettime(time.CLOCK_BOOTTIME) * 1000


class Election:
    """`founds` says whether this store may be the first master of all, `slave_id` is the broker id of its slave."""

    def __init__(
        self,
        store: AgreementStore,
        options: StoreOptions,
        *,
        slave_id: int,
        timing: Timing,
        min_in_sync: int = 1,
        founds: bool = False,
        clock: Callable[[], float] = boot_time_ms,
    ) -> None:
        self.slave_id = slave_id
        self._store = store
        self._options = options
        self._timing = timing
        self._min_in_sync = min_in_sync
        self._founds = founds
        self._clock = clock
        self.member = Member(options)
        self.replica = Replica("", "", timing)
        self._session = ""
        self._site: Site | None = None
        self._attached = asyncio.Event()
        self._cut: int | None = None
        self._cut_epoch = 0
        self._lease: str | None = None
        self._asked: Propose | None = None
        self._asked_at = 0.0
        self._turns: asyncio.Queue[Halt | Lead | Follow] = asyncio.Queue()
        self._tasks: set[asyncio.Task[None]] = set()
        self._handing_to = ""
        self._refusal = NOT_BEGUN
        self._failure = ""
        self._went_back = 0
        self._seen = asyncio.Event()

    # ------------------------------------------------------------------------------------------------------- the site

    async def prepare(self) -> None:
        """To be awaited before the store is opened: cut its log where it parts from the agreed one."""
        if self._cut is None:
            return
        kept = self._options.root / "parted" / f"epoch-{self._cut_epoch}"
        await asyncio.to_thread(self.member.note_end, self._cut)
        await asyncio.to_thread(cut_log, self._options, self._cut, kept)
        self._cut = None

    async def attach(self, site: Site, *, was_killed: bool) -> None:
        """A broker serves in a role. The first one takes part from now on."""
        self._site = site
        if not self._session:
            name = await asyncio.to_thread(self.member.identify, site.log_end, was_killed=was_killed)
            address = site.address
            self._session = f"{address.clients} {address.slaves} {uuid.uuid4().hex[:8]}"
            history = self.member.history
            self.replica = Replica(name, self._session, self._timing, self._min_in_sync, self._founds and not history)
            self.replica.log_end, self.replica.history = site.log_end, history
            for step in (self._tick, self._keep, self._poll, self._watch, self._take_turn, self._note_end):
                self._start(self._repeat(step))
        elif site.is_master and self.is_master:
            self.replica.opened(self._clock())
            self._do(self.replica.appended(site.log_end, self._clock()))
            site.confirm_up_to(self.replica.confirmed)
        self._attached.set()

    def detach(self) -> None:
        """The broker stops serving in its role."""
        self._site = None
        self._attached.clear()

    async def leave(self) -> None:
        """Take no part any more, so that others can be elected at once. To be awaited before the last broker stops; it
        may be called again.
        """
        lease, self._lease = self._lease, None
        self._do(self.replica.resign("this broker stops", self._clock()))
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        if lease is not None:
            with suppress(AgreementError, TimeoutError):
                async with asyncio.timeout(LEAVE_SECONDS):
                    await self._store.revoke(lease)
        await self._store.stop()

    # ------------------------------------------------------------------------------------------------ for the brokers

    @property
    def agreed(self) -> Agreed | None:
        """What was agreed when the store was read last."""
        return self.replica.view.agreed

    @property
    def refusal(self) -> str:
        """Why no message is accepted; "" while they are."""
        if self._refusal:
            return self._refusal
        if self._clock() >= self.replica.lease_until:
            return "the lease could not be renewed in time"
        return ""

    @property
    def is_master(self) -> bool:
        """Whether this broker is the elected master, also while it only becomes one."""
        return self.replica.role is Role.MASTER

    @property
    def lease_left_ms(self) -> float:
        """For how long this master may serve without a renewal; 0 if it is none."""
        return max(0.0, self.replica.lease_until - self._clock()) if self.is_master else 0.0

    @property
    def failure(self) -> str:
        """Why the agreement store could not be read at the last attempt; "" if it could."""
        return self._failure or (WENT_BACK if self._went_back > LATE_MAX else "")

    def joined(self, member: Introduction) -> bool:
        """Whether a slave may follow: this is the master of its epoch."""
        return self.is_master and member.epoch == self.replica.epoch

    def reported(self, member: Introduction, place: int) -> None:
        self._do(self.replica.reported(member.member, member.epoch, place, self._clock()))

    def gone(self, member: Introduction) -> None:
        self.replica.gone(member.member, self._clock())

    def appended(self) -> None:
        if self._site is not None and self._site.is_master:
            self._do(self.replica.appended(self._site.log_end, self._clock()))

    @property
    def took_over(self) -> bool:
        """Whether an operator made this replica the master, which may lack what clients have seen."""
        return self.is_master and self.replica.forced_epoch == self.replica.epoch

    async def note_epoch(self, agreed: Agreed, log_end: int) -> None:
        """This log is the beginning of the agreed one, and its next bytes are of the agreed epoch."""
        await asyncio.to_thread(self.member.follow, agreed, log_end)
        self.replica.history = self.member.history

    async def hand_over(self, successor: str) -> str:
        """Step down for a slave in sync: the reason if that is not done, "" when this broker is no master any more."""
        agreed = self.agreed if self.is_master else None
        if agreed is None:
            return "this broker is not the master"
        if successor == self.replica.me or successor not in agreed.in_sync:
            return f"{successor} is not another replica in sync"
        if self._handing_to:
            return f"it hands over to {self._handing_to} already"
        self._handing_to = successor
        self._judge()
        ends = self._clock() + HAND_OVER_MS
        try:
            while self._clock() < ends:
                self.appended()
                is_settled = self.replica.confirmed >= self.replica.log_end  # else senders have to send again
                if is_settled or self._clock() > ends - HAND_OVER_MS / 2:
                    self._do(self.replica.hand_over(successor))
                await asyncio.sleep(LOOK_SECONDS)
                if not self.is_master:
                    return ""
        finally:
            self._handing_to = ""
            self._judge()
        if self.replica.pending is not None:
            return _no_response(HAND_OVER_MS)
        return f"{successor} did not have everything within {HAND_OVER_MS:g} ms"

    async def take_over(self, member: str) -> str:
        """Become the master without being in sync, while there is none: the reason if that does not happen."""
        if member != self.replica.me:
            return f"this replica is {self.replica.me}, not {member}"
        if self._has_master():
            return "there is a master that renews its lease"
        self._do(self.replica.take_over(self._clock()))
        ends = self._clock() + TAKE_OVER_MS
        while self._clock() < ends:
            await asyncio.sleep(LOOK_SECONDS)
            if self._has_master():
                break
        self.replica.is_forced = False  # it holds for this attempt alone
        if self.is_master:
            return ""
        if self._has_master():
            return "another replica was elected"
        return _no_response(TAKE_OVER_MS)

    async def maintain(self, is_on: bool) -> str:
        """Begin or end maintenance: the reason if that does not happen. Without a master, a replica in sync ends it by
        being elected.
        """
        ends = self._clock() + MAINTAIN_MS
        try:
            while self._clock() < ends:
                agreed = self.agreed
                if agreed is None:
                    return NOT_BEGUN
                if agreed.maintenance == is_on:
                    return ""
                if self.is_master:
                    self._do(self.replica.maintain(is_on))
                elif is_on or self._has_master() or self.replica.me not in agreed.in_sync:
                    return "this broker is neither the master nor, without one, in sync"
                else:
                    self._do(self.replica.end_maintenance(self._clock()))
                await asyncio.sleep(LOOK_SECONDS)
        finally:
            self.replica.ends_maintenance = False  # it holds for this attempt alone
        return _no_response(MAINTAIN_MS)

    def _has_master(self) -> bool:
        return self.replica.view.holder is not None

    # ---------------------------------------------------------------------------------------------- agreement store

    async def _repeat(self, step: Callable[[], Awaitable[None]]) -> None:
        """Whatever goes wrong, the step is tried again; the same failure is logged once."""
        logged = ""
        while True:
            try:
                await step()
                logged = ""
            except Exception as error:  # a broker without its election would never serve again
                if repr(error) != logged:
                    logged = repr(error)
                    _log.exception("event=election_step_failed step=%s", step.__name__)
                await asyncio.sleep(RETRY_SECONDS)

    async def _tick(self) -> None:
        await asyncio.sleep(TICK_SECONDS)
        self.appended()
        self._do(self.replica.tick(self._clock()))

    async def _keep(self) -> None:
        await asyncio.sleep(self._timing.lease_ms / 1000 / KEEPS_A_LEASE)
        while (lease := self._lease) is not None:
            asked_at = self._clock()
            kept = await self._asks(self._store.keep(lease))
            if kept is None:
                await asyncio.sleep(RETRY_SECONDS)
                continue
            if self._lease == lease:
                if kept:
                    self.replica.kept(asked_at)
                else:
                    self._lease = None
            break

    async def _poll(self) -> None:
        self._seen.clear()  # what changes while the store is read must be read, too
        if (view := await self._asks(self._store.read())) is not None:
            self._went_back = self._went_back + 1 if view.read_at < self.replica.view.read_at else 0
            self._look(view)
        await wait_at_most(self._seen, POLL_SECONDS if not self._failure else RETRY_SECONDS)

    async def _watch(self) -> None:
        with suppress(AgreementError):  # the next read says why
            async for _ in self._store.changes():
                self._seen.set()
        await asyncio.sleep(RETRY_SECONDS)

    def _look(self, view: View) -> None:
        self._asked = None
        self._do(self.replica.seen(view, self._clock()))

    def _propose(self, proposal: Propose) -> None:
        now = self._clock()
        if self._asked == proposal and now - self._asked_at < ASK_AGAIN_MS:
            return
        self._asked, self._asked_at = proposal, now
        if self._lease is not None:
            self._start(self._ask_for(proposal, self._lease))
        elif proposal.takes_lease:
            self._start(self._grant())

    async def _ask_for(self, proposal: Propose, lease: str) -> None:
        if (view := await self._asks(self._store.propose(proposal, lease, self._session))) is not None:
            self._look(view)

    async def _grant(self) -> None:
        asked_at = self._clock()
        lease = await self._asks(self._store.grant(int(self._timing.lease_ms)))
        if lease is not None and self._lease is None:
            self._lease, self._asked = lease, None
            self.replica.kept(asked_at)
            self._do(self.replica.tick(self._clock()))

    async def _asks(self, question: Coroutine[None, None, T]) -> T | None:
        """None if the store does not respond."""
        try:
            found = await question
        except Exception as error:  # whatever it is, this broker goes on without an agreement store
            if not self._failure:
                _log.warning("event=agreement_silent error=%r", error)
            self._failure = str(error) or repr(error)
            return None
        if self._failure:
            _log.info("event=agreement_responds")
        self._failure = ""
        return found

    async def _revoke(self, lease: str) -> None:
        """Until it is done: a store of agreement that was away, as etcd, may let all leases begin anew when it is back,
        and no replica could be elected until they end.
        """
        while True:
            try:
                await self._store.revoke(lease)
                return
            except AgreementError:
                await asyncio.sleep(RETRY_SECONDS)

    # ------------------------------------------------------------------------------------------------------ commands

    def _do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Propose():
                    self._propose(command)
                case Confirm():
                    if self._site is not None and self._site.is_master:
                        self._site.confirm_up_to(command.end)
                case Fence():
                    self._fence(command.reason)
                case Halt() | Lead() | Follow():
                    self._turns.put_nowait(command)
        self._judge()

    def _judge(self) -> None:
        """Whether messages are accepted, apart from the clock."""
        replica, agreed = self.replica, self.agreed
        if replica.role is not Role.MASTER or agreed is None:
            self._refusal = NOT_BEGUN if agreed is None else f"it is not the master in epoch {agreed.epoch}"
        elif not replica.is_open:
            self._refusal = "it has been elected, and begins"
        elif self._handing_to or agreed.successor:
            self._refusal = f"it hands over to {self._handing_to or agreed.successor}"
        elif len(agreed.in_sync) < self._min_in_sync:
            self._refusal = (
                f"{len(agreed.in_sync)} of its replicas are in sync, option minInSyncReplicas asks for "
                f"{self._min_in_sync}"
            )
        else:
            self._refusal = ""

    def _fence(self, reason: str) -> None:
        _log.warning("event=fenced epoch=%d reason=%s", self.replica.epoch, reason)
        if self._site is not None:
            self._site.fence(reason)
        if self._lease is not None:
            lease, self._lease = self._lease, None
            self._start(self._revoke(lease))
        self._turns.put_nowait(Halt())

    async def _take_turn(self) -> None:
        turn = await self._turns.get()
        try:
            await self._take(turn)
        except Exception:
            if isinstance(turn, Lead):  # its disk may be full
                self._do(self.replica.resign("it could not begin", self._clock()))
            else:
                self._turns.put_nowait(turn)  # it is left out if it is out of date by then
            raise

    async def _take(self, turn: Halt | Lead | Follow) -> None:
        match turn:
            case Halt():
                await self._halt()
            case Lead():
                await self._lead(turn.agreed)
            case Follow():
                await self._follow(turn.agreed)

    async def _halt(self) -> None:
        site = await self._present()
        if self.replica.role is Role.HALTING:
            end = await site.halt()
            self._do(self.replica.halted(end, self._clock()))

    async def _lead(self, agreed: Agreed) -> None:
        if self._is_due(Role.MASTER, agreed):
            _log.warning("event=elected epoch=%d in_sync=%s", agreed.epoch, ",".join(agreed.in_sync))
            await self.note_epoch(agreed, agreed.history[-1].start)
            await self._become(SYNC_MASTER)

    async def _follow(self, agreed: Agreed) -> None:
        site = await self._present()
        holder = self.replica.view.holder
        if not self._is_due(Role.FOLLOWING, agreed) or holder is None:
            return
        end = await site.halt()
        parts = self.member.parts(agreed, end)
        if parts is None and self.member.history:
            site.refuse(
                f"nothing is known that this log has in common with epoch {agreed.epoch}; keep what you need of it "
                f"(orbitmq store dump), and start this replica with an empty directory instead of {self._options.root}"
            )
            return
        if parts is not None and parts < end:
            self._cut, self._cut_epoch = parts, agreed.epoch
        if site.is_master or self._cut is not None:
            site = await self._become(SLAVE)
        if self._is_due(Role.FOLLOWING, agreed):
            site.follow(agreed.epoch, address_of(holder[0]))

    def _is_due(self, role: Role, agreed: Agreed) -> bool:
        return self.replica.role is role and self.replica.epoch == agreed.epoch

    async def _present(self) -> Site:
        while self._site is None:
            await self._attached.wait()
        return self._site

    async def _become(self, role: str) -> Site:
        site = await self._present()
        self._attached.clear()
        site.become(role)
        await self._attached.wait()
        return await self._present()

    async def _note_end(self) -> None:
        """So that a store that has lost something is known to have, whatever has become of its files."""
        await asyncio.sleep(NOTE_SECONDS)
        if self._site is not None and self._cut is None:
            await asyncio.to_thread(self.member.note_end, self._site.log_end)

    def _start(self, work: Coroutine[None, None, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._ended)

    def _ended(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        if not task.cancelled() and (error := task.exception()) is not None:
            _log.error("event=election_failed", exc_info=error)


def _no_response(milliseconds: float) -> str:
    return (
        f"the agreement store has not responded within {milliseconds:g} ms, and may still do it; look at orbitmq "
        "cluster replicas"
    )


def address_of(session: str) -> Address:
    """Where the process is that has this session."""
    clients, slaves, _ = session.split(" ")
    return Address(clients, slaves)
