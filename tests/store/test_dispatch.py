"""What a message becomes in its queue."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.message.flags import TRANSACTION_COMMIT, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from tests.support.batches import BatchItem, put_batch
from tests.support.stores import abandon, open_store, record

NOW = 1_700_000_000_000


def code(store: MessageStore, topic: str = "T", offset: int = 0) -> int:
    return store.entries(topic, 0, offset, 1)[0][2]


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"TAGS\x01TagA", 2598919),
        (b"TAGS\x01polygenelubricants\x02KEYS\x01k", -(2**31)),
        ("TAGS\x01中文".encode(), 646394),
        (b"KEYS\x01TAGS", 0),
        (b"", 0),
        (b"DELAY\x013\x02TAGS\x01TagA", 2598919),
    ],
)
def test_an_entry_holds_the_hash_of_the_tags(tmp_path: Path, properties: bytes, expected: int) -> None:
    store = open_store(tmp_path)
    store.put(record(properties=properties))
    assert code(store) == expected
    store.close()


@pytest.mark.parametrize(
    ("properties", "expected"),
    [
        (b"TAGS\x01TagA\x02DELAY\x013", NOW + 10_000),
        (b"DELAY\x0140", NOW + 7_200_000),
        (b"DELAY\x010\x02TAGS\x01TagA", 2598919),
        (b"TAGS\x01TagA", 2598919),
    ],
)
def test_an_entry_of_the_delay_topic_holds_when_it_is_due(tmp_path: Path, properties: bytes, expected: int) -> None:
    store = open_store(tmp_path, ManualClock(NOW))
    store.put(record(topic=SCHEDULE_TOPIC, properties=properties))
    put_batch(store, record(topic=SCHEDULE_TOPIC), [BatchItem(0, b"", properties)])
    assert [code(store, SCHEDULE_TOPIC, offset) for offset in (0, 1)] == [expected] * 2
    store.close()


def test_a_rebuilt_queue_is_the_same(tmp_path: Path) -> None:
    """RocketMQ loses due times in a rebuild, because it parses its levels too late; orbitmq does not."""
    store = open_store(tmp_path, ManualClock(NOW))
    for number in range(30):
        store.put(record(topic=SCHEDULE_TOPIC, properties=b"DELAY\x01%d" % number))
        store.put(record(properties=b"TAGS\x01%d" % number))
    before = [store.entries(topic, 0, 0, 99) for topic in ("T", SCHEDULE_TOPIC)]
    store.close()
    for topic in ("T", SCHEDULE_TOPIC):
        for file in (tmp_path / "consumequeue" / topic / "0").iterdir():
            file.unlink()
    store = open_store(tmp_path)
    assert [store.entries(topic, 0, 0, 99) for topic in ("T", SCHEDULE_TOPIC)] == before
    store.close()


@pytest.mark.parametrize("sys_flag", [TRANSACTION_PREPARED, TRANSACTION_ROLLBACK])
def test_undecided_messages_are_in_the_log_only(tmp_path: Path, sys_flag: int) -> None:
    store = open_store(tmp_path)
    arrived: list[int] = []
    store._arrivals._on_arrival = lambda *_: arrived.append(1)
    store.put(record(b"first"))
    result = store.put(record(b"undecided", sys_flag=sys_flag))
    store.put(record(b"second"))
    assert (result.queue_offset, store.max_offset("T", 0), len(arrived)) == (0, 2, 2)
    assert b"undecided" in bytes(store.unit_at(result.physical_offset) or b"")
    abandon(store)
    store._release()
    store = open_store(tmp_path)
    assert store.max_offset("T", 0) == 2
    store.close()


def test_committed_messages_are_queued(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    assert store.put(record(sys_flag=TRANSACTION_COMMIT, prepared_transaction_offset=7)).queue_offset == 0
    assert store.max_offset("T", 0) == 1
    store.close()
