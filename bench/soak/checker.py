"""Whether a campaign's history and the logs that are left agree with what was promised. Pure: values in, findings out.

What is promised, while processes are killed and disks keep what they took (`kill -9` leaves the kernel's pages alone):

1. A receipt of any status is a message in its master's log, at the queue, offset and place it names.
2. SEND_OK of a pair with SYNC_MASTER is, from that moment on, a message in the slave's log, too.
3. A message is in a log once; offsets of a queue have no gap and none is there twice.
4. Of one sender, one queue and two receipts, the later send stands behind the earlier. A send without a receipt may
   stand anywhere behind its beginning: a frozen broker reads it when it thaws, whatever came over newer connections.
5. What a listener got is in the log where it said. Everything with a receipt is delivered, some more than once.
6. A group's progress at a node only falls within SETTLED_MS of a fault of the pair, and never below what the node had
   told SAVED_MS + SLACK_MS before the earliest such fault: a broker saves progress every 5 s, a slave copies it every
   10 s, and a node or a link that was silent may let an old commit through behind a newer one. What went with a master
   takes the progress behind it along: that falls to where the queue ends then. At last it is at the end of each one.
7. A slave's log is, byte for byte, the beginning of its master's.
8. When a master dies for good and its slave is promoted, what is missing is what lay behind the end of the slave's log,
   and none of it had SEND_OK of a SYNC_MASTER; whatever came later is there as ever. So it is when the master was
   frozen instead, and goes on after the promotion.
9. Such a former master serves nothing once it goes on, and a slave whose log differs serves nothing at all.
10. A promoted slave has the role that its master had.
11. Workers that are ended by SIGTERM in the midst of their work have done it with everything that has a receipt, with
    some of it more than once.
12. A timer message with a receipt is delivered, and none is stored in its topic before its time. Each promotion after
    it was sent may deliver it once more: the new master delivers what it has no copy of.
13. What was sent with a receipt to the topic of POP consumption is delivered to its group, and again until a member
    tries to acknowledge it. What a member has acknowledged in time is not delivered again, and nothing is redelivered
    before its invisible time is over. Two things are allowed, and counted: an acknowledgement, or a delivery, of which
    the log of a promoted slave had no record, because it came BEHIND_MS before the end of its master or later; and a
    second copy of a message that was redelivered before, when a broker died or its disk was full between copying it
    and taking note of that.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from operator import attrgetter
from typing import NamedTuple

from bench.soak.history import (
    ACKED,
    LEFT,
    SEND_OK,
    Copied,
    Delivered,
    Event,
    Fault,
    Popped,
    Posted,
    Probe,
    Progress,
    Promoted,
    Rang,
    Sent,
    Timed,
    Worked,
    of_kind,
)
from bench.soak.plan import FILL, KILL, PROMOTE, THAW

SECOND = 1_000_000_000  # in the time of a history
SAVED_MS = 5_000  # flushConsumerOffsetInterval
SLACK_MS = 5_000  # by which a busy machine, or a full disk, is late with it
SETTLED_MS = 20_000  # after a fault: two rounds of copying tables, in which a slave takes what its master has lost
# How far a slave may be behind when it is promoted: a fault of the pair holds for 4 s at most, a silent connection is
# given up after 5 s and tried again after 5 s, and a busy machine is late. So long the last response of a broker may be
# on its way, too.
BEHIND_MS = 15_000 + SLACK_MS
DOUBLING = (KILL, FILL, PROMOTE, THAW)  # faults that may come between a copy for redelivery and the note of it
AGAIN, EARLY = "acknowledged and popped again", "popped before its time"
FINDINGS_MAX = 20  # of one kind are told; the rest is counted


class Stored(NamedTuple):
    """One message of a log; `key` is empty for what the campaign did not send."""

    topic: str
    queue: int
    offset: int
    place: int
    key: str


@dataclass(frozen=True)
class Pair:
    """A broker name with its two nodes, as they are or as they began. `is_sync`: SEND_OK means both have it on disk."""

    name: str
    master: str
    slave: str
    is_sync: bool

    @property
    def swapped(self) -> Pair:
        return replace(self, master=self.slave, slave=self.master)


@dataclass(frozen=True)
class Era:
    """How long a pair had the roles it has in `pair`."""

    pair: Pair
    begun: int = 0
    ended: int = 1 << 62


def eras(pair: Pair, promotions: Iterable[Promoted]) -> list[Era]:
    """From the beginning on; while a promotion is under way there is none."""
    found, begun = [], 0
    for one in promotions:
        if one.broker == pair.name:
            found.append(Era(pair, begun, one.killed))
            pair, begun = pair.swapped, one.ended
    return [*found, Era(pair, begun)]


def may_be_lost(one: Sent | Timed, place: int, pair: Pair, promotions: Iterable[Promoted]) -> bool:
    """Whether a message that was stored at `place` may have gone with a master."""
    is_promised = pair.is_sync and one.status == SEND_OK
    return not is_promised and any(
        death.broker == pair.name and one.begun <= death.killed and place >= death.log_end for death in promotions
    )


@dataclass(frozen=True)
class Log:
    """What was found in a node's log: its messages in their order, and what is wrong with the store by itself."""

    rows: Sequence[Stored]
    end: int
    damage: Sequence[str] = ()


