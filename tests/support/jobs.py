"""Runs a job of the pipeline in this process, with a session that goes on afterwards."""

from __future__ import annotations

import sys
from typing import TypeVar

from pyspark.sql import SparkSession

from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.progress import shown_on

O = TypeVar("O", bound=JobOptions)  # noqa: E741


def run_job(job: Job[O], spark: SparkSession, **options: object) -> JobResult:
    """`options` are keys of the job's table, `__` for a dot."""
    texts = {name.replace("__", "."): str(value) for name, value in options.items()}
    parsed = job.options.parse(texts)
    assert texts.keys() <= job.options.table().keys()
    return job.run(JobContext(parsed, lambda: spark, shown_on(sys.stderr)))
