"""The two ways in which the members of a group share queues unless they are told otherwise. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")


def average_share(queues: Sequence[T], own: int, members: int) -> list[T]:
    """The part of member `own` of so many: adjacent queues, the first members get one more."""
    share, left_over = divmod(len(queues), members)
    start = own * share + min(own, left_over)
    return list(queues[start : start + share + (own < left_over)])


def circle_share(queues: Sequence[T], own: int, members: int) -> list[T]:
    """The part of member `own` of so many, in a round robin."""
    return list(queues[own::members])