@dataclass
class Verdict:
    """`violations` are sentences; `counts` has the number of every rule that was looked at."""

    violations: list[str] = field(default_factory=list)
    counts: Counter[str] = field(default_factory=Counter)

    def judge(self, rule: str, findings: Iterable[str]) -> None:
        found = list(findings)
        self.counts[rule] += len(found)
        self.violations += [f"{rule}: {text}" for text in found[:FINDINGS_MAX]]
        if len(found) > FINDINGS_MAX:
            self.violations.append(f"{rule}: {len(found) - FINDINGS_MAX} more")


def check(
    events: Sequence[Event],
    pairs: Sequence[Pair],
    logs: Mapping[str, Log],
    differences: Mapping[str, int | None],
    topic: str,
) -> Verdict:
    """`pairs` as they began; `logs` are by node; `differences` by broker name, the first byte at which a slave's log is
    not its master's.
    """
    verdict = Verdict()
    promotions = sorted(of_kind(events, Promoted), key=attrgetter("killed"))
    pair_of = {pair.name: pair for pair in pairs}
    sent = [one for one in of_kind(events, Sent) if not may_be_lost(one, one.place, pair_of[one.broker], promotions)]
    delivered = list(surviving(of_kind(events, Delivered), of_kind(events, Sent), pair_of, promotions))
    for begin in pairs:
        times = eras(begin, promotions)
        pair = times[-1].pair
        master, slave = logs[pair.master], logs[pair.slave]
        own = [one for one in sent if one.broker == pair.name]
        verdict.judge("lost", lost(own, master.rows, topic, pair.master))
        if pair.is_sync:
            confirmed = [one for one in own if one.status == SEND_OK]
            verdict.judge("lost by the slave", lost(confirmed, slave.rows, topic, pair.slave))
            for era in times:
                verdict.judge("not at the slave in time", uncovered(confirmed, of_kind(events, Copied), era))
        for node, log in ((pair.master, master), (pair.slave, slave)):
            verdict.judge("doubled or missing offset", crowded(log.rows, node))
            verdict.judge("stored twice", repeated(log.rows, node))
            verdict.judge("damaged store", (f"{node}: {text}" for text in log.damage))
        seen = [one for one in delivered if one.broker == pair.name]
        verdict.judge("delivered and not stored", vanished(seen, master.rows, topic))
        verdict.judge("progress not at the end", unfinished(of_kind(events, Progress), pair, master.rows, topic))
        at = differences[pair.name]
        verdict.judge("logs differ", [] if at is None else [f"{pair.slave} differs from {pair.master} at byte {at}"])
        if slave.end > master.end:
            verdict.judge("logs differ", [f"{pair.slave} ends at {slave.end}, {pair.master} at {master.end}"])
    timed, rang = of_kind(events, Timed), of_kind(events, Rang)
    kept = [one for one in timed if not may_be_lost(one, one.place, pair_of[one.broker], promotions)]
    verdict.judge("timer lost", unheard(kept, rang))
    verdict.judge("timer early", early(timed, rang))
    verdict.judge("timer too often", too_often(timed, rang, promotions))
    kept_posts = surviving_posts(events, pairs)
    verdict.judge("never popped", unpopped(kept_posts, of_kind(events, Popped)))
    verdict.judge("never redelivered", abandoned(kept_posts, of_kind(events, Popped)))
    unexcused = [one for one in repeats(events, pairs) if not one.excuse]
    for rule in (AGAIN, EARLY):
        verdict.judge(rule, (one.text for one in unexcused if one.rule == rule))
    verdict.judge("out of order", disordered(sent))
    verdict.judge("never delivered", undelivered(sent, delivered))
    verdict.judge("progress fell", fallen(events, pairs))
    verdict.judge("served by who may not", served(of_kind(events, Probe)))
    verdict.judge("another role", changed_roles(promotions, pair_of))
    verdict.judge("never worked on", unworked(sent, of_kind(events, Worked)))
    return verdict


