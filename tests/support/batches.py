"""Batches for tests: written into a store, and read by a way of their own."""

from __future__ import annotations

import struct
from collections.abc import Sequence
from typing import NamedTuple

import msgspec

from orbitmq.message.batch import encode_batch
from orbitmq.store.engine import MessageStore
from orbitmq.store.records import PutRecord, PutResult


class BatchItem(NamedTuple):
    """One message of a batch; `properties` is the encoded text in UTF-8."""

    flag: int
    body: bytes
    properties: bytes


def put_batch(store: MessageStore, record: PutRecord, items: Sequence[BatchItem]) -> PutResult:
    """Store a batch as if it had come from a client."""
    body = encode_batch((item.flag, item.body, item.properties.decode()) for item in items)
    return store.put_batch(msgspec.structs.replace(record, body=body))


def decode_batch(body: bytes) -> list[BatchItem]:
    """The messages of a batch body."""
    items = []
    while body:
        size, magic, crc, flag, body_size = struct.unpack_from(">iiiii", body)
        assert magic == crc == 0
        message, rest = body[20 : 20 + body_size], body[20 + body_size : size]
        assert rest[:2] == struct.pack(">h", len(rest) - 2)
        items.append(BatchItem(flag, message, rest[2:]))
        body = body[size:]
    return items
