"""Reads the metrics of `table_native.GATEWAY`. Must not know how they are served."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from orbitmq.gateway.limits import Places
from orbitmq.gateway.links import Links
from orbitmq.metrics.model import Readers


class GatewayMetrics:
    """The metrics of one gateway."""

    def __init__(self, waiting: Places, streams: Places, body_bytes: Places, links: Links) -> None:
        self.counts: Counter[tuple[str, str]] = Counter()
        """Operation and status -> responses."""
        self._waiting = waiting
        self._streams = streams
        self._links = links
        self._limits: Mapping[str, Places | Links] = {
            "waiting": waiting,
            "streams": streams,
            "body_bytes": body_bytes,
            "accounts": links,
        }

    @property
    def labels(self) -> dict[str, str]:
        """None."""
        return {}

    async def prepare(self) -> None:
        """Nothing to do: no reader blocks."""

    def failure(self) -> str | None:
        """None: `/readyz` says whether it reaches brokers."""
        return None

    def readers(self) -> Readers:
        """One reader for each metric of the table."""
        return {
            "orbitmq_gateway_requests_total": lambda: list(self.counts.items()),
            "orbitmq_gateway_waiting_receives": lambda: [((), len(self._waiting))],
            "orbitmq_gateway_streams": lambda: [((), len(self._streams))],
            "orbitmq_gateway_accounts": lambda: [((), len(self._links))],
            "orbitmq_gateway_refusals_total": lambda: [((name,), one.refused) for name, one in self._limits.items()],
        }
