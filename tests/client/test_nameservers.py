"""One name server is enough, whichever it is."""

from __future__ import annotations

import asyncio
import random

import pytest

from orbitmq.client.nameservers import LOOK_UP_FIRST_S, LOOK_UP_S, NameServers
from orbitmq.errors import BrokerError, ClientError, ConnectError, RemotingTimeout
from tests.support.loops import TurnedLoop, run, turned_loop


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
    with pytest.raises(ConnectError, match=r"no name server responds.*to [ab].*to [ab]"):
        run(NameServers(["a", "b"], random.Random(1)).ask(Net()))


def test_silence_is_told_once_until_one_answers_again(caplog: pytest.LogCaptureFixture) -> None:
    net, servers = Net(), NameServers(["a", "b"], random.Random(1))

    async def ask_in_vain() -> None:
        with pytest.raises(ConnectError):
            await servers.ask(net)

    async def scenario() -> None:
        await ask_in_vain()
        await ask_in_vain()
        assert caplog.text.count("event=no_name_server_answers addresses=a;b") == 1
        assert "check namesrv_addr" in caplog.text
        net.alive = {"a"}
        await servers.ask(net)
        net.alive = set()
        await ask_in_vain()
        assert caplog.text.count("event=no_name_server_answers") == 2

    run(scenario())


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


def test_askers_that_fail_together_do_not_skip_the_server_that_lives() -> None:
    async def scenario() -> None:
        net, servers = Net("b"), NameServers(["a", "b"], random.Random(1))
        servers.update(["a", "b", "c"])
        for _ in range(4):
            net.alive = {"a"}
            await servers.ask(net)
            net.alive = {"b"}
            assert set(await asyncio.gather(*(servers.ask(net) for _ in range(8)))) == {"b"}

    run(scenario())


def test_a_new_list_is_taken_and_the_one_in_use_stays_if_it_can() -> None:
    async def scenario() -> None:
        net, servers = Net("a", "b", "c", "d"), NameServers(["a"], random.Random(1))
        servers.update(["b", "a"])
        assert await servers.ask(net) == "a"
        servers.update([])
        assert servers.addresses == ("b", "a")
        servers.update(["c", "d"])
        assert await servers.ask(net) in ("c", "d")

    run(scenario())


def test_without_addresses_they_are_looked_up_once_for_all_and_again_from_time_to_time() -> None:
    found, asked = [("a",), ("b",)], 0

    async def look_up() -> tuple[str, ...]:
        nonlocal asked
        asked += 1
        await asyncio.sleep(0)
        if asked == 2:
            raise ConnectError("down")
        return found[asked > 2]

    async def scenario() -> None:
        servers = NameServers([], random.Random(1), look_up)
        net = Net("a", "b")
        assert await asyncio.gather(*(servers.ask(net) for _ in range(5))) == ["a"] * 5
        assert asked == 1
        task = asyncio.create_task(servers.follow())
        await asyncio.sleep(0)
        await turned_loop().turn(LOOK_UP_FIRST_S + 0.1)  # the second look, which fails
        await turned_loop().turn(LOOK_UP_S - 1)
        assert await servers.ask(net) == "a"
        await turned_loop().turn(2)
        assert await servers.ask(net) == "b"
        task.cancel()

    run(scenario(), TurnedLoop)


def test_a_look_up_that_fails_says_where_it_was_tried() -> None:
    async def look_up() -> tuple[str, ...]:
        raise ConnectError("cannot look name servers up at http://x/")

    async def scenario() -> None:
        with pytest.raises(ClientError, match="no name server: cannot look") as raised:
            await NameServers([], random.Random(1), look_up).ask(Net())
        assert raised.value.code == 10004

    run(scenario())
