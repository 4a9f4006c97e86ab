"""The pull consumer for asyncio: messages are fetched ahead and given out when the application asks."""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections import deque
from collections.abc import AsyncIterator, Collection, Iterable, Mapping
from dataclasses import dataclass
from datetime import datetime
from types import TracebackType
from typing import Unpack

from orbitmq.client.consumer import HeldQueue
from orbitmq.client.core.allocation import AllocateStrategy
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.model import PullResult, PullStatus
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.core.selectors import Selector, subscription_of
from orbitmq.client.instance import Instance
from orbitmq.client.loops import check_loop
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.puller import Puller
from orbitmq.client.queue_listeners import OnTopicQueues, QueueListener
from orbitmq.client.reading_consumer import HOLD_LOOK_S, ReadingConsumer
from orbitmq.client.reports import paused_text
from orbitmq.client.settings import LitePullSettings, complete
from orbitmq.client.trace_dispatcher import ConsumeTraceHook, TraceDispatcher, trace_dispatcher
from orbitmq.errors import ClientError, ConfigurationError, InvalidStateError, OrbitMQError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.expiry import split_expired
from orbitmq.message.flags import PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import check_topic
from orbitmq.wire.bodies import (
    SUSPENDED,
    ConsumeFromWhere,
    ConsumeType,
    MessageModel,
)
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)


@dataclass(eq=False, slots=True)
class Batch:
    """The messages of one pull, waiting for `poll`."""

    held: HeldQueue
    cached: ProcessQueue
    messages: list[MessageExt]
    is_begun: bool = False
    """Whether some of them have been returned."""


@dataclass(eq=False, slots=True)
class PollResult:
    """What `poll` returned."""

    batch: Batch
    messages: list[MessageExt]
    was_begun: bool
    """`is_begun` of the batch before."""


