"""The store as a broker uses it: put, get, limits and refusals, open and close."""

from __future__ import annotations

import contextlib
import errno
import shutil
import subprocess
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from orbitmq.errors import MessageIllegal, StoreDamaged, StoreError, StoreLocked
from orbitmq.message.flags import BORN_HOST_V6, STORE_HOST_V6, TRANSACTION_PREPARED
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.limits import memory_maps
from orbitmq.runtime.refusals import Refusals
from orbitmq.store import files
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord, PutStatus
from tests.support.batches import BatchItem, put_batch
from tests.support.disk import FaultyDisk
from tests.support.stores import HOST, HOST_V6, bodies, open_store, record, small_options, units

NOW = 1_700_000_000_000


def test_a_message_is_stored_as_it_came(tmp_path: Path) -> None:
    store = open_store(tmp_path, ManualClock(NOW))
    result = store.put(
        PutRecord("T", 3, b"hello", b"TAGS\x01A\x02k\x01v", 1_600_000_000_000, HOST, HOST, 5, 2, 4, 77)
    )  # fmt: skip
    assert (result.status, result.physical_offset, result.queue_offset, result.count) == (PutStatus.PUT_OK, 0, 0, 1)
    assert result.message_id == "7F00000100002A9F0000000000000000"
    (unit,) = units(store, "T", 3)
    assert (unit.body, unit.properties, unit.topic, unit.queue_id) == (b"hello", "TAGS\x01A\x02k\x01v", "T", 3)
    assert (unit.flag, unit.sys_flag, unit.reconsume_times, unit.prepared_transaction_offset) == (5, 2, 4, 77)
    assert (unit.born_timestamp, unit.store_timestamp, result.store_timestamp) == (1_600_000_000_000, NOW, NOW)
    assert (unit.born_host, unit.store_host, unit.body_crc) == (HOST, HOST, 907060870)
    assert (unit.size, result.size, result.end_offset) == (result.size, unit.size, store.commit_log_max_offset)
    store.close()


@pytest.mark.parametrize(
    ("born", "stored", "bits"),
    [(HOST, HOST, 0), (HOST_V6, HOST, BORN_HOST_V6), (HOST, HOST_V6, STORE_HOST_V6), (HOST_V6, HOST_V6, 0x30)],
)
def test_host_lengths_set_their_bits(tmp_path: Path, born: bytes, stored: bytes, bits: int) -> None:
    store = open_store(tmp_path)
    result = store.put(PutRecord("T", 0, b"x", b"", 1, born, stored))
    (unit,) = units(store)
    assert (unit.sys_flag, unit.born_host, unit.store_host) == (bits, born, stored)
    assert len(result.message_id) == (56 if bits & STORE_HOST_V6 else 32)
    store.close()


def test_arrivals_are_told_with_the_next_offset(tmp_path: Path) -> None:
    arrived: list[tuple[str, int, int, tuple[int, ...], int]] = []

    def note(topic: str, queue_id: int, next_offset: int, codes: Sequence[int], stored_ms: int) -> None:
        arrived.append((topic, queue_id, next_offset, tuple(codes), stored_ms))

    store = MessageStore(small_options(tmp_path), clock=ManualClock(NOW), entry_codes=TAGS_ONLY, on_arrival=note)
    store.open()
    store.put(record(properties=b"TAGS\x01TagA"))
    put_batch(store, record(queue_id=1), [BatchItem(0, b"a", b""), BatchItem(0, b"b", b"TAGS\x01TagB")])
    assert arrived == [("T", 0, 1, (2598919,), NOW), ("T", 1, 1, (0, 2598920), NOW)]
    store.close()


