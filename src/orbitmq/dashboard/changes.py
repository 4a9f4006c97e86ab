"""Makes changes: records the change, makes it, reads it back and records the outcome.

A plan waits until the user confirms it. A form without a plan takes effect immediately. Each change is recorded in the
audit log first; if that fails, it is not made. A second line has the outcome; if that one cannot be written, the page
and the process log report it. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Mapping
from typing import Any
from urllib.parse import quote

from msgspec.structs import replace

from orbitmq.admin.envelope import plain
from orbitmq.admin.plans import Plan, Step, StepOutcome
from orbitmq.admin.results import Failure, Result
from orbitmq.dashboard.audit import STEPS_MAX, AuditLog
from orbitmq.dashboard.logins import PendingPlan
from orbitmq.dashboard.routes import DashboardRequest, PageResult, PageRoute, Redirect
from orbitmq.errors import Conflict, Forbidden, NotFound
from orbitmq.runtime.languages import gettext

_log = logging.getLogger(__name__)

UNRECORDED = "The outcome could not be written to the audit log: free disk space on the host of the dashboard."
_LOOK = "check whether the change was made; the log of the dashboard has details"
CONFIRM_WAIT_SECONDS = 3.0
"""How long a browser waits for a change, before it gets a page with its progress."""
_MADE = (StepOutcome.DONE, StepOutcome.CONFIRMED, StepOutcome.UNCHANGED)


def keep(page: PageRoute, request: DashboardRequest, plan: Plan, now: float) -> str:
    """The id under which the plan waits to be confirmed."""
    back = page.back.format(**{name: quote(value, safe="") for name, value in request.path.items()})
    return request.login.keep(PendingPlan(plan, request.cluster.name, back, page.role, now))


def pending(request: DashboardRequest) -> PendingPlan:
    """The plan in the path. NotFound if it has expired, Forbidden if the role is too low."""
    one = request.login.plan(request.path["plan"], time.monotonic())
    if one is None or one.cluster != request.cluster.name:
        raise NotFound("this plan has expired", "plans are kept for ten minutes; submit the form again")
    if request.login.role < one.role:
        raise Forbidden(f"{request.login.name} has the role {request.login.role.word}; this needs {one.role.word}")
    return one


def text_to_type(request: DashboardRequest, plan: Plan) -> str | None:
    """What the user has to type to confirm the plan; None if a click is enough."""
    return plan.destroys or (request.cluster.name if request.cluster.access.protected else None)


class Changes:
    """Makes changes and records them in `audit`.

    `save_undo` writes the undo file of a change and returns the command that reads it.
    """

    def __init__(self, audit: AuditLog, save_undo: Callable[[Mapping[str, Any]], str] | None = None) -> None:
        self._audit = audit
        self._save_undo = save_undo
        self._making: set[asyncio.Task[None]] = set()

    async def confirm(self, request: DashboardRequest, one: PendingPlan, peer: str) -> None:
        """Make the plan, once, and wait for it a while: the page shows the progress of one that takes longer. Conflict
        if the confirmation text was not typed."""
        wanted = text_to_type(request, one.plan)
        if wanted is not None and request.form.text("typed") != wanted:
            raise Conflict(f"nothing was changed: you did not type {wanted}", "go back and type it as shown")
        if one.result is None and not one.is_running:
            one.is_running = True
            made = asyncio.create_task(self.make(request, one, peer))  # a closed browser does not interrupt it
            self._making.add(made)
            made.add_done_callback(self._making.discard)
            await asyncio.wait({made}, timeout=CONFIRM_WAIT_SECONDS)
            if made.done():
                made.result()

    async def make(self, request: DashboardRequest, one: PendingPlan, peer: str) -> None:
        """Make the plan. After the first step there is always a result, so that it is not made again."""
        try:
            await self._record(request, peer, one.plan.title, "begun")
            await self._keep_undo(request, one, peer)
            one.making = asyncio.create_task(_made(one.plan, one.so_far))
            await asyncio.wait({one.making})
            one.result = made = _stopped(one) if one.making.cancelled() else one.making.result()
            one.plan.changes.clear()  # they may hold messages
            request.cluster.forget()
            steps = [plain(step) for step in made.items[:STEPS_MAX]]
            outcome = "done" if not made.failures and all(step.outcome in _MADE for step in made.items) else "failed"
            errors = [plain(failure) for failure in made.failures]
            more = {"steps": steps, "stepsInAll": len(made.items), "errors": errors}
            if not await self._record_outcome(request, peer, one.plan.title, outcome, **more):
                made.warnings.append(UNRECORDED)
        finally:
            one.is_running = False

    async def _keep_undo(self, request: DashboardRequest, one: PendingPlan, peer: str) -> None:
        """Conflict if the undo file cannot be written; nothing is changed then."""
        if one.plan.undo is None or self._save_undo is None:
            return
        try:
            one.undo = await asyncio.to_thread(self._save_undo, one.plan.undo)
        except OSError as error:
            await self._record_outcome(request, peer, one.plan.title, "refused")
            raise Conflict(
                f"nothing was changed: the file that undoes the change cannot be written: {error.strerror}",
                "free disk space on the host of the dashboard",
            ) from error

    async def act(self, page: PageRoute, request: DashboardRequest, peer: str) -> PageResult:
        """Runs a form without a plan."""
        what = page.says.format(**request.path)
        if request.cluster.access.protected:
            name = request.cluster.name
            raise Conflict(f"{name} is protected: a form without a preview cannot change it", "use the command line")
        await self._record(request, peer, what, "begun")
        try:
            result = await page.endpoint(request)
        except Exception as error:
            await self._record_outcome(request, peer, what, "failed", errors=[str(error)])
            raise
        request.cluster.forget()
        said = {"said": result.said} if isinstance(result, Redirect) and result.said else {}
        if not await self._record_outcome(request, peer, what, "done", **said) and isinstance(result, Redirect):
            return Redirect(result.path, f"{result.said} {UNRECORDED}".strip())
        return result

    async def _record(self, request: DashboardRequest, peer: str, what: str, outcome: str, **more: Any) -> None:
        """Conflict if the line cannot be written."""
        login, cluster = request.login, request.cluster.name
        try:
            await asyncio.to_thread(
                lambda: self._audit.write(login.name, login.role.word, peer, what, outcome, cluster=cluster, **more)
            )
        except OSError as error:
            raise Conflict(
                f"nothing was changed: the audit log cannot be written: {error.strerror}",
                "free disk space on the host of the dashboard",
            ) from error

    async def _record_outcome(self, request: DashboardRequest, peer: str, what: str, outcome: str, **more: Any) -> bool:
        """Whether the outcome could be recorded. The change has been made and must not be repeated if not."""
        try:
            await self._record(request, peer, what, outcome, **more)
        except Conflict as error:
            _log.error("event=audit_failed what=%r outcome=%s error=%s", what, outcome, error)
            return False
        return True


def stop(one: PendingPlan) -> None:
    """Make no further step."""
    if one.is_running and one.making is not None:
        one.making.cancel()


def _stopped(one: PendingPlan) -> Result[Step]:
    """The steps that were made; the one in progress may be made in part."""
    left = one.plan.steps[len(one.so_far) :]
    skipped = [replace(step, outcome=StepOutcome.SKIPPED) for step in left]
    text = gettext("Stopped. The first step that is skipped may be made in part.")
    return Result([*one.so_far, *skipped], [*one.plan.warnings, text], list(one.plan.failures))


async def _made(plan: Plan, so_far: list[Step]) -> Result[Step]:
    """Make the plan and read it back. An unexpected error fails its step; the steps after it are skipped."""
    try:
        made = await plan.make(so_far.append)
    except Exception as error:
        _log.exception("event=plan_failed title=%r", plan.title)
        left = plan.steps[len(so_far) :]
        steps = [
            replace(step, outcome=StepOutcome.SKIPPED if number else StepOutcome.FAILED)
            for number, step in enumerate(left)
        ]
        target = left[0].target if left else plan.title
        failure = Failure(
            target, None, "FAILED", f"unexpected error in the dashboard: {error!r}", _LOOK, retryable=False
        )
        return Result([*so_far, *steps], list(plan.warnings), [*plan.failures, failure])
    try:
        return await plan.verify(made)
    except Exception as error:
        _log.exception("event=plan_not_read_back title=%r", plan.title)
        made.warnings.append(f"the change was made, but could not be read back: {error!r}")
        return made
