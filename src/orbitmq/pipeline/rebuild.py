"""The job `rebuild`: rebuilds the queues and the key index of a stopped store from its log, in several processes."""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.schedule import entry_codes
from orbitmq.errors import ConfigurationError, StoreError
from orbitmq.message.delay import parse_delay_levels
from orbitmq.pipeline.datasets import Lineage, location
from orbitmq.pipeline.executors import Executors
from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.runtime.clock import SystemClock
from orbitmq.runtime.options import option, read_properties
from orbitmq.spark.cluster_options import parts
from orbitmq.store.files import Files
from orbitmq.store.options import StoreOptions
from orbitmq.store.reader import StoreDirectory
from orbitmq.store.tools.rebuild import Rebuilt, rebuild
from orbitmq.store.tools.verify import state_of


@dataclass(frozen=True)
class RebuildJob(JobOptions):
    """Options of the job `rebuild`."""

    path: str = option(
        "path", "", "The store directory. Every executor must be able to read and write it under that path. Required."
    )
    commit_log: str = option(
        "storePathCommitLog",
        "",
        "Directories of the commit log, separated by commas, when it is not in the store directory.",
    )
    broker_config: str = option(
        "brokerConfig",
        "",
        "Properties file of the broker. It supplies what the directory does not tell: the sizes of files of which "
        "none is left, and the delay levels.",
    )


def run(context: JobContext[RebuildJob]) -> JobResult:
    """Rebuild, file by file of the log and queue by queue."""
    options = context.options
    if not options.path:
        raise ConfigurationError("option path is missing; set it to the store directory")
    root = Path(options.path).expanduser()
    logs = tuple(Path(part).expanduser() for part in parts(options.commit_log, ","))
    directory = StoreDirectory(root, logs)
    directory.check()
    if options.dry_run:
        log = directory.log()
        counts = {"state": state_of(Files(), root, logs).value, "files of the log": len(log.starts), "bytes": log.size}
        return JobResult({**counts, "queues now": len(directory.queues())})
    pairs = read_properties(Path(options.broker_config).expanduser()) if options.broker_config else {}
    codes = entry_codes(parse_delay_levels(BrokerOptions.parse(pairs).message_delay_level))
    settings = StoreOptions.parse(pairs)
    executors = Executors(context.spark().sparkContext, StoreError)
    began = time.monotonic()
    with context.progress("rebuild", "bytes") as advance:
        made = rebuild(root, settings, codes, SystemClock(), logs, progress=advance, workers=executors)
    return _outcome(made, time.monotonic() - began, lineage(options, made.messages))


def lineage(options: RebuildJob, rows: int | None = None) -> Lineage:
    """The store directory, whose queues and index are made from its own log."""
    store = [location(options.path, rows)] if options.path else []
    return Lineage(store, store)


def _outcome(made: Rebuilt, seconds: float, moved: Lineage) -> JobResult:
    counts: dict[str, int | str] = {
        "messages": made.messages,
        "queues": made.queues,
        "entries": made.entries,
        "keys indexed": made.index_entries,
        "end of the log": made.log_end,
        "seconds": f"{seconds:.1f}",
    }
    if made.stopped_by is None:
        return JobResult(counts, lineage=moved)
    return JobResult(counts, (), [f"the log ends at {made.log_end}, where it is damaged: {made.stopped_by}"], moved)


JOB = Job(
    "rebuild",
    "The result is that of `orbitmq store rebuild`, byte for byte, but made by as many processes as Spark has cores:\n"
    "a task scans one file of the log, or writes one queue or one file of the index. Stop the broker first. The new\n"
    "queues and the new index each replace the old ones in one step, so an interruption leaves the old ones. The log\n"
    "is read up to the first message that is not whole, as by a start of the broker.",
    RebuildJob,
    run,
    ("--path /data/store", "--path /data/store --broker-config broker.conf --master 'local[8]'"),
    "the old queues and index are unchanged, unless their replacement had begun",
    lineage,
)
