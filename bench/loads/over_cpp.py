"""The package `rocketmq` of PyPI, RocketMQ's client for C++ behind ctypes, under load: one row of figures."""

from __future__ import annotations

import argparse
import os
import threading
import time
from typing import Any

from meter import BODY, TAG, Meter, arguments, key, measure_reads, measure_sends, report
from rocketmq.client import Message, Producer, PullConsumer, PushConsumer

GROUP = f"readers-{time.time_ns()}"
LISTENERS = 20  # what the other clients come with


def message(told: argparse.Namespace, number: int) -> Message:
    made = Message(told.topic)
    made.set_keys(key(number))
    made.set_tags(TAG)
    made.set_body(BODY)
    return made


def send(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    producer = Producer("senders", timeout=10_000)
    producer.set_namesrv_addr(told.namesrv)
    producer.start()
    free = threading.Semaphore(told.in_flight)
    stopped = threading.Event()

    def one(began: float) -> None:
        producer.send_sync(message(told, meter.total))
        meter.done(1, began)

    def oneway(began: float) -> None:
        producer.send_oneway(message(told, meter.total))
        meter.done(1, began)

    def batch(began: float) -> None:
        producer.send_batch([message(told, meter.total + number) for number in range(told.batch)])
        meter.done(told.batch, began)

    def pipelined(_: float) -> None:
        free.acquire()
        began = time.perf_counter()

        def success(_: object) -> None:
            free.release()
            meter.done(1, began)

        def failure(_: object) -> None:
            free.release()
            meter.errors += 1

        producer.send_async(message(told, meter.total), success, failure)

    act = {"sync": one, "oneway": oneway, "batch": batch, "async": pipelined}[told.work]

    def repeat() -> None:
        while not stopped.is_set():
            try:
                act(time.perf_counter())
            except Exception:
                meter.errors += 1

    threads = [threading.Thread(target=repeat) for _ in range(1 if told.work == "async" else told.senders)]
    for thread in threads:
        thread.start()
    row = measure_sends(meter, told)
    stopped.set()
    for thread in threads:
        thread.join()
    producer.shutdown()
    return row


def push(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    def listen(one: Any) -> None:
        one.body  # noqa: B018 - read when asked for, as an application would
        meter.total += 1

    consumer = PushConsumer(GROUP)
    consumer.set_namesrv_addr(told.namesrv)
    consumer.set_thread_count(LISTENERS)
    consumer.subscribe(told.topic, listen)
    consumer.start()
    return measure_reads(meter, told)


def poll(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    consumer = PullConsumer(GROUP)
    consumer.set_namesrv_addr(told.namesrv)
    consumer.start()

    def read() -> None:
        for one in consumer.pull(told.topic, max_num=told.batch):
            one.body  # noqa: B018 - see above
            meter.total += 1

    threading.Thread(target=read, daemon=True).start()
    return measure_reads(meter, told)


WORKS = {"sync": send, "async": send, "oneway": send, "batch": send, "push": push, "poll": poll}

if __name__ == "__main__":
    asked = arguments(WORKS)
    measured = Meter()
    report(WORKS[asked.work](asked, measured), measured)
    os._exit(0)  # its threads do not end while messages come
