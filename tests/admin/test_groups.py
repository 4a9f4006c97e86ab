"""Groups of a cluster of two brokers: listed from rules and offsets alike, made, changed and removed, and what is
missing is named when a broker is dead.
"""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import groups
from orbitmq.admin.groups import TopicSums, plan_alter, plan_create, plan_delete, summed, with_rules
from orbitmq.admin.plans import StepOutcome
from orbitmq.admin.progress import progress
from orbitmq.admin.session import Node, Session
from orbitmq.client import ConsumeConcurrentlyStatus
from orbitmq.client.sync import PushConsumer
from orbitmq.errors import AdminError, Conflict, MessageIllegal, NotFound
from orbitmq.message.config import ExponentialRetries, RetryPolicy, RetryPolicyType, SubscriptionGroup, TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.operations.groups import create_group
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.sends import send
from orbitmq.operations.topics import create_topic
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.bodies import ConsumeStats, ConsumeStatsList, QueueProgress
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import request
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.sessions import asked, without_master

BROKERS = ["broker-a", "broker-b"]


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic("T", 2)
        yield running


async def made(session: Session, name: str, **rules: object) -> None:
    plan = await plan_create(session, name, rules)
    done = await plan.verify(await plan.make())
    assert [step.outcome for step in done.items] == [StepOutcome.CONFIRMED] * 2


def test_rules_are_changed_one_by_one() -> None:
    group = SubscriptionGroup("g", retry_max=3)
    changed = with_rules(group, {"consume_enable": False})
    assert (changed.consume_enabled, changed.retry_max, changed.consume_from_min_enabled) == (False, 3, True)


def test_what_is_no_rule_is_named_with_the_nearest() -> None:
    with pytest.raises(AdminError, match="consume_enabled is no rule") as caught:
        with_rules(SubscriptionGroup("g"), {"consume_enabled": False})
    assert "consume_enable" in (caught.value.hint or "")


def test_sums_of_brokers_add_up_and_an_offset_ahead_is_no_negative_lag() -> None:
    def of(topic: str, *queues: tuple[int, int]) -> ConsumeStats:
        table = {MessageQueue(topic, "b", n): QueueProgress(end, at) for n, (end, at) in enumerate(queues)}
        return ConsumeStats(1.5, table)

    answers = [ConsumeStatsList(consume_stats_list=[{"g": [of("T", (10, 4), (5, 50)), of("%RETRY%g", (3, 1))]}])] * 2
    found = summed(answers)["g"]
    assert (found.lag, found.retry, found.tps) == (12, 4, 6.0)
    assert found.topics == {"T": TopicSums(lag=12, end=30, tps=3.0)}, "a retry topic is none of its own"


def test_the_lag_of_the_list_is_of_the_queues_that_are_read(cluster: Cluster) -> None:
    """Brokers sum up over those that are written."""

    async def look(session: Session) -> None:
        for node in await session.masters():
            for read, write in ((4, 4), (4, 1)):  # shrunk: three queues are drained
                await create_topic(session.remoting, node.address, TopicConfig("Shrunk", read, write))
                for number in range(4 if write == 4 else 0):
                    await send_to(session, node, "Shrunk", number)
            for number in range(4):
                queue = MessageQueue("Shrunk", node.name, number)
                await update_consumer_offset(session.remoting, node.address, "drains", queue, 0)
        await made(session, "drains")
        (row,) = (await groups.groups(session, pattern="drains", lag=True)).items
        (exact,) = (await progress(session, "drains", clients=False)).items
        assert (row.lag_messages, exact.lag_messages) == (8, 8)

    asked(cluster.namesrv_address, look)


