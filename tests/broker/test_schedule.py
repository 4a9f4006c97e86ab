"""What queue entries of the delay topic hold, and that delayed messages do not come in batches."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.schedule import DueTime, delay_level
from orbitmq.broker.statistics import Statistics
from orbitmq.message.batch import encode_batch
from orbitmq.replication.master import Replicas
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.records import ILLEGAL_BATCH, PutStatus
from tests.support.stores import no_timers, open_store, record


@pytest.mark.parametrize(
    ("properties", "level"), [(b"DELAY\x013", 3), (b"TAGS\x01a\x02DELAY\x0140", 40), (b"DELAY\x01x", 0), (b"", 0)]
)
def test_the_delay_level_of_a_message(properties: bytes, level: int) -> None:
    assert delay_level(properties) == level


def test_an_entry_holds_when_its_message_is_due() -> None:
    due_time = pickle.loads(pickle.dumps(DueTime((1000, 5000))))
    assert due_time(b"DELAY\x012", 100) == 5100
    assert due_time(b"DELAY\x019", 100) == 5100, "a level beyond the table counts as its last one"
    assert due_time(b"TAGS\x01a", 100) is None, "its entry holds the hash of the tags"


def test_a_delayed_batch_is_refused(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    clock = ManualClock()
    writing = MessageWriter(
        store, 18, no_timers(store, clock), Statistics(store, "c", clock), Replicas(store, store.options, clock)
    )
    assert writing.put_batch(record(encode_batch([(0, b"x", "")]), properties=b"DELAY\x013")) is ILLEGAL_BATCH
    assert writing.put_batch(record(encode_batch([(0, b"x", "")]))).status is PutStatus.PUT_OK
    store.close()
