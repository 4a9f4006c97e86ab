"""The tables of an outbox, and the rows that an application inserts. Knows no relay and no broker."""

from __future__ import annotations

from typing import Final, TypedDict
from uuid import uuid4

import msgspec
from sqlalchemy import (
    BigInteger,
    Column,
    Connection,
    Engine,
    Index,
    Insert,
    Integer,
    LargeBinary,
    MetaData,
    String,
    Table,
    Text,
    insert,
)
from sqlalchemy.dialects.mysql import LONGBLOB, MEDIUMTEXT

from orbitmq.client.core.outgoing_message import Packing, check_message, outgoing
from orbitmq.errors import MessageIllegal
from orbitmq.message.expiry import with_expiry
from orbitmq.message.model import Message
from orbitmq.message.properties import (
    EXPIRES_AFTER_MS,
    IDEMPOTENCY_TOKEN,
    TIMER_DELAY_MS,
    TIMER_DELIVER_MS,
    can_travel,
)
from orbitmq.message.timers import requested_ms
from orbitmq.runtime.clock import Clock, SystemClock

NAME: Final = "orbitmq_outbox"
TOPIC_SIZE_MAX, KEY_SIZE_MAX, ERROR_SIZE_MAX = 127, 255, 500

# MySQL's usual types are too short for a message.
_BODY = LargeBinary().with_variant(LONGBLOB(), "mysql", "mariadb")
_PROPERTIES = Text().with_variant(MEDIUMTEXT(), "mysql", "mariadb")


class OutboxRow(TypedDict):
    """The columns of a message that waits; the database numbers it, and `error` is null at first."""

    topic: str
    sharding_key: str | None
    body: bytes
    flag: int
    properties: str
    """JSON: names and values, tags and keys among them."""
    created_ms: int
    """Milliseconds since the epoch."""
    attempts: int
    next_ms: int
    """When it may be sent; milliseconds since the epoch."""


class OutboxTable:
    """The tables of an outbox: `table` has the messages, `lease` says which relay works.

    They are part of `metadata`, where tools for migrations find them. Their names are `name`, and `name` with `_lease`.
    `max_message_size`, in bytes, is that of the relay's producer.
    """

    def __init__(
        self,
        metadata: MetaData | None = None,
        *,
        name: str = NAME,
        max_message_size: int = 4 << 20,
        clock: Clock | None = None,
    ) -> None:
        metadata = MetaData() if metadata is None else metadata
        self._packing = Packing(max_message_size, compress_from=max_message_size + 1)
        self._clock = clock or SystemClock()
        self.table = Table(
            name,
            metadata,
            Column("id", BigInteger().with_variant(Integer(), "sqlite"), primary_key=True, autoincrement=True),
            Column("topic", String(TOPIC_SIZE_MAX), nullable=False),
            Column("sharding_key", String(KEY_SIZE_MAX)),
            Column("body", _BODY, nullable=False),
            Column("flag", Integer, nullable=False),
            Column("properties", _PROPERTIES, nullable=False),
            Column("created_ms", BigInteger, nullable=False),
            Column("attempts", Integer, nullable=False),
            Column("next_ms", BigInteger, nullable=False),
            Column("error", String(ERROR_SIZE_MAX)),
            Index(f"{name}_order", "topic", "sharding_key", "id"),
            sqlite_autoincrement=True,  # a relay that is late must not delete a new row with an old number
        )
        self.lease = Table(
            f"{name}_lease",
            metadata,
            Column("id", Integer, primary_key=True, autoincrement=False),
            Column("holder", String(32), nullable=False),
            Column("until_ms", BigInteger, nullable=False),
        )

    def create(self, bind: Engine | Connection) -> None:
        """Create the tables unless they exist. With asyncio `await connection.run_sync(outbox.create)`."""
        self.table.metadata.create_all(bind, tables=[self.table, self.lease])

    def insert(self, message: Message, *, sharding_key: str | None = None) -> Insert:
        """The statement that puts a message into the outbox: execute it in your transaction, by a connection or a
        session of either kind. MessageIllegal; otherwise as `row`.
        """
        return insert(self.table).values(**self.row(message, sharding_key=sharding_key))

    def row(self, message: Message, *, sharding_key: str | None = None) -> OutboxRow:
        """The row of a message, for other ways to insert it, such as the models of Django.

        Messages with equal topic and `sharding_key` share a queue and keep their order. The spans of `deliver_after`
        and `expires_after` count from this call. MessageIllegal for a message that breaks a rule: none waits that can
        never be sent.
        """
        check_message(message, self._packing.size_max)
        _check_key(sharding_key)
        now_ms = self._clock.now_ms()
        properties = {IDEMPOTENCY_TOKEN: uuid4().hex, **message.properties}
        if EXPIRES_AFTER_MS in properties:
            properties = with_expiry(properties, now_ms)
        if TIMER_DELAY_MS in properties:
            delay = {TIMER_DELAY_MS: properties.pop(TIMER_DELAY_MS)}
            properties[TIMER_DELIVER_MS] = str(requested_ms(delay, now_ms))
        checked = Message(message.topic, message.body, flag=message.flag)
        checked.properties = properties
        outgoing(checked, lambda: "0" * 32, self._packing)
        return {
            "topic": message.topic, "sharding_key": sharding_key, "body": message.body, "flag": message.flag,
            "properties": msgspec.json.encode(properties).decode(), "created_ms": now_ms, "attempts": 0, "next_ms": 0,
        }  # fmt: skip


def _check_key(key: object) -> None:
    if key is None:
        return
    if not isinstance(key, str):
        raise MessageIllegal(f"sharding_key must be text, not {type(key).__name__}")
    if len(key) > KEY_SIZE_MAX:
        raise MessageIllegal(f"a sharding_key of {len(key)} characters, at most {KEY_SIZE_MAX} are allowed")
    if "\0" in key or not can_travel(key):
        raise MessageIllegal(f"sharding_key {key!a} holds a character that databases cannot store")
