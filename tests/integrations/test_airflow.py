"""What the provider for Airflow makes of connections, values and messages; `tests/orchestration` runs it in Airflow."""

from __future__ import annotations

import asyncio
import importlib
import json
import logging
import tomllib
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from orbitmq.client import Producer, SimpleConsumer
from orbitmq.client.settings import ClientSettings
from orbitmq.client.settling import PAUSE_S
from orbitmq.errors import BrokerError, ConfigurationError, InvalidStateError, MessageIllegal, RemotingError
from orbitmq.integrations.airflow.connection import client_arguments
from orbitmq.integrations.airflow.messages import (
    BODY_MAX,
    messages_of,
    payload_of,
    receipt_of,
    received,
    selector_of,
)
from orbitmq.integrations.airflow.probe import brokers_of
from orbitmq.integrations.airflow.settling import SETTLE_S, Settler
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.pop import POP_CK
from orbitmq.testing import Cluster
from tests.support.loops import LoopFactory, run, settle, turned_loop

ROOT = Path(__file__).parents[2]


def connection(**given: Any) -> Any:
    usual = {"host": "a", "port": None, "login": None, "password": None, "extra_dejson": {}}
    return SimpleNamespace(conn_id="shop", **{**usual, **given})


@pytest.mark.parametrize(
    ("host", "port", "servers"),
    [
        ("a", None, "a:9876"),
        ("a", 9877, "a:9877"),
        ("a:1;b", None, "a:1;b:9876"),
        (" a:1, b:2;", 7, "a:1;b:2"),
    ],
)
def test_the_host_of_a_connection_has_the_name_servers(host: str, port: int | None, servers: str) -> None:
    assert client_arguments(connection(host=host, port=port)) == (servers, {})


def test_login_and_extra_of_a_connection_are_settings_of_clients() -> None:
    extra = {"use_tls": True, "namespace": "tenant", "api_timeout_ms": 100, "tls_ca_file": None}
    _, settings = client_arguments(connection(login="key", password="secret", extra_dejson=extra))
    assert settings == {
        "access_key": "key", "secret_key": "secret", "tls": True, "namespace": "tenant", "api_timeout_ms": 100,
    }  # fmt: skip


def test_a_connection_in_a_uri_has_its_settings_as_text() -> None:
    _, settings = client_arguments(connection(extra_dejson={"use_tls": "true", "api_timeout_ms": "100"}))
    assert settings == {"tls": True, "api_timeout_ms": 100}


@pytest.mark.parametrize(
    ("given", "named"),
    [
        ({"host": None}, "connection shop has no name server"),
        ({"extra_dejson": {"use_tsl": True}}, "'use_tsl' of connection shop is not known"),
        ({"extra_dejson": {"secret_key": "hidden"}}, "use its field password"),
        ({"extra_dejson": {"use_tls": "perhaps"}}, "'use_tls' of connection shop"),
    ],
)
def test_a_wrong_connection_is_refused_with_its_name_and_without_secrets(given: dict[str, Any], named: str) -> None:
    with pytest.raises(ConfigurationError) as caught:
        client_arguments(connection(**given))
    assert named in str(caught.value)
    assert "hidden" not in str(caught.value)


def test_name_servers_may_be_looked_up() -> None:
    assert client_arguments(connection(host=None, extra_dejson={"namesrv_domain": "names:80"}))[0] == ""


@pytest.mark.parametrize(
    ("given", "bodies"),
    [
        ("text", [b"text"]),
        (b"\x00", [b"\x00"]),
        ({"city": "Köln"}, ['{"city": "Köln"}'.encode()]),
        (["a", b"b", 3], [b"a", b"b", b"3"]),
        (iter(["a", "b"]), [b"a", b"b"]),
        ([], []),
    ],
)
def test_values_are_bodies(given: object, bodies: list[bytes]) -> None:
    assert [message.body for message in messages_of("orders", given)] == bodies


def test_messages_have_what_the_task_says_and_a_message_its_own() -> None:
    own = Message("elsewhere", b"own", tags="own")
    first, second = messages_of("orders", ["a", own], keys=["k", "l"], tags="new", properties={"color": "red"})
    assert (first.topic, first.tags, first.keys, first.get_property("color")) == ("orders", "new", "k l", "red")
    assert second is own


