"""Requests that have waited too long are refused: for a busy loop, or because their peer took no answers."""

from __future__ import annotations

import asyncio
import math
import threading
import time
from collections.abc import Callable
from functools import partial

import pytest

from orbitmq.message.javajson import LENIENT_ALWAYS, LENIENT_MAX
from orbitmq.net.connection import TURN_COMMANDS, WRITE_BUFFER_HIGH, Connection
from orbitmq.net.lateness import HELD_UP_MS, STALL_SECONDS, TICK_SECONDS, Lateness
from orbitmq.net.routing import Router
from orbitmq.runtime.histogram import Histogram
from orbitmq.runtime.periodic import Periodic
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.objects import STRANGERS
from tests.support.loops import PATIENCE_SECONDS, LoopFactory, settle, turned_loop, until
from tests.support.peers import bare_peer, serving

LIMITED, FREE, BUSY, LARGE = 10, 11, 12, 13
LIMIT_MS = 200


class Hand:
    """Seconds, moved by hand."""

    def __init__(self) -> None:
        self.seconds = 1000.0

    def __call__(self) -> float:
        return self.seconds


# ------------------------------------------------------------------------------------------------------------ measuring


async def test_a_loop_that_keeps_its_time_is_not_late(turned_clock: LoopFactory) -> None:
    hand = Hand()
    lateness = Lateness(hand)
    assert lateness.waited_ms() == 0
    lateness.start()
    for _ in range(3):
        hand.seconds += TICK_SECONDS
        await turned_loop().turn(TICK_SECONDS)
        assert lateness.waited_ms() == pytest.approx(0, abs=0.001)
    lateness.stop()


async def test_a_busy_turn_shows_before_and_right_after_the_timer_and_not_for_ever(turned_clock: LoopFactory) -> None:
    hand = Hand()
    lateness = Lateness(hand)
    lateness.start()
    hand.seconds += TICK_SECONDS + 0.3
    assert lateness.waited_ms() == pytest.approx(300), "the timer has not fired yet, and should have"
    turned_loop()._turned_seconds += TICK_SECONDS
    lateness._tick()
    assert lateness.waited_ms() == pytest.approx(300), "sockets may be read after the timers of the same turn"
    await settle(3)
    assert lateness.waited_ms() == 0
    lateness.stop()
    hand.seconds += 60
    assert lateness.waited_ms() == 0, "nothing is measured after the end"


async def test_of_a_time_the_loop_was_held_up_counts_what_it_has_worked(turned_clock: LoopFactory) -> None:
    hand, worked = Hand(), Hand()
    lateness = Lateness(hand, worked=worked)
    assert lateness.busy_ms(300) == 300, "without a measure nothing is forgiven"
    lateness.start()
    assert lateness.busy_ms(300) == 300, "it is not known how the time before the start was spent"
    for _ in range(5):
        hand.seconds += TICK_SECONDS
        worked.seconds += TICK_SECONDS / 2
        await turned_loop().turn(TICK_SECONDS)
    hand.seconds += 0.3
    worked.seconds += 0.05
    assert lateness.busy_ms(300) == pytest.approx(50)
    between_ms = TICK_SECONDS * 1000 / 2
    assert lateness.busy_ms(300 + between_ms) == pytest.approx(50 + between_ms), "from the last measurement before"
    assert lateness.busy_ms(HELD_UP_MS) == HELD_UP_MS, "whoever has waited so long may have given up"
    worked.seconds += 1
    assert lateness.busy_ms(300) == 300, "never more than the time itself"
    lateness.stop()
    assert lateness.busy_ms(300) == 300


async def test_how_the_time_was_spent_is_known_for_as_long_as_it_may_be_forgiven(turned_clock: LoopFactory) -> None:
    hand, worked = Hand(), Hand()
    lateness = Lateness(hand, worked=worked)
    lateness.start()
    for _ in range(int(2 * HELD_UP_MS / 1000 / TICK_SECONDS)):
        hand.seconds += TICK_SECONDS
        worked.seconds += TICK_SECONDS / 4
        await turned_loop().turn(TICK_SECONDS)
    assert lateness.busy_ms(HELD_UP_MS - 1) == pytest.approx(HELD_UP_MS / 4, abs=TICK_SECONDS * 250)
    assert lateness._marks[1].at > hand.seconds - HELD_UP_MS / 1000, "and no longer"
    lateness.stop()


def above(histogram: Histogram, bound: float) -> int:
    """How many were above one of its bounds."""
    counts = dict(histogram.counts())
    return counts[math.inf] - counts[bound]


