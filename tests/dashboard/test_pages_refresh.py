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
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.net.remoting import Remoting
from tests.support.browsers import chromium
from tests.support.dashboards import PLACE, seen

URL = f"http://dashboard.test/c/{PLACE}/"
BEGIN = datetime(2026, 5, 1, 8, tzinfo=UTC)
EVERY_MS = 11_000  # the box says ten seconds
SINCE = re.compile(r"^Refreshing has failed since 2026-05-01 08:0\d:\d\d: this page is out of date\.$")


async def _overview() -> bytes:
    place = DashboardCluster(PLACE, ClusterAccess(["127.0.0.1:1"], Remoting), sample_seconds=0)
    await place.cached("moment", _nothing)
    await place.cached("verdicts", _no_groups)
    return (await seen(Dashboard(DashboardSettings([place])), "")).body


def _nothing(_: Session) -> Awaitable[Result[ClusterView]]:
    async def answer() -> Result[ClusterView]:
        return Result([ClusterView([], [], [], 0)])

    return answer()


async def _no_groups(_: Session) -> GroupVerdicts:
    return GroupVerdicts()


class _Server:
    """Answers with the page; `fails` is how it does not."""

    def __init__(self, page: bytes) -> None:
        self.fails = ""
        self._page = page

    def __call__(self, route: Route) -> None:
        path = urlsplit(route.request.url).path
        if path.startswith("/static/"):
            route.fulfill(body=(files("orbitmq.dashboard") / path.lstrip("/")).read_bytes(), content_type=_kind(path))
        elif self.fails == "away":
            route.abort()
        else:
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
        page.get_by_label("refresh every 10 s").check()
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