def test_a_queue_too_many_is_refused_before_files_run_out(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    store = open_store(tmp_path)
    assert store.put(record(b"first")).status is PutStatus.PUT_OK
    monkeypatch.setattr(files, "open_files", lambda: 0)
    monkeypatch.setattr(files, "_refusals", Refusals())  # another test may have had the line of these seconds
    for _ in range(3):
        assert store.put(record(b"too many", queue_id=2)).status is PutStatus.CREATE_MAPEDFILE_FAILED
    assert store.put(record(b"second")).status is PutStatus.PUT_OK, "others go on"
    assert caplog.text.count("event=too_many_open_files mapped=") == 1
    monkeypatch.undo()
    assert store.put(record(b"now", queue_id=2)).status is PutStatus.PUT_OK
    assert [len(units(store, queue_id=number)) for number in (0, 2)] == [2, 1]
    store.close()


@contextlib.contextmanager
def no_maps() -> Iterator[None]:
    """The kernel gives none, whatever was asked before."""

    def refuse(*_: object, **__: object) -> None:
        raise OSError(errno.ENOMEM, "Cannot allocate memory")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(files.memory, "map_file", refuse)
        yield


def test_a_queue_for_which_the_kernel_has_no_map_is_refused_until_it_has_one(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.put(record(b"first")).status is PutStatus.PUT_OK
    with no_maps():
        for _ in range(3):
            assert store.put(record(b"too many", queue_id=2)).status is PutStatus.CREATE_MAPEDFILE_FAILED
        assert store.put(record(b"second")).status is PutStatus.PUT_OK, "others go on"
    assert store.put(record(b"now", queue_id=2)).status is PutStatus.PUT_OK
    assert [bodies(store, queue_id=number) for number in (0, 2)] == [[b"first", b"second"], [b"now"]]
    store.close()


def test_a_log_for_which_the_kernel_has_no_map_goes_on_when_it_has_one(tmp_path: Path) -> None:
    """So does the worker that makes files ahead: what leaves its step would end the store."""
    store = open_store(tmp_path)
    store._reserve_worker.stop()  # it is played here
    assert store.put(record(bytes(3000))).status is PutStatus.PUT_OK
    with no_maps():
        for _ in range(3):
            store._reserve()
            assert store.put(record(bytes(3000))).status is PutStatus.CREATE_MAPEDFILE_FAILED
        assert len(units(store)) == 1, "readers go on"
    assert store.put(record(bytes(3000))).status is PutStatus.PUT_OK
    assert len(units(store)) == 2
    store.close()


def test_a_start_with_more_files_than_maps_says_what_to_raise_and_leaves_the_store(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"kept"))
    store.close()
    with no_maps(), pytest.raises(StoreError, match=r"raise vm\.max_map_count"):
        open_store(tmp_path)
    store = open_store(tmp_path)
    assert bodies(store) == [b"kept"]
    store.close()


_OUT_OF_MAPS = """\
import logging, mmap, sys
from pathlib import Path
from tests.support.stores import open_store, record
logging.basicConfig(stream=sys.stdout)
store = open_store(Path(sys.argv[1]))
spare = [bytearray(400) for _ in range(50_000)]  # Python cannot ask for memory either then
del spare[1::2]
taken = [None] * (int(sys.argv[2]) + 1)
def say(queue_id):
    print(store.put(record(queue_id=queue_id)).status.name, flush=True)
say(0)
try:
    for number in range(len(taken)):
        taken[number] = mmap.mmap(-1, 4096)  # shared, so that none becomes part of its neighbour
except OSError:
    pass
for queue_id in (1, 1, 0):
    say(queue_id)
taken.clear()
say(1)
store.close()
"""


def test_a_process_without_a_map_left_refuses_what_needs_one_and_recovers(tmp_path: Path) -> None:
    limit = memory_maps()
    if limit > 200_000:
        pytest.skip(f"vm.max_map_count is {limit}: so many maps take longer than this is worth")
    command = [sys.executable, "-c", _OUT_OF_MAPS, str(tmp_path), str(limit)]
    root = Path(__file__).parents[2]
    found = subprocess.run(command, cwd=root, capture_output=True, text=True, timeout=120, check=False)
    statuses = [line for line in found.stdout.splitlines() if "event=" not in line]
    refused = PutStatus.CREATE_MAPEDFILE_FAILED.name
    assert statuses == ["PUT_OK", refused, refused, "PUT_OK", "PUT_OK"], found.stdout + found.stderr
    assert "event=map_refused" in found.stdout
    assert found.returncode == 0, found.stderr


# ---------------------------------------------------------------------------------------------------------------- batch


def test_a_batch_becomes_messages_that_follow_one_another(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"before"))
    items = [BatchItem(7, b"one", b"TAGS\x01A"), BatchItem(8, b"two", b"TAGS\x01B\x02"), BatchItem(9, b"", b"")]
    result = put_batch(store, record(b"ignored", properties=b"CLUSTER\x01c"), items)
    found = units(store)[1:]
    assert [unit.body for unit in found] == [b"one", b"two", b""]
    assert [unit.flag for unit in found] == [7, 8, 9]
    common = "CLUSTER\x01c"
    assert [unit.properties for unit in found] == ["TAGS\x01A\x02" + common, "TAGS\x01B\x02" + common, common]
    assert [unit.queue_offset for unit in found] == [1, 2, 3]
    assert (result.queue_offset, result.count) == (1, 3)
    assert result.places == tuple(unit.physical_offset for unit in found)
    assert result.message_id.split(",")[2].endswith(f"{result.places[2]:016X}")
    assert result.end_offset == store.commit_log_max_offset
    store.close()


def test_a_batch_is_not_split_over_files(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(bytes(2000)))
    result = put_batch(store, record(), [BatchItem(0, bytes(1000), b""), BatchItem(0, bytes(1000), b"")])
    assert result.places[0] == 4096
    assert result.places[1] < 8192
    store.close()


