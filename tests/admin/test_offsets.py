"""Offsets are moved where the operator said, what it costs is told before, and a file brings back what was there."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator, Sequence

import pytest

from orbitmq.admin.clients import membership
from orbitmq.admin.offsets import OffsetPlan, plan_clone, plan_reset, plan_skip, plan_undo, show
from orbitmq.admin.plans import StepOutcome
from orbitmq.admin.session import Node, Session
from orbitmq.admin.targets import Target, Where
from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, Message, MessageExt
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer
from orbitmq.errors import AdminError, Conflict, NotFound
from orbitmq.message.model import MessageQueue
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.process import wait_until
from tests.support.sessions import asked, without_master

BROKERS = ("broker-a", "broker-b")
EACH = 10  # messages in each of the two queues of each broker


# ----------------------------------------------------------------------------------------------------- a live cluster


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        running.create_topic("T", 2)
        with Producer("producers", running.namesrv_address) as producer:
            for number in range(4 * EACH):
                queue = MessageQueue("T", BROKERS[number % 2], number // 2 % 2)
                producer.send(Message("T", b"%d" % number), queue=queue)
        yield running


async def commit(session: Session, group: str, offset: int) -> None:
    for node in await session.masters():
        for number in range(2):
            queue = MessageQueue("T", node.name, number)
            await update_consumer_offset(session.remoting, node.address, group, queue, offset)


async def carried_out(plan: OffsetPlan) -> list[StepOutcome]:
    return [step.outcome for step in (await plan.verify(await plan.make())).items]


async def stored(session: Session, group: str) -> dict[tuple[str, int], int]:
    return {(row.broker_name, row.queue_id): row.consumer_offset for row in (await show(session, group, "T")).items}


def test_a_group_that_is_offline_is_moved_and_brought_back(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await commit(session, "moved", 6)
        plan = await plan_reset(session, "moved", "T", Target(Where.BEGIN))
        assert (plan.replayed_messages, plan.skipped_messages) == (24, 0)
        assert [(step.before, step.after, step.action) for step in plan.steps] == [(6, 0, "replay 6 messages")] * 4
        assert await stored(session, "moved") == dict.fromkeys(await stored(session, "moved"), 6), "only planned"
        assert await carried_out(plan) == [StepOutcome.CONFIRMED] * 4
        assert set((await stored(session, "moved")).values()) == {0}
        assert plan.undo is not None
        assert await carried_out(await plan_undo(session, plan.undo)) == [StepOutcome.CONFIRMED] * 4
        assert set((await stored(session, "moved")).values()) == {6}

    asked(cluster.namesrv_address, look)


def test_one_queue_is_moved_to_an_offset_and_shifted(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await commit(session, "one", 6)
        plan = await plan_reset(session, "one", "T", Target(Where.OFFSET, 9), queues=["broker-b/1"])
        assert (plan.replayed_messages, plan.skipped_messages) == (0, 3)
        assert await carried_out(plan) == [StepOutcome.CONFIRMED]
        back = await plan_reset(session, "one", "T", Target(Where.SHIFT, -2), queues=["broker-b/1"])
        assert await carried_out(back) == [StepOutcome.CONFIRMED]
        offsets = await stored(session, "one")
        assert offsets.pop(("broker-b", 1)) == 7
        assert set(offsets.values()) == {6}
        with pytest.raises(NotFound, match="has no queue 7"):
            await plan_reset(session, "one", "T", Target(Where.END), queues=["broker-b/7"])

    asked(cluster.namesrv_address, look)


def test_nothing_is_written_to_a_slave_whose_master_is_away(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    async def look(session: Session) -> None:
        homes = await session.homes("T")
        slave = Node(homes[1].cluster, homes[1].name, 1, homes[1].address)

        async def halved(_topic: str) -> list[Node]:
            return [homes[0], slave]

        monkeypatch.setattr(session, "homes", halved)
        plan = await plan_reset(session, "halved", "T", Target(Where.END))
        assert [step.target for step in plan.steps] == [str(homes[0])] * 2
        assert [(one.target, one.message) for one in plan.failures] == [(slave.name, "it has no master now")]
        alone = await plan_reset(session, "halved", "T", Target(Where.END), queues=[f"{slave.name}/0"])
        assert (alone.steps, len(alone.failures)) == ([], 1)
        await commit(session, "halved", 3)
        await without_master(session)
        assert [one.target for one in (await plan_clone(session, "halved", "other")).failures] == ["broker-z"]

    asked(cluster.namesrv_address, look)


def test_without_force_a_group_is_only_moved_back(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await commit(session, "gently", 6)
        assert not (await plan_reset(session, "gently", "T", Target(Where.END), force=False)).changing
        assert (await plan_reset(session, "gently", "T", Target(Where.BEGIN), force=False)).changing

    asked(cluster.namesrv_address, look)


def test_a_group_that_never_consumed_gets_offsets_and_there_is_nothing_to_bring_back(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        plan = await plan_skip(session, "never", "T")
        assert [(step.before, step.after) for step in plan.steps] == [(None, EACH)] * 4
        assert plan.undo is None
        assert plan.warnings == ["4 queues have no offset of never yet: undo cannot remove the new ones"]
        assert await carried_out(plan) == [StepOutcome.CONFIRMED] * 4
        assert set((await stored(session, "never")).values()) == {EACH}

    asked(cluster.namesrv_address, look)


def test_offsets_are_cloned_queue_by_queue(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        await commit(session, "original", 4)
        plan = await plan_clone(session, "original", "copy", "T")
        assert await carried_out(plan) == [StepOutcome.CONFIRMED] * 4
        assert await stored(session, "copy") == await stored(session, "original")
        with pytest.raises(NotFound, match="has no offsets"):
            await plan_clone(session, "nobody", "copy")

    asked(cluster.namesrv_address, look)


def kept(group: str, offset: int, *topics: str) -> dict[str, object]:
    rows = [
        {"topic": topic, "brokerName": name, "queueId": number, "offset": offset}
        for topic in topics
        for name in BROKERS
        for number in range(2)
    ]
    return {"command": "offset undo", "group": group, "rules": {}, "offsets": rows}


def test_several_groups_are_brought_back_and_brokers_are_asked_for_their_tables_once(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    codes: list[RequestCode] = []

    async def look(session: Session) -> None:
        names = ["many-a", "many-b"]
        for name in names:
            await commit(session, name, 6)
        call = session.remoting.call

        async def counted(address: str, command: Command, timeout_ms: float) -> Command:
            codes.append(RequestCode(command.code))
            return await call(address, command, timeout_ms)

        monkeypatch.setattr(session.remoting, "call", counted)
        plan = await plan_undo(session, {"parts": [kept(name, 2, "T", "Gone") for name in names]})
        assert codes.count(RequestCode.GET_ALL_CONSUMER_OFFSET) == 2, "one for each broker, not for each queue"
        assert codes.count(RequestCode.GET_TOPIC_STATS_INFO) == 8, "one for each group, broker and topic"
        assert "Gone/broker-a/0 no longer exists: its offset is not restored" in plan.warnings
        assert await carried_out(plan) == [StepOutcome.CONFIRMED] * 8
        for name in names:
            assert set((await stored(session, name)).values()) == {2}
        assert plan.undo is not None
        assert [part["group"] for part in plan.undo["parts"]] == names  # type: ignore[attr-defined]

    asked(cluster.namesrv_address, look)


def test_what_is_brought_back_elsewhere_does_not_wait_for_a_silent_broker(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        undo = {**kept("partly", 2, "T"), "rules": {name: {"retry_max_times": 7} for name in (*BROKERS, "broker-z")}}
        plan = await plan_undo(session, undo)
        assert [step.action for step in plan.steps if "broker-a" in step.target] == [
            "restore rules", "set offset", "set offset",
        ]  # fmt: skip
        assert [step for step in plan.steps if "broker-a" not in step.target] == []
        assert [one.target.partition(" ")[0] for one in plan.failures] == ["broker-z", "broker-b"]

    cluster.disconnect(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, times=None, broker="broker-b")
    try:
        asked(cluster.namesrv_address, look)
    finally:
        cluster.heal()


def test_a_file_of_another_form_is_refused(cluster: Cluster) -> None:
    async def look(session: Session) -> None:
        for broken in ({}, {"group": "g", "offsets": [{"topic": "T"}]}, {"group": 1}, {"parts": 1}):
            with pytest.raises(AdminError, match="no undo file"):
                await plan_undo(session, broken)

    asked(cluster.namesrv_address, look)


def test_members_that_are_online_are_moved_and_it_is_seen(cluster: Cluster) -> None:
    got: list[bytes] = []
    consumer = PushConsumer("online", cluster.namesrv_address, persist_offset_interval_ms=100)
    consumer.subscribe("T")

    def listen(messages: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        got.extend(one.body for one in messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer.set_listener(listen)

    async def until_consumed(session: Session) -> bool:
        return set((await stored(session, "online")).values()) == {EACH}

    async def whole(session: Session) -> None:
        with pytest.raises(Conflict, match="is online"):
            await plan_clone(session, "one", "online")
        plan = await plan_reset(session, "online", "T", Target(Where.BEGIN))
        assert (plan.replayed_messages, len(plan.steps)) == (4 * EACH, 4)
        assert await carried_out(plan) == [StepOutcome.CONFIRMED] * 4

    async def one_queue(session: Session) -> None:
        plan = await plan_reset(session, "online", "T", Target(Where.SHIFT, -3), queues=["broker-a/1"])
        assert await carried_out(plan) == [StepOutcome.CONFIRMED]

    async def commit_end(session: Session) -> None:
        await commit(session, "online", EACH)

    asked(cluster.namesrv_address, commit_end)
    with consumer:
        wait_until(lambda: asked(cluster.namesrv_address, _is_online("online")), 30, "the member to be online")
        asked(cluster.namesrv_address, whole)
        wait_until(lambda: len(got) >= 4 * EACH, 30, "all messages once more")
        wait_until(lambda: asked(cluster.namesrv_address, until_consumed), 30, "the commits")
        got.clear()
        asked(cluster.namesrv_address, one_queue)
        wait_until(lambda: len(got) >= 3, 30, "the last three of one queue")


@pytest.fixture
def brief(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing more will be seen: it is given a moment to show."""
    monkeypatch.setattr("orbitmq.admin.offsets.APPLIED_WITHIN_SECONDS", 1.0)


