"""A broker starts whole or not at all, keeps what it was told over a restart, is in the routes while it runs."""

from __future__ import annotations

import socket
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError, StoreError, StoreLocked
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.command import request
from orbitmq.wire.headers import UpdateConsumerOffsetHeader
from orbitmq.wire.headers_admin import DeleteTopicHeader
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, client_of, made_broker, running
from tests.support.loops import until

CONFIG_FILES = ["topics.json", "subscriptionGroup.json", "consumerOffset.json", "delayOffset.json"]


def names_in(directory: Path) -> list[str]:
    return sorted(entry.name for entry in directory.iterdir())


# ------------------------------------------------------------------------------------------------------------- restart


async def test_a_restart_keeps_messages_topics_groups_and_offsets(tmp_path: Path) -> None:
    first = made_broker(tmp_path)
    async with running(first), client_of(first) as client:
        for number in range(5):
            await client.send("Orders", b"%d" % number, {"TAGS": "T"})
        first.groups.put(SubscriptionGroup("g", retry_max=3))
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("g", "Orders", 0, 2))
    second = made_broker(tmp_path)
    async with running(second), client_of(second) as client:
        assert second.topics.table == first.topics.table
        assert second.topics.version == first.topics.version
        assert second.groups.table == first.groups.table
        assert second.groups.version == first.groups.version
        assert second.offsets.query("g", "Orders", 0) == 2
        found = await client.read("Orders", subscription="T")
        assert [message.body for message in found] == [b"0", b"1", b"2", b"3", b"4"]
        await client.send("Orders", b"5")
        assert (await client.read("Orders", 0, 5))[0].queue_offset == 5


@pytest.mark.parametrize(("killed", "expected"), [(True, 5), (False, 9)])
async def test_progress_beyond_the_log_is_moved_back_after_a_crash(tmp_path: Path, killed: bool, expected: int) -> None:
    """Or the consumer would miss the next messages. After a clean stop an offset is what somebody has set it to."""
    first = made_broker(tmp_path)
    async with running(first), client_of(first) as client:
        for _ in range(5):
            await client.send("Orders")
        await client.ask(RequestCode.UPDATE_CONSUMER_OFFSET, UpdateConsumerOffsetHeader("g", "Orders", 0, 9))
    if killed:
        (tmp_path / "abort").touch()
    second = made_broker(tmp_path)
    async with running(second):
        assert second.offsets.query("g", "Orders", 0) == expected


async def test_a_clean_stop_leaves_what_rocketmq_leaves(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders")
        assert (tmp_path / "abort").exists()
    assert not (tmp_path / "abort").exists()
    assert {path.name for path in (tmp_path / "config").iterdir()} >= set(CONFIG_FILES)
    assert not list((tmp_path / "config").glob("*.tmp"))


async def test_an_option_takes_effect_at_the_next_start_though_files_were_written(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)):
        pass
    broker = made_broker(tmp_path, autoCreateTopicEnable="false")
    async with running(broker), client_of(broker) as client:
        assert (await client.send("Orders")).code == 17


# ------------------------------------------------------------------------------------------------------- failed starts


async def test_a_directory_has_one_broker(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        with pytest.raises(StoreLocked):
            await made_broker(tmp_path).start()
        assert (await client.send("Orders")).code == 0
    async with running(made_broker(tmp_path)):
        pass


async def test_a_taken_port_leaves_the_directory_alone(tmp_path: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        with pytest.raises(ConfigurationError, match=str(port)):
            await made_broker(tmp_path, listenPort=str(port)).start()
    assert names_in(tmp_path) == []


@pytest.mark.parametrize("name", CONFIG_FILES)
async def test_a_damaged_table_and_its_backup_are_kept_as_they_are(tmp_path: Path, name: str) -> None:
    """An operator may still repair them."""
    async with running(made_broker(tmp_path)):
        pass
    path = tmp_path / "config" / name
    backup = path.with_name(name + ".bak")
    path.write_bytes(b"{")
    backup.write_bytes(b"}")
    for _ in range(2):
        async with running(made_broker(tmp_path)):
            pass
    kept = path.with_name(f"{name}.damaged-1"), path.with_name(f"{name}.bak.damaged-1")
    assert [place.read_bytes() for place in kept] == [b"{", b"}"]


async def test_a_directory_that_cannot_be_used_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "store").write_text("a file")
    with pytest.raises(StoreError, match="store"):
        await made_broker(tmp_path / "store").start()


async def test_a_full_disk_at_the_end_does_not_keep_the_store_open(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    await broker.start()
    async with client_of(broker) as client:
        await client.send("Orders")
    for name in CONFIG_FILES:
        (tmp_path / "config" / (name + ".tmp")).mkdir(parents=True)
    await broker.stop()
    assert not (tmp_path / "abort").exists()
    for name in CONFIG_FILES:
        (tmp_path / "config" / (name + ".tmp")).rmdir()
    async with running(made_broker(tmp_path)):
        pass


@pytest.mark.parametrize(("name", "host"), [("localhost", "127.0.0.1"), ("127.0.0.1", "127.0.0.1"), ("::1", "[::1]")])
async def test_a_broker_may_be_told_by_name(tmp_path: Path, name: str, host: str) -> None:
    """Clients are given the name; the host field of messages, which holds an address, what it stands for."""
    broker = made_broker(tmp_path, brokerIP1=name)
    async with running(broker), client_of(broker) as client:
        assert broker.address == f"{host if ':' in name else name}:{broker.port}", "IPv6 stands in brackets"
        await client.send("Orders")
        (message,) = await client.read("Orders")
        assert message.store_host == f"{host}:{broker.port}"


async def test_a_name_that_stands_for_nothing_is_refused_with_its_option(tmp_path: Path) -> None:
    name = "x" * 64  # longer than a label of a name may be: refused without asking anyone
    with pytest.raises(ConfigurationError, match=f"brokerIP1.*{name}"):
        await made_broker(tmp_path, brokerIP1=name, bindAddress="127.0.0.1").start()
    assert names_in(tmp_path) == []


# -------------------------------------------------------------------------------------------------------------- routes


async def route(client: Client, namesrv: str, topic: str) -> TopicRouteData | None:
    command = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic))
    answer = await client.remoting.call(namesrv, command, 10_000)
    assert answer.code in (0, 17)
    return decode(TopicRouteData, answer.body) if answer.code == 0 else None


