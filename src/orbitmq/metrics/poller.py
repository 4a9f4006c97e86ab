"""Polls one broker of orbitmq or RocketMQ within limits: whole tables first, then one request for each topic, for each
group and for each pair of both, the least recently polled first.

If a request fails, its last result stays, with its age; readers decide which results are too old.
"""

from __future__ import annotations

import asyncio
import time
from collections import deque
from collections.abc import Awaitable, Callable, Hashable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any, Generic, TypeVar

from orbitmq.admin.runtime import Runtime, parse
from orbitmq.admin.session import Node
from orbitmq.errors import ConnectError, OrbitMQError, RemotingTimeout, SendRequestError
from orbitmq.message.config import TopicConfig
from orbitmq.message.topics import SYSTEM_GROUPS, is_system_group
from orbitmq.metrics.lag import queue_lags
from orbitmq.net.remoting import Remoting
from orbitmq.operations.groups import all_producers, consumer_connections, time_spans
from orbitmq.operations.membership import running_info
from orbitmq.operations.statistics import runtime_info, statistic
from orbitmq.operations.tables import all_consumer_offsets, all_groups
from orbitmq.operations.topics import all_topics, topic_stats
from orbitmq.wire.bodies import ConsumerConnection, ConsumerRunningInfo, ProducerInfo, QueueRange, StatsItem

T = TypeVar("T")

REQUESTS_MAX = 8  # requests in flight per broker: metrics must not slow it down
TIMEOUT_MS = 5000  # for one response
CLIENT_TIMEOUT_MS = 3000  # a client is polled through its broker, which waits up to 10 s for it
CLIENTS_MAX = 500  # polled for metrics; each is a request to an application

Pair = tuple[str, str]  # topic, group
Timer = Callable[[], float]


@dataclass(frozen=True, slots=True)
class Aged(Generic[T]):
    """A result and when it was received, in seconds of the exporter's timer."""

    value: T
    at: float


@dataclass(frozen=True, slots=True)
class MinuteRate:
    """Traffic of the last minute: messages and bytes per second, and the number of messages."""

    per_second: float = 0.0
    bytes_per_second: float = 0.0
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Poll:
    """One request; `key` identifies it and its result."""

    key: tuple[Hashable, ...]
    send: Callable[[], Awaitable[Any]]


