"""Delivers the messages of each queue to the listener in their order, one batch after the other.

After a failure a queue pauses and starts again with the same messages. In a clustering group a queue is consumed only
while this member holds the broker's lock on it. Knows neither pulling nor rebalance.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, cast
from weakref import WeakKeyDictionary

from orbitmq.client.consumer import HeldQueue
from orbitmq.client.core.model import ConsumeOrderlyStatus, OrderlyContext, Rejection
from orbitmq.client.core.orderly import OrderlyStep, step_after, suspend_ms
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.queue_locks import OwnedQueues
from orbitmq.client.retry_sender import RetrySender
from orbitmq.client.workers import ListenerCall
from orbitmq.errors import OrbitMQError, SchemasAway
from orbitmq.message.expiry import is_expired
from orbitmq.message.model import MessageExt
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.runtime.clock import Clock

_log = logging.getLogger(__name__)

MANUAL_STATUSES = (ConsumeOrderlyStatus.COMMIT, ConsumeOrderlyStatus.ROLLBACK)  # for a listener that commits itself
LOCK_LOOK_S = 0.1  # between two checks of a lock that has run out
ARRIVAL_LOOK_S = 1.0  # messages wake it; this bounds how late a released queue ends


class OrderlyDelivery:
    """The queues of one consumer. `locks` is None if it broadcasts. `spawn` runs what outlives `serve`."""

    def __init__(
        self,
        submit: Callable[[ListenerCall], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        store: OffsetStore,
        retry_sender: RetrySender,
        locks: OwnedQueues | None,
        clock: Clock,
        *,
        batch_size: int,
        suspend_ms: int,
        reconsume_times_max: int,
        count: Callable[[ListenerCall, int], None],
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self._namespace = namespace
        self._submit = submit
        self._spawn = spawn
        self._warned = False
        self._store = store
        self._retry_sender = retry_sender
        self._locks = locks
        self._clock = clock
        self._batch_size = batch_size
        self._suspend_ms = suspend_ms
        self._reconsume_times_max = reconsume_times_max
        self._count = count
        self._dead: WeakKeyDictionary[ProcessQueue, set[int]] = WeakKeyDictionary()
        """Offsets whose message is in the dead letter topic while earlier ones of its batch are not consumed yet."""

    async def serve(self, held: HeldQueue, before: Iterable[HeldQueue] = ()) -> None:
        """Consume a queue until it is released; first wait for the listener to return from the holds `before`."""
        for one in before:
            await one.idle.wait()
        while not held.cached.dropped:
            held.arrived.clear()
            if self._locks is not None and not self._locks.owns(held.queue):
                await asyncio.sleep(LOCK_LOOK_S)
                continue
            cached = held.cached
            batch = cached.take(self._batch_size)
            if not batch:
                with contextlib.suppress(TimeoutError):
                    async with asyncio.timeout(ARRIVAL_LOOK_S):
                        await held.arrived.wait()
                continue
            pause_ms = await self._consume(held, cached, batch)
            held.room.set()
            if pause_ms:
                await asyncio.sleep(pause_ms / 1000)

    async def _consume(self, held: HeldQueue, cached: ProcessQueue, batch: list[MessageExt]) -> int:
        """Have one batch consumed; the milliseconds for which the queue pauses then."""
        dead = self._dead.get(cached, set())
        context = OrderlyContext(self._namespace.unwrap_queue(held.queue))
        call = ListenerCall(held, cached, [m for m in batch if m.queue_offset not in dead], context)
        try:
            await self._listen(call)
        except asyncio.CancelledError:  # the consumer shuts down while its listener runs: its result still counts
            self._spawn(self._apply_later(held, cached, call))
            raise
        return await self._apply(held, cached, call)

    async def _apply_later(self, held: HeldQueue, cached: ProcessQueue, call: ListenerCall) -> None:
        """Apply the result of the listener when it has returned."""
        assert call.ended is not None, "the listener has the batch"
        await call.ended.wait()
        await self._apply(held, cached, call)

    async def _apply(self, held: HeldQueue, cached: ProcessQueue, call: ListenerCall) -> int:
        """Apply the result of the listener; the milliseconds for which the queue pauses then."""
        if cached.dropped or call.skipped:
            return 0
        context = cast("OrderlyContext", call.context)
        status = call.status if isinstance(call.status, ConsumeOrderlyStatus) else None
        if context.auto_commit and status in MANUAL_STATUSES and not self._warned:
            self._warned = True
            _log.warning("event=counts_as_success status=%s; only without auto_commit a listener commits", status)
        step = step_after(status, context) if call.messages else self._step_without_listener(cached, call)
        if not await self._reject(cached, context.rejections) and step is not OrderlyStep.ROLLBACK:
            step = OrderlyStep.RETRY
        if call.messages:
            self._count(call, len(call.messages) if step in (OrderlyStep.RETRY, OrderlyStep.ROLLBACK) else 0)
        counts = not isinstance(call.error, SchemasAway)
        if step is OrderlyStep.RETRY and await self._retry(cached, call.messages, counts=counts):
            return suspend_ms(context, self._suspend_ms)
        if step is OrderlyStep.ROLLBACK:
            cached.rollback()
            return suspend_ms(context, self._suspend_ms)
        if step is OrderlyStep.COMMIT or (step is OrderlyStep.RETRY and context.auto_commit):
            self._commit(held, cached)
        return 0

    def _step_without_listener(self, cached: ProcessQueue, call: ListenerCall) -> OrderlyStep:
        """A listener that commits itself may not have decided about earlier messages."""
        decided = len(call.expired) + len(self._dead.get(cached, ()))
        return OrderlyStep.KEEP if call.expired and cached.taken_count > decided else OrderlyStep.COMMIT

    async def _listen(self, call: ListenerCall) -> None:
        if not call.messages:
            return
        call.ended = asyncio.Event()
        call.held.idle.clear()
        self._submit(call)
        await call.ended.wait()

    def _commit(self, held: HeldQueue, cached: ProcessQueue) -> None:
        offset = cached.commit()
        self._dead.pop(cached, None)
        if offset >= 0 and not cached.dropped:
            self._store.table.set(held.queue, offset)

    async def _retry(self, cached: ProcessQueue, messages: Sequence[MessageExt], *, counts: bool) -> bool:
        """Put messages back to be delivered again; False when all went to the dead letter topic instead. `counts` is
        whether this was a failure of theirs.
        """
        again = [message for message in messages if not await self._is_dead_letter(cached, message, counts=counts)]
        if cached.dropped:
            return True
        for message in again:
            message.reconsume_times += counts
        cached.put_back(again)
        return bool(again)

    async def _reject(self, cached: ProcessQueue, rejections: Sequence[Rejection]) -> bool:
        """Make dead letters of the messages that the listener rejected. False if no broker accepts one of them."""
        for one in rejections:
            if one.message.queue_offset in self._dead.get(cached, ()):
                continue
            try:
                if self._locks is None:  # a broadcasting consumer: its group has no dead letters
                    _log.warning("event=message_dropped message=%s reason=%.300s", one.message.msg_id, one.reason)
                else:
                    await self._retry_sender.make_dead_letter(one.message, one.reason)
            except OrbitMQError as error:
                _log.warning("event=not_given_up message=%s error=%s", one.message.msg_id, error)
                return False
            self._dead.setdefault(cached, set()).add(one.message.queue_offset)
        return True

    async def _is_dead_letter(self, cached: ProcessQueue, message: MessageExt, *, counts: bool) -> bool:
        if message.queue_offset in self._dead.get(cached, ()):
            return True
        may_fail = not counts or message.reconsume_times < self._reconsume_times_max
        if may_fail or is_expired(message, self._clock.now_ms()):
            return False
        try:
            await self._retry_sender.send_copy(message)
        except OrbitMQError as error:
            _log.warning("event=not_given_up message=%s error=%s", message.msg_id, error)
            return False
        self._dead.setdefault(cached, set()).add(message.queue_offset)
        return True
