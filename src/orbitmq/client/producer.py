"""The producer for asyncio. `orbitmq.client.sync` has the same for threads."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine, Iterable, Sequence
from contextlib import AbstractContextManager, nullcontext
from dataclasses import replace
from random import Random
from typing import TYPE_CHECKING, ClassVar, TypeAlias, Unpack
from uuid import uuid4

from orbitmq.client.base import Client
from orbitmq.client.core.hooks import ForbiddenHook, SendHook
from orbitmq.client.core.latency import Fault, FaultTable, Latencies, steps
from orbitmq.client.core.model import SendResult
from orbitmq.client.core.outgoing import Outgoing, Packing, check_message, outgoing, outgoing_batch
from orbitmq.client.core.replies import asking
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import LEAST_LATENCY, Choosing
from orbitmq.client.instance import Instance
from orbitmq.client.sending import Sender, Target
from orbitmq.client.settings import ProducerSettings, complete
from orbitmq.client.tracing import SendTracing, Traces, traces_of
from orbitmq.errors import InvalidStateError, MessageIllegal, RequestTimeout, TooManyRequestsError
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.message.topics import DEFAULT_PRODUCER_GROUP

Around: TypeAlias = Callable[[Sequence[Message]], AbstractContextManager[Sequence[Message]]]

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
        )
        self._usual_rules = RetryRules(
            1 + self._settings["retry_times"],
            self._settings["send_timeout_ms"],
            other_broker_when_not_stored_safely=self._settings["retry_when_not_store_ok"],
        )
        self._outbox = outbox
        self._choosing = _choosing(self._settings)
        self._sender: Sender | None = None
        self._around: Around = nullcontext
        self._hooks: list[SendHook] = []
        self._forbidden: list[ForbiddenHook] = []
        self._traces: Traces | None = None
        self._under_way: set[asyncio.Task[SendResult] | asyncio.Task[MessageExt]] = set()

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        timeout: float | None = None,
    ) -> SendResult:
        """Send and wait until the broker has stored the message.

        `queue` chooses the queue; messages with equal `sharding_key` share one, so they keep their order when they are
        sent one after another. A chosen queue is attempted once. `timeout` in seconds covers all attempts; without it
        `send_timeout_ms` counts.

        Every status of the result but STORED_LOCALLY means stored at a broker. MessageIllegal for a message that breaks
        a rule, BrokerError when the broker refuses, ClientError when no attempt succeeded (its text names brokers,
        attempts and the last error, and the cause when there is no route), TooManyRequestsError when the time is over.
        """
        with self._around([message]) as (sent,):
            packed = outgoing(sent, self._new_id, self._packing)
            return await self._deliver(packed, timeout, Target(queue, sharding_key))

    def send_async(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
        timeout: float | None = None,
    ) -> asyncio.Task[SendResult]:
        """Begin a `send` and return its task at once; the task fails as `send` does.

        MessageIllegal for a message that breaks a rule, TooManyRequestsError when `async_sends_max` sends are under
        way. Shutdown waits for those that are.
        """
        self._check_room()
        if self._around is nullcontext:
            packed = outgoing(message, self._new_id, self._packing)
            send = self._deliver(packed, timeout, Target(queue, sharding_key))
        else:
            check_message(message, self._settings["max_message_size"])
            send = self.send(message, queue=queue, sharding_key=sharding_key, timeout=timeout)
        task = asyncio.get_running_loop().create_task(send)
        self._note(task)
        return task

    def _check_room(self) -> None:
        if len(self._under_way) >= self._settings["async_sends_max"]:
            raise TooManyRequestsError(f"{len(self._under_way)} sends are under way, no more are taken")

    def _note(self, task: asyncio.Task[SendResult] | asyncio.Task[MessageExt]) -> None:
        self._under_way.add(task)
        task.add_done_callback(self._under_way.discard)

    async def request(
        self,
        message: Message,
        *,
        timeout: float,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
    ) -> MessageExt:
        """Send a message and wait for what its consumer replies (`create_reply_message`), `timeout` seconds in all.

        RequestTimeout when it was sent and no reply came in time, TooManyRequestsError when too many requests wait;
        otherwise fails as `send` does. The outbox keeps no request.
        """
        sender, instance = self._running_sender, self._instance
        rules = self._rules(timeout)
        ends = asyncio.get_running_loop().time() + timeout
        correlation_id = str(uuid4())
        asked = asking(message, correlation_id, instance.client_id, rules.timeout_ms)
        with self._around([asked]) as (sent,), instance.replies.expected(correlation_id) as reply:
            packed = outgoing(sent, self._new_id, self._packing)
            if instance.routes.publish(message.topic) is None:
                await self.fetch_publish_queues(message.topic)
                await instance.beat()  # a reply comes through a broker that knows this client
            await sender.send(packed, rules, Target(queue, sharding_key))
            try:
                async with asyncio.timeout_at(ends):
                    return await reply
            except TimeoutError as error:
                raise RequestTimeout(f"no reply to {packed.msg_id} came within {timeout} s") from error

    def request_async(
        self,
        message: Message,
        *,
        timeout: float,
        queue: MessageQueue | None = None,
        sharding_key: str | int | bytes | None = None,
    ) -> asyncio.Task[MessageExt]:
        """Begin a `request` and return its task at once; the task fails as `request` does. Else as `send_async`."""
        self._check_room()
        asked = self.request(message, timeout=timeout, queue=queue, sharding_key=sharding_key)
        task = asyncio.get_running_loop().create_task(asked)
        self._note(task)
        return task

    async def send_oneway(
        self, message: Message, *, queue: MessageQueue | None = None, sharding_key: str | int | bytes | None = None
    ) -> None:
        """Send without waiting for an answer; nothing is known of the message's fate once it is written, and nothing is
        tried again. The outbox keeps one that could not be written.
        """
        with self._around([message]) as (sent,):
            packed, target = outgoing(sent, self._new_id, self._packing), Target(queue, sharding_key)
            sender = self._running_sender
            if self._outbox is None:
                await sender.send_oneway(packed, target)
            else:
                await self._outbox.send(packed, target, lambda: sender.send_oneway(packed, target))

    async def send_batch(
        self, messages: Sequence[Message], *, queue: MessageQueue | None = None, timeout: float | None = None
    ) -> SendResult:
        """Send many messages of one topic in one request; they are stored in order, in one queue.

        MessageIllegal when they differ in topic or `wait_store_ok`, one is delayed, or together they are larger than
        `max_message_size`. Otherwise as `send`; ids in the result are joined by commas.
        """
        with self._around(messages) as sent:
            packed = outgoing_batch(sent, self._new_id, self._packing)
            return await self._deliver(packed, timeout, Target(queue))

    async def fetch_publish_queues(self, topic: str) -> list[MessageQueue]:
        """The queues messages of `topic` are sent to. ClientError names the cause when there are none."""
        settings = self._settings
        template, count = settings["create_topic_key"], settings["default_topic_queue_nums"]
        return list((await self._instance.routes.find_publish(topic, template, count)).queues)

    def add_send_hook(self, hook: SendHook) -> None:
        """Have `hook` see every attempt to send, before and after. It runs on the event loop and must not wait."""
        self._hooks.append(hook)

    def add_forbidden_hook(self, hook: ForbiddenHook) -> None:
        """Have `hook` see every attempt before it is made; what it raises is what the sender gets, at once."""
        self._forbidden.append(hook)

    def wrap_sends(self, around: Around) -> None:
        """Have every send happen inside `around(messages)`, a context manager that gives the messages to be sent, of
        which there must be as many. For instruments that put something into messages; there is one of them.
        """
        self._around = around

    @property
    def faults(self) -> dict[str, Fault]:
        """With `latency_fault`: what is known of each broker, and until when it is left out. For display."""
        return dict(self._choosing.faults.faults) if self._choosing.faults is not None else {}

    # ---------------------------------------------------------------------------------------------------------------

    def _deliver(
        self, packed: Outgoing, timeout: float | None, target: Target
    ) -> Coroutine[object, object, SendResult]:
        sender, rules = self._running_sender, self._rules(timeout)
        if self._outbox is None:
            return sender.send(packed, rules, target)
        return self._outbox.send(packed, target, lambda: sender.send(packed, rules, target))

    async def _send_again(self, packed: Outgoing, target: Target) -> None:
        assert self._sender is not None, "the outbox is open while the producer runs"
        await self._sender.send(packed, self._usual_rules, target)

    def _rules(self, timeout: float | None) -> RetryRules:
        return self._usual_rules if timeout is None else replace(self._usual_rules, timeout_ms=int(timeout * 1000))

    def _new_id(self) -> str:
        instance = self._instance
        return instance.unique_ids.create(instance.clock.now_ms())

    @property
    def _running_sender(self) -> Sender:
        if not self.is_running or self._sender is None:
            raise InvalidStateError(f"{self._name()} is {self._state.value}")
        return self._sender

    async def _begin(self, instance: Instance) -> None:
        instance.add_producer(self.group)
        self._sender = Sender(
            instance,
            self.group,
            self._choosing,
            template=self._settings["create_topic_key"],
            template_queues=self._settings["default_topic_queue_nums"],
            hooks=self._hooks,
            forbidden=self._forbidden,
        )
        await instance.beat()
        if self._settings["enable_trace"]:
            self._traces = traces_of(instance, self.group, "PRODUCE", self._settings["trace_topic"])
            self._hooks.append(SendTracing(self._traces))
        if self._outbox is not None:
            await self._outbox.open(self._send_again)

    async def _end(self, instance: Instance) -> None:
        if self._under_way:
            await asyncio.wait(set(self._under_way))  # each has its own time limit
        if self._outbox is not None:
            await self._outbox.close()
        if self._traces is not None:
            await self._traces.close()
        await instance.dismiss(self.group, consumer=False)


def _choosing(settings: ProducerSettings) -> Choosing:
    table = FaultTable(steps(settings["latency_max"]), steps(settings["not_available_duration"]))
    return Choosing(
        Random(),  # noqa: S311 - spreads load, keeps no secret
        table if settings["latency_fault"] else None,
        Latencies() if settings["queue_strategy"] == LEAST_LATENCY else None,
    )
