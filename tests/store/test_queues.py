"""The table of queues and their directories."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.store.files import MANY, Files, MappedFile
from orbitmq.store.queues import ConsumeQueues, is_storable


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "/a", "a\0", "x" * 128, "ü" * 64])
def test_a_topic_that_is_no_directory_gets_no_queue(tmp_path: Path, topic: str) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200)
    assert not is_storable(topic)
    with pytest.raises(MessageIllegal):
        queues.create(topic, 0)
    assert (queues.table, list(tmp_path.iterdir())) == ({}, [])


def test_a_queue_comes_to_disk_with_its_first_entry_and_is_found_again(tmp_path: Path) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200)
    assert is_storable("x" * 127)
    queues.find_or_create("T", 3)
    assert not queues.has_directory("T")
    assert queues.find_or_create("T", 3) is queues.table["T", 3]
    for place in range(15):
        queues.table["T", 3].put(place, 100 * place, 100, 0)
    queues.find_or_create("U", 0).put(0, 5000, 100, 0)
    queues.close()
    for stray in ("T/notes", "T/-1"):
        (tmp_path / "consumequeue" / stray).mkdir()
    again = ConsumeQueues(Files(), tmp_path, 200)
    again.load()
    assert sorted(again.table) == [("T", 3), ("U", 0)]
    for queue in again:
        queue.recover()
    assert again.table["T", 3].max_offset == 15
    assert again.furthest() is again.table["U", 0]
    again.close()


def test_a_removed_queue_leaves_nothing_and_its_topic_stays_while_it_has_others(tmp_path: Path) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200, extended_file_size=4096)
    for queue_id in (0, 1):
        queue = queues.create("T", queue_id)
        assert queue.extended is not None
        queue.put(0, 0, 100, queue.extended.put(7, 1, b""))
    queues.remove(queues.table["T", 0])
    assert sorted(path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("0")) == []
    assert queues.has_directory("T")
    queues.destroy()
    assert not queues.has_directory("T")
    assert (queues.table, queues.furthest()) == ({}, None)


def test_all_queues_are_flushed_with_their_extensions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200, extended_file_size=4096)
    queues.load()
    for queue_id in range(3):
        queue = queues.create("T", queue_id)
        assert queue.extended is not None
        queue.put(0, 0, 100, queue.extended.put(7, 1, b""))
    synced: list[str] = []
    monkeypatch.setattr(MappedFile, "sync", lambda file: synced.append(file.path.relative_to(tmp_path).parts[0]))
    queues.flush(queues)
    assert synced == ["consumequeue_ext", "consumequeue"] * 3, "an entry never comes before what it leads to"
    synced.clear()
    queue.put(1, 100, 100, 8)
    queues.flush(queues)
    queues.flush(queues)
    assert synced == ["consumequeue"], "what is on disk is not synced again"
    assert [queue.flushed for queue in queues] == [20, 20, 40]
    queues.close()


def test_a_queue_that_begins_anew_while_it_is_flushed_is_not_taken_for_flushed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200)
    queues.load()
    queue = queues.create("T", 0)
    for number in range(5):
        queue.put(number, 100 * number, 100, 0)
    monkeypatch.setattr(MappedFile, "sync", lambda _: queue.put(0, 9000, 100, 0))
    queues.flush(queues)
    assert (queue.end, queue.flushed) == (20, 0)
    queues.close()


def test_light_queues_are_counted_by_their_names(tmp_path: Path) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200)
    for topic in ("%LMQ%a", "%LMQ%b", "T"):
        queues.create(topic, 0)
    assert queues.has_light_queues(2)
    assert not queues.has_light_queues(3)
    queues.remove(queues.table["%LMQ%a", 0])
    assert not queues.has_light_queues(2)


def test_queues_are_found_by_their_topic_without_a_walk_over_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    queues = ConsumeQueues(Files(), tmp_path, 200)
    for topic, queue_id in (("T", 11), ("T", 2), ("U", 0)):
        queues.create(topic, queue_id)
    monkeypatch.delattr(ConsumeQueues, "__iter__")
    assert [queue.queue_id for queue in queues.of("T")] == [2, 11]
    queues.remove(queues.table["T", 2])
    assert [queue.queue_id for queue in queues.of("T")] == [11]
    queues.remove(queues.table["T", 11])
    assert queues.of("T") == queues.of("V") == []
    assert [queue.topic for queue in queues.of("U")] == ["U"]


def reads_ahead(path: Path) -> bool:
    """Whether a page that is missed in this process's map of the file brings its neighbours along."""
    mapped = Path("/proc/self/smaps").read_text().partition(f" {path}\n")[2]
    flags = next(line for line in mapped.splitlines() if line.startswith("VmFlags:"))
    return "rr" not in flags.split()


def test_the_first_entry_of_a_file_does_not_bring_the_whole_file_into_memory(tmp_path: Path) -> None:
    """Where the device reads megabytes ahead a new topic would cost as many, filled with zeros."""
    queues = ConsumeQueues(Files(), tmp_path, 200)
    queues.load()
    queue = queues.create("T", 0)
    for number in range(11):  # a file has ten
        queue.put(number, 100 * number, 100, 0)
    first, second = (file.path for file in queue.files.files)
    assert (reads_ahead(first), reads_ahead(second)) == (True, False)
    queues.close()


def test_queues_that_are_cut_wait_for_the_disk_together(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """After a crash thousands are; one by one each took a millisecond and more."""
    before = ConsumeQueues(Files(), tmp_path, 200)
    before.load()
    for queue_id in range(MANY):
        for number in range(15):
            before.find_or_create("T", queue_id).put(number, 100 * number, 100, 0)
    before.close()
    queues = ConsumeQueues(Files(), tmp_path, 200)
    queues.load()
    synced: list[object] = []
    monkeypatch.setattr(MappedFile, "sync", synced.append)
    monkeypatch.setattr("orbitmq.store.files.sync_directory", synced.append)
    monkeypatch.setattr("orbitmq.store.files._syncfs", lambda _: not synced.append("all"))
    for queue in queues:
        queue.cut(3)
        assert queue.unflushed().files == queue.files.files, "what was cleared is flushed with the next call"
    assert synced == []
    queues._disk._device = (tmp_path).stat().st_dev  # type: ignore[union-attr]  # whatever the test lies on
    assert queues.flush(queues), "all else came along"
    assert synced == ["all"]
    assert all(not queue.unflushed().files for queue in queues)
    queues.close()
