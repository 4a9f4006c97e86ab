"""What one message costs in the store: microseconds a put, a batched put, a pull of 32, and a start after a crash.

    python bench/micro/store.py [--messages N] [--body BYTES] [--directory DIR]

Figures are processor time of the calling thread, which is what the broker's event loop would spend, and wall time in
brackets. Run it on a quiet machine; the first pass over fresh memory is slower than the later ones.
"""

from __future__ import annotations

import argparse
import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from orbitmq.message.batch import encode_batch
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutRecord, PutStatus

HOST = bytes([127, 0, 0, 1, 0, 0, 0x2A, 0x9F])
QUEUES = 8
PASSES = 3
BATCH = 32
PROPERTIES = (
    b"KEYS\x01order-10001\x02UNIQ_KEY\x017F0000014A2B18B4AAC20A1B2C3D0001\x02CLUSTER\x01DefaultCluster\x02TAGS\x01TagA"
)


def timed(what: str, messages: int, work: Callable[[], None]) -> None:
    wall, own = time.perf_counter(), time.thread_time()
    work()
    wall, own = time.perf_counter() - wall, time.thread_time() - own
    print(f"{what:34} {own / messages * 1e6:8.2f} us   ({wall / messages * 1e6:.2f})")


def opened(root: Path) -> MessageStore:
    store = MessageStore(StoreOptions(store_path_root_dir=str(root)), clock=SystemClock(), entry_codes=TAGS_ONLY)
    store.open()
    return store


def put_all(store: MessageStore, messages: int, body: bytes) -> None:
    for number in range(messages):
        record = PutRecord("TopicTest", number % QUEUES, body, PROPERTIES, 1_700_000_000_000, HOST, HOST)
        assert store.put(record).status is PutStatus.PUT_OK


def put_batches(store: MessageStore, messages: int, body: bytes) -> None:
    items = encode_batch([(0, body, PROPERTIES.decode())] * BATCH)
    for number in range(messages // BATCH):
        record = PutRecord("TopicBatch", number % QUEUES, items, b"CLUSTER\x01c", 1_700_000_000_000, HOST, HOST)
        assert store.put_batch(record).status is PutStatus.PUT_OK


def pull_all(store: MessageStore) -> None:
    for queue_id in range(QUEUES):
        offset = 0
        while (result := store.get("TopicTest", queue_id, offset, BATCH)).buffers:
            offset = result.next_offset


def measure(root: Path, messages: int, body: bytes) -> None:
    store = opened(root)
    for _ in range(PASSES):
        timed("put, one message", messages, lambda: put_all(store, messages, body))
    timed(f"put in batches of {BATCH}, one message", messages, lambda: put_batches(store, messages, body))
    timed(f"pull of {BATCH}, one pull", PASSES * messages // BATCH, lambda: pull_all(store))
    timed("close, whole", 1, store.close)
    timed("clean start, whole", 1, lambda: opened(root).close())
    (root / "abort").touch()
    timed("start after a crash, one message", (PASSES + 1) * messages, lambda: opened(root).close())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--messages", type=int, default=100_000)
    parser.add_argument("--body", type=int, default=1024)
    parser.add_argument("--directory", type=Path, help="where the store is made; it is removed afterwards")
    arguments = parser.parse_args()
    root = Path(tempfile.mkdtemp(prefix="orbitmq-bench-", dir=arguments.directory))
    try:
        measure(root, arguments.messages, b"x" * arguments.body)
    finally:
        shutil.rmtree(root)


if __name__ == "__main__":
    main()
