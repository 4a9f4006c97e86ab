"""The asking side: one shared connection an address, every wait bounded, and no caller left waiting for nothing."""

from __future__ import annotations

import asyncio
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.errors import ConnectError, InvalidStateError, OrbitMQError, RemotingTimeout, SendRequestError
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting, split_address
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.wire.command import Command, request
from tests.support.loops import LoopFactory, settle, turned_loop, until
from tests.support.peers import LOOPBACK, quiet_address, remoting, serving

ECHO, LATER = 10, 11


class Desk:
    """Answers at once or when the gate opens."""

    def __init__(self) -> None:
        self.router = Router("desk")
        self.router.add(ECHO, self.echo)
        self.router.add(LATER, self.later)
        self.gate = asyncio.Event()
        self.seen: list[Command] = []

    def echo(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command)
        return command.response(0, body=command.body)

    async def later(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command)
        await self.gate.wait()
        return command.response(0)


@asynccontextmanager
async def mute_address() -> AsyncIterator[str]:
    """An address whose connects neither succeed nor fail: the queue of a listener that accepts nobody is full."""
    listener = socket.socket()
    listener.bind((LOOPBACK, 0))
    listener.listen(0)
    fillers = []
    for _ in range(4):
        filler = socket.socket()
        filler.setblocking(False)
        filler.connect_ex(listener.getsockname())
        fillers.append(filler)
    try:
        yield f"{LOOPBACK}:{listener.getsockname()[1]}"
    finally:
        for one in (*fillers, listener):
            one.close()


# --------------------------------------------------------------------------------------------------------- connecting


async def test_concurrent_callers_share_one_connect(both_loops: LoopFactory) -> None:
    opened: list[str] = []
    async with (
        serving(Desk().router) as (server, address),
        remoting(on_open=lambda name, _: opened.append(name)) as client,
    ):
        answers = await asyncio.gather(*(client.call(address, request(ECHO, body=b"%d" % n), 5000) for n in range(40)))
        assert [answer.body for answer in answers] == [b"%d" % n for n in range(40)]
        assert len(server.connections) == 1
        assert opened == [address]


async def test_every_request_is_signed_last_and_no_answer_is(both_loops: LoopFactory) -> None:
    desk, asked = Desk(), Router("asked")
    asked.add(ECHO, lambda _connection, command: command.response(0))

    def sign(command: Command) -> None:
        command.ext = {**(command.ext or {}), "signed": "yes"}

    async with serving(desk.router) as (server, address), remoting(asked, sign=sign) as asking:
        await asking.call(address, request(ECHO), 20_000)
        await asking.oneway(address, request(ECHO))
        await until(lambda: len(desk.seen) == 2)
        assert [command.ext for command in desk.seen] == [{"signed": "yes"}] * 2
        (serving_end,) = server.connections
        assert (await serving_end.call(request(ECHO), 20_000)).ext is None


async def test_nobody_there_is_a_connect_error(both_loops: LoopFactory) -> None:
    with quiet_address() as address:
        async with remoting() as client:
            calls = [client.call(address, request(ECHO), 5000) for _ in range(3)]
            for failure in await asyncio.gather(*calls, client.oneway(address, request(ECHO)), return_exceptions=True):
                assert isinstance(failure, ConnectError)
                assert address in str(failure)


@pytest.mark.parametrize(
    "address",
    [
        *("", "localhost", "host:", "host:0", "host:65536", "host:-1", "host:http", "host:²", f"host:{'9' * 5000}"),
        *(f"{'a' * 70}:1", "a..b:1", "\udcff:1", "127.0.0.1\x00:1"),
    ],
    ids=lambda address: ascii(address)[:12],
)
async def test_an_address_that_is_none_is_a_connect_error(address: str) -> None:
    async with remoting() as client:
        with pytest.raises(ConnectError):
            await client.call(address, request(ECHO), 1000)


def test_the_last_colon_splits_an_address() -> None:
    assert split_address("broker-a:10911") == ("broker-a", 10911)
    assert split_address("[::1]:10911") == ("::1", 10911)
    assert split_address("fe80::1:10911") == ("fe80::1", 10911)


async def test_a_call_limits_the_connect_as_well(turned_clock: LoopFactory) -> None:
    async with mute_address() as address, remoting(connect_timeout_ms=3000) as client:
        call = asyncio.create_task(client.call(address, request(ECHO), 700))
        await turned_loop().turn(0.6)
        assert not call.done()
        await turned_loop().turn(0.2)
        with pytest.raises(ConnectError, match="700 ms"):
            await call


