"""Selects the files of a lake to merge. Pure."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from orbitmq.lake.manifest import LakeFile

TARGET_BYTES = 256 << 20


@dataclass(frozen=True)
class Bin:
    """Files of one topic and day that one task merges."""

    topic: str
    day: str
    files: tuple[LakeFile, ...]


def plan(files: Iterable[LakeFile], target: int = TARGET_BYTES) -> list[Bin]:
    """Bins of files below `target` bytes, in the order of the paths. A file that is alone in its bin is not changed,
    nor is one whose topic and day are unknown or that has deleted rows.
    """
    groups: dict[tuple[str, str], list[LakeFile]] = {}
    for file in sorted(files, key=lambda file: file.path):
        if file.size < target and file.topic and file.day and file.is_whole:
            groups.setdefault((file.topic, file.day), []).append(file)
    bins = [Bin(*key, part) for key in sorted(groups) for part in _packed(groups[key], target)]
    return [found for found in bins if len(found.files) > 1]


def _packed(files: Sequence[LakeFile], target: int) -> Iterable[tuple[LakeFile, ...]]:
    """Consecutive files up to the target, one at least."""
    held: list[LakeFile] = []
    size = 0
    for file in files:
        if held and size + file.size > target:
            yield tuple(held)
            held, size = [], 0
        held.append(file)
        size += file.size
    if held:
        yield tuple(held)
