"""Reads ranges of queues from a broker: sends the pulls of `orbitmq.spark.fetch` over one channel, and fails over to
another address of the broker when the connection breaks. Knows no Arrow or Spark."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

from orbitmq.errors import FrameError, HeaderError, RemotingError, SendRequestError, SourceError
from orbitmq.message.config import SUBSCRIBE_ALL, TAG
from orbitmq.message.flags import pull_flag
from orbitmq.message.model import MessageQueue
from orbitmq.spark.channel import PLAIN, Channel, Protection
from orbitmq.spark.fetch import GAPS, Buffer, Lane, OffsetRange, Piece, PullResponse, RangeFetch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import PullMessageHeader, PullMessageResponseHeader
from orbitmq.wire.requests import RequestCode

BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
BUSY_PAUSE_S = 0.1
BUSY_MAX = 100  # responses in a row: ten seconds with the pauses, then the task fails and Spark decides
BROKEN = (RemotingError, FrameError, HeaderError)


@dataclass(frozen=True)
class FetchSettings:
    """How ranges are pulled: the options of a read that a task needs."""

    group: str
    expression: str
    """Filter expression for the broker. `*` is no filter."""
    batch_size: int
    pipeline: int
    timeout_ms: int
    strict: bool
    protection: Protection = PLAIN
    kind: str = TAG
    """Of the expression: TAG or SQL92."""

    @property
    def filtered(self) -> bool:
        return self.expression != SUBSCRIBE_ALL


class RangeReader:
    """Ranges read from the `addresses` of their broker, the preferred one first, over one connection."""

    def __init__(
        self,
        wanted: Iterable[OffsetRange],
        addresses: tuple[str, ...],
        settings: FetchSettings,
        *,
        pause: Callable[[float], None] = time.sleep,
    ) -> None:
        self._addresses = addresses
        self._settings = settings
        self._pause = pause
        self._fetch = RangeFetch(
            wanted,
            batch_size=settings.batch_size,
            pipeline=settings.pipeline,
            filtered=settings.filtered,
            strict=settings.strict,
        )
        self._failures = 0  # connections lost since the last useful response
        self._busy = 0  # responses in a row that said the broker is busy
        self._behind: set[str] = set()  # addresses that end before a range does

    def pieces(self) -> Iterator[list[Piece]]:
        """Runs of units, range by range and in the order of the queue, as responses come. SourceError when a range
        cannot be read."""
        while not self._fetch.finished:
            usable = [one for one in self._addresses if one not in self._behind] or self._addresses
            address = usable[self._failures % len(usable)]
            try:
                with Channel(address, self._settings.timeout_ms, self._settings.protection) as channel:
                    yield from self._drain(channel)
            except BROKEN as error:
                self._failures += 1
                self._fetch.restart()
                if self._failures > len(self._addresses):  # the first address was tried twice
                    raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"{self._fetch.current}: {error}") from error

    def _drain(self, channel: Channel) -> Iterator[list[Piece]]:
        """Pull until the ranges are complete; the next pulls are in flight while the caller processes a result."""
        in_flight: dict[int | None, Lane] = {}
        self._send_pulls(channel, in_flight)
        while in_flight:
            for response, body in channel.receive():
                lane = in_flight.pop(response.opaque, None)
                if lane is not None:
                    self._take(channel.address, lane, response, body)
            self._send_pulls(channel, in_flight)  # one write for all: writing costs more than anything else here
            if pieces := self._fetch.ready():
                yield pieces

    def _take(self, address: str, lane: Lane, response: Command, body: Buffer) -> None:
        if response.code in BUSY:
            self._wait_for_busy_broker(lane, response)
        else:
            self._busy = 0
            pulled = _pull_response(response, body)
            if pulled.code in GAPS and pulled.max_offset < lane.end:
                self._require_all_behind(address, pulled)
            self._fetch.on_response(lane, pulled)
            self._failures = 0

    def _require_all_behind(self, address: str, response: PullResponse) -> None:
        """SendRequestError, for the next address, unless none has more: a slave may be behind."""
        self._behind.add(address)
        if not self._behind.issuperset(self._addresses):
            raise SendRequestError(f"{address} ends at offset {response.max_offset}: it may be a slave that is behind")

    def _send_pulls(self, channel: Channel, in_flight: dict[int | None, Lane]) -> None:
        lanes = self._fetch.wanted()
        if lanes:
            pulls = [self._pull(lane) for lane in lanes]
            in_flight.update(zip([pull.opaque for pull in pulls], lanes, strict=True))
            channel.send(pulls)

    def _pull(self, lane: Lane) -> Command:
        settings = self._settings
        return pull_request(
            lane.range.queue,
            lane.at,
            self._fetch.count_for(lane),
            settings.group,
            settings.expression,
            settings.kind,
        )

    def _wait_for_busy_broker(self, lane: Lane, response: Command) -> None:
        lane.in_flight = False
        self._busy += 1
        if self._busy > BUSY_MAX:
            text = f"{lane.range}: the broker stays busy: code {response.code}, {response.remark}"
            raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", text)
        self._pause(BUSY_PAUSE_S)


def pull_request(queue: MessageQueue, offset: int, count: int, group: str, expression: str, kind: str = TAG) -> Command:
    """A pull with its own subscription, so that the group needs no registered consumer. Never a long poll."""
    header = PullMessageHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        queue_offset=offset,
        max_msg_nums=count,
        sys_flag=pull_flag(commit_offset=False, suspend=False, subscription=True, class_filter=False),
        commit_offset=0,
        suspend_timeout_millis=0,
        sub_version=0,
        subscription=expression,
        expression_type=kind,
        broker_name=queue.broker_name,
        bulk=True,
    )
    return request(RequestCode.PULL_MESSAGE, header)


POSITIONED = (
    ResponseCode.SUCCESS,
    ResponseCode.PULL_NOT_FOUND,
    ResponseCode.PULL_RETRY_IMMEDIATELY,
    ResponseCode.PULL_OFFSET_MOVED,
)


def _pull_response(response: Command, body: Buffer) -> PullResponse:
    """HeaderError when offsets are missing where the code requires them."""
    remark = response.remark or ""
    if response.code not in POSITIONED:
        return PullResponse(response.code, remark, 0, 0, 0, b"")
    header = response.header(PullMessageResponseHeader)
    return PullResponse(response.code, remark, header.next_begin_offset, header.min_offset, header.max_offset, body)
