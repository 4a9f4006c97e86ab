"""A worker that is restarted by SIGTERM, as service managers and schedulers of containers do it: it reads a topic with
auto-commit, and writes the body of every message into a file when it has done its work.

    python -m tests.support.restarted_worker poll|iteration|coroutine NAMESERVER TOPIC FILE
"""

from __future__ import annotations

import asyncio
import os
import signal
import sys
import time

from orbitmq import client
from orbitmq.client import ConsumeFromWhere, sync

WORK_S = 0.001
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def leave(*_: object) -> None:
    sys.exit(0)


def on_threads(way: str, address: str, topic: str, file: int) -> None:
    signal.signal(signal.SIGTERM, leave)
    with sync.LitePullConsumer(topic, address, consume_from_where=FIRST, auto_commit_interval_ms=50) as consumer:
        consumer.subscribe(topic)
        while True:
            for message in consumer.poll() if way == "poll" else consumer:
                time.sleep(WORK_S)
                os.write(file, message.body + b"\n")


async def on_a_loop(address: str, topic: str, file: int) -> None:
    task = asyncio.current_task()
    assert task is not None
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, task.cancel)
    async with client.LitePullConsumer(
        topic, address, consume_from_where=FIRST, auto_commit_interval_ms=50
    ) as consumer:
        consumer.subscribe(topic)
        async for message in consumer:
            await asyncio.sleep(WORK_S)
            os.write(file, message.body + b"\n")


def main(way: str, address: str, topic: str, path: str) -> None:
    file = os.open(path, os.O_APPEND | os.O_CREAT | os.O_WRONLY)
    if way != "coroutine":
        on_threads(way, address, topic, file)
    try:
        asyncio.run(on_a_loop(address, topic, file))
    except asyncio.CancelledError:
        sys.exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
