"""The figures of running daemons, read by Prometheus' own parser: equal to what was sent, consumed and decided."""

from __future__ import annotations

import asyncio
import subprocess
import sys
import urllib.error
import urllib.request
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.client import LocalTransactionState, Message, TransactionProducer
from orbitmq.errors import ConfigurationError
from orbitmq.message.config import SubscriptionData, TopicConfig
from orbitmq.metrics.broker import BrokerMetrics
from orbitmq.metrics.daemons import parts_of, served
from orbitmq.metrics.options import MetricsOptions
from orbitmq.metrics.table_native import BROKER, NAMESRV, PROCESS
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import BROKER as NAME
from tests.support.live import Client, client_of, consumer, made_broker, running
from tests.support.loops import until
from tests.support.scraped import Scraped

ON = MetricsOptions(exporter_type="PROM", port=0, queue_series=2)


class System:
    """Name server and broker of this process with their page."""

    def __init__(self, names: NameServer, broker: Broker, client: Client, page: str) -> None:
        self.names, self.broker, self.client, self.page = names, broker, client, page

    async def get(self, path: str = "/metrics") -> str:
        url = self.page.replace("/metrics", path)
        return await asyncio.to_thread(lambda: urllib.request.urlopen(url).read().decode())

    async def scrape(self) -> Scraped:
        return Scraped(await self.get())


@asynccontextmanager
async def _system(directory: Path, options: MetricsOptions = ON, **pairs: str) -> AsyncIterator[System]:
    names = NameServer(NamesrvOptions(listen_port=0))
    await names.start()
    broker = made_broker(directory, namesrvAddr=names.address, **pairs)
    parts = parts_of(options, broker, names)
    try:
        async with running(broker), client_of(broker) as client, served(options, parts) as page:
            yield System(names, broker, client, page or "")
    finally:
        await names.stop()


async def _commit(client: Client, group: str, topic: str, queue_id: int, offset: int) -> None:
    header = UpdateConsumerOffsetHeader(group, topic, queue_id, offset)
    await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


