"""In order: one portion of a queue after the other, nothing before a message that failed, one member a queue."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import (
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    MessageExt,
    MessageModel,
    OrderlyContext,
    PushConsumer,
)
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import encode_properties
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until

Status = ConsumeOrderlyStatus
SUSPEND = Status.SUSPEND_CURRENT_QUEUE_A_MOMENT
QUEUE = MessageQueue("T", BROKER, 0)
Listener = Callable[[Sequence[MessageExt], OrderlyContext], Any]


@asynccontextmanager
async def consuming(
    system: FakeSystem, listener: Listener, expression: str = "*", **settings: Any
) -> AsyncIterator[PushConsumer]:
    consumer = PushConsumer(
        "g", system.address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        **{"suspend_current_queue_ms": 10, "persist_offset_interval_ms": 10, **settings},
    )  # fmt: skip
    consumer.subscribe("T", expression)
    consumer.set_listener(listener, orderly=True)
    async with consumer:
        yield consumer


def put(system: FakeSystem, *bodies: str) -> None:
    system.topics.setdefault("T", 1)
    for body in bodies:
        system.put("T", 0, body.encode())


def stored(system: FakeSystem) -> int:
    return system.offsets.get(("g", "T", 0), 0)


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_failed_message_comes_again_before_any_other(kind: str) -> None:
    async def scenario() -> None:
        seen: list[tuple[str, int]] = []

        def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            (message,) = messages
            seen.append((message.body.decode(), message.reconsume_times))
            if message.body == b"2" and message.reconsume_times == 0:
                return SUSPEND
            if message.body == b"3" and message.reconsume_times == 0:
                raise RuntimeError("a bug")
            return Status.SUCCESS

        async def listen_async(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            await asyncio.sleep(0)
            return listen(messages, context)

        async with fake_system() as system:
            put(system, "1", "2", "3", "4")
            async with consuming(system, listen if kind == "function" else listen_async):
                await until(lambda: stored(system) == 4)
            assert seen == [("1", 0), ("2", 0), ("2", 1), ("3", 0), ("3", 1), ("4", 0)]
            assert not system.locks, "the queues are free for others"

    run(scenario())


def test_only_one_portion_of_a_queue_is_at_work() -> None:
    async def scenario() -> None:
        at_work, most = [0], [0]

        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            at_work[0] += 1
            most[0] = max(most[0], at_work[0])
            await asyncio.sleep(0)
            at_work[0] -= 1
            return Status.SUCCESS

        async with fake_system() as system:
            put(system, *map(str, range(50)))
            async with consuming(system, listen, consume_batch_max_size=3):
                await until(lambda: stored(system) == 50)
            assert most == [1]

    run(scenario())


def test_a_listener_may_commit_and_roll_back_by_itself() -> None:
    async def scenario() -> None:
        seen: list[str] = []
        rolled_back: list[int] = []

        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            context.auto_commit = False
            seen.append(messages[0].body.decode())
            if messages[0].body == b"3":
                if not rolled_back:
                    rolled_back.append(stored(system))
                    return Status.ROLLBACK
                return Status.COMMIT
            return Status.SUCCESS

        async with fake_system() as system:
            put(system, "1", "2", "3", "4")
            async with consuming(system, listen):
                await until(lambda: len(seen) == 7)
                await until(lambda: stored(system) == 3)
            assert seen == ["1", "2", "3", "1", "2", "3", "4"]
            assert rolled_back == [0]
            assert stored(system) == 3, "the last one was never committed"

    run(scenario())


def test_a_message_that_failed_often_enough_goes_to_the_dead_letters() -> None:
    async def scenario() -> None:
        seen: list[str] = []

        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            seen.append(messages[0].body.decode())
            return SUSPEND if messages[0].body == b"bad" else Status.SUCCESS

        async with fake_system() as system:
            put(system, "bad", "good")
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
            async with consuming(system, listen, max_reconsume_times=2):
                await until(lambda: stored(system) == 2)
            assert seen[:5] == ["bad"] * 4 + ["good"], "two more tries, and one because nobody took it"
            sends = [c.header(SendMessageV2Header) for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            assert [header.topic for header in sends] == ["%RETRY%g", "%RETRY%g"]
            assert (sends[-1].max_reconsume_times, sends[-1].reconsume_times >= 2) == (2, True)

    run(scenario())


def test_what_another_member_has_locked_is_left_to_it() -> None:
    async def scenario() -> None:
        seen: list[bytes] = []

        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            seen.append(messages[0].body)
            return Status.SUCCESS

        async with fake_system() as system:
            put(system, "1")
            system.locks["g", QUEUE] = "another"
            async with consuming(system, listen) as consumer:
                await settle()
                await turned_loop().turn(5)
                assert QUEUE not in consumer.assignment()
                assert not seen
                del system.locks["g", QUEUE]
                await turned_loop().turn(2)
                await until(lambda: seen == [b"1"])

    run(scenario(), TurnedLoop)


def test_a_lock_that_is_lost_ends_the_work_on_its_queue() -> None:
    async def scenario() -> None:
        seen: list[bytes] = []

        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            seen.append(messages[0].body)
            return Status.SUCCESS

        async with fake_system() as system:
            put(system, "1")
            async with consuming(system, listen) as consumer:
                await until(lambda: seen == [b"1"])
                system.locks["g", QUEUE] = "another"
                await turned_loop().turn(21)
                await until(lambda: QUEUE not in consumer.assignment())
                put(system, "2")
                await settle()
                assert seen == [b"1"]

    run(scenario(), TurnedLoop)


def test_a_queue_given_up_stays_locked_until_its_listener_is_done() -> None:
    async def scenario() -> None:
        at_work, go_on = threading.Event(), threading.Event()

        def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            at_work.set()
            go_on.wait(20)
            return Status.SUCCESS

        async with fake_system() as system:
            put(system, "1", "2")
            async with consuming(system, listen) as consumer:
                await until(at_work.is_set)
                mine = system.locks["g", QUEUE]
                system.members["g"].insert(0, "0-another")  # it comes first, and the topic has one queue
                consumer.wake_rebalance()
                await until(lambda: QUEUE not in consumer.assignment())
                await settle()
                assert system.locks["g", QUEUE] == mine
                go_on.set()
                await until(lambda: ("g", QUEUE) not in system.locks)
            assert stored(system) == 0, "what it did meanwhile does not count: the other begins where it was"

    run(scenario())


@pytest.mark.parametrize("gave_up", [False, True])
def test_a_listener_may_shut_its_consumer_down_and_does_not_wait_for_itself(gave_up: bool) -> None:
    async def scenario() -> None:
        async def last(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            if gave_up:
                system.members["g"].insert(0, "0-another")  # it comes first, and the topic has one queue
                consumer.wake_rebalance()
                await until(lambda: QUEUE not in consumer.assignment())
            await consumer.shutdown()
            ended.append(system.locks.get(("g", QUEUE)))
            return Status.SUCCESS

        ended: list[str | None] = []
        async with fake_system() as system:
            put(system, "1")
            async with consuming(system, last, await_termination_ms=3_600_000) as consumer:
                await until(lambda: ended)
                assert not consumer.is_running
            assert ended[0] is not None, "nobody else may begin while this listener is at work"
            assert stored(system) == 0, "the consumer had ended before its listener said anything"

    run(scenario())


def test_broadcasting_needs_no_locks(tmp_path: Path) -> None:
    async def scenario() -> None:
        seen: list[bytes] = []

        async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
            seen.extend(message.body for message in messages)
            return Status.SUCCESS

        async with fake_system() as system:
            put(system, "1", "2", "3")
            consumer = PushConsumer(
                "g", system.address, message_model=MessageModel.BROADCASTING,
                consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, local_offset_dir=str(tmp_path),
            )  # fmt: skip
            consumer.subscribe("T")
            consumer.on_message_orderly(listen)
            async with consumer:
                await until(lambda: seen == [b"1", b"2", b"3"])
            assert system.count(RequestCode.LOCK_BATCH_MQ) == 0

    run(scenario())


def test_an_operator_sees_that_order_is_kept() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            put(system, "1")

            async def listen(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
                assert isinstance(context, OrderlyContext)
                return Status.COMMIT

            async with consuming(system, listen) as consumer:
                info = consumer.running_info(stacks=False)
                assert info.properties["PROP_CONSUMEORDERLY"] == "true"

    run(scenario())


def test_a_lock_that_ran_out_is_asked_for_soon() -> None:
    """The broker is silent for longer than a lock counts; the queue goes on a few seconds after it is back."""

    async def scenario() -> None:
        async with fake_system() as system:
            got: list[bytes] = []

            async def listener(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
                got.extend(message.body for message in messages)
                return Status.SUCCESS

            put(system, "a")
            async with consuming(system, listener, heartbeat_interval_ms=3_600_000):
                await until(lambda: got == [b"a"])
                system.answers[RequestCode.LOCK_BATCH_MQ] = refuse(ResponseCode.SYSTEM_BUSY)
                for _ in range(2):
                    await turned_loop().turn(20.1)  # renewals that fail
                    await until(lambda: system.count(RequestCode.LOCK_BATCH_MQ) > 1)
                put(system, "b")
                await turned_loop().turn(0.2)
                assert got == [b"a"], "the lock counts no more, another member may have it"
                system.answers.clear()
                await turned_loop().turn(3.1)
                await until(lambda: got == [b"a", b"b"])

    run(scenario(), TurnedLoop)


def test_what_is_at_work_holds_the_offset_when_a_pull_brings_nothing_for_us() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            system.put("T", 0, b"ours", encode_properties({"TAGS": "A"}))
            called, release = asyncio.Event(), asyncio.Event()

            async def listener(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
                called.set()
                await release.wait()
                return Status.SUCCESS

            async with consuming(system, listener, "A") as consumer:
                await called.wait()
                system.put("T", 0, b"not ours", encode_properties({"TAGS": "B"}))
                asked = system.count(RequestCode.PULL_MESSAGE)
                await until(lambda: system.count(RequestCode.PULL_MESSAGE) > asked)
                await settle()
                assert consumer.known_offsets("T") == {}
                assert stored(system) == 0
                release.set()
                await until(lambda: stored(system) == 1)

    run(scenario())


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_slow_listener_ends_and_nothing_is_lost_or_counted_twice(kind: str) -> None:
    """One member leaves in the middle of slow work; another goes on where it stopped."""
    done: list[bytes] = []

    async def coroutine(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
        await asyncio.sleep(0.002)
        done.extend(message.body for message in messages)
        return Status.SUCCESS

    def function(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
        time.sleep(0.002)
        done.extend(message.body for message in messages)
        return Status.SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            put(system, *map(str, range(60)))
            for enough in (10, 25, 60):
                listener = coroutine if kind == "coroutine" else function
                async with consuming(system, listener, persist_offset_interval_ms=3_600_000):
                    await until(lambda enough=enough: len(done) >= enough)  # type: ignore[misc]
                assert stored(system) == len(done), "every call that ran has ended and is committed"
        assert done == [b"%d" % i for i in range(60)]

    run(scenario())


def test_a_dead_letter_that_is_rolled_back_is_not_delivered_again() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            seen: list[tuple[bytes, int]] = []
            rolled_back = False

            async def listener(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
                nonlocal rolled_back
                context.auto_commit = False
                (message,) = messages
                if "RETRY_TOPIC" in message.properties:  # a broker would have put it among the dead letters
                    return Status.COMMIT
                seen.append((message.body, message.reconsume_times))
                if message.body == b"a":
                    return SUSPEND
                if message.body == b"b" and not rolled_back:
                    rolled_back = True
                    return Status.ROLLBACK
                return Status.COMMIT

            put(system, "a", "b")
            async with consuming(system, listener, max_reconsume_times=1):
                await until(lambda: stored(system) == 2)
            assert seen == [(b"a", 0), (b"a", 1), (b"b", 0), (b"b", 0)]
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario())


def test_a_rollback_of_one_who_does_not_commit_is_a_success_and_is_told_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            got: list[bytes] = []

            async def listener(messages: Sequence[MessageExt], context: OrderlyContext) -> Status:
                got.extend(message.body for message in messages)
                return Status.ROLLBACK

            put(system, "a", "b")
            async with consuming(system, listener):
                await until(lambda: stored(system) == 2)
            assert got == [b"a", b"b"]

    run(scenario())
    assert caplog.text.count("event=counts_as_success") == 1
