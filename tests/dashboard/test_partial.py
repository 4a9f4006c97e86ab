"""What figures cost, and what becomes of them when a broker of two is killed: they are partial and say so by its name,
and none of them is smaller than it was.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator

import pytest

from orbitmq.dashboard.app import Dashboard, Settings
from orbitmq.dashboard.places import Place, Reach
from orbitmq.net.remoting import Remoting
from orbitmq.wire.command import Command
from tests.support.commands import orbitmq
from tests.support.dashboards import OrbitDashboard, Page
from tests.support.process import wait_until
from tests.support.shop import BROKERS, Shop
from tests.support.surface import LOOKS, address, parameters

PATIENCE_S = 60
LISTS = [page for page in LOOKS if not parameters(page)]
WITHOUT_BROKERS = {
    "audit": "what was changed through the page",
    "account": "an account that is to be made",
    "send": "a message that is to be written",
    "new-topic": "a topic that is to be made",
    "new-group": "a group that is to be made",
    "tail/rows": "a part of another page",
    "messages/export": "a file",
    "config/export": "a file",
    "nameservers": "what name servers have",
    "find": "a message that another broker has may be found whole",
    "trace": "a message whose trace another broker has may be found whole",
}
"""Pages that need not be partial, and what they show instead of figures of brokers."""
MOVING = re.compile("second|today|yesterday|handed|lately|up$|started|behind|waits|began|pull|free|disk", re.IGNORECASE)
"""Headings of rates and spans, which are smaller by themselves."""
COUNTED = ("", "brokers", "topics", "groups", "clients", "dead-letters")
FURTHER = 6


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop() as running:
        yield running


class _Counting(Remoting):
    """Remembers which requests were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[int] = Counter()

    async def call(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked[command.code] += 1
        return await super().call(address, command, timeout_ms)


async def _costs(name_server: str) -> dict[str, int]:
    """How many requests each of the pages takes when nothing is kept yet."""
    found: dict[str, int] = {}
    for path in COUNTED:
        counting = _Counting()
        place = Place("local", Reach([name_server], lambda counting=counting: counting), sample_seconds=0)
        assert await _status(Dashboard(Settings([place])), f"/c/local/{path}") == 200
        await place.stop()
        found[path] = counting.asked.total()
    return found


async def _status(dashboard: Dashboard, path: str) -> int:
    told: list[int] = []

    async def receive() -> dict[str, object]:
        return {"type": "http.request", "body": b"", "more_body": False}

    async def send(message: dict[str, object]) -> None:
        if message["type"] == "http.response.start":
            told.append(int(str(message["status"])))

    scope = {
        "type": "http", "http_version": "1.1", "method": "GET", "scheme": "http", "path": path, "query_string": b"",
        "root_path": "", "headers": [(b"host", b"localhost")], "client": ("127.0.0.1", 1), "server": ("127.0.0.1", 80),
    }  # fmt: skip
    await dashboard.asgi(scope, receive, send)  # type: ignore[arg-type]
    return told[0]


def test_a_page_asks_as_much_of_many_topics_as_of_few(shop: Shop) -> None:
    before = asyncio.run(_costs(shop.name_server))
    for number in range(FURTHER):
        shop.producer.create_topic(f"Further{number}", queues=1)
    wait_until(lambda: "Further5" in orbitmq("topic", "list", "-n", shop.name_server).stdout, PATIENCE_S, "the topics")
    assert asyncio.run(_costs(shop.name_server)) == before
    assert max(before.values()) < 100, before


def test_what_a_broker_that_is_killed_has_is_missing_by_its_name(shop: Shop) -> None:
    gone = shop.brokers[BROKERS[1]]
    with OrbitDashboard(shop.name_server, "--sample", 0, "--timeout", 3) as dashboard:
        visitor = dashboard.visitor()
        whole = {page.path: visitor.get(address(page, shop)) for page in LISTS}
        assert [path for path, page in whole.items() if "Partial:" in page.words] == []
        gone.kill()
        for page in LISTS:
            if page.path in WITHOUT_BROKERS:
                continue
            wait_until(
                lambda page=page: _is_partial(visitor.get(address(page, shop))), PATIENCE_S, f"{page.path} tells"
            )
            _compare(whole[page.path], visitor.get(address(page, shop)))
        assert _is_partial(visitor.get("dead-letters/nobody")), "whether it has any is not known"


def _is_partial(page: Page) -> bool:
    assert page.status == 200, f"{page.url}: {page.status} {page.title}"
    told = page.words.partition("Partial: what these have is missing below.")[2]
    return BROKERS[1] in told[:300]


def _compare(before: Page, after: Page) -> None:
    """Figures of what both have; a dash, or a figure with a mark of at least, is no figure."""
    for caption, first, later in _tables(before, after):
        rows = {next(iter(row.values())): row for row in later}
        for row in first:
            now = rows.get(next(iter(row.values())), {})
            for heading, text in row.items():
                was, shown = _number(text), _number(now.get(heading, ""))
                if was is not None and shown is not None and not MOVING.search(heading):
                    assert shown >= was, f"{after.url}, {caption}: {heading} of {next(iter(row.values()))} was {was}"


def _tables(before: Page, after: Page) -> Iterator[tuple[str, list[dict[str, str]], list[dict[str, str]]]]:
    for caption in re.findall(r"<caption>([^<]+)</caption>", before.text):
        if f"<caption>{caption}</caption>" in after.text:
            yield caption, before.table(caption), after.table(caption)


def _number(text: str) -> int | None:
    plain = text.replace(",", "")
    return int(plain) if plain.isdecimal() else None
