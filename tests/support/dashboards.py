"""A running `orbitmq dashboard`, and a small browser without scripts: cookies, links, forms with their token, tables.

with OrbitDashboard(system.namesrv_address) as dashboard:
    visitor = dashboard.visitor()
    page = visitor.get("topics")                  # below the cluster; "/login" is an address of its own
    assert page.table("Topics")[0]["Topic"] == "Orders"
    plan = page.submit("topics/create", topic="Orders")
    done = plan.submit("plans/")                  # confirmed

`seen` shows a page of a dashboard in this process, without a server.
"""

from __future__ import annotations

import http.client
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from html.parser import HTMLParser
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlencode, urljoin, urlsplit

from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, Daemon, accepts, free_port

if TYPE_CHECKING:
    from orbitmq.dashboard.app import Dashboard

REDIRECTS_MAX = 5
TIMEOUT_S = 60.0
PLACE = "local"
"""The name of a cluster that is given by its name server."""


class OrbitDashboard(Daemon):
    """`orbitmq dashboard` over `namesrv`, with further `options`."""

    def __init__(self, namesrv: str, *options: object, home: Path | None = None) -> None:
        super().__init__(free_port(), home)
        self._namesrv = namesrv
        self._options = options

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.port}"

    @property
    def audit_path(self) -> Path:
        return self.home / "audit.jsonl"

    def _launch(self) -> ChildProcess:
        command = [ORBITMQ, "dashboard", "-n", self._namesrv, "--port", self.port, "--audit-log", self.audit_path]
        return ChildProcess(
            [*map(str, command), *map(str, self._options)],
            output=self.home / "dashboard.out",
            cwd=self.home,
            environment={"XDG_CONFIG_HOME": str(self.home / "config"), "XDG_STATE_HOME": str(self.home / "state")},
        )

    def _is_ready(self, process: ChildProcess) -> bool:
        return accepts(self.port)

    def visitor(self, place: str = PLACE) -> Visitor:
        return Visitor(self.url, place)


@dataclass
class Form:
    """One form of a page."""

    action: str
    method: str
    fields: list[tuple[str, str]] = field(default_factory=list)
    """What it sends when nothing is changed: boxes that are not ticked are not among them."""


@dataclass
class Page:
    """What came, and what can be done with it."""

    visitor: Visitor
    status: int
    url: str
    headers: Mapping[str, str]
    body: bytes

    def __post_init__(self) -> None:
        self.text = self.body.decode("utf-8", "replace")
        self._read = _Reader()
        if "html" in self.headers.get("content-type", ""):
            self._read.feed(self.text)

    @property
    def words(self) -> str:
        """What is to be read, blanks as one."""
        return " ".join(" ".join(self._read.words).split())

    @property
    def title(self) -> str:
        """The first heading."""
        return " ".join(" ".join(self._read.headings[:1]).split())

    @property
    def links(self) -> list[str]:
        return self._read.links

    @property
    def forms(self) -> list[Form]:
        return self._read.forms

    def table(self, caption: str) -> list[dict[str, str]]:
        """The rows of the table with this caption, by heading."""
        for found, headings, rows in self._read.tables:
            if " ".join(found.split()) == caption:
                return [dict(zip(headings, row, strict=False)) for row in rows]
        raise AssertionError(f"{self.url} has no table {caption!r}, but {[name for name, _, _ in self._read.tables]}")

    def form(self, action: str) -> Form:
        """The first form with `action` in its address."""
        for one in self.forms:
            if action in urljoin(self.url, one.action):
                return one
        raise AssertionError(f"{self.url} has no form {action!r}, but {[one.action for one in self.forms]}")

    def submit(self, action: str, values: Mapping[str, Any] | None = None, **more: Any) -> Page:
        """Send that form with these values instead of its own; a list sends a field several times, None leaves it."""
        one = self.form(action)
        changed = {**(values or {}), **more}
        pairs = [(name, value) for name, value in one.fields if name not in changed]
        for name, value in changed.items():
            found = value if isinstance(value, (list, tuple)) else [] if value is None else [value]
            pairs += [(name, str(item)) for item in found]
        target = urljoin(self.url, one.action or self.url)
        if one.method == "post":
            return self.visitor.post(target, pairs)
        return self.visitor.get(f"{target.partition('?')[0]}?{urlencode(pairs)}")


