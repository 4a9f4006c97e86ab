"""The clients for threads: the classes of `orbitmq.client` under the same names, with blocking methods.

    from orbitmq.client.sync import Producer

    with Producer("group", "127.0.0.1:9876") as producer:
        producer.send(Message("topic", b"body"))

Each object drives an asyncio object on an event loop in a background thread, one loop per process; any thread may call
it. The methods are those of the asyncio classes, but return when the work is done. `send_async` returns a
`concurrent.futures.Future`, and `send_oneway` hardly blocks. A coroutine listener runs on that loop and must use the
asyncio classes.
"""

from __future__ import annotations

import asyncio
import concurrent.futures
import inspect
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import timedelta
from functools import partial
from types import TracebackType
from typing import TYPE_CHECKING, Generic, Self, TypeAlias, TypeVar, Unpack, cast, overload

from orbitmq.client import (
    base,
    consumer,
    lite_pull,
    producer,
    pull,
    push,
    schedule,
    schedules,
    simple,
    topic_read,
    transactions,
)
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.latency import Fault
from orbitmq.client.core.model import LocalTransactionState, SendResult, TransactionSendResult
from orbitmq.client.core.queue_selectors import QueueSelector
from orbitmq.client.core.selectors import Selector
from orbitmq.client.producer import CALLBACK, SendCallback
from orbitmq.client.queue_listeners import ON_QUEUES, OnTopicQueues, QueueListener
from orbitmq.client.schedule import PullContext
from orbitmq.client.schedules import AHEAD, MessageFactory
from orbitmq.client.settings import ProducerSettings, PullSettings, TransactionSettings
from orbitmq.client.sync_wrapper import (
    SyncWrapper,
    arguments_of,
    as_future,
    blocking,
    direct,
    loop_thread,
    on_own_thread,
    wait,
)
from orbitmq.client.topic_read import Place
from orbitmq.client.transactions import A_contra, TransactionListener
from orbitmq.client.workers import Listener, OrderlyListener
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import MessageModel

if TYPE_CHECKING:
    from orbitmq.client.outbox.sync import Outbox

__all__ = [
    "Client",
    "Consumer",
    "LitePullConsumer",
    "Producer",
    "PullConsumer",
    "PullSchedule",
    "PushConsumer",
    "Schedule",
    "SimpleConsumer",
    "TopicRead",
    "TransactionProducer",
    "reset_offset_by_timestamp",
]

A = TypeVar("A")
C_co = TypeVar("C_co", bound=base.Client, covariant=True)
M_co = TypeVar("M_co", bound=consumer.Consumer, covariant=True)
L = TypeVar("L", bound=Listener)
IN_ORDER = TypeVar("IN_ORDER", bound=OrderlyListener)


_log = logging.getLogger(__name__)
_ending: set[asyncio.Task[None]] = set()


def _shut_down_soon(client: base.Client, _started: None) -> None:
    """For a start that succeeded after its caller was interrupted, so the caller will not shut the client down."""
    task = asyncio.get_running_loop().create_task(client.shutdown())
    _ending.add(task)
    task.add_done_callback(_ending.discard)


def _off_loop(callback: SendCallback | None) -> SendCallback | None:
    """`callback` on the thread for callbacks. On the event loop it would block every client of the process, and
    deadlock if it waits for a lock that a thread holds while it calls a client. ConfigurationError unless it is a
    callback.
    """
    if callback is None:
        return None
    CALLBACK.accept(callback)
    calls = loop_thread().callbacks
    return lambda result, error: calls.put(partial(_call, callback, result, error))


def _call(callback: SendCallback, result: SendResult | None, error: BaseException | None) -> None:
    try:
        callback(result, error)
    except BaseException:  # the application's code; other callbacks need the thread
        _log.exception("event=send_callback_failed")


