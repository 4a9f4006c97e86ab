"""Who is logged in: sessions behind a cookie, the token that each form carries, and brakes for those who guess.

Everything is in memory and ends with the process. Must not know HTTP.
"""

from __future__ import annotations

import hmac
import secrets
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from orbitmq.admin.plans import Plan, Step
from orbitmq.admin.results import Found
from orbitmq.dashboard.roles import Role

LOGINS_MAX = 1000  # the one that was idle longest gives way
IDLE_SECONDS = 2 * 3600.0
LIFE_SECONDS = 12 * 3600.0
PLANS_MAX = 20  # a login's previews; the oldest gives way
SAID_KEPT = 20  # a login's sentences that are shown after a change; the oldest gives way
PLAN_SECONDS = 600.0  # what is shown grows old: a plan is made within ten minutes or not at all
GUESSED_MAX = 10_000  # names and addresses that are remembered for wrong passwords


class Brake(NamedTuple):
    """How many wrong tries are free, and how long a further one waits at most."""

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
    result: Found[Step] | None = None
    undo: str | None = None
    """The words of the command that undoes it."""
    is_running: bool = False


@dataclass(slots=True)
class Login:
    """One browser."""

    name: str
    role: Role
    hashed: str
    """The password it was begun with, as the accounts keep it: another one ends it."""
    csrf: str
    began: float
    seen: float
    pending: OrderedDict[str, PendingPlan] = field(default_factory=OrderedDict)
    said: OrderedDict[str, str] = field(default_factory=OrderedDict)
    """Sentences by the key that stands in the address: nobody else can put words into the mouth of a page."""

    def is_token(self, text: str) -> bool:
        return hmac.compare_digest(text.encode(), self.csrf.encode())

    def say(self, text: str) -> str:
        """The key under which the next page finds this sentence."""
        while len(self.said) >= SAID_KEPT:
            self.said.popitem(last=False)
        key = secrets.token_urlsafe(12)
        self.said[key] = text
        return key

    def keep(self, one: PendingPlan) -> str:
        """The id under which a plan waits to be confirmed."""
        for old in [key for key, kept in self.pending.items() if self._is_old(kept, one.shown_at)]:
            del self.pending[old]
        if len(self.pending) >= PLANS_MAX:
            at_rest = [key for key, kept in self.pending.items() if not kept.is_running]
            made = [key for key in at_rest if self.pending[key].result is not None]
            del self.pending[(made or at_rest or list(self.pending))[0]]
        key = secrets.token_urlsafe(12)
        self.pending[key] = one
        return key

    def kept(self, key: str, now: float) -> PendingPlan | None:
        """The plan of this id; None when there is none, or it has grown old without being made."""
        one = self.pending.get(key)
        if one is not None and one.result is None and self._is_old(one, now):
            del self.pending[key]
            return None
        return one

    @staticmethod
    def _is_old(one: PendingPlan, now: float) -> bool:
        return not one.is_running and now - one.shown_at > PLAN_SECONDS


class Logins:
    """`clock` gives seconds that only grow."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._logins: OrderedDict[str, Login] = OrderedDict()

    def __len__(self) -> int:
        return len(self._logins)

    def begin(self, name: str, role: Role, hashed: str = "") -> tuple[str, Login]:
        """A new session: the value of its cookie, and who it is. Those that have ended go with what they held."""
        now = self._clock()
        for old in [key for key, login in self._logins.items() if _has_ended(login, now)]:
            del self._logins[old]
        while len(self._logins) >= LOGINS_MAX:
            self._logins.popitem(last=False)
        key, login = secrets.token_urlsafe(32), Login(name, role, hashed, secrets.token_urlsafe(32), now, now)
        self._logins[key] = login
        return key, login

    def find(self, key: str) -> Login | None:
        """Who it is, unless the session has ended."""
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
    """Wrong passwords: after a few of a name from an address, after more from an address, and after many of a name from
    anywhere, each further one has to wait longer. Of a name alone not long, or anybody could lock its owner out.
    """

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._wrong: OrderedDict[str, tuple[int, float]] = OrderedDict()

    def wait_seconds(self, name: str, peer: str) -> float:
        """How long the next try of the name from this address has to wait; 0 when it may come now."""
        now = self._clock()
        return max([0.0, *(self._until(kind, who) - now for kind, who in _brakes(name, peer))])

    def _until(self, kind: Brake, who: str) -> float:
        count, at = self._wrong.get(who, (0, 0.0))
        if count < kind.free_tries:
            return 0.0
        return at + min(kind.wait_seconds_max, 2.0 ** (count - kind.free_tries))

    def wrong(self, name: str, peer: str, tries: int = 1) -> None:
        """Counts `tries`; the wait begins anew."""
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
