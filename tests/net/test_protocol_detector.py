"""Plain and encrypted connections on one port, on both event loops."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import ConfigurationError, ConnectError, RemotingError
from orbitmq.net import protocol_detector
from orbitmq.net.connection import TURN_COMMANDS, Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.net.tls import ServerTls, client_context, outgoing_context
from orbitmq.net.tls_options import TlsOptions
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import encode_frame
from tests.support.certificates import Authority, Pair
from tests.support.loops import LoopFactory, until
from tests.support.peers import BarePeer, bare_peer, remoting, serving

ANYBODY = outgoing_context(verify=False, check_host=False, trusted="")
ECHO, GROW, HOLD = 1, 2, 3


def router() -> Router:
    made = Router()
    made.add(ECHO, lambda _connection, command: command.response(0, body=command.body))
    made.add(GROW, lambda _connection, command: command.response(0, body=b"x" * int(command.body)))
    made.add(HOLD, lambda _connection, _command: None)
    return made


@asynccontextmanager
async def offering(**options: Any) -> AsyncIterator[tuple[Server, str]]:
    async with serving(router(), tls=ServerTls(TlsOptions(**options))) as served:
        yield served


async def echo(asking: Remoting, address: str, body: bytes = b"hello") -> bytes:
    return (await asking.call(address, request(ECHO, body=body), 20_000)).body


async def certificate_of(address: str, trusted: Path | None = None) -> bytes:
    """What the server shows; SSLError when it is not signed by `trusted`."""
    host, _, port = address.rpartition(":")
    context = outgoing_context(verify=trusted is not None, check_host=True, trusted=str(trusted or ""))
    _, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=host)
    shown: bytes = writer.get_extra_info("ssl_object").getpeercert(binary_form=True)
    writer.close()
    return shown


@pytest.mark.parametrize("size", [0, 1, 16_384, 5_000_000])
async def test_a_permissive_server_speaks_both(both_loops: LoopFactory, size: int) -> None:
    body = bytes(range(256)) * (size // 256) + b"z" * (size % 256)
    async with offering() as (_, address), remoting() as plain, remoting(tls=ANYBODY) as encrypted:
        assert await echo(plain, address, body) == body
        assert await echo(encrypted, address, body) == body
        many = [echo(asking, address, b"%d" % i) for i in range(50) for asking in (plain, encrypted)]
        assert await asyncio.gather(*many) == [b"%d" % i for i in range(50) for _ in range(2)]


async def test_an_enforcing_server_turns_plain_connections_away(both_loops: LoopFactory) -> None:
    async with offering(mode="enforcing") as (server, address), remoting() as plain, remoting(tls=ANYBODY) as encrypted:
        assert await echo(encrypted, address) == b"hello"
        with pytest.raises(RemotingError):
            await echo(plain, address)
        await until(lambda: len(server.connections) == 1)


async def test_a_server_without_tls_turns_encrypted_connections_away(both_loops: LoopFactory) -> None:
    async with offering(mode="disabled") as (server, address), remoting() as plain, remoting(tls=ANYBODY) as encrypted:
        assert await echo(plain, address) == b"hello"
        with pytest.raises(ConnectError):
            await echo(encrypted, address)
        await until(lambda: len(server.connections) == 1)


async def test_without_a_certificate_and_test_mode_there_is_no_tls(both_loops: LoopFactory) -> None:
    async with offering(test_mode=False) as (_, address), remoting() as plain, remoting(tls=ANYBODY) as encrypted:
        with pytest.raises(ConnectError):
            await echo(encrypted, address)
        assert await echo(plain, address) == b"hello"


@pytest.mark.parametrize("cut", [1, 5, 17])
async def test_the_first_byte_may_come_alone(both_loops: LoopFactory, cut: int) -> None:
    async with offering() as (_, address), bare_peer(address) as peer:
        frame = encode_frame(request(ECHO, body=b"hello"))
        for start in range(0, len(frame), cut):
            peer.writer.write(frame[start : start + cut])
            await peer.writer.drain()
        assert (await peer.read()).body == b"hello"


async def test_tls_records_may_be_cut_anywhere(both_loops: LoopFactory) -> None:
    async with offering() as (_, address), bare_peer(address) as peer:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ANYBODY.wrap_bio(incoming, outgoing)
        await pumped(peer, incoming, outgoing, tls.do_handshake)
        tls.write(encode_frame(request(ECHO, body=b"hello")))
        for byte in outgoing.read():
            peer.writer.write(bytes((byte,)))
            await peer.writer.drain()
        assert b"hello" in await pumped(peer, incoming, outgoing, tls.read)


async def pumped(peer: BarePeer, incoming: ssl.MemoryBIO, outgoing: ssl.MemoryBIO, step: Any) -> Any:
    """`step` once the other side has said enough for it."""
    async with asyncio.timeout(20):
        while True:
            try:
                return step()
            except ssl.SSLWantReadError:
                peer.writer.write(outgoing.read())
                incoming.write(await peer.reader.read(1 << 16))
            finally:
                peer.writer.write(outgoing.read())


async def test_a_certificate_of_an_authority_is_believed(both_loops: LoopFactory, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    async with offering(**files(authority.issue("server"))) as (_, address):
        believing = outgoing_context(verify=True, check_host=True, trusted=str(authority.path))
        async with remoting(tls=believing) as asking:
            assert await echo(asking, address) == b"hello"
        stranger = outgoing_context(verify=True, check_host=True, trusted=str(Authority(tmp_path, "stranger").path))
        async with remoting(tls=stranger) as asking:
            with pytest.raises(ConnectError, match=r"(?i)certificate"):
                await echo(asking, address)


def files(pair: Pair, **more: Any) -> dict[str, Any]:
    return {"cert_path": str(pair.certificate), "key_path": str(pair.key), "test_mode": False, **more}


async def test_a_replaced_certificate_is_shown_and_old_connections_live(
    both_loops: LoopFactory, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr("orbitmq.net.tls.LOOK_SECONDS", 0.01)
    authority = Authority(tmp_path)
    pair = authority.issue("server")
    async with offering(**files(pair)) as (_, address), remoting(tls=ANYBODY) as asking:
        assert await echo(asking, address) == b"hello"
        first = await certificate_of(address, authority.path)
        with caplog.at_level(logging.ERROR, "orbitmq"):
            good = pair.certificate.read_bytes()
            pair.certificate.write_text("half a certificate")
            await until(lambda: "certificate_kept" in caplog.text)
            assert await certificate_of(address, authority.path) == first
            pair.certificate.write_bytes(good)
        authority.issue("server")
        async with asyncio.timeout(20):
            while await certificate_of(address, authority.path) == first:  # noqa: ASYNC110 - asking is how it is seen
                await asyncio.sleep(0.005)
        assert await echo(asking, address) == b"hello"


@pytest.mark.parametrize(("auth", "shown", "gets_in"), [
    ("require", "own", True),
    ("require", "stranger's", False),
    ("require", None, False),
    ("optional", None, True),
    ("optional", "stranger's", False),
    ("none", None, True),
])  # fmt: skip
async def test_clients_may_have_to_show_a_certificate(
    both_loops: LoopFactory, tmp_path: Path, auth: str, shown: str | None, gets_in: bool
) -> None:
    authorities = {"own": Authority(tmp_path / "own"), "stranger's": Authority(tmp_path / "strange")}
    own = authorities["own"]
    options = files(own.issue("server"), verify_clients=True, trust_path=str(own.path), client_auth=auth)
    async with offering(**options) as (_, address):
        pair = authorities[shown].issue("client") if shown else None
        certificate, key = (str(pair.certificate), str(pair.key)) if pair else ("", "")
        context = outgoing_context(
            verify=True, check_host=True, trusted=str(own.path), certificate=certificate, key=key
        )
        async with remoting(tls=context) as asking:
            if gets_in:
                assert await echo(asking, address) == b"hello"
            else:
                with pytest.raises(RemotingError):
                    await echo(asking, address)


# --------------------------------------------------------------------------------------------- limits and bad peers


async def test_a_peer_that_never_finishes_the_handshake_is_cut_off(
    both_loops: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(protocol_detector, "HANDSHAKE_SECONDS", 0.05)
    async with offering() as (server, address), bare_peer(address) as peer:
        peer.writer.write(b"\x16\x03\x01")
        assert await peer.is_closed()
        await until(lambda: not server.connections)


@pytest.mark.parametrize("garbage", [b"\x16" + b"\0" * 100, b"\x16\x03\x01\x00\x05hello", b"\x16" * 70_000])
async def test_garbage_that_begins_like_tls_closes_the_connection(both_loops: LoopFactory, garbage: bytes) -> None:
    async with offering() as (server, address), bare_peer(address) as peer:
        peer.writer.write(garbage)
        async with asyncio.timeout(20):
            while await peer.reader.read(1 << 16):
                pass
        await until(lambda: not server.connections)


async def test_garbage_after_the_handshake_closes_the_connection(both_loops: LoopFactory) -> None:
    async with offering() as (server, address), bare_peer(address) as peer:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ANYBODY.wrap_bio(incoming, outgoing)
        await pumped(peer, incoming, outgoing, tls.do_handshake)
        peer.writer.write(b"\x17\x03\x03\x00\x20" + b"?" * 32)
        await until(lambda: not server.connections)


async def test_what_came_with_the_peers_goodbye_is_served(both_loops: LoopFactory) -> None:
    """However many turns it takes."""
    count, seen, desk = 10 * TURN_COMMANDS, list[bytes](), Router()
    desk.add(ECHO, lambda _connection, command: seen.append(command.body))
    async with serving(desk, tls=ServerTls(TlsOptions())) as (server, address), bare_peer(address) as peer:
        incoming, outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        tls = ANYBODY.wrap_bio(incoming, outgoing)
        await pumped(peer, incoming, outgoing, tls.do_handshake)
        tls.write(b"".join(encode_frame(request(ECHO, oneway=True, body=b"%d" % number)) for number in range(count)))
        with pytest.raises(ssl.SSLWantReadError):
            tls.unwrap()
        peer.writer.write(outgoing.read())
        await until(lambda: not server.connections)
    assert seen == [b"%d" % number for number in range(count)]


async def test_a_peer_that_takes_no_answers_is_not_read_from(both_loops: LoopFactory) -> None:
    """The bounds of plain connections hold below TLS: what is not taken stays bounded, and is all there later."""
    async with offering() as (server, address), remoting(tls=ANYBODY) as asking:
        assert await echo(asking, address) == b"hello"
        (serving_end,) = server.connections
        asking_end = asking.connection(address)
        assert asking_end is not None
        assert asking_end.transport is not None
        asking_end.transport.pause_reading()
        calls = [asyncio.ensure_future(grown(asking, address)) for _ in range(40)]
        await until(lambda: serving_end._flow.is_unread)
        await asyncio.sleep(0.05)
        assert serving_end.transport.get_write_buffer_size() < 16 << 20
        asking_end.transport.resume_reading()
        assert await asyncio.gather(*calls) == [1 << 20] * 40


async def grown(asking: Remoting, address: str) -> int:
    return len((await asking.call(address, request(GROW, body=b"%d" % (1 << 20)), 60_000)).body)


async def test_stopping_answers_what_is_under_way_and_says_goodbye(both_loops: LoopFactory) -> None:
    closed: list[Connection] = []
    server = Server(router(), tls=ServerTls(TlsOptions()), on_close=closed.append)
    port = await server.start("127.0.0.1", 0)
    context = outgoing_context(verify=False, check_host=False, trusted="")
    reader, writer = await asyncio.open_connection("127.0.0.1", port, ssl=context)
    writer.write(encode_frame(request(ECHO, body=b"hello")))
    assert b"hello" in await reader.read(1 << 16)
    await server.stop(0)
    assert await reader.read() == b""
    writer.close()
    await until(lambda: len(closed) == 1)


async def test_the_asking_side_of_a_broker_takes_its_options(both_loops: LoopFactory, tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    believing = TlsOptions(test_mode=False, verify_servers=True, client_trust_path=str(authority.path))
    other = TlsOptions(test_mode=False, verify_servers=True, client_trust_path=str(Authority(tmp_path, "other").path))
    async with offering(**files(authority.issue("server", address="127.0.0.2"))) as (_, address):
        for options, gets_in in ((TlsOptions(), True), (believing, True), (other, False)):
            async with remoting(tls=client_context(options)) as asking:
                if gets_in:
                    assert await echo(asking, address) == b"hello"
                else:
                    with pytest.raises(ConnectError):
                        await echo(asking, address)


async def test_a_server_with_a_bad_certificate_does_not_start(tmp_path: Path) -> None:
    server = Server(router(), tls=ServerTls(TlsOptions(cert_path=str(tmp_path / "none.pem"))))
    with pytest.raises(ConfigurationError, match=r"option tls\.server\.certPath: .*none\.pem is not a file"):
        await server.start("127.0.0.1", 0)


async def test_answers_owed_to_a_connection_that_is_gone_are_dropped(both_loops: LoopFactory) -> None:
    async with offering() as (server, address), remoting(tls=ANYBODY) as asking:
        assert await echo(asking, address) == b"hello"
        (serving_end,) = server.connections
        call = asyncio.ensure_future(asking.call(address, request(HOLD), 20_000))
        await asyncio.sleep(0)
        asking.disconnect(address)
        with pytest.raises(RemotingError):
            await call
        await until(lambda: not server.connections)
        serving_end.send(Command(code=0, opaque=1))
