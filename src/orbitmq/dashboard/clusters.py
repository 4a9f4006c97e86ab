"""The clusters of the dashboard by name: how to reach each, and a cache of results.

A page that needs thousands of requests shows a cached result with its age, and refreshes it in the background. Must not
know what is requested.
"""

from __future__ import annotations

import asyncio
import logging
import math
from array import array
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbitmq.admin.cluster_view import ClusterView, moment_and_sums
from orbitmq.admin.group_verdicts import GroupVerdicts, group_verdicts
from orbitmq.admin.groups import GroupSummary, Sums, is_system
from orbitmq.admin.memory import Memory
from orbitmq.admin.pace import Paces
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.topics import flow
from orbitmq.errors import OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.clock import Clock, SystemClock

_log = logging.getLogger(__name__)

T = TypeVar("T")

FRESH_SECONDS = 5.0  # results of this age are shown without a new request
STALE_SECONDS = 120.0  # older results are not shown: the page waits for a new one
VERDICTS_SECONDS = 10.0  # the same for the verdicts of groups, which need a request to each member
WAIT_SECONDS = 0.5  # how long a page waits for a result that it can show later
CACHED_MAX = 200  # cached results of one cluster; the least recently used is removed
WATCHED_MAX = 20  # topics without a group whose rate is sampled, as each costs requests; those that were viewed last
SAMPLE_SECONDS = 15.0
SAMPLES = 240  # of each metric: an hour at the default interval
SERIES_MAX = 40_000  # further ones have no curve: with 8 bytes a value, all have at most 80 MB
"""Four of a broker, two of a group, one of a topic, and two of a topic's group."""


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """A result and when it was received."""

    value: T
    at: float
    """Event loop time."""

    @property
    def age_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self.at


@dataclass(slots=True)
class _Series:
    values: array[float]
    """A ring; NaN where a sample lacks the metric."""
    known: int
    """The number of the last sample that has it."""