def test_batches_that_cannot_be_stored(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    item = BatchItem(0, b"x", b"")
    assert put_batch(store, record(), []).status is PutStatus.MESSAGE_ILLEGAL
    assert put_batch(store, record(sys_flag=TRANSACTION_PREPARED), [item]).status is PutStatus.MESSAGE_ILLEGAL
    assert put_batch(store, record(), [BatchItem(0, bytes(1000), b"")] * 4).status is PutStatus.MESSAGE_ILLEGAL
    long = BatchItem(0, b"", b"a" * 20_000)
    joined_too_long = put_batch(store, record(properties=b"b" * 20_000), [long])
    assert joined_too_long.status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    shared = record(properties=b"b" * 20_000)  # which each message gets
    assert put_batch(store, shared, [BatchItem(0, b"", b"")] * 300).status is PutStatus.MESSAGE_ILLEGAL
    assert store.commit_log_max_offset == 0
    store.close()


# --------------------------------------------------------------------------------------------------------------- limits


def test_limits_of_a_message(tmp_path: Path) -> None:
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 20, max_message_size=100_000)
    assert store.put(record(bytes(100_001))).status is PutStatus.MESSAGE_ILLEGAL
    assert store.put(record(properties=b"a" * 32768)).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.commit_log_max_offset == 0
    assert store.put(record(bytes(100_000), properties=b"a" * 32767)).status is PutStatus.PUT_OK
    store.close()


def test_a_message_larger_than_a_file_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    refused = store.put(record(bytes(4096)))
    assert refused.status is PutStatus.MESSAGE_ILLEGAL
    assert "needs 4188 bytes of the log" in refused.reason
    assert "mappedFileSizeCommitLog" in refused.reason
    assert store.put(record(bytes(4096 - 8 - 92))).status is PutStatus.PUT_OK
    store.close()


@pytest.mark.parametrize("topic", ["", "..", "a/b", "t" * 128])
def test_a_topic_that_is_no_directory_is_refused(tmp_path: Path, topic: str) -> None:
    store = open_store(tmp_path)
    with pytest.raises(MessageIllegal):
        store.put(record(topic=topic))
    store.close()


def test_a_full_disk_refuses_messages_and_keeps_serving(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk)
    store.put(record(b"kept"))
    disk.room = 0
    statuses = [store.put(record(bytes(1000))).status for _ in range(12)]
    assert statuses[-1] is PutStatus.SERVICE_NOT_AVAILABLE
    assert caplog.text.count("event=disk_full") == 1, "one line, not one a message"
    count = statuses.count(PutStatus.PUT_OK)
    assert len(bodies(store)) == count + 1
    disk.room = None
    assert store.put(record(b"again")).queue_offset == count + 1
    store.close()


def test_a_batch_is_entered_whole_or_not_stored(tmp_path: Path) -> None:
    """Its entries may need several files of the queue, which the disk may not have room for."""
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk, mapped_file_size_commit_log=1 << 20)
    store.put(record(b"first"))
    items = [BatchItem(0, b"%d" % number, b"") for number in range(25)]
    disk.room = 300
    assert put_batch(store, record(), items).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert bodies(store) == [b"first"]
    disk.room = 400
    assert put_batch(store, record(), items).queue_offset == 1
    assert len(bodies(store)) == 26
    store.close()
    assert len(list((tmp_path / "consumequeue/T/0").iterdir())) == 3
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 20)
    assert len(bodies(store)) == 26
    store.close()


def test_room_that_was_made_and_not_used_is_given_back(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk)
    store.put(record(b"first"))
    disk.room = 400
    items = [BatchItem(0, b"%d" % number, b"") for number in range(38)]
    assert put_batch(store, record(), items).status is PutStatus.SERVICE_NOT_AVAILABLE
    disk.room = None
    store.close()
    assert len(list((tmp_path / "consumequeue/T/0").iterdir())) == 1


def test_no_entry_without_room_for_it(tmp_path: Path) -> None:
    """A disk that fills up between log and queue must not leave a message that no consumer will see."""
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk, mapped_file_size_commit_log=1 << 20)
    for _ in range(10):
        store.put(record())
    disk.room = 100
    end = store.commit_log_max_offset
    assert store.put(record()).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert store.commit_log_max_offset == end
    store.close()


# ------------------------------------------------------------------------------------------------------- open and close