class Client(SyncWrapper[C_co]):
    """Base of the synchronous clients; `with` starts and shuts down."""

    start = blocking(base.Client.start, undo=_shut_down_soon)
    shutdown = blocking(base.Client.shutdown)
    fetch_queues = blocking(base.Client.fetch_queues)
    max_offset = blocking(base.Client.max_offset)
    min_offset = blocking(base.Client.min_offset)
    search_offset = blocking(base.Client.search_offset)
    earliest_store_time = blocking(base.Client.earliest_store_time)
    view_message = blocking(base.Client.view_message)
    query_message = blocking(base.Client.query_message)
    create_topic = blocking(base.Client.create_topic)
    register_schema = blocking(base.Client.register_schema)
    schemas = blocking(base.Client.schemas)
    add_rpc_hook = direct(base.Client.add_rpc_hook)
    update_namesrv_addr = direct(base.Client.update_namesrv_addr)

    @property
    def is_running(self) -> bool:
        """Whether the client has started and not shut down."""
        return self.core.is_running

    @property
    def client_id(self) -> str:
        """The id by which brokers know this client. InvalidStateError before start."""
        return self.core.client_id

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        wait(partial(self.core.__aexit__, kind, error, trace))


class Producer(Client[producer.Producer]):
    """Sends messages; see `orbitmq.client.Producer`. Any number of threads may send at once."""

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        outbox: Outbox | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        box = outbox.core if outbox is not None else None
        super().__init__(producer.Producer(group, namesrv_addr, outbox=box, **settings))

    send = blocking(producer.Producer.send)
    _send_async = as_future(producer.Producer.send_async)
    request = blocking(producer.Producer.request)
    request_async = as_future(producer.Producer.request_async)
    _send_oneway = blocking(producer.Producer.send_oneway)
    send_batch = blocking(producer.Producer.send_batch)
    _send_batch_async = as_future(producer.Producer.send_batch_async)
    fetch_publish_queues = blocking(producer.Producer.fetch_publish_queues)
    recall = blocking(producer.Producer.recall)
    add_send_hook = direct(producer.Producer.add_send_hook)
    wrap_sends = direct(producer.Producer.wrap_sends)
    add_forbidden_hook = direct(producer.Producer.add_forbidden_hook)

    def send_async(
        self,
        message: Message,
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        selector: QueueSelector[A] | None = None,
        arg: A | None = None,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """As `orbitmq.client.Producer.send_async`, but returns a future for threads. Callbacks are called one after
        another, on a thread of their own, where they may block and use this object.
        """
        return self._send_async(
            message, _off_loop(callback), queue=queue, sharding_key=sharding_key, selector=selector, arg=arg,
            timeout=timeout,
        )  # fmt: skip

    def send_batch_async(
        self,
        messages: Sequence[Message],
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> concurrent.futures.Future[SendResult]:
        """As `orbitmq.client.Producer.send_batch_async`; otherwise as `send_async`."""
        return self._send_batch_async(messages, _off_loop(callback), queue=queue, timeout=timeout)

    def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        selector: QueueSelector[A] | None = None,
        arg: A | None = None,
    ) -> None:
        """As `orbitmq.client.Producer.send_oneway`. It returns before the message is written when nothing else is left
        to do; a failure is logged then. With a queue, a selector, hooks or an outbox, without a route or a connection
        yet, and while the broker applies back-pressure, it waits until the message is written.
        """
        if queue is None and selector is None and not loop_thread().is_current:
            write = producer.oneway_nowait(self.core, message, sharding_key)
            if write is not None:
                loop_thread().call(write)
                return
        self._send_oneway(message, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg)

    @property
    def faults(self) -> dict[str, Fault]:
        """With `latency_fault`: what is known of each broker, and until when it is avoided. For display."""
        return self.core.faults


class TransactionProducer(Producer, Client[transactions.TransactionProducer[A_contra]], Generic[A_contra]):
    """Sends messages that are delivered if and only if a local transaction succeeded; see
    `orbitmq.client.TransactionProducer`. A plain function `execute` of the listener runs in the thread that sends.
    """

    core: transactions.TransactionProducer[A_contra]
    """The asyncio object behind this one."""

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        listener: TransactionListener[A_contra],
        outbox: Outbox | None = None,
        **settings: Unpack[TransactionSettings],
    ) -> None:
        box = outbox.core if outbox is not None else None
        SyncWrapper.__init__(
            self, transactions.TransactionProducer(group, namesrv_addr, listener=listener, outbox=box, **settings)
        )

    @overload
    def send_in_transaction(
        self: TransactionProducer[None], message: Message, argument: None = None, *, timeout: float | None = None
    ) -> TransactionSendResult: ...

    @overload
    def send_in_transaction(
        self, message: Message, argument: A_contra, *, timeout: float | None = None
    ) -> TransactionSendResult: ...

    def send_in_transaction(
        self, message: Message, argument: object = None, *, timeout: float | None = None
    ) -> TransactionSendResult:
        """As `orbitmq.client.TransactionProducer.send_in_transaction`."""
        execute, given = self.core.listener.execute, cast("A_contra", argument)  # the overloads see to it
        if inspect.iscoroutinefunction(execute):
            return wait(partial(self.core.send_in_transaction, message, given, timeout=timeout))
        with transactions.transaction(self.core):
            half = wait(partial(self.core.prepare, message, timeout=timeout))
            if not half.is_safe:
                return wait(partial(self.core.finish, half, LocalTransactionState.ROLLBACK_MESSAGE))
            try:
                state, remark = transactions.checked(execute(half.message, given))
            except Exception as error:
                state, remark = transactions.failed(error)
            return wait(partial(self.core.finish, half, state, remark))

    prepare = blocking(transactions.TransactionProducer.prepare)
    finish = blocking(transactions.TransactionProducer.finish)
    add_end_transaction_hook = direct(transactions.TransactionProducer.add_end_transaction_hook)

    @property
    def listener(self) -> TransactionListener[A_contra]:
        """Your listener."""
        return self.core.listener


