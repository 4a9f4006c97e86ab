"""A producer stores a message, or says what failed, where, and after how many attempts."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from pathlib import Path
from types import FrameType
from typing import cast

import pytest

from orbitmq.client import (
    LocalTransactionState,
    Message,
    MessageQueue,
    Producer,
    SendResult,
    SendStatus,
    TransactionProducer,
    hash_selector,
)
from orbitmq.client import producer as producer_module
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    InvalidStateError,
    MessageIllegal,
    RequestTimeout,
    TooManyRequestsError,
)
from orbitmq.message.properties import decode_properties
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import SendMessageResponseHeader, SendMessageV2Header
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, fake_system, refuse, silence
from tests.support.loops import IdleLoop, run, until

CLIENT_ROOM = str(Path(producer_module.__file__).parent)
CALLS_OF_A_SEND_MAX = 40
STEP = 50  # messages that a broker of a burst stores together: each step costs the test a moment


class Committing:
    """A listener of transactions."""

    def execute(self, _message: Message, _argument: None) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE

    def check(self, _message: Message) -> LocalTransactionState:
        return LocalTransactionState.COMMIT_MESSAGE


class SlowBroker:
    """Needs 0.15 s for each send, and notes how many it had at a time."""

    def __init__(self) -> None:
        self.most = self.count = self._under_way = 0

    async def answer(self, _connection: Connection, command: Command) -> Command:
        self.count += 1
        self._under_way += 1
        self.most = max(self.most, self._under_way)
        await asyncio.sleep(0.15)
        self._under_way -= 1
        header = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=0)
        return command.response(ResponseCode.SUCCESS, header=header)


async def _awaited(work: Awaitable[object]) -> object:
    return await work


def test_messages_take_turns_over_all_queues() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            results = [await producer.send(Message("T", b"%d" % i)) for i in range(12)]
            assert Counter(result.queue.queue_id for result in results) == {0: 3, 1: 3, 2: 3, 3: 3}
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            assert len({result.msg_id for result in results}) == 12
            assert sorted(result.queue_offset for result in results) == [0] * 4 + [1] * 4 + [2] * 4

    run(scenario())


def test_sends_side_by_side_do_not_march_through_neighbouring_queues() -> None:
    """The queues of a broker are neighbours; one that hangs is not to hold up all of them at once."""

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.topics["T"] = 16
            sends = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(4)))
            assert len({send.queue.queue_id // 4 for send in sends}) >= 3

    run(scenario())


def test_after_a_failed_send_the_next_begins_at_another_broker() -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as hanging:
            route = system.route("TBW102")
            route.broker_datas.append(BrokerData(addresses={0: hanging.address}, broker_name="hangs", cluster="C"))
            route.queue_datas.append(QueueData(broker_name="hangs", perm=6, read_queues=4, write_queues=4))
            body = encode_standard(route)
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, command: command.response(0, body=body)
            hanging.answers[RequestCode.SEND_MESSAGE_V2] = silence()
            async with Producer("g", system.address) as producer:
                for _ in range(12):
                    with contextlib.suppress(TooManyRequestsError):
                        await producer.send(Message("T", b"x"), timeout=0.3)
                assert 1 <= hanging.count(RequestCode.SEND_MESSAGE_V2) <= 3, "one of its queues in each round, not all"

    run(scenario())


def test_the_way_of_one_message_is_short() -> None:
    """Calls of Python functions in the client's room, each coroutine counted when it begins and when it goes on. What
    one send does not need, no send shall pay for.
    """

    async def counted(producer: Producer) -> Counter[str]:
        called: Counter[str] = Counter()

        def count(frame: FrameType, event: str, _: object) -> None:
            if event == "call" and CLIENT_ROOM in frame.f_code.co_filename:
                called[frame.f_code.co_qualname] += 1

        sys.setprofile(count)
        try:
            await producer.send(Message("T", b"x"))
        finally:
            sys.setprofile(None)
        return called

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            sends = [await counted(producer) for _ in range(5)]
            fewest = min(sends, key=Counter.total)  # periodic work may come in between
            assert fewest.total() <= CALLS_OF_A_SEND_MAX, fewest

    run(scenario())


def test_a_refused_attempt_is_made_again_and_counted() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, retry_times=2) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, times=2)
            assert (await producer.send(Message("T", b"x"))).status is SendStatus.SEND_OK
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, "full")
            with pytest.raises(ClientError, match=r"not sent in 3 attempts .*CODE: 14 DESC: full") as raised:
                await producer.send(Message("T", b"x"))
            assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE

    run(scenario())


def test_a_busy_broker_is_left_in_peace() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY)
            with pytest.raises(BrokerError) as raised:
                await producer.send(Message("T", b"x"))
            assert raised.value.code == ResponseCode.SYSTEM_BUSY
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario())


def test_the_time_of_all_attempts_is_limited() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            await producer.send(Message("T", b"x"))
            system.answers[RequestCode.SEND_MESSAGE_V2] = silence()
            with pytest.raises(TooManyRequestsError, match=r"not sent in 1 attempts and \d+ ms .*no response from"):
                await producer.send(Message("T", b"x"), timeout=0.05)

    run(scenario())


def test_a_chosen_queue_is_tried_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            queue = (await producer.fetch_publish_queues("T"))[2]
            assert (await producer.send(Message("T", b"x"), queue=queue)).queue == queue
            by_key = {(await producer.send(Message("T", b"x"), sharding_key="k")).queue for _ in range(5)}
            assert len(by_key) == 1
            before = system.count(RequestCode.SEND_MESSAGE_V2)
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
            for where in ({"queue": queue}, {"sharding_key": 7}):
                with pytest.raises(ClientError, match="1 attempts"):
                    await producer.send(Message("T", b"x"), **where)  # type: ignore[arg-type]
            assert system.count(RequestCode.SEND_MESSAGE_V2) == before + 2
            with pytest.raises(ClientError, match="message of topic T, queue of U"):
                await producer.send(Message("T", b"x"), queue=MessageQueue("U", BROKER, 0))

    run(scenario())


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
def test_stored_with_less_safety_is_told_and_not_repeated(code: int, status: SendStatus) -> None:
    stored = SendMessageResponseHeader(msg_id="ID", queue_id=0, queue_offset=5)

    async def scenario() -> None:
        async with fake_system() as system:
            system.answers[RequestCode.SEND_MESSAGE_V2] = lambda _, c: c.response(code, header=stored)
            async with Producer("g", system.address) as producer:
                assert (await producer.send(Message("T", b"x"))).status is status
                assert system.count(RequestCode.SEND_MESSAGE_V2) == 1
            async with Producer("g", system.address, retry_when_not_store_ok=True, retry_times=1) as producer:
                assert (await producer.send(Message("T", b"x"))).status is status
                assert system.count(RequestCode.SEND_MESSAGE_V2) == 3

    run(scenario())


def test_a_batch_is_stored_in_order_in_one_queue() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            result = await producer.send_batch([Message("T", b"%d" % i) for i in range(5)])
            units = system.messages["T", result.queue.queue_id]
            assert [unit.body for unit in units] == [b"0", b"1", b"2", b"3", b"4"]
            assert len(result.msg_id.split(",")) == len(result.offset_msg_id.split(",")) == 5

    run(scenario())


def test_oneway_messages_wait_for_nothing() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = None  # type: ignore[assignment]
            await producer.send_oneway(Message("T", b"x"))
            await until(lambda: any(system.messages.values()))
            (asked,) = [c for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            assert asked.is_oneway

    run(scenario())


def test_the_header_says_how_a_missing_topic_is_made() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["Template"] = 8
            async with Producer(
                "g", system.address, create_topic_key="Template", default_topic_queue_nums=6
            ) as producer:
                await producer.send(Message("T", b"x", flag=3))
            (asked,) = [c for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            header = asked.header(SendMessageV2Header)
            assert (header.default_topic, header.default_topic_queue_nums, header.flag) == ("Template", 6, 3)
            assert system.topics["T"] == 6

    run(scenario())


def test_asynchronous_sends_are_limited_and_awaited_at_shutdown() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with Producer("g", system.address, async_sends_max=2) as producer:
                with pytest.raises(MessageIllegal):
                    producer.send_async(Message("T", b""))
                tasks = [producer.send_async(Message("T", b"x")) for _ in range(2)]
                with pytest.raises(TooManyRequestsError, match="2 sends are unfinished"):
                    producer.send_async(Message("T", b"x"))
            assert {task.result().status for task in tasks} == {SendStatus.SEND_OK}

    run(scenario())


def test_a_producer_that_is_not_running_sends_nothing() -> None:
    async def scenario() -> None:
        producer = Producer("g", "h:1")
        for send in (producer.send(Message("T", b"x")), producer.send_batch([Message("T", b"x")])):
            with pytest.raises(InvalidStateError):
                await send
        with pytest.raises(InvalidStateError):
            producer.send_async(Message("T", b"x"))

    run(scenario())


def test_a_canceled_send_leaves_the_others_alone() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence()
            first, second = (producer.send_async(Message("T", b"x")) for _ in range(2))
            await until(lambda: system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) > 0)
            first.cancel()
            await asyncio.sleep(0)
            assert first.cancelled()
            assert not second.done()
            second.cancel()

    run(scenario())


def test_a_broker_that_failed_is_known_and_left_out_when_asked_for() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, latency_fault=True) as producer:
            await producer.send(Message("T", b"x"))
            assert producer.faults[BROKER].latency_ms < 3000
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
            with pytest.raises(BrokerError):
                await producer.send(Message("T", b"x"))
            left_out_until = producer.faults[BROKER].available_from_ms
            await producer.send(Message("T", b"x"))  # the only broker there is
            assert producer.faults[BROKER].available_from_ms < left_out_until
        async with Producer("g", system.address) as producer:
            assert producer.faults == {}

    run(scenario())


# ------------------------------------------------------------------------------------------------ choosing the queue


def test_a_selector_gets_queues_message_and_argument_and_is_obeyed() -> None:
    seen: list[object] = []

    def last(queues: Sequence[MessageQueue], message: Message, arg: str) -> MessageQueue:
        seen.append((len(queues), message.body, arg))
        return queues[-1]

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            results = [
                await producer.send(Message("T", b"x"), selector=last, arg="k"),
                await producer.send_async(Message("T", b"y"), selector=last, arg="k"),
                await producer.send(Message("T", b"z"), selector=hash_selector, arg="TagA"),
            ]
            assert [result.queue.queue_id for result in results] == [3, 3, 3]
            assert seen == [(4, b"x", "k"), (4, b"y", "k")]
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, times=1)
            with pytest.raises(ClientError, match="1 attempts"):
                await producer.send(Message("T", b"x"), selector=last, arg="k")

    run(scenario())


@pytest.mark.parametrize("choice", [None, MessageQueue("Other", BROKER, 0), RuntimeError("a bug")])
def test_a_selector_that_chooses_nothing_usable_fails_the_send(choice: object) -> None:
    def selector(_queues: object, _message: object, _arg: object) -> MessageQueue:
        if isinstance(choice, Exception):
            raise choice
        return cast("MessageQueue", choice)

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            with pytest.raises(ClientError, match=r"selector (failed|gave no queue)"):
                await producer.send(Message("T", b"x"), selector=selector)
            with pytest.raises(MessageIllegal, match="set only one of"):
                await producer.send(Message("T", b"x"), selector=selector, sharding_key="k")
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 0

    run(scenario())


# --------------------------------------------------------------------------------------------------- asynchronous sends


def test_an_asynchronous_send_takes_an_answer_of_the_broker_as_final() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, times=1)
            with pytest.raises(BrokerError) as raised:
                await producer.send_async(Message("T", b"x"))
            assert raised.value.code == ResponseCode.SERVICE_NOT_AVAILABLE
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario())


def test_settings_of_sends_have_their_effect() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer(
                "g", system.address, compress_threshold=10, async_retry_times=0, queue_strategy="least_latency",
                latency_fault=True, latency_max="0", not_available_duration="60000",
            ) as producer,
        ):  # fmt: skip
            await producer.send(Message("T", b"y" * 20))
            (sent,) = [c for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            assert sent.header(SendMessageV2Header).sys_flag & 1, "compressed from 10 bytes on"
            left_out_ms = producer.faults[BROKER].available_from_ms - asyncio.get_running_loop().time() * 1000
            assert 50_000 < left_out_ms <= 60_000
            assert producer._chooser.latencies is not None

            def broken(connection: Connection, _command: Command) -> None:
                connection.abort()

            system.answers[RequestCode.SEND_MESSAGE_V2] = broken
            with pytest.raises(ClientError, match="in 1 attempts"):
                await producer.send_async(Message("T", b"x"))

    run(scenario())


@pytest.mark.parametrize("chosen", [False, True])
def test_an_asynchronous_send_is_tried_again_after_the_network_failed(chosen: bool) -> None:
    queue = MessageQueue("T", BROKER, 2) if chosen else None

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            cut = 2

            def broken(connection: Connection, _command: Command) -> Command | None:
                nonlocal cut
                cut -= 1
                if cut >= 0:
                    connection.abort()
                return None

            await producer.send(Message("T", b"first"))
            system.answers[RequestCode.SEND_MESSAGE_V2] = broken
            task = producer.send_async(Message("T", b"x"), queue=queue)
            await until(lambda: cut <= 0)
            del system.answers[RequestCode.SEND_MESSAGE_V2]
            result = await task
            assert result.status is SendStatus.SEND_OK
            assert queue is None or result.queue == queue

    run(scenario())


def test_a_burst_waits_for_its_turn_and_its_time_begins_then() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            Producer("g", system.address, async_in_flight_max=2, send_timeout_ms=400) as producer,
        ):
            await producer.send(Message("T", b"warm"))
            burst = SlowBroker()
            system.answers[RequestCode.SEND_MESSAGE_V2] = burst.answer
            sent = [producer.send_async(Message("T", b"x")) for _ in range(10)]
            hasty = producer.send_async(Message("T", b"x"), timeout=0.1)
            with pytest.raises(TooManyRequestsError, match="before there was room in flight"):
                await hasty
            results = await asyncio.gather(*sent)  # 0.75 s of broker's time, more than one send may take
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            assert burst.most == 2

    run(scenario(), IdleLoop)


def test_a_send_whose_first_attempt_needs_no_wait_makes_no_task() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            await producer.send(Message("T", b"warm"))
            tasks = asyncio.all_tasks()
            sent = [producer.send_async(Message("T", b"x")) for _ in range(3)]
            assert asyncio.all_tasks() == tasks
            assert {result.status for result in await asyncio.gather(*sent)} == {SendStatus.SEND_OK}

    run(scenario())


def test_a_cancelled_send_makes_room_for_others() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, async_in_flight_max=1) as producer:
            await producer.send(Message("T", b"warm"))
            system.answers[RequestCode.SEND_MESSAGE_V2] = silence()
            sent = asyncio.create_task(producer.send(Message("T", b"x")))
            await until(lambda: system.count(RequestCode.SEND_MESSAGE_V2) == 2)
            begun = producer.send_async(Message("T", b"y"))  # waits for room
            sent.cancel()
            await until(lambda: system.count(RequestCode.SEND_MESSAGE_V2) == 3)
            begun.cancel()
            system.answers.clear()
            assert (await producer.send(Message("T", b"z"))).status is SendStatus.SEND_OK

    run(scenario(), IdleLoop)


def test_a_cancelled_asynchronous_send_makes_room_at_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, async_in_flight_max=1) as producer:
            await producer.send(Message("T", b"warm"))
            system.answers[RequestCode.SEND_MESSAGE_V2] = silence()
            producer.send_async(Message("T", b"x")).cancel()
            system.answers.clear()
            began = asyncio.get_running_loop().time()
            assert (await producer.send(Message("T", b"y"))).status is SendStatus.SEND_OK
            assert asyncio.get_running_loop().time() == began, "not when the response would be overdue"

    run(scenario(), IdleLoop)


def test_a_thread_that_may_not_send_takes_no_room() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, async_in_flight_max=1) as producer:
            await producer.send(Message("T", b"warm"))
            for _ in range(3):
                with pytest.raises(RuntimeError, match="no running event loop"):
                    await asyncio.to_thread(producer.send_async, Message("T", b"x"))
            assert (await producer.send(Message("T", b"y"))).status is SendStatus.SEND_OK

    run(scenario())


class Watching:
    def before(self, address: str, request: Command) -> None: ...

    def after(self, address: str, request: Command, response: Command) -> None: ...


def test_sends_take_the_queues_in_turn_whoever_looks_at_requests() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            producer = Producer("g", system.address)
            producer.add_rpc_hook(Watching())
            async with producer:
                used = Counter([(await producer.send(Message("T", b"x"))).queue.queue_id for _ in range(16)])
                assert set(used.values()) == {16 // len(used)}
                assert len(used) == len(await producer.fetch_publish_queues("T"))

    run(scenario())


def test_after_a_failed_attempt_the_route_of_that_moment_counts() -> None:
    async def scenario() -> None:
        async with fake_system() as old, fake_system() as new, Producer("g", old.address) as producer:
            await producer.send(Message("T", b"warm"))

            def moved(connection: Connection, _command: Command) -> None:
                producer._instance.routes._topics.clear()
                connection.abort()

            def route(_connection: Connection, command: Command) -> Command:
                brokers = [BrokerData(addresses={0: new.address}, broker_name="new", cluster="C")]
                queues = [QueueData(broker_name="new", perm=6, read_queues=1, write_queues=1)]
                return command.response(
                    0, body=encode_standard(TopicRouteData(broker_datas=brokers, queue_datas=queues))
                )

            old.answers[RequestCode.SEND_MESSAGE_V2] = moved
            old.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
            result = await producer.send(Message("T", b"x"))
            assert result.queue.broker_name == "new"
            assert old.count(RequestCode.SEND_MESSAGE_V2) == 2, "the first one, and the one that failed"

    run(scenario())


WAYS: dict[str, Callable[[TransactionProducer[None], float | None], Awaitable[object]]] = {
    "send": lambda producer, timeout: producer.send(Message("T", b"x"), timeout=timeout),
    "send to a queue": lambda producer, timeout: producer.send(Message("T", b"x"), sharding_key="k", timeout=timeout),
    "send_batch": lambda producer, timeout: producer.send_batch([Message("T", b"x")], timeout=timeout),
    "prepare": lambda producer, timeout: producer.prepare(Message("T", b"x"), timeout=timeout),
}


@pytest.mark.parametrize("way", WAYS)
def test_sends_that_are_awaited_wait_for_their_turn_and_their_time_begins_then(way: str) -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            TransactionProducer(
                "g", system.address, listener=Committing(), async_in_flight_max=2, send_timeout_ms=400
            ) as producer,
        ):
            await producer.send(Message("T", b"warm"))
            burst = SlowBroker()
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_BATCH_MESSAGE):
                system.answers[code] = burst.answer
            sent = [asyncio.create_task(_awaited(WAYS[way](producer, None))) for _ in range(10)]
            await asyncio.sleep(0)
            with pytest.raises(TooManyRequestsError, match=r"nothing was sent: 2 of at most 2 .*async_in_flight_max"):
                await WAYS[way](producer, 0.1)
            await asyncio.gather(*sent)  # 0.75 s of broker's time, more than one send may take
            assert burst.most == 2
            assert burst.count == 10, "the hasty one was never sent"

    run(scenario(), IdleLoop)


def test_requests_wait_for_their_turn_within_their_time() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, async_in_flight_max=2) as producer:
            await producer.send(Message("T", b"warm"))
            burst = SlowBroker()
            system.answers[RequestCode.SEND_MESSAGE_V2] = burst.answer
            asked = [asyncio.create_task(producer.request(Message("T", b"x"), timeout=0.5)) for _ in range(10)]
            outcomes = await asyncio.gather(*asked, return_exceptions=True)
            assert burst.most == 2
            assert sum(isinstance(outcome, RequestTimeout) for outcome in outcomes) == 6, "stored by then"
            assert burst.count == 8, "two more were under way"
            assert sum("room in flight, so nothing was sent" in str(outcome) for outcome in outcomes) == 2

    run(scenario(), IdleLoop)


@pytest.mark.parametrize("code", [RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.HEART_BEAT])
def test_a_request_ends_in_time_while_its_topic_is_looked_up(code: RequestCode) -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            system.topics["T"] = 1
            system.answers[code] = silence()
            began = asyncio.get_running_loop().time()
            with pytest.raises(TooManyRequestsError, match=r"brokers of topic T knew this client, so nothing was sent"):
                await producer.request(Message("T", b"x"), timeout=0.5)
            assert asyncio.get_running_loop().time() - began < 1

    run(scenario(), IdleLoop)


def test_a_burst_goes_through_whole_that_a_broker_needs_longer_for_than_one_send_may_take() -> None:
    """As 45,000 sends at once with the usual settings at a broker that stores 10,000 in a second; each is sent once."""
    sends, a_second = 4500, 1000

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, async_in_flight_max=100) as producer:
            await producer.send(Message("T", b"warm"))
            loop, stored = asyncio.get_running_loop(), 0
            began = loop.time()

            async def store(_connection: Connection, command: Command) -> Command:
                nonlocal stored
                stored += 1
                await asyncio.sleep(began + stored // STEP * STEP / a_second - loop.time())
                header = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=0)
                return command.response(ResponseCode.SUCCESS, header=header)

            system.answers[RequestCode.SEND_MESSAGE_V2] = store
            results = await asyncio.gather(*(producer.send(Message("T", b"x")) for _ in range(sends)))
            assert {result.status for result in results} == {SendStatus.SEND_OK}
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 1 + sends
            assert loop.time() - began > 3.0

    run(scenario(), IdleLoop)


def test_a_callback_gets_the_result_or_the_error_and_harms_nothing() -> None:
    told: list[tuple[object, object]] = []

    def callback(result: SendResult | None, error: BaseException | None) -> None:
        told.append((result, error))
        raise RuntimeError("a bug in a callback")

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            result = await producer.send_async(Message("T", b"x"), callback)
            batch = await producer.send_batch_async([Message("T", b"1"), Message("T", b"2")], callback)
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY)
            with pytest.raises(BrokerError) as raised:
                await producer.send_async(Message("T", b"x"), callback)
            await until(lambda: len(told) == 3)
            assert told == [(result, None), (batch, None), (None, raised.value)]
            assert batch.msg_id.count(",") == 1

    run(scenario())


def test_shutdown_ends_with_sends_that_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(producer_module, "CLOSE_S", 0.05)

    async def scenario() -> None:
        async with fake_system() as system:
            producer = Producer("g", system.address, send_timeout_ms=60_000, api_timeout_ms=100)
            await producer.start()
            await producer.send(Message("T", b"x"))
            for code in (RequestCode.SEND_MESSAGE_V2, RequestCode.UNREGISTER_CLIENT, RequestCode.HEART_BEAT):
                system.answers[code] = silence()
            task = producer.send_async(Message("T", b"x"))
            async with asyncio.timeout(5):
                await producer.shutdown()
            assert task.cancelled()

    run(scenario())


# ------------------------------------------------------------------------------------------------------------ namespace


def test_brokers_see_the_namespace_and_the_application_does_not() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, namespace="NS") as producer:
            message = Message("T", b"x")
            results = [
                await producer.send(message),
                await producer.send(message, queue=MessageQueue("T", BROKER, 2)),
                await producer.send(message, selector=lambda queues, _message, _arg: queues[1]),
                await producer.send_async(message, sharding_key="TagA"),
                await producer.send_batch([message, message], queue=MessageQueue("T", BROKER, 3)),
                await producer.send_batch_async([message], queue=MessageQueue("T", BROKER, 3)),
            ]
            assert message.topic == "T"
            assert {result.queue.topic for result in results} == {"T"}
            assert [result.queue.queue_id for result in results[1:]] == [2, 1, 3, 3, 3]
            assert set(system.topics) == {"TBW102", "NS%T"}
            stored = [unit for units in system.messages.values() for unit in units]
            assert {decode_properties(unit.properties)["INSTANCE_ID"] for unit in stored} == {"NS"}
            (header, *_) = [
                command.header(SendMessageV2Header)
                for command in system.asked
                if command.code == RequestCode.SEND_MESSAGE_V2
            ]
            assert (header.topic, header.producer_group) == ("NS%T", "NS%g")
            assert {one.group_name for one in system.heartbeats[-1].producer_data_set} == {"NS%g"}
            assert {queue.topic for queue in await producer.fetch_publish_queues("T")} == {"T"}
            assert await producer.max_offset(MessageQueue("T", BROKER, 3)) > 0

    run(scenario())


def test_an_endpoint_names_the_namespace_unless_one_is_given() -> None:
    assert Producer("g", "http://MQ_INST_1_a.example.com:80").group == "MQ_INST_1_a%g"
    assert Producer("g", "http://MQ_INST_1_a.example.com:80", namespace="NS").group == "NS%g"
    with pytest.raises(ConfigurationError, match="namespace"):
        Producer("g", "h:1", namespace="a%b")


def test_a_unit_is_told_with_each_message() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, unit_mode=True) as producer:
            await producer.send(Message("T", b"x"))
            (asked,) = [command for command in system.asked if command.code == RequestCode.SEND_MESSAGE_V2]
            assert asked.header(SendMessageV2Header).unit_mode

    run(scenario())


def test_a_message_may_be_sent_again_and_is_another_one_then() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, namespace="NS") as producer:
            message = Message("T", b"x" * 10_000, keys="k", tags="t")
            before = (message.topic, message.body, dict(message.properties))
            ids = {(await producer.send(message)).msg_id for _ in range(3)}
            ids |= {(await producer.send_batch([message, message])).msg_id}
            assert len({one for joined in ids for one in joined.split(",")}) == 5
            assert (message.topic, message.body, message.properties) == before

    run(scenario())
