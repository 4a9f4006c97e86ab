"""What a load measures: a broker that stalls is seen by all that were due meanwhile, failures are counted, what was
made for the run is removed, and an interruption leaves the figures so far.
"""

from __future__ import annotations

import asyncio
import signal
import subprocess
from collections.abc import Iterator
from functools import partial

import pytest

from orbitmq.admin import loads
from orbitmq.admin.groups import groups
from orbitmq.admin.loads import Load, LoadReport, Since, Way, _began, _Counts, _paced
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.admin.temporary import NAME, own_topic
from orbitmq.admin.topics import Topic, listed, status
from orbitmq.client.producer import Producer
from orbitmq.errors import AdminError, ConfigurationError, ConnectError
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.commands import answer, orbitmq
from tests.support.loops import JumpingLoop, run
from tests.support.orbit_process import ORBITMQ
from tests.support.process import wait_until
from tests.support.sessions import asked

STALL_S = 1.0


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster(brokers=2) as running:
        yield running


def counts_of(load: Load) -> _Counts:
    return _Counts(load, asyncio.get_running_loop().time)


def test_at_a_rate_a_stall_is_seen_by_all_that_were_due_in_it() -> None:
    async def load() -> LoadReport:
        counts = counts_of(Load(seconds=4, warm_up_seconds=1, rate=100, in_flight=2))
        stalls_at = counts.began + 2

        async def one(_since: float) -> int:
            left = stalls_at + STALL_S - counts.now()
            await asyncio.sleep(left if 0 < left <= STALL_S else 0.001)
            return 1

        await _paced(counts, one)
        return counts.report("send", "T", since=Since.DUE)

    report = run(load(), JumpingLoop)
    assert report.messages == 400
    assert report.latency.max_ms == pytest.approx(STALL_S * 1000, rel=0.05)
    assert report.latency.p90_ms > STALL_S * 1000 * 0.5, "a quarter of the time it stalled"
    assert report.latency.p50_ms < 2


def test_without_a_rate_only_those_under_way_see_a_stall() -> None:
    async def load() -> LoadReport:
        counts = counts_of(Load(seconds=4, warm_up_seconds=1, in_flight=2))
        calls = 0

        async def one(_since: float) -> int:
            nonlocal calls
            calls += 1
            await asyncio.sleep(STALL_S if calls == 500 else 0.01)
            return 1

        await _paced(counts, one)
        return counts.report("send", "T", since=Since.BEGUN)

    report = run(load(), JumpingLoop)
    assert report.latency.p99_ms == pytest.approx(10, rel=0.05)
    assert report.latency.max_ms == pytest.approx(1000, rel=0.05)
    assert report.messages_per_s == pytest.approx(report.messages / 4, rel=0.02)


def test_what_fails_is_counted_and_no_more_is_sent_than_was_asked_for() -> None:
    calls = 0

    async def load() -> LoadReport:
        counts = counts_of(Load(seconds=60, warm_up_seconds=0, in_flight=8, messages=100))

        async def one(_since: float) -> int:
            nonlocal calls
            calls += 1
            number = calls
            await asyncio.sleep(0.01)
            if number % 4 == 0:
                raise ConnectError("refused")
            return 1

        await _paced(counts, one)
        return counts.report("send", "T", since=Since.BEGUN)

    report = run(load(), JumpingLoop)
    assert (report.messages, report.failed, calls) == (75, 25, 100)
    assert report.problems == ["refused"]


def test_no_more_is_told_than_a_server_takes_however_much_was_under_way_at_the_end() -> None:
    async def load() -> LoadReport:
        counts, turn = counts_of(Load(seconds=1, warm_up_seconds=0, in_flight=3000)), asyncio.Lock()

        async def one(_since: float) -> int:
            async with turn:
                await asyncio.sleep(0.001)
            return 1

        await _paced(counts, one)
        return counts.report("send", "T", since=Since.BEGUN)

    report = run(load(), JumpingLoop)
    assert report.messages >= 3000
    assert report.messages_per_s == pytest.approx(1000, rel=0.01)


