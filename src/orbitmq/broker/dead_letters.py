"""What a message keeps of its properties on its way to a retry or to the dead letters, when they have no room for all.

A message may fill them to the last byte, and the place where it came from has to be written somewhere: then what
retries have added goes first, and what its sender has written stays. Pure.
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
    """Everything, then without what a retry can do without."""
    yield dict(properties)
    yield _without(properties, SPARE)


def for_grave(properties: Mapping[str, str]) -> Iterator[dict[str, str]]:
    """Everything, then without what a dead letter can do without, then without the topic it came from. The last fits
    whatever there is: what is no text grows when it is made one.
    """
    yield dict(properties)
    yield _without(properties, {*SPARE, DELAY})
    yield _without(properties, {*SPARE, DELAY, RETRY_TOPIC})
    kept = (UNIQ_KEY, RETRY_TOPIC, ORIGIN_MESSAGE_ID)
    yield {name: value for name, value in properties.items() if name in kept and len(value) <= KEPT_LENGTH_MAX}


def _without(properties: Mapping[str, str], names: frozenset[str] | set[str]) -> dict[str, str]:
    return {name: value for name, value in properties.items() if name not in names}
