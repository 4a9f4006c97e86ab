"""A held pull runs when a message it wants arrives, when its time is up, or never when its client is gone."""

from __future__ import annotations

import logging
from collections.abc import Callable

import pytest

from orbitmq.broker import held_pulls
from orbitmq.broker.held_pulls import (
    COUNTED_SECONDS,
    GATHER_SECONDS_MAX,
    GATHER_TIMES,
    LOOKED_AT_MAX,
    PULL_SECONDS,
    WIDE_FROM,
    WIDE_SECONDS,
    HeldPull,
    HeldPulls,
)
from orbitmq.store.pull_batch import EVERYTHING, CloserLook, Matcher, Selection
from orbitmq.wire.command import request

RED, BLUE = 1001, 1002


class Client:
    """All of a connection that holding looks at."""

    is_open = True


class Takes:
    """Looks at messages, which are bytes here, and wants some."""

    reads_max = 800

    def __init__(self, *wanted: int) -> None:
        self.wanted = wanted

    def may_take(self, _extension: object) -> bool:
        raise AssertionError("a message that is read needs no bitmap")

    def takes(self, unit: memoryview) -> bool:
        return unit[0] in self.wanted


class Bench:
    """Held pulls whose turns of the loop the test makes."""

    def __init__(self, limit: int = 100) -> None:
        self.turns: list[Callable[[], None]] = []
        self.ran: list[HeldPull] = []
        self.read: list[int] = []
        self.now = 0.0
        self.pull_seconds = 10e-6
        """What it takes to run one."""
        self.timers: list[tuple[float, Callable[[], None]]] = []
        self.held = HeldPulls(
            self.run,
            lambda wake: self.turns.append(wake),
            lambda delay, wake: self.timers.append((delay, wake)),
            lambda: self.now,
            self.unit,
            limit,
        )

    def run(self, pull: HeldPull) -> None:
        self.ran.append(pull)
        self.now += self.pull_seconds

    def unit(self, _topic: str, _queue_id: int, offset: int) -> memoryview | None:
        """A message that consists of its offset; those beyond 100 are gone."""
        self.read.append(offset)
        return memoryview(bytes((offset,))) if offset <= 100 else None

    def hold(
        self,
        offset: int,
        *,
        queue: int = 0,
        deadline_ms: int = 1000,
        matcher: Matcher | None = None,
        look: CloserLook | None = None,
    ) -> HeldPull:
        pull = HeldPull(Client(), request(11), offset, deadline_ms, Selection(matcher, look))  # type: ignore[arg-type]
        assert self.held.hold("Orders", queue, pull)
        return pull

    def turn(self) -> list[HeldPull]:
        """One turn of the event loop; what ran in it."""
        turns, self.turns = self.turns, []
        self.ran.clear()
        for turn in turns:
            turn()
        return list(self.ran)

    def scan(self, now_ms: int, newest: int = 0) -> list[HeldPull]:
        self.ran.clear()
        self.held.scan(now_ms, lambda _topic, _queue: newest)
        return list(self.ran)


def test_an_arrival_wakes_those_who_want_it_and_no_others() -> None:
    bench = Bench()
    wants_all = bench.hold(5)
    wants_red = bench.hold(5, matcher={RED}.__contains__)
    bench.hold(5, matcher={BLUE}.__contains__)
    bench.hold(6)
    bench.hold(5, queue=1)
    bench.held.arrived("Orders", 0, 6, [RED])
    assert bench.turn() == [wants_all, wants_red]
    assert len(bench.held) == 3


def test_what_arrives_in_one_turn_is_answered_together() -> None:
    bench = Bench()
    pull = bench.hold(0, matcher={BLUE}.__contains__)
    for offset in range(10):
        bench.held.arrived("Orders", 0, offset + 1, [BLUE if offset == 7 else RED])
    assert len(bench.turns) == 1
    assert bench.turn() == [pull]
    bench.held.arrived("Orders", 0, 11, [BLUE])
    assert bench.turns == []


