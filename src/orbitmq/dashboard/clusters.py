"""The clusters of the dashboard by name: how to reach each, and a cache of results.

A page that needs thousands of requests shows a cached result with its age, and refreshes it in the background. Must not
know what is requested.
"""

from __future__ import annotations

import asyncio
import logging
from collections import OrderedDict, deque
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from orbitmq.admin.cluster_view import ClusterView, moment
from orbitmq.admin.group_verdicts import GroupVerdicts, group_verdicts
from orbitmq.admin.memory import Memory
from orbitmq.admin.pace import Paces
from orbitmq.admin.session import Session
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
SAMPLE_SECONDS = 15.0
SAMPLES = 120  # of each metric: half an hour at the default interval
SERIES_MAX = 20_000  # brokers, and groups with a lag; further ones have no curve


@dataclass(frozen=True, slots=True)
class Cached(Generic[T]):
    """A result and when it was received."""

    value: T
    at: float
    """Event loop time."""

    @property
    def age_seconds(self) -> float:
        return asyncio.get_running_loop().time() - self.at


class History:
    """The last samples of metrics by name; None if a sample did not have the metric."""

    def __init__(self, samples: int = SAMPLES) -> None:
        self._samples = samples
        self._series: OrderedDict[str, deque[float | None]] = OrderedDict()
        self._taken = 0

    def add(self, samples: Mapping[str, float | None]) -> None:
        """Add one sample. A series without a value in all its samples is removed."""
        self._taken += 1
        for name, series in self._series.items():
            series.append(samples.get(name))
        for name, value in samples.items():
            if value is not None and name not in self._series and len(self._series) < SERIES_MAX:
                before = min(self._taken - 1, self._samples - 1)
                self._series[name] = deque([*[None] * before, value], maxlen=self._samples)
        for name in [name for name, series in self._series.items() if all(value is None for value in series)]:
            del self._series[name]

    def of(self, name: str) -> list[float | None]:
        """The oldest first; empty for an unknown metric."""
        return list(self._series.get(name, ()))


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

    async def moment(self) -> Cached[Any]:
        """`cluster_view.moment` with all groups, cached: a `Result[ClusterView]`."""
        return await self.cached("moment", lambda session: moment(session, shown=None))

    async def verdicts(self, wait_seconds: float = WAIT_SECONDS) -> Cached[GroupVerdicts] | None:
        """The verdict of every group; None while the first check is running."""
        return await self.cached_soon(
            "verdicts",
            lambda session: group_verdicts(session, clock=self.clock, paces=self.paces, watch_seconds=0),
            VERDICTS_SECONDS,
            wait_seconds,
        )

    async def _sample(self) -> None:
        logged = ""  # a permanent error is logged once
        while True:
            try:
                (now,) = (await self.cached("moment", _moment, self._sample_seconds / 2)).value.items
                self.history.add(samples_of(now))
                await self.verdicts(wait_seconds=0)
                logged = ""
            except OrbitMQError as error:  # the page shows it
                _log.info("event=sample_failed place=%s error=%s", self.name, error)
                self.history.add({})
            except Exception as error:  # an unexpected error costs one sample, not all later ones
                if repr(error) != logged:
                    _log.exception("event=sample_failed place=%s", self.name)
                logged = repr(error)
                self.history.add({})
            await asyncio.sleep(self._sample_seconds)


def _moment(session: Session) -> Awaitable[Any]:
    return moment(session, shown=None)


def _log_failure(task: asyncio.Task[Any]) -> None:
    if not task.cancelled() and (error := task.exception()) is not None:
        _log.info("event=refresh_failed error=%s", error)


def samples_of(now: ClusterView) -> dict[str, float | None]:
    """The metrics of a sample: `in/<broker>:<id>`, `out/<broker>:<id>`, `delay/<broker>:<id>`, `lag/<group>`."""
    samples: dict[str, float | None] = {}
    for broker in now.brokers:
        samples[f"in/{broker.broker}:{broker.broker_id}"] = broker.in_per_s
        samples[f"out/{broker.broker}:{broker.broker_id}"] = broker.out_per_s
        samples[f"delay/{broker.broker}:{broker.broker_id}"] = broker.loop_delay_ms
    for group in now.groups:
        samples[f"lag/{group.name}"] = group.lag_messages
    return samples
