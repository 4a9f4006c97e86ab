"""Topics of two brokers: listed by kind, made where wanted, altered without losing what was not spoken of, deleted."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Iterator
from dataclasses import dataclass, field
from typing import Any, TypeVar

import pytest

from orbitmq.admin import topic_changes, topics
from orbitmq.admin.plans import Plan, StepOutcome
from orbitmq.admin.results import Result
from orbitmq.admin.session import IN_FLIGHT_MAX, Node, Session
from orbitmq.admin.topic_changes import TopicChanges, perm_of
from orbitmq.admin.topics import TopicFlow, TopicType, day_sum, type_of
from orbitmq.client.sync import Producer
from orbitmq.errors import AdminError, Conflict, MessageIllegal, NotFound, RemotingTimeout
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.topic_types import MessageType
from orbitmq.net.remoting import Remoting
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.bodies import BrokerStatsData, ConsumeStats, QueueProgress, StatsItem
from orbitmq.wire.requests import RequestCode
from tests.support.loops import JumpingLoop, run
from tests.support.sessions import asked, without_master

T = TypeVar("T")


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        yield started


def outcomes(running: Cluster, plan: Callable[[Session], Awaitable[Plan]]) -> list[StepOutcome]:
    async def make(session: Session) -> list[StepOutcome]:
        planned = await plan(session)
        return [step.outcome for step in (await planned.verify(await planned.make())).items]

    return asked(running.namesrv_address, make)


def made(running: Cluster, topic: str, **wanted: Any) -> None:
    found = outcomes(running, lambda session: topic_changes.plan_create(session, topic, TopicChanges(**wanted)))
    assert found == [StepOutcome.CONFIRMED] * 2


# ------------------------------------------------------------------------------------------------------------- pure


@pytest.mark.parametrize(
    ("name", "kind"),
    [
        ("Orders", TopicType.UNSPECIFIED),
        ("InOrder", TopicType.FIFO),
        ("%RETRY%g", TopicType.RETRY),
        ("%DLQ%g", TopicType.DLQ),
        ("TBW102", TopicType.SYSTEM),
        ("broker-a", TopicType.SYSTEM),
        ("rmq_sys_x", TopicType.SYSTEM),
    ],
)
def test_kinds_of_topics(name: str, kind: TopicType) -> None:
    assert type_of(name, frozenset({"broker-a"}), frozenset({"InOrder"})) is kind


@pytest.mark.parametrize(("text", "perm"), [("6", 6), ("RW", 6), ("rw-", 6), ("R", 4), ("w", 2), ("RWX", 7), ("0", 0)])
def test_permissions_in_letters_and_numbers(text: str, perm: int) -> None:
    assert perm_of(text) == perm


@pytest.mark.parametrize("text", ["", "8", "Q", "-", "-1"])
def test_what_is_no_permission(text: str) -> None:
    with pytest.raises(AdminError):
        perm_of(text)


def test_a_young_broker_tells_the_day_by_its_longest_window() -> None:
    assert day_sum(BrokerStatsData(StatsItem(sum=9), StatsItem(sum=5), StatsItem(sum=1))) == 9
    assert day_sum(BrokerStatsData(StatsItem(), StatsItem(sum=5), StatsItem(sum=1))) == 5
    assert day_sum(BrokerStatsData(StatsItem(), StatsItem(), StatsItem(sum=1))) == 1
    assert day_sum(BrokerStatsData()) == 0


MINUTE = StatsItem(sum=60, tps=1.0)
HOME, FROZEN = Node("c", "a", 0, "h:1"), Node("c", "b", 0, "h:2")


@dataclass
class Asked:
    """Brokers that answer in a second of the loop's time, but for the frozen one, which is given up after five."""

    frozen: list[str] = field(default_factory=list)

    async def __call__(self, address: str, answer: T) -> T:
        if address == FROZEN.address:
            self.frozen.append(address)
            await asyncio.sleep(5)
            raise RemotingTimeout("no answer in 5000 ms")
        await asyncio.sleep(1)
        return answer


