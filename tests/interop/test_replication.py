"""A master of one system, a slave of the other: the log is copied under load, byte for byte, and read when the master
is dead. That is also how a running cluster moves from RocketMQ to orbitmq, and back.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.timers.progress import read_timer_check
from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, Message, MessageExt, PushConsumer
from orbitmq.client import sync as threads
from orbitmq.errors import BodyError
from orbitmq.message.javajson import loads
from orbitmq.net.remoting import Remoting
from orbitmq.replication.agreement import log_limits
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.scenarios.test_promotion import promote
from tests.support.asking import Asker, asking
from tests.support.delivery import assert_each_once, messages
from tests.support.java_rocketmq import ROCKETMQ_5, JavaBroker, JavaNameServer, run_driver
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until
from tests.support.python_client import FIRST

BROKERS = {"java": JavaBroker, "orbitmq": OrbitBroker}
COUNT, BATCH, FEW = 50_000, 100, 300
FILE_SIZE = 4 << 20
FIVE = {"timerWheelEnable": "true", "haSendHeartbeatInterval": 500}
READ_SECONDS = 120
SYNC_SECONDS = 40  # a Java slave copies topics 3 s after its start and then every 10 s; what comes between waits


def log_end(broker: JavaBroker | OrbitBroker) -> int:
    """Where the broker's log ends, by its own words."""

    async def ask() -> int:
        remoting = Remoting()
        try:
            return (await log_limits(remoting, broker.address))[1]
        finally:
            await remoting.close()

    return asyncio.run(ask())


def fill(names: str, topic: str, wanted: range) -> None:
    """Numbered messages of several sizes, in batches."""
    with threads.Producer("fillers", names, send_timeout_ms=30_000) as producer:
        for first in wanted[::BATCH]:
            numbers = range(first, first + BATCH)
            producer.send_batch([Message(topic, b"%d:" % n + b"x" * (n % 300), tags="t") for n in numbers])


def log_bytes(store: Path, begin: int, end: int) -> bytes:
    found = b""
    for path in sorted((store / "commitlog").iterdir()):
        start = int(path.name)
        with path.open("rb") as file:
            file.seek(max(0, begin - start))
            found += file.read(max(0, min(end, start + path.stat().st_size) - max(begin, start)))
    return found


