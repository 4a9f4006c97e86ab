"""One replica's decisions: it follows, is elected, acknowledges and steps down. Pure: time, what was read and what was
reported come in, and what is to be done comes out.

Two rules keep acknowledged messages, and neither needs a clock:

1. A master acknowledges what every member of the in-sync set has, of the set that it knows to be agreed joined with the
   one that it has asked for. So a member leaves the set before anything is acknowledged without it.
2. Only a member of the set is elected, by compare-and-set, and it stops following before it asks. So whatever a former
   master still stores never gets the report of the new one, and cannot be acknowledged.

The lease is for everybody else: who may be elected waits until it has ended, and a master refuses sends before that, by
its own monotonic clock, so that clients go elsewhere and no two serve at a time.
"""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from orbitmq.failover.agreed import Agreed, Boundary, first

NEVER: Final = -1.0
SUCCESSOR_TURNS: Final = 4  # that others leave to a named successor


@dataclass(frozen=True, slots=True)
class Timing:
    """Milliseconds, and the share by which a clock may run fast or slow."""

    lease_ms: float = 3000
    """How long a master may be silent at the agreement store. etcd takes no less than two seconds."""
    drift: float = 0.02
    """Between two monotonic clocks; crystals are a hundred times better, virtual machines that are moved are not."""
    stop_ms: float = 250
    """From the look at the clock to the last byte of a response: a turn of the event loop, with a collection in it."""
    lag_ms: float = 3000
    """A slave that had not all for as long leaves the in-sync set, because every send waits for it."""
    gone_ms: float = 1000
    """The same without a connection: it is dead, or comes back within this time."""
    join_ms: float = 300
    """A slave joins the set that had all so lately, and sends wait for it for as long."""
    turn_ms: float = 250
    """Candidates try one after the other, so that they seldom meet."""
    open_ms: float = 10_000
    """One that is elected and cannot begin by then lets others try, and rests for as long: its disk may be full."""


@dataclass(frozen=True, slots=True)
class View:
    """What the agreement store had. `holder` is the session that has the lease, with the epoch for which it took it.
    `revision` is that of the agreed value, `read_at` that of the whole store when it was read.
    """

    agreed: Agreed | None
    revision: int
    holder: tuple[str, int] | None
    read_at: int


# What is to be done.


@dataclass(frozen=True, slots=True)
class Propose:
    """Set the agreed value if its revision is still this one. With `takes_lease` only if nobody has the lease, and take
    it for the new epoch; otherwise only while this session has it.
    """

    agreed: Agreed
    revision: int
    takes_lease: bool = False


@dataclass(frozen=True, slots=True)
class Halt:
    """Stop following. When no byte is appended any more, and none is reported, call `halted`."""


@dataclass(frozen=True, slots=True)
class Lead:
    """Be the master of this epoch. When slaves can connect, call `opened`."""

    agreed: Agreed


@dataclass(frozen=True, slots=True)
class Follow:
    """Be a slave of the agreed master, from where the logs part."""

    agreed: Agreed


@dataclass(frozen=True, slots=True)
class Fence:
    """Acknowledge nothing, refuse sends, and give the lease up. When no byte is appended any more, call `halted`."""

    reason: str


@dataclass(frozen=True, slots=True)
class Confirm:
    """All before this place is on every member in sync: acknowledge it, and let it be read."""

    end: int


Command = Propose | Halt | Lead | Follow | Fence | Confirm


class Role(Enum):
    """What a replica does. HALTED appends nothing: it waits for a master, or to be elected; HALTING will do so soon."""

    HALTING = "halting"
    HALTED = "halted"
    FOLLOWING = "following"
    MASTER = "master"


@dataclass(slots=True)
class Slave:
    """One that follows this master in its epoch."""

    position: int = -1
    caught_up_at: float = NEVER
    """When it had all there was."""
    gone_at: float | None = None
    """Since when it has no connection."""


