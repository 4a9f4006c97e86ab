"""The table of situations and verdicts: each made for real on one broker, looked at twice with the clock turned by a
minute in between, and told alike by `group why`, the page of the group and the overview.
"""

from __future__ import annotations

import asyncio
import html
import itertools
import re
import threading
import time
from collections.abc import Awaitable, Callable, Iterable, Iterator
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path

import pytest

from orbitmq.admin import cluster as clusters
from orbitmq.admin.evidence import why
from orbitmq.admin.group_verdicts import GroupVerdicts, group_verdicts
from orbitmq.admin.progress import progress
from orbitmq.admin.session import Session
from orbitmq.admin.topic_changes import TopicChanges, plan_alter
from orbitmq.admin.verdict import ORDER, Finding, Severity
from orbitmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    Message,
    MessageModel,
    MessageQueue,
)
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.net.remoting import Remoting
from orbitmq.operations.membership import lock_queues
from orbitmq.testing.cluster import Cluster, ShiftedClock
from tests.support.commands import items, orbitmq
from tests.support.dashboards import PLACE, seen
from tests.support.process import wait_until
from tests.support.sessions import asked

OK, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
MINUTE_S = 61
WAITS = "Checking consumer groups"  # on the first page, when it was sent without the verdicts
PATIENCE_S = 30
WELL, UNKNOWN, WARNING, CRITICAL = Severity.WELL, Severity.UNKNOWN, Severity.WARNING, Severity.CRITICAL

# Situation: what is told at once, and what is told a minute later.
TABLE: dict[str, tuple[tuple[Severity, str], tuple[Severity, str]]] = {
    "idle-and-caught-up": ((WELL, "well"), (WELL, "well")),
    "catching-up": ((WARNING, "too-slow"), (WELL, "well")),  # it fell behind in the minute of the burst
    "falling-behind": ((WARNING, "too-slow"), (WARNING, "too-slow")),
    "suspended": ((WARNING, "suspended"), (CRITICAL, "suspended")),
    "no-subscription": ((CRITICAL, "no-subscription"), (CRITICAL, "no-subscription")),
    "subscriptions-differ": ((CRITICAL, "subscriptions-differ"), (CRITICAL, "subscriptions-differ")),
    "blocked-since-start": ((UNKNOWN, "too-early"), (CRITICAL, "stuck-listener")),
    "blocked-after-progress": ((WELL, "well"), (CRITICAL, "stuck-listener")),
    "every-message-fails": ((CRITICAL, "listener-fails"), (CRITICAL, "listener-fails")),
    "every-message-fails-in-order": ((CRITICAL, "listener-fails"), (CRITICAL, "listener-fails")),
    "dead-letters-grow": ((CRITICAL, "dead-letters"), (CRITICAL, "dead-letters")),
    "nobody-and-lag": ((CRITICAL, "offline"), (CRITICAL, "offline")),
    "nobody-and-no-lag": ((WELL, "offline"), (WELL, "offline")),
    "topic-not-readable": ((CRITICAL, "topic-not-readable"), (CRITICAL, "topic-not-readable")),
    "locked-by-a-dead-member": ((UNKNOWN, "unowned-queues"), (CRITICAL, "unowned-queues")),
    "more-members-than-queues": ((WARNING, "more-clients-than-queues"), (WARNING, "more-clients-than-queues")),
    "filter-matches-nothing": ((WARNING, "filter-matches-nothing"), (WARNING, "filter-matches-nothing")),
    "paused-lite-pull": ((WARNING, "suspended"), (CRITICAL, "suspended")),
    "never-polls": ((UNKNOWN, "too-early"), (CRITICAL, "no-progress")),
    "broadcasting": ((WELL, "broadcast"), (WELL, "broadcast")),
}  # fmt: skip
BY_LOOKS_ALONE = {"catching-up", "falling-behind", "never-polls"}
"""What one look a minute later cannot tell: the clock of the clients is not turned, and who polls tells nothing."""


@dataclass
class Told:
    """What one look found of one group, in all three places."""

    findings: list[Finding]
    page: tuple[str, str]
    """Severity and sentence at the top of the group's page."""
    on_overview: str | None
    """The severity beside the group's sentence on the first page; None when it is not there."""
    of_all: Severity
    """Of the cluster as the overview has it."""


@dataclass
class Looks:
    now: dict[str, Told] = field(default_factory=dict)
    later: dict[str, Told] = field(default_factory=dict)
    alone: dict[str, Finding] = field(default_factory=dict)
    """A minute later, by a look that knows of no other: the worst."""


