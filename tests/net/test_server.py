"""A server takes its port or says why not, closes the idle and the surplus, and stops with its answers given."""

from __future__ import annotations

import asyncio
import logging
import socket
import time

import pytest

from orbitmq.errors import ConfigurationError
from orbitmq.net import server as server_module
from orbitmq.net.connection import Connection
from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.flow import OPEN_REQUESTS_MAX
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import encode_frame
from tests.support.loops import LoopFactory, turned_loop, until
from tests.support.peers import LOOPBACK, bare_peer, serving
from tests.support.process import free_port

ECHO, LATER, LARGE = 10, 11, 12
LARGE_SIZE = 8 << 20


class Desk:
    """Answers at once, later, or at length."""

    def __init__(self) -> None:
        self.router = Router("desk")
        self.router.add(ECHO, lambda _, command: command.response(0, body=command.body))
        self.router.add(LATER, self.later)
        self.router.add(LARGE, lambda _, command: command.response(0, body=bytes(LARGE_SIZE)))
        self.gate = asyncio.Event()
        self.waiting = 0

    async def later(self, _connection: Connection, command: Command) -> Command:
        self.waiting += 1
        await self.gate.wait()
        return command.response(0, body=b"done")


def connects(port: int) -> bool:
    with socket.socket() as one:
        return one.connect_ex((LOOPBACK, port)) == 0


async def test_a_port_is_taken_before_anyone_is_served(both_loops: LoopFactory) -> None:
    """What takes time at a start comes between: nobody connects to a broker that is not ready."""
    server = Server(Desk().router)
    port = await server.bind(LOOPBACK, 0)
    assert port > 0
    assert not await asyncio.to_thread(connects, port)
    await server.serve()
    async with bare_peer(f"{LOOPBACK}:{port}") as peer:
        assert (await peer.ask(request(ECHO, body=b"open"))).body == b"open"
    await server.stop(0)


async def test_a_free_port_is_of_one_process_before_it_is_served(both_loops: LoopFactory) -> None:
    server = Server(Desk().router)
    port = await server.bind(LOOPBACK, 0)
    with socket.socket() as other:
        other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        with pytest.raises(OSError, match="in use"):
            other.bind((LOOPBACK, port))
    await server.stop(0)


async def test_a_free_port_is_taken_again_while_its_connections_are_closing(both_loops: LoopFactory) -> None:
    server, again = Server(Desk().router), Server(Desk().router)
    port = await server.start(LOOPBACK, 0)
    with socket.create_connection((LOOPBACK, port)):
        await until(lambda: server.connections)
        await server.stop(0)
        assert await again.start(LOOPBACK, port) == port
    await again.stop(0)


async def test_a_port_that_another_one_serves_first_is_named(both_loops: LoopFactory) -> None:
    """Two processes may take a port that both are given, as long as none of them listens."""
    port = free_port()
    first, second = Server(Desk().router), Server(Desk().router)
    await first.bind(LOOPBACK, port)
    await second.bind(LOOPBACK, port)
    await first.serve()
    with pytest.raises(ConfigurationError, match=f"^cannot listen on {LOOPBACK}:{port}: Address already in use$"):
        await second.serve()
    await first.stop(0)
    await second.stop(0)


@pytest.mark.parametrize("reason", ["Address already in use", "Cannot assign requested address"])
async def test_an_address_that_cannot_be_had_is_one_clear_line(both_loops: LoopFactory, reason: str) -> None:
    with socket.create_server((LOOPBACK, 0)) as other:
        host, port = (LOOPBACK, other.getsockname()[1]) if "use" in reason else ("192.0.2.1", 0)
        server = Server(Desk().router)
        with pytest.raises(ConfigurationError) as failure:
            await server.start(host, port)
        assert str(failure.value) == f"cannot listen on {host}:{port}: {reason}"
        await server.stop(0)


async def test_those_above_are_told_of_each_connection_once(both_loops: LoopFactory) -> None:
    told: list[tuple[str, str]] = []
    options = {
        "on_open": lambda connection: told.append(("open", connection.address)),
        "on_close": lambda connection: told.append(("close", connection.address)),
    }
    async with serving(Desk().router, **options) as (server, address):
        async with bare_peer(address) as peer:
            await peer.ask(request(ECHO))
            name = "{}:{}".format(*peer.writer.get_extra_info("sockname"))
        await until(lambda: not server.connections)
        assert told == [("open", name), ("close", name)]


