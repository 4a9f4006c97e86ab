"""A peer that accepts and never responds costs little while another one is left, and is not tried first again: name
servers in plans, triggers and tasks, and brokers among several."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
from pyspark.sql.types import StructType

from orbitmq.spark.address_order import AddressOrder
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.spark.source import TopicReader, TopicSource
from tests.spark.conftest import BRIEF_MS, Limits
from tests.spark.queue_model import QueueModel
from tests.spark.scripted_peer import ScriptedPeer, broker_script, name_server_script, queue
from tests.support.process import free_port

LONG_MS = 30_000  # a peer that had this long would exceed the time of a test


@pytest.fixture
def silent() -> Iterator[ScriptedPeer]:
    with ScriptedPeer(lambda request: ()) as peer:
        yield peer


@pytest.fixture
def name_server() -> Iterator[ScriptedPeer]:
    with ScriptedPeer(broker_script({0: QueueModel(0, [None] * 50)})) as broker:
        routes = {"orders": {"broker-a": (1, broker.address)}}
        with ScriptedPeer(name_server_script(routes)) as peer:
            yield peer


def test_all_addresses_but_the_last_have_little_time_first_and_all_of_it_afterwards() -> None:
    order = AddressOrder(["a", "b", "c"])
    assert list(order.attempts(LONG_MS)) == [("a", 3000), ("b", 3000), ("c", LONG_MS), ("a", LONG_MS), ("b", LONG_MS)]
    order.responded("b")
    assert [address for address, _ in order.attempts(LONG_MS)] == ["b", "c", "a", "b", "c"]
    assert list(order.attempts(2000)) == [("b", 2000), ("c", 2000), ("a", 2000)]
    assert list(AddressOrder(["a"]).attempts(LONG_MS)) == [("a", LONG_MS)]


def test_a_silent_name_server_costs_a_process_one_brief_wait(
    limits: Limits, silent: ScriptedPeer, name_server: ScriptedPeer
) -> None:
    options = {"nameServer": f"{silent.address};{name_server.address}", "subscribePattern": "ord.*"}
    for _ in range(3):  # each plan is made by readers and clients of its own, and asks for topics, brokers and routes
        reader = TopicSource(options).reader(StructType([]))
        assert isinstance(reader, TopicReader)
        assert len(reader.partitions()) == 1
    assert [limit for address, limit in limits if address == silent.address] == [BRIEF_MS]
    assert len(silent.requests) == 1


def test_a_name_server_that_goes_silent_is_left_for_the_next_one(
    limits: Limits, silent: ScriptedPeer, name_server: ScriptedPeer
) -> None:
    answers, silence = name_server.script, silent.script
    cluster = ClusterClient([silent.address, name_server.address], LONG_MS, Retries(0, 0))
    assert cluster.topics() == ["orders"]
    silent.script, name_server.script = answers, silence
    assert cluster.topics() == cluster.topics() == ["orders"]
    first, second = silent.address, name_server.address
    assert limits == [(first, BRIEF_MS), (second, LONG_MS), (second, BRIEF_MS), (first, LONG_MS), (first, BRIEF_MS)]


def test_a_name_server_that_is_only_slow_is_heard(limits: Limits, name_server: ScriptedPeer) -> None:
    """Nobody else responds, so it has the whole time in the end."""
    answers = name_server.script
    name_server.script = lambda request: answers(request) if len(name_server.requests) > 1 else ()
    dead = f"127.0.0.1:{free_port()}"
    cluster = ClusterClient([name_server.address, dead], LONG_MS, Retries(0, 0))
    assert cluster.topics() == ["orders"]
    assert limits == [(name_server.address, BRIEF_MS), (dead, LONG_MS), (name_server.address, LONG_MS)]


def test_a_silent_master_is_left_for_its_slave_once_in_a_plan(limits: Limits, silent: ScriptedPeer) -> None:
    with ScriptedPeer(broker_script({0: QueueModel(0, [None] * 50)})) as slave:
        addresses = (silent.address, slave.address)
        for _ in range(2):  # the next plan tries the master again: a slave may lag
            cluster = ClusterClient([], LONG_MS, Retries(0, 0))
            for _ in range(2):
                assert cluster.bounds({queue(0): addresses}) == {queue(0): (0, 50)}
    once = [(silent.address, BRIEF_MS), (slave.address, LONG_MS), (slave.address, BRIEF_MS)]
    assert limits == once * 2
