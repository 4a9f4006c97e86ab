"""With the guard on, the log stays until it is archived, or until the disk is nearly full."""

from __future__ import annotations

import asyncio
import os
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from orbitmq.broker.archive_guard import LOOK_SECONDS, is_guarded
from orbitmq.broker.broker import Broker
from orbitmq.message.config import TopicConfig
from orbitmq.runtime.turns import ITEMS_A_TURN
from orbitmq.store.cleaner import FIRST_ROUND_MS
from orbitmq.store.queue import ConsumeQueue
from orbitmq.store.queues import ConsumeQueues
from orbitmq.store.retention import HOUR_MS
from tests.support.cleaning import SMALL, clean, runtime_table
from tests.support.disk import FaultyDisk
from tests.support.live import Client, Time, client_of, made_broker, running
from tests.support.loops import LoopFactory

ARCHIVE = "ORBITMQ_ARCHIVE"
GUARDED = {
    **SMALL,
    "deleteWhen": "00;01;02;03;04;05;06;07;08;09;10;11;12;13;14;15;16;17;18;19;20;21;22;23",
}
EVENT = "event=unarchived_messages_lost"


async def filled(broker: Broker, client: Client, time: Time) -> None:
    """Four whole files and one in use, three messages each, in two queues; all but the last have expired."""
    for number in range(14):
        await client.send("Orders", bytes(1000), queue_id=number % 2)
    await time.pass_by(FIRST_ROUND_MS / 1000)
    old_ns = (broker.store._clock.now_ms() - 73 * HOUR_MS) * 1_000_000
    for file in broker.store.commit_log.files.files:
        os.utime(file.path, ns=(old_ns, old_ns))


def archived(broker: Broker, first: int, second: int) -> None:
    broker.offsets.commit(ARCHIVE, "Orders", 0, first)
    broker.offsets.commit(ARCHIVE, "Orders", 1, second)


@pytest.fixture
def disk(monkeypatch: pytest.MonkeyPatch) -> FaultyDisk:
    disk = FaultyDisk()
    monkeypatch.setattr("orbitmq.store.engine.Files", lambda: disk)
    return disk


async def test_the_log_stays_until_it_is_archived(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, archiveGuard="true", **GUARDED)
    async with running(broker), client_of(broker) as client:
        broker.store._clean_worker.stop()
        await filled(broker, client, time)
        await time.pass_by(LOOK_SECONDS)
        assert await clean(broker, time) == 0, "nobody has read it"
        archived(broker, 2, 7)  # the message with offset 2 of the first queue is the fifth, in the second file
        await time.pass_by(LOOK_SECONDS)
        assert 4096 <= broker.archive_guard.archived < 8192
        assert await clean(broker, time) == 4096
        assert caplog.text.count("event=log_file_kept") == 2, "once a file"
        archived(broker, 7, 7)
        await time.pass_by(LOOK_SECONDS)
        assert await clean(broker, time) == 4 * 4096, "all but the last"
        await time.pass_by(LOOK_SECONDS)
        assert broker.archive_guard.lost == 0
        assert EVENT not in caplog.text


async def test_what_a_full_disk_takes_is_named(
    tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, archiveGuard="true", **GUARDED)
    async with running(broker), client_of(broker) as client:
        broker.store._clean_worker.stop()
        await filled(broker, client, time)
        archived(broker, 1, 7)
        await time.pass_by(LOOK_SECONDS)
        disk.used = 0.99
        await clean(broker, time)
        disk.used = 0.1
        assert caplog.text.count("event=wanted_log_file_removed") == 4
        await time.pass_by(LOOK_SECONDS)
        assert f"{EVENT} topic=Orders queue=0 from=1 to=5 count=5" in caplog.text
        assert broker.archive_guard.lost == 5, "what is archived is not lost"
        table = await runtime_table(client)
        assert table["archiveGuardMessagesLost"] == "5"
        await time.pass_by(LOOK_SECONDS)
        assert broker.archive_guard.lost == 5, "told once"


async def test_without_the_guard_the_log_goes(tmp_path: Path, turned_clock: LoopFactory, disk: FaultyDisk) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, **GUARDED)
    async with running(broker), client_of(broker) as client:
        broker.store._clean_worker.stop()
        await filled(broker, client, time)
        await time.pass_by(LOOK_SECONDS)
        assert await clean(broker, time) == 4 * 4096
        assert "archiveGuardOffset" not in await runtime_table(client)


async def test_a_round_over_many_topics_walks_no_queue_for_nothing_and_lets_others_work(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    topics, loops_thread, walk = 1000, threading.current_thread(), ConsumeQueues.__iter__

    def no_walk(queues: ConsumeQueues) -> Iterator[ConsumeQueue]:
        assert threading.current_thread() is not loops_thread, "all queues are walked over on the event loop"
        return walk(queues)

    broker = made_broker(tmp_path, archiveGuard="true")
    async with running(broker), client_of(broker) as client:
        for number in range(topics):
            broker.topics.put(TopicConfig(f"Orders{number}"))
        await client.send("Orders7", b"x", queue_id=1)
        turns = 0
        looking = asyncio.create_task(broker.archive_guard.look())
        monkeypatch.setattr(ConsumeQueues, "__iter__", no_walk)
        while not looking.done():
            turns += 1
            await asyncio.sleep(0)
        monkeypatch.undo()
        await looking
        assert broker.archive_guard.archived == 0, "the one message is not archived"
        assert turns > topics / ITEMS_A_TURN
        broker.offsets.commit(ARCHIVE, "Orders7", 1, 1)
        await broker.archive_guard.look()
        assert broker.archive_guard.archived == broker.store.commit_log_max_offset > 0


@pytest.mark.parametrize(
    ("topic", "patterns", "guarded"),
    [
        ("Orders", "*", True),
        ("Orders", "Pay*;Orders", True),
        ("Orders", "Pay*", False),
        ("%DLQ%billing", "*", False),
        ("%DLQ%billing", "*;%DLQ%*", True),
        ("%RETRY%billing", "*;%DLQ%*", False),
        ("SCHEDULE_TOPIC_XXXX", "*", False),
        ("rmq_sys_x", "*", False),
    ],
)
def test_topics_are_guarded_by_their_names(topic: str, patterns: str, guarded: bool) -> None:
    assert is_guarded(topic, patterns.split(";")) is guarded
