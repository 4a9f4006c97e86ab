"""Metrics of the memory of connections, of refusals and of event loop delay, for all daemons. Knows no daemon."""

from __future__ import annotations

from orbitmq.metrics.model import Buckets, Sample
from orbitmq.net.budget import Budgets
from orbitmq.net.lateness import Lateness
from orbitmq.runtime.refusals import Refusals


def memory(budgets: Budgets) -> list[Sample]:
    """Bytes by kind."""
    return [((str(one.kind),), one.taken) for one in (budgets.incomplete, budgets.open, budgets.unread)]


def refusals(refused: Refusals) -> list[Sample]:
    """Number of refusals by limit, including limits that were never reached."""
    return [((str(limit),), count) for limit, count in refused.counts.items()]


def loop_delays(lateness: Lateness) -> list[Sample]:
    """The delay in wall-clock time, and its part in which the thread of the loop had a processor."""
    return [(("wall",), Buckets.of(lateness.delays)), (("cpu",), Buckets.of(lateness.busy_delays))]
