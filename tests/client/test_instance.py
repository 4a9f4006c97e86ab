"""Clients of a loop share what they can, and brokers know exactly the groups that are there."""

from __future__ import annotations

import asyncio
import os
from contextlib import AsyncExitStack
from typing import Any

import pytest

from orbitmq.client import (
    ConsumeFromWhere,
    LitePullConsumer,
    Message,
    Producer,
    PullConsumer,
    PullSchedule,
    PushConsumer,
)
from orbitmq.client.base import Client
from orbitmq.client.concurrent_delivery import ConcurrentDelivery
from orbitmq.client.core.addresses import VIP_CODES, vip_address
from orbitmq.client.instance import Instance
from orbitmq.client.offset_store import BrokerOffsets
from orbitmq.client.queue_locks import OwnedQueues
from orbitmq.client.routes import Routes
from orbitmq.errors import (
    BrokerError,
    ClientError,
    ConfigurationError,
    HookFailed,
    InvalidStateError,
    MessageIllegal,
    OrbitMQError,
)
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import BrokerData, ClusterInfo
from orbitmq.wire.codes import VERSION, ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import UnregisterClientHeader
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.signature import signed_fields
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse, silence
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until
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


@pytest.mark.parametrize("code", [ResponseCode.SERVICE_NOT_AVAILABLE, ResponseCode.MESSAGE_ILLEGAL])
def test_a_broker_that_does_not_serve_has_its_master_looked_for(code: ResponseCode) -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("p", system.address) as producer:
            system.topics["T"] = 1
            await producer.send(Message("T", b"x"))
            asked = system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)
            system.answers[RequestCode.SEND_MESSAGE_V2] = refuse(code, "no")
            with pytest.raises(OrbitMQError):
                await producer.send(Message("T", b"x"))
            if code == ResponseCode.SERVICE_NOT_AVAILABLE:
                await until(lambda: system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) > asked, "a look for the master")
            else:
                await asyncio.sleep(0.05)
                assert system.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == asked, "the message is to blame"

    run(scenario())


