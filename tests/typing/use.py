"""A program of a user, for a type checker alone: what it is told of each value, and which mistakes it finds.

A line that is right must not need a comment; each `type: ignore` is a mistake, and one that is not found is an error of
the check.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
from collections.abc import Sequence
from dataclasses import dataclass
from typing import assert_type

from sqlalchemy import Connection, Engine
from sqlalchemy.ext.asyncio import AsyncConnection

from orbitmq.client import (
    AllocateAveragely,
    AllocateStrategy,
    BrokerError,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    LocalTransactionState,
    Message,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    Producer,
    PullConsumer,
    PullResult,
    PushConsumer,
    QueueLag,
    SendContext,
    SendResult,
    SendStatus,
    Timed,
    TransactionProducer,
    TransactionSendResult,
    hash_selector,
    sync,
    total_lag,
)
from orbitmq.client.idempotent import Idempotent
from orbitmq.client.outbox import Loss, Outbox
from orbitmq.client.outbox.sync import Outbox as SyncOutbox
from orbitmq.client.typed import (
    Codec,
    Received,
    RegistryTopic,
    Topic,
    avro_codec,
    msgspec_codec,
    register,
    typed,
)

DONE = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


@dataclass
class Order:
    number: str


class Orders:
    def execute(self, message: Message, order: Order) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE if order.number else LocalTransactionState.ROLLBACK_MESSAGE

    async def check(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN


class WithoutArgument:
    async def execute(self, message: Message, argument: None) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check(self, message: MessageExt) -> LocalTransactionState:
        return LocalTransactionState.UNKNOWN


async def sends(message: Message, queue: MessageQueue) -> None:
    async with Producer("group", ["a:9876", "b:9876"], retry_times=3, latency_fault=True) as producer:
        result = await producer.send(message, sharding_key=7, timeout=1.5)
        assert_type(result, SendResult)
        assert_type(result.status, SendStatus)
        assert_type(producer.send_async(message), asyncio.Future[SendResult])
        assert_type(await producer.request(message, timeout=3), MessageExt)
        assert_type(await producer.fetch_publish_queues("topic"), list[MessageQueue])
        await producer.send_batch([message, message], queue=queue)
        await producer.send(message, selector=hash_selector, arg="key")
        await producer.send(message, selector=hash_selector, arg=1.5)  # type: ignore[arg-type]
        await producer.send(b"not a message")  # type: ignore[arg-type]
        await producer.send(message, queue=3)  # type: ignore[arg-type]
        await producer.send(message, timeout="soon")  # type: ignore[arg-type]
        await producer.send_batch(message)  # type: ignore[arg-type]
        await producer.request(message)  # type: ignore[call-arg]
    Producer("group", retry_times="many")  # type: ignore[arg-type]
    Producer("group", retry_time=3)  # type: ignore[call-arg]
    Producer(7)  # type: ignore[arg-type]
    Message("topic", "a text, not bytes")  # type: ignore[arg-type]


def sends_from_threads(message: Message) -> None:
    with sync.Producer("group", "a:9876", outbox=SyncOutbox("directory")) as producer:
        assert_type(producer.send(message), SendResult)
        assert_type(producer.send_async(message), concurrent.futures.Future[SendResult])
        assert_type(producer.request_async(message, timeout=1), concurrent.futures.Future[MessageExt])
        producer.send("not a message")  # type: ignore[arg-type]
    sync.Producer("group", outbox=Outbox("directory"))  # type: ignore[arg-type]


async def transactions(message: Message) -> None:
    async with TransactionProducer("group", listener=Orders()) as producer:
        assert_type(producer, TransactionProducer[Order])
        assert_type(await producer.send_in_transaction(message, Order("1")), TransactionSendResult)
        await producer.send_in_transaction(message)  # type: ignore[call-arg]
        await producer.send_in_transaction(message, "1")  # type: ignore[arg-type]
    async with TransactionProducer("group", listener=WithoutArgument()) as plain:
        await plain.send_in_transaction(message)
    TransactionProducer("group", listener=object())  # type: ignore[arg-type]
    with sync.TransactionProducer("group", listener=Orders()) as waiting:
        assert_type(waiting.send_in_transaction(message, Order("1")), TransactionSendResult)
        waiting.send_in_transaction(message, 1)  # type: ignore[arg-type]


async def coroutine_listener(
    messages: Sequence[MessageExt], context: ConcurrentContext
) -> ConsumeConcurrentlyStatus | None:
    context.ack_index = "all"  # type: ignore[assignment]
    return DONE if messages[0].reconsume_times < 3 else None


def function_listener(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
    return DONE


def in_order(messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
    return ConsumeOrderlyStatus.SUCCESS


async def pushes() -> None:
    consumer = PushConsumer("group", allocate_strategy=AllocateAveragely(), consume_threads=4)
    consumer.on_message(coroutine_listener)
    consumer.set_listener(function_listener)
    consumer.on_message_orderly(in_order)
    consumer.set_listener(Timed(function_listener).listener)
    consumer.on_message(in_order)  # type: ignore[type-var]
    consumer.on_message_orderly(function_listener)  # type: ignore[type-var]
    consumer.set_listener(len)  # type: ignore[arg-type]
    consumer.subscribe("topic", 7)  # type: ignore[arg-type]
    lags = await consumer.lag()
    assert_type(lags, list[QueueLag])
    assert_type(lags[0].seconds, float | None)
    assert_type(total_lag(lags), int | None)
    strategy: AllocateStrategy = AllocateAveragely()
    assert_type(strategy.name, str)


async def pulls(queue: MessageQueue) -> None:
    async with LitePullConsumer("group", auto_commit=False) as consumer:
        assert_type(await consumer.poll(), list[MessageExt])
        await consumer.commit({queue: 1}, wait=True)
        await consumer.commit({"queue": 1})  # type: ignore[dict-item]
        async for message in consumer:
            assert_type(message, MessageExt)
    async with PullConsumer("group") as puller:
        assert_type(await puller.pull(queue, "*", 0, 32), PullResult)
    with sync.LitePullConsumer("group") as waiting:
        assert_type(waiting.poll(), list[MessageExt])
        for message in waiting:
            assert_type(message, MessageExt)


def hooks_and_stores(producer: Producer, engine: Engine) -> None:
    class Watcher:
        def before(self, context: SendContext) -> None: ...

        def after(self, context: SendContext) -> None:
            if isinstance(context.error, BrokerError):
                assert_type(context.error.code, int)

    producer.add_send_hook(Watcher())
    producer.add_send_hook(print)  # type: ignore[arg-type]

    def lost(loss: Loss) -> None: ...

    Outbox("directory", on_loss=lost, next_pause=lambda entry: 2.0 * entry.attempts)
    Outbox("directory", on_loss="a text")  # type: ignore[arg-type]

    once = Idempotent(engine, "group")

    @once
    def book(message: MessageExt, connection: Connection) -> None: ...

    @once
    async def book_later(message: MessageExt, connection: AsyncConnection) -> None: ...

    consumer = PushConsumer("group")
    consumer.set_listener(book)
    consumer.set_listener(book_later)
    once(print)
    once(len)  # type: ignore[arg-type]


def typed_messages(producer: sync.Producer, consumer: PushConsumer) -> None:
    orders = Topic("orders", msgspec_codec(Order))
    producer.send(orders.message(Order("1"), keys="1"))
    orders.message("a text")  # type: ignore[arg-type]
    orders.message(Order("1"), key="1")  # type: ignore[call-arg]
    assert_type(avro_codec("{}"), Codec[dict[str, object]])
    assert_type(avro_codec("{}", Order), Codec[Order])

    def listen(received: Sequence[Received[Order]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        assert_type(received[0].value, Order)
        return DONE

    async def others(received: Sequence[Received[int]], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return DONE

    consumer.set_listener(typed(consumer, orders, listen))
    typed(consumer, orders, others)  # type: ignore[arg-type]
    kept_there = RegistryTopic("orders", msgspec_codec(Order))
    consumer.set_listener(typed(consumer, kept_there, listen))
    register(consumer, kept_there, compatibility="full")  # type: ignore[arg-type, unused-coroutine]
