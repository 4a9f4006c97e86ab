"""Small files are put together within the limits, large ones stay."""

from __future__ import annotations

from orbitmq.lake.compaction import plan
from orbitmq.lake.manifest import LakeFile

MIB = 1 << 20


def file(name: str, size: int, topic: str = "T", day: str = "2026-01-01", is_whole: bool = True) -> LakeFile:
    return LakeFile(path=name, topic=topic, day=day, rows=1, size=size, is_whole=is_whole)


def names(files: list[LakeFile], target: int = 100 * MIB) -> list[list[str]]:
    return [[member.path for member in found.files] for found in plan(files, target)]


def test_small_files_are_put_together_up_to_the_target() -> None:
    files = [file(f"f{number}", 40 * MIB) for number in range(5)] + [file("large", 100 * MIB)]
    assert names(files) == [["f0", "f1"], ["f2", "f3"]], "one is left alone and stays"


def test_topics_and_days_stay_apart() -> None:
    files = [file("a", MIB), file("b", MIB, topic="U"), file("c", MIB, day="2026-01-02"), file("d", MIB)]
    assert names(files) == [["a", "d"]]


def test_files_are_left_alone_whose_place_or_rows_are_not_known() -> None:
    files = [file("a", MIB, topic=""), file("b", MIB, topic=""), file("c", MIB, day=""), file("d", MIB, day="")]
    assert names(files) == []
    marked = [file("a", MIB, is_whole=False), file("b", MIB), file("c", MIB)]
    assert names(marked) == [["b", "c"]], "merging would bring deleted rows back"
