"""Sessions end, plans grow old, and whoever guesses passwords has to wait."""

from __future__ import annotations

import pytest

from orbitmq.admin.plans import Plan
from orbitmq.dashboard import logins
from orbitmq.dashboard.logins import Guesses, Logins, Pending
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
    keys = [login.keep(Pending(Plan("x"), "local", "", Role.ADMIN, clock.now)) for _ in range(logins.PLANS_MAX + 1)]
    assert login.kept(keys[0], clock.now) is None
    assert login.kept(keys[1], clock.now + logins.PLAN_SECONDS) is not None
    running = login.kept(keys[2], clock.now)
    assert running is not None
    running.is_running = True
    late = clock.now + logins.PLAN_SECONDS + 1
    assert login.kept(keys[1], late) is None
    assert login.kept(keys[2], late) is running


def test_who_guesses_waits_longer_and_longer(clock: Clock) -> None:
    guesses = Guesses(clock)
    for _ in range(logins.FREE_TRIES):
        assert guesses.wait_seconds("name anna", "peer p") == 0
        guesses.wrong("name anna", "peer p")
    assert guesses.wait_seconds("name anna") == 1
    assert guesses.wait_seconds("name ben", "peer p") == 1, "another name from the same place"
    assert guesses.wait_seconds("name ben", "peer q") == 0
    clock.now += 1
    assert guesses.wait_seconds("name anna") == 0
    for _ in range(40):
        guesses.wrong("name anna")
    assert guesses.wait_seconds("name anna") == logins.WAIT_SECONDS_MAX
    guesses.right("name anna")
    assert guesses.wait_seconds("name anna") == 0


def test_guesses_are_remembered_for_so_many(clock: Clock, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(logins, "GUESSED_MAX", 10)
    guesses = Guesses(clock)
    for number in range(1000):
        for _ in range(logins.FREE_TRIES):
            guesses.wrong(f"name {number}")
    assert guesses.wait_seconds("name 0") == 0
    assert guesses.wait_seconds("name 999") == 1
