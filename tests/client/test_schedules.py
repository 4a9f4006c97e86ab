"""A schedule fires at the times that it names, in every process the same, and loses none while brokers are away."""

from __future__ import annotations

import logging
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from itertools import islice
from typing import Any
from zoneinfo import ZoneInfo

import pytest

from orbitmq.client import (
    ConfigurationError,
    ConsumeFromWhere,
    InvalidStateError,
    Message,
    MessageExt,
    MessageIllegal,
    Producer,
    Schedule,
    sync,
)
from orbitmq.client.schedules import AGAIN_S
from orbitmq.message.properties import decode_properties
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.runtime.clock import ManualClock
from orbitmq.testing import Cluster
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system, refuse
from tests.support.loops import TurnedLoop, run, turned_loop, until
from tests.support.process import wait_until

SEND = RequestCode.SEND_MESSAGE_V2
NOON = datetime(2027, 1, 1, 12, tzinfo=UTC)
NOON_MS = round(NOON.timestamp() * 1000)
BERLIN = ZoneInfo("Europe/Berlin")


def made(**given: Any) -> Schedule:
    return Schedule(Producer("p", "127.0.0.1:1"), "name", Message("T", b"x"), **given)


def firings(after: datetime, count: int, **given: Any) -> list[str]:
    return [at.strftime("%d %H:%M:%S") for at in islice(made(**given).firings(after), count)]


def sent(system: FakeSystem) -> list[dict[str, str]]:
    return [decode_properties(one.header(SendMessageV2Header).properties) for one in system.asked if one.code == SEND]


@pytest.mark.parametrize(
    ("after", "expected"),
    [
        (NOON, ["01 12:20:00", "01 12:40:00", "01 13:00:00"]),
        (NOON - timedelta(milliseconds=1), ["01 12:00:00", "01 12:20:00", "01 12:40:00"]),
        (NOON.astimezone(BERLIN) + timedelta(minutes=25), ["01 12:40:00", "01 13:00:00", "01 13:20:00"]),
    ],
)
def test_intervals_and_expressions_do_not_depend_on_when_a_process_starts(after: datetime, expected: list[str]) -> None:
    assert firings(after, 3, every=timedelta(minutes=20)) == expected
    assert firings(after, 3, cron="*/20 * * * *") == expected


@pytest.mark.parametrize(
    ("cron", "after", "expected"),
    [
        # The clock skips 02:00 to 03:00 on the 28th of March, which is 01:00 in UTC.
        ("30 2 * * *", datetime(2027, 3, 27, tzinfo=BERLIN), ["27 01:30:00", "28 01:00:00", "29 00:30:00"]),
        ("*/30 * * * *", datetime(2027, 3, 28, 1, 20, tzinfo=BERLIN), ["28 00:30:00", "28 01:00:00", "28 01:30:00"]),
        # On the 31st of October, 02:00 to 03:00 comes twice.
        ("30 2 * * *", datetime(2027, 10, 30, tzinfo=BERLIN), ["30 00:30:00", "31 00:30:00", "01 01:30:00"]),
        ("30 * * * *", datetime(2027, 10, 31, 1, 50, tzinfo=BERLIN), ["31 00:30:00", "31 01:30:00", "31 02:30:00"]),
    ],
)
def test_a_change_of_the_clock_neither_loses_nor_doubles(cron: str, after: datetime, expected: list[str]) -> None:
    assert firings(after, 3, cron=cron, time_zone="Europe/Berlin") == expected


@pytest.mark.parametrize(
    "given",
    [
        {},
        {"every": 60, "cron": "* * * * *"},
        {"every": 0.5},
        {"every": -60},
        {"every": 60, "ahead": 0},
        {"cron": "* * * *"},
        {"cron": "99 * * * *"},
        {"cron": "* * * * *", "time_zone": "Nowhere/City"},
        {"cron": "* * * * *", "time_zone": ""},
    ],
)
def test_what_is_no_schedule_is_refused(given: dict[str, Any]) -> None:
    with pytest.raises(ConfigurationError):
        made(**given)


@pytest.mark.parametrize("name", ["", "a b", "a\n"])
def test_a_name_is_a_key(name: str) -> None:
    with pytest.raises(ConfigurationError, match="name"):
        Schedule(Producer("p", "127.0.0.1:1"), name, Message("T", b"x"), every=60)


def test_a_message_with_a_time_of_its_own_is_refused() -> None:
    with pytest.raises(MessageIllegal):
        Schedule(Producer("p", "127.0.0.1:1"), "n", Message("T", b"x", delay_level=3), every=60)


