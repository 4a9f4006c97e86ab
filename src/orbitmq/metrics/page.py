"""The metrics page of one process: the metrics of its daemons and of the process itself. Knows no daemon."""

from __future__ import annotations

import asyncio
import os
import platform
import resource
import time
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

from orbitmq import __version__
from orbitmq.metrics.exposition import CONTENT_TYPE, expose
from orbitmq.metrics.model import Metric, Readers, Sample
from orbitmq.metrics.source import MetricsSection, Scrapes
from orbitmq.metrics.table_native import PROCESS
from orbitmq.net.http_server import HttpResponse, HttpServer
from orbitmq.runtime.form import form

STATM = Path("/proc/self/statm")  # in pages: size, resident, ...


class MetricsPage:
    """`/metrics` and `/healthz`. Concurrent scrapes share one collection."""

    def __init__(
        self,
        parts: Iterable[MetricsSection],
        timer: Callable[[], float] = time.perf_counter,
        scrapes: Scrapes | None = None,
    ) -> None:
        self._parts = tuple(parts)
        self._timer = timer
        self._scrapes = scrapes or Scrapes()
        self._collecting: asyncio.Task[bytes] | None = None
        self._http = HttpServer({"/metrics": self.metrics, "/healthz": self.health})

    @property
    def port(self) -> int:
        return self._http.port

    async def start(self, host: str, port: int, option: str) -> None:
        """ConfigurationError, which names `option`, if it cannot listen on the port."""
        await self._http.start(host, port, option)

    async def stop(self) -> None:
        await self._http.stop()
        if self._collecting is not None:
            self._collecting.cancel()
            await asyncio.gather(self._collecting, return_exceptions=True)

    async def health(self) -> HttpResponse:
        """200 if every daemon is healthy, otherwise 503 and the reason."""
        found = [f"{part.job}: {failure}" for part in self._parts if (failure := part.metrics.failure()) is not None]
        text = "\n".join(found or ["ok"])
        return HttpResponse(f"{text}\n".encode(), status=503 if found else 200)

    async def metrics(self) -> HttpResponse:
        if self._collecting is None or self._collecting.done():
            self._collecting = asyncio.create_task(self._collect())
        return HttpResponse(await asyncio.shield(self._collecting), CONTENT_TYPE)

    async def _collect(self) -> bytes:
        pieces: list[bytes] = []
        for part in self._parts:
            begun = self._timer()
            await part.metrics.prepare()
            pieces += await self._texts(part.job, part.table, part.metrics.readers(), part.metrics.labels)
            self._scrapes.durations[part.job] = self._timer() - begun
        pieces += await self._texts("process", PROCESS, self._process(), {})
        return b"".join(pieces)

    async def _texts(
        self, job: str, table: tuple[Metric, ...], readers: Readers, labels: Mapping[str, str]
    ) -> list[bytes]:
        def failed(name: str) -> None:
            self._scrapes.errors[job, name] += 1

        return [text async for text in expose(table, readers, labels, failed)]

    def _process(self) -> Readers:
        usage = resource.getrusage(resource.RUSAGE_SELF)
        return {
            "orbitmq_build_info": lambda: [((__version__, platform.python_version(), form()), 1)],
            "orbitmq_resident_memory_bytes": _resident,
            "orbitmq_cpu_seconds_total": lambda: [((), usage.ru_utime + usage.ru_stime)],
            "orbitmq_scrape_duration_seconds": lambda: [
                ((job,), value) for job, value in self._scrapes.durations.items()
            ],
            "orbitmq_scrape_errors_total": lambda: list(self._scrapes.errors.items()),
        }


def _resident() -> list[Sample]:
    try:
        pages = int(STATM.read_text(encoding="ascii").split()[1])
    except OSError:
        return []  # a system without /proc
    return [((), pages * os.sysconf("SC_PAGE_SIZE"))]
