"""What the replicas of one broker name have agreed on, and where two logs part. Pure.

The agreement store keeps one value for each broker name, as JSON, which changes by compare-and-set alone:

    field    | meaning
    epoch    | number of the last election; each is greater than all before
    master   | the member that was elected
    in_sync  | the members that have every acknowledged message; only they can be elected
    history  | for each epoch where its master's log ended when it was elected, the oldest first

and optionally `successor` and `maintenance`, which operators ask for.

A member is a store, not a machine: one that was emptied, or that may have lost pages with the power, is another member
(`member_id`), and has to copy the log before it counts again.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Final, NamedTuple

import msgspec
from msgspec.structs import replace

HISTORY_MAX: Final = 1000  # elections; a log that parted before the oldest of them has to start empty


class Boundary(NamedTuple):
    """Where an epoch begins in the log."""

    epoch: int
    start: int


class Agreed(msgspec.Struct, frozen=True):
    """The agreed value."""

    epoch: int
    master: str
    in_sync: tuple[str, ...]
    history: tuple[Boundary, ...]
    successor: str = ""
    """Who the master hands over to: the others let it go first."""
    maintenance: bool = False
    """Only the last master, or the one that it handed over to, is elected: an operator works on the machines."""

    def elect(self, member: str, log_end: int, history: Sequence[Boundary]) -> Agreed:
        """The value after the election of a member whose log ends there and has these epochs; the agreed one may have
        an epoch of which nothing came to this member. The former master leaves the set: every send would wait until it
        follows.
        """
        epoch = self.epoch + 1
        in_sync = tuple(one for one in self.in_sync if one == member or one != self.master)
        epochs = (*reached(history, log_end), Boundary(epoch, log_end))
        return Agreed(epoch, member, in_sync, epochs[-HISTORY_MAX:], maintenance=self.maintenance)

    def with_in_sync(self, members: Iterable[str]) -> Agreed:
        """The same with other members in sync."""
        return replace(self, in_sync=tuple(sorted(members)), successor="")

    def hand_over(self, successor: str) -> Agreed:
        """The same, and the master will step down for a member."""
        return replace(self, successor=successor)

    def in_maintenance(self, is_on: bool) -> Agreed:
        """The same, with maintenance or without."""
        return replace(self, maintenance=is_on)


def first(member: str) -> Agreed:
    """The value that a member founds: it is the master of whatever its log has."""
    return Agreed(1, member, (member,), (Boundary(1, 0),))


def reached(history: Sequence[Boundary], log_end: int) -> list[Boundary]:
    """The part of a history that a log of this length has bytes of."""
    return [one for one in history if one.start < log_end]


def common_end(own: Sequence[Boundary], log_end: int, agreed: Sequence[Boundary]) -> int | None:
    """Up to where a log that ends at `log_end` and has the history `own` is the beginning of the agreed one; None if
    that cannot be said, because what is known of the epochs does not reach so far back.

    One epoch has one master, so that two logs are equal as far as both have it, and all before it.
    """
    if not log_end:
        return 0
    ends = {one: following.start for one, following in pairwise(agreed)}
    known = set(agreed)
    end = log_end
    for one in reversed(reached(own, log_end)):
        if one in known:
            return min(end, ends.get(one, end))
        end = one.start
    return 0 if end == agreed[0].start == 0 else None
