"""Figures of what connections hold and what was refused them, for brokers and name servers alike. Knows no daemon."""

from __future__ import annotations

from orbitmq.metrics.model import Sample
from orbitmq.net.budget import Budgets
from orbitmq.runtime.refusals import Refusals


def memory(budgets: Budgets) -> list[Sample]:
    """Bytes of each kind."""
    return [((str(one.kind),), one.taken) for one in (budgets.incomplete, budgets.open, budgets.unread)]


def refusals(refused: Refusals) -> list[Sample]:
    """How often each limit has refused something; those that never did are told, too."""
    return [((str(limit),), count) for limit, count in refused.counts.items()]