def flow_of(monkeypatch: pytest.MonkeyPatch, homes: list[Node], groups: int) -> tuple[Result[TopicFlow], Asked, float]:
    """What is found, who was asked in vain, and how long it took on the loop's clock."""
    asked_of = Asked()

    async def known(_remoting: Remoting, address: str, _topic: str, *, timeout_ms: float) -> list[str]:
        return await asked_of(address, [f"g{number}" for number in range(groups)])

    async def counted(_remoting: Remoting, address: str, *_key: str, timeout_ms: float) -> BrokerStatsData:
        return await asked_of(address, BrokerStatsData(MINUTE, MINUTE, MINUTE))

    async def behind(_remoting: Remoting, address: str, *_of: str, timeout_ms: float) -> ConsumeStats:
        return await asked_of(address, ConsumeStats(offset_table={MessageQueue("T", "a", 0): QueueProgress(9, 2)}))

    monkeypatch.setattr(topics, "groups_of_topic", known)
    monkeypatch.setattr(topics, "statistic", counted)
    monkeypatch.setattr(topics, "consume_stats", behind)

    async def look() -> tuple[Result[TopicFlow], float]:
        session = Session(Remoting(), ["n:1"])

        async def homes_of(_topic: str) -> list[Node]:
            return homes

        monkeypatch.setattr(session, "homes", homes_of)
        loop = asyncio.get_running_loop()
        began = loop.time()
        return await topics.flow(session, "T"), loop.time() - began

    found, took = run(look(), JumpingLoop)
    return found, asked_of, took


def test_a_frozen_broker_is_waited_for_once_however_many_groups_there_are(monkeypatch: pytest.MonkeyPatch) -> None:
    found, asked_of, took = flow_of(monkeypatch, [HOME, FROZEN], 20)
    assert [row.group for row in found.items] == sorted(f"g{number}" for number in range(20))
    assert {(row.lag_messages, row.in_per_s, row.out_per_s, row.in_24_h) for row in found.items} == {(None,) * 4}
    assert [failure.name for failure in found.failures] == ["TIMEOUT"]
    assert asked_of.frozen == [FROZEN.address]
    assert took <= 5 + 1 + 3, "20 groups, two questions each, 16 at a time"


def test_a_slave_that_stands_in_has_counted_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    (whole,) = flow_of(monkeypatch, [HOME], 1)[0].items
    assert (whole.in_per_s, whole.in_24_h, whole.out_per_s, whole.out_24_h, whole.lag_messages) == (1.0, 60, 1.0, 60, 7)
    slave = Node("c", "a", 1, "h:3", stands_in=True)
    (row,) = flow_of(monkeypatch, [slave], 1)[0].items
    assert (row.in_per_s, row.in_24_h, row.out_per_s, row.out_24_h, row.lag_messages) == (None,) * 5


# ------------------------------------------------------------------------------------------------------------- live


def test_topics_of_the_system_are_hidden_unless_asked_for(running: Cluster) -> None:
    made(running, "Listed")
    names = [row.topic for row in asked(running.namesrv_address, topics.listed).items]
    assert "Listed" in names
    assert not {"TBW102", "broker-a", "SCHEDULE_TOPIC_XXXX"} & set(names)
    everything = asked(running.namesrv_address, lambda session: topics.listed(session, everything=True)).items
    kinds = {row.topic: row.type for row in everything}
    assert kinds["Listed"] is TopicType.UNSPECIFIED
    assert {kinds[name] for name in ("TBW102", "broker-a", "SCHEDULE_TOPIC_XXXX")} == {TopicType.SYSTEM}
    some = asked(running.namesrv_address, lambda session: topics.listed(session, containing="iste"))
    assert [row.topic for row in some.items] == ["Listed"]


def test_a_topic_is_made_everywhere_or_where_it_is_wanted(running: Cluster) -> None:
    made(running, "Everywhere", write_queues=2, read_queues=3)
    rows = asked(running.namesrv_address, lambda session: topics.route(session, "Everywhere")).items
    assert [(row.broker, row.read_queues, row.write_queues, row.perm) for row in rows] == [
        ("broker-a", 3, 2, "RW-"),
        ("broker-b", 3, 2, "RW-"),
    ]
    plan = lambda session: topic_changes.plan_create(session, "Somewhere", TopicChanges(), brokers=["broker-b"])  # noqa: E731
    assert outcomes(running, plan) == [StepOutcome.CONFIRMED]
    assert outcomes(running, plan) == [StepOutcome.UNCHANGED]
    rows = asked(running.namesrv_address, lambda session: topics.route(session, "Somewhere")).items
    assert [row.broker for row in rows] == ["broker-b"]


def test_order_settings_are_what_brokers_have_and_keep_other_brokers(running: Cluster) -> None:
    made(running, "Ordered", write_queues=3, read_queues=3)
    server = running.namesrv_address

    async def again(session: Session) -> str | None:
        for brokers in ((), ("broker-b",)):
            plan = await topic_changes.plan_create(session, "Ordered", TopicChanges(), brokers=brokers, ordered=True)
            await plan.make()
        return await topic_changes.order_setting(session, "Ordered")

    assert asked(server, again) == "broker-a:3;broker-b:3"


