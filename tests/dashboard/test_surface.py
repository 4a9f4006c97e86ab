"""The whole surface over HTTP: each page by each role, forged forms, hostile addresses and names, and what is told to
whom. Pages come from the table of pages, so one that is added is tried as well.
"""

from __future__ import annotations

import asyncio
import contextlib
import re
import socket
import threading
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlencode, urljoin

import pytest
import uvicorn
from markupsafe import escape

from orbitmq.dashboard import connection_limits
from orbitmq.dashboard.accounts import put
from orbitmq.dashboard.connection_limits import CONNECTIONS_MAX, BoundedConnection
from orbitmq.dashboard.roles import Role
from orbitmq.dashboard.routes import PageRoute
from orbitmq.message.config import TopicConfig
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.operations.registration import register_broker
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.headers_namesrv import RegisterBrokerHeader
from orbitmq.wire.registration import encode_registration
from tests.support.dashboards import OrbitDashboard, Visitor
from tests.support.dashboards import Page as Shown
from tests.support.peers import remoting
from tests.support.shop import SECRET, Shop
from tests.support.surface import FORMS, LOOKS, address, filled, parameters, samples

PASSWORD = "correct horse"
NOTE = """"><svg/onload=alert(1)>'`{{7*7}}"""
"""Stands in every name and text of the shop that can be chosen freely."""
PAGES_MAX = 150  # of the shop: some 100 are linked
HOSTILE = (
    "..", "../../../../etc/passwd", "..\\..\\etc\\passwd", "\0", "\udcff", "a" * 3000, "x\r\nSet-Cookie: a=b", NOTE,
)  # fmt: skip
TIMEOUT_S = 60


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop(NOTE) as running:
        yield running


