"""How something is changed: the plan is shown, confirmed with its token and, where it destroys, by typing a name; then
it is made, read back and recorded. Also forms that do something at once.

A line in the audit log goes before each change: what cannot be recorded is not made. What became of it is a second
line; where that one cannot be written, the page and the log of the process say so.
"""

from __future__ import annotations

import asyncio
import logging
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from msgspec.structs import replace
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from orbitmq.admin.answers import Failure, Found
from orbitmq.admin.envelope import plain
from orbitmq.admin.plans import Outcome, Plan, Step
from orbitmq.dashboard.asking import Asked, Goes, Page, Shown
from orbitmq.dashboard.audit import STEPS_MAX
from orbitmq.dashboard.logins import Pending
from orbitmq.dashboard.roles import Role
from orbitmq.errors import Conflict, Forbidden, NotFound

if TYPE_CHECKING:
    from orbitmq.dashboard.app import Dashboard

_log = logging.getLogger(__name__)

CONFIRM_BODY_MAX = 16 << 10
UNRECORDED = "What became of it could not be written into the audit log: free the disk of this page."
_LOOK = "look whether it was made; the log of the dashboard tells more"
_MADE = (Outcome.DONE, Outcome.CONFIRMED, Outcome.UNCHANGED)


def kept(page: Page, asked: Asked, plan: Plan, now: float) -> Response:
    """The plan waits at its own address."""
    back = page.back.format(**{name: quote(value, safe="") for name, value in asked.path.items()})
    key = asked.login.keep(Pending(plan, asked.place.name, back, page.role, now))
    return RedirectResponse(f"/c/{quote(asked.place.name)}/plans/{key}", HTTPStatus.SEE_OTHER)


def _pending(asked: Asked) -> tuple[str, Pending]:
    key = asked.path["plan"]
    one = asked.login.kept(key, time.monotonic())
    if one is None or one.place != asked.place.name:
        raise NotFound("this plan is gone", "plans wait ten minutes; ask for it again")
    if asked.login.role < one.role:
        raise Forbidden(f"{asked.login.name} is {asked.login.role.word}; this takes {one.role.word}")
    return key, one


def to_type(asked: Asked, plan: Plan) -> str | None:
    """What has to be typed before it is made."""
    return plan.destroys or (asked.place.name if asked.place.reach.protected else None)


async def show(dashboard: Dashboard, request: Request) -> Response:
    asked = await dashboard.asked(request, Role.VIEWER, 0)
    if isinstance(asked, Response):
        return asked
    key, one = _pending(asked)
    found = one.plan.preview() if one.result is None else one.result
    values = {"plan": one.plan, "key": key, "one": one, "steps": found.items, "to_type": to_type(asked, one.plan)}
    return dashboard.shown(request, "plan.html", asked, Shown(values, found))


async def confirm(dashboard: Dashboard, request: Request) -> Response:
    asked = await dashboard.asked(request, Role.OPERATOR, CONFIRM_BODY_MAX)
    if isinstance(asked, Response):
        return asked
    key, one = _pending(asked)
    wanted = to_type(asked, one.plan)
    if wanted is not None and asked.form.text("typed") != wanted:
        raise Conflict(f"nothing was done: {wanted} was not typed", "go back and type it as it stands there")
    if one.result is None and not one.is_running:
        one.is_running = True
        # Whoever closes the browser meanwhile does not stop it half way.
        await asyncio.shield(asyncio.create_task(_make(dashboard, asked, one, _peer(request))))
    return RedirectResponse(f"/c/{quote(asked.place.name)}/plans/{key}", HTTPStatus.SEE_OTHER)


