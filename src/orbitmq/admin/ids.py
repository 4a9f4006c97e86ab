"""Classify an id given by a user: offset id, unique id, or other text. Pure.

Both kinds of id have the same length. They differ here: a port uses two of four bytes, and a unique id has the process
number in the other two, which is 0 for one process in 65,536 only.
"""

from __future__ import annotations

from datetime import tzinfo
from enum import StrEnum

from msgspec import Struct

from orbitmq.errors import MessageIllegal
from orbitmq.message.hosts import address_text, decode_host
from orbitmq.message.ids import UniqueId, decode_offset_message_id, decode_unique_id

PORT_MAX = 65_535
LOG_OFFSET_MAX = 1 << 56
"""Bytes: 64 PiB. No log gets there, and the bytes of a unique id nearly always say more."""
MONTH_MS = 31 * 86_400_000
"""A unique id counts from the beginning of a month."""


class IdKind(StrEnum):
    """What a text can be."""

    OFFSET = "offset"
    """The place in a broker's log, given out by the broker."""
    UNIQUE = "unique"
    """Made by a producer; the transaction id of a message and its id in a trace are the same."""
    KEY = "key"
    """Neither: only a key of the application."""


class StoredPlace(Struct, frozen=True, rename="camel"):
    """What an offset id says."""

    host: str
    port: int
    commit_log_offset: int

    @property
    def address(self) -> str:
        return address_text(self.host, self.port)


class MadeBy(Struct, frozen=True, rename="camel"):
    """What a unique id says."""

    ip: str
    """Of the producer, as it saw itself."""
    pid: int
    """The lower 16 bits of its process id."""
    created_at_ms: int
    """Within the last month before now, the month beginning in this machine's time zone: the id holds no more."""
    counter: int


class Identity(Struct, frozen=True, rename="camel"):
    """How a text can be read. Any text may be a key as well."""

    text: str
    kind: IdKind
    place: StoredPlace | None = None
    made: MadeBy | None = None


def identify(text: str, now_ms: int, zone: tzinfo | None = None) -> Identity:
    """How `text` can be read; blanks around it do not matter. `zone` is the one producers live in, None this one."""
    text = text.strip()
    if place := _place(text):
        return Identity(text, IdKind.OFFSET, place=place)
    if made := _made(text, now_ms, zone):
        return Identity(text, IdKind.UNIQUE, made=made)
    return Identity(text, IdKind.KEY)


def _place(text: str) -> StoredPlace | None:
    try:
        found = decode_offset_message_id(text)
    except MessageIllegal:
        return None
    is_possible = 0 < found.port <= PORT_MAX and 0 <= found.physical_offset < LOG_OFFSET_MAX
    return StoredPlace(found.host, found.port, found.physical_offset) if is_possible else None


def _made(text: str, now_ms: int, zone: tzinfo | None) -> MadeBy | None:
    try:
        found = decode_unique_id(text, now_ms, zone)
    except MessageIllegal:
        return None
    return _maker(found) if found.pid and _elapsed_ms(text) < MONTH_MS else None


def _maker(found: UniqueId) -> MadeBy:
    ip, _port = decode_host(found.ip + bytes(4))
    return MadeBy(ip, found.pid, found.created_ms, found.counter)


def _elapsed_ms(text: str) -> int:
    """Since its month began: eight digits before the counter's four."""
    return int(text[-12:-4], 16)
