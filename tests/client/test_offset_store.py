"""Offsets survive where they belong: at the brokers, or in a file that Java could read."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from orbitmq.client.instance import Instance
from orbitmq.client.offset_store import BrokerOffsets, FileOffsets
from orbitmq.client.settings import ProducerSettings, complete
from orbitmq.errors import BrokerError, ClientError
from orbitmq.message.model import MessageQueue
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse
from tests.support.golden import unpack
from tests.support.loops import run, until

Q = [MessageQueue("T", BROKER, n) for n in range(3)]


async def broker_offsets(system: FakeSystem) -> tuple[Instance, BrokerOffsets]:
    system.topics["T"] = 3
    settings = complete(ProducerSettings, {})
    instance = Instance((system.address,), settings, clock=ManualClock(), chance=random.Random(1))
    await instance.routes.refresh("T")
    return instance, BrokerOffsets(instance, "g")


def test_brokers_are_told_of_the_queues_that_are_held() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            instance, store = await broker_offsets(system)
            for number, queue in enumerate(Q):
                store.table.raise_to(queue, 10 + number)
            await store.persist(Q[:2])
            await until(lambda: system.offsets == {("g", "T", 0): 10, ("g", "T", 1): 11})
            await store.commit([Q[2]])
            assert system.offsets["g", "T", 2] == 12
            await store.release(Q[0])
            assert Q[0] not in store.table
            assert await store.stored(Q[1]) == 11
            assert await store.stored(MessageQueue("T", BROKER, 9)) == -1
            await instance.close()

    run(scenario())


def test_asking_what_is_stored_does_not_undo_what_is_done() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            instance, store = await broker_offsets(system)
            system.offsets["g", "T", 0] = 35
            assert await store.stored(Q[0]) == 35
            store.table.raise_to(Q[0], 40)
            assert await store.stored(Q[0]) == 35
            await store.commit([Q[0]])
            assert system.offsets["g", "T", 0] == 40
            await instance.close()

    run(scenario())


@pytest.mark.parametrize("way", ["persist", "commit"])
def test_the_first_offset_of_a_topic_goes_ahead_of_the_others(way: str) -> None:
    """A RocketMQ broker that gets two first ones at the same time keeps one of them."""
    asked: list[tuple[int, bool]] = []

    async def scenario() -> None:
        async with fake_system() as system:
            instance, store = await broker_offsets(system)
            for queue in Q:
                store.table.set(queue, 5)
            begin = store._commit

            async def seen(queue: MessageQueue) -> None:
                asked.append((queue.queue_id, False))
                await begin(queue)
                asked.append((queue.queue_id, True))

            store._commit = seen  # type: ignore[method-assign]
            await getattr(store, way)(Q)
            await until(lambda: len(system.offsets) == len(Q))
            await getattr(store, way)(Q)
            await instance.close()

    run(scenario())
    assert asked[:2] == [(0, False), (0, True)], "the first is answered before another is sent"
    later = [number for number, answered in asked[2:] if not answered]
    assert later == ([] if way == "persist" else [1, 2, 0, 1, 2])


@pytest.mark.parametrize("way", ["persist", "commit"])
def test_an_offset_that_waits_for_another_is_sent_as_it_is_by_then(way: str) -> None:
    """An older one would undo a later commit, or that of the member which has got the queue."""

    async def scenario() -> None:
        async with fake_system() as system:
            instance, store = await broker_offsets(system)
            for queue in Q:
                store.table.set(queue, 5)

            def move_on(_: Connection, command: Command) -> Answer:
                store.table.set(Q[1], 6)
                store.table.forget(Q[2])
                system.answers.clear()
                return None

            system.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = move_on
            await getattr(store, way)(Q)
            await until(lambda: ("g", "T", 1) in system.offsets, "the second")
            await store.commit(Q[:1])
            assert system.offsets == {("g", "T", 0): 5, ("g", "T", 1): 6}
            await instance.close()

    run(scenario())


def test_a_refused_offset_is_no_missing_offset(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            instance, store = await broker_offsets(system)
            for code in (RequestCode.QUERY_CONSUMER_OFFSET, RequestCode.UPDATE_CONSUMER_OFFSET):
                system.answers[code] = refuse(ResponseCode.SYSTEM_BUSY)
            with pytest.raises(BrokerError):
                await store.stored(Q[0])
            store.table.set(Q[0], 1)
            with pytest.raises(BrokerError):
                await store.commit(Q)
            strange = MessageQueue("T", "gone", 0)
            store.table.set(strange, 1)
            await store.persist([strange])
            await instance.close()

    run(scenario())
    assert "event=offset_not_stored" in caplog.text


def test_a_file_is_written_for_the_held_queues_and_found_again(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FileOffsets(str(tmp_path), "10.0.0.1@DEFAULT", "g")
        await store.open()
        assert await store.stored(Q[0]) == -1
        for queue in Q:
            store.table.raise_to(queue, 7)
        await store.persist(Q[:2])
        store.close()
        again = FileOffsets(str(tmp_path), "10.0.0.1@DEFAULT", "g")
        await again.open()
        assert [await again.stored(queue) for queue in Q] == [7, 7, -1]
        await again.release(Q[0])
        assert await again.stored(Q[0]) == 7
        again.close()

    run(scenario())
    assert (tmp_path / "10.0.0.1@DEFAULT" / "g" / "offsets.json").read_text().startswith('{\n\t"offsetTable":{{')


def test_a_file_of_java_is_taken_over(tmp_path: Path) -> None:
    unpack("broadcast", tmp_path)
    owner = "192.0.2.2@bcast0"

    async def scenario() -> None:
        store = FileOffsets(str(tmp_path / "client_offsets"), owner, "cgBc_107")
        await store.open()
        assert await store.stored(MessageQueue("StoreB_107", "broker-a", 2)) == 5
        store.close()

    run(scenario())


def test_a_damaged_file_is_replaced_by_its_backup(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FileOffsets(str(tmp_path), "me", "g")
        await store.open()
        for offset in (1, 2):
            store.table.set(Q[0], offset)
            await store.persist(Q)
        store.close()
        (tmp_path / "me" / "g" / "offsets.json").write_text('{"offsetTable":{{')
        again = FileOffsets(str(tmp_path), "me", "g")
        await again.open()
        assert await again.stored(Q[0]) == 1
        again.close()

    run(scenario())


def test_two_consumers_do_not_share_a_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        first, second = (FileOffsets(str(tmp_path), "me", "g") for _ in range(2))
        await first.open()
        with pytest.raises(ClientError, match="set an instance_name for this one"):
            await second.open()
        first.close()
        await second.open()
        second.close()

    run(scenario())


def test_a_commit_of_some_queues_keeps_the_others_in_the_file(tmp_path: Path) -> None:
    async def scenario() -> None:
        store = FileOffsets(str(tmp_path), "me", "g")
        await store.open()
        for queue in Q:
            store.table.set(queue, 3)
        await store.persist(Q)
        store.table.set(Q[1], 5)
        await store.commit(Q[1:2])
        store.close()
        for number in (6, 7):  # also of those that were there at the start
            again = FileOffsets(str(tmp_path), "me", "g")
            await again.open()
            assert [await again.stored(queue) for queue in Q] == [3, number - 1, 3]
            again.table.set(Q[1], number)
            await asyncio.gather(*(again.commit(Q[1:2]) for _ in range(20)))
            again.close()

    run(scenario())
