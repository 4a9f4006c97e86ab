"""A cluster whose brokers die, change their roles or refuse: what is known stays, what is not is told as such."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.metrics.exporter import JOB, NAME_SERVERS, Exporter, ExporterSettings
from orbitmq.metrics.model import MetricType
from orbitmq.metrics.table_exporter import EXPORTER
from orbitmq.metrics.table_native import PROCESS
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import KVTable, MessageModel
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.headers_admin import DeleteSubscriptionGroupHeader, DeleteTopicHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import client_of, consumer, made_broker, running
from tests.support.loops import until
from tests.support.scraped import Scraped


class Turned:
    """The exporter's timer, turned by the test."""

    now = 1000.0

    def __call__(self) -> float:
        return self.now


class Cluster:
    """A name server, brokers, and an exporter whose rounds are the test's."""

    def __init__(self, names: NameServer, brokers: dict[str, Broker], exporter: Exporter, timer: Turned) -> None:
        self.names, self.brokers, self.exporter, self.timer = names, brokers, exporter, timer

    async def scrape(self) -> Scraped:
        await self.exporter.round()
        return Scraped((await self.exporter.page.metrics()).body.decode())

    async def fill(
        self, name: str, messages: int, committed: int, topic: str = "orders", group: str = "readers"
    ) -> None:
        """Messages in queue 0 of a broker, some of them consumed by a group."""
        async with client_of(self.brokers[name]) as client:
            for _ in range(messages):
                await client.send(topic)
            await client.heartbeat(consumer(group))
            header = UpdateConsumerOffsetHeader(group, topic, 0, committed)
            await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, header)


@asynccontextmanager
async def _cluster(directory: Path, *names: str, **settings: object) -> AsyncIterator[Cluster]:
    server, timer, remoting = NameServer(NamesrvOptions(listen_port=0)), Turned(), Remoting()
    await server.start()
    async with AsyncExitStack() as stack:
        stack.push_async_callback(server.stop)
        brokers = {}
        for name in names:
            broker = made_broker(directory / name, brokerName=name, namesrvAddr=server.address)
            brokers[name] = await stack.enter_async_context(running(broker))
            await broker.announced()
        stack.push_async_callback(remoting.close)
        exporter = Exporter(remoting, [server.address], ExporterSettings(**settings), timer=timer)  # type: ignore[arg-type]
        yield Cluster(server, brokers, exporter, timer)