@pytest.mark.parametrize("delay", [3, 3.0, "3", timedelta(seconds=3)])
def test_a_delay_is_seconds_also_of_a_template(delay: Any) -> None:
    (message,) = messages_of("orders", "a", delay=delay)
    assert message.properties == Message("orders", b"a", deliver_after=3).properties


def test_a_delay_may_be_a_time_or_none() -> None:
    at = datetime(2030, 1, 1, tzinfo=UTC)
    (message,) = messages_of("orders", "a", delay=at)
    assert message.properties == Message("orders", b"a", deliver_at=at).properties
    (message,) = messages_of("orders", "a", delay="")
    assert message.properties == Message("orders", b"a").properties


@pytest.mark.parametrize(("given", "delay"), [(object(), None), ("a", "soon")])
def test_what_cannot_be_sent_is_refused(given: object, delay: str | None) -> None:
    with pytest.raises(MessageIllegal):
        list(messages_of("orders", given, delay=delay))


def test_an_event_is_json_with_what_the_application_has_set() -> None:
    message = MessageExt("orders", "Köln".encode(), msg_id="1", reconsume_times=2)
    message.properties = Message("orders", b"", tags="new", keys=["k", "l"], properties={"color": "red"}).properties
    message.properties[POP_CK] = "0 0 0 0 0 broker-a 0 0"
    payload = payload_of(message)
    assert json.loads(json.dumps(payload)) == payload
    assert {name: payload[name] for name in ("body", "encoding", "tags", "keys", "properties")} == {
        "body": "Köln", "encoding": "utf-8", "tags": "new", "keys": ["k", "l"], "properties": {"color": "red"},
    }  # fmt: skip


@pytest.mark.parametrize(
    ("body", "text"), [(b"\xff\x00", ("/wA=", "base64")), (bytes(BODY_MAX + 1), (None, None)), (b"", ("", "utf-8"))]
)
def test_an_event_has_any_body_that_is_not_too_large(body: bytes, text: tuple[str | None, str | None]) -> None:
    payload = payload_of(MessageExt("orders", body))
    assert (payload["body"], payload["encoding"]) == text


def test_an_unknown_kind_of_expression_is_refused() -> None:
    assert selector_of("price > 1", "SQL92").kind == "SQL92"
    with pytest.raises(ConfigurationError, match="'SQL' is not known; use TAG or SQL92"):
        selector_of("price > 1", "SQL")


def test_the_entry_point_describes_modules_that_exist() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    module, _, name = project["entry-points"]["apache_airflow_provider"]["provider_info"].partition(":")
    info = getattr(importlib.import_module(module), name)()
    assert info["package-name"] == project["name"]
    named = [one for kind in ("hooks", "operators", "sensors", "triggers") for one in info[kind][0]["python-modules"]]
    named += [path.rpartition(".")[0] for path in (info["connection-types"][0]["hook-class-name"], *info["queues"])]
    assert not [one for one in named if not (ROOT / "src" / one.replace(".", "/")).with_suffix(".py").exists()]


async def test_a_receipt_of_one_consumer_acknowledges_with_another() -> None:
    with Cluster() as cluster:
        async with Producer("senders", cluster.namesrv_address) as producer:
            await producer.send(Message("orders", b"a"))
        async with SimpleConsumer("readers", cluster.namesrv_address) as consumer:
            consumer.subscribe("orders")
            (message,) = await consumer.receive(1, invisible=30.0)
        receipt = json.loads(json.dumps(receipt_of(message)))
        async with SimpleConsumer("readers", cluster.namesrv_address) as consumer:
            consumer.subscribe("orders")
            await consumer.ack(received(receipt))
            cluster.advance(31)
            assert await consumer.receive(1, timeout=3) == []


ACCOUNTS = """
accounts:
- accessKey: shop-account
  secretKey: a-secret-of-the-shop
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
"""


