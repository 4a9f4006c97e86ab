"""The synchronous classes have every method of those of asyncio, and do the same from any thread."""

from __future__ import annotations

import asyncio
import concurrent.futures
import contextlib
import inspect
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from orbitmq import client
from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageIllegal, sync
from orbitmq.client.sync_wrapper import CALLS_MAX, LoopThread, loop_thread, run, submit
from orbitmq.errors import InvalidStateError, TooManyRequestsError
from orbitmq.runtime.logging import flush
from orbitmq.wire.headers import SendMessageV2Header, UnregisterClientHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system_beside
from tests.support.process import wait_until

PAIRS = [
    (client.Producer, sync.Producer),
    (client.TransactionProducer, sync.TransactionProducer),
    (client.PushConsumer, sync.PushConsumer),
    (client.LitePullConsumer, sync.LitePullConsumer),
    (client.PullConsumer, sync.PullConsumer),
    (client.PullSchedule, sync.PullSchedule),
]
FOR_THE_INSTANCE = {"wanted_topics", "heartbeat_data", "wake_rebalance"} | {
    "loop",
    "registry",
    "known_offsets",
    "move",
    "running_info",
    "consume_directly",
}
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


@pytest.fixture
def system() -> Iterator[FakeSystem]:
    """A fake on the clients' own loop."""
    with fake_system_beside() as running:
        yield running


def public(kind: type[Any]) -> set[str]:
    return {name for name in dir(kind) if not name.startswith("_")}


@pytest.mark.parametrize(("core", "face"), PAIRS)
def test_the_faces_are_the_same(core: type[Any], face: type[Any]) -> None:
    own = {"auto_commit"} if core is client.LitePullConsumer else set()
    assert public(face) == (public(core) - FOR_THE_INSTANCE) | own
    assert inspect.signature(core.__init__) == inspect.signature(face.__init__)
    for name in public(face) - own:
        there, here = getattr(core, name), getattr(face, name)
        if isinstance(there, property):
            assert isinstance(here, property), name
            continue
        assert inspect.signature(there).parameters == inspect.signature(here).parameters, name
        assert here.__doc__, name
        assert not inspect.iscoroutinefunction(here), name


def test_threads_send_together(system: FakeSystem) -> None:
    with sync.Producer("g", system.address) as producer, ThreadPoolExecutor(8) as pool:
        assert producer.is_running
        assert "@" in producer.client_id
        results = list(pool.map(lambda i: producer.send(Message("T", b"%d" % i)), range(200)))
        futures = [producer.send_async(Message("T", b"x")) for _ in range(200)]
        results += [future.result(10) for future in futures]
        producer.send_batch([Message("T", b"x")])
        producer.send_oneway(Message("T", b"x"))
        assert len(producer.fetch_publish_queues("T")) == 4
        assert len({result.msg_id for result in results}) == 400
    assert not producer.is_running


def test_a_oneway_message_waits_for_the_loop_only_where_something_may_fail_before(system: FakeSystem) -> None:
    sent = [b"%d" % i for i in range(50)]
    with sync.Producer("g", system.address) as producer:
        with pytest.raises(MessageIllegal):
            producer.send_oneway(Message("T", b""))
        producer.send_oneway(Message("T", b"first"), sharding_key="k")  # there is no route yet
        with stopped_loop():
            for body in sent:
                producer.send_oneway(Message("T", body), sharding_key="k")
    assert {b"first", *sent} == set(stored(system)), "what was handed over is written before the end"
    assert stored(system) == [b"first", *sent], "in the order of their queue"


def test_oneway_messages_to_a_broker_that_takes_none_wait_for_it_in_their_order(system: FakeSystem) -> None:
    with sync.Producer("g", system.address) as producer:
        producer.send_oneway(Message("T", b"first"), sharding_key="k")
        connection = producer.core._instance.remoting.connection(system.address)
        assert connection is not None
        with stopped_loop():
            for body in (b"1", b"2"):
                producer.send_oneway(Message("T", body), sharding_key="k")
            connection._flow.is_unread = True  # as the socket says when it is full
        sending = threading.Thread(target=producer.send_oneway, args=[Message("T", b"3")], kwargs={"sharding_key": "k"})
        sending.start()
        sending.join(0.1)
        assert sending.is_alive(), "it waits as the others do"
        loop_thread().loop.call_soon_threadsafe(connection.resume_writing)
        sending.join(20)
    assert stored(system) == [b"first", b"1", b"2", b"3"]


