"""Messages that enter further queues."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.errors import MessageIllegal
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import decode_properties
from orbitmq.message.topics import DLQ_PREFIX, HALF_TOPIC, RETRY_PREFIX, SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.multi_dispatch import MultiDispatch, with_offsets
from orbitmq.store.records import PutStatus
from tests.support.batches import BatchItem, put_batch
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record, small_options

BOTH = MultiDispatch(is_enabled=True, with_light_queues=True)
ON = {"enable_multi_dispatch": True, "enable_lmq": True}


def to(*names: str, more: bytes = b"") -> bytes:
    return b"INNER_MULTI_DISPATCH\x01" + ",".join(names).encode() + more


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (to("A"), [("A", 3)]),
        (to("A", "%LMQ%b", "C"), [("A", 3), ("%LMQ%b", 0), ("C", 3)]),
        (to("A", ""), [("A", 3)]),
        (to(" "), []),
        (b"TAGS\x01INNER_MULTI_DISPATCH", []),
        (b"", []),
    ],
)
def test_a_message_names_its_further_queues(properties: bytes, expected: list[tuple[str, int]]) -> None:
    assert BOTH.queues("T", 3, properties) == expected
    assert MultiDispatch().queues("T", 3, properties) == []


def test_without_light_queues_every_queue_has_the_number_of_the_messages_own() -> None:
    assert MultiDispatch(is_enabled=True).queues("T", 3, to("%LMQ%b")) == [("%LMQ%b", 3)]


@pytest.mark.parametrize("topic", [SCHEDULE_TOPIC, HALF_TOPIC, RETRY_PREFIX + "g", DLQ_PREFIX + "g"])
def test_a_message_that_waits_does_not_enter_them_yet(topic: str) -> None:
    assert BOTH.queues(topic, 0, to("A")) == []


def test_offsets_are_stored_and_the_wish_to_wait_is_not() -> None:
    text = with_offsets(b"WAIT\x01true\x02INNER_MULTI_QUEUE_OFFSET\x019\x02TAGS\x01a\x02" + to("A", "B"), [4, 5])
    assert decode_properties(text.decode()) == {
        "TAGS": "a", "INNER_MULTI_DISPATCH": "A,B", "INNER_MULTI_QUEUE_OFFSET": "4,5",
    }  # fmt: skip
    assert BOTH.entries("T", 1, text) == [("A", 1, 4), ("B", 1, 5)]


@pytest.mark.parametrize("offsets", [b"1", b"1,2,3", b"1,x", b"1,-2", b""])
def test_offsets_that_do_not_fit_the_names_are_not_used(offsets: bytes) -> None:
    assert BOTH.entries("T", 0, to("A", "B", more=b"\x02INNER_MULTI_QUEUE_OFFSET\x01" + offsets)) == []


# ------------------------------------------------------------------------------------------------ in a store


def filled(root: Path, **changes: object) -> MessageStore:
    store = open_store(root, ManualClock(), **{**ON, **changes})
    for number in range(40):
        names = ("%LMQ%all", "Copy") if number % 2 else ("%LMQ%all",)
        store.put(record(b"%d" % number, queue_id=number % 2, properties=to(*names, more=b"\x02TAGS\x01a")))
    return store


def check(store: MessageStore) -> None:
    everything, odd = [b"%d" % number for number in range(40)], [b"%d" % number for number in range(1, 40, 2)]
    assert bodies(store, "%LMQ%all", 0) == everything
    assert bodies(store, "T", 1) == bodies(store, "Copy", 1) == odd
    assert store.max_offset("Copy", 0) == 0
    unit = decode_unit(store.get("T", 1, 19, 1).buffers[0])
    assert decode_properties(unit.properties)["INNER_MULTI_QUEUE_OFFSET"] == "39,19"


def test_a_message_is_read_from_every_queue_it_names(tmp_path: Path) -> None:
    store = filled(tmp_path)
    check(store)
    assert {entry[2] for entry in store.entries("%LMQ%all", 0, 0, 99)} == {tags_code("a")}
    store.close()
    store = open_store(tmp_path, **ON)
    check(store)
    store.close()


def test_the_queues_are_made_anew_from_the_log(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = filled(tmp_path, mapped_file_size_commit_log=16384)
    store.close()
    for path in sorted((tmp_path / "consumequeue").rglob("*"), reverse=True):
        path.rmdir() if path.is_dir() else path.unlink()
    store = open_store(tmp_path, files=disk, mapped_file_size_commit_log=16384, **ON)
    check(store)
    abandon(store)
    disk.kill()
    store = open_store(tmp_path, mapped_file_size_commit_log=16384, **ON)
    check(store)
    store.close()


def test_readers_of_every_queue_are_told(tmp_path: Path) -> None:
    arrived: list[tuple[str, int, int]] = []
    options = small_options(tmp_path, **ON)
    store = MessageStore(
        options, clock=ManualClock(), entry_codes=TAGS_ONLY, on_arrival=lambda *what: arrived.append(what[:3])
    )
    store.open()
    store.put(record(queue_id=2, properties=to("Copy", "%LMQ%a")))
    store.put(record(queue_id=2, properties=to("%LMQ%a")))
    assert arrived == [("T", 2, 1), ("Copy", 2, 1), ("%LMQ%a", 0, 1), ("T", 2, 2), ("%LMQ%a", 0, 2)]
    store.close()


def test_a_half_message_enters_no_queue(tmp_path: Path) -> None:
    store = open_store(tmp_path, **ON)
    store.put(record(properties=to("Copy"), sys_flag=TRANSACTION_PREPARED))
    assert store.max_offset("Copy", 0) == store.max_offset("T", 0) == 0
    store.close()


def test_a_queue_named_twice_gets_the_message_once(tmp_path: Path) -> None:
    store = open_store(tmp_path, **ON)
    for _ in range(2):
        store.put(record(b"x", properties=to("A", "A", "T")))
    assert (store.max_offset("A", 0), store.max_offset("T", 0)) == (2, 2)
    store.close()


def test_a_name_that_cannot_be_stored_stores_nothing(tmp_path: Path) -> None:
    store = open_store(tmp_path, **ON)
    with pytest.raises(MessageIllegal):
        store.put(record(properties=to("A", "../B")))
    assert store.commit_log_max_offset == store.max_offset("T", 0) == 0
    store.close()


def test_properties_that_grow_too_long_are_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 20, **ON)
    more = b"\x02x\x01" + bytes(32767 - len(to("A")) - 3)
    assert store.put(record(properties=to("A", more=more))).status is PutStatus.PROPERTIES_SIZE_EXCEEDED
    assert store.put(record(properties=more)).status is PutStatus.PUT_OK
    store.close()


def test_a_light_queue_too_many_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path, max_lmq_consume_queue_num=2, **ON)
    for name, status in [
        ("%LMQ%a", PutStatus.PUT_OK),
        ("%LMQ%b", PutStatus.PUT_OK),
        ("%LMQ%c", PutStatus.LMQ_CONSUME_QUEUE_NUM_EXCEEDED),
        ("%LMQ%a", PutStatus.PUT_OK),
        ("Copy", PutStatus.PUT_OK),
    ]:
        assert store.put(record(properties=to(name))).status is status
    store.close()


def test_a_full_disk_leaves_no_half_entered_message(tmp_path: Path) -> None:
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk, **ON)
    store.put(record(b"one", properties=to("A")))
    disk.room = 0
    assert store.put(record(b"two", properties=to("A", "New"))).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert (store.max_offset("T", 0), store.max_offset("A", 0), store.max_offset("New", 0)) == (1, 1, 0)
    disk.room = None
    assert store.put(record(b"two", properties=to("A", "New"))).status is PutStatus.PUT_OK
    assert bodies(store, "A") == [b"one", b"two"]
    assert bodies(store, "New") == [b"two"]
    store.close()


def test_a_message_that_came_back_enters_nothing_again(tmp_path: Path) -> None:
    """It still has the offsets that it got at first; to believe them would cut the queues there."""
    disk = FaultyDisk()
    store = open_store(tmp_path, files=disk, **ON)
    for number in range(3):
        store.put(record(b"%d" % number, properties=to("%LMQ%all")))
    unit = decode_unit(store.get("T", 0, 0, 1).buffers[0])
    assert "INNER_MULTI_QUEUE_OFFSET" in decode_properties(unit.properties)
    for topic in ("%RETRY%g", "%DLQ%g"):
        store.put(record(b"again", topic, properties=unit.properties.encode()))
    expected = [b"0", b"1", b"2"]
    assert bodies(store, "%LMQ%all", 0) == expected
    abandon(store)
    disk.kill()
    store = open_store(tmp_path, **ON)
    assert store.was_killed
    assert bodies(store, "%LMQ%all", 0) == expected
    assert bodies(store, "%RETRY%g", 0) == [b"again"]
    store.close()


@pytest.mark.parametrize("in_own", [True, False])
def test_a_batch_names_no_further_queues(tmp_path: Path, in_own: bool) -> None:
    """Nothing would give its messages offsets there, and a start after a crash would believe those they bring along."""
    forged = to("%LMQ%all", "SCHEDULE_TOPIC_XXXX", more=b"\x02INNER_MULTI_QUEUE_OFFSET\x010,0")
    item = BatchItem(0, b"body", forged if in_own else b"")
    shared = record(properties=b"" if in_own else forged)
    for options, status in ((ON, PutStatus.MESSAGE_ILLEGAL), ({}, PutStatus.PUT_OK)):
        store = open_store(tmp_path / status.name, **options)
        assert put_batch(store, shared, [item]).status is status
        store.close()


def test_offsets_in_a_queue_of_the_brokers_own_are_not_believed() -> None:
    forged = to("A", "SCHEDULE_TOPIC_XXXX", more=b"\x02INNER_MULTI_QUEUE_OFFSET\x014,5")
    assert BOTH.entries("T", 1, forged) == [("A", 1, 4)]
