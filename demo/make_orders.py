"""Writes orders.jsonl.gz: the events of a shop's orders over one day, made up but always the same.

    python demo/make_orders.py

Each order runs through a life (created, paid, packed, shipped, delivered; some are cancelled, some refunded), and the
events of all orders stand in the order of their time. Knows nothing of orbitmq.
"""

from __future__ import annotations

import gzip
import json
import random
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

ORDERS = 3_000
OPENING = datetime(2026, 3, 14, 6, 0, tzinfo=UTC)
DAY_S = 16 * 3600
FILE = Path(__file__).with_name("orders.jsonl.gz")

CITIES = {
    "Berlin": 14, "Chengdu": 22, "Hangzhou": 30, "Köln": 6, "Kraków": 7, "Lisboa": 6, "Lyon": 8, "Milano": 9,
    "Porto": 4, "Shenzhen": 28, "Warszawa": 9, "Zürich": 5, "北京": 26, "上海": 31,
}  # fmt: skip
PRODUCTS = {
    "coffee-beans-1kg": 1890, "desk-lamp": 4450, "espresso-cup-set": 3200, "headphones": 12900, "keyboard": 9900,
    "notebook-a5": 750, "office-chair": 24900, "rain-jacket": 8990, "running-shoes": 11990, "tea-oolong-250g": 1640,
    "trail-backpack": 7450, "water-bottle": 1990,
}  # fmt: skip

# What follows an event: next event -> chance in percent, least and most seconds until it. Chances that do not add up
# to 100 leave the order where it is: still open at the end of the day.
NEXT = {
    "OrderCreated": {"OrderPaid": (88, 5, 900), "OrderCancelled": (8, 60, 3600)},
    "OrderPaid": {"OrderPacked": (93, 600, 9000), "OrderRefunded": (4, 300, 7200)},
    "OrderPacked": {"OrderShipped": (97, 300, 5400)},
    "OrderShipped": {"OrderDelivered": (71, 3600, 21600)},
    "OrderDelivered": {"OrderRefunded": (3, 1800, 10800)},
}


def life(chance: random.Random) -> Iterator[tuple[float, str]]:
    """The events of one order: seconds since opening, and name."""
    second, event = DAY_S * chance.betavariate(2.2, 2.6), "OrderCreated"
    while event:
        yield second, event
        ways = NEXT.get(event, {})
        percents = [percent for percent, _, _ in ways.values()]
        event = chance.choices([*ways, ""], [*percents, 100 - sum(percents)])[0]
        if event:
            second += chance.uniform(*ways[event][1:])


def order(number: int, chance: random.Random) -> Iterator[dict[str, Any]]:
    basket = {name: chance.choice((1, 1, 1, 2, 2, 3)) for name in chance.sample(sorted(PRODUCTS), chance.randint(1, 4))}
    facts = {
        "order_id": f"O-2026-{number:06d}",
        "customer_id": f"C-{chance.randrange(900) + 100:05d}",
        "city": chance.choices(list(CITIES), list(CITIES.values()))[0],
        "amount_cents": sum(PRODUCTS[name] * count for name, count in basket.items()),
        "items": [{"product": name, "count": count} for name, count in basket.items()],
    }
    for second, event in life(chance):
        time = OPENING + timedelta(seconds=second)
        yield {"event": event, "time": time.isoformat(timespec="milliseconds"), **facts}


def events() -> list[dict[str, Any]]:
    chance = random.Random(20260314)
    everything = [event for number in range(1, ORDERS + 1) for event in order(number, chance)]
    everything.sort(key=lambda event: (event["time"], event["order_id"]))
    return [{"event_id": number, **event} for number, event in enumerate(everything, 1)]


def main() -> None:
    lines = "".join(json.dumps(event, ensure_ascii=False) + "\n" for event in events())
    FILE.write_bytes(gzip.compress(lines.encode(), mtime=0))


if __name__ == "__main__":
    main()
