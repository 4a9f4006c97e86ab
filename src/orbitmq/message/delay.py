"""The table of delay levels: `1s 5s 10s ... 2h`, level 1 first. Pure."""

from __future__ import annotations

import re

from orbitmq.errors import ConfigurationError

DEFAULT_DELAY_LEVELS = "1s 5s 10s 30s 1m 2m 3m 4m 5m 6m 7m 8m 9m 10m 20m 30m 1h 2h"
UNIT_MS = {"s": 1000, "m": 60_000, "h": 3_600_000, "d": 86_400_000}
LEVEL = re.compile(r"(\d+)([smhd])")
UNKNOWN_LEVEL_DELAY_MS = 1000  # what RocketMQ waits for a level its table does not have


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
