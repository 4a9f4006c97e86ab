"""Selects the files of a lake to merge. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbitmq.pipeline.lake.manifest import MIXED, LakeFile

TARGET_BYTES = 256 << 20
RAW_BYTES_MAX = 1 << 30  # of one bin in memory, where a task sorts it
RAW_FACTOR = 5  # assumed size in memory, in sizes on disk, where the lake does not keep it


@dataclass(frozen=True)
class Bin:
    """Files of one topic and day that one task merges. MIXED files are split by topic."""

    topic: str
    day: str
    files: tuple[LakeFile, ...]


def plan(files: Iterable[LakeFile], target: int = TARGET_BYTES) -> list[Bin]:
    """Bins of files below `target` bytes, in the order of the paths. A file that is alone in its bin is not changed,
    unless it is mixed: those are always split.
    """
    groups: dict[tuple[str, str], list[LakeFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.size < target or file.topic == MIXED:
            groups.setdefault((file.topic, file.day), []).append(file)
    bins = [Bin(*key, part) for key in sorted(groups) for part in _packed(groups[key], target)]
    return [found for found in bins if len(found.files) > 1 or found.topic == MIXED]


def _packed(files: Sequence[LakeFile], target: int) -> Iterable[tuple[LakeFile, ...]]:
    """Consecutive files up to the limits, one at least."""
    held: list[LakeFile] = []
    size = raw = 0
    for file in files:
        if held and (size + file.size > target or raw + _raw(file) > RAW_BYTES_MAX):
            yield tuple(held)
            held, size, raw = [], 0, 0
        held.append(file)
        size += file.size
        raw += _raw(file)
    if held:
        yield tuple(held)


def _raw(file: LakeFile) -> int:
    return file.raw_size or RAW_FACTOR * file.size