# ------------------------------------------------------------------------------------------------------- of the logs


def lost(sent: Iterable[Sent], rows: Iterable[Stored], topic: str, node: str) -> Iterator[str]:
    """Receipts whose message is not where they say."""
    found = {(row.queue, row.offset): row for row in rows if row.topic == topic}
    for one in sent:
        if not one.status:
            continue
        row = found.get((one.queue, one.offset))
        if row is None or (row.key, row.place) != (one.key, one.place):
            there = "nothing" if row is None else f"{row.key} of place {row.place}"
            yield f"{one.key} ({one.status}) belongs to {one.queue}/{one.offset}, place {one.place}; {node} has {there}"


def uncovered(sent: Iterable[Sent], looks: Iterable[Copied], era: Era) -> Iterator[str]:
    """Messages that were acknowledged before a look at the slave's log that did not find them."""
    node = era.pair.slave
    receipts = sorted((one for one in sent if one.begun >= era.begun), key=attrgetter("ended"))
    position, furthest = 0, None
    own = (look for look in looks if look.node == node and era.begun <= look.at <= era.ended)
    for look in sorted(own, key=attrgetter("at")):
        while position < len(receipts) and receipts[position].ended < look.at:
            if furthest is None or receipts[position].place > furthest.place:
                furthest = receipts[position]
            position += 1
        if furthest is not None and furthest.place >= look.end:
            yield f"{node} ended at {look.end} when {furthest.key} at {furthest.place} was acknowledged"


def crowded(rows: Iterable[Stored], node: str) -> Iterator[str]:
    """Queues whose offsets do not rise one by one along the log."""
    following: dict[tuple[str, int], int] = {}
    for row in rows:
        expected = following.get((row.topic, row.queue), 0)
        if row.offset != expected:
            yield f"{node}: {row.topic}/{row.queue} has {row.offset} where {expected} follows, place {row.place}"
        following[row.topic, row.queue] = max(expected, row.offset + 1)


def repeated(rows: Iterable[Stored], node: str) -> Iterator[str]:
    counts = Counter(row.key for row in rows if row.key)
    return (f"{node} has {key} {count} times" for key, count in counts.items() if count > 1)


def disordered(sent: Iterable[Sent]) -> Iterator[str]:
    """Of one sender and one queue, a later send that stands before an earlier one."""
    last: dict[tuple[str, str, int], Sent] = {}
    for one in sorted((one for one in sent if one.status), key=attrgetter("begun")):
        before = last.get((one.sender, one.broker, one.queue))
        if before is not None and before.ended <= one.begun and one.offset <= before.offset:
            yield f"{one.key} was sent after {before.key} and stands at {one.offset}, before {before.offset}"
        last[one.sender, one.broker, one.queue] = one


