"""Checks before a page is called: the host, the origin, the size; and the headers of every response.

Knows no page and no account.
"""

from __future__ import annotations

import ipaddress
from collections.abc import Mapping, Sequence
from collections.abc import Set as AbstractSet

from starlette.datastructures import MutableHeaders
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect, Request, cookie_parser
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from orbitmq.runtime.languages import LANGUAGES, in_language, of_header

LOOPBACK_NAMES = frozenset({"localhost", "127.0.0.1", "[::1]"})
POLICY = (
    "default-src 'none'; script-src 'self'; style-src 'self'; img-src 'self' data:; connect-src 'self'; "
    "font-src 'self'; form-action 'self'; frame-ancestors 'none'; base-uri 'none'"
)
HEADERS = {
    "content-security-policy": POLICY,
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "same-origin",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}


class Headers:
    """Adds `HEADERS` to every response of `app`, which speaks the language of the browser or of its user; browsers may
    cache static files only."""

    def __init__(self, app: ASGIApp) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        is_file = scope["path"].startswith("/static/")

        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                headers = MutableHeaders(scope=message)
                for name, value in HEADERS.items():
                    headers[name] = value
                headers["cache-control"] = "public, max-age=3600" if is_file else "no-store"
            await send(message)

        with in_language(language_of(scope)):
            await self._app(scope, receive, with_headers)


CHOICES: Mapping[str, Sequence[str]] = {"language": tuple(LANGUAGES), "theme": ("auto", "light", "dark")}
"""What a user may choose for a browser, with the values."""


def cookie_of(name: str) -> str:
    """The name of the cookie of a choice."""
    return f"orbitmq-{name}"


def chosen(scope: Scope, name: str) -> str | None:
    """What the browser keeps of a choice; None for nothing, and for a value that is not allowed."""
    value = cookie_parser(MutableHeaders(scope=scope).get("cookie", "")).get(cookie_of(name))
    return value if value in CHOICES[name] else None


def language_of(scope: Scope) -> str:
    """The language that the user chose, else the best one of the browser's."""
    return chosen(scope, "language") or of_header(MutableHeaders(scope=scope).get("accept-language"))


def refuse_host(request: Request, hosts: AbstractSet[str], *, open_to_all: bool) -> None:
    """HTTPException for an unknown host name: the name of a foreign site may point to this machine, and that site could
    then read the page (DNS rebinding). With accounts this gains nothing, so every name is accepted unless some are
    given."""
    host = request.headers.get("host", "")
    name, _, port = (host, "", "") if host.endswith("]") or ":" not in host else host.rpartition(":")
    if port and not (port.isascii() and port.isdigit()):
        name = host
    if name.lower() in LOOPBACK_NAMES or name.lower() in hosts or (open_to_all and not hosts and _is_name(name)):
        return
    raise HTTPException(421, f"this page is not {name[:100]!r}; start it with --allowed-host to allow this name")


def _is_name(text: str) -> bool:
    """Whether it can be a host's name or address."""
    try:
        ipaddress.ip_address(text.strip("[]"))
    except ValueError:
        return bool(text) and all(
            part and part.replace("-", "").isalnum() and part.isascii() for part in text.split(".")
        )
    return True


def is_ours(request: Request) -> bool:
    """Whether a page of ours has sent it, according to the browser; clients without these headers are not browsers."""
    site = request.headers.get("sec-fetch-site")
    if site is not None and site not in ("same-origin", "none"):
        return False
    origin = request.headers.get("origin")
    if origin is None:
        return True
    return origin.partition("://")[2] == request.headers.get("host", "")


def is_read(request: Request) -> bool:
    """Whether the user or a page of ours requests it. Other sites may link to it, but not load it in the background,
    for example as a picture, because a search is work for brokers."""
    headers = request.headers
    if headers.get("sec-fetch-site") not in ("cross-site", "same-site"):
        return True
    return (headers.get("sec-fetch-mode"), headers.get("sec-fetch-dest")) == ("navigate", "document")


def query_of(request: Request) -> str:
    """The query as received: `request.url` also contains the host that the client sent."""
    return str(request.scope["query_string"].decode("latin-1"))


async def body_of(request: Request, bytes_max: int) -> str:
    """The text of a form. HTTPException if it is too large, or not a form."""
    kind = request.headers.get("content-type", "").partition(";")[0].strip()
    if kind not in ("", "application/x-www-form-urlencoded"):
        raise HTTPException(415, "forms are sent as application/x-www-form-urlencoded")
    data = bytearray()
    try:
        async for piece in request.stream():
            data += piece
            if len(data) > bytes_max:
                raise HTTPException(413, f"more than the {bytes_max} bytes this form may have")
    except ClientDisconnect as error:
        raise HTTPException(400, "the form was cut off") from error
    try:
        return data.decode("ascii")
    except UnicodeDecodeError as error:
        raise HTTPException(400, "a form escapes what is not ASCII") from error
