"""Duplicates of three kinds, from live brokers: sent twice, acknowledged in vain, handed to another consumer meanwhile.

Each is provoked on purpose and counted, and the effect is in the database once.
"""

from __future__ import annotations

import threading
from collections import Counter
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest
from sqlalchemy import Column, Connection, Engine, MetaData, String, Table, create_engine, insert, select

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    Message,
    MessageExt,
    OrderlyContext,
)
from orbitmq.client.idempotent import Idempotent, serialised_sqlite
from orbitmq.client.sync import Producer, PushConsumer
from tests.interop.conftest import System
from tests.support.process import wait_until
from tests.support.python_client import FIRST, LATER

pytestmark = pytest.mark.with_five
PATIENCE_SECONDS = 60
ORDERS = 50
EFFECTS = Table("effects", MetaData(), Column("order", String(50)))  # no unique key of its own: it would hide a fault


@pytest.fixture
def engine(tmp_path: Path) -> Iterator[Engine]:
    made = serialised_sqlite(create_engine(f"sqlite:////{tmp_path}/orders.db?timeout={PATIENCE_SECONDS}"))
    EFFECTS.metadata.create_all(made)
    yield made
    made.dispose()


def book(message: MessageExt, connection: Connection) -> None:
    connection.execute(insert(EFFECTS).values(order=message.keys))


def effects(engine: Engine) -> Counter[str]:
    with engine.connect() as connection:
        return Counter(connection.scalars(select(EFFECTS.c.order)))


def once_of(engine: Engine, group: str) -> Idempotent:
    once = Idempotent(engine, group)
    once.create_table()
    return once


def send_orders(system: System, topic: str, times: int = 1) -> None:
    with Producer(f"p-{topic}", system.namesrv_address) as producer:
        for _ in range(times):
            for number in range(ORDERS):
                producer.send(Message(topic, b"order", keys=f"order-{number}"))


EXPECTED = Counter(f"order-{number}" for number in range(ORDERS))


def test_an_order_sent_twice_is_booked_once(system: System, label: str, engine: Engine) -> None:
    send_orders(system, label, times=2)
    once = once_of(engine, label)
    consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(label)
    consumer.set_listener(once(book))
    with consumer:
        wait_until(lambda: sum(once.counts.values()) == 2 * ORDERS, PATIENCE_SECONDS, "every message consumed")
    assert effects(engine) == EXPECTED
    assert once.counts["done"] == once.counts["cache"] + once.counts["database"] == ORDERS


def test_a_queue_in_order_goes_on_behind_duplicates_and_failures(system: System, label: str, engine: Engine) -> None:
    """Work fails once in the middle of a portion; the queue rests and goes on, and every effect is there once."""
    send_orders(system, label, times=2)
    once, failed = once_of(engine, label), set[str]()

    def fails_once(message: MessageExt, connection: Connection) -> None:
        book(message, connection)
        if message.keys in ("order-7", "order-30") and message.keys not in failed:
            failed.add(message.keys)
            raise RuntimeError("a service that is away for a moment")

    inner, settled = once(fails_once), set[str]()

    def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
        status = inner(messages, context)
        if status is ConsumeOrderlyStatus.SUCCESS:
            settled.update(message.msg_id for message in messages)
        return status

    consumer = PushConsumer(
        label, system.namesrv_address, consume_from_where=FIRST, consume_batch_max_size=4, suspend_current_queue_ms=10
    )
    consumer.subscribe(label)
    consumer.on_message_orderly(listen)
    with consumer:
        wait_until(lambda: len(settled) == 2 * ORDERS, PATIENCE_SECONDS, "every queue consumed to its end")
    assert effects(engine) == EXPECTED
    assert (once.counts["done"], once.counts["failed"]) == (ORDERS, 2)
    assert once.counts["cache"] + once.counts["database"] >= ORDERS


def test_an_order_acknowledged_in_vain_is_booked_once(system: System, label: str, engine: Engine) -> None:
    """The work is committed and the consumer says "later" all the same, as one does whose answer gets lost."""
    once, told = once_of(engine, label), Counter[str]()
    inner, guard = once(book), threading.Lock()

    def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        status = inner(messages, context)
        assert status is not None
        with guard:
            told[str(messages[0].keys)] += 1
            return LATER if told[str(messages[0].keys)] == 1 else status

    consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(label)
    consumer.set_listener(listen)
    send_orders(system, label)
    with consumer:
        wait_until(lambda: sum(told.values()) >= 2 * ORDERS, PATIENCE_SECONDS, "every message delivered again")
    assert effects(engine) == EXPECTED
    assert once.counts["done"] == ORDERS
    assert once.counts["cache"] >= ORDERS, "a retried message has the token of the first delivery"


def test_an_order_in_work_during_a_rebalance_is_booked_once(system: System, label: str, engine: Engine) -> None:
    """The first consumer hangs in its work; a second one joins, gets half of the queues, and the same messages."""
    send_orders(system, label)
    first_works, go_on = threading.Event(), threading.Event()

    def hanging(message: MessageExt, connection: Connection) -> None:
        book(message, connection)
        first_works.set()
        assert go_on.wait(PATIENCE_SECONDS)

    def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus | None:
        started.update(message.keys for message in messages)
        return slow(messages, context)

    def follow(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus | None:
        assert first_works.wait(PATIENCE_SECONDS), "the second leaves work for the first"
        return fast(messages, context)

    first, second = once_of(engine, label), once_of(engine, label)
    slow, fast, started = first(hanging), second(book), Counter[str | None]()
    one = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST, await_termination_ms=100)
    one.subscribe(label)
    one.set_listener(listen)
    other = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    other.subscribe(label)
    other.set_listener(follow)
    with other:
        one.start()
        assert first_works.wait(PATIENCE_SECONDS)
        one.shutdown()  # it gives up its queues without having acknowledged what its listeners began
        go_on.set()
        wait_until(
            lambda: effects(engine).total() >= ORDERS and second.counts["cache"] + second.counts["database"] > 0,
            PATIENCE_SECONDS,
            "every order booked, and what the first one worked on delivered to the second",
        )
    assert effects(engine) == EXPECTED
    assert started, "the first consumer was at work"
    print(f"first {dict(first.counts)}, second {dict(second.counts)}")
