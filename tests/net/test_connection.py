"""One connection: requests both ways, each answered once or not at all, and nothing a peer does grows without bound."""

from __future__ import annotations

import asyncio
import itertools
import logging
import socket
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import pytest

from orbitmq.errors import RemotingTimeout, RequestRejected, SendRequestError
from orbitmq.net import connection as connection_module
from orbitmq.net import flow
from orbitmq.net.connection import GATHERED_FROM, GATHERED_PART_FROM, TURN_COMMANDS, WRITE_BUFFER_HIGH, Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.wire.codes import ResponseCode, SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FrameDecoder, SendFrame, encode_frame
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.loops import LoopFactory, settle, turned_loop, until
from tests.support.peers import LOOPBACK, BarePeer, bare_peer, remoting, serving

ECHO, LATER, REFUSE, BREAK, BREAK_LATER, BACK, LARGE = 10, 11, 12, 13, 14, 15, 16
LARGE_SIZE = 64 << 10
READ_MAX = 256 << 10  # of both loops


class Desk:
    """Handlers for the codes above, and what happened to them."""

    def __init__(self) -> None:
        self.router = Router("desk")
        self.router.add(ECHO, self.echo)
        self.router.add(LATER, self.later)
        self.router.add(REFUSE, self.refuse)
        self.router.add(BREAK, self.break_now)
        self.router.add(BREAK_LATER, self.break_later)
        self.router.add(BACK, self.ask_back)
        self.router.add(LARGE, self.large)
        self.seen: list[int] = []
        self.gate = asyncio.Event()
        self.finished = 0
        self.cancelled = 0

    def echo(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command.code)
        return command.response(0, body=command.body)

    async def later(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command.code)
        try:
            await self.gate.wait()
        except asyncio.CancelledError:
            self.cancelled += 1
            raise
        self.finished += 1
        return command.response(0, body=command.body)

    def refuse(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command.code)
        raise RequestRejected(ResponseCode.NO_PERMISSION, "not today")

    def break_now(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command.code)
        raise ZeroDivisionError("a bug")

    async def break_later(self, _connection: Connection, command: Command) -> Command:
        await asyncio.sleep(0)
        return self.break_now(_connection, command)

    async def ask_back(self, connection: Connection, command: Command) -> Command:
        inner = numbered(ECHO, command.opaque or 0, body=b"from the server")
        reply = await connection.call(inner, 5000)
        return command.response(0, body=reply.body + b", and back")

    def large(self, _connection: Connection, command: Command) -> Command:
        self.seen.append(command.code)
        return command.response(0, body=bytes(LARGE_SIZE))


def numbered(code: int, opaque: int, **fields: Any) -> Command:
    """A request with a correlation number of the test's choice."""
    made = request(code, **fields)
    made.opaque = opaque
    return made


# ------------------------------------------------------------------------------------------------ requests both ways


async def test_both_sides_ask_over_one_connection_with_equal_numbers(both_loops: LoopFactory) -> None:
    """What tells a response is its flag: 7 is under way in both directions at once."""
    asked_back = Router("client")
    asked_back.add(ECHO, lambda _, command: command.response(0, body=b"client heard: " + command.body))
    async with serving(Desk().router) as (server, address), remoting(asked_back) as client:
        answer = await client.call(address, numbered(BACK, 7), 5000)
        assert answer.body == b"client heard: from the server, and back"
        assert answer.opaque == 7
        assert len(server.connections) == 1


