"""What a delayed message costs when it is due: microseconds a delivery, and how long the event loop is kept at a time.

    python bench/micro/delay.py [--messages N] [--levels N] [--body BYTES] [--directory DIR]

First everything is due at once. Then messages come due steadily, 10,000 a second, spread over the levels, and the
figures are how late each was stored under its real topic. Processor time is that of the event loop's thread. Run it on
a quiet machine.
"""

from __future__ import annotations

import argparse
import asyncio
import shutil
import tempfile
import time
from pathlib import Path

from orbitmq.broker.delay import DelayedDelivery
from orbitmq.broker.schedule import entry_codes
from orbitmq.message.properties import encode_properties
from orbitmq.message.topics import SCHEDULE_TOPIC
from orbitmq.message.unit import decode_unit, store_timestamp_of
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutRecord, PutStatus

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
TOPIC = "DelayBench"
QUEUES = 8
DELAY_MS = 1000  # of every level
RATE = 10_000  # due messages a second
STEADY_SECONDS = 5
SLICE_SECONDS = 0.01


def put_aside(store: MessageStore, level: int, number: int, body: bytes) -> None:
    """A message as a send leaves it in the schedule topic."""
    real = {"REAL_TOPIC": TOPIC, "REAL_QID": str(number % QUEUES), "DELAY": str(level)}
    text = encode_properties({"KEYS": f"order-{number}", "TAGS": "TagA", "CLUSTER": "c", **real}).encode()
    record = PutRecord(SCHEDULE_TOPIC, level - 1, body, text, SystemClock().now_ms(), HOST, HOST)
    assert store.put(record).status is PutStatus.PUT_OK


def all_at_once(store: MessageStore, delivery: DelayedDelivery, messages: int, levels: int, body: bytes) -> None:
    for number in range(messages):
        put_aside(store, number % levels + 1, number, body)
    time.sleep(DELAY_MS / 1000 + 0.1)
    turns, own = [], time.thread_time()
    while True:
        begun = time.perf_counter()
        more = delivery.deliver_turn()
        turns.append((time.perf_counter() - begun) * 1000)
        if not more:
            break
    own = time.thread_time() - own
    turns.sort()
    print(
        f"all at once     {own / messages * 1e6:8.2f} us a message, {messages / own:,.0f} messages/s of processor time"
    )
    print(f"                turns: median {turns[len(turns) // 2]:.2f} ms, longest {turns[-1]:.2f} ms")


async def steadily(store: MessageStore, delivery: DelayedDelivery, levels: int, body: bytes) -> None:
    before = [store.max_offset(TOPIC, queue) for queue in range(QUEUES)]
    delivery.start()
    own, begun = time.thread_time(), time.perf_counter()
    slices = round(STEADY_SECONDS / SLICE_SECONDS)
    for turn in range(slices):
        for number in range(round(RATE * SLICE_SECONDS)):
            put_aside(store, number % levels + 1, number, body)
        await asyncio.sleep(max(0.0, begun + (turn + 1) * SLICE_SECONDS - time.perf_counter()))
    await asyncio.sleep(DELAY_MS / 1000 + 1)
    assert sum(store.max_offset(TOPIC, queue) for queue in range(QUEUES)) == sum(before) + RATE * STEADY_SECONDS
    own, wall = time.thread_time() - own, time.perf_counter() - begun
    await delivery.stop()
    late = sorted(lateness(store, before))
    shares = ", ".join(f"p{share} {late[int(len(late) * share / 100)]} ms" for share in (50, 99))
    print(f"{RATE:,}/s due      {own / wall:8.0%} of one processor with the puts; late: {shares}, most {late[-1]} ms")


def lateness(store: MessageStore, before: list[int]) -> list[int]:
    """Milliseconds between the time each message was due and the time it was stored under its real topic."""
    found = []
    for queue, start in enumerate(before):
        for place, _, _ in store.entries(TOPIC, queue, start, RATE * STEADY_SECONDS):
            unit = store.unit_at(place)
            assert unit is not None
            found.append(store_timestamp_of(unit) - decode_unit(unit, with_body=False).born_timestamp - DELAY_MS)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--levels", type=int, default=18)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--directory", type=Path)
    chosen = parser.parse_args()
    root = Path(tempfile.mkdtemp(dir=chosen.directory))
    levels = (DELAY_MS,) * chosen.levels
    options = StoreOptions(store_path_root_dir=str(root))
    store = MessageStore(options, clock=SystemClock(), entry_codes=entry_codes(levels))
    store.open()
    try:
        delivery = DelayedDelivery(store, levels, root / "config", SystemClock())
        all_at_once(store, delivery, chosen.messages, chosen.levels, bytes(chosen.body))
        asyncio.run(steadily(store, delivery, chosen.levels, bytes(chosen.body)))
    finally:
        store.close()
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
