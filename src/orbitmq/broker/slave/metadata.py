"""Copies the master's tables to a slave: topics, groups, consumer offsets, progress of delayed messages,
and what POP consumption keeps in files: request modes and the orders of orderly groups.

A table that cannot be copied does not prevent the others. Offsets that consumers committed here while the master was
down are reported to it first, if they are greater than its own; otherwise the copy would undo a group's progress.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Awaitable, Callable

from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.groups import Groups
from orbitmq.broker.offsets import SEPARATOR, ConsumerOffsets
from orbitmq.broker.pop.assignment_handler import RequestModes
from orbitmq.broker.pop.ordering import Orders
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.topics import Topics
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import TRANSACTION_GROUP
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import update_consumer_offset
from orbitmq.operations.tables import (
    all_consumer_offsets,
    all_delay_offsets,
    all_groups,
    all_orders,
    all_request_modes,
)
from orbitmq.operations.timers import timer_check_point
from orbitmq.operations.topics import all_topics
from orbitmq.replication.agreement import log_limits
from orbitmq.replication.slave import FollowingState
from orbitmq.runtime.events import wait_at_most
from orbitmq.runtime.turns import in_turns

_log = logging.getLogger(__name__)

COPY_SECONDS = 10.0  # as in RocketMQ 4.9
CHECK_POINT_SECONDS = 1.0  # in RocketMQ 5 it is three
FIRST_SECONDS = 1.0  # between attempts, until all tables were copied once
SOON_SECONDS = 0.5  # at least, between two copies
UNKNOWN_SECONDS = 0.1  # until the master's address is looked up again
TIMEOUT_MS = 3000
ASKED_FOR_MAX = 10_000  # topics; those beyond wait for the next copy
HANDED_BACK_MAX = 10_000  # offsets reported to the master in one round; the rest in the next
ANSWER_OLD_SECONDS = 2.0  # the maximum age of the master's offsets; the rest waits for the next response
CATCH_UP_SECONDS, CATCH_UP_LOOK_SECONDS = 2.0, 0.02  # for the log to reach the end that a table refers to


class MetadataCopy:
    """`master` returns the master's address, None while it is unknown, and while this log is not a prefix of that one:
    tables about another log must not be sent to it. `state` has the time of the last full copy. `look` requests the end
    of the master's log, `copied` returns how much of that is here, `end_of` the end of a queue.
    """

    def __init__(
        self,
        remoting: Remoting,
        master: Callable[[], str | None],
        topics: Topics,
        groups: Groups,
        offsets: ConsumerOffsets,
        delayed: DelayedDelivery,
        timers: TimerDelivery,
        modes: RequestModes,
        orders: Orders,
        state: FollowingState,
        look: Callable[[], Awaitable[None]],
        copied: Callable[[], int],
        end_of: Callable[[str, int], int],
    ) -> None:
        self._remoting = remoting
        self._master = master
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._delayed = delayed
        self._timers = timers
        self._modes = modes
        self._orders = orders
        self._is_silent = False
        self._is_of_five = False  # the master: RocketMQ 5 has versions of tables that others have not
        self._task: asyncio.Task[None] | None = None
        self._state = state
        self._look = look
        self._copied = copied
        self._end_of = end_of
        self._asked = asyncio.Event()
        # requested once each: the master does not list every topic it has messages of
        self._asked_for: set[str] = set()

    def arrived(self, topic: str) -> None:
        """A message was replicated. If its topic is unknown here it may be new, so the tables are requested at once:
        should the master fail now, its consumers find the topic here.
        """
        if self._task is None:
            return  # the first copy has all of them
        if topic not in self._topics.table and topic not in self._asked_for and len(self._asked_for) < ASKED_FOR_MAX:
            self._asked_for.add(topic)
            self._asked.set()

    def start(self) -> None:
        self._task = asyncio.get_running_loop().create_task(self._run())

    async def stop(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)

    async def _run(self) -> None:
        while True:
            address = self._master()
            if address is None:
                await asyncio.sleep(UNKNOWN_SECONDS)
                continue
            try:
                await self.copy(address)
            except Exception:  # the next round must still come
                _log.exception("event=tables_not_copied master=%s", address)
            await asyncio.sleep(SOON_SECONDS)
            pause = FIRST_SECONDS if self._state.tables_at is None else COPY_SECONDS
            await self._wait(address, pause - SOON_SECONDS)
            self._asked.clear()

    async def _wait(self, address: str, seconds: float) -> None:
        """For the next copy. The log does not tell which timer messages RocketMQ 5 has delivered: like its slaves, this
        one copies its check point more often than the tables.
        """
        loop = asyncio.get_running_loop()
        end = loop.time() + seconds
        while (left := end - loop.time()) > 0 and not self._asked.is_set():
            await wait_at_most(self._asked, min(left, CHECK_POINT_SECONDS) if self._is_of_five else left)
            if self._is_of_five:
                await self._attempt(self._copy_check_point, address)

    async def copy(self, address: str) -> None:
        """Copy all tables once."""
        steps: tuple[Callable[[str], Awaitable[None]], ...] = (
            self._copy_topics,
            self._copy_groups,
            self._copy_modes,
            self._copy_progress,
            lambda _address: self._look(),
        )
        failures = [error for step in steps if (error := await self._attempt(step, address)) is not None]
        if not failures:
            self._state.tables_at = asyncio.get_running_loop().time()
        if failures and not self._is_silent:
            _log.warning("event=tables_not_copied master=%s failed=%d error=%s", address, len(failures), failures[0])
        elif self._is_silent and not failures:
            _log.info("event=tables_copied_again master=%s", address)
        self._is_silent = bool(failures)

    @staticmethod
    async def _attempt(step: Callable[[str], Awaitable[None]], address: str) -> OrbitMQError | None:
        try:
            await step(address)
        except OrbitMQError as error:
            return error
        return None

    async def _copy_topics(self, address: str) -> None:
        found = await all_topics(self._remoting, address, timeout_ms=TIMEOUT_MS)
        if found.data_version != self._topics.version:
            await self._topics.take(found)

    async def _copy_groups(self, address: str) -> None:
        found = await all_groups(self._remoting, address, timeout_ms=TIMEOUT_MS)
        if found.data_version != self._groups.version:
            await self._groups.take(found)

    async def _copy_modes(self, address: str) -> None:
        found = await all_request_modes(self._remoting, address, timeout_ms=TIMEOUT_MS)
        if found is not None:
            self._modes.take(found)

    async def _copy_progress(self, address: str) -> None:
        """Offsets of consumers, of transactions and of delayed messages.

        Those of the master's own work are stored when this log contains all they refer to; otherwise a promoted slave
        would count messages as delivered that it does not have.
        """
        asked_at = asyncio.get_running_loop().time()
        offsets = await all_consumer_offsets(self._remoting, address, timeout_ms=TIMEOUT_MS)
        orders = await all_orders(self._remoting, address, timeout_ms=TIMEOUT_MS)
        delayed = await all_delay_offsets(self._remoting, address, timeout_ms=TIMEOUT_MS)
        self._is_of_five = delayed.data_version is not None
        _, end = await log_limits(self._remoting, address)
        await self._hand_back(address, offsets, asked_at)
        has_all = await self._has_copied(end)
        async for key, found in in_turns(list(offsets.items())):
            if has_all or not key.endswith(SEPARATOR + TRANSACTION_GROUP):
                self._offsets.replace(key, found)
        self._offsets.save_soon()
        if orders is not None:
            await self._orders.take(orders)
        if has_all:
            self._delayed.take(dict(delayed.offset_table))
            if delayed.timers is not None:
                self._timers.take(delayed.timers)

    async def _copy_check_point(self, address: str) -> None:
        done_due_ms, offset = await timer_check_point(self._remoting, address, timeout_ms=TIMEOUT_MS)
        _, end = await log_limits(self._remoting, address)
        if await self._has_copied(end):
            self._timers.take_check_point(done_due_ms, offset)

    async def _has_copied(self, end: int) -> bool:
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(CATCH_UP_SECONDS):
                while self._copied() < end:  # noqa: ASYNC110 - it is told nobody, and this is asked six times a minute
                    await asyncio.sleep(CATCH_UP_LOOK_SECONDS)
        return self._copied() >= end

    async def _hand_back(self, address: str, found: dict[str, dict[int, int]], asked_at: float) -> None:
        """Report to the master what was committed here since the last copy, and update `found` accordingly.

        A master ignores offsets below its own. RocketMQ's sets them all, so it gets only those above its own in a
        response that is recent; a frozen slave would have an old one.
        """
        loop = asyncio.get_running_loop()
        async for key, queue_id in in_turns(self._offsets.to_hand_back(HANDED_BACK_MAX)):
            if loop.time() - asked_at > ANSWER_OLD_SECONDS:
                return
            topic, _, group = key.partition(SEPARATOR)
            offset = self._offsets.query(group, topic, queue_id)
            if offset is not None and offset > self._end_of(topic, queue_id):
                continue  # read elsewhere, maybe of another log: it waits until this log has as much
            if offset is not None and offset > found.get(key, {}).get(queue_id, -1):
                queue = MessageQueue(topic, "", queue_id)
                await update_consumer_offset(
                    self._remoting, address, group, queue, offset, timeout_ms=TIMEOUT_MS, only_forward=True
                )
                found.setdefault(key, {})[queue_id] = offset
            if self._offsets.query(group, topic, queue_id) == offset:  # otherwise it has progressed since
                self._offsets.handed_back(key, queue_id)
