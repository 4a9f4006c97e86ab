"""taskiq with orbitmq as its broker: a task at once, one with a delay, and one that fails and is tried again."""

from __future__ import annotations

import asyncio
import logging
import os
import time

from taskiq import SimpleRetryMiddleware
from taskiq.receiver import Receiver

from orbitmq.integrations.taskiq import OrbitMQBroker

broker = OrbitMQBroker(os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876"), queue="ExampleTaskiq")
broker.add_middlewares(SimpleRetryMiddleware())
logging.getLogger("taskiq").setLevel(logging.CRITICAL)  # which shows the stack of what fails

done = asyncio.Semaphore(0)
tried = set[str]()


@broker.task
async def bill(order: str) -> None:
    print(f"{order} is billed")
    done.release()


@broker.task
async def remind(order: str, due: float) -> None:
    print(f"{order} is reminded, {'not ' if time.time() < due else ''}after its time")
    done.release()


@broker.task(retry_on_error=True, max_retries=3)
async def ship(order: str) -> None:
    if order not in tried:
        tried.add(order)
        print(f"{order} is not shipped: try again")
        raise OSError("the carrier is away")
    print(f"{order} is shipped")
    done.release()


async def main() -> None:
    await broker.startup()
    # A worker in this process, to keep the example in one file; yours is `taskiq worker shop:broker`.
    finished = asyncio.Event()
    working = asyncio.create_task(Receiver(broker, max_async_tasks=4, run_startup=False).listen(finished))
    await bill.kiq("O-1")
    await done.acquire()
    await remind.kicker().with_labels(delay=1).kiq("O-2", time.time() + 1)
    await done.acquire()
    await ship.kiq("O-3")
    await done.acquire()
    finished.set()
    await working
    await broker.shutdown()


asyncio.run(main())
