"""Hooks see every attempt and every call of a listener, do no harm, and one kind of them forbids."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence

import pytest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PullConsumer,
    PushConsumer,
    sync,
)
from orbitmq.client.core.hooks import ConsumeContext, FilterContext, MessageKind, SendContext
from orbitmq.errors import BrokerError, ClientError, InvalidStateError
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, fake_system, refuse
from tests.support.loops import run, until

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


class Recorder:
    """A hook that notes what it sees."""

    def __init__(self) -> None:
        self.before_results: list[object] = []
        self.sends: list[SendContext] = []
        self.calls: list[ConsumeContext] = []

    def before(self, context: SendContext | ConsumeContext) -> None:
        self.before_results.append(context.result if isinstance(context, SendContext) else context.status)

    def after(self, context: SendContext | ConsumeContext) -> None:
        (self.sends if isinstance(context, SendContext) else self.calls).append(context)  # type: ignore[arg-type]


class Broken:
    """A hook with a bug."""

    def before(self, context: object) -> None:
        raise RuntimeError("a bug in a hook")

    after = before


def test_a_hook_sees_every_attempt_of_every_way_to_send() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, retry_times=1) as producer:
            seen = Recorder()
            producer.add_send_hook(Broken())
            producer.add_send_hook(seen)
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SERVICE_NOT_AVAILABLE, times=1)
            result = await producer.send(Message("T", b"x", delay_level=2))
            await producer.send_batch([Message("T", b"1"), Message("T", b"2")])
            await producer.send_oneway(Message("T", b"x"))
            failed, stored, batch, oneway = seen.sends
            assert isinstance(failed.error, BrokerError)
            assert (stored.result, stored.error) == (result, None)
            assert (stored.group, stored.queue.broker_name, stored.broker_address) == ("g", BROKER, system.address)
            assert (stored.kind, batch.kind) == (MessageKind.DELAYED, MessageKind.NORMAL)
            assert batch.message.batch
            assert (oneway.oneway, oneway.result, oneway.error) == (True, None, None)
            assert seen.before_results == [None] * 4

    run(scenario())


def test_what_a_hook_returns_does_not_matter(caplog: pytest.LogCaptureFixture) -> None:
    class Counter(Recorder):
        def before(self, context: SendContext | ConsumeContext) -> int:  # type: ignore[override]
            super().before(context)
            return 5

        def after(self, context: SendContext | ConsumeContext) -> int:  # type: ignore[override]
            super().after(context)
            return 6

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            seen = Counter()
            producer.add_send_hook(seen)
            await producer.send(Message("T", b"x"))
            assert len(seen.sends) == 1

    run(scenario())
    assert "hook_failed" not in caplog.text


def test_a_forbidden_send_fails_at_once_and_nothing_is_sent() -> None:
    class Forbidden(Exception):
        pass

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:

            def forbid(context: SendContext) -> None:
                if context.message.body == b"secret":
                    raise Forbidden("not today")

            producer.add_forbidden_hook(forbid)
            await producer.send(Message("T", b"x"))
            with pytest.raises(Forbidden, match="not today"):
                await producer.send(Message("T", b"secret"))
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario())


@pytest.mark.parametrize("kind", ["coroutine", "function", "object"])
def test_a_hook_sees_every_call_of_the_listener(kind: str) -> None:
    def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        if messages[0].body == b"bad":
            raise RuntimeError("a bug")
        return SUCCESS

    async def listen_async(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return listen(messages, context)

    class Listens:
        async def __call__(
            self, messages: Sequence[MessageExt], context: ConcurrentContext
        ) -> ConsumeConcurrentlyStatus:
            return listen(messages, context)

    kinds = {"coroutine": listen_async, "function": listen, "object": Listens()}

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            seen = Recorder()
            consumer = PushConsumer("g", system.address, consume_from_where=FIRST)
            consumer.subscribe("T")
            consumer.set_listener(kinds[kind])
            consumer.add_consume_hook(Broken())
            consumer.add_consume_hook(seen)
            async with consumer:
                with pytest.raises(InvalidStateError, match="add hooks before"):
                    consumer.add_consume_hook(seen)
                system.put("T", 0, b"good")
                system.put("T", 0, b"bad")
                await until(lambda: len(seen.calls) == 2)
            by_body = {call.messages[0].body: call for call in seen.calls}
            assert (by_body[b"good"].status, by_body[b"good"].error) == (SUCCESS, None)
            assert by_body[b"bad"].status is None
            assert str(by_body[b"bad"].error) == "a bug"
            assert {call.queue.topic for call in seen.calls} == {"T"}
            assert seen.before_results == [None, None]

    run(scenario())


def test_threads_may_add_hooks() -> None:
    async def scenario() -> None:
        async with fake_system() as system:

            def work() -> int:
                seen = Recorder()
                with sync.Producer("g", system.address) as producer:
                    producer.add_send_hook(seen)
                    producer.add_forbidden_hook(lambda context: None)
                    producer.send(Message("T", b"x"))
                consumer = sync.PushConsumer("g", system.address)
                consumer.add_consume_hook(seen)
                return len(seen.sends)

            assert await asyncio.to_thread(work) == 1

    run(scenario())


def test_an_unsent_message_is_told_with_its_error() -> None:
    async def scenario() -> None:
        seen = Recorder()
        async with fake_system() as system, Producer("g", system.address, retry_times=0) as producer:
            await producer.send(Message("T", b"x"))
            producer.add_send_hook(seen)
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(ResponseCode.SYSTEM_BUSY)
            with pytest.raises((BrokerError, ClientError)):
                await producer.send(Message("T", b"x"))
        assert [type(context.error) for context in seen.sends] == [BrokerError]

    run(scenario())


def test_what_forbids_is_obeyed_at_once_whatever_it_raises() -> None:
    calls = 0

    def forbid(_context: SendContext) -> None:
        nonlocal calls
        calls += 1
        raise ClientError(10003, "not today")

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address, latency_fault=True) as producer:
            producer.add_forbidden_hook(forbid)
            for send in (producer.send, producer.send_async, producer.send_oneway):
                with pytest.raises(ClientError, match="not today"):
                    await send(Message("T", b"x"))
            assert calls == 3
            assert system.count(RequestCode.SEND_MESSAGE_V2) == 0
            left_out_ms = producer.faults[BROKER].available_from_ms - asyncio.get_running_loop().time() * 1000
            assert left_out_ms <= 0, "the broker is not to blame"

    run(scenario())


def test_a_hook_of_asynchronous_sends_is_called_once_and_knows_the_size_the_application_gave() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            seen = Recorder()
            producer.add_send_hook(seen)
            await producer.send_async(Message("T", b"x" * 10_000))
            (context,) = seen.sends
            assert context.message.original_size == 10_000
            assert len(context.message.body) < 10_000

    run(scenario())


def test_hooks_see_what_pull_consumers_are_given() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            for i in range(3):
                system.put("T", 0, b"%d" % i)
            queue = MessageQueue("T", BROKER, 0)
            lite = LitePullConsumer("lite", system.address, consume_from_where=FIRST)
            lite.subscribe("T")
            pull = PullConsumer("pull", system.address)
            seen = Recorder()
            for consumer in (lite, pull):
                consumer.add_consume_hook(Broken())
                consumer.add_consume_hook(seen)
            async with lite, pull:
                assert len(await lite.poll(5)) == 3
                await pull.pull(queue, "*", 1, 1)
                with pytest.raises(InvalidStateError):
                    lite.add_consume_hook(seen)
            assert [(c.group, c.queue, len(c.messages), c.status) for c in seen.calls] == [
                ("lite", queue, 3, SUCCESS), ("pull", queue, 1, SUCCESS),
            ]  # fmt: skip
            assert seen.before_results == [None, None]

    run(scenario())


def test_a_filter_takes_messages_out_and_its_errors_do_no_harm(caplog: pytest.LogCaptureFixture) -> None:
    def broken(context: FilterContext) -> None:
        raise RuntimeError("a bug in a filter")

    def even(context: FilterContext) -> None:
        assert (context.group, context.queue.topic) == ("g", "T")
        context.messages[:] = [message for message in context.messages if int(message.body) % 2 == 0]

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            for i in (0, 1, 2, 3):
                system.put("T", 0, b"%d" % i)
            got: list[bytes] = []
            received: list[int] = []

            async def listener(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                got.extend(message.body for message in messages)
                return SUCCESS

            consumer = PushConsumer("g", system.address, consume_from_where=FIRST)
            consumer.subscribe("T")
            consumer.set_listener(listener)
            consumer.add_filter_hook(broken)
            consumer.add_filter_hook(even)
            consumer.add_receive_hook(lambda context: received.append(len(context.messages)))
            async with consumer:
                await until(lambda: len(got) == 2)
                system.put("T", 0, b"5")
                await until(lambda: consumer.known_offsets("T") == {MessageQueue("T", BROKER, 0): 5})
                with pytest.raises(InvalidStateError):
                    consumer.add_filter_hook(even)
            assert got == [b"0", b"2"]
            assert received == [2], "those who look see what is left"
            assert system.offsets["g", "T", 0] == 5, "what nobody gets is done"
            pull = PullConsumer("g", system.address)
            pull.add_filter_hook(even)
            async with pull:
                result = await pull.pull(MessageQueue("T", BROKER, 0), "*", 0, 4)
                assert [message.body for message in result.messages] == [b"0", b"2"]

    run(scenario())
    assert "event=hook_failed" in caplog.text
