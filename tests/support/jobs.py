"""Runs a job of the pipeline in this process, with a session that goes on afterwards; the archive in another process
where this version of Spark runs none."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import TypeVar

import pyspark
from pyspark.sql import SparkSession

from orbitmq.pipeline import archive
from orbitmq.pipeline.command import flag
from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.progress import shown_on
from orbitmq.spark.versions import HAS_SOURCES

O = TypeVar("O", bound=JobOptions)  # noqa: E741


def run_job(job: Job[O], spark: SparkSession, **options: object) -> JobResult:
    """`options` are keys of the job's table, `__` for a dot."""
    texts = {name.replace("__", "."): str(value) for name, value in options.items()}
    parsed = job.options.parse(texts)
    assert texts.keys() <= job.options.table().keys()
    return job.run(JobContext(parsed, lambda: spark, shown_on(sys.stderr)))


def run_archive(spark: SparkSession, **options: object) -> JobResult:
    """As users of Spark 3.5 do: with the Spark that orbitmq is installed with, and the lake is the same."""
    if HAS_SOURCES:
        return run_job(archive.JOB, spark, **options)
    old = str(Path(pyspark.__file__).parents[1])
    paths = [path for path in os.environ.get("PYTHONPATH", "").split(os.pathsep) if path != old]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths)}
    flags = [word for key, value in options.items() for word in (flag(key), str(value))]
    command = [sys.executable, "-m", "orbitmq.pipeline", archive.JOB.name, "--json", *flags]
    ended = subprocess.run(command, env=environment, stdout=subprocess.PIPE, text=True, check=True)
    return JobResult(**json.loads(ended.stdout))
