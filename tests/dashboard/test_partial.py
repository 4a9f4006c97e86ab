"""What figures cost, and what becomes of them when a broker of two is killed: they are partial and say so by its name,
none of them is smaller than it was, and no row is gone that the other broker has.
"""

from __future__ import annotations

import asyncio
import re
from collections import Counter
from collections.abc import Iterator
from html import unescape

import pytest

from orbitmq.admin.dead_letters import listed
from orbitmq.admin.offsets import show
from orbitmq.admin.rosters import roster
from orbitmq.admin.session import Session
from orbitmq.dashboard.app import Dashboard, DashboardSettings
from orbitmq.dashboard.clusters import ClusterAccess, DashboardCluster
from orbitmq.errors import NotFound
from orbitmq.net.remoting import Remoting
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.commands import orbitmq
from tests.support.dashboards import OrbitDashboard, Page, seen
from tests.support.process import wait_until
from tests.support.sessions import asked
from tests.support.shop import ARCHIVE, BROKERS, MAILED, MAILER, MAILS, ORDERS, Shop
from tests.support.surface import LOOKS, address, parameters

PATIENCE_S = 60
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
OF_ONE = (
    f"topics/{ORDERS}", f"groups/{ARCHIVE}", f"groups/{ARCHIVE}/offsets", f"groups/{MAILER}", f"groups/{MAILER}/why",
    f"dead-letters/{MAILER}",
)  # fmt: skip
"""Pages of one topic or group."""
MOVING = re.compile(
    r"/s\b|today|yesterday|trend|uptime|in time|replica lag|newest|start|pull|free|disk|^age$", re.IGNORECASE
)
"""Headings of rates and spans, which are smaller by themselves."""
UNITS = re.compile(r"\d (?:[KMGTP]iB|B|ms|s|min|h|d)\b")
NAMES = ("Topic", "Broker", "Queue", "Level", "Group", "Client", "Message", "Kind", "Name")
"""Headings that tell the rows of a table apart, besides the first."""
AT_ONE_BROKER = {
    "Dead letters": "each is stored at one broker, and the row does not tell which",
    "Groups with dead letters": "all of a group may be at one broker",
}
"""Tables whose rows may go with a broker that they do not name."""
COUNTED = ("", "brokers", "topics", "groups", "clients", "dead-letters")
WITH_ROSTER = ("groups", "clients")
"""Of those: where each broker is asked about each group, beside the page where that takes long."""
FURTHER = 6


@pytest.fixture(scope="module")
def shop() -> Iterator[Shop]:
    with Shop() as running:
        wait_until(lambda: asked(running.name_server, _is_settled), PATIENCE_S, "what is consumed to be written down")
        yield running


async def _is_settled(session: Session) -> bool:
    """Whether all mails are dead letters, and the group has told brokers so: nothing more comes by itself."""
    try:
        stored = await show(session, MAILER, MAILS)
    except NotFound:
        return False
    given_up = sum(one.messages or 0 for one in (await listed(session)).items)
    # A mail that was sent back twice, as to a broker that was held up, is two dead letters.
    return given_up >= MAILED == sum(one.consumer_offset for one in stored.items)


