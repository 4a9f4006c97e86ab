"""A test of an application gets a real broker at once, turns its clock, and breaks what it wants broken."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Awaitable, Callable, Iterator, Sequence
from pathlib import Path
from typing import TypeVar

import pytest

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.errors import BrokerError, ClientError, ConfigurationError, InvalidStateError, OrbitMQError
from orbitmq.testing import Cluster, Kind
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.v2.enums import Code
from tests.support.five import Five, channel
from tests.support.process import wait_until

T = TypeVar("T")
PATIENCE_SECONDS = 30
SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as made:
        yield made


@pytest.fixture
def producer(cluster: Cluster) -> Iterator[Producer]:
    with Producer("p", cluster.namesrv_address, retry_times=0, send_timeout_ms=PATIENCE_SECONDS * 1000) as made:
        yield made


class Received:
    """A consumer and what it got; the first deliveries of `failing` are answered with "later"."""

    def __init__(self, cluster: Cluster, *, failing: int = 0) -> None:
        self.bodies: list[bytes] = []
        self._failing = failing
        self._guard = threading.Lock()
        self.consumer = PushConsumer(
            "g", cluster.namesrv_address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        self.consumer.subscribe("T")
        self.consumer.set_listener(self._listen)

    def _listen(self, messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        with self._guard:
            self.bodies += [message.body for message in messages]
            self._failing -= 1
            return LATER if self._failing >= 0 else SUCCESS

    def wait(self, count: int) -> None:
        wait_until(lambda: len(self.bodies) >= count, PATIENCE_SECONDS, f"{count} messages")


def test_a_cluster_is_there_at_once(cluster: Cluster) -> None:
    began = time.perf_counter()
    with Cluster():
        print(f"ready in {time.perf_counter() - began:.3f} s")
    assert cluster.broker_address != cluster.namesrv_address


def test_messages_go_through_it(cluster: Cluster, producer: Producer) -> None:
    cluster.create_topic("T", queues=2)
    received = Received(cluster)
    with received.consumer:
        for number in range(10):
            producer.send(Message("T", b"%d" % number))
        received.wait(10)
    assert sorted(received.bodies) == [b"%d" % number for number in range(10)]
    assert cluster.message_count("T") == 10
    assert cluster.backlog("g", "T") == 0
    assert len(producer.fetch_publish_queues("T")) == 2


def test_nothing_is_left_behind(tmp_path: Path) -> None:
    with Cluster() as cluster:
        home = cluster._home
        assert home is not None
        assert home.exists()
    assert not home.exists()
    assert "orbitmq-testing" not in {thread.name for thread in threading.enumerate()}
    with Cluster(tmp_path / "kept") as cluster, Producer("p", cluster.namesrv_address) as producer:
        producer.send(Message("T", b"1"), timeout=PATIENCE_SECONDS)
    with Cluster(tmp_path / "kept") as cluster:
        assert cluster.message_count("T") == 1


def test_options_are_those_of_a_broker_conf() -> None:
    with Cluster(autoCreateTopicEnable=False) as cluster, Producer("p", cluster.namesrv_address) as producer:
        with pytest.raises(ClientError, match="no route to topic T"):
            producer.send(Message("T", b"1"))
        cluster.create_topic("T", queues=3)
        assert len(producer.fetch_publish_queues("T")) == 3
        producer.send(Message("T", b"1"))
    with pytest.raises(ConfigurationError, match="brokerPermission"):
        Cluster(brokerPermission="everything").start()


# --------------------------------------------------------------------------------------------------------------- time


def test_a_turned_clock_makes_delayed_messages_due(cluster: Cluster, producer: Producer) -> None:
    received = Received(cluster)
    with received.consumer:
        producer.send(Message("T", b"in two hours", delay_level=18))
        producer.send(Message("T", b"now"))
        received.wait(1)
        assert received.bodies == [b"now"]
        cluster.advance(2 * 3600 - 60)
        producer.send(Message("T", b"still earlier"))
        received.wait(2)
        assert received.bodies == [b"now", b"still earlier"]
        cluster.advance(61)
        received.wait(3)
        assert received.bodies[-1] == b"in two hours"
        producer.send(Message("T", b"later", delay_level=5))
        producer.send(Message("T", b"x"))
        received.wait(4)
        assert received.bodies[-1] == b"x", "a delay counts from the time that the test has made it"


def test_a_turned_clock_brings_retries(cluster: Cluster, producer: Producer) -> None:
    received = Received(cluster, failing=2)
    with received.consumer:
        producer.send(Message("T", b"1"))
        received.wait(1)
        for delivery in (2, 3):
            wait_until(lambda: cluster.backlog("g", "T") == 0, PATIENCE_SECONDS, "the message is sent back")
            _until_sent_back(cluster, delivery - 1)
            cluster.advance(60)
            received.wait(delivery)
    assert received.bodies == [b"1"] * 3


def _until_sent_back(cluster: Cluster, count: int) -> None:
    wait_until(lambda: cluster.message_count("SCHEDULE_TOPIC_XXXX") == count, PATIENCE_SECONDS, "a retry waits")


# ------------------------------------------------------------------------------------------------------------- faults


def test_a_send_is_refused(cluster: Cluster, producer: Producer) -> None:
    fault = cluster.refuse("send", ResponseCode.SYSTEM_BUSY, "too much", times=2)
    for _ in range(2):
        with pytest.raises(BrokerError, match="too much") as raised:
            producer.send(Message("T", b"1"))
        assert raised.value.code == ResponseCode.SYSTEM_BUSY
    producer.send(Message("T", b"1"))
    assert (fault.hits, cluster.message_count("T")) == (2, 1)


def test_a_fault_may_concern_one_topic_and_last_until_it_is_ended(cluster: Cluster, producer: Producer) -> None:
    fault = cluster.refuse(RequestCode.SEND_MESSAGE_V2, times=None, topic="T")
    producer.send(Message("U", b"1"))
    for _ in range(3):
        with pytest.raises(OrbitMQError):
            producer.send(Message("T", b"1"))
    fault.end()
    producer.send(Message("T", b"1"))
    assert fault.hits == 3


def test_a_request_vanishes_or_only_its_answer(cluster: Cluster, producer: Producer) -> None:
    producer.send(Message("T", b"0"))
    cluster.drop("send")
    with pytest.raises(OrbitMQError, match="no response"):
        producer.send(Message("T", b"1"), timeout=1)
    assert cluster.message_count("T") == 1
    cluster.lose_response("send")
    with pytest.raises(OrbitMQError, match="no response"):
        producer.send(Message("T", b"2"), timeout=1)
    wait_until(lambda: cluster.message_count("T") == 2, PATIENCE_SECONDS, "it is stored, unknown to the producer")


def test_an_answer_that_waits_for_the_files_of_a_new_queue_gets_lost_as_well(
    cluster: Cluster, producer: Producer
) -> None:
    cluster.lose_response("send")
    with pytest.raises(OrbitMQError, match="no response"):
        producer.send(Message("Fresh", b"1"), timeout=1)
    wait_until(lambda: cluster.message_count("Fresh") == 1, PATIENCE_SECONDS, "it is stored")


def test_the_former_name_of_a_lost_response_works(cluster: Cluster) -> None:
    with pytest.warns(DeprecationWarning, match="lose_response"):
        fault = cluster.lose_answer("send")  # type: ignore[attr-defined]
    assert fault.kind is Kind.LOSE_RESPONSE
    assert Kind.LOSE_ANSWER is Kind.LOSE_RESPONSE  # type: ignore[attr-defined]
    assert not hasattr(cluster, "lose_requests")


def test_a_connection_breaks_and_a_producer_with_retries_does_not_mind(cluster: Cluster) -> None:
    with Producer("q", cluster.namesrv_address) as producer:
        producer.send(Message("T", b"0"), timeout=PATIENCE_SECONDS)
        cluster.disconnect("send")
        producer.send(Message("T", b"1"), timeout=PATIENCE_SECONDS)
    assert cluster.message_count("T") == 2


def test_an_answer_comes_late(cluster: Cluster, producer: Producer) -> None:
    producer.send(Message("T", b"0"))
    cluster.delay("send", 0.05)
    began = time.monotonic()
    producer.send(Message("T", b"1"))
    assert time.monotonic() - began >= 0.05
    cluster.delay("send", 5)
    with pytest.raises(OrbitMQError, match="no response"):
        producer.send(Message("T", b"2"), timeout=0.05)


def test_nothing_else_takes_the_ports_of_a_killed_broker(cluster: Cluster) -> None:
    host, _, port = cluster.broker_address.rpartition(":")
    cluster.kill()
    for number in (int(port), int(port) + 1):
        with socket.socket() as other, pytest.raises(OSError, match="in use"):
            other.bind((host, number))
        with socket.socket() as client, pytest.raises(ConnectionRefusedError):
            client.connect((host, number))
    cluster.restart()
    assert cluster.broker_address == f"{host}:{port}"


def test_a_killed_broker_comes_back_with_its_messages(cluster: Cluster) -> None:
    with Producer("q", cluster.namesrv_address, send_timeout_ms=1000, poll_namesrv_interval_ms=50) as producer:
        producer.send(Message("T", b"1"), timeout=PATIENCE_SECONDS)
        address = cluster.broker_address
        cluster.kill()
        with pytest.raises(OrbitMQError):
            producer.send(Message("T", b"2"))
        with pytest.raises(InvalidStateError, match="the broker is not running"):
            cluster.kill()
        cluster.heal()
        assert cluster.broker_address == address
        assert cluster.message_count("T") == 1
        producer.send(Message("T", b"3"), timeout=PATIENCE_SECONDS)
        with pytest.raises(InvalidStateError, match="the broker is running"):
            cluster.restart()


def test_a_cluster_that_is_not_started_says_so() -> None:
    cluster = Cluster()
    with pytest.raises(InvalidStateError, match="not started"):
        _ = cluster.namesrv_address
    with pytest.raises(InvalidStateError, match="not started"):
        cluster.create_topic("T")
    with pytest.raises(ConfigurationError, match="no request is called 'sned'"):
        cluster.refuse("sned")
    cluster.stop()


def test_several_brokers_share_the_messages_and_break_one_by_one() -> None:
    with Cluster(brokers=2) as cluster, Producer("p", cluster.namesrv_address) as producer:
        assert cluster.broker_names == ["broker-a", "broker-b"]
        cluster.create_topic("T", 1)

        def brokers_of(count: int) -> set[str]:
            sent = [producer.send(Message("T", b"x"), timeout=PATIENCE_SECONDS) for _ in range(count)]
            return {result.queue.broker_name for result in sent}

        assert brokers_of(4) == {"broker-a", "broker-b"}
        fault = cluster.refuse("send", ResponseCode.SYSTEM_ERROR, times=None, broker="broker-b")
        assert brokers_of(4) == {"broker-a"}
        assert fault.hits
        cluster.heal()
        cluster.kill("broker-a")
        assert cluster.broker_names == ["broker-b"]
        assert brokers_of(4) == {"broker-b"}
        cluster.restart("broker-a")
        assert cluster.message_count("T") == 12
        with pytest.raises(ConfigurationError, match="no broker is called 'broker-c'"):
            cluster.kill("broker-c")
    with pytest.raises(ConfigurationError, match="a cluster of 0 brokers"):
        Cluster(brokers=0)


def test_a_cluster_can_be_one_that_wants_encrypted_connections() -> None:
    with Cluster(options={"tls.server.mode": "enforcing"}) as cluster:
        with Producer("p", cluster.namesrv_address, tls=True, tls_verify=False) as producer:
            producer.send(Message("T", b"x"), timeout=PATIENCE_SECONDS)
        with Producer("p", cluster.namesrv_address) as producer, pytest.raises(OrbitMQError):
            producer.send(Message("T", b"x"))
        assert cluster.message_count("T") == 1


def test_a_client_of_five_sends_and_receives_and_sees_the_clock() -> None:
    with Cluster(brokers=2, grpc=True) as cluster:
        cluster.create_topic("Orders", 1)
        cluster.create_topic("Reminders", 1, message_type="DELAY")

        async def at_once(client: Five) -> list[bytes]:
            await client.consume("readers", "Orders")
            waiting = asyncio.create_task(client.receive("readers", "Orders", poll_s=20, broker="broker-a"))
            while not waiting.done():  # a new group begins at the end
                assert (await client.send("Orders", b"x")).status.code == Code.OK
                await asyncio.sleep(0.02)
            return [one.body for one in await waiting]

        async def later(client: Five) -> None:
            due_ms = round(time.time() * 1000) + 7_200_000
            answer = await client.send("Reminders", b"remind me", delivery_ms=due_ms)
            assert answer.status.code == Code.OK

        async def run(work: Callable[[Five], Awaitable[T]]) -> T:
            async with channel(int(cluster.grpc_address.rpartition(":")[2])) as made:
                return await work(Five(made))

        assert set(asyncio.run(run(at_once))) == {b"x"}
        asyncio.run(run(later))
        assert cluster.message_count("Reminders") == 0
        cluster.advance(7200)
        wait_until(lambda: cluster.message_count("Reminders") == 1, PATIENCE_SECONDS, "the reminder")


def test_faults_reach_a_client_of_five() -> None:
    async def codes(cluster: Cluster) -> list[int]:
        async with channel(int(cluster.grpc_address.rpartition(":")[2])) as made:
            client = Five(made)
            cluster.refuse("send", ResponseCode.SYSTEM_BUSY)
            found = [(await client.send("Orders", b"x")).status.code for _ in range(2)]
            await asyncio.to_thread(cluster.kill)
            found.append((await client.send("Orders", b"x")).status.code)
            await asyncio.to_thread(cluster.restart)
            return [*found, (await client.send("Orders", b"x")).status.code]

    with Cluster(grpc=True) as cluster:
        cluster.create_topic("Orders", 1)
        refused, stored, lost, again = asyncio.run(codes(cluster))
        assert (refused, stored, again) == (Code.TOO_MANY_REQUESTS, Code.OK, Code.OK)
        assert lost == Code.INTERNAL_SERVER_ERROR
        assert cluster.message_count("Orders") == 2


def test_a_cluster_without_grpc_says_so() -> None:
    with Cluster() as cluster:
        with pytest.raises(InvalidStateError, match="grpc=True"):
            _ = cluster.grpc_address
        with pytest.raises(ConfigurationError, match="message type 'ordered' is none of"):
            cluster.create_topic("T", message_type="ordered")
    with pytest.raises(InvalidStateError, match="not started"):
        _ = Cluster(grpc=True).grpc_address
