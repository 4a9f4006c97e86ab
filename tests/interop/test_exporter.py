"""The exporter's figures of either system after the same traffic are what was sent, consumed and asked for again."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager

import pytest

from orbitmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
)
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.metrics.exporter import Exporter, ExporterSettings
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.registration import register_broker, unregister_broker
from orbitmq.wire.bodies import BrokerRegistration
from orbitmq.wire.headers_namesrv import RegisterBrokerHeader, UnregisterBrokerHeader
from orbitmq.wire.objects import encode
from tests.interop.conftest import System
from tests.support.process import free_port
from tests.support.scraped import Scraped

SENT = 12
PATIENCE_SECONDS = 60


@asynccontextmanager
async def _exporter(system: System) -> AsyncIterator[Exporter]:
    """One whose rounds are the test's."""
    remoting = Remoting()
    exporter = Exporter(remoting, [system.namesrv_address], ExporterSettings(interval_seconds=3600))
    await exporter.start("127.0.0.1", 0)
    try:
        await exporter.first_round.wait()
        yield exporter
    finally:
        await exporter.stop()
        await remoting.close()


async def _scrape(exporter: Exporter) -> Scraped:
    await exporter.round()
    return await Scraped.from_page(f"http://127.0.0.1:{exporter.port}/metrics")


@pytest.mark.with_five
async def test_figures_are_those_of_the_traffic(system: System, label: str) -> None:
    group = f"{label}-readers"
    async with (
        Producer(f"{label}-writers", system.namesrv_address) as producer,
        LitePullConsumer(group, system.namesrv_address, auto_commit=False) as consumer,
        _exporter(system) as exporter,
    ):
        sent = [await producer.send(Message(label, b"x" * 100)) for _ in range(SENT)]
        queue = sent[0].queue
        consumer.subscribe(label)
        count = 0
        while count < SENT:
            count += len(await consumer.poll(timeout=PATIENCE_SECONDS))
        await _commit(system, group, MessageQueue(label, queue.broker_name, queue.queue_id), 1)
        found = await _scrape(exporter)

        where = {"cluster": "DefaultCluster", "broker": "broker-a", "topic": label}
        assert found.value("rocketmq_producer_offset", **where) == SENT
        assert found.value("rocketmq_producer_count", cluster="DefaultCluster", group=f"{label}-writers") == 1
        here = {**where, "group": group}
        assert found.value("rocketmq_consumer_offset", **here) == 1
        assert found.value("rocketmq_message_accumulation", **here) == SENT - 1
        assert found.value("orbitmq_group_lag_messages", topic=label, group=group) == SENT - 1
        diff = {"group": group, "topic": label, "countOfOnlineConsumers": "1", "msgModel": "1"}
        assert found.value("rocketmq_group_diff", **diff) == SENT - 1
        assert 0 < found.value("rocketmq_group_get_latency_by_storetime", **here) < 600_000
        assert found.value("orbitmq_group_online_consumers", group=group) == 1
        assert found.value("rocketmq_group_count", group=group) == 1


async def _commit(system: System, group: str, queue: MessageQueue, offset: int) -> None:
    remoting = Remoting()
    try:
        await update_consumer_offset(remoting, system.address, group, queue, offset)
    finally:
        await remoting.close()


@pytest.mark.with_five
async def test_a_consumer_that_fails_shows_in_retries_and_in_its_own_figures(system: System, label: str) -> None:
    group, consumed_again = f"{label}-readers", asyncio.Event()

    async def fail_at_first(messages: Sequence[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
        if messages[0].reconsume_times == 0:
            return ConsumeConcurrentlyStatus.RECONSUME_LATER
        consumed_again.set()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer(group, system.namesrv_address, consume_from_where=first)
    consumer.on_message(fail_at_first)
    consumer.subscribe(label)
    async with Producer(f"{label}-writers", system.namesrv_address) as producer, _exporter(system) as exporter:
        await producer.send(Message(label, b"x"))
        async with consumer, asyncio.timeout(PATIENCE_SECONDS):
            await consumed_again.wait()
            found = await _scrape(exporter)
            where = {"cluster": "DefaultCluster", "broker": "broker-a"}
            assert found.value("rocketmq_topic_retry_offset", **where, topic=f"%RETRY%{group}") == 1
            assert found.value("rocketmq_client_consume_fail_msg_count", group=group, topic=label) >= 1


async def test_the_broker_tells_of_itself(system: System) -> None:
    async with _exporter(system) as exporter:
        found = await _scrape(exporter)
    broker = {"cluster": "DefaultCluster", "brokerIP": system.address}
    assert found.value("orbitmq_broker_up", **broker) == 1
    assert found.value("orbitmq_broker_has_master", broker="broker-a") == 1
    assert found.value("rocketmq_broker_tps", **broker) >= 0
    assert 0 < found.value("rocketmq_brokeruntime_commitlog_disk_ratio", des="V4_9_7", **broker) < 1
    assert found.value("rocketmq_brokeruntime_send_threadpoolqueue_headwait_timemills", **broker) >= 0
    assert found.value("rocketmq_brokeruntime_commitlogdir_capacity_free", **broker) > 1 << 20
    assert found.value("rocketmq_brokeruntime_commitlog_maxoffset", broker_version="407", **broker) >= 0
    assert not found.values("orbitmq_scrape_errors_total")


@pytest.mark.with_five
async def test_a_broker_that_is_dead_takes_no_other_figure_with_it(system: System, label: str) -> None:
    """Registered, at an address nobody listens at, as long as the connection it registered over stays open."""
    remoting = Remoting()
    address = f"127.0.0.1:{free_port()}"
    dead = RegisterBrokerHeader("dead-broker", address, "DefaultCluster", address, 0)
    body = encode(BrokerRegistration())
    async with Producer(f"{label}-writers", system.namesrv_address) as producer, _exporter(system) as exporter:
        await producer.send(Message(label, b"x"))
        await register_broker(remoting, system.namesrv_address, dead, body, timeout_ms=PATIENCE_SECONDS * 1000)
        try:
            found = await _scrape(exporter)
        finally:
            goodbye = UnregisterBrokerHeader("dead-broker", address, "DefaultCluster", 0)
            await unregister_broker(remoting, system.namesrv_address, goodbye, timeout_ms=PATIENCE_SECONDS * 1000)
            await remoting.close()
    assert found.value("orbitmq_broker_up", broker="dead-broker") == 0
    assert found.value("orbitmq_broker_up", broker="broker-a") == 1
    assert found.value("orbitmq_scrape_errors_total", target=f"dead-broker ({address})") == 1
    assert found.value("rocketmq_producer_offset", broker="broker-a", topic=label) == 1


async def test_rates_follow_within_the_time_a_broker_needs_to_sample(system: System, label: str) -> None:
    where = {"cluster": "DefaultCluster", "broker": "broker-a", "topic": label}
    async with Producer(f"{label}-writers", system.namesrv_address) as producer, _exporter(system) as exporter:
        for _ in range(SENT):
            await producer.send(Message(label, b"x" * 100))
        async with asyncio.timeout(PATIENCE_SECONDS):
            while not (rate := (found := await _scrape(exporter)).value("rocketmq_producer_tps", **where)):  # noqa: ASYNC110 - the broker samples every ten seconds
                await asyncio.sleep(0.2)
        assert found.value("rocketmq_producer_message_size", **where) > 100 * rate
        assert found.value("rocketmq_broker_tps", broker="broker-a") > 0
