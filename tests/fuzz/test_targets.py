"""Every promise holds for all that was kept, and for honest inputs; the table is whole; what is kept is small."""

from __future__ import annotations

import tracemalloc

import pytest

from fuzz import corpus
from fuzz.targets import TARGETS

MEMORY_MAX = 48 << 20  # bytes for one input: a limit of 1 MiB for unpacked bodies, and pieces of Zstandard of 16 MiB
NAMES = [*TARGETS]


@pytest.mark.parametrize("name", NAMES)
def test_every_promise_holds_for_what_was_kept(name: str) -> None:
    target = TARGETS[name]
    honest = [*target.seeds()]
    assert honest
    for data in (*honest, *corpus.kept(target), *honest):  # and nothing of it stays behind
        target.check(data)


@pytest.mark.parametrize("name", NAMES)
def test_no_input_that_was_kept_takes_much_memory(name: str) -> None:
    target = TARGETS[name]
    inputs = [*target.seeds(), *corpus.kept(target)]
    for data in inputs[:5]:
        target.check(data)  # what is made once, such as a parser
    tracemalloc.start()
    try:
        for data in inputs:
            tracemalloc.reset_peak()
            before, _ = tracemalloc.get_traced_memory()
            target.check(data)
            _, peak = tracemalloc.get_traced_memory()
            assert peak - before < MEMORY_MAX, f"{len(data)} bytes: {data[:80]!r}"
    finally:
        tracemalloc.stop()


def test_what_is_kept_is_of_a_target_and_small() -> None:
    folders = {path.name for path in corpus.PLACE.iterdir()}
    assert folders <= {*TARGETS}
    assert len(folders) > len(TARGETS) // 2
    assert sum(path.stat().st_size for path in corpus.PLACE.rglob("*") if path.is_file()) < corpus.SIZE_MAX


@pytest.mark.parametrize("name", NAMES)
def test_a_target_takes_nothing_at_all(name: str) -> None:
    TARGETS[name].check(b"")