async def test_a_stall_stays_counted_after_the_loop_has_caught_up(turned_clock: LoopFactory) -> None:
    hand, worked = Hand(), Hand()
    lateness = Lateness(hand, worked=worked)
    lateness.start()
    for late, cpu in ((0.0, 0.0), (0.3, 0.3), (0.4, 0.03)):
        hand.seconds += TICK_SECONDS + late
        worked.seconds += cpu
        await turned_loop().turn(TICK_SECONDS)
    assert lateness.waited_ms() == pytest.approx(0, abs=0.001)
    assert (above(lateness.delays, 0.25), above(lateness.busy_delays, 0.25)) == (2, 1), "one of them waited for others"
    assert above(lateness.busy_delays, 0.02) == 2
    assert lateness.longest_ms == pytest.approx(400)
    hand.seconds = lateness._period_ends
    lateness._count(hand.seconds, 0.0, 0.0)
    assert lateness.longest_ms == pytest.approx(400), "of the last minute"
    hand.seconds = lateness._period_ends
    lateness._count(hand.seconds, 0.0, 0.0)
    assert lateness.longest_ms == 0
    lateness.stop()


async def test_a_short_stall_gets_no_line_in_the_log(
    turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    lateness = Lateness(Hand())
    lateness._count(0.0, STALL_SECONDS - 0.001, 0.0)
    assert "event=loop_stalled" not in caplog.text
    lateness._count(0.0, STALL_SECONDS, 0.012)
    assert "event=loop_stalled ms=100 worked_ms=12" in caplog.text


def stuck(lateness: Lateness) -> None:
    """Keep the loop until somebody has looked what it does, and until it is a stall."""
    end = time.monotonic() + PATIENCE_SECONDS
    while (not lateness._watch.seen or lateness.waited_ms() < STALL_SECONDS * 1000) and time.monotonic() < end:
        time.sleep(0.001)  # a loop that cannot turn is what is tested


def told_of_stall(caplog: pytest.LogCaptureFixture) -> str:
    """The first line about one."""
    return next((text for text in caplog.messages if text.startswith("event=loop_stalled")), "")


async def test_a_stall_is_logged_with_the_request_that_made_it(
    both_loops: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address), bare_peer(address) as peer:

        def block(_connection: Connection, command: Command) -> Command:
            stuck(server.lateness)
            return command.response(0)

        desk.router.add(BUSY, block)
        assert (await peer.ask(request(BUSY))).code == 0
        await until(lambda: told_of_stall(caplog), "a line about the stall")
        assert f" request={BUSY} request_ms=" in told_of_stall(caplog)
        assert ":stuck,test_lateness.py:" in told_of_stall(caplog)


@pytest.mark.parametrize("way", ["handler", "job"])
async def test_a_stall_is_logged_with_the_task_that_made_it(
    both_loops: LoopFactory, caplog: pytest.LogCaptureFixture, way: str
) -> None:
    desk, periodic = Desk(), Periodic()
    async with serving(desk.router) as (server, address), bare_peer(address) as peer:

        async def block(_connection: Connection, command: Command) -> Command:
            await asyncio.sleep(0)
            stuck(server.lateness)
            return command.response(0)

        if way == "handler":
            desk.router.add(BUSY, block)
            await peer.ask(request(BUSY))
        else:
            periodic.every(0.001, partial(stuck, server.lateness))
            periodic.start()
        await until(lambda: told_of_stall(caplog), "a line about the stall")
        await periodic.stop()
        assert (
            f"task=request-{BUSY} " if way == "handler" else " task=functools.partial(<function stuck"
        ) in told_of_stall(caplog)
        assert ":stuck," in told_of_stall(caplog)


async def test_the_watch_ends_with_the_measurement(both_loops: LoopFactory) -> None:
    async with serving(Desk().router):
        assert "orbitmq-stalls" in {thread.name for thread in threading.enumerate()}
    await until(lambda: "orbitmq-stalls" not in {thread.name for thread in threading.enumerate()})


# ------------------------------------------------------------------------------------------------------------- refusing


class Desk:
    """Handlers for the codes above; `seen` are those that ran."""

    def __init__(self) -> None:
        self.router = Router("desk")
        self.seen: list[bytes] = []
        for code in (LIMITED, FREE):
            self.router.add(code, self.echo)
        self.router.limit_wait(LIMITED, LIMIT_MS)

    def echo(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command.body)
        return command.response(0, body=command.body)


async def test_what_waited_longer_than_its_limit_is_refused_and_nothing_else() -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address):
        waited = [0.0]
        server.lateness.waited_ms = lambda: waited[0]  # type: ignore[method-assign]
        server.lateness.busy_ms = lambda waited_ms: waited_ms  # type: ignore[method-assign]
        async with bare_peer(address) as peer:
            for waited[0], code in ((0.0, 0), (LIMIT_MS, 0), (LIMIT_MS + 1, 2), (5.0, 0)):
                answer = await peer.ask(request(LIMITED, body=b"x"))
                assert answer.code == code
            assert desk.seen == [b"x"] * 3
            waited[0] = 250.0
            oneway = request(LIMITED, body=b"oneway", oneway=True)
            free = request(FREE, body=b"free")
            await peer.send(request(LIMITED, body=b"late"), oneway, free)
            refused, served = await peer.read(), await peer.read()
            assert (refused.code, served.code, served.body) == (2, 0, b"free")
            assert (refused.remark or "").startswith("[TIMEOUT_CLEAN_QUEUE]")
            assert "250 ms" in (refused.remark or "")
            assert desk.seen[3:] == [b"free"], "nothing that is refused is done, answered or not"


