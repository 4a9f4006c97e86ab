"""The checkpoint file."""

from __future__ import annotations

from pathlib import Path

from orbitmq.store.checkpoint import Checkpoint
from orbitmq.store.files import Files


def loaded(path: Path) -> Checkpoint:
    checkpoint = Checkpoint(Files(), path)
    checkpoint.load()
    return checkpoint


def test_a_new_checkpoint_is_a_page_of_zeros(tmp_path: Path) -> None:
    assert loaded(tmp_path / "checkpoint").safe_timestamp == 0
    assert (tmp_path / "checkpoint").read_bytes() == bytes(4096)


def test_times_come_back_and_newer_fields_stay(tmp_path: Path) -> None:
    path = tmp_path / "checkpoint"
    path.write_bytes(bytes(16) + (77).to_bytes(8, "big") + b"newer".ljust(4072))
    checkpoint = loaded(path)
    checkpoint.log_timestamp, checkpoint.queue_timestamp = 20_000, 10_000
    checkpoint.save()
    assert loaded(path).safe_timestamp == 7_000
    assert path.read_bytes()[16:29] == (77).to_bytes(8, "big") + b"newer"
    assert path.stat().st_size == 4096


def test_a_time_below_the_safety_is_none(tmp_path: Path) -> None:
    checkpoint = loaded(tmp_path / "checkpoint")
    checkpoint.log_timestamp = checkpoint.queue_timestamp = 2_999
    assert checkpoint.safe_timestamp == 0
