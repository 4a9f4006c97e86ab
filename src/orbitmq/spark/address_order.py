"""In which order the addresses of one peer are tried, and how long each may take. Knows no requests.

Name servers are independent and hold the same routes, so the one that responded last stays the first for all plans,
triggers and tasks of the process.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import lru_cache

BRIEF_MS = 3000  # as long as clients of RocketMQ wait for a route or an offset
LISTS_MAX = 64  # lists of name servers remembered by a process; a program uses a few clusters


class AddressOrder:
    """Addresses to try one after another; the one that responded last comes first."""

    def __init__(self, addresses: Sequence[str]) -> None:
        self._addresses = tuple(addresses)
        self._first = 0

    def attempts(self, timeout_ms: int) -> Iterator[tuple[str, int]]:
        """The addresses to try, each with its time limit. All but the last have at most BRIEF_MS, so that a silent one
        does not delay the others. Those that had less than `timeout_ms` follow again with all of it: they may be slow.
        """
        addresses = [*self._addresses[self._first :], *self._addresses[: self._first]]
        brief_ms = min(timeout_ms, BRIEF_MS)
        yield from ((address, brief_ms) for address in addresses[:-1])
        yield from ((address, timeout_ms) for address in addresses[-1:])
        if brief_ms < timeout_ms:
            yield from ((address, timeout_ms) for address in addresses[:-1])

    def responded(self, address: str) -> None:
        """Try this address first from now on."""
        self._first = self._addresses.index(address)


@lru_cache(maxsize=LISTS_MAX)
def name_servers(addresses: tuple[str, ...]) -> AddressOrder:
    """The order of these name servers, one for the whole process."""
    return AddressOrder(addresses)