async def test_what_went_through_is_what_is_told(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        client = system.client
        for _ in range(7):
            await client.send("orders", b"x" * 100)
        await client.send_batch("orders", [b"y" * 50] * 3)
        assert len(await client.read("orders", consumer_group="readers")) == 10
        await _commit(client, "readers", "orders", 0, 4)
        await client.heartbeat(consumer("readers", SubscriptionData("orders", "*")), producers=["writers"])
        found = await system.scrape()
        size = system.broker.store.put_bytes

    common = {"cluster": "DefaultCluster", "node_type": "broker", "node_id": NAME}
    assert found.value("rocketmq_messages_in_total", topic="orders", is_system="false", **common) == 10
    assert found.value("rocketmq_throughput_in_total", topic="orders", **common) == size
    out = {"topic": "orders", "consumer_group": "readers", "is_system": "false"}
    assert found.value("rocketmq_messages_out_total", **out) == 10
    assert found.value("rocketmq_throughput_out_total", **out) == size
    assert found.value("rocketmq_consumer_lag_messages", is_retry="false", **out) == 6
    assert found.value("rocketmq_consumer_lag_latency_milliseconds", is_retry="false", **out) > 0
    assert found.value("orbitmq_queue_lag_messages", topic="orders", group="readers", broker=NAME, queue="0") == 6
    assert found.value("rocketmq_storage_size_bytes", storage_type="local", storage_medium="disk") == size
    assert found.value("rocketmq_producer_connections", language="java", version="v4_9_7") == 1
    assert found.value("rocketmq_consumer_connections", consumer_group="readers", consume_mode="push") == 1
    assert found.value("rocketmq_message_size_count") == 10
    assert found.value("rocketmq_message_size_sum") == size
    assert found.value("orbitmq_put_latency_seconds_count") == 8
    assert found.value("orbitmq_broker_active") == 1


async def test_decisions_about_transactions_are_counted(tmp_path: Path) -> None:
    class Listener:
        def execute(self, message: Message, commit: bool, /) -> LocalTransactionState:
            return LocalTransactionState.COMMIT_MESSAGE if commit else LocalTransactionState.ROLLBACK_MESSAGE

        def check(self, message: Message, /) -> LocalTransactionState:
            return LocalTransactionState.UNKNOWN

    async with _system(tmp_path) as system:
        async with TransactionProducer("payers", system.names.address, listener=Listener()) as producer:
            for decision in (True, True, False):
                await producer.send_in_transaction(Message("payments", b"x"), decision)
            ledger = system.broker.transactions.ledger  # decisions are oneway, and the topic has no files yet
            await until(lambda: not sum(ledger.undecided(3)), "the third decision")
        found = await system.scrape()
    assert found.value("rocketmq_commit_messages_total", topic="payments") == 2
    assert found.value("rocketmq_rollback_messages_total", topic="payments") == 1
    assert found.value("rocketmq_finish_message_latency_milliseconds_count") == 2
    assert found.value("rocketmq_half_messages") == 0
    assert found.value("rocketmq_messages_in_total", topic="RMQ_SYS_TRANS_HALF_TOPIC", is_system="true") == 3


async def test_delayed_and_half_messages_are_counted_while_they_wait(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        for _ in range(3):
            await system.client.send("later", properties={"DELAY": "18"})
        for _ in range(2):
            await system.client.send("undecided", properties={"TRAN_MSG": "true", "PGROUP": "payers"}, sys_flag=4)
        found = await system.scrape()
    assert found.value("rocketmq_timing_messages", topic="SCHEDULE_TOPIC_XXXX") == 3
    assert found.value("rocketmq_half_messages") == 2


async def test_timer_messages_are_counted_while_they_wait_and_when_they_come(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        timers = system.broker.timers
        await until(lambda: timers.is_ready, "the start")
        for delay_ms in (10, 10, 3_600_000):
            await system.client.send("later", properties={"TIMER_DELAY_MS": str(delay_ms)})
        await until(lambda: system.broker.store.max_offset("later", 0) == 2, "the first two")
        found = await system.scrape()
        assert found.value("rocketmq_timing_messages", topic="rmq_sys_wheel_timer") == 1
        assert found.value("rocketmq_timer_dequeue_total", topic="later") == 2
        assert found.value("rocketmq_timer_dequeue_latency_milliseconds") == 0
        await timers.stop()
        await system.client.send("later", properties={"TIMER_DELAY_MS": "1"})
        timers.waiting_with(0)
        await asyncio.sleep(0.05)
        assert (await system.scrape()).value("rocketmq_timer_dequeue_latency_milliseconds") >= 40


async def test_a_group_that_subscribes_something_else_by_now_has_no_lag_there(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        await system.client.send("orders")
        await _commit(system.client, "readers", "orders", 0, 0)
        assert (await system.scrape()).value("rocketmq_consumer_lag_messages", topic="orders") == 1
        await system.client.heartbeat(consumer("readers", SubscriptionData("others", "*")))
        assert not (await system.scrape()).values("rocketmq_consumer_lag_messages", topic="orders")


async def test_only_the_farthest_queues_have_series_and_none_unless_asked_for(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        for queue_id in range(4):
            for _ in range(queue_id):
                await system.client.send("orders", queue_id=queue_id)
            await _commit(system.client, "readers", "orders", queue_id, 0)
        assert sorted((await system.scrape()).values("orbitmq_queue_lag_messages")) == [2, 3]
        assert not list(BrokerMetrics(system.broker).readers()["orbitmq_queue_lag_messages"]())


async def test_a_name_server_tells_who_is_registered(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        found = await system.scrape()
    node = {"node_type": "namesrv", "node_id": system.names.address}
    assert found.value("orbitmq_namesrv_brokers", broker_cluster="DefaultCluster", **node) == 1
    assert found.value("orbitmq_namesrv_broker_has_master", broker=NAME) == 1
    assert found.value("orbitmq_namesrv_broker_silent_seconds", broker=NAME, broker_id="0") < 60
    assert found.value("orbitmq_namesrv_topics") > 5
    assert found.value("orbitmq_namesrv_connections") == 1


async def test_every_metric_of_the_tables_is_told_and_no_other(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        found = await system.scrape()
    names = {metric: metric.name.removesuffix("_total") for metric in (*BROKER, *NAMESRV, *PROCESS)}
    declared = {name: metric.kind for metric, name in names.items()}
    assert {name: family.type for name, family in found.families.items()} == declared
    for metric in (*BROKER, *NAMESRV):
        family = found.families[names[metric]]
        labels = {"cluster", "node_type", "node_id", *metric.labels}
        assert all(set(sample.labels) - {"le"} == labels for sample in family.samples)


async def test_health_is_bad_when_the_disk_has_failed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with _system(tmp_path) as system:
        assert await system.get("/healthz") == "ok\n"
        monkeypatch.setattr(BrokerMetrics, "_is_poisoned", True)
        with pytest.raises(urllib.error.HTTPError, match="503"):
            await system.get("/healthz")


async def test_a_scrape_while_another_is_collected_gets_the_same(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        first, second = await asyncio.gather(system.get(), system.get())
    assert first == second


async def test_nothing_is_counted_or_served_unless_it_is_asked_for(tmp_path: Path) -> None:
    async with _system(tmp_path, MetricsOptions()) as system:
        assert system.page == ""
        assert system.broker.statistics.on_put is None


async def test_a_port_that_is_taken_stops_the_start_with_the_name_of_the_option(tmp_path: Path) -> None:
    async with _system(tmp_path) as system:
        port = int(system.page.rsplit(":", 1)[1].split("/")[0])
        with pytest.raises(ConfigurationError, match="metricsPromExporterPort"):
            async with served(MetricsOptions(exporter_type="PROM", port=port), ()):
                pass


async def test_latency_counts_from_the_first_message_that_waits(tmp_path: Path) -> None:
    clock = ManualClock()
    broker = made_broker(tmp_path, clock)
    metrics = BrokerMetrics(broker, clock=clock)
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("orders", 1, 1))
        for _ in range(3):
            await client.send("orders")
            clock.advance(1000)
        await _commit(client, "readers", "orders", 0, 1)
        latencies = list(metrics.readers()["rocketmq_consumer_lag_latency_milliseconds"]())
    assert latencies == [(("orders", "readers", "false", "false"), 2000)]


def test_a_daemon_without_figures_does_not_load_what_makes_them() -> None:
    code = "import sys, orbitmq.cli.daemons; print(sorted({'prometheus_client', 'h11'} & sys.modules.keys()))"
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert found.stdout == "[]\n"


async def test_a_slave_tells_its_figures_too(tmp_path: Path) -> None:
    async with _system(tmp_path, brokerRole="SLAVE", brokerId="1") as system:
        found = await system.scrape()
    assert found.value("orbitmq_broker_active") == 1
    assert found.value("orbitmq_replication_slaves") == 0
    assert found.value("orbitmq_replication_serving") == 0, "it has not met a master yet"
    assert not found.values("orbitmq_namesrv_broker_has_master"), "so it is in no route"
    assert not found.values("orbitmq_scrape_errors_total")