class Situations:
    """Groups in trouble and out of it, each with a topic of its own name."""

    def __init__(self, cluster: Cluster, stack: ExitStack) -> None:
        self.cluster = cluster
        self.address = cluster.namesrv_address
        self.broker_name = cluster.broker_names[0]
        self._stack = stack
        self.going = threading.Event()
        """Set when nothing shall hang any more."""
        self.producer = stack.enter_context(Producer("producers", self.address))

    def topic(self, name: str, messages: int = 0, queues: int = 1) -> None:
        self.cluster.create_topic(name, queues)
        self.send(name, messages)

    def send(self, topic: str, messages: int, size: int = 10) -> None:
        if messages:
            for _ in range(0, messages, 100):
                self.producer.send_batch([Message(topic, b"x" * size) for _ in range(min(100, messages))])

    def made(
        self, group: str, listen: Callable[..., object], *, expression: str = "*", orderly: bool = False, **more: object
    ) -> PushConsumer:
        consumer = PushConsumer(group, self.address, consume_from_where=FIRST, **more)  # type: ignore[arg-type]
        if expression:
            consumer.subscribe(group, expression)
        consumer.set_listener(listen, orderly=orderly)  # type: ignore[arg-type]
        return consumer

    def push(self, group: str, listen: Callable[..., object], *, suspended: bool = False, **more: object) -> None:
        consumer = self.made(group, listen, **more)  # type: ignore[arg-type]
        if suspended:
            consumer.suspend()  # before a pull is under way, which would still be answered
        self._stack.enter_context(consumer)

    def lite(self, group: str) -> LitePullConsumer:
        made = LitePullConsumer(group, self.address, consume_from_where=FIRST)
        made.subscribe(group)
        return self._stack.enter_context(made)

    def hang(self, *_: object) -> ConsumeConcurrentlyStatus:
        self.going.wait(300)
        return OK


def fine(*_: object) -> ConsumeConcurrentlyStatus:
    return OK


def slow(seconds: float, *_: object) -> ConsumeConcurrentlyStatus:
    time.sleep(seconds)
    return OK


def fails(*_: object) -> ConsumeConcurrentlyStatus:
    raise ValueError("the bank is closed")


def make(one: Situations, directory: Path) -> None:
    """All of them, one after the other; none waits for a time, and what takes long to come is waited for at the end."""
    for name, messages in (
        ("idle-and-caught-up", 5), ("catching-up", 4000), ("falling-behind", 4000), ("suspended", 0),
        ("subscriptions-differ", 0), ("blocked-since-start", 10), ("blocked-after-progress", 5),
        ("every-message-fails", 10), ("every-message-fails-in-order", 10), ("dead-letters-grow", 12),
        ("nobody-and-lag", 3), ("nobody-and-no-lag", 3), ("topic-not-readable", 3), ("locked-by-a-dead-member", 3),
        ("more-members-than-queues", 3), ("filter-matches-nothing", 20), ("paused-lite-pull", 0), ("never-polls", 10),
        ("broadcasting", 3),
    ):  # fmt: skip
        one.topic(name, messages)
    one.push("idle-and-caught-up", fine)
    one.push("catching-up", partial(slow, 0.01), consume_threads=1)
    one.push("falling-behind", partial(slow, 0.2), consume_threads=1)
    one.push("suspended", fine, suspended=True)
    one.push("no-subscription", fine, expression="")
    one.push("subscriptions-differ", fine, expression="red")
    one.push("subscriptions-differ", fine, expression="blue", instance_name="other")
    one.push("blocked-since-start", one.hang)
    done = threading.Semaphore(5)
    one.push("blocked-after-progress", lambda *_: OK if done.acquire(blocking=False) else one.hang())
    one.push("every-message-fails", fails)
    one.push(
        "every-message-fails-in-order", lambda *_: ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT, orderly=True
    )
    third = itertools.cycle((fails, fails, fine))
    one.push("dead-letters-grow", lambda *_: next(third)(), max_reconsume_times=0, consume_threads=1)
    for name in ("nobody-and-lag", "nobody-and-no-lag"):
        with one.made(name, fine):
            wait_until(partial(_caught_up, one, name), PATIENCE_S, f"{name} is through")
    one.send("nobody-and-lag", 4)
    one.push("topic-not-readable", one.hang)
    asked(one.address, _close_topic)
    asked(one.address, _lock)
    one.push("locked-by-a-dead-member", one.hang, orderly=True)
    for number in range(2):
        one.push("more-members-than-queues", fine, instance_name=f"member-{number}")
    one.push("filter-matches-nothing", fine, expression="green")
    one.lite("paused-lite-pull").pause([MessageQueue("paused-lite-pull", one.broker_name, 0)])
    one.lite("never-polls")
    one.push("broadcasting", fine, message_model=MessageModel.BROADCASTING, local_offset_dir=str(directory))
    for name in ("suspended", "paused-lite-pull"):
        one.send(name, 10)
    wait_until(lambda: done._value == 0, PATIENCE_S, "five messages are done")
    one.send("blocked-after-progress", 5)


