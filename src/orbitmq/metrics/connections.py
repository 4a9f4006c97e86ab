"""Metrics of the memory of connections, refusals and event loop delay, for either daemon. Knows no daemon."""

from __future__ import annotations

from orbitmq.metrics.model import Buckets, Sample
from orbitmq.net.budget import Budgets
from orbitmq.net.lateness import Lateness
from orbitmq.runtime.refusals import Refusals


def memory(budgets: Budgets) -> list[Sample]:
    """Bytes of each kind."""
    return [((str(one.kind),), one.taken) for one in (budgets.incomplete, budgets.open, budgets.unread)]


def refusals(refused: Refusals) -> list[Sample]:
    """How often each limit has refused something; limits that never did are included."""
    return [((str(limit),), count) for limit, count in refused.counts.items()]


def loop_delays(lateness: Lateness) -> list[Sample]:
    """By the clock on the wall, and the part of it in which the loop's thread had a processor."""
    return [(("wall",), Buckets.of(lateness.delays)), (("cpu",), Buckets.of(lateness.busy_delays))]