@contextlib.contextmanager
def stopped_loop() -> Iterator[None]:
    """While the clients' loop does nothing."""
    stopped, go_on = threading.Event(), threading.Event()

    def stop() -> None:
        stopped.set()
        go_on.wait(20)

    loop_thread().loop.call_soon_threadsafe(stop)
    stopped.wait(20)
    try:
        yield
    finally:
        go_on.set()


def stored(system: FakeSystem) -> list[bytes]:
    return [unit.body for queue in system.messages.values() for unit in queue]


def test_errors_reach_the_thread_that_asked(system: FakeSystem) -> None:
    with sync.Producer("g", system.address) as producer:
        with pytest.raises(MessageIllegal):
            producer.send(Message("T", b""))
        with pytest.raises(MessageIllegal):
            producer.send_async(Message("T", b"")).result(10)
    with pytest.raises(InvalidStateError):
        producer.send(Message("T", b"x"))


def test_a_listener_runs_on_threads_and_may_send(system: FakeSystem) -> None:
    got: list[bytes] = []
    system.topics["T"] = 1
    with sync.Producer("p", system.address) as producer:
        consumer = sync.PushConsumer("g", system.address, consume_from_where=FIRST)
        consumer.subscribe("T")

        @consumer.on_message
        def handle(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
            producer.send(Message("U", messages[0].body))
            got.append(messages[0].body)
            return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

        with consumer:
            producer.send(Message("T", b"x"))
            wait_until(lambda: got == [b"x"], 10, "the message")
            consumer.suspend()
            assert consumer.paused
            consumer.resume()
            assert consumer.assignment()
    assert sum(len(units) for (topic, _), units in system.messages.items() if topic == "U") == 1


@pytest.mark.parametrize("error", [SystemExit, KeyboardInterrupt])
@pytest.mark.parametrize("where", ["listener", "callback", "hook"])
def test_a_coroutine_that_wants_to_end_the_loop_has_failed_and_all_goes_on(
    system: FakeSystem, caplog: pytest.LogCaptureFixture, error: type[BaseException], where: str
) -> None:
    calls: list[str] = []

    def leave_once(here: str) -> None:
        if here == where and here not in calls:
            calls.append(here)
            raise error

    class Hook:
        def before(self, context: Any) -> None:
            leave_once("hook")

        def after(self, context: Any) -> None: ...

    got: list[bytes] = []
    system.topics["T"] = 1
    consumer = sync.PushConsumer("g", system.address, consume_from_where=FIRST)
    consumer.subscribe("T")
    consumer.add_consume_hook(Hook())

    @consumer.on_assigned
    async def assigned(queues: Any) -> None:
        leave_once("callback")

    @consumer.on_message
    async def handle(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        leave_once("listener")
        got.append(messages[0].body)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with sync.Producer("p", system.address) as producer, consumer:
        producer.send(Message("T", b"x"))
        producer.send(Message("T", b"y"))
        wait_until(lambda: b"y" in got, 10, "the second message")
        if where != "callback":
            wait_until(lambda: len(system.sent_back) == 1, 10, "the message that failed")
        assert consumer.assignment()
    assert flush(30)
    failures = [one for one in caplog.records if one.exc_info]
    assert [one.exc_info[0] for one in failures if one.exc_info] == [error]
    assert calls == [where]


def test_whatever_is_raised_on_the_loop_reaches_the_thread_that_asked_and_the_loop_goes_on(system: FakeSystem) -> None:
    async def leave() -> None:
        raise SystemExit(1)

    def never_begun() -> Any:
        raise SystemExit(2)

    with pytest.raises(SystemExit, match="1"):
        run(leave())
    with pytest.raises(SystemExit, match="2"):
        submit(never_begun).result(10)
    with sync.Producer("p", system.address) as producer:
        assert producer.send(Message("T", b"x"))


def test_a_transaction_listener_that_wants_to_end_the_loop_leaves_the_outcome_open(system: FakeSystem) -> None:
    class Leaves:
        async def execute(self, message: Any, argument: Any) -> Any:
            raise SystemExit

        async def check(self, message: Any) -> Any: ...

    with sync.TransactionProducer("p", system.address, listener=Leaves()) as producer:
        sent = producer.send_in_transaction(Message("T", b"x"))
        assert sent.local_state is client.LocalTransactionState.UNKNOWN


def test_polling(system: FakeSystem) -> None:
    system.topics["T"] = 1
    for i in range(15):
        system.put("T", 0, b"%d" % i)
    consumer = sync.LitePullConsumer("g", system.address, consume_from_where=FIRST, auto_commit=False)
    consumer.subscribe("T")
    with consumer:
        assert len(consumer.poll(5)) == 10
        consumer.commit(wait=True)
        (queue,) = consumer.assignment()
        assert consumer.committed(queue) == 10
        consumer.seek_to_begin(queue)
        found = []
        for message in consumer:
            found.append(message.body)
            if len(found) == 15:
                break
        assert found == [b"%d" % i for i in range(15)]
        assert not consumer.auto_commit
        consumer.auto_commit = True
        assert consumer.core.auto_commit


@pytest.mark.parametrize("read", ["poll", "iteration"])
@pytest.mark.parametrize("error", [ValueError, SystemExit, KeyboardInterrupt])
def test_leaving_by_an_exception_commits_only_what_was_done_before(
    system: FakeSystem, read: str, error: type[BaseException]
) -> None:
    system.topics["T"] = 1
    for i in range(20):
        system.put("T", 0, b"%d" % i)
    done: list[bytes] = []

    def work() -> None:
        with sync.LitePullConsumer("g", system.address, consume_from_where=FIRST) as consumer:
            consumer.subscribe("T")
            while True:
                for message in consumer.poll(10) if read == "poll" else consumer:
                    if message.body == b"13":
                        raise error
                    done.append(message.body)

    with pytest.raises(error):
        work()
    assert system.offsets == {("g", "T", 0): 10 if read == "poll" else 13}
    assert done == [b"%d" % i for i in range(13)]


@pytest.fixture
def thread() -> Iterator[LoopThread]:
    """One that ends, and its loop with it: a loop that is not closed is found by each garbage collection, and stays."""
    made = LoopThread()
    loop = made.loop
    yield made
    loop.call_soon_threadsafe(loop.stop)
    made._thread.join(10)
    loop.close()


def test_an_interrupt_while_the_loop_is_woken_stops_no_later_call(thread: LoopThread) -> None:
    loop, left = thread.loop, [KeyboardInterrupt]

    class Interrupted:
        def call_soon_threadsafe(self, callback: Any) -> None:
            if left:
                raise left.pop()
            loop.call_soon_threadsafe(callback)

    thread.loop = Interrupted()  # type: ignore[assignment]
    calls: list[str] = []
    done = threading.Event()
    with pytest.raises(KeyboardInterrupt):
        thread.call(lambda: calls.append("interrupted"))
    thread.call(done.set)
    assert done.wait(10)
    assert calls == ["interrupted"], "it was taken, and is not lost"


def test_a_coroutine_of_the_loop_cannot_wait_for_it(system: FakeSystem) -> None:
    with sync.Producer("g", system.address) as producer:

        async def wrong() -> None:
            producer.send(Message("T", b"x"))

        with pytest.raises(InvalidStateError, match="use the asyncio client there"):
            run(wrong())


def test_a_forked_child_gets_a_loop_of_its_own(system: FakeSystem) -> None:
    async def answer() -> int:
        return 42

    parent = loop_thread()
    with sync.Producer("g", system.address) as producer:
        child = os.fork()
        if child == 0:
            code = 1
            try:
                assert run(answer()) == 42
                assert loop_thread() is not parent
                producer.send(Message("T", b"x"))
            except InvalidStateError:
                code = 0
            finally:
                os._exit(code)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
        assert producer.send(Message("T", b"x")).msg_id


def test_calls_from_many_threads_lose_nothing() -> None:
    async def echo(value: int) -> int:
        await asyncio.sleep(0)
        return value

    results: list[int] = []
    threads = [
        threading.Thread(target=lambda n=n: results.extend(run(echo(n * 1000 + i)) for i in range(100)))  # type: ignore[misc]
        for n in range(8)
    ]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert sorted(results) == [n * 1000 + i for n in range(8) for i in range(100)]


def test_threads_that_call_much_leave_the_loop_its_turns_and_wait_when_it_cannot_follow(
    thread: LoopThread,
) -> None:
    begin, order = threading.Event(), list[object]()

    def slow(number: int) -> None:
        time.sleep(0.001)
        order.append(number)

    thread.call(lambda: begin.wait(10) and None)
    for number in range(CALLS_MAX):
        thread.call(lambda number=number: slow(number))  # type: ignore[misc]
    thread.loop.call_soon_threadsafe(order.append, "a timer")
    flood = threading.Thread(target=thread.call, args=(lambda: order.append("the last"),))
    flood.start()
    assert flood.is_alive(), "as many calls wait as may"
    begin.set()
    flood.join(10)
    assert not flood.is_alive()
    done: concurrent.futures.Future[None] = concurrent.futures.Future()
    thread.call(lambda: done.set_result(None))
    done.result(10)
    assert [one for one in order if isinstance(one, int)] == list(range(CALLS_MAX))
    assert order.index("a timer") < CALLS_MAX // 2


def test_a_process_that_ends_may_leave_its_shutdown_to_atexit(system: FakeSystem) -> None:
    program = (
        "import atexit, sys\n"
        "from orbitmq.client import Message, sync\n"
        "producer = sync.Producer('leaving', sys.argv[1])\n"
        "producer.start()\n"
        "atexit.register(producer.shutdown)\n"
        "producer.send(Message('T', b'x'))\n"
    )
    subprocess.run([sys.executable, "-c", program, system.address], check=True, timeout=60)
    left = [c.header(UnregisterClientHeader).producer_group for c in system.asked if c.code == 35]
    assert left == ["leaving"]


class Sending(logging.Handler):
    """Sends the records of this process to a topic, as a shipper of logs does."""

    def __init__(self, producer: sync.Producer) -> None:
        super().__init__()
        self._producer = producer

    def emit(self, record: logging.LogRecord) -> None:
        if threading.current_thread() is not threading.main_thread():
            self._producer.send(Message("Logs", record.getMessage().encode()))
            return
        # The loop writes a record of its own now that this thread has the handler's lock and is about to need the loop.
        loop_thread().call(lambda: logging.getLogger("orbitmq.client.consumer").info("event=rebalanced by=test"))
        self._producer.send(Message("Logs", record.getMessage().encode()))


def test_a_log_handler_on_the_root_logger_may_send(system: FakeSystem) -> None:
    system.topics["T"] = 4
    root, own = logging.getLogger(), logging.getLogger("orbitmq")
    level = own.level
    with sync.Producer("g", system.address) as producer:
        handler = Sending(producer)
        root.addHandler(handler)
        own.setLevel(logging.INFO)
        try:
            with sync.LitePullConsumer("readers", system.address) as consumer:
                consumer.subscribe("T")
                for number in range(20):
                    logging.getLogger("shop").error("line %d", number)
                wait_until(consumer.assignment, 10, "the first rebalance")
            assert flush(30)
        finally:
            own.setLevel(level)
            root.removeHandler(handler)
    sends = [command for command in system.asked if command.code == RequestCode.SEND_MESSAGE_V2]
    sent = [bytes(send.body).decode() for send in sends if send.header(SendMessageV2Header).topic == "Logs"]
    assert [line for line in sent if line.startswith("line")] == [f"line {number}" for number in range(20)]
    assert any(line.startswith("event=rebalanced group=readers") for line in sent), sent
    assert sent.count("event=rebalanced by=test") == 20


def test_slow_callbacks_of_futures_do_not_pile_up_without_end(
    system: FakeSystem, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("orbitmq.client.sync_wrapper.CALLBACKS_MAX", 3)
    may_end = threading.Event()
    try:
        with sync.Producer("g", system.address) as producer:
            for _ in range(4):  # one runs, three are due
                future = producer.send_async(Message("T", b"x"))
                future.add_done_callback(lambda _done: may_end.wait(30))
                future.result(10)
            wait_until(lambda: loop_thread().callbacks.waiting == 3, 10, "the callbacks")
            with pytest.raises(TooManyRequestsError, match="3 callbacks are due"):
                producer.send_async(Message("T", b"x"))
            may_end.set()
            wait_until(lambda: loop_thread().callbacks.waiting == 0, 10, "room")
            assert producer.send_async(Message("T", b"x")).result(10)
    finally:
        may_end.set()


def test_callbacks_of_sends_may_wait_for_a_lock_that_a_sender_has(system: FakeSystem) -> None:
    lock = threading.Lock()
    told: list[tuple[BaseException | None, object]] = []

    def callback(result: object, error: BaseException | None) -> None:
        with lock:
            told.append((error, producer.send(Message("T", b"from the callback"))))

    with sync.Producer("g", system.address) as producer:
        with lock:
            futures = [producer.send_async(Message("T", b"x"), callback) for _ in range(3)]
            futures.append(producer.send_batch_async([Message("T", b"x")], callback))
            for future in futures:
                future.add_done_callback(lambda done: callback(done.result(), None))
            assert all(future.result(10) for future in futures)
            assert not concurrent.futures.wait(futures, 10).not_done
            producer.send(Message("T", b"with the lock"))
            assert told == []
        wait_until(lambda: len(told) == 8, 10, "the callbacks")
    assert all(error is None for error, _ in told)
