"""Work whose caller is gone is done to its end, and what fails then is told."""

from __future__ import annotations

import asyncio
import logging

import pytest

from orbitmq.errors import RequestRejected
from orbitmq.runtime.shielded import ShieldedTasks
from orbitmq.wire.codes import ResponseCode
from tests.support.loops import settle


class Work:
    """Goes on when it is let."""

    def __init__(self, error: Exception | None = None) -> None:
        self.may_go_on = asyncio.Event()
        self.is_done = False
        self._error = error

    async def run(self) -> str:
        await self.may_go_on.wait()
        if self._error is not None:
            raise self._error
        self.is_done = True
        return "done"


async def begun(shielded: ShieldedTasks, work: Work) -> asyncio.Task[str]:
    task = asyncio.create_task(shielded.run(work.run()))
    await settle()
    return task


async def fail_unheard(error: Exception) -> None:
    """Work whose caller is gone ends with the error."""
    shielded, work = ShieldedTasks(), Work(error)
    call = await begun(shielded, work)
    call.cancel()
    work.may_go_on.set()
    await shielded.settled()
    await settle()


async def test_the_caller_gets_what_the_work_gives() -> None:
    shielded, work, failing = ShieldedTasks(), Work(), Work(ValueError("no"))
    calls = [await begun(shielded, work), await begun(shielded, failing)]
    work.may_go_on.set()
    failing.may_go_on.set()
    found, error = await asyncio.gather(*calls, return_exceptions=True)
    assert found == "done"
    assert isinstance(error, ValueError)


async def test_it_goes_on_without_its_caller() -> None:
    shielded, work = ShieldedTasks(), Work()
    call = await begun(shielded, work)
    call.cancel()
    ending = asyncio.create_task(shielded.settled())
    await settle()
    assert call.cancelled()
    assert not ending.done()
    work.may_go_on.set()
    await ending
    assert work.is_done


async def test_an_error_that_nobody_hears_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.ERROR):
        await fail_unheard(ValueError("no"))
    assert "event=unheard_failure work=Work.run" in caplog.text
    assert "ValueError: no" in caplog.text


async def test_a_refusal_that_nobody_hears_is_no_failure(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO):
        await fail_unheard(RequestRejected(ResponseCode.NO_PERMISSION, "not today"))
    assert "event=unheard_refusal work=Work.run error=not today" in caplog.text
    assert "Traceback" not in caplog.text


async def test_what_is_abandoned_ends_at_once() -> None:
    shielded, work = ShieldedTasks(), Work()
    call = await begun(shielded, work)
    await shielded.abandon()
    assert not work.is_done
    with pytest.raises(asyncio.CancelledError):
        await call