def test_a_topic_that_is_different_is_not_made_over(running: Cluster) -> None:
    made(running, "Twice", write_queues=2, read_queues=2)
    with pytest.raises(Conflict, match="exists at broker-a"):
        outcomes(running, lambda session: topic_changes.plan_create(session, "Twice", TopicChanges(write_queues=3)))


@pytest.mark.parametrize("name", ["TBW102", "broker-a", "RMQ_SYS_TRANS_HALF_TOPIC"])
def test_topics_of_the_system_are_neither_made_nor_deleted(running: Cluster, name: str) -> None:
    with pytest.raises(Conflict, match="of the system"):
        outcomes(running, lambda session: topic_changes.plan_create(session, name, TopicChanges()))
    with pytest.raises(Conflict, match="of the system"):
        outcomes(running, lambda session: topic_changes.plan_delete(session, name))


def test_illegal_names_and_numbers_are_refused(running: Cluster) -> None:
    with pytest.raises(MessageIllegal):
        outcomes(running, lambda session: topic_changes.plan_create(session, "no name!", TopicChanges()))
    with pytest.raises(AdminError, match="0 queues: a topic has 1 to 65536"):
        outcomes(running, lambda session: topic_changes.plan_create(session, "Many", TopicChanges(write_queues=0)))


def test_what_is_not_spoken_of_stays(running: Cluster) -> None:
    made(running, "Altered", write_queues=2, read_queues=5, perm=4)
    found = outcomes(
        running, lambda session: topic_changes.plan_alter(session, "Altered", TopicChanges(write_queues=4))
    )
    assert found == [StepOutcome.CONFIRMED] * 2
    rows = asked(running.namesrv_address, lambda session: topics.configurations(session, "Altered")).items
    assert [(row.read_queues, row.write_queues, row.perm) for row in rows] == [(5, 4, "R--")] * 2


def test_the_messages_that_a_topic_takes(running: Cluster) -> None:
    """A normal topic does not have to say so, and an undo file takes a type away again."""
    made(running, "Typed", message_type=MessageType.NORMAL)

    def alter(wanted: MessageType) -> Callable[[Session], Awaitable[Plan]]:
        return lambda session: topic_changes.plan_alter(session, "Typed", TopicChanges(message_type=wanted))

    for wanted in (MessageType.FIFO, MessageType.NORMAL, MessageType.DELAY):
        assert outcomes(running, alter(wanted)) == [StepOutcome.CONFIRMED] * 2
        rows = asked(running.namesrv_address, lambda session: topics.configurations(session, "Typed")).items
        assert [row.message_type for row in rows] == [wanted] * 2

    async def look(session: Session) -> list[object]:
        listed = await topics.with_message_types(session, await topics.listed(session, containing="Typed"))
        plan = await alter(MessageType.NORMAL)(session)
        assert plan.undo is not None
        assert not (await topic_changes.plan_undo(session, plan.undo)).changing, "it restores the present type"
        return [row.message_types for row in listed.items]

    assert asked(running.namesrv_address, look) == [[MessageType.DELAY]]

    async def remove(session: Session) -> Plan:
        bare = TopicConfig("Typed", 8, 8)
        return await topic_changes.plan_undo(
            session, topic_changes.undo_of("Typed", dict.fromkeys(await session.masters(), bare))
        )

    assert outcomes(running, remove)[:2] == [StepOutcome.CONFIRMED] * 2
    rows = asked(running.namesrv_address, lambda session: topics.configurations(session, "Typed")).items
    assert [row.message_type for row in rows] == [MessageType.NORMAL] * 2


def test_a_type_in_letters() -> None:
    assert topic_changes.message_type_of("fifo") is topic_changes.message_type_of("FIFO") is MessageType.FIFO
    for text in ("unspecified", "LITE", ""):
        with pytest.raises(AdminError, match="is no type of messages"):
            topic_changes.message_type_of(text)


def test_queues_that_would_not_be_read_are_warned_of(running: Cluster) -> None:
    made(running, "Shrunk", write_queues=4, read_queues=4)

    async def warnings(session: Session) -> list[str]:
        return (await topic_changes.plan_alter(session, "Shrunk", TopicChanges(read_queues=2))).warnings

    written, left = asked(running.namesrv_address, warnings)
    assert written.startswith("queues 2 to 3 of Shrunk are written and never read")
    assert "lower the write queues first" in left


def test_altering_what_is_not_there_names_the_nearest(running: Cluster) -> None:
    made(running, "Nearby")
    with pytest.raises(NotFound) as error:
        outcomes(running, lambda session: topic_changes.plan_alter(session, "Nearbi", TopicChanges()))
    assert error.value.hint is not None
    assert "Nearby" in error.value.hint


