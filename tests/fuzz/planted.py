"""Decoders with a fault each, as a hurried change could make one, and the targets that must find it."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from typing import Any
from unittest import mock

from fuzz import records, streams
from fuzz.promise import Target
from orbitmq.message.properties import EncodedProperties
from orbitmq.replication import protocol
from orbitmq.replication.protocol import Pieces
from orbitmq.wire import header_codec
from orbitmq.wire.codes import LANGUAGES


def _language_unchecked(number: int) -> str:
    """The name of any number, as if there were one for each."""
    return LANGUAGES[number]


class _AnyPlace(EncodedProperties):
    """Finds a name wherever it stands, also as the end of another name."""

    def get(self, name: str) -> str | None:
        _, found, rest = self._text.rpartition(f"{name}\x01".encode())
        return rest.partition(b"\x02")[0].decode(errors="replace") or None if found else None


class _Trusting(Pieces):
    """Makes room for whatever a master announces."""

    def feed(self, data: bytes) -> Iterator[tuple[int, memoryview]]:
        with mock.patch.object(protocol, "PIECE_MAX", 1 << 31):
            yield from super().feed(data)
        bytes(self._missing)


def _planted(name: str, target: Target, place: Any, attribute: str, fault: Any) -> Target:
    def check(data: bytes) -> None:
        with mock.patch.object(place, attribute, fault):
            target.check(data)

    check.__module__ = __name__  # where the engine looks for the table
    return dataclasses.replace(target, name=name, check=check)


_HONEST = {target.name: target for target in (*streams.TARGETS, *records.TARGETS)}

TARGETS = (
    _planted("a wrong value", _HONEST["properties"], records, "EncodedProperties", _AnyPlace),
    _planted("another exception", _HONEST["binary-header"], header_codec, "_language_of", _language_unchecked),
    _planted("memory for what is only announced", _HONEST["pieces"], streams, "Pieces", _Trusting),
)