class LitePullConsumer(ReadingConsumer):
    """Consumes messages by polling.

        async with LitePullConsumer("group", "127.0.0.1:9876") as consumer:
            consumer.subscribe("topic")
            for message in await consumer.poll(timeout=5.0):
                ...
            await consumer.commit(wait=True)

    Either call `subscribe`: the members of the group share the queues of the topics; or `assign`: this consumer reads
    the queues that you name and shares nothing. Without `auto_commit` only `commit` commits offsets. With it, `poll`
    regularly commits what earlier calls returned, so finish a batch before the next `poll`. What the last call returned
    is committed when `async with` ends without an exception. When it ends by an exception or a cancellation, and by a
    plain `shutdown`, which cannot know how far the program is, those messages are delivered again.

    `consume_from_where` sets where a group without offsets starts, as for `PushConsumer`. Further keywords are
    `LitePullSettings`.
    """

    _consume_type = ConsumeType.CONSUME_ACTIVELY
    _settings_kind = LitePullSettings
    _stream = True

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        message_model: MessageModel = MessageModel.CLUSTERING,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        consume_timestamp: datetime | str | None = None,
        allocate_strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        **settings: Unpack[LitePullSettings],
    ) -> None:
        self._settings = complete(LitePullSettings, settings)
        super().__init__(
            group,
            namesrv_addr,
            self._settings,
            message_model=message_model,
            consume_from_where=consume_from_where,
            consume_timestamp=consume_timestamp,
            allocate_strategy=allocate_strategy,
            offset_store=offset_store,
        )
        self.auto_commit = self._settings["auto_commit"]
        self._assigned_queues: frozenset[MessageQueue] | None = None
        self._expressions: dict[str, SubscriptionData] = {}
        self._paused: set[MessageQueue] = set()
        self._sought: dict[MessageQueue, int] = {}
        self._consumed: dict[MessageQueue, int] = {}
        """Queue -> the offset after what poll returned, until it is committed."""
        self._given: PollResult | None = None
        """The result of the last poll, until the next one or until it is committed."""
        self._unconfirmed: set[MessageQueue] = set()
        """With `offset_commit="sync"`: committed by poll and not confirmed by the broker yet."""
        self._batches: deque[Batch] = deque()
        self._arrived = asyncio.Event()
        self._cached_count = 0
        self._commit_due_ms = 0
        self._traces: TraceDispatcher | None = None
        self._puller: Puller | None = None

    # ------------------------------------------------------------------------------------------------ what to read

    @checks_arguments
    def subscribe(self, topic: str, expression: Selector = "*", listener: QueueListener | None = None) -> None:
        """Share the queues of `topic` with the group; `expression` as for a push consumer. Before or after start.

        `listener(topic, queues, own)` is called for every change of the assignment, under the rules of `on_assigned`.
        InvalidStateError after `assign`.
        """
        if self._assigned_queues is not None:
            raise InvalidStateError(f"{self._name()} has assigned queues; it cannot subscribe as well")
        self._listen_to_queues(topic, listener)
        self._subscribe(topic, expression)

    @checks_arguments
    def unsubscribe(self, topic: str) -> None:
        """Give up the queues of `topic`."""
        self._unsubscribe(topic)

    @checks_arguments
    def assign(self, queues: Iterable[MessageQueue]) -> None:
        """Read these queues and no others. Before or after start. InvalidStateError after `subscribe`."""
        if self._subscriptions:
            raise InvalidStateError(f"{self._name()} has subscribed; it cannot assign queues as well")
        check_loop(self._name(), self._loop)
        self._assigned_queues = frozenset(map(self._namespace.wrap_queue, queues))
        self.wake_rebalance()

    @checks_arguments
    def set_assign_expression(self, topic: str, expression: Selector) -> None:
        """Filter the assigned queues of `topic` by `expression`. Only before start; InvalidStateError afterwards."""
        check_topic(topic := self._namespace.wrap(topic))
        if self.is_running:
            raise InvalidStateError(f"{self._name()} is running; set the expressions of assigned queues before start")
        self._expressions[topic] = subscription_of(topic, expression)

    @checks_arguments
    def on_queues_changed(self, topic: str, callback: OnTopicQueues) -> None:
        """Call `callback(topic, queues)` with all readable queues of `topic`, subscribed or not, when their set
        changes, after at most `poll_namesrv_interval_ms`. Before or after start; under the rules of `on_assigned`.
        """
        check_loop(self._name(), self._loop)
        check_topic(topic := self._namespace.wrap(topic))
        known = self._shared.routes.subscribed(topic) if self._shared is not None else ()
        self._queue_listeners.follow(topic, callback, known)
        if self._shared is not None:
            self._shared.want_routes()

    # ------------------------------------------------------------------------------------------------------ messages

    @checks_arguments
    async def poll(self, timeout: float | None = None, *, max_messages: int | None = None) -> list[MessageExt]:
        """The messages of one pull, at most `pull_batch_size` of one queue, or the first `max_messages` of them (the
        next call returns the others); empty when none arrived within `timeout` seconds (default `poll_timeout_ms`).

        With `auto_commit` and `offset_commit="sync"` the broker must confirm what earlier calls returned before
        messages of the next pull are returned; while that fails, the result is empty. InvalidStateError unless the
        consumer is running, ConfigurationError for less than one message.
        """
        given = await self._poll(timeout, max_messages)
        return given.messages if given is not None else []

    async def _poll(self, timeout: float | None, max_messages: int | None) -> PollResult | None:
        self._check_running()
        if max_messages is not None and max_messages < 1:
            raise ConfigurationError(f"max_messages {max_messages} is not allowed; use 1 or more")
        loop = asyncio.get_running_loop()
        deadline = loop.time() + (self._settings["poll_timeout_ms"] / 1000 if timeout is None else timeout)
        self._given = None  # a program that polls again has finished the last batch
        is_begun = bool(self._batches) and self._batches[0].is_begun
        if self.auto_commit and not is_begun and not await self._commit_by_itself(deadline):
            return None
        while True:
            while self._batches:
                if (given := self._give_out(self._batches.popleft(), max_messages)) is not None:
                    return given
            self._arrived.clear()
            left_s = deadline - loop.time()
            if left_s <= 0 or not self.is_running:
                return None
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(left_s):
                    await self._arrived.wait()

    async def _commit_by_itself(self, deadline: float) -> bool:
        """Commit what earlier calls returned, if the interval is over. False when that must be confirmed first and was
        not until the deadline (loop time).
        """
        if self._confirms_offsets:
            self._unconfirmed.update(self._to_table(None))
            return not self._unconfirmed or await self._confirm_until(deadline)
        if self._clock.now_ms() >= self._commit_due_ms:
            self._commit_due_ms = self._clock.now_ms() + self._settings["auto_commit_interval_ms"]
            self._to_table(None)
        return True

    async def _confirm_until(self, deadline: float) -> bool:
        """Retry the commit until the brokers confirm it, at least once."""
        loop = asyncio.get_running_loop()
        pause_s = self._settings["pull_error_delay_ms"] / 1000
        while True:
            requested = set(self._unconfirmed)
            try:
                async with asyncio.timeout(self._settings["api_timeout_ms"] / 1000):
                    await self._offsets.commit(requested)
            except Exception as error:  # the store may be the application's
                _log.warning("event=offsets_not_confirmed group=%s error=%r", self.group, error)
            else:
                self._unconfirmed -= requested
                return True
            if loop.time() + pause_s > deadline:
                return False
            await asyncio.sleep(pause_s)

    def _give_out(self, batch: Batch, count_max: int | None) -> PollResult | None:
        """The first messages of the batch; None if nothing of them is to be delivered."""
        messages, was_begun = batch.messages[:count_max], batch.is_begun
        batch.messages = batch.messages[len(messages) :]
        self._cached_count -= len(messages)
        if batch.messages:
            batch.is_begun = True
            self._batches.appendleft(batch)
        else:
            self._make_room()
        if batch.cached.dropped:
            return None
        offset = batch.cached.remove(messages)
        if offset >= 0:  # else a later batch with the same messages was given out before
            self._consumed[batch.held.queue] = offset
        fresh, expired = split_expired(messages, self._clock.now_ms())
        if expired:
            self._expired.skipped(expired)
        if not fresh:
            return None
        self._given = given = PollResult(batch, list(fresh), was_begun)
        return given

    def _take_back(self, given: PollResult | None) -> None:
        """Undo a poll: the next one returns its messages."""
        if given is self._given:
            self._given = None
        if given is None or given.batch.cached.dropped:
            return
        batch = given.batch
        if not batch.messages:
            self._batches.appendleft(batch)
        batch.messages = sorted(given.messages + batch.messages, key=lambda message: message.queue_offset)
        batch.is_begun = given.was_begun
        batch.cached.take_back(given.messages)
        self._cached_count += len(given.messages)
        self._consumed[batch.held.queue] = batch.cached.bounds()[0]
        self._arrived.set()

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        """The messages one by one, until the consumer is shut down. Only those that the loop was given are committed,
        and that at which an exception leaves `async with` is not: the others come with the next loop or `poll`, here or
        at another member.
        """
        return self._each()

    async def _each(self) -> AsyncIterator[MessageExt]:
        while self.is_running:
            for message in await self.poll(max_messages=1):
                yield message

    # ------------------------------------------------------------------------------------------------------- offsets

    @checks_arguments
    async def commit(
        self,
        offsets: Mapping[MessageQueue, int] | None = None,
        *,
        queues: Iterable[MessageQueue] | None = None,
        persist: bool = False,
        wait: bool | None = None,
    ) -> None:
        """Commit what `poll` returned (of all queues, or of `queues`), or the given `offsets`: the next to consume.

        The brokers get them at the next interval; with `persist` they get them now, and with `wait` they get them now
        and have confirmed when this returns. `wait` is True with `offset_commit="sync"` unless it is given.
        BrokerError, ClientError, RemotingError only with `wait`; the commit is repeated at the next interval then.
        """
        self._check_running()
        if offsets is not None:
            given = {self._namespace.wrap_queue(queue): offset for queue, offset in offsets.items()}
            for queue, offset in given.items():
                self._offsets.table.set(queue, offset)
            chosen: Collection[MessageQueue] = given.keys()
        else:
            chosen = self._to_table(None if queues is None else list(map(self._namespace.wrap_queue, queues)))
        if self._confirms_offsets if wait is None else wait:
            await self._offsets.commit(chosen)
        elif persist:
            await self._offsets.persist(chosen)

    def _to_table(self, queues: Iterable[MessageQueue] | None) -> list[MessageQueue]:
        chosen = [queue for queue in (self._consumed if queues is None else queues) if queue in self._consumed]
        if self._given is not None and self._given.batch.held.queue in chosen:
            self._given = None
        for queue in chosen:
            self._offsets.table.set(queue, self._consumed.pop(queue))
        return chosen

    @checks_arguments
    async def committed(self, queue: MessageQueue) -> int:
        """The offset of the group in `queue`, -1 when it has none. BrokerError, ClientError, RemotingError."""
        self._check_running()
        queue = self._namespace.wrap_queue(queue)
        known = self._offsets.table.read(queue)
        return known if known >= 0 else await self._stored_offset(queue)

    @checks_arguments
    async def seek(self, queue: MessageQueue, offset: int) -> None:
        """Let the next `poll` return messages of `queue` from `offset` on; nothing pulled before is returned.

        ClientError when the queue is not assigned or has no such offset.
        """
        first, end = await self.min_offset(queue), await self.max_offset(queue)
        if not first <= offset <= end:
            raise ClientError(ResponseCode.PULL_OFFSET_MOVED, f"{queue} has offsets {first} to {end}, not {offset}")
        self._go_to(queue, offset)

    @checks_arguments
    async def seek_to_begin(self, queue: MessageQueue) -> None:
        """`seek` to the first message that can be read."""
        self._go_to(queue, await self.min_offset(queue))

    @checks_arguments
    async def seek_to_end(self, queue: MessageQueue) -> None:
        """`seek` behind the last message."""
        self._go_to(queue, await self.max_offset(queue))

    @checks_arguments
    async def offset_for_timestamp(self, queue: MessageQueue, timestamp_ms: int) -> int:
        """The same as `search_offset`."""
        return await self.search_offset(queue, timestamp_ms)

    def _go_to(self, queue: MessageQueue, offset: int) -> None:
        queue = self._namespace.wrap_queue(queue)
        held = self._held.get(queue)
        if held is None:
            raise ClientError(ResponseCode.MESSAGE_ILLEGAL, f"{queue} is not assigned to {self._name()}")
        held.drop()
        self._forget_dropped()
        self._sought[queue] = offset
        self._consumed[queue] = offset
        self._hold(queue)

    # --------------------------------------------------------------------------------------------------------- pauses

    @checks_arguments
    def pause(self, queues: Iterable[MessageQueue]) -> None:
        """Stop pulling these queues until `resume`; `poll` still returns what was pulled before."""
        self._paused.update(map(self._namespace.wrap_queue, queues))

    @checks_arguments
    def resume(self, queues: Iterable[MessageQueue]) -> None:
        """Pull these queues again."""
        check_loop(self._name(), self._loop)
        self._paused.difference_update(map(self._namespace.wrap_queue, queues))
        self._make_room()

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def _begin(self, instance: Instance) -> None:
        flags = PULL_LITE | PULL_SUBSCRIPTION | PULL_SUSPEND
        settings = self._settings
        self._puller = self._puller_of(
            instance, flags=flags, suspend_ms=settings["broker_suspend_max_ms"], timeout_ms=settings["pull_timeout_ms"]
        )
        self._commit_due_ms = self._clock.now_ms() + settings["auto_commit_interval_ms"]
        if settings["enable_trace"]:
            self._traces = trace_dispatcher(instance, self.group, "CONSUME", settings["trace_topic"])
            ids = instance.unique_ids
            self._hooks.append(ConsumeTraceHook(self._traces, lambda: ids.create(self._clock.now_ms())))
        await self._begin_consuming(instance)

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None:
            self._given = None  # the program has reached its end and is done with the messages
        else:
            self._take_back(self._given)  # also from a commit when queues are revoked
        await super().__aexit__(kind, error, trace)

    async def _end(self, instance: Instance) -> None:
        await self._end_services()
        if self.auto_commit:
            self._take_back(self._given)
        self._batches.clear()
        self._arrived.set()  # a poll that waits gets nothing any more
        if self.auto_commit:
            self._to_table(None)
        await self._end_consuming(instance)
        if self._traces is not None:
            await self._traces.close()

    def wanted_topics(self) -> Iterable[str]:
        assigned = (queue.topic for queue in self._assigned_queues or ())
        return {*super().wanted_topics(), *assigned, *self._queue_listeners.followed}

    # -------------------------------------------------------------------------------------------------------- pulling

    async def _rebalance(self, instance: Instance) -> None:
        for topic in list(self._queue_listeners.followed):
            await self._queue_listeners.look(topic, instance.routes.subscribed(topic))
        if self._assigned_queues is None:
            await super()._rebalance(instance)
            return
        async with self._rebalancing:
            wanted, reading = self._assigned_queues, self._reading()
            await self._release([queue for queue in self._held if queue not in wanted or queue not in reading])
            added = sorted(queue for queue in wanted if queue not in self._held)
            self._take(added)
            await self._queue_listeners.assigned(added)

    async def _release(self, queues: Collection[MessageQueue]) -> None:
        """Offsets may be committed until the queues are given up; then they belong to another member."""
        self._batches = deque(batch for batch in self._batches if batch.held.queue not in queues)
        await super()._release(queues)
        self._unconfirmed.difference_update(queues)
        for queue in queues:
            self._consumed.pop(queue, None)
            self._sought.pop(queue, None)
        self._forget_dropped()

    def _forget_dropped(self) -> None:
        self._batches = deque(batch for batch in self._batches if not batch.cached.dropped)
        self._cached_count = sum(len(batch.messages) for batch in self._batches)
        self._make_room()

    def _condition(self) -> dict[str, str]:
        return {SUSPENDED: paused_text(self._paused)} if self._paused else {}

    async def _read(self, held: HeldQueue) -> None:
        queue = held.queue
        offset = self._sought.pop(queue, None)
        if offset is None:
            offset = await self._start_offset(held)
        while not held.cached.dropped:
            held.cached.last_pull_ms = self._clock.now_ms()
            full = self._cached_count > self._settings["pull_threshold_for_all"]
            if full or queue in self._paused or self._thresholds.hold(held.cached):
                await held.wait_for_room(HOLD_LOOK_S)
                continue
            try:
                result = await self._pull(queue, offset)
            except OrbitMQError as error:
                await asyncio.sleep(self._pause_after(error, queue))
                continue
            requested, offset = offset, result.next_begin_offset
            if result.status is PullStatus.OFFSET_ILLEGAL:
                offset = self._moved(held, requested, offset)
            self._show_hooks(queue, result.messages)
            self._take_in(held, result)

    async def _pull(self, queue: MessageQueue, offset: int) -> PullResult:
        assert self._puller is not None, "start makes the puller"
        subscription = self._subscriptions.get(queue.topic) or self._expressions.get(queue.topic)
        every = SubscriptionData(queue.topic)
        return await self._puller.pull(queue, offset, self._settings["pull_batch_size"], subscription or every)

    def _take_in(self, held: HeldQueue, result: PullResult) -> None:
        if result.messages:
            held.cached.put(result.messages, result.max_offset)
            self._batches.append(Batch(held, held.cached, result.messages))
            self._cached_count += len(result.messages)
            self._arrived.set()

    def _moved(self, held: HeldQueue, requested: int, offset: int) -> int:
        """The broker has no message at `requested` and redirects the reader to `offset`. Return where to continue.

        Forward: messages have expired; what was pulled before still counts. Back: the broker's log ends before what was
        pulled, so those messages and progress in them are ignored. Messages that no poll has returned, or that one has
        just returned, are delivered again.
        """
        if offset >= requested:
            if not held.cached.count:
                self._consumed[held.queue] = offset
        else:
            offset = held.cached.position_before(offset)
            if self._given is not None and self._given.batch.cached is held.cached:
                offset = min(offset, self._given.messages[0].queue_offset)
            held.cached.dropped = True
            held.cached = ProcessQueue()
            self._forget_dropped()
            self._consumed[held.queue] = offset
            if self._offsets.table.read(held.queue) > offset:
                self._offsets.table.set(held.queue, offset)
        text = "event=offset_illegal group=%s queue=%s requested=%d goes_on_at=%d"
        _log.warning(text, self.group, held.queue, requested, offset)
        return offset

    def _make_room(self) -> None:
        for held in self._held.values():
            held.room.set()


async def poll(consumer: LitePullConsumer, timeout: float | None, max_messages: int | None) -> PollResult | None:
    """For threads: a poll that can be undone."""
    return await consumer._poll(timeout, max_messages)  # noqa: SLF001 - not for applications


def take_back(consumer: LitePullConsumer, given: PollResult | None) -> None:
    """For threads: undo a poll whose caller did not get the messages."""
    consumer._take_back(given)  # noqa: SLF001