def _caught_up(one: Situations, group: str) -> bool:
    return one.cluster.backlog(group, group) == 0


async def _close_topic(session: Session) -> None:
    await (await plan_alter(session, "topic-not-readable", TopicChanges(perm=2))).make()


async def _lock(session: Session) -> None:
    (node,) = await session.masters()
    queues = [MessageQueue("locked-by-a-dead-member", node.name, 0)]
    assert await lock_queues(session.remoting, node.address, "dead@1", "locked-by-a-dead-member", queues) == set(queues)


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Situations]:
    lock_life = {"rocketmq.broker.rebalance.lockMaxLiveTime": "600000"}
    with Cluster(options=lock_life) as cluster, ExitStack() as stack:
        one = Situations(cluster, stack)
        make(one, tmp_path_factory.mktemp("offsets"))
        yield one
        one.going.set()  # or closing waits for those that hang


@pytest.fixture(scope="module")
def looks(running: Situations) -> Looks:
    clock = ShiftedClock()
    place = DashboardCluster(PLACE, ClusterAccess([running.address], Remoting), sample_seconds=0, clock=clock)
    found = Looks()

    async def look() -> dict[str, Told]:
        place.forget()
        judged = await group_verdicts(place.session(), clock=clock, paces=place.paces, watch_seconds=0)
        assert {one.group.name for one in judged.items} >= set(TABLE)
        (overview,) = (await clusters.broker_overviews(place.session())).items
        of_all = clusters.with_groups(overview, judged, [running.broker_name]).severity
        dashboard = Dashboard(DashboardSettings([place]))
        first = await front(dashboard)
        return {name: await told(dashboard, first, name, of_all) for name in TABLE}

    async def front(dashboard: Dashboard) -> str:
        """The first page as it is in the end: a busy machine sends it without the verdicts first."""
        for _ in range(PATIENCE_S * 2):
            page = html.unescape((await seen(dashboard, "")).body.decode())
            if WAITS not in page:
                break
            await asyncio.sleep(0.5)
        return page

    async def told(dashboard: Dashboard, first: str, name: str, of_all: Severity) -> Told:
        answer = await why(place.session(), name, clock=clock, paces=place.paces)
        page = html.unescape((await seen(dashboard, f"groups/{name}")).body.decode())
        (top,) = re.findall(r'<section class="verdict (\w+)">\s*<h2>(.*?)</h2>', page)
        items = re.findall(r'<li><span class="severity (\w+)">\w+</span> .*? <a href="[^"]*/groups/(.*?)/why"', first)
        there = [severity for severity, group in items if group == name]
        return Told(answer.items, top, there[0] if there else None, of_all)

    async def look_twice() -> None:
        await _until_told(place, clock)
        found.now = await look()
        await _until_committed(place, ("catching-up", "falling-behind"))
        running.cluster.advance(MINUTE_S)
        clock.shift_ms = MINUTE_S * 1000
        found.later = await look()
        for name in TABLE:
            found.alone[name] = (await why(place.session(), name, clock=clock)).items[0]
        await place.stop()

    asyncio.run(look_twice())
    return found


async def _soon(condition: Callable[[], Awaitable[bool]]) -> None:
    """Until it is so, or the table shall tell what is not."""
    for _ in range(PATIENCE_S * 2):
        if await condition():
            return
        await asyncio.sleep(0.5)


async def _until_committed(place: DashboardCluster, groups: Iterable[str]) -> None:
    """Until they are further than they are now."""

    async def at(name: str) -> list[int | None]:
        return [one.consumer_offset for one in (await progress(place.session(), name)).items[0].queues]

    before = {name: await at(name) for name in groups}

    async def are_further() -> bool:
        return all([await at(name) != offsets for name, offsets in before.items()])

    await _soon(are_further)


async def _until_told(place: DashboardCluster, clock: ShiftedClock) -> None:
    """What members tell are rates of a minute, sampled every 10 s, and what they commit comes every 5 s."""

    async def is_told(name: str) -> bool:
        one = (await why(place.session(), name, clock=clock, paces=place.paces)).items[0]
        return (one.severity, one.rule) == TABLE[name][0]

    async def are_told() -> bool:
        (quiet,) = (await progress(place.session(), "never-polls")).items
        is_stored = all(one.consumer_offset is not None for one in quiet.queues if one.topic == "never-polls")
        return is_stored and all(await asyncio.gather(*map(is_told, TABLE)))

    await _soon(are_told)


@pytest.mark.parametrize("situation", TABLE)
def test_a_situation_has_its_verdict_at_once_and_a_minute_later(looks: Looks, situation: str) -> None:
    now, later = TABLE[situation]
    assert _worst(looks.now[situation]) == now, looks.now[situation].findings
    assert _worst(looks.later[situation]) == later, looks.later[situation].findings


