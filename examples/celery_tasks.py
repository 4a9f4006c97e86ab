"""Celery with orbitmq as its broker: a task at once, one with an ETA, and one that fails and is tried again."""

from __future__ import annotations

import os
import threading
import time

from celery import Celery, Task
from celery.contrib.testing.worker import start_worker

import orbitmq.integrations.celery  # noqa: F401 - kombu knows orbitmq:// from here on

app = Celery("shop", broker=f"orbitmq://{os.environ.get('NAMESRV_ADDR', '127.0.0.1:9876')}")
app.conf.update(task_acks_late=True, task_ignore_result=True, task_default_queue="ExampleTasks")

done = threading.Semaphore(0)


@app.task
def bill(order: str) -> None:
    print(f"{order} is billed")
    done.release()


@app.task
def remind(order: str, due: float) -> None:
    print(f"{order} is reminded, {'not ' if time.time() < due else ''}after its time")
    done.release()


@app.task(bind=True, max_retries=3)
def ship(task: Task, order: str) -> None:
    if task.request.retries == 0:
        print(f"{order} is not shipped: try again")
        raise task.retry(countdown=0.5)
    print(f"{order} is shipped")
    done.release()


# A worker in this process, to keep the example in one file; yours is `celery -A shop worker`.
with start_worker(app, pool="solo", perform_ping_check=False):
    bill.delay("O-1")
    done.acquire(timeout=20)
    remind.apply_async(("O-2", time.time() + 1), countdown=1)
    done.acquire(timeout=20)
    ship.delay("O-3")
    done.acquire(timeout=20)