async def test_a_probe_finds_brokers_and_sees_whether_they_accept_the_account(tmp_path: Path) -> None:
    accounts = tmp_path / "plain_acl.yml"
    accounts.write_text(ACCOUNTS)
    accounts.chmod(0o600)
    with Cluster(brokers=2, aclEnable=True, aclFile=accounts) as cluster:
        right: ClientSettings = {"access_key": "shop-account", "secret_key": "a-secret-of-the-shop"}
        assert await brokers_of(cluster.namesrv_address, right) == ["broker-a", "broker-b"]
        with pytest.raises(BrokerError):
            await brokers_of(cluster.namesrv_address, {**right, "secret_key": "a-guess"})
        address = cluster.namesrv_address
    with pytest.raises(RemotingError):
        await brokers_of(address, right)


class Brokers:
    """A consumer of brokers, some of which are away."""

    def __init__(self, *away: str) -> None:
        self.away = set(away)
        self.acked: list[MessageExt] = []
        self.given_back: list[tuple[MessageExt, float]] = []
        self.ended = 0
        self.is_running = True

    def settler(self) -> Settler:
        return Settler(self, 60.0, self._end)  # type: ignore[arg-type]

    def _end(self) -> None:
        self.ended += 1

    def _reach(self, broker: str) -> None:
        if not self.is_running:
            raise InvalidStateError("shut down")
        if broker in self.away:
            raise RemotingError("away")

    async def ack(self, message: MessageExt) -> None:
        self._reach(message.broker_name)
        self.acked.append(message)

    async def change_invisible(self, message: MessageExt, seconds: float) -> None:
        self._reach(message.broker_name)
        self.given_back.append((message, seconds))

    async def shutdown(self) -> None:
        self.is_running = False


def stored_at(broker: str) -> MessageExt:
    return MessageExt("orders", b"", broker_name=broker)


def test_messages_of_a_broker_that_is_away_hold_up_no_others_and_are_acknowledged_when_it_is_back(
    turned_clock: LoopFactory,
) -> None:
    async def main() -> None:
        consumer, first, second, third = Brokers("a"), stored_at("a"), stored_at("b"), stored_at("b")
        settler = consumer.settler()
        settler.ack(first)
        settler.ack(second)
        settler.redeliver(third, 10.0)
        await settle()
        assert (consumer.acked, consumer.given_back, consumer.ended) == ([second], [(third, 10.0)], 2)
        await turned_loop().turn(50)
        assert consumer.ended == 2, "it is tried again for the visibility timeout"
        consumer.away.clear()
        await turned_loop().turn(PAUSE_S)
        assert (consumer.acked, consumer.ended) == ([second, first], 3)
        await settler.close()

    run(main(), turned_clock)


def test_an_outage_of_a_broker_is_logged_once(turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)

    async def outage(consumer: Brokers, settler: Settler) -> None:
        consumer.away.add("a")
        for _ in range(3):
            settler.ack(stored_at("a"))
            settler.ack(stored_at("b"))
            settler.redeliver(stored_at("a"), 10.0)
        await turned_loop().turn(61)
        await turned_loop().turn(PAUSE_S)
        consumer.away.clear()

    async def main() -> None:
        consumer = Brokers()
        settler = consumer.settler()
        await outage(consumer, settler)
        assert consumer.ended == 9
        (line,) = caplog.messages
        assert "event=not_settled broker=a" in line
        settler.ack(stored_at("a"))
        await settle()
        await outage(consumer, settler)
        assert len(caplog.messages) == 2, "one that follows is another one"
        await settler.close()

    run(main(), turned_clock)


def test_a_trigger_that_stops_waits_some_seconds_for_what_is_not_settled(turned_clock: LoopFactory) -> None:
    async def main() -> None:
        consumer = Brokers("a")
        settler = consumer.settler()
        settler.ack(stored_at("a"))
        closing = asyncio.create_task(settler.close())
        await turned_loop().turn(SETTLE_S - 1)
        assert consumer.is_running
        await turned_loop().turn(1)
        assert not consumer.is_running
        await turned_loop().turn(PAUSE_S)
        assert closing.done()
        assert (consumer.acked, consumer.ended) == ([], 1)

    run(main(), turned_clock)