def test_failures_after_the_time_are_no_time_of_the_load() -> None:
    async def load() -> LoadReport:
        counts = counts_of(Load(seconds=10, warm_up_seconds=0, in_flight=1))

        async def one(_since: float) -> int:
            if counts.now() >= counts.began + 9:
                await asyncio.sleep(30)
                raise ConnectError("silent")
            await asyncio.sleep(0.01)
            return 1

        await _paced(counts, one)
        return counts.report("send", "T", since=Since.BEGUN)

    report = run(load(), JumpingLoop)
    assert (report.seconds, report.failed) == (10, 1)


def test_a_batch_that_fails_is_so_many_messages() -> None:
    calls = 0

    async def load() -> LoadReport:
        counts = counts_of(Load(Way.BATCH, 60, 0, None, 1, batch=5, messages=20))

        async def one(_since: float) -> int:
            nonlocal calls
            calls += 1
            raise ConnectError("refused")

        await _paced(counts, one)
        return counts.report("send", "T", since=Since.BEGUN)

    report = run(load(), JumpingLoop)
    assert (report.failed, calls) == (20, 4)


@pytest.mark.parametrize(("size", "messages"), [(1, 64), (128, 64), (100_000, 10), (1 << 20, 1), (4 << 20, 1)])
def test_a_topic_is_filled_with_what_brokers_take_in_a_request(size: int, messages: int) -> None:
    assert loads._fits(size) == messages


def test_a_late_timer_is_not_the_brokers() -> None:
    assert _began(10.0, 10.001) == 10.001
    assert _began(10.0, 10.5) == 10.0


@pytest.mark.parametrize("way", [Way.SYNC, Way.ASYNC, Way.ONEWAY, Way.BATCH, Way.TRANSACTION])
def test_messages_are_sent_each_way_and_the_topic_is_removed(cluster: Cluster, way: Way) -> None:
    held: list[int] = []

    async def look(session: Session) -> LoadReport:
        load = Load(way, 60, 0, None, 4, 64, batch=5, messages=20, keys=True, tags="t")
        async with own_topic(session, [], 2) as topic:
            found = await loads.sending(session, topic, load, {})
            async with asyncio.timeout(30):
                while sum(row.messages for row in (await status(session, topic)).items) < 20:  # noqa: ASYNC110
                    await asyncio.sleep(0.02)
            held.append(sum(row.messages for row in (await status(session, topic)).items))
        assert not (await listed(session, containing=NAME)).items
        return found.items[0]

    report = asked(cluster.namesrv_address, look)
    assert (report.messages, report.failed, held) == (20, 0, [20])
    assert report.latency is not None
    assert report.latency.count == (4 if way is Way.BATCH else 20)


@pytest.mark.parametrize("way", [Way.PULL, Way.PUSH])
def test_what_a_topic_holds_is_consumed_and_the_group_is_removed(cluster: Cluster, way: Way) -> None:
    async def look(session: Session) -> tuple[Result[LoadReport], list[str]]:
        async with own_topic(session, [], 2) as topic:
            with pytest.raises(AdminError, match="holds no message"):
                await loads.consuming(session, topic, Load(way), {})
            await loads.fill(session, topic, Load(size_bytes=50, messages=300), {})
            found = await loads.consuming(session, topic, Load(way, seconds=30), {})
        left = await listed(session, containing=NAME, everything=True)
        return found, [row.topic for row in left.items] + [row.name for row in (await groups(session)).items]

    found, left = asked(cluster.namesrv_address, look)
    (report,) = found.items
    assert (report.messages, report.size_bytes, report.latency, found.warnings) == (300, 50, None, [])
    assert left == []