# -------------------------------------------------------------------------------------------------- of the consumers


def surviving(
    delivered: Iterable[Delivered], sent: Iterable[Sent], pair_of: Mapping[str, Pair], promotions: Sequence[Promoted]
) -> Iterator[Delivered]:
    """What was delivered, without what has gone with a master since."""
    sends = {one.key: one for one in sent}
    for one in delivered:
        known = sends.get(one.key)
        if known is None or not may_be_lost(known, one.place, pair_of[one.broker], promotions):
            yield one


def vanished(delivered: Iterable[Delivered], rows: Iterable[Stored], topic: str) -> Iterator[str]:
    """What a listener got and the log does not have there."""
    found = {(row.queue, row.offset): row.key for row in rows if row.topic == topic}
    for one in delivered:
        if (key := found.get((one.queue, one.offset))) != one.key:
            yield f"{one.key} came as {one.broker}/{one.queue}/{one.offset}, where {key or 'nothing'} is"


def undelivered(sent: Iterable[Sent], delivered: Iterable[Delivered]) -> Iterator[str]:
    came = {one.key for one in delivered}
    return (f"{one.key} at {one.broker}/{one.queue}/{one.offset}" for one in sent if one.status and one.key not in came)


def unheard(timed: Iterable[Timed], rang: Iterable[Rang]) -> Iterator[str]:
    """Timer messages that were sent with success and that no consumer received."""
    came = {one.key for one in rang}
    return (f"{one.key} of {one.broker}, place {one.place}" for one in timed if one.status and one.key not in came)


def early(timed: Iterable[Timed], rang: Iterable[Rang]) -> Iterator[str]:
    due = {one.key: one.due_ms for one in timed}
    for one in rang:
        if one.stored_ms < due.get(one.key, 0):
            yield f"{one.key} at {one.broker}/{one.queue}/{one.offset} came {due[one.key] - one.stored_ms} ms early"


def too_often(timed: Iterable[Timed], rang: Iterable[Rang], promotions: Sequence[Promoted]) -> Iterator[str]:
    """Timer messages that were stored in their topic once more than promotions since their send explain."""
    copies = _copies(rang)
    for one in timed:
        since = sum(death.broker == one.broker and death.ended >= one.begun for death in promotions)
        if (stored := copies[one.key]) > 1 + since:
            yield f"{one.key} of {one.broker} was stored {stored} times, with {since} promotions since it was sent"


def _copies(rang: Iterable[Rang]) -> Counter[str]:
    """How often each timer message was stored in its topic."""
    places = {(one.key, one.broker, one.queue, one.offset) for one in rang}
    return Counter(key for key, *_ in places)


def twice(rang: Iterable[Rang]) -> int:
    """How many timer messages were stored in their topic more than once."""
    return sum(count > 1 for count in _copies(rang).values())


def unworked(sent: Iterable[Sent], worked: Iterable[Worked]) -> Iterator[str]:
    done = {one.key for one in worked}
    return (f"{one.key} at {one.broker}/{one.queue}/{one.offset}" for one in sent if one.status and one.key not in done)


def served(probes: Iterable[Probe]) -> Iterator[str]:
    return (f"{one.node} served {one.request}: {one.why}" for one in probes if one.served)


def changed_roles(promotions: Iterable[Promoted], pair_of: Mapping[str, Pair]) -> Iterator[str]:
    for one in promotions:
        role = "SYNC_MASTER" if pair_of[one.broker].is_sync else "ASYNC_MASTER"
        if one.role != role:
            yield f"{one.node} became {one.role or 'what it did not say'} where {one.former} was {role}"


