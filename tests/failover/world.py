"""Replicas, an agreement store and the networks between them, in simulated time, with all that may go wrong.

Everything that happens is one event after another, in the order that a seed gives. The replicas are the real
`failover.replica.Replica`; around it is the least of a broker: a log of numbers, a connection to the master, a lease.
After each event the invariants are checked (`Checker`).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field, replace
from functools import partial
from heapq import heappop, heappush
from itertools import pairwise
from random import Random
from typing import TypeVar

from orbitmq.failover.agreed import Agreed, Boundary, common_end, reached
from orbitmq.failover.replica import (
    Command,
    Confirm,
    Fence,
    Follow,
    Halt,
    Lead,
    Propose,
    Replica,
    Role,
    Timing,
    View,
)

QUICK = Timing(lease_ms=600, drift=0.02, stop_ms=50, lag_ms=600, gone_ms=200, join_ms=200, turn_ms=60, open_ms=300)
TICK_MS, POLL_MS, KEEP_MS, RECONNECT_MS = 100, 200, 200, 50
SEND_MS = (15, 50, 150)  # between two sends: one of these in each simulation
ASK_AGAIN_MS = 300  # when the store has not responded
KINDS = ("kill", "freeze", "cut_one", "isolate", "store_down", "lossy", "hand_over", "maintain")
HALT_MS = 30  # until nothing is appended any more
OWN_WORK = 0.3  # how often a master that is fenced has appended something by then that was not sent
PIECE = 8  # entries in one message
EPOCH = 1_000_000  # an entry is this times the epoch in which it was taken, and the number of the send
Log = list[int]
T = TypeVar("T")


class Broken(AssertionError):
    """An invariant was broken."""


@dataclass
class Lease:
    session: str
    ends: float


class Store:
    """The agreement store: what etcd promises, and no more. Its clock is the true one, and it ends a lease late."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.agreed: Agreed | None = None
        self.revision = 0
        self.now = 0  # revision of all
        self.leases: dict[int, Lease] = {}
        self.holder: tuple[int, str, int] | None = None
        self.is_down = False

    def view(self) -> View:
        holder = None if self.holder is None else self.holder[1:]
        return View(self.agreed, self.revision, holder, self.now)

    def grant(self, session: str) -> int:
        number = len(self.leases) + 1
        self.leases[number] = Lease(session, 0)
        self.keep(number)
        return number

    def keep(self, number: int) -> bool:
        lease = self.leases.get(number)
        if lease is None or lease.ends < 0:
            return False
        lease.ends = self.world.now + self.world.timing.lease_ms
        self.world.at(lease.ends + self.world.random.uniform(0, 100), lambda: self._expire(number))
        return True

    def _expire(self, number: int) -> None:
        if 0 <= self.leases[number].ends <= self.world.now:
            if self.is_down:  # nobody decides
                self.world.after(50, lambda: self._expire(number))
            else:
                self.revoke(number)

    def revoke(self, number: int) -> None:
        self.leases[number].ends = -1
        if self.holder is not None and self.holder[0] == number:
            self.holder = None
            self._changed()

    def propose(self, proposal: Propose, lease: int, session: str) -> None:
        if self.revision != proposal.revision:
            return
        if proposal.takes_lease:
            if self.holder is not None or self.leases[lease].ends < 0:
                return
            self.holder = (lease, session, proposal.agreed.epoch)
        elif self.holder is None or self.holder[0] != lease:
            return
        self.world.checker.agrees(self.agreed, proposal.agreed)
        self.agreed = proposal.agreed
        self._changed()
        self.revision = self.now

    def _changed(self) -> None:
        self.now += 1
        for node in self.world.nodes:
            self.world.to_store(None, lambda node=node: self.world.from_store(node, lambda: node.look(self.view())))