@pytest.mark.parametrize("pull_seconds", [1e-6, 40e-6])
def test_arrivals_are_gathered_for_a_few_times_as_long_as_the_last_pulls_took(pull_seconds: float) -> None:
    bench = Bench(10_000)
    bench.pull_seconds = pull_seconds
    for number in range(200):
        bench.hold(number % 2)
    bench.held.arrived("Orders", 0, 1, [RED])
    assert len(bench.turn()) == 100
    late = [bench.hold(1) for _ in range(3)]
    for offset in (2, 3):
        bench.held.arrived("Orders", 0, offset, [RED])
    assert bench.turns == []
    ((delay, wake),) = bench.timers
    assert delay == pytest.approx(GATHER_TIMES * 100 * max(pull_seconds, PULL_SECONDS))
    bench.now += delay
    bench.ran.clear()
    wake()
    assert bench.ran[-3:] == late


def test_arrivals_are_gathered_up_to_a_limit_and_not_at_all_once_it_is_quiet() -> None:
    bench = Bench(10_000)
    bench.pull_seconds = 0.01
    for number in range(150):
        bench.hold(number % 3)
    bench.held.arrived("Orders", 0, 1, [RED])
    assert len(bench.turn()) == 50
    bench.held.arrived("Orders", 0, 2, [RED])
    assert [delay for delay, _ in bench.timers] == [pytest.approx(GATHER_SECONDS_MAX)]
    bench.now += GATHER_SECONDS_MAX
    bench.pull_seconds = 0.0
    bench.timers.pop()[1]()
    bench.now += GATHER_TIMES * 50 * PULL_SECONDS
    bench.held.arrived("Orders", 0, 3, [RED])
    assert (len(bench.turn()), bench.timers) == (50, [])


def test_many_groups_are_known_by_their_pulls_also_when_no_arrival_wakes_them() -> None:
    bench = Bench()
    for second in range(4):
        for _ in range(10):
            bench.held.arrived("Orders", 0, 1, [RED])
            bench.held.arrived("Few", 0, 1, [RED])
            bench.held.note_reads("Orders", WIDE_FROM)
            bench.held.note_reads("Few", WIDE_FROM - 1)
            bench.held.note_reads("Old", WIDE_FROM)
            bench.now += COUNTED_SECONDS / 10
        assert bench.held.gathers("Orders") is (second > 0)
        assert not bench.held.gathers("Few")
        assert not bench.held.gathers("Old"), "they read what has been there for long"
    bench.now += WIDE_SECONDS
    assert not bench.held.gathers("Orders")


def test_a_pull_of_a_topic_that_many_groups_read_waits_for_what_is_gathered() -> None:
    bench = Bench(10_000)
    for _ in range(100):
        bench.hold(0)
    assert not bench.held.gathers("Orders")
    bench.held.arrived("Orders", 0, 1, [RED])
    bench.turn()
    assert bench.held.gathers("Orders")
    assert not bench.held.gathers("Other")
    waits = HeldPull(Client(), request(11), 0, 30_000, EVERYTHING)  # type: ignore[arg-type]
    assert bench.held.hold_for_gathered("Orders", 0, waits)
    ((delay, wake),) = bench.timers
    bench.now += delay
    bench.ran.clear()
    wake()
    assert bench.ran == [waits], "it finds something, whatever arrives"
    assert len(bench.held) == 0
    bench.now += WIDE_SECONDS + delay
    assert not bench.held.gathers("Orders")


def test_other_topics_do_not_wait_for_what_is_gathered() -> None:
    bench = Bench(10_000)
    for _ in range(100):
        bench.hold(0)
    bench.held.arrived("Orders", 0, 1, [RED])
    bench.turn()
    bench.hold(1)
    other = HeldPull(Client(), request(11), 0, 30_000, EVERYTHING)  # type: ignore[arg-type]
    assert bench.held.hold("Other", 0, other)
    bench.held.arrived("Orders", 0, 2, [RED])
    bench.held.arrived("Other", 0, 1, [RED])
    assert len(bench.timers) == len(bench.turns) == 1
    assert bench.turn() == [other]