@dataclass
class Replica:
    """`session` names this process, `founds` says that it may be the first master of all. Times are milliseconds of one
    monotonic clock.
    """

    me: str
    session: str
    timing: Timing = field(default_factory=Timing)
    min_in_sync: int = 1
    founds: bool = False
    role: Role = Role.HALTED
    view: View = field(default_factory=lambda: View(None, 0, None, 0))
    epoch: int = 0  # that it leads or follows
    lease_until: float = NEVER
    confirmed: int = -1
    log_end: int = 0
    history: tuple[Boundary, ...] = ()
    """The epochs of this log, as its owner has recorded them."""
    slaves: dict[str, Slave] = field(default_factory=dict)
    pending: Propose | None = None  # asked for, and may or may not have happened
    is_forced: bool = False  # an operator wants it to be elected though it is not in sync
    forced_epoch: int = 0  # of an election that an operator asked for
    ends_maintenance: bool = False  # an operator wants it to be elected, if it is in sync, in spite of maintenance
    joining: str = ""  # sends wait for it already, so that it has all that is acknowledged when it is asked for
    is_open: bool = False  # slaves can connect to this master
    _led_at: float = NEVER
    _rests_until: float = NEVER  # does not stand before that
    _vacant_at: float | None = None  # since when nobody has the lease
    _ends: deque[tuple[float, int]] = field(default_factory=deque)  # when -> the end of the log then

    # ------------------------------------------------------------------------------------------- the agreement store

    def seen(self, view: View, now: float) -> list[Command]:
        """The store was read, or said that it has changed."""
        if view.read_at < self.view.read_at:
            return []  # it is late
        self.view = view
        if self.pending is not None and view.revision > self.pending.revision:
            self.pending = None  # it has happened, or never will
        if view.agreed is None:
            return self._fence("the agreed value is gone") if self.role is Role.MASTER else self._found()
        self.founds = False
        if self.role is Role.MASTER:
            return self._seen_by_master(view, now)
        return self._seen_by_other(view, now)

    def kept(self, asked_at: float) -> None:
        """The store has renewed the lease, upon a request that was made then."""
        until = asked_at + self.timing.lease_ms * (1 - self.timing.drift) - self.timing.stop_ms
        self.lease_until = max(self.lease_until, until)

    def _found(self) -> list[Command]:
        """Once in the life of a cluster: a value that is gone is for an operator to restore."""
        if not self.founds or self.role is not Role.HALTED:
            return []
        self.pending = Propose(first(self.me), self.view.revision, takes_lease=True)
        return [self.pending]

    def _seen_by_master(self, view: View, now: float) -> list[Command]:
        assert view.agreed is not None
        if view.agreed.epoch != self.epoch or view.holder != (self.session, self.epoch):
            return [*self._fence("another master is elected, or the lease has ended"), *self._seen_by_other(view, now)]
        if view.agreed.successor:
            return self._fence(f"it hands over to {view.agreed.successor}")
        return self._confirm(now)

    def _seen_by_other(self, view: View, now: float) -> list[Command]:
        agreed = view.agreed
        assert agreed is not None
        if view.holder is None:
            if self._vacant_at is None:
                self._vacant_at = now
            return self._stand(now)
        self._vacant_at, self.is_forced, self.ends_maintenance = None, False, False
        if agreed.epoch <= self.epoch:
            return self._follow_again(agreed)
        if view.holder == (self.session, agreed.epoch):
            return self._lead(agreed, now)
        if agreed.master != self.me:  # a former process of this store has a lease that ends soon
            self.role, self.epoch = Role.FOLLOWING, agreed.epoch
            return [Follow(agreed)]
        return []

    def _follow_again(self, agreed: Agreed) -> list[Command]:
        """It follows in this epoch, or was fenced in it and waits until the lease has ended; or has stopped following
        because of a lease that was renewed after all: a Lease of Kubernetes has ended when another one takes it. If it
        has asked to be elected, it must not go on while that may still happen.
        """
        if agreed.epoch != self.epoch or agreed.master == self.me:
            return []
        if self.role is not Role.HALTED or self.pending is not None:
            return []
        self.role = Role.FOLLOWING
        return [Follow(agreed)]

    # ------------------------------------------------------------------------------------------------- be elected

    def _stand(self, now: float) -> list[Command]:
        """Nobody has the lease: ask to be elected when it is this one's turn."""
        agreed = self.view.agreed
        if agreed is None or not (self.is_forced or self._may_stand(agreed)):
            return []
        if self.role is Role.FOLLOWING:
            self.role = Role.HALTING
            return [Halt()]
        if self.role is Role.HALTING:
            return []
        if self.history and self.history[-1].epoch > agreed.epoch and not self.is_forced:
            return []  # the agreement store has forgotten an election, and who was in sync then
        if now < self._rests_until:
            return []
        if self._vacant_at is None or now - self._vacant_at < self._turn(agreed) * self.timing.turn_ms:
            return []
        elected = agreed.elect(self.me, self.log_end, self.history)
        if self.is_forced:  # no other one is known to have what its log has
            elected, self.forced_epoch = elected.with_in_sync([self.me]), elected.epoch
        if self.ends_maintenance:
            elected = elected.in_maintenance(False)
        self.pending = Propose(elected, self.view.revision, takes_lease=True)
        return [self.pending]

    def _may_stand(self, agreed: Agreed) -> bool:
        if self.me not in agreed.in_sync:
            return False
        return not agreed.maintenance or self.ends_maintenance or self.me in (agreed.master, agreed.successor)

    def end_maintenance(self, now: float) -> list[Command]:
        """Stand for election, as without maintenance, while there is no master: it ends with that election."""
        if self.view.holder is not None:
            return []
        self.ends_maintenance = True
        return self._stand(now)

    def take_over(self, now: float) -> list[Command]:
        """Stand for election though this one may lack acknowledged messages: they are lost if it is elected."""
        if self.view.holder is not None:
            return []
        self.is_forced = True
        return self._stand(now)

    def _turn(self, agreed: Agreed) -> int:
        if self.is_forced or agreed.successor == self.me:
            return 0
        candidates = [one for one in agreed.in_sync if one != agreed.master]
        last = len(candidates)  # for a master that comes back: its successors may be at work already
        return (candidates.index(self.me) if self.me in candidates else last) + (
            SUCCESSOR_TURNS if agreed.successor else 0
        )

    def halted(self, log_end: int, now: float) -> list[Command]:
        """Nothing is appended any more. It does nothing if there is a master to follow by now."""
        if self.role is not Role.HALTING:
            return []
        self.role, self.log_end = Role.HALTED, log_end
        return self._stand(now) if self._vacant_at is not None else []

    def _lead(self, agreed: Agreed, now: float) -> list[Command]:
        self.role, self.epoch, self.joining, self.confirmed = Role.MASTER, agreed.epoch, "", -1
        self.slaves = {one: Slave(caught_up_at=now, gone_at=now) for one in agreed.in_sync if one != self.me}
        self.is_open, self._led_at = False, now
        self._ends.clear()
        return [Lead(agreed), *self._confirm(now)]

    # -------------------------------------------------------------------------------------------------- be the master

    def opened(self, now: float) -> None:
        """Slaves can connect to this master from now on: those that do not come in time leave the set."""
        self.is_open = True
        for slave in self.slaves.values():
            slave.caught_up_at = now
            slave.gone_at = now if slave.gone_at is not None else None

    def appended(self, log_end: int, now: float) -> list[Command]:
        """The master's own log ends there."""
        self.log_end = log_end
        return self._confirm(now) if self.role is Role.MASTER else []

    def reported(self, member: str, epoch: int, position: int, now: float) -> list[Command]:
        """A slave that follows this master in `epoch` has its log up to `position`."""
        if self.role is not Role.MASTER or epoch != self.epoch:
            return []
        slave = self.slaves.setdefault(member, Slave())
        slave.position, slave.gone_at = position, None
        self._note_caught_up(slave, now)
        return self._confirm(now)

    def gone(self, member: str, now: float) -> None:
        """A slave's connection has ended."""
        if (slave := self.slaves.get(member)) is not None and slave.gone_at is None:
            slave.gone_at = now

    def tick(self, now: float) -> list[Command]:
        """Call this every 100 ms or so."""
        if self.role is not Role.MASTER:
            return self._stand(now) if self.view.holder is None else []
        if now >= self.lease_until:
            return self._fence("the lease could not be renewed in time")
        if not self.is_open:
            return self.resign("it could not begin in time", now) if now - self._led_at > self.timing.open_ms else []
        self._ends.append((now, self.log_end))
        while self._ends[0][0] < now - self.timing.lag_ms:
            self._ends.popleft()
        for slave in self.slaves.values():
            self._note_caught_up(slave, now)
        return [*self._change(now), *self._confirm(now)]

    def hand_over(self, successor: str) -> list[Command]:
        """Step down for a slave that has everything: the caller refuses sends until it has, and goes on refusing.
        Nothing is done if it has not.
        """
        agreed, slave = self.view.agreed, self.slaves.get(successor)
        if self.role is not Role.MASTER or self.pending is not None or agreed is None or slave is None:
            return []
        if successor not in agreed.in_sync or slave.position != self.log_end:
            return []
        self.pending = Propose(agreed.hand_over(successor), self.view.revision)
        return [self.pending]

    def maintain(self, is_on: bool) -> list[Command]:
        """Begin or end maintenance. Nothing is done while another change is asked for."""
        agreed = self.view.agreed
        if self.role is not Role.MASTER or self.pending is not None or agreed is None:
            return []
        self.pending = Propose(agreed.in_maintenance(is_on), self.view.revision)
        return [self.pending]

    def resign(self, reason: str, now: float) -> list[Command]:
        """Stop being the master, and let others try."""
        self._rests_until = now + self.timing.open_ms
        return self._fence(reason) if self.role is Role.MASTER else []

    def _note_caught_up(self, slave: Slave, now: float) -> None:
        if slave.gone_at is not None:
            return
        if slave.position >= self.log_end:
            slave.caught_up_at = now
            return
        for at, end in reversed(self._ends):
            if slave.position >= end:
                slave.caught_up_at = max(slave.caught_up_at, at)
                return

    def _change(self, now: float) -> list[Command]:
        """Ask for another in-sync set if it should be. One that was asked for is asked for until that is decided."""
        if self.pending is not None:
            return [self.pending]
        agreed = self.view.agreed
        if agreed is None:
            return []
        kept = {self.joining, *agreed.in_sync}
        self.slaves = {one: slave for one, slave in self.slaves.items() if slave.gone_at is None or one in kept}
        wanted = {self.me, *(one for one in agreed.in_sync if one in self.slaves and self._stays(one, now))}
        if self.joining and self._has_joined(now):
            wanted.add(self.joining)
            self.joining = ""
        if not self.joining:
            others = (one for one in self.slaves if one not in wanted and self._may_join(one, now))
            self.joining = next(others, "")
        if wanted == set(agreed.in_sync):
            return []
        self.pending = Propose(agreed.with_in_sync(wanted), self.view.revision)
        return [self.pending]

    def _stays(self, member: str, now: float) -> bool:
        slave, timing = self.slaves[member], self.timing
        if slave.gone_at is not None:
            return now - slave.gone_at < timing.gone_ms
        return now - slave.caught_up_at < timing.lag_ms

    def _may_join(self, member: str, now: float) -> bool:
        slave = self.slaves[member]
        return slave.gone_at is None and now - slave.caught_up_at < self.timing.join_ms

    def _has_joined(self, now: float) -> bool:
        """Whether the one that joins has all that is acknowledged; one that takes too long is not waited for."""
        if not self._may_join(self.joining, now):
            self.joining = ""
            return False
        return self.slaves[self.joining].position >= self.confirmed

    def _confirm(self, now: float) -> list[Command]:
        """What every member has that is in sync, or may be by now."""
        agreed = self.view.agreed
        if agreed is None or not self.is_open:
            return []
        if now >= self.lease_until or len(agreed.in_sync) < self.min_in_sync:
            return []
        members = set(agreed.in_sync)
        if self.joining:
            members.add(self.joining)
        if self.pending is not None:
            members |= set(self.pending.agreed.in_sync)
        ends = [self.slaves[one].position if one in self.slaves else -1 for one in members if one != self.me]
        end = min([self.log_end, *ends])
        if end <= self.confirmed:
            return []
        self.confirmed = end
        return [Confirm(end)]

    def _fence(self, reason: str) -> list[Command]:
        """Stop for good in this epoch: a later one may be this replica's as well."""
        self.role = Role.HALTING
        return [Fence(reason)]
