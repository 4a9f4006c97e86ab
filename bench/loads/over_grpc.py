"""The package `rocketmq-python-client` of PyPI, which speaks gRPC to the proxy of RocketMQ 5, under load: one row.

It has neither oneway sends nor batches.
"""

from __future__ import annotations

import argparse
import asyncio
import os
import threading
import time
from concurrent.futures import Future
from typing import Any

from meter import BODY, TAG, Meter, arguments, key, measure_reads, measure_sends, report
from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
)

GROUP = f"readers-{time.time_ns()}"
INVISIBLE_S = 60
PAUSE_S = 0.1


def configuration(told: argparse.Namespace) -> ClientConfiguration:
    return ClientConfiguration(told.namesrv, Credentials(), request_timeout=10)


def message(told: argparse.Namespace, number: int) -> Message:
    made = Message()
    made.topic = told.topic
    made.body = BODY
    made.tag = TAG
    made.keys = key(number)
    return made


def send(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    producer = Producer(configuration(told), (told.topic,))
    producer.startup()
    free = threading.Semaphore(told.in_flight)

    def one(began: float) -> None:
        producer.send(message(told, meter.total))
        meter.done(1, began)

    def pipelined(_: float) -> None:
        free.acquire()
        began = time.perf_counter()

        def done(future: Future[Any]) -> None:
            free.release()
            if future.exception() is None:
                meter.done(1, began)
            else:
                meter.errors += 1

        producer.send_async(message(told, meter.total)).add_done_callback(done)

    act = {"sync": one, "async": pipelined}[told.work]

    def repeat() -> None:
        while True:
            try:
                act(time.perf_counter())
            except Exception:
                meter.errors += 1

    for _ in range(1 if told.work == "async" else told.senders):
        threading.Thread(target=repeat, daemon=True).start()
    return measure_sends(meter, told)


def push(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    class Listener(MessageListener):
        def consume(self, _: Message) -> ConsumeResult:
            meter.total += 1
            return ConsumeResult.SUCCESS

    consumer = PushConsumer(configuration(told), GROUP, Listener(), {told.topic: FilterExpression()})
    consumer.startup()
    return measure_reads(meter, told)


def poll(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    consumer = SimpleConsumer(configuration(told), GROUP, {told.topic: FilterExpression()})
    consumer.startup()

    def read() -> None:
        asyncio.set_event_loop(asyncio.new_event_loop())  # it asks for the one of its caller's thread
        while True:
            try:
                for one in consumer.receive(told.batch, INVISIBLE_S):
                    consumer.ack_async(one)
                    meter.total += 1
            except Exception:  # the proxy refuses until it has heard of the client
                time.sleep(PAUSE_S)

    threading.Thread(target=read, daemon=True).start()
    return measure_reads(meter, told)


WORKS = {"sync": send, "async": send, "push": push, "poll": poll}

if __name__ == "__main__":
    asked = arguments(WORKS)
    measured = Meter()
    report(WORKS[asked.work](asked, measured), measured)
    os._exit(0)  # its threads do not end while messages come
