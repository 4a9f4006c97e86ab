"""The table of pages, and what a page is: a coroutine from a request to content, a plan or a redirect.

    @shows("topics", "topics.html")
    async def topics(request: DashboardRequest) -> PageContent:
        found = await listed(request.session, containing=request.query.text("containing"))
        return PageContent({"topics": found.items}, found)

    @plans("topics/{topic}/delete", Role.ADMIN)
    async def delete(request: DashboardRequest) -> Plan:
        return await plan_delete(request.session, request.path["topic"])

`shows` handles GET, `plans` and `does` handle POST. A plan is shown and waits until the user confirms it; what a page
`does` happens at once and is recorded. Paths are below that of the cluster, `/c/<cluster>/`. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from orbitmq.admin.plans import Plan
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.clusters import DashboardCluster
from orbitmq.dashboard.logins import Login
from orbitmq.dashboard.roles import Role
from orbitmq.errors import BadField

FIELDS_MAX = 2000  # of one form: a selection of dead letters is the largest
TEXT_MAX = 4096  # characters of a field that does not say otherwise


class Fields(Mapping[str, str]):
    """The fields of a query or a form. BadField names an invalid one."""

    def __init__(self, text: str = "") -> None:
        try:
            pairs = parse_qsl(text, keep_blank_values=True, max_num_fields=FIELDS_MAX, errors="strict")
        except (ValueError, UnicodeDecodeError) as error:
            raise BadField(f"the fields of the request cannot be read: {error}") from error
        self._values: dict[str, list[str]] = {}
        for name, value in pairs:
            self._values.setdefault(name, []).append(value)

    def __getitem__(self, name: str) -> str:
        return self._values[name][0]

    def __iter__(self) -> Any:
        return iter(self._values)

    def __len__(self) -> int:
        return len(self._values)

    def text(self, name: str, default: str = "", *, at_most: int = TEXT_MAX) -> str:
        """The value, stripped."""
        value = self.raw(name, at_most=at_most).strip()
        return value or default

    def raw(self, name: str, *, at_most: int = TEXT_MAX) -> str:
        r"""The value as typed, with line ends as `\n`; empty if the field is missing."""
        value = self._values.get(name, [""])[0].replace("\r\n", "\n")
        if len(value) > at_most:
            raise BadField(f"{name} has {len(value)} characters, more than {at_most}")
        return value

    def needed(self, name: str, *, at_most: int = TEXT_MAX) -> str:
        value = self.text(name, at_most=at_most)
        if not value:
            raise BadField(f"{name} is missing")
        return value

    def number(self, name: str, default: int | None = None, *, low: int = 0, high: int = (1 << 63) - 1) -> int:
        text = self.text(name)
        if not text and default is not None:
            return default
        if not text.removeprefix("-").isdecimal() or len(text) > 20 or not low <= int(text) <= high:
            raise BadField(f"{name} is {text!r}; use a number from {low} to {high}")
        return int(text)

    def optional(self, name: str, *, low: int = 0, high: int = (1 << 63) - 1) -> int | None:
        return self.number(name, low=low, high=high) if self.text(name) else None

    def flag(self, name: str) -> bool:
        """A check box."""
        return self.text(name) in ("on", "1", "true", "yes")

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.text(name) or default or ""
        if value not in allowed:
            raise BadField(f"{name} is {value!r}; use one of {', '.join(allowed)}")
        return value

    def many(self, name: str) -> list[str]:
        return [value for value in self._values.get(name, []) if value]


@dataclass(frozen=True, slots=True)
class DashboardRequest:
    """One request of a page."""

    cluster: DashboardCluster
    session: Session
    login: Login
    query: Fields
    form: Fields
    path: Mapping[str, str]
    now_ms: int
    audit: AuditLog
    readonly: bool
    """Changes are refused for every role."""

    def may(self, role: Role) -> bool:
        """Whether the user's role is at least this one, and so allows its changes."""
        return self.login.role >= role and not self.readonly


class PageContent:
    """The values for the template of a page, and the results they come from, whose failures are shown at the top."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *found: Result[Any],
        age_seconds: float | None = None,
        status: int = 200,
    ) -> None:
        self.values = dict(values or {})
        self.found = found
        self.age_seconds = age_seconds
        """The age of the values; None if they were requested just now."""
        self.status = status


@dataclass(frozen=True, slots=True)
class Redirect:
    """Redirect to another page of the cluster, which shows `said` at the top."""

    path: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the browser to save."""

    name: str
    content_type: str
    body: bytes


PageResult: TypeAlias = PageContent | Redirect | Plan | Download
Endpoint: TypeAlias = Callable[[DashboardRequest], Awaitable[PageResult]]


@dataclass(frozen=True, slots=True)
class PageRoute:
    """A row of the table of pages."""

    path: str
    """Path below the cluster; empty for its first page."""
    endpoint: Endpoint
    role: Role
    writes: bool
    template: str | None = None
    body_bytes_max: int = 64 << 10
    """Of a form."""
    back: str = ""
    """Where the Cancel button of a plan leads; fields of the path are filled in."""
    says: str = field(default="")
    """The text for the audit log; fields of the path are filled in."""


PAGES: list[PageRoute] = []
"""All of them, in the order in which the modules of `pages/` are imported."""


def shows(path: str, template: str, role: Role = Role.VIEWER) -> Callable[[Endpoint], Endpoint]:
    """A page without changes."""

    def register(endpoint: Endpoint) -> Endpoint:
        PAGES.append(PageRoute(path, endpoint, role, writes=False, template=template))
        return endpoint

    return register


def plans(path: str, role: Role, *, back: str, body_bytes_max: int = 64 << 10) -> Callable[[Endpoint], Endpoint]:
    """A form whose plan is shown, confirmed and made; the audit log has the title of the plan."""

    def register(endpoint: Endpoint) -> Endpoint:
        PAGES.append(PageRoute(path, endpoint, role, writes=True, body_bytes_max=body_bytes_max, back=back))
        return endpoint

    return register


def does(
    path: str, role: Role, *, says: str, template: str | None = None, body_bytes_max: int = 64 << 10
) -> Callable[[Endpoint], Endpoint]:
    """A form that takes effect immediately; `says` is the text for the audit log."""

    def register(endpoint: Endpoint) -> Endpoint:
        PAGES.append(
            PageRoute(path, endpoint, role, writes=True, template=template, body_bytes_max=body_bytes_max, says=says)
        )
        return endpoint

    return register
