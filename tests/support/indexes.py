"""Tiny index files and rows to put into them."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from orbitmq.store.files import Files
from orbitmq.store.index.file import IndexFile, IndexShape

SHAPE = IndexShape(slots=7, entries=20)
T0 = 1_700_000_000_000

Row = tuple[int, int, int]  # hash, physical offset, store time


def new_file(directory: Path, name: str = "1", shape: IndexShape = SHAPE) -> IndexFile:
    return IndexFile(Files().create(directory / name, shape.file_size), shape)


def add(file: IndexFile, stored: Sequence[Row]) -> int:
    return file.add([row[0] for row in stored], [row[1] for row in stored], [row[2] for row in stored])


def rows(steps: Sequence[Row]) -> list[Row]:
    """Rows from steps between them: offsets never decrease, times may (a clock can be set back)."""
    found: list[Row] = []
    offset, timestamp = 0, T0
    for key, step, step_ms in steps:
        offset += 100 * step
        timestamp += step_ms
        found.append((key, offset, timestamp))
    return found
