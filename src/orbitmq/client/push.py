"""The push consumer for asyncio: pulls by itself and hands messages to a listener, many at a time or in order."""

from __future__ import annotations

import asyncio
import logging
from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import replace
from datetime import datetime
from typing import TypeAlias, TypeVar, Unpack, cast

from orbitmq.client.background import Background, one_round
from orbitmq.client.consumer import REBALANCE_AGAIN_S, Held
from orbitmq.client.core.allocation import AllocateStrategy
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.consuming import RECONSUME_TIMES_MAX, as_the_listener_sees, chunks, first_failed
from orbitmq.client.core.model import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    OrderlyContext,
    PullResult,
    PullStatus,
)
from orbitmq.client.core.ordering import RECONSUME_TIMES_MAX as RECONSUME_IN_ORDER_MAX
from orbitmq.client.core.process_queue import NOTHING, ProcessQueue
from orbitmq.client.core.selectors import Selector
from orbitmq.client.figures import Figures
from orbitmq.client.hooking import hooked
from orbitmq.client.instance import Instance
from orbitmq.client.loops import check_loop
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.orderly import Orderly
from orbitmq.client.pulling import Puller
from orbitmq.client.queue_locks import LOCK_AGAIN_S, RENEW_S, OwnedQueues
from orbitmq.client.reading import HOLD_LOOK_S, ReadingConsumer
from orbitmq.client.reports import error_text, queue_info
from orbitmq.client.returning import Returning
from orbitmq.client.settings import PushSettings, complete
from orbitmq.client.stacks import stacks as all_stacks
from orbitmq.client.tracing import ConsumeTracing, Traces, traces_of
from orbitmq.client.workers import Listener, OrderlyListener, Portion, Workers, workers_for
from orbitmq.errors import ClientError, InvalidStateError, OrbitMQError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.properties import CONSUME_START_TIME
from orbitmq.message.topics import retry_topic
from orbitmq.runtime.sampling import SAMPLE_SECONDS
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

SUSPEND_MS = 15_000  # how long a broker may hold a pull; half of the pull's own time limit
PULL_TIMEOUT_MS = 30_000
RESUBMIT_S = 5.0  # messages that could not be sent back are tried here again
OVERDUE_DELAY_LEVEL = 3
OVERDUE_COUNT_MAX = 16  # messages of one queue given up in one look
ANY_SPAN = 2**31 - 1  # in order an old message that is not done holds back the others anyway

RESULTS = {
    ConsumeConcurrentlyStatus.CONSUME_SUCCESS: ConsumeResult.CR_SUCCESS,
    ConsumeConcurrentlyStatus.RECONSUME_LATER: ConsumeResult.CR_LATER,
    ConsumeOrderlyStatus.SUCCESS: ConsumeResult.CR_SUCCESS,
    ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT: ConsumeResult.CR_LATER,
    ConsumeOrderlyStatus.COMMIT: ConsumeResult.CR_COMMIT,
    ConsumeOrderlyStatus.ROLLBACK: ConsumeResult.CR_ROLLBACK,
    None: ConsumeResult.CR_RETURN_NULL,
}
"""What a listener says, in the words of an operator's question."""

L = TypeVar("L", bound=Listener)
IN_ORDER = TypeVar("IN_ORDER", bound=OrderlyListener)
_Concurrently: TypeAlias = ConsumeConcurrentlyStatus | None