def test_firings_are_sent_once_before_their_time_under_their_names() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            system.topics["T"] = 8
            clock = ManualClock(NOON_MS)
            message = Message("T", b"x", keys="own", tags="a", expires_after=5)
            schedule = Schedule(producer, "report", message, every=60, ahead=120, clock=clock)
            assert [await schedule.send_next() for _ in range(2)] == [2, 0]
            clock.advance(59_999)
            assert await schedule.send_next() == 0
            clock.advance(1)
            assert await schedule.send_next() == 1
            first, _, third = sent(system)
            assert first["KEYS"] == "own report@2027-01-01T12:01:00Z"
            assert first["IDEMPOTENCY_TOKEN"] == "report@2027-01-01T12:01:00Z"
            assert first["TIMER_DELIVER_MS"] == str(NOON_MS + 60_000)
            assert int(third["TIMER_DELIVER_MS"]) == NOON_MS + 180_000
            assert first["TAGS"] == "a"
            assert len({one.header(SendMessageV2Header).queue_id for one in system.asked if one.code == SEND}) == 1
            assert message.keys == "own"
            again = Schedule(producer, "report", message, every=60, ahead=120, clock=ManualClock(NOON_MS))
            await again.send_next()
            names = [one["IDEMPOTENCY_TOKEN"] for one in sent(system)]
            assert names[3:] == names[:2]
            assert sent(system)[3]["UNIQ_KEY"] != first["UNIQ_KEY"]

    run(scenario())


def test_a_firing_that_cannot_be_sent_is_tried_again(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address, retry_times=0) as producer:
            system.topics["T"] = 1
            system.answers[SEND] = refuse(ResponseCode.NO_PERMISSION, times=1)
            clock = ManualClock(NOON_MS)
            async with Schedule(producer, "n", Message("T", b"x"), every=60, clock=clock):
                await until(lambda: "event=firings_not_sent" in caplog.text)
                await turned_loop().turn(AGAIN_S + 0.1)
                await until(lambda: len(sent(system)) == 2)
                clock.advance(30_000)
                await turned_loop().turn(30)
                clock.advance(30_000)
                await turned_loop().turn(30)
                await until(lambda: len(sent(system)) == 3)
            refused, first, second = (one["IDEMPOTENCY_TOKEN"] for one in sent(system))
            assert refused == first != second

    with caplog.at_level(logging.WARNING):
        run(scenario(), TurnedLoop)


def test_what_is_long_past_is_not_made_up_for(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            system.topics["T"] = 1
            clock = ManualClock(NOON_MS)
            schedule = Schedule(producer, "n", Message("T", b"x"), every=60, ahead=60, clock=clock)
            clock.advance(3_600_000)
            assert await schedule.send_next() == 2
            assert sent(system)[0]["IDEMPOTENCY_TOKEN"] == "n@2027-01-01T13:00:00Z"

    with caplog.at_level(logging.WARNING):
        run(scenario())
    assert "event=firings_missed schedule=n from=2027-01-01T12:00:00+00:00" in caplog.text


def test_a_factory_gets_the_time_and_what_it_raises_costs_one_firing(caplog: pytest.LogCaptureFixture) -> None:
    def make(at: datetime) -> Message:
        if at.minute == 2:
            raise ValueError("a bug")
        return Message("T", b"%d" % at.minute, delay_level=1 if at.minute == 3 else 0)

    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            system.topics["T"] = 1
            await Schedule(producer, "n", make, every=60, ahead=240, clock=ManualClock(NOON_MS)).send_next()
            assert [one.body for one in system.asked if one.code == SEND] == [b"1", b"4"]

    run(scenario())
    assert caplog.text.count("event=firing_skipped") == 2


def test_a_schedule_starts_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            async with Schedule(producer, "n", Message("T", b"x"), every=3600) as schedule:
                with pytest.raises(InvalidStateError):
                    await schedule.start()
            await schedule.shutdown()

    run(scenario())


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as one:
        yield one


def test_a_broker_delivers_firings_at_their_time_without_the_process(cluster: Cluster) -> None:
    """Those of two processes under one name and in one queue."""
    with sync.Producer("p", cluster.namesrv_address) as producer:
        for sent_count in (2, 4):
            with sync.Schedule(producer, "tick", Message("T", b"x"), every=3600, ahead=7200):
                wait_until(lambda: cluster.message_count(TIMER_TOPIC) == sent_count, 30, "the firings")  # noqa: B023
    assert cluster.message_count("T") == 0
    cluster.advance(3600)
    with sync.LitePullConsumer(
        "g", cluster.namesrv_address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    ) as consumer:
        consumer.subscribe("T")
        got: list[MessageExt] = []
        while len(got) < 2:
            got += consumer.poll(5)
        assert len({message.properties["IDEMPOTENCY_TOKEN"] for message in got}) == 1
        assert len({message.queue for message in got}) == 1