def test_few_groups_are_never_kept_waiting() -> None:
    bench = Bench(10_000)
    for queue in range(8):
        for _ in range(WIDE_FROM - 1):
            bench.hold(0, queue=queue)
        bench.held.arrived("Orders", queue, 1, [RED])
    bench.turn()
    assert not bench.held.gathers("Orders")


def test_nothing_is_gathered_behind_a_round_of_few_pulls_or_after_a_while() -> None:
    bench = Bench(10_000)
    for number, pulls in enumerate((10, 300, 300)):
        for _ in range(pulls):
            bench.hold(number)
        bench.held.arrived("Orders", 0, number + 1, [RED])
        assert len(bench.turns) == 1
        while bench.turns:
            bench.turn()
        bench.now += 1
    assert bench.timers == []


@pytest.mark.parametrize(("offset", "is_woken"), [(6, True), (7, True), (8, False)])
def test_a_batch_wakes_by_those_of_its_messages_that_are_ahead(offset: int, is_woken: bool) -> None:
    bench = Bench()
    pull = bench.hold(offset, matcher={BLUE}.__contains__)
    bench.held.arrived("Orders", 0, 7, [BLUE, BLUE, RED])
    assert bench.turn() == [pull] * is_woken


def test_an_arrival_nobody_waits_for_costs_no_turn() -> None:
    bench = Bench()
    bench.hold(0, queue=1)
    bench.held.arrived("Orders", 0, 1, [RED])
    bench.held.arrived("Other", 1, 1, [RED])
    assert bench.turns == []


def test_a_pull_that_waits_on_wakes_at_the_next_message_it_wants() -> None:
    bench = Bench()
    pull = bench.hold(0, matcher={BLUE}.__contains__)
    bench.held.arrived("Orders", 0, 1, [RED])
    assert bench.turn() == []
    bench.held.arrived("Orders", 0, 2, [BLUE])
    assert bench.turn() == [pull]
    assert len(bench.held) == 0


def test_a_pull_with_an_expression_wakes_for_messages_that_match_it() -> None:
    bench = Bench()
    pulls = [bench.hold(3, look=Takes(7)), bench.hold(8, look=Takes(7, 9)), bench.hold(3, look=Takes(7))]
    for offset in (5, 6):
        bench.held.arrived("Orders", 0, offset + 1, [RED])
    assert bench.turn() == []
    assert bench.read == [5, 6], "each message is read once for all of them, and those before a pull not at all"
    bench.held.arrived("Orders", 0, 8, [RED])
    assert bench.turn() == [pulls[0], pulls[2]]
    bench.held.arrived("Orders", 0, 10, [RED])
    assert bench.turn() == [pulls[1]]


def test_a_pull_runs_when_a_message_is_gone_or_there_are_many() -> None:
    bench = Bench()
    pull = bench.hold(0, look=Takes())
    bench.held.arrived("Orders", 0, 102, [RED])
    assert bench.turn() == [pull]
    pull = bench.hold(0, look=Takes())
    for offset in range(LOOKED_AT_MAX):
        bench.held.arrived("Orders", 0, offset + 1, [RED])
    assert bench.turn() == []
    bench.read.clear()
    for offset in range(LOOKED_AT_MAX + 1):
        bench.held.arrived("Orders", 0, offset + 1, [RED])
    assert bench.turn() == [pull]
    assert bench.read == []


def test_a_pull_runs_when_its_time_is_up() -> None:
    bench = Bench()
    early, late = bench.hold(0, deadline_ms=1000), bench.hold(0, deadline_ms=1001)
    assert bench.scan(999) == []
    assert bench.scan(1000) == [early]
    assert bench.scan(5000) == [late]
    assert bench.scan(9000) == []


def test_a_scan_finds_a_queue_that_grew_unnoticed() -> None:
    bench = Bench()
    behind, ahead = bench.hold(3, matcher={BLUE}.__contains__), bench.hold(4)
    assert bench.scan(0, newest=4) == [behind]
    assert bench.scan(0, newest=5) == [ahead]


