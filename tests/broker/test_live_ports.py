"""The second port of a broker, where old clients look for the VIP channel."""

from __future__ import annotations

import errno
import socket
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.errors import ConfigurationError
from orbitmq.net.server import Server
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.access import command_of
from tests.support.live import made_broker, running
from tests.support.peers import bare_peer
from tests.support.process import free_port


async def asked(port: int) -> Command:
    async with bare_peer(f"127.0.0.1:{port}") as peer:
        return await peer.ask(command_of(RequestCode.GET_ALL_TOPIC_CONFIG))


async def test_the_same_is_served_two_ports_below(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker:
        first, second = await asked(broker.port), await asked(broker.port - 2)
        assert first.code == second.code == 0
        assert first.body == second.body


async def test_another_second_port_may_be_chosen_or_none(tmp_path: Path) -> None:
    port = free_port()
    async with running(made_broker(tmp_path / "a", fastListenPort=str(port))):
        assert (await asked(port)).code == 0
    async with running(made_broker(tmp_path / "b", fastListenPort="-1")) as broker:
        with pytest.raises(ConnectionError):
            await asked(broker.port - 2)


async def test_a_second_port_that_is_taken_stops_the_start_by_name(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        taken = other.getsockname()[1]
        broker = made_broker(tmp_path, listenPort=str(free_port()), fastListenPort=str(taken))
        with pytest.raises(ConfigurationError, match=rf"option fastListenPort: .*:{taken}: ") as refused:
            await broker.start()
    assert isinstance(refused.value.__cause__, OSError)
    assert refused.value.__cause__.errno == errno.EADDRINUSE
    async with running(Broker(broker.options.replace(fast_listen_port=-1), broker.store.options)) as again:
        assert again.port == broker.options.listen_port


async def test_any_free_port_is_tried_again_when_its_neighbour_is_taken(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    bind, asked_for = Server.bind, []

    async def unlucky(server: Server, host: str, port: int, *, reuse: bool = True) -> int:
        asked_for.append(port)
        if port and asked_for.count(0) == len(asked_for) - 1:  # the first neighbour
            raise ConfigurationError("somebody has it")
        return await bind(server, host, port, reuse=reuse)

    monkeypatch.setattr(Server, "bind", unlucky)
    async with running(made_broker(tmp_path)) as broker:
        first_neighbour = next(index for index, port in enumerate(asked_for) if port)
        assert asked_for[first_neighbour + 1] == 0, "any port, once more"
        assert asked_for[-1] != 0
        assert (await asked(broker.port - 2)).code == 0
