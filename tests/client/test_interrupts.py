"""Signals: whatever a handler raises ends a wait and loses nothing, and a handler may use clients itself."""

from __future__ import annotations

import asyncio
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from typing import Any

import pytest

from orbitmq.client import ConsumeFromWhere, Message, MessageQueue, lite_pull, sync, sync_wrapper
from orbitmq.client.sync_wrapper import loop_thread, run, wait
from orbitmq.errors import InvalidStateError
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system_beside, silence
from tests.support.process import wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
QUEUE = MessageQueue("T", BROKER, 0)
INTERRUPTS = 2000


class TimeLimit(Exception):
    """What a handler of an application raises."""


@pytest.fixture
def system() -> Iterator[FakeSystem]:
    with fake_system_beside() as running:
        running.topics["T"] = 1
        yield running


@contextmanager
def handler(function: Callable[..., object]) -> Iterator[None]:
    before = signal.signal(signal.SIGUSR1, function)
    try:
        yield
    finally:
        signal.signal(signal.SIGUSR1, before)


@contextmanager
def interrupted(error: BaseException, when: Callable[[], object]) -> Iterator[None]:
    """What runs inside gets a signal as soon as `when` is true; its handler raises `error`."""
    here = threading.get_ident()

    def send() -> None:
        wait_until(when, 20, "the moment to interrupt")
        signal.pthread_kill(here, signal.SIGUSR1)

    def fail(*_: object) -> None:
        raise error

    with handler(fail):
        threading.Thread(target=send).start()
        yield


def consumer_of(system: FakeSystem, **settings: Any) -> sync.LitePullConsumer:
    consumer = sync.LitePullConsumer("g", system.address, consume_from_where=FIRST, **settings)
    consumer.subscribe("T")
    return consumer


@pytest.mark.parametrize("error", [TimeLimit(), KeyboardInterrupt(), SystemExit(0), GeneratorExit()])
def test_an_interrupted_poll_takes_no_messages(system: FakeSystem, error: BaseException) -> None:
    with consumer_of(system) as consumer:
        waits = consumer.core._arrived._waiters  # type: ignore[attr-defined]
        with pytest.raises(type(error)), interrupted(error, lambda: waits):
            consumer.poll(60)
        wait_until(lambda: not waits, 20, "the end of the poll that nobody waits for")
        run(stored(system, b"x"))
        assert [message.body for message in consumer.poll(10)] == [b"x"]


async def stored(system: FakeSystem, body: bytes) -> None:
    system.put("T", 0, body)


def test_well_timed_interrupts_lose_no_message_and_commit_none(system: FakeSystem) -> None:
    """Sent while messages arrive, so that many hit a poll that has some and has not returned yet."""
    dice, main, ended = random.Random(23), threading.get_ident(), threading.Event()
    is_armed, sent, got, interrupts, taken_back = False, list[bytes](), list[bytes](), 0, 0

    def interrupt(*_: object) -> None:
        nonlocal is_armed
        if is_armed:
            is_armed = False
            raise TimeLimit

    def feed() -> None:
        while not ended.wait(dice.uniform(0, 0.0005)):
            sent.append(b"%d" % len(sent))
            asyncio.run_coroutine_threadsafe(stored(system, sent[-1]), loop_thread().loop)
            time.sleep(dice.uniform(0, 0.0005))
            signal.pthread_kill(main, signal.SIGUSR1)

    feeder = threading.Thread(target=feed)
    with handler(interrupt), consumer_of(system, auto_commit_interval_ms=1) as consumer:
        table, take_back = consumer.core._offsets.table, consumer.core._take_back

        def count(given: Any) -> None:
            nonlocal taken_back
            taken_back += given is not None
            take_back(given)

        consumer.core._take_back = count  # type: ignore[method-assign]
        feeder.start()
        while interrupts < INTERRUPTS:
            messages = []
            try:
                is_armed = True
                messages = consumer.poll(0.02)
                is_armed = False  # nothing can come between these two
            except TimeLimit:
                interrupts += 1
            got += [message.body for message in messages]
            assert table.read(QUEUE) <= len(got), "what nobody got is not committed"
        ended.set()
        feeder.join(20)
        wait_until(lambda: got.extend(m.body for m in consumer.poll(0.1)) or len(got) >= len(sent), 20, "the rest")
        lost = set(sent) - set(got)
        print(f"{interrupts} interrupts, {len(sent)} messages, {taken_back} polls taken back, {len(lost)} lost")
        assert got == sent
    assert system.offsets == {("g", "T", 0): len(sent)}


