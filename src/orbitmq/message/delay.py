"""The table of delay levels: `1s 5s 10s ... 2h`, level 1 first; and where a message goes that waited. Pure."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Final

from orbitmq.errors import ConfigurationError
from orbitmq.message.properties import REAL_QID, REAL_TOPIC
from orbitmq.message.topics import HALF_TOPIC, TIMER_TOPIC

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LEVEL = re.compile(r"(\d+)([smhd])")
UNKNOWN_LEVEL_DELAY_MS = 1000  # what RocketMQ waits for a level its table does not have
QUEUE_ID_MAX: Final = (1 << 31) - 1  # a unit has four bytes for it, with a sign
QUEUE_DIGITS_MAX: Final = 10


def parse_delay_levels(text: str) -> tuple[int, ...]:
    """Milliseconds of each level, level 1 at index 0. ConfigurationError for anything but `<number><s|m|h|d>`."""
    levels = []
    for word in text.split(" "):
        match = LEVEL.fullmatch(word)
        if match is None:
            raise ConfigurationError(f"delay level {word!r} of {text!r}: write a number and one of s, m, h, d")
        levels.append(int(match[1]) * UNIT_MS[match[2]])
    return tuple(levels)


def delivery_timestamp(levels: tuple[int, ...], level: int, store_timestamp: int) -> int:
    """When a message stored at `store_timestamp` is due."""
    known = 1 <= level <= len(levels)
    return store_timestamp + (levels[level - 1] if known else UNKNOWN_LEVEL_DELAY_MS)


def real_place(get: Callable[[str], str | None]) -> tuple[str, int] | None:
    """Topic and queue of a message that waits, by its properties; None when it names none where it belongs."""
    topic, number = get(REAL_TOPIC) or "", get(REAL_QID) or ""
    if topic in ("", HALF_TOPIC, TIMER_TOPIC) or not number.isdecimal() or len(number) > QUEUE_DIGITS_MAX:
        return None
    queue_id = int(number)
    return (topic, queue_id) if queue_id <= QUEUE_ID_MAX else None
