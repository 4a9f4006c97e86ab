"""The keys of a stretch of the log."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.runtime.clock import ManualClock
from orbitmq.store import progress
from orbitmq.store.engine import MessageStore
from orbitmq.store.index import log_keys
from orbitmq.store.index.key_scan import key_hash
from orbitmq.store.index.log_keys import LogKeys
from tests.support.stores import open_store, record

PLAIN = 100  # messages without keys, in many files of the log


def filled(root: Path) -> tuple[MessageStore, LogKeys, list[int]]:
    """Messages without keys, then one with two; where they lie."""
    store = open_store(root)
    places = [store.put(record(bytes(300))).physical_offset for _ in range(PLAIN)]
    places.append(store.put(record(b"last", properties=b"KEYS\x01a b")).physical_offset)
    return store, LogKeys(store.commit_log, ManualClock()), list(map(int, places))


@pytest.mark.parametrize("messages", [1, 7, log_keys.SLICE_MESSAGES])
def test_the_first_message_with_keys_is_found_however_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, messages: int
) -> None:
    monkeypatch.setattr(log_keys, "SLICE_MESSAGES", messages)
    store, keys, places = filled(tmp_path)
    assert keys.first_with_keys(0, keys.end) == places[-1]
    assert keys.first_with_keys(places[50], keys.end) == places[-1]
    assert keys.first_with_keys(places[-1], keys.end) == places[-1]
    assert keys.first_with_keys(0, places[-1]) is None
    assert keys.first_with_keys(keys.end, keys.end) is None
    store.close()


def test_a_message_is_known_by_its_place(tmp_path: Path) -> None:
    store, keys, places = filled(tmp_path)
    assert (keys.start, keys.end) == (0, store.commit_log_max_offset)
    assert keys.hashes_at(places[-1]) == [key_hash(b"T", b"a"), key_hash(b"T", b"b")]
    assert (keys.hashes_at(0), keys.hashes_at(keys.end)) == ([], None)
    assert (keys.behind(0), keys.behind(places[-1]), keys.behind(keys.end)) == (places[1], keys.end, keys.end)
    store.close()


def test_a_long_search_tells_how_far_it_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    class Ticking(ManualClock):
        def now_ms(self) -> int:
            self.advance(2000)
            return super().now_ms()

    caplog.set_level("INFO")
    monkeypatch.setattr(progress, "LOOK_BYTES", 4096)
    store, _, _ = filled(tmp_path)
    LogKeys(store.commit_log, Ticking()).first_with_keys(0, store.commit_log_max_offset)
    assert "event=index_checking position=" in caplog.text
    store.close()