async def test_what_is_decoded_in_later_turns_has_waited_as_long() -> None:
    desk, count = Desk(), 3 * TURN_COMMANDS
    async with serving(desk.router) as (server, address), bare_peer(address) as peer:
        await until(lambda: server.connections)
        (first,) = server.connections
        server.lateness.waited_ms = lambda: LIMIT_MS + 1.0  # type: ignore[method-assign]
        server.lateness.busy_ms = lambda waited_ms: waited_ms  # type: ignore[method-assign]
        first.data_received(b"".join(encode_frame(request(LIMITED, body=b"late")) for _ in range(count)))
        assert [(await peer.read()).code for _ in range(count)] == [2] * count
        assert desk.seen == []


def test_without_a_limit_nothing_is_ever_overdue() -> None:
    router = Router()
    assert router.patience_ms == math.inf
    router.limit_wait(LIMITED, 200)
    router.limit_wait(FREE, 5000)
    assert router.patience_ms == 200
    assert router.overdue(request(FREE), 4999) is None
    assert router.overdue(request(BUSY), 1e9) is None


def work(seconds: float) -> None:
    """What a busy loop does: the processor is its own."""
    end = time.thread_time() + seconds
    while time.thread_time() < end:
        pass


@pytest.mark.parametrize(
    ("hold", "seconds", "code"),
    [
        pytest.param(work, 0.3, 2, id="worked"),
        pytest.param(time.sleep, 0.3, 0, id="held-up"),
        pytest.param(time.sleep, HELD_UP_MS / 1000 + 0.1, 2, id="held-up-for-long"),
    ],
)
async def test_bytes_that_come_while_the_loop_is_busy_have_waited(
    both_loops: LoopFactory, hold: Callable[[float], None], seconds: float, code: int
) -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address), bare_peer(address) as late, bare_peer(address) as busy:
        await until(lambda: len(server.connections) == 2)

        def block(_connection: Connection, command: Command) -> Command:
            late.writer.write(encode_frame(request(LIMITED, body=b"meanwhile")))  # goes to the kernel at once
            hold(seconds)  # a loop that cannot turn is what is tested
            return command.response(0)

        desk.router.add(BUSY, block)
        await until(lambda: server.lateness.busy_ms(1) < 1)  # measured for long enough to be told apart
        assert (await busy.ask(request(BUSY))).code == 0
        assert (await late.read()).code == code
        assert desk.seen == ([] if code else [b"meanwhile"])
        assert (await late.ask(request(LIMITED, body=b"then"))).code == 0


async def test_requests_of_a_peer_that_takes_no_answers_have_waited(turned_clock: LoopFactory) -> None:
    desk = Desk()
    size = 256 << 10

    def large(_connection: Connection, command: Command) -> Command:
        desk.seen.append(b"large")
        return command.response(0, body=bytes(size))

    desk.router.add(LARGE, large)
    asked = 4 * WRITE_BUFFER_HIGH // size
    async with serving(desk.router) as (server, address), bare_peer(address) as peer:
        frames = [request(LARGE) for _ in range(asked)] + [request(LIMITED, body=b"late")]
        await peer.send(*frames)
        await until(lambda: [one for one in server.connections if not one.takes_more])
        await turned_loop().turn(1.5 * HELD_UP_MS / 1000)
        assert sorted([(await peer.read()).code for _ in frames]) == [0] * asked + [2]
        assert b"late" not in desk.seen


async def test_what_requests_may_cost_is_refilled_while_a_server_runs() -> None:
    STRANGERS.spend(LENIENT_MAX + 5_000)
    assert STRANGERS.most == LENIENT_ALWAYS
    async with serving(Desk().router):
        await until(lambda: STRANGERS.most > LENIENT_ALWAYS)
    STRANGERS.refill(10)


async def test_the_measure_ends_with_the_server() -> None:
    desk = Desk()
    async with serving(desk.router) as (server, _):
        assert server.lateness._timer is not None
    assert server.lateness._timer is None