def test_members_that_choose_their_queues_do_not_obey_and_it_is_told(cluster: Cluster, brief: None) -> None:
    async def look(session: Session) -> None:
        await commit(session, "choosing", EACH)
        plan = await plan_reset(session, "choosing", "T", Target(Where.BEGIN))
        done = await plan.verify(await plan.make())
        assert [step.outcome for step in done.items] == [StepOutcome.NOT_APPLIED] * 4
        assert len(done.warnings) == 4

    with LitePullConsumer("choosing", cluster.namesrv_address) as consumer:
        consumer.assign([MessageQueue("T", name, number) for name in BROKERS for number in range(2)])
        wait_until(lambda: asked(cluster.namesrv_address, _is_online("choosing")), 30, "the member to be online")
        asked(cluster.namesrv_address, look)


def test_what_a_filter_passes_over_is_done_and_not_called_refused(cluster: Cluster, brief: None) -> None:
    async def look(session: Session) -> None:
        plan = await plan_reset(session, "picky", "T", Target(Where.BEGIN))
        done = await plan.verify(await plan.make())
        assert {step.outcome for step in done.items} <= {StepOutcome.DONE, StepOutcome.CONFIRMED}

    async def at_end(session: Session) -> None:
        await commit(session, "picky", EACH)

    asked(cluster.namesrv_address, at_end)
    consumer = PushConsumer("picky", cluster.namesrv_address, persist_offset_interval_ms=100)
    consumer.subscribe("T", "nobody-sends-this")
    consumer.set_listener(lambda *_: ConsumeConcurrentlyStatus.CONSUME_SUCCESS)
    with consumer:
        wait_until(lambda: asked(cluster.namesrv_address, _is_online("picky")), 30, "the member to be online")
        asked(cluster.namesrv_address, look)


def _is_online(group: str) -> Callable[[Session], Awaitable[bool]]:
    async def look(session: Session) -> bool:
        return len((await membership(session, group)).connections) == len(BROKERS)

    return look
