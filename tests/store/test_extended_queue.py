"""Extensions of queues: their bytes, their addresses, and what is left of them after a crash."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.message.java_hash import tags_code
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.extended_queue import FIRST_ADDRESS, ExtendedQueue, Extension, is_address
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.options import StoreOptions
from orbitmq.store.pull_batch import GetStatus, Selection
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record, units_of

NOW = 1_700_000_000_000
FILE_SIZE = 4096
EXTENDED = {"enable_consume_queue_ext": True, "mapped_file_size_consume_queue_ext": FILE_SIZE}


def opened(root: Path, size: int = 64, last_address: int | None = None, *, clean: bool = True) -> ExtendedQueue:
    files = NumberedFiles(Files(), root, size)
    files.load()
    queue = ExtendedQueue(files)
    queue.recover(last_address, clean=clean)
    return queue


def test_a_full_disk_leaves_the_extension_as_it_was(tmp_path: Path) -> None:
    """After a start nothing is claimed behind the last unit: a write there would kill the process."""
    disk = FaultyDisk()
    queue = ExtendedQueue(NumberedFiles(disk, tmp_path, 64))
    last = queue.put(7, NOW, bytes(20))
    queue.close()
    files = NumberedFiles(disk, tmp_path, 64)
    files.load()
    queue = ExtendedQueue(files)
    queue.recover(last, clean=True)
    for disk.room in (0, 1, 64):  # not for closing the file, not for the next one, not for both
        with pytest.raises(OSError, match="full"):
            queue.put(8, NOW, bytes(20))
        assert (len(queue.files.files), [path.name for path in tmp_path.iterdir()]) == (1, ["0" * 20])
    disk.room = None
    assert queue.find(queue.put(8, NOW, bytes(20))) == Extension(8, NOW, bytes(20))
    queue.close()


def test_a_unit_is_found_at_its_address(tmp_path: Path) -> None:
    queue = opened(tmp_path)
    first = queue.put(7, NOW, b"\x80\x18")
    second = queue.put(-8, NOW + 1, b"")
    assert (first, second) == (FIRST_ADDRESS, FIRST_ADDRESS + 22)
    assert queue.find(first) == Extension(7, NOW, b"\x80\x18")
    assert queue.find(second) == Extension(-8, NOW + 1, b"")
    assert queue.find(second + 20) is None
    assert queue.find(first + 1) is None
    queue.close()


def test_every_tag_hash_is_no_address() -> None:
    assert not any(map(is_address, (0, -(2**31), 2**31 - 1, NOW)))
    assert all(map(is_address, (FIRST_ADDRESS, -(2**31) - 1)))


def test_four_bytes_stay_free_at_the_end_of_a_file(tmp_path: Path) -> None:
    """64 bytes hold three units of 20 and the spare bytes; a unit of 21 more would not fit."""
    queue = opened(tmp_path)
    addresses = [queue.put(number, NOW, b"") for number in range(4)]
    assert [address - FIRST_ADDRESS for address in addresses] == [0, 20, 40, 64]
    assert (tmp_path / f"{0:020d}").read_bytes()[60:62] == b"\xff\xff"
    assert [queue.find(address).code for address in addresses] == [0, 1, 2, 3]  # type: ignore[union-attr]
    queue.close()


def test_a_unit_larger_than_a_file_leaves_the_code_in_the_entry(tmp_path: Path) -> None:
    queue = opened(tmp_path)
    assert queue.put(5, NOW, bytes(41)) == 5
    assert is_address(queue.put(5, NOW, bytes(40)))
    queue.close()


@pytest.mark.parametrize("clean", [True, False])
def test_a_start_goes_on_behind_the_last_address(tmp_path: Path, clean: bool) -> None:
    queue = opened(tmp_path)
    addresses = [queue.put(number, NOW, b"") for number in range(5)]
    queue.close()
    queue = opened(tmp_path, last_address=addresses[2], clean=clean)
    assert queue.end == 60
    assert queue.put(9, NOW, b"") - FIRST_ADDRESS == 64
    assert queue.find(addresses[4]) is None
    queue.close()


def test_an_address_whose_unit_is_lost_never_comes_again(tmp_path: Path) -> None:
    queue = opened(tmp_path)
    lost = [queue.put(number, NOW, b"") for number in range(2)][1]
    queue.close()
    path = tmp_path / f"{0:020d}"
    path.write_bytes(path.read_bytes()[:20] + bytes(44))
    queue = opened(tmp_path, last_address=lost, clean=False)
    assert queue.find(lost) is None
    assert queue.put(9, NOW, b"") - FIRST_ADDRESS == 64
    assert queue.find(lost) is None
    queue.close()


def test_an_extension_whose_files_are_lost_begins_behind_them(tmp_path: Path) -> None:
    queue = opened(tmp_path, last_address=FIRST_ADDRESS + 300, clean=False)
    assert queue.put(9, NOW, b"") - FIRST_ADDRESS == 320
    queue.close()


# ------------------------------------------------------------------------------------------------ in a store


def test_pulls_by_tag_look_into_the_extension(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    for number in range(300):  # more than one file of the extension holds
        store.put(record(b"%d" % number, properties=b"TAGS\x01Tag%d" % (number % 3)))
    queue = store._queues.table["T", 0]
    assert all(is_address(entry[2]) for entry in queue.entries(0))
    assert len(queue.extended.files.files) > 1  # type: ignore[union-attr]
    wanted = Selection({tags_code("Tag1")}.__contains__)
    found, offset = [], 0
    while (result := store.get("T", 0, offset, 32, wanted)).status is not GetStatus.OFFSET_OVERFLOW_ONE:
        found += units_of(result)
        offset = result.next_offset
    assert len(found) == 100
    assert [extension and extension.code for extension in (store.extension("T", 0, number) for number in (1, 300))] == [
        tags_code("Tag1"), None,
    ]  # fmt: skip
    assert store.extension("U", 0, 0) is None
    assert [entry[2] for entry in store.entries("T", 0, 0, 2)] == [tags_code("Tag0"), tags_code("Tag1")]
    store.close()


def test_a_message_whose_unit_is_lost_is_taken_for_a_match(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    store.put(record(b"one", properties=b"TAGS\x01TagA"))
    store.close()
    path = tmp_path / "consumequeue_ext" / "T" / "0" / f"{0:020d}"
    path.write_bytes(bytes(FILE_SIZE))
    store = open_store(tmp_path, **EXTENDED)
    assert len(units_of(store.get("T", 0, 0, 32, Selection(lambda code: False)))) == 1
    assert store.entries("T", 0, 0, 1)[0][2] == tags_code("TagA")  # said by the message itself
    store.close()


def test_delayed_messages_are_due_when_their_extension_says(tmp_path: Path) -> None:
    store = open_store(tmp_path, ManualClock(NOW), **EXTENDED)
    store.put(record(topic=SCHEDULE_TOPIC, properties=b"DELAY\x013"))
    assert store.entries(SCHEDULE_TOPIC, 0, 0, 1)[0][2] == NOW + 10_000
    store.close()


def test_extensions_are_read_when_they_are_switched_off_again(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    store.put(record(b"one", properties=b"TAGS\x01TagA"))
    store.close()
    store = open_store(tmp_path)
    for wanted, count in (("TagA", 1), ("TagB", 0)):
        assert len(units_of(store.get("T", 0, 0, 32, Selection({tags_code(wanted)}.__contains__)))) == count
    store.put(record(topic="U", properties=b"TAGS\x01TagA"))
    assert store._queues.table["U", 0].extended is None
    store.close()


def test_the_bitmap_of_each_message_is_kept(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    store._dispatcher._bitmap_of = lambda topic, properties: topic.encode() + properties[-1:]
    store.put(record(properties=b"TAGS\x01A"))
    queue = store._queues.table["T", 0]
    extension = queue.extended.find(queue.entry(0)[2])  # type: ignore[union-attr, index]
    assert extension is not None
    assert extension.bitmap == b"TA"
    store.close()


def test_a_full_disk_leaves_the_code_in_the_entry(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk, **EXTENDED)
    store.put(record(b"one", topic="U"))
    queue = store._queues.table["U", 0]
    while is_address(queue.last_entry()[2]):  # type: ignore[index]
        disk.room = 0 if store._log.limit - store._log.end > 200 and queue.end < queue.limit else None
        store.put(record(properties=b"TAGS\x01TagA", topic="U"))
    assert queue.last_entry()[2] == tags_code("TagA")  # type: ignore[index]
    disk.room = None
    store.close()


def test_recovery_makes_the_extension_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    for number in range(30):
        store.put(record(b"%d" % number, properties=b"TAGS\x01Tag%d" % number))
    before = store.entries("T", 0, 0, 99)
    store.close()
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    (tmp_path / "abort").touch()
    store = open_store(tmp_path, **EXTENDED)
    assert store.entries("T", 0, 0, 99) == before
    queue = store._queues.table["T", 0]
    assert queue.extended is not None
    assert queue.extended.find(FIRST_ADDRESS) is not None
    assert queue.extended.end == 30 * 20
    store.close()


def test_a_killed_store_has_its_extension(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk, **EXTENDED)
    for number in range(30):
        store.put(record(b"%d" % number, properties=b"TAGS\x01Tag%d" % number))
    abandon(store)
    disk.kill()
    store = open_store(tmp_path, **EXTENDED)
    result = store.get("T", 0, 0, 32, Selection({tags_code("Tag7")}.__contains__))
    assert len(units_of(result)) == 1
    store.put(record(properties=b"TAGS\x01Tag7"))
    assert len(units_of(store.get("T", 0, 30, 32, Selection({tags_code("Tag7")}.__contains__)))) == 1
    store.close()


def test_a_removed_topic_leaves_no_extension(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    store.put(record())
    list(store.remove_topic("T"))
    assert not list((tmp_path / "consumequeue_ext" / "T").iterdir())
    store.put(record(b"new"))
    assert bodies(store) == [b"new"]
    store.close()


def test_files_go_with_the_entries_that_lead_there(tmp_path: Path) -> None:
    store = open_store(tmp_path, **EXTENDED)
    for number in range(500):  # three files of the extension
        store.put(record(b"%d" % number, properties=b"TAGS\x01Tag%d" % number))
    queue = store._queues.table["T", 0]
    assert queue.extended is not None
    assert len(queue.extended.files.files) == 3
    place = queue.entry(250)[0]  # type: ignore[index]
    for file in queue.remove_below(place):
        file.close()
        file.path.unlink()
    assert queue.min_offset == 250
    assert [path.name for path in (tmp_path / "consumequeue_ext" / "T" / "0").iterdir()] == [
        f"{start:020d}" for start in (4096, 8192)
    ]
    assert len(units_of(store.get("T", 0, 250, 32, Selection({tags_code("Tag255")}.__contains__)))) == 1
    store.close()
    store = open_store(tmp_path, **EXTENDED)
    assert store.entries("T", 0, 499, 1)[0][2] == tags_code("Tag499")
    store.put(record(properties=b"TAGS\x01new"))
    assert store.entries("T", 0, 500, 1)[0][2] == tags_code("new")
    store.close()


def test_the_default_size_is_rocketmqs() -> None:
    assert StoreOptions.parse({}).mapped_file_size_consume_queue_ext == 50331648
