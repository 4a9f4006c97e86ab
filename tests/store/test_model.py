"""The store against a list: puts, flushes, restarts, kills and power cuts in any order.

The promise: after a crash the store holds a prefix of what was stored, and everything that was flushed is in it.
"""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

from hypothesis import Phase, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from orbitmq.message.batch import BatchItem
from orbitmq.message.flags import TRANSACTION_PREPARED
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.records import PutResult, PutStatus
from tests.support.disk import FaultyDisk
from tests.support.stores import abandon, bodies, open_store, record, units

QUEUES = [("T", 0), ("T", 1), ("Other", 0)]


class StoreModel(RuleBasedStateMachine):
    """`stored` is the log as (topic, queue id, body, end offset); queue id -1 for messages in no queue."""

    def __init__(self) -> None:
        super().__init__()
        self.root = Path(tempfile.mkdtemp())
        self.clock = ManualClock()
        self.disk = FaultyDisk()
        self.stored: list[tuple[str, int, bytes, int]] = []
        self.flushed = 0
        self.number = 0

    @initialize()
    def open(self) -> None:
        self.store = open_store(self.root, self.clock, self.disk)

    def teardown(self) -> None:
        self.store.close()
        shutil.rmtree(self.root)

    def body(self, size: int) -> bytes:
        self.number += 1
        return b"%06d" % self.number + bytes(size)

    def keep(self, result: PutResult, topic: str, queue_id: int, *stored: bytes) -> None:
        assert result.status is PutStatus.PUT_OK
        places = [*(result.places or (result.physical_offset,))[1:], result.end_offset]
        self.stored += [(topic, queue_id, body, end) for body, end in zip(stored, places, strict=True)]

    @rule(queue=st.sampled_from(QUEUES), size=st.integers(0, 1500), step_ms=st.integers(0, 2000))
    def put(self, queue: tuple[str, int], size: int, step_ms: int) -> None:
        self.clock.advance(step_ms)
        body = self.body(size)
        self.keep(self.store.put(record(body, *queue, b"TAGS\x01A")), *queue, body)

    @rule(queue=st.sampled_from(QUEUES), sizes=st.lists(st.integers(0, 400), min_size=1, max_size=6))
    def put_batch(self, queue: tuple[str, int], sizes: list[int]) -> None:
        items = [BatchItem(0, self.body(size), b"KEYS\x01k") for size in sizes]
        result = self.store.put_batch(record(b"", *queue, b"WAIT\x01true"), items)
        self.keep(result, *queue, *(item.body for item in items))

    @rule(queue=st.sampled_from(QUEUES))
    def put_prepared(self, queue: tuple[str, int]) -> None:
        body = self.body(10)
        result = self.store.put(record(body, *queue, sys_flag=TRANSACTION_PREPARED))
        self.keep(result, queue[0], -1, body)

    @rule()
    def flush_log(self) -> None:
        self.store._log_flusher.flush()
        self.flushed = len(self.stored)

    @rule()
    def flush_queues_and_checkpoint(self) -> None:
        self.store._queue_flusher.flush()

    @rule()
    def restart(self) -> None:
        self.store.close()
        self.flushed = len(self.stored)
        self.open()

    @rule()
    def kill(self) -> None:
        abandon(self.store)
        self.disk.kill()
        self.open()

    @rule(data=st.data())
    def lose_power(self, data: st.DataObject) -> None:
        fates = data.draw(st.lists(st.booleans(), min_size=1, max_size=7))
        turn = iter(range(1 << 30))
        abandon(self.store)
        self.disk.lose_power(lambda: fates[next(turn) % len(fates)])
        self.open()
        end = self.store.commit_log_max_offset
        kept = sum(entry[3] <= end for entry in self.stored)
        assert kept >= self.flushed, "a flushed message is gone"
        self.stored = self.stored[:kept]
        self.flushed = kept

    @invariant()
    def queues_hold_what_was_stored(self) -> None:
        if not hasattr(self, "store"):
            return
        for topic, queue_id in QUEUES:
            expected = [body for t, q, body, _ in self.stored if (t, q) == (topic, queue_id)]
            assert bodies(self.store, topic, queue_id) == expected
            assert self.store.max_offset(topic, queue_id) == len(expected)
            assert [unit.queue_offset for unit in units(self.store, topic, queue_id)] == list(range(len(expected)))


TestStoreModel = StoreModel.TestCase
# No shrinking: a step opens files and syncs them, so making a failure smaller takes minutes; it is printed as found.
PHASES = (Phase.explicit, Phase.reuse, Phase.generate)
TestStoreModel.settings = settings(max_examples=40, stateful_step_count=30, deadline=None, phases=PHASES)
