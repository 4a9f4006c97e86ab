"""What a function on a thread does reaches its caller, whatever it is, and nobody else."""

from __future__ import annotations

import pytest

from orbitmq.client.threads import on_thread
from orbitmq.errors import InvalidStateError
from tests.support.loops import run


def test_the_caller_gets_what_the_function_returns_or_raises() -> None:
    def fail() -> None:
        raise ValueError("no")

    async def scenario() -> None:
        assert await on_thread("t", lambda: 1) == 1
        with pytest.raises(ValueError, match="no"):
            await on_thread("t", fail)

    run(scenario())


@pytest.mark.parametrize("error", [SystemExit(1), StopIteration(), KeyboardInterrupt()])
def test_what_would_end_the_loop_or_the_wait_is_an_error(error: BaseException) -> None:
    def leave() -> None:
        raise error

    async def scenario() -> None:
        with pytest.raises(InvalidStateError, match=type(error).__name__):
            await on_thread("t", leave)

    run(scenario())
