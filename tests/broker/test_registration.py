"""A broker stays registered with every name server, whatever one of them does."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Container
from contextlib import asynccontextmanager

import pytest

from orbitmq.broker.registration import RETRY_MAX_SECONDS, Registrar
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.wire.bodies import BrokerRegistration, KVTable, TopicTable
from orbitmq.wire.command import Command
from orbitmq.wire.headers_namesrv import (
    QueryDataVersionHeader,
    QueryDataVersionResponseHeader,
    RegisterBrokerHeader,
    UnregisterBrokerHeader,
)
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.registration import decode_registration, encode_registration, registration_crc
from orbitmq.wire.requests import RequestCode
from tests.support.loops import LoopFactory, turned_loop, until
from tests.support.peers import LOOPBACK, quiet_address

ORDERS, BILLS = TopicConfig("Orders", 4, 4), TopicConfig("Bills", 2, 2)
VERSION = DataVersion(3, 5)
PERIOD_MS = 30_000


class Listener:
    """A name server that writes down what it is told."""

    def __init__(self) -> None:
        self.topics: list[list[str]] = []
        self.oneway: list[bool] = []
        self.farewells: list[UnregisterBrokerHeader] = []
        self.known: DataVersion | None = None
        self.queries = 0
        self.answer = 0
        self.order_settings: dict[str, str] | None = None
        self.on_register = lambda: None
        self.router = Router("listener")
        self.router.add(RequestCode.REGISTER_BROKER, self._register)
        self.router.add(RequestCode.UNREGISTER_BROKER, self._unregister)
        self.router.add(RequestCode.QUERY_DATA_VERSION, self._query)
        self.server = Server(self.router, idle_seconds=1e9)
        self.address = ""

    async def start(self, port: int = 0) -> None:
        self.address = f"{LOOPBACK}:{await self.server.start(LOOPBACK, port)}"

    def _register(self, _connection: Connection, command: Command) -> Command:
        header = command.header(RegisterBrokerHeader)
        assert (header.broker_name, header.cluster_name, header.broker_addr) == ("broker-a", "c1", "10.0.0.1:10911")
        assert (header.ha_server_addr, header.broker_id) == ("10.0.0.1:10912", 0)
        assert header.body_crc32 == registration_crc(command.body)
        table = decode_registration(command.body, compressed=header.compressed).topic_table
        assert table.data_version == VERSION
        self.known = table.data_version
        self.topics.append(sorted(table.topics))
        self.oneway.append(command.is_oneway)
        self.on_register()
        body = b"" if self.order_settings is None else encode(KVTable(self.order_settings))
        return command.response(self.answer, body=body)

    def _query(self, _connection: Connection, command: Command) -> Command:
        assert command.header(QueryDataVersionHeader).broker_addr == "10.0.0.1:10911"
        self.queries += 1
        changed = self.known != decode(DataVersion, command.body)
        return command.response(self.answer, header=QueryDataVersionResponseHeader(changed))

    def _unregister(self, _connection: Connection, command: Command) -> Command:
        self.farewells.append(command.header(UnregisterBrokerHeader))
        return command.response(0)


class Party:
    """A registrar and its name servers."""

    def __init__(self, *addresses: str, compressed: bool = False, asks_first: bool = False) -> None:
        self.table = {"Orders": ORDERS, "Bills": BILLS}
        self.compressed = compressed
        self.ordered: list[Container[str]] = []
        self.remoting = Remoting(idle_seconds=1e9)
        self.registrar = Registrar(
            self.remoting,
            list(addresses),
            lambda: RegisterBrokerHeader("broker-a", "10.0.0.1:10911", "c1", "10.0.0.1:10912", 0, compressed),
            self._body,
            take_order=self.ordered.append,
            version=(lambda: VERSION) if asks_first else None,
            period_ms=PERIOD_MS,
            timeout_ms=6000,
        )

    async def _body(self, only: list[TopicConfig] | None) -> bytes:
        registration = BrokerRegistration(topic_table=self._snapshot(only))
        return encode_registration(registration, compressed=self.compressed)

    def _snapshot(self, only: list[TopicConfig] | None) -> TopicTable:
        chosen = self.table.values() if only is None else only
        return TopicTable(VERSION, {config.name: config for config in chosen})


@asynccontextmanager
async def party(*listeners: Listener, others: tuple[str, ...] = (), **options: bool) -> AsyncIterator[Party]:
    for listener in listeners:
        await listener.start()
    made = Party(*(listener.address for listener in listeners), *others, **options)
    await made.registrar.start()
    try:
        yield made
    finally:
        await made.registrar.stop()
        await made.remoting.close()
        for listener in listeners:
            await listener.server.stop(0)


@pytest.mark.parametrize("compressed", [False, True])
async def test_when_start_returns_every_name_server_knows_everything(compressed: bool) -> None:
    one, two = Listener(), Listener()
    async with party(one, two, compressed=compressed):
        assert one.topics == two.topics == [["Bills", "Orders"]]
        assert one.oneway == [False]


async def test_a_name_server_that_knows_the_topics_is_only_asked(turned_clock: LoopFactory) -> None:
    one = Listener()
    async with party(one, asks_first=True):
        assert (len(one.topics), one.queries) == (1, 1)
        await turned_loop().turn(PERIOD_MS / 1000 + 0.5)
        await until(lambda: one.queries == 2)
        assert len(one.topics) == 1
        one.known = None  # it has started anew
        await turned_loop().turn(PERIOD_MS / 1000)
        await until(lambda: len(one.topics) == 2)


async def test_the_order_settings_of_one_name_server_are_taken(turned_clock: LoopFactory) -> None:
    first, second = Listener(), Listener()
    first.order_settings, second.order_settings = {"Orders": "broker-a:4"}, {"Bills": "broker-a:2"}
    async with party(first, second) as made:
        assert made.ordered == [{"Orders": "broker-a:4"}]
        first.answer = 1
        await turned_loop().turn(PERIOD_MS / 1000 + 0.5)
        await until(lambda: len(second.topics) == 2)
        await turned_loop().turn(PERIOD_MS / 1000)
        await until(lambda: {"Bills": "broker-a:2"} in made.ordered)


async def test_it_registers_again_every_period(turned_clock: LoopFactory) -> None:
    one, two = Listener(), Listener()
    async with party(one, two):
        for rounds in range(2, 5):
            await turned_loop().turn(PERIOD_MS / 1000 - 0.5)
            assert len(one.topics) == len(two.topics) == rounds - 1
            await turned_loop().turn(0.6)
            await until(lambda rounds=rounds: len(one.topics) == len(two.topics) == rounds)
        assert len(one.server.connections) == 1


async def test_changes_are_announced_at_once_and_without_waiting(turned_clock: LoopFactory) -> None:
    one, two = Listener(), Listener()
    async with party(one, two) as made:
        made.registrar.topic_changed(ORDERS)
        made.registrar.topic_changed(BILLS)
        await until(lambda: len(one.topics) == len(two.topics) == 2)
        assert (one.topics[1], one.oneway[1]) == (["Bills", "Orders"], True)
        made.registrar.topic_changed(BILLS)
        await until(lambda: len(one.topics) == 3)
        assert one.topics[2] == ["Bills"]


async def test_a_change_while_the_first_registration_ends_is_announced() -> None:
    """Clients find the broker as soon as the name server knows it, before the broker has read the response."""
    one = Listener()
    await one.start()
    made = Party(one.address)

    def create() -> None:
        one.on_register = lambda: None
        made.registrar.topic_changed(BILLS)

    one.on_register = create
    await made.registrar.start()
    await until(lambda: one.topics == [["Bills", "Orders"], ["Bills"]])
    await made.registrar.stop()
    await made.remoting.close()
    await one.server.stop(0)


async def test_a_change_that_cannot_be_announced_is_registered_soon(turned_clock: LoopFactory) -> None:
    one, again = Listener(), Listener()
    async with party(one) as made:
        await one.server.stop(0)
        made.registrar.topic_changed(BILLS)
        await made.registrar.settled()
        await again.start(int(one.address.rpartition(":")[2]))
        await turned_loop().turn(RETRY_MAX_SECONDS)
        async with asyncio.timeout(PERIOD_MS / 1000 / 2):
            await until(lambda: again.topics == [["Bills", "Orders"]])
    await again.server.stop(0)


async def test_after_a_deletion_the_whole_table_is_announced() -> None:
    one = Listener()
    async with party(one) as made:
        del made.table["Bills"]
        made.registrar.topic_changed(None)
        await until(lambda: len(one.topics) == 2)
        assert one.topics[1] == ["Orders"]


async def test_a_dead_name_server_delays_nobody_and_is_tried_until_it_lives(turned_clock: LoopFactory) -> None:
    """RocketMQ waits a whole period before the second try."""
    one, late = Listener(), Listener()
    with quiet_address() as address:
        async with party(one, others=(address,)) as made:
            assert len(one.topics) == 1
            for _ in range(10):
                await turned_loop().turn(1)
            made.registrar.topic_changed(ORDERS)
            await until(lambda: len(one.topics) == 2)
            await late.start(int(address.rpartition(":")[2]))
            await turned_loop().turn(5.1)
            await until(lambda: late.topics)
            assert len(one.topics) == 2
            await turned_loop().turn(PERIOD_MS / 1000)
            await until(lambda: len(late.topics) == 2)
        assert len(late.farewells) == 1
        await late.server.stop(0)


async def test_a_name_server_that_refuses_is_tried_again(
    turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    one = Listener()
    one.answer = 1
    async with party(one):
        assert "event=register_failed" in caplog.text
        one.answer = 0
        await turned_loop().turn(PERIOD_MS / 1000 + 1)
        await until(lambda: len(one.topics) >= 2)


async def test_a_name_server_that_comes_back_is_registered_with_again(turned_clock: LoopFactory) -> None:
    one, again = Listener(), Listener()
    async with party(one):
        await one.server.stop(0)
        await again.start(int(one.address.rpartition(":")[2]))
        await turned_loop().turn(PERIOD_MS / 1000 + 1)
        await until(lambda: again.topics == [["Bills", "Orders"]])
    await again.server.stop(0)


async def test_it_takes_its_leave_once_and_is_silent_afterwards(turned_clock: LoopFactory) -> None:
    one = Listener()
    async with party(one) as made:
        pass
    assert [(gone.broker_name, gone.broker_addr, gone.broker_id) for gone in one.farewells] == [
        ("broker-a", "10.0.0.1:10911", 0)
    ]
    told = len(one.topics)
    made.registrar.topic_changed(ORDERS)
    await turned_loop().turn(100)
    assert len(one.topics) == told


async def test_a_dead_name_server_does_not_hold_up_the_stop() -> None:
    with quiet_address() as address:
        made = Party(address)
        async with asyncio.timeout(20):
            await made.registrar.start()
            await made.registrar.stop()
        await made.remoting.close()
