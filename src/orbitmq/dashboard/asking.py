"""What a page is: a coroutine that is asked and answers with something to show, a plan, or a place to go on to.

    @shows("topics", "topics.html")
    async def topics(asked: Asked) -> Shown:
        found = await listed(asked.session, containing=asked.query.text("containing"))
        return Shown({"topics": found.items}, found)

    @plans("topics/{topic}/delete", Role.ADMIN)
    async def delete(asked: Asked) -> Plan:
        return await plan_delete(asked.session, asked.path["topic"])

`shows` answers GET, `plans` and `does` answer POST: a plan is shown and waits to be confirmed, what a page `does` is
done at once and recorded. Paths are below that of the cluster, `/c/<place>/`. Knows no HTTP.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeAlias
from urllib.parse import parse_qsl

from orbitmq.admin.answers import Found
from orbitmq.admin.plans import Plan
from orbitmq.admin.session import Session
from orbitmq.dashboard.audit import AuditLog
from orbitmq.dashboard.logins import Login
from orbitmq.dashboard.places import Place
from orbitmq.dashboard.roles import Role
from orbitmq.errors import BadField

FIELDS_MAX = 2000  # of one form: a selection of dead letters is the largest
TEXT_MAX = 4096  # characters of a field that does not say otherwise


class Fields(Mapping[str, str]):
    """The fields of a query or a form. BadField names the one that is wrong."""

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
        """Without blanks around it."""
        value = self.raw(name, at_most=at_most).strip()
        return value or default

    def raw(self, name: str, *, at_most: int = TEXT_MAX) -> str:
        """As it was typed, line ends as `\\n`; empty when it is not there."""
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
            raise BadField(f"{name} is {text!r}; give a number from {low} to {high}")
        return int(text)

    def optional(self, name: str, *, low: int = 0, high: int = (1 << 63) - 1) -> int | None:
        return self.number(name, low=low, high=high) if self.text(name) else None

    def flag(self, name: str) -> bool:
        """A check box."""
        return self.text(name) in ("on", "1", "true", "yes")

    def choice(self, name: str, allowed: Sequence[str], default: str | None = None) -> str:
        value = self.text(name) or default or ""
        if value not in allowed:
            raise BadField(f"{name} is {value!r}; give one of {', '.join(allowed)}")
        return value

    def many(self, name: str) -> list[str]:
        return [value for value in self._values.get(name, []) if value]


@dataclass(frozen=True, slots=True)
class Asked:
    """One request of a page."""

    place: Place
    session: Session
    login: Login
    query: Fields
    form: Fields
    path: Mapping[str, str]
    now_ms: int
    audit: AuditLog
    readonly: bool
    """Nothing is changed, whoever asks."""

    def may(self, role: Role) -> bool:
        """Whether they may change what this role may."""
        return self.login.role >= role and not self.readonly


class Shown:
    """What a page shows: values for its template, and the answers they came from, whose failures stand on top of it."""

    def __init__(
        self,
        values: Mapping[str, Any] | None = None,
        *found: Found[Any],
        age_seconds: float | None = None,
        status: int = 200,
    ) -> None:
        self.values = dict(values or {})
        self.found = found
        self.age_seconds = age_seconds
        """How old it is, where it was not asked for just now."""
        self.status = status


@dataclass(frozen=True, slots=True)
class Goes:
    """Go on to another page of the place, with a sentence that it shows on top."""

    path: str
    said: str = ""


@dataclass(frozen=True, slots=True)
class Download:
    """A file for the browser to save."""

    name: str
    content_type: str
    body: bytes


Answer: TypeAlias = Shown | Goes | Plan | Download
Endpoint: TypeAlias = Callable[[Asked], Awaitable[Answer]]


@dataclass(frozen=True, slots=True)
class Page:
    """A row of the table of pages."""

    path: str
    """Below the place; empty for its first page."""
    endpoint: Endpoint
    role: Role
    writes: bool
    template: str | None = None
    body_bytes_max: int = 64 << 10
    """Of a form."""
    back: str = ""
    """Where a plan that is not made leads back to; fields of the path are filled in."""
    says: str = field(default="")
    """What stands in the audit log; fields of the path are filled in."""


PAGES: list[Page] = []
"""All of them, in the order the modules of `pages/` are imported."""


def shows(path: str, template: str, role: Role = Role.VIEWER) -> Callable[[Endpoint], Endpoint]:
    """A page to look at."""

    def register(endpoint: Endpoint) -> Endpoint:
        PAGES.append(Page(path, endpoint, role, writes=False, template=template))
        return endpoint

    return register


def plans(path: str, role: Role, *, back: str, body_bytes_max: int = 64 << 10) -> Callable[[Endpoint], Endpoint]:
    """A form whose plan is shown, confirmed and made; its title is what the audit log says."""

    def register(endpoint: Endpoint) -> Endpoint:
        PAGES.append(Page(path, endpoint, role, writes=True, body_bytes_max=body_bytes_max, back=back))
        return endpoint

    return register


def does(
    path: str, role: Role, *, says: str, template: str | None = None, body_bytes_max: int = 64 << 10
) -> Callable[[Endpoint], Endpoint]:
    """A form that does something at once; `says` is what the audit log calls it."""

    def register(endpoint: Endpoint) -> Endpoint:
        PAGES.append(
            Page(path, endpoint, role, writes=True, template=template, body_bytes_max=body_bytes_max, says=says)
        )
        return endpoint

    return register
