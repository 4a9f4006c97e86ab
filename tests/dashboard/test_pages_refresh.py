"""A page that refreshes itself, in Chromium: what it says while that fails. No server is behind it."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Awaitable
from datetime import UTC, datetime
from importlib.resources import files
from urllib.parse import urlsplit

from playwright.sync_api import Route, expect

from orbitmq.admin.cluster_view import ClusterView
from orbitmq.admin.group_verdicts import GroupVerdicts
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster, Moment
from orbitmq.net.remoting import Remoting
from tests.support.browsers import chromium
from tests.support.dashboards import PLACE, seen

URL = f"http://dashboard.test/c/{PLACE}/"
BEGIN = datetime(2026, 5, 1, 8, tzinfo=UTC)
EVERY_MS = 11_000  # the button says ten seconds
SINCE = re.compile(r"^Refreshing has failed since 2026-05-01 08:0\d:\d\d: this page is out of date\.$")


async def _overview() -> bytes:
    place = DashboardCluster(PLACE, ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=0)
    await place.cached("moment", _nothing)
    await place.cached("verdicts", _no_groups)
    return (await seen(Dashboard(DashboardSettings([place])), "")).body


def _nothing(_: Session) -> Awaitable[Moment]:
    async def answer() -> Moment:
        return Moment(Result([ClusterView([], [], [], 0)]), {})

    return answer()


async def _no_groups(_: Session) -> GroupVerdicts:
    return GroupVerdicts()


class _Server:
    """Answers with the page; `fails` is how it does not."""

    def __init__(self, page: bytes) -> None:
        self.fails = ""
        self.pages = 0
        self._page = page

    def __call__(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path.startswith("/static/"):
            route.fulfill(body=(files("orbitmq.dashboard") / path.lstrip("/")).read_bytes(), content_type=_kind(path))
        elif path.endswith("/topics"):
            route.fulfill(body="topics", content_type="text/plain")
        elif self.fails == "away":
            route.abort()
        else:
            self.pages += 1
            route.fulfill(body=self._page, status=503 if self.fails else 200, content_type="text/html")


def _kind(path: str) -> str:
    return {"js": "text/javascript", "css": "text/css"}.get(path.rpartition(".")[2], "image/svg+xml")


def test_a_refresh_that_fails_is_told_until_one_succeeds() -> None:
    server = _Server(asyncio.run(_overview()))
    with chromium() as browser:
        page = browser.new_context(timezone_id="UTC").new_page()
        page.clock.install(time=BEGIN)
        page.route("**/*", server)
        page.goto(URL)
        line = page.locator("#content").get_by_role("alert")
        expect(page.get_by_role("button", name="live, every 10 s")).to_have_attribute("aria-pressed", "true")
        for failure in ("away", "error"):
            server.fails = failure
            page.clock.run_for(EVERY_MS)
            expect(line).to_have_text(SINCE)
            since = line.inner_text()
            page.clock.run_for(2 * EVERY_MS)
            expect(line).to_have_text(since)
            expect(page.get_by_role("heading", name="Overview")).to_be_visible()
            server.fails = ""
            page.clock.run_for(EVERY_MS)
            expect(line).to_have_count(0)


def test_a_page_is_live_until_it_is_paused_and_waits_while_somebody_types() -> None:
    server = _Server(asyncio.run(_overview()))
    with chromium() as browser:
        page = browser.new_context(timezone_id="UTC").new_page()
        page.clock.install(time=BEGIN)
        page.route("**/*", server)
        page.goto(URL)
        live = page.locator("[data-live]")
        for act, is_live in (
            (lambda: None, True),
            (live.click, False),
            (page.reload, False),  # which this tab remembers
            (lambda: page.keyboard.press("p"), True),
        ):
            act()
            expect(live).to_have_attribute("aria-pressed", str(is_live).lower())
            server.pages = 0
            if is_live:
                with page.expect_response(lambda response: response.request.headers.get("hx-request") == "true"):
                    page.clock.run_for(EVERY_MS)
            else:
                page.clock.run_for(EVERY_MS)
                assert page.evaluate("document.readyState") == "complete"
                assert server.pages == 0
        page.evaluate("document.querySelector('#content').insertAdjacentHTML('beforeend', '<input id=typed>')")
        page.locator("#typed").fill("half a sen")
        server.pages = 0
        page.clock.run_for(2 * EVERY_MS)
        assert server.pages == 0
        expect(page.locator("#typed")).to_have_value("half a sen")


def test_new_content_keeps_what_was_open_and_where_the_focus_was() -> None:
    body = b"<details><summary>More</summary><a href='/x'>x</a></details></main>"
    server = _Server(asyncio.run(_overview()).replace(b"</main>", body))
    with chromium() as browser:
        page = browser.new_context(timezone_id="UTC").new_page()
        page.clock.install(time=BEGIN)
        page.route("**/*", server)
        page.goto(URL)
        page.get_by_text("More").click()
        page.get_by_role("link", name="x", exact=True).focus()
        with page.expect_response(lambda response: response.request.headers.get("hx-request") == "true"):
            page.clock.run_for(EVERY_MS)
        expect(page.get_by_role("link", name="x", exact=True)).to_be_focused()


def test_keys_lead_to_the_search_the_rows_and_their_list() -> None:
    rows = b"<div class=wide><table><tbody><tr><th><a href='/1'>one</a></th></tr><tr><th><a href='/2'>two</a></th></tr>"
    server = _Server(asyncio.run(_overview()).replace(b"</main>", rows + b"</tbody></table></div></main>"))
    with chromium() as browser:
        page = browser.new_context(timezone_id="UTC").new_page()
        page.route("**/*", server)
        page.goto(URL)
        page.keyboard.press("/")
        expect(page.locator("#find")).to_be_focused()
        page.keyboard.type("j?")
        expect(page.locator("#find")).to_have_value("j?")
        page.keyboard.press("Escape")
        for key, name in (("j", "one"), ("j", "two"), ("j", "two"), ("k", "one")):
            page.keyboard.press(key)
            expect(page.get_by_role("link", name=name, exact=True)).to_be_focused()
        page.keyboard.press("?")
        expect(page.get_by_role("dialog")).to_be_visible()
        page.keyboard.press("Escape")
        expect(page.get_by_role("dialog")).to_have_count(0)
        page.keyboard.press("g")
        page.keyboard.press("t")
        page.wait_for_url("**/topics")


def test_a_table_that_does_not_fit_is_a_list_of_cards() -> None:
    cells = b"".join(b"<td>value-%d-of-a-table</td>" % number for number in range(8))
    heads = b"".join(b"<th>Column %d</th>" % number for number in range(9))
    table = b"<div class=wide><table><thead><tr>%s</tr></thead><tbody><tr><th>row</th>%s</tr></tbody></table></div>"
    server = _Server(asyncio.run(_overview()).replace(b"</main>", table % (heads, cells) + b"</main>"))
    with chromium() as browser:
        page = browser.new_context(viewport={"width": 1920, "height": 900}).new_page()
        page.route("**/*", server)
        page.goto(URL)
        place = page.locator(".wide").last
        expect(place).not_to_have_class("wide cards-of-rows")
        page.set_viewport_size({"width": 390, "height": 844})
        expect(place).to_have_class("wide cards-of-rows")
        cell = page.get_by_role("cell", name="value-7-of-a-table")
        expect(cell).to_have_attribute("data-label", "Column 8")
        box = cell.bounding_box()
        assert box is not None
        assert box["x"] + box["width"] <= 390
        page.set_viewport_size({"width": 1920, "height": 900})
        expect(place).not_to_have_class("wide cards-of-rows")