class BrokerPoller:
    """Polls one broker. `failed` is called with the reason of each failed request.

    Results are in `results` by `(kind, ...)`; those of deleted topics and groups are removed in the next round.
    """

    def __init__(
        self,
        node: Node,
        remoting: Remoting,
        failed: Callable[[str], object],
        *,
        with_clients: bool = True,
        timer: Timer = time.monotonic,
    ) -> None:
        self.node = node
        self._remoting = remoting
        self._failed = failed
        self._with_clients = with_clients
        self._timer = timer
        self._polled_at: dict[tuple[Hashable, ...], float] = {}
        self.results: dict[tuple[Hashable, ...], Aged[Any]] = {}
        self.is_up: bool | None = None
        """Whether the broker responded in the last round, also with an error; None before the first."""
        self.responded_at: float | None = None
        """When the broker last responded; None if it never did."""

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, *key: Hashable, since: float) -> Any:
        """The result of a key; None if there is none, or if it is older than `since`."""
        found = self.results.get(key)
        return found.value if found is not None and found.at >= since else None

    @property
    def table(self) -> dict[str, str]:
        """The runtime table, empty before the first response."""
        found = self.results.get(("runtime",))
        return found.value if found is not None else {}

    @property
    def runtime(self) -> Runtime:
        return parse(self.table)

    @property
    def topics(self) -> dict[str, TopicConfig]:
        found = self.results.get(("topics",))
        return found.value if found is not None else {}

    @property
    def groups(self) -> set[str]:
        """Groups of applications, without those of the system."""
        found = self.results.get(("groups",))
        return found.value if found is not None else set()

    @property
    def offsets(self) -> dict[Pair, dict[int, int]]:
        """Offsets by topic and group."""
        found = self.results.get(("offsets",))
        return found.value if found is not None else {}

    # ------------------------------------------------------------------------------------------------------- polling

    async def round(self, deadline_seconds: float, *, with_data: bool) -> None:
        """Poll everything, or as much as the time allows; from slaves only the runtime table."""
        self.is_up = await self._poll(Poll(("runtime",), self._runtime))
        if not self.is_up or not with_data:
            return
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._poll_all(deque(self._tables()))
                self._forget_deleted()
                await self._poll_all(deque(sorted(self._details(), key=lambda one: self._polled_at.get(one.key, 0.0))))
                await self._poll_all(deque(self._clients()))
        except TimeoutError:
            self._failed("the remaining requests are sent in the next round")

    async def _poll_all(self, polls: deque[Poll]) -> None:
        async def worker() -> None:
            while polls:
                if not await self._poll(polls.popleft()):
                    polls.clear()  # if the broker is unreachable, each request would end with a timeout

        await asyncio.gather(*(worker() for _ in range(REQUESTS_MAX)))

    async def _poll(self, poll: Poll) -> bool:
        """False if the broker cannot be reached."""
        try:
            result = await poll.send()
        except OrbitMQError as error:
            self._polled_at[poll.key] = self._timer()
            is_client = poll.key[0] == "client"
            if not is_client:  # an application that does not respond is no failure of the broker
                self._failed(f"{poll.key[0]}: {error}")
            return is_client or not isinstance(error, (ConnectError, SendRequestError, RemotingTimeout))
        self._polled_at[poll.key] = self.responded_at = self._timer()
        self.results[poll.key] = Aged(result, self.responded_at)
        return True

    def _forget_deleted(self) -> None:
        known = {poll.key for poll in (*self._tables(), *self._details(), *self._clients())} | {("runtime",)}
        for key in self.results.keys() - known:
            del self.results[key]
        for key in self._polled_at.keys() - known:
            del self._polled_at[key]

    # ------------------------------------------------------------------------------------------------------ requests

    def _tables(self) -> Iterator[Poll]:
        yield Poll(("topics",), self._topics)
        yield Poll(("groups",), self._groups)
        yield Poll(("offsets",), self._offsets)
        yield Poll(("producers",), self._producers)
        yield Poll(("puts",), partial(self._rate, "BROKER_PUT_NUMS", self.node.cluster))
        yield Poll(("gets",), partial(self._rate, "BROKER_GET_NUMS", self.node.cluster))

    def _details(self) -> Iterator[Poll]:
        for topic in self.topics:
            yield Poll(("ranges", topic), partial(self._ranges, topic))
            yield Poll(("put", topic), partial(self._put, topic))
        for group in self.groups:
            yield Poll(("members", group), partial(self._members, group))
        for pair in self._pairs():
            yield Poll(("got", *pair), partial(self._got, *pair))
            yield Poll(("delays", *pair), partial(self._delays, *pair))

    def _pairs(self) -> Iterator[Pair]:
        for topic, group in self.offsets:
            if topic in self.topics and group in self.groups:
                yield topic, group

    def _clients(self) -> Iterator[Poll]:
        """Members of groups, up to a limit; others than push consumers have no such metrics."""
        count = 0
        for group in self.groups if self._with_clients else ():
            members = self.results.get(("members", group))
            for client in members.value.connection_set if members is not None and members.value is not None else ():
                count += 1
                if client.client_id and count <= CLIENTS_MAX:
                    yield Poll(
                        ("client", group, client.client_id, client.client_addr or ""),
                        partial(self._client, group, client.client_id),
                    )

    async def _runtime(self) -> dict[str, str]:
        return await runtime_info(self._remoting, self.node.address, timeout_ms=TIMEOUT_MS)

    async def _topics(self) -> dict[str, TopicConfig]:
        return (await all_topics(self._remoting, self.node.address, timeout_ms=TIMEOUT_MS)).topics

    async def _groups(self) -> set[str]:
        table = await all_groups(self._remoting, self.node.address, timeout_ms=TIMEOUT_MS)
        return {group for group in table.groups if group not in SYSTEM_GROUPS and not is_system_group(group)}

    async def _offsets(self) -> dict[Pair, dict[int, int]]:
        table = await all_consumer_offsets(self._remoting, self.node.address, timeout_ms=TIMEOUT_MS)
        pairs = ((key.partition("@"), offsets) for key, offsets in table.items())
        return {(topic, group): offsets for (topic, _, group), offsets in pairs}

    async def _producers(self) -> dict[str, list[ProducerInfo]]:
        return await all_producers(self._remoting, self.node.address, timeout_ms=TIMEOUT_MS)

    async def _minute(self, name: str, key: str) -> StatsItem:
        """Zeros if the broker does not know the name yet: it has counted nothing."""
        found = await statistic(self._remoting, self.node.address, name, key, timeout_ms=TIMEOUT_MS)
        return StatsItem() if found is None else found.stats_minute

    async def _rate(self, name: str, key: str) -> float:
        return (await self._minute(name, key)).tps

    async def _put(self, topic: str) -> MinuteRate:
        nums, size = await self._minute("TOPIC_PUT_NUMS", topic), await self._minute("TOPIC_PUT_SIZE", topic)
        return MinuteRate(nums.tps, size.tps, nums.sum)

    async def _got(self, topic: str, group: str) -> tuple[MinuteRate, int]:
        """Traffic of a group, and the number of messages sent back."""
        key = f"{topic}@{group}"
        nums, size = await self._minute("GROUP_GET_NUMS", key), await self._minute("GROUP_GET_SIZE", key)
        return MinuteRate(nums.tps, size.tps, nums.sum), (await self._minute("SNDBCK_PUT_NUMS", key)).sum

    async def _ranges(self, topic: str) -> dict[int, QueueRange]:
        found = await topic_stats(self._remoting, self.node.address, topic, timeout_ms=TIMEOUT_MS)
        return {queue.queue_id: held for queue, held in found.offset_table.items()}

    async def _members(self, group: str) -> ConsumerConnection | None:
        return await consumer_connections(self._remoting, self.node.address, group, timeout_ms=TIMEOUT_MS)

    async def _delays(self, topic: str, group: str) -> dict[int, int]:
        """Queue -> ms that its next message has waited; only of queues with a lag. Requested only if there is one."""
        ranges = self.get("ranges", topic, since=0.0)
        lags = queue_lags(self.topics[topic].read_queues, ranges or {}, self.offsets[topic, group])
        if ranges is not None and not any(lag.waiting for lag in lags):
            return {}
        spans = await time_spans(self._remoting, self.node.address, group, topic, timeout_ms=TIMEOUT_MS)
        now_ms = time.time_ns() // 1_000_000
        found = {}
        for span in spans:
            if span.message_queue is not None and span.delay_time > 0:
                is_expired = span.delay_time > now_ms // 2  # the next message has expired: RocketMQ uses -1 as its time
                oldest_ms = max(0, now_ms - span.min_time_stamp)
                found[span.message_queue.queue_id] = oldest_ms if is_expired else span.delay_time
        return found

    async def _client(self, group: str, client_id: str) -> ConsumerRunningInfo:
        return await running_info(self._remoting, self.node.address, group, client_id, timeout_ms=CLIENT_TIMEOUT_MS)