class LateInterrupt(sync_wrapper._Call[Any]):
    """A call whose thread gets the signal when the outcome is there, and it has not left the library yet."""

    def __init__(self, *arguments: Any) -> None:
        super().__init__(*arguments)
        self._lock, self.ended = self.ended, self  # type: ignore[assignment]

    def acquire(self) -> None:
        self._lock.acquire()
        raise TimeLimit

    def release(self) -> None:
        self._lock.release()


@contextmanager
def late_interrupts() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sync_wrapper, "_Call", LateInterrupt)
        yield


@pytest.mark.parametrize("asked", [None, 2], ids=["a whole pull", "a part"])
def test_messages_that_a_poll_had_when_it_was_interrupted_come_next(system: FakeSystem, asked: int | None) -> None:
    for n in range(14):
        run(stored(system, b"%d" % n))
    got: list[bytes] = []
    with consumer_of(system, auto_commit_interval_ms=1, pull_batch_size=10) as consumer:
        while len(got) < 14:
            for _ in range(3):
                with pytest.raises(TimeLimit), late_interrupts():
                    consumer.poll(10, max_messages=asked)
                assert consumer.core._offsets.table.read(QUEUE) <= len(got)
            got += [message.body for message in consumer.poll(10, max_messages=asked)]
        assert got == [b"%d" % n for n in range(14)]
        run(stored(system, b"the last"))
        with pytest.raises(TimeLimit), late_interrupts():
            consumer.poll(10)
    assert system.offsets == {("g", "T", 0): 14}, "what nobody got is not committed"


def test_messages_of_an_interrupted_poll_come_back_although_another_thread_polls_on(system: FakeSystem) -> None:
    for n in range(20):
        run(stored(system, b"%d" % n))
    with consumer_of(system, auto_commit_interval_ms=1, pull_batch_size=5) as consumer:
        wait_until(lambda: len(consumer.core._batches) == 4, 20, "all messages")
        first = run(lite_pull.poll(consumer.core, 10, None))
        got = [message.body for _ in range(2) for message in consumer.poll(10)]
        wait(partial(in_the_loop, lite_pull.take_back, consumer.core, first))
        assert consumer.core._consumed[QUEUE] == 0, "what nobody got holds the offset back"
        got += [message.body for _ in range(2) for message in consumer.poll(10)]
        assert sorted(got, key=int) == [b"%d" % n for n in range(20)]
    assert system.offsets == {("g", "T", 0): 20}


async def in_the_loop(function: Callable[..., object], *arguments: object) -> None:
    function(*arguments)


def test_a_client_whose_start_was_interrupted_does_not_go_on(system: FakeSystem) -> None:
    consumer = consumer_of(system)
    with pytest.raises(TimeLimit), late_interrupts():
        consumer.start()
    wait_until(lambda: system.count(RequestCode.UNREGISTER_CLIENT), 20, "the consumer to leave")
    assert not consumer.is_running


