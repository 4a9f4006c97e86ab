"""Rules of the name server's answers that no captured frame shows."""

from __future__ import annotations

import asyncio
import inspect
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from orbitmq.errors import OrbitMQError
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.namesrv import handlers
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.options import read_properties
from orbitmq.wire.bodies import BrokerRegistration, TopicTable
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader, QueryDataVersionHeader, RegisterBrokerHeader
from orbitmq.wire.objects import encode
from orbitmq.wire.registration import encode_registration, registration_crc
from orbitmq.wire.requests import RequestCode

CONNECTION = cast("Any", SimpleNamespace(address="127.0.0.1:5555"))
TABLE = TopicTable(DataVersion(3, 1), {"T": TopicConfig("T", 4, 8)})


@pytest.fixture
def namesrv(tmp_path: Path) -> NameServer:
    options = NamesrvOptions(kv_config_path=str(tmp_path / "kv.json"), config_store_path=str(tmp_path / "ns.conf"))
    return NameServer(options, clock=ManualClock())


def ask(
    namesrv: NameServer, code: RequestCode, header: Header | None = None, body: bytes = b"", *, version: int = 407
) -> Command:
    command = request(code, header, body)
    command.version = version
    try:
        answer = namesrv.router.handlers[code](CONNECTION, command)
        if inspect.iscoroutine(answer):  # what is written is written beside the event loop
            answer = asyncio.run(answer)
    except OrbitMQError as error:
        answer = namesrv.router.failed(command, error)
    assert isinstance(answer, Command)
    assert answer.opaque == command.opaque
    return answer


def identity(**more: Any) -> RegisterBrokerHeader:
    return RegisterBrokerHeader("a", "10.0.0.1:10911", "c", "10.0.0.1:10912", 0, **more)


@pytest.mark.parametrize("compressed", [False, True])
def test_registration_with_its_check_sum_is_taken(namesrv: NameServer, compressed: bool) -> None:
    body = encode_registration(BrokerRegistration(topic_table=TABLE), compressed=compressed)
    header = identity(compressed=compressed, body_crc32=registration_crc(body))
    assert ask(namesrv, RequestCode.REGISTER_BROKER, header, body).code == ResponseCode.SUCCESS
    assert namesrv.routes.topics() == ["T"]


