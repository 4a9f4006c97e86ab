"""orbitmq's synchronous client under load: `threads.py <work> ...`, one row of figures."""

from __future__ import annotations

import argparse
import threading
import time
from collections.abc import Callable, Sequence
from concurrent.futures import Future
from typing import Any

from meter import BODY, TAG, Meter, arguments, key, measure_reads, measure_sends, report

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    OrbitMQError,
    SendResult,
)
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
GROUP = f"readers-{time.time_ns()}"


class Sending:
    """Threads that send until told to stop."""

    def __init__(self, told: argparse.Namespace, meter: Meter) -> None:
        self._told = told
        self._meter = meter
        self._stopped = False
        self._free = threading.Semaphore(told.in_flight)
        self._acts: dict[str, Callable[[Producer, float], None]] = {
            "sync": self._send, "async": self._begin, "oneway": self._oneway, "batch": self._batch
        }  # fmt: skip

    def run(self) -> dict[str, Any]:
        with Producer("senders", self._told.namesrv, send_timeout_ms=10_000) as producer:
            senders = 1 if self._told.work == "async" else self._told.senders
            threads = [threading.Thread(target=self._repeat, args=(producer,)) for _ in range(senders)]
            for thread in threads:
                thread.start()
            row = measure_sends(self._meter, self._told)
            self._stopped = True
            for thread in threads:
                thread.join()
        return row

    def _repeat(self, producer: Producer) -> None:
        act = self._acts[self._told.work]
        while not self._stopped:
            try:
                act(producer, time.perf_counter())
            except OrbitMQError:
                self._meter.errors += 1

    def _message(self, number: int) -> Message:
        return Message(self._told.topic, BODY, tags=TAG, keys=key(number))

    def _send(self, producer: Producer, began: float) -> None:
        producer.send(self._message(self._meter.total))
        self._meter.done(1, began)

    def _oneway(self, producer: Producer, began: float) -> None:
        producer.send_oneway(self._message(self._meter.total))
        self._meter.done(1, began)

    def _batch(self, producer: Producer, began: float) -> None:
        producer.send_batch([self._message(self._meter.total + number) for number in range(self._told.batch)])
        self._meter.done(self._told.batch, began)

    def _begin(self, producer: Producer, _: float) -> None:
        self._free.acquire()
        began = time.perf_counter()

        def done(future: Future[SendResult]) -> None:
            self._free.release()
            if future.exception() is None:
                self._meter.done(1, began)
            else:
                self._meter.errors += 1

        producer.send_async(self._message(self._meter.total)).add_done_callback(done)


def send(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    return Sending(told, meter).run()


def push(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    def listen(messages: Sequence[MessageExt], _: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        meter.total += len(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(GROUP, told.namesrv, consume_from_where=FIRST)
    consumer.subscribe(told.topic)
    consumer.set_listener(listen)
    with consumer:
        return measure_reads(meter, told)


def poll(told: argparse.Namespace, meter: Meter) -> dict[str, Any]:
    consumer = LitePullConsumer(GROUP, told.namesrv, consume_from_where=FIRST, pull_batch_size=told.batch)
    consumer.subscribe(told.topic)
    stopped = threading.Event()

    def read() -> None:
        while not stopped.is_set():
            meter.total += len(consumer.poll(timeout=1))

    with consumer:
        reader = threading.Thread(target=read)
        reader.start()
        row = measure_reads(meter, told)
        stopped.set()
        reader.join()
    return row


WORKS = {"sync": send, "async": send, "oneway": send, "batch": send, "push": push, "poll": poll}

if __name__ == "__main__":
    asked = arguments(WORKS)
    measured = Meter()
    report(WORKS[asked.work](asked, measured), measured)
