"""Tools ask a live broker what only a consumer knows: the question goes on to it, its answer comes back as it is."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import decode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.wire.bodies import ConsumerStatus
from orbitmq.wire.command import Command
from orbitmq.wire.headers_groups import (
    ConsumeMessageDirectlyHeader,
    GetConsumerRunningInfoHeader,
    InvokeBrokerToGetConsumerStatusHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.support.live import BROKER, Client, Time, client_of, consumer, made_broker, running
from tests.support.loops import LoopFactory, until

ORDERS = SubscriptionData("Orders", version=1)
Handler = Callable[[Connection, Command], Command | None]


@asynccontextmanager
async def member(broker: Broker, name: str, handler: Handler) -> AsyncIterator[Client]:
    """A consumer that answers what the broker asks with `handler`."""
    client = Client(broker, name)
    router = Router(name)
    router.add((RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT, RequestCode.GET_CONSUMER_RUNNING_INFO), handler)
    router.add(RequestCode.CONSUME_MESSAGE_DIRECTLY, handler)
    router.add(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, lambda _connection, _command: None)
    client.remoting = Remoting(router)
    await client.heartbeat(consumer("g", ORDERS))
    try:
        yield client
    finally:
        await client.remoting.close()


async def status(client: Client, who: str | None = None) -> Command:
    header = InvokeBrokerToGetConsumerStatusHeader("Orders", "g", who)
    return await client.ask(RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS, header)


def at(offset: int) -> Handler:
    table = {MessageQueue("Orders", BROKER, 0): offset}
    return lambda _, asked: asked.response(0, body=encode(ConsumerStatus(message_queue_table=table)))


async def test_every_member_is_asked_for_its_offsets(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with (
        running(broker),
        client_of(broker) as tool,
        member(broker, "anna", at(3)),
        member(broker, "bert", at(5)),
        member(broker, "carl", lambda _, asked: asked.response(1, "does not feel like it")),
    ):
        answer = await status(tool)
        assert answer.code == 0
        found = decode(ConsumerStatus, answer.body)
        assert {name: list(table.values()) for name, table in found.consumer_table.items()} == {
            "anna": [3],
            "bert": [5],
        }
        one = decode(ConsumerStatus, (await status(tool, "bert")).body)
        assert list(one.consumer_table) == ["bert"]


async def test_nobody_to_ask_is_a_system_error(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as tool:
        assert (await status(tool)).code == 1


Ask = Callable[[Client], Awaitable[Command]]


def running_info(client: Client, who: str = "anna") -> Awaitable[Command]:
    return client.ask(RequestCode.GET_CONSUMER_RUNNING_INFO, GetConsumerRunningInfoHeader("g", who, True))


async def test_a_question_goes_on_and_the_answer_comes_back_as_it_is(tmp_path: Path) -> None:
    heard: list[Command] = []

    def answers(_connection: Connection, asked: Command) -> Command:
        heard.append(asked)
        answer = asked.response(0, "well", body=b'{"any":"body"}')
        answer.ext, answer.language, answer.version = {"x": "y"}, "GO", 317
        return answer

    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as tool, member(broker, "anna", answers):
        answer = await running_info(tool)
        assert (answer.code, answer.remark, answer.body, answer.ext) == (0, "well", b'{"any":"body"}', {"x": "y"})
        assert (answer.language, answer.version) == ("GO", 317)
        assert heard[0].ext == {"consumerGroup": "g", "clientId": "anna", "jstackEnable": "true"}


async def test_a_message_is_read_and_handed_on_with_the_brokers_name(tmp_path: Path) -> None:
    heard: list[Command] = []

    def takes(_connection: Connection, asked: Command) -> Command:
        heard.append(asked)
        return asked.response(0, body=b'{"consumeResult":"CR_SUCCESS"}')

    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as tool, member(broker, "anna", takes):
        await tool.send("Orders", b"first")
        await tool.send("Orders", b"second")
        message = (await tool.read("Orders"))[1]
        header = ConsumeMessageDirectlyHeader("g", "anna", message.offset_msg_id)
        answer = await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)
        assert (answer.code, answer.body) == (0, b'{"consumeResult":"CR_SUCCESS"}')
        assert (heard[0].ext or {})["brokerName"] == BROKER
        assert decode_unit(heard[0].body).body == b"second"


@pytest.mark.parametrize("id_", ["", "nonsense", "7F00000100002A9F0000000001000000"])
async def test_a_message_that_is_not_there_is_refused(tmp_path: Path, id_: str) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as tool:
        header = ConsumeMessageDirectlyHeader("g", "anna", id_)
        assert (await tool.ask(RequestCode.CONSUME_MESSAGE_DIRECTLY, header)).code == 1


@pytest.mark.parametrize("case", ["other client", "other group", "old version", "gone meanwhile"])
async def test_a_consumer_that_cannot_be_asked_is_a_system_error(tmp_path: Path, case: str) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as tool, member(broker, "anna", lambda *_: None) as anna:
        if case == "other group":
            broker.consumers.groups["h"] = broker.consumers.groups.pop("g")
        if case == "old version":
            next(iter(broker.consumers.groups["g"].members.values())).version = 61
        if case == "gone meanwhile":
            (client,) = broker.consumers.groups["g"].members.values()
            client.connection.close()
            broker.consumers.groups["g"].members[client.connection] = client
        answer = await running_info(tool, "bert" if case == "other client" else anna.client_id)
        assert answer.code == 1
        assert answer.remark


async def test_a_consumer_that_does_not_answer_is_a_timeout(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    heard: list[Command] = []
    async with running(broker), client_of(broker) as tool, member(broker, "anna", lambda _, asked: heard.append(asked)):
        asking = asyncio.ensure_future(running_info(tool))
        await until(lambda: heard)
        await time.pass_by(9)
        assert not asking.done()
        await time.pass_by(1.5)
        assert (await asking).code == 207