async def test_connections_beyond_the_limit_are_refused_and_logged(
    both_loops: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    told: list[Connection] = []
    async with (
        serving(Desk().router, limits=ConnectionOptions(connections_max=2), on_close=told.append) as (server, address),
        bare_peer(address) as first,
        bare_peer(address) as second,
    ):
        await first.ask(request(ECHO))
        await second.ask(request(ECHO))
        with caplog.at_level(logging.WARNING):
            async with bare_peer(address) as third:
                assert await third.is_closed()
        (record,) = caplog.records
        assert "event=too_many_connections" in record.message
        assert told == []
        second.writer.close()
        await until(lambda: len(server.connections) == 1)
        async with bare_peer(address) as fourth:
            assert (await fourth.ask(request(ECHO, body=b"room again"))).body == b"room again"


async def test_one_address_leaves_room_for_others(both_loops: LoopFactory, caplog: pytest.LogCaptureFixture) -> None:
    """The loopback network has more than one address."""
    limits = ConnectionOptions(connections_max=10, host_connections_max=2)
    async with serving(Desk().router, limits=limits) as (server, address):
        host, _, port = address.rpartition(":")
        async with bare_peer(address) as first, bare_peer(address) as second:
            await first.ask(request(ECHO))
            await second.ask(request(ECHO))
            async with bare_peer(address) as third:
                assert await third.is_closed()
            assert "event=too_many_connections_of_one_host" in caplog.text
            with socket.socket() as other:
                other.bind(("127.0.0.2", 0))
                await asyncio.to_thread(other.connect, (host, int(port)))
                await until(lambda: len(server.connections) == 3)
        await until(lambda: not server.connections)
        async with bare_peer(address) as again:
            assert (await again.ask(request(ECHO))).code == 0


async def test_connections_leave_two_thirds_of_the_open_files_for_messages(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(server_module, "open_files", lambda: 6)
    async with serving(Desk().router) as (_, address), bare_peer(address) as first, bare_peer(address) as second:
        await first.ask(request(ECHO))
        await second.ask(request(ECHO))
        async with bare_peer(address) as third:
            assert await third.is_closed()


async def test_a_request_that_trickles_in_is_given_up(
    turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """Its peer is never silent, so only the time since the first byte tells. One that ends in time may begin anew."""
    loop = turned_loop()
    frame = encode_frame(request(ECHO, body=bytes(100)))
    limits = ConnectionOptions(frame_timeout_ms=60_000)
    async with (
        serving(Desk().router, limits=limits) as (server, address),
        bare_peer(address) as trickling,
        bare_peer(address) as slow,
    ):
        slow.writer.write(frame[:-1])
        for at in range(7):
            trickling.writer.write(frame[at : at + 1])
            await loop.turn(10)
            if at == 3:
                slow.writer.write(frame[-1:] + frame[:-1])
                assert (await slow.read()).code == 0
        await until(lambda: len(server.connections) == 1)
        assert await trickling.is_closed()
        assert "event=frame_too_slow" in caplog.text
        slow.writer.write(frame[-1:])
        assert (await slow.read()).code == 0


async def test_a_request_that_is_not_read_is_not_too_slow(turned_clock: LoopFactory) -> None:
    """Whose answers wait in our buffer, or whose requests are worked on, cannot send us the rest."""
    loop, desk = turned_loop(), Desk()
    frame = encode_frame(request(ECHO, body=bytes(100)))
    limits = ConnectionOptions(frame_timeout_ms=60_000)
    async with serving(desk.router, limits=limits) as (_, address), bare_peer(address) as peer:
        head = b"".join(encode_frame(request(LATER)) for _ in range(OPEN_REQUESTS_MAX))
        peer.writer.write(head + frame[:-1])
        await until(lambda: desk.waiting == OPEN_REQUESTS_MAX)
        for _ in range(10):
            await loop.turn(10)
        peer.writer.write(frame[-1:])
        desk.gate.set()
        for _ in range(OPEN_REQUESTS_MAX + 1):
            assert (await peer.read()).code == 0


async def test_a_silent_connection_is_closed_and_a_busy_one_kept(turned_clock: LoopFactory) -> None:
    loop = turned_loop()
    async with (
        serving(Desk().router, idle_seconds=120) as (server, address),
        bare_peer(address) as silent,
        bare_peer(address) as busy,
    ):
        for peer in (silent, busy):
            await peer.ask(request(ECHO))
        for _ in range(11):
            await loop.turn(10)
            await busy.ask(request(ECHO))
        assert len(server.connections) == 2
        for _ in range(3):
            await loop.turn(10)
            await busy.ask(request(ECHO))
        assert await silent.is_closed()
        assert len(server.connections) == 1


async def test_stopping_gives_answers_under_way_their_time(both_loops: LoopFactory) -> None:
    desk = Desk()
    server = Server(desk.router)
    port = await server.start(LOOPBACK, 0)
    async with bare_peer(f"{LOOPBACK}:{port}") as peer:
        await peer.send(request(LATER))
        await until(lambda: desk.waiting)
        stopping = asyncio.create_task(server.stop(grace_seconds=20))
        while await asyncio.to_thread(connects, port):
            assert not stopping.done()
        desk.gate.set()
        assert (await peer.read()).body == b"done"
        await stopping
        assert await peer.is_closed()


async def test_stopping_lets_a_slow_reader_have_its_whole_answer(both_loops: LoopFactory) -> None:
    desk = Desk()
    server = Server(desk.router)
    port = await server.start(LOOPBACK, 0)
    async with bare_peer(f"{LOOPBACK}:{port}") as peer:
        await peer.send(request(LARGE))
        await until(lambda: server.connections)
        (served,) = server.connections
        await until(lambda: served.transport and served.transport.get_write_buffer_size())
        stopping = asyncio.create_task(server.stop(grace_seconds=20))
        await asyncio.sleep(0.02)
        assert len((await peer.read()).body) == LARGE_SIZE
        await stopping


async def test_stopping_cuts_off_what_does_not_end_in_time(turned_clock: LoopFactory) -> None:
    desk = Desk()
    server = Server(desk.router)
    port = await server.start(LOOPBACK, 0)
    async with bare_peer(f"{LOOPBACK}:{port}") as peer:
        await peer.send(request(LATER))
        await until(lambda: desk.waiting)
        stopping = asyncio.create_task(server.stop(grace_seconds=60))
        await turned_loop().turn(59)
        assert not stopping.done()
        await turned_loop().turn(2)
        await stopping
        assert await peer.is_closed()
        assert not server.connections


async def test_a_single_request_is_served_before_what_many_connections_have_at_once(both_loops: LoopFactory) -> None:
    """Each of them gets its responses in order, and none waits for ever."""
    served: list[bytes] = []

    def slow(_: Connection, command: Command) -> Command:
        ends = time.perf_counter() + 0.0002
        while time.perf_counter() < ends:
            pass
        served.append(command.body)
        return command.response(0, body=command.body)

    router = Router("slow")
    router.add(ECHO, slow)
    async with serving(router) as (_, address):
        host, _, port = address.rpartition(":")
        busy = [await asyncio.open_connection(host, int(port)) for _ in range(8)]
        async with bare_peer(address) as single:
            for number, (_, writer) in enumerate(busy):
                bodies = [b"%d %d" % (number, count) for count in range(20)]
                writer.write(b"".join(encode_frame(request(ECHO, body=body)) for body in bodies))
            assert (await single.ask(request(ECHO, body=b"single"))).body == b"single"
            await until(lambda: len(served) == 8 * 20 + 1, "all are served")
        for _, writer in busy:
            writer.close()
    last = {
        number: max(at for at, body in enumerate(served) if body.startswith(b"%d " % number)) for number in range(8)
    }
    assert min(last.values()) > 8 * 20 // 2, "none is done before the others had their turns"
    assert served.index(b"single") < 20, "a turn of the others is three requests, not some of each"
    for number in range(8):
        own = [body for body in served if body.startswith(b"%d " % number)]
        assert own == [b"%d %d" % (number, count) for count in range(20)]
