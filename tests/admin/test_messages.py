"""Messages by key: pages back through time, exactly the key, and a broker that is gone is named. By id: only brokers of
the cluster are asked.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import msgspec
import pytest

from orbitmq.admin.message_history import MessageState
from orbitmq.admin.messages import RESPONSE_MAX, by_key, by_offset_id
from orbitmq.admin.search import find
from orbitmq.admin.session import Session
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.properties import encode_properties
from orbitmq.message.unit import Unit, encode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import BrokerData, ClusterInfo, QueueData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import QueryMessageHeader, QueryMessageResponseHeader
from orbitmq.wire.objects import encode_standard
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system

T0 = 1_700_000_000_000
GONE = "127.0.0.1:1"  # nobody listens there
TOPIC = "Orders"


def unit(number: int, at_ms: int, keys: str = "k") -> Unit:
    host = encode_host("127.0.0.1", 10911)
    properties = encode_properties({"KEYS": keys, "UNIQ_KEY": f"U{number}"})
    return Unit(
        0, 0, 0, 0, number, number * 1000, 0, at_ms, host, at_ms, host, 0, 0, b"%d" % number, TOPIC, properties
    )  # fmt: skip


def index(units: list[Unit]) -> Callable[[Connection, Command], Command]:
    """A broker's index: whatever the key, as if all had one hash; the newest first, whole seconds only."""

    def answer(_connection: Connection, command: Command) -> Command:
        header = command.header(QueryMessageHeader)
        found = [
            one
            for one in units
            if one.topic == header.topic
            and header.begin_timestamp <= one.store_timestamp // 1000 * 1000 <= header.end_timestamp
        ][-RESPONSE_MAX:]
        code = ResponseCode.SUCCESS if found else ResponseCode.QUERY_NOT_FOUND
        body = b"".join(map(encode_unit, found))
        return command.response(code, header=QueryMessageResponseHeader(0, 0), body=body)

    return answer


@asynccontextmanager
async def cluster(units: list[Unit], *, with_gone: bool = False) -> AsyncIterator[tuple[Session, FakeSystem]]:
    """A session over one broker that has these messages, and perhaps one that does not answer."""
    async with fake_system() as system:
        brokers = {BROKER: BrokerData(addresses={0: system.address}, broker_name=BROKER, cluster="C")}
        if with_gone:
            brokers["broker-b"] = BrokerData(addresses={0: GONE}, broker_name="broker-b", cluster="C")
        route = TopicRouteData(
            broker_datas=list(brokers.values()),
            queue_datas=[QueueData(broker_name=name, perm=6, read_queues=1, write_queues=1) for name in brokers],
        )
        info = ClusterInfo(brokers=brokers, clusters={"C": list(brokers)})

        def told(body: object) -> Callable[[Connection, Command], Command]:
            return lambda _connection, command: command.response(ResponseCode.SUCCESS, body=encode_standard(body))

        system.answers[RequestCode.GET_BROKER_CLUSTER_INFO] = told(info)
        system.answers[RequestCode.GET_ROUTEINFO_BY_TOPIC] = told(route)
        system.answers[RequestCode.QUERY_MESSAGE] = index(units)
        remoting = Remoting()
        try:
            yield Session(remoting, [system.address]), system
        finally:
            await remoting.close()


async def test_more_than_an_answer_holds_are_asked_for_in_pages() -> None:
    units = [unit(number, T0 + number * 100, "k other" if number % 2 else "another") for number in range(400)]
    async with cluster(units) as (session, system):
        found = await by_key(session, TOPIC, "k", limit=1000)
        assert [message.body for message in found.items] == [b"%d" % number for number in range(1, 400, 2)]
        assert found.warnings == []
        assert system.count(RequestCode.PULL_MESSAGE) == 0, "the index has told all"
        some = await by_key(session, TOPIC, "k", begin_ms=T0 + 10_050, end_ms=T0 + 20_150, limit=1000)
        assert [message.body for message in some.items] == [b"%d" % number for number in range(101, 202, 2)]


async def test_a_broker_that_is_gone_is_named_and_what_the_others_have_is_told() -> None:
    async with cluster([unit(1, T0)], with_gone=True) as (session, _):
        found = await by_key(session, TOPIC, "k")
        assert [message.body for message in found.items] == [b"1"]
        assert [failure.target for failure in found.failures] == [f"broker-b ({GONE})"]


async def test_not_found_is_no_certainty_when_not_everybody_answers() -> None:
    async with cluster([], with_gone=True) as (session, system):
        system.answers[RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER] = lambda _connection, command: command.response(
            ResponseCode.SUCCESS, body=b'{"topicList":["Orders"]}'
        )
        found = await find(session, "k", T0)
        assert found.partial
        (told,) = found.items
        assert told.state is MessageState.NOT_FOUND
        assert told.sentence.startswith("There is no message k (some nodes did not respond): searched ")


@pytest.mark.parametrize("is_same", [True, False])
async def test_an_offset_id_is_asked_of_brokers_of_the_cluster_only(*, is_same: bool) -> None:
    """Whatever address it holds; the log of a master that is gone may be at a slave."""
    stored = unit(7, T0)
    if not is_same:
        stored = msgspec.structs.replace(stored, store_host=encode_host("127.0.0.1", 10912))
    async with cluster([]) as (session, system):
        system.answers[RequestCode.VIEW_MESSAGE_BY_ID] = lambda _connection, command: command.response(
            ResponseCode.SUCCESS, body=encode_unit(stored)
        )
        found = await by_offset_id(session, offset_message_id(encode_host("127.0.0.1", 10911), 7000))
        assert [message.body for message in found.items] == ([b"7"] if is_same else [])
        assert found.failures == []
        assert system.count(RequestCode.VIEW_MESSAGE_BY_ID) == 1