async def test_routes_follow_the_broker(tmp_path: Path) -> None:
    """Two independent name servers know it when `start` returns, hear of new topics, and forget it at its stop."""
    servers = [NameServer(namesrv_options(tmp_path, number)) for number in range(2)]
    for server in servers:
        await server.start()
    broker = made_broker(tmp_path / "store", namesrvAddr=";".join(server.address for server in servers))
    await broker.start()
    async with client_of(broker) as client:
        for server in servers:
            found = await route(client, server.address, "TBW102")
            assert found is not None
            assert found.broker_datas[0].addresses == {0: broker.address}
            assert (found.queue_datas[0].write_queues, found.queue_datas[0].perm) == (8, 7)
            assert await route(client, server.address, "Orders") is None
        await client.send("Orders", default_topic_queue_nums=3)
        for server in servers:
            await until(lambda server=server: "Orders" in server.routes.topics())
            found = await route(client, server.address, "Orders")
            assert found is not None
            assert found.queue_datas[0].read_queues == 3
        broker.topics.put(TopicConfig("Orders", 5, 5))
        await until(lambda: all(queues(server, "Orders") == 5 for server in servers))
        await client.ask(RequestCode.DELETE_TOPIC_IN_BROKER, DeleteTopicHeader("Orders"))
        await broker.stop()
        for server in servers:
            assert await route(client, server.address, "TBW102") is None
    for server in servers:
        await server.stop()


def queues(server: NameServer, topic: str) -> int:
    found = server.routes.route(topic)
    return found.queue_datas[0].read_queues if found else 0


def namesrv_options(directory: Path, number: int) -> NamesrvOptions:
    return NamesrvOptions.parse(
        {
            "listenPort": "0",
            "kvConfigPath": str(directory / f"kv{number}.json"),
            "configStorePath": str(directory / f"namesrv{number}.properties"),
        }
    )


@pytest.mark.parametrize(("permission", "registered"), [("6", 7), ("4", 4), ("2", 2)])
async def test_a_broker_with_narrower_permission_says_so_in_every_route(
    tmp_path: Path, permission: str, registered: int
) -> None:
    server = NameServer(namesrv_options(tmp_path, 0))
    await server.start()
    broker = made_broker(tmp_path / "store", namesrvAddr=server.address, brokerPermission=permission)
    async with running(broker), client_of(broker) as client:
        found = await route(client, server.address, "TBW102")
        assert found is not None
        assert found.queue_datas[0].perm == registered
    await server.stop()


@pytest.mark.parametrize("name", ["::1", "[::1]"])
async def test_a_broker_at_an_ipv6_address_is_found_there(tmp_path: Path, name: str) -> None:
    broker = made_broker(tmp_path, brokerIP1=name)
    async with running(broker), client_of(broker) as client:
        assert broker.address == f"[::1]:{broker.port}"
        assert (broker._identity().broker_addr, broker._identity().ha_server_addr) == (
            broker.address, f"[::1]:{broker.port + 1}",
        )  # fmt: skip
        await client.send("T", b"over IPv6")
        (message,) = await client.read("T")
        assert message.store_host == broker.address
