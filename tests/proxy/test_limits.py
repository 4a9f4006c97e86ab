"""What a client may send at once, however small it is on the wire."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import StatusError
from orbitmq.proxy.checks import BATCH_MAX, REQUEST_SIZE_MAX, SEND_SIZE_MAX, checked_topic_of_send, parsed
from orbitmq.proxy.routes import ADDRESSES_MAX, endpoints_of
from orbitmq.proxy.telemetry import SETTINGS_SIZE_MAX
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import AddressScheme, ClientType, Code, Encoding, MessageType
from tests.proxy.test_live_front import TOPIC, front
from tests.support.five import Five, message

EMPTY_ENTRY = b"\x0a\x00"


def code_of_send(*messages: Any) -> int:
    with pytest.raises(StatusError) as raised:
        checked_topic_of_send(v2.SendMessageRequest(messages=messages))
    return raised.value.code


def test_large_requests_are_not_parsed() -> None:
    with pytest.raises(StatusError) as raised:
        parsed(v2.AckMessageRequest, EMPTY_ENTRY * REQUEST_SIZE_MAX)
    assert raised.value.code == Code.PAYLOAD_TOO_LARGE
    with pytest.raises(StatusError) as raised:
        parsed(v2.AckMessageRequest, b"\xff")
    assert raised.value.code == Code.BAD_REQUEST


def test_a_batch_has_nothing_that_is_stored_otherwise_than_the_others() -> None:
    plain = message(TOPIC, b"x")
    half = message(TOPIC, b"x", message_type=MessageType.TRANSACTION)
    later = message(TOPIC, b"x", delivery_ms=1_900_000_000_000)
    packed = message(TOPIC, b"x", body_encoding=Encoding.GZIP)
    assert code_of_send(plain, half) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert code_of_send(plain, later) == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    assert code_of_send(plain, packed) == Code.BAD_REQUEST
    assert code_of_send(*[plain] * (BATCH_MAX + 1)) == Code.PAYLOAD_TOO_LARGE
    for one in (plain, half, later, packed):
        assert checked_topic_of_send(v2.SendMessageRequest(messages=[one])) == TOPIC


def test_only_some_addresses_are_repeated_for_each_queue() -> None:
    asked = v2.Endpoints(addresses=[v2.Address(host=f"h{number}", port=1) for number in range(1000)])
    found = endpoints_of(asked, 8081, "127.0.0.1")
    assert [one.host for one in found.addresses] == [f"h{number}" for number in range(ADDRESSES_MAX)]


def test_the_front_names_itself_by_the_kind_of_its_address() -> None:
    hosts = {"broker.example": AddressScheme.DOMAIN_NAME, "::1": AddressScheme.IPv6, "10.0.0.1": AddressScheme.IPv4}
    for host, scheme in hosts.items():
        assert endpoints_of(v2.Endpoints(), 8081, host).scheme == scheme


async def test_the_front_says_what_is_too_large(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        assert (await client.send(TOPIC, b"x" * SEND_SIZE_MAX)).status.code == Code.MESSAGE_BODY_TOO_LARGE
        many = v2.AckMessageRequest(entries=[v2.AckMessageEntry()] * (BATCH_MAX + 1))
        many.topic.name, many.group.name = TOPIC, "billing"
        assert (await client.call("AckMessage", many)).status.code == Code.PAYLOAD_TOO_LARGE
        settings = v2.Settings(client_type=ClientType.PRODUCER)
        settings.publishing.topics.add(name=TOPIC, resource_namespace="n" * SETTINGS_SIZE_MAX)
        stream = client.open()
        await stream.write(v2.TelemetryCommand(settings=settings))
        assert (await stream.code()).name == "INVALID_ARGUMENT"
        assert broker.store.max_offset(TOPIC, 0) == 0