def test_the_way_of_each_message_is_timed(cluster: Cluster) -> None:
    at = ("-n", cluster.namesrv_address)
    told = answer("bench", "latency", "--rate", 200, "--seconds", 0.5, "--warm-up", 0.1, *at)
    (report,) = told["items"]
    assert (report["missing"], report["failed"], report["since"]) == (0, 0, "due")
    assert report["messages"] == report["latency"]["count"] == sum(one["count"] for one in report["latency"]["buckets"])
    assert 0 < report["messages"] <= 100, "what is due when the time is over is left out"
    assert "at least 24 bytes" in orbitmq("bench", "latency", "--size", 8, *at, code=2).stderr


def test_what_was_stored_without_an_answer_does_not_hide_what_is_lost(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loads, "Producer", partial(Producer, send_timeout_ms=500))

    async def look(session: Session) -> Result[LoadReport]:
        async with own_topic(session, [], 2) as topic:
            return await loads.end_to_end(session, topic, Load(Way.SYNC, 0.5, 0, 40, 8, 64), {})

    cluster.lose_response(RequestCode.SEND_MESSAGE_V2, times=3)
    try:
        found = asked(cluster.namesrv_address, look)
    finally:
        cluster.heal()
    (report,) = found.items
    assert (report.messages + report.failed, report.missing, found.check_failed) == (20, 0, False)
    assert report.failed >= 3


def test_a_broker_that_takes_nothing_is_an_error_and_no_rate_of_0(cluster: Cluster) -> None:
    cluster.refuse(RequestCode.SEND_MESSAGE_V2, times=10_000)
    try:
        told = orbitmq(
            "bench", "send", "--messages", 1, "--warm-up", 0, "-s", 0.5, "-n", cluster.namesrv_address, code=1
        )
        assert "nothing could be sent" in told.stderr
    finally:
        cluster.heal()


def test_an_interruption_leaves_the_figures_so_far_and_nothing_else(cluster: Cluster) -> None:
    async def look(session: Session) -> Result[LoadReport]:
        async def bench() -> Result[LoadReport]:
            async with own_topic(session, [], 2) as topic:
                return await loads.sending(session, topic, Load(seconds=600, warm_up_seconds=0), {})

        task = asyncio.ensure_future(bench())
        async with asyncio.timeout(30):
            while not cluster_holds(await listed(session, containing=NAME), cluster):  # noqa: ASYNC110
                await asyncio.sleep(0.02)
        task.cancel()
        found = await task
        assert not (await listed(session, containing=NAME)).items
        return found

    found = asked(cluster.namesrv_address, look)
    assert found.items[0].messages > 0
    assert found.warnings == ["it was interrupted: these are the metrics so far"]


def test_ctrl_c_ends_it_with_a_table(cluster: Cluster) -> None:
    words = ("bench", "send", "--seconds", "600", "--warm-up", "0", "-n", cluster.namesrv_address)
    with subprocess.Popen([ORBITMQ, *words], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        wait_until(lambda: cluster_holds(bench_topics(cluster), cluster), 30, "messages of the load")
        process.send_signal(signal.SIGINT)
        told, beside = process.communicate(timeout=30)
    assert process.returncode == 0, beside
    assert "P99.9 MS" in told
    assert "these are the metrics so far" in beside
    assert not bench_topics(cluster).items


def bench_topics(cluster: Cluster) -> Result[Topic]:
    return asked(cluster.namesrv_address, lambda session: listed(session, containing=NAME))


def cluster_holds(found: Result[Topic], cluster: Cluster) -> bool:
    return any(cluster.message_count(row.topic) > 20 for row in found.items)


def test_a_readonly_context_has_no_load(cluster: Cluster, monkeypatch: pytest.MonkeyPatch, tmp_path: object) -> None:
    monkeypatch.setenv("ORBITMQ_CONFIG", f"{tmp_path}/config.toml")
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)
    orbitmq("context", "add", "look", "-n", cluster.namesrv_address, "--readonly")
    assert "readonly" in orbitmq("bench", "send", "-s", 1, code=4).stderr
    with pytest.raises(ConfigurationError, match="at a rate"):
        asked(cluster.namesrv_address, lambda session: loads.end_to_end(session, "T", Load(), {}))
