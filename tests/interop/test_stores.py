"""One store directory, opened by both systems in turn: what one wrote the other reads, goes on from, and hands back."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, TypeAlias

import pytest

from orbitmq.broker.offsets import ConsumerOffsets
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
from tests.support.messages import index_of
from tests.support.orbit_process import OrbitUp

Start: TypeAlias = Callable[[Path], System]

# Small files, so that a few thousand messages fill several of each kind.
_SMALL_FILES: dict[str, Any] = {"mappedFileSizeCommitLog": 512 << 10, "mappedFileSizeConsumeQueue": 300 * 20}
_SYSTEMS: dict[str, Start] = {
    "java": lambda store: JavaSystem(store_dir=store, **_SMALL_FILES),
    "orbitmq": lambda store: OrbitUp(store_dir=store, **_SMALL_FILES),
}
BATCH, SYNC = range(2000), range(2000, 4000)


@pytest.mark.timeout(600)
def test_a_store_goes_from_one_system_to_the_other_and_back(tmp_path: Path) -> None:
    """Each hands over to the other twice, once after a clean stop and once killed."""
    store = tmp_path / "store"
    with _SYSTEMS["orbitmq"](store) as system:
        sent = _send(system, "batch", BATCH) + _send(system, "sync", SYNC)
        assert_each_once(_consume(system, count=4000), "stores", [*BATCH, *SYNC])
        _end(system, store, "stopped")
    log_files = sorted(path.name for path in (store / "commitlog").iterdir())
    assert len(log_files) > 2

    _note_progress_of_a_slave(store)
    # Offsets are saved every 5 s and at a clean stop: only after one they must be exact.
    with _SYSTEMS["java"](store) as system:
        _assert_holds(system, sent)
        sent += _send(system, "sync", range(4000, 4500))
        assert_each_once(_consume(system, count=500), "stores", range(4000, 4500))
        _end(system, store, "killed")
    with _SYSTEMS["orbitmq"](store) as system:
        _assert_holds(system, sent)
        sent += _send(system, "sync", range(4500, 5000))
        _end(system, store, "killed")
    with _SYSTEMS["java"](store) as system:
        _assert_holds(system, sent)
        received = {index_of(row): row for row in _consume(system, count=500)}
        assert_each_once([row for index, row in received.items() if index >= 4500], "stores", range(4500, 5000))
        _end(system, store, "stopped")
    with _SYSTEMS["orbitmq"](store) as system:
        sent += _send(system, "sync", range(5000, 5500))
        assert_each_once(_consume(system, count=500), "stores", range(5000, 5500))
        _assert_holds(system, sent)
        _end(system, store, "stopped")


def _note_progress_of_a_slave(store: Path) -> None:
    """Have the offsets say what its master was not told yet: orbitmq's own key, which RocketMQ passes over."""
    offsets = ConsumerOffsets(store / "config")
    offsets.load()
    offsets.remember_commits()
    for queue_id, offset in dict(offsets.of("readers", "orders")).items():
        offsets.commit("readers", "orders", queue_id, offset)
    path = store / "config/consumerOffset.json"
    path.write_text(offsets._text()(), encoding="utf-8")
    assert '"committedHere":{"orders@readers":[0,1,2,3]}' in path.read_text()
    path.with_name(path.name + ".bak").unlink(missing_ok=True)  # it would be read instead if this could not


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