def test_a_group_or_topic_that_is_gone_meanwhile_hides_no_other_lag(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def look(session: Session) -> None:
        for node in await session.masters():
            for topic, read in (("Even", 1), ("Uneven", 2), ("Uneven2", 2)):
                await create_topic(session.remoting, node.address, TopicConfig(topic, read, 1))
            for group, topic in (("exact", "Even"), ("odd1", "Uneven"), ("odd2", "Uneven2")):
                queue = MessageQueue(topic, node.name, 0)
                await send_to(session, node, topic, 0)
                await update_consumer_offset(session.remoting, node.address, group, queue, 0)
        for name in ("exact", "odd1", "odd2"):
            await made(session, name)

        async def lags() -> tuple[dict[str, int | None], list[str]]:
            found = await groups.groups(session, lag=True)
            assert not found.failures
            rows = {row.name: row.lag_messages for row in found.items}
            return {name: rows[name] for name in ("exact", "odd1", "odd2")}, found.warnings

        whole, warnings = await lags()
        assert (whole, warnings) == ({"exact": 2, "odd1": 2, "odd2": 2}, [])
        cluster.refuse(RequestCode.GET_CONSUME_STATS, ResponseCode.TOPIC_NOT_EXIST, times=None, topic="Uneven2")
        assert await lags() == ({**whole, "odd2": 0}, [])
        cluster.heal()
        cluster.refuse(RequestCode.GET_CONSUME_STATS, times=None, topic="Uneven", broker="broker-b")
        partial, (warning,) = await lags()
        assert partial == {**whole, "odd1": None}
        assert "broker-b" in warning
        assert "odd1 in Uneven: refused by the test" in warning
        cluster.heal()
        monkeypatch.setattr(groups, "PAIRS_MAX", 0)
        none, warnings = await lags()
        assert none == {**whole, "odd1": None, "odd2": None}
        assert len(warnings) == 2

    try:
        asked(cluster.namesrv_address, look)
    finally:
        cluster.heal()


async def send_to(session: Session, node: Node, topic: str, queue_id: int) -> None:
    header = SendMessageV2Header(
        producer_group="p", topic=topic, default_topic="TBW102", default_topic_queue_nums=4, queue_id=queue_id,
        sys_flag=0, born_timestamp=1, flag=0, properties="",
    )  # fmt: skip
    await send(session.remoting, node.address, header, b"x", timeout_ms=5000)


def test_a_group_is_made_changed_and_shown_on_every_broker(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await made(session, "rules", retry_max_times=3)
        plan = await plan_alter(session, "rules", {"consume_enable": False})
        assert [step.outcome for step in (await plan.verify(await plan.make())).items] == [StepOutcome.CONFIRMED] * 2
        found = await groups.rules(session, "rules")
        assert [row.broker_name for row in found.items] == BROKERS
        assert {(row.consume_enable, row.retry_max_times) for row in found.items} == {(False, 3)}
        assert not (await plan_alter(session, "rules", {"consume_enable": False})).changing
        with pytest.raises(Conflict, match="with other rules"):
            await plan_create(session, "rules")

    asked(cluster.namesrv_address, look)


def test_what_only_5x_tools_set_stays_and_a_deletion_tells_that_it_is_lost(cluster: Cluster) -> None:
    policy = RetryPolicy(RetryPolicyType.EXPONENTIAL, ExponentialRetries(1000, 5000, 3))

    async def look(session: Session) -> None:
        for node in await session.masters():
            await session.request(create_group, node, SubscriptionGroup("policy", retry_policy=policy))
        plan = await plan_alter(session, "policy", {"consume_message_orderly": True})
        assert [step.outcome for step in (await plan.verify(await plan.make())).items] == [StepOutcome.CONFIRMED] * 2
        known = (await groups.every_rules(session)).responses.values()
        assert {(one["policy"].consume_orderly, one["policy"].retry_policy) for one in known} == {(True, policy)}
        lost = "broker-a has settings of 5.x clients for it that the undo file does not keep"
        assert lost in (await plan_delete(session, "policy")).warnings

    asked(cluster.namesrv_address, look)


def test_a_group_of_rules_and_one_of_offsets_alone_are_both_listed(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await made(session, "listed-rules")
        for node in await session.masters():
            queue = MessageQueue("T", node.name, 0)
            await update_consumer_offset(session.remoting, node.address, "listed-offsets", queue, 0)
        found = await groups.groups(session, pattern="listed-*", lag=True, members=True)
        assert [(row.name, row.brokers, row.topics, row.members) for row in found.items] == [
            ("listed-offsets", [], ["T"], 0),
            ("listed-rules", BROKERS, [], 0),
        ]
        assert [row.lag_messages for row in found.items] == [None, None], "the sums know groups with rules only"
        everything = {row.name: row.system for row in (await groups.groups(session, system=True)).items}
        assert everything["TOOLS_CONSUMER"]
        assert "TOOLS_CONSUMER" not in {row.name for row in (await groups.groups(session)).items}

    asked(cluster.namesrv_address, look)


def test_a_group_without_rules_is_not_found_and_the_nearest_is_named(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await made(session, "payments")
        for question in (groups.rules(session, "paymnts"), plan_alter(session, "paymnts", {})):
            with pytest.raises(NotFound) as caught:
                await question
            assert "payments" in (caught.value.hint or "")

    asked(cluster.namesrv_address, look)


@pytest.mark.parametrize("offsets", [True, False])
def test_a_group_is_removed_with_or_without_its_progress(cluster: Cluster, offsets: bool) -> None:
    name = f"removed-{offsets}"

    async def look(session: Session) -> None:
        await made(session, name)
        for node in await session.masters():
            await update_consumer_offset(session.remoting, node.address, name, MessageQueue("T", node.name, 0), 0)
        plan = await plan_delete(session, name, offsets=offsets)
        assert plan.destroys == name
        assert bool(plan.warnings) is not offsets
        assert len((plan.undo or {})["rules"]) == 2  # type: ignore[arg-type]
        assert len((plan.undo or {})["offsets"]) == (2 if offsets else 0)  # type: ignore[arg-type]
        done = await plan.verify(await plan.make())
        assert [step.outcome for step in done.items] == [StepOutcome.CONFIRMED] * 2
        left = [row.name for row in (await groups.groups(session, pattern=name)).items]
        assert left == ([] if offsets else [name])

    asked(cluster.namesrv_address, look)


def test_a_group_whose_members_are_online_stays_unless_forced(cluster: Cluster) -> None:
    consumer = PushConsumer("busy", cluster.namesrv_address)
    consumer.subscribe("T")
    consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)

    async def look(session: Session) -> None:
        with pytest.raises(Conflict, match="is online"):
            await plan_delete(session, "busy")
        plan = await plan_delete(session, "busy", force=True, topics=True)
        subjects = [(step.action, step.subject) for step in plan.steps]
        assert subjects == [
            ("delete group", "busy"), ("delete group", "busy"),
            ("delete topic", "%RETRY%busy"), ("delete topic", "%RETRY%busy"), ("forget topic", "%RETRY%busy"),
        ]  # fmt: skip
        assert plan.steps[-1].target == cluster.namesrv_address, "routes go last"

    with consumer:
        asked(cluster.namesrv_address, look)


def test_a_group_without_retry_topic_is_not_made(cluster: Cluster) -> None:
    name = "g" * 121

    async def work(session: Session) -> None:
        with pytest.raises(MessageIllegal, match="has 121 characters, at most 120 are allowed"):
            await plan_create(session, name)
        with pytest.raises(MessageIllegal, match="has 121 characters, at most 120 are allowed"):
            await create_group(session.remoting, cluster.broker_address, SubscriptionGroup(name))
        body = encode(SubscriptionGroup(name))  # as tools of RocketMQ do
        command = request(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)
        answer = await session.remoting.call(cluster.broker_address, command, 10_000)
        assert answer.code != 0
        assert "at most 120 are allowed" in (answer.remark or "")

    asked(cluster.namesrv_address, work)


def test_a_slave_takes_no_rules(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await without_master(session)
        for plan in (
            plan_create(session, "copied", brokers=["broker-z:1"]),
            plan_alter(session, "copied", {}, brokers=["broker-z"]),
        ):
            with pytest.raises(Conflict, match="is a slave"):
                await plan
        assert (await plan_create(session, "copied")).warnings == [
            "broker-z has no master now: nothing is changed there"
        ]

    asked(cluster.namesrv_address, look)


def test_topics_of_a_group_are_removed_where_they_are_and_that_is_looked_at(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await made(session, "derived")
        node = (await session.masters())[1]
        await create_topic(session.remoting, node.address, TopicConfig("%DLQ%derived", read_queues=1, write_queues=1))
        cluster.disconnect(RequestCode.GET_TOPIC_STATS_INFO, broker=node.name)
        silent = await plan_delete(session, "derived", topics=True)
        assert (len(silent.steps), [one.target for one in silent.failures]) == (2, [str(node)])
        plan = await plan_delete(session, "derived", topics=True)
        assert [(step.target, step.action, step.before) for step in plan.steps[2:]] == [
            (str(node), "delete topic", {"readQueues": 1, "writeQueues": 1, "perm": "RW-"}),
            (cluster.namesrv_address, "forget topic", "routed"),
        ]
        done = await plan.verify(await plan.make())
        assert [step.outcome for step in done.items] == [StepOutcome.CONFIRMED] * 4

    asked(cluster.namesrv_address, look)


def test_topics_of_a_group_stay_at_brokers_that_are_not_named(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await made(session, "halved")
        one, other = await session.masters()
        for node in (one, other):
            await create_topic(session.remoting, node.address, TopicConfig("%DLQ%halved", 1, 1))
        plan = await plan_delete(session, "halved", topics=True, brokers=[one.name])
        assert {step.target for step in plan.steps} == {str(one)}
        assert [step.subject for step in plan.steps] == ["halved", "%DLQ%halved"], "the other broker keeps its route"

    asked(cluster.namesrv_address, look)


def test_groups_of_the_system_stay(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        with pytest.raises(Conflict, match="belongs to the system"):
            await plan_delete(session, "TOOLS_CONSUMER", force=True)

    asked(cluster.namesrv_address, look)


def test_a_broker_that_breaks_off_makes_figures_unknown_and_is_named(cluster: Cluster) -> None:
    async def prepare(session: Session) -> None:
        await made(session, "partly")
        for node in await session.masters():
            await update_consumer_offset(session.remoting, node.address, "partly", MessageQueue("T", node.name, 0), 0)

    async def look(session: Session) -> None:
        found = await groups.groups(session, pattern="partly", lag=True, members=True)
        assert found.partial
        assert ["broker-b" in failure.target for failure in found.failures] == [True], "it is named once"
        (row,) = found.items
        assert (row.lag_messages, row.known_lag_messages, row.members) == (None, 0, None)

    asked(cluster.namesrv_address, prepare)
    cluster.disconnect(RequestCode.GET_ALL_CONSUMER_OFFSET, times=None, broker="broker-b")
    cluster.disconnect(RequestCode.GET_CONSUMER_CONNECTION_LIST, times=None, broker="broker-b")
    try:
        asked(cluster.namesrv_address, look)
    finally:
        cluster.heal()
