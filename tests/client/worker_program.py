"""A program with a worker, for tests that signal and kill it. Its handler notes what it does in a file."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import sys
import time
from pathlib import Path

from orbitmq.client import MessageExt, run_worker

NOTES = Path(os.environ.get("NOTES", os.devnull))


def note(event: str, message: MessageExt) -> None:
    """One line, which is written at once whatever other processes write."""
    line = f"{event} {message.body.decode()} {os.getpid()}\n".encode()
    descriptor = os.open(NOTES, os.O_WRONLY | os.O_APPEND | os.O_CREAT)
    os.write(descriptor, line)
    os.close(descriptor)


def work(message: MessageExt) -> None:
    """The body is what to do: `name:seconds`."""
    note("began", message)
    time.sleep(float(message.body.partition(b":")[2] or 0))
    note("done", message)


async def work_as_task(message: MessageExt) -> None:
    """The same as a coroutine."""
    note("began", message)
    await asyncio.sleep(float(message.body.partition(b":")[2] or 0))
    note("done", message)


async def block(message: MessageExt) -> None:
    """A coroutine that never lets its loop go on."""
    work(message)


if __name__ == "__mp_main__" and '"group": "bad"' in sys.argv[1]:
    raise RuntimeError("this module cannot be imported by a process of the worker")

if __name__ == "__main__":
    logging.basicConfig(level=logging.INFO)
    settings = json.loads(sys.argv[1])
    handler = {"work": work, "task": work_as_task}[settings.pop("handler", "work")]
    sys.exit(run_worker(handler, **settings))
