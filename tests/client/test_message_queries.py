"""A client compares the text of what brokers find by hash, and tells "there is none" from "nobody could say"."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.client import Message, Producer
from orbitmq.errors import BrokerError, ClientError
from orbitmq.message.ids import UniqueIds
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import QueryMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import FakeSystem, fake_system, refuse
from tests.support.loops import run

ZERO_ID = "7F0000010000000000000000000000FF"


def asked(system: FakeSystem) -> Iterator[QueryMessageHeader]:
    return (each.header(QueryMessageHeader) for each in system.asked if each.code == RequestCode.QUERY_MESSAGE)


def test_only_messages_that_have_the_key_are_found() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as client:
            for number, keys in enumerate(("red", "red green", "reddish", "green")):
                await client.send(Message("T", b"%d" % number, keys=keys))
            await client.send(Message("Other", b"x", keys="red"))
            assert sorted(message.body for message in await client.query_message("T", "red")) == [b"0", b"1"]
            assert len(await client.query_message("T", "red", 1)) == 1
            assert [header.max_num for header in asked(system)] == [32, 1]
            with pytest.raises(ClientError, match="blue") as raised:
                await client.query_message("T", "blue")
            assert raised.value.code == ResponseCode.NO_MESSAGE

    run(scenario())


def test_a_broker_that_refuses_is_not_taken_for_one_that_has_nothing() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as client:
            await client.send(Message("T", b"x", keys="red"))
            system.answers[RequestCode.QUERY_MESSAGE] = refuse(ResponseCode.SYSTEM_ERROR)
            with pytest.raises(BrokerError) as raised:
                await client.query_message("T", "red")
            assert raised.value.code == ResponseCode.SYSTEM_ERROR
            with pytest.raises(ClientError, match="no readable queue"):
                await client.query_message("Unknown", "red")

    run(scenario())


def test_a_unique_id_says_when_to_look_from_and_the_first_of_its_messages_counts() -> None:
    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as client:
            now_ms = client._clock.now_ms()
            unique = UniqueIds(bytes(4), 1, bytes(4)).create(now_ms)
            await client.send(Message("T", b"only to be known"))
            for number in range(3):
                system.put("T", 0, b"%d" % number, f"UNIQ_KEY\x01{unique}")
            assert (await client.view_message(unique, "T")).body == b"0"
            (header,) = asked(system)
            assert (header.is_unique_key, header.key, header.begin_timestamp) == (True, unique, now_ms - 1000)
            with pytest.raises(ClientError) as raised:
                await client.view_message(ZERO_ID, "T")
            assert raised.value.code == ResponseCode.NO_MESSAGE

    run(scenario())


def test_an_id_that_reads_as_an_address_is_asked_of_brokers_of_the_topic_only() -> None:
    """Any unique id may read as an offset id: no client should connect to wherever it points."""

    async def scenario() -> None:
        async with fake_system() as system, Producer("g", system.address) as client:
            await client.send(Message("T", b"x"))
            connections = len(system.connections)
            with pytest.raises(ClientError):
                await client.view_message("7F000001" + "0000FFFE" + "0" * 16, "T")
            assert len(system.connections) == connections
            assert [header.begin_timestamp for header in asked(system)] != []

    run(scenario())