class Visitor:
    """One browser."""

    def __init__(self, url: str, place: str) -> None:
        self.base = f"{url}/c/{place}/"
        self.cookies: dict[str, str] = {}

    def get(
        self, path: str, *, follow: bool = True, headers: Mapping[str, str] | None = None, waits: bool = True
    ) -> Page:
        """`path` below the cluster, or from the root when it begins with `/`; unless `waits` is false, once it
        has more to show than that it waits for brokers."""
        deadline = time.monotonic() + TIMEOUT_S
        while True:
            page = self._go("GET", urljoin(self.base, path), None, follow=follow, headers=headers)
            if not waits or " data-waits" not in page.text or time.monotonic() > deadline:
                return page

    def post(
        self,
        path: str,
        fields: Sequence[tuple[str, Any]] | Mapping[str, Any],
        *,
        follow: bool = True,
        headers: Mapping[str, str] | None = None,
    ) -> Page:
        pairs = list(fields.items()) if isinstance(fields, Mapping) else list(fields)
        return self._go("POST", urljoin(self.base, path), urlencode(pairs).encode(), follow=follow, headers=headers)

    def log_in(self, name: str, password: str) -> Page:
        return self.post("/login", {"name": name, "password": password, "next": "/"})

    def _go(
        self, method: str, url: str, body: bytes | None, *, follow: bool, headers: Mapping[str, str] | None
    ) -> Page:
        for _ in range(REDIRECTS_MAX):
            page = self._ask(method, url, body, headers or {})
            if not follow or page.status not in (302, 303):
                return page
            method, url, body = "GET", urljoin(url, page.headers["location"]), None
        raise AssertionError(f"{url} leads round and round")

    def _ask(self, method: str, url: str, body: bytes | None, more: Mapping[str, str]) -> Page:
        parts = urlsplit(url)
        connection = http.client.HTTPConnection(parts.hostname or "", parts.port, timeout=TIMEOUT_S)
        headers = dict(more)
        if self.cookies:
            headers.setdefault("Cookie", "; ".join(f"{name}={value}" for name, value in self.cookies.items()))
        if body is not None:
            headers.setdefault("Content-Type", "application/x-www-form-urlencoded")
        target = parts.path + (f"?{parts.query}" if parts.query else "")
        try:
            connection.request(method, target, body, headers)
            answer = connection.getresponse()
            data = answer.read()
        finally:
            connection.close()
        for name, value in answer.getheaders():
            if name.lower() == "set-cookie":
                self._keep(value)
        told = {name.lower(): value for name, value in answer.getheaders()}
        return Page(self, answer.status, url, told, data)

    def _keep(self, cookie: str) -> None:
        name, _, value = cookie.partition(";")[0].partition("=")
        if value.strip('"'):
            self.cookies[name] = value
        else:
            self.cookies.pop(name, None)


async def seen(dashboard: Dashboard, path: str, headers: Mapping[str, str] | None = None) -> Page:
    """A page below the cluster."""
    sent: list[Any] = []

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: Any) -> None:
        sent.append(message)

    target, _, query = path.partition("?")
    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http",
        "path": f"/c/{PLACE}/{unquote(target)}", "query_string": query.encode(), "root_path": "",
        "headers": [(b"host", b"localhost"), *((k.encode(), v.encode()) for k, v in (headers or {}).items())],
        "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await dashboard.asgi(scope, receive, send)
    told = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    body = b"".join(message.get("body", b"") for message in sent[1:])
    visitor = Visitor("http://localhost", PLACE)
    return Page(visitor, sent[0]["status"], urljoin(visitor.base, path), told, body)


class _Reader(HTMLParser):
    """Takes a page apart."""

    def __init__(self) -> None:
        super().__init__()
        self.words: list[str] = []
        self.headings: list[str] = []
        self.links: list[str] = []
        self.forms: list[Form] = []
        self.tables: list[tuple[str, list[str], list[list[str]]]] = []
        self._open: list[str] = []
        self._select: str | None = None
        self._chosen: list[str] = []
        self._first: list[str] = []
        self._area: tuple[str, list[str]] | None = None
        self._in_form = False

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        told = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in told:
            self.links.append(told["href"])
        elif tag == "form":
            self.forms.append(Form(told.get("action", ""), told.get("method", "get").lower()))
            self._in_form = True
        elif tag in ("input", "button") and self._in_form and told.get("name"):
            self._field(tag, told, dict(attrs))
        elif tag == "select" and self._in_form:
            self._select, self._chosen, self._first = told.get("name", ""), [], []
        elif tag == "option" and self._select is not None:
            self._first.append(told.get("value", ""))
            if "selected" in told:
                self._chosen.append(told.get("value", ""))
        elif tag == "textarea" and self._in_form:
            self._area = (told.get("name", ""), [])
        elif tag == "table":
            self.tables.append(("", [], []))
        elif tag == "tr" and self.tables:
            self.tables[-1][2].append([])
        elif tag in ("td", "th") and self.tables and self.tables[-1][2]:
            self.tables[-1][2][-1].append("")
        elif tag == "h1":
            self.headings.append("")
        self._open.append(tag)

    def _field(self, tag: str, told: Mapping[str, str], given: Mapping[str, Any]) -> None:
        kind = "submit" if tag == "button" else told.get("type", "text")
        if kind == "submit" or (kind in ("checkbox", "radio") and "checked" not in given):
            return
        self.forms[-1].fields.append((told["name"], told.get("value", "on" if kind == "checkbox" else "")))

    def handle_endtag(self, tag: str) -> None:
        if tag in self._open:
            while self._open and self._open.pop() != tag:
                pass
        if tag == "form":
            self._in_form = False
        elif tag == "select" and self._select is not None:
            for value in self._chosen or self._first[:1]:
                self.forms[-1].fields.append((self._select, value))
            self._select = None
        elif tag == "textarea" and self._area is not None:
            name, pieces = self._area
            self.forms[-1].fields.append((name, "".join(pieces).removeprefix("\n")))
            self._area = None
        elif tag == "thead" and self.tables:
            caption, _, rows = self.tables[-1]
            self.tables[-1] = (caption, [" ".join(cell.split()) for cell in rows[0]], [])
        elif tag == "table" and self.tables:
            caption, headings, rows = self.tables[-1]
            cells = [[" ".join(cell.split()) for cell in row] for row in rows if row]
            self.tables[-1] = (caption, headings, cells)

    def handle_data(self, data: str) -> None:
        if self._area is not None:
            self._area[1].append(data)
        if "script" in self._open or "style" in self._open:
            return
        self.words.append(data)
        if "h1" in self._open and self.headings:
            self.headings[-1] += data
        if "caption" in self._open and self.tables:
            caption, headings, rows = self.tables[-1]
            self.tables[-1] = (caption + data, headings, rows)
        elif (
            ("td" in self._open or "th" in self._open) and self.tables and self.tables[-1][2] and self.tables[-1][2][-1]
        ):
            self.tables[-1][2][-1][-1] += data