def test_everything_is_there_after_a_restart(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for number in range(60):
        store.put(record(b"%d" % number, queue_id=number % 3))
    store.close()
    assert not (tmp_path / "abort").exists()
    store = open_store(tmp_path)
    assert (tmp_path / "abort").exists()
    for queue_id in range(3):
        assert bodies(store, "T", queue_id) == [b"%d" % number for number in range(queue_id, 60, 3)]
    assert store.queue_ids("T") == [0, 1, 2]
    store.close()


def test_the_layout_on_disk_is_rocketmqs(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(35):
        store.put(record(topic="%RETRY%g"))
    store.close()
    found = sorted(str(path.relative_to(tmp_path)) for path in tmp_path.rglob("*") if path.is_file())
    assert found == [
        "checkpoint",
        "commitlog/00000000000000000000",
        "consumequeue/%RETRY%g/0/00000000000000000000",
        "consumequeue/%RETRY%g/0/00000000000000000200",
        "consumequeue/%RETRY%g/0/00000000000000000400",
        "consumequeue/%RETRY%g/0/00000000000000000600",
        "lock",
    ]
    assert (tmp_path / "commitlog/00000000000000000000").stat().st_size == 4096


def test_the_commit_log_may_lie_elsewhere(tmp_path: Path) -> None:
    store = open_store(tmp_path / "store", store_path_commit_log=str(tmp_path / "log"))
    store.put(record())
    store.close()
    assert [path.name for path in (tmp_path / "log").iterdir()] == ["0" * 20]
    assert not (tmp_path / "store" / "commitlog").exists()


def test_a_store_has_one_owner(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    with pytest.raises(StoreLocked, match=str(tmp_path)):
        open_store(tmp_path)
    store.put(record())
    store.close()
    open_store(tmp_path).close()


def test_a_damaged_directory_is_let_go(tmp_path: Path) -> None:
    (tmp_path / "commitlog").mkdir()
    stray = tmp_path / "commitlog" / "notes.txt"
    stray.write_text("mine")
    with pytest.raises(StoreDamaged, match=r"notes\.txt"):
        open_store(tmp_path)
    stray.unlink()
    open_store(tmp_path).close()


def test_a_directory_that_cannot_be_made_is_one_clear_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    with pytest.raises(StoreError, match=f"{tmp_path / 'file' / 'store'} cannot be used"):
        open_store(tmp_path / "file" / "store")


def test_a_store_that_is_not_open_says_so(tmp_path: Path) -> None:
    store = MessageStore(small_options(tmp_path), clock=ManualClock(), entry_codes=TAGS_ONLY)
    for act in (lambda: store.put(record()), lambda: put_batch(store, record(), []), lambda: store.get("T", 0, 0, 1)):
        with pytest.raises(StoreError, match="not open"):
            act()
    store.close()


def test_a_removed_topic_begins_anew(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    first = store.put(record(b"old"))
    store.put(record(b"other", topic="Other"))
    list(store.remove_topic("T"))
    assert not (tmp_path / "consumequeue" / "T" / "0").exists()
    assert store.queue_ids("T") == []
    assert store.put(record(b"new")).queue_offset == 0
    assert (bodies(store), bodies(store, "Other")) == ([b"new"], [b"other"])
    unit = store.unit_at(first.physical_offset)
    assert unit is not None
    assert decode_unit(unit).body == b"old"
    store.close()


def test_an_empty_store_has_no_message(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert (store.commit_log_min_offset, store.commit_log_max_offset, store.earliest_message_time) == (-1, 0, -1)
    assert (store.min_offset("T", 0), store.max_offset("T", 0), store.unit_at(0)) == (0, 0, None)
    store.close()


# -------------------------------------------------------------------------------------------------- several directories


def test_the_commit_log_may_lie_on_several_disks(tmp_path: Path) -> None:
    """Files take turns by their number, as with RocketMQ; one store is made of all."""
    a, b, old = (str(tmp_path / name) for name in ("a", "b", "old"))
    store = open_store(tmp_path / "store", store_path_commit_log=old)
    for number in range(3):
        store.put(record(b"%d" % number + bytes(3000)))
    store.close()
    changes = {"store_path_commit_log": f"{b}, {a}", "read_only_commit_log_store_paths": old}
    store = open_store(tmp_path / "store", **changes)
    for number in range(3, 7):
        store.put(record(b"%d" % number + bytes(3000)))
    store.close()
    names = {path: [int(file.name) // 4096 for file in sorted(Path(path).iterdir())] for path in (a, b, old)}
    assert names == {a: [4, 6], b: [3, 5], old: [0, 1, 2]}
    store = open_store(tmp_path / "store", **changes)
    assert [body[:1] for body in bodies(store)] == [b"%d" % number for number in range(7)]
    store.close()


def test_two_copies_of_one_log_file_are_refused(tmp_path: Path) -> None:
    changes = {"store_path_commit_log": f"{tmp_path / 'a'},{tmp_path / 'b'}"}
    store = open_store(tmp_path / "store", **changes)
    store.put(record())
    store.close()
    shutil.copytree(tmp_path / "a", tmp_path / "b", dirs_exist_ok=True)
    with pytest.raises(StoreDamaged, match="the same part of the log"):
        open_store(tmp_path / "store", **changes)