@pytest.fixture(scope="module")
def accounts(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("accounts") / "dashboard.toml"
    for role in Role:
        put(path, role.word, role, PASSWORD)
    return path


@pytest.fixture(scope="module")
def dashboard(shop: Shop, accounts: Path) -> Iterator[OrbitDashboard]:
    with OrbitDashboard(shop.name_server, "--accounts", accounts, "--sample", 0) as running:
        yield running


@pytest.fixture(scope="module")
def visitors(dashboard: OrbitDashboard) -> dict[Role, Visitor]:
    """One of each role, logged in."""
    found = {role: dashboard.visitor() for role in Role}
    for role, visitor in found.items():
        assert visitor.log_in(role.word, PASSWORD).status == 200
    return found


def _token(visitor: Visitor) -> str:
    """What the forms of this login carry."""
    return dict(visitor.get("").form("/logout").fields)["csrf"]


def _refused_for_role(page: Shown) -> bool:
    return page.status == 403 and "; this needs " in page.title


@pytest.mark.parametrize("page", LOOKS, ids=lambda page: page.path or "first")
def test_each_page_is_shown_to_those_of_its_role(page: PageRoute, shop: Shop, visitors: dict[Role, Visitor]) -> None:
    path = address(page, shop)
    nobody = Visitor(visitors[Role.ADMIN].base.partition("/c/")[0], "local")
    assert nobody.get(path, follow=False).headers["location"].startswith("/login?next=")
    for role, visitor in visitors.items():
        shown = visitor.get(path)
        assert _refused_for_role(shown) is (role < page.role), f"{role.word}: {shown.status} {shown.title}"
        assert shown.status < 500, shown.title
    if all(page.path != form.path for form in FORMS):
        assert visitors[Role.ADMIN].post(path.partition("?")[0], {}).status == 405


@pytest.mark.parametrize("page", FORMS, ids=lambda page: page.path)
def test_each_form_is_taken_from_those_of_its_role(page: PageRoute, shop: Shop, visitors: dict[Role, Visitor]) -> None:
    path = filled(page, samples(shop))
    nobody = Visitor(visitors[Role.ADMIN].base.partition("/c/")[0], "local")
    assert nobody.post(path, {"csrf": _token(visitors[Role.ADMIN])}, follow=False).status == 401
    for role, visitor in visitors.items():
        answer = visitor.post(path, {"csrf": _token(visitor)}, follow=False)
        assert _refused_for_role(answer) is (role < page.role), f"{role.word}: {answer.status} {answer.title}"
        assert answer.status in ({403} if role < page.role else {303, 400, 404, 409}), answer.title
    if all(page.path != look.path for look in LOOKS):
        assert visitors[Role.ADMIN].get(path).status == 405


@pytest.mark.parametrize("page", FORMS, ids=lambda page: page.path)
def test_a_form_that_is_not_of_a_page_of_the_login_changes_nothing(
    page: PageRoute, shop: Shop, visitors: dict[Role, Visitor], dashboard: OrbitDashboard
) -> None:
    visitor, path = visitors[Role.ADMIN], filled(page, samples(shop))
    own, others = _token(visitor), _token(visitors[Role.OPERATOR])
    recorded = dashboard.audit_path.stat().st_size
    forged: list[tuple[dict[str, str], dict[str, str]]] = [
        ({}, {}),
        ({"csrf": ""}, {}),
        ({"csrf": "made up"}, {}),
        ({"csrf": others}, {}),
        ({}, {"X-CSRF-Token": others}),
        ({"csrf": own}, {"Origin": "http://evil.example"}),
        ({"csrf": own}, {"Origin": f"{dashboard.url}.evil.example"}),
        ({"csrf": own}, {"Origin": "http://["}),
        ({"csrf": own}, {"Sec-Fetch-Site": "cross-site"}),
        ({"csrf": own}, {"Sec-Fetch-Site": "same-site"}),
    ]
    for fields, headers in forged:
        answer = visitor.post(path, fields, headers=headers, follow=False)
        assert (answer.status, answer.title) == (403, "the form is not from a page of your session"), (fields, headers)
    assert visitor.post(path, {"x": "y" * (page.body_bytes_max + 1), "csrf": own}).status == 413
    assert visitor.post(path, {"csrf": own}, headers={"Content-Type": "text/plain"}).status == 415
    assert dashboard.audit_path.stat().st_size == recorded


def test_a_read_only_page_changes_nothing(shop: Shop, accounts: Path) -> None:
    with OrbitDashboard(shop.name_server, "--accounts", accounts, "--sample", 0, "--read-only") as dashboard:
        visitor = dashboard.visitor()
        visitor.log_in("admin", PASSWORD)
        token = _token(visitor)
        assert "read-only" in visitor.get("").words
        recorded = dashboard.audit_path.stat().st_size
        for path in (*(filled(page, samples(shop)) for page in FORMS), "plans/any"):
            answer = visitor.post(path, {"csrf": token}, follow=False)
            assert (answer.status, answer.title) == (403, "this dashboard is read-only"), path
        assert dashboard.audit_path.stat().st_size == recorded


@pytest.mark.parametrize("page", [page for page in LOOKS if parameters(page)], ids=lambda page: page.path)
def test_no_name_in_an_address_is_more_than_a_name(page: PageRoute, shop: Shop, visitors: dict[Role, Visitor]) -> None:
    for hostile in HOSTILE:
        given = {**samples(shop), **dict.fromkeys(parameters(page), hostile.encode("utf-8", "surrogateescape"))}
        shown = visitors[Role.ADMIN].get(filled(page, given), follow=False)  # type: ignore[arg-type]
        assert shown.status < 500, f"{hostile!r}: {shown.status} {shown.title}"
        assert "set-cookie" not in shown.headers
        assert "root:" not in shown.text
        assert NOTE not in shown.text


def test_fields_that_are_too_large_or_unreadable_are_refused(shop: Shop, visitors: dict[Role, Visitor]) -> None:
    visitor = visitors[Role.ADMIN]
    for page in LOOKS:
        path = address(page, shop)
        shown = visitor.get(f"{path}{'&' if '?' in path else '?'}x=%ff")
        assert (shown.status, "cannot be read" in shown.title) == (400, True), path
    for query in ("containing=" + "x" * 5000, "sort=-nothing", "from=--5", "from=-1", "from=" + "9" * 30, "&" * 3000):
        assert visitor.get(f"groups?{query}").status == 400, query
    assert visitor.get("groups?containing=" + "x" * 70_000).status == 400
    nobody = Visitor(visitor.base.partition("/c/")[0], "local")
    for fields in ({"name": "x" * 100}, {"name": "a", "password": "x" * 2000}):
        assert nobody.post("/login", fields).status == 400
    assert nobody.get("/login?next=%ff").status == 400


def test_no_address_makes_a_header(visitors: dict[Role, Visitor], dashboard: OrbitDashboard) -> None:
    injected = "/x\r\nSet-Cookie: a=b\r\n\r\n<html>"
    for path in (f"/login?next={quote(injected)}", f"send?said={quote(injected)}", f"nothing{quote(injected)}"):
        for visitor in (dashboard.visitor(), visitors[Role.ADMIN]):
            shown = visitor.get(path, follow=False)
            assert "a=b" not in shown.headers.get("set-cookie", "")
            assert "\n" not in shown.headers.get("location", "")
    fields = {"name": "admin", "password": PASSWORD, "next": injected}
    assert dashboard.visitor().post("/login", fields, follow=False).headers["location"] == "/"


def test_a_link_puts_no_words_into_the_mouth_of_a_page(visitors: dict[Role, Visitor]) -> None:
    assert "Call 555" not in visitors[Role.ADMIN].get("brokers?said=Call+555").words


@pytest.mark.parametrize(
    "host", ["[", "127.0.0.1:80x", "a@127.0.0.1", "evil.example/", "127.0.0.1:80@evil.example", "é"]
)
def test_hosts_that_are_no_names_are_refused(host: str, dashboard: OrbitDashboard) -> None:
    for path in ("", "/", "/login"):
        assert dashboard.visitor().get(path, headers={"Host": host.encode()}, follow=False).status in (400, 421)  # type: ignore[dict-item]


# ------------------------------------------------------------------------------------- what is chosen by other people


@contextlib.contextmanager
def _hostile_broker(shop: Shop) -> Iterator[None]:
    """Registered under names that are markup for as long as the context is open; nobody answers for it."""
    stopped, ready = threading.Event(), threading.Event()

    async def register() -> None:
        topics = {NOTE: TopicConfig(NOTE, read_queues=1, write_queues=1)}
        body = encode_registration(BrokerRegistration(topic_table=TopicTable(topics)))
        header = RegisterBrokerHeader(NOTE, "127.0.0.1:1", NOTE, "127.0.0.1:2", 0)
        async with remoting() as asking:
            await register_broker(asking, shop.name_server, header, body, timeout_ms=TIMEOUT_S * 1000)
            ready.set()
            await asyncio.to_thread(stopped.wait)

    thread = threading.Thread(target=lambda: asyncio.run(register()))
    thread.start()
    try:
        assert ready.wait(TIMEOUT_S)
        yield
    finally:
        stopped.set()
        thread.join()


def test_what_others_have_chosen_is_never_markup(
    shop: Shop, visitors: dict[Role, Visitor], dashboard: OrbitDashboard
) -> None:
    with _hostile_broker(shop), OrbitDashboard(shop.name_server, "--sample", 0, "--timeout", 2) as fresh:
        seen = _crawled(fresh.visitor(), [address(page, shop) for page in LOOKS])
        log = fresh.home.joinpath("dashboard.err").read_text()
    marked = [url for url, page in seen.items() if escape(NOTE) in page.text or NOTE.encode() in page.body]
    assert len(marked) > len(LOOKS) / 2, "most pages show it"
    for url, page in seen.items():
        assert page.status < 500, f"{url}: {page.status} {page.title}"
        if "html" in page.headers["content-type"]:
            assert "<svg/onload" not in page.text, url
        else:
            assert page.headers["content-disposition"].startswith("attachment"), url
            assert page.headers["x-content-type-options"] == "nosniff"
        assert SECRET not in page.text, url
    for text in (log, dashboard.audit_path.read_text(), dashboard.home.joinpath("dashboard.err").read_text()):
        assert SECRET not in text
        assert PASSWORD not in text


def _crawled(visitor: Visitor, paths: list[str]) -> dict[str, Shown]:
    """These pages and what they lead to, each form of address once: a page of one topic is that of another."""
    left, seen, kinds = [urljoin(visitor.base, path) for path in paths], dict[str, Shown](), set[str]()
    while left and len(seen) < PAGES_MAX:
        url = left.pop(0)
        if url in seen or not url.startswith(visitor.base):
            continue
        seen[url] = page = visitor.get(url)
        for link in page.links:
            target = urljoin(url, link).partition("#")[0]
            kind = re.sub(r"[^/?&=]{12,}|\d+", "*", target)
            if kind not in kinds:
                kinds.add(kind)
                left.append(target)
    return seen


class _Trap:
    """Counts who connects to it."""

    def __init__(self) -> None:
        self.listening = socket.create_server(("127.0.0.1", 0))
        self.listening.settimeout(0)
        self.address = f"127.0.0.1:{self.listening.getsockname()[1]}"

    @property
    def has_caught(self) -> bool:
        try:
            self.listening.accept()[0].close()
        except BlockingIOError:
            return False
        return True


FIELDS = (
    "q", "id", "like", "broker", "address", "client", "group", "producers", "server", "source", "topic", "containing",
    "to", "node", "where", "name", "mark", "key", "target",
)  # fmt: skip


def test_no_address_in_a_request_is_connected_to(shop: Shop, visitors: dict[Role, Visitor]) -> None:
    visitor, trap = visitors[Role.ADMIN], _Trap()
    host, _, port = trap.address.partition(":")
    stored = offset_message_id(encode_host(host, int(port)), 0)
    token = _token(visitor)
    for given in (trap.address, stored):
        fields = dict.fromkeys(FIELDS, given)
        for page in LOOKS:
            for path in {filled(page, dict.fromkeys(samples(shop), given)), filled(page, samples(shop))}:
                assert visitor.get(f"{path}?{urlencode(fields)}", follow=False).status < 500, path
                if page.path in ("find", "trace"):
                    assert visitor.get(f"{path}?{urlencode({'q': given})}").status < 500
            assert not trap.has_caught, page.path
        for form in FORMS:
            for path in {filled(form, dict.fromkeys(samples(shop), given)), filled(form, samples(shop))}:
                assert visitor.post(path, {**fields, "how": "retry", "csrf": token}, follow=False).status < 500, path
            assert not trap.has_caught, form.path
    trap.listening.close()


# ------------------------------------------------------------------------------------------------- those who are slow


def test_many_who_send_nothing_keep_nobody_out(dashboard: OrbitDashboard, visitors: dict[Role, Visitor]) -> None:
    with contextlib.ExitStack() as open_ones:
        for number in range(CONNECTIONS_MAX + 60):
            one = open_ones.enter_context(socket.create_connection(("127.0.0.1", dashboard.port), timeout=TIMEOUT_S))
            if number % 2:
                one.sendall(b"POST /login HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nname=")
        assert visitors[Role.VIEWER].get("brokers").status == 200


@contextlib.asynccontextmanager
async def _served(body: bytes) -> AsyncIterator[tuple[int, Collection[object]]]:
    """An application behind `BoundedConnection`: its port and its connections."""

    async def app(_scope: object, receive: Any, send: Any) -> None:
        await receive()
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": body, "more_body": True})
        await send({"type": "http.response.body", "body": body})

    server = uvicorn.Server(uvicorn.Config(app, lifespan="off", log_config=None, http=BoundedConnection, ws="none"))
    listening = socket.create_server(("127.0.0.1", 0))
    with contextlib.closing(listening):
        task = asyncio.create_task(server._serve([listening]))
        yield listening.getsockname()[1], server.server_state.connections
        server.should_exit = server.force_exit = True
        await task


async def _until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(TIMEOUT_S):
        while not condition():  # noqa: ASYNC110 -- uvicorn tells nobody
            await asyncio.sleep(0.01)


ASKED = b"GET / HTTP/1.1\r\nHost: x\r\n\r\n"


@pytest.mark.parametrize(
    "beginning", [b"", b"GET / HTT", b"POST / HTTP/1.1\r\nHost: x\r\nContent-Length: 10\r\n\r\n123", ASKED + b"GET /"]
)
async def test_a_request_that_does_not_end_ends_the_connection(
    beginning: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(connection_limits, "REQUEST_SECONDS", 0.2)
    async with _served(b"well") as (port, _), asyncio.timeout(TIMEOUT_S):
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        writer.write(beginning)
        with contextlib.suppress(ConnectionResetError):
            await reader.read()
        writer.close()


async def test_an_answer_that_nobody_reads_ends_the_connection(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_limits, "READ_SECONDS", 0.2)
    async with _served(bytes(64 << 20)) as (port, connections):  # more than the buffers of both ends
        with socket.create_connection(("127.0.0.1", port)) as deaf:
            deaf.sendall(ASKED)
            await _until(lambda: bool(connections))
            await _until(lambda: not connections)
