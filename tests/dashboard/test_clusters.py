"""Answers are kept while they are fresh, renewed beside the page, and waited for when they are old."""

from __future__ import annotations

import asyncio
import sys
from typing import Any

import pytest

from orbitmq.admin.cluster import ClusterBroker
from orbitmq.admin.cluster_view import ClusterView
from orbitmq.admin.groups import Sums, TopicSums
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.topics import TopicFlow
from orbitmq.dashboard import clusters
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster, History, Moment
from orbitmq.errors import ConnectError, NotFound
from orbitmq.net.remoting import Remoting
from tests.support.loops import LoopFactory, settle, turned_loop


class Asked:
    """Counts questions; each waits until it is answered."""

    def __init__(self) -> None:
        self.count = 0
        self.hold: asyncio.Event | None = None
        self.error: Exception | None = None

    async def __call__(self, _session: Session) -> int:
        self.count += 1
        number = self.count
        if self.hold is not None:
            await self.hold.wait()
        if self.error is not None:
            raise self.error
        return number


def place() -> DashboardCluster:
    return DashboardCluster("local", ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=0)


async def test_an_answer_is_kept_while_it_is_fresh_and_longer_where_a_new_one_takes_long(
    turned_clock: LoopFactory,
) -> None:
    one, asked, loop = place(), Asked(), turned_loop()
    assert [(await one.cached("k", asked)).value for _ in range(3)] == [1, 1, 1]
    await loop.turn(clusters.FRESH_SECONDS + 1)
    assert (await one.cached("k", asked)).value == 2, "a new one that is there at once"
    await loop.turn(clusters.FRESH_SECONDS + 1)
    asked.hold = asyncio.Event()
    looks = [asyncio.create_task(one.cached("k", asked)) for _ in range(2)]
    await loop.turn(clusters.WAIT_SECONDS)
    assert [(await look).value for look in looks] == [2, 2]
    assert asked.count == 3, "both looked for the same new one"
    asked.hold.set()
    await settle()
    assert (await one.cached("k", asked)).value == 3
    await loop.turn(clusters.STALE_SECONDS + 1)
    asked.hold = asyncio.Event()
    look = asyncio.create_task(one.cached("k", asked))
    await loop.turn(10 * clusters.WAIT_SECONDS)
    assert not look.done(), "what is so old is not shown"
    asked.hold.set()
    assert (await look).value == 4
    await one.stop()


async def test_all_who_wait_get_the_same_answer_or_error(turned_clock: LoopFactory) -> None:
    one, asked = place(), Asked()
    asked.hold, asked.error = asyncio.Event(), ConnectError("nobody there")
    waiting = [asyncio.create_task(one.cached("k", asked)) for _ in range(3)]
    await settle()
    asked.hold.set()
    found: list[Any] = await asyncio.gather(*waiting, return_exceptions=True)
    assert asked.count == 1
    assert [str(error) for error in found] == ["nobody there"] * 3
    asked.error = None
    assert (await one.cached("k", asked)).value == 2, "an error is not kept"
    await one.stop()


async def test_a_renewal_that_fails_is_told_and_one_that_hangs_leaves_the_old_answer(turned_clock: LoopFactory) -> None:
    one, asked, loop = place(), Asked(), turned_loop()
    await one.cached("k", asked)
    await loop.turn(clusters.FRESH_SECONDS + 1)
    asked.error = ConnectError("nobody there")
    with pytest.raises(ConnectError):
        await one.cached("k", asked)
    asked.hold = asyncio.Event()
    look = asyncio.create_task(one.cached("k", asked))
    await loop.turn(clusters.WAIT_SECONDS)
    assert (await look).value == 1
    asked.hold.set()
    await settle()
    asked.error = None
    assert (await one.cached("k", asked)).value == 4
    await one.stop()


async def test_nothing_is_kept_over_a_change_and_no_more_than_so_many(
    turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "CACHED_MAX", 2)
    one, asked = place(), Asked()
    for key in ("a", "b", "c"):
        await one.cached(key, asked)
    assert (await one.cached("a", asked)).value == 4
    one.forget()
    assert (await one.cached("a", asked)).value == 5
    await one.stop()


async def test_what_was_asked_before_a_change_is_not_kept_after_it(turned_clock: LoopFactory) -> None:
    one, asked = place(), Asked()
    asked.hold = asyncio.Event()
    early = asyncio.create_task(one.cached("k", asked))
    await settle()
    one.forget()
    late = asyncio.create_task(one.cached("k", asked))
    await settle()
    asked.hold.set()
    assert ((await early).value, (await late).value, (await one.cached("k", asked)).value) == (1, 2, 2)
    await one.stop()


