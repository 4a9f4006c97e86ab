"""A client belongs to the event loop that started it: elsewhere it says so, and can still be shut down."""

from __future__ import annotations

import asyncio
import inspect
import threading
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq import client
from orbitmq.client import ConsumeConcurrentlyStatus, Message, MessageExt, MessageModel, MessageQueue
from orbitmq.client.outbox import Outbox
from orbitmq.errors import InvalidStateError
from orbitmq.schemas.model import Schema, SchemaKind
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system_beside
from tests.support.loops import LOOPS
from tests.support.process import wait_until

QUEUE = MessageQueue("T", BROKER, 0)


@pytest.fixture
def system() -> Iterator[FakeSystem]:
    with fake_system_beside() as running:
        running.topics["T"] = 1
        yield running


class Listener:
    """Of transactions; never called."""

    def execute(self, message: object, argument: object) -> Any: ...

    def check(self, message: object) -> Any: ...


async def consumed(messages: object, context: object) -> Any:
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def made(kind: type[Any], system: FakeSystem) -> Any:
    own = {"listener": Listener()} if kind is client.TransactionProducer else {}
    one = kind("g", system.address, **own)
    if kind is client.PushConsumer:
        one.set_listener(consumed)
    return one


KINDS = [
    client.Producer,
    client.TransactionProducer,
    client.PushConsumer,
    client.LitePullConsumer,
    client.PullConsumer,
    client.PullSchedule,
    client.SimpleConsumer,
]
LOOP_FREE = {"start", "shutdown", "consume_directly"}  # the last is the instance's, not the application's
ARGUMENTS: dict[str, Any] = {
    "message": MessageExt("T", b"x"),
    "messages": [Message("T", b"x")],
    "queue": QUEUE,
    "topic": "T",
    "schema": Schema(SchemaKind.JSON, "{}"),
    "offset": 0,
    "max_num": 1,
    "timeout": 1.0,
    "timestamp_ms": 0,
    "msg_id": "7F00000100002A9F0000000000000000",
    "key": "k",
    "expression": "*",
    "half": client.HalfMessage(Message("T", b"x"), None),  # type: ignore[arg-type]
    "state": client.LocalTransactionState.COMMIT_MESSAGE,
    "seconds": 1.0,
    "queues": [QUEUE],
    "recall_handle": "v1 T broker-a 0 0A",
    "listener": consumed,
}


def coroutine_methods(kind: type[Any]) -> list[str]:
    found = [name for name in dir(kind) if not name.startswith("_") and name not in LOOP_FREE]
    return [name for name in found if inspect.iscoroutinefunction(getattr(kind, name))]


def called(one: Any, name: str) -> Any:
    method = getattr(one, name)
    wanted = [p for p in inspect.signature(method).parameters.values() if p.default is p.empty]
    positional = [ARGUMENTS[p.name] for p in wanted if p.kind is p.POSITIONAL_OR_KEYWORD]
    return method(*positional, **{p.name: ARGUMENTS[p.name] for p in wanted if p.kind is p.KEYWORD_ONLY})


async def begin(one: Any) -> None:
    """Started, and with a connection."""
    await one.start()
    await one.max_offset(QUEUE)


@contextmanager
def running_elsewhere(loop: asyncio.AbstractEventLoop) -> Iterator[Callable[[Awaitable[Any]], Any]]:
    """A loop on a thread, and what runs a coroutine there."""
    thread = threading.Thread(target=loop.run_forever)
    thread.start()
    try:
        yield lambda work: asyncio.run_coroutine_threadsafe(work, loop).result(20)  # type: ignore[arg-type]
    finally:
        loop.call_soon_threadsafe(loop.stop)
        thread.join(20)
        loop.close()


@pytest.mark.parametrize("kind", KINDS)
def test_every_method_that_waits_is_refused_in_another_loop(kind: type[Any], system: FakeSystem) -> None:
    one, loop = made(kind, system), asyncio.new_event_loop()

    async def elsewhere(name: str) -> None:
        with pytest.raises(InvalidStateError) as refused:
            await called(one, name)
        assert f"{kind.__name__} of group g belongs to the event loop that started it, <" in str(refused.value), name
        assert "orbitmq.client.sync" in str(refused.value)

    assert coroutine_methods(kind)
    with running_elsewhere(loop) as there:
        there(one.start())
        for name in coroutine_methods(kind):
            asyncio.run(elsewhere(name))
        there(one.shutdown())


