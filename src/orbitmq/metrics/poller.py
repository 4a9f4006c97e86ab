"""Polls one broker of orbitmq or RocketMQ within limits: whole tables first, then one request per topic, per group
and per pair of both, the least recently polled first.

What could not be polled keeps its last result and its age; the reader decides which results are too old.
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

ASKED_AT_ONCE = 8  # requests in flight per broker: metrics must not slow it down
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
    """What went through in the last minute: messages and bytes a second, and messages altogether."""

    per_second: float = 0.0
    bytes_per_second: float = 0.0
    messages: int = 0


@dataclass(frozen=True, slots=True)
class Poll:
    """One request; `key` names it and its result."""

    key: tuple[Hashable, ...]
    ask: Callable[[], Awaitable[Any]]


class BrokerPoller:
    """Polls one broker. `failed` is called with the reason for each request that failed.

    Results are in `answers` by `(kind, ...)`; those of deleted topics and groups are removed in the next round.
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
        self._asked: dict[tuple[Hashable, ...], float] = {}
        self.answers: dict[tuple[Hashable, ...], Aged[Any]] = {}
        self.is_up: bool | None = None
        """Whether the broker responded in the last round, if only with a refusal; None before the first."""
        self.answered_at: float | None = None
        """When the broker last responded; None for never."""

    # ------------------------------------------------------------------------------------------------------- reading

    def get(self, *key: Hashable, since: float) -> Any:
        """The result of a key; None when there is none or it is older than `since`."""
        found = self.answers.get(key)
        return found.value if found is not None and found.at >= since else None

    @property
    def table(self) -> dict[str, str]:
        """The runtime table, empty before the first response."""
        found = self.answers.get(("runtime",))
        return found.value if found is not None else {}

    @property
    def runtime(self) -> Runtime:
        return parse(self.table)

    @property
    def topics(self) -> dict[str, TopicConfig]:
        found = self.answers.get(("topics",))
        return found.value if found is not None else {}

    @property
    def groups(self) -> set[str]:
        """Those of applications."""
        found = self.answers.get(("groups",))
        return found.value if found is not None else set()

    @property
    def offsets(self) -> dict[Pair, dict[int, int]]:
        """Of topics and groups that exist."""
        found = self.answers.get(("offsets",))
        return found.value if found is not None else {}

    # -------------------------------------------------------------------------------------------------------- asking

    async def round(self, deadline_seconds: float, *, with_data: bool) -> None:
        """Poll everything, or as much as the time allows; offsets and the like from masters only."""
        self.is_up = await self._ask(Poll(("runtime",), self._runtime))
        if not self.is_up or not with_data:
            return
        try:
            async with asyncio.timeout(deadline_seconds):
                await self._ask_all(deque(self._tables()))
                self._forget_the_gone()
                await self._ask_all(deque(sorted(self._details(), key=lambda one: self._asked.get(one.key, 0.0))))
                await self._ask_all(deque(self._clients()))
        except TimeoutError:
            self._failed("the remaining requests are sent in the next round")

    async def _ask_all(self, polls: deque[Poll]) -> None:
        async def worker() -> None:
            while polls:
                if not await self._ask(polls.popleft()):
                    polls.clear()  # a broker that is gone would cost a timeout for each of them

        await asyncio.gather(*(worker() for _ in range(ASKED_AT_ONCE)))

    async def _ask(self, question: Poll) -> bool:
        """False when the broker cannot be reached."""
        try:
            answer = await question.ask()
        except OrbitMQError as error:
            self._asked[question.key] = self._timer()
            is_client = question.key[0] == "client"
            if not is_client:  # an application that does not respond is no failure of the broker
                self._failed(f"{question.key[0]}: {error}")
            return is_client or not isinstance(error, (ConnectError, SendRequestError, RemotingTimeout))
        self._asked[question.key] = self.answered_at = self._timer()
        self.answers[question.key] = Aged(answer, self.answered_at)
        return True

    def _forget_the_gone(self) -> None:
        known = {question.key for question in (*self._tables(), *self._details(), *self._clients())} | {("runtime",)}
        for key in self.answers.keys() - known:
            del self.answers[key]
        for key in self._asked.keys() - known:
            del self._asked[key]

    # ----------------------------------------------------------------------------------------------------- questions

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
        """Members of groups with push consumers: others have no such metrics."""
        count = 0
        for group in self.groups if self._with_clients else ():
            members = self.answers.get(("members", group))
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
        """Nothing was counted under a name that the broker does not know yet."""
        found = await statistic(self._remoting, self.node.address, name, key, timeout_ms=TIMEOUT_MS)
        return StatsItem() if found is None else found.stats_minute

    async def _rate(self, name: str, key: str) -> float:
        return (await self._minute(name, key)).tps

    async def _put(self, topic: str) -> MinuteRate:
        nums, size = await self._minute("TOPIC_PUT_NUMS", topic), await self._minute("TOPIC_PUT_SIZE", topic)
        return MinuteRate(nums.tps, size.tps, nums.sum)

    async def _got(self, topic: str, group: str) -> tuple[MinuteRate, int]:
        """With the messages sent back."""
        key = f"{topic}@{group}"
        nums, size = await self._minute("GROUP_GET_NUMS", key), await self._minute("GROUP_GET_SIZE", key)
        return MinuteRate(nums.tps, size.tps, nums.sum), (await self._minute("SNDBCK_PUT_NUMS", key)).sum

    async def _ranges(self, topic: str) -> dict[int, QueueRange]:
        found = await topic_stats(self._remoting, self.node.address, topic, timeout_ms=TIMEOUT_MS)
        return {queue.queue_id: held for queue, held in found.offset_table.items()}

    async def _members(self, group: str) -> ConsumerConnection | None:
        return await consumer_connections(self._remoting, self.node.address, group, timeout_ms=TIMEOUT_MS)

    async def _delays(self, topic: str, group: str) -> dict[int, int]:
        """Queue -> ms that its next message has waited; only of queues that have one. Requested only when needed."""
        ranges = self.get("ranges", topic, since=0.0)
        lags = queue_lags(self.topics[topic].read_queues, ranges or {}, self.offsets[topic, group])
        if ranges is not None and not any(lag.waiting for lag in lags):
            return {}
        spans = await time_spans(self._remoting, self.node.address, group, topic, timeout_ms=TIMEOUT_MS)
        now_ms = time.time_ns() // 1_000_000
        found = {}
        for span in spans:
            if span.message_queue is not None and span.delay_time > 0:
                is_gone = span.delay_time > now_ms // 2  # the next message is gone: RocketMQ takes its time for -1
                oldest_ms = max(0, now_ms - span.min_time_stamp)
                found[span.message_queue.queue_id] = oldest_ms if is_gone else span.delay_time
        return found

    async def _client(self, group: str, client_id: str) -> ConsumerRunningInfo:
        return await running_info(self._remoting, self.node.address, group, client_id, timeout_ms=CLIENT_TIMEOUT_MS)