@pytest.mark.parametrize("compressed", [False, True])
def test_topics_of_a_known_version_are_not_read_again(
    namesrv: NameServer, compressed: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    body = encode_registration(BrokerRegistration(["h:1"], TABLE), compressed=compressed)
    ask(namesrv, RequestCode.REGISTER_BROKER, identity(compressed=compressed), body)
    monkeypatch.setattr(handlers, "decode_registration", lambda *_, **__: pytest.fail("it was read"))
    for filters in (["h:2"], []):
        again = encode_registration(BrokerRegistration(filters, TABLE), compressed=compressed)
        assert ask(namesrv, RequestCode.REGISTER_BROKER, identity(compressed=compressed), again).code == 0
        assert namesrv.routes.topics() == ["T"]
        route = namesrv.routes.route("T")
        assert route is not None
        assert route.filter_server_table == ({"10.0.0.1:10911": filters} if filters else {})


def test_topics_of_a_slave_that_becomes_master_are_read(namesrv: NameServer) -> None:
    body = encode_registration(BrokerRegistration(topic_table=TABLE))
    slave = RegisterBrokerHeader("a", "10.0.0.1:10911", "c", "10.0.0.1:10912", 1)
    ask(namesrv, RequestCode.REGISTER_BROKER, slave, body)
    assert namesrv.routes.topics() == []
    ask(namesrv, RequestCode.REGISTER_BROKER, identity(), body)
    assert namesrv.routes.topics() == ["T"]


@pytest.mark.parametrize(
    ("header", "body"),
    [(identity(body_crc32=1), b"{}"), (identity(), b"{half"), (identity(compressed=True), b"no zlib")],
)
def test_damaged_registration_changes_nothing(namesrv: NameServer, header: Header, body: bytes) -> None:
    assert ask(namesrv, RequestCode.REGISTER_BROKER, header, body).code == ResponseCode.SYSTEM_ERROR
    assert namesrv.routes.cluster_info().brokers == {}


def test_brokers_before_version_37_send_the_topics_alone(namesrv: NameServer) -> None:
    ask(namesrv, RequestCode.REGISTER_BROKER, identity(), encode(TABLE), version=36)
    assert namesrv.routes.topics() == ["T"]


@pytest.mark.parametrize(
    ("version", "asked", "standard"),
    [(400, None, False), (401, None, True), (0, True, True), (0, False, False), (479, None, True)],
)
def test_map_keys_of_a_route_are_quoted_for_those_who_need_it(
    namesrv: NameServer, version: int, asked: bool | None, standard: bool
) -> None:
    ask(namesrv, RequestCode.REGISTER_BROKER, identity(), encode(BrokerRegistration(topic_table=TABLE)))
    header = GetRouteInfoHeader("T", asked)
    answer = ask(namesrv, RequestCode.GET_ROUTEINFO_BY_TOPIC, header, version=version)
    assert (b'"brokerAddrs":{"0":' in answer.body) is standard
    assert (b'"brokerAddrs":{0:' in answer.body) is not standard


def test_changed_version_is_told_but_does_not_renew(namesrv: NameServer) -> None:
    ask(namesrv, RequestCode.REGISTER_BROKER, identity(), encode(BrokerRegistration(topic_table=TABLE)))
    header = QueryDataVersionHeader("a", "10.0.0.1:10911", "c", 0)
    same = ask(namesrv, RequestCode.QUERY_DATA_VERSION, header, encode(TABLE.data_version))
    assert (same.ext, same.body) == ({"changed": "false"}, encode(TABLE.data_version))
    other = ask(namesrv, RequestCode.QUERY_DATA_VERSION, header, encode(DataVersion(4, 1)))
    assert (other.ext, other.body) == ({"changed": "true"}, encode(TABLE.data_version))


def test_version_of_an_unknown_broker_has_changed_and_no_body(namesrv: NameServer) -> None:
    header = QueryDataVersionHeader("a", "10.0.0.1:10911", "c", 0)
    answer = ask(namesrv, RequestCode.QUERY_DATA_VERSION, header, encode(TABLE.data_version))
    assert (answer.code, answer.ext, answer.body) == (0, {"changed": "true"}, b"")


def test_allowed_setting_is_changed_and_kept(namesrv: NameServer, tmp_path: Path) -> None:
    answer = ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\nnobodyKnows=this\n")
    assert answer.code == ResponseCode.SUCCESS
    assert b"orderMessageEnable=true\n" in ask(namesrv, RequestCode.GET_NAMESRV_CONFIG).body
    kept = NamesrvOptions.parse(read_properties(tmp_path / "ns.conf"))
    assert kept.order_message_enable


@pytest.mark.parametrize(
    "key", sorted(key for key, (_, option) in NamesrvOptions.table().items() if not option.changeable)
)
def test_setting_that_names_files_or_addresses_is_refused(namesrv: NameServer, tmp_path: Path, key: str) -> None:
    before = ask(namesrv, RequestCode.GET_NAMESRV_CONFIG).body
    body = f"orderMessageEnable=true\n{key}=1\n".encode()
    answer = ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == ResponseCode.NO_PERMISSION
    assert key in str(answer.remark)
    assert ask(namesrv, RequestCode.GET_NAMESRV_CONFIG).body == before
    assert not (tmp_path / "ns.conf").exists()


@pytest.mark.parametrize("body", [b"orderMessageEnable=perhaps", b"a=\\u1"])
def test_setting_with_a_bad_value_is_refused(namesrv: NameServer, body: bytes) -> None:
    assert ask(namesrv, RequestCode.UPDATE_NAMESRV_CONFIG, body=body).code == ResponseCode.SYSTEM_ERROR
