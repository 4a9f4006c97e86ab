"""A topic whose bodies are those of Confluent's serializers. Sends and receives nothing, and knows no registry."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar, Unpack

from orbitmq.client.typed.codecs import Codec
from orbitmq.client.typed.topic import MessageOptions, Topic
from orbitmq.errors import InvalidStateError, WrongBody
from orbitmq.message.model import Message, MessageExt
from orbitmq.operations.schemas import TopicSchemas
from orbitmq.schemas import protobuf
from orbitmq.schemas.model import Schema, SchemaKind
from orbitmq.schemas.registry_format import head, registry_id, value

T = TypeVar("T")

REASONS_MAX = 1000  # ids without a schema whose reasons are kept; any body may name any id


class RegistryTopic(Topic[T]):
    """The type of the bodies of a topic whose schemas a registry keeps, for clients with the setting `schema_registry`.

        orders = RegistryTopic("orders", avro_codec(schema, Order))
        await register(producer, orders)
        await producer.send(orders.message(Order(1, "book"), keys="1"))

    Each body begins with the id of its schema, as those of Confluent's serializers do. MessageIllegal for an invalid
    name.
    """

    def __init__(self, name: str, codec: Codec[T]) -> None:
        super().__init__(name, codec)
        self._indexes = protobuf.indexes_of(codec.schema) if codec.schema.kind is SchemaKind.PROTOBUF else None
        self._head: bytes | None = None
        self._by_id: dict[int, Schema] = {}
        self._reasons: dict[int, str] = {}
        """Id -> why its schema cannot be used."""

    def message(self, value: T, **options: Unpack[MessageOptions]) -> Message:
        """As of `Topic`. InvalidStateError before `register`, which has the id of the schema."""
        if self._head is None:
            raise InvalidStateError(f"the id of the schema of topic {self.name} is not known; call register() before")
        return Message(self.name, self._head + self.codec.encode(value), **options)

    def learn(self, schemas: TopicSchemas) -> None:
        """Know these versions of a registry from here on, with their ids. Nothing is raised."""
        for one in schemas.versions:
            if one.registry_id is not None:
                self._by_id[one.registry_id] = one.schema
                if one.schema == self.schema:
                    self._head = head(one.registry_id, self._indexes)

    def lacks(self, messages: Sequence[MessageExt]) -> bool:
        """As of `Topic`."""
        return bool(self.lacking(messages))

    def lacking(self, messages: Sequence[MessageExt]) -> set[int]:
        """The ids that these bodies begin with, of schemas that are needed and not known. Nothing is raised."""
        if not self.codec.reads_by_writer:
            return set()
        found = set()
        for message in messages:
            try:
                found.add(registry_id(message.body))
            except WrongBody:  # `read` says so
                continue
        return found - self._by_id.keys()

    def learn_ids(self, found: Mapping[int, Schema | str]) -> None:
        """Know these schemas by their ids from here on, or why there is none. Nothing is raised."""
        if len(self._reasons) > REASONS_MAX:
            self._reasons.clear()
        for one, schema in found.items():
            if isinstance(schema, str):
                self._reasons[one] = schema
            else:
                self._by_id[one] = schema

    def _decoded(self, message: MessageExt) -> T:
        body = value(message.body, indexed=self._indexes is not None)
        written = self.schema
        if self.codec.reads_by_writer:
            number = registry_id(message.body)
            found = self._by_id.get(number)
            if found is None:
                reason = self._reasons.get(number, "which is not known")
                raise WrongBody(f"it was written with the schema {number}, {reason}")
            if found.kind is not self.schema.kind:
                raise WrongBody(f"it was written with the schema {number}, which is {found.kind}")
            written = found
        return self.codec.decode(body, written)
