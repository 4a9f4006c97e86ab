"""The job `compact`: merges small files of the lake into large ones, and removes those of old versions."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.lake import manifest
from orbitmq.lake.compaction import Bin, plan
from orbitmq.lake.lakes import Sweeper
from orbitmq.lake.manifest import LakeFile, TaskReport
from orbitmq.lake.message_files import merged
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import DURATION, duration_ms, duration_text
from orbitmq.pipeline.datasets import Lineage, location
from orbitmq.pipeline.executors import Executors
from orbitmq.pipeline.job import Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.lake_options import LakeOptions
from orbitmq.runtime.options import option

MIB = 1 << 20


@dataclass(frozen=True)
class CompactJob(LakeOptions, JobOptions):
    """Options of the job `compact`."""

    target_size: int = option(
        "targetSize",
        256,
        "Size that merged files should reach. Larger files are not changed.",
        unit="MiB",
        minimum=1,
        maximum=4096,
    )
    keep_versions: str = option(
        "keepVersions",
        "",
        "How long a version of the table stays readable after another one replaced it, in hours or days, such as 36h "
        "or 30d. The table remembers it, and every job keeps to it. Empty is what the table remembers, at first 7d.",
        pattern=rf"({DURATION})?",
    )


def run(context: JobContext[CompactJob]) -> JobResult:
    """Compact and publish bin by bin, then sweep."""
    options = context.options
    lake = options.open_existing()
    bins = plan(lake.files(), options.target_size * MIB)
    rows: list[dict[str, int | str]] = [
        {"topic": found.topic, "day": found.day, "files": len(found.files), "bytes": sum(f.size for f in found.files)}
        for found in bins
    ]
    if options.keep_versions and not options.dry_run:
        lake.set_keep_ms(duration_ms(options.keep_versions))
    kept_for = options.keep_versions or duration_text(lake.keep_ms())
    if options.dry_run:
        small = sum(len(found.files) for found in bins)
        return JobResult({"bins": len(bins), "files to replace": small, "versions kept for": kept_for}, rows)
    made: list[LakeFile] = []
    failed: list[str] = []
    replaced = 0
    with context.progress("compact", "bins") as advance:
        for done, (found, files) in enumerate(zip(bins, _merge(context, lake.place, bins), strict=True), 1):
            try:
                lake.replace(found.files, files)
                made += files
                replaced += len(found.files)
            except LakeConflict as error:
                failed.append(f"{found.topic} of {found.day}: {error}; run compact again")
            advance(done, len(bins))
    swept = Sweeper(lake).sweep()
    counts: dict[str, int | str] = {
        "files replaced": replaced,
        "files made": len(made),
        "messages": sum(file.rows for file in made),
        "bytes": sum(file.size for file in made),
        "versions kept for": kept_for,
        "old files kept": swept.kept,
        "old files removed": len(swept.removed),
    }
    if swept.stuck:
        counts["old files not removed"] = swept.stuck
    count, size = sum(file.rows for file in made), sum(file.size for file in made)
    old, new = location(options.lake, count, files=replaced), location(options.lake, count, size, len(made))
    return JobResult(counts, (), failed, Lineage([old], [new]))


def lineage(options: CompactJob) -> Lineage:
    """The lake, which is rewritten in place."""
    lake = [location(options.lake)] if options.lake else []
    return Lineage(lake, lake)


def _merge(context: JobContext[CompactJob], place: StorageLocation, bins: Sequence[Bin]) -> Iterator[list[LakeFile]]:
    """The new files of each bin, in the order of the bins. One task makes each."""
    if not bins:
        return

    def work(found: Bin) -> str:
        return manifest.encode(TaskReport(files=merged(place, found.files, "compact")))

    for report in Executors(context.spark().sparkContext, LakeError)(work, bins):
        yield manifest.decode(report).files


JOB = Job(
    "compact",
    "Messages stay readable: the files of a topic and a day are replaced in one step. The old ones stay for a week,\n"
    "or as long as --keep-versions says, for readers that started before and for time travel. Read a lake as the\n"
    "table that it is, not file by file.",
    CompactJob,
    run,
    ("--lake ./lake", "--lake s3://bucket/lake --target-size 512 --keep-versions 30d"),
    "merged files stay, and the next run does the rest",
    lineage,
)
