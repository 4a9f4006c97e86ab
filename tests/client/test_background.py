"""Tasks beside the caller end with their owner and never silently."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.background import Background
from tests.support.loops import run


def test_an_error_is_logged_and_the_others_live_on(caplog: pytest.LogCaptureFixture) -> None:
    async def fail() -> None:
        raise ValueError("broken")

    async def scenario() -> None:
        background = Background("owner")
        living = background.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
        background.spawn(fail())
        await asyncio.sleep(0.01)
        assert not living.done()
        await background.stop()
        assert living.cancelled()

    run(scenario())
    assert "event=task_failed owner=owner" in caplog.text
    assert "broken" in caplog.text


def test_finish_waits_no_longer_than_it_may() -> None:
    async def scenario() -> None:
        background = Background("owner")
        done: list[int] = []

        async def short() -> None:
            await asyncio.sleep(0)
            done.append(1)

        background.spawn(short())
        hanging = background.spawn(asyncio.Event().wait())  # type: ignore[arg-type]
        await background.finish(0.01)
        assert done
        assert hanging.cancelled()

    run(scenario())


def test_a_task_may_stop_its_owner() -> None:
    async def scenario() -> None:
        background = Background("owner")
        await background.spawn(background.stop())

    run(scenario())
