"""Event loops for tests: the two kinds orbitmq runs on, one whose clock is turned by hand, and waiting for a condition.

Knows nothing of orbitmq.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any

import uvloop

LoopFactory = Callable[[], asyncio.AbstractEventLoop]

LOOPS: dict[str, LoopFactory] = {"asyncio": asyncio.new_event_loop, "uvloop": uvloop.new_event_loop}

IDLE_SECONDS = 0.02  # what was written to a loopback socket can be read by then

PATIENCE_SECONDS = 60.0  # a condition that is not met after so long never will be, not even by a cold Java broker


class TurnedLoop(asyncio.SelectorEventLoop):
    """A loop whose clock jumps when told, so that nobody waits for timers."""

    def __init__(self) -> None:
        self._turned_seconds = 0.0
        super().__init__()

    def time(self) -> float:
        return super().time() + self._turned_seconds

    async def turn(self, seconds: float) -> None:
        """Let `seconds` pass at once, and everything due happen."""
        await settle()
        self._turned_seconds += seconds
        await settle()


class JumpingLoop(asyncio.SelectorEventLoop):
    """A loop without sockets whose clock jumps to the next timer as soon as nobody has anything to do."""

    def __init__(self) -> None:
        self._at = 0.0
        selector = selectors.SelectSelector()
        look = selector.select

        def jump(timeout: float | None = None) -> Any:
            self._at += timeout or 0.0
            return look(0)

        selector.select = jump  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        return self._at


class IdleLoop(asyncio.SelectorEventLoop):
    """A loop whose clock stands while anybody in this process has anything to do, and jumps to the next timer when its
    sockets bring nothing for a moment: how busy the machine is does not matter.
    """

    def __init__(self) -> None:
        self._at = 0.0
        selector = selectors.DefaultSelector()
        look = selector.select

        def jump(timeout: float | None = None) -> Any:
            ready = look(0)
            if ready or timeout == 0:
                return ready
            ready = look(IDLE_SECONDS)
            if not ready:
                self._at += timeout or 0.0
            return ready

        selector.select = jump  # type: ignore[method-assign]
        super().__init__(selector)

    def time(self) -> float:
        return self._at


def turned_loop() -> TurnedLoop:
    """The running loop of a test that asked for a `TurnedLoop`."""
    loop = asyncio.get_running_loop()
    assert isinstance(loop, TurnedLoop)
    return loop


async def settle(turns: int = 20) -> None:
    """Let the loop go round: long enough for callbacks that lead to callbacks, on loopback sockets too."""
    for _ in range(turns):
        await asyncio.sleep(0)


async def until(condition: Callable[[], Any], what: str | Callable[[], str] = "the condition") -> None:
    """Wait until `condition()` is true; `what` says in the end what was waited for."""
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not condition():
        if asyncio.get_running_loop().time() >= deadline:
            raise AssertionError(f"{what() if callable(what) else what} did not come true")
        await asyncio.sleep(0.001)


class Complaints:
    """What an event loop reports when nobody else can: errors of callbacks and of forgotten tasks."""

    def __init__(self) -> None:
        self.found: list[str] = []

    def __call__(self, _loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        self.found.append(f"{context['message']}: {context.get('exception')!r}")


def run(main: Any, factory: LoopFactory = asyncio.new_event_loop) -> Any:
    """Run a coroutine on a loop of its own; AssertionError when the loop had to report an error nobody took."""
    complaints = Complaints()
    with asyncio.Runner(loop_factory=factory) as runner:
        runner.get_loop().set_exception_handler(complaints)
        result = runner.run(main)
    assert not complaints.found, complaints.found
    return result