async def test_one_callers_impatience_does_not_end_the_connect_of_others(turned_clock: LoopFactory) -> None:
    async with mute_address() as address, remoting(connect_timeout_ms=3000) as client:
        hasty = asyncio.create_task(client.call(address, request(ECHO), 100))
        gone = asyncio.create_task(client.call(address, request(ECHO), 60_000))
        patient = asyncio.create_task(client.call(address, request(ECHO), 60_000))
        await turned_loop().turn(0.2)
        gone.cancel()
        with pytest.raises(ConnectError):
            await hasty
        with pytest.raises(asyncio.CancelledError):
            await gone
        assert not patient.done()
        await turned_loop().turn(3)
        with pytest.raises(ConnectError, match="timed out"):
            await patient


async def test_a_connect_that_failed_is_tried_anew_by_the_next_caller(both_loops: LoopFactory) -> None:
    with quiet_address() as address:
        async with remoting() as client:
            with pytest.raises(ConnectError):
                await client.call(address, request(ECHO), 1000)
            server = Server(Desk().router)
            await server.start(*split_address(address))
            assert (await client.call(address, request(ECHO, body=b"there now"), 5000)).body == b"there now"
            await server.stop(0)


# ------------------------------------------------------------------------------------------------------------ calling


async def test_a_response_of_any_code_is_returned(both_loops: LoopFactory) -> None:
    async with serving(Desk().router) as (_, address), remoting() as client:
        assert (await client.call(address, request(4711), 5000)).code == 3


