"""The web page as an ASGI application: every request passes the same checks before its page is called.

In this order: the host, the size of the body, the login, the role, the origin and token of a form. Every response,
errors included, has a policy that forbids scripts, frames and sources of other hosts.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from http import HTTPStatus
from importlib import import_module
from typing import Any
from urllib.parse import quote

from starlette.applications import Starlette
from starlette.exceptions import HTTPException
from starlette.requests import Request
from starlette.responses import PlainTextResponse, RedirectResponse, Response
from starlette.routing import Mount, Route
from starlette.staticfiles import StaticFiles

from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Failure, failure_of
from orbitmq.dashboard import accounts, changes, pages
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.clusters import DashboardCluster
from orbitmq.dashboard.formats import environment, rendered
from orbitmq.dashboard.guard import (
    CHOICES,
    Headers,
    body_of,
    chosen,
    cookie_of,
    is_ours,
    is_read,
    query_of,
    refuse_host,
)
from orbitmq.dashboard.logins import Guesses, Login, Logins
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import (
    PAGES,
    DashboardRequest,
    Download,
    Fields,
    PageContent,
    PageResult,
    PageRoute,
    Redirect,
)
from orbitmq.errors import (
    BadField,
    BrokerError,
    ConfigurationError,
    Conflict,
    Forbidden,
    MessageError,
    NotFound,
    OrbitMQError,
    RemotingError,
)
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

COOKIE = "orbitmq-session"
"""The name of the cookie, or its prefix: all ports of a host share cookies, so dashboards need different ones."""
LOCAL_NAME = "local"
"""The user name in the audit log when the page needs no login."""
LOGIN_BODY_MAX = 4096
CONFIRM_BODY_MAX = 16 << 10
FOREIGN_FORM = "the form is not from a page of your session"
HASHED_AT_ONCE = 2  # each takes 16 MiB and a core meanwhile
SAID_MAX = 300  # characters of a text that is shown on the next page
TARGET_MAX = 2000  # characters of an address that a login redirects to
COMPILE_PAUSE_SECONDS = 0.05  # between two templates: some 20 ms each
CHOICE_SECONDS = 365 * 86_400  # how long a browser keeps its language and colours


@dataclass(frozen=True, slots=True)
class DashboardSettings:
    """The options of `orbitmq dashboard`."""

    clusters: Sequence[DashboardCluster]
    accounts: accounts.AccountFile | None = None
    """None: no login, and every user is an administrator; for loopback only."""
    readonly: bool = False
    hosts: frozenset[str] = frozenset()
    """Host names of the page, besides loopback. With accounts and without a name here, every name is accepted."""
    is_secure: bool = False
    """Cookies are sent over TLS only; also if a trusted proxy reports that the browser used TLS."""
    cookie: str = COOKIE
    audit: AuditLog = field(default_factory=lambda: AuditLog(None, SystemClock()))
    clock: Clock = field(default_factory=SystemClock)
    save_undo: Callable[[Mapping[str, Any]], str] | None = None
    """Writes the undo file of a change; returns the command that reads it."""


class Dashboard:
    """All pages for the clusters of `settings`."""

    def __init__(self, settings: DashboardSettings) -> None:
        self.settings = settings
        self.clusters = {cluster.name: cluster for cluster in settings.clusters}
        self.logins = Logins(time.monotonic)
        self.guesses = Guesses(time.monotonic)
        self.changes = changes.Changes(settings.audit, settings.save_undo)
        self._hashing = asyncio.Semaphore(HASHED_AT_ONCE)
        self.templates = environment()
        now = time.monotonic()
        _, self._local = Logins(time.monotonic).begin(LOCAL_NAME, Role.ADMIN)
        self._local.began = now
        for name in pages.MODULES:
            import_module(f"{pages.__name__}.{name}")
        self.asgi = Headers(
            Starlette(routes=self._routes(), exception_handlers={HTTPException: self._http_error, Exception: self._bug})
        )

    async def compile_templates(self) -> None:
        """Compile the templates in the order in which users need them, in pauses of the page: the first request of each
        would wait for it."""
        first = ("base", "parts", "group_parts", "lists", "overview", "topics", "groups", "messages_parts", "messages")
        names = [f"{name}.html" for name in first]
        for name in dict.fromkeys([*names, *self.templates.list_templates(extensions=["html"])]):
            await asyncio.to_thread(self.templates.get_template, name)
            await asyncio.sleep(0 if name in names else COMPILE_PAUSE_SECONDS)

    def _routes(self) -> list[Route | Mount]:
        below = [
            Route(f"/c/{{cluster}}/{page.path}", self._serves(page), methods=["POST"] if page.writes else ["GET"])
            for page in PAGES
        ]
        return [
            Mount("/static", StaticFiles(packages=[("orbitmq.dashboard", "static")])),
            Route("/", self.guarded(self._first)),
            Route("/healthz", self._healthz),
            Route("/choose", self.guarded(self._choose)),
            Route("/login", self.guarded(self._login_form), methods=["GET"]),
            Route("/login", self.guarded(self._login), methods=["POST"]),
            Route("/logout", self.guarded(self._logout), methods=["POST"]),
            *below,
            Route("/c/{cluster}/plans/{plan}", self.guarded(self._plan), methods=["GET"]),
            Route("/c/{cluster}/plans/{plan}", self.guarded(self._confirm), methods=["POST"]),
            Route("/c/{cluster}/plans/{plan}/stop", self.guarded(self._stop), methods=["POST"]),
        ]

    # --------------------------------------------------------------------------------------------------------- login

    def who(self, request: Request) -> Login | None:
        if self.settings.accounts is None:
            return self._local
        key = request.cookies.get(self.settings.cookie)
        login = None if key is None else self.logins.find(key)
        if login is None:
            return None
        known = self.settings.accounts.accounts().get(login.name)
        if known is None or (known.role, known.hashed) != (login.role, login.hashed):  # removed, or changed
            self.logins.end(key or "")
            return None
        return login

    async def _first(self, request: Request) -> Response:
        refuse_host(request, self.settings.hosts, open_to_all=self.settings.accounts is not None)
        return RedirectResponse(f"/c/{quote(next(iter(self.clusters)))}/", HTTPStatus.SEE_OTHER)

    async def _healthz(self, _request: Request) -> Response:
        return PlainTextResponse("ok\n")

    async def _choose(self, request: Request) -> Response:
        """Keep the language or the colours of this browser. It shows nothing, so it needs no login."""
        refuse_host(request, self.settings.hosts, open_to_all=self.settings.accounts is not None)
        query = Fields(query_of(request))
        response = RedirectResponse(local_path(query.text("next", "/")), HTTPStatus.SEE_OTHER)
        for name, allowed in CHOICES.items():
            if name in query and is_ours(request):
                value = query.choice(name, allowed)
                response.set_cookie(cookie_of(name), value, CHOICE_SECONDS, httponly=True, samesite="lax", path="/")
        return response

    async def _login_form(self, request: Request) -> Response:
        refuse_host(request, self.settings.hosts, open_to_all=self.settings.accounts is not None)
        target = Fields(query_of(request)).text("next", "/")
        if self.who(request) is not None:
            return RedirectResponse(local_path(target), HTTPStatus.SEE_OTHER)
        return self._page("login.html", request, {"wrong": "", "next": target})

    async def _login(self, request: Request) -> Response:
        """A form without a token, as there is no session yet; the origin shows whether another site sent it."""
        refuse_host(request, self.settings.hosts, open_to_all=self.settings.accounts is not None)
        if not is_ours(request):
            raise HTTPException(HTTPStatus.FORBIDDEN, "the form was sent from another site")
        if self.settings.accounts is None:
            raise NotFound("this dashboard needs no login")
        form = Fields(await body_of(request, LOGIN_BODY_MAX))
        name, password = form.text("name", at_most=accounts.NAME_CHARS_MAX), form.raw("password", at_most=1024)
        peer = _peer(request)
        wait = self.guesses.wait_seconds(name, peer)
        if wait > 0:
            return self._wrong(request, form, f"too many wrong passwords; try again in {wait:.0f} s", 429, wait)
        self.guesses.wrong(name, peer)  # counted before the check, so that parallel attempts count, too
        account = await self._account(name, password)
        if account is None:
            self.guesses.wrong(name, peer, tries=0)
            await self._record_login(name, "", peer, "refused")
            return self._wrong(request, form, "wrong name or password", 401)
        self.guesses.right(name, peer)
        await self._record_login(name, account.role.word, peer, "done")
        self.logins.end(request.cookies.get(self.settings.cookie, ""))
        key, _ = self.logins.begin(name, account.role, account.hashed)
        response = RedirectResponse(local_path(form.text("next", "/")), HTTPStatus.SEE_OTHER)
        is_secure = self.settings.is_secure or request.scope["scheme"] == "https"
        response.set_cookie(self.settings.cookie, key, httponly=True, samesite="strict", secure=is_secure, path="/")
        return response

    async def _record_login(self, name: str, role: str, peer: str, outcome: str) -> None:
        """Record a login. A full disk must not prevent logins: only changes need a record first."""
        try:
            await asyncio.to_thread(self.settings.audit.write, name, role, peer, "log in", outcome)
        except OSError as error:
            _log.error("event=audit_failed what=login error=%s", error.strerror)

    async def _account(self, name: str, password: str) -> accounts.DashboardAccount | None:
        assert self.settings.accounts is not None
        account = self.settings.accounts.accounts().get(name)
        async with self._hashing:
            hashed = accounts.UNKNOWN_NAME_HASH if account is None else account.hashed
            right = await asyncio.to_thread(accounts.is_right, password, hashed)
        return account if right else None

    def _wrong(self, request: Request, form: Fields, text: str, status: int, wait: float = 0) -> Response:
        response = self._page("login.html", request, {"wrong": text, "next": form.text("next", "/")}, status=status)
        if wait:
            response.headers["retry-after"] = str(round(wait) + 1)
        return response

    async def _logout(self, request: Request) -> Response:
        login = self.who(request)
        form = Fields(await body_of(request, LOGIN_BODY_MAX))
        if login is None or not is_ours(request) or not login.is_token(form.raw("csrf")):
            raise HTTPException(HTTPStatus.FORBIDDEN, f"{FOREIGN_FORM}; load the page again")
        self.logins.end(request.cookies.get(self.settings.cookie, ""))
        response = RedirectResponse("/login", HTTPStatus.SEE_OTHER)
        response.delete_cookie(self.settings.cookie, path="/")
        return response

    # ----------------------------------------------------------------------------------------------------------- pages

    def _serves(self, page: PageRoute) -> Callable[[Request], Awaitable[Response]]:
        async def serve(request: Request) -> Response:
            page_request = await self.checked(request, page.role, page.body_bytes_max if page.writes else 0)
            if isinstance(page_request, Response):
                return page_request
            if page.writes and page.says:
                result = await self.changes.act(page, page_request, _peer(request))
            else:
                result = await page.endpoint(page_request)
            return await self.respond(request, page, page_request, result)

        return self.guarded(serve)

    async def checked(self, request: Request, role: Role, body_bytes_max: int) -> DashboardRequest | Response:
        """The checked request; a response if it is rejected. A `size` of 0 is that of a GET request."""
        refuse_host(request, self.settings.hosts, open_to_all=self.settings.accounts is not None)
        login = self.who(request)
        if login is None:
            return self._to_login(request)
        cluster = self.clusters.get(request.path_params["cluster"])
        if cluster is None:
            raise NotFound(
                f"there is no cluster {request.path_params['cluster']}", f"there are {', '.join(self.clusters)}"
            )
        if login.role < role:
            raise Forbidden(f"{login.name} has the role {login.role.word}; this needs {role.word}")
        if not body_bytes_max and not is_read(request):
            raise Forbidden("the request comes from a page of another site; open the address directly")
        form = Fields(await body_of(request, body_bytes_max)) if body_bytes_max else Fields()
        readonly = self.settings.readonly or cluster.access.readonly
        if body_bytes_max:
            token = request.headers.get("x-csrf-token") or form.raw("csrf")
            if not is_ours(request) or not login.is_token(token):
                raise Forbidden(FOREIGN_FORM, "load the page again and submit it from there")
            if readonly:
                raise Forbidden("this dashboard is read-only")
        return DashboardRequest(
            cluster,
            cluster.session(),
            login,
            Fields(query_of(request)),
            form,
            {name: str(value) for name, value in request.path_params.items()},
            self.settings.clock.now_ms(),
            self.settings.audit,
            readonly,
        )

    def _to_login(self, request: Request) -> Response:
        if request.method != "GET" or request.headers.get("hx-request"):
            return PlainTextResponse("log in first\n", HTTPStatus.UNAUTHORIZED, {"HX-Redirect": "/login"})
        query = query_of(request)
        target = quote(request.scope["path"]) + (f"?{query}" if query else "")
        return RedirectResponse(f"/login?next={quote(target[:TARGET_MAX])}", HTTPStatus.SEE_OTHER)

    async def respond(
        self, request: Request, page: PageRoute, page_request: DashboardRequest, result: PageResult
    ) -> Response:
        if isinstance(result, Plan):
            return self._to_plan(page_request, changes.keep(page, page_request, result, time.monotonic()))
        if isinstance(result, Redirect):
            target = f"/c/{quote(page_request.cluster.name)}/{result.path}"
            if result.said:
                target += f"{'&' if '?' in target else '?'}said={page_request.login.say(result.said[:SAID_MAX])}"
            return RedirectResponse(target, HTTPStatus.SEE_OTHER)
        if isinstance(result, Download):
            name = quote(result.name)
            headers = {"content-disposition": f"attachment; filename*=UTF-8''{name}"}
            return Response(result.body, media_type=result.content_type, headers=headers)
        assert page.template is not None
        return self.shown(request, page.template, page_request, result)

    def shown(self, request: Request, template: str, page_request: DashboardRequest, result: PageContent) -> Response:
        failures: list[Failure] = [failure for found in result.found for failure in found.failures]
        warnings = [warning for found in result.found for warning in found.warnings]
        values = {
            **result.values,
            "request": page_request,
            "failures": list({one.target: one for one in failures}.values()),
            "warnings": list(dict.fromkeys(warnings)),
            "age_seconds": result.age_seconds,
            "said": page_request.login.said.get(page_request.query.raw("said"), ""),
        }
        return self._page(template, request, values, page_request=page_request, status=result.status)

    def _to_plan(self, page_request: DashboardRequest, key: str) -> Response:
        return RedirectResponse(f"/c/{quote(page_request.cluster.name)}/plans/{key}", HTTPStatus.SEE_OTHER)

    async def _plan(self, request: Request) -> Response:
        page_request = await self.checked(request, Role.VIEWER, 0)
        if isinstance(page_request, Response):
            return page_request
        one = changes.pending(page_request)
        found = one.plan.preview() if one.result is None else one.result
        to_type = changes.text_to_type(page_request, one.plan)
        values = {"plan": one.plan, "one": one, "steps": found.items, "to_type": to_type}
        return self.shown(request, "plan.html", page_request, PageContent(values, found))

    async def _confirm(self, request: Request) -> Response:
        page_request = await self.checked(request, Role.OPERATOR, CONFIRM_BODY_MAX)
        if isinstance(page_request, Response):
            return page_request
        await self.changes.confirm(page_request, changes.pending(page_request), _peer(request))
        return self._to_plan(page_request, page_request.path["plan"])

    async def _stop(self, request: Request) -> Response:
        """Stop a plan that is being made, after the step in progress; what was sent stays sent."""
        page_request = await self.checked(request, Role.OPERATOR, CONFIRM_BODY_MAX)
        if isinstance(page_request, Response):
            return page_request
        changes.stop(changes.pending(page_request))
        return self._to_plan(page_request, page_request.path["plan"])

    # ---------------------------------------------------------------------------------------------------------- errors

    def guarded(self, serve: Callable[[Request], Awaitable[Response]]) -> Callable[[Request], Awaitable[Response]]:
        """Turn orbitmq's errors into a page with the error and its remedy."""

        async def guarded(request: Request) -> Response:
            try:
                return await serve(request)
            except OrbitMQError as error:
                return self._error(request, status_of(error), failure_of("", error))

        return guarded

    async def _http_error(self, request: Request, error: Exception) -> Response:
        assert isinstance(error, HTTPException)
        if error.status_code == HTTPStatus.NOT_FOUND:  # of the router, which has words of its own
            return await self.guarded(self._missing)(request)
        failure = Failure(
            "", error.status_code, HTTPStatus(error.status_code).phrase, error.detail, None, retryable=False
        )
        return self._error(request, error.status_code, failure)

    async def _missing(self, _request: Request) -> Response:
        raise NotFound("there is no page at this address", "the overview leads to every page")

    async def _bug(self, request: Request, error: Exception) -> Response:
        _log.error("event=page_failed path=%r", request.scope["path"], exc_info=error)
        text = "internal error; see the log of the dashboard"
        return self._error(request, 500, Failure("", 500, "Internal Server Error", text, None, retryable=False))

    def _error(self, request: Request, status: int, failure: Failure) -> Response:
        try:
            login = self.who(request)
        except OrbitMQError:  # the accounts cannot be read: this error is shown
            login = None
        cluster = None if login is None else self.clusters.get(request.path_params.get("cluster", ""))
        values = {"failure": failure, "status": status, "login": login, "cluster": cluster}
        return self._page("error.html", request, values, status=status)

    def _page(
        self,
        template: str,
        request: Request,
        values: Mapping[str, Any],
        *,
        page_request: DashboardRequest | None = None,
        status: int = 200,
    ) -> Response:
        common = {
            "login": None if page_request is None else page_request.login,
            "cluster": None if page_request is None else page_request.cluster,
            "clusters": list(self.clusters),
            "base": None if page_request is None else f"/c/{quote(page_request.cluster.name)}",
            "path": request.scope["path"],
            "own_path": _own_path(request),
            "theme": chosen(request.scope, "theme"),
            "now_ms": self.settings.clock.now_ms(),
            "needs_login": self.settings.accounts is not None,
            "readonly": self.settings.readonly or (page_request is not None and page_request.cluster.access.readonly),
            "pages": pages.NAVIGATION,
        }
        merged = {**common, **values}
        if merged["base"] is None and merged["cluster"] is not None:
            merged["base"] = f"/c/{quote(merged['cluster'].name)}"
        text = rendered(template, merged, self.templates)
        return Response(text, status, media_type="text/html")


