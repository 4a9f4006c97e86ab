"""What prefetching consumers share: a task for each held queue, its start offset, flow control.

Does not know how messages are delivered.
"""

from __future__ import annotations

import asyncio
import logging
from abc import abstractmethod
from collections.abc import Iterable, Mapping
from datetime import datetime

from orbitmq.client.consumer import Consumer, HeldQueue
from orbitmq.client.core.allocation import AllocateStrategy
from orbitmq.client.core.flow import Thresholds
from orbitmq.client.core.offsets import StartLookup, start_position
from orbitmq.client.expired import ExpiredMessages
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.settings import SYNC, ConsumerSettings
from orbitmq.errors import BrokerError, ConfigurationError, OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.operations import offsets
from orbitmq.wire.bodies import ConsumeFromWhere, MessageModel
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

START_AGAIN_S = 1.0  # until a start offset that could not be determined is requested again
HOLD_LOOK_S = 1.0  # a queue that waits for room is checked again when something changes, or after this
FLOW_CONTROL_DELAY_S = 0.02  # the pause after a FLOW_CONTROL response
HALF_AN_HOUR_MS = 1_800_000
FAILURE_LINE_MS = 60_000  # between two lines about the same failures of a broker


class ReadingConsumer(Consumer):
    """Base of the push and lite pull consumers, which pull in the background. ConfigurationError for an invalid
    `consume_timestamp`.
    """

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None,
        settings: ConsumerSettings,
        *,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
        consume_timestamp: datetime | str | None,
        allocate_strategy: AllocateStrategy | None,
        offset_store: OffsetStore | None,
    ) -> None:
        super().__init__(
            group,
            namesrv_addr,
            settings,
            message_model=message_model,
            consume_from_where=consume_from_where,
            allocate_strategy=allocate_strategy,
            offset_store=offset_store,
        )
        self._expired = ExpiredMessages(group, self._clock)
        self._noted: dict[tuple[str, type[OrbitMQError]], int] = {}
        """Broker and kind of a failure -> when it was logged last."""
        self._start_time_ms = _milliseconds(consume_timestamp)
        self._reading_settings = settings
        self._confirms_offsets = settings["offset_commit"] == SYNC
        self._thresholds = Thresholds(
            settings["pull_threshold_for_queue"],
            settings["pull_threshold_size_for_queue"],
            settings["consume_max_span"],
        )

    @property
    def expired(self) -> Mapping[str, int]:
        """Topic -> messages that had expired (`Message(expires_at=...)`) and so were not delivered by this consumer."""
        return self._expired.counts

    def _hold(self, queue: MessageQueue) -> None:
        super()._hold(queue)
        held = self._held[queue]
        held.task = self._background.spawn(self._read(held))

    @abstractmethod
    async def _read(self, held: HeldQueue) -> None:
        """Pull the queue until it is given up."""

    def _pause_after(self, error: OrbitMQError, queue: MessageQueue) -> float:
        """Seconds to wait after a pull or a commit that failed."""
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_DELAY_S
        self._note_failure(queue.broker_name, error)
        return self._reading_settings["pull_error_delay_ms"] / 1000

    def _note_failure(self, broker: str, error: OrbitMQError) -> None:
        """Every queue of a broker that is away fails, again and again."""
        kind, now_ms = (broker, type(error)), self._clock.now_ms()
        is_new = now_ms - self._noted.get(kind, -FAILURE_LINE_MS) >= FAILURE_LINE_MS
        if is_new:
            self._noted[kind] = now_ms
        level = logging.WARNING if is_new else logging.DEBUG
        _log.log(level, "event=pull_failed group=%s broker=%s error=%s", self.group, broker, error)

    # ---------------------------------------------------------------------------------------------- start position

    async def _start_offset(self, held: HeldQueue) -> int:
        """Where to start; retried until it is known."""
        while True:
            try:
                return await self._find_start(held.queue)
            except Exception as error:  # the store may be the application's
                _log.warning("event=no_start_position group=%s queue=%s error=%r", self.group, held.queue, error)
                await asyncio.sleep(START_AGAIN_S)

    async def _find_start(self, queue: MessageQueue) -> int:
        position = start_position(queue.topic, await self._offsets.stored(queue), self._consume_from_where)
        if not isinstance(position, StartLookup):
            return position
        assert self._shared is not None, "a queue is held only while an instance is shared"
        remoting, address = self._shared.remoting, await self._shared.routes.master(queue)
        if position is StartLookup.MAX_OFFSET:
            return await offsets.max_offset(remoting, address, queue)
        if position is StartLookup.MIN_OFFSET:
            return await offsets.min_offset(remoting, address, queue)
        time_ms = self._start_time_ms or self._clock.now_ms() - HALF_AN_HOUR_MS
        return await offsets.search_offset(remoting, address, queue, time_ms)


def _milliseconds(time: datetime | str | None) -> int | None:
    """A start time in milliseconds since the epoch; text is `yyyyMMddHHmmss` in local time."""
    if time is None:
        return None
    if isinstance(time, datetime):
        return int(time.timestamp() * 1000)
    try:
        return int(datetime.strptime(time, "%Y%m%d%H%M%S").timestamp() * 1000)  # noqa: DTZ007 - local time is meant
    except ValueError:
        raise ConfigurationError(f"consume_timestamp {time!r} is not allowed; use yyyyMMddHHmmss") from None
