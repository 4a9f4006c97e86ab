"""Which properties a message keeps on its way to a retry or dead letter topic when there is no room for all of them.

A message may have the maximum size of properties already, and its origin must be added. Properties that retries have
added are dropped first; those of the sender stay. Pure.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final

from orbitmq.message.properties import (
    DELAY,
    MAX_RECONSUME_TIMES,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    UNIQ_KEY,
    WAIT,
)

SPARE: Final = frozenset((ORIGIN_MESSAGE_ID, WAIT, REAL_TOPIC, REAL_QID, RECONSUME_TIME, MAX_RECONSUME_TIMES))
KEPT_LENGTH_MAX: Final = (
    1000  # characters, of four bytes at most: three of them fit, and are longer than any honest one
)


def for_retry(properties: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """All properties, then without those that a retry does not need."""
    yield dict(properties)
    yield _without(properties, SPARE)


def for_grave(properties: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """All properties, then without those that a dead letter does not need, then without the original topic. The last
    always fits: bytes that are no UTF-8 grow when they are decoded.
    """
    yield dict(properties)
    yield _without(properties, {*SPARE, DELAY})
    yield _without(properties, {*SPARE, DELAY, RETRY_TOPIC})
    kept = (UNIQ_KEY, RETRY_TOPIC, ORIGIN_MESSAGE_ID)
    yield {name: value for name, value in properties.items() if name in kept and len(value) <= KEPT_LENGTH_MAX}


def _without(properties: Mapping[str, str], names: frozenset[str] | set[str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in names}
