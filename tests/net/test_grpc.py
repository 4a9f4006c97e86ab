"""Calls of gRPC's own clients, and peers that do what no client does, on plain and encrypted connections."""

from __future__ import annotations

import asyncio
import logging
import ssl
import threading
from collections.abc import AsyncIterator, Callable, Iterator
from contextlib import asynccontextmanager
from typing import Any

import grpc
import pytest

from orbitmq.net.connection_options import ConnectionOptions
from orbitmq.net.grpc import ROOM_FROM, Call, Method
from orbitmq.net.grpc_connection import PENDING_SPARE, GrpcConnection
from orbitmq.net.grpc_server import GrpcServer
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls, outgoing_context
from orbitmq.net.tls_options import TlsOptions
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.command import request
from orbitmq.wire.http2 import frames
from orbitmq.wire.http2.frames import PREFACE, frame_head, settings_frame
from orbitmq.wire.http2.hpack import encode_field
from tests.support.loops import LoopFactory, until
from tests.support.peers import LOOPBACK, remoting

ECHO, COUNT, BIDI, HOLD, FAIL, LATER = (
    f"/test.Desk/{name}" for name in ("Echo", "Count", "Bidi", "Hold", "Fail", "Later")
)
CHANNEL = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
SECONDS = 60.0


class Desk:
    """Responds at once, many times, later, or never."""

    def __init__(self) -> None:
        self.held: list[Call] = []
        self.holds = threading.Event()
        self.over: list[Call] = []
        self.seen: list[Call] = []
        self.methods = {
            ECHO: Method(self.echo),
            COUNT: Method(self.count),
            BIDI: Method(self.bidi, is_stream_of_requests=True),
            HOLD: Method(self.hold),
            FAIL: Method(self.fail),
            LATER: Method(self.later),
        }

    def echo(self, call: Call, message: bytes) -> None:
        self.seen.append(call)
        call.reply(message)

    def count(self, call: Call, message: bytes) -> None:
        for number in range(int(message)):
            call.send(b"%d" % number)
        call.end()

    def bidi(self, call: Call) -> None:
        call.on_message = lambda message: call.send(message * 2)
        call.on_half_close = call.end
        call.on_over = lambda: self.over.append(call)

    def hold(self, call: Call, _message: bytes) -> None:
        self.held.append(call)
        self.holds.set()
        call.on_over = lambda: self.over.append(call)

    def fail(self, _call: Call, message: bytes) -> None:
        raise ValueError(message.decode())

    def later(self, call: Call, message: bytes) -> None:
        asyncio.get_running_loop().call_later(0.01, call.reply, message)


@asynccontextmanager
async def serving(desk: Desk | None = None, **options: Any) -> AsyncIterator[tuple[GrpcServer, str]]:
    server = GrpcServer((desk or Desk()).methods, **options)
    port = await server.start(LOOPBACK, 0)
    try:
        yield server, f"{LOOPBACK}:{port}"
    finally:
        await server.stop(0)


async def asked(address: str, act: Callable[[grpc.Channel], Any], channel: grpc.Channel | None = None) -> Any:
    """What `act` gives in a thread of its own, as the clients of an application."""

    def run() -> Any:
        with channel or grpc.insecure_channel(address, CHANNEL) as made:
            return act(made)

    return await asyncio.to_thread(run)


def unary(path: str, message: bytes = b"hello", **options: Any) -> Callable[[grpc.Channel], bytes]:
    return lambda channel: channel.unary_unary(path)(message, timeout=options.pop("timeout", SECONDS), **options)


def status(path: str, message: bytes = b"hello", **options: Any) -> Callable[[grpc.Channel], tuple[Any, str]]:
    def ask(channel: grpc.Channel) -> tuple[Any, str]:
        with pytest.raises(grpc.RpcError) as failed:
            unary(path, message, **options)(channel)
        return failed.value.code(), failed.value.details()

    return ask


# ------------------------------------------------------------------------------------------------- gRPC's own clients