def test_deleting_ends_with_the_name_servers(running: Cluster) -> None:
    made(running, "Doomed")
    put = outcomes(running, lambda session: topic_changes.plan_order(session, "Doomed", "broker-b:8;broker-a:8"))
    assert put == [StepOutcome.CONFIRMED]
    assert asked(running.namesrv_address, lambda session: topic_changes.order_setting(session, "Doomed")) == (
        "broker-a:8;broker-b:8"
    )

    async def delete(session: Session) -> list[tuple[str, str, StepOutcome]]:
        plan = await topic_changes.plan_delete(session, "Doomed")
        assert plan.destroys == "Doomed"
        checked = await plan.verify(await plan.make())
        return [(step.target.partition(" ")[0], step.action, step.outcome) for step in checked.items]

    server = running.namesrv_address
    assert asked(server, delete) == [
        ("broker-a", "delete topic", StepOutcome.CONFIRMED),
        ("broker-b", "delete topic", StepOutcome.CONFIRMED),
        (server, "remove", StepOutcome.CONFIRMED),
        (server, "forget topic", StepOutcome.CONFIRMED),
    ]
    with pytest.raises(NotFound):
        asked(server, delete)


def test_name_servers_keep_a_topic_that_a_broker_could_not_delete(running: Cluster) -> None:
    made(running, "Kept")
    running.refuse(RequestCode.DELETE_TOPIC_IN_BROKER, times=None, broker="broker-b")
    try:
        found = outcomes(running, lambda session: topic_changes.plan_delete(session, "Kept"))
    finally:
        running.heal()
    assert found == [StepOutcome.CONFIRMED, StepOutcome.FAILED, StepOutcome.SKIPPED]


def test_a_broker_without_master_is_warned_of(running: Cluster) -> None:
    made(running, "Halved")

    async def warned(session: Session) -> list[list[str]]:
        await without_master(session)
        plans = [
            await topic_changes.plan_create(session, "Halved", TopicChanges()),
            await topic_changes.plan_alter(session, "Halved", TopicChanges(perm=4)),
            await topic_changes.plan_delete(session, "Halved"),
            await topic_changes.plan_alter(session, "Halved", TopicChanges(perm=4), brokers=["broker-a"]),
        ]
        return [plan.warnings for plan in plans]

    untouched = "broker-z has no master now: nothing is changed there"
    brought_back = "broker-z has no master now: if it has the topic, it will register it again"
    assert asked(running.namesrv_address, warned) == [[untouched], [untouched], [brought_back], []]


def test_what_queues_hold_and_who_reads_them(running: Cluster) -> None:
    made(running, "Held", write_queues=2, read_queues=2)
    with Producer("held", running.namesrv_address) as producer:
        for number in range(8):
            producer.send(Message("Held", str(number).encode()))
    found = asked(running.namesrv_address, lambda session: topics.status(session, "Held"))
    assert [(row.broker, row.queue_id) for row in found.items] == [
        (b, q) for b in ("broker-a", "broker-b") for q in (0, 1)
    ]
    assert sum(row.messages for row in found.items) == 8
    assert all((row.updated_at_ms is not None) == (row.messages > 0) for row in found.items)
    (flow,) = asked(running.namesrv_address, lambda session: topics.flow(session, "Held")).items
    assert (flow.group, flow.out_24_h) == (None, None)
    assert asked(running.namesrv_address, lambda session: topics.consumers(session, "Held")).items == []


def test_a_broker_that_does_not_answer_makes_figures_partial(running: Cluster) -> None:
    made(running, "Partial")
    for code in (RequestCode.GET_TOPIC_STATS_INFO, RequestCode.VIEW_BROKER_STATS_DATA):
        running.disconnect(code, times=None, broker="broker-b")
    try:
        status = asked(running.namesrv_address, lambda session: topics.status(session, "Partial"))
        (flow,) = asked(running.namesrv_address, lambda session: topics.flow(session, "Partial")).items
    finally:
        running.heal()
    assert {row.broker for row in status.items} == {"broker-a"}
    assert [failure.target.partition(" ")[0] for failure in status.failures] == ["broker-b"]
    assert (flow.in_per_s, flow.in_24_h) == (None, None)


def test_what_flows_through_more_topics_than_are_asked_at_once(running: Cluster) -> None:
    names = [f"Flow{number}" for number in range(IN_FLIGHT_MAX + 4)]
    for name in names:
        running.create_topic(name, queues=1)
    found = asked(running.namesrv_address, lambda session: topics.flows(session, None))
    assert set(names) <= {row.topic for row in found.items}
    assert not found.failures
    active = asked(running.namesrv_address, lambda session: topics.flows(session, None, active=True)).items
    assert not set(names) & {row.topic for row in active}
