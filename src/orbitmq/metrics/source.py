"""The interface between a daemon and the metrics page of its process. Knows no daemon and no page."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Protocol

from orbitmq.metrics.model import Metric, Readers


class MetricsSource(Protocol):
    """The metrics of one daemon."""

    @property
    def labels(self) -> Mapping[str, str]:
        """Labels of every series, before its own."""
        ...

    async def prepare(self) -> None:
        """Collect what may block; called before the readers."""
        ...

    def readers(self) -> Readers: ...

    def failure(self) -> str | None:
        """Why the daemon is unhealthy; None if it is healthy."""
        ...


@dataclass(frozen=True, slots=True)
class MetricsSection:
    """The part of a page that belongs to one daemon; `job` names it in metrics about the collection."""

    job: str
    table: tuple[Metric, ...]
    metrics: MetricsSource


@dataclass(slots=True)
class Scrapes:
    """Statistics of the collection: seconds by job, failures by job and target."""

    durations: dict[str, float] = field(default_factory=dict)
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)