class EtcdClient:
    """What a node asks of the store: each request is decided there."""

    def __init__(self, node: Node, store: Store) -> None:
        self._node, self._store = node, store

    def poll(self) -> None:
        self._node.world.ask(self._node, self._store.view, self._node.look)

    def grant(self, granted: Callable[[int], None]) -> None:
        session = self._node.replica.session
        self._node.world.ask(self._node, lambda: self._store.grant(session), granted)

    def keep(self, lease: int, kept: Callable[[bool], None]) -> None:
        self._node.world.ask(self._node, lambda: self._store.keep(lease), kept)

    def propose(self, proposal: Propose, lease: int) -> None:
        session = self._node.replica.session

        def propose() -> View:
            self._store.propose(proposal, lease, session)
            return self._store.view()

        self._node.world.ask(self._node, propose, self._node.look)

    def revoke(self, lease: int) -> None:
        self._node.world.to_store(self._node, lambda: self._store.revoke(lease))


@dataclass(frozen=True)
class Written:
    """A Lease of Kubernetes. `lease` is 0 when it is free."""

    agreed: Agreed
    revision: int
    writes: int
    lease: int = 0
    holder: tuple[str, int] | None = None


class LeaseStore:
    """The API server of Kubernetes: it keeps what is written, if that is not out of date, and ends nothing itself."""

    def __init__(self, world: World) -> None:
        self.world = world
        self.written: Written | None = None
        self.granted = 0
        self.is_down = False

    @property
    def agreed(self) -> Agreed | None:
        return None if self.written is None else self.written.agreed

    def put(self, after: Written | None, new: Written) -> tuple[bool, Written | None]:
        """Write a Lease if it is still as it was `after` the last read. Whether it was written, and the Lease now."""
        if self.written != after:
            return False, self.written
        if self.agreed is not new.agreed:
            self.world.checker.agrees(self.agreed, new.agreed)
        self.written = new
        for node in self.world.nodes:
            self.world.to_store(None, lambda node=node: self.world.from_store(node, lambda: node.client.noticed(new)))
        return True, new


class LeaseClient:
    """As `agreement.kubernetes`: a lease has ended for whoever has seen it unchanged for its time, by its own clock."""

    def __init__(self, node: Node, store: LeaseStore) -> None:
        self._node, self._store = node, store
        self._known: Written | None = None
        self._since = 0.0
        self._renewed: dict[int, float] = {}

    def poll(self) -> None:
        asked_at = self._node.clock
        self._read(lambda: self._node.look(self._view(asked_at)))

    def noticed(self, found: Written) -> None:
        """By a watch."""
        self._observe(found)
        self.poll()

    def grant(self, granted: Callable[[int], None]) -> None:
        def there() -> None:
            self._store.granted += 1
            self._renewed[self._store.granted] = self._node.clock
            granted(self._store.granted)

        self._read(there)

    def keep(self, lease: int, kept: Callable[[bool], None]) -> None:
        known, now = self._known, self._node.clock
        if not self._is_alive(lease, now):
            kept(False)
        elif known is None or known.lease != lease:
            self._renewed[lease] = now
            kept(True)
        else:

            def there(is_written: bool) -> None:
                if is_written:
                    self._renewed[lease] = now
                    kept(True)

            self._put(known, replace(known, writes=known.writes + 1), there)

    def propose(self, proposal: Propose, lease: int) -> None:
        session, asked_at = self._node.replica.session, self._node.clock

        def there() -> None:
            known = self._known
            if not self._is_alive(lease, asked_at) or not self._may_happen(proposal, lease, asked_at):
                self._node.look(self._view(asked_at))
                return
            writes = 1 if known is None else known.writes + 1
            holder = (session, proposal.agreed.epoch) if proposal.takes_lease else known and known.holder
            new = Written(proposal.agreed, writes, writes, lease, holder)
            self._put(known, new, lambda _: self._node.look(self._view(self._node.clock)))

        self._read(there)

    def revoke(self, lease: int) -> None:
        self._renewed.pop(lease, None)

        def there() -> None:
            if (known := self._known) is not None and known.lease == lease:
                self._put(known, replace(known, writes=known.writes + 1, lease=0, holder=None), lambda _: None)

        self._read(there)

    def _read(self, there: Callable[[], None]) -> None:
        def answer(found: Written | None) -> None:
            self._observe(found)
            there()

        self._node.world.ask(self._node, lambda: self._store.written, answer)

    def _put(self, after: Written | None, new: Written, there: Callable[[bool], None]) -> None:
        def answer(found: tuple[bool, Written | None]) -> None:
            self._observe(found[1])
            there(found[0])

        self._node.world.ask(self._node, lambda: self._store.put(after, new), answer)

    def _observe(self, found: Written | None) -> None:
        if found is not None and (self._known is None or found.writes > self._known.writes):
            self._known, self._since = found, self._node.clock

    def _view(self, now: float) -> View:
        if (known := self._known) is None:
            return View(None, 0, None, 0)
        holder = known.holder if self._remaining(now) > 0 else None
        return View(known.agreed, known.revision, holder, known.writes)

    def _remaining(self, now: float) -> float:
        is_held = self._known is not None and self._known.holder is not None
        return self._since + self._node.world.timing.lease_ms - now if is_held else 0.0

    def _is_alive(self, lease: int, now: float) -> bool:
        renewed = self._renewed.get(lease)
        return renewed is not None and now - renewed < self._node.world.timing.lease_ms

    def _may_happen(self, proposal: Propose, lease: int, now: float) -> bool:
        known = self._known
        if proposal.revision != (0 if known is None else known.revision):
            return False
        return self._remaining(now) <= 0 if proposal.takes_lease else known is not None and known.lease == lease


