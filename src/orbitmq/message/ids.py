"""The two ids of a message: where it is stored (offset id) and who made it (unique id).

Pure: time, process and address are passed in. Layouts, each written as upper-case hexadecimal:

    offset id   store host (8 or 20 bytes) | physical offset i64
    unique id   ip (4 or 16) | process id u16 | token (4) | ms since the month began u32 | counter u16
"""

from __future__ import annotations

import itertools
import struct
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta, tzinfo
from functools import lru_cache
from typing import Final

from orbitmq.errors import MessageIllegal
from orbitmq.message.hosts import HOST_V4_SIZE, HOST_V6_SIZE, HOSTS_REMEMBERED, decode_host

OFFSET_ID_SIZES: Final = (HOST_V4_SIZE + 8, HOST_V6_SIZE + 8)
UNIQUE_ID_SIZES: Final = (4 + 12, 16 + 12)
UNIQUE_ID_TAIL: Final = struct.Struct(">H4sIH")
CLOCK_STEP_BACK_MAX_MS: Final = 1_000_000  # RocketMQ writes 0 for a clock that was set back by less than this


@dataclass(frozen=True, slots=True)
class OffsetMessageId:
    """Broker address and place in its commit log."""

    host: str
    port: int
    physical_offset: int


@dataclass(frozen=True, slots=True)
class UniqueId:
    """The parts of a unique id; `created_ms` is absolute."""

    ip: bytes
    pid: int
    token: bytes
    created_ms: int
    counter: int


def offset_message_id(store_host: bytes, physical_offset: int) -> str:
    """32 characters for an IPv4 broker, 56 for IPv6."""
    return _host_digits(store_host) + "%016X" % (physical_offset & 0xFFFFFFFFFFFFFFFF)


def offset_message_ids(store_host: bytes, physical_offsets: Sequence[int]) -> str:
    """The ids of many messages, joined by commas."""
    digits = _host_digits(store_host)
    offsets = struct.pack(f">{len(physical_offsets)}q", *physical_offsets).hex(",", 8).upper()
    return digits + offsets.replace(",", "," + digits)


@lru_cache(HOSTS_REMEMBERED)
def _host_digits(store_host: bytes) -> str:
    """A broker writes the same host into each of its messages, so its digits are made once."""
    return store_host.hex().upper()


def decode_offset_message_id(text: str) -> OffsetMessageId:
    """MessageIllegal when `text` is not an offset id."""
    data = _from_hex(text, OFFSET_ID_SIZES, "an offset message id")
    host, port = decode_host(data[:-8])
    return OffsetMessageId(host, port, int.from_bytes(data[-8:], "big", signed=True))


class UniqueIds:
    """Makes the unique ids of one process. `zone` is the time zone the month begins in; None is the machine's."""

    def __init__(self, ip: bytes, pid: int, token: bytes, zone: tzinfo | None = None) -> None:
        assert len(token) == 4, "the token field has four bytes"
        self._prefix = (ip + struct.pack(">H4s", pid & 0xFFFF, token)).hex().upper()
        self._zone = zone
        self._counter = itertools.count()
        self._month_ms = self._next_month_ms = 0

    def create(self, now_ms: int) -> str:
        """The next id. Ids of one object differ unless 65,536 are made within a millisecond."""
        if not self._month_ms - CLOCK_STEP_BACK_MAX_MS < now_ms < self._next_month_ms:
            self._month_ms, self._next_month_ms = month_bounds_ms(now_ms, self._zone)
        elapsed = max(now_ms - self._month_ms, 0)
        return f"{self._prefix}{elapsed:08X}{next(self._counter) & 0xFFFF:04X}"


def decode_unique_id(text: str, now_ms: int, zone: tzinfo | None = None) -> UniqueId:
    """The parts of a unique id made at most a month before `now_ms`; MessageIllegal if `text` is none."""
    data = _from_hex(text, UNIQUE_ID_SIZES, "a unique message id")
    pid, token, elapsed, counter = UNIQUE_ID_TAIL.unpack(data[-UNIQUE_ID_TAIL.size :])
    month_ms, _ = month_bounds_ms(now_ms, zone)
    if month_ms + elapsed > now_ms:
        month_ms, _ = month_bounds_ms(month_ms - 1, zone)
    return UniqueId(data[: -UNIQUE_ID_TAIL.size], pid, token, month_ms + elapsed, counter)


def month_bounds_ms(now_ms: int, zone: tzinfo | None) -> tuple[int, int]:
    """First millisecond of the month of `now_ms` and of the month after it."""
    now = datetime.fromtimestamp(now_ms / 1000, zone)
    first = now.replace(day=1, hour=0, minute=0, second=0, microsecond=0, fold=0)
    following = (first + timedelta(days=32)).replace(day=1)  # no month has 32 days
    return _epoch_ms(first), _epoch_ms(following)


def _epoch_ms(moment: datetime) -> int:
    return int(moment.timestamp()) * 1000


def _from_hex(text: str, sizes: tuple[int, int], what: str) -> bytes:
    try:
        data = bytes.fromhex(text)
    except ValueError:
        data = b""
    if len(data) not in sizes or len(text) != 2 * len(data):
        raise MessageIllegal(f"{text!r} is not {what}")
    return data