def test_one_more_signal_does_not_keep_a_poll_from_being_given_up(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    run(stored(system, b"x"))
    thread, left = loop_thread(), [TimeLimit("second"), TimeLimit("third")]
    call = thread.call

    def interrupted_call(function: Callable[[], None]) -> None:
        if function.__name__ == "give_up" and left:
            raise left.pop(0)
        call(function)

    with consumer_of(system) as consumer:
        monkeypatch.setattr(thread, "call", interrupted_call)
        with pytest.raises(TimeLimit), late_interrupts():
            consumer.poll(10)
        assert not left
        assert [message.body for message in consumer.poll(10)] == [b"x"]


WAITING: dict[str, Callable[[sync.Producer, sync.LitePullConsumer, sync.PullConsumer], object]] = {
    "send": lambda producer, lite, pull: producer.send(Message("T", b"x"), timeout=60),
    "send_batch": lambda producer, lite, pull: producer.send_batch([Message("T", b"x")], timeout=60),
    "request": lambda producer, lite, pull: producer.request(Message("T", b"x"), timeout=60),
    "fetch_publish_queues": lambda producer, lite, pull: producer.fetch_publish_queues("Other"),
    "max_offset": lambda producer, lite, pull: producer.max_offset(QUEUE),
    "commit": lambda producer, lite, pull: lite.commit({QUEUE: 1}, wait=True),
    "committed": lambda producer, lite, pull: pull.fetch_offset(QUEUE),
    "lag": lambda producer, lite, pull: lite.lag(),
    "seek": lambda producer, lite, pull: lite.seek(QUEUE, 0),
    "pull": lambda producer, lite, pull: pull.pull(QUEUE, "*", 0, 1, timeout=60),
    "iteration": lambda producer, lite, pull: next(iter(lite)),
    "shutdown": lambda producer, lite, pull: lite.shutdown(),
}
"""Each waits for something that never comes."""


@pytest.mark.parametrize("way", WAITING)
def test_every_waiting_call_gives_up(system: FakeSystem, monkeypatch: pytest.MonkeyPatch, way: str) -> None:
    calls: list[sync_wrapper._Call[Any]] = []

    class Noted(sync_wrapper._Call[Any]):
        def __init__(self, *arguments: Any) -> None:
            super().__init__(*arguments)
            calls.append(self)

    pull = sync.PullConsumer("p", system.address)
    with sync.Producer("g", system.address) as producer, consumer_of(system) as lite, pull:
        producer.send(Message("T", b"x"))
        assert lite.poll(10)
        system.answers.update({code: silence() for code in RequestCode})
        monkeypatch.setattr(sync_wrapper, "_Call", Noted)
        with pytest.raises(TimeLimit), interrupted(TimeLimit(), lambda: calls and calls[0]._task):
            WAITING[way](producer, lite, pull)
        system.answers.clear()
        wait_until(lambda: calls[0]._task and calls[0]._task.done(), 20, "the end of the call")


CALLS = 1000
PROGRAM = """
import concurrent.futures, random, signal, sys
from orbitmq.client import Message, sync

address, way, wanted = sys.argv[1], sys.argv[2], int(sys.argv[3])
producer = sync.Producer("p", address)
consumer = sync.LitePullConsumer("g", address, auto_commit=False)
consumer.subscribe("T")
calls = 0

def call(*_):
    global calls
    producer.send(Message("U", b"x"))
    producer.send_async(Message("U", b"x")).result()
    consumer.assignment()
    calls += 1
    if calls < wanted:
        signal.setitimer(signal.ITIMER_REAL, random.uniform(0.00001, 0.0005))

def wait(futures):
    concurrent.futures.wait(futures)
    for future in concurrent.futures.as_completed(futures):
        future.result()

def look(future):
    while not future.done():
        pass

WAYS = {
    "poll": lambda: consumer.poll(0.001),
    "send": lambda: producer.send(Message("U", b"x")),
    "result": lambda: producer.send_async(Message("U", b"x")).result(),
    "done": lambda: look(producer.send_async(Message("U", b"x"))),
    "wait": lambda: wait([producer.send_async(Message("U", b"x")) for _ in range(5)]),
}
with producer, consumer:
    signal.signal(signal.SIGALRM, call)
    signal.setitimer(signal.ITIMER_REAL, 0.0001)
    while calls < wanted:
        WAYS[way]()
print(calls)
"""


@pytest.mark.parametrize("way", ["poll", "send", "result", "done", "wait"])
def test_a_handler_uses_clients_while_the_main_thread_waits_in_one(system: FakeSystem, way: str) -> None:
    command = [sys.executable, "-c", PROGRAM, system.address, way, str(CALLS)]
    try:
        ended = subprocess.run(command, capture_output=True, check=True, timeout=120, text=True)
    except subprocess.TimeoutExpired:
        pytest.fail("it hangs")
    assert int(ended.stdout) == CALLS


def test_a_handler_that_interrupts_the_first_use_of_a_client_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    refused: list[str] = []

    class Interrupted:
        def __init__(self) -> None:
            try:
                loop_thread()  # as the handler would
            except InvalidStateError as error:
                refused.append(str(error))

    monkeypatch.setattr(sync_wrapper, "_current", None)
    monkeypatch.setattr(sync_wrapper, "LoopThread", Interrupted)
    assert isinstance(loop_thread(), Interrupted)
    assert "start a client before you set the handler" in refused[0]


def test_what_an_interrupt_left_behind_on_its_way_to_the_loop_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """Else it would go on for nobody."""
    begun, ended = threading.Event(), threading.Event()
    thread = loop_thread()
    call = thread.call

    async def never() -> None:
        begun.set()
        try:
            await asyncio.get_running_loop().create_future()  # nobody settles it
        finally:
            ended.set()

    def interrupted_call(function: Callable[[], None]) -> None:
        call(function)
        if not begun.is_set():
            begun.wait(10)
            raise KeyboardInterrupt

    monkeypatch.setattr(thread, "call", interrupted_call)
    with pytest.raises(KeyboardInterrupt):
        wait(never)
    assert ended.wait(10)