def unfinished(progress: Iterable[Progress], pair: Pair, rows: Iterable[Stored], topic: str) -> Iterator[str]:
    """Queues whose last known progress at the master is not behind the last message."""
    latest = {one.queue: one.offset for one in progress if one.node == pair.master}
    ends = {row.queue: row.offset + 1 for row in rows if row.topic == topic}
    for queue, end in ends.items():
        if latest.get(queue) != end:
            yield f"{pair.master}/{queue} is at {latest.get(queue)} of {end}"


def falls(progress: Iterable[Progress]) -> Iterator[tuple[Progress, Progress, list[Progress]]]:
    """Two readings of which the second is less, with all readings up to the first."""
    histories: defaultdict[tuple[str, int], list[Progress]] = defaultdict(list)
    for one in sorted(progress, key=attrgetter("at")):
        history = histories[one.node, one.queue]
        if history and one.offset < history[-1].offset:
            yield history[-1], one, list(history)
        history.append(one)


def fallen(events: Sequence[Event], pairs: Iterable[Pair]) -> Iterator[str]:
    """Progress that fell without a fault, or further than a fault and what went with a master allow."""
    pair_of = {node: pair for pair in pairs for node in (pair.master, pair.slave)}
    faults = of_kind(events, Fault)
    cuts = {pair.name: list(_cuts(pair, events)) for pair in set(pair_of.values())}
    for before, after, history in falls(of_kind(events, Progress)):
        begun = _felt_since(faults, pair_of[after.node], before.at, after.at)
        text = f"{after.node}/{after.queue} fell from {before.offset} to {after.offset}"
        if begun is None:
            yield f"{text} without a fault"
            continue
        safe = begun - (SAVED_MS + SLACK_MS) * SECOND // 1000
        own = cuts[pair_of[after.node].name]
        floor = max((_left_of(one, own, after.at) for one in history if one.at < safe), default=0)
        if after.offset < floor:
            yield f"{text}, although {floor} was there {SAVED_MS + SLACK_MS} ms before the fault"


class Cut(NamedTuple):
    """A log lost its end: after `at`, `queues` had so many messages that are known by their receipts; others none."""

    at: int
    queues: Mapping[int, int]


def _cuts(pair: Pair, events: Sequence[Event]) -> Iterator[Cut]:
    """By the promotions of the pair, in their order."""
    deaths = sorted((one for one in of_kind(events, Promoted) if one.broker == pair.name), key=attrgetter("killed"))
    sent = [one for one in of_kind(events, Sent) if one.broker == pair.name and one.status]
    for number, death in enumerate(deaths, 1):
        queues: defaultdict[int, int] = defaultdict(int)
        for one in sent:
            if one.begun <= death.killed and not may_be_lost(one, one.place, pair, deaths[:number]):
                queues[one.queue] = max(queues[one.queue], one.offset + 1)
        yield Cut(death.killed, queues)


def _left_of(reading: Progress, cuts: Iterable[Cut], until: int) -> int:
    """What is left of a group's progress after what the log has lost since."""
    since = (cut.queues.get(reading.queue, 0) for cut in cuts if reading.at <= cut.at <= until)
    return min([reading.offset, *since])


def _felt_since(faults: Iterable[Fault], pair: Pair, begin: int, end: int) -> int | None:
    """When the earliest fault of the pair began that may be felt in a stretch of time; None without any."""
    settled = SETTLED_MS * SECOND // 1000
    own = [fault for fault in faults if fault.target in (pair.master, pair.slave)]
    return min((fault.begun for fault in own if fault.begun <= end and fault.ended + settled >= begin), default=None)


# ------------------------------------------------------------------------------------------------- POP consumption


class Doubt(NamedTuple):
    """What a broker confirmed after `since`, until `until`, may be missing at the slave that was promoted when its
    master was `killed`.
    """

    since: int
    killed: int
    until: int

    def covers(self, *instants: int) -> bool:
        return any(self.since < one <= self.until for one in instants)


