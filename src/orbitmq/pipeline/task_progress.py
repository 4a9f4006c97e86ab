"""Shows the progress of a Spark action by its finished tasks. Knows no job."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from contextlib import contextmanager

from pyspark import SparkContext

from orbitmq.pipeline.job import Advance, JobContext, O

LOOK_SECONDS = 0.5


@contextmanager
def tasks_shown(context: JobContext[O], what: str) -> Iterator[None]:
    """Show the finished tasks of Spark while the body runs. Starts the session."""
    spark = context.spark()
    with context.progress(what, "tasks") as advance, watched(spark.sparkContext, advance):
        yield


@contextmanager
def watched(spark: SparkContext, advance: Advance) -> Iterator[None]:
    """Report finished and total tasks of the running stages to `advance` while the body runs."""
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
