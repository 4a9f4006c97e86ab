"""Small files are put together within the limits, large ones stay."""

from __future__ import annotations

from orbitmq.pipeline.lake.compaction import RAW_BYTES_MAX, plan
from orbitmq.pipeline.lake.manifest import MIXED, LakeFile

MIB = 1 << 20


def file(name: str, size: int, topic: str = "T", day: str = "2026-01-01", raw_size: int = 1) -> LakeFile:
    return LakeFile(path=name, topic=topic, day=day, rows=1, size=size, raw_size=raw_size)


def names(files: list[LakeFile], target: int = 100 * MIB) -> list[list[str]]:
    return [[member.path for member in found.files] for found in plan(files, target)]


def test_small_files_are_put_together_up_to_the_target() -> None:
    files = [file(f"f{number}", 40 * MIB) for number in range(5)] + [file("large", 100 * MIB)]
    assert names(files) == [["f0", "f1"], ["f2", "f3"]], "one is left alone and stays"


def test_topics_and_days_stay_apart() -> None:
    files = [file("a", MIB), file("b", MIB, topic="U"), file("c", MIB, day="2026-01-02"), file("d", MIB)]
    assert names(files) == [["a", "d"]]


def test_mixed_files_are_parted_also_alone_and_large() -> None:
    assert names([file("a", MIB, topic=MIXED), file("b", 300 * MIB, topic=MIXED)]) == [["a"], ["b"]]


def test_a_bin_fits_into_the_memory_of_a_task() -> None:
    files = [file(f"f{number}", MIB, raw_size=RAW_BYTES_MAX // 2) for number in range(3)]
    assert names(files) == [["f0", "f1"]]
    unknown = [file(f"f{number}", 60 * MIB, raw_size=0) for number in range(6)]
    assert names(unknown, 1 << 40) == [["f0", "f1", "f2"], ["f3", "f4", "f5"]]
