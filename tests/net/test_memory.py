"""A connection inside the process: order, turns, back-pressure, and both ways to end it."""

from __future__ import annotations

import asyncio
from typing import cast

import pytest

from orbitmq.net.memory import connect
from tests.support.loops import settle

CLIENT, SERVER = ("10.0.0.1", 4000), ("10.0.0.2", 10911)


class End(asyncio.Protocol):
    """Keeps what happens to it; answers with what `answers` says."""

    def __init__(self, answers: int = 0) -> None:
        self.got: list[bytes] = []
        self.events: list[str] = []
        self.deepest = self._depth = 0
        self._answers = answers

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)

    def data_received(self, data: bytes) -> None:
        self._depth += 1
        self.deepest = max(self.deepest, self._depth)
        self.got.append(data)
        if self._answers:
            self._answers -= 1
            self.transport.write(b"answer")
        self._depth -= 1

    def pause_writing(self) -> None:
        self.events.append("pause")

    def resume_writing(self) -> None:
        self.events.append("resume")

    def connection_lost(self, exc: Exception | None) -> None:
        self.events.append("lost")


def joined(client_answers: int = 0, server_answers: int = 0) -> tuple[End, End]:
    client, server = End(client_answers), End(server_answers)
    connect(client, server, CLIENT, SERVER)
    return client, server


async def test_what_one_end_writes_the_other_has_at_once() -> None:
    client, server = joined(server_answers=1)
    client.transport.write(b"request")
    assert (server.got, client.got) == ([b"request"], [b"answer"]), "without a turn of the loop"
    client.transport.writelines([b"a", bytearray(b"b"), memoryview(b"c")])
    assert server.got[1:] == [b"abc"]
    assert (client.transport.get_extra_info("peername"), server.transport.get_extra_info("peername")) == (
        SERVER,
        CLIENT,
    )


async def test_two_ends_that_answer_each_other_do_not_recurse() -> None:
    client, server = joined(1000, 1000)
    client.transport.write(b"request")
    for _ in range(2000):
        await asyncio.sleep(0)
    assert (len(server.got), len(client.got)) == (1001, 1000)
    assert client.deepest == server.deepest == 1


async def test_an_end_that_does_not_read_pauses_the_other() -> None:
    client, server = joined()
    client.transport.set_write_buffer_limits(10, 5)
    server.transport.pause_reading()
    for number in range(4):
        client.transport.write(b"%d23" % number)
    assert (server.got, client.events, client.transport.get_write_buffer_size()) == ([], ["pause"], 12)
    server.transport.resume_reading()
    await settle()
    assert (b"".join(server.got), client.events) == (b"023123223323", ["pause", "resume"])


@pytest.mark.parametrize("is_reading", [True, False])
async def test_what_is_written_before_the_close_arrives(is_reading: bool) -> None:
    client, server = joined()
    if not is_reading:
        server.transport.pause_reading()
    client.transport.write(b"last")
    client.transport.close()
    client.transport.write(b"too late")
    server.transport.resume_reading()
    await asyncio.sleep(0.05)
    assert (server.got, server.events, client.events) == ([b"last"], ["lost"], ["lost"])
    assert client.transport.is_closing()
    assert server.transport.is_closing()


async def test_an_end_that_fails_ends_the_connection_and_not_the_writer(monkeypatch: pytest.MonkeyPatch) -> None:
    client, server = joined()
    told: list[str] = []
    asyncio.get_running_loop().set_exception_handler(lambda _loop, context: told.append(context["message"]))

    def fail(_: object) -> None:
        raise LookupError("a fault of our own")

    monkeypatch.setattr(server, "data_received", fail)
    monkeypatch.setattr(server, "connection_lost", fail)
    client.transport.write(b"x")
    await settle()
    assert told == ["a protocol failed to receive", "a protocol failed to end"]
    assert client.events == ["lost"]


async def test_an_abort_drops_what_was_not_read() -> None:
    client, server = joined()
    server.transport.pause_reading()
    client.transport.write(b"dropped")
    client.transport.abort()
    server.transport.resume_reading()
    await settle()
    assert (server.got, server.events, client.events) == ([], ["lost"], ["lost"])
