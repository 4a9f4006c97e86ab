"""With `linger_ms`, messages that meet go in one request; each has its own outcome, and queues keep their order."""

from __future__ import annotations

import asyncio
from collections import defaultdict
from pathlib import Path

import pytest

from orbitmq.client import Message, MessageQueue, Producer, SendResult, SendStatus
from orbitmq.client.outbox import Outbox
from orbitmq.errors import BrokerError, MessageIllegal, OrbitMQError, TooManyRequestsError
from orbitmq.message.properties import DELAY, TRAN_MSG, UNIQ_KEY, decode_properties
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.batches import decode_batch
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse, silence, usual_answers
from tests.support.loops import run, until

BATCH, SINGLE = RequestCode.SEND_BATCH_MESSAGE, RequestCode.SEND_MESSAGE_V2
NEVER_MS = 60_000  # a linger that only a full batch, or the end, cuts short


def sizes(system: FakeSystem) -> list[int]:
    """How many messages each request had."""
    return [
        len(decode_batch(one.body)) if one.code == BATCH else 1 for one in system.asked if one.code in (BATCH, SINGLE)
    ]


def bodies(system: FakeSystem, queue_id: int) -> list[bytes]:
    return [unit.body for unit in system.messages["T", queue_id]]


def numbered(count: int, start: int = 0) -> list[Message]:
    return [Message("T", b"%d" % number) for number in range(start, start + count)]


def test_messages_that_meet_go_in_one_request_and_each_has_its_own_result() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=20) as producer:
            results = await asyncio.gather(*map(producer.send_async, numbered(50)))
            assert sizes(system) == [50]
            (queue,) = {result.queue for result in results}
            units = system.messages["T", queue.queue_id]
            assert [unit.body for unit in units] == [b"%d" % number for number in range(50)]
            assert [result.queue_offset for result in results] == list(range(50))
            assert [result.msg_id for result in results] == [
                decode_properties(unit.properties)[UNIQ_KEY] for unit in units
            ]
            assert len({result.offset_msg_id for result in results}) == 50
            assert all("," not in result.offset_msg_id for result in results)
            assert {result.status for result in results} == {SendStatus.SEND_OK}

    run(scenario())


def test_sends_that_are_awaited_meet_too_and_the_next_batch_takes_the_next_queue() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            queues = []
            for _ in range(8):
                results = await asyncio.gather(*map(producer.send, numbered(10)))
                (queue,) = {result.queue.queue_id for result in results}
                queues.append(queue)
            assert sizes(system) == [10] * 8
            assert sorted(queues) == [0, 0, 1, 1, 2, 2, 3, 3]

    run(scenario())


def test_without_a_linger_every_message_has_its_request() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            await asyncio.gather(*map(producer.send_async, numbered(10)))
            assert sizes(system) == [1] * 10

    run(scenario())


def test_a_full_batch_does_not_wait() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, linger_ms=NEVER_MS, batch_max_bytes=10_000) as producer,
        ):
            sends = [producer.send_async(Message("T", bytes(1000))) for _ in range(20)]
            await asyncio.gather(*sends[:18])
            assert not any(send.done() for send in sends[18:])
            assert sizes(system) == [9, 9], "properties count, too"

    run(scenario())


def test_a_message_larger_than_a_batch_goes_alone() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, linger_ms=5, batch_max_bytes=1000) as producer,
        ):
            await asyncio.gather(*(producer.send_async(Message("T", bytes(size))) for size in (2000, 10, 10)))
            assert sorted(sizes(system)) == [1, 2]

    run(scenario())


def test_what_no_batch_can_hold_goes_alone_and_keeps_its_place() -> None:
    """Of a queue the order is that of the calls, whatever the messages are."""

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            special = [
                Message("T", b"delayed", delay_level=1),
                Message("T", b"compressed" * 1000),
                Message("T", b"not safely", wait_store_ok=False),
                Message("T", b"neither", wait_store_ok=False),
            ]
            half = Message("T", b"half")
            half.properties[TRAN_MSG] = "true"
            messages = [*numbered(3), *special, half, *numbered(3, 3)]
            await asyncio.gather(*(producer.send_async(message, sharding_key="k") for message in messages))
            assert sizes(system) == [3, 1, 1, 2, 1, 3]
            (units,) = [units for (topic, _), units in system.messages.items() if topic == "T"]
            assert len(units) == len(messages)
            assert [unit.body for unit in units[:4]] == [b"0", b"1", b"2", b"delayed"]
            assert decode_properties(units[3].properties)[DELAY] == "1"
            assert [unit.body for unit in units[5:]] == [b"not safely", b"neither", b"half", b"3", b"4", b"5"]

    run(scenario())


