"""What kombu expects of a transport, at orbitmq and at RocketMQ 5."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest

import orbitmq.integrations.celery
from orbitmq.client.sync import SimpleConsumer
from orbitmq.message.model import MessageQueue
from tests.interop.conftest import System
from tests.support.process import wait_until

assert orbitmq.integrations.celery  # registers the transport

WAIT_S = 30  # RocketMQ redelivers some seconds late


@pytest.fixture
def connection(five: System) -> Iterator[Any]:
    with kombu.Connection(f"orbitmq://{five.namesrv_address}") as running:
        yield running


@pytest.fixture
def queue() -> Any:
    return kombu.Queue(f"celery-{uuid.uuid4().hex[:12]}")


def taken(connection: Any, queue: Any) -> Any:
    got: list[Any] = []
    with connection.Consumer([queue], callbacks=[lambda _body, message: got.append(message)], prefetch_count=1):
        connection.drain_events(timeout=WAIT_S)
    return got[0]


def test_messages_come_in_order_and_are_acknowledged(connection: Any, queue: Any) -> None:
    producer = connection.Producer()
    for number in range(3):
        producer.publish(number, routing_key=queue.name, declare=[queue])
    for number in range(3):
        message = taken(connection, queue)
        assert message.payload == number
        message.ack()


def test_a_requeued_message_comes_again(connection: Any, queue: Any) -> None:
    connection.Producer().publish("again", routing_key=queue.name, declare=[queue])
    taken(connection, queue).requeue()
    message = taken(connection, queue)
    assert (message.payload, message.delivery_info["redelivered"]) == ("again", True)
    message.ack()


def test_a_rejected_message_is_a_dead_letter(five: System, connection: Any, queue: Any) -> None:
    connection.Producer().publish("bad", routing_key=queue.name, declare=[queue])
    taken(connection, queue).reject()
    with SimpleConsumer(f"{queue.name}-dead", five.namesrv_address) as consumer:
        dead = _queues(consumer, f"%DLQ%{queue.name}")
        wait_until(lambda: any(map(consumer.max_offset, dead)), WAIT_S, "the dead letter")


def _queues(consumer: SimpleConsumer, topic: str) -> list[MessageQueue]:
    """The queue of a dead letter topic at each broker."""
    return [MessageQueue(topic, one.broker_name, 0) for one in consumer.fetch_queues(topic.removeprefix("%DLQ%"))]


def test_a_task_with_an_eta_comes_then(connection: Any, queue: Any) -> None:
    eta = datetime.now(UTC) + timedelta(seconds=3)
    headers = {"eta": eta.isoformat(), "id": "1", "task": "t"}
    connection.Producer().publish("later", routing_key=queue.name, declare=[queue], headers=headers)
    message = taken(connection, queue)
    assert datetime.now(UTC) >= eta - timedelta(seconds=1)  # RocketMQ's timer turns once a second
    message.ack()


def test_replies_reach_a_queue_of_its_own(five: System, connection: Any) -> None:
    reply = kombu.Queue(f"reply.{uuid.uuid4().hex}", exclusive=True, auto_delete=True)
    got: list[Any] = []
    with (
        kombu.Connection(f"orbitmq://{five.namesrv_address}") as replier,
        connection.Consumer([reply], no_ack=True, callbacks=[lambda body, _message: got.append(body)]),
    ):
        replier.Producer().publish("pong", routing_key=reply.name)
        connection.drain_events(timeout=WAIT_S)
    assert got == ["pong"]
