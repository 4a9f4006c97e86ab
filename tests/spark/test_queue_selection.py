"""Which queues options mean: by name, by pattern, one by one."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.options import read_options
from orbitmq.spark.queue_selection import queue_selection
from tests.spark.scripted_peer import ScriptedPeer, name_server_script

NOWHERE = "127.0.0.1:1"
TOPICS = (
    "orders",
    "orders-eu",
    "payments",
    "%RETRY%g",
    "%DLQ%g",
    "rmq_sys_TRACE",
    "SCHEDULE_TOPIC_XXXX",
    "broker-a",
    "c",
)
ROUTES = {
    "shared": {"broker-a": (2, NOWHERE), "broker-b": (1, NOWHERE)},
    **{topic: {"broker-a": (3, NOWHERE)} for topic in TOPICS},
}


@pytest.fixture(scope="module")
def cluster() -> Iterator[ClusterClient]:
    with ScriptedPeer(name_server_script(ROUTES)) as peer:
        yield ClusterClient([peer.address], 5000, Retries(0, 0))


def selected(cluster: ClusterClient, **options: object) -> set[MessageQueue]:
    texts = {name: str(value) for name, value in options.items()}
    chosen = queue_selection(read_options({"nameServer": "n:1", **texts}))
    return set(chosen.checked(chosen.find(cluster)))


def test_a_pattern_matches_whole_names_and_no_topics_of_the_system(cluster: ClusterClient) -> None:
    assert {queue.topic for queue in selected(cluster, subscribePattern="orders.*")} == {"orders", "orders-eu"}
    assert {queue.topic for queue in selected(cluster, subscribePattern="order")} == set()
    everything = {queue.topic for queue in selected(cluster, subscribePattern=".*")}
    assert everything == {"shared", "orders", "orders-eu", "payments"}
    assert {
        queue.topic for queue in selected(cluster, subscribePattern=".*", includeSystemTopics=True)
    } == ROUTES.keys()


def test_topics_that_are_named_come_beside_those_of_a_pattern_whatever_they_are(cluster: ClusterClient) -> None:
    chosen = selected(cluster, subscribe="%DLQ%g,payments", subscribePattern="orders.*")
    assert {queue.topic for queue in chosen} == {"%DLQ%g", "payments", "orders", "orders-eu"}
    with pytest.raises(SourceError, match="ORBITMQ_TOPIC_NOT_FOUND: topic nothing"):
        selected(cluster, subscribe="nothing", subscribePattern="orders.*")


def test_queues_are_assigned_one_by_one(cluster: ClusterClient) -> None:
    chosen = selected(cluster, assign='{"orders": [0, 2], "shared": {"broker-b": [0], "broker-a": [1]}}')
    assert chosen == {
        MessageQueue("orders", "broker-a", 0),
        MessageQueue("orders", "broker-a", 2),
        MessageQueue("shared", "broker-a", 1),
        MessageQueue("shared", "broker-b", 0),
    }


def test_topics_of_a_namespace_are_named_without_it() -> None:
    routes = {topic: {"broker-a": (1, NOWHERE)} for topic in ("shop%orders", "shop%refunds", "orders", "mall%orders")}
    with ScriptedPeer(name_server_script(routes)) as peer:
        cluster = ClusterClient([peer.address], 5000, Retries(0, 0))
        assert selected(cluster, subscribe="orders", namespace="shop") == {queue("shop%orders")}
        assert selected(cluster, assign='{"refunds": [0]}', namespace="shop") == {queue("shop%refunds")}
        assert selected(cluster, subscribePattern="o.*", namespace="shop") == {queue("shop%orders")}
        assert selected(cluster, subscribePattern=".*orders") == {
            queue("orders"), queue("shop%orders"), queue("mall%orders"),
        }  # fmt: skip


def queue(topic: str) -> MessageQueue:
    return MessageQueue(topic, "broker-a", 0)


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"assign": '{"orders": [3]}'}, "ORBITMQ_BAD_OPTION: option assign: topic orders has no queue 3"),
        (
            {"assign": '{"orders": {"broker-b": [0]}}'},
            "ORBITMQ_BAD_OPTION: option assign: topic orders has no queue 0 on",
        ),
        ({"assign": '{"shared": [0]}'}, "ORBITMQ_BAD_OPTION: option assign: topic shared is on several brokers"),
        ({"assign": '{"nothing": [0]}'}, "ORBITMQ_TOPIC_NOT_FOUND: topic nothing"),
        ({"assign": '{"orders": ["0"]}'}, "ORBITMQ_BAD_OPTION: option assign: "),
        ({"assign": "orders"}, "ORBITMQ_BAD_OPTION: option assign: 'orders' is not JSON"),
        ({"assign": '{"orders": []}'}, "ORBITMQ_BAD_OPTION: option assign: "),
        ({"subscribePattern": "("}, "ORBITMQ_BAD_OPTION: option subscribePattern: "),
        ({"subscribe": "orders,nothing"}, "ORBITMQ_TOPIC_NOT_FOUND: topic nothing"),
        ({"subscribe": "a", "assign": "{}"}, "ORBITMQ_BAD_OPTION: options subscribe and assign exclude each other"),
        (
            {"subscribePattern": "a", "assign": "{}"},
            "ORBITMQ_BAD_OPTION: options subscribePattern and assign exclude",
        ),
    ],
)
def test_a_selection_that_cannot_be_is_told_by_name(cluster: ClusterClient, options: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        selected(cluster, **options)
    assert str(caught.value).startswith(text)