class History:
    """The last samples of metrics by name; None if a sample did not have the metric."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self._samples = samples
        self._series: dict[str, _Series] = {}
        self.times: deque[float] = deque(maxlen=samples)
        """Of the samples, in seconds since the epoch; the oldest first."""
        self._taken = 0

    def add(self, samples: Mapping[str, float | None], at_ms: float) -> None:
        """Add the sample of this time. A series without a value in all its samples is removed."""
        place = self._taken % self._samples
        self._taken += 1
        self.times.append(at_ms / 1000)
        for series in self._series.values():
            series.values[place] = math.nan
        for name, value in samples.items():
            if value is None:
                continue
            series_of_it = self._series.get(name)
            if series_of_it is None:
                if len(self._series) >= SERIES_MAX:
                    continue
                series_of_it = self._series[name] = _Series(array("d", [math.nan]) * self._samples, 0)
            series_of_it.values[place] = value
            series_of_it.known = self._taken
        for name in [name for name, one in self._series.items() if one.known <= self._taken - self._samples]:
            del self._series[name]

    def of(self, name: str) -> list[float | None]:
        """The oldest first, as many as `times`; empty for an unknown metric."""
        series = self._series.get(name)
        if series is None:
            return []
        first = self._taken % self._samples if self._taken > self._samples else 0
        ordered = (series.values[first:] + series.values[:first])[: len(self.times)]
        return [None if math.isnan(value) else int(value) if value.is_integer() else value for value in ordered]

    def names(self, prefix: str) -> list[str]:
        """Of the metrics that begin so, without the prefix."""
        return [name.removeprefix(prefix) for name in self._series if name.startswith(prefix)]


@dataclass(frozen=True, slots=True)
class Moment:
    """All brokers and groups at one moment."""

    found: Result[ClusterView]
    sums: Mapping[str, Sums]
    """What the brokers that responded sum up, by group."""

    @property
    def view(self) -> ClusterView:
        return self.found.items[0]

    @property
    def groups(self) -> Result[GroupSummary]:
        return Result(self.view.groups, self.found.warnings, self.found.failures)


@dataclass(frozen=True, slots=True)
class ClusterAccess:
    """How to reach a cluster."""

    name_servers: Sequence[str]
    remoting: Callable[[], Remoting]
    """Creates the connections; called on the event loop."""
    cluster: str | None = None
    timeout_ms: float = 5000.0
    readonly: bool = False
    protected: bool = False
    """Every change prompts for the name of the cluster."""
    memory: Memory | None = None
    """Brokers that were registered recently: if one fails, results are marked as partial."""
    has_account: bool = False
    """Requests are signed with an account, which every user of the page then uses."""


class DashboardCluster:
    """One cluster of the page. `name` is part of its addresses."""

    def __init__(
        self, name: str, access: ClusterAccess, *, sample_seconds: float = SAMPLE_SECONDS, clock: Clock | None = None
    ) -> None:
        self.name = name
        self.clock = clock or SystemClock()
        self.access = access
        self.history = History()
        self.paces = Paces()
        """The progress of groups at earlier checks, for the next ones."""
        self._remoting: Remoting | None = None
        self._sample_seconds = sample_seconds
        self._cache: OrderedDict[str, Cached[Any]] = OrderedDict()
        self._requests: dict[tuple[str, int], asyncio.Task[Any]] = {}
        self._changes = 0
        self._sampling: asyncio.Task[None] | None = None
        self._watched: OrderedDict[str, None] = OrderedDict()

    def start(self) -> None:
        """Start sampling, unless the interval is 0 seconds."""
        if self._sample_seconds > 0:
            self._sampling = asyncio.create_task(self._sample())

    async def stop(self) -> None:
        for task in [self._sampling, *self._requests.values()]:
            if task is not None:
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)
        if self._remoting is not None:
            await self._remoting.close()

    def session(self) -> Session:
        """A new session over shared connections."""
        if self._remoting is None:
            self._remoting = self.access.remoting()
        return Session(
            self._remoting,
            self.access.name_servers,
            cluster=self.access.cluster,
            timeout_ms=self.access.timeout_ms,
            memory=self.access.memory,
        )

    async def cached(
        self, key: str, make: Callable[[Session], Awaitable[T]], fresh_seconds: float = FRESH_SECONDS
    ) -> Cached[T]:
        """A fresh result for `key`; the last one if a new one takes too long. Waits if there is no last one that may be
        shown. Exceptions of `make` are raised."""
        found = await self.cached_soon(key, make, fresh_seconds)
        return await asyncio.shield(self._request(key, make)) if found is None else found

    async def cached_soon(
        self,
        key: str,
        make: Callable[[Session], Awaitable[T]],
        fresh_seconds: float = FRESH_SECONDS,
        wait_seconds: float = WAIT_SECONDS,
    ) -> Cached[T] | None:
        """A fresh result if it arrives in time; else the last one, or None if there is none that may be shown. The
        request goes on in the background, for the next call."""
        found: Cached[T] | None = self._cache.get(key)
        if found is not None and found.age_seconds <= fresh_seconds:
            self._cache.move_to_end(key)
            return found
        request = self._request(key, make)
        done, _ = await asyncio.wait({request}, timeout=wait_seconds)
        if done:
            return request.result()
        request.add_done_callback(_log_failure)
        return None if found is None or found.age_seconds > STALE_SECONDS else found

    def _request(self, key: str, make: Callable[[Session], Awaitable[T]]) -> asyncio.Task[Cached[T]]:
        one = (key, self._changes)  # a request sent before a change may not see it
        task = self._requests.get(one)
        if task is None:
            task = self._requests[one] = asyncio.create_task(self._fetch(key, make))
            task.add_done_callback(lambda _: self._requests.pop(one, None))
        return task

    async def _fetch(self, key: str, make: Callable[[Session], Awaitable[T]]) -> Cached[T]:
        changes = self._changes
        cached = Cached(await make(self.session()), asyncio.get_running_loop().time())
        if changes != self._changes:
            return cached
        self._cache[key] = cached
        self._cache.move_to_end(key)
        while len(self._cache) > CACHED_MAX:
            self._cache.popitem(last=False)
        return cached

    def forget(self) -> None:
        """After a change: drop all results from before."""
        self._changes += 1
        self._cache.clear()

    @property
    def sample_ms(self) -> float:
        """Between two samples."""
        return self._sample_seconds * 1000

    async def moment(self, fresh_seconds: float = FRESH_SECONDS) -> Cached[Moment]:
        """All brokers and groups at one moment, cached."""
        return await self.cached("moment", _moment, fresh_seconds)

    async def moment_soon(self, wait_seconds: float) -> Cached[Moment] | None:
        """The same; None while the first one is on its way."""
        return await self.cached_soon("moment", _moment, wait_seconds=wait_seconds)

    async def verdicts(self, wait_seconds: float = WAIT_SECONDS) -> Cached[GroupVerdicts] | None:
        """The verdict of every group; None while the first check is running."""
        return await self.cached_soon("verdicts", self._verdicts, VERDICTS_SECONDS, wait_seconds)

    async def _verdicts(self, session: Session) -> GroupVerdicts:
        """Of the groups of the moment, which took long enough to request."""
        known = (await self.moment()).value.groups
        return await group_verdicts(session, clock=self.clock, paces=self.paces, watch_seconds=0, known=known)

    def watch(self, topic: str) -> None:
        """Sample its produce rate from now on, if no group has offsets of it: then no other request knows it."""
        self._watched.pop(topic, None)
        self._watched[topic] = None
        while len(self._watched) > WATCHED_MAX:
            self._watched.popitem(last=False)

    async def _watched_rates(self, samples: Mapping[str, float | None]) -> dict[str, float | None]:
        names = [name for name in self._watched if f"end{of_topic_key(name)}" not in samples]
        found = await asyncio.gather(*(self._rate(name) for name in names))
        return {f"in{of_topic_key(name)}": rate for name, rate in zip(names, found, strict=True)}

    async def _rate(self, topic: str) -> float | None:
        try:
            return (await flow(self.session(), topic)).items[0].in_per_s
        except OrbitMQError as error:
            _log.info("event=watch_ended place=%s topic=%s error=%s", self.name, topic, error)
            self._watched.pop(topic, None)
            return None

    async def _sample(self) -> None:
        logged, sampled_at = "", -1.0  # a permanent error is logged once
        while True:
            try:
                moment = await self.moment(self._sample_seconds / 2)
                if moment.at != sampled_at:  # a new one takes long: this one is known already
                    at_ms, samples = self.clock.now_ms() - moment.age_seconds * 1000, samples_of(moment.value)
                    self.history.add(samples | await self._watched_rates(samples), at_ms)
                sampled_at = moment.at
                await self.verdicts(wait_seconds=0)
                logged = ""
            except OrbitMQError as error:  # the page shows it
                _log.info("event=sample_failed place=%s error=%s", self.name, error)
                self.history.add({}, self.clock.now_ms())
            except Exception as error:  # an unexpected error costs one sample, not all later ones
                if repr(error) != logged:
                    _log.exception("event=sample_failed place=%s", self.name)
                logged = repr(error)
                self.history.add({}, self.clock.now_ms())
            await asyncio.sleep(self._sample_seconds)


async def _moment(session: Session) -> Moment:
    return Moment(*await moment_and_sums(session, shown=None))


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.info("event=refresh_failed error=%s", error)


def of_broker_key(name: str, broker_id: int) -> str:
    """What follows a metric in the name of its series."""
    return f"/{name}:{broker_id}"


def of_group_key(name: str) -> str:
    """The same for a group."""
    return f"/{name}"


def of_topic_key(topic: str, group: str | None = None) -> str:
    """The same for a topic, or for a group in it; no topic's name has a `@`."""
    return f"@{topic}" if group is None else f"@{topic}@{group}"


