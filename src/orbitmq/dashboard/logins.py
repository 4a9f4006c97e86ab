"""Logins: sessions behind a cookie, the token in each form, and delays after wrong passwords.

Everything is in memory and ends with the process. Must not know HTTP.
"""

from __future__ import annotations

import asyncio
import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.admin.plans import Plan, Step
from orbitmq.admin.results import Result
from orbitmq.dashboard.roles import Role

LOGINS_MAX = 1000  # the one that was idle longest is removed
IDLE_SECONDS = 2 * 3600.0
LIFE_SECONDS = 12 * 3600.0
PLANS_MAX = 20  # plans of a login; the oldest is removed
TEXTS_MAX = 20  # texts of a login that are shown after a change; the oldest is removed
PLAN_SECONDS = 600.0  # a plan expires after ten minutes
GUESSED_MAX = 10_000  # names and addresses with wrong passwords that are remembered


class Brake(NamedTuple):
    """The number of wrong passwords without a delay, and the longest delay of further ones."""

    free_tries: int
    wait_seconds_max: float


OF_BOTH, OF_PEER, OF_NAME = Brake(5, 300.0), Brake(20, 300.0), Brake(100, 5.0)


@dataclass(slots=True)
class PendingPlan:
    """A plan that was shown. It is made once."""

    plan: Plan
    cluster: str
    back: str
    role: Role
    shown_at: float
    result: Result[Step] | None = None
    undo: str | None = None
    """The command that undoes it."""
    is_running: bool = False
    so_far: list[Step] = field(default_factory=list)
    """The steps that were made, while it is running."""
    making: asyncio.Task[Result[Step]] | None = None
    """Cancelled by a user who stops it."""


@dataclass(slots=True)
class Login:
    """The session of one browser."""

    name: str
    role: Role
    hashed: str
    """The hashed password at the login: if it changes, the session ends."""
    csrf: str
    began: float
    seen: float
    pending: OrderedDict[str, PendingPlan] = field(default_factory=OrderedDict)
    said: OrderedDict[str, str] = field(default_factory=OrderedDict)
    """Texts by the key in the address: other sites cannot make the page show a text of theirs."""

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.csrf.encode())

    def say(self, text: str) -> str:
        """Keep a text for the next page; return its key."""
        while len(self.said) >= TEXTS_MAX:
            self.said.popitem(last=False)
        key = secrets.token_urlsafe(12)
        self.said[key] = text
        return key

    def keep(self, one: PendingPlan) -> str:
        """Keep a plan until it is confirmed; return its id."""
        for old in [key for key, plan in self.pending.items() if self._is_old(plan, one.shown_at)]:
            del self.pending[old]
        if len(self.pending) >= PLANS_MAX:
            at_rest = [key for key, plan in self.pending.items() if not plan.is_running]
            made = [key for key in at_rest if self.pending[key].result is not None]
            del self.pending[(made or at_rest or list(self.pending))[0]]
        key = secrets.token_urlsafe(12)
        self.pending[key] = one
        return key

    def plan(self, key: str, now: float) -> PendingPlan | None:
        """The plan of this id; None if there is none, or if it has expired."""
        one = self.pending.get(key)
        if one is not None and one.result is None and self._is_old(one, now):
            del self.pending[key]
            return None
        return one

    @staticmethod
    def _is_old(one: PendingPlan, now: float) -> bool:
        return not one.is_running and now - one.shown_at > PLAN_SECONDS


class Logins:
    """`clock` returns monotonic seconds."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logins: OrderedDict[str, Login] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logins)

    def begin(self, name: str, role: Role, hashed: str = "") -> tuple[str, Login]:
        """A new session: the value of its cookie, and the login. Expired sessions are removed."""
        now = self._clock()
        for old in [key for key, login in self._logins.items() if _has_ended(login, now)]:
            del self._logins[old]
        while len(self._logins) >= LOGINS_MAX:
            self._logins.popitem(last=False)
        key, login = secrets.token_urlsafe(32), Login(name, role, hashed, secrets.token_urlsafe(32), now, now)
        self._logins[key] = login
        return key, login

    def find(self, key: str) -> Login | None:
        """The login of a cookie, unless its session has ended."""
        login = self._logins.get(key)
        if login is None:
            return None
        now = self._clock()
        if _has_ended(login, now):
            del self._logins[key]
            return None
        login.seen = now
        self._logins.move_to_end(key)
        return login

    def end(self, key: str) -> None:
        self._logins.pop(key, None)


def _has_ended(login: Login, now: float) -> bool:
    return now - login.seen > IDLE_SECONDS or now - login.began > LIFE_SECONDS


class Guesses:
    """Delays after wrong passwords: after a few for a name from an address, after more from an address, and after many
    for a name from all addresses. That of a name alone is short, or anyone could lock its owner out."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_seconds(self, name: str, peer: str) -> float:
        """How long the next attempt for the name from this address has to wait; 0 if it may be made now."""
        now = self._clock()
        return max([0.0, *(self._until(kind, who) - now for kind, who in _brakes(name, peer))])

    def _until(self, kind: Brake, who: str) -> float:
        count, at = self._wrong.get(who, (0, 0.0))
        if count < kind.free_tries:
            return 0.0
        return at + min(kind.wait_seconds_max, 2.0 ** (count - kind.free_tries))

    def wrong(self, name: str, peer: str, tries: int = 1) -> None:
        """Count `tries`; the delay starts again."""
        now = self._clock()
        for _, who in _brakes(name, peer):
            count, _ = self._wrong.pop(who, (0, 0.0))
            self._wrong[who] = (count + tries, now)
        while len(self._wrong) > GUESSED_MAX:
            self._wrong.popitem(last=False)

    def right(self, name: str, peer: str) -> None:
        for _, who in _brakes(name, peer):
            self._wrong.pop(who, None)


def _brakes(name: str, peer: str) -> tuple[tuple[Brake, str], ...]:
    return (OF_BOTH, f"both {peer} {name}"), (OF_PEER, f"peer {peer}"), (OF_NAME, f"name {name}")
