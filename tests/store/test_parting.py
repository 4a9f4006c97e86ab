"""The log of a closed store is cut, and what was behind the cut can be read."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import StoreLocked
from orbitmq.store.parting import cut_log
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.tools.dump import Wanted, dump
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record, small_options

COUNT = 60


def dumped(directory: Path) -> list[bytes]:
    return [unit.body for unit in dump(directory, Wanted(), lambda path, at, text: pytest.fail(f"{path} {at} {text}"))]


@pytest.mark.parametrize("cut_at", [0, 1, 17, COUNT - 1, COUNT])
@pytest.mark.parametrize("was_killed", [False, True])
def test_what_is_behind_the_cut_is_kept(tmp_path: Path, cut_at: int, was_killed: bool) -> None:
    root, disk = tmp_path / "store", FaultyDisk()
    store = open_store(root, files=disk)
    wanted = [b"%d" % number * 40 for number in range(COUNT)]
    places = [store.put(record(body=body)).physical_offset for body in wanted]
    end = store.commit_log_max_offset
    assert len(store.commit_log.files.files) > 2, "it has several files"
    if was_killed:
        abandon(store)
        disk.kill()
    else:
        store.close()
    cut = [*places, end][cut_at]
    kept = cut_log(small_options(root), cut, tmp_path / "kept")
    assert [body for directory in kept for body in dumped(directory)] == wanted[cut_at:]
    again = open_store(root)
    assert again.commit_log_max_offset == cut
    assert again.max_offset("T", 0) == cut_at
    assert bodies(again) == wanted[:cut_at]
    following = again.put(record(body=b"next"))
    assert (following.physical_offset, following.queue_offset) == (cut, cut_at)
    again.close()


def test_an_open_store_is_not_cut(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record())
    with pytest.raises(StoreLocked):
        cut_log(small_options(tmp_path), PhysicalOffset(0), tmp_path / "kept")
    store.close()
    assert bodies(open_store(tmp_path)) != []