def test_a_consumer_gets_the_first_message_of_a_new_topic_within_a_second() -> None:
    """However long the topic was missing."""

    async def scenario() -> None:
        async with fake_system() as system:
            listener = Collector()
            consumer = PushConsumer("g", system.address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
            consumer.subscribe("T")
            consumer.set_listener(listener)
            async with consumer:
                for _ in range(30):
                    await turned_loop().turn(0.5)
                system.topics["T"] = 1
                system.put("T", 0, b"first")
                await turned_loop().turn(0.6)
                await until(lambda: len(listener.rows) == 1, "the first message")

    run(scenario(), TurnedLoop)


def test_a_missing_retry_topic_is_requested_seldom() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = lambda _, command: (
                command.response(ResponseCode.TOPIC_NOT_EXIST) if route_of(command).startswith("%RETRY%") else None
            )
            async with push(system):
                for _ in range(20):
                    await turned_loop().turn(1)
                    await settle(500)  # the response has come
                asked = [route_of(one) for one in system.asked if one.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
                assert 2 < asked.count("%RETRY%g") < 12

    run(scenario(), TurnedLoop)


def route_of(command: Command) -> str:
    return command.header(GetRouteInfoHeader).topic


@pytest.mark.parametrize("has_topic", [True, False], ids=["with its topics", "with a new disk"])
def test_a_broker_that_returns_at_another_address_takes_the_send_that_its_old_one_refuses(has_topic: bool) -> None:
    async def scenario() -> None:
        async with fake_system() as names, fake_system() as new, AsyncExitStack() as running:
            old = await running.enter_async_context(fake_system())
            names.topics["T"] = new.topics["T"] = old.topics["T"] = 1
            address = old.address

            def route(_connection: Connection, command: Command) -> Command | None:
                if address == new.address and not has_topic:
                    return command.response(ResponseCode.TOPIC_NOT_EXIST)
                found = names.route("T")
                found.broker_datas[0].addresses[0] = address
                return command.response(ResponseCode.SUCCESS, body=encode_standard(found))

            def cluster(_connection: Connection, command: Command) -> Command | None:
                brokers = {BROKER: BrokerData(BROKER, "C", {0: address})}
                return command.response(ResponseCode.SUCCESS, body=encode_standard(ClusterInfo(brokers=brokers)))

            names.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = route
            names.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = cluster
            async with Producer("p", names.address) as producer:
                await producer.send(Message("T", b"first"))
                await running.aclose()
                address = new.address
                await producer.send(Message("T", b"x"))
            assert new.count(RequestCode.SEND_MESSAGE_V2) == 1

    run(scenario())


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


@pytest.mark.parametrize(
    ("owner", "name", "seconds"),
    [
        (Instance, "beat", 30.1),
        (Routes, "refresh_each", 30.1),
        (PushConsumer, "_rebalance", 20.1),
        (BrokerOffsets, "persist", 5.1),
        (OwnedQueues, "lock", 20.1),
        (ConcurrentDelivery, "_give_up_overdue", 900.1),
    ],
)
def test_an_error_nobody_thought_of_ends_no_loop(
    owner: type[Any], name: str, seconds: float, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def fail(*_: object, **__: object) -> None:
        raise LookupError("nobody thought of this")

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            consumer = PushConsumer("g", system.address)
            consumer.subscribe("T")
            consumer.set_listener(Collector(), orderly=owner is OwnedQueues)
            async with consumer:
                with monkeypatch.context() as patch:
                    patch.setattr(owner, name, fail)
                    for times in (1, 2):
                        await turned_loop().turn(seconds)
                        await until(lambda: caplog.text.count("event=round_failed") >= times)  # noqa: B023

    run(scenario(), TurnedLoop)
    assert "nobody thought of this" in caplog.text
    assert "event=task_failed" not in caplog.text


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


@pytest.mark.parametrize("client", [PushConsumer, LitePullConsumer, PullConsumer, PullSchedule])
@pytest.mark.parametrize(("length", "namespace"), [(121, ""), (119, "NS")])
def test_a_consumer_of_a_group_without_retry_topic_is_refused(
    client: type[Client], length: int, namespace: str
) -> None:
    with pytest.raises(MessageIllegal, match=r"g{119,121}' has 12\d characters, at most 120 are allowed, a namespace"):
        client("g" * length, "127.0.0.1:1", namespace=namespace)  # type: ignore[arg-type, call-arg]
    client("g" * (length - 2), "127.0.0.1:1", namespace=namespace)  # type: ignore[arg-type, call-arg]
    Producer("g" * length, "127.0.0.1:1", namespace=namespace)


def test_a_fork_is_told_apart_and_leaves_the_parent_s_connections_alone() -> None:
    async def in_the_child(producer: Producer, fresh: Producer, address: str) -> None:
        with pytest.raises(InvalidStateError, match="belongs to process"):
            await producer.send(Message("T", b"x"))
        await producer.shutdown()
        async with fresh:
            await fresh.send(Message("T", b"from the child"))

    async def scenario() -> None:
        async with fake_system() as system:
            fresh = Producer("fresh", system.address)
            async with Producer("g", system.address) as producer:
                await producer.send(Message("T", b"x"))
                child = os.fork()
                if child == 0:
                    code = 1
                    try:
                        asyncio.events._set_running_loop(None)
                        asyncio.run(in_the_child(producer, fresh, system.address))
                        code = 0
                    finally:
                        os._exit(code)
                ended = await asyncio.to_thread(os.waitpid, child, 0)
                assert os.waitstatus_to_exitcode(ended[1]) == 0
                gone = [c.header(UnregisterClientHeader).producer_group for c in system.asked if c.code == 35]
                assert gone == ["fresh"], "the child did not take the parent's producer away"
                await producer.send(Message("T", b"x"))

    run(scenario())


# ------------------------------------------------------------------------------------------------ around every request


class Recorder:
    """A hook that notes every request and adds a field to it."""

    def __init__(self) -> None:
        self.before_: list[int] = []
        self.after_: list[tuple[int, int]] = []

    def before(self, _address: str, request: Command) -> None:
        self.before_.append(request.code)
        request.ext = {**(request.ext or {}), "zone": "z1"}

    def after(self, _address: str, request: Command, response: Command) -> None:
        self.after_.append((request.code, response.code))


def test_a_hook_sees_every_request_and_what_it_adds_is_signed() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            seen = Recorder()
            producer = Producer("g", system.address, access_key="user", secret_key="secret")
            producer.add_rpc_hook(seen)
            async with producer:
                await producer.send(Message("T", b"x"))
                await producer.send_oneway(Message("T", b"y"))
                with pytest.raises(InvalidStateError, match="hooks"):
                    producer.add_rpc_hook(seen)
            await until(lambda: system.count(RequestCode.SEND_MESSAGE_V2) == 2)
            kinds = {RequestCode.GET_ROUTEINFO_BY_TOPIC, RequestCode.SEND_MESSAGE_V2, RequestCode.HEART_BEAT}
            assert kinds <= set(seen.before_)
            assert (RequestCode.SEND_MESSAGE_V2, ResponseCode.SUCCESS) in seen.after_
            assert len(seen.before_) == len(system.asked) == len(seen.after_) + 1
            for command in system.asked:
                assert (command.ext or {})["zone"] == "z1"
                if command.typed is None:
                    assert signed_fields(command, b"secret") is not None

    run(scenario())


@pytest.mark.parametrize("when", ["before", "after"])
def test_a_hook_that_raises_fails_the_request(when: str) -> None:
    class Refusing(Recorder):
        def _refuse(self, request: Command) -> None:
            if request.code == RequestCode.SEND_MESSAGE_V2:
                raise ValueError("not allowed")

        def before(self, address: str, request: Command) -> None:
            if when == "before":
                self._refuse(request)

        def after(self, address: str, request: Command, response: Command) -> None:
            self._refuse(request)

    async def scenario() -> None:
        async with fake_system() as system:
            producer = Producer("g", system.address)
            producer.add_rpc_hook(Refusing())
            async with producer:
                with pytest.raises(HookFailed, match=r"Refusing failed request 310 .*not allowed") as raised:
                    await producer.send(Message("T", b"x"))
                assert isinstance(raised.value.__cause__, ValueError)
            assert system.count(RequestCode.SEND_MESSAGE_V2) == (when == "after")

    run(scenario())


def test_clients_with_other_hooks_share_nothing() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("a", system.address) as plain:
            with_hooks = Producer("b", system.address)
            with_hooks.add_rpc_hook(Recorder())
            async with with_hooks:
                assert with_hooks.client_id != plain.client_id
            async with named(system, "c"):
                same = named(system, "d")
                same.add_rpc_hook(Recorder())
                with pytest.raises(ClientError, match="other hooks"):
                    await same.start()

    run(scenario())


def test_a_client_of_streams_marks_its_id_and_every_request() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            async with LitePullConsumer("g", system.address) as consumer:
                consumer.subscribe("T")
                assert consumer.client_id.endswith("@STREAM")
                await until(lambda: system.count(RequestCode.HEART_BEAT) > 0)
            assert {(command.ext or {}).get("ReqT") for command in system.asked if command.typed is None} == {"0"}
            async with (
                Producer("p", system.address) as plain,
                Producer("q", system.address, enable_stream_request_type=True) as stream,
            ):
                assert not plain.client_id.endswith("@STREAM")
                assert stream.client_id.endswith("@STREAM")

    run(scenario())


def test_the_vip_channel_takes_its_calls_and_no_others() -> None:
    seen: list[tuple[int, str]] = []

    class Where(Recorder):
        def before(self, address: str, request: Command) -> None:
            seen.append((request.code, address))

    async def scenario() -> None:
        async with fake_system() as system:
            producer = Producer("g", system.address, vip_channel=True, retry_times=0)
            producer.add_rpc_hook(Where())
            async with producer:
                with pytest.raises(ClientError, match=f"cannot connect to {vip_address(system.address)}"):
                    await producer.send(Message("T", b"x"))
                await until(lambda: any(code == RequestCode.HEART_BEAT for code, _ in seen))
            assert {code for code, _ in seen}.isdisjoint(VIP_CODES), "none of them left for the usual port"

    run(scenario())


def test_name_servers_can_be_changed_while_it_runs() -> None:
    async def scenario() -> None:
        async with fake_system() as old, fake_system() as new:
            unstarted = Producer("u", old.address)
            unstarted.update_namesrv_addr(new.address)
            async with unstarted:
                await unstarted.send(Message("T", b"x"))
            assert not old.asked
            async with Producer("g", old.address) as producer:
                await producer.send(Message("T", b"x"))
                producer.update_namesrv_addr([new.address])
                await producer.send(Message("Other", b"x"))
                assert "Other" in new.topics
                assert "Other" not in old.topics

    run(scenario())


# ---------------------------------------------------------------------------------------------------- creating topics


def test_a_topic_is_asked_for_up_to_five_times() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as producer:
            code = RequestCode.UPDATE_AND_CREATE_TOPIC
            system.answers[code] = refuse(ResponseCode.SYSTEM_ERROR)
            with pytest.raises(BrokerError):
                await producer.create_topic("New")
            assert system.count(code) == 5
            refusals = [4]

            def at_last(_connection: Connection, command: Command) -> Command:
                refusals[0] -= 1
                return command.response(ResponseCode.SYSTEM_ERROR if refusals[0] >= 0 else ResponseCode.SUCCESS)

            system.answers[code] = at_last
            await producer.create_topic("New", sys_flag=1)
            assert system.count(code) == 10
            assert system.asked[-1].header(CreateTopicHeader).topic_sys_flag == 1

    run(scenario())


def test_shutdown_ends_although_nobody_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            clients: list[Client] = [Producer("p", system.address, api_timeout_ms=200)]
            clients.append(push(system, api_timeout_ms=200))
            lite = LitePullConsumer("l", system.address, api_timeout_ms=200)
            lite.subscribe("T")
            clients.append(lite)
            for client in clients:
                await client.start()
            for code in RequestCode:
                system.answers[code] = silence()
            async with asyncio.timeout(20):
                for client in clients:
                    await client.shutdown()

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
            with pytest.raises(ClientError, match="set namesrv_addr"):
                await producer.send(Message("T", b"x"))

    run(scenario())


@pytest.mark.parametrize("address", ["nameserver", "127.0.0.1:port", "127.0.0.1:70000", "127.0.0.1:9876;second"])
def test_what_is_no_address_is_refused_at_once(address: str) -> None:
    with pytest.raises(ConfigurationError, match="is not host:port"):
        Producer("g", address)
    producer = Producer("g", "127.0.0.1:9876")
    with pytest.raises(ConfigurationError, match="is not host:port"):
        producer.update_namesrv_addr(address)


def test_a_failed_start_leaves_nothing_behind() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = PushConsumer("g", system.address)
            with pytest.raises(OrbitMQError, match="no listener"):
                await consumer.start()
            async with push(system, instance_name="n"):
                pass

    run(scenario())


def test_what_marks_a_request_of_a_stream_is_signed() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            settings = {"access_key": "user", "secret_key": "secret", "enable_stream_request_type": True}
            async with Producer("g", system.address, **settings) as producer:  # type: ignore[arg-type]
                await producer.send(Message("T", b"x"))
            (route, *_) = [c for c in system.asked if c.code == RequestCode.GET_ROUTEINFO_BY_TOPIC]
            assert (route.ext or {})["ReqT"] == "0"
            assert signed_fields(route, b"secret") is not None

    run(scenario())


def test_producers_beat_at_masters_and_consumers_at_slaves_too() -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as slave:
            system.topics["T"] = 1

            def with_slave(_connection: Connection, command: Command) -> Command | None:
                topic = command.header(GetRouteInfoHeader).topic
                if topic not in system.topics:
                    return None
                found = system.route(topic)
                found.broker_datas[0].addresses[1] = slave.address
                return command.response(ResponseCode.SUCCESS, body=encode_standard(found))

            system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = with_slave
            async with Producer("p", system.address) as producer:
                await producer.send(Message("T", b"x"))
                await until(lambda: system.count(RequestCode.HEART_BEAT) > 0)
                assert not slave.asked
                async with push(system):
                    await until(lambda: slave.count(RequestCode.HEART_BEAT) > 0)

    run(scenario())
