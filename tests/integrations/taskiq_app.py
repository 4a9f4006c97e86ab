"""The broker whose workers `test_taskiq_workers` kills: each task notes that it ran."""

from __future__ import annotations

import asyncio
import os
import time
from pathlib import Path

from orbitmq.integrations.taskiq import OrbitMQBroker

broker = OrbitMQBroker(os.environ["ORBITMQ_TASKIQ_BROKER"], queue="shop", visibility_timeout=3)


@broker.task
async def note(number: int, due: float = 0.0) -> None:
    """One line: the number, when it ran, and when it should have."""
    with (Path(os.environ["ORBITMQ_TASKIQ_NOTES"]) / str(os.getpid())).open("a") as notes:
        notes.write(f"{number} {time.time()} {due}\n")
    await asyncio.sleep(0.05)  # in which the worker may be killed
