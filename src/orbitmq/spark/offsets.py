"""Computes where to start and to end in each queue, from options and the offsets of brokers. Pure and deterministic.

Offsets in an option are JSON topic -> broker -> queue -> offset. For a topic on one broker the broker level may be left
out, as in Spark's Kafka source. -2 means earliest, -1 latest.
"""

from __future__ import annotations

import json
import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.spark.fetch import data_loss, queue_name

LOG = logging.getLogger(__name__)

EARLIEST = -2
LATEST = -1

Offsets = Mapping[MessageQueue, int]
Bounds = Mapping[MessageQueue, tuple[int, int]]  # first offset that can be read, next offset to be written


def parse_offsets(
    option: str, text: str, queues: Iterable[MessageQueue], *, strict: bool, names: Namespace = NO_NAMESPACE
) -> Offsets:
    """The offsets or times in the text of an option, which names topics without their namespace.

    SourceError for an invalid text. Queues that do not exist are an error when `strict`, and skipped otherwise.
    """
    known = frozenset(queues)
    brokers: dict[str, set[str]] = defaultdict(set)
    for queue in known:
        brokers[queue.topic].add(queue.broker_name)
    offsets: dict[MessageQueue, int] = {}
    for topic, level in _object(option, text).items():
        name = names.wrap(topic)
        for queue, offset in _queue_offsets(option, name, level, sorted(brokers.get(name, ()))):
            if queue in known:
                offsets[queue] = offset
            elif strict:
                raise data_loss(f"option {option}: {queue_name(queue)} does not exist")
            else:
                LOG.warning("event=queue_missing option=%s queue=%s", option, queue)
    return offsets


def listed_offsets(option: str, text: str, names: Namespace = NO_NAMESPACE) -> Offsets:
    """All offsets in the text of an option, whether their queues exist or not: topic -> broker -> queue -> offset."""
    return {
        queue: offset
        for topic, level in _object(option, text).items()
        for queue, offset in _queue_offsets(option, names.wrap(topic), level, [*level])
    }


def _object(option: str, text: str) -> dict[str, Any]:
    try:
        value = json.loads(text)
    except ValueError:
        value = None
    if not isinstance(value, dict):
        raise _bad(option, f"{text!r} is neither a keyword nor JSON topic -> broker -> queue -> offset")
    return value


def _queue_offsets(option: str, topic: str, level: Any, brokers: list[str]) -> list[tuple[MessageQueue, int]]:
    if not brokers:
        raise _bad(option, f"topic {topic} is not read here")
    if isinstance(level, dict) and not any(isinstance(below, dict) for below in level.values()):
        if len(brokers) > 1:
            raise _bad(option, f"topic {topic} is on {', '.join(brokers)}; add the broker level above the queues")
        level = {brokers[0]: level}
    try:
        return [
            (MessageQueue(topic, broker, int(queue_id)), _offset(offset))
            for broker, queues in level.items()
            for queue_id, offset in queues.items()
        ]
    except (AttributeError, TypeError, ValueError):
        raise _bad(option, f"the offsets of topic {topic} are not broker -> queue -> offset") from None


def _offset(value: Any) -> int:
    if type(value) is not int or value < EARLIEST:
        raise ValueError
    return value


def starts(given: Offsets, bounds: Bounds, *, strict: bool) -> dict[MessageQueue, int]:
    """The first offset to read of each queue. With `strict` an offset that the broker does not have is an error."""
    offsets = {}
    for queue, (low, high) in bounds.items():
        wanted = given.get(queue, EARLIEST)
        offsets[queue] = {EARLIEST: low, LATEST: high}.get(wanted, wanted)
        if not low <= offsets[queue] <= high:
            lost = f", {low - wanted} messages lost" if wanted < low else ""
            text = f"{queue_name(queue)}: cannot start at {wanted}, the broker has {low} to {high}{lost}"
            if strict:
                raise data_loss(text)
            LOG.warning("event=data_loss begins_at=%d text=%s", low, text)
            offsets[queue] = low
    return offsets


def ends(given: Offsets, bounds: Bounds, *, strict: bool) -> dict[MessageQueue, int]:
    """The offset before which to stop, of each queue."""
    offsets = {}
    for queue, (low, high) in bounds.items():
        wanted = given.get(queue, LATEST)
        if wanted == EARLIEST:
            raise _bad("endingOffsets", "a batch cannot end at earliest")
        offsets[queue] = high if wanted == LATEST else wanted
        if wanted > high:
            text = f"{queue_name(queue)}: cannot end at {wanted}, the broker has {low} to {high}"
            if strict:
                raise data_loss(text)
            LOG.warning("event=data_loss ends_at=%d text=%s", high, text)
            offsets[queue] = high
    return offsets


def _bad(option: str, text: str) -> SourceError:
    return SourceError("ORBITMQ_BAD_OPTION", f"option {option}: {text}")
