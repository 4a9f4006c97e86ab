"""Whoever waits for Spark sees how many of its tasks are done."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager
from types import SimpleNamespace

import pytest

from orbitmq.pipeline import task_progress
from orbitmq.pipeline.job import Advance, JobContext, JobOptions
from orbitmq.pipeline.task_progress import tasks_shown


def test_tasks_of_all_stages_that_run_are_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_progress, "LOOK_SECONDS", 0.001)
    stages = {1: SimpleNamespace(numCompletedTasks=2, numTasks=5), 2: SimpleNamespace(numCompletedTasks=1, numTasks=3)}
    tracker = SimpleNamespace(getActiveStageIds=lambda: [1, 2, 3], getStageInfo=stages.get)  # the third has just ended
    session = SimpleNamespace(sparkContext=SimpleNamespace(statusTracker=lambda: tracker))
    shown: list[str] = []
    told = threading.Event()

    @contextmanager
    def progress(what: str, unit: str) -> Iterator[Advance]:
        shown.append(f"{what} {unit}")

        def advance(done: int, total: int) -> None:
            shown.append(f"{done} of {total}")
            told.set()

        yield advance
        shown.append("over")

    context = JobContext(JobOptions(), lambda: session, progress)  # type: ignore[arg-type]
    with tasks_shown(context, "pass"):
        assert told.wait(60)
    assert (shown[0], set(shown[1:-1]), shown[-1]) == ("pass tasks", {"3 of 8"}, "over")
