"""Sessions end, plans grow old, and whoever guesses passwords has to wait."""

from __future__ import annotations

import pytest

from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Result
from orbitmq.dashboard import logins
from orbitmq.dashboard.logins import Guesses, Logins, PendingPlan
from orbitmq.dashboard.roles import Role


class Clock:
    now = 1000.0

    def __call__(self) -> float:
        return self.now


@pytest.fixture
def clock() -> Clock:
    return Clock()


def test_a_session_ends_when_it_is_idle_or_old(clock: Clock) -> None:
    known = Logins(clock)
    key, login = known.begin("anna", Role.VIEWER)
    clock.now += logins.IDLE_SECONDS
    assert known.find(key) is login
    clock.now += logins.IDLE_SECONDS + 1
    assert known.find(key) is None
    key, login = known.begin("anna", Role.VIEWER)
    for _ in range(round(logins.LIFE_SECONDS / logins.IDLE_SECONDS)):
        clock.now += logins.IDLE_SECONDS
        assert known.find(key) is login
    clock.now += 1
    assert known.find(key) is None


def test_sessions_are_their_own_and_bounded(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "LOGINS_MAX", 3)
    known = Logins(clock)
    keys = [known.begin(str(number), Role.VIEWER)[0] for number in range(3)]
    assert len({*keys, *(login.csrf for key in keys if (login := known.find(key)))}) == 6
    known.find(keys[0])
    known.begin("3", Role.VIEWER)
    assert [known.find(key) is not None for key in keys] == [True, False, True], "the one idle longest gave way"
    known.end(keys[0])
    assert known.find(keys[0]) is None
    assert known.find("made up") is None


def test_a_token_is_the_login_s_own(clock: Clock) -> None:
    known = Logins(clock)
    (_, one), (_, other) = known.begin("a", Role.ADMIN), known.begin("a", Role.ADMIN)
    assert one.is_token(one.csrf)
    assert not one.is_token(other.csrf)
    assert not one.is_token("")
    assert not one.is_token("é")


def test_plans_grow_old_and_are_bounded(clock: Clock) -> None:
    _, login = Logins(clock).begin("anna", Role.ADMIN)
    keys = [login.keep(PendingPlan(Plan("x"), "local", "", Role.ADMIN, clock.now)) for _ in range(logins.PLANS_MAX + 1)]
    assert login.plan(keys[0], clock.now) is None
    assert login.plan(keys[1], clock.now + logins.PLAN_SECONDS) is not None
    running = login.plan(keys[2], clock.now)
    assert running is not None
    running.is_running = True
    late = clock.now + logins.PLAN_SECONDS + 1
    assert login.plan(keys[1], late) is None
    assert login.plan(keys[2], late) is running


def test_who_guesses_waits_longer_and_longer(clock: Clock) -> None:
    guesses = Guesses(clock)
    for _ in range(logins.OF_BOTH.free_tries):
        assert guesses.wait_seconds("anna", "here") == 0
        guesses.wrong("anna", "here")
    assert guesses.wait_seconds("anna", "here") == 1
    assert guesses.wait_seconds("anna", "there") == 0, "its owner sits elsewhere"
    assert guesses.wait_seconds("ben", "here") == 0
    clock.now += 1
    assert guesses.wait_seconds("anna", "here") == 0
    for _ in range(14):
        guesses.wrong("anna", "here")
    assert guesses.wait_seconds("anna", "here") == logins.OF_BOTH.wait_seconds_max
    guesses.right("anna", "here")
    assert guesses.wait_seconds("anna", "here") == 0


def test_an_address_that_tries_many_names_waits_and_a_name_tried_from_everywhere_does_but_shortly(clock: Clock) -> None:
    guesses = Guesses(clock)
    for number in range(logins.OF_PEER.free_tries):
        guesses.wrong(f"name {number}", "here")
    assert guesses.wait_seconds("anna", "here") == 1
    for number in range(2 * logins.OF_NAME.free_tries):
        guesses.wrong("anna", f"place {number}")
    assert guesses.wait_seconds("anna", "her own") == logins.OF_NAME.wait_seconds_max == 5


def test_guesses_are_remembered_for_so_many(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "GUESSED_MAX", 30)
    guesses = Guesses(clock)
    for number in range(1000):
        for _ in range(logins.OF_BOTH.free_tries):
            guesses.wrong(f"name {number}", f"place {number}")
    assert guesses.wait_seconds("name 0", "place 0") == 0
    assert guesses.wait_seconds("name 999", "place 999") == 1


def test_what_has_ended_is_not_held(clock: Clock) -> None:
    known = Logins(clock)
    known.begin("anna", Role.VIEWER)
    clock.now += logins.IDLE_SECONDS + 1
    known.begin("ben", Role.VIEWER)
    assert len(known) == 1


def test_a_plan_that_is_being_made_is_never_forgotten(clock: Clock) -> None:
    _, login = Logins(clock).begin("anna", Role.ADMIN)
    first = login.keep(PendingPlan(Plan("x"), "local", "", Role.ADMIN, clock.now))
    login.pending[first].is_running = True
    for _ in range(2 * logins.PLANS_MAX):
        login.keep(PendingPlan(Plan("x"), "local", "", Role.ADMIN, clock.now))
    assert login.plan(first, clock.now) is not None
    assert len(login.pending) == logins.PLANS_MAX
    made = list(login.pending)[1]
    login.pending[made].result = Result()
    login.keep(PendingPlan(Plan("x"), "local", "", Role.ADMIN, clock.now))
    assert made not in login.pending, "one that is made goes before one that waits"
    clock.now += logins.PLAN_SECONDS + 1
    login.keep(PendingPlan(Plan("x"), "local", "", Role.ADMIN, clock.now))
    assert len(login.pending) == 2, "and the old ones go with what they hold"
