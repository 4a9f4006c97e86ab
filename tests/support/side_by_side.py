"""Tests that spend their time waiting, run at the same time on one event loop.

    waiting = SideBySide()

    @waiting
    async def test_a_retry_comes(system: System, label: str) -> None: ...

    @pytest.fixture(scope="module")
    def outcomes(system: System) -> Outcomes:
        return waiting.run(lambda name: (system, name))

What the decorator leaves behind is a test that takes `outcomes` and fails as its scenario did. Knows nothing of what is
tested.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Any

Scenario = Callable[..., Awaitable[None]]
Outcomes = Mapping[str, "BaseException | None"]

LIMIT_S = 120  # for all of them; each has deadlines of its own


class SideBySide:
    """Scenarios that are to run together."""

    def __init__(self) -> None:
        self._scenarios: dict[str, Scenario] = {}

    def __call__(self, scenario: Scenario) -> Callable[[Outcomes], None]:
        """Add one; its test."""
        name = getattr(scenario, "__name__")  # noqa: B009 - a callable has none for the type checker
        self._scenarios[name] = scenario

        def test(outcomes: Outcomes) -> None:
            error = outcomes[name]
            if error is not None:
                raise error

        test.__name__, test.__doc__, test.__module__ = name, scenario.__doc__, scenario.__module__
        return test

    def run(self, arguments: Callable[[str], tuple[Any, ...]]) -> Outcomes:
        """Run all of them, each with what `arguments` gives for its name; the error of each, None of one that held."""

        async def together() -> list[BaseException | None]:
            async with asyncio.timeout(LIMIT_S):
                begun = (one(*arguments(name)) for name, one in self._scenarios.items())
                return await asyncio.gather(*begun, return_exceptions=True)

        return dict(zip(self._scenarios, asyncio.run(together()), strict=True))
