"""The lag of a slave while its master is under load, from the ends of both logs."""

from __future__ import annotations

import asyncio
import contextlib
import statistics
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field

from orbitmq.errors import OrbitMQError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.statistics import runtime_info

LOOK_SECONDS = 0.25  # four looks a second cost either broker less than a thousandth of a core


@dataclass
class Lag:
    """Bytes at each look; the slave is asked last, so a look errs in its favour by what comes in half a millisecond."""

    looks: list[int] = field(default_factory=list)

    def figures(self) -> dict[str, float | None]:
        """In KiB."""
        if not self.looks:
            return {"lagMedianKiB": None, "lagMaxKiB": None}
        return {"lagMedianKiB": statistics.median(self.looks) / 1024, "lagMaxKiB": max(self.looks) / 1024}


@contextlib.contextmanager
def watched(master: str, slave: str) -> Iterator[Lag]:
    """Looks from a thread of its own until the block ends."""
    lag, ended = Lag(), threading.Event()
    thread = threading.Thread(target=lambda: asyncio.run(_look(master, slave, lag, ended)), daemon=True)
    thread.start()
    try:
        yield lag
    finally:
        ended.set()
        thread.join(10)


async def _look(master: str, slave: str, lag: Lag, ended: threading.Event) -> None:
    remoting = Remoting()
    try:
        while not ended.is_set():
            with contextlib.suppress(OrbitMQError):
                ends = [int((await runtime_info(remoting, one))["commitLogMaxOffset"]) for one in (master, slave)]
                lag.looks.append(max(0, ends[0] - ends[1]))
            await asyncio.sleep(LOOK_SECONDS)
    finally:
        await remoting.close()