class Schedule(SyncWrapper[schedules.Schedule]):
    """Sends a message again and again; see `orbitmq.client.Schedule`. `with` starts and shuts down."""

    @checks_arguments
    def __init__(
        self,
        producer: Producer,
        name: str,
        message: Message | MessageFactory,
        *,
        every: timedelta | float | None = None,
        cron: str | None = None,
        time_zone: str = "UTC",
        ahead: timedelta | float = AHEAD,
        clock: Clock | None = None,
    ) -> None:
        core = schedules.Schedule(
            producer.core, name, message, every=every, cron=cron, time_zone=time_zone, ahead=ahead, clock=clock
        )
        super().__init__(core)

    start = blocking(schedules.Schedule.start)
    shutdown = blocking(schedules.Schedule.shutdown)
    send_next = blocking(schedules.Schedule.send_next)
    firings = direct(schedules.Schedule.firings)

    @property
    def name(self) -> str:
        """Part of the key of each message."""
        return self.core.name

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.shutdown()


class Consumer(Client[M_co]):
    """Base of the synchronous consumers."""

    assignment = direct(consumer.Consumer.assignment)
    reject = blocking(consumer.Consumer.reject)
    lag = blocking(consumer.Consumer.lag)
    check_subscription_consistency = blocking(consumer.Consumer.check_subscription_consistency)
    add_consume_hook = direct(consumer.Consumer.add_consume_hook)
    add_filter_hook = direct(consumer.Consumer.add_filter_hook)
    add_receive_hook = direct(consumer.Consumer.add_receive_hook)
    _on_assigned = direct(consumer.Consumer.on_assigned)
    _on_revoked = direct(consumer.Consumer.on_revoked)

    @checks_arguments
    def on_assigned(self, callback: ON_QUEUES) -> ON_QUEUES:
        """As with the consumers of `orbitmq.client`; a function is called on a thread and may use this object."""
        self._on_assigned(on_own_thread(callback))
        return callback

    @checks_arguments
    def on_revoked(self, callback: ON_QUEUES) -> ON_QUEUES:
        """As with the consumers of `orbitmq.client`; a function is called on a thread and may use this object."""
        self._on_revoked(on_own_thread(callback))
        return callback


