"""Parts of a daemon that start in order and stop in the reverse order."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from inspect import isawaitable

_log = logging.getLogger(__name__)

Step = Callable[[], object]


def nothing() -> None:
    """The step of a part that has nothing to do then."""


@dataclass(frozen=True)
class Stage:
    """Steps may be coroutine functions. `abandon` ends the part at once, started or not; the default is `stop`."""

    start: Step = nothing
    stop: Step = nothing
    abandon: Step | None = None


class Lifecycle:
    """Starts and stops the parts."""

    def __init__(self, parts: Sequence[Stage]) -> None:
        self._parts = parts

    async def start(self) -> None:
        """Start each part. If one fails all are abandoned, and its error is raised; errors of ending are logged."""
        try:
            for part in self._parts:
                await _done(part.start)
        except BaseException:
            try:
                await self.abandon()
            except Exception as error:  # the reason of the failed start matters more
                _log.error("event=part_not_stopped", exc_info=error)
            raise

    async def stop(self) -> None:
        """Stop each part, the last one first. If one fails, stop the others and raise its error then."""
        await _all_done(part.stop for part in reversed(self._parts))

    async def abandon(self) -> None:
        """End each part at once, the last one first. Errors as in `stop`."""
        await _all_done(part.abandon or part.stop for part in reversed(self._parts))


async def _all_done(steps: Iterable[Step]) -> None:
    """Raises the first error and logs the others."""
    failure: Exception | None = None
    for step in steps:
        try:
            await _done(step)
        except Exception as error:  # the other parts must still end
            if failure is None:
                failure = error
            else:
                _log.error("event=part_not_stopped", exc_info=error)
    if failure is not None:
        raise failure


async def _done(step: Step) -> None:
    result = step()
    if isawaitable(result):
        await result
