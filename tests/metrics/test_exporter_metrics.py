"""Figures are read turn by turn, while surveys go on."""

from __future__ import annotations

from typing import Any

from orbitmq.admin.session import Node
from orbitmq.message.config import TopicConfig
from orbitmq.metrics.exporter_metrics import ExporterMetrics, View
from orbitmq.metrics.poller import Aged, BrokerPoller
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import QueueRange


def _put(poller: BrokerPoller, *groups: str) -> None:
    """What a round finds: every group is 3 of 5 messages far."""
    told: dict[tuple[str, ...], Any] = {
        ("topics",): {"orders": TopicConfig("orders", 1, 1)},
        ("groups",): set(groups),
        ("offsets",): {("orders", group): {0: 3} for group in groups},
        ("ranges", "orders"): {0: QueueRange(0, 5, 0)},
    }
    poller.results.update({key: Aged(value, 1.0) for key, value in told.items()})


async def test_a_group_that_comes_while_figures_are_read_takes_none_off_the_page() -> None:
    poller = BrokerPoller(Node("cluster", "a", 0, "10.0.0.1:10911"), Remoting(), lambda _: None)
    _put(poller, "readers")
    view = View([poller], 1.0, 0.0)
    metrics = ExporterMetrics(lambda: view, lambda: None, lambda: None, queue_series=10, steady_labels=False)
    readers = metrics.readers()
    _put(poller, "readers", "late")
    found = [sample for sample in readers["rocketmq_group_diff"]() if sample is not None]
    assert [(labels[0], value) for labels, value in found] == [("readers", 2)]


async def test_timer_messages_are_those_of_masters() -> None:
    """RocketMQ 5 reports them under the same keys, 4.9 does not."""
    pollers = [BrokerPoller(Node("c", "a", number, "10.0.0.1:10911"), Remoting(), lambda _: None) for number in (0, 1)]
    pollers.append(BrokerPoller(Node("c", "old", 0, "10.0.0.2:10911"), Remoting(), lambda _: None))
    for poller, table in zip(pollers, [{"timerCongestNum": "7", "timerReadBehind": "3"}] * 2 + [{}], strict=True):
        poller.results["runtime",] = Aged(table, 1.0)
    view = View(pollers, 1.0, 0.0)
    readers = ExporterMetrics(lambda: view, lambda: None, lambda: None, queue_series=10, steady_labels=False).readers()
    assert list(readers["orbitmq_timer_messages"]()) == [(("c", "a"), 7)]
    assert list(readers["orbitmq_timer_late_seconds"]()) == [(("c", "a"), 3)]
