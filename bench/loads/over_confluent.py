"""The package `confluent-kafka` of PyPI, librdkafka behind an extension of C, under load at a Kafka broker: one row.

It gathers into batches by itself, so batches of a caller and sends without a response would measure the same again.
"""

from __future__ import annotations

import argparse
import threading
import time
from concurrent.futures import Future
from typing import Any

from confluent_kafka import Consumer, KafkaError, Producer
from meter import BODY, TAG, Meter, arguments, key, measure_reads, measure_sends, report

GROUP = f"readers-{time.time_ns()}"
HEADERS = [("TAGS", TAG.encode())]
WAIT_S = 1
READ_AHEAD_PAUSE_MS = 10  # by default it reads nothing for a second once it is far enough ahead


def send(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    producer = Producer({"bootstrap.servers": told.namesrv, "linger.ms": 0, "message.timeout.ms": 10_000})
    free = threading.Semaphore(told.in_flight)
    stopped = threading.Event()

    def begin() -> Future[None]:
        began, sent = time.perf_counter(), Future[None]()

        def done(error: KafkaError | None, _: object) -> None:
            if error is None:
                meter.done(1, began)
            else:
                meter.errors += 1
            sent.set_result(None)

        producer.produce(told.topic, BODY, key(meter.total), headers=HEADERS, on_delivery=done)
        return sent

    def alone() -> None:
        begin()
        producer.flush()

    def beside_others() -> None:  # `flush` would wait for theirs
        begin().result()

    def pipelined() -> None:
        while not free.acquire(blocking=False):
            producer.poll(WAIT_S)
        begin().add_done_callback(lambda _: free.release())

    def repeat() -> None:
        while not stopped.is_set():
            act()

    def serve() -> None:
        while any(thread.is_alive() for thread in threads):
            producer.poll(WAIT_S)

    act = pipelined if told.work == "async" else alone if told.senders == 1 else beside_others
    threads = [threading.Thread(target=repeat) for _ in range(1 if told.work == "async" else told.senders)]
    for thread in threads:
        thread.start()
    if act is beside_others:
        threading.Thread(target=serve).start()
    row = measure_sends(meter, told)
    stopped.set()
    for thread in threads:
        thread.join()
    producer.flush()
    return row


def read(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    consumer = Consumer({
        "bootstrap.servers": told.namesrv,
        "group.id": GROUP,
        "auto.offset.reset": "earliest",
        "fetch.queue.backoff.ms": READ_AHEAD_PAUSE_MS,
    })  # fmt: skip
    consumer.subscribe([told.topic])
    stopped = threading.Event()

    def push() -> None:
        found = consumer.poll(WAIT_S)
        if found is not None and found.error() is None:
            meter.total += 1

    def poll() -> None:
        meter.total += sum(found.error() is None for found in consumer.consume(told.batch, WAIT_S))

    act = {"push": push, "poll": poll}[told.work]

    def repeat() -> None:
        while not stopped.is_set():
            act()

    reader = threading.Thread(target=repeat)
    reader.start()
    row = measure_reads(meter, told)
    stopped.set()
    reader.join()
    consumer.close()
    return row


WORKS = {"sync": send, "async": send, "push": read, "poll": read}

if __name__ == "__main__":
    asked = arguments(WORKS)
    measured = Meter()
    report(WORKS[asked.work](asked, measured), measured)
