"""Clients of a loop share what they can, and brokers know exactly the groups that are there."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.client import LitePullConsumer, Message, Producer, PushConsumer
from orbitmq.client.base import Client
from orbitmq.errors import ClientError, InvalidStateError, OrbitMQError
from orbitmq.wire.codes import VERSION, RequestCode
from tests.support.fake_system import FakeSystem, fake_system, refuse, silence
from tests.support.loops import TurnedLoop, run, turned_loop, until
from tests.support.python_client import Collector


def push(system: FakeSystem, group: str = "g", **settings: object) -> PushConsumer:
    consumer = PushConsumer(group, system.address, **settings)  # type: ignore[arg-type]
    consumer.subscribe("T")
    consumer.set_listener(Collector())
    return consumer


def named(system: FakeSystem, group: str, api_timeout_ms: int = 3000) -> Producer:
    settings = {"instance_name": "mine", "client_ip": "10.0.0.9"}
    return Producer(group, system.address, api_timeout_ms=api_timeout_ms, **settings)  # type: ignore[arg-type]


def test_clients_with_equal_settings_share_one_identity_and_connection() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with Producer("p", system.address) as producer, push(system) as consumer:
                assert producer.client_id == consumer.client_id
                await producer.send(Message("T", b"x"))
                assert len(system.connections) == 1
                beat = system.heartbeats[-1]
                assert [p.group_name for p in beat.producer_data_set] == ["p"]
                assert [c.group_name for c in beat.consumer_data_set] == ["g"]

    run(scenario())


def test_members_of_one_group_and_other_settings_are_clients_of_their_own() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 2
            async with (
                push(system) as one,
                push(system) as two,
                Producer("p", system.address, api_timeout_ms=2999) as other,
            ):
                assert len({one.client_id, two.client_id, other.client_id}) == 3
                assert sorted(system.members["g"]) == sorted([one.client_id, two.client_id])

    run(scenario())


def test_a_named_instance_is_shared_and_refuses_a_second_member_of_a_group(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system, named(system, "p") as one, named(system, "q", api_timeout_ms=2999) as other:
            assert one.client_id == other.client_id == "10.0.0.9@mine"
            with pytest.raises(ClientError, match="group p exists already under the instance name 'mine'"):
                await named(system, "p").start()

    run(scenario())
    assert "event=settings_ignored client=10.0.0.9@mine group=q" in caplog.text


def test_the_last_one_out_closes_the_connection() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with Producer("p", system.address) as one:
                await one.send(Message("T", b"x"))
                async with Producer("q", system.address):
                    pass
                assert system.connections[0].is_open
                assert system.count(RequestCode.UNREGISTER_CLIENT) == 1
            await until(lambda: not system.connections[0].is_open)

    run(scenario())


def test_requests_carry_version_and_language() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with push(system), Producer("p", system.address) as producer:
                await producer.send(Message("T", b"x"))
            assert {(command.version, command.language) for command in system.asked} == {(VERSION, "PYTHON")}

    run(scenario())


def test_a_group_that_left_is_not_announced_again() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with Producer("p", system.address) as producer:
                await producer.send(Message("T", b"x"))
                async with push(system):
                    assert system.members["g"]
                assert not system.members["g"]
                leaving = next(i for i, c in enumerate(system.asked) if c.code == RequestCode.UNREGISTER_CLIENT)
                assert all(c.code != RequestCode.HEART_BEAT for c in system.asked[leaving:])

    run(scenario())


def test_a_broker_that_lost_the_connection_hears_from_us_at_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with push(system) as consumer:
                system.members["g"].clear()
                beats = len(system.heartbeats)
                system.connections[0].abort()
                await turned_loop().turn(1.1)  # the pull that failed is tried again after a second
                await until(lambda: len(system.heartbeats) > beats)
                assert system.members["g"] == [consumer.client_id]

    run(scenario(), TurnedLoop)


def test_heartbeats_and_routes_come_at_their_intervals() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with push(system, heartbeat_interval_ms=7000, poll_namesrv_interval_ms=9000):
                for code, seconds in ((RequestCode.HEART_BEAT, 7.1), (RequestCode.GET_ROUTEINFO_BY_TOPIC, 9.1)):
                    before = system.count(code)
                    await turned_loop().turn(seconds)
                    await until(lambda code=code, before=before: system.count(code) > before)  # type: ignore[misc]

    run(scenario(), TurnedLoop)


@pytest.mark.parametrize("broken", [refuse(1), silence()])
def test_a_broker_that_takes_no_heartbeats_does_not_stop_a_client(broken: object) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            system.answers[RequestCode.HEART_BEAT] = broken  # type: ignore[assignment]
            system.answers[RequestCode.UNREGISTER_CLIENT] = broken  # type: ignore[assignment]
            async with asyncio.timeout(10), push(system, api_timeout_ms=100):
                pass

    run(scenario())


@pytest.mark.parametrize("client", [Producer, LitePullConsumer])
def test_a_client_lives_once(client: type[Client]) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            made = client("g", system.address)  # type: ignore[arg-type, call-arg]
            with pytest.raises(InvalidStateError, match="is not started"):
                _ = made.client_id
            await made.shutdown()
            async with made:
                assert made.is_running
                with pytest.raises(InvalidStateError, match="is running; a client is started once"):
                    await made.start()
            await made.shutdown()
            with pytest.raises(InvalidStateError, match="shut down"):
                await made.start()

    run(scenario())


def test_a_client_refuses_to_work_in_a_forked_child(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            monkeypatch.setattr("os.getpid", lambda: -1)
            with pytest.raises(InvalidStateError, match="make another one after a fork"):
                await producer.send(Message("T", b"x"))
            monkeypatch.undo()

    run(scenario())


def test_the_environment_names_the_name_server(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            monkeypatch.setenv("NAMESRV_ADDR", system.address)
            async with Producer("g") as producer:
                await producer.send(Message("T", b"x"))

    run(scenario())


def test_without_any_name_server_the_first_send_says_so(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NAMESRV_ADDR", raising=False)

    async def scenario() -> None:
        async with Producer("g") as producer:
            with pytest.raises(ClientError, match="give namesrv_addr"):
                await producer.send(Message("T", b"x"))

    run(scenario())


def test_a_failed_start_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = PushConsumer("g", system.address)
            with pytest.raises(OrbitMQError, match="no listener"):
                await consumer.start()
            async with push(system, instance_name="n"):
                pass

    run(scenario())
