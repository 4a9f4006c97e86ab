"""How far Spark is with an action: its tasks, told while it runs. Knows no job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

from orbitmq.pipeline.job import Advance, JobContext, O

LOOK_SECONDS = 0.5


@contextmanager
def tasks_shown(context: JobContext[O], what: str) -> Iterator[None]:
    """Show how many tasks of Spark are done while `what` is in flight, which starts the session."""
    spark = context.spark()
    with context.progress(what, "tasks") as advance, watched(spark.sparkContext, advance):
        yield


@contextmanager
def watched(spark: SparkContext, advance: Advance) -> Iterator[None]:
    """Tell `advance` the finished tasks of the stages that run, and all of theirs, until this ends."""
    over = threading.Event()

    def look() -> None:
        tracker = spark.statusTracker()
        while not over.wait(LOOK_SECONDS):
            stages = [tracker.getStageInfo(stage) for stage in tracker.getActiveStageIds()]
            found = [stage for stage in stages if stage is not None]
            if found:
                advance(sum(stage.numCompletedTasks for stage in found), sum(stage.numTasks for stage in found))

    thread = threading.Thread(target=look, name="orbitmq-watch", daemon=True)
    thread.start()
    try:
        yield
    finally:
        over.set()
        thread.join()
