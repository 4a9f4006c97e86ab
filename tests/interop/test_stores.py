"""One store directory, opened by both systems in turn: what one wrote the other reads, goes on from, and hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from tests.interop.conftest import System
from tests.support.delivery import (
    Row,
    assert_as_acknowledged,
    assert_each_once,
    assert_queues_without_gaps,
    messages,
    results,
)
from tests.support.java_rocketmq import JavaSystem, run_driver
from tests.support.orbit_process import OrbitUp

Start: TypeAlias = Callable[[Path], System]

# Small files, so that a few thousand messages fill several of each kind.
_SMALL_FILES: dict[str, Any] = {"mappedFileSizeCommitLog": 512 << 10, "mappedFileSizeConsumeQueue": 300 * 20}
_SYSTEMS: dict[str, Start] = {
    "java": lambda store: JavaSystem(store_dir=store, **_SMALL_FILES),
    "orbitmq": lambda store: OrbitUp(store_dir=store, **_SMALL_FILES),
}
BATCH, SYNC, LATER = range(2000), range(2000, 4000), range(4000, 4500)


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize(("first", "second"), [("orbitmq", "java"), ("java", "orbitmq")])
def test_a_store_goes_from_one_system_to_the_other_and_back(tmp_path: Path, first: str, second: str, end: str) -> None:
    store = tmp_path / "store"
    with _SYSTEMS[first](store) as system:
        sent = _send(system, "batch", BATCH) + _send(system, "sync", SYNC)
        consumed = _consume(system, count=4000)
        assert_each_once(consumed, "stores", [*BATCH, *SYNC])
        _end(system, store, end)
    log_files = sorted(path.name for path in (store / "commitlog").iterdir())
    assert len(log_files) > 2

    with _SYSTEMS[second](store) as system:
        _assert_holds(system, sent)
        sent += _send(system, "sync", LATER)
        if end == "stopped":  # offsets are saved every 5 s and at a clean stop, so only then they must be exact
            assert_each_once(_consume(system, count=len(LATER)), "stores", LATER)
        _end(system, store, end)

    with _SYSTEMS[first](store) as system:
        _assert_holds(system, sent)
        system.stop()
    assert not (store / "abort").exists()


def _send(system: System, mode: str, indexes: range) -> list[Row]:
    client = ("--namesrv", system.namesrv_address, "--topic", "orders", "--run", "stores")
    return results(run_driver("send", *client, "--mode", mode, "--first", indexes.start, "--count", len(indexes)))


def _consume(system: System, count: int) -> list[Row]:
    client = ("--namesrv", system.namesrv_address, "--topic", "orders", "--group", "readers")
    return messages(run_driver("consume", *client, "--expect", count, "--linger-ms", 1000))


def _assert_holds(system: System, sent: Sequence[Row]) -> None:
    """Every acknowledged message is there once, unchanged and in its place."""
    received = messages(run_driver("pull", "--namesrv", system.namesrv_address, "--topic", "orders"))
    assert_each_once(received, "stores", [row["index"] for row in sent])
    assert_as_acknowledged(received, sent)
    assert_queues_without_gaps(received, queue_count=4)


def _end(system: System, store: Path, how: str) -> None:
    if how == "killed":
        system.kill()
        assert (store / "abort").exists()
    else:
        system.stop()
        assert not (store / "abort").exists()