def test_messages_of_a_key_stay_in_order_while_many_are_in_flight() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, linger_ms=1, batch_max_bytes=2000) as producer,
        ):
            sends: list[asyncio.Future[SendResult]] = []
            for number in range(400):
                sends.append(producer.send_async(Message("T", b"%d" % number), sharding_key=number % 4))
                if number % 7 == 0:
                    await asyncio.sleep(0.001)
            await asyncio.gather(*sends)
            for queue_id in range(4):
                assert bodies(system, queue_id) == [b"%d" % number for number in range(queue_id, 400, 4)]
            assert len(sizes(system)) < 300

    run(scenario())


def test_a_call_does_not_overtake_one_that_has_not_begun_yet() -> None:
    """One with its own timeout, and one that waits for room in flight, begin in a task."""

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            await asyncio.gather(
                producer.send_async(Message("T", b"1"), sharding_key="k", timeout=5),
                *(producer.send_async(message, sharding_key="k") for message in numbered(3, 2)),
            )
            (units,) = [units for (topic, _), units in system.messages.items() if topic == "T"]
            assert [unit.body for unit in units] == [b"1", b"2", b"3", b"4"]

    run(scenario())


def test_of_a_queue_one_request_is_in_flight_and_what_comes_meanwhile_is_in_the_next() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=1) as producer:
            queue = MessageQueue("T", BROKER, 2)
            gate = asyncio.Event()
            most: dict[str, int] = defaultdict(int)

            async def wait_for_gate(connection: Connection, command: Command) -> Answer:
                most["now"] += 1
                most["most"] = max(most["most"], most["now"])
                await gate.wait()
                most["now"] -= 1
                answer = usual(connection, command)
                assert isinstance(answer, Command)
                return answer

            usual = usual_answers(system)[SINGLE]
            system.answers[SINGLE] = system.answers[BATCH] = wait_for_gate
            sends = []
            for message in numbered(5):
                sends.append(producer.send_async(message, queue=queue))
                await asyncio.sleep(0.005)
            assert sizes(system) == [1]
            gate.set()
            await asyncio.gather(*sends)
            assert sizes(system) == [1, 4]
            assert most["most"] == 1
            assert bodies(system, 2) == [b"0", b"1", b"2", b"3", b"4"]

    run(scenario())


def test_a_refused_message_does_not_take_the_others_of_its_batch_along() -> None:
    """A broker refuses the whole batch for one message, and does not say which."""

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:

            def refuse_bad(_: Connection, command: Command) -> Answer:
                return command.response(ResponseCode.MESSAGE_ILLEGAL, "too large") if b"bad" in command.body else None

            system.answers[BATCH] = system.answers[SINGLE] = refuse_bad
            sends = [
                producer.send_async(Message("T", body), queue=MessageQueue("T", BROKER, 1))
                for body in (b"1", b"bad", b"2", b"3")
            ]
            outcomes = await asyncio.gather(*sends, return_exceptions=True)
            assert [isinstance(one, SendResult) for one in outcomes] == [True, False, True, True]
            assert isinstance(outcomes[1], BrokerError)
            assert outcomes[1].code == ResponseCode.MESSAGE_ILLEGAL
            assert bodies(system, 1) == [b"1", b"2", b"3"], "once each, in order"

    run(scenario())


def test_each_message_gets_the_error_of_its_request() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            system.answers[BATCH] = refuse(ResponseCode.SYSTEM_BUSY, "busy")
            outcomes = await asyncio.gather(*map(producer.send_async, numbered(3)), return_exceptions=True)
            assert all(isinstance(one, BrokerError) and one.code == ResponseCode.SYSTEM_BUSY for one in outcomes)
            assert len({id(one) for one in outcomes}) == 3

    run(scenario())


def test_a_batch_is_retried_as_a_whole_at_another_queue() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            system.answers[BATCH] = refuse(ResponseCode.SYSTEM_ERROR, times=2)
            results = await asyncio.gather(*map(producer.send, numbered(3)))
            assert sizes(system) == [3, 3, 3]
            headers = [one.header(SendMessageV2Header) for one in system.asked if one.code == BATCH]
            assert len({header.queue_id for header in headers}) == 3
            assert len({result.msg_id for result in results}) == 3
            assert [result.queue_offset for result in results] == [0, 1, 2]

    run(scenario())


