"""Writes message traces: hooks that create records, and a dispatcher that sends them in batches.

Never delays or fails a send or a listener: records wait in a bounded queue, and are counted and dropped if it is full.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field
from itertools import count

from orbitmq.client.core.hooks import ConsumeContext, SendContext
from orbitmq.client.core.model import ConsumeConcurrentlyStatus, ConsumeOrderlyStatus, SendResult, SendStatus
from orbitmq.client.core.outgoing_message import Packing, outgoing
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import QueueChooser
from orbitmq.client.core.trace import (
    CLOUD,
    CLOUD_TOPIC_PREFIX,
    LOCAL,
    ConsumeBegun,
    ConsumeEnded,
    Outcome,
    Published,
    Record,
    encode_record,
)
from orbitmq.client.instance import Instance
from orbitmq.client.sender import MessageSender
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.namespace import unwrapped
from orbitmq.message.properties import KEYS, MSG_REGION, TAGS, TRACE_ON, decode_properties

_log = logging.getLogger(__name__)

WAITING_MAX = 1024  # records; RocketMQ's number
BODY_FROM = 118_000  # bytes from which a batch goes: the message may have 128,000
AGE_MAX_S = 0.5
SENDS_MAX = 20  # batches in flight; RocketMQ has as many threads for them
CLOSE_S = 5.0  # for the last batch; its send has a limit of its own
DEFAULT_REGION = "DefaultRegion"
FAILED = frozenset(
    {
        ConsumeConcurrentlyStatus.RECONSUME_LATER,
        ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT,
        ConsumeOrderlyStatus.ROLLBACK,
    }
)

RULES = RetryRules(3, 5000)  # attempts and milliseconds, as RocketMQ's trace producer
PACKING = Packing(size_max=128_000)

_numbers = count(1)  # trace producers of this process

Send = Callable[[Message], "asyncio.Future[SendResult]"]


def trace_dispatcher(instance: Instance, group: str, what: str, topic: str) -> TraceDispatcher:
    """A dispatcher that uses the connections of `instance`; `what` is PRODUCE or CONSUME. With the access channel CLOUD
    the topic is that of the region.
    """
    inner = f"_INNER_TRACE_PRODUCER-{group}-{what}-{next(_numbers)}"
    sender = MessageSender(instance, inner, QueueChooser(instance.chance))

    def send(message: Message) -> asyncio.Future[SendResult]:
        packed = outgoing(message, lambda: instance.unique_ids.create(instance.clock.now_ms()), PACKING)
        return asyncio.get_running_loop().create_task(sender.send(packed, RULES))

    return TraceDispatcher(topic, send, instance.settings["access_channel"])


@dataclass(slots=True)
class _Batch:
    """Records of one topic that wait to be sent in one message."""

    texts: list[str] = field(default_factory=list)
    keys: dict[str, None] = field(default_factory=dict)
    size: int = 0
    timer: asyncio.TimerHandle | None = None


class TraceDispatcher:
    """Sends records to the trace topic. For the event loop's thread; `add` is thread-safe."""

    def __init__(self, topic: str, send: Send, channel: str = LOCAL) -> None:
        self._channel = channel
        self._topic = CLOUD_TOPIC_PREFIX if channel == CLOUD else topic
        self._send = send
        self._loop = asyncio.get_running_loop()
        self._batches: dict[str, _Batch] = {}
        self._waiting = 0
        self._under_way: set[asyncio.Future[SendResult]] = set()
        self.dropped = 0
        """The number of records that were dropped, since the queue was full or the batch could not be sent."""

    def is_own(self, topic: str) -> bool:
        """Whether messages of this topic are traces, which are not traced themselves."""
        return topic.startswith(self._topic)

    def add(self, records: Iterable[Record], keys: Iterable[str], region: str = DEFAULT_REGION) -> None:
        """Queue records to be sent; `keys` index them: message ids and the keys of the messages."""
        texts, found = [encode_record(record, self._channel) for record in records], list(keys)
        topic = self._topic + region if self._channel == CLOUD else self._topic
        self._loop.call_soon_threadsafe(self._add, topic, texts, found)

    def _add(self, topic: str, texts: list[str], keys: list[str]) -> None:
        if self._waiting >= WAITING_MAX or len(self._under_way) >= SENDS_MAX:
            self._drop(len(texts))
            return
        batch = self._batches.setdefault(topic, _Batch())
        batch.texts += texts
        self._waiting += len(texts)
        batch.keys.update(dict.fromkeys(keys))
        batch.size += sum(map(len, texts))
        if batch.size >= BODY_FROM:
            self._flush(topic)
        elif batch.timer is None:
            batch.timer = self._loop.call_later(AGE_MAX_S, self._flush, topic)

    def _drop(self, number: int) -> None:
        if not self.dropped:
            _log.warning("event=traces_dropped topic=%s", self._topic)
        self.dropped += number

    def _flush(self, topic: str) -> None:
        batch = self._batches.pop(topic)
        if batch.timer is not None:
            batch.timer.cancel()
        number, body = len(batch.texts), "".join(batch.texts).encode()
        self._waiting -= number
        try:
            sent = self._send(Message(topic, body, keys=list(batch.keys)))
        except OrbitMQError as error:
            _log.debug("event=traces_not_sent error=%s", error)
            self._drop(number)
            return
        self._under_way.add(sent)
        sent.add_done_callback(lambda future: self._sent(future, number))

    def _sent(self, future: asyncio.Future[SendResult], number: int) -> None:
        self._under_way.discard(future)
        if future.cancelled() or future.exception() is not None:
            self._drop(number)

    async def close(self) -> None:
        """Send the queued records, within a limit."""
        await asyncio.sleep(0)  # records of other threads are already on their way to the loop
        for topic in list(self._batches):
            self._flush(topic)
        if self._under_way:
            await asyncio.wait(set(self._under_way), timeout=CLOSE_S)


