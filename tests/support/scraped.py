"""A page of figures as Prometheus' own parser reads it. Knows no metric."""

from __future__ import annotations

import asyncio
import urllib.request
from typing import Self

from prometheus_client.parser import text_string_to_metric_families

TIMEOUT_SECONDS = 30


class Scraped:
    """The samples of one scrape."""

    def __init__(self, text: str) -> None:
        self.families = {family.name: family for family in text_string_to_metric_families(text)}

    @classmethod
    async def from_page(cls, url: str) -> Self:
        return cls(
            await asyncio.to_thread(lambda: urllib.request.urlopen(url, timeout=TIMEOUT_SECONDS).read().decode())
        )

    def value(self, name: str, **labels: str) -> float:
        """Of the one series of this name that has these labels."""
        found = self.values(name, **labels)
        assert len(found) == 1, (name, labels, found)
        return found[0]

    def values(self, name: str, **labels: str) -> list[float]:
        return [
            sample.value
            for family in self.families.values()
            for sample in family.samples
            if sample.name == name and labels.items() <= sample.labels.items()
        ]
