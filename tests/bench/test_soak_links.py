"""The proxy of the fault campaign does to a connection what it says, and nothing when all is well."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator

import pytest

from bench.soak.links import INSIDE, OUTSIDE, Links
from tests.support.process import free_port

PATIENCE_S = 20
SHORT_S = 0.2  # in which nothing comes through a silent link


@pytest.fixture
def port() -> Iterator[int]:
    """Of a server that says everything back. The proxy takes the same one elsewhere, where an outgoing connection of
    some other process may have one that the system chose.
    """
    with socket.create_server((INSIDE, free_port())) as server:

        def serve() -> None:
            while True:
                try:
                    connection, _ = server.accept()
                except OSError:
                    return
                threading.Thread(target=_echo, args=(connection,), daemon=True).start()

        threading.Thread(target=serve, daemon=True).start()
        yield server.getsockname()[1]
        server.shutdown(socket.SHUT_RDWR)


def _echo(connection: socket.socket) -> None:
    with connection:
        try:
            while data := connection.recv(1 << 16):
                connection.sendall(data)
        except OSError:
            return


@pytest.fixture
def links(port: int) -> Iterator[Links]:
    with Links() as made:
        made.open(port)
        yield made


def connected(port: int) -> socket.socket:
    made = socket.create_connection((OUTSIDE, port), timeout=PATIENCE_S)
    made.sendall(b"first")
    assert made.recv(99) == b"first"
    return made


def has_ended(connection: socket.socket) -> bool:
    try:
        return connection.recv(99) == b""
    except ConnectionError:
        return True


def test_a_cut_ends_connections_and_new_ones_until_it_is_healed(links: Links, port: int) -> None:
    with connected(port) as one:
        links.cut(port)
        assert has_ended(one)
    with socket.create_connection((OUTSIDE, port), timeout=PATIENCE_S) as one:
        assert has_ended(one)
    links.heal(port)
    connected(port).close()


def test_what_is_said_into_silence_arrives_when_it_is_healed(links: Links, port: int) -> None:
    with connected(port) as one:
        links.silence(port)
        one.settimeout(SHORT_S)
        one.sendall(b"anybody?")
        with pytest.raises(TimeoutError):
            one.recv(99)
        links.heal(port)
        one.settimeout(PATIENCE_S)
        assert one.recv(99) == b"anybody?"


def test_a_slow_link_loses_nothing_and_keeps_the_order(links: Links, port: int) -> None:
    links.slow(port, 0.01)
    data = bytes(range(256)) * 4000
    with connected(port) as one:
        threading.Thread(target=one.sendall, args=(data,), daemon=True).start()
        came = b""
        while len(came) < len(data):
            came += one.recv(1 << 16)
        assert came == data


def test_a_server_that_is_not_there_ends_a_connection_at_once() -> None:
    port = free_port()
    with Links() as links:
        links.open(port)
        with socket.create_connection((OUTSIDE, port), timeout=PATIENCE_S) as one:
            assert has_ended(one)