async def read_numbers(names: str, topic: str, count: int) -> Counter[int]:
    """What a push consumer of a new group gets."""
    found: Counter[int] = Counter()

    everything = asyncio.Event()

    async def take(batch: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        found.update(int(one.body.partition(b":")[0]) for one in batch)
        if len(found) >= count:
            everything.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer("readers", names, consume_from_where=FIRST, consume_batch_max_size=32)
    consumer.subscribe(topic)
    consumer.set_listener(take)
    async with consumer:
        async with asyncio.timeout(READ_SECONDS):
            await everything.wait()
    return found


@pytest.mark.parametrize(("of_master", "of_slave"), [("java", "orbitmq"), ("orbitmq", "java")])
def test_a_slave_of_the_other_system_has_every_byte_and_serves_when_its_master_is_dead(
    of_master: str, of_slave: str
) -> None:
    kind = OrbitNameServer if of_master == "orbitmq" else JavaNameServer
    # Small files, so that blanks and rollovers are copied as well. RocketMQ's slave says nothing before its first sign
    # of life, and asks for topics a few seconds after its start, so they are there by then.
    small = {"mappedFileSizeCommitLog": FILE_SIZE, "haSendHeartbeatInterval": 500}
    with kind() as names, BROKERS[of_master](names.address, **small) as master:
        few = ("--namesrv", names.address, "--topic", "few")
        run_driver("send", *few, "--run", "few", "--mode", "sync", "--count", FEW)
        fill(names.address, "many", range(BATCH))
        with BROKERS[of_slave](names.address, brokerRole="SLAVE", brokerId=1, **small) as slave:
            wait_until(lambda: log_end(slave) > 0, 60, "the slave copies")
            fill(names.address, "many", range(BATCH, COUNT))
            end = log_end(master)
            wait_until(lambda: log_end(slave) == end, 60, "the slave has everything")
            assert end > 3 * FILE_SIZE
            begin = 0  # both began with the first file: there was no other yet, or all are copied
            assert log_bytes(slave.store_dir, begin, end) == log_bytes(master.store_dir, begin, end)
            wait_until(
                lambda: "many" in (slave.store_dir / "config/topics.json").read_text(),
                SYNC_SECONDS,
                "the topics are copied",
            )
            master.kill()
            found = asyncio.run(read_numbers(names.address, "many", COUNT))
            assert found == Counter(range(COUNT)), "each once"
            received = messages(run_driver("consume", *few, "--group", "javas", "--expect", FEW, "--linger-ms", 500))
            assert_each_once(received, "few", range(FEW))


def test_a_promoted_slave_of_rocketmq_5_delivers_each_timer_message_once() -> None:
    with (
        JavaNameServer() as names,
        JavaBroker(names.address, ROCKETMQ_5, **FIVE) as master,
        OrbitBroker(names.address, brokerRole="SLAVE", brokerId=1) as slave,
    ):
        with threads.Producer("timed", names.address) as producer:
            producer.send(Message("Timed", b"0:"))
            begun_ms = time.time_ns() // 1_000_000
            for number, delay_ms in enumerate((500, 1500, 2500, 25_000), start=1):
                due_ms = str(begun_ms + delay_ms)
                producer.send(Message("Timed", b"%d:" % number, properties={"TIMER_DELIVER_MS": due_ms}))
        progress = slave.store_dir / "config/timerProgress.json"

        def has_copied() -> bool:
            return progress.exists() and loads(progress.read_text())["doneDueMs"] > begun_ms + 2500

        wait_until(has_copied, 40, "three are known to be delivered")
        wait_until(lambda: log_end(slave) == log_end(master), 60, "the slave has everything")
        master.kill()
        code, output = promote(slave, "--force")
        assert code == 0, output
        assert asyncio.run(read_numbers(names.address, "Timed", 5)) == Counter(range(5))


def test_a_slave_of_rocketmq_5_copies_the_tables() -> None:
    """A minute after its start, and then every minute; how far timer messages are, every three seconds."""
    mode = {"topic": "few", "consumerGroup": "poppers", "mode": "POP", "popShareQueueNum": 2}
    with OrbitNameServer() as names, OrbitBroker(names.address, haSendHeartbeatInterval=500) as master:
        fill(names.address, "few", range(BATCH))

        async def set_mode(asker: Asker) -> int:
            return (await asker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=json.dumps(mode).encode())).code

        async def ask_metrics(asker: Asker) -> Command:
            return await asker.ask(RequestCode.GET_TIMER_METRICS)

        assert asking(master.address, set_mode) == 0
        with threads.Producer("timed", names.address) as producer:
            producer.send(Message("few", b"later", properties={"TIMER_DELAY_SEC": "3600"}))
        with JavaBroker(names.address, ROCKETMQ_5, brokerRole="SLAVE", brokerId=1, **FIVE) as slave:
            config = slave.store_dir / "config"

            def of(name: str) -> Any:
                """RocketMQ writes a table in place: for a moment it is empty, or half of it is there."""
                with contextlib.suppress(FileNotFoundError, BodyError):
                    return loads((config / name).read_text())
                return {}

            wait_until(lambda: "few" in of("topics.json").get("topicConfigTable", {}), 100, "the topics are copied")
            wait_until(lambda: of("messageRequestMode.json"), 20, "all tables are copied")
            assert of("messageRequestMode.json") == {"messageRequestModeMap": {"few": {"poppers": mode}}}
            assert of("consumerOffset.json")["dataVersion"]["timestamp"] == 0, "the master's"
            told = loads(bytes(asking(master.address, ask_metrics).body).decode())
            assert told["timingCount"]["few"]["count"] == 1
            wait_until(lambda: of("timermetrics") == told, 80, "the number of messages that wait is copied")
            done_due_ms, _ = read_timer_check(config / "timercheck") or (0, 0)
            assert done_due_ms > time.time_ns() // 1_000_000 - 60_000
