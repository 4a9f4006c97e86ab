"""Decides which pulls to send for some ranges of queues of one broker, and returns the units range by range, in queue
order.

The ranges are cut into lanes of consecutive offsets. Several lanes are active at a time, each with one pull in flight:
those of the next ranges, too, so that short ranges need not wait for each other. Brokers limit messages and bytes of a
pull: the first response shows how many messages one has, and lanes are as long, so that bodies come in the order in
which they are returned, that of the lanes. After a shorter response (filters leave gaps) the lane pulls again. Pure: no
socket, no clock.
"""

from __future__ import annotations

import struct
from collections import deque
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from itertools import islice

from orbitmq.errors import SourceError, UnitError
from orbitmq.message.model import MessageQueue
from orbitmq.wire.codes import ResponseCode

Buffer = bytes | memoryview

LANE_MIN = 32  # messages: what a broker of RocketMQ returns by default, fewer of a backlog that is not in its memory
FILTERED_LANE = 800  # index entries a broker looks at for one filtered pull; shorter lanes would repeat its work
HELD_SIZE_MAX = 64 << 20  # bytes waiting for an earlier lane; beyond it only the first lane pulls

# Position of size and queue offset in a unit, which do not depend on other fields.
SIZE = struct.Struct(">i")
QUEUE_OFFSET = struct.Struct(">q")
QUEUE_OFFSET_AT = 20


@dataclass(frozen=True)
class OffsetRange:
    """The messages of one queue from offset `start` to before `end`."""

    queue: MessageQueue
    start: int
    end: int

    def __len__(self) -> int:
        return self.end - self.start

    def __str__(self) -> str:
        return queue_name(self.queue)


def queue_name(queue: MessageQueue) -> str:
    """The queue in the words of errors and logs."""
    return f"queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"


@dataclass(frozen=True)
class PullResponse:
    """The response to a pull, reduced to what a reader needs."""

    code: int
    remark: str
    next_offset: int
    min_offset: int
    max_offset: int
    body: Buffer


Piece = tuple[OffsetRange, Buffer]
"""Whole units of a range."""


@dataclass
class Lane:
    """Consecutive offsets of a range that are pulled one after another. `at` is the next offset to pull."""

    range: OffsetRange
    at: int
    end: int
    in_flight: bool = False
    bodies: list[Buffer] = field(default_factory=list)

    @property
    def done(self) -> bool:
        return self.at >= self.end