async def test_a_broker_that_dies_takes_no_other_figure_and_no_sum_with_it(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a", "b") as cluster:
        await cluster.fill("a", 6, 2)
        await cluster.fill("b", 10, 3)
        assert (await cluster.scrape()).value("orbitmq_group_lag_messages", topic="orders") == 11

        await cluster.brokers["b"].kill()
        found = await cluster.scrape()
        assert found.value("orbitmq_broker_up", broker="a") == 1
        assert found.value("orbitmq_broker_up", broker="b") == 0
        assert found.value("orbitmq_broker_has_master", broker="b") == 0
        assert found.value("orbitmq_group_lag_messages", topic="orders") == 11  # the last that is known
        assert found.value("orbitmq_scrape_errors_total", job=JOB, target=f"b ({cluster.brokers['b'].address})") == 1

        cluster.timer.now += cluster.exporter.settings.stale_seconds + 1
        found = await cluster.scrape()
        assert not found.values("orbitmq_group_lag_messages", topic="orders")  # never the smaller sum of the others
        assert not found.values("rocketmq_group_diff", topic="orders")
        assert not found.values("rocketmq_producer_offset", broker="b")
        assert found.value("rocketmq_message_accumulation", broker="a", topic="orders") == 4
        assert found.value("orbitmq_scrape_stale_seconds", target=f"b ({cluster.brokers['b'].address})") > 180
        assert found.value("orbitmq_scrape_stale_seconds", target=f"a ({cluster.brokers['a'].address})") == 0


async def test_a_broker_that_is_gone_for_long_is_forgotten(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a", "b", forget_seconds=600) as cluster:
        await cluster.scrape()
        await cluster.brokers["b"].stop()
        cluster.timer.now += 500
        assert (await cluster.scrape()).value("orbitmq_broker_up", broker="b") == 0
        cluster.timer.now += 700
        found = await cluster.scrape()
        assert not found.values("orbitmq_broker_up", broker="b")
        assert found.value("orbitmq_broker_up", broker="a") == 1


async def test_without_name_servers_the_brokers_are_asked_all_the_same(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:
        await cluster.scrape()
        await cluster.names.stop()
        cluster.timer.now += 100
        found = await cluster.scrape()
        assert found.value("orbitmq_broker_up", broker="a") == 1
        assert found.value("orbitmq_scrape_errors_total", target=NAME_SERVERS) == 1
        assert found.value("orbitmq_scrape_stale_seconds", target=NAME_SERVERS) == 100
        cluster.timer.now += cluster.exporter.settings.stale_seconds
        assert (await cluster.exporter.page.health()).status == 503


async def test_a_key_that_a_broker_does_not_tell_costs_its_own_figure(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:

        def incomplete(_connection: object, command: Command) -> Command:
            table = {"commitLogDiskRatio": "0.5", "putTps": "", "commitLogMaxOffset": "NaN", "bootTimestamp": "x"}
            return command.response(ResponseCode.SUCCESS, body=encode(KVTable(table)))

        cluster.brokers["a"].router.handlers[RequestCode.GET_BROKER_RUNTIME_INFO] = incomplete
        await cluster.fill("a", 3, 1)
        found = await cluster.scrape()
        assert found.value("rocketmq_brokeruntime_commitlog_disk_ratio") == 0.5
        assert not found.values("rocketmq_brokeruntime_commitlog_maxoffset")
        assert not found.values("rocketmq_brokeruntime_put_tps10")
        assert found.value("rocketmq_message_accumulation", topic="orders") == 2


async def test_a_question_that_is_refused_costs_no_other(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:
        del cluster.brokers["a"].router.handlers[RequestCode.GET_ALL_PRODUCER_INFO]
        await cluster.fill("a", 3, 1)
        found = await cluster.scrape()
        assert found.value("rocketmq_message_accumulation", topic="orders") == 2
        assert found.value("orbitmq_scrape_errors_total", job=JOB) == 1
        assert not found.values("rocketmq_producer_count")


async def test_deleted_groups_and_topics_vanish(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:
        await cluster.fill("a", 3, 1)
        await cluster.fill("a", 3, 1, topic="others", group="others")
        assert len((await cluster.scrape()).values("rocketmq_consumer_offset")) == 2
        async with client_of(cluster.brokers["a"]) as client:
            header = DeleteSubscriptionGroupHeader("readers")  # its offsets stay, as the stock tool leaves them
            await client.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, header)
            await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("others"))
        found = await cluster.scrape()
        assert not found.values("rocketmq_consumer_offset")
        assert not found.values("rocketmq_producer_offset", topic="others")
        assert found.value("rocketmq_producer_offset", topic="orders") == 3


async def test_an_offset_beyond_the_end_is_told_as_such(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:
        await cluster.fill("a", 3, 10)
        found = await cluster.scrape()
    assert found.value("rocketmq_group_diff", group="readers") == -7
    assert found.value("orbitmq_group_lag_messages", group="readers") == 0
    assert found.value("orbitmq_group_ahead_messages", group="readers") == 7


async def test_a_slave_is_told_by_how_far_it_is_behind_and_its_figures_count_once(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:
        await cluster.fill("a", 3, 1)
        slave = made_broker(
            tmp_path / "slave", brokerName="a", brokerRole="SLAVE", brokerId="1", namesrvAddr=cluster.names.address
        )
        async with running(slave):
            await until(lambda: slave.address in cluster.names.routes.cluster_info().brokers["a"].addresses.values())
            found = await cluster.scrape()
            assert found.value("rocketmq_broker_commitlog_diff", broker="a", brokerIP=slave.address) >= 0
            assert found.value("orbitmq_broker_up", brokerIP=slave.address) == 1
            assert found.value("orbitmq_group_lag_messages", topic="orders") == 2
            await cluster.brokers["a"].kill()
            await cluster.scrape()
            found = await cluster.scrape()
            assert found.value("orbitmq_broker_has_master", broker="a") == 0
            assert found.value("orbitmq_broker_up", brokerIP=slave.address) == 1


async def test_a_group_that_keeps_its_offsets_itself_has_no_lag_here(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster, client_of(cluster.brokers["a"]) as client:
        await cluster.fill("a", 3, 1)
        await client.heartbeat(consumer("readers", message_model=MessageModel.BROADCASTING))
        found = await cluster.scrape()
        assert found.value("orbitmq_group_online_consumers", group="readers") == 1
        assert not found.values("rocketmq_group_diff", group="readers")


async def test_labels_can_be_kept_steady(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a", steady_labels=True) as cluster:
        await cluster.fill("a", 3, 1)
        found = await cluster.scrape()
    assert found.value("rocketmq_group_diff", group="readers", countOfOnlineConsumers="") == 2
    assert found.value("rocketmq_group_count", caddr="", localaddr="", group="readers") == 0


async def test_what_the_deadline_leaves_is_asked_first_in_the_next_round(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with _cluster(tmp_path, "a", deadline_seconds=0.0) as cluster:
        await cluster.fill("a", 3, 1)
        found = await cluster.scrape()
        assert found.value("orbitmq_broker_up", broker="a") == 1
        assert found.value("orbitmq_scrape_errors_total", job=JOB) == 1
        assert not found.values("rocketmq_producer_offset")
        object.__setattr__(cluster.exporter.settings, "deadline_seconds", 30.0)
        assert (await cluster.scrape()).value("rocketmq_producer_offset", topic="orders") == 3


async def test_every_metric_of_the_table_is_read_and_no_other(tmp_path: Path) -> None:
    async with _cluster(tmp_path, "a") as cluster:
        found = await cluster.scrape()
    declared = {
        m.name.removesuffix("_total") if m.kind is MetricType.COUNTER else m.name for m in (*EXPORTER, *PROCESS)
    }
    assert set(found.families) == declared
    labels = {metric.name: set(metric.labels) for metric in EXPORTER}
    for name, family in found.families.items():
        assert all(set(sample.labels) == labels.get(name, set(sample.labels)) for sample in family.samples)
