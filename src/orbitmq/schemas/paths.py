"""What a reader cannot read, and the path of a field. Knows no kind of schema."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import NamedTuple


class Difference(NamedTuple):
    """A field that a reader cannot read."""

    field: str
    """Its path; empty for the whole body."""
    rule: str
    """Why."""


class Pairs:
    """What a reader cannot read of a writer, by pairs of their nodes. Each is compared once, and counts as readable
    while it is compared, so that schemas may hold themselves.
    """

    def __init__(self) -> None:
        self._found: dict[Hashable, Sequence[Difference]] = {}

    def compared(self, pair: Hashable, compare: Callable[[], Iterable[Difference]]) -> Sequence[Difference]:
        """The differences of a pair; `compare` finds them."""
        if pair not in self._found:
            self._found[pair] = ()
            self._found[pair] = tuple(dict.fromkeys(compare()))
        return self._found[pair]

    def tried(self, compare: Callable[[], Iterable[Difference]]) -> Sequence[Difference]:
        """The differences of one of several choices. If it is none, pairs that were readable only meanwhile are
        compared again with the next.
        """
        before = set(self._found)
        found = tuple(compare())
        if found:
            self._found = {pair: known for pair, known in self._found.items() if known or pair in before}
        return found


def joined(path: str, name: str) -> str:
    """The path of a field inside another."""
    return f"{path}.{name}" if path else name
