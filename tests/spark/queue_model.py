"""A queue that answers pulls as RocketMQ's brokers do (statuses, limits, offsets), without a network."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from orbitmq.message.hosts import encode_host
from orbitmq.message.unit import Unit, body_crc, encode_unit, store_timestamp_of
from orbitmq.spark.fetch import PullResponse
from orbitmq.wire.codes import ResponseCode

EXAMINED_MAX = 800  # index entries a filtered pull looks at, as in RocketMQ
HOST = encode_host("127.0.0.1", 10911)
STORED_AT = 1_700_000_000_000  # of the message with offset 0; each later one is stored a second later


def stored_unit(
    offset: int,
    tag: str | None = None,
    *,
    topic: str = "orders",
    store_timestamp: int | None = None,
    queue_id: int = 0,
    body: bytes | None = None,
) -> bytes:
    """The unit at `offset` of a model queue."""
    body = b"body %d" % offset if body is None else body
    properties = f"UNIQ_KEY\x01ID{offset}" + (f"\x02TAGS\x01{tag}" if tag else "")
    at = STORED_AT + 1000 * offset if store_timestamp is None else store_timestamp
    return encode_unit(
        Unit(
            0,
            body_crc(body),
            queue_id,
            0,
            offset,
            offset * 100,
            0,
            at - 5,
            HOST,
            at,
            HOST,
            0,
            0,
            body,
            topic,
            properties,
        )
    )


@dataclass
class QueueModel:
    """Messages with offsets `low`, `low + 1`, ... and these tags; `cap` limits the messages of one answer."""

    low: int
    tags: Sequence[str | None]
    cap: int = 32

    @property
    def high(self) -> int:
        return self.low + len(self.tags)

    def units(self, start: int, end: int, wanted: str | None = None) -> list[bytes]:
        """The messages from `start` to before `end` that have the tag."""
        offsets = range(max(start, self.low), min(end, self.high))
        return [
            stored_unit(offset, self.tags[offset - self.low])
            for offset in offsets
            if wanted is None or self.tags[offset - self.low] == wanted
        ]

    def nearest(self, timestamp: int) -> int:
        """What brokers before 5.2 find for a time: the message stored nearest to it."""
        times = [store_timestamp_of(unit) for unit in self.units(self.low, self.high)]
        return self.low + min(range(len(times)), key=lambda number: abs(times[number] - timestamp), default=0)

    def pull(self, offset: int, count: int, wanted: str | None = None) -> PullResponse:
        """The answer to a pull of `count` messages at `offset` with one tag or none as filter."""
        if offset < self.low:
            return self._answer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_TOO_SMALL", self.low)
        if offset == self.high:
            return self._answer(ResponseCode.PULL_NOT_FOUND, "OFFSET_OVERFLOW_ONE", offset)
        if offset > self.high:
            return self._answer(ResponseCode.PULL_OFFSET_MOVED, "OFFSET_OVERFLOW_BADLY", self.high)
        found: list[bytes] = []
        at = offset
        while at < min(self.high, offset + EXAMINED_MAX) and len(found) < min(count, self.cap):
            found += self.units(at, at + 1, wanted)
            at += 1
        if not found:
            return self._answer(ResponseCode.PULL_RETRY_IMMEDIATELY, "NO_MATCHED_MESSAGE", at)
        return self._answer(ResponseCode.SUCCESS, "FOUND", at, b"".join(found))

    def _answer(self, code: ResponseCode, remark: str, next_offset: int, body: bytes = b"") -> PullResponse:
        return PullResponse(code, remark, next_offset, self.low, self.high, body)