def test_methods_that_only_wake_others_are_refused_in_another_loop_or_none(system: FakeSystem) -> None:
    push, pull, assigned = made(client.PushConsumer, system), made(client.LitePullConsumer, system), None
    assigned = client.LitePullConsumer("other", system.address)
    assigned.assign([QUEUE])
    calls: list[Callable[[], object]] = [
        lambda: push.subscribe("U"),
        lambda: push.unsubscribe("T"),
        push.resume,
        lambda: pull.subscribe("U"),
        lambda: pull.resume([QUEUE]),
        lambda: pull.on_queues_changed("T", lambda *_: None),
        lambda: assigned.assign([QUEUE]),
    ]

    async def elsewhere(call: Callable[[], object]) -> None:
        call()

    with running_elsewhere(asyncio.new_event_loop()) as there:
        for one in (push, pull, assigned):
            there(one.start())
        for call in calls:
            with pytest.raises(InvalidStateError, match="a thread without one"):
                call()
            with pytest.raises(InvalidStateError, match="belongs to the event loop"):
                asyncio.run(elsewhere(call))
        for one in (push, pull, assigned):
            there(one.shutdown())


def test_futures_and_pauses_are_refused_in_another_loop(system: FakeSystem) -> None:
    one = made(client.Producer, system)

    async def elsewhere() -> None:
        for begin in (one.send_async, lambda message: one.send_batch_async([message])):
            with pytest.raises(InvalidStateError, match="belongs to the event loop"):
                begin(Message("T", b"x"))
        with pytest.raises(InvalidStateError, match="belongs to the event loop"):
            one.request_async(Message("T", b"x"), timeout=1)

    with running_elsewhere(asyncio.new_event_loop()) as there:
        there(one.start())
        asyncio.run(elsewhere())
        there(one.shutdown())


@pytest.mark.parametrize("kind", KINDS)
def test_a_shutdown_in_another_loop_is_done_by_the_own_one(kind: type[Any], system: FakeSystem) -> None:
    one = made(kind, system)
    with running_elsewhere(asyncio.new_event_loop()) as there:
        there(begin(one))
        asyncio.run(one.shutdown())
        assert not one.is_running
        assert system.count(RequestCode.UNREGISTER_CLIENT) == 1
        asyncio.run(one.shutdown())


@pytest.mark.parametrize("loop", LOOPS)
@pytest.mark.parametrize("is_closed", [True, False], ids=["closed", "stopped"])
@pytest.mark.parametrize("kind", KINDS)
def test_a_client_whose_loop_is_gone_can_be_shut_down(
    kind: type[Any], loop: str, is_closed: bool, system: FakeSystem
) -> None:
    own, one = LOOPS[loop](), made(kind, system)
    own.run_until_complete(begin(one))
    if is_closed:
        close(own)
    try:
        with pytest.raises(InvalidStateError, match="belongs to the event loop"):
            asyncio.run(called(one, "max_offset"))
        asyncio.run(one.shutdown())
        assert not one.is_running
        wait_until(lambda: not any(c.is_open for c in system.connections), 20, "the brokers to see it leave")
    finally:
        close(own)


def close(loop: asyncio.AbstractEventLoop) -> None:
    """As `asyncio.run` does it."""
    if not loop.is_closed():
        for task in asyncio.all_tasks(loop):
            task.cancel()
        loop.run_until_complete(asyncio.sleep(0))
        loop.close()


def test_files_of_a_client_whose_loop_is_gone_are_free_after_its_shutdown(system: FakeSystem, tmp_path: Path) -> None:
    def consumer() -> client.LitePullConsumer:
        model = MessageModel.BROADCASTING
        return client.LitePullConsumer("g", system.address, message_model=model, local_offset_dir=str(tmp_path / "o"))

    def producer() -> client.Producer:
        return client.Producer("g", system.address, outbox=Outbox(tmp_path / "outbox"))

    async def start(one: client.Producer | client.LitePullConsumer) -> None:
        await one.start()

    async def use(one: client.Producer | client.LitePullConsumer) -> None:
        async with one:
            assert one.is_running

    for make in (consumer, producer):
        one = make()
        asyncio.run(start(one))
        asyncio.run(one.shutdown())
        asyncio.run(use(make()))


def test_an_outbox_is_refused_in_another_loop(system: FakeSystem, tmp_path: Path) -> None:
    box = Outbox(tmp_path / "outbox")
    one = client.Producer("g", system.address, outbox=box)
    with running_elsewhere(asyncio.new_event_loop()) as there:
        there(one.start())
        with pytest.raises(InvalidStateError, match=r"the outbox .* belongs to the event loop"):
            asyncio.run(box.purge())
        there(one.shutdown())


def test_a_listener_on_a_thread_may_use_what_does_not_wait(system: FakeSystem) -> None:
    one = made(client.PullConsumer, system)
    with running_elsewhere(asyncio.new_event_loop()) as there:
        there(one.start())
        one.update_offset(QUEUE, 3)
        there(one.shutdown())
    assert system.offsets == {("g", "T", 0): 3}
