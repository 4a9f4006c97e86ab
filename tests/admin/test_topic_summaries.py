"""All topics in lines, from what brokers tell of all at once; what is not known of one broker is not known at all."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.admin import topic_summaries
from orbitmq.admin.session import Session
from orbitmq.admin.topic_summaries import TopicVolume, _read
from orbitmq.admin.topics import TopicType
from orbitmq.client.sync import Producer
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import Message, MessageQueue
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.bodies import ConsumeStats, ConsumeStatsList, QueueProgress
from orbitmq.wire.requests import RequestCode
from tests.support.sessions import asked, without_master


@pytest.fixture(scope="module")
def running() -> Iterator[Cluster]:
    with Cluster(brokers=2) as started:
        started.create_topic("Orders", queues=2)
        with Producer("shop", started.namesrv_address) as producer:
            for _ in range(5):
                producer.send(Message("Orders", b"x"))
        yield started


def test_lag_is_summed_over_groups_and_queues_and_unknown_of_groups_without_rules() -> None:
    queues = [MessageQueue("Orders", "broker-a", number) for number in range(2)]
    behind = {queues[0]: QueueProgress(10, 4), queues[1]: QueueProgress(3, 5)}
    told = [
        {"billing": [ConsumeStats(offset_table=behind)]},
        {"audit": [ConsumeStats(offset_table={queues[0]: QueueProgress(10, 9)})]},
    ]
    stats = ConsumeStatsList(consume_stats_list=told)
    offsets = ["Orders@billing", "Orders@audit", "Orders@TOOLS_CONSUMER", "Bills@left"]
    found = _read({"Orders": TopicConfig("Orders")}, offsets, stats)
    assert dict(found.lag) == {"Orders": 7}, "an offset ahead of the end counts 0"
    assert dict(found.groups) == {"Orders": {"billing", "audit"}, "Bills": {"left"}}
    assert found.unsummed == {"Bills"}


def test_every_topic_over_both_brokers(running: Cluster) -> None:
    rows = {row.topic: row for row in asked(running.namesrv_address, topic_summaries.summaries).items}
    orders = rows["Orders"]
    assert (orders.type, orders.brokers, orders.read_queues, orders.write_queues, orders.perms, orders.differs) == (
        TopicType.UNSPECIFIED, ["broker-a", "broker-b"], 4, 4, ["RW-"], False,
    )  # fmt: skip
    assert (orders.groups, orders.lag_messages) == ([], 0)
    assert rows["TBW102"].type is TopicType.SYSTEM
    (volume,) = asked(running.namesrv_address, lambda session: topic_summaries.volumes(session, [orders])).items
    assert (volume.messages, volume.in_24_h) == (5, 5)


def test_a_part_that_is_missing_makes_the_whole_unknown(running: Cluster) -> None:
    orders = next(
        row for row in asked(running.namesrv_address, topic_summaries.summaries).items if row.topic == "Orders"
    )
    running.disconnect(RequestCode.VIEW_BROKER_STATS_DATA, times=None, broker="broker-b")
    running.disconnect(RequestCode.GET_BROKER_CONSUME_STATS, times=None, broker="broker-b")
    try:
        found = asked(running.namesrv_address, topic_summaries.summaries)
        volumes = asked(running.namesrv_address, lambda session: topic_summaries.volumes(session, [orders]))
    finally:
        running.heal()
    (partial,) = [row for row in found.items if row.topic == "Orders"]
    assert (partial.brokers, partial.write_queues, partial.lag_messages) == (["broker-a"], None, None)
    assert volumes.items == [TopicVolume("Orders")]
    for one in (found, volumes):
        assert [failure.target.partition(" ")[0] for failure in one.failures] == ["broker-b"]


def test_a_broker_without_master_leaves_the_figures_open(running: Cluster) -> None:
    async def found(session: Session) -> list[str]:
        await without_master(session)
        rows = await topic_summaries.summaries(session)
        assert all(row.write_queues is None for row in rows.items)
        return [failure.target for failure in rows.failures]

    assert any("broker-z" in target for target in asked(running.namesrv_address, found))


def test_messages_of_so_many_topics_are_not_counted(running: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(topic_summaries, "VOLUMES_MAX", 0)
    found = asked(running.namesrv_address, topic_summaries.rows)
    (orders,) = found.items
    assert (orders.topic, orders.write_queues, orders.messages) == ("Orders", 4, None)
    assert found.warnings == ["messages and rates are those of the first 0 topics: choose some by their name"]
