"""The producer for asyncio. `orbitmq.client.sync` has the same for threads."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, ClassVar, TypeAlias, TypeVar, Unpack, cast
from uuid import uuid4

from orbitmq.client.background import Background
from orbitmq.client.base import Client
from orbitmq.client.core.arguments import KINDS, Argument, checks_arguments
from orbitmq.client.core.hooks import ForbiddenHook, SendHook
from orbitmq.client.core.latency import PROFILES, BrokerLatencies, Fault, FaultTable, steps
from orbitmq.client.core.model import SendResult
from orbitmq.client.core.outgoing_message import (
    Outgoing,
    Packing,
    check_message,
    check_sequence,
    outgoing,
    outgoing_batch,
)
from orbitmq.client.core.queue_selectors import QueueSelector
from orbitmq.client.core.replies import asking
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import LEAST_LATENCY, QueueChooser
from orbitmq.client.in_flight import InFlightLimit
from orbitmq.client.instance import Instance
from orbitmq.client.loops import is_failure
from orbitmq.client.sender import ANYWHERE, MessageSender, SendTarget, probe_regularly
from orbitmq.client.settings import ProducerSettings, complete
from orbitmq.client.trace_dispatcher import SendTraceHook, TraceDispatcher, trace_dispatcher
from orbitmq.errors import MessageIllegal, RequestTimeout, TooManyRequestsError
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.message.topics import DEFAULT_PRODUCER_GROUP

_log = logging.getLogger(__name__)

A = TypeVar("A")
SendCallback: TypeAlias = Callable[[SendResult | None, BaseException | None], object]
"""Gets the result or the error."""

Delivery: TypeAlias = Callable[[RetryRules], Coroutine[object, object, SendResult]]
"""Sends something that is checked and packed, within these rules."""

CLOSE_S = 30.0  # how long shutdown waits for sends that are under way; ten times their usual limit

TIMEOUT_MAX_S = 1e9  # thirty years: what is more, infinity too, is as good

_QUEUE = Argument("queue", KINDS["MessageQueue"])
_KEY = Argument("sharding_key", KINDS["str"], KINDS["int"], KINDS["bytes"])
_SELECTOR = Argument("selector", KINDS["QueueSelector[A]"])
_TIMEOUT = Argument("timeout", KINDS["float"])
CALLBACK = Argument("callback", KINDS["SendCallback"])

AT_ONCE_MAX = 64 << 10  # bytes of a body: a thousand that wait for the loop must not fill the memory

Around: TypeAlias = Callable[[Sequence[Message]], AbstractContextManager[Sequence[Message]]]
"""A context manager in which a send happens; it gives the messages that are sent instead of those it was given."""

if TYPE_CHECKING:  # it needs LMDB, which only those have who want it
    from orbitmq.client.outbox import Outbox


class Producer(Client):
    """Sends messages.

        async with Producer("group", "127.0.0.1:9876") as producer:
            result = await producer.send(Message("topic", b"body", tags="tag", keys="key"))

    `namesrv_addr` is `host:port`, several separated by `;` or in a list; without it the environment variable
    NAMESRV_ADDR counts. Further keywords are `ProducerSettings`. A message without a chosen queue goes to the queues
    of its topic in turn; when an attempt fails, another broker is tried, all within `send_timeout_ms`.

    One producer may be used by many tasks at once. Sending the same message object again sends a new message. With an
    `outbox` messages whose send fails are kept on this machine and sent later; see `Outbox`.
    """

    _consumes = False
    _kind: ClassVar[type[ProducerSettings]] = ProducerSettings

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        outbox: Outbox | None = None,
        **settings: Unpack[ProducerSettings],
    ) -> None:
        if group == DEFAULT_PRODUCER_GROUP:
            raise MessageIllegal(f"{DEFAULT_PRODUCER_GROUP} is no group of an application, choose a name")
        self._settings = complete(self._kind, settings)
        super().__init__(group, namesrv_addr, self._settings)
        self._packing = Packing(
            self._settings["max_message_size"],
            self._settings["compress_threshold"],
            self._settings["compress_type"],
            self._settings["compress_level"],
            self._namespace,
        )
        self._usual_rules = RetryRules(
            1 + self._settings["retry_times"],
            self._settings["send_timeout_ms"],
            self._settings["retry_response_codes"],
            other_broker_when_not_stored_safely=self._settings["retry_when_not_store_ok"],
            attempt_max_ms=self._settings["max_timeout_per_attempt_ms"],
        )
        self._async_rules = replace(
            self._usual_rules, attempts=1 + self._settings["async_retry_times"], network_only=True
        )
        self._pace = InFlightLimit(self._settings["async_in_flight_max"], self._settings["async_in_flight_bytes_max"])
        self._outbox = outbox
        self._chooser = _chooser(self._settings)
        self._sender: MessageSender | None = None
        self._around: Around = nullcontext
        self._hooks: list[SendHook] = []
        self._forbidden: list[ForbiddenHook] = []
        self._traces: TraceDispatcher | None = None
        self._background = Background(self._name())
        self._under_way: set[asyncio.Task[SendResult] | asyncio.Task[MessageExt]] = set()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        selector: QueueSelector[A] | None = None,
        arg: A | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored the message.

        `queue` chooses the queue; messages with equal `sharding_key` share one, so they keep their order when they are
        sent one after another; `selector(queues, message, arg)` chooses one of the topic's queues, by `hash_selector`,
        `random_selector`, a `RoomSelector` or any function. A chosen queue is attempted once.

        `async_in_flight_max` messages are at the brokers at a time, the others wait for their turn. `send_timeout_ms`
        covers all attempts and begins with the turn; a `timeout` in seconds covers the wait as well.

        Every status of the result but STORED_LOCALLY means stored at a broker. MessageIllegal for a message that breaks
        a rule, BrokerError when the broker refuses, ClientError when no attempt succeeded (its text names brokers,
        attempts and the last error, and the cause when there is no route), TooManyRequestsError when the time is over;
        its text says whether that was before the turn, when nothing was sent.
        """
        deliver = self._checked(message, queue, sharding_key, selector, arg)
        ends = None if timeout is None else end_of(timeout)
        return await self._in_turn(deliver, len(message.body), self._usual_rules, ends)

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
    ) -> asyncio.Task[SendResult]:
        """Begin to send and return a task for the result at once; `callback(result, error)` is called with what came
        of it, one of the two being None, on the event loop, where it must not wait.

        Errors are those of `send`, but other failures are tried again: those of the network, `async_retry_times` times,
        on another broker or at the chosen queue; an answer of a broker is final. `async_in_flight_max` messages are at
        the brokers at a time, the others wait for their turn. `send_timeout_ms` begins with the turn; a `timeout` that
        is given counts from now.

        MessageIllegal for a message that breaks a rule, TooManyRequestsError when `async_sends_max` sends are not
        finished yet. Shutdown waits for them, within a limit.
        """
        deliver = self._checked(message, queue, sharding_key, selector, arg)
        self._check_room()
        return self._begin_send(deliver, len(message.body), timeout, callback)

    def _checked(
        self,
        message: Message,
        queue: MessageQueue | None,
        key: str | int | bytes | None,
        selector: QueueSelector[A] | None,
        arg: A | None,
    ) -> Delivery:
        """What sends a message, which is checked now, when its turn has come."""
        sender, is_free = self._running_sender, queue is None and key is None and selector is None
        target = ANYWHERE if is_free else self._target(message, queue, key, selector, arg)
        if self._around is nullcontext:
            return self._delivery(sender, outgoing(message, self._new_id, self._packing), target)
        check_message(message, self._settings["max_message_size"])
        return partial(self._deliver_inside, sender, message, target)

    async def _deliver_inside(
        self, sender: MessageSender, message: Message, target: SendTarget, rules: RetryRules
    ) -> SendResult:
        with self._around([message]) as (sent,):
            return await self._delivery(sender, outgoing(sent, self._new_id, self._packing), target)(rules)

    def send_batch_async(
        self,
        messages: Sequence[Message],
        callback: SendCallback | None = None,
        *,
        queue: MessageQueue | None = None,
        timeout: float | None = None,
    ) -> asyncio.Task[SendResult]:
        """Begin a `send_batch`; otherwise as `send_async`."""
        sender = self._running_sender
        self._check_room()
        deliver, size = self._delivery_of_batch(sender, messages, queue)
        return self._begin_send(deliver, size, timeout, callback)

    def _delivery_of_batch(
        self, sender: MessageSender, messages: Sequence[Message], queue: MessageQueue | None
    ) -> tuple[Delivery, int]:
        """What sends a batch, which is packed now, when its turn has come; and its bytes."""
        check_sequence(messages)
        batch = list(messages)
        packed = outgoing_batch(batch, self._new_id, self._packing)
        target = ANYWHERE if queue is None else SendTarget(self._namespace.wrap_queue(_QUEUE.accept(queue)))

        async def deliver_inside(rules: RetryRules) -> SendResult:
            with self._around(batch) as sent:
                return await self._delivery(sender, outgoing_batch(sent, self._new_id, self._packing), target)(rules)

        is_plain = self._around is nullcontext
        return self._delivery(sender, packed, target) if is_plain else deliver_inside, len(packed.body)

    def _begin_send(
        self, deliver: Delivery, size: int, timeout: float | None, callback: SendCallback | None
    ) -> asyncio.Task[SendResult]:
        ends = None if timeout is None else end_of(timeout)
        tell = None if callback is None else partial(_tell, CALLBACK.accept(callback))
        task = asyncio.get_running_loop().create_task(self._in_turn(deliver, size, self._async_rules, ends))
        self._note(task)
        if tell is not None:
            task.add_done_callback(tell)
        return task

    async def _in_turn(self, deliver: Delivery, size: int, rules: RetryRules, ends: float | None) -> SendResult:
        """Send so many bytes when there is room for them. With `ends` (loop time) the wait counts as well."""
        if not self._pace.try_enter(size):
            try:
                await self._pace.enter(size, ends)
            except TimeoutError:
                if self._outbox is not None:
                    return await deliver(rules.with_timeout(0))  # fails at once, where the outbox keeps it
                raise TooManyRequestsError(
                    f"the time was over before the send's turn came, so nothing was sent: {self._pace} "
                    "(async_in_flight_max); send less at a time, or give more time"
                ) from None
        try:
            if ends is not None:
                rules = rules.with_timeout(_left_ms(ends))
            return await deliver(rules)
        finally:
            self._pace.leave(size)

    def _check_room(self) -> None:
        if len(self._under_way) >= self._settings["async_sends_max"]:
            raise TooManyRequestsError(
                f"{len(self._under_way)} sends are not finished (async_sends_max), no more are taken; wait for some"
            )

    def _note(self, task: asyncio.Task[SendResult] | asyncio.Task[MessageExt]) -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    @checks_arguments
    async def request(
        self,
        message: Message,
        *,
        timeout: float,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        selector: QueueSelector[A] | None = None,
        arg: A | None = None,
    ) -> MessageExt:
        """Send a message and wait for what its consumer replies (`create_reply_message`), `timeout` seconds in all, the
        wait for its turn included: it has one among the sends, and one among the 10,000 requests that may wait for
        replies.

        RequestTimeout when it was sent and no reply came in time, TooManyRequestsError when its turn did not come in
        time; otherwise fails as `send` does. The outbox keeps no request.
        """
        sender, instance = self._running_sender, self._instance
        check_message(message, self._settings["max_message_size"])
        target = self._target(message, queue, sharding_key, selector, arg)
        ends = end_of(timeout)
        correlation_id = str(uuid4())
        async with instance.replies.expected(correlation_id, ends) as reply:
            asked = asking(message, correlation_id, instance.client_id, max(0, _left_ms(ends)))
            with self._around([asked]) as (sent,):
                packed = outgoing(sent, self._new_id, self._packing)
                if instance.routes.publish(packed.topic) is None:
                    await self.fetch_publish_queues(message.topic)
                    await instance.beat()  # a reply comes through a broker that knows this client
                deliver = partial(sender.send, packed, target=target)
                await self._in_turn(deliver, len(packed.body), self._usual_rules, ends)
                try:
                    async with asyncio.timeout_at(ends):
                        return await reply
                except TimeoutError as error:
                    raise RequestTimeout(
                        f"no reply to {packed.msg_id}, stored in topic {message.topic}, came within {timeout} s; see "
                        "that a consumer of the topic runs and sends what create_reply_message makes"
                    ) from error

    @checks_arguments
    def request_async(
        self,
        message: Message,
        *,
        timeout: float,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        selector: QueueSelector[A] | None = None,
        arg: A | None = None,
    ) -> asyncio.Task[MessageExt]:
        """Begin a `request` and return its task at once; the task fails as `request` does, and not twice.

        TooManyRequestsError when `async_sends_max` sends and requests are not finished yet.
        """
        self._check_running()
        self._check_room()
        asked = self.request(
            message, timeout=timeout, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg
        )
        task = asyncio.get_running_loop().create_task(asked)
        self._note(task)
        return task

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        selector: QueueSelector[A] | None = None,
        arg: A | None = None,
    ) -> None:
        """Send without waiting for an answer; nothing is known of the message's fate once it is written, and nothing is
        tried again. The outbox keeps one that could not be written.

        MessageIllegal for a message that breaks a rule, ClientError without a route, RemotingError when it could not be
        written.
        """
        with self._around([message]) as (sent,):
            packed = outgoing(sent, self._new_id, self._packing)
            target = self._target(message, queue, sharding_key, selector, arg)
            sender = self._running_sender
            if self._outbox is None:
                await sender.send_oneway(packed, target)
                return
            if target.select is not None:
                target = SendTarget(await sender.choose(packed.topic, target))
            await self._outbox.send(packed, target, lambda: sender.send_oneway(packed, target))

    def _oneway_at_once(self, message: Message, key: str | int | bytes | None) -> Callable[[], None] | None:
        self._check_alive()  # whatever loop runs in the thread that calls
        sender = self._sender
        assert sender is not None, "start makes the sender"
        check_message(message, self._settings["max_message_size"])
        if len(message.body) > AT_ONCE_MAX or self._around is not nullcontext or self._outbox is not None:
            return None
        key = None if key is None else _KEY.accept(key)
        return sender.oneway_at_once(outgoing(message, self._new_id, self._packing), key)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send many messages of one topic in one request; they are stored in order, in one queue.

        MessageIllegal when they differ in topic or `wait_store_ok`, one is delayed, or together they are larger than
        `max_message_size`. Otherwise as `send`; ids in the result are joined by commas.
        """
        deliver, size = self._delivery_of_batch(self._running_sender, messages, queue)
        return await self._in_turn(deliver, size, self._usual_rules, None if timeout is None else end_of(timeout))

    @checks_arguments
    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues messages of `topic` are sent to. ClientError names the cause when there are none."""
        settings = self._settings
        template, count = settings["create_topic_key"], settings["default_topic_queue_nums"]
        found = await self._instance.routes.find_publish(self._namespace.wrap(topic), template, count)
        return list(map(self._namespace.unwrap_queue, found.queues))

    @checks_arguments
    def add_send_hook(self, hook: SendHook) -> None:
        """Have `hook` see every attempt to send, before and after. It runs on the event loop and must not wait."""
        self._hooks.append(hook)

    @checks_arguments
    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Have `hook` see every attempt before it is made; what it raises is what the sender gets, at once."""
        self._forbidden.append(hook)

    @checks_arguments
    def wrap_sends(self, around: Around) -> None:
        """Have every send happen inside `around(messages)`, a context manager that gives the messages to be sent, of
        which there must be as many. For instruments that put something into messages; there is one of them.
        """
        self._around = around

    @property
    def faults(self) -> dict[str, Fault]:
        """With `latency_fault`: what is known of each broker, and until when it is left out. For display."""
        return dict(self._chooser.faults.faults) if self._chooser.faults is not None else {}

    # ---------------------------------------------------------------------------------------------------------------

    def _target(
        self,
        message: Message,
        queue: MessageQueue | None,
        key: str | int | bytes | None,
        selector: QueueSelector[A] | None,
        arg: A | None,
    ) -> SendTarget:
        """Where the caller wants the message."""
        if (queue is not None) + (key is not None) + (selector is not None) > 1:
            raise MessageIllegal("give one of queue, sharding_key and selector")
        if selector is not None:
            return SendTarget(select=partial(_select, _SELECTOR.accept(selector), message, cast("A", arg)))
        if key is not None:
            return SendTarget(key=_KEY.accept(key))
        return SendTarget(None if queue is None else self._namespace.wrap_queue(_QUEUE.accept(queue)))

    def _delivery(self, sender: MessageSender, packed: Outgoing, target: SendTarget) -> Delivery:
        if self._outbox is None:
            return partial(sender.send, packed, target=target)
        return partial(self._deliver_or_keep, self._outbox, sender, packed, target)

    async def _deliver_or_keep(
        self, outbox: Outbox, sender: MessageSender, packed: Outgoing, target: SendTarget, rules: RetryRules
    ) -> SendResult:
        if target.select is not None:  # a function cannot be kept, what it chooses can
            target = SendTarget(await sender.choose(packed.topic, target))
        result = await outbox.send(packed, target, lambda: sender.send(packed, rules, target))
        return replace(result, queue=self._namespace.unwrap_queue(result.queue)) if self._namespace else result

    async def _send_again(self, packed: Outgoing, target: SendTarget) -> None:
        assert self._sender is not None, "the outbox is open while the producer runs"
        await self._sender.send(packed, self._usual_rules, target)

    def _new_id(self) -> str:
        instance = self._shared or self._instance  # a send that waits for its turn outlives the running state
        return instance.unique_ids.create(instance.clock.now_ms())

    @property
    def _running_sender(self) -> MessageSender:
        self._check_running()
        assert self._sender is not None, "start makes the sender"
        return self._sender

    async def _begin(self, instance: Instance) -> None:
        self._sender = MessageSender(
            instance,
            self.group,
            self._chooser,
            template=self._settings["create_topic_key"],
            template_queues=self._settings["default_topic_queue_nums"],
            hooks=self._hooks,
            forbidden=self._forbidden,
            namespace=self._namespace,
            unit_mode=self._settings["unit_mode"],
        )
        await self._join(instance)
        if self._chooser.faults is not None and self._chooser.faults.probes:
            self._background.spawn(probe_regularly(instance, self._chooser.faults))
        if self._settings["enable_trace"]:
            self._traces = trace_dispatcher(instance, self.group, "PRODUCE", self._settings["trace_topic"])
            self._hooks.append(SendTraceHook(self._traces))
        if self._outbox is not None:
            await self._outbox.open(self._send_again)

    async def _join(self, instance: Instance) -> None:
        instance.add_producer(self.group)
        await instance.beat()

    async def _end(self, instance: Instance) -> None:
        await self._background.stop()
        if self._under_way:
            _, late = await asyncio.wait(set(self._under_way), timeout=CLOSE_S)
            for task in late:
                task.cancel()
        if self._sender is not None:
            await self._sender.finish(CLOSE_S)
        if self._outbox is not None:
            await self._outbox.close()
        if self._traces is not None:
            await self._traces.close()
        await instance.dismiss(self.group, consumer=False)

    async def _abandon(self, instance: Instance) -> None:
        await super()._abandon(instance)
        if self._outbox is not None:
            await self._outbox.abandon()


def oneway_at_once(
    producer: Producer, message: Message, sharding_key: str | int | bytes | None
) -> Callable[[], None] | None:
    """For threads: what writes a message that nobody waits for, to be called on the producer's loop; None when only
    `send_oneway` can. It is checked and packed here, in the thread of the caller. MessageIllegal, InvalidStateError.
    """
    return producer._oneway_at_once(message, sharding_key)  # noqa: SLF001 - no method that applications see


def end_of(timeout: float) -> float:
    """When so many seconds are over, by the loop's clock. ConfigurationError for what is no number."""
    seconds: float = _TIMEOUT.accept(timeout)
    return asyncio.get_running_loop().time() + max(0.0, min(seconds, TIMEOUT_MAX_S))


def _left_ms(ends: float) -> int:
    return round((ends - asyncio.get_running_loop().time()) * 1000)


def _select(selector: QueueSelector[A], message: Message, arg: A, queues: Sequence[MessageQueue]) -> MessageQueue:
    return selector(queues, message, arg)


def _tell(callback: SendCallback, task: asyncio.Task[SendResult]) -> None:
    error: BaseException | None = asyncio.CancelledError() if task.cancelled() else task.exception()
    try:
        callback(None if error is not None else task.result(), error)
    except BaseException as raised:  # the application's code
        if not is_failure(raised):
            raise
        _log.exception("event=send_callback_failed")


def _chooser(settings: ProducerSettings) -> QueueChooser:
    profile = PROFILES[settings["latency_profile"]]
    table = FaultTable(
        replace(
            profile,
            latency_max=steps(settings["latency_max"]) or profile.latency_max,
            not_available=steps(settings["not_available_duration"]) or profile.not_available,
        )
    )
    return QueueChooser(
        random.Random(),  # noqa: S311 - spreads load, keeps no secret
        table if settings["latency_fault"] else None,
        BrokerLatencies() if settings["queue_strategy"] == LEAST_LATENCY else None,
    )
