"""Requests captured on their way to Java's name server, answered by ours: same code, fields, remark and body.

The captures are thinned and share one long-lived server, so each test first brings the name server into the state
that the captured answer speaks of.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Iterable, Iterator, Mapping
from inspect import isawaitable
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest
from msgspec import structs

from orbitmq.errors import OrbitMQError
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.message.model import MASTER_ID
from orbitmq.message.topics import ORDER_NAMESPACE
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.routes import BrokerIdentity
from orbitmq.namesrv.server import NameServer
from orbitmq.net.routing import Answer
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.bodies import (
    BrokerData,
    BrokerRegistration,
    ClusterInfo,
    KVTable,
    QueueData,
    TopicList,
    TopicRouteData,
    TopicTable,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.objects import decode
from orbitmq.wire.settings import decode_settings
from tests.support.frames import Frame, all_frames

JAVA_4 = 407  # 5.3.3's name server answers the same with a few members more
CONNECTION = cast("Any", SimpleNamespace(address="127.0.0.1:5555"))
Pair = tuple[Frame, Frame]


@pytest.fixture
def namesrv(tmp_path: Path) -> NameServer:
    return new_namesrv(tmp_path)


def new_namesrv(directory: Path) -> NameServer:
    options = NamesrvOptions(
        kv_config_path=str(directory / "kv.json"),
        config_store_path=str(directory / "ns.conf"),
        order_message_enable=True,
    )
    return NameServer(options, clock=ManualClock())


def captured() -> Iterator[Pair]:
    """Requests to a name server of 4.9.7 with their answers."""
    by_id = {(frame.file, frame.row["id"]): frame for frame in all_frames()}
    for frame in all_frames():
        if frame.row["kind"] != "request" or frame.row["peer"] != "namesrv" or frame.row["pair"] is None:
            continue
        answer = by_id[frame.file, frame.row["pair"]]
        if answer.row["version"] == JAVA_4:
            yield frame, answer


def pairs(*names: str) -> list[Pair]:
    found = [pair for pair in captured() if pair[0].name in names and not is_empty(pair[0])]
    assert found
    return found


def is_empty(request: Frame) -> bool:
    """A request made by hand without any field; such requests carry no version."""
    return bool(request.row["version"] == 0)


def ask(namesrv: NameServer, frame: Frame) -> Command:
    """The answer to a captured request, read back from its own frame."""
    (command,) = FrameDecoder().feed(frame.data)
    handler = namesrv.router.handlers.get(command.code, namesrv.router.unsupported)
    try:
        answer = handler(CONNECTION, command)
        if isawaitable(answer):  # of a change, which is written beside the event loop
            answer = asyncio.run(awaited(answer))
    except OrbitMQError as error:
        answer = namesrv.router.failed(command, error)
    assert isinstance(answer, Command)
    return read(encode_frame(answer))


async def awaited(answer: Awaitable[Answer]) -> Answer:
    return await answer


def read(data: bytes) -> Command:
    (command,) = FrameDecoder(typed=False).feed(data)
    return command


def settle(namesrv: NameServer, brokers: Iterable[BrokerData], topics: Mapping[str, Iterable[QueueData]]) -> None:
    """Register these brokers, each with its share of the topics."""
    for broker in brokers:
        configs = {
            topic: TopicConfig(topic, data.read_queues, data.write_queues, data.perm, sys_flag=data.topic_sys_flag)
            for topic, queues in topics.items()
            for data in queues
            if data.broker_name == broker.broker_name
        }
        registration = BrokerRegistration(topic_table=TopicTable(DataVersion(1, 1), configs))
        # Queues are told by masters only; where the captured route had lost its master, ours comes and goes.
        for broker_id in {MASTER_ID, *broker.addresses}:
            identity = BrokerIdentity(
                broker.cluster, broker.broker_name, broker_id, broker.addresses.get(broker_id, "gone")
            )
            namesrv.routes.register(identity, registration, ha_address="", owner=broker_id, now_ms=0)
        if MASTER_ID not in broker.addresses:
            namesrv.routes.unregister(BrokerIdentity(broker.cluster, broker.broker_name, MASTER_ID, "gone"))


def test_routes(tmp_path: Path) -> None:
    for request, answer in pairs("GET_ROUTEINFO_BY_TOPIC"):
        namesrv = new_namesrv(tmp_path)
        if answer.body:
            route = decode(TopicRouteData, answer.body)
            settle(namesrv, route.broker_datas, {request.row["ext"]["topic"]: route.queue_datas})
        ours, javas = ask(namesrv, request), read(answer.data)
        if not request.row["ext"]["topic"]:  # in a binary header Java reads an empty topic as null, and says so
            ours.remark = javas.remark
        assert ours == javas, request


def test_order_settings_are_part_of_a_route_only_when_enabled(namesrv: NameServer) -> None:
    request, _ = pairs("GET_ROUTEINFO_BY_TOPIC")[0]
    data = QueueData("broker-a", 6, 8, 8)
    settle(namesrv, [BrokerData("broker-a", "c", {0: "h:1"})], {request.row["ext"]["topic"]: [data]})
    assert b"orderTopicConf" not in ask(namesrv, request).body
    namesrv.kv.put("ORDER_TOPIC_CONFIG", request.row["ext"]["topic"], "broker-a:8")
    assert b'"orderTopicConf":"broker-a:8"' in ask(namesrv, request).body


def test_cluster_info(tmp_path: Path) -> None:
    for request, answer in pairs("GET_BROKER_CLUSTER_INFO"):
        namesrv = new_namesrv(tmp_path)
        settle(namesrv, decode(ClusterInfo, answer.body).brokers.values(), {})
        assert ask(namesrv, request) == read(answer.data), request


LISTS = {  # the system flag that puts a topic into the list
    "GET_ALL_TOPIC_LIST_FROM_NAMESERVER": 0,
    "GET_TOPICS_BY_CLUSTER": 0,
    "GET_UNIT_TOPIC_LIST": 1,
    "GET_HAS_UNIT_SUB_TOPIC_LIST": 2,
    "GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST": 2,
}


@pytest.mark.parametrize("name", LISTS)
def test_topic_lists(name: str, tmp_path: Path) -> None:
    broker = BrokerData("broker-a", "DefaultCluster", {0: "127.0.0.1:10771"})
    for request, answer in pairs(name):
        namesrv = new_namesrv(tmp_path)
        topics = decode(TopicList, answer.body).topic_list
        settle(namesrv, [broker], {topic: [QueueData("broker-a", 6, 1, 1, LISTS[name])] for topic in topics})
        assert ask(namesrv, request) == read(answer.data), request


def test_system_topics(tmp_path: Path) -> None:
    for request, answer in pairs("GET_SYSTEM_TOPIC_LIST_FROM_NS"):
        namesrv = new_namesrv(tmp_path)
        settle(namesrv, [BrokerData("broker-a", "DefaultCluster", {0: "127.0.0.1:10771"})], {})
        ours, javas = ask(namesrv, request), read(answer.data)
        assert replace_body(ours) == replace_body(javas), request
        ours_listed, java_listed = decode(TopicList, ours.body), decode(TopicList, javas.body)
        assert sorted(ours_listed.topic_list) == sorted(java_listed.topic_list)
        assert ours_listed.broker_addr == java_listed.broker_addr


def replace_body(command: Command) -> Command:
    return structs.replace(command, body=b"")


def test_registrations(tmp_path: Path) -> None:
    for request, answer in pairs("REGISTER_BROKER"):
        namesrv = new_namesrv(tmp_path)
        if answer.body:
            for key, value in {"": "", **decode(KVTable, answer.body).table}.items():
                namesrv.kv.put(ORDER_NAMESPACE, key, value)
            namesrv.kv.delete(ORDER_NAMESPACE, "")
        expected = read(answer.data)
        if "masterAddr" in (expected.ext or {}):
            header = request.row["ext"]
            master = BrokerIdentity(header["clusterName"], header["brokerName"], MASTER_ID, expected.ext["masterAddr"])
            ha_address = expected.ext["haServerAddr"]
            namesrv.routes.register(master, BrokerRegistration(), ha_address=ha_address, owner=1, now_ms=0)
        assert ask(namesrv, request) == expected, request
        (tmp_path / "kv.json").unlink(missing_ok=True)


def test_oneway_registrations_are_taken(tmp_path: Path) -> None:
    taken = [frame for frame in all_frames() if frame.name == "REGISTER_BROKER" and frame.row["kind"] == "oneway"]
    assert taken
    for frame in taken:
        namesrv = new_namesrv(tmp_path)
        (command,) = FrameDecoder().feed(frame.data)
        assert command.is_oneway  # the connection does not write an answer to it
        ask(namesrv, frame)
        header = frame.row["ext"]
        broker = namesrv.routes.cluster_info().brokers[header["brokerName"]]
        assert broker.addresses[int(header["brokerId"])] == header["brokerAddr"], frame


def test_data_versions(namesrv: NameServer) -> None:
    for request, answer in pairs("QUERY_DATA_VERSION"):
        header = request.row["ext"]
        identity = BrokerIdentity(header["clusterName"], header["brokerName"], 0, header["brokerAddr"])
        known = BrokerRegistration(topic_table=TopicTable(decode(DataVersion, answer.body)))
        namesrv.routes.register(identity, known, ha_address="", owner=1, now_ms=0)
        assert ask(namesrv, request) == read(answer.data), request


def test_permissions(namesrv: NameServer) -> None:
    for request, answer in pairs("WIPE_WRITE_PERM_OF_BROKER", "ADD_WRITE_PERM_OF_BROKER"):
        expected = read(answer.data)
        assert expected.ext is not None
        (count,) = map(int, expected.ext.values())
        broker = request.row["ext"]["brokerName"]
        topics = {f"T{number}": [QueueData(broker, 6, 1, 1)] for number in range(count)}
        settle(namesrv, [BrokerData(broker, "c", {0: "h:1"})], topics)
        assert ask(namesrv, request) == expected, request
        namesrv.routes.unregister(BrokerIdentity("c", broker, MASTER_ID, "h:1"))


@pytest.mark.parametrize("name", ["UNREGISTER_BROKER", "DELETE_TOPIC_IN_NAMESRV"])
def test_removals(name: str, namesrv: NameServer) -> None:
    for request, answer in pairs(name):
        assert ask(namesrv, request) == read(answer.data), request


def test_key_value_settings(tmp_path: Path) -> None:
    names = ("PUT_KV_CONFIG", "GET_KV_CONFIG", "DELETE_KV_CONFIG", "GET_KVLIST_BY_NAMESPACE")
    for request, answer in pairs(*names):
        (tmp_path / "kv.json").unlink(missing_ok=True)
        namesrv = new_namesrv(tmp_path)
        header, expected = request.row["ext"], read(answer.data)
        if expected.ext:
            namesrv.kv.put(header["namespace"], header["key"], expected.ext["value"])
        if expected.body:
            namesrv.kv.put(header["namespace"], "filler", "filler")
            for key, value in decode(KVTable, expected.body).table.items():
                namesrv.kv.put(header["namespace"], key, value)
            namesrv.kv.delete(header["namespace"], "filler")
        assert ask(namesrv, request) == expected, request


def test_changed_settings_are_acknowledged(namesrv: NameServer) -> None:
    for request, answer in pairs("UPDATE_NAMESRV_CONFIG"):
        assert ask(namesrv, request) == read(answer.data), request


def test_settings_have_javas_keys(namesrv: NameServer) -> None:
    for request, answer in pairs("GET_NAMESRV_CONFIG"):
        ours, javas = ask(namesrv, request), read(answer.data)
        assert replace_body(ours) == replace_body(javas), request
        assert decode_settings(ours.body).keys() - decode_settings(javas.body).keys() == {"bindAddress"}


# Java answers these requests without their fields as if a topic, key or broker named "null" had been asked for, or with
# the trace of its own failure. Here such a request is refused with a remark that names the field.
REFUSED = {
    "ADD_WRITE_PERM_OF_BROKER",
    "DELETE_KV_CONFIG",
    "GET_KVLIST_BY_NAMESPACE",
    "GET_KV_CONFIG",
    "GET_TOPICS_BY_CLUSTER",
    "PUT_KV_CONFIG",
    "QUERY_DATA_VERSION",
    "REGISTER_BROKER",
    "WIPE_WRITE_PERM_OF_BROKER",
}


def test_requests_without_fields(namesrv: NameServer) -> None:
    empty = [pair for pair in captured() if is_empty(pair[0])]
    assert {request.name for request, _ in empty} >= REFUSED
    for request, answer in empty:
        ours = ask(namesrv, request)
        if request.name in REFUSED:
            assert ours.code == ResponseCode.SYSTEM_ERROR, request
            assert "missing required field" in str(ours.remark)
        else:
            assert ours.code == answer.row["code"], request


def test_unknown_codes_are_answered_where_java_stays_silent(namesrv: NameServer) -> None:
    to_namesrv = [frame for frame in all_frames() if frame.row["peer"] == "namesrv" and not frame.is_response]
    unknown = [frame for frame in to_namesrv if is_empty(frame) and frame.row["pair"] is None]
    assert len(unknown) > 50
    for frame in unknown:
        answer = ask(namesrv, frame)
        assert answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED, frame
        assert answer.remark == f" request type {frame.row['code']} not supported"
