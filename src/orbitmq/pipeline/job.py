"""What a job is: a name, options, and a function that does the work and says what came of it. Knows no job.

The same job runs as `orbitmq pipeline NAME`, as `python -m orbitmq.pipeline NAME` and by spark-submit; Spark is started
when the job asks for it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from orbitmq.runtime.options import Options, option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

O = TypeVar("O", bound="JobOptions")  # noqa: E741 - the options of one job


@dataclass(frozen=True)
class JobOptions(Options):
    """What every job can be told."""

    dry_run: bool = option("dryRun", False, "Only tell what would be done.")
    master: str = option(
        "master", "", "Spark's master; empty is the one spark-submit was given, else all cores of this machine."
    )
    spark_conf: str = option("sparkConf", "", "Settings of Spark, `key=value`, several separated by `;`.")


class Advance(Protocol):
    """Told how far a piece of work is: how much is done, and of how much."""

    def __call__(self, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class JobContext(Generic[O]):
    """What a job is given. `spark` starts the session when it is first called; `progress` shows a piece of work, in
    `unit`s, while it is open.
    """

    options: O
    spark: Callable[[], SparkSession]
    progress: Callable[[str, str], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class JobResult:
    """What a job says at its end: the closing table. `failed` is what could not be done, a line each; it makes the exit
    code 1.
    """

    counts: Mapping[str, int | str]
    table: Sequence[Mapping[str, int | str]] = ()
    failed: Sequence[str] = field(default=())


@dataclass(frozen=True)
class Job(Generic[O]):
    """`description` is what a user must know, `examples` are argument lists, `again` says what a run does
    after one that was interrupted."""

    name: str
    description: str
    options: type[O]
    run: Callable[[JobContext[O]], JobResult]
    examples: Sequence[str] = ()
    again: str = ""


class JobEntry(NamedTuple):
    """Where a job is: a module with a `JOB`, imported when it is wanted, for each brings libraries along."""

    module: str
    summary: str


JOBS = {
    "archive": JobEntry(
        "orbitmq.pipeline.archive", "Write messages of topics into a lake of Parquet files, each once."
    ),
    "audit": JobEntry("orbitmq.pipeline.audit.job", "Tell what is late, missing, double or crowded, with a report."),
    "compact": JobEntry(
        "orbitmq.pipeline.compact", "Put small files of the lake together, and remove what nobody needs."
    ),
    "dlq": JobEntry("orbitmq.pipeline.dlq", "Look at the dead letters of a group, and send them again, each once."),
    "replay": JobEntry("orbitmq.pipeline.replay", "Send messages of the lake, or of a store, again."),
    "migrate": JobEntry("orbitmq.pipeline.migrate", "Move topics and offsets of groups to another cluster."),
    "rebuild": JobEntry("orbitmq.pipeline.rebuild", "Make queues and index of a stopped store anew, on many cores."),
}


def job_named(name: str) -> Job[JobOptions]:
    """The job, which must be one of JOBS."""
    job: Job[JobOptions] = import_module(JOBS[name].module).JOB
    return job
