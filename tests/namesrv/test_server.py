"""A name server over TCP: brokers come, go and fall silent."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.errors import BrokerError, ConfigurationError
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.namesrv import server as server_module
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.routes import EXPIRED_AFTER_MS
from orbitmq.namesrv.server import NameServer
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.operations.registration import register_broker
from orbitmq.operations.routes import cluster_info, route, topics
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers_namesrv import GetKVConfigHeader, PutKVConfigHeader, RegisterBrokerHeader
from orbitmq.wire.registration import encode_registration
from orbitmq.wire.requests import RequestCode

DEADLINE_SECONDS = 5.0


@asynccontextmanager
async def serving(directory: Path, clock: ManualClock | None = None) -> AsyncIterator[NameServer]:
    options = NamesrvOptions(listen_port=0, kv_config_path=str(directory / "kv.json"))
    namesrv = NameServer(options, clock=clock or ManualClock())
    await namesrv.start()
    try:
        yield namesrv
    finally:
        await namesrv.stop()


@asynccontextmanager
async def talking() -> AsyncIterator[Remoting]:
    remoting = Remoting()
    try:
        yield remoting
    finally:
        await remoting.close()


async def register(remoting: Remoting, namesrv: NameServer, topic: str, name: str = "a", version: int = 1) -> None:
    header = RegisterBrokerHeader(name, f"10.0.0.{ord(name)}:10911", "c", "10.0.0.1:10912", 0)
    table = TopicTable(DataVersion(version, 1), {topic: TopicConfig(topic)})
    body = encode_registration(BrokerRegistration(topic_table=table))
    await register_broker(remoting, namesrv.address, header, body, timeout_ms=3000)


async def eventually(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(DEADLINE_SECONDS):
        while not condition():  # noqa: ASYNC110 - nobody signals what the server did
            await asyncio.sleep(0.001)


def test_route_of_a_registered_broker_over_tcp(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as namesrv, talking() as broker, talking() as client:
            assert await route(client, namesrv.address, "T") is None
            await register(broker, namesrv, "T")
            found = await route(client, namesrv.address, "T")
            assert found is not None
            assert found.broker_datas[0].addresses == {0: "10.0.0.97:10911"}
            assert await topics(client, namesrv.address) == ["T"]

    asyncio.run(run())


def test_broker_is_gone_at_once_when_its_connection_closes(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as namesrv, talking() as one, talking() as two:
            await register(one, namesrv, "T", "a")
            await register(two, namesrv, "U", "b")
            one.disconnect(namesrv.address)
            await eventually(lambda: namesrv.routes.topics() == ["U"])

    asyncio.run(run())


def test_silent_broker_is_dropped_after_120_seconds_and_disconnected(tmp_path: Path) -> None:
    async def run() -> None:
        clock = ManualClock()
        async with serving(tmp_path, clock) as namesrv, talking() as one, talking() as two:
            await register(one, namesrv, "T", "a")
            clock.advance(EXPIRED_AFTER_MS)
            await register(two, namesrv, "U", "b")
            namesrv.scan()
            assert namesrv.routes.topics() == ["T", "U"]
            clock.advance(1)
            namesrv.scan()
            assert namesrv.routes.topics() == ["U"]
            await eventually(lambda: one.connection(namesrv.address) is None)
            assert two.connection(namesrv.address) is not None

    asyncio.run(run())


def test_scan_runs_by_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server_module, "SCAN_INTERVAL_SECONDS", 0.01)

    async def run() -> None:
        clock = ManualClock()
        async with serving(tmp_path, clock) as namesrv, talking() as broker:
            await register(broker, namesrv, "T")
            clock.advance(EXPIRED_AFTER_MS + 1)
            await eventually(lambda: broker.connection(namesrv.address) is None)
            assert namesrv.routes.topics() == []
            await register(broker, namesrv, "T")
            clock.advance(EXPIRED_AFTER_MS + 1)
            await eventually(lambda: not namesrv.routes.topics())

    asyncio.run(run())


def test_two_name_servers_know_only_what_they_were_told(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "1") as first, serving(tmp_path / "2") as second, talking() as broker:
            await register(broker, first, "T", "a")
            await register(broker, second, "U", "b")
            assert list((await cluster_info(broker, first.address)).brokers) == ["a"]
            assert list((await cluster_info(broker, second.address)).brokers) == ["b"]
            await call(
                broker, first.address, RequestCode.PUT_KV_CONFIG, PutKVConfigHeader("N", "k", "v"), timeout_ms=3000
            )
            with pytest.raises(BrokerError) as refused:
                await call(
                    broker, second.address, RequestCode.GET_KV_CONFIG, GetKVConfigHeader("N", "k"), timeout_ms=3000
                )
            assert refused.value.code == ResponseCode.QUERY_NOT_FOUND

    asyncio.run(run())


def test_settings_outlive_the_process_and_routes_do_not(tmp_path: Path) -> None:
    async def run() -> None:
        async with talking() as broker:
            async with serving(tmp_path) as first:
                await register(broker, first, "T")
                header = PutKVConfigHeader("N", "k", "v")
                await call(broker, first.address, RequestCode.PUT_KV_CONFIG, header, timeout_ms=3000)
            async with serving(tmp_path) as second:
                header = GetKVConfigHeader("N", "k")
                answer = await call(broker, second.address, RequestCode.GET_KV_CONFIG, header, timeout_ms=3000)
                assert answer.ext == {"value": "v"}
                assert second.routes.topics() == []

    asyncio.run(run())


def test_taken_port_is_one_clear_error(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path) as namesrv:
            second = NameServer(NamesrvOptions(listen_port=namesrv.port, kv_config_path=str(tmp_path / "kv.json")))
            with pytest.raises(ConfigurationError, match=str(namesrv.port)):
                await second.start()

    asyncio.run(run())


def test_unwritable_settings_file_refuses_the_value(tmp_path: Path) -> None:
    async def run() -> None:
        async with serving(tmp_path / "file") as namesrv, talking() as client:
            (tmp_path / "file").write_text("a file where the directory should be")
            header = PutKVConfigHeader("N", "k", "v")
            with pytest.raises(BrokerError) as refused:
                await call(client, namesrv.address, RequestCode.PUT_KV_CONFIG, header, timeout_ms=3000)
            assert refused.value.code == ResponseCode.SYSTEM_ERROR

    asyncio.run(run())
