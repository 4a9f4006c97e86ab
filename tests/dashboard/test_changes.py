"""What is confirmed is made once, whatever happens on the way, and what became of it is told."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.admin.plans import Change, Plan, Step, StepOutcome
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.changes import CONFIRM_WAIT_SECONDS, UNRECORDED, Changes, stop
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.dashboard.logins import Logins, PendingPlan
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import DashboardRequest, Fields, PageRoute, Redirect
from orbitmq.errors import BrokerError, Conflict
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.clock import ManualClock
from tests.support.loops import LoopFactory, turned_loop, until


class Desk:
    """A login and a plan of three steps that fails where `fails` says."""

    def __init__(self, home: Path, *, protected: bool = False) -> None:
        self.audit = AuditLog(home / "audit", ManualClock())
        self.made: list[str] = []
        self.fails: dict[str, Exception] = {}
        place = DashboardCluster(
            "local", ClusterAccess(["127.0.0.1:1"], Remoting, protected=protected), sample_seconds=0
        )
        self.changes = Changes(self.audit, self._save)
        _, login = Logins(lambda: 0.0).begin("anna", Role.ADMIN)
        nothing = Fields()
        self.request = DashboardRequest(
            place, place.session(), login, nothing, nothing, {}, 0, self.audit, readonly=False
        )

    def plan(self) -> PendingPlan:
        changes = [Change(Step("broker-a", "make", name, None, 1), lambda name=name: self._do(name)) for name in "abc"]  # type: ignore[misc]
        plan = Plan("make three things", changes, undo={"command": "offset undo"})
        return PendingPlan(plan, "local", "", Role.ADMIN, 0.0)

    async def _do(self, name: str) -> None:
        self.made.append(name)
        if name in self.fails:
            raise self.fails[name]

    def _save(self, undo: Any) -> str:
        if "undo" in self.fails:
            raise self.fails["undo"]
        return f"{undo['command']} FILE"

    def lines(self) -> list[dict[str, Any]]:
        return list(reversed([dict(line) for line in self.audit.latest()]))


@pytest.fixture
def desk(tmp_path: Path) -> Desk:
    return Desk(tmp_path)


async def test_a_plan_is_made_and_recorded(desk: Desk) -> None:
    one = desk.plan()
    await desk.changes.make(desk.request, one, "127.0.0.1")
    assert desk.made == ["a", "b", "c"]
    assert one.undo == "offset undo FILE"
    assert [line["outcome"] for line in desk.lines()] == ["begun", "done"]
    assert [step["subject"] for step in desk.lines()[1]["steps"]] == ["a", "b", "c"]


async def test_a_step_that_is_refused_is_told_and_the_others_are_made(desk: Desk) -> None:
    desk.fails["b"] = BrokerError(1, "no")
    one = desk.plan()
    await desk.changes.make(desk.request, one, "127.0.0.1")
    assert one.result is not None
    assert [step.outcome for step in one.result.items] == [StepOutcome.DONE, StepOutcome.FAILED, StepOutcome.DONE]
    assert desk.lines()[1]["outcome"] == "failed"


async def test_a_fault_of_ours_is_a_result_and_nothing_is_made_twice(desk: Desk) -> None:
    desk.fails["b"] = RuntimeError("a bug")
    one = desk.plan()
    await desk.changes.make(desk.request, one, "127.0.0.1")
    assert desk.made == ["a", "b"]
    assert one.result is not None
    assert [step.outcome for step in one.result.items] == [StepOutcome.DONE, StepOutcome.FAILED, StepOutcome.SKIPPED]
    assert "a bug" in one.result.failures[0].message
    assert not one.is_running
    assert [line["outcome"] for line in desk.lines()] == ["begun", "failed"]


async def test_nothing_is_made_that_cannot_be_undone_as_promised(desk: Desk) -> None:
    desk.fails["undo"] = OSError(28, "No space left on device")
    one = desk.plan()
    with pytest.raises(Conflict, match=r"nothing was changed: .*No space left"):
        await desk.changes.make(desk.request, one, "127.0.0.1")
    assert desk.made == []
    assert [line["outcome"] for line in desk.lines()] == ["begun", "refused"]
    assert one.result is None, "it may be asked for again"


async def test_nothing_is_made_that_cannot_be_recorded(desk: Desk, monkeypatch: pytest.MonkeyPatch) -> None:
    _full_from(desk, monkeypatch, 0)
    one = desk.plan()
    with pytest.raises(Conflict, match="the audit log cannot be written"):
        await desk.changes.make(desk.request, one, "127.0.0.1")
    assert desk.made == []


async def test_what_is_made_is_told_although_its_end_cannot_be_recorded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _full_from(desk, monkeypatch, 1)
    one = desk.plan()
    await desk.changes.make(desk.request, one, "127.0.0.1")
    assert one.result is not None
    assert one.result.warnings == [UNRECORDED]
    assert [step.outcome for step in one.result.items] == [StepOutcome.DONE] * 3


async def test_what_was_sent_is_told_although_its_end_cannot_be_recorded(
    desk: Desk, monkeypatch: pytest.MonkeyPatch
) -> None:
    _full_from(desk, monkeypatch, 1)
    answer = await desk.changes.act(_page(), desk.request, "127.0.0.1")
    assert answer == Redirect("messages", f"sent. {UNRECORDED}")


async def test_a_form_that_acts_at_once_is_refused_where_names_are_to_be_typed(tmp_path: Path) -> None:
    desk = Desk(tmp_path, protected=True)
    with pytest.raises(Conflict, match="local is protected"):
        await desk.changes.act(_page(), desk.request, "127.0.0.1")
    assert desk.lines() == []


def _page() -> PageRoute:
    async def send(_request: DashboardRequest) -> Redirect:
        return Redirect("messages", "sent.")

    return PageRoute("send", send, Role.OPERATOR, writes=True, says="send a message")


def _full_from(desk: Desk, monkeypatch: pytest.MonkeyPatch, line: int) -> None:
    """The disk is full from this line of the audit log on."""
    write, count = desk.audit.write, 0

    def wrote(*told: Any, **more: Any) -> None:
        nonlocal count
        count += 1
        if count > line:
            raise OSError(28, "No space left on device")
        write(*told, **more)
        assert json.dumps(more)

    monkeypatch.setattr(desk.audit, "write", wrote)


async def test_a_change_that_takes_long_does_not_keep_the_browser_waiting(
    desk: Desk, turned_clock: LoopFactory
) -> None:
    one, goes_on = desk.plan(), asyncio.Event()
    one.plan.changes[1].make = _until(goes_on)
    confirmed = asyncio.create_task(desk.changes.confirm(desk.request, one, "127.0.0.1"))
    await until(lambda: len(one.so_far) == 1)
    await turned_loop().turn(CONFIRM_WAIT_SECONDS)
    await confirmed
    assert one.is_running
    assert [step.subject for step in one.so_far] == ["a"], "what the page shows as progress"
    goes_on.set()
    await until(lambda: not one.is_running)
    assert one.result is not None
    assert [step.outcome for step in one.result.items] == [StepOutcome.DONE] * 3


async def test_a_change_that_is_stopped_makes_no_further_step_and_is_recorded(desk: Desk) -> None:
    one = desk.plan()
    one.plan.changes[1].make = _until(asyncio.Event())
    made = asyncio.create_task(desk.changes.make(desk.request, one, "127.0.0.1"))
    await until(lambda: len(one.so_far) == 1)
    one.is_running = True
    stop(one)
    await made
    assert desk.made == ["a"]
    assert one.result is not None
    assert [step.outcome for step in one.result.items] == [StepOutcome.DONE, StepOutcome.SKIPPED, StepOutcome.SKIPPED]
    assert "made in part" in one.result.warnings[-1]
    assert [line["outcome"] for line in desk.lines()] == ["begun", "failed"]


def _until(event: asyncio.Event) -> Callable[[], Awaitable[None]]:
    async def wait() -> None:
        await event.wait()

    return wait