class PushConsumer(Consumer[push.PushConsumer]):
    """Consumes messages with a listener; see `orbitmq.client.PushConsumer`."""

    @property
    def expired(self) -> Mapping[str, int]:
        """Topic -> messages that had expired and so were not delivered by this consumer."""
        return self.core.expired

    @arguments_of(push.PushConsumer)
    def __init__(self) -> None: ...

    subscribe = direct(push.PushConsumer.subscribe)
    unsubscribe = direct(push.PushConsumer.unsubscribe)
    set_listener = direct(push.PushConsumer.set_listener)
    suspend = direct(push.PushConsumer.suspend)
    resume = direct(push.PushConsumer.resume)
    set_consume_threads = direct(push.PushConsumer.set_consume_threads)
    fetch_subscribe_queues = blocking(push.PushConsumer.fetch_subscribe_queues)
    reset_offset_by_timestamp = blocking(push.PushConsumer.reset_offset_by_timestamp)
    send_message_back = blocking(push.PushConsumer.send_message_back)

    def on_message(self, listener: L) -> L:
        """`set_listener` as a decorator."""
        self.set_listener(listener)
        return listener

    def on_message_orderly(self, listener: IN_ORDER) -> IN_ORDER:
        """`set_listener` with `orderly`, as a decorator."""
        self.set_listener(listener, orderly=True)
        return listener

    @property
    def paused(self) -> bool:
        """Whether nothing is pulled; what is cached is still consumed."""
        return self.core.paused


class LitePullConsumer(Consumer[lite_pull.LitePullConsumer]):
    """Polls messages; see `orbitmq.client.LitePullConsumer`. Iterate over it to get them one by one."""

    @property
    def expired(self) -> Mapping[str, int]:
        """Topic -> messages that had expired and so were not delivered by this consumer."""
        return self.core.expired

    @arguments_of(lite_pull.LitePullConsumer)
    def __init__(self) -> None: ...

    @checks_arguments
    def subscribe(self, topic: str, expression: Selector = "*", listener: QueueListener | None = None) -> None:
        """As `orbitmq.client.LitePullConsumer.subscribe`; a function `listener` is called on a thread."""
        self._subscribe(topic, expression, None if listener is None else on_own_thread(listener))

    @checks_arguments
    def on_queues_changed(self, topic: str, callback: OnTopicQueues) -> None:
        """As `orbitmq.client.LitePullConsumer.on_queues_changed`; a function is called on a thread."""
        self._on_queues_changed(topic, on_own_thread(callback))

    _subscribe = direct(lite_pull.LitePullConsumer.subscribe)
    _on_queues_changed = direct(lite_pull.LitePullConsumer.on_queues_changed)
    unsubscribe = direct(lite_pull.LitePullConsumer.unsubscribe)
    assign = direct(lite_pull.LitePullConsumer.assign)
    set_assign_expression = direct(lite_pull.LitePullConsumer.set_assign_expression)
    _poll = blocking(lite_pull.poll, undo=lite_pull.take_back)
    commit = blocking(lite_pull.LitePullConsumer.commit)
    committed = blocking(lite_pull.LitePullConsumer.committed)
    seek = blocking(lite_pull.LitePullConsumer.seek)
    seek_to_begin = blocking(lite_pull.LitePullConsumer.seek_to_begin)
    seek_to_end = blocking(lite_pull.LitePullConsumer.seek_to_end)
    offset_for_timestamp = blocking(lite_pull.LitePullConsumer.offset_for_timestamp)
    pause = direct(lite_pull.LitePullConsumer.pause)
    resume = direct(lite_pull.LitePullConsumer.resume)

    @checks_arguments
    def poll(self, timeout: float | None = None, *, max_messages: int | None = None) -> list[MessageExt]:
        """As `orbitmq.client.LitePullConsumer.poll`. When a signal handler raises meanwhile, no message is lost."""
        given = self._poll(timeout, max_messages)
        return given.messages if given is not None else []

    def __iter__(self) -> Iterator[MessageExt]:
        while self.is_running:
            yield from self.poll(max_messages=1)

    @property
    def auto_commit(self) -> bool:
        """Whether `poll` commits what earlier calls returned."""
        return self.core.auto_commit

    @auto_commit.setter
    def auto_commit(self, value: bool) -> None:
        self.core.auto_commit = value


class TopicRead(SyncWrapper[topic_read.TopicRead]):
    """The messages of a topic; see `orbitmq.client.TopicRead`."""

    to_arrow = blocking(topic_read.TopicRead.to_arrow)

    def __iter__(self) -> Iterator[MessageExt]:
        batches = self.core.batches()
        try:
            while (batch := wait(partial(anext, batches, None))) is not None:
                yield from batch
        finally:
            wait(partial(topic_read.close, batches))

    @property
    def ends(self) -> Mapping[MessageQueue, int]:
        """Where the last iteration ends in each queue: the `start` of a read that continues it."""
        return self.core.ends


