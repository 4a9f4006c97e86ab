"""Typed messages: values instead of bytes, checked by a schema that is kept with the topic.

    orders = Topic("orders", msgspec_codec(Order))

    async with Producer("shop", "127.0.0.1:9876") as producer:
        await register(producer, orders)
        await producer.send(orders.message(Order(1, "book"), keys="1"))

    async def handle(received, context):
        for one in received:
            print(one.value, one.message.keys)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer.subscribe(orders.name)
    consumer.set_listener(typed(consumer, orders, handle))

`register` refuses a schema that cannot read the bodies of earlier versions. A wrong body becomes a dead letter
with the reason, and never blocks its queue. For threads use `orbitmq.client.typed.sync`.
"""

from orbitmq.client.typed.codecs import Codec, avro_codec, msgspec_codec, protobuf_codec, pydantic_codec
from orbitmq.client.typed.listening import TypedListener, TypedOrderlyListener, register, typed, typed_orderly, values
from orbitmq.client.typed.registry import RegistryTopic
from orbitmq.client.typed.topic import MessageOptions, Received, Topic
from orbitmq.errors import SchemaIllegal, SchemaIncompatible, SchemasAway, WrongBody
from orbitmq.operations.schemas import TopicSchemas
from orbitmq.schemas.model import SCHEMA_ID, Compatibility, Schema, SchemaKind, SchemaVersion

__all__ = [
    "SCHEMA_ID",
    "Codec",
    "Compatibility",
    "MessageOptions",
    "Received",
    "RegistryTopic",
    "Schema",
    "SchemaIllegal",
    "SchemaIncompatible",
    "SchemaKind",
    "SchemaVersion",
    "SchemasAway",
    "Topic",
    "TopicSchemas",
    "TypedListener",
    "TypedOrderlyListener",
    "WrongBody",
    "avro_codec",
    "msgspec_codec",
    "protobuf_codec",
    "pydantic_codec",
    "register",
    "typed",
    "typed_orderly",
    "values",
]
