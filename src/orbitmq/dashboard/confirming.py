"""How something is changed: the plan is shown, confirmed with its token and, where it destroys, by typing a name; then
it is made, read back and recorded. Also forms that do something at once.

A line in the audit log goes before each change: what cannot be recorded is not made.
"""

from __future__ import annotations

import asyncio
import time
from http import HTTPStatus
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from starlette.requests import Request
from starlette.responses import RedirectResponse, Response

from orbitmq.admin.answers import Found
from orbitmq.admin.envelope import plain
from orbitmq.admin.plans import Outcome, Plan, Step
from orbitmq.dashboard.asking import Asked, Goes, Page, Shown
from orbitmq.dashboard.audit import STEPS_MAX
from orbitmq.dashboard.logins import Pending
from orbitmq.dashboard.roles import Role
from orbitmq.errors import Conflict, Forbidden, NotFound, OrbitMQError

if TYPE_CHECKING:
    from orbitmq.dashboard.app import Dashboard

CONFIRM_BODY_MAX = 16 << 10
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
    try:
        await record(dashboard, asked, peer, one.plan.title, "begun")
        if one.plan.undo is not None and dashboard.settings.save_undo is not None:
            one.undo = await asyncio.to_thread(dashboard.settings.save_undo, one.plan.undo)
        made = await one.plan.verify(await one.plan.make())
        one.result = made
        asked.place.forget()
        told = [plain(step) for step in made.items[:STEPS_MAX]]
        outcome = "done" if _is_whole(made) else "failed"
        more = {"steps": told, "stepsInAll": len(made.items), "errors": [plain(failure) for failure in made.failures]}
        await record(dashboard, asked, peer, one.plan.title, outcome, **more)
    finally:
        one.is_running = False


def _is_whole(made: Found[Step]) -> bool:
    return not made.failures and all(step.outcome in _MADE for step in made.items)


async def do(dashboard: Dashboard, request: Request, page: Page, asked: Asked) -> Response:
    """What a page does at once."""
    what, peer = page.says.format(**asked.path), _peer(request)
    await record(dashboard, asked, peer, what, "begun")
    try:
        answer = await page.endpoint(asked)
    except OrbitMQError as error:
        await record(dashboard, asked, peer, what, "failed", errors=[str(error)])
        raise
    asked.place.forget()
    said = {"said": answer.said} if isinstance(answer, Goes) and answer.said else {}
    await record(dashboard, asked, peer, what, "done", **said)
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


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""
