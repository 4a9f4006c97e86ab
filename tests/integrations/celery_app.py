"""The application whose workers `test_celery_workers` kills: each task notes that it ran."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

from celery import Celery

import orbitmq.integrations.celery

assert orbitmq.integrations.celery  # registers the transport

app = Celery("shop", broker=os.environ["ORBITMQ_CELERY_BROKER"])
app.conf.update(
    task_acks_late=True,
    task_reject_on_worker_lost=True,
    task_ignore_result=True,
    broker_connection_retry_on_startup=True,
    broker_transport_options={"visibility_timeout": 3},
)


@app.task(bind=True)
def note(task: Any, number: int, due: float = 0.0) -> None:
    """One line: the number, when it ran, when it should have, and whether a worker had it before."""
    again = int(task.request.delivery_info["redelivered"])
    with (Path(os.environ["ORBITMQ_CELERY_NOTES"]) / str(os.getpid())).open("a") as notes:
        notes.write(f"{number} {time.time()} {due} {again}\n")
