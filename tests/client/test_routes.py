"""Routes are found, kept when they vanish, shared between askers; a missing one says why."""

from __future__ import annotations

import asyncio
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from orbitmq.client.nameservers import NameServers
from orbitmq.client.routes import LOOKUPS_AT_ONCE, KnownRoute, Routes
from orbitmq.errors import ClientError
from orbitmq.message.model import MessageQueue
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse, silence
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until
from tests.support.peers import remoting
from tests.support.process import free_port


@asynccontextmanager
async def routes(*, address: str | None = None) -> AsyncIterator[tuple[FakeSystem, Routes, list[str]]]:
    async with fake_system() as system, remoting() as asking:
        changed: list[str] = []
        names = NameServers([address or system.address], random.Random(1))
        yield system, Routes(asking, names, on_change=changed.append), changed


def test_a_known_topic_is_asked_for_once() -> None:
    async def scenario() -> None:
        async with routes() as (system, known, changed):
            system.topics["T"] = 2
            assert known.publish("T") is None
            found = await asyncio.gather(*(known.find_publish("T", "TBW102", 4) for _ in range(5)))
            assert {f.queues for f in found} == {(MessageQueue("T", BROKER, 0), MessageQueue("T", BROKER, 1))}
            assert known.publish("T") is found[0]
            assert await known.master(MessageQueue("T", BROKER, 0)) == system.address
            assert system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1
            assert changed == ["T"]

    run(scenario())


def test_a_topic_that_does_not_exist_takes_the_template_until_it_does() -> None:
    async def scenario() -> None:
        async with routes() as (system, known, _):
            assert len((await known.find_publish("T", "TBW102", 3)).queues) == 3
            assert known.subscribed("T") == ()
            system.topics["T"] = 1
            await known.refresh_each(["T"])
            assert len((await known.find_publish("T", "TBW102", 3)).queues) == 1
            assert known.subscribed("T") == (MessageQueue("T", BROKER, 0),)

    run(scenario())


def test_a_route_that_vanishes_is_kept() -> None:
    async def scenario() -> None:
        async with routes() as (system, known, changed):
            system.topics["T"] = 2
            before = await known.find_subscribed("T")
            del system.topics["T"]
            await known.refresh_each(["T"])
            known.forget_brokers()
            assert known.subscribed("T") == before
            assert changed == ["T"]

    run(scenario())


def test_brokers_no_route_names_are_forgotten() -> None:
    async def scenario() -> None:
        async with routes() as (system, known, _):
            system.topics["T"] = 1
            await known.refresh("T")
            moved = TopicRouteData(
                broker_datas=[BrokerData(addresses={0: "10.0.0.9:1"}, broker_name="other")],
                queue_datas=[QueueData(broker_name="other", perm=6, read_queues=1, write_queues=1)],
            )
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, command: command.response(
                0, body=encode_standard(moved)
            )
            await known.refresh("T")
            known.forget_brokers()
            assert dict(known.addresses("other")) == {0: "10.0.0.9:1"}
            assert not known.addresses(BROKER)
            with pytest.raises(ClientError, match="has no master") as raised:
                await known.master(MessageQueue("T", BROKER, 0))
            assert raised.value.code == 10003

    run(scenario())


def test_another_master_is_found_and_the_queues_stay() -> None:
    """All members of a group have to divide the same queues: those wait for the regular refresh."""

    async def scenario() -> None:
        async with routes() as (system, known, changed):
            system.topics["T"] = 2
            queues = await known.find_subscribed("T")

            def answer(addresses: dict[int, str]) -> None:
                route = TopicRouteData(
                    broker_datas=[BrokerData(addresses=addresses, broker_name=BROKER)],
                    queue_datas=[QueueData(broker_name=BROKER, perm=6, read_queues=1, write_queues=1)],
                )
                system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, command: command.response(
                    0, body=encode_standard(route)
                )

            answer({1: "10.0.0.8:1"})
            await known.find_masters([BROKER, "unknown"])
            assert known.known_master(queues[0]) == system.address, "there is no other master yet"
            answer({0: "10.0.0.9:1", 1: "10.0.0.8:1"})
            await known.find_masters([BROKER])
            assert known.known_master(queues[0]) == "10.0.0.9:1"
            assert (known.subscribed("T"), changed) == (queues, ["T"])

    run(scenario())


