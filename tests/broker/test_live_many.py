"""Ten thousand topics and three thousand groups: no turn of the event loop does work that grows with their number.

Work is counted, not timed: entries of tables that are written, groups that are registered, queues and pulls that are
looked at in one turn of the loop. What grows with the number of topics is putting together finished texts.
"""

from __future__ import annotations

import asyncio
import tracemalloc
from collections import Counter
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker import group_reports, held_pulls, offsets
from orbitmq.broker.clients import Consumers
from orbitmq.broker.held_pulls import HeldPull
from orbitmq.message.config import SubscriptionData, SubscriptionGroup, TopicConfig
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.store.pull_batch import EVERYTHING
from orbitmq.store.queues import ConsumeQueues
from orbitmq.wire import table_texts
from orbitmq.wire.bodies import HeartbeatData, ProducerTableInfo, SubscriptionGroupList, TopicConfigList
from orbitmq.wire.command import request
from orbitmq.wire.headers_admin import DeleteTopicHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, client_of, consumer, made_broker, pull_header, running
from tests.support.loops import until

TOPICS, GROUPS = 10_000, 3_000
TOPICS_OF_A_GROUP = 3
QUEUES = 4
TURN_WORK_MAX = 500  # entries of offsets; everything else is done in smaller portions


class Counted:
    """How often something was called in each turn of the loop. Jobs that go by themselves may share a turn, so each
    kind of work is held to its own portions.
    """

    def __init__(self) -> None:
        self.calls: Counter[str] = Counter()
        self.most = 0
        self.all = 0

    def counting(self, work: Callable[..., Any]) -> Callable[..., Any]:
        def counted(*arguments: Any, **more: Any) -> Any:
            self.calls[work.__qualname__] += 1
            return work(*arguments, **more)

        return counted

    def begin(self) -> None:
        self.calls.clear()
        self.most = self.all = 0

    async def watch(self) -> None:
        while True:
            self.most, self.all = max(self.most, *self.calls.values(), 0), self.all + self.calls.total()
            self.calls.clear()
            await asyncio.sleep(0)


@asynccontextmanager
async def watched(counted: Counted, what: str, at_least: int) -> AsyncIterator[None]:
    """The body does work worth `at_least` calls, and no turn of it more than TURN_WORK_MAX."""
    counted.begin()
    watching = asyncio.get_running_loop().create_task(counted.watch())
    yield
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    watching.cancel()
    print(f"{what}: {counted.all} pieces of work, at most {counted.most} in one turn")
    assert counted.all >= at_least
    assert counted.most <= TURN_WORK_MAX


@pytest.fixture
def counted(monkeypatch: pytest.MonkeyPatch) -> Counted:
    made = Counted()
    monkeypatch.setattr(table_texts, "_written", made.counting(table_texts._written))
    monkeypatch.setattr(offsets, "_entry", made.counting(offsets._entry))
    monkeypatch.setattr(group_reports, "_producer", made.counting(group_reports._producer))
    monkeypatch.setattr(Consumers, "register", made.counting(Consumers.register))
    monkeypatch.setattr(Consumers, "unregister", made.counting(Consumers.unregister))
    monkeypatch.setattr(held_pulls, "HELD_BY_ONE_MAX", TOPICS * QUEUES)  # here one connection stands for many
    monkeypatch.setattr(held_pulls, "_is_due", made.counting(held_pulls._is_due))
    return made


async def test_ten_thousand_topics_and_three_thousand_groups(tmp_path: Path, counted: Counted) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        tracemalloc.start()
        configs = encode(TopicConfigList([TopicConfig(f"Topic{number}", QUEUES, QUEUES) for number in range(TOPICS)]))
        async with watched(counted, f"{TOPICS} topics made by one request", TOPICS):
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_TOPIC_LIST, body=configs)).code == 0
        print(f"memory of a topic: {tracemalloc.get_traced_memory()[0] / TOPICS:.0f} bytes")
        tracemalloc.stop()
        async with watched(counted, "one more topic", 1):
            assert (await client.send("Another")).code == 0
        assert counted.all < 10, "a new topic does not write the others anew"
        async with watched(counted, "all topics told", 0):
            answer = await client.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
            assert answer.body.count(b'"topicName"') > TOPICS
        assert counted.all == 0

        groups = encode(SubscriptionGroupList([SubscriptionGroup(f"g{number}") for number in range(GROUPS)]))
        async with watched(counted, f"{GROUPS} groups made by one request", GROUPS):
            assert (await client.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP_LIST, body=groups)).code == 0
        await _heartbeats(client, counted)
        assert len(broker.consumers.groups) == GROUPS
        assert len(broker.topics.table) > TOPICS + GROUPS

        for number in range(GROUPS):
            for further in range(TOPICS_OF_A_GROUP):
                for queue_id in range(QUEUES):
                    broker.offsets.commit(f"g{number}", _topic(number, further), queue_id, number)
        async with watched(counted, "offsets of all groups saved", GROUPS * TOPICS_OF_A_GROUP):
            broker.offsets.save_soon()
            await until(broker.offsets.file.path.exists, "the file")
            await broker.offsets.file.flush()

        await client.heartbeat(producers=[f"p{number}" for number in range(GROUPS)])
        async with watched(counted, "all producers told", GROUPS):
            answer = await client.ask(RequestCode.GET_ALL_PRODUCER_INFO)
        assert len(decode(ProducerTableInfo, answer.body).data) == GROUPS

        _hold_everywhere(broker, client)
        async with watched(counted, "held pulls of all topics looked over", TOPICS * QUEUES):
            broker._pulling.scan()
            await until(lambda: not broker._pulling.held._scanning)
        async with watched(counted, "the client of all groups gone", GROUPS):
            await client.remoting.close()
            await until(lambda: not broker.consumers.groups)


async def _heartbeats(client: Client, counted: Counted) -> None:
    data = [
        consumer(f"g{number}", *(SubscriptionData(_topic(number, further)) for further in range(TOPICS_OF_A_GROUP)))
        for number in range(GROUPS)
    ]
    body = encode(HeartbeatData(client.client_id, data))
    for what in ("first", "second"):
        async with watched(counted, f"the {what} heartbeat of a client of all groups", GROUPS):
            assert (await client.ask(RequestCode.HEART_BEAT, body=body)).code == 0


def _topic(group: int, further: int) -> str:
    return f"Topic{(group * TOPICS_OF_A_GROUP + further) % TOPICS}"


def _hold_everywhere(broker: Any, client: Client) -> None:
    """A pull of another connection on every queue, as if it had been sent."""
    (connection,) = broker._server.connections
    header = pull_header("Topic0", sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND)
    command = request(RequestCode.PULL_MESSAGE, header)
    holding_room = broker._pulling.held
    for number in range(TOPICS):
        for queue_id in range(QUEUES):
            pull = HeldPull(connection, command, 0, 1 << 62, EVERYTHING)
            assert holding_room.hold(f"Topic{number}", queue_id, pull)


async def test_a_topic_of_many_queues_goes_one_queue_a_turn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    counted = Counted()
    monkeypatch.setattr(ConsumeQueues, "remove", counted.counting(ConsumeQueues.remove))
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("Wide", 40, 40))
        for queue_id in range(40):
            assert (await client.send("Wide", queue_id=queue_id)).code == 0
        async with watched(counted, "queues of a topic removed", 40):
            assert (await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("Wide"))).code == 0
        assert (counted.all, counted.most) == (40, 1)
        assert broker.store.queue_ids("Wide") == []
