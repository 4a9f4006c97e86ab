"""The end of a log as the bench reads it from consume queues."""

from __future__ import annotations

from pathlib import Path

from bench.log_end import ENTRY, log_end


def test_the_log_ends_with_the_message_that_lies_last_in_any_queue(tmp_path: Path) -> None:
    for queue, entries in {"orders/0": [(0, 100), (300, 50)], "orders/1": [(100, 200)], "bills/0": [(350, 7)]}.items():
        directory = tmp_path / queue
        directory.mkdir(parents=True)
        written = b"".join(ENTRY.pack(offset, size, 1) for offset, size in entries)
        (directory / f"{0:020}").write_bytes(written.ljust(10 * ENTRY.size, b"\0"))
    assert log_end(tmp_path) == 357


def test_a_store_without_queues_has_an_empty_log(tmp_path: Path) -> None:
    assert log_end(tmp_path) == 0
