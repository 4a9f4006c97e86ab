"""Tasks beside the caller end with their owner and never silently."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client.background import Background, one_round
from tests.support.loops import run, settle


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


def test_a_round_that_fails_is_logged_and_the_next_one_comes(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        for _ in range(2):
            with one_round("owner", "work"):
                raise KeyError("broken")

    run(scenario())
    assert caplog.text.count("event=round_failed owner=owner work=work") == 2
    assert "Traceback" in caplog.text


def test_a_round_that_is_to_end_ends() -> None:
    async def waits() -> None:
        with one_round("owner", "work"):
            await asyncio.Event().wait()

    async def scenario() -> None:
        with pytest.raises(SystemExit), one_round("owner", "work"):
            raise SystemExit
        background = Background("owner")
        cancelled = background.spawn(waits())
        await settle()
        await background.stop()
        assert cancelled.cancelled()

    run(scenario())


def test_a_wait_that_somebody_cancels_fails_a_round_and_not_the_loop_of_rounds(
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def scenario() -> None:
        inner = asyncio.ensure_future(asyncio.Event().wait())
        asyncio.get_running_loop().call_soon(inner.cancel)
        with one_round("owner", "work"):
            await inner

    run(scenario())
    assert "event=round_failed owner=owner work=work" in caplog.text