async def _make(dashboard: Dashboard, asked: Asked, one: Pending, peer: str) -> None:
    """Once: whatever happens after the first step, there is a result, and the plan is not made again."""
    try:
        await record(dashboard, asked, peer, one.plan.title, "begun")
        await _save_undo(dashboard, asked, one, peer)
        one.result = made = await _made(one.plan)
        one.plan.changes.clear()  # they may hold messages
        asked.place.forget()
        told = [plain(step) for step in made.items[:STEPS_MAX]]
        outcome = "done" if _is_whole(made) else "failed"
        more = {"steps": told, "stepsInAll": len(made.items), "errors": [plain(failure) for failure in made.failures]}
        if not await _record_end(dashboard, asked, peer, one.plan.title, outcome, **more):
            made.warnings.append(UNRECORDED)
    finally:
        one.is_running = False


async def _save_undo(dashboard: Dashboard, asked: Asked, one: Pending, peer: str) -> None:
    """Conflict when it cannot be kept; nothing is changed then."""
    if one.plan.undo is None or dashboard.settings.save_undo is None:
        return
    try:
        one.undo = await asyncio.to_thread(dashboard.settings.save_undo, one.plan.undo)
    except OSError as error:
        await _record_end(dashboard, asked, peer, one.plan.title, "refused")
        raise Conflict(
            f"nothing was done: what would undo it cannot be written: {error.strerror}", "free the disk of this page"
        ) from error


async def _made(plan: Plan) -> Found[Step]:
    """The plan made and read back. A fault of ours in a step is a failed step, like any other; what follows is left."""
    so_far: list[Step] = []
    try:
        made = await plan.make(so_far.append)
    except Exception as error:
        _log.exception("event=plan_failed title=%r", plan.title)
        left = plan.steps[len(so_far) :]
        steps = [
            replace(step, outcome=Outcome.SKIPPED if number else Outcome.FAILED) for number, step in enumerate(left)
        ]
        target = left[0].target if left else plan.title
        failure = Failure(target, None, "FAILED", f"a fault of this page: {error!r}", _LOOK, retryable=False)
        return Found([*so_far, *steps], list(plan.warnings), [*plan.failures, failure])
    try:
        return await plan.verify(made)
    except Exception as error:
        _log.exception("event=plan_not_read_back title=%r", plan.title)
        made.warnings.append(f"it was made, but could not be read back: {error!r}")
        return made


def _is_whole(made: Found[Step]) -> bool:
    return not made.failures and all(step.outcome in _MADE for step in made.items)


async def do(dashboard: Dashboard, request: Request, page: Page, asked: Asked) -> Response:
    """What a page does at once."""
    what, peer = page.says.format(**asked.path), _peer(request)
    if asked.place.reach.protected:
        name = asked.place.name
        raise Conflict(f"{name} is protected, and a form that acts at once asks for no name", "use the command line")
    await record(dashboard, asked, peer, what, "begun")
    try:
        answer = await page.endpoint(asked)
    except Exception as error:
        await _record_end(dashboard, asked, peer, what, "failed", errors=[str(error)])
        raise
    asked.place.forget()
    said = {"said": answer.said} if isinstance(answer, Goes) and answer.said else {}
    if not await _record_end(dashboard, asked, peer, what, "done", **said) and isinstance(answer, Goes):
        answer = Goes(answer.path, f"{answer.said} {UNRECORDED}".strip())
    return await dashboard.answered(request, page, asked, answer)


async def record(dashboard: Dashboard, asked: Asked, peer: str, what: str, outcome: str, **more: Any) -> None:
    """Conflict when it cannot be written."""
    login, place = asked.login, asked.place.name
    audit = dashboard.settings.audit
    try:
        await asyncio.to_thread(
            lambda: audit.write(login.name, login.role.word, peer, what, outcome, cluster=place, **more)
        )
    except OSError as error:
        raise Conflict(
            f"the audit log cannot be written: {error.strerror}",
            "nothing is changed that is not recorded; free the disk",
        ) from error


async def _record_end(dashboard: Dashboard, asked: Asked, peer: str, what: str, outcome: str, **more: Any) -> bool:
    """Whether it could be written. It is done, whether or not; nobody is to do it again for that."""
    try:
        await record(dashboard, asked, peer, what, outcome, **more)
    except Conflict as error:
        _log.error("event=audit_failed what=%r outcome=%s error=%s", what, outcome, error)
        return False
    return True


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""