async def test_no_answer_in_time_is_a_timeout(turned_clock: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (_, address), remoting() as client:
        call = asyncio.create_task(client.call(address, request(LATER), 2000))
        await until(lambda: desk.seen)
        await turned_loop().turn(2.1)
        with pytest.raises(RemotingTimeout):
            await call
        with pytest.raises(TimeoutError):
            await call


async def test_each_call_ends_at_its_own_time_and_answered_ones_at_none(turned_clock: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (_, address), remoting() as client:
        await client.call(address, request(ECHO), 1000)
        waits = {
            seconds: asyncio.create_task(client.call(address, request(LATER), seconds * 1000)) for seconds in (9, 3, 6)
        }
        await until(lambda: len(desk.seen) == 4)
        for seconds in (3, 6, 9):
            await turned_loop().turn(2.9)
            assert not waits[seconds].done()
            assert (await client.call(address, request(ECHO, body=b"as ever"), 1000)).body == b"as ever"
            await turned_loop().turn(0.1)
            with pytest.raises(RemotingTimeout, match=f"in {seconds}000 ms"):
                await waits[seconds]


async def test_a_oneway_request_says_so_and_waits_for_nothing(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (_, address), remoting() as client:
        await client.oneway(address, request(LATER))
        await until(lambda: desk.seen)
        assert desk.seen[0].is_oneway


async def test_who_sends_oneway_without_end_leaves_turns_to_others(both_loops: LoopFactory) -> None:
    desk, size = Desk(), 100 << 10
    async with serving(desk.router) as (_, address), remoting() as client:

        async def flood() -> None:
            while True:
                await client.oneway(address, request(ECHO, body=bytes(size)))

        flooding = asyncio.create_task(flood())
        await until(lambda: len(desk.seen) > 10, "requests on the other side while more are sent")
        flooding.cancel()


async def test_the_peers_requests_are_answered_by_the_router(both_loops: LoopFactory) -> None:
    router = Router("client")
    router.add(ECHO, lambda _, command: command.response(0, body=b"client: " + command.body))
    async with serving(Desk().router) as (server, address), remoting(router) as client:
        await client.call(address, request(ECHO), 5000)
        (served,) = server.connections
        assert (await served.call(request(ECHO, body=b"you there"), 5000)).body == b"client: you there"
        assert (await served.call(request(4711), 5000)).code == 3


async def test_a_connection_the_peer_closes_fails_its_calls_at_once_and_is_made_anew(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address), remoting() as client:
        calls = [asyncio.create_task(client.call(address, request(LATER), 60_000)) for _ in range(3)]
        await until(lambda: len(desk.seen) == 3)
        next(iter(server.connections)).close()
        for call in calls:
            with pytest.raises(SendRequestError):
                await call
        assert client.connection(address) is None
        assert (await client.call(address, request(ECHO, body=b"again"), 5000)).body == b"again"


# ------------------------------------------------------------------------------------------------------------ closing


async def test_disconnecting_fails_the_calls_of_that_address_at_once(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with (
        serving(desk.router) as (_, left),
        serving(desk.router) as (_, kept),
        remoting() as client,
    ):
        ended = asyncio.create_task(client.call(left, request(LATER), 60_000))
        lasting = asyncio.create_task(client.call(kept, request(LATER), 60_000))
        await until(lambda: len(desk.seen) == 2)
        client.disconnect(left)
        with pytest.raises(SendRequestError):
            await ended
        desk.gate.set()
        assert (await lasting).code == 0
        assert (await client.call(left, request(ECHO, body=b"anew"), 5000)).body == b"anew"


async def test_closing_fails_calls_under_way_and_refuses_new_ones(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address):
        client = Remoting()
        call = asyncio.create_task(client.call(address, request(LATER), 60_000))
        await until(lambda: desk.seen)
        await client.close()
        with pytest.raises(SendRequestError):
            await call
        await until(lambda: not server.connections)
        for refused in (client.call(address, request(ECHO), 1000), client.oneway(address, request(ECHO))):
            with pytest.raises(InvalidStateError):
                await refused


async def test_closing_tells_those_who_wait_for_a_connect(both_loops: LoopFactory) -> None:
    """They were not cancelled by anyone; a client that shuts down gives them an error of the family."""
    async with mute_address() as address:
        client = Remoting()
        waiting = [asyncio.create_task(client.call(address, request(ECHO), 60_000)) for _ in range(3)]
        await settle()
        await client.close()
        for failure in await asyncio.gather(*waiting, return_exceptions=True):
            assert isinstance(failure, OrbitMQError)


async def test_a_peer_that_reads_nothing_holds_up_neither_callers_nor_the_socket(turned_clock: LoopFactory) -> None:
    """Callers hear at once; the bytes under way get a few seconds more."""
    held: list[asyncio.StreamWriter] = []
    gone: list[Connection] = []

    async def accept(_reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        held.append(writer)

    listener = await asyncio.start_server(accept, LOOPBACK, 0)
    client = Remoting()
    address = f"{LOOPBACK}:{listener.sockets[0].getsockname()[1]}"
    call = asyncio.create_task(client.call(address, request(ECHO, body=bytes(15 << 20)), 60_000))
    await until(lambda: held and client.connection(address))
    connection = client.connection(address)
    assert connection is not None
    await until(lambda: not connection.takes_more)  # before that the caller may not have been given its connection
    connection.when_closed(gone.append)
    await client.close()
    await settle()
    assert call.done()
    with pytest.raises(SendRequestError):
        await call
    assert not gone
    await turned_loop().turn(3.1)
    assert gone == [connection]
    listener.close()
    held[0].transport.abort()


async def test_what_was_sent_before_closing_arrives(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (_, address):
        client = Remoting()
        await client.call(address, request(ECHO), 5000)
        for number in range(20):
            await client.oneway(address, request(ECHO, body=b"%d" % number))
        await client.close()
        await until(lambda: len(desk.seen) == 21)


async def test_a_silent_connection_is_closed_and_a_busy_one_kept(turned_clock: LoopFactory) -> None:
    loop = turned_loop()
    async with (
        serving(Desk().router, idle_seconds=10_000) as (_, silent),
        serving(Desk().router, idle_seconds=10_000) as (_, busy),
        remoting(idle_seconds=120) as client,
    ):
        await client.call(silent, request(ECHO), 5000)
        for _ in range(14):
            await client.call(busy, request(ECHO), 5000)
            await loop.turn(10)
        assert client.connection(silent) is None
        assert client.connection(busy) is not None
        assert (await client.call(silent, request(ECHO), 5000)).code == 0


async def test_a_caller_that_is_cancelled_when_its_connection_comes_is_cancelled(both_loops: LoopFactory) -> None:
    """It must not go on as if nothing had been: whoever cancelled it waits for its end."""
    async with serving(Router("desk")) as (_, address), remoting() as asking:
        calling = asyncio.ensure_future(asking.call(address, request(10), 5000))
        await asyncio.sleep(0)  # it has asked for a connection, and none is there yet
        asking._connecting[address].add_done_callback(lambda _: calling.cancel())
        with pytest.raises(asyncio.CancelledError):
            await calling
