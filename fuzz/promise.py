"""What a target is, and the few words in which promises are written. Knows neither the engine nor any decoder."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from orbitmq.errors import OrbitMQError

CUTS_MAX = 32  # pieces of a stream, more or less: each costs as much as the rest of the check
SIZE_MAX = 4096  # bytes of an input: everything the decoders decide is decided in fewer, and short inputs run faster


@dataclass(frozen=True)
class Target:
    """`check` takes any bytes and returns, or raises whatever shows that the promise is broken. `seeds` are honest
    inputs to begin with, `words` what the engine may put in. `share`: inputs out of a thousand.
    """

    name: str
    promise: str
    check: Callable[[bytes], None]
    seeds: Callable[[], Iterable[bytes]]
    share: int
    words: tuple[bytes, ...] = ()
    size_max: int = SIZE_MAX


def outcome(error: type[OrbitMQError] | tuple[type[OrbitMQError], ...], act: Callable[[], Any]) -> Any:
    """What `act` gives, or the class of its error when that is a documented one. Every other error goes on."""
    try:
        return act()
    except error as refused:
        return type(refused)


def is_refused(result: Any) -> bool:
    """Whether an outcome is an error."""
    return isinstance(result, type) and issubclass(result, OrbitMQError)


def cuts(data: bytes) -> Iterator[bytes]:
    """The bytes behind the first one in pieces; the first one says how large these are."""
    size = max((data[0] % 64 if data else 0) + 1, len(data) // CUTS_MAX)
    for start in range(1, len(data), size):
        yield data[start : start + size]


def settles(text: Any, again: Callable[[Any], Any]) -> bool:
    """Whether writing what was read changes nothing any more after the first time: of two equal keys one is lost, and
    what is no number is written as null."""
    once = again(text)
    return bool(again(once) == once)