def test_a_closed_connection_is_dropped_without_running() -> None:
    bench = Bench()
    gone, there = bench.hold(0), bench.hold(0)
    gone.connection.is_open = False
    assert bench.scan(0) == []
    assert len(bench.held) == 1
    there.connection.is_open = False
    bench.held.arrived("Orders", 0, 1, [RED])
    assert bench.turn() == []
    assert len(bench.held) == 0


def test_more_than_the_limit_are_not_held(caplog: pytest.LogCaptureFixture) -> None:
    bench = Bench(limit=2)
    bench.hold(0)
    first = bench.hold(0, queue=1)
    surplus = HeldPull(Client(), request(11), 0, 1000, EVERYTHING)  # type: ignore[arg-type]
    with caplog.at_level(logging.WARNING):
        assert not bench.held.hold("Orders", 0, surplus)
    assert "limit=2" in caplog.text
    bench.held.arrived("Orders", 1, 1, [RED])
    assert bench.turn() == [first]
    assert bench.held.hold("Orders", 0, surplus)


def test_a_stopping_broker_runs_all_of_them() -> None:
    bench = Bench()
    pulls = {bench.hold(0, queue=number % 2) for number in range(6)}
    bench.held.release_all()
    assert set(bench.ran) == pulls
    assert len(bench.held) == 0


def test_many_pulls_that_one_message_wakes_run_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pulls, "TURN_PULLS", 10)
    bench = Bench()
    pulls = [bench.hold(0) for _ in range(25)]
    bench.held.arrived("Orders", 0, 1, [RED])
    assert [bench.turn() for _ in range(3)] == [pulls[:10], pulls[10:20], pulls[20:]]
    assert bench.turns == []
    assert len(bench.held) == 0


def test_a_scan_over_many_queues_is_done_in_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pulls, "TURN_QUEUES", 10)
    bench = Bench()
    pulls = [bench.hold(0, queue=queue) for queue in range(25)]
    looked: list[int] = []

    def newest(_topic: str, queue_id: int) -> int:
        looked.append(queue_id)
        return 1

    bench.held.scan(0, newest)
    assert (looked, bench.ran) == (list(range(10)), pulls[:10])
    bench.held.scan(0, newest)
    assert len(looked) == 10, "the last scan is still under way"
    assert bench.turn() == pulls[10:20]
    assert bench.turn() == pulls[20:]
    bench.held.scan(0, newest)
    assert looked == list(range(25))


def test_at_the_end_everything_is_answered_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(held_pulls, "TURN_PULLS", 2)
    bench = Bench()
    pulls = [bench.hold(0) for _ in range(5)]
    bench.held.arrived("Orders", 0, 1, [RED])
    bench.turn()
    bench.held.release_all()
    assert bench.ran == pulls
    assert bench.turn() == []


def test_one_connection_leaves_room_for_others(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(held_pulls, "HELD_BY_ONE_MAX", 2)
    bench, greedy = Bench(), Client()

    def hold(client: object) -> bool:
        pull = HeldPull(client, request(11), 0, 1000, Selection(None, None))  # type: ignore[arg-type]
        return bench.held.hold("Orders", 0, pull)

    assert [hold(greedy) for _ in range(3)] == [True, True, False]
    assert "event=pull_not_held" in caplog.text
    assert hold(Client())
    bench.held.arrived("Orders", 0, 1, [RED])
    bench.turn()
    assert hold(greedy), "what was answered counts no more"


def test_a_heavy_pull_counts_as_many_until_it_is_answered() -> None:
    bench = Bench(limit=10)

    def hold(weight: int) -> bool:
        pull = HeldPull(Client(), request(11), 0, 1000, EVERYTHING, weight)  # type: ignore[arg-type]
        return bench.held.hold("Orders", 0, pull)

    assert [hold(7), hold(4), hold(3), hold(1)] == [True, False, True, False]
    assert len(bench.held) == 2
    bench.held.arrived("Orders", 0, 1, [RED])
    bench.turn()
    assert len(bench.held) == 0
    assert hold(10)
