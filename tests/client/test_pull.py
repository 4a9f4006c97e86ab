"""A pull consumer reads what it is told, shares registered topics with its group, and stores what it is told."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import MessageModel, MessageQueue, PullConsumer, PullStatus, reset_offset_by_timestamp
from orbitmq.errors import ConfigurationError, InvalidStateError, MessageIllegal, RemotingTimeout
from orbitmq.message.properties import encode_properties
from orbitmq.wire.bodies import ConsumeType
from orbitmq.wire.headers import PullMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, silence
from tests.support.loops import TurnedLoop, run, turned_loop, until

Q = [MessageQueue("T", BROKER, n) for n in range(4)]


def pulling(system: FakeSystem, queues: int = 1, messages: int = 0, **settings: Any) -> PullConsumer:
    system.topics["T"] = queues
    for i in range(messages):
        system.put("T", i % queues, b"%d" % i, encode_properties({"TAGS": "ab"[i % 2]}))
    return PullConsumer("g", system.address, **settings)


def last_pull(system: FakeSystem) -> PullMessageHeader:
    return [c.header(PullMessageHeader) for c in system.asked if c.code == RequestCode.PULL_MESSAGE][-1]


def test_a_pull_reads_from_where_it_is_told() -> None:
    async def scenario() -> None:
        async with fake_system() as system, pulling(system, messages=6) as consumer:
            result = await consumer.pull(Q[0], "*", 2, 3)
            assert result.status is PullStatus.FOUND
            assert [message.body for message in result.messages] == [b"2", b"3", b"4"]
            assert (result.next_begin_offset, result.min_offset, result.max_offset) == (5, 0, 6)
            asked = last_pull(system)
            assert (asked.sys_flag, asked.suspend_timeout_millis, asked.commit_offset) == (4, 0, 0)
            assert (asked.subscription, asked.expression_type, asked.sub_version) == ("*", "TAG", 0)
            tagged = await consumer.pull(Q[0], "b", 0, 6)
            assert [message.body for message in tagged.messages] == [b"1", b"3", b"5"]
            assert (await consumer.pull(Q[0], "*", 6, 1)).status is PullStatus.NO_NEW_MSG
            assert (await consumer.pull(Q[0], "*", 60, 1)).status is PullStatus.OFFSET_ILLEGAL

    run(scenario())


def test_a_blocking_pull_waits_for_messages() -> None:
    async def scenario() -> None:
        async with fake_system() as system, pulling(system) as consumer:
            waiting = asyncio.ensure_future(consumer.pull(Q[0], "*", 0, 32, block=True))
            await until(lambda: system.count(RequestCode.PULL_MESSAGE))
            system.put("T", 0, b"new")
            assert [message.body for message in (await waiting).messages] == [b"new"]
            asked = last_pull(system)
            assert (asked.sys_flag, asked.suspend_timeout_millis) == (6, 20_000)
            with pytest.raises(RemotingTimeout):
                await consumer.pull(Q[0], "*", 1, 32, block=True, timeout=0.05)

    run(scenario())


def test_a_blocking_pull_has_a_time_of_its_own() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.answers[RequestCode.PULL_MESSAGE] = silence()
            times = {"broker_suspend_max_ms": 4000, "pull_timeout_ms": 7000, "consumer_pull_timeout_ms": 2000}
            async with pulling(system, **times) as consumer:
                for block, seconds in ((False, 2), (True, 7)):
                    asked = system.count(RequestCode.PULL_MESSAGE)
                    pull = asyncio.ensure_future(consumer.pull(Q[0], "*", 0, 1, block=block))
                    await until(lambda before=asked: system.count(RequestCode.PULL_MESSAGE) > before)  # type: ignore[misc]
                    assert last_pull(system).suspend_timeout_millis == (4000 if block else 0)
                    await turned_loop().turn(seconds - 0.5)
                    assert not pull.done()
                    await turned_loop().turn(1)
                    with pytest.raises(RemotingTimeout):
                        await pull

    run(scenario(), TurnedLoop)


@pytest.mark.parametrize(("offset", "count"), [(-1, 1), (0, 0)])
def test_a_pull_of_nothing_is_refused(offset: int, count: int) -> None:
    async def scenario() -> None:
        async with fake_system() as system, pulling(system) as consumer:
            with pytest.raises(ConfigurationError):
                await consumer.pull(Q[0], "*", offset, count)

    run(scenario())


def test_registered_topics_are_shared_with_the_group() -> None:
    heard: list[tuple[str, int, int]] = []

    async def scenario() -> None:
        async with fake_system() as system:
            one, two = (pulling(system, queues=4) for _ in range(2))
            for consumer in (one, two):
                consumer.register_topic("T", lambda topic, every, own: heard.append((topic, len(every), len(own))))
            async with one:
                assert one.fetch_balanced_queues("T") == Q
                assert one.fetch_balanced_queues("U") == []
                async with two:
                    system.notify("g")
                    await until(lambda: len(one.fetch_balanced_queues("T")) == 2)
                    assert sorted(one.fetch_balanced_queues("T") + two.fetch_balanced_queues("T")) == Q
            (data,) = system.heartbeats[0].consumer_data_set
            assert data.consume_type is ConsumeType.CONSUME_ACTIVELY
            assert [(s.topic, s.expression, s.version) for s in data.subscription_data_set] == [("T", "*", 0)]
            assert system.count(RequestCode.PULL_MESSAGE) == 0, "nothing is fetched unasked"

    run(scenario())
    assert heard[0] == ("T", 4, 4)
    assert ("T", 4, 2) in heard[1:]


def test_offsets_of_any_queue_are_kept_and_stored() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = pulling(system, queues=2)
            with pytest.raises(InvalidStateError):
                consumer.update_offset(Q[0], 1)
            async with consumer:
                assert await consumer.fetch_offset(Q[0]) == -1
                consumer.update_offset(Q[0], 7)
                assert await consumer.fetch_offset(Q[0]) == 7
                assert await consumer.fetch_offset(Q[0], from_store=True) == -1
            assert system.offsets == {("g", "T", 0): 7}
            async with pulling(system, queues=2) as again:
                assert await again.fetch_offset(Q[0]) == 7

    run(scenario())


@pytest.mark.parametrize("way", ["lag", "fetch_offset"])
async def test_offsets_that_were_only_looked_at_are_not_stored(way: str) -> None:
    async with fake_system() as system:
        system.offsets["g", "T", 0] = 0
        async with pulling(system) as consumer:
            if way == "lag":
                await consumer.lag("T")
            else:
                assert await consumer.fetch_offset(Q[0]) == 0
            system.offsets["g", "T", 0] = 500  # by another member
            await consumer.store_offsets()
            assert Q[0] not in consumer._offsets.table, "when the queue is assigned, 0 would be stored"
            assert await consumer.fetch_offset(Q[0]) == 500
        assert system.offsets == {("g", "T", 0): 500}


def test_a_broadcasting_one_keeps_its_offsets_here(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for expected, offset in ((-1, 3), (3, 5)):
                settings = {"message_model": MessageModel.BROADCASTING, "local_offset_dir": str(tmp_path)}
                async with pulling(system, **settings) as consumer:
                    assert await consumer.fetch_offset(Q[0]) == expected
                    consumer.update_offset(Q[0], offset)
            assert not system.offsets

    run(scenario())


def test_a_message_goes_back_to_this_group_or_another() -> None:
    async def scenario() -> None:
        async with fake_system() as system, pulling(system, messages=1) as consumer:
            (message,) = (await consumer.pull(Q[0], "*", 0, 1)).messages
            await consumer.send_message_back(message, 3)
            message.broker_name = ""  # as one that was found by its id
            message.store_host = system.address
            await consumer.send_message_back(message, 4, group="other")
            await consumer.send_message_back(message, 5, BROKER)
            assert [(h.group, h.delay_level, h.broker_name) for h in system.sent_back] == [
                ("g", 3, BROKER), ("other", 4, ""), ("g", 5, BROKER),
            ]  # fmt: skip
            assert {h.max_reconsume_times for h in system.sent_back} == {16}
            with pytest.raises(MessageIllegal, match="has 121 characters, at most 120 are allowed"):
                await consumer.send_message_back(message, group="g" * 121)
            assert len(system.sent_back) == 3

    run(scenario())


def test_a_group_that_rests_begins_at_a_time() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 2
            for i in range(8):
                system.put("T", i % 2, b"%d" % i)
            system.offsets["g", "T", 0] = 4
            found = await reset_offset_by_timestamp("g", "T", 123, system.address)
            assert found == {Q[0]: 2, Q[1]: 2}
            assert system.offsets == {("g", "T", 0): 2, ("g", "T", 1): 2}

    run(scenario())
