"""The push consumer for asyncio: pulls in the background and delivers to a listener, concurrently or in order."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TypeVar, Unpack

from orbitmq.client.background import Background, one_round
from orbitmq.client.concurrent_delivery import ConcurrentDelivery
from orbitmq.client.consumer import REBALANCE_AGAIN_S, HeldQueue
from orbitmq.client.consumer_stats import ConsumerStats
from orbitmq.client.core.allocation import AllocateStrategy
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.consume import RECONSUME_TIMES_MAX, as_the_listener_sees
from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyContext,
    PullResult,
    PullStatus,
)
from orbitmq.client.core.orderly import RECONSUME_TIMES_MAX as RECONSUME_IN_ORDER_MAX
from orbitmq.client.core.process_queue import NOTHING, ProcessQueue
from orbitmq.client.core.selectors import Selector
from orbitmq.client.instance import Instance
from orbitmq.client.listener_hooks import with_hooks
from orbitmq.client.loops import check_loop
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.orderly_delivery import OrderlyDelivery
from orbitmq.client.puller import Puller
from orbitmq.client.queue_locks import LOCK_AGAIN_S, RENEW_S, OwnedQueues
from orbitmq.client.reading_consumer import HOLD_LOOK_S, ReadingConsumer
from orbitmq.client.reports import error_text, queue_info
from orbitmq.client.retry_sender import RetrySender
from orbitmq.client.settings import PushSettings, complete
from orbitmq.client.stacks import stacks as all_stacks
from orbitmq.client.trace_dispatcher import ConsumeTraceHook, TraceDispatcher, trace_dispatcher
from orbitmq.client.workers import Listener, ListenerCall, ListenerWorkers, OrderlyListener, workers_for
from orbitmq.errors import ClientError, InvalidStateError, OrbitMQError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.expiry import split_expired
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.properties import CONSUME_START_TIME
from orbitmq.message.topics import retry_topic
from orbitmq.runtime.rates import SAMPLE_SECONDS
from orbitmq.wire.bodies import (
    LAST_ERROR,
    LAST_ERROR_AT,
    SUSPENDED,
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

OVERTAKEN_MS = 1000  # since a pull was sent; no broker that works takes so long to begin with it
OVERTAKING_S = 0.1
SUSPEND_MS = 15_000  # how long a broker may hold a pull; half of the pull's time limit
PULL_TIMEOUT_MS = 30_000
ANY_SPAN = 2**31 - 1  # an orderly listener stops at an unconsumed message anyway

RESULTS = {
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: ConsumeResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: ConsumeResult.CR_LATER,
    ConsumeOrderlyStatus.SUCCESS: ConsumeResult.CR_SUCCESS,
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: ConsumeResult.CR_LATER,
    ConsumeOrderlyStatus.COMMIT: ConsumeResult.CR_COMMIT,
    ConsumeOrderlyStatus.ROLLBACK: ConsumeResult.CR_ROLLBACK,
    None: ConsumeResult.CR_RETURN_NULL,
}
"""What a listener returns, in the terms of the response to an operator."""

L = TypeVar("L", bound=Listener)
IN_ORDER = TypeVar("IN_ORDER", bound=OrderlyListener)


class PushConsumer(ReadingConsumer):
    """Consumes messages with a listener, several at a time.

        consumer = PushConsumer("group", "127.0.0.1:9876")
        consumer.subscribe("topic", "TagA || TagB")

        @consumer.on_message
        async def handle(messages, context):
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        async with consumer:
            ...

    The listener is a coroutine function, or a function that is called on `consume_threads` threads. It is called with
    up to `consume_batch_max_size` messages and returns CONSUME_SUCCESS or RECONSUME_LATER; an exception or None counts
    as RECONSUME_LATER. Delivery is at least once.

    With CLUSTERING the members of the group share the queues, the brokers keep the offsets, and failed messages are
    delivered again after a delay (10 s at first, then longer each time), up to `max_reconsume_times`. An `orderly`
    listener gets the messages of each queue in order, and none after a message that failed. With BROADCASTING every
    consumer gets every message, offsets are kept in a local file, and failed messages are dropped.

    `consume_from_where` sets where a group without offsets starts; `consume_timestamp` is the time for
    CONSUME_FROM_TIMESTAMP (a datetime, or `yyyyMMddHHmmss` in local time; default half an hour ago). Further keywords
    are `PushSettings`.
    """

    _consume_type = ConsumeType.CONSUME_PASSIVELY
    _settings_kind = PushSettings

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
        **settings: Unpack[PushSettings],
    ) -> None:
        self._settings = complete(PushSettings, settings)
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
        self._listener: Listener | OrderlyListener | None = None
        self._is_orderly = False
        self._concurrent: ConcurrentDelivery | None = None
        self._orderly: OrderlyDelivery | None = None
        self._locks: OwnedQueues | None = None
        self._given_up: dict[HeldQueue, asyncio.Task[None]] = {}
        """Queues whose listener must return before another member may get them, and the task that waits for it."""
        self._stats = ConsumerStats(self._clock)
        self._last_failure: dict[str, str] = {}
        """Why and when the listener failed last, for operators."""
        self._own_thresholds = self._thresholds
        self._paused = False
        self._puller: Puller | None = None
        self._workers: ListenerWorkers | None = None
        self._retry_sender: RetrySender | None = None
        self._traces: TraceDispatcher | None = None
        self._retries = Background(f"{self._name()}, sending back")
        times = self._settings["max_reconsume_times"]
        self._times_max = times

    # ------------------------------------------------------------------------------------------------------ interface

    @checks_arguments
    def subscribe(self, topic: str, expression: Selector = "*") -> None:
        """Consume the messages of `topic` that match `expression`: tags such as `TagA || TagB`, `*` for all, or a
        `MessageSelector.sql`. Before or after start; start raises BrokerError when a broker rejects the SQL.

        All members of a group must have the same subscriptions; a broker knows one per group.
        """
        self._subscribe(topic, expression)

    @checks_arguments
    def unsubscribe(self, topic: str) -> None:
        """Give up the queues of `topic`."""
        self._unsubscribe(topic)

    @checks_arguments
    def set_listener(self, listener: Listener | OrderlyListener, *, orderly: bool = False) -> None:
        """Set the listener; only before start, InvalidStateError afterwards.

        With `orderly` the listener gets an `OrderlyContext`, returns a `ConsumeOrderlyStatus`, and is called for one
        batch of a queue after another. A message that fails is delivered again, after `suspend_current_queue_ms` and
        before any that follow it, up to `max_reconsume_times` times, by default forever.
        """
        if self._workers is not None:
            raise InvalidStateError(f"{self._name()} has been started; set the listener before start")
        self._listener, self._is_orderly = listener, orderly

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
        """Whether pulling is suspended; cached messages are still consumed."""
        return self._paused

    def suspend(self) -> None:
        """Stop pulling until `resume`. This consumer keeps its queues."""
        self._paused = True

    def resume(self) -> None:
        """Pull again."""
        check_loop(self._name(), self._loop)
        self._paused = False
        for held in self._held.values():
            held.cached.last_consume_ms = self._clock.now_ms()  # the listener was not slow, pulling was suspended
            held.room.set()

    @checks_arguments
    def set_consume_threads(self, count: int) -> None:
        """Set the number of concurrent calls of the listener, 1 to 1000; running calls are not stopped.
        ConfigurationError for other numbers, InvalidStateError unless the consumer is running.
        """
        self._check_running()
        changed: PushSettings = {"consume_threads": count}
        self._running_workers.resize(complete(PushSettings, changed)["consume_threads"])

    @checks_arguments
    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """`fetch_queues` under its name in Java's push consumer."""
        return await self.fetch_queues(topic)

    @checks_arguments
    async def reset_offset_by_timestamp(self, timestamp_ms: int) -> None:
        """Continue, in every queue of this consumer, at the first message stored at or after `timestamp_ms`
        (milliseconds since the epoch). Messages pulled before are delivered again or skipped; other members are not
        affected. BrokerError, ClientError, RemotingError when an offset cannot be determined: then nothing changes.
        """
        self._check_running()
        found: defaultdict[str, dict[MessageQueue, int]] = defaultdict(dict)
        for queue in list(self._held):
            found[queue.topic][queue] = await self.search_offset(queue, timestamp_ms)
        for topic, offsets in found.items():
            await self._move(topic, offsets)

    @checks_arguments
    async def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None
    ) -> None:
        """Send `message` back for retry by this group: after the delay of `delay_level`, at level 0 after a delay that
        grows with its failures, at level -1 never (it goes to the dead letter topic). It is sent to the broker it came
        from, or to `broker_name`. BrokerError, ClientError, RemotingError when neither the broker nor the retry topic
        accepts it.
        """
        self._check_running()
        await self._running_retry_sender.send_back(message, delay_level, broker_name)

    # -------------------------------------------------------------------------------------------------- for operators

    def move(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Continue at these offsets in the queues of this consumer; messages pulled before are ignored."""
        if self.is_running:
            self._background.spawn(self._move(topic, offsets))

    async def _move(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._rebalancing:
            moved = [queue for queue in self._held if queue.topic == topic and queue in offsets]
            for queue in moved:
                self._held[queue].drop()  # at once: a listener that returns meanwhile must not raise the offset
                self._offsets.table.set(queue, offsets[queue])
            await self._release(moved)
        self.wake_rebalance()

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """The state of this consumer, for an operator."""
        return ConsumerRunningInfo(
            jstack=all_stacks() if stacks else None,
            mq_table={
                queue: queue_info(held.cached, self._offsets.table.read(queue), is_locked=self._is_locked(queue))
                for queue, held in sorted(self._held.items())
            },
            properties=self._properties(workers=self._running_workers.count, is_orderly=self._is_orderly),
            status_table=self._stats.table(),
            subscription_set=list(self._subscriptions.values()),
        )

    def _is_locked(self, queue: MessageQueue) -> bool:
        return self._is_orderly and (self._locks is None or self._locks.owns(queue))

    def _condition(self) -> dict[str, str]:
        return self._last_failure | ({SUSPENDED: "true"} if self._paused else {})

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Call the listener with a message now. No offset changes; a failed message is not delivered again, and one
        that is rejected becomes no dead letter: the result says why.
        """
        queue = self._namespace.unwrap_queue(message.queue)
        context = OrderlyContext(queue) if self._is_orderly else ConcurrentContext(queue)
        call = ListenerCall(HeldQueue(message.queue), ProcessQueue(), [message], context)
        started_ms = self._clock.now_ms()
        await self._running_workers.call(call)
        if call.expired:
            expired = "the message has expired, so the listener was not called"
            return ConsumeDirectlyResult(consume_result=ConsumeResult.CR_SUCCESS, remark=expired)
        result: ConsumeResult = RESULTS[call.status]
        remark: str | None = None
        if call.error is not None:
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, repr(call.error)
        reasons = [one.reason for one in context.rejections if one.message is message]
        if reasons:  # the protocol has no result for that; this one is never a success
            result, remark = ConsumeResult.CR_THROW_EXCEPTION, f"the listener rejects the message: {reasons[0]}"
        spent_ms = self._clock.now_ms() - started_ms
        return ConsumeDirectlyResult(consume_result=result, remark=remark, spent_time_ms=spent_ms)

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def _begin(self, instance: Instance) -> None:
        if self._listener is None:
            raise ClientError(ResponseCode.MESSAGE_ILLEGAL, f"{self._name()} has no listener; set one before start")
        if not self._subscriptions:
            _log.warning(
                "event=nothing_subscribed group=%s; no messages are delivered until you subscribe to a topic",
                self.group,
            )
        if self._message_model is MessageModel.CLUSTERING:
            self._subscribe(retry_topic(self.group), "*")
        flags = PULL_SUSPEND | (PULL_SUBSCRIPTION if self._settings["post_subscription_when_pull"] else 0)
        self._puller = self._puller_of(instance, flags=flags, suspend_ms=SUSPEND_MS, timeout_ms=PULL_TIMEOUT_MS)
        usual_max = RECONSUME_IN_ORDER_MAX if self._is_orderly else RECONSUME_TIMES_MAX
        times_max = usual_max if self._times_max < 0 else self._times_max
        self._retry_sender = RetrySender(instance, self.group, times_max, namespace=self._namespace)
        if self._settings["enable_trace"]:
            self._traces = trace_dispatcher(instance, self.group, "CONSUME", self._settings["trace_topic"])
            ids = instance.unique_ids
            self._hooks.append(ConsumeTraceHook(self._traces, lambda: ids.create(self._clock.now_ms())))
        listener = with_hooks(self._listener, self._hooks, self.group, self._clock) if self._hooks else self._listener
        self._workers = workers_for(
            listener, self._settings["consume_threads"], self.group, self._prepare, self._finished
        )
        if self._is_orderly:
            self._own_thresholds = self._thresholds = replace(self._own_thresholds, span=ANY_SPAN)
            if self._message_model is MessageModel.CLUSTERING:
                self._locks = OwnedQueues(instance, self.group)
                self._background.spawn(self._renew_locks(self._locks))
        self._make_delivery(self._workers, self._retry_sender, self._ensure_store(instance))
        await self._begin_consuming(instance)
        if not self._is_orderly:
            timeout_ms = self._settings["consume_timeout_min"] * 60_000
            overdue = self._concurrent_delivery.give_up_overdue(self._name(), self._held.values, timeout_ms)
            self._background.spawn(overdue)
        self._background.spawn(self._sample_regularly())

    def _make_delivery(self, workers: ListenerWorkers, retry_sender: RetrySender, store: OffsetStore) -> None:
        batch_size = self._settings["consume_batch_max_size"]
        if self._is_orderly:
            self._orderly = OrderlyDelivery(
                workers.submit, self._retries.spawn, store, retry_sender, self._locks, self._clock,
                batch_size=batch_size,
                suspend_ms=self._settings["suspend_current_queue_ms"],
                reconsume_times_max=RECONSUME_IN_ORDER_MAX if self._times_max < 0 else self._times_max,
                count=self._count,
                namespace=self._namespace,
            )  # fmt: skip
            return
        self._concurrent = ConcurrentDelivery(
            workers.submit, self._retries.spawn, store, retry_sender, self._clock,
            group=self.group,
            drops_failed=self._message_model is MessageModel.BROADCASTING,
            batch_size=batch_size,
            count=self._count,
            namespace=self._namespace,
        )  # fmt: skip

    async def _end(self, instance: Instance) -> None:
        self._running_workers.dismiss()
        await self._end_services()
        grace_s = self._settings["await_termination_ms"] / 1000
        await self._running_workers.close(grace_s)
        await self._retries.finish(grace_s, but=self._waits_for_us())
        if self._traces is not None:
            await self._traces.close()
        await self._end_consuming(instance)

    async def _leave(self, instance: Instance) -> None:
        if self._workers is not None:  # a start that failed must leave no threads
            self._workers.dismiss()
        for held in self._held.values():
            held.drop()
        await self._retries.stop()
        await super()._leave(instance)

    async def _abandon(self, instance: Instance) -> None:
        self._running_workers.dismiss()
        await super()._abandon(instance)

    def _waits_for_us(self) -> list[asyncio.Task[None]]:
        """The tasks that wait for the queue of a listener that is itself shutting this consumer down."""
        own = self._running_workers.own_call()
        return [task for held, task in self._given_up.items() if own is not None and held is own.held]

    async def _hand_over(self) -> None:
        await self._outlast_pulls()
        if self._locks is not None:  # a queue whose listener is still running stays locked until the lock expires
            at_work = [held.queue for held in (*self._held.values(), *self._given_up) if not held.idle.is_set()]
            await self._locks.unlock_all(but=at_work)

    async def _outlast_pulls(self) -> None:
        """RocketMQ's brokers handle pulls and commits in different threads: a pull that was sent shortly before the
        last commit may take effect after it, and set the offset back. So it is committed once more.
        """
        since_ms = self._clock.now_ms() - OVERTAKEN_MS
        recent = [held for held in self._held.values() if held.cached.last_pull_ms > since_ms and held.carried]
        behind = [held.queue for held in recent if held.carried < self._offsets.table.read(held.queue)]
        if behind:
            await asyncio.sleep(OVERTAKING_S)
            await self._confirm(behind)

    @property
    def _running_retry_sender(self) -> RetrySender:
        assert self._retry_sender is not None, "start makes it"
        return self._retry_sender

    @property
    def _concurrent_delivery(self) -> ConcurrentDelivery:
        assert self._concurrent is not None, "start makes it unless the listener is orderly"
        return self._concurrent

    @property
    def _orderly_delivery(self) -> OrderlyDelivery:
        assert self._orderly is not None, "start makes it for an orderly listener"
        return self._orderly

    @property
    def _running_workers(self) -> ListenerWorkers:
        assert self._workers is not None, "start makes the workers"
        return self._workers

    # -------------------------------------------------------------------------------------------------------- pulling

    async def _read(self, held: HeldQueue) -> None:
        offset = await self._start_offset(held)
        while not held.cached.dropped:
            held.cached.last_pull_ms = self._clock.now_ms()
            subscription = self._subscriptions.get(held.queue.topic)
            if subscription is None or self._paused or self._thresholds.hold(held.cached):
                await held.wait_for_room(HOLD_LOOK_S)
                continue
            try:
                result = await self._pull(held, offset, subscription)
            except OrbitMQError as error:
                await asyncio.sleep(self._pause_after(error, held.queue))
                continue
            requested, offset = offset, result.next_begin_offset
            if result.status is PullStatus.OFFSET_ILLEGAL:
                offset = await self._moved(held, requested, offset)
            self._take_in(held, result, offset)
            if self._confirms_offsets:
                await self._finish(held)
            if self._settings["pull_interval_ms"]:
                await asyncio.sleep(self._settings["pull_interval_ms"] / 1000)

    async def _finish(self, held: HeldQueue) -> None:
        """Return when what was pulled is consumed and the broker has confirmed the offset."""
        while len(held.cached) or not held.idle.is_set():
            await held.wait_for_room(HOLD_LOOK_S)
        while (at := self._offsets.table.read(held.queue)) > held.confirmed:
            try:
                await self._offsets.commit([held.queue])
                held.confirmed = at
            except Exception as error:  # the store may be the application's
                _log.warning("event=offset_not_confirmed group=%s queue=%s error=%r", self.group, held.queue, error)
                await asyncio.sleep(self._settings["pull_error_delay_ms"] / 1000)

    async def _pull(self, held: HeldQueue, offset: int, subscription: SubscriptionData) -> PullResult:
        assert self._puller is not None, "start makes the puller"
        table = self._offsets.table
        # What was only read belongs to the member before, which may have committed more since.
        commits = self._message_model is MessageModel.CLUSTERING and table.is_own(held.queue)
        commit = held.carried = table.read(held.queue) if commits else 0
        return await self._puller.pull(held.queue, offset, self._settings["pull_batch_size"], subscription, commit)

    def _take_in(self, held: HeldQueue, result: PullResult, next_offset: int) -> None:
        """Cache and deliver what was pulled; the next pull begins at `next_offset`."""
        if result.messages:
            pull_ms = self._clock.now_ms() - held.cached.last_pull_ms
            self._stats.pulled(held.queue.topic, len(result.messages), pull_ms)
            held.cached.put(result.messages, result.max_offset)
            if self._is_orderly:
                held.arrived.set()
                return
            self._concurrent_delivery.deliver(held, result.messages)
        elif not held.cached.count:  # messages that an orderly listener is processing count, too
            self._offsets.table.raise_to(held.queue, next_offset)

    async def _moved(self, held: HeldQueue, requested: int, offset: int) -> int:
        """The broker has no message at `requested` and redirects the reader to `offset`. Return where to continue.

        Forward: messages have expired; what was pulled before still counts. Back: the broker's log ends before what was
        pulled, so those messages and the results of their listeners are ignored, and the log is read from there.
        """
        if offset < requested:
            offset = held.cached.position_before(offset)
            held.cached.dropped = True
            held.cached = ProcessQueue()
            held.cached.last_consume_ms = self._clock.now_ms()
            self._offsets.table.set(held.queue, offset)
            held.confirmed = NOTHING
            await self._offsets.persist([held.queue])
        text = "event=offset_illegal group=%s queue=%s requested=%d goes_on_at=%d"
        _log.warning(text, self.group, held.queue, requested, offset)
        return offset

    def _assignment_changed(self) -> None:
        self._thresholds = self._own_thresholds.shared(
            self._settings["pull_threshold_for_topic"],
            self._settings["pull_threshold_size_for_topic"],
            len(self._held),
        )

    # ------------------------------------------------------------------------------------------------------- in order

    async def _free(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """For an orderly listener only locked queues: the member that had a queue may still be processing it."""
        if self._locks is None:
            return queues
        await self._locks.lock(queues)
        owned = [queue for queue in queues if self._locks.owns(queue)]
        if len(owned) < len(queues):
            asyncio.get_running_loop().call_later(REBALANCE_AGAIN_S, self.wake_rebalance)
        return owned

    def _hold(self, queue: MessageQueue) -> None:
        super()._hold(queue)
        held = self._held[queue]
        held.cached.last_consume_ms = self._clock.now_ms()  # as in RocketMQ: a new queue has not stopped yet
        held.idle.set()
        if self._is_orderly:
            before = [one for one in self._given_up if one.queue == queue]
            self._background.spawn(self._orderly_delivery.serve(held, before))

    async def _release(self, queues: Collection[MessageQueue]) -> None:
        released = [self._held[queue] for queue in queues]
        await super()._release(queues)
        if self._is_orderly:
            for held in released:
                self._given_up[held] = self._retries.spawn(self._let_go(held))

    async def _let_go(self, held: HeldQueue) -> None:
        """Unlock the queue for another member when the listener has returned; order requires that."""
        await held.idle.wait()
        del self._given_up[held]
        if self._locks is not None and held.queue not in self._held:
            await self._locks.unlock([held.queue])

    async def _renew_locks(self, locks: OwnedQueues) -> None:
        while True:
            every = all(locks.owns(queue) for queue in self._held)
            await asyncio.sleep(RENEW_S if every else LOCK_AGAIN_S)
            with one_round(self._name(), "locks"):
                await self._renew(locks)

    async def _renew(self, locks: OwnedQueues) -> None:
        lost = await locks.lock(self._held)
        async with self._rebalancing:
            lost &= set(self._held)
            if lost:
                _log.warning("event=locks_lost group=%s queues=%s", self.group, sorted(lost))
                await self._release(lost)
                self.wake_rebalance()

    # ------------------------------------------------------------------------------------------------------ consuming

    def _prepare(self, call: ListenerCall) -> None:
        """Called where the listener runs, right before it."""
        now_ms = self._clock.now_ms()
        now = str(now_ms)
        for message in call.messages:
            seen = as_the_listener_sees(message, self.group, self._namespace)
            seen.properties[CONSUME_START_TIME] = now
        call.messages, call.expired = split_expired(call.messages, now_ms)

    def _finished(self, call: ListenerCall) -> None:
        """The listener has returned, or was not called."""
        if call.expired:
            self._expired.skipped(call.expired)
        if call.ended is not None:
            call.held.idle.set()
            call.cached.last_consume_ms = self._clock.now_ms()
            call.ended.set()
            return
        if call.skipped or call.cached.dropped:
            return
        call.cached.last_consume_ms = self._clock.now_ms()
        self._concurrent_delivery.finished(call)

    def _count(self, call: ListenerCall, failed: int) -> None:
        now_ms = call.cached.last_consume_ms
        begun_ms = int(call.messages[0].properties.get(CONSUME_START_TIME, now_ms))
        self._stats.consumed(call.held.queue.topic, len(call.messages), failed, now_ms - begun_ms)
        if failed:
            self._last_failure = {LAST_ERROR: error_text(call.error), LAST_ERROR_AT: str(now_ms)}

    async def _sample_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self._stats.sample()