def test_a_message_that_breaks_a_rule_is_refused_at_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            with pytest.raises(MessageIllegal, match="the body is empty"):
                producer.send_async(Message("T", b""))
            assert sizes(system) == []

    run(scenario())


def test_what_was_cancelled_while_it_lingered_is_not_sent() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=20) as producer:
            sends = [producer.send_async(message) for message in numbered(3)]
            sends[1].cancel()
            await asyncio.gather(sends[0], sends[2])
            assert sizes(system) == [2]
            (units,) = [units for (topic, _), units in system.messages.items() if topic == "T"]
            assert [unit.body for unit in units] == [b"0", b"2"]

    run(scenario())


def test_shutdown_sends_what_lingers() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with Producer("g", system.address, linger_ms=NEVER_MS) as producer:
                sends = [producer.send_async(message) for message in numbered(3)]
                awaited = asyncio.create_task(producer.send(Message("T", b"3")))
                await asyncio.sleep(0)
            results = await asyncio.gather(*sends, awaited)
            assert len(results) == 4
            assert sum(sizes(system)) == 4

    run(scenario())


def test_limits_count_what_lingers() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, linger_ms=20, async_sends_max=3) as producer,
        ):
            sends = [producer.send_async(message) for message in numbered(3)]
            with pytest.raises(TooManyRequestsError, match="3 sends are unfinished"):
                producer.send_async(Message("T", b"x"))
            await asyncio.gather(*sends)
            await producer.send_async(Message("T", b"x"))

    run(scenario())


def test_bytes_in_flight_are_given_back_whatever_happens() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, linger_ms=1, async_in_flight_max=4, send_timeout_ms=50) as producer,
        ):
            for handler in (None, refuse(ResponseCode.MESSAGE_ILLEGAL), refuse(ResponseCode.SYSTEM_BUSY), silence()):
                system.answers = {} if handler is None else {BATCH: handler, SINGLE: handler}
                sends = [producer.send_async(message, sharding_key=1) for message in numbered(8)]
                sends[3].cancel()
                await asyncio.gather(*sends, return_exceptions=True)
            system.answers = {}
            results = await asyncio.gather(*map(producer.send_async, numbered(8)))
            assert len(results) == 8

    run(scenario())


def test_a_call_with_its_own_timeout_goes_alone() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            await asyncio.gather(
                *(producer.send_async(message) for message in numbered(3)),
                producer.send_async(Message("T", b"3"), timeout=2),
            )
            assert sorted(sizes(system)) == [1, 3]

    run(scenario())


def test_topics_do_not_share_a_request() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            topics = ("A", "B")
            await asyncio.gather(*(producer.send_async(Message(topics[n % 2], b"%d" % n)) for n in range(10)))
            assert sizes(system) == [5, 5]

    run(scenario())


def test_callbacks_hooks_and_errors_of_a_selector_work_as_without() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, linger_ms=5) as producer:
            called: list[tuple[SendResult | None, BaseException | None]] = []

            def note(result: SendResult | None, error: BaseException | None) -> None:
                called.append((result, error))

            def fail(*_: object) -> MessageQueue:
                raise ValueError("mine")

            good = producer.send_async(Message("T", b"1"), note)
            bad = producer.send_async(Message("T", b"2"), note, selector=fail)
            with pytest.raises(OrbitMQError, match="the selector failed: ValueError: mine"):
                await bad
            result = await good
            await until(lambda: len(called) == 2, "callbacks")
            assert (result, None) in called

    run(scenario())


def test_the_outbox_keeps_what_a_batch_could_not_deliver(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.answers[BATCH] = system.answers[SINGLE] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
            async with Producer(
                "g", system.address, linger_ms=5, outbox=Outbox(tmp_path, should_store=lambda *_: True)
            ) as producer:
                outcomes = await asyncio.gather(*map(producer.send, numbered(3)), return_exceptions=True)
                assert all(isinstance(one, OrbitMQError) and one.stored_locally for one in outcomes)
                system.answers.clear()
                await until(lambda: sum(map(len, system.messages.values())) == 3, "what was kept")

    run(scenario())
