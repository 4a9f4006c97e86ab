"""What a broker asks of a client gets its answer: offsets moved and told, running info, a message taken directly."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import pytest

from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, LitePullConsumer, MessageQueue, PushConsumer
from orbitmq.client.typed import Topic, msgspec_codec, typed
from orbitmq.message.unit import encode_unit
from orbitmq.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeResult,
    ConsumerRunningInfo,
    ConsumerStatus,
    QueueOffset,
    QueueOffsetList,
    QueueOffsets,
)
from orbitmq.wire.codes import version_name
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_groups import (
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    GetConsumerStatusFromClientHeader,
    ResetConsumerClientOffsetHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system
from tests.support.loops import until

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Q0, Q1 = (MessageQueue("T", BROKER, number) for number in (0, 1))


class Listener:
    """Keeps bodies; answers with what it is told, or raises it."""

    def __init__(self, says: Any = SUCCESS) -> None:
        self.got: list[bytes] = []
        self.says = says
        self.go_on = asyncio.Event()
        self.go_on.set()

    async def __call__(self, messages: Any, _context: object) -> Any:
        self.got += [message.body for message in messages]
        await self.go_on.wait()
        if isinstance(self.says, Exception):
            raise self.says
        return self.says


@asynccontextmanager
async def pushing(system: FakeSystem, listener: Any, **settings: Any) -> AsyncIterator[PushConsumer]:
    system.topics["T"] = 2
    consumer = PushConsumer("g", system.address, consume_from_where=FIRST, **settings)
    consumer.subscribe("T", "TagA || TagB")
    consumer.set_listener(listener)
    async with consumer:
        yield consumer


async def ask(system: FakeSystem, command: Command) -> Command:
    """A request of the broker, over the connection the client made."""
    return await system.connections[-1].call(command, 10_000)


def move(system: FakeSystem, body: bytes, topic: str = "T", group: str = "g") -> None:
    header = ResetConsumerClientOffsetHeader(topic, group, 0)
    command = request(RequestCode.RESET_CONSUMER_CLIENT_OFFSET, header, body, oneway=True)
    system.connections[-1].send(command)


def put(system: FakeSystem, queue: int, *bodies: bytes) -> None:
    for body in bodies:
        system.put("T", queue, body, "TAGS\x01TagA")


@pytest.mark.parametrize("form", ["map", "list", "pairs"])
async def test_a_push_consumer_goes_on_where_the_operator_says(form: str) -> None:
    async with fake_system() as system:
        put(system, 0, b"0", b"1", b"2")
        put(system, 1, b"other")
        listener = Listener()
        async with pushing(system, listener) as consumer:
            await until(lambda: len(listener.got) == 4)
            await until(lambda: consumer.known_offsets("T") == {Q0: 3, Q1: 1})
            listener.got.clear()
            offsets = QueueOffsets({Q0: 1, MessageQueue("Else", BROKER, 0): 0})
            listed = QueueOffsetList([QueueOffset(BROKER, 1, 0, "T"), QueueOffset(BROKER, 0, 0, "Else")])
            queues = (f'{{"brokerName":"{BROKER}","queueId":0,"topic":"{topic}"}}' for topic in ("T", "Else"))
            pairs = '{{"offsetTable":[[{},1],[{},0]]}}'.format(*queues).encode()
            move(system, {"map": encode(offsets), "list": encode(listed), "pairs": pairs}[form])
            await until(lambda: listener.got == [b"1", b"2"])
            await until(lambda: consumer.known_offsets("T") == {Q0: 3, Q1: 1})


async def test_what_a_listener_finishes_after_the_move_does_not_undo_it() -> None:
    async with fake_system() as system:
        put(system, 0, b"0", b"1")
        listener = Listener()
        async with pushing(system, listener) as consumer:
            await until(lambda: consumer.known_offsets("T").get(Q0) == 2)
            listener.go_on.clear()
            put(system, 0, b"late")
            await until(lambda: listener.got[-1:] == [b"late"])
            move(system, encode(QueueOffsets({Q0: 0})))
            await until(lambda: system.offsets.get(("g", "T", 0)) == 0)
            listener.go_on.set()
            await until(lambda: listener.got == [b"0", b"1", b"late", b"0", b"1", b"late"])


async def test_questions_about_others_change_nothing() -> None:
    async with fake_system() as system:
        put(system, 0, b"0")
        listener = Listener()
        async with pushing(system, listener) as consumer:
            await until(lambda: consumer.known_offsets("T").get(Q0) == 1)
            move(system, encode(QueueOffsets({Q0: 0})), topic="Else")
            move(system, encode(QueueOffsets({Q0: 0})), group="else")
            header = GetConsumerStatusFromClientHeader("T", "g")
            answer = await ask(system, request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
            assert decode(ConsumerStatus, answer.body).message_queue_table[Q0] == 1
            assert listener.got == [b"0"]


async def test_offsets_in_memory_are_told() -> None:
    async with fake_system() as system:
        put(system, 1, b"0", b"1")
        async with pushing(system, Listener()) as consumer:
            await until(lambda: consumer.known_offsets("T").get(Q1) == 2)
            for group, known in (("g", 2), ("else", None)):
                header = GetConsumerStatusFromClientHeader("T", group)
                answer = await ask(system, request(RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, header))
                assert answer.code == 0
                assert decode(ConsumerStatus, answer.body).message_queue_table.get(Q1) == known


async def info(system: FakeSystem, group: str = "g", *, stacks: bool = False) -> Command:
    header = GetConsumerRunningInfoHeader(group, "whoever", stacks)
    return await ask(system, request(RequestCode.GET_CONSUMER_RUNNING_INFO, header))


async def test_a_push_consumer_tells_what_it_is_doing() -> None:
    async with fake_system() as system:
        put(system, 0, b"0", b"1")
        listener = Listener()
        listener.go_on.clear()
        before_ms = time.time_ns() // 1_000_000
        async with pushing(system, listener, consume_threads=7, max_reconsume_times=3) as consumer:
            await until(lambda: listener.got == [b"0", b"1"])
            found = decode(ConsumerRunningInfo, (await info(system)).body)
            assert before_ms <= int(found.properties.pop("PROP_CONSUMER_START_TIMESTAMP"))
            assert {
                "PROP_NAMESERVER_ADDR": system.address + ";",
                "PROP_CONSUME_TYPE": "CONSUME_PASSIVELY",
                "PROP_CLIENT_VERSION": "V4_9_7",
                "PROP_CONSUMEORDERLY": "false",
                "PROP_THREADPOOL_CORE_SIZE": "7",
                "consumerGroup": "g",
                "messageModel": "CLUSTERING",
                "consumeFromWhere": "CONSUME_FROM_FIRST_OFFSET",
                "maxReconsumeTimes": "3",
            }.items() <= found.properties.items()
            assert {one.topic: one.expression for one in found.subscription_set} == {
                "T": "TagA || TagB",
                "%RETRY%g": "*",
            }
            assert set(found.mq_table) == consumer.assignment()
            queue = found.mq_table[Q0]
            assert (queue.cached_msg_count, queue.cached_msg_min_offset, queue.cached_msg_max_offset) == (2, 0, 1)
            assert queue.last_pull_timestamp >= before_ms
            assert not queue.dropped
            assert found.status_table["T"].pull_tps > 0
            assert found.jstack is None
            stacks = decode(ConsumerRunningInfo, (await info(system, stacks=True)).body).jstack or ""
            assert "thread MainThread" in stacks
            assert "await self.go_on.wait()" in stacks, "where the listener hangs"
            listener.says = LATER
            listener.go_on.set()
            await until(lambda: system.sent_back)
            status = decode(ConsumerRunningInfo, (await info(system)).body).status_table["T"]
            assert status.consume_failed_msgs == 2
            assert status.consume_ok_tps == 0


async def test_a_pull_consumer_tells_its_settings_and_subscriptions() -> None:
    async with fake_system() as system:
        system.topics["T"] = 1
        consumer = LitePullConsumer("g", system.address, consume_from_where=FIRST)
        consumer.subscribe("T")
        async with consumer:
            found = decode(ConsumerRunningInfo, (await info(system)).body)
            assert found.properties["PROP_CONSUME_TYPE"] == "CONSUME_ACTIVELY"
            assert [one.topic for one in found.subscription_set] == ["T"]
            assert found.mq_table == {}
            put(system, 0, b"0")
            assert [message.body for message in await consumer.poll(5)] == [b"0"]
            move(system, encode(QueueOffsets({Q0: 0})))
            assert (await directly(system)).code == 1
            assert await consumer.poll(0) == [], "the application alone decides where it reads"


async def test_a_group_this_client_does_not_have_is_a_system_error() -> None:
    async with fake_system() as system, pushing(system, Listener()):
        assert (await info(system, "else")).code == 1
        assert (await directly(system, "else")).code == 1


async def directly(system: FakeSystem, group: str = "g", body: bytes = b"by hand") -> Command:
    unit = encode_unit(system.put("Other", 0, body, "K\x01v"))
    header = ConsumeMessageDirectlyHeader(group, "whoever", "id", BROKER)
    return await ask(system, request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, unit))


@pytest.mark.parametrize(("says", "result"), [
    (SUCCESS, ConsumeResult.CR_SUCCESS),
    (LATER, ConsumeResult.CR_LATER),
    (None, ConsumeResult.CR_RETURN_NULL),
    (ValueError("no such order"), ConsumeResult.CR_THROW_EXCEPTION),
])  # fmt: skip
@pytest.mark.parametrize("kind", ["coroutine", "function"])
async def test_a_message_is_taken_directly(says: Any, result: ConsumeResult, kind: str) -> None:
    listener = Listener(says)

    def function(messages: Any, _context: object) -> Any:
        listener.got += [message.body for message in messages]
        if isinstance(says, Exception):
            raise says
        return says

    async with fake_system() as system, pushing(system, listener if kind == "coroutine" else function) as consumer:
        answer = await directly(system)
        found = decode(ConsumeDirectlyResult, answer.body)
        assert (answer.code, found.consume_result, found.order, found.auto_commit) == (0, result, False, True)
        assert (found.remark is not None and "no such order" in found.remark) is isinstance(says, Exception)
        assert listener.got == [b"by hand"]
        assert system.sent_back == []
        assert consumer.known_offsets("Other") == {}


@pytest.mark.parametrize("kind", ["typed", "other"])
async def test_a_message_that_is_rejected_directly_is_reported_with_the_reason(kind: str) -> None:
    def of_values(_received: object, _context: object) -> Any:
        raise AssertionError("there is no value")

    def of_messages(messages: Any, context: Any) -> Any:
        context.reject(messages[0], "no Order")
        return SUCCESS

    async with fake_system() as system:
        system.topics["T"] = 1
        consumer = PushConsumer("g", system.address)
        consumer.subscribe("T")
        topic = Topic("Other", msgspec_codec(dict[str, int]))
        consumer.set_listener(typed(consumer, topic, of_values) if kind == "typed" else of_messages)
        async with consumer:
            found = decode(ConsumeDirectlyResult, (await directly(system)).body)
        assert found.consume_result is ConsumeResult.CR_THROW_EXCEPTION
        assert str(found.remark).startswith("the listener rejects the message: no ")
        assert system.sent_back == [], "it is not consumed for good, and becomes no dead letter"


async def test_a_body_that_is_no_message_is_refused() -> None:
    async with fake_system() as system, pushing(system, Listener()):
        header = ConsumeMessageDirectlyHeader("g", "whoever", "id", BROKER)
        assert (await ask(system, request(RequestCode.CONSUME_MESSAGE_DIRECTLY, header, b"nonsense"))).code == 1


@pytest.mark.parametrize(("ordinal", "name"), [(213, "V4_0_0"), (399, "V4_9_3"), (407, "V4_9_7"), (479, "V5_3_3")])
def test_versions_have_names(ordinal: int, name: str) -> None:
    assert version_name(ordinal) == name
