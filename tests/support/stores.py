"""Stores small enough to roll over after a few messages, with a clock and workers that the test turns itself."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.schedule import entry_codes
from orbitmq.broker.timers.accepting import TimerAcceptance
from orbitmq.broker.topics import Topics
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.message.unit import INT32, Unit, decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore, call
from orbitmq.store.files import Files
from orbitmq.store.options import StoreOptions
from orbitmq.store.pull_batch import GetResult
from orbitmq.store.queue_room import Deliver
from orbitmq.store.records import PutRecord

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
HOST_V6 = bytes(15) + b"\x01" + HOST[4:]
NEVER_MS = 1 << 40


def small_options(root: Path, **changes: Any) -> StoreOptions:
    """4 KiB log files, ten entries a queue file, workers that never run by themselves; no key index."""
    options = StoreOptions(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log=4096,
        mapped_file_size_consume_queue=200,
        flush_interval_commit_log_ms=NEVER_MS,
        flush_interval_consume_queue_ms=NEVER_MS,
        clean_resource_interval_ms=NEVER_MS,
        message_index_enable=False,
        max_hash_slot_num=7,
        max_index_num=20,
    )
    return options.replace(**changes)


CODES = entry_codes(parse_delay_levels(DEFAULT_DELAY_LEVELS))


def no_timers(store: MessageStore, clock: ManualClock) -> TimerAcceptance:
    """Of a broker that takes no timer messages."""
    options = BrokerOptions.parse({"timerWheelEnable": "false"})
    return TimerAcceptance(
        store, Topics(store.options.root, options, clock, lambda _: None), options, clock, lambda _: 0
    )


def open_store(
    root: Path,
    clock: ManualClock | None = None,
    files: Files | None = None,
    *,
    deliver: Deliver = call,
    **changes: Any,
) -> MessageStore:
    options = small_options(root, **changes)
    store = MessageStore(options, clock=clock or ManualClock(), entry_codes=CODES, files=files, deliver=deliver)
    store.open()
    return store


def abandon(store: MessageStore) -> None:
    """What is left of a store when its process dies: no thread, and nothing flushed."""
    for worker in store._workers:
        worker.stop()


def record(
    body: bytes = b"body", topic: str = "T", queue_id: int = 0, properties: bytes = b"", **fields: Any
) -> PutRecord:
    return PutRecord(topic, queue_id, body, properties, 1_600_000_000_000, HOST, HOST, **fields)


def units_of(result: GetResult) -> list[memoryview]:
    """The units of a read, one by one."""
    found = []
    for buffer in result.buffers:
        rest = buffer
        while rest:
            (size,) = INT32.unpack_from(rest)
            assert 0 < size <= len(rest), "a buffer holds whole units"
            found.append(rest[:size])
            rest = rest[size:]
    assert (len(found), sum(map(len, found))) == (result.count, result.size)
    return found


def units(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[Unit]:
    """Every message of a queue, read the way a consumer reads."""
    found: list[Unit] = []
    offset = int(store.min_offset(topic, queue_id))
    while (result := store.get(topic, queue_id, offset, 32)).buffers:
        found += map(decode_unit, units_of(result))
        offset = result.next_offset
    return found


def bodies(store: MessageStore, topic: str = "T", queue_id: int = 0) -> list[bytes]:
    return [unit.body for unit in units(store, topic, queue_id)]
