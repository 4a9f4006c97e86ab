"""Reads a whole topic once: which pulls are in flight, and when it is at its end. Knows no protocol."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Protocol, TypeAlias, cast

from orbitmq.client.core.model import PullResult, PullStatus
from orbitmq.client.core.selectors import Selector
from orbitmq.errors import ClientError, ConfigurationError
from orbitmq.message.model import MessageExt, MessageQueue

if TYPE_CHECKING:
    from types import AsyncGeneratorType

    from pyarrow import Table

QUEUES_AT_ONCE: Final = 8  # of which one pull each is in flight: more would not be faster, and hold more messages
PULL_MESSAGES: Final = 32  # as many as brokers return by default
WAIT_S: Final = 0.2  # before a broker that had none of the messages that must be there is queried again
WAITS_MAX: Final = 100  # 20 s: a slave that is behind, which some brokers recommend, catches up meanwhile
BATCH_BYTES: Final = 16 << 20  # of the bodies that wait to become columns

Place: TypeAlias = datetime | Mapping[MessageQueue, int]
"""A place in every queue of a topic: a time, or offsets."""


class Queues(Protocol):
    """A pull consumer."""

    async def fetch_queues(self, topic: str) -> list[MessageQueue]: ...
    async def min_offset(self, queue: MessageQueue) -> int: ...
    async def max_offset(self, queue: MessageQueue) -> int: ...
    async def search_offset(self, queue: MessageQueue, timestamp_ms: int) -> int: ...
    async def pull(self, queue: MessageQueue, expression: Selector, offset: int, max_num: int) -> PullResult: ...


@dataclass(slots=True)
class _Part:
    """What is left of a queue."""

    queue: MessageQueue
    offset: int
    end: int
    waits: int = 0


class TopicRead:
    """The messages of a topic; see `PullConsumer.read_all`. Each iteration reads them again, as far as they are there
    when it begins.

    ConfigurationError for a time without a zone. The iteration raises ClientError when messages were deleted before
    they were read; BrokerError, RemotingError.
    """

    def __init__(
        self, queues: Queues, topic: str, expression: Selector, start: Place | None, until: Place | None
    ) -> None:
        for name, place in (("start", start), ("until", until)):
            if isinstance(place, datetime) and place.tzinfo is None:
                raise ConfigurationError(f"{name} {place} has no time zone; use datetime.now(UTC) and the like")
        self._queues = queues
        self._topic = topic
        self._expression = expression
        self._start, self._until = start, until
        self.ends: Mapping[MessageQueue, int] = {}
        """Where the last iteration ends in each queue: the `start` of a read that continues it."""

    def __aiter__(self) -> AsyncIterator[MessageExt]:
        return self._messages()

    async def _messages(self) -> AsyncIterator[MessageExt]:
        async for batch in self.batches():
            for message in batch:
                yield message

    async def to_arrow(self, columns: Sequence[str] | None = None) -> Table:
        """All messages as an Arrow table, in memory: `.to_pandas()` and `polars.from_arrow` make frames of it. The
        columns are those of the Spark source, by default those up to `bornHost`.

        ConfigurationError for a column that there is not, ImportError without pyarrow; otherwise as the iteration.
        """
        try:
            from orbitmq.client.message_table import MessageTable
        except ImportError as error:
            raise ImportError("tables need pyarrow: pip install 'orbitmq[arrow]'") from error
        table = MessageTable(columns, BATCH_BYTES)
        async for batch in self.batches():
            table.add(batch)
        return table.finished()

    async def batches(self) -> AsyncGenerator[list[MessageExt], None]:
        """The messages of one pull after another; those of a queue in its order. ClientError, BrokerError,
        RemotingError.
        """
        waiting = deque(await self._parts())
        pulls: dict[asyncio.Task[PullResult], _Part] = {}

        def pull(part: _Part) -> None:
            pulls[asyncio.create_task(self._pull(part))] = part

        try:
            while waiting or pulls:
                while waiting and len(pulls) < QUEUES_AT_ONCE:
                    pull(waiting.popleft())
                done, _ = await asyncio.wait(pulls, return_when=asyncio.FIRST_COMPLETED)
                for task in done:
                    part, result = pulls.pop(task), task.result()
                    messages = self._taken(part, result)
                    if part.offset < part.end:
                        pull(part)  # while the caller works
                    if messages:
                        yield messages
        finally:
            for task in pulls:
                task.cancel()
            await asyncio.gather(*pulls, return_exceptions=True)

    async def _pull(self, part: _Part) -> PullResult:
        if part.waits:
            await asyncio.sleep(WAIT_S)
        return await self._queues.pull(part.queue, self._expression, part.offset, PULL_MESSAGES)

    @staticmethod
    def _taken(part: _Part, result: PullResult) -> list[MessageExt]:
        """The messages of a pull that belong to the part, which continues behind them."""
        queue, offset = part.queue, part.offset
        if offset < result.min_offset:
            last = min(result.min_offset, part.end) - 1
            raise ClientError(
                10003,
                f"messages {offset} to {last} of queue {queue.queue_id} of {queue.topic} at "
                f"{queue.broker_name} were deleted before they were read; start later",
            )
        is_behind = result.status is PullStatus.OFFSET_ILLEGAL or result.next_begin_offset <= offset
        part.waits = part.waits + 1 if is_behind else 0
        if part.waits > WAITS_MAX:
            raise ClientError(
                10003,
                f"queue {queue.queue_id} of {queue.topic} at {queue.broker_name} has no message {offset}, and its end "
                f"was {part.end}; the broker read from is behind, or the topic was created anew",
            )
        if not is_behind:
            part.offset = result.next_begin_offset
        return [message for message in result.messages if message.queue_offset < part.end]

    async def _parts(self) -> list[_Part]:
        queues = sorted(await self._queues.fetch_queues(self._topic))
        parts = await asyncio.gather(*map(self._part, queues))
        self.ends = {part.queue: part.end for part in parts}
        return [part for part in parts if part.offset < part.end]

    async def _part(self, queue: MessageQueue) -> _Part:
        start = await self._offset(queue, self._start, self._queues.min_offset)
        end = await self._queues.max_offset(queue)
        if self._until is not None:
            end = min(end, await self._offset(queue, self._until, self._queues.max_offset))
        return _Part(queue, start, max(start, end))

    async def _offset(
        self, queue: MessageQueue, place: Place | None, default: Callable[[MessageQueue], Awaitable[int]]
    ) -> int:
        if isinstance(place, datetime):
            return await self._queues.search_offset(queue, round(place.timestamp() * 1000))
        if place is not None and queue in place:
            return place[queue]
        return await default(queue)


async def close(batches: AsyncGenerator[list[MessageExt], None]) -> None:
    """End an iteration. A call that was given up may still be at work in it, and cannot be closed meanwhile."""
    while cast("AsyncGeneratorType[Any, Any]", batches).ag_running:  # noqa: ASYNC110 - generators have no event for it
        await asyncio.sleep(0)
    await batches.aclose()
