"""The producer for asyncio. `orbitmq.client.sync` has the same for threads."""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar, TypeAlias, TypeVar, Unpack, cast
from uuid import uuid4

from orbitmq.client.background import Background
from orbitmq.client.base import Client
from orbitmq.client.batcher import Batched, Batcher
from orbitmq.client.core.arguments import KINDS, Argument, checks_arguments
from orbitmq.client.core.hooks import ForbiddenHook, SendHook
from orbitmq.client.core.latency import PROFILES, BrokerLatencies, Fault, FaultTable, steps
from orbitmq.client.core.model import SendResult
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.client.core.outgoing_message import (
    Packing,
    check_message,
    check_sequence,
    outgoing,
    outgoing_batch,
)
from orbitmq.client.core.queue_selectors import QueueSelector
from orbitmq.client.core.replies import request_message
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import LEAST_LATENCY, QueueChooser
from orbitmq.client.in_flight import InFlightLimit
from orbitmq.client.instance import Instance
from orbitmq.client.loops import is_failure
from orbitmq.client.sender import (
    ANYWHERE,
    FirstAttempt,
    MessageSender,
    SendTarget,
    Single,
    probe_regularly,
)
from orbitmq.client.settings import ProducerSettings, complete
from orbitmq.client.trace_dispatcher import SendTraceHook, TraceDispatcher, trace_dispatcher
from orbitmq.errors import MessageIllegal, RequestTimeout, TooManyRequestsError
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.message.timers import RecallHandle
from orbitmq.message.topics import DEFAULT_PRODUCER_GROUP
from orbitmq.operations.sends import recall

_log = logging.getLogger(__name__)

A = TypeVar("A")
SendCallback: TypeAlias = Callable[[SendResult | None, BaseException | None], object]
"""Gets the result or the error."""

Delivery: TypeAlias = Callable[[RetryRules], Coroutine[object, object, SendResult]]
"""Sends something that is checked and packed, within these rules."""

CLOSE_S = 30.0  # how long shutdown waits for sends in flight; ten times their default time limit

TIMEOUT_MAX_S = 1e9  # thirty years: infinity and any greater value mean the same

_QUEUE = Argument("queue", KINDS["MessageQueue"])
_KEY = Argument("sharding_key", KINDS["str"], KINDS["int"], KINDS["bytes"])
_SELECTOR = Argument("selector", KINDS["QueueSelector[A]"])
_TIMEOUT = Argument("timeout", KINDS["float"])
CALLBACK = Argument("callback", KINDS["SendCallback"])

AT_ONCE_MAX = 64 << 10  # bytes of a body: a thousand that wait for the loop must not fill the memory

Around: TypeAlias = Callable[[Sequence[Message]], AbstractContextManager[Sequence[Message]]]
"""A context manager around a send; it yields the messages to send instead of those that were passed in."""

if TYPE_CHECKING:  # LMDB is optional
    from orbitmq.client.outbox import Outbox