class RangeFetch:
    """The state of fetching some ranges.

    Send a pull for each lane of `wanted()`, pass each response to `on_response`, and take pieces with `ready()` until
    `finished`. After a lost connection call `restart()` and continue; received bodies are kept. With `strict` a gap in
    an unfiltered range is an error, otherwise it is skipped.
    """

    def __init__(
        self, ranges: Iterable[OffsetRange], *, batch_size: int, pipeline: int, filtered: bool, strict: bool
    ) -> None:
        self._batch_size = batch_size
        self._pipeline = pipeline
        self._filtered = filtered
        self._strict = strict
        self._lane_size = max(FILTERED_LANE, batch_size) if filtered else batch_size
        self._coming = self._cut(ranges)
        self._is_first = not filtered  # one lane shows how many messages a pull returns, before others are cut
        self._lanes = deque(islice(self._coming, 1 if self._is_first else pipeline))
        self._ready: list[Piece] = []
        self._held = 0  # bytes in the bodies of all lanes and in those that are ready

    @property
    def finished(self) -> bool:
        return not self._lanes

    @property
    def current(self) -> OffsetRange:
        """The range whose units are next. Only while there are more."""
        return self._lanes[0].range

    def wanted(self) -> list[Lane]:
        """Lanes to send a pull for now. They count as in flight from this call on."""
        askable = list(self._lanes) if self._held < HELD_SIZE_MAX else list(self._lanes)[:1]
        lanes = [lane for lane in askable if not lane.in_flight and not lane.done]
        for lane in lanes:
            lane.in_flight = True
        return lanes

    def count_for(self, lane: Lane) -> int:
        """The number of messages to request in the pull of `lane`."""
        return min(self._batch_size, lane.end - lane.at)

    def restart(self) -> None:
        """Forget the pulls in flight, whose responses will not come."""
        for lane in self._lanes:
            lane.in_flight = False

    def ready(self) -> list[Piece]:
        """The next units, range by range and in queue order."""
        pieces, self._ready = self._ready, []
        self._held -= sum(len(body) for _, body in pieces)
        return pieces

    def on_response(self, lane: Lane, response: PullResponse) -> None:
        """Process the response to the pull of `lane`. SourceError when the range cannot be read completely."""
        lane.in_flight = False
        if response.code == ResponseCode.SUCCESS:
            self._require_progress(lane, response)
            if not self._filtered:
                self._learn(lane, response)
            body = response.body if response.next_offset <= lane.end else units_before(response.body, lane.end)
            if body:
                lane.bodies.append(body)
                self._held += len(body)
            lane.at = response.next_offset
        elif response.code == ResponseCode.PULL_RETRY_IMMEDIATELY and self._filtered:
            self._require_progress(lane, response)
            lane.at = response.next_offset
        elif response.code in GAPS:
            self._step_over(lane, response)
        else:
            raise refused(str(lane.range), response.code, response.remark)
        self._is_first = False
        self._advance()

    def _advance(self) -> None:
        """Move the bodies of the first lane to the ready ones, and drop lanes that are done."""
        while self._lanes:
            first = self._lanes[0]
            self._ready += [(first.range, body) for body in first.bodies]
            first.bodies = []
            if not first.done:
                break
            self._lanes.popleft()
        self._lanes += islice(self._coming, self._pipeline - len(self._lanes))

    def _cut(self, ranges: Iterable[OffsetRange]) -> Iterator[Lane]:
        """The lanes of ranges, in their order."""
        for range_ in ranges:
            at = range_.start
            while at < range_.end:
                lane = Lane(range_, at, min(at + self._lane_size, range_.end))
                yield lane
                at = lane.end  # which may have moved by now

    def _learn(self, lane: Lane, response: PullResponse) -> None:
        """Make lanes as long as what one pull returns."""
        found = response.next_offset - lane.at
        if LANE_MIN <= found < self._lane_size and response.next_offset < min(lane.end, response.max_offset):
            self._lane_size = found
            if self._is_first:  # no lane was cut behind it yet
                lane.end = response.next_offset

    def _step_over(self, lane: Lane, response: PullResponse) -> None:
        """Skip messages that were deleted since the read was planned, or fail."""
        found = response.next_offset if lane.at < response.next_offset < lane.end else lane.end
        if self._strict:
            wanted = lane.range
            below = max(min(response.min_offset, wanted.end) - lane.at, 0)
            above = max(wanted.end - max(response.max_offset, wanted.start), 0)
            lost = below + above or found - lane.at
            raise data_loss(
                f"{wanted}: offset {lane.at} is gone, the broker has {response.min_offset} to "
                f"{response.max_offset}; {lost} messages before offset {wanted.end} are lost"
            )
        lane.at = found

    def _require_progress(self, lane: Lane, response: PullResponse) -> None:
        if response.next_offset <= lane.at:
            raise refused(
                str(lane.range), response.code, f"a pull at {lane.at} returned the next offset {response.next_offset}"
            )


GAPS = (ResponseCode.PULL_NOT_FOUND, ResponseCode.PULL_RETRY_IMMEDIATELY, ResponseCode.PULL_OFFSET_MOVED)


def units_before(body: Buffer, end: int) -> Buffer:
    """The leading units whose queue offset is below `end`."""
    at = 0
    try:
        while at < len(body) and QUEUE_OFFSET.unpack_from(body, at + QUEUE_OFFSET_AT)[0] < end:
            size = SIZE.unpack_from(body, at)[0]
            if size <= 0:
                raise UnitError(f"no message unit at {at}")
            at += size
    except struct.error:
        raise UnitError(f"the unit at {at} is truncated") from None
    return body[:at]


def data_loss(text: str) -> SourceError:
    """The error for messages that should be there and are not."""
    return SourceError("ORBITMQ_DATA_LOSS", f"{text}; set failOnDataLoss=false to read what is left")


# Error names for the codes of a rejected request.
REFUSALS = {
    ResponseCode.NO_PERMISSION: "ORBITMQ_NO_PERMISSION",
    ResponseCode.TOPIC_NOT_EXIST: "ORBITMQ_TOPIC_NOT_FOUND",
    ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST: "ORBITMQ_GROUP_MISSING",
    ResponseCode.SUBSCRIPTION_PARSE_FAILED: "ORBITMQ_BAD_OPTION",
}

ACCESS_DENIED = "AclException"  # how both kinds of brokers begin the remark for a missing permission


def refused(what: str, code: int, remark: str) -> SourceError:
    """The error for a request that a broker or name server rejected. Common reasons have a name of their own."""
    name = {int(known): name for known, name in REFUSALS.items()}.get(code, "ORBITMQ_BROKER_REFUSED")
    if ACCESS_DENIED in remark:  # with the code of any error
        name = "ORBITMQ_NO_PERMISSION"
    if "SQL92" in remark:
        remark += "; set filterSide=task to filter without the broker, or enablePropertyFilter on the broker"
    return SourceError(name, f"{what}: code {code}, {remark}")
