"""A topic whose bodies are values of one type. Sends and receives nothing."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta
from typing import Generic, TypedDict, TypeVar, Unpack

from orbitmq.client.typed.codecs import Codec
from orbitmq.errors import ConfigurationError, MessageError, SchemaIllegal, WrongBody
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.topics import check_topic
from orbitmq.operations.schemas import TopicSchemas
from orbitmq.schemas.model import SCHEMA_ID, Schema

T = TypeVar("T")


class MessageOptions(TypedDict, total=False):
    """The arguments of `Message` besides topic and body: tags, keys, flag, wait_store_ok, delay_level, deliver_at,
    deliver_after, expires_at, expires_after and properties.
    """

    tags: str | None
    keys: str | Iterable[str] | None
    flag: int
    wait_store_ok: bool
    delay_level: int
    deliver_at: datetime | None
    deliver_after: timedelta | float | None
    expires_at: datetime | None
    expires_after: timedelta | float | None
    properties: Mapping[str, str] | None


@dataclass(frozen=True, slots=True)
class Received(Generic[T]):
    """A message whose body could be read."""

    value: T
    """Its body."""
    message: MessageExt
    """All the rest."""


class Topic(Generic[T]):
    """The type of the bodies of a topic.

        orders = Topic("orders", msgspec_codec(Order))
        await producer.send(orders.message(Order(1, "book"), keys="1"))

    Each message names the schema of its body in the property SCHEMA_ID. A body without it counts as one of this codec's
    schema. MessageIllegal for an invalid name.
    """

    def __init__(self, name: str, codec: Codec[T]) -> None:
        check_topic(name)
        self.name = name
        """The topic's name, without a namespace."""
        self.codec = codec
        """How values become bodies."""
        self._known: dict[str, Schema] = {codec.schema.id: codec.schema}
        self._id = codec.schema.id
        self._unreadable: Mapping[str, str] = {}

    @property
    def schema(self) -> Schema:
        """The schema of the bodies that this program writes."""
        return self.codec.schema

    def message(self, value: T, **options: Unpack[MessageOptions]) -> Message:
        """A message with this value as its body; `options` are those of `Message`. MessageIllegal for a value that has
        no body, and as of `Message`.
        """
        message = Message(self.name, self.codec.encode(value), **options)
        message.properties[SCHEMA_ID] = self._id
        return message

    def read(self, message: MessageExt) -> T:
        """The value of a message. WrongBody if its body is no such value, or was written with a schema that is needed
        and not known; SchemaIllegal if a schema that cannot be read may be that one; ConfigurationError for a message
        of another topic.
        """
        if message.topic != self.name:
            raise ConfigurationError(f"a message of topic {message.topic} was given to the type of topic {self.name}")
        try:
            return self._decoded(message)
        except MessageError:
            raise
        except Exception as error:  # of a codec or a type of the application, for which the body is wrong, too
            raise WrongBody(f"{type(error).__name__}: {error}") from error

    def _decoded(self, message: MessageExt) -> T:
        written = self.schema
        if self.codec.reads_by_writer:
            schema_id = message.properties.get(SCHEMA_ID, self._id)
            found = self._known.get(schema_id)
            if found is None:
                raise self._unknown(schema_id)
            written = found
        return self.codec.decode(message.body, written)

    def _unknown(self, schema_id: str) -> MessageError:
        text = f"it was written with the schema {schema_id}, which is not registered"
        if not self._unreadable:
            return WrongBody(text)
        kept = "; ".join(f"{name}: {reason}" for name, reason in self._unreadable.items())
        remedy = f"put it right, or remove it with `orbitmq schema remove {self.name} --unreadable`"
        return SchemaIllegal(f"{text}, unless it is what cannot be read ({kept}): {remedy}")

    def lacks(self, messages: Sequence[MessageExt]) -> bool:
        """Whether one of these messages was written with a schema that is needed and not known. Nothing is raised."""
        if not self.codec.reads_by_writer:
            return False
        return any(message.properties.get(SCHEMA_ID, self._id) not in self._known for message in messages)

    def learn(self, schemas: TopicSchemas) -> None:
        """Know these schemas from here on, as `schemas` of a client returns them. Nothing is raised."""
        self._unreadable = schemas.unreadable
        self._known |= {one.schema.id: one.schema for one in schemas.versions if one.schema.kind is self.schema.kind}