class PushConsumer(ReadingConsumer):
    """Consumes messages with a listener, several at a time.

        consumer = PushConsumer("group", "127.0.0.1:9876")
        consumer.subscribe("topic", "TagA || TagB")

        @consumer.on_message
        async def handle(messages, context):
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        async with consumer:
            ...

    The listener is a coroutine function, or a function that is called on `consume_threads` threads. It gets up to
    `consume_batch_max_size` messages and says CONSUME_SUCCESS or RECONSUME_LATER; an exception or no answer counts as
    RECONSUME_LATER. Each message is delivered at least once, some more than once.

    With CLUSTERING the members of the group share the queues, offsets are kept by the brokers, and failed messages
    come again after a while (10 s, then ever later), up to `max_reconsume_times`. A listener set with `orderly` gets
    the messages of each queue in their order, and none behind a message that failed. With BROADCASTING every consumer
    gets every message, offsets are kept in a local file, and failed messages are dropped.

    `consume_from_where` says where a group without offsets starts; `consume_timestamp` belongs to
    CONSUME_FROM_TIMESTAMP (a time, or `yyyyMMddHHmmss` in local time; default half an hour ago). Further keywords are
    `PushSettings`.
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
        self._orderly: Orderly | None = None
        self._locks: OwnedQueues | None = None
        self._given_up: dict[Held, asyncio.Task[None]] = {}
        """Queues whose listener must be done before another member may have them, each with who sees to that."""
        self._figures = Figures(self._clock)
        self._last_failure: dict[str, str] = {}
        """Why and when the listener failed last, as operators are told."""
        self._own_thresholds = self._thresholds
        self._paused = False
        self._puller: Puller | None = None
        self._workers: Workers | None = None
        self._sends_back: Returning | None = None
        self._traces: Traces | None = None
        self._returning = Background(f"{self._name()}, sending back")
        times = self._settings["max_reconsume_times"]
        self._times_max = times

    # ------------------------------------------------------------------------------------------------------ interface

    @checks_arguments
    def subscribe(self, topic: str, expression: Selector = "*") -> None:
        """Consume the messages of `topic` whose tag is one of `TagA || TagB`, or all, or those that
        `MessageSelector.sql` chooses. Before or after start; start raises BrokerError when a broker refuses the SQL.

        All members of a group must subscribe the same; a broker knows one subscription a group.
        """
        self._subscribe(topic, expression)

    @checks_arguments
    def unsubscribe(self, topic: str) -> None:
        """Give the queues of `topic` up."""
        self._unsubscribe(topic)

    @checks_arguments
    def set_listener(self, listener: Listener | OrderlyListener, *, orderly: bool = False) -> None:
        """Who gets the messages; before start. InvalidStateError afterwards.

        With `orderly` the listener says a `ConsumeOrderlyStatus`, gets an `OrderlyContext`, and is called for one
        portion of a queue after the other; a message that fails comes again, after `suspend_current_queue_ms`, before
        any behind it, `max_reconsume_times` times at most and by default for ever.
        """
        if self._workers is not None:
            raise InvalidStateError(f"{self._name()} has its listener already")
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
        """Whether nothing is pulled; what is cached is still consumed."""
        return self._paused

    def suspend(self) -> None:
        """Pull nothing until `resume`. The queues stay this consumer's share of the group."""
        self._paused = True

    def resume(self) -> None:
        """Pull again."""
        check_loop(self._name(), self._loop)
        self._paused = False
        for held in self._held.values():
            held.cached.last_consume_ms = self._clock.now_ms()  # the time it was suspended is not the listener's
            held.room.set()

    @checks_arguments
    def set_consume_threads(self, count: int) -> None:
        """Have the listener called `count` times at once, 1 to 1000, from now on; calls that run are not stopped.
        ConfigurationError outside of that, InvalidStateError unless the consumer is running.
        """
        self._check_running()
        changed: PushSettings = {"consume_threads": count}
        self._running_workers.resize(complete(PushSettings, changed)["consume_threads"])

    @checks_arguments
    async def fetch_subscribe_queues(self, topic: str) -> list[MessageQueue]:
        """`fetch_queues` under the name it has in Java's push consumer."""
        return await self.fetch_queues(topic)

    @checks_arguments
    async def reset_offset_by_timestamp(self, timestamp_ms: int) -> None:
        """Go on, in every queue this consumer reads, with the first message stored at or after `timestamp_ms`
        (milliseconds since the epoch). What was pulled before is delivered again or left out; other members go on as
        they were. BrokerError, ClientError, RemotingError when a place cannot be found out: then nothing is changed.
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
        """Have `message` delivered to this group again: after the time of `delay_level`, at level 0 after a time that
        grows with its failures, at level -1 never (it goes to the dead letter topic). The broker it came from is asked,
        or that of `broker_name`. BrokerError, ClientError, RemotingError when neither the broker nor the retry topic
        takes it.
        """
        self._check_running()
        await self._returns.send_back(message, delay_level, broker_name)

    # -------------------------------------------------------------------------------------------------- for operators

    def move(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """Go on at these offsets where this consumer reads; what was pulled before counts no more."""
        if self.is_running:
            self._background.spawn(self._move(topic, offsets))

    async def _move(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        async with self._rebalancing:
            moved = [queue for queue in self._held if queue.topic == topic and queue in offsets]
            for queue in moved:
                self._held[queue].drop()  # at once: a listener that ends meanwhile must not raise the offset
                self._offsets.table.set(queue, offsets[queue])
            await self._release(moved)
        self.wake_rebalance()

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """What an operator is told of this consumer."""
        return ConsumerRunningInfo(
            jstack=all_stacks() if stacks else None,
            mq_table={
                queue: queue_info(held.cached, self._offsets.table.read(queue), is_locked=self._is_locked(queue))
                for queue, held in sorted(self._held.items())
            },
            properties=self._properties(workers=self._running_workers.count, is_orderly=self._is_orderly),
            status_table=self._figures.table(),
            subscription_set=list(self._subscriptions.values()),
        )

    def _is_locked(self, queue: MessageQueue) -> bool:
        return self._is_orderly and (self._locks is None or self._locks.owns(queue))

    def _condition(self) -> dict[str, str]:
        return self._last_failure | ({SUSPENDED: "true"} if self._paused else {})

    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Have the listener take a message now. No offset changes, and a failure is not delivered again."""
        queue = self._namespace.unwrap_queue(message.queue)
        context = OrderlyContext(queue) if self._is_orderly else ConcurrentContext(queue)
        portion = Portion(Held(message.queue), ProcessQueue(), [message], context)
        started_ms = self._clock.now_ms()
        await self._running_workers.call(portion)
        threw = portion.error is not None
        return ConsumeDirectlyResult(
            consume_result=ConsumeResult.CR_THROW_EXCEPTION if threw else RESULTS[portion.status],
            remark=repr(portion.error) if threw else None,
            spent_time_ms=self._clock.now_ms() - started_ms,
        )

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def _begin(self, instance: Instance) -> None:
        if self._listener is None:
            raise ClientError(ResponseCode.MESSAGE_ILLEGAL, f"{self._name()} has no listener; set one before start")
        if not self._subscriptions:
            _log.warning("event=nothing_subscribed group=%s; nothing comes until subscribe names a topic", self.group)
        if self._message_model is MessageModel.CLUSTERING:
            self._subscribe(retry_topic(self.group), "*")
        flags = PULL_SUSPEND | (PULL_SUBSCRIPTION if self._settings["post_subscription_when_pull"] else 0)
        self._puller = self._puller_of(instance, flags=flags, suspend_ms=SUSPEND_MS, timeout_ms=PULL_TIMEOUT_MS)
        usual_max = RECONSUME_IN_ORDER_MAX if self._is_orderly else RECONSUME_TIMES_MAX
        times_max = usual_max if self._times_max < 0 else self._times_max
        self._sends_back = Returning(instance, self.group, times_max, namespace=self._namespace)
        if self._settings["enable_trace"]:
            self._traces = traces_of(instance, self.group, "CONSUME", self._settings["trace_topic"])
            ids = instance.unique_ids
            self._hooks.append(ConsumeTracing(self._traces, lambda: ids.create(self._clock.now_ms())))
        listener = hooked(self._listener, self._hooks, self.group, self._clock) if self._hooks else self._listener
        self._workers = workers_for(
            listener, self._settings["consume_threads"], self.group, self._prepare, self._finished
        )
        if self._is_orderly:
            self._own_thresholds = self._thresholds = replace(self._own_thresholds, span=ANY_SPAN)
            if self._message_model is MessageModel.CLUSTERING:
                self._locks = OwnedQueues(instance, self.group)
                self._background.spawn(self._renew_locks(self._locks))
        await self._begin_consuming(instance)
        if not self._is_orderly:
            self._background.spawn(self._look_for_overdue())
        self._background.spawn(self._sample_regularly())

    async def _end(self, instance: Instance) -> None:
        await self._end_services()
        grace_s = self._settings["await_termination_ms"] / 1000
        await self._running_workers.close(grace_s)
        await self._returning.finish(grace_s, but=self._waits_for_us())
        if self._traces is not None:
            await self._traces.close()
        await self._end_consuming(instance)

    async def _abandon(self, instance: Instance) -> None:
        self._running_workers.dismiss()
        await super()._abandon(instance)

    def _waits_for_us(self) -> list[asyncio.Task[None]]:
        """Who waits for a listener that is shutting this consumer down to be done with its queue."""
        own = self._running_workers.own_portion()
        return [task for held, task in self._given_up.items() if own is not None and held is own.held]

    async def _hand_over(self) -> None:
        if self._locks is not None:  # a queue whose listener still works stays locked until the broker forgets it
            at_work = [held.queue for held in (*self._held.values(), *self._given_up) if not held.idle.is_set()]
            await self._locks.unlock_all(but=at_work)

    @property
    def _returns(self) -> Returning:
        assert self._sends_back is not None, "start makes it"
        return self._sends_back

    @property
    def _running_workers(self) -> Workers:
        assert self._workers is not None, "start makes the workers"
        return self._workers

    # -------------------------------------------------------------------------------------------------------- pulling

    async def _read(self, held: Held) -> None:
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

    async def _finish(self, held: Held) -> None:
        """Until what was pulled is consumed and the broker has said that it knows."""
        while len(held.cached) or not held.idle.is_set():
            await held.wait_for_room(HOLD_LOOK_S)
        while (at := self._offsets.table.read(held.queue)) > held.confirmed:
            try:
                await self._offsets.commit([held.queue])
                held.confirmed = at
            except Exception as error:  # the store may be the application's
                _log.warning("event=offset_not_confirmed group=%s queue=%s error=%r", self.group, held.queue, error)
                await asyncio.sleep(self._settings["pull_error_delay_ms"] / 1000)

    async def _pull(self, held: Held, offset: int, subscription: SubscriptionData) -> PullResult:
        assert self._puller is not None, "start makes the puller"
        clustering = self._message_model is MessageModel.CLUSTERING
        commit = self._offsets.table.read(held.queue) if clustering else 0
        return await self._puller.pull(held.queue, offset, self._settings["pull_batch_size"], subscription, commit)

    def _take_in(self, held: Held, result: PullResult, next_offset: int) -> None:
        """Cache and hand on what was pulled; the next pull begins at `next_offset`."""
        if result.messages:
            pull_ms = self._clock.now_ms() - held.cached.last_pull_ms
            self._figures.pulled(held.queue.topic, len(result.messages), pull_ms)
            held.cached.put(result.messages, result.max_offset)
            if self._is_orderly:
                held.arrived.set()
                return
            for portion in chunks(result.messages, self._settings["consume_batch_max_size"]):
                self._submit(held, portion)
        elif not held.cached.count:  # what is at work in order counts, too
            self._offsets.table.raise_to(held.queue, next_offset)

    async def _moved(self, held: Held, requested: int, offset: int) -> int:
        """The broker has no message at `requested` and redirects to `offset`. Return the offset to read next.

        Forward: messages have expired, and those pulled before stay valid. Back: the log of this broker ends before
        what was pulled, so cached messages and the results of their listeners are dropped. What is not consumed is
        read again.
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
        """In order only what is locked: the member that had a queue may still be at work on it."""
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
        held.cached.last_consume_ms = self._clock.now_ms()  # as in RocketMQ: what is new has not stood still yet
        held.idle.set()
        if self._is_orderly:
            before = [one for one in self._given_up if one.queue == queue]
            self._background.spawn(self._in_order.serve(held, before))

    @property
    def _in_order(self) -> Orderly:
        if self._orderly is None:
            settings = self._settings
            self._orderly = Orderly(
                self._running_workers.submit,
                self._returning.spawn,
                self._offsets.table,
                self._returns,
                self._locks,
                batch_size=settings["consume_batch_max_size"],
                suspend_ms=settings["suspend_current_queue_ms"],
                reconsume_times_max=RECONSUME_IN_ORDER_MAX if self._times_max < 0 else self._times_max,
                count=self._count,
                namespace=self._namespace,
            )
        return self._orderly

    async def _release(self, queues: Collection[MessageQueue]) -> None:
        released = [self._held[queue] for queue in queues]
        await super()._release(queues)
        if self._is_orderly:
            for held in released:
                self._given_up[held] = self._returning.spawn(self._let_go(held))

    async def _let_go(self, held: Held) -> None:
        """Another member gets the queue when our listener is done with it: that is what order means."""
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

    def _submit(self, held: Held, messages: Sequence[MessageExt]) -> None:
        self._running_workers.submit(Portion(held, held.cached, messages, self._context(held)))

    def _context(self, held: Held) -> ConcurrentContext:
        return ConcurrentContext(self._namespace.unwrap_queue(held.queue))

    def _prepare(self, portion: Portion) -> None:
        """Where the listener runs, right before it."""
        now = str(self._clock.now_ms())
        for message in portion.messages:
            as_the_listener_sees(message, self.group, self._namespace).properties[CONSUME_START_TIME] = now

    def _finished(self, portion: Portion) -> None:
        """The listener spoke, or was not asked."""
        if portion.ended is not None:
            portion.held.idle.set()
            portion.cached.last_consume_ms = self._clock.now_ms()
            portion.ended.set()
            return
        if portion.skipped or portion.cached.dropped:
            return
        portion.cached.last_consume_ms = self._clock.now_ms()
        context, status = cast("ConcurrentContext", portion.context), cast("_Concurrently", portion.status)
        failed = portion.messages[first_failed(status, context, len(portion.messages)) :]
        self._count(portion, len(failed))
        if failed and self._message_model is MessageModel.CLUSTERING:
            self._returning.spawn(self._return(portion, failed, context.delay_level_when_next_consume))
            return
        if failed:
            _log.warning(
                "event=messages_dropped group=%s queue=%s count=%d", self.group, portion.held.queue, len(failed)
            )
        self._settle(portion.held, portion.cached, portion.messages)

    def _count(self, portion: Portion, failed: int) -> None:
        now_ms = portion.cached.last_consume_ms
        begun_ms = int(portion.messages[0].properties.get(CONSUME_START_TIME, now_ms))
        self._figures.consumed(portion.held.queue.topic, len(portion.messages), failed, now_ms - begun_ms)
        if failed:
            self._last_failure = {LAST_ERROR: error_text(portion.error), LAST_ERROR_AT: str(now_ms)}

    def _settle(self, held: Held, cached: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """These messages are done: their queue has room, its offset may rise."""
        offset = cached.remove(messages)
        if offset >= 0 and not cached.dropped:
            self._offsets.table.raise_to(held.queue, offset)
        held.room.set()

    async def _return(self, portion: Portion, failed: Sequence[MessageExt], delay_level: int) -> None:
        """Send failed messages back; those that nobody takes are tried here again after a while."""
        kept: list[MessageExt] = []
        for message in failed:
            try:
                await self._returns.send_back(message, delay_level)
            except OrbitMQError as error:
                _log.warning("event=not_sent_back group=%s message=%s error=%s", self.group, message.msg_id, error)
                message.reconsume_times += 1
                kept.append(message)
        done = [message for message in portion.messages if not any(message is other for other in kept)]
        self._settle(portion.held, portion.cached, done)
        if kept:
            again = Portion(portion.held, portion.cached, kept, self._context(portion.held))
            asyncio.get_running_loop().call_later(RESUBMIT_S, self._running_workers.submit, again)

    async def _sample_regularly(self) -> None:
        while True:
            await asyncio.sleep(SAMPLE_SECONDS)
            self._figures.sample()

    async def _look_for_overdue(self) -> None:
        """A listener that hangs must not hold its queue for ever: its message is delivered again elsewhere."""
        timeout_ms = self._settings["consume_timeout_min"] * 60_000
        while True:
            await asyncio.sleep(timeout_ms / 1000)
            with one_round(self._name(), "overdue messages"):
                for held in list(self._held.values()):
                    await self._give_up_overdue(held, timeout_ms)

    async def _give_up_overdue(self, held: Held, timeout_ms: int) -> None:
        for _ in range(OVERDUE_COUNT_MAX):
            message = held.cached.overdue(self._clock.now_ms(), timeout_ms)
            if message is None:
                return
            try:
                await self._returns.send_back(message, OVERDUE_DELAY_LEVEL)
            except OrbitMQError as error:
                _log.warning("event=not_sent_back group=%s message=%s error=%s", self.group, message.msg_id, error)
                return
            if held.cached.is_smallest(message):
                self._settle(held, held.cached, [message])