class Producer(Client):
    """Sends messages.

        async with Producer("group", "127.0.0.1:9876") as producer:
            result = await producer.send(Message("topic", b"body", tags="tag", keys="key"))

    `namesrv_addr` is `host:port`, several separated by `;` or in a list; the default is the environment variable
    NAMESRV_ADDR. Further keywords are `ProducerSettings`. Messages for which you choose no queue go to the queues of
    their topic in turn. When an attempt fails, another broker is tried, all within `send_timeout_ms`.

    Many tasks may use one producer at once. Sending the same message object again sends a new message. With an
    `outbox`, messages whose send fails are kept on this machine and sent later; see `Outbox`.
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
            raise MessageIllegal(f"{DEFAULT_PRODUCER_GROUP} is reserved; choose another group name")
        self._settings = complete(self._kind, settings)
        super().__init__(group, namesrv_addr, self._settings)
        self._packing = Packing(
            self._settings["max_message_size"],
            self._settings["compress_threshold"],
            self._settings["compress_type"],
            self._settings["compress_level"],
            self._namespace,
            lambda: self._clock.now_ms(),
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
        self._in_flight_limit = InFlightLimit(
            self._settings["async_in_flight_max"], self._settings["async_in_flight_bytes_max"]
        )
        self._outbox = outbox
        self._chooser = _chooser(self._settings)
        self._sender: MessageSender | None = None
        self._batcher: Batcher | None = None
        self._around: Around = nullcontext
        self._hooks: list[SendHook] = []
        self._forbidden: list[ForbiddenHook] = []
        self._traces: TraceDispatcher | None = None
        self._background = Background(self._name())
        self._in_flight: set[asyncio.Task[SendResult] | asyncio.Task[MessageExt]] = set()
        self._entering: set[asyncio.Task[SendResult]] = set()  # those that are not in flight yet
        self._attempts: set[FirstAttempt] = set()  # of asynchronous sends without a task

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

        `queue` chooses the queue. Messages with equal `sharding_key` share a queue, so they keep their order if you
        send them one after another. `selector(queues, message, arg)` chooses one of the topic's queues: use
        `hash_selector`, `random_selector`, a `RoomSelector` or your own function. A chosen queue is attempted once.

        At most `async_in_flight_max` messages are in flight; further sends wait. `send_timeout_ms` covers all attempts
        and starts when the first one does; a `timeout` in seconds covers the wait as well.

        Every status of the result except STORED_LOCALLY means that a broker has stored the message. Raises
        MessageIllegal for a message that breaks a rule, BrokerError when the broker refuses, ClientError when no
        attempt succeeded (its text names the brokers, the attempts and the last error, or why there is no route), and
        TooManyRequestsError when the time is over; its text says if nothing was sent.
        """
        deliver = self._checked(message, queue, sharding_key, selector, arg)
        attempt = self._first_attempt(deliver, len(message.body), self._usual_rules) if timeout is None else None
        if attempt is None:
            ends = None if timeout is None else end_of(timeout)
            return await self._in_turn(deliver, len(message.body), self._usual_rules, ends)
        try:
            return await attempt.result
        except asyncio.CancelledError:
            attempt.abandon()
            raise

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
    ) -> asyncio.Future[SendResult]:
        """Start to send and return a future for the result at once. `callback(result, error)` is called with the
        outcome, one of the two being None, on the event loop, where it must not block.

        Errors are those of `send`, but only network failures are retried, `async_retry_times` times, on another broker
        or at the chosen queue; the response of a broker is final. At most `async_in_flight_max` messages are in flight;
        further sends wait. `send_timeout_ms` starts with the first attempt, `timeout` with this call.

        Raises MessageIllegal for a message that breaks a rule, and TooManyRequestsError when `async_sends_max` sends
        are unfinished. `shutdown` waits for them, up to 30 s.
        """
        deliver = self._checked(message, queue, sharding_key, selector, arg)
        self._check_room()
        tell = None if callback is None else partial(_call_back, CALLBACK.accept(callback))
        result: asyncio.Future[SendResult] | None = None
        # Not past earlier sends that wait for room: messages of a queue keep the order of the calls.
        if timeout is None and not self._entering:
            result = self._begun(deliver, len(message.body))
        if result is None:
            result = self._begin_send(deliver, len(message.body), timeout)
        if tell is not None:
            result.add_done_callback(tell)
        return result

    def _begun(self, deliver: Delivery, size: int) -> asyncio.Future[SendResult] | None:
        """The future of an asynchronous send that needs no task; None, and nothing is done, for others."""
        if type(deliver) is Batched:
            return deliver.begin(self._async_rules, size) if self._in_flight_limit.try_enter(size) else None
        attempt = self._first_attempt(deliver, size, self._async_rules)
        if attempt is None:
            return None
        if not attempt.done():  # it may have failed at once
            self._attempts.add(attempt)
            attempt.result.add_done_callback(attempt.give_up_if_cancelled)
        return attempt.result

    def _first_attempt(self, deliver: Delivery, size: int, rules: RetryRules) -> FirstAttempt | None:
        asyncio.get_running_loop()  # a thread without one must fail before it takes room
        if type(deliver) is not Single or not self._in_flight_limit.try_enter(size):
            return None

        def ended(attempt: FirstAttempt) -> None:
            self._in_flight_limit.leave(size)
            self._attempts.discard(attempt)

        attempt = deliver.begin(rules, ended)
        if attempt is None:
            self._in_flight_limit.leave(size)
        return attempt

    def _checked(
        self,
        message: Message,
        queue: MessageQueue | None,
        key: str | int | bytes | None,
        selector: QueueSelector[A] | None,
        arg: A | None,
    ) -> Delivery:
        """The function that sends the message when there is room for it; the message is checked now."""
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
        """Start a `send_batch`; otherwise as `send_async`."""
        sender = self._running_sender
        self._check_room()
        deliver, size = self._delivery_of_batch(sender, messages, queue)
        tell = None if callback is None else partial(_call_back, CALLBACK.accept(callback))
        task = self._begin_send(deliver, size, timeout)
        if tell is not None:
            task.add_done_callback(tell)
        return task

    def _delivery_of_batch(
        self, sender: MessageSender, messages: Sequence[Message], queue: MessageQueue | None
    ) -> tuple[Delivery, int]:
        """The function that sends the batch when there is room, and the size of the batch in bytes; encodes it now."""
        check_sequence(messages)
        batch = list(messages)
        packed = outgoing_batch(batch, self._new_id, self._packing)
        target = ANYWHERE if queue is None else SendTarget(self._namespace.wrap_queue(_QUEUE.accept(queue)))

        async def deliver_inside(rules: RetryRules) -> SendResult:
            with self._around(batch) as sent:
                return await self._delivery(sender, outgoing_batch(sent, self._new_id, self._packing), target)(rules)

        is_plain = self._around is nullcontext
        return self._delivery(sender, packed, target) if is_plain else deliver_inside, len(packed.body)

    def _begin_send(self, deliver: Delivery, size: int, timeout: float | None) -> asyncio.Task[SendResult]:
        ends = None if timeout is None else end_of(timeout)
        task = asyncio.get_running_loop().create_task(self._in_turn(deliver, size, self._async_rules, ends))
        self._entering.add(task)
        task.add_done_callback(self._entering.discard)
        self._note(task)
        return task

    async def _in_turn(self, deliver: Delivery, size: int, rules: RetryRules, ends: float | None) -> SendResult:
        """Send `size` bytes when there is room for them. With `ends` (loop time) the wait counts as well."""
        if not self._in_flight_limit.try_enter(size):
            try:
                await self._in_flight_limit.enter(size, ends)
            except TimeoutError:
                if self._outbox is not None:
                    return await deliver(rules.with_timeout(0))  # fails at once, and the outbox keeps it
                raise TooManyRequestsError(
                    f"timed out before there was room in flight, so nothing was sent: {self._in_flight_limit} "
                    "(async_in_flight_max); send fewer messages at a time, or increase the timeout"
                ) from None
        if self._entering and (task := asyncio.current_task()) is not None:
            self._entering.discard(task)
        try:
            if ends is not None:
                rules = rules.with_timeout(_left_ms(ends))
            return await deliver(rules)
        finally:
            self._in_flight_limit.leave(size)

    def _check_room(self) -> None:
        unfinished = len(self._in_flight) + len(self._attempts) + (0 if self._batcher is None else self._batcher.begun)
        if unfinished >= self._settings["async_sends_max"]:
            raise TooManyRequestsError(
                f"{unfinished} sends are unfinished, which is the limit (async_sends_max); wait until some "
                "have finished"
            )

    def _note(self, task: asyncio.Task[SendResult] | asyncio.Task[MessageExt]) -> None:
        self._in_flight.add(task)
        task.add_done_callback(self._in_flight.discard)

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
        """Send a message and wait for the reply of its consumer (`create_reply_message`), `timeout` seconds in all.
        That includes the wait for room among the sends in flight, and among the 10,000 requests that may wait for
        replies.

        Raises RequestTimeout when the message was sent and no reply came in time, and TooManyRequestsError when it
        could not be sent in time; otherwise fails as `send` does. The outbox keeps no requests.
        """
        sender, instance = self._running_sender, self._instance
        check_message(message, self._settings["max_message_size"])
        target = self._target(message, queue, sharding_key, selector, arg)
        ends = end_of(timeout)
        correlation_id = str(uuid4())
        async with instance.replies.expected(correlation_id, ends) as reply:
            request = request_message(message, correlation_id, instance.client_id, max(0, _left_ms(ends)))
            with self._around([request]) as (sent,):
                packed = outgoing(sent, self._new_id, self._packing)
                if instance.routes.publish(packed.topic) is None:
                    limit = asyncio.timeout_at(ends)
                    try:
                        async with limit:
                            await self.fetch_publish_queues(message.topic)
                            await instance.beat()  # only a broker that knows this client can deliver the reply
                    except TimeoutError:
                        if not limit.expired():  # a RemotingTimeout is one, too
                            raise
                        raise TooManyRequestsError(
                            f"timed out before the brokers of topic {message.topic} knew this client, so nothing was "
                            "sent; increase the timeout"
                        ) from None
                deliver = partial(sender.send, packed, target=target)
                await self._in_turn(deliver, len(packed.body), self._usual_rules, ends)
                try:
                    async with asyncio.timeout_at(ends):
                        return await reply
                except TimeoutError as error:
                    raise RequestTimeout(
                        f"no reply to {packed.msg_id}, stored in topic {message.topic}, arrived within {timeout} s; "
                        "check that a consumer of the topic is running and sends the message that "
                        "create_reply_message returns"
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
        """Start a `request` and return its task at once; the task fails as `request` does.

        TooManyRequestsError when `async_sends_max` sends and requests are unfinished.
        """
        self._check_running()
        self._check_room()
        request = self.request(
            message, timeout=timeout, queue=queue, sharding_key=sharding_key, selector=selector, arg=arg
        )
        task = asyncio.get_running_loop().create_task(request)
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
        """Send without a response: you do not learn whether the broker stored the message, and nothing is retried. The
        outbox keeps a message that could not be written.

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

    def _oneway_nowait(self, message: Message, key: str | int | bytes | None) -> Callable[[], None] | None:
        self._check_alive()  # the calling thread may run any loop
        sender = self._sender
        assert sender is not None, "start makes the sender"
        check_message(message, self._settings["max_message_size"])
        if len(message.body) > AT_ONCE_MAX or self._around is not nullcontext or self._outbox is not None:
            return None
        key = None if key is None else _KEY.accept(key)
        return sender.oneway_nowait(outgoing(message, self._new_id, self._packing), key)

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send several messages of one topic in one request. They are stored in order, in one queue.

        MessageIllegal when they differ in topic or `wait_store_ok`, one is delayed, or together they are larger than
        `max_message_size`. Otherwise as `send`; ids in the result are joined by commas.
        """
        deliver, size = self._delivery_of_batch(self._running_sender, messages, queue)
        return await self._in_turn(deliver, size, self._usual_rules, None if timeout is None else end_of(timeout))

    @checks_arguments
    async def recall(self, topic: str, recall_handle: str) -> str:
        """Have a message with a time to deliver not be delivered. `recall_handle` is that of the result of its send.

        Returns the unique id of the message, also if there was no such message. MessageIllegal for what is no handle;
        BrokerError if the message was delivered, or the broker does not recall messages: brokers of RocketMQ 5 and of
        orbitmq do if `recallMessageEnable` is set there.
        """
        wrapped, instance = self._namespace.wrap(topic), self._instance
        broker_name = RecallHandle.decode(recall_handle).broker_name
        address = await instance.routes.master(MessageQueue(wrapped, broker_name, 0))
        timeout_ms = self._settings["send_timeout_ms"]
        return await recall(instance.remoting, address, wrapped, recall_handle, group=self.group, timeout_ms=timeout_ms)

    @checks_arguments
    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues to which messages of `topic` are sent. ClientError names the cause when there are none."""
        settings = self._settings
        template, count = settings["create_topic_key"], settings["default_topic_queue_nums"]
        found = await self._instance.routes.find_publish(self._namespace.wrap(topic), template, count)
        return list(map(self._namespace.unwrap_queue, found.queues))

    @checks_arguments
    def add_send_hook(self, hook: SendHook) -> None:
        """Call `hook` before and after every attempt to send. It runs on the event loop and must not block."""
        self._hooks.append(hook)

    @checks_arguments
    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Call `hook` before every attempt to send; what it raises is raised to the sender at once."""
        self._forbidden.append(hook)

    @checks_arguments
    def wrap_sends(self, around: Around) -> None:
        """Run every send inside `around(messages)`, a context manager that yields the messages to send, as many as it
        was given. For instrumentation that adds something to messages; a later call replaces an earlier one.
        """
        self._around = around

    @property
    def faults(self) -> dict[str, Fault]:
        """With `latency_fault`: what is known of each broker, and until when it is avoided. For display."""
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
        """Where the caller sends the message."""
        if (queue is not None) + (key is not None) + (selector is not None) > 1:
            raise MessageIllegal("set only one of queue, sharding_key and selector")
        if selector is not None:
            return SendTarget(select=partial(_select, _SELECTOR.accept(selector), message, cast("A", arg)))
        if key is not None:
            return SendTarget(key=_KEY.accept(key))
        return SendTarget(None if queue is None else self._namespace.wrap_queue(_QUEUE.accept(queue)))

    def _delivery(self, sender: MessageSender, packed: Outgoing, target: SendTarget) -> Delivery:
        if self._outbox is not None:
            return partial(self._deliver_or_keep, self._outbox, sender, packed, target)
        if self._batcher is not None and not packed.batch:
            return Batched(self._batcher, packed, target)
        return Single(sender, packed, target)

    async def _deliver_or_keep(
        self, outbox: Outbox, sender: MessageSender, packed: Outgoing, target: SendTarget, rules: RetryRules
    ) -> SendResult:
        if target.select is not None:  # a function cannot be kept, the queue that it chooses can
            target = SendTarget(await sender.choose(packed.topic, target))
        result = await outbox.send(packed, target, lambda: self._delivered(sender, packed, rules, target))
        return replace(result, queue=self._namespace.unwrap_queue(result.queue)) if self._namespace else result

    async def _delivered(
        self, sender: MessageSender, packed: Outgoing, rules: RetryRules, target: SendTarget
    ) -> SendResult:
        if self._batcher is not None and not packed.batch:
            return await self._batcher.send(packed, rules, target)
        return await sender.send(packed, rules, target)

    async def _resend(self, packed: Outgoing, target: SendTarget) -> None:
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
        if self._settings["linger_ms"]:
            limit = min(self._settings["batch_max_bytes"], self._settings["max_message_size"])
            self._batcher = Batcher(self._sender, self._settings["linger_ms"], limit, self._in_flight_limit.leave)
        await self._join(instance)
        if self._chooser.faults is not None and self._chooser.faults.probes:
            self._background.spawn(probe_regularly(instance, self._chooser.faults))
        if self._settings["enable_trace"]:
            self._traces = trace_dispatcher(instance, self.group, "PRODUCE", self._settings["trace_topic"])
            self._hooks.append(SendTraceHook(self._traces))
        if self._outbox is not None:
            await self._outbox.open(self._resend)

    async def _join(self, instance: Instance) -> None:
        instance.add_producer(self.group)
        await instance.beat()

    async def _end(self, instance: Instance) -> None:
        try:
            await self._finish_sends()
        finally:  # a shutdown that is cancelled must not keep the directory locked
            if self._outbox is not None:
                await self._outbox.close()
        if self._traces is not None:
            await self._traces.close()
        await instance.dismiss(self.group, consumer=False)

    async def _finish_sends(self) -> None:
        await self._background.stop()
        if self._batcher is not None:
            self._batcher.hurry()
        if unfinished := self._unfinished():
            _, late = await asyncio.wait(unfinished, timeout=CLOSE_S)
            for one in late:
                one.cancel()
        if self._batcher is not None:
            await self._batcher.finish(CLOSE_S)
        if self._sender is not None:
            await self._sender.finish(CLOSE_S)

    def _unfinished(self) -> set[asyncio.Future[Any]]:
        """What shutdown waits for, and then cancels."""
        return {*self._in_flight, *(attempt.result for attempt in self._attempts)}

    async def _abandon(self, instance: Instance) -> None:
        await super()._abandon(instance)
        if self._outbox is not None:
            await self._outbox.abandon()


def oneway_nowait(
    producer: Producer, message: Message, sharding_key: str | int | bytes | None
) -> Callable[[], None] | None:
    """For threads: the function that writes a oneway message, to be called on the producer's loop; None when only
    `send_oneway` can write it. The message is checked and packed here, in the thread of the caller. MessageIllegal,
    InvalidStateError.
    """
    return producer._oneway_nowait(message, sharding_key)  # noqa: SLF001 - no method that applications see


def end_of(timeout: float) -> float:
    """The loop time at which `timeout` seconds are over. ConfigurationError unless it is a number."""
    seconds: float = _TIMEOUT.accept(timeout)
    return asyncio.get_running_loop().time() + max(0.0, min(seconds, TIMEOUT_MAX_S))


def _left_ms(ends: float) -> int:
    return round((ends - asyncio.get_running_loop().time()) * 1000)


def _select(selector: QueueSelector[A], message: Message, arg: A, queues: Sequence[MessageQueue]) -> MessageQueue:
    return selector(queues, message, arg)


def _call_back(callback: SendCallback, task: asyncio.Future[SendResult]) -> None:
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