def doubts(events: Sequence[Event]) -> dict[str, list[Doubt]]:
    """By broker name. What was confirmed before a send began lies before it in the log: if the slave had that message,
    it had this record. What a client hears long after the end of the master comes from the new one.
    """
    behind = BEHIND_MS * SECOND // 1000
    found: defaultdict[str, list[Doubt]] = defaultdict(list)
    for death in of_kind(events, Promoted):
        copied = (
            one.begun
            for one in of_kind(events, Sent)
            if one.broker == death.broker and one.status and one.begun <= death.killed and one.place < death.log_end
        )
        since, until = max([death.killed - behind, *copied]), min(death.ended, death.killed + behind)
        found[death.broker].append(Doubt(since, death.killed, until))
    return found


def surviving_posts(events: Sequence[Event], pairs: Iterable[Pair]) -> list[Posted]:
    """Sends with a receipt, without those that may have gone with a master."""
    doubted, sync = doubts(events), {pair.name for pair in pairs if pair.is_sync}
    return [
        one
        for one in of_kind(events, Posted)
        if one.status
        and (
            (one.broker in sync and one.status == SEND_OK)
            or not any(doubt.covers(one.ended) and one.begun <= doubt.killed for doubt in doubted.get(one.broker, ()))
        )
    ]


def unpopped(posted: Iterable[Posted], popped: Iterable[Popped]) -> Iterator[str]:
    came = {one.key for one in popped}
    return (f"{one.key} of {one.broker}, sent by {one.by}" for one in posted if one.key not in came)


def abandoned(posted: Iterable[Posted], popped: Iterable[Popped]) -> Iterator[str]:
    """Messages that no consumer tried to acknowledge, and that were not redelivered."""
    fates: defaultdict[str, set[str]] = defaultdict(set)
    for one in popped:
        fates[one.key].add(one.fate)
    return (f"{one.key} of {one.broker}, sent by {one.by}" for one in posted if fates.get(one.key) == {LEFT})


class Repeat(NamedTuple):
    """A delivery that should not have been; `excuse` says why at-least-once allows it, empty when it does not."""

    rule: str
    text: str
    excuse: str


def repeats(events: Sequence[Event], pairs: Iterable[Pair]) -> Iterator[Repeat]:
    """Deliveries by POP after an acknowledgement, or before the invisible time of another one was over."""
    doubted, begun = doubts(events), {one.key: one.begun for one in of_kind(events, Posted)}
    pair_of = {node: pair.name for pair in pairs for node in (pair.master, pair.slave)}
    doublings: defaultdict[str, list[Fault]] = defaultdict(list)
    for fault in of_kind(events, Fault):
        if fault.kind in DOUBLING and fault.target in pair_of:
            doublings[pair_of[fault.target]].append(fault)
    by_key: defaultdict[str, list[Popped]] = defaultdict(list)
    for one in sorted(of_kind(events, Popped), key=attrgetter("popped")):
        for before in by_key[one.key]:
            if before.fate == ACKED and before.decided < one.popped:
                rule, late = AGAIN, one.popped - before.decided
                text = f"{one.key} as {one.copy} of {one.broker}, {late // 1_000_000} ms after that of {before.copy}"
            elif one.popped < before.due:
                rule, soon = EARLY, before.due - one.popped
                text = f"{one.key} as {one.copy} of {one.broker}, {soon // 1_000_000} ms before that of {before.copy}"
            else:
                continue
            excuse = ""
            if any(doubt.killed <= one.at and doubt.covers(before.at, before.decided) for doubt in doubted[one.broker]):
                excuse = "promotion"
            elif before.times and one.copy != before.copy:
                since = begun.get(one.key, 0)
                near = (fault.begun <= before.popped and fault.ended >= since for fault in doublings[one.broker])
                excuse = "second copy" if any(near) else ""
            yield Repeat(rule, text, excuse)
        by_key[one.key].append(one)
