"""Where the stores of simulated histories lie."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

MEMORY = Path("/dev/shm")  # real files, but nobody waits for a real disk


@pytest.fixture
def directory() -> Iterator[Path]:
    made = Path(tempfile.mkdtemp(prefix="power-", dir=MEMORY if MEMORY.is_dir() else None))
    yield made
    shutil.rmtree(made)
