"""Clients at the front: streams that end, brokers that do not respond, settings that come in a row."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import grpc
import pytest

from orbitmq.errors import BrokerError, ConnectError
from orbitmq.message.topic_types import MessageType
from orbitmq.net.grpc import Call
from orbitmq.proxy import sessions, telemetry
from orbitmq.proxy.backend import TopicRoute
from orbitmq.proxy.sessions import Session, Sessions
from orbitmq.proxy.telemetry import Telemetry
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import BrokerData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import ClientType, Code
from tests.proxy.test_live_front import ACCOUNTS, GROUP, TOPIC, front, members, signed
from tests.support.five import Five, channel
from tests.support.loops import until

BROKERS = ("a:1", "b:1", "c:1")


class Cluster:
    """A backend of three brokers; `failures` says how one responds to everything."""

    delay_max_ms = 0
    has_accounts = False

    def __init__(self) -> None:
        self.failures: dict[str, Any] = {}
        self.told: list[str] = []
        self.lookups: list[asyncio.Future[None]] = []

    def known(self, _topic: str) -> TopicRoute:
        brokers = [BrokerData(one, "c", {0: one}) for one in BROKERS]
        return TopicRoute(TopicRouteData(brokers, queue_datas=[]), MessageType.NORMAL)

    async def route(self, topic: str) -> TopicRoute:
        return self.known(topic)

    async def group(self, _name: str) -> None:
        self.lookups.append(asyncio.get_running_loop().create_future())
        await self.lookups[-1]

    def may_send(self, _access_key: str | None, _topic: str) -> bool:
        return True

    def secret(self, _access_key: str) -> None:
        return None

    def remoting(self, _router: Any, _peer: Any, _access_key: Any) -> Any:
        return self

    async def call(self, address: str, command: Command, _timeout_ms: float) -> Command:
        self.told.append(address)
        failure = self.failures.get(address, 0)
        if isinstance(failure, Exception):
            raise failure
        return command.response(failure, "refused")

    async def close(self) -> None:
        pass


def producer(cluster: Cluster) -> Session:
    made = Sessions(cluster, ManualClock()).of("id", "JAVA", ("127.0.0.1", 1), None)
    made.settings = v2.Settings(
        client_type=ClientType.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name="t")])
    )
    return made


async def test_a_broker_that_is_away_keeps_a_client_from_no_other() -> None:
    cluster = Cluster()
    cluster.failures["a:1"] = ConnectError("away")
    await producer(cluster).heartbeat()
    assert cluster.told == list(BROKERS)
    cluster.failures = dict.fromkeys(BROKERS, ConnectError("away"))
    with pytest.raises(ConnectError):
        await producer(cluster).heartbeat()
    cluster.failures = {"c:1": int(ResponseCode.NO_PERMISSION)}
    with pytest.raises(BrokerError):
        await producer(cluster).heartbeat()


class Stream:
    """A call of Telemetry, as its handler sees it."""

    is_over = False

    def __init__(self) -> None:
        self.sent: list[Any] = []
        self.status = -1

    def send(self, data: bytes) -> None:
        self.sent.append(v2.TelemetryCommand.FromString(data))

    def end(self, code: int = 0, _text: str = "") -> None:
        self.is_over, self.status = True, code


def opened(cluster: Cluster) -> tuple[Any, Session, Telemetry]:
    clock = ManualClock()
    session = Sessions(cluster, clock).of("id", "JAVA", ("127.0.0.1", 1), None)
    made = Telemetry(cluster, clock, Any, lambda _call: session)  # type: ignore[arg-type]
    stream: Any = Stream()
    made.open(stream)
    return stream, session, made


def settings(topic: str) -> bytes:
    found = v2.Settings(client_type=ClientType.SIMPLE_CONSUMER)
    found.subscription.group.name = "group"
    found.subscription.subscriptions.add().topic.name = topic
    return bytes(v2.TelemetryCommand(settings=found).SerializeToString())


async def test_the_newest_settings_hold() -> None:
    cluster = Cluster()
    stream, session, _ = opened(cluster)
    for topic in ("older", "newer"):
        stream.on_message(settings(topic))
    while len(stream.sent) < 2:
        await asyncio.sleep(0)
        for lookup in reversed(cluster.lookups):
            if not lookup.done():
                lookup.set_result(None)
                break
    assert session.topics() == ["newer"]
    assert [one.settings.subscription.subscriptions[0].topic.name for one in stream.sent] == ["older", "newer"]


async def test_settings_do_not_pile_up() -> None:
    stream, _, made = opened(Cluster())
    for _ in range(telemetry.SETTINGS_MAX + 2):
        stream.on_message(settings("t"))
        await asyncio.sleep(0)
    assert stream.status == telemetry.RESOURCE_EXHAUSTED
    assert len(made._tasks) == 1
    await made.stop()


async def test_only_the_client_that_was_asked_responds() -> None:
    cluster = Cluster()
    stream, session, made = opened(cluster)
    session.telemetry = stream
    asked = asyncio.create_task(made._ask(session, "7", v2.TelemetryCommand()))
    await asyncio.sleep(0)
    answer = v2.TelemetryCommand(verify_message_result=v2.VerifyMessageResult(nonce="7")).SerializeToString()
    other: Any = Stream()
    made.open(other)
    other.on_message(answer)
    await asyncio.sleep(0)
    assert not asked.done()
    stream.on_message(answer)
    assert (await asked).verify_message_result.nonce == "7"


async def test_a_stream_ends_although_its_account_is_gone(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    pairs: Any = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with front(tmp_path / "store", **pairs) as (broker, made):
        client = Five(made, **signed("sender-account", "sender-secret"))
        await client.settle(v2.Settings(client_type=ClientType.PRODUCER, publishing=v2.Publishing()))
        assert broker.front is not None
        (session,) = broker.front.sessions
        assert isinstance(session.telemetry, Call)
        broker.front._backend.secret = lambda _name: None  # type: ignore[method-assign]
        client.stream.cancel()
        await until(lambda: session.telemetry is None, "the stream to be gone")


async def test_a_stream_without_settings_ends_in_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with front(tmp_path) as (_, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        monkeypatch.setattr(telemetry, "SETTINGS_SECONDS", 0.2)
        silent = Five(made).open()
        assert (await asyncio.wait_for(silent.code(), 10)).name == "DEADLINE_EXCEEDED"
        assert (await client.consume(GROUP, TOPIC)).subscription.group.name == GROUP, "the stream with settings stays"


async def test_a_client_that_is_dead_is_forgotten_although_its_stream_is_open(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        assert broker.front is not None
        clock.advance(sessions.DEAD_MS + 1)
        await broker.front._forget_silent()
        assert (len(broker.front.sessions), members(broker)) == (0, 0)
        assert (await client.stream.code()).name == "UNAVAILABLE", "so that one that lives comes back"


async def test_a_client_that_comes_back_meanwhile_is_kept(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        assert broker.front is not None
        clock.advance(sessions.DEAD_MS + 1)
        (silent,) = broker.front.sessions.silent()
        answer = await client.call("Heartbeat", v2.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER))
        assert answer.status.code == Code.OK
        await broker.front._forget_if_silent(silent)
        assert len(broker.front.sessions) == 1


async def test_a_stopped_front_takes_no_connection_from_the_remoting_port(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, _):
        assert broker.front is not None
        await broker.front.stop()
        async with channel(broker.port) as made:
            with pytest.raises(grpc.aio.AioRpcError):
                await Five(made).call("QueryRoute", v2.QueryRouteRequest(), timeout=2)
        assert not broker.front.server.connections


async def test_a_killed_broker_does_not_wait_for_calls(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        waiting = asyncio.create_task(client.receive(GROUP, TOPIC, poll_s=20))
        await until(lambda: len(broker._popping.waiting) == 1, "it to wait")
        began = asyncio.get_running_loop().time()
        assert broker.front is not None
        await broker.front.abandon()
        assert asyncio.get_running_loop().time() - began < 10, "the call may wait for 20 s"
        await asyncio.gather(waiting, return_exceptions=True)


async def test_a_client_is_told_when_the_broker_takes_no_more_connections(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        broker._server._connections_max = 0
        answer = await Five(made).send(TOPIC, b"x")
        assert "takes no more connections" in answer.status.message


async def test_a_broker_that_has_stepped_down_sends_its_clients_away(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        assert broker.front is not None
        await broker._step_down("it has a later master")
        assert (await client.stream.code()).name == "UNAVAILABLE"
        assert not broker.front.server.connections
        with pytest.raises(grpc.aio.AioRpcError):
            await Five(made).call("QueryRoute", v2.QueryRouteRequest(), timeout=2)


async def test_names_without_settings_make_room_for_clients(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sessions, "SESSIONS_MAX", 3)
    async with front(tmp_path) as (broker, made):
        assert broker.front is not None
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        for _ in range(20):
            assert (await Five(made).send(TOPIC, b"x")).status.code == Code.OK
        assert broker.front.sessions.get(client.client_id) is not None
        assert len(broker.front.sessions) == 3
        assert len(broker.front.sessions._new) <= 6
        await until(lambda: len(broker._server.connections) == 3, "the connections of the others to close")
        for _ in range(2):
            await Five(made).consume(GROUP, TOPIC)
        assert (await Five(made).send(TOPIC, b"x")).status.code == Code.TOO_MANY_REQUESTS