async def test_a_client_gets_its_message_back(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (_, address):
        metadata = [("x-mq-client-id", "me"), ("x-long", "v" * 5000), ("x-twice", "1"), ("x-twice", "2")]
        for message in (b"", b"hello", bytes(100_000)):
            assert await asked(address, unary(ECHO, message, metadata=metadata)) == message
        call = desk.seen[0]
        assert call.path == ECHO
        assert call.metadata["x-mq-client-id"] == "me"
        assert call.metadata["x-twice"] == "1,2"
        assert call.timeout_seconds == pytest.approx(SECONDS, abs=5)
        assert call.peer.startswith(f"{LOOPBACK}:")
        assert call.is_over


@pytest.mark.parametrize("size", [1 << 20, 8 << 20])
async def test_big_messages_pass_both_ways(both_loops: LoopFactory, size: int) -> None:
    message = bytes(range(256)) * (size // 256)
    async with serving() as (server, address):
        assert await asked(address, unary(ECHO, message)) == message
        assert server.budgets.incomplete.taken == 0
        assert server.budgets.unread.taken == 0


async def test_a_compressed_message_is_read(both_loops: LoopFactory) -> None:
    async with serving() as (_, address):
        message = b"hello" * 10_000
        assert await asked(address, unary(ECHO, message, compression=grpc.Compression.Gzip)) == message
        code, text = await asked(address, status(ECHO, message, compression=grpc.Compression.Deflate))
        assert code == grpc.StatusCode.UNIMPLEMENTED
        assert "deflate" in text


async def test_many_messages_answer_one(both_loops: LoopFactory) -> None:
    async with serving() as (_, address):
        found = await asked(address, lambda channel: list(channel.unary_stream(COUNT)(b"1000", timeout=SECONDS)))
        assert found == [b"%d" % number for number in range(1000)]
        assert await asked(address, lambda channel: list(channel.unary_stream(COUNT)(b"0", timeout=SECONDS))) == []


async def test_messages_go_both_ways(both_loops: LoopFactory) -> None:
    async with serving() as (_, address):

        def ask(channel: grpc.Channel) -> list[bytes]:
            return list(channel.stream_stream(BIDI)(iter([b"a", b"bc", b""]), timeout=SECONDS))

        assert await asked(address, ask) == [b"aa", b"bcbc", b""]


async def test_each_message_of_a_stream_is_answered_before_the_next(both_loops: LoopFactory) -> None:
    async with serving() as (_, address):

        def ask(channel: grpc.Channel) -> list[bytes]:
            answers: list[bytes] = []
            seen = threading.Semaphore(1)

            def messages() -> Iterator[bytes]:
                for number in range(20):
                    seen.acquire()
                    yield b"%d" % number

            for answer in channel.stream_stream(BIDI)(messages(), timeout=SECONDS):
                answers.append(answer)
                seen.release()
            return answers

        assert await asked(address, ask) == [b"%d" % number * 2 for number in range(20)]


async def test_a_thousand_calls_at_a_time(both_loops: LoopFactory) -> None:
    async with serving() as (_, address):

        def ask(channel: grpc.Channel) -> list[bytes]:
            later = channel.unary_unary(LATER)
            calls = [later.future(b"%d" % number, timeout=SECONDS) for number in range(1000)]
            return [call.result() for call in calls]

        assert await asked(address, ask) == [b"%d" % number for number in range(1000)]


async def test_the_asynchronous_client_is_served(both_loops: LoopFactory) -> None:
    async def ask(address: str) -> list[bytes]:
        async with grpc.aio.insecure_channel(address) as channel:
            echo = channel.unary_unary(ECHO)
            found = list(await asyncio.gather(*[echo(b"%d" % number, timeout=SECONDS) for number in range(100)]))
            return found + [one async for one in channel.unary_stream(COUNT)(b"3", timeout=SECONDS)]

    async with serving() as (_, address):
        found = await asyncio.to_thread(lambda: asyncio.run(ask(address)))
        assert found == [b"%d" % number for number in range(100)] + [b"0", b"1", b"2"]


async def test_a_cancelled_call_is_over_on_the_server(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (_, address):

        def ask(channel: grpc.Channel) -> None:
            call = channel.unary_unary(HOLD).future(b"x", timeout=SECONDS)
            assert desk.holds.wait(SECONDS)
            call.cancel()
            unary(ECHO)(channel)

        await asked(address, ask)
        await until(lambda: desk.over == desk.held)
        [call] = desk.held
        assert call.is_over
        call.reply(b"too late")
        call.send(b"too late")
        call.end()


async def test_a_deadline_ends_the_call_on_the_server(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (_, address):
        code, _ = await asked(address, status(HOLD, timeout=2))
        assert code == grpc.StatusCode.DEADLINE_EXCEEDED
        await until(lambda: desk.over == desk.held)
        assert len(desk.held) == 1


async def test_a_lost_connection_ends_its_calls(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (server, address):
        asking = asyncio.ensure_future(asked(address, status(HOLD)))
        await until(lambda: bool(desk.held))
        next(iter(server.connections)).abort()
        assert (await asking)[0] == grpc.StatusCode.UNAVAILABLE
        assert desk.over == desk.held


async def test_what_is_refused_has_its_status(both_loops: LoopFactory) -> None:
    async with serving(message_size_max=1000) as (_, address):
        assert await asked(address, status("/test.Desk/Nothing")) == (
            grpc.StatusCode.UNIMPLEMENTED,
            "there is no method /test.Desk/Nothing",
        )
        code, text = await asked(address, status(ECHO, bytes(1001)))
        assert (code, text) == (grpc.StatusCode.RESOURCE_EXHAUSTED, "a message of 1001 bytes, the limit is 1000")
        code, text = await asked(address, status(ECHO, metadata=[("x-a", "v" * 17_000)]))
        assert code == grpc.StatusCode.RESOURCE_EXHAUSTED
        code, text = await asked(address, lambda channel: failure_of_stream(channel, ECHO))
        assert code == grpc.StatusCode.INTERNAL


def failure_of_stream(channel: grpc.Channel, path: str) -> tuple[Any, str]:
    """Two messages for a method that takes one."""
    with pytest.raises(grpc.RpcError) as failed:
        list(channel.stream_stream(path)(iter([b"a", b"b"]), timeout=SECONDS))
    return failed.value.code(), failed.value.details()


async def test_a_handler_that_fails_ends_its_call_only(
    both_loops: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving() as (_, address):

        def ask(channel: grpc.Channel) -> tuple[Any, bytes]:
            return status(FAIL, "bäd\n100%".encode())(channel), unary(ECHO)(channel)

        (code, text), answer = await asked(address, ask)
        assert (code, text) == (grpc.StatusCode.INTERNAL, "ValueError: bäd\n100%")
        assert answer == b"hello"
        [record] = [one for one in caplog.records if "call_failed" in one.getMessage()]
        assert record.exc_info is not None
        assert record.levelno == logging.ERROR


# -------------------------------------------------------------------------------------------------- one port, TLS


def encrypted(address: str) -> grpc.Channel:
    """A channel that trusts the certificate which the server shows."""
    host, _, port = address.rpartition(":")
    shown = ssl.get_server_certificate((host, int(port))).encode()
    options = [("grpc.ssl_target_name_override", "localhost"), *CHANNEL]
    return grpc.secure_channel(address, grpc.ssl_channel_credentials(shown), options)


@pytest.mark.parametrize("size", [5, 3_000_000])
async def test_one_port_serves_plain_and_encrypted_connections(both_loops: LoopFactory, size: int) -> None:
    async with serving(tls=ServerTls(TlsOptions())) as (_, address):
        message = b"x" * size
        channel = await asyncio.to_thread(encrypted, address)
        assert await asked(address, unary(ECHO, message), channel) == message
        assert await asked(address, unary(ECHO, message)) == message


async def test_the_remoting_port_gives_calls_to_grpc(both_loops: LoopFactory) -> None:
    grpc_server = GrpcServer(Desk().methods)
    await grpc_server.serve()
    router = Router()
    router.add(1, lambda _connection, command: command.response(0, body=command.body))
    server = Server(router, tls=ServerTls(TlsOptions()), grpc=grpc_server)
    address = f"{LOOPBACK}:{await server.start(LOOPBACK, 0)}"
    tls = outgoing_context(verify=False, check_host=False, trusted="")
    async with remoting() as plain, remoting(tls=tls) as secret:
        for asking in (plain, secret):
            assert (await asking.call(address, request(1, body=b"hello"), 20_000)).body == b"hello"
        channel = await asyncio.to_thread(encrypted, address)
        assert await asked(address, unary(ECHO), channel) == b"hello"
        assert await asked(address, unary(ECHO)) == b"hello"
        await until(lambda: not grpc_server.connections)
        assert len(server.connections) == 2
        assert server._hosts[LOOPBACK] == 2
    await server.stop(0)
    await grpc_server.stop(0)


async def test_without_tls_the_remoting_port_gives_calls_to_grpc(both_loops: LoopFactory) -> None:
    grpc_server = GrpcServer(Desk().methods)
    await grpc_server.serve()
    server = Server(Router(), grpc=grpc_server)
    address = f"{LOOPBACK}:{await server.start(LOOPBACK, 0)}"
    assert await asked(address, unary(ECHO)) == b"hello"
    await server.stop(0)
    await grpc_server.stop(0)


async def test_an_enforcing_server_turns_plain_calls_away(both_loops: LoopFactory) -> None:
    async with serving(tls=ServerTls(TlsOptions(mode="enforcing"))) as (_, address):
        assert (await asked(address, status(ECHO)))[0] == grpc.StatusCode.UNAVAILABLE
        channel = await asyncio.to_thread(encrypted, address)
        assert await asked(address, unary(ECHO), channel) == b"hello"


# ------------------------------------------------------------------------------------------------ closing, and limits


async def test_a_stop_waits_for_open_calls(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (server, address):
        asking = asyncio.ensure_future(asked(address, unary(HOLD)))
        await until(lambda: bool(desk.held))
        stopping = asyncio.ensure_future(server.stop(SECONDS))
        await asyncio.sleep(0.05)
        desk.held[0].reply(b"after all")
        assert await asking == b"after all"
        await stopping
        assert desk.over == []


async def test_a_stop_ends_calls_after_its_time(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (server, address):
        asking = asyncio.ensure_future(asked(address, status(HOLD)))
        await until(lambda: bool(desk.held))
        await server.stop(0.05)
        code, text = await asking
        assert (code, text) == (grpc.StatusCode.UNAVAILABLE, "the server closes this connection")
        assert desk.over == desk.held


async def test_idle_connections_are_told_to_end(both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.net.server.IDLE_SCAN_SECONDS", 0.02)
    desk = Desk()
    async with serving(desk) as (server, address), bare(address) as peer:
        peer.send(headers(1, ECHO) + data(1, b"hello"))
        assert await peer.message() == b"hello"
        server._idle_seconds = 0.05
        await peer.until_kind(frames.GOAWAY)
        peer.writer.close()
        await until(lambda: not server.connections)


async def test_open_calls_keep_a_connection(both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.net.server.IDLE_SCAN_SECONDS", 0.01)
    desk = Desk()
    async with serving(desk) as (server, address), bare(address) as peer:
        peer.send(headers(1, HOLD) + data(1, b"hello"))
        await until(lambda: bool(desk.held))
        server._idle_seconds = 0.05
        await asyncio.sleep(0.2)
        desk.held[0].reply(b"still here")
        assert await peer.message() == b"still here"


async def test_a_host_has_only_so_many_connections(both_loops: LoopFactory) -> None:
    refusals = Refusals()
    limits = ConnectionOptions(host_connections_max=1)
    async with serving(limits=limits, refusals=refusals) as (server, address), bare(address) as one:
        one.send(headers(1, ECHO) + data(1, b"hello"))
        assert await one.message() == b"hello"
        async with bare(address) as other:
            assert await other.reader.read() == b""
        assert refusals.counts[Limit.HOST_CONNECTIONS] == 1
        assert len(server.connections) == 1


async def test_a_request_that_takes_too_long_is_ended(both_loops: LoopFactory) -> None:
    refusals = Refusals()
    limits = ConnectionOptions(frame_timeout_ms=100)
    async with serving(limits=limits, refusals=refusals) as (_, address), bare(address) as peer:
        peer.send(headers(1, ECHO) + frame(frames.DATA, 1, b"\0\0\0"))
        block = await peer.until_kind(frames.HEADERS)
        assert b"grpc-status\x014" in block
        assert refusals.counts[Limit.FRAME_TIME] == 1


# --------------------------------------------------------------------------------------------------------- bare peers


def frame(kind: int, number: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame_head(kind, flags, number, len(payload)) + payload


def headers(number: int, path: str, *fields: tuple[str, str], method: str = "POST", is_last: bool = False) -> bytes:
    given = [(":method", method), (":scheme", "http"), (":path", path), ("te", "trailers"), *fields]
    if not any(name == "content-type" for name, _ in fields):
        given.append(("content-type", "application/grpc"))
    block = b"".join([encode_field(name, value) for name, value in given])
    return frame(frames.HEADERS, number, block, frames.END_HEADERS | (frames.END_STREAM if is_last else 0))


def data(number: int, message: bytes, *, is_last: bool = True) -> bytes:
    payload = len(message).to_bytes(5, "big") + message
    return frame(frames.DATA, number, payload, frames.END_STREAM if is_last else 0)


class Bare:
    """A peer that sends frames."""

    def __init__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.reader = reader
        self.writer = writer

    def send(self, stream: bytes) -> None:
        self.writer.write(stream)

    async def frame(self) -> tuple[int, int, int, bytes]:
        head = await self.reader.readexactly(9)
        payload = await self.reader.readexactly(int.from_bytes(head[:3], "big"))
        return head[3], head[4], int.from_bytes(head[5:], "big"), payload

    async def until_kind(self, kind: int) -> bytes:
        async with asyncio.timeout(SECONDS):
            while True:
                found, _, _, payload = await self.frame()
                if found == kind:
                    return payload

    async def message(self) -> bytes:
        return (await self.until_kind(frames.DATA))[5:]


@asynccontextmanager
async def bare(address: str, settings: dict[int, int] | None = None) -> AsyncIterator[Bare]:
    host, _, port = address.rpartition(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    try:
        writer.write(PREFACE + settings_frame(settings or {}))
        yield Bare(reader, writer)
    finally:
        writer.close()


async def test_requests_that_are_no_calls_get_a_status_of_http(both_loops: LoopFactory) -> None:
    async with serving() as (_, address), bare(address) as peer:
        peer.send(headers(1, ECHO, method="GET", is_last=True))
        assert (await peer.until_kind(frames.HEADERS)).startswith(encode_field(":status", "405"))
        peer.send(headers(3, ECHO, ("content-type", "application/json")))
        assert await peer.until_kind(frames.HEADERS) == encode_field(":status", "415")
        peer.send(headers(5, ECHO) + data(5, b"hello"))
        assert await peer.message() == b"hello"


@pytest.mark.parametrize(
    ("stream", "code"),
    [
        (headers(1, ECHO, is_last=True), 13),
        (headers(1, ECHO) + frame(0, 1, b"\0\0\0", frames.END_STREAM), 13),
        (headers(1, BIDI) + frame(0, 1, b"\0\0\0", frames.END_STREAM), 13),
        (headers(1, ECHO) + frame(0, 1, b"\2\0\0\0\0", frames.END_STREAM), 13),
        (headers(1, ECHO, ("grpc-timeout", "soon")), 3),
        (headers(1, ECHO, ("grpc-encoding", "br")), 12),
    ],
    ids=["nothing", "half a prefix", "half a prefix of many", "a flag", "a timeout", "an encoding"],
)
async def test_calls_that_are_malformed_end_with_their_status(
    both_loops: LoopFactory, stream: bytes, code: int
) -> None:
    async with serving() as (_, address), bare(address) as peer:
        peer.send(stream)
        assert encode_field("grpc-status", str(code)) in await peer.until_kind(frames.HEADERS)
        peer.send(headers(3, ECHO) + data(3, b"hello"))
        assert await peer.message() == b"hello"


async def test_requests_of_one_read_are_answered_by_one_write(both_loops: LoopFactory) -> None:
    writes: list[bytes] = []
    desk = Desk()
    async with serving(desk) as (_, address), bare(address) as peer:
        peer.send(headers(1, HOLD) + data(1, b"x"))
        await until(lambda: bool(desk.held))
        transport = desk.held[0].connection.transport
        assert transport is not None
        desk.held[0].connection.transport = Recorder(transport, writes)  # type: ignore[assignment]
        peer.send(b"".join([headers(number, ECHO) + data(number, b"hello") for number in range(3, 23, 2)]))
        for _ in range(10):
            assert await peer.message() == b"hello"
        assert len(writes) == 1
        desk.held[0].send(b"one")
        desk.held[0].send(b"two")
        desk.held[0].end()
        assert [await peer.message(), await peer.message()] == [b"one", b"two"]
        assert len(writes) == 2


class Recorder(asyncio.Transport):
    def __init__(self, transport: asyncio.Transport, writes: list[bytes]) -> None:
        super().__init__()
        self._transport = transport
        self._writes = writes

    def write(self, data: Any) -> None:
        self._writes.append(bytes(data))
        self._transport.write(data)

    def __getattribute__(self, name: str) -> Any:
        if name in ("write", "_transport", "_writes"):
            return super().__getattribute__(name)
        return getattr(self._transport, name)


async def test_a_sender_learns_when_there_is_room_again(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (_, address), bare(address, {frames.INITIAL_WINDOW_SIZE: 100}) as peer:
        peer.send(headers(1, HOLD) + data(1, b"x"))
        await until(lambda: bool(desk.held))
        [call] = desk.held
        told: list[int] = []
        call.on_room = lambda: told.append(call.unsent)
        call.send(bytes(ROOM_FROM * 2))
        assert call.unsent == ROOM_FROM * 2 + 5 - 100
        peer.send(frames.window_update(1, 1000))
        await peer.until_kind(frames.DATA)
        assert told == []
        peer.send(frames.window_update(1, 1 << 20) + frames.window_update(0, 1 << 20))
        await until(lambda: told == [0])
        call.end()
        await peer.until_kind(frames.HEADERS)


@pytest.mark.parametrize("way", ["reset", "lost", "deadline"])
async def test_a_handler_learns_what_was_not_sent_of_a_call_that_it_has_ended(
    both_loops: LoopFactory, way: str
) -> None:
    desk = Desk()
    async with serving(desk) as (_, address), bare(address, {frames.INITIAL_WINDOW_SIZE: 40}) as peer:
        deadline = [("grpc-timeout", "2S")] if way == "deadline" else []
        peer.send(headers(1, HOLD, *deadline) + data(1, b"x"))
        await until(lambda: bool(desk.held))
        [call] = desk.held
        for _ in range(4):
            call.send(bytes(10))
        call.end()
        assert (desk.over, call.sent_count) == ([], 2)
        peer.send(frames.window_update(1, 10))
        await until(lambda: call.sent_count == 3)
        if way == "reset":
            peer.send(frames.rst_stream(1, frames.CANCEL))
        elif way == "lost":
            peer.writer.close()
        await until(lambda: bool(desk.over))
        await asyncio.sleep(0.01)
        assert (desk.over, call.sent_count) == ([call], 3)


async def test_a_handler_hears_nothing_of_a_call_that_was_sent(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk) as (server, address), bare(address, {frames.INITIAL_WINDOW_SIZE: 10}) as peer:
        peer.send(headers(1, HOLD) + data(1, b"x"))
        await until(lambda: bool(desk.held))
        [call] = desk.held
        call.send(bytes(10))
        call.end()
        peer.send(frames.window_update(1, 10))
        await peer.until_kind(frames.HEADERS)
        await until(lambda: call.is_sent)
        assert call.on_over is None
        [connection] = server.connections
        connection.abort()
        await until(lambda: not server.connections)
        assert desk.over == []


async def test_a_call_that_ended_leaves_when_its_time_has_passed(both_loops: LoopFactory) -> None:
    """Though the peer takes none of its last bytes."""
    async with serving() as (server, address), bare(address, {frames.INITIAL_WINDOW_SIZE: 0}) as peer:
        peer.send(headers(1, ECHO, ("grpc-timeout", "100m")) + data(1, b"x" * 1000))
        assert await peer.until_kind(frames.RST_STREAM) == frames.CANCEL.to_bytes(4, "big")
        [connection] = server.connections
        assert connection.is_idle


async def test_a_peer_that_takes_nothing_of_a_response_is_not_waited_for(both_loops: LoopFactory) -> None:
    limits = ConnectionOptions(frame_timeout_ms=100)
    async with serving(limits=limits) as (_, address), bare(address, {frames.INITIAL_WINDOW_SIZE: 0}) as peer:
        peer.send(headers(1, ECHO) + data(1, b"x" * 1000))
        assert await peer.until_kind(frames.RST_STREAM) == frames.CANCEL.to_bytes(4, "big")


async def test_a_peer_that_breaks_rules_is_told_why_and_disconnected(both_loops: LoopFactory) -> None:
    refusals, desk = Refusals(), Desk()
    async with serving(desk, refusals=refusals) as (server, address), bare(address) as peer:
        peer.send(headers(1, HOLD) + data(1, b"x"))
        await until(lambda: bool(desk.held))
        peer.send(frame(frames.PUSH_PROMISE, 1, bytes(4)))
        assert b"a client that pushes" in await peer.until_kind(frames.GOAWAY)
        assert await peer.reader.read() == b""
        assert refusals.counts[Limit.MALFORMED] == 1
        assert desk.over == desk.held
        await until(lambda: not server.connections)


async def test_incomplete_messages_of_a_connection_have_a_limit(both_loops: LoopFactory) -> None:
    async with serving(message_size_max=1 << 20) as (server, address), bare(address) as peer:
        count = (PENDING_SPARE + (1 << 20)) // (1 << 20) + 2
        for number in range(1, 2 * count, 2):
            peer.send(headers(number, ECHO) + frame(frames.DATA, number, (1 << 20).to_bytes(5, "big")))
            for _ in range(63):
                peer.send(frame(frames.DATA, number, bytes(16_384)))
            await peer.writer.drain()
        block = await peer.until_kind(frames.HEADERS)
        assert encode_field("grpc-status", "8") in block
        [connection] = server.connections
        assert server.budgets.incomplete.taken <= PENDING_SPARE + (1 << 20)
        connection.abort()
        await until(lambda: not server.connections)
        assert server.budgets.incomplete.taken == 0


async def test_many_requests_of_one_read_leave_turns_for_others(both_loops: LoopFactory) -> None:
    async with serving() as (_, address), bare(address) as peer:
        numbers = range(1, 2 * 1500, 2)
        peer.send(b"".join([headers(number, ECHO) + data(number, b"%d" % number) for number in numbers]))
        for number in numbers:
            assert await peer.message() == b"%d" % number


async def test_connections_know_when_they_opened_and_closed(both_loops: LoopFactory) -> None:
    told: list[str] = []

    def opened(connection: GrpcConnection) -> None:
        told.append(f"open {connection.address}")

    def closed(connection: GrpcConnection) -> None:
        told.append(f"close {connection.address}")

    async with serving(on_open=opened, on_close=closed) as (_, address):
        async with bare(address) as peer:
            name = "{}:{}".format(*peer.writer.get_extra_info("sockname"))
            await until(lambda: told == [f"open {name}"])
        await until(lambda: told == [f"open {name}", f"close {name}"])
