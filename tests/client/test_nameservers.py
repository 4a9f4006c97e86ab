"""One name server is enough, whichever it is."""

from __future__ import annotations

import random

import pytest

from orbitmq.client.nameservers import NameServers
from orbitmq.errors import BrokerError, ClientError, ConnectError, RemotingTimeout
from tests.support.loops import run


class Net:
    """Addresses that answer."""

    def __init__(self, *alive: str) -> None:
        self.alive = set(alive)
        self.asked: list[str] = []

    async def __call__(self, address: str) -> str:
        self.asked.append(address)
        if address not in self.alive:
            raise ConnectError(f"cannot connect to {address}")
        return address


def test_the_next_server_is_taken_and_kept() -> None:
    net, servers = Net("b", "c"), NameServers(["a", "b", "c"], random.Random(1))

    async def scenario() -> None:
        first = await servers.ask(net)
        assert {await servers.ask(net) for _ in range(5)} == {first}
        net.alive = {"a"}
        assert await servers.ask(net) == "a"

    run(scenario())
    assert net.asked.count("a") <= 2


def test_no_answer_names_every_server() -> None:
    with pytest.raises(ConnectError, match=r"no name server answers.*to [ab].*to [ab]"):
        run(NameServers(["a", "b"], random.Random(1)).ask(Net()))


def test_no_address_says_what_to_do() -> None:
    with pytest.raises(ClientError, match="NAMESRV_ADDR") as raised:
        run(NameServers([], random.Random(1)).ask(Net()))
    assert raised.value.code == 10004


def test_an_answer_that_refuses_is_an_answer() -> None:
    async def refuse(address: str) -> str:
        raise BrokerError(1, "no", address)

    async def silent(address: str) -> str:
        raise RemotingTimeout(address)

    servers = NameServers(["a", "b"], random.Random(1))
    with pytest.raises(BrokerError):
        run(servers.ask(refuse))
    with pytest.raises(ConnectError):
        run(servers.ask(silent))
