"""Typed messages at orbitmq and at RocketMQ: its name servers keep the schemas, its brokers the dead letters."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    Producer,
    PushConsumer,
)
from orbitmq.client.typed import (
    Received,
    RegistryTopic,
    SchemaIncompatible,
    Topic,
    avro_codec,
    listening,
    register,
    typed,
    typed_orderly,
)
from orbitmq.message.properties import DEAD_LETTER_REASON
from tests.interop.conftest import System
from tests.support.loops import until
from tests.support.python_client import FIRST
from tests.support.schema_registry import SchemaRegistry

ID, ITEM = {"name": "id", "type": "long"}, {"name": "item", "type": "string", "default": "book"}


def record(*fields: dict[str, str]) -> dict[str, object]:
    return {"type": "record", "name": "Order", "fields": list(fields)}


@pytest.mark.with_five
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_older_bodies_are_read_and_wrong_ones_are_dead_letters(
    system: System, label: str, *, orderly: bool
) -> None:
    namesrv = system.namesrv_address
    old, new = Topic(label, avro_codec(record(ID))), Topic(label, avro_codec(record(ID, ITEM)))
    async with Producer(label, namesrv) as producer:
        await producer.create_topic(label, queues=1)
        assert [(await producer.register_schema(label, one.schema)).number for one in (old, new, old)] == [1, 2, 1]
        with pytest.raises(SchemaIncompatible, match="field id is string, and was long"):
            await producer.register_schema(label, avro_codec(record({"name": "id", "type": "string"})).schema)
        for message in (old.message({"id": 1}), Message(label, b"!"), new.message({"id": 2, "item": "pen"})):
            await producer.send(message)
    seen: list[object] = []

    def listen(received: Sequence[Received[dict[str, object]]], context: ConcurrentContext) -> Any:
        seen.extend(one.value for one in received)
        return ConsumeOrderlyStatus.SUCCESS if orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(label, namesrv, consume_from_where=FIRST, consume_threads=1)
    consumer.subscribe(label)
    wrap: Any = typed_orderly if orderly else typed
    consumer.set_listener(wrap(consumer, new, listen), orderly=orderly)
    async with consumer, LitePullConsumer(f"{label}-dead", namesrv, consume_from_where=FIRST) as reader:
        await until(lambda: len(seen) == 2)
        reader.subscribe(f"%DLQ%{label}")
        (letter,) = await reader.poll(60)
    assert seen == [{"id": 1, "item": "book"}, {"id": 2, "item": "pen"}]
    assert letter.body == b"!"
    assert letter.properties[DEAD_LETTER_REASON].startswith("no data of the schema: ")


@pytest.mark.with_five
async def test_no_message_is_a_dead_letter_because_a_registry_is_away(
    system: System, label: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Brokers deliver it again more often than the consumer allows for a failure."""
    monkeypatch.setattr(listening, "PATIENCE_S", 0.0)
    topic = RegistryTopic(label, avro_codec(record(ID)))
    seen: list[tuple[object, int]] = []

    def listen(received: Sequence[Received[dict[str, object]]], context: ConcurrentContext) -> Any:
        seen.extend((one.value, one.message.reconsume_times) for one in received)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with SchemaRegistry() as server:
        async with Producer(label, system.namesrv_address, schema_registry=server.url) as producer:
            await producer.create_topic(label, queues=1)
            await register(producer, topic)
            await producer.send(topic.message({"id": 1}))
        consumer = PushConsumer(
            label, system.namesrv_address, consume_from_where=FIRST, max_reconsume_times=1, schema_registry=server.url
        )
        consumer.subscribe(label)
        consumer.set_listener(typed(consumer, RegistryTopic(label, avro_codec(record(ID, ITEM))), listen))
        server.answer = 503, b""
        async with consumer:
            await until(lambda: len(server.requests) > 5)
            server.answer = None
            await until(lambda: seen)
    ((value, times),) = seen
    assert value == {"id": 1, "item": "book"}
    assert times > 1
