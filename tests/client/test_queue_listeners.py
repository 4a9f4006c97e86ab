"""An application hears which queues it gets and loses; what it does then counts, and what it raises does not."""

from __future__ import annotations

import asyncio
import inspect
from typing import Any

import pytest

from orbitmq.client import LitePullConsumer, MessageQueue
from orbitmq.client import sync as threads
from orbitmq.client.queue_listeners import CALLBACK_S, QueueListeners
from orbitmq.client.sync_wrapper import run as run_beside
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from tests.client.test_lite_pull import bodies, lite
from tests.support.fake_system import BROKER, fake_system
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until
from tests.support.process import wait_until

Q = [MessageQueue("T", BROKER, n) for n in range(4)]


def test_queues_are_told_when_they_come_and_before_they_go() -> None:
    heard: list[tuple[str, list[MessageQueue]]] = []

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 4
            one = lite(system, queues=4)
            one.on_assigned(lambda queues: heard.append(("assigned", list(queues))))
            one.on_revoked(lambda queues: heard.append(("revoked", [q for q in queues if q in one.assignment()])))
            async with one:
                assert heard == [("assigned", Q)]
                async with lite(system, queues=4) as two:
                    system.notify("g")
                    await until(lambda: len(one.assignment()) == 2)
                    gone = sorted(two.assignment())
                    assert heard[1:] == [("revoked", gone)], "they were still its own when it heard of it"
                system.notify("g")
                await until(lambda: len(one.assignment()) == 4)
                assert heard[2:] == [("assigned", gone)]
            assert heard[3:] == [("revoked", Q)]

    run(scenario())


def test_what_is_committed_before_queues_go_counts() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            one = lite(system, queues=2, messages=8)

            @one.on_revoked
            async def commit(queues: Any) -> None:
                await one.commit(queues=queues, wait=True)

            assert inspect.iscoroutinefunction(commit), "the decorator gives it back"
            async with one:
                await bodies(one, 8)
                async with lite(system, queues=2) as two:
                    system.notify("g")
                    await until(lambda: len(one.assignment()) == len(two.assignment()) == 1)
                    (moved,) = two.assignment()
                    assert system.offsets == {("g", "T", moved.queue_id): 4}
            assert system.offsets == {("g", "T", 0): 4, ("g", "T", 1): 4}, "shutdown asks, too"

    run(scenario())


def test_a_subscription_has_a_listener_for_its_queues() -> None:
    heard: list[tuple[str, int, int]] = []

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 4
            one, two = (LitePullConsumer("g", system.address) for _ in range(2))
            one.subscribe("T", "*", lambda topic, every, own: heard.append((topic, len(every), len(own))))
            two.subscribe("T")
            async with one, two:
                system.notify("g")
                await until(lambda: len(heard) == 2)

    run(scenario())
    assert heard == [("T", 4, 4), ("T", 4, 2)]


def test_the_queues_of_a_topic_can_be_followed() -> None:
    heard: list[tuple[str, int]] = []

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["U"] = 1
            consumer = lite(system, poll_namesrv_interval_ms=1000)
            consumer.on_queues_changed("U", lambda topic, queues: heard.append((topic, len(queues))))
            async with consumer:
                await until(lambda: consumer._instance.routes.subscribed("U"))
                await settle(50)
                assert not heard, "what is there at the start is no change"
                system.topics["U"] = 3
                await turned_loop().turn(1.1)
                await until(lambda: heard)
                await turned_loop().turn(1.1)

    run(scenario(), TurnedLoop)
    assert heard == [("U", 3)]


def test_a_callback_that_fails_or_hangs_stops_nobody(caplog: pytest.LogCaptureFixture) -> None:
    calls: list[str] = []

    def fails(queues: Any) -> None:
        calls.append("fails")
        raise KeyError("no")

    async def hangs(queues: Any) -> None:
        calls.append("hangs")
        await asyncio.Event().wait()

    async def scenario() -> None:
        watching = QueueListeners(NO_NAMESPACE, "me")
        watching.revoked_callbacks += [fails, hangs, lambda queues: calls.append("last")]
        telling = asyncio.ensure_future(watching.revoked(Q))
        await settle()
        await turned_loop().turn(CALLBACK_S + 0.1)
        await telling
        await watching.revoked([])

    run(scenario(), TurnedLoop)
    assert calls == ["fails", "hangs", "last"]
    assert caplog.text.count("event=callback_failed") == 2


def test_queues_come_sorted_and_without_their_namespace() -> None:
    heard: list[Any] = []

    async def scenario() -> None:
        watching = QueueListeners(Namespace("N"), "me")
        watching.listeners["N%T"] = lambda *told: heard.append(told)
        inside = [MessageQueue("N%T", BROKER, n) for n in (1, 0)]
        await watching.changed("N%T", inside, inside[:1])

    run(scenario())
    assert heard == [("T", Q[:2], [Q[1]])]


def test_functions_of_the_synchronous_classes_may_use_them() -> None:
    context = fake_system()
    system = run_beside(context.__aenter__())
    system.topics["T"] = 1
    for i in range(3):
        system.put("T", 0, b"%d" % i)
    consumer = threads.LitePullConsumer("g", system.address, auto_commit=False)
    assigned: list[MessageQueue] = []

    def begin(queues: Any) -> None:
        for queue in queues:
            consumer.seek_to_begin(queue)
        assigned.extend(queues)

    consumer.subscribe("T")
    consumer.on_assigned(begin)
    consumer.on_revoked(lambda queues: consumer.commit(queues=queues, wait=True))

    async def start() -> None:
        await consumer.core.start()

    run_beside(start())
    wait_until(lambda: assigned == Q[:1], 20, "the queue")
    got: list[bytes] = []
    wait_until(lambda: got.extend(m.body for m in consumer.poll(1)) or len(got) == 3, 20, "the messages")
    consumer.shutdown()
    assert system.offsets == {("g", "T", 0): 3}
    run_beside(context.__aexit__(None, None, None))
