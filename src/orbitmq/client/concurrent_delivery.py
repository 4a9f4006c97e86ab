"""Delivers messages to the listener many at a time, in any order, and has failed ones delivered again.

A failed message is sent back to its broker, which delivers it again after a while. Knows neither pulling nor rebalance.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable, Sequence
from typing import Any, TypeAlias, cast

from orbitmq.client.background import one_round
from orbitmq.client.consumer import HeldQueue
from orbitmq.client.core.consume import chunks, first_failed
from orbitmq.client.core.model import ConcurrentContext, ConsumeConcurrentlyStatus, Rejection
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.retry_sender import RetrySender
from orbitmq.client.workers import ListenerCall
from orbitmq.errors import OrbitMQError, SchemasAway
from orbitmq.message.expiry import is_expired, split_expired
from orbitmq.message.model import MessageExt
from orbitmq.message.namespace import Namespace
from orbitmq.runtime.clock import Clock

_log = logging.getLogger(__name__)

RESUBMIT_S = 5.0  # until messages that could not be sent back, or cannot be, are delivered here again
OVERDUE_DELAY_LEVEL = 3
AWAY_DELAY_LEVEL = 4  # 30 s by default: the listener has waited as long, and how long it lasts is unknown
OVERDUE_COUNT_MAX = 16  # messages of one queue given up in one round
_Concurrently: TypeAlias = ConsumeConcurrentlyStatus | None


class ConcurrentDelivery:
    """The messages of one consumer. With `drops_failed`, as for a broadcasting consumer, failed ones are not delivered
    again. `spawn` runs what outlives the consumer's other tasks.
    """

    def __init__(
        self,
        submit: Callable[[ListenerCall], None],
        spawn: Callable[[Coroutine[Any, Any, None]], object],
        store: OffsetStore,
        retry_sender: RetrySender,
        clock: Clock,
        *,
        group: str,
        drops_failed: bool,
        batch_size: int,
        count: Callable[[ListenerCall, int], None],
        namespace: Namespace,
    ) -> None:
        self._submit = submit
        self._spawn = spawn
        self._store = store
        self._retry_sender = retry_sender
        self._clock = clock
        self._group = group
        self._drops_failed = drops_failed
        self._batch_size = batch_size
        self._count = count
        self._namespace = namespace

    def deliver(self, held: HeldQueue, messages: Sequence[MessageExt]) -> None:
        """Call the listener with pulled messages as soon as workers are free."""
        for batch in chunks(messages, self._batch_size):
            self._submit(ListenerCall(held, held.cached, batch, self._context(held)))

    def _context(self, held: HeldQueue) -> ConcurrentContext:
        return ConcurrentContext(self._namespace.unwrap_queue(held.queue))

    def finished(self, call: ListenerCall) -> None:
        """After the listener has returned: commit consumed messages, have the others delivered again."""
        if call.expired:
            self._settle(call.held, call.cached, call.expired)
        if not call.messages:
            return
        context, status = cast("ConcurrentContext", call.context), cast("_Concurrently", call.status)
        failed = call.messages[first_failed(status, context, len(call.messages)) :]
        self._count(call, len(failed))
        failed, _ = split_expired(failed, self._clock.now_ms())  # nobody is to get these again
        rejections = context.rejections
        if rejections:
            rejected = [one.message for one in rejections]
            failed = [*rejected, *[message for message in failed if not _is_among(message, rejected)]]
        if failed and self._drops_failed and isinstance(call.error, SchemasAway):
            self._deliver_again(call, failed)  # a broadcasting consumer has nothing else to wait for them in
            return
        if failed and not self._drops_failed:
            self._spawn(self._retry(call, failed, context.delay_level_when_next_consume, rejections))
            return
        if failed:
            _log.warning("event=messages_dropped group=%s queue=%s count=%d", self._group, call.held.queue, len(failed))
        self._settle(call.held, call.cached, call.messages)

    def _settle(self, held: HeldQueue, cached: ProcessQueue, messages: Sequence[MessageExt]) -> None:
        """These messages are consumed: their queue has room, its offset may rise."""
        offset = cached.remove(messages)
        if offset >= 0 and not cached.dropped:
            self._store.table.raise_to(held.queue, offset)
        held.room.set()

    async def _retry(
        self, call: ListenerCall, failed: Sequence[MessageExt], delay_level: int, rejections: Sequence[Rejection]
    ) -> None:
        """Send failed messages back, and make dead letters of the first of them, which are rejected; those that no
        broker accepts are delivered here again after a while.
        """
        kept: list[MessageExt] = []
        away = isinstance(call.error, SchemasAway)  # no failure of these messages
        for number, message in enumerate(failed):
            try:
                if number < len(rejections):
                    await self._retry_sender.make_dead_letter(message, rejections[number].reason)
                elif away:
                    await self._retry_sender.send_back(message, AWAY_DELAY_LEVEL, counts=False)
                else:
                    await self._retry_sender.send_back(message, delay_level)
            except OrbitMQError as error:
                _log.warning("event=not_sent_back group=%s message=%s error=%s", self._group, message.msg_id, error)
                message.reconsume_times += 1
                kept.append(message)
        self._deliver_again(call, kept)

    def _deliver_again(self, call: ListenerCall, kept: Sequence[MessageExt]) -> None:
        """Call the listener with these messages of a call again after a while; the others are consumed."""
        done = [message for message in call.messages if not _is_among(message, kept)]
        self._settle(call.held, call.cached, done)
        if kept:
            again = ListenerCall(call.held, call.cached, kept, self._context(call.held))
            asyncio.get_running_loop().call_later(RESUBMIT_S, self._submit, again)

    async def give_up_overdue(self, owner: str, queues: Callable[[], Iterable[HeldQueue]], timeout_ms: int) -> None:
        """Until cancelled, send messages back whose listener has not returned for `timeout_ms`: a listener that hangs
        must not stop its queue for ever, so another member gets the message.
        """
        while True:
            await asyncio.sleep(timeout_ms / 1000)
            with one_round(owner, "overdue messages"):
                for held in list(queues()):
                    await self._give_up_overdue(held, timeout_ms)

    async def _give_up_overdue(self, held: HeldQueue, timeout_ms: int) -> None:
        for _ in range(OVERDUE_COUNT_MAX):
            message = held.cached.overdue(self._clock.now_ms(), timeout_ms)
            if message is None:
                return
            try:
                if not is_expired(message, self._clock.now_ms()):
                    await self._retry_sender.send_back(message, OVERDUE_DELAY_LEVEL)
            except OrbitMQError as error:
                _log.warning("event=not_sent_back group=%s message=%s error=%s", self._group, message.msg_id, error)
                return
            if held.cached.is_smallest(message):
                self._settle(held, held.cached, [message])


def _is_among(message: MessageExt, others: Sequence[MessageExt]) -> bool:
    """Whether it is one of these objects; equal messages are others."""
    return any([message is other for other in others])  # noqa: C419 - mypyc has no fast generators