class PullConsumer(Consumer[pull.PullConsumer]):
    """Pulls a queue on request, from any offset; see `orbitmq.client.PullConsumer`."""

    @arguments_of(pull.PullConsumer)
    def __init__(self) -> None: ...

    send_message_back = blocking(pull.PullConsumer.send_message_back)
    fetch_balanced_queues = direct(pull.PullConsumer.fetch_balanced_queues)
    update_offset = direct(pull.PullConsumer.update_offset)
    fetch_offset = blocking(pull.PullConsumer.fetch_offset)
    store_offsets = blocking(pull.PullConsumer.store_offsets)
    _register_topic = direct(pull.PullConsumer.register_topic)
    _read_all = direct(pull.PullConsumer.read_all)
    pull = blocking(pull.PullConsumer.pull)  # the last of them: from here on the name is the method

    @checks_arguments
    def read_all(
        self, topic: str, expression: Selector = "*", *, start: Place | None = None, until: Place | None = None
    ) -> TopicRead:
        """As `orbitmq.client.PullConsumer.read_all`; iterate over it with `for`, or call its `to_arrow()`."""
        return TopicRead(self._read_all(topic, expression, start=start, until=until))

    @checks_arguments
    def register_topic(self, topic: str, listener: QueueListener | None = None) -> None:
        """As `orbitmq.client.PullConsumer.register_topic`; a function `listener` is called on a thread."""
        self._register_topic(topic, None if listener is None else on_own_thread(listener))


class SimpleConsumer(Consumer[simple.SimpleConsumer]):
    """Receives messages that the brokers deliver; see `orbitmq.client.SimpleConsumer`."""

    @arguments_of(simple.SimpleConsumer)
    def __init__(self) -> None: ...

    subscribe = direct(simple.SimpleConsumer.subscribe)
    unsubscribe = direct(simple.SimpleConsumer.unsubscribe)
    receive = blocking(simple.SimpleConsumer.receive, undo=simple.release)
    ack = blocking(simple.SimpleConsumer.ack)
    change_invisible = blocking(simple.SimpleConsumer.change_invisible)
    wait = blocking(simple.SimpleConsumer.wait)

    @property
    def expired(self) -> Mapping[str, int]:
        """Topic -> messages that had expired and so were not delivered by this consumer."""
        return self.core.expired


def reset_offset_by_timestamp(
    group: str,
    topic: str,
    timestamp_ms: int,
    namesrv_addr: str | Iterable[str] | None = None,
    *,
    message_model: MessageModel = MessageModel.CLUSTERING,
    **settings: Unpack[PullSettings],
) -> dict[MessageQueue, int]:
    """As `orbitmq.client.reset_offset_by_timestamp`."""
    reset = partial(pull.reset_offset_by_timestamp, group, topic, timestamp_ms, namesrv_addr)
    return wait(partial(reset, message_model=message_model, **settings))


PullTask: TypeAlias = Callable[[MessageQueue, "PullContext[PullSchedule]"], object]
"""Gets a queue and a context; called on a thread."""


class PullSchedule(PullConsumer, Consumer[schedule.PullSchedule]):
    """Calls a function for each queue this member of a group has; see `orbitmq.client.PullSchedule`."""

    core: schedule.PullSchedule
    """The asyncio object behind this one."""

    @arguments_of(schedule.PullSchedule)
    def __init__(self) -> None: ...

    @checks_arguments
    def register(self, topic: str, callback: PullTask) -> None:
        """As `orbitmq.client.PullSchedule.register`; the callback runs on a thread, its context has this object."""

        def call(queue: MessageQueue, context: PullContext[schedule.PullSchedule]) -> None:
            own = PullContext(self, queue, context.next_delay_ms)
            callback(queue, own)
            context.next_delay_ms = own.next_delay_ms

        async def on_the_loop() -> None:
            self.core.register(topic, call)

        wait(on_the_loop)
