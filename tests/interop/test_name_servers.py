"""A name server of each system, and a broker of each registered with both: any one of the name servers may die.

Name servers do not know each other; one that comes back is empty and is told everything anew.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterator
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from orbitmq.client import Message
from orbitmq.client import sync as threads
from tests.support.delivery import assert_each_once, messages, results
from tests.support.java_rocketmq import JavaBroker, JavaNameServer, run_driver
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until
from tests.support.registration import is_registered

COUNT = 40
QUEUES = 5  # not as many as a topic has that nobody created yet
PERIOD_MS = 10_000  # the shortest either broker allows between two registrations
BROKERS = ("of-java", "of-orbitmq")
NameServer: TypeAlias = JavaNameServer | OrbitNameServer


@dataclass(frozen=True)
class Cluster:
    servers: dict[str, NameServer]

    @property
    def addresses(self) -> str:
        return ";".join(server.address for server in self.servers.values())

    def await_brokers(self, server: NameServer) -> None:
        wait_until(
            lambda: all(is_registered(server.address, broker) for broker in BROKERS),
            PERIOD_MS / 1000 + 20,
            f"both brokers at {server.address}",
        )


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with contextlib.ExitStack() as stack:
        servers: dict[str, NameServer] = {
            "java": stack.enter_context(JavaNameServer()),
            "orbitmq": stack.enter_context(OrbitNameServer()),
        }
        made = Cluster(servers)
        options = {"registerNameServerPeriod": PERIOD_MS}
        stack.enter_context(JavaBroker(made.addresses, name=BROKERS[0], **options))
        stack.enter_context(OrbitBroker(made.addresses, name=BROKERS[1], **options))
        for server in servers.values():
            made.await_brokers(server)
        yield made


@pytest.mark.parametrize("dead", ["java", "orbitmq"])
def test_clients_do_without_any_one_of_them(cluster: Cluster, dead: str) -> None:
    """A Python client that runs meanwhile, new clients of both languages, and a topic that nobody knew before."""
    with threads.Producer(f"running-{dead}", cluster.addresses, poll_namesrv_interval_ms=500) as running:
        running.send(Message(f"before-{dead}", b"0"))
        cluster.servers[dead].kill()
        running.send(Message(f"after-{dead}", b"0"))  # whichever broker creates it
        topic = f"everywhere-{dead}"
        running.create_topic(topic, queues=QUEUES)
        wait_until(lambda: len(running.fetch_publish_queues(topic)) == 2 * QUEUES, PERIOD_MS / 1000 + 20, "it at both")
        brokers = {running.send(Message(topic, b"%d" % number)).queue.broker_name for number in range(16)}
        assert brokers == set(BROKERS)
    client = ("--namesrv", cluster.addresses, "--topic", f"java-{dead}")
    sent = results(run_driver("send", *client, "--run", "r", "--mode", "sync", "--count", COUNT))
    assert {row["status"] for row in sent} == {"SEND_OK"}
    received = messages(run_driver("consume", *client, "--group", f"g-{dead}", "--expect", COUNT, "--linger-ms", 500))
    assert_each_once(received, "r", range(COUNT))
    cluster.servers[dead].start()
    cluster.await_brokers(cluster.servers[dead])
