"""Queues and index made anew from the log."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from orbitmq.broker.schedule import entry_codes
from orbitmq.errors import StoreDamaged, StoreError, StoreLocked
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.files import Files, MappedFile
from orbitmq.store.options import StoreOptions
from orbitmq.store.tools.rebuild import Rebuilt, rebuild
from orbitmq.store.tools.verify import verify
from tests.support.stores import bodies, open_store, record, small_options

INDEX = {"message_index_enable": True, "max_hash_slot_num": 20, "max_index_num": 50}
ON = {"enable_multi_dispatch": True, "enable_lmq": True}


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Some of everything, so that files roll over."""
    store = open_store(tmp_path, ManualClock(), **INDEX, **ON)
    for number in range(60):
        properties = b"TAGS\x01Tag%d\x02KEYS\x01key%d\x02INNER_MULTI_DISPATCH\x01%%LMQ%%a" % (number % 3, number)
        store.put(record(b"%d" % number, properties=properties))
    store.put(record(topic=SCHEDULE_TOPIC, queue_id=2, properties=b"DELAY\x013"))
    store.put(record(b"half", sys_flag=TRANSACTION_PREPARED))
    store.close()
    return tmp_path


def remade(root: Path, options: StoreOptions | None = None, files: Files | None = None) -> Rebuilt:
    codes = entry_codes(parse_delay_levels(DEFAULT_DELAY_LEVELS))
    return rebuild(root, options or StoreOptions(), codes, ManualClock(), files=files)


def contents(root: Path) -> dict[str, bytes]:
    """Queues and index; index files are named after the time they were made."""
    index = {f"index {n}": path.read_bytes() for n, path in enumerate(sorted((root / "index").iterdir()))}
    queues = (root / "consumequeue").rglob("*")
    return index | {str(path.relative_to(root)): path.read_bytes() for path in queues if path.is_file()}


@pytest.mark.parametrize("is_whole", [True, False])
def test_everything_is_as_before(root: Path, is_whole: bool) -> None:
    before = contents(root)
    if not is_whole:
        for path in (root / "consumequeue" / "T" / "0").iterdir():
            path.write_bytes(bytes(200))
    made = remade(root)
    assert contents(root) == before
    assert (made.messages, made.queues, made.entries, made.index_entries) == (62, 3, 121, 60)
    assert made.stopped_by is None
    assert verify(root).findings == []
    assert sorted(path.name for path in root.iterdir()) == ["checkpoint", "commitlog", "consumequeue", "index", "lock"]


def test_the_store_goes_on_with_what_was_made(root: Path) -> None:
    remade(root)
    store = open_store(root, **INDEX, **ON)
    assert bodies(store) == bodies(store, "%LMQ%a") == [b"%d" % number for number in range(60)]
    assert store.put(record(b"next")).queue_offset == 60
    assert len(store.query("T", "key7", 32, 0, 1 << 60).buffers) == 1
    store.close()


def test_the_configuration_says_what_no_file_says(root: Path) -> None:
    before = contents(root)
    shutil.rmtree(root / "consumequeue")
    shutil.rmtree(root / "index")
    remade(root, small_options(root, **INDEX, **ON))
    assert contents(root) == before


def test_a_switched_off_index_is_left_alone(root: Path) -> None:
    shutil.rmtree(root / "index")
    made = remade(root, StoreOptions(message_index_enable=False))
    assert made.index_entries == 0
    assert not (root / "index").exists()


def test_a_running_broker_is_left_alone(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"1"))
    with pytest.raises(StoreLocked):
        remade(tmp_path)
    store.close()
    remade(tmp_path)


def test_the_directory_is_free_afterwards(root: Path) -> None:
    remade(root)
    remade(root)
    open_store(root, **INDEX, **ON).close()


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="no store"):
        remade(tmp_path)
    assert not list(tmp_path.iterdir())


def test_a_log_that_no_broker_takes_is_refused(root: Path) -> None:
    before = contents(root)
    (root / "commitlog" / f"{4096:020d}").unlink()
    with pytest.raises(StoreDamaged, match="follows a gap"):
        remade(root)
    assert contents(root) == before


def test_the_log_is_believed_up_to_its_damage(root: Path) -> None:
    path = root / "commitlog" / f"{4096:020d}"
    path.write_bytes(b"\1" * 50 + path.read_bytes()[50:])
    made = remade(root)
    assert 0 < made.messages < 40
    assert made.stopped_by == "no message begins here"
    assert made.log_end < 4096
    store = open_store(root, **INDEX, **ON)
    assert len(bodies(store)) == made.messages
    store.close()


def test_a_topic_that_was_made_anew_begins_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(15):
        store.put(record(b"old%d" % number))
    list(store.remove_topic("T"))
    for number in range(12):
        store.put(record(b"new%d" % number))
    expected = bodies(store)
    store.close()
    shutil.rmtree(tmp_path / "consumequeue")
    remade(tmp_path, small_options(tmp_path))
    store = open_store(tmp_path)
    assert bodies(store) == expected == [b"new%d" % number for number in range(12)]
    store.close()


def test_a_removed_topic_stays_removed(root: Path) -> None:
    (root / "config").mkdir()
    (root / "config" / "topics.json").write_text('{"topicConfigTable":{"Other":{}}}')
    shutil.rmtree(root / "consumequeue" / "T")
    remade(root)
    assert sorted(path.name for path in (root / "consumequeue").iterdir()) == ["%LMQ%a", SCHEDULE_TOPIC]


def test_a_log_that_begins_in_the_middle(root: Path) -> None:
    (root / "commitlog" / f"{0:020d}").unlink()
    remade(root)
    store = open_store(root, **INDEX, **ON)
    first = store.min_offset("T", 0)
    assert first > 0
    assert bodies(store) == [b"%d" % number for number in range(first, 60)]
    store.close()


class _Breaking(Files):
    """Fails, as if the process were interrupted, at one of the steps that write."""

    def __init__(self, step: int) -> None:
        self.left = step

    def _count(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise KeyboardInterrupt

    def create(self, path: Path, size: int) -> MappedFile:
        self._count()
        return super().create(path, size)

    def set_modified_ms(self, path: Path, time_ms: int) -> None:
        self._count()
        super().set_modified_ms(path, time_ms)

    def sync_directory(self, directory: Path) -> None:
        self._count()
        super().sync_directory(directory)

    def swap(self, new: Path, old: Path) -> None:
        self._count()
        super().swap(new, old)


def test_an_interruption_leaves_the_old_or_the_new(root: Path) -> None:
    (root / "consumequeue" / "T" / "0" / f"{0:020d}").write_bytes(bytes(200))
    old = contents(root)
    remade(root)
    new = contents(root)
    for step in range(200):
        shutil.rmtree(root / "consumequeue")
        for name, data in old.items():
            if name.startswith("consumequeue"):
                (root / name).parent.mkdir(parents=True, exist_ok=True)
                (root / name).write_bytes(data)
        files = _Breaking(step)
        try:
            remade(root, files=files)
        except KeyboardInterrupt:
            assert contents(root) in (old, new)
            assert not (root / "rebuild").exists()
        else:
            assert contents(root) == new
            assert step > 10
            return
    pytest.fail("the rebuild has no end")


def test_leftovers_of_a_killed_rebuild_are_no_hindrance(root: Path) -> None:
    before = contents(root)
    (root / "rebuild" / "consumequeue" / "Old" / "0").mkdir(parents=True)
    remade(root)
    assert contents(root) == before
    assert not (root / "rebuild").exists()