@dataclass
class Link:
    """A slave's connection to its master."""

    slave: Node
    master: Node
    epoch: int
    sent: int
    number: int
    arrives: float = 0.0  # the last message, so that the next is not before it
    back: float = 0.0
    is_cut: bool = False  # nothing is sent any more
    is_dead: bool = False  # nothing arrives any more


class Node:
    """One broker: a process that may be killed or frozen, its store, and its clock."""

    def __init__(self, world: World, number: int) -> None:
        self.world = world
        self.number = number
        self.member = f"m{number}.0"
        self.log: Log = []
        self.durable = 0
        self.history: list[Boundary] = []
        self.boots = self.starts = self.runs = 0
        self.rate = 1.0
        self.offset = 0.0
        self.frozen_until = 0.0
        self.is_up = False
        self.replica = Replica("", "")
        self.client: EtcdClient | LeaseClient = world.client(self)
        self.lease: int | None = None
        self.asked: Propose | None = None
        self.asked_at = 0.0
        self.wants: Propose | None = None
        self.link: Link | None = None
        self.links: dict[int, Link] = {}
        self.waiting: list[tuple[int, int]] = []
        self.readable = 0
        self.asides: list[Log] = []
        self.led: set[int] = set()  # epochs
        self.opened = False

    # ------------------------------------------------------------------------------------------------------ process

    @property
    def clock(self) -> float:
        return self.offset + self.world.now * self.rate

    def start(self) -> None:
        if self.is_up:
            return
        self.is_up = True
        self.starts += 1
        self.runs += 1
        world = self.world
        session = f"{self.number}/{self.starts}"
        self.replica = world.make(
            self.member, session, timing=world.timing, min_in_sync=world.min_in_sync, founds=self.number == 0
        )
        self.replica.log_end, self.replica.history = len(self.log), tuple(self.history)
        self.lease, self.asked, self.wants, self.link, self.links, self.waiting = None, None, None, None, {}, []
        self.readable, self.client = 0, world.client(self)
        for period, work in ((TICK_MS, self._tick), (POLL_MS, self._poll), (KEEP_MS, self._keep)):
            self._every(period, work, self.runs)

    def kill(self, *, power: bool) -> None:
        if not self.is_up:
            return
        self.is_up = False
        self.runs += 1
        self.frozen_until = 0.0
        for link in (*self.links.values(), *([self.link] if self.link else [])):
            self.world.cut(link)
        if power:
            kept = self.world.random.randint(self.durable, len(self.log))
            del self.log[kept:]
            self.durable = kept
            if not self.world.syncs:
                self.boots += 1
                self.member = f"m{self.number}.{self.boots}"

    def _every(self, period: float, work: Callable[[], None], run: int) -> None:
        def again() -> None:
            if self.runs == run:
                work()
                self.world.after_at(self, period / self.rate, again)

        self.world.after_at(self, self.world.random.uniform(0, period), again)

    # ---------------------------------------------------------------------------------------------- agreement store

    def _poll(self) -> None:
        self.client.poll()

    def _keep(self) -> None:
        if self.lease is None:
            return
        lease, asked_at, run = self.lease, self.clock, self.runs

        def kept(is_kept: bool) -> None:
            if self.runs == run and self.lease == lease:
                if is_kept:
                    self.replica.kept(asked_at)
                else:
                    self.lease = None

        self.client.keep(lease, kept)

    def look(self, view: View) -> None:
        self.asked = None
        self.do(self.replica.seen(view, self.clock))

    def _tick(self) -> None:
        self.do(self.replica.tick(self.clock))

    def _propose(self, proposal: Propose) -> None:
        if self.asked == proposal and self.clock - self.asked_at < ASK_AGAIN_MS:
            return
        self.asked, self.asked_at = proposal, self.clock
        if self.lease is None:
            if proposal.takes_lease:
                self._grant()
            return
        self.client.propose(proposal, self.lease)

    def _grant(self) -> None:
        asked_at, run = self.clock, self.runs

        def granted(lease: int) -> None:
            if self.runs == run and self.lease is None:
                self.lease, self.asked = lease, None
                self.replica.kept(asked_at)

        self.client.grant(granted)

    # ------------------------------------------------------------------------------------------------------ commands

    def do(self, commands: list[Command]) -> None:
        for command in commands:
            match command:
                case Propose():
                    self._propose(command)
                case Halt():
                    self._halt()
                case Lead():
                    self._lead(command.agreed)
                case Follow():
                    self._follow(command.agreed)
                case Fence():
                    self._fence()
                case Confirm():
                    self._confirm(command.end)

    def _halt(self) -> None:
        run = self.runs
        self.world.after_at(self, self.world.random.uniform(0, HALT_MS), lambda: self._halted(run))

    def _halted(self, run: int) -> None:
        if self.runs != run or self.replica.role is not Role.HALTING:
            return
        if self.link is not None:
            self.world.cut(self.link)
            self.link = None
        if self.replica.epoch in self.led and self.world.random.random() < OWN_WORK:
            self.log.append(self.world.next_send() + self.replica.epoch * EPOCH)  # delayed messages, for example
        self.do(self.replica.halted(len(self.log), self.clock))

    def _lead(self, agreed: Agreed) -> None:
        self.history = list(agreed.history)
        self.replica.history = agreed.history
        self.led.add(agreed.epoch)
        self.readable = 0
        self.opened = False
        run = self.runs
        self.world.after_at(self, self.world.random.uniform(0, HALT_MS), lambda: self._open(agreed.epoch, run))
        self.world.checker.leads(self, agreed)

    def _open(self, epoch: int, run: int) -> None:
        """A broker needs a moment to become a master, and slaves cannot connect before."""
        if self.runs == run and self.replica.role is Role.MASTER and self.replica.epoch == epoch:
            self.opened = True
            self.replica.opened(self.clock)

    def _fence(self) -> None:
        if self.lease is not None:
            lease, self.lease = self.lease, None
            self.client.revoke(lease)
        self.waiting.clear()
        for link in self.links.values():
            self.world.cut(link)
        self.links.clear()
        self._halt()

    def _follow(self, agreed: Agreed) -> None:
        if self.link is not None:
            self.world.cut(self.link)
            self.link = None
        end = common_end(reached(self.history, len(self.log)), len(self.log), agreed.history)
        if end is None:
            raise Broken(f"{self.member} has no history with {agreed.master}: {self.history} {agreed.history}")
        if end < len(self.log):
            self.asides.append(self.log[end:])
            del self.log[end:]
            self.durable = min(self.durable, end)
        self.history = list(agreed.history)
        self.replica.log_end, self.replica.history = len(self.log), agreed.history
        self._connect(agreed)

    def _connect(self, agreed: Agreed) -> None:
        replica, run = self.replica, self.runs
        if self.runs != run or replica.role is not Role.FOLLOWING or replica.epoch != agreed.epoch:
            return
        master = next((node for node in self.world.nodes if node.member == agreed.master), None)
        link = None if master is None else self.world.connect(self, master, agreed.epoch, len(self.log))
        if link is None:
            self.world.after_at(self, RECONNECT_MS, lambda: self._connect_again(agreed, run))
        else:
            self.link = link

    def _connect_again(self, agreed: Agreed, run: int) -> None:
        if self.runs == run and self.link is None:
            self._connect(agreed)

    def lost(self, link: Link) -> None:
        """A connection has ended."""
        if link is self.link:
            self.link = None
            if (agreed := self.replica.view.agreed) is not None:
                self._connect(agreed)
        elif self.links.pop(link.number, None) is not None and all(
            one.slave is not link.slave for one in self.links.values()
        ):
            self.replica.gone(link.slave.member, self.clock)

    # ------------------------------------------------------------------------------------------------------ messages

    @property
    def takes_sends(self) -> bool:
        replica = self.replica
        agreed = replica.view.agreed
        return (
            self.is_up and self.opened and replica.role is Role.MASTER and self.clock < replica.lease_until
            and agreed is not None and not agreed.successor and len(agreed.in_sync) >= self.world.min_in_sync
        )  # fmt: skip

    def send(self, number: int) -> None:
        if not self.takes_sends:
            return
        self.world.checker.takes(self)
        number += self.replica.epoch * EPOCH
        self.log.append(number)
        if self.world.syncs:
            self.durable = len(self.log)
        self.waiting.append((len(self.log), number))
        self.do(self.replica.appended(len(self.log), self.clock))
        for link in list(self.links.values()):
            self.world.feed(link)

    def take(self, link: Link, place: int, entries: Log) -> None:
        """A piece of the master's log."""
        if link is not self.link or self.replica.role not in (Role.FOLLOWING, Role.HALTING):
            return
        if place != len(self.log):  # a freeze within a freeze has changed the order of what waited
            self.world.cut(link)
            return
        self.log += entries
        self.replica.log_end = len(self.log)
        if self.world.syncs:
            self.durable = len(self.log)
        self.world.report(link, self.member, len(self.log))

    def _confirm(self, end: int) -> None:
        self.readable = end
        self.world.checker.confirms(self, end)
        done = [one for one in self.waiting if one[0] <= end]
        self.waiting = [one for one in self.waiting if one[0] > end]
        for _, number in done:
            self.world.checker.acknowledged(self, number)