@pytest.mark.parametrize("situation", [name for name in TABLE if name not in BY_LOOKS_ALONE])
def test_one_look_that_knows_of_no_other_tells_the_same_a_minute_later(looks: Looks, situation: str) -> None:
    one = looks.alone[situation]
    assert (one.severity, one.rule) == TABLE[situation][1]


def test_what_one_look_cannot_know_is_too_early_to_tell_and_never_well(looks: Looks) -> None:
    assert looks.alone["never-polls"].severity is Severity.UNKNOWN
    assert "too early to judge" in looks.alone["never-polls"].message


@pytest.mark.parametrize("situation", TABLE)
def test_command_page_and_overview_tell_the_same(looks: Looks, situation: str) -> None:
    for look in (looks.now[situation], looks.later[situation]):
        worst = look.findings[0]
        assert look.page[0] == worst.severity.value
        assert look.on_overview == (None if worst.severity is Severity.WELL else worst.severity.value)


def test_the_overview_is_no_better_than_its_worst_group(looks: Looks) -> None:
    for look in (looks.now, looks.later):
        worst = min((one.findings[0].severity for one in look.values()), key=ORDER.index)
        assert {one.of_all for one in look.values()} == {worst} == {Severity.CRITICAL}


def _worst(one: Told) -> tuple[Severity, str]:
    return one.findings[0].severity, one.findings[0].rule


# ---------------------------------------------------------------------------------------- commands, and brokers away


@pytest.fixture(scope="module")
def pair() -> Iterator[Cluster]:
    """Two brokers, and two groups: `through` has all there is, `left` is offline with three messages waiting."""
    with Cluster(brokers=2) as cluster, ExitStack() as stack:
        one = Situations(cluster, stack)
        for name in ("through", "left"):
            one.topic(name, 4)
        stack.enter_context(one.made("through", fine))
        with one.made("left", fine):
            for name in ("through", "left"):
                wait_until(partial(_caught_up, one, name), PATIENCE_S, f"{name} is through")
        one.send("left", 3)
        yield cluster


def test_every_command_that_judges_the_cluster_is_as_bad_as_its_worst_group(pair: Cluster) -> None:
    at = ("-n", pair.namesrv_address)
    (reason,) = items("group", "why", "left", *at, code=8)
    assert (reason["severity"], reason["rule"]) == ("critical", "offline")
    (overview,) = items("cluster", "overview", *at)
    assert (overview["severity"], overview["verdict"]) == ("critical", reason["message"])
    row = next(one for one in items("cluster", "health", *at, code=8) if one["check"] == "groups")
    assert (row["subject"], row["severity"], row["message"]) == ("left", "critical", reason["message"])
    row = next(one for one in items("doctor", *at, code=8) if one["check"] == "groups")
    assert (row["severity"], row["message"]) == ("critical", reason["message"])
    assert reason["message"] in orbitmq("check", "group", *at, code=2).stdout
    assert reason["message"] in orbitmq("check", "group", "left", *at, code=2).stdout
    orbitmq("check", "lag", "left", *at)  # its limits alone decide, and this lag is short
    assert (reason["sentence"], reason["command"]) == (reason["message"], reason["remedy"]), "former keys"
    assert "1 group is well" in orbitmq("check", "group", "through", *at).stdout
    assert reason["message"] in orbitmq("top", "--once", *at).stdout
    (waited,) = items("wait", "cluster", "--for", "healthy", "--wait", 0, *at, code=8)
    assert (waited["holds"], waited["last"]) == (False, reason["message"])


def test_a_group_that_nobody_knows_is_critical_and_has_no_page(pair: Cluster) -> None:
    (one,) = asked(pair.namesrv_address, lambda session: why(session, "nobody-knows-it")).items
    assert (one.severity, one.rule) == (Severity.CRITICAL, "unknown")

    async def page() -> int:
        place = DashboardCluster(PLACE, ClusterAccess([pair.namesrv_address], Remoting), sample_seconds=0)
        try:
            return (await seen(Dashboard(DashboardSettings([place])), "groups/nobody-knows-it")).status
        finally:
            await place.stop()

    assert asyncio.run(page()) == 404


def test_while_a_part_of_the_queues_is_away_nothing_is_well(pair: Cluster) -> None:
    pair.kill("broker-b")
    try:
        (overview,) = [one for one in asked(pair.namesrv_address, _verdicts).items if one.group.name == "through"]
    finally:
        pair.restart("broker-b")  # the consumers say good-bye to it
    assert (overview.worst.severity, overview.worst.rule) == (Severity.WARNING, "no-answer")


async def _verdicts(session: Session) -> GroupVerdicts:
    return await group_verdicts(session, watch_seconds=0)
