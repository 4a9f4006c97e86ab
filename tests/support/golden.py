"""Where the golden data is and how it is read: bytes and files written by Apache RocketMQ 4.9.7."""

from __future__ import annotations

import gzip
import json
import os
import tarfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest

REPOSITORY = Path(__file__).resolve().parents[2]
GOLDEN = Path(os.environ.get("ORBITMQ_GOLDEN", REPOSITORY.parent / "shared" / "golden"))


def _inside(path: str) -> Path:
    found = GOLDEN / path
    if not found.exists():
        pytest.fail(f"golden data is missing: {found}; set ORBITMQ_GOLDEN to the directory that holds vectors.json")
    return found


def rows(name: str) -> list[dict[str, Any]]:
    """The frames of `frames/<name>`, gzipped or not."""
    path = _inside(f"frames/{name}")
    data = path.read_bytes()
    text = gzip.decompress(data) if path.suffix == ".gz" else data
    return [json.loads(line) for line in text.splitlines()]


def configs(name: str) -> Path:
    """A file that RocketMQ wrote for itself."""
    return _inside(f"configs/{name}")


def manifest(case: str) -> dict[str, Any]:
    """What RocketMQ's own store library says about the store directory `case`."""
    with gzip.open(_inside(f"stores/{case}.json.gz")) as file:
        found: dict[str, Any] = json.load(file)
    return found


def unpack(case: str, to: Path) -> Path:
    """Unpack the store directory `case` below `to`, with its modification times; the path of the store root."""
    with tarfile.open(_inside(f"stores/{case}.tar.gz")) as archive:
        archive.extractall(to, filter="data")
    return to / "store"


@cache
def vectors() -> dict[str, Any]:
    """Results of RocketMQ's pure functions."""
    with _inside("vectors.json").open(encoding="utf-8") as file:
        found: dict[str, Any] = json.load(file)
    return found