@dataclass
class Checker:
    """The invariants, and how often each thing has happened."""

    world: World
    masters: dict[int, str] = field(default_factory=dict)  # epoch -> who has acknowledged in it
    acknowledged_ids: set[int] = field(default_factory=set)
    elections: int = 0
    elected_in_maintenance: int = 0
    kept_aside: int = 0

    def agrees(self, before: Agreed | None, agreed: Agreed) -> None:
        if before is not None and before.epoch != agreed.epoch and before.maintenance and agreed.maintenance:
            if agreed.master not in (before.master, before.successor):
                raise Broken(f"{agreed.master} is elected in maintenance, the master was {before.master}")
            self.elected_in_maintenance += 1
        for node in self.world.nodes:
            if node.member in agreed.in_sync:
                self._has_all(node)

    def leads(self, node: Node, agreed: Agreed) -> None:
        self.elections += 1
        if self.world.store.agreed is None or self.world.store.agreed.epoch != agreed.epoch:
            return  # it hears of an epoch that is over, and cannot confirm anything
        self._has_all(node)
        self._is_what_its_history_says(node)
        for other in self.world.nodes:
            if other is not node and other.takes_sends and not self.world.is_frozen(other):
                raise Broken(f"{other.member} serves epoch {other.replica.epoch} and {node.member} {agreed.epoch}")

    def takes(self, node: Node) -> None:
        for other in self.world.nodes:
            if other is not node and other.takes_sends and not self.world.is_frozen(other):
                raise Broken(f"two masters serve: {node.member} and {other.member}")

    def confirms(self, node: Node, end: int) -> None:
        epoch = node.replica.epoch
        if self.masters.setdefault(epoch, node.replica.session) != node.replica.session:
            raise Broken(f"two masters acknowledge in epoch {epoch}")
        agreed = self.world.store.agreed
        assert agreed is not None
        if agreed.epoch != epoch:
            return  # it is a former one, and what it confirms is on its successor: `acknowledged` looks
        for other in self.world.nodes:
            if other.member in agreed.in_sync and other.log[:end] != node.log[:end]:
                raise Broken(f"{other.member} is in sync with {node.member} and has another log before {end}")

    def acknowledged(self, node: Node, number: int) -> None:
        self.acknowledged_ids.add(number)
        agreed = self.world.store.agreed
        assert agreed is not None
        for other in self.world.nodes:
            if other.member in agreed.in_sync and number not in other.log:
                raise Broken(f"{number} is acknowledged by {node.member} and {other.member} has not got it")

    def _has_all(self, node: Node) -> None:
        if missing := self.acknowledged_ids.difference(node.log):
            raise Broken(f"{node.member} can be the master and has not got {sorted(missing)[:5]}")

    @staticmethod
    def _is_what_its_history_says(node: Node) -> None:
        history = [*reached(node.history, len(node.log)), Boundary(-1, len(node.log))]
        for one, following in pairwise(history):
            if {entry // EPOCH for entry in node.log[one.start : following.start]} - {one.epoch}:
                raise Broken(f"the log of {node.member} is not of the epochs {node.history}")

    def finish(self) -> None:
        """After everything is well again for a while."""
        world = self.world
        agreed = world.store.agreed
        assert agreed is not None, "a master was founded"
        alive = {node.member: node for node in world.nodes}
        if not any(one in alive for one in agreed.in_sync):
            return  # all that could be elected may have lost pages: an operator has to decide
        masters = [node for node in world.nodes if node.takes_sends]
        if len(masters) != 1:
            raise Broken(f"{len(masters)} masters when all is well, {agreed}")
        (master,) = masters
        self._has_all(master)
        for node in world.nodes:
            self._is_what_its_history_says(node)
            if node.log != master.log[: len(node.log)]:
                raise Broken(f"the log of {node.member} is not the beginning of {master.member}'s")
            if node.member not in agreed.in_sync:
                raise Broken(f"{node.member} is not in sync when all is well: {agreed}")


class World:
    """`make` is the class of the replicas: a test may break it. `by_leases`: they agree by a Lease of Kubernetes
    instead of etcd.
    """

    def __init__(
        self, seed: int, replicas: int = 3, *, make: Callable[..., Replica] = Replica, timing: Timing = QUICK,
        min_in_sync: int = 1, syncs: bool | None = None, by_leases: bool = False,
    ) -> None:  # fmt: skip
        self.random = Random(seed)
        self.make = make
        self.timing = timing
        self.min_in_sync = min_in_sync
        self.syncs = self.random.random() < 0.5 if syncs is None else syncs
        self.send_ms = self.random.choice(SEND_MS)
        self.now = 0.0
        self.steps = 0
        self._events: list[tuple[float, int, Callable[[], None]]] = []
        self._count = 0
        self.store: Store | LeaseStore = LeaseStore(self) if by_leases else Store(self)
        self.nodes = [Node(self, number) for number in range(replicas)]
        self.checker = Checker(self)
        self.blocked: set[tuple[int, int]] = set()  # from -> to
        self.no_store: set[int] = set()
        self.lossy = False
        self._links = 0
        self._sent = self._maintained = 0
        for node in self.nodes:
            node.rate = 1 + self.random.uniform(-timing.drift, timing.drift) / 2
            node.offset = self.random.uniform(0, 1e6)

    def client(self, node: Node) -> EtcdClient | LeaseClient:
        """A new one, of a process that begins."""
        return EtcdClient(node, self.store) if isinstance(self.store, Store) else LeaseClient(node, self.store)

    # -------------------------------------------------------------------------------------------------------- events

    def at(self, when: float, work: Callable[[], None]) -> None:
        self._count += 1
        heappush(self._events, (max(when, self.now), self._count, work))

    def after(self, delay: float, work: Callable[[], None]) -> None:
        self.at(self.now + delay, work)

    def after_at(self, node: Node, delay: float, work: Callable[[], None]) -> None:
        """At a node, when it is not frozen any more."""

        def there() -> None:
            if node.frozen_until > self.now:
                self.at(node.frozen_until, there)
            else:
                work()

        self.after(delay, there)

    def is_frozen(self, node: Node) -> bool:
        return node.frozen_until > self.now

    def run(self, until: float) -> None:
        while self._events and self._events[0][0] <= until:
            self.now, _, work = heappop(self._events)
            self.steps += 1
            work()
        self.now = until

    # ------------------------------------------------------------------------------------------------------ networks

    def ask(self, node: Node, question: Callable[[], T], answer: Callable[[T], None]) -> None:
        """A request of a node to the agreement store, and its response."""

        def there() -> None:
            found = question()
            self.from_store(node, lambda: answer(found))

        self.to_store(node, there)

    def to_store(self, node: Node | None, work: Callable[[], None]) -> None:
        """A request: it may be lost, late, or wait for the store."""
        random = self.random
        if (node is not None and node.number in self.no_store) or (self.lossy and random.random() < 0.1):
            return
        delay = random.uniform(0.5, 5) if not self.lossy or random.random() < 0.8 else random.uniform(5, 1500)

        def there() -> None:
            if self.store.is_down:
                self.after(random.uniform(20, 60), there)
            else:
                work()

        self.after(delay, there)

    def from_store(self, node: Node, work: Callable[[], None]) -> None:
        random, run = self.random, node.runs
        if node.number in self.no_store or (self.lossy and random.random() < 0.1):
            return
        delay = random.uniform(0.5, 5) if not self.lossy or random.random() < 0.8 else random.uniform(5, 1500)
        self.after_at(node, delay, lambda: work() if node.runs == run and node.is_up else None)

    def connect(self, slave: Node, master: Node, epoch: int, place: int) -> Link | None:
        replica = master.replica
        if not master.is_up or self.is_frozen(master) or self._is_cut(slave, master):
            return None
        if replica.role is not Role.MASTER or replica.epoch != epoch or place > len(master.log) or not master.opened:
            return None
        self._links += 1
        link = Link(slave, master, epoch, place, self._links)
        master.links[link.number] = link
        self.report(link, slave.member, place)
        self.feed(link)
        return link

    def _is_cut(self, one: Node, other: Node) -> bool:
        return (one.number, other.number) in self.blocked or (other.number, one.number) in self.blocked

    def feed(self, link: Link) -> None:
        """Send a slave what it has not got."""
        while not link.is_cut and link.sent < len(link.master.log):
            place, entries = link.sent, link.master.log[link.sent : link.sent + PIECE]
            link.sent += len(entries)
            link.arrives = max(link.arrives, self.now + self._delay())
            piece = partial(link.slave.take, link, place, entries)
            self._deliver(link, link.master, link.slave, link.arrives, piece)

    def report(self, link: Link, member: str, position: int) -> None:
        if link.is_cut:
            return
        link.back = max(link.back, self.now + self._delay())
        master = link.master

        def there() -> None:
            if link.number in master.links:
                master.do(master.replica.reported(member, link.epoch, position, master.clock))

        self._deliver(link, link.slave, master, link.back, there)

    def _delay(self) -> float:
        return self.random.uniform(0.2, 3) if self.random.random() < 0.9 else self.random.uniform(3, 150)

    def _deliver(self, link: Link, source: Node, target: Node, when: float, work: Callable[[], None]) -> None:
        run = target.runs

        def there() -> None:
            if link.is_dead or target.runs != run or not target.is_up:
                return
            if (source.number, target.number) in self.blocked:
                link.is_dead = True
                self.cut(link)
            else:
                work()

        self.after_at(target, when - self.now, there)

    def cut(self, link: Link) -> None:
        """Both ends notice, each in its time, after what is on the way."""
        if link.is_cut:
            return
        link.is_cut = True
        for node, last in ((link.slave, link.arrives), (link.master, link.back)):
            run = node.runs
            delay = max(last - self.now, 0) + self.random.uniform(0, 20)
            self.after_at(node, delay, lambda n=node, r=run: n.lost(link) if n.runs == r and n.is_up else None)

    # -------------------------------------------------------------------------------------------------------- faults

    def _flush(self) -> None:
        node = self.random.choice(self.nodes)
        node.durable = len(node.log)

    def _kill(self) -> None:
        node = self.random.choice(self.nodes)
        node.kill(power=self.random.random() < 0.4)
        self.after(self.random.uniform(10, 1200), node.start)

    def _freeze(self) -> None:
        node = self.random.choice(self.nodes)
        node.frozen_until = self.now + self.random.choice((80, 300, 700, 1200))

    def _cut_one(self) -> None:
        one, other = self.random.sample(range(len(self.nodes)), 2)
        pairs = {(one, other)} if self.random.random() < 0.5 else {(one, other), (other, one)}
        self.blocked |= pairs
        self.after(self.random.uniform(50, 1200), lambda: self.blocked.difference_update(pairs))

    def _isolate(self) -> None:
        node = self.random.choice(self.nodes)
        self.no_store.add(node.number)
        self.after(self.random.uniform(50, 1200), lambda: self.no_store.discard(node.number))

    def _store_down(self) -> None:
        self.store.is_down = True

        def up() -> None:
            self.store.is_down = False

        self.after(self.random.uniform(50, 1200), up)

    def _lossy(self) -> None:
        self.lossy = True

        def well() -> None:
            self.lossy = False

        self.after(self.random.uniform(100, 1200), well)

    def _hand_over(self) -> None:
        for node in self.nodes:
            if node.takes_sends and not self.is_frozen(node):
                node.do(node.replica.hand_over(self.random.choice(self.nodes).member))

    def _maintain(self) -> None:
        """An operator begins it, and later ends it as soon as that can be done."""
        self._maintained += 1
        number = self._maintained
        self._set_maintenance(True)

        def end() -> None:
            if number == self._maintained:  # another one has not begun meanwhile
                if self.store.agreed is not None and self.store.agreed.maintenance:
                    self._set_maintenance(False)
                self.after(50, end)

        self.after(self.random.uniform(50, 1200), end)

    def _set_maintenance(self, is_on: bool) -> None:
        for node in self.nodes:
            if not node.is_up or self.is_frozen(node):
                continue
            if node.replica.role is Role.MASTER:
                node.do(node.replica.maintain(is_on))
            elif not is_on:
                node.do(node.replica.end_maintenance(node.clock))

    def next_send(self) -> int:
        self._sent += 1
        return self._sent

    def _client(self) -> None:
        number = self.next_send()
        node = self.random.choice(self.nodes)
        self.after_at(node, self.random.uniform(0, 3), lambda: node.send(number) if node.is_up else None)
        self.after(self.random.expovariate(1 / self.send_ms), self._client)

    def simulate(
        self, length_ms: float = 1500, faults: int = 8, well_ms: float = 2000, kinds: tuple[str, ...] = ()
    ) -> None:
        """Start, let things go wrong, mend everything, and see that all is well. `kinds` of faults: any without."""
        for node in self.nodes:
            self.after(self.random.uniform(0, 100), node.start)
        self._client()
        chosen = kinds or self.random.sample(KINDS, self.random.randint(1, 4))  # few meet more often than all would
        for _ in range(self.random.randint(1, faults)):
            self.at(self.random.uniform(100, length_ms), getattr(self, f"_{self.random.choice(chosen)}"))
        for _ in range(4):
            self.at(self.random.uniform(100, length_ms), self._flush)
        self.run(length_ms)
        self.run(length_ms + 1500)  # until every fault has ended
        assert not any((self.blocked, self.no_store, self.lossy, self.store.is_down))
        self.run(self.now + well_ms)
        self.checker.finish()