class _Counting(Remoting):
    """Remembers which requests were sent."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[int] = Counter()

    async def call(self, address: str, command: Command, timeout_ms: float) -> Command:
        self.asked[command.code] += 1
        return await super().call(address, command, timeout_ms)


async def _costs(name_server: str) -> dict[str, int]:
    """How many requests each of the pages takes when nothing is kept yet. Those about each group are as many as there
    are groups, and brokers have one more after their first look for undecided transactions.
    """
    found: dict[str, int] = {}
    for path in COUNTED:
        counting = _Counting()
        place = DashboardCluster(
            "local", ClusterAccess([name_server], lambda counting=counting: counting), sample_seconds=0
        )
        assert (await seen(Dashboard(DashboardSettings([place])), path)).status == 200
        if path in WITH_ROSTER:
            groups = (await place.cached("roster", roster, fresh_seconds=PATIENCE_S)).value.groups
            assert counting.asked.pop(RequestCode.GET_CONSUMER_CONNECTION_LIST) == len(groups) * len(BROKERS)
        if not path:  # it does not wait for the verdicts
            await place.verdicts(PATIENCE_S)
        await place.stop()
        found[path] = counting.asked.total()
    return found


def test_a_page_asks_as_much_of_many_topics_as_of_few(shop: Shop) -> None:
    before = asyncio.run(_costs(shop.name_server))
    for number in range(FURTHER):
        shop.producer.create_topic(f"Further{number}", queues=1)
    wait_until(lambda: "Further5" in orbitmq("topic", "list", "-n", shop.name_server).stdout, PATIENCE_S, "the topics")
    assert asyncio.run(_costs(shop.name_server)) == before
    assert max(before.values()) < 100, before


def test_what_a_broker_that_is_killed_has_is_missing_by_its_name(shop: Shop) -> None:
    gone = shop.brokers[BROKERS[1]]
    paths = [address(page, shop) for page in LOOKS if not parameters(page) and page.path not in WITHOUT_BROKERS]
    with OrbitDashboard(shop.name_server, "--sample", 0, "--timeout", 3) as dashboard:
        visitor = dashboard.visitor()
        whole = {path: visitor.get(path) for path in (*paths, *OF_ONE)}
        assert [path for path, page in whole.items() if "Partial:" in page.words] == []
        gone.kill()
        for path, before in whole.items():
            after = wait_until(lambda path=path: _partial(visitor.get(path)), PATIENCE_S, f"{path} tells")
            _compare(before, after)
        assert _partial(visitor.get("dead-letters/nobody")), "whether it has any is not known"


def _partial(page: Page) -> Page | None:
    assert page.status == 200, f"{page.url}: {page.status} {page.title}"
    told = page.words.partition("Partial: data of these nodes is missing below.")[2]
    return page if BROKERS[1] in told[:300] else None


def _compare(before: Page, after: Page) -> None:
    """What the broker that is left has stands there as it did; a dash, or a mark of at least, is no figure."""
    figures, now = _figures(before), _figures(after)
    assert figures.keys() <= now.keys(), f"{after.url} has lost {figures.keys() - now.keys()}"
    for name, text in figures.items():
        _not_less(f"{after.url}: {name}", name, text, now[name])
    for caption in _captions(before):
        assert caption in _captions(after), f"{after.url} has lost the table {caption}"
        _compare_rows(f"{after.url}, {caption}", caption, before.table(caption), after.table(caption))


def _compare_rows(where: str, caption: str, before: list[dict[str, str]], after: list[dict[str, str]]) -> None:
    later = {_name(row): row for row in after}
    for row in before:
        if len(row) == 1:  # a table says that it is empty
            continue
        now = later.get(_name(row))
        if now is None:
            is_gone = caption in AT_ONE_BROKER or any(BROKERS[1] in text for text in row.values())
            assert is_gone, f"{where} has lost {row}"
            continue
        for heading, text in row.items():
            assert heading in now or BROKERS[1] in heading, f"{where} has lost {heading}"
            _not_less(f"{where}: {heading} of {_name(row)}", heading, text, now.get(heading, "–"))


def _name(row: dict[str, str]) -> tuple[str, ...]:
    return next(iter(row.values())), *(row.get(heading, "") for heading in NAMES)


def _not_less(what: str, heading: str, was: str, now: str) -> None:
    if MOVING.search(heading) or "≥" in now or "–" in now:
        return
    first, later = _numbers(was), _numbers(now)
    assert len(first) == len(later), f"{what} was {was} and is {now}"
    assert all(one <= other for one, other in zip(first, later, strict=True)), f"{what} was {was} and is {now}"


def _captions(page: Page) -> list[str]:
    return re.findall(r"<caption>([^<]+)</caption>", page.text)


def _figures(page: Page) -> dict[str, str]:
    """Names and values of the lists of figures."""
    found = {}
    for told in re.findall(r'<dl class="metrics">(.*?)</dl>', page.text, re.DOTALL):
        for name, value in re.findall(r"<dt[^>]*>(.*?)</dt>\s*<dd[^>]*>(.*?)</dd>", told, re.DOTALL):
            found[name] = " ".join(unescape(re.sub(r"<[^>]+>", " ", value)).split())
    return found


def _numbers(text: str) -> list[int]:
    """Whole numbers that are no parts of names, times, sizes or spans."""
    if UNITS.search(text):
        return []
    return [int(found.replace(",", "")) for found in re.findall(r"(?<![\w.:/@-])\d[\d,]*(?![\w.:/@-])", text)]
