"""The addresses of every page of the dashboard, with names of a shop filled in, for tests that go over all of them.

A page with a parameter that stands in no sample fails the test that asks for its address.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from importlib import import_module
from urllib.parse import quote, urlencode

from orbitmq.dashboard import pages
from orbitmq.dashboard.routes import PAGES, PageRoute
from orbitmq.message.timers import RecallHandle
from tests.support import shop as shops
from tests.support.shop import Shop

for _name in pages.MODULES:
    import_module(f"{pages.__name__}.{_name}")

LOOKS = [page for page in PAGES if not page.writes]
FORMS = [page for page in PAGES if page.writes]
_PARAMETER = re.compile(r"\{(\w+)(?::path)?\}")


def parameters(page: PageRoute) -> list[str]:
    return _PARAMETER.findall(page.path)


def filled(page: PageRoute, samples: Mapping[str, str]) -> str:
    """Its address below the place; KeyError for a parameter nobody has thought of."""
    return _PARAMETER.sub(lambda found: quote(samples[found[1]], safe=""), page.path)


def samples(shop: Shop) -> dict[str, str]:
    """What the parameters of pages are called in the shop."""
    return {
        "broker": f"127.0.0.1:{shop.brokers['broker-a'].port}",
        "topic": shops.ORDERS,
        "group": shops.MAILER,
        "id": shop.places[0],
        "client": shop.client_id,
        "handle": RecallHandle(shops.ORDERS, "broker-a", 1, "0" * 32).encode(),
    }


def queries(shop: Shop) -> dict[str, dict[str, str]]:
    """What pages cannot do without, by their paths, and what keeps the longest ones short."""
    return {
        "brokers/{broker}": {"containing": "flush"},
        "brokers/{broker}/settings": {"containing": "file"},
        "find": {"q": shop.sent[0]},
        "trace": {"q": shop.sent[0]},
        "messages": {"topic": shops.ORDERS},
        "messages/export": {"topic": shops.ORDERS},
        "tail": {"topic": shops.ORDERS},
        "stacks/{client:path}": {"group": shops.BILLING},
    }


def address(page: PageRoute, shop: Shop) -> str:
    """Where it shows something of the shop."""
    query = urlencode(queries(shop).get(page.path, {}))
    return filled(page, samples(shop)) + (f"?{query}" if query else "")
