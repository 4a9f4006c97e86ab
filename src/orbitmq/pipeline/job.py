"""What a job is: a name, options, and a function that does the work and returns a result. Knows no job.

The same job runs as `orbitmq pipeline NAME`, as `python -m orbitmq.pipeline NAME` and by spark-submit. Spark starts
when the job first needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field
from importlib import import_module
from typing import TYPE_CHECKING, Generic, NamedTuple, Protocol, TypeVar

from orbitmq.pipeline.datasets import Lineage
from orbitmq.runtime.options import Options, option

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

O = TypeVar("O", bound="JobOptions")  # noqa: E741 - the options of one job


@dataclass(frozen=True)
class JobOptions(Options):
    """Options of every job."""

    dry_run: bool = option("dryRun", False, "Show what would be done, without doing it.")
    master: str = option(
        "master", "", "Master of Spark. Empty is the one of spark-submit, or else all cores of this machine."
    )
    spark_conf: str = option("sparkConf", "", "Settings of Spark, `key=value`, separated by `;`.")
    openlineage: str = option(
        "openlineage",
        "",
        "URL of a receiver of OpenLineage events, such as `http://marquez:5000`. Empty reports only if OPENLINEAGE_URL "
        "or OPENLINEAGE_CONFIG is set in the environment. Needs the extra `openlineage`.",
    )
    openlineage_job: str = option(
        "openlineageJob",
        "",
        "Name of the job in these events. Give each schedule with topics and a lake of its own another name. Empty is "
        "the name of the job.",
    )


class Advance(Protocol):
    """Called with the progress of some work: how much is done, and the total."""

    def __call__(self, done: int, total: int) -> None: ...


@dataclass(frozen=True)
class JobContext(Generic[O]):
    """The environment of a job. `spark` starts the session when it is first called. `progress` takes a title and a
    unit, and shows the progress of some work while it is open.
    """

    options: O
    spark: Callable[[], SparkSession]
    progress: Callable[[str, str], AbstractContextManager[Advance]]


@dataclass(frozen=True)
class JobResult:
    """The closing table of a job. `failed` has a line for each failure, and makes the exit code 1. `lineage` is what
    the run read and wrote, None for what the options name.
    """

    counts: Mapping[str, int | str]
    table: Sequence[Mapping[str, int | str]] = ()
    failed: Sequence[str] = field(default=())
    lineage: Lineage | None = None


@dataclass(frozen=True)
class Job(Generic[O]):
    """`description` and `examples` (argument lists) are for the help. `again` says what a repeated run does. `lineage`
    is the data that the options name.
    """

    name: str
    description: str
    options: type[O]
    run: Callable[[JobContext[O]], JobResult]
    examples: Sequence[str] = ()
    again: str = ""
    lineage: Callable[[O], Lineage] = field(default=lambda _: Lineage())


class JobEntry(NamedTuple):
    """The module that defines `JOB`. It is imported on use, since each job loads libraries of its own."""

    module: str
    summary: str


JOBS = {
    "archive": JobEntry(
        "orbitmq.pipeline.archive", "Write messages of topics into a lake of Parquet files, each once."
    ),
    "audit": JobEntry(
        "orbitmq.pipeline.audit.job", "Report backlogs, late, missing and duplicate messages, and hot keys."
    ),
    "compact": JobEntry(
        "orbitmq.pipeline.compact", "Merge small files of the lake, and remove files that are no longer needed."
    ),
    "dlq": JobEntry("orbitmq.pipeline.dlq", "Show the dead letters of a group, and send them again, each once."),
    "replay": JobEntry("orbitmq.pipeline.replay", "Send messages of the lake or of a store again."),
    "migrate": JobEntry("orbitmq.pipeline.migrate", "Copy topics and group offsets to another cluster."),
    "rebuild": JobEntry(
        "orbitmq.pipeline.rebuild", "Rebuild the consume queues and the index of a stopped store, on many cores."
    ),
}


def job_named(name: str) -> Job[JobOptions]:
    """The job, which must be one of JOBS."""
    job: Job[JobOptions] = import_module(JOBS[name].module).JOB
    return job