def samples_of(moment: Moment) -> dict[str, float | None]:
    """The metrics of a sample: `in`, `out`, `put` and `delay` of all brokers and of each, `lag` of all groups and of
    each, `rate` of each group; `end` of each topic with a group, and `lag` and `rate` of each of its groups. `end` is
    the number of messages that were ever stored."""
    now = moment.view
    is_partial = bool(moment.found.failures)
    samples: dict[str, float | None] = {
        "in": _sum(one.in_per_s for one in now.clusters),
        "out": _sum(one.out_per_s for one in now.clusters),
        "put": max((one.put_99_ms for one in now.brokers if one.put_99_ms is not None), default=None),
        "delay": max((one.loop_delay_ms for one in now.brokers if one.loop_delay_ms is not None), default=None),
        "lag": _sum(one.lag_messages for one in now.groups if _may_have_lag(one, is_partial=is_partial)),
    }
    for broker in now.brokers:
        key = of_broker_key(broker.broker, broker.broker_id)
        samples |= {f"in{key}": broker.in_per_s, f"out{key}": broker.out_per_s}
        samples |= {f"put{key}": broker.put_99_ms, f"delay{key}": broker.loop_delay_ms}
    for group in now.groups:
        key = of_group_key(group.name)
        samples |= {f"lag{key}": group.lag_messages, f"rate{key}": group.handed_out_tps}
    return samples if is_partial else samples | _samples_of_topics(moment.sums)


def _may_have_lag(group: GroupSummary, *, is_partial: bool) -> bool:
    """If all brokers respond, a group without a sum has no offset yet, or broadcasts."""
    has_sum = group.lag_messages is not None or group.known_lag_messages is not None
    return (has_sum or is_partial) and group.model != "BROADCASTING"


def _samples_of_topics(sums: Mapping[str, Sums]) -> dict[str, float | None]:
    """Without system groups: their lag rarely matters."""
    samples: dict[str, float | None] = {}
    for group, one in sums.items():
        if is_system(group):
            continue
        for topic, part in one.topics.items():
            key, end = of_topic_key(topic, group), f"end{of_topic_key(topic)}"
            samples[f"lag{key}"], samples[f"rate{key}"] = part.lag, round(part.tps, 3)
            samples[end] = max(samples.get(end) or 0, part.end)
    return samples


def _sum(values: Iterable[float | None]) -> float | None:
    """None if a value is unknown, or if there is none."""
    known = list(values)
    return sum(one for one in known if one is not None) if known and None not in known else None