class SendTraceHook:
    """Creates a record for every message that a producer has stored."""

    def __init__(self, traces: TraceDispatcher) -> None:
        self._traces = traces

    def before(self, context: SendContext) -> None:
        """Nothing is known yet."""

    def after(self, context: SendContext) -> None:
        """As in RocketMQ, a message that was not stored is not traced."""
        result, message = context.result, context.message
        if result is None or not result.trace_on or self._traces.is_own(message.topic):
            return
        properties = {} if message.batch else decode_properties(message.properties)
        keys = properties.get(KEYS, "")
        record = Published(
            context.began_ms, result.region_id, unwrapped(context.group), unwrapped(message.topic), message.msg_id,
            properties.get(TAGS), properties.get(KEYS), context.broker_address, len(message.body), context.cost_ms,
            int(context.kind), result.offset_msg_id, result.status is SendStatus.SEND_OK,
        )  # fmt: skip
        self._traces.add([record], [*message.msg_id.split(","), *keys.split()], result.region_id)


class ConsumeTraceHook:
    """Creates two records for every message passed to a listener."""

    def __init__(self, traces: TraceDispatcher, new_id: Callable[[], str]) -> None:
        self._traces = traces
        self._new_id = new_id
        self._requests: dict[int, str] = {}  # of running calls: context -> request id

    def before(self, context: ConsumeContext) -> None:
        traced = self._traced(context)
        if not traced:
            return
        request = self._requests[id(context)] = self._new_id()
        self._traces.add(
            [
                ConsumeBegun(
                    context.began_ms, message.properties.get(MSG_REGION, DEFAULT_REGION), unwrapped(context.group),
                    request, message.msg_id, message.reconsume_times, message.keys,
                )
                for message in traced
            ],
            _keys(traced),
            _region(traced),
        )  # fmt: skip

    def after(self, context: ConsumeContext) -> None:
        request = self._requests.pop(id(context), None)
        if request is None:
            return
        traced = self._traced(context)
        outcome = _outcome(context)
        cost_ms = context.cost_ms // len(context.messages)
        self._traces.add(
            [
                ConsumeEnded(
                    request, message.msg_id, cost_ms, outcome is Outcome.SUCCESS, message.keys, int(outcome),
                    context.began_ms + context.cost_ms, unwrapped(context.group),
                )
                for message in traced
            ],
            _keys(traced),
            _region(traced),
        )  # fmt: skip

    def _traced(self, context: ConsumeContext) -> list[MessageExt]:
        return [
            message
            for message in context.messages
            if not self._traces.is_own(message.topic) and message.properties.get(TRACE_ON) != "false"
        ]


def _region(messages: Sequence[MessageExt]) -> str:
    return messages[0].properties.get(MSG_REGION, DEFAULT_REGION)


def _keys(messages: Iterable[MessageExt]) -> list[str]:
    return [key for message in messages for key in (message.msg_id, *(message.keys or "").split())]


def _outcome(context: ConsumeContext) -> Outcome:
    if context.error is not None:
        return Outcome.EXCEPTION
    if context.status is None:
        return Outcome.RETURNED_NOTHING
    return Outcome.FAILED if context.status in FAILED else Outcome.SUCCESS