async def test_answers_find_their_callers_in_whatever_order_they_come(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (_, address), remoting() as client:
        slow = [asyncio.create_task(client.call(address, request(LATER, body=b"%d" % n), 20_000)) for n in range(50)]
        await until(lambda: len(desk.seen) == 50)
        assert (await client.call(address, request(ECHO, body=b"quick"), 5000)).body == b"quick"
        desk.gate.set()
        assert [answer.body for answer in await asyncio.gather(*slow)] == [b"%d" % n for n in range(50)]


async def test_frames_may_be_cut_anywhere(both_loops: LoopFactory) -> None:
    async with serving(Desk().router) as (_, address), bare_peer(address) as peer:
        asked = request(ECHO, body=b"cut")
        for byte in encode_frame(asked):
            peer.writer.write(bytes((byte,)))
            await asyncio.sleep(0)
        assert (await peer.read()).body == b"cut"


async def test_a_late_answer_is_dropped_and_the_connection_lives_on(turned_clock: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address), remoting() as client:
        late = asyncio.create_task(client.call(address, request(LATER, body=b"late"), 900))
        await until(lambda: desk.seen)
        await turned_loop().turn(0.91)
        with pytest.raises(RemotingTimeout, match="no response"):
            await late
        desk.gate.set()
        await until(lambda: desk.finished)
        assert (await client.call(address, request(ECHO, body=b"next"), 900)).body == b"next"
        assert len(server.connections) == 1


async def test_a_peer_that_was_silent_for_a_whole_call_is_given_up(turned_clock: LoopFactory) -> None:
    """A dead host would otherwise keep its connection, and every later call on it, until TCP gives up."""
    desk = Desk()
    async with serving(desk.router) as (server, address), remoting() as client:
        silent = asyncio.create_task(client.call(address, request(LATER), 3000))
        other = asyncio.create_task(client.call(address, request(LATER), 30_000))
        await until(lambda: len(desk.seen) == 2)
        await turned_loop().turn(3.1)
        with pytest.raises(RemotingTimeout):
            await silent
        with pytest.raises(SendRequestError):
            await other
        await until(lambda: not server.connections)


async def test_a_client_that_does_not_answer_a_broker_keeps_its_connection(turned_clock: LoopFactory) -> None:
    """Clients are quiet while nothing happens, and some know not every question; what they miss are heartbeats."""
    asked_back = Router("client")
    asked_back.add(LATER, lambda *_: None)
    async with serving(Desk().router) as (server, address), remoting(asked_back) as client:
        await client.call(address, request(ECHO), 5000)
        (connection,) = server.connections
        asked = asyncio.create_task(connection.call(request(LATER), 3000))
        await turned_loop().turn(3.1)
        with pytest.raises(RemotingTimeout):
            await asked
        assert (await client.call(address, request(ECHO, body=b"still here"), 5000)).body == b"still here"
        assert set(server.connections) == {connection}


# ---------------------------------------------------------------------------------------------------------- answering


async def test_a_oneway_request_is_never_answered(both_loops: LoopFactory) -> None:
    desk = Desk()
    desk.gate.set()
    codes = [ECHO, LATER, REFUSE, BREAK, BREAK_LATER, 9999]
    async with serving(desk.router) as (_, address), bare_peer(address) as peer:
        await peer.send(*(request(code, oneway=True) for code in codes))
        await until(lambda: len(desk.seen) == len(codes) - 1)
        last = request(ECHO, body=b"the only answer")
        answer = await peer.ask(last)
        assert (answer.opaque, answer.body) == (last.opaque, b"the only answer")


@pytest.mark.parametrize("kind", list(SerializeType))
@pytest.mark.parametrize(
    ("code", "answered", "remark"),
    [
        (ECHO, 0, None),
        (REFUSE, 16, "not today"),
        (BREAK, 1, "ZeroDivisionError: a bug"),
        (BREAK_LATER, 1, "ZeroDivisionError: a bug"),
        (9999, 3, " request type 9999 not supported"),
    ],
)
async def test_every_outcome_is_answered_in_the_serialization_of_the_request(
    both_loops: LoopFactory, kind: SerializeType, code: int, answered: int, remark: str | None
) -> None:
    async with serving(Desk().router) as (_, address), bare_peer(address) as peer:
        asked = request(code)
        asked.serialize_type = kind
        answer = await peer.ask(asked)
        assert (answer.code, answer.remark, answer.opaque) == (answered, remark, asked.opaque)
        assert answer.serialize_type == kind
        assert answer.is_response
        assert answer.version == 407
        assert (await peer.ask(request(ECHO))).code == 0


async def test_answers_of_one_turn_leave_in_one_write(both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(connection_module, "monotonic", lambda: 0.0)  # a busy machine may end a turn sooner
    connection = Connection(Desk().router)
    transport = PaperTransport()
    connection.connection_made(transport)
    connection.data_received(b"".join(encode_frame(request(ECHO)) for _ in range(TURN_COMMANDS)))
    assert len(transport.written) == 1
    connection.send(request(ECHO))
    connection.send(request(ECHO))
    await settle()
    assert len(transport.written) == 2


@pytest.mark.parametrize(
    ("size", "count", "uncopied"),
    [
        (GATHERED_FROM // 16 - 1, 16, False),
        (GATHERED_FROM // 16, 16, True),
        (GATHERED_PART_FROM - 1, 1, False),
        (GATHERED_PART_FROM, 1, True),
        (GATHERED_PART_FROM, 3, True),
        (GATHERED_PART_FROM - 1, 3, False),
    ],
)
async def test_large_bodies_and_parts_go_to_the_kernel_without_a_copy(size: int, count: int, uncopied: bool) -> None:
    log = memoryview(bytes(range(256)) * 256)[:size]
    connection = Connection(Desk().router)
    transport = GatheringTransport()
    connection.connection_made(transport)
    answer = request(ECHO).response(0)
    answer.body_parts = [log] * count
    connection.send(request(ECHO))
    connection.send(answer)
    connection.send(request(ECHO, body=b"behind"))
    await settle()
    whole = b"".join(map(encode_frame, (request(ECHO), answer, request(ECHO, body=b"behind"))))
    assert len(b"".join(transport.written)) == len(whole)
    assert b"".join(transport.written).endswith(b"behind")
    assert bytes(log) * count in b"".join(transport.written)
    assert sum(part is log for part in transport.gathered) == (count if uncopied else 0)


async def test_bodies_in_parts_arrive_whole_whatever_their_size(both_loops: LoopFactory) -> None:
    log = memoryview(bytes(range(256)) * 4096)
    router = Router("log")

    def slices(_connection: Connection, command: Command) -> Command:
        answer = command.response(0)
        size, count = map(int, command.body.split())
        answer.body_parts = [log[start * size : (start + 1) * size] for start in range(count)]
        return answer

    router.add(ECHO, slices)
    async with serving(router) as (_, address), remoting() as ours:
        asked = [(100, 3), (30_000, 30), (1 << 20, 1), (1000, 65), (1000, 66), (16_384, 64)]
        for size, count in asked * 3:
            answer = await ours.call(address, request(ECHO, body=b"%d %d" % (size, count)), 20_000)
            assert answer.body == bytes(log[: size * count])


class PaperTransport(asyncio.Transport):
    """A transport that keeps what is written."""

    def __init__(self, peer: Any = (LOOPBACK, 1)) -> None:
        super().__init__({"peername": peer, "sockname": (LOOPBACK, 2)})
        self.written: list[bytes] = []

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        raise AssertionError("only a transport that gathers expects parts")

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass

    def get_write_buffer_size(self) -> int:
        return 0


class GatheringTransport(PaperTransport):
    """Keeps the parts that come together as they are."""

    def __init__(self) -> None:
        super().__init__()
        self.gathered: list[Any] = []

    def writelines(self, list_of_data: Any) -> None:
        self.gathered += list_of_data
        self.written += map(bytes, list_of_data)


@pytest.mark.parametrize(
    ("peer", "address", "host"),
    [
        (("10.0.0.9", 5555), "10.0.0.9:5555", bytes((10, 0, 0, 9)) + (5555).to_bytes(4, "big")),
        (("::ffff:10.0.0.9", 5555, 0, 0), "10.0.0.9:5555", bytes((10, 0, 0, 9)) + (5555).to_bytes(4, "big")),
        (("::1", 5555, 0, 0), "::1:5555", bytes(15) + b"\x01" + (5555).to_bytes(4, "big")),
    ],
)
async def test_the_peer_is_known_as_the_host_of_its_messages(peer: Any, address: str, host: bytes) -> None:
    """IPv4 in IPv6 clothes, as a socket for both sees it, counts as IPv4."""
    connection = Connection(Router())
    connection.connection_made(PaperTransport(peer))
    assert (connection.address, connection.peer_host) == (address, host)


# --------------------------------------------------------------------------------------------------------- bad frames

BAD_FRAMES = {
    "longer than allowed": (1 << 24).to_bytes(4, "big"),
    "negative as Java reads it": b"\xff\xff\xff\xff",
    "shorter than its header length": b"\x00\x00\x00\x02\x00\x00",
    "header beyond the frame": b"\x00\x00\x00\x06\x00\x00\x00\x09{}",
    "unknown serialization": b"\x00\x00\x00\x06\x07\x00\x00\x02{}",
    "header that is no JSON": b"\x00\x00\x00\x06\x00\x00\x00\x02{{",
    "header that refers to itself": b'\x00\x00\x00\x1a\x00\x00\x00\x16{"a":{"$ref":"$"},b:1}',
    "binary header that is cut": b"\x00\x00\x00\x06\x01\x00\x00\x02\x00\x0a",
    "TLS hello": b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
    "HTTP": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
}


@pytest.mark.parametrize("data", BAD_FRAMES.values(), ids=BAD_FRAMES)
async def test_a_bad_frame_closes_its_connection_alone_with_one_line(
    both_loops: LoopFactory, data: bytes, caplog: pytest.LogCaptureFixture
) -> None:
    async with serving(Desk().router) as (server, address), bare_peer(address) as good, bare_peer(address) as bad:
        await good.ask(request(ECHO))
        await bad.ask(request(ECHO))
        with caplog.at_level(logging.INFO):
            bad.writer.write(data)
            assert await bad.is_closed()
        (record,) = caplog.records
        assert "event=bad_frame" in record.message
        assert record.exc_info is None
        assert (await good.ask(request(ECHO, body=b"still here"))).body == b"still here"
        await until(lambda: len(server.connections) == 1)


@pytest.mark.parametrize("way", ["declined", "failed", "overdue"])
async def test_a_send_that_is_invalid_when_it_is_read_whole_closes_its_connection_alone(
    both_loops: LoopFactory, way: str, caplog: pytest.LogCaptureFixture
) -> None:
    """Common sends are read in place, without a look at texts that may not be needed."""
    desk = Desk()

    def take(_connection: Connection, _frame: SendFrame) -> None:
        if way == "failed":
            raise RequestRejected(1, "no")

    desk.router.add(RequestCode.SEND_MESSAGE_V2, desk.echo)
    desk.router.take_sends((RequestCode.SEND_MESSAGE_V2,), take)
    header = SendMessageV2Header("g", "T", "TBW102", 4, 0, 0, 0, 0, "KEYS\x01k?\x02")
    frame = encode_frame(request(RequestCode.SEND_MESSAGE_V2, header, b"body")).replace(b"k?", b"k\xeb")
    (read,) = FrameDecoder(sends=True).frames(frame)
    assert isinstance(read, SendFrame)
    async with serving(desk.router) as (server, address), bare_peer(address) as good, bare_peer(address) as bad:
        await good.ask(request(ECHO))
        if way == "overdue":
            desk.router.patience_ms = -1.0
        with caplog.at_level(logging.INFO):
            bad.writer.write(frame * 2)
            assert await bad.is_closed()
        (record,) = caplog.records
        assert "event=bad_frame" in record.message
        desk.router.patience_ms = 60_000.0
        assert (await good.ask(request(ECHO, body=b"still here"))).body == b"still here"
        await until(lambda: len(server.connections) == 1)


# ------------------------------------------------------------------------------------------------------- back-pressure


async def test_a_peer_that_takes_no_answers_is_not_read_from(both_loops: LoopFactory) -> None:
    """Answers wait in a buffer of fixed size; the requests stay in the peer's own."""
    desk = Desk()
    requests = 4000  # whose answers are 256 MB
    async with serving(desk.router) as (server, address), bare_peer(address) as peer:
        frames = [request(LARGE) for _ in range(requests)]
        writing = asyncio.create_task(peer.send(*frames))
        await until(lambda: desk.seen)
        (served,) = server.connections
        answered = -1
        while answered != len(desk.seen):
            answered = len(desk.seen)
            await asyncio.sleep(0.05)
        assert served.transport is not None
        assert served.transport.get_write_buffer_size() <= 2 * WRITE_BUFFER_HIGH
        assert not served.transport.is_reading()
        assert answered < requests / 2
        received = 0
        while received < requests:
            assert len((await peer.read()).body) == LARGE_SIZE
            received += 1
        assert len(desk.seen) == requests
        await writing


async def test_requests_that_came_together_and_take_long_leave_others_their_turn(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Here each of them takes too long: one a turn of the loop is served, in order, and none is lost."""
    hours = itertools.count(step=3600)
    monkeypatch.setattr(connection_module, "monotonic", lambda: next(hours))
    turn, served_in, loop, router = 0, [], asyncio.get_running_loop(), Router("desk")

    def count_turns() -> None:
        nonlocal turn
        turn += 1
        counting.append(loop.call_soon(count_turns))

    def serve(_connection: Connection, command: Command) -> Command:
        served_in.append(turn)
        return command.response(0, body=command.body)

    counting = [loop.call_soon(count_turns)]
    router.add(ECHO, serve)
    async with serving(router) as (_, address), bare_peer(address) as peer:
        await peer.send(*(request(ECHO, body=b"%d" % number) for number in range(9)))
        assert [(await peer.read()).body for _ in range(9)] == [b"%d" % number for number in range(9)]
        assert len(set(served_in)) == 9
        assert (await peer.ask(request(ECHO, body=b"again"))).body == b"again"
    counting[-1].cancel()


async def test_of_one_read_so_many_requests_are_decoded_a_turn(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """However short they are; all are answered in their order, and others have their turns between them."""
    monkeypatch.setattr(connection_module, "monotonic", lambda: 0.0)  # a busy machine may end a turn sooner
    count, order, router = 10 * TURN_COMMANDS, list[bytes](), Router("desk")

    def serve(_connection: Connection, command: Command) -> Command:
        order.append(command.body)
        return command.response(0, body=command.body)

    router.add(ECHO, serve)
    async with serving(router) as (server, address), bare_peer(address) as peer:
        await until(lambda: server.connections)
        (first,) = server.connections
        first.data_received(b"".join(encode_frame(request(ECHO, body=b"%d" % number)) for number in range(count)))
        assert len(order) == TURN_COMMANDS
        assert not first.is_idle
        turns = 0
        while len(order) < count:
            await asyncio.sleep(0)
            turns += 1
        assert turns >= count // TURN_COMMANDS - 1
        assert [(await peer.read()).body for _ in range(count)] == [b"%d" % number for number in range(count)]
        await until(lambda: first.is_idle)


async def test_a_peer_whose_bytes_lie_ready_has_one_read_a_turn(both_loops: LoopFactory) -> None:
    """uvloop would make 32: while they are worked on all others wait, and what came just now looks as if it had."""
    in_turn: list[int] = []
    router = Router("count")
    loop = asyncio.get_running_loop()

    def count(_connection: Connection, command: Command) -> None:
        if not in_turn[-1]:
            loop.call_soon(in_turn.append, 0)
        in_turn[-1] += len(command.body)

    in_turn.append(0)
    router.add(ECHO, count)
    frame = encode_frame(request(ECHO, oneway=True, body=bytes(1024)))
    async with serving(router) as (_, address):
        host, port = address.split(":")
        with socket.create_connection((host, int(port))) as peer:
            peer.setblocking(False)
            sent = 0
            with suppress(BlockingIOError):
                while True:
                    sent += peer.send(frame * 1000)
            whole = sent // len(frame) * 1024
            await until(lambda: sum(in_turn) == whole)
    assert whole > 4 * READ_MAX, "several reads lay ready"
    assert max(in_turn) <= READ_MAX


async def test_a_peer_with_too_many_requests_open_is_not_read_from(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(flow, "OPEN_REQUESTS_MAX", 8)
    desk = Desk()
    async with serving(desk.router) as (_, address), bare_peer(address) as peer:
        for _ in range(8):
            await peer.send(request(LATER))
        await until(lambda: len(desk.seen) == 8)
        for _ in range(20):
            await peer.send(request(LATER))
        await asyncio.sleep(0.05)
        assert len(desk.seen) == 8
        desk.gate.set()
        for _ in range(28):
            assert (await peer.read()).code == 0


@pytest.mark.parametrize("how", ["tasks", "deferred"])
async def test_a_peer_with_too_large_requests_open_is_not_read_from(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch, how: str
) -> None:
    """A thousand requests are few when they are small, and gigabytes when they are not."""
    monkeypatch.setattr(flow, "OPEN_BYTES_MAX", 1 << 20)
    desk = Desk()
    deferred: list[tuple[Connection, Command]] = []

    def defer(connection: Connection, command: Command) -> None:
        connection.defer(command)
        desk.seen.append(command.code)
        deferred.append((connection, command))

    if how == "deferred":
        desk.router.add(LATER, defer)
    async with serving(desk.router) as (server, address), bare_peer(address) as peer:
        frames = [request(LATER, body=bytes(600 << 10)) for _ in range(40)]
        writing = asyncio.ensure_future(peer.send(*frames))
        await until(lambda: len(desk.seen) >= 2)
        (served,) = server.connections
        assert served.transport is not None
        await until(lambda: not served.transport.is_reading())
        assert len(desk.seen) <= 3, "what one read brought is served"
        desk.gate.set()

        async def settle_all() -> None:
            while True:
                for connection, command in deferred:
                    connection.complete(command, command.response(0))
                deferred.clear()
                await asyncio.sleep(0)

        settling = asyncio.create_task(settle_all())
        for _ in range(40):
            assert (await peer.read()).code == 0
        settling.cancel()
        await writing
        await until(lambda: served._flow.open_bytes == 0)


@pytest.mark.parametrize("how", ["deferred", "task"])
async def test_requests_that_go_on_when_their_peer_is_gone_are_counted_for_nobody(
    both_loops: LoopFactory, how: str
) -> None:
    deferred: list[tuple[Connection, Command]] = []
    router = Router("desk")

    def defer(connection: Connection, command: Command) -> None:
        connection.defer(command)
        deferred.append((connection, command))

    async def later() -> None:
        await asyncio.sleep(0)

    router.add(LATER, defer)
    async with serving(router) as (server, address):
        async with bare_peer(address) as peer:
            await peer.send(request(LATER, body=bytes(2 << 20)))
            await until(lambda: deferred)
        ((connection, command),) = deferred
        await until(lambda: not server.connections)
        if how == "deferred":  # the next thing that it waits for, a flush
            connection.defer(command)
            connection.complete(command, None)
            connection.complete(command, command.response(0))
        else:
            connection.complete(command, later())
            await until(lambda: not connection._tasks)
        assert connection._flow.open_bytes == 0
        assert server.budgets.open.taken == 0


async def test_answers_that_are_owed_count_as_open_requests(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """They are bounded as tasks are, and keep a connection from counting as idle."""
    monkeypatch.setattr(flow, "OPEN_REQUESTS_MAX", 8)
    deferred: list[tuple[Connection, Command]] = []
    router = Router("desk")

    def defer(connection: Connection, command: Command) -> None:
        connection.defer(command)
        deferred.append((connection, command))

    router.add(LATER, defer)
    async with serving(router) as (server, address), bare_peer(address) as peer:
        for _ in range(8):
            await peer.send(request(LATER))
        await until(lambda: len(deferred) == 8)
        for _ in range(4):
            await peer.send(request(LATER))
        await asyncio.sleep(0.05)
        (served,) = server.connections
        assert len(deferred) == 8
        assert not served.is_idle
        for connection, command in deferred[:8]:
            connection.complete(command, command.response(0))
        await until(lambda: len(deferred) == 12)
        for connection, command in deferred[8:]:
            connection.complete(command, command.response(0))
        for _ in range(12):
            assert (await peer.read()).code == 0
        await until(lambda: served.is_idle)


async def test_a_peer_that_lets_held_answers_pile_up_is_cut_off(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """Answers to requests read long ago come however full the peer is: they too have a limit."""
    monkeypatch.setattr(connection_module, "WRITE_BUFFER_MAX", 32 << 20)
    async with serving(Desk().router) as (server, address), bare_peer(address):
        await until(lambda: server.connections)
        (served,) = server.connections
        with caplog.at_level(logging.WARNING):
            for _ in range(1000):
                served.send(request(ECHO).response(0, body=bytes(1 << 20)))
                await asyncio.sleep(0)
                if not served.is_open:
                    break
        assert caplog.text.count("event=slow_reader") == 1
        await until(lambda: not server.connections)


async def test_what_was_read_together_is_not_served_once_its_peer_is_cut_off(both_loops: LoopFactory) -> None:
    served: list[int | None] = []

    def serve_once(connection: Connection, command: Command) -> None:
        served.append(command.opaque)
        connection.abort()

    router = Router()
    router.add(ECHO, serve_once)
    commands = [request(ECHO) for _ in range(50)]
    async with serving(router) as (_, address), bare_peer(address) as peer:
        peer.writer.write(b"".join(map(encode_frame, commands)))
        assert await peer.is_closed()
    assert served == [commands[0].opaque]


class DeafServer:
    """Accepts a connection and reads from it only when told; can write at any time."""

    def __init__(self) -> None:
        self.peer: BarePeer | None = None

    async def accept(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        writer.transport.pause_reading()  # type: ignore[attr-defined]
        self.peer = BarePeer(reader, writer)

    def listen_again(self) -> None:
        assert self.peer is not None
        self.peer.writer.transport.resume_reading()  # type: ignore[attr-defined]

    async def start(self) -> tuple[asyncio.Server, str]:
        server = await asyncio.start_server(self.accept, LOOPBACK, 0, limit=1 << 16)
        return server, f"{LOOPBACK}:{server.sockets[0].getsockname()[1]}"


async def fill(client: Remoting, address: str) -> None:
    """Send until the peer's and our buffers are full."""
    while True:
        connection = client.connection(address)
        if connection is not None and connection._flow.is_unread:
            return
        await client.oneway(address, request(ECHO, body=bytes(1 << 20)))
        await asyncio.sleep(0)


async def test_a_caller_waits_for_a_full_peer_and_time_limits_it(turned_clock: LoopFactory) -> None:
    deaf = DeafServer()
    server, address = await deaf.start()
    async with remoting() as client:
        await fill(client, address)
        waiting = asyncio.create_task(client.call(address, request(ECHO), 900))
        await turned_loop().turn(1)
        with pytest.raises(RemotingTimeout, match="took no bytes"):
            await waiting
    server.close()


async def test_the_asking_side_reads_on_while_it_cannot_write(both_loops: LoopFactory) -> None:
    """Two sides that both stop reading until the other reads would wait for ever."""
    heard: list[bytes] = []
    router = Router("client")
    router.add(ECHO, lambda _, command: heard.append(command.body))
    deaf = DeafServer()
    server, address = await deaf.start()
    async with remoting(router) as client:
        await fill(client, address)
        assert deaf.peer is not None
        await deaf.peer.send(request(ECHO, body=b"listen", oneway=True))
        await until(lambda: heard == [b"listen"])
        waiting = asyncio.create_task(client.call(address, request(LATER), 20_000))
        await settle()
        deaf.listen_again()
        while (asked := await deaf.peer.read()).code != LATER:
            pass
        await deaf.peer.send(asked.response(0, body=b"at last"))
        assert (await waiting).body == b"at last"
    server.close()


# ------------------------------------------------------------------------------------------------------------ closing


async def test_a_lost_connection_ends_everything_that_waits_for_it(both_loops: LoopFactory) -> None:
    desk = Desk()
    gone: list[str] = []
    async with serving(desk.router) as (server, address), remoting() as client:
        calls = [asyncio.create_task(client.call(address, request(LATER), 60_000)) for _ in range(5)]
        await until(lambda: len(desk.seen) == 5)
        connection = client.connection(address)
        assert connection is not None
        connection.when_closed(lambda _: gone.append("closed"))
        (served,) = server.connections
        served.abort()
        for call in calls:
            with pytest.raises(SendRequestError, match="closed"):
                await call
        await until(lambda: desk.cancelled == 5)
        assert gone == ["closed"]
        assert not connection.is_open
        with pytest.raises(SendRequestError):
            await connection.call(request(ECHO), 1000)
        connection.send(request(ECHO))  # dropped, as the wire would


async def test_close_writes_what_is_queued_first(both_loops: LoopFactory) -> None:
    router = Router()
    router.add(ECHO, answer_and(Connection.close))
    async with serving(router) as (_, address), bare_peer(address) as peer:
        answer = await peer.ask(request(ECHO))
        assert len(answer.body) == 1 << 20
        assert await peer.is_closed()


def answer_and(end: Callable[[Connection], None]) -> Callable[[Connection, Command], None]:
    """A handler that answers at length and ends the connection at once."""

    def handle(connection: Connection, command: Command) -> None:
        connection.send(command.response(0, body=bytes(1 << 20)))
        end(connection)

    return handle


async def test_a_connection_is_idle_only_when_nothing_waits_on_either_side(both_loops: LoopFactory) -> None:
    desk = Desk()
    async with serving(desk.router) as (server, address), remoting() as client:
        await client.call(address, request(ECHO), 1000)
        asking = client.connection(address)
        (served,) = server.connections
        assert asking is not None
        assert asking.is_idle
        assert served.is_idle
        call = asyncio.create_task(client.call(address, request(LATER), 20_000))
        await until(lambda: LATER in desk.seen)
        assert not asking.is_idle
        assert not served.is_idle
        desk.gate.set()
        await call
        assert asking.is_idle
        assert served.is_idle


def test_servers_close_idle_connections_after_two_minutes() -> None:
    assert Server(Router())._idle_seconds == Remoting()._idle_seconds == 120.0