async def test_who_has_no_patience_goes_without_and_finds_the_answer_later(turned_clock: LoopFactory) -> None:
    one, asked = place(), Asked()
    asked.hold = asyncio.Event()
    waiting = asyncio.create_task(one.cached_soon("k", asked))
    await settle()
    await turned_loop().turn(clusters.WAIT_SECONDS)
    assert await waiting is None
    asked.hold.set()
    await settle()
    found = await one.cached_soon("k", asked)
    assert (found is not None and found.value, asked.count) == (1, 1)
    await turned_loop().turn(clusters.FRESH_SECONDS + 1)
    fresh = await one.cached_soon("k", asked)
    assert fresh is not None
    assert fresh.value == 2, "a new answer is better, where it comes at once"
    await turned_loop().turn(clusters.FRESH_SECONDS + 1)
    asked.hold = asyncio.Event()
    waiting = asyncio.create_task(one.cached_soon("k", asked))
    await settle()
    await turned_loop().turn(clusters.WAIT_SECONDS)
    old = await waiting
    assert old is not None
    assert old.value == 2, "the last one is better than none"
    asked.hold.set()
    await one.stop()


async def test_a_fault_of_ours_costs_samples_and_is_told_once(
    turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    one = DashboardCluster("local", ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=10)
    failing = Asked()
    failing.error = RuntimeError("a bug")
    monkeypatch.setattr(clusters, "_moment", failing)
    one.start()
    for _ in range(3):
        await turned_loop().turn(11)
    assert failing.count >= 3
    assert caplog.text.count("event=sample_failed place=local") == 1
    failing.error = KeyError("another")
    await turned_loop().turn(11)
    assert caplog.text.count("event=sample_failed place=local") == 2
    await one.stop()


def test_history_keeps_gaps_and_forgets_what_is_gone() -> None:
    history = History(3)
    history.add({"a": 1.0}, 0)
    history.add({"a": 2.0, "b": 5.0}, 0)
    history.add({"b": None}, 0)
    assert history.of("a") == [1.0, 2.0, None]
    assert history.of("b") == [None, 5.0, None]
    for _ in range(2):
        history.add({"b": 6.0}, 0)
    assert history.of("a") == []
    assert history.of("b") == [None, 6.0, 6.0]
    assert history.of("never") == []


def test_a_sample_has_the_stalls_of_each_broker() -> None:
    members = [
        ClusterBroker("c", "a", 0, "master", "h:1", answers=True, loop_delay_ms=438),
        ClusterBroker("c", "a", 1, "slave", "h:2", answers=False),
    ]
    figures = clusters.samples_of(Moment(Result([ClusterView([], members, [], 0)]), {}))
    assert (figures["delay/a:0"], figures["delay/a:1"]) == (438, None)


async def test_a_topic_is_watched_while_no_group_tells_of_it_and_only_the_last_so_many_are(
    turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(clusters, "WATCHED_MAX", 2)
    asked: list[str] = []

    async def flow(_session: Session, topic: str) -> Result[TopicFlow]:
        asked.append(topic)
        if topic == "deleted":
            raise NotFound("there is no topic deleted")
        return Result([TopicFlow(topic, None, None, 2.5, None, 0, None)])

    async def moment(_session: Session) -> Moment:
        return Moment(Result([ClusterView([], [], [], 0)]), {"g": Sums(topics={"consumed": TopicSums(0, 8, 0.0)})})

    monkeypatch.setattr(clusters, "flow", flow)
    monkeypatch.setattr(clusters, "_moment", moment)
    one = DashboardCluster("local", ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=10)
    for topic in ("forgotten", "consumed", "Logs"):
        one.watch(topic)
    one.start()
    await turned_loop().turn(11)
    assert set(asked) == {"Logs"}
    assert one.history.of("in@Logs")[-1] == 2.5
    assert one.history.of("end@consumed")[-1] == 8
    one.watch("deleted")
    await turned_loop().turn(30)
    assert asked.count("deleted") == 1
    await one.stop()


def test_the_memory_of_all_series_is_bounded() -> None:
    history = History()
    history.add({"a": 1.0}, 0)
    (series,) = history._series.values()
    assert sys.getsizeof(series.values) * clusters.SERIES_MAX < 85e6


def test_history_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(clusters, "SERIES_MAX", 2)
    history = History()
    history.add({str(number): 1.0 for number in range(5)}, 0)
    assert [len(history.of(str(number))) for number in range(5)] == [1, 1, 0, 0, 0]
