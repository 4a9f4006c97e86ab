"""Test an application with a broker of its own: `pytest examples/test_orders.py`. The fixture comes with orbitmq."""

from __future__ import annotations

from orbitmq.client import ConsumeFromWhere, Message, TooManyRequestsError
from orbitmq.client.sync import LitePullConsumer, Producer
from orbitmq.testing import Cluster


def remind(producer: Producer, order: str) -> None:
    """The application."""
    producer.send(Message("Reminders", order.encode(), delay_level=18))


def test_a_reminder_comes_two_hours_later(orbitmq: Cluster) -> None:
    with Producer("shop", orbitmq.namesrv_address) as producer:
        remind(producer, "O-1")
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    with LitePullConsumer("mailers", orbitmq.namesrv_address, consume_from_where=first) as consumer:
        consumer.subscribe("Reminders")
        assert consumer.poll(timeout=0.1) == []
        orbitmq.advance(2 * 3600)
        assert [message.body for message in consumer.poll(timeout=10)] == [b"O-1"]


def test_a_lost_answer_makes_a_duplicate(orbitmq: Cluster) -> None:
    orbitmq.create_topic("Orders")
    fault = orbitmq.lose_response("send", times=1)
    with Producer("shop", orbitmq.namesrv_address, send_timeout_ms=300) as producer:
        try:
            producer.send(Message("Orders", b"O-1"))
        except (TimeoutError, TooManyRequestsError):
            producer.send(Message("Orders", b"O-1"))  # what an application does that is not sure
    assert fault.hits == 1
    assert orbitmq.message_count("Orders") == 2
