"""Response times of the dashboard with a live broker of 5,000 topics and 3,000 groups, half of which have a lag.

    .venv/bin/python bench/dashboard.py

Each page is requested once with empty caches (`first`), until it has all of its content (`whole`: it updates itself),
and then several times, of which `kept` is the median.
"""

from __future__ import annotations

import json
import statistics
import sys
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from orbitmq.client.sync import Producer  # noqa: E402
from orbitmq.message.config import SubscriptionGroup, TopicConfig  # noqa: E402
from orbitmq.message.model import Message  # noqa: E402
from orbitmq.wire.bodies import SubscriptionGroupTable, TopicTable  # noqa: E402
from orbitmq.wire.objects import encode_standard  # noqa: E402
from tests.support.dashboards import OrbitDashboard, Visitor  # noqa: E402
from tests.support.orbit_process import OrbitBroker, OrbitNameServer  # noqa: E402

TOPICS, GROUPS, REPEATS = 5000, 3000, 5
PAGES = (
    "",
    "topics",
    "topics?sort=-lag",
    "groups",
    "groups?sort=-lag",
    "clients",
    "brokers",
    "dead-letters",
    "groups/group-1",
)


def _prepare(directory: Path) -> None:
    """What the broker would have saved: each group has read the first message of a topic that has one or two."""
    directory.mkdir(parents=True)
    topics = {name: TopicConfig(name, 1, 1) for name in (f"topic-{number}" for number in range(TOPICS))}
    groups = {name: SubscriptionGroup(name) for name in (f"group-{number}" for number in range(GROUPS))}
    offsets = {f"topic-{number}@group-{number}": {"0": 1} for number in range(GROUPS)}
    (directory / "topics.json").write_bytes(encode_standard(TopicTable(topics=topics)))
    (directory / "subscriptionGroup.json").write_bytes(encode_standard(SubscriptionGroupTable(groups=groups)))
    (directory / "consumerOffset.json").write_text(json.dumps({"offsetTable": offsets}), encoding="utf-8")


def _seconds(visitor: Visitor, path: str, *, waits: bool = False) -> float:
    began = time.perf_counter()
    page = visitor.get(path, waits=waits)
    assert page.status == 200, f"{path}: {page.status} {page.title}"
    return time.perf_counter() - began


def main() -> None:
    with OrbitNameServer() as names:
        broker = OrbitBroker(names.address, mappedFileSizeConsumeQueue=20 * 300)
        _prepare(broker.store_dir / "config")
        with broker, Producer("bench", names.address) as producer:
            for number in range(GROUPS):
                for _ in range(1 + number % 2):
                    producer.send_oneway(Message(f"topic-{number}", b"x"))
            with OrbitDashboard(names.address) as dashboard:
                visitor = dashboard.visitor()
                print(f"{'page':<20}{'first':>8}{'whole':>8}{'kept':>8}")
                for path in PAGES:
                    first = _seconds(visitor, path)
                    whole = first + _seconds(visitor, path, waits=True)
                    kept = statistics.median(_seconds(visitor, path) for _ in range(REPEATS))
                    print(f"{path or 'overview':<20}{first:>7.2f}s{whole:>7.2f}s{kept:>7.2f}s", flush=True)


if __name__ == "__main__":
    main()