def test_a_master_that_is_back_is_taken_though_its_route_is_the_same_as_before() -> None:
    async def scenario() -> None:
        async with routes() as (system, known, _):
            system.topics["T"] = 1
            (queue,) = await known.find_subscribed("T")
            other = system.route("T")
            other.broker_datas[0].addresses[0] = "10.0.0.9:1"
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, command: command.response(
                0, body=encode_standard(other)
            )
            await known.find_masters([BROKER])
            assert known.known_master(queue) == "10.0.0.9:1"
            del system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC]
            await known.refresh("T")
            assert known.known_master(queue) == system.address

    run(scenario())


def test_one_topic_that_fails_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with routes() as (system, known, _):
            system.topics |= {"A": 1, "B": 1}
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(ResponseCode.SYSTEM_ERROR, times=1)
            await known.refresh_each(["A", "B"])
            assert (known.subscribed("A"), len(known.subscribed("B"))) == ((), 1)

    run(scenario())
    assert "event=route_not_refreshed topic=A" in caplog.text


def test_what_a_name_server_says_of_one_topic_does_not_stop_the_others(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with routes() as (system, known, _):
            system.topics |= {"A": 1, "B": 1}
            find = known.refresh

            async def refresh(topic: str) -> KnownRoute | None:
                if topic == "A":
                    raise ValueError("no sense")
                return await find(topic)

            known.refresh = refresh  # type: ignore[method-assign]
            await known.refresh_each(["A", "B"])
            assert known.subscribed("B")

    run(scenario())
    assert "event=route_not_refreshed topic=A" in caplog.text
    assert "ValueError: no sense" in caplog.text


def test_a_name_server_that_hangs_costs_its_time_limit_once_for_several_topics() -> None:
    async def scenario() -> None:
        async with routes() as (system, known, _):
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = silence()
            topics = [f"T{i:02}" for i in range(2 * LOOKUPS_AT_ONCE)]
            refreshing = asyncio.create_task(known.refresh_each(topics))
            for rounds in (1, 2):
                await until(lambda: system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == rounds * LOOKUPS_AT_ONCE)  # noqa: B023
                await settle()
                assert system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == rounds * LOOKUPS_AT_ONCE
                assert not refreshing.done()
                await turned_loop().turn(3.1)
            await refreshing

    run(scenario(), TurnedLoop)


@pytest.mark.parametrize(
    ("cause", "message"),
    [
        ("no template", "does not exist, and no broker offers the template topic NoTemplate"),
        ("not writable", "has no writable queue"),
        ("no master", "no master is registered for broker broker-a .slaves only."),
        ("refused", "CODE: 1 DESC: broken"),
        ("no name server", "no name server responds: cannot connect"),
    ],
)
def test_no_route_names_its_cause(cause: str, message: str) -> None:
    async def scenario() -> None:
        address = f"127.0.0.1:{free_port()}" if cause == "no name server" else None
        async with routes(address=address) as (system, known, _):
            system.topics["T"] = 1
            if cause == "no template":
                del system.topics["T"]
            elif cause == "refused":
                system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = refuse(1, "broken")
            elif cause != "no name server":
                route = system.route("T", perm=4 if cause == "not writable" else 6)
                if cause == "no master":
                    slaves = [BrokerData(addresses={1: "10.0.0.2:1"}, broker_name=BROKER)]
                    route = TopicRouteData(broker_datas=slaves, queue_datas=route.queue_datas)
                system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, command: command.response(
                    0, body=encode_standard(route)
                )
            with pytest.raises(ClientError, match=f"no route to topic T: .*{message}") as raised:
                await known.find_publish("T", "NoTemplate", 4)
            assert raised.value.code == 10005

    run(scenario())
