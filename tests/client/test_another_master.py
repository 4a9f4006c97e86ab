"""Sends wait for another master of the only broker, as long as their time allows."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

import pytest

from orbitmq.client import Message, Producer
from orbitmq.errors import OrbitMQError
from orbitmq.net.connection import Connection
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system, refuse
from tests.support.loops import TurnedLoop, run, turned_loop, until

UNAVAILABLE = refuse(ResponseCode.SERVICE_NOT_AVAILABLE)
ROUTE, SEND = RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2


@dataclass
class Name:
    """A broker name with a master, a slave and a name server; `producer` has sent to the master."""

    names: FakeSystem
    old: FakeSystem
    new: FakeSystem
    addresses: dict[int, str]
    """What the name server lists."""
    producer: Producer
    old_runs: AsyncExitStack

    def send(self) -> asyncio.Task[object]:
        return asyncio.create_task(self.producer.send(Message("T", b"x")))

    async def looks(self, count: int = 2) -> None:
        """The name server has been asked again."""
        asked = self.names.count(ROUTE)
        await until(lambda: self.names.count(ROUTE) >= asked + count, "looks for a master")

    def elect_new(self) -> None:
        self.addresses |= {0: self.new.address, 1: self.old.address}


@asynccontextmanager
async def name_with_slave(send_timeout_ms: int = 30_000) -> AsyncIterator[Name]:
    async with fake_system() as names, fake_system() as new, AsyncExitStack() as old_runs:
        old = await old_runs.enter_async_context(fake_system())
        names.topics["T"] = new.topics["T"] = old.topics["T"] = 1
        addresses = {0: old.address, 1: new.address}

        def route(_connection: Connection, command: Command) -> Command | None:
            found = names.route("T")
            found.broker_datas[0].addresses.clear()
            found.broker_datas[0].addresses.update(addresses)
            return command.response(ResponseCode.SUCCESS, body=encode_standard(found))

        names.answers[ROUTE] = route
        async with Producer("p", names.address, send_timeout_ms=send_timeout_ms) as producer:
            await producer.send(Message("T", b"first"))
            yield Name(names, old, new, addresses, producer, old_runs)


@pytest.mark.parametrize("way", ["refuses", "is gone", "is in no route"])
@pytest.mark.parametrize("count", [1, 30])
def test_sends_wait_for_another_master_of_the_only_broker(way: str, count: int) -> None:
    """All of them by one search."""

    async def scenario() -> None:
        async with name_with_slave() as at:
            if way == "is gone":
                await at.old_runs.aclose()
            at.old.answers[SEND] = UNAVAILABLE
            if way == "is in no route":
                del at.addresses[0]
            asked = at.names.count(ROUTE)
            sending = [at.send() for _ in range(count)]
            await at.looks(3)
            at.elect_new()
            await asyncio.gather(*sending)
            assert at.new.count(SEND) == count
            assert at.names.count(ROUTE) < asked + 30, "not one for each send"
            assert at.producer._instance is not None
            await until(lambda: not at.producer._instance._searches, "the end of the search")  # type: ignore[union-attr]

    run(scenario())


def test_sends_wait_as_long_as_they_have_time() -> None:
    async def scenario() -> None:
        async with name_with_slave() as at:
            at.old.answers[SEND] = UNAVAILABLE
            sending = at.send()
            for _ in range(90):
                await turned_loop().turn(0.2)
            assert not sending.done(), "after 18 of 30 seconds"
            assert at.old.count(SEND) < 4, "and its attempts are not spent"
            at.elect_new()
            await at.looks(1)
            await turned_loop().turn(0.2)
            await sending
            assert at.new.count(SEND) == 1

    run(scenario(), TurnedLoop)


def test_a_search_ends_with_the_last_send_that_waits_for_it() -> None:
    async def scenario() -> None:
        async with name_with_slave() as at:
            at.old.answers[SEND] = UNAVAILABLE
            sending = [at.send() for _ in range(3)]
            await at.looks()
            instance = at.producer._instance
            assert instance is not None
            assert len(instance._searches) == 1
            for one in sending:
                one.cancel()
            await until(lambda: not instance._searches, "its end")

    run(scenario())


def test_the_same_master_is_taken_when_it_comes_back() -> None:
    """In maintenance no other one is elected."""

    async def scenario() -> None:
        async with name_with_slave() as at:
            at.old.answers[SEND] = UNAVAILABLE
            sending = at.send()
            await at.looks()
            del at.addresses[0]
            await at.looks()
            del at.old.answers[SEND]
            at.addresses[0] = at.old.address
            async with asyncio.timeout(2.5):  # the attempts would wait longer for another one
                await sending
            assert at.old.count(SEND) == 3

    run(scenario())


def test_a_master_that_was_found_by_an_attempt_is_not_waited_for() -> None:
    """The attempt is refused by the one that it has found: another one is waited for."""

    async def scenario() -> None:
        async with name_with_slave() as at:
            del at.addresses[0]
            assert at.producer._instance is not None
            await at.producer._instance.routes.refresh("T")
            at.old.answers[SEND] = UNAVAILABLE
            at.addresses[0] = at.old.address
            sending = at.send()
            await at.looks(4)
            assert at.old.count(SEND) == 2
            at.elect_new()
            await sending

    run(scenario())


def test_a_route_without_a_master_does_not_fail_sends() -> None:
    """Routes are refreshed now and then, also while no master is elected yet."""

    async def scenario() -> None:
        async with name_with_slave() as at:
            del at.addresses[0]
            assert at.producer._instance is not None
            routes = at.producer._instance.routes
            await routes.refresh("T")
            sending = at.send()
            await at.looks()
            assert not sending.done()
            at.elect_new()
            await sending
            assert at.new.count(SEND) == 1

    run(scenario())


def test_a_send_does_not_wait_where_there_are_no_slaves() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            system.topics["T"] = 1
            await producer.send(Message("T", b"x"))
            system.answers[SEND] = UNAVAILABLE
            with pytest.raises(OrbitMQError, match="3 attempts"):
                await producer.send(Message("T", b"x"))
            asked = system.count(ROUTE)
            with pytest.raises(OrbitMQError, match="3 attempts"):
                await producer.send(Message("T", b"x"))
            assert system.count(ROUTE) <= asked + 1, "one look in half a second"

    run(scenario())