def _own_path(request: Request) -> str:
    """Where a choice of the language leads back to."""
    query = query_of(request)
    is_page = request.method == "GET"
    return (request.scope["path"] + (f"?{query}" if query else ""))[:TARGET_MAX] if is_page else "/"


def _peer(request: Request) -> str:
    return request.client.host if request.client else ""


def local_path(text: str) -> str:
    """The path that a login redirects to: always a path of this page, whatever the link has."""
    is_path = text.startswith("/") and not text.startswith(("//", "/\\"))
    return text if is_path and text.isprintable() else "/"


_STATUS: Sequence[tuple[type[OrbitMQError], HTTPStatus]] = (
    (BadField, HTTPStatus.BAD_REQUEST),
    (Forbidden, HTTPStatus.FORBIDDEN),
    (NotFound, HTTPStatus.NOT_FOUND),
    (Conflict, HTTPStatus.CONFLICT),
    (MessageError, HTTPStatus.BAD_REQUEST),
    (RemotingError, HTTPStatus.SERVICE_UNAVAILABLE),
    (ConfigurationError, HTTPStatus.SERVICE_UNAVAILABLE),
)
_MISSING = {ResponseCode.TOPIC_NOT_EXIST, ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, ResponseCode.QUERY_NOT_FOUND}


def status_of(error: OrbitMQError) -> int:
    """The HTTP status of an error."""
    if isinstance(error, BrokerError):
        if error.code in _MISSING:
            return HTTPStatus.NOT_FOUND
        return HTTPStatus.FORBIDDEN if error.code == ResponseCode.NO_PERMISSION else HTTPStatus.BAD_GATEWAY
    return next((status for kind, status in _STATUS if isinstance(error, kind)), HTTPStatus.BAD_REQUEST)
