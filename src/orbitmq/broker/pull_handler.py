"""PULL_MESSAGE: checks, the read, the response, and holding a pull that found nothing.

`orbitmq.broker.pull_selection` decides which messages of the queue match.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from functools import partial
from typing import Final

from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.groups import Groups
from orbitmq.broker.held_pulls import HeldPull, HeldPulls
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.pull_selection import PullSelection
from orbitmq.broker.resumption import Resumption
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected
from orbitmq.message.flags import PERM_READ, PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.javajson import dumps
from orbitmq.message.model import MASTER_ID
from orbitmq.message.properties import KEYS, TAGS, encode_properties
from orbitmq.message.topics import OFFSET_MOVED_TOPIC, TOPIC_LENGTH_MAX
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.engine import MessageStore
from orbitmq.store.positions import QueueOffset
from orbitmq.store.pull_batch import GetResult, GetStatus, Selection
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutRecord, PutResult
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import LANGUAGE, Command
from orbitmq.wire.headers import PullMessageHeader
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

SCAN_SECONDS = 5.0  # how often held pulls are looked over, as in RocketMQ
AT_MASTER = str(MASTER_ID)  # where the next pull should go while reads from slaves are off

# Characters of its own expression for which a held pull counts as one more. Compiled, one of SQL92 takes up to 350
# bytes a character, one of tags 45: the longest allowed take 1.4 MB. Those of most clients are shorter than a share.
EXPRESSION_SHARE: Final = 16

# Result of a read -> response code. An empty or unknown queue depends on the requested offset.
_CODES = {
    GetStatus.FOUND: ResponseCode.SUCCESS,
    GetStatus.NO_MATCHED_MESSAGE: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.MESSAGE_WAS_REMOVING: ResponseCode.PULL_RETRY_IMMEDIATELY,
    GetStatus.OFFSET_FOUND_NULL: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_ONE: ResponseCode.PULL_NOT_FOUND,
    GetStatus.OFFSET_OVERFLOW_BADLY: ResponseCode.PULL_OFFSET_MOVED,
    GetStatus.OFFSET_TOO_SMALL: ResponseCode.PULL_OFFSET_MOVED,
}
_REMARKS = {status: status.name for status in GetStatus}
_CORRECTED = frozenset(GetStatus) - {GetStatus.FOUND, GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING}
FETCHES_MAX: Final = 2  # of pages that are not in memory, for one pull: queue entries, then messages
_NOT_YET = (GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.NO_MESSAGE_IN_QUEUE)  # at a slave, which may be behind
_EMPTY = (GetStatus.NO_MESSAGE_IN_QUEUE, GetStatus.NO_MATCHED_LOGIC_QUEUE)


class PullHandler:
    """The handler of pulls."""

    def __init__(
        self,
        store: MessageStore,
        topics: Topics,
        groups: Groups,
        selecting: PullSelection,
        offsets: ConsumerOffsets,
        options: BrokerOptions,
        clock: Clock,
        statistics: Statistics,
        resumption: Resumption,
        cold: ColdReads,
        timer: Callable[[], float] = time.perf_counter,
        refusals: Refusals | None = None,
    ) -> None:
        self.store_host = b""  # known when the port is
        self._failed = Router().failed
        self._store = store
        self._topics = topics
        self._groups = groups
        self._selecting = selecting
        self._offsets = offsets
        self._options = options
        self._clock = clock
        self._statistics = statistics
        self._resumption = resumption
        self._cold = cold
        self._timer = timer
        self._is_slave = store.options.is_slave
        self._corrects = not store.options.is_slave or store.options.offset_check_in_slave
        self.held = HeldPulls(
            self._rerun,
            lambda wake: asyncio.get_running_loop().call_soon(wake),
            lambda delay, wake: asyncio.get_running_loop().call_later(delay, wake),
            time.monotonic,
            self._unit,
            refusals=refusals,
        )

    def add_to(self, router: Router) -> None:
        router.add((RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE), self.pull)
        self._failed = router.failed

    def pull(self, connection: Connection, command: Command) -> Command | None:
        """First run of a pull: commits the offset it carries, and may hold it."""
        return self._pull(FETCHES_MAX, connection, command)

    def _pull(self, fetches: int, connection: Connection, command: Command) -> Command | None:
        """Up to `fetches` times what it reads is brought into memory first: queue entries, then what they lead to."""
        header = command.header(PullMessageHeader)
        wanted = self._check(header)
        if self._resumption.is_on and (moved := self._moved(connection, header)) is not None:
            return self._answer(command, header, moved, ResponseCode.PULL_OFFSET_MOVED)
        commit_offset = self._offset_to_commit(connection, header)
        if fetches == FETCHES_MAX and header.sys_flag & PULL_SUSPEND and self.held.gathers(header.topic):
            available = self._store.max_offset(header.topic, header.queue_id) - header.queue_offset
            if 0 < available < header.max_msg_nums and self._hold(connection, command, header, wanted, gathered=True):
                self._commit(header, commit_offset)
                return None
        absent = (
            self._store.absent_entries(header.topic, header.queue_id, header.queue_offset, wanted) if fetches else []
        )
        result = None if absent else self._read(connection, header, wanted)
        # Not when it runs again: the group may have committed more since.
        if fetches == FETCHES_MAX:
            self._commit(header, commit_offset)
        if result is None:
            self._cold.serve_later(connection, command, absent, partial(self._pull, fetches - 1))
            return None
        code = _code_of(result, header.queue_offset)
        comes_later = code == ResponseCode.PULL_NOT_FOUND or (not self._corrects and result.status in _NOT_YET)
        may_wait = comes_later and header.sys_flag & PULL_SUSPEND
        if may_wait and self._hold(connection, command, header, wanted):
            return None
        if code == ResponseCode.SUCCESS and header.sys_flag & PULL_SUSPEND:
            self.held.note_reads(header.topic, 1)
        answer = self._answer(command, header, result, code)
        if result.places and (absent := self._store.absent_units(result)):
            self._cold.serve_later(connection, command, absent, lambda _connection, _command: answer)
            return None
        return answer

    def _commit(self, header: PullMessageHeader, offset: int) -> None:
        if header.sys_flag & PULL_COMMIT_OFFSET and not self._is_slave:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, offset)

    def _hold(
        self,
        connection: Connection,
        command: Command,
        header: PullMessageHeader,
        wanted: Selection,
        *,
        gathered: bool = False,
    ) -> bool:
        """Whether the pull is held, with `gathered` until gathered arrivals are handled; if not, the caller must
        respond.
        """
        if len(header.topic) > TOPIC_LENGTH_MAX:
            return False  # the name of a light topic that no message can have
        _slim(command, header)
        weight = 1 if header.subscription is None else 1 + len(header.subscription) // EXPRESSION_SHARE
        held = HeldPull(connection, command, header.queue_offset, self._deadline(header), wanted, weight)
        hold = self.held.hold_for_gathered if gathered else self.held.hold
        return hold(header.topic, header.queue_id, held)

    def _offset_to_commit(self, connection: Connection, header: PullMessageHeader) -> int:
        group, topic, queue_id, offset = header.consumer_group, header.topic, header.queue_id, header.commit_offset
        if header.sys_flag & PULL_COMMIT_OFFSET and self._resumption.is_on:
            return self._resumption.committed(connection, group, topic, queue_id, offset)
        return offset

    def _moved(self, connection: Connection, header: PullMessageHeader) -> GetResult | None:
        """The response to a pull whose offset dates from before this start."""
        if not header.sys_flag & PULL_SUSPEND:
            return None
        topic, queue_id = header.topic, header.queue_id
        end = self._resumption.pulled(connection, header.consumer_group, topic, queue_id, header.queue_offset)
        if end is None:
            return None
        low, high = self._store.min_offset(topic, queue_id), self._store.max_offset(topic, queue_id)
        return GetResult(GetStatus.OFFSET_OVERFLOW_BADLY, end, low, high, [])

    def scan(self) -> None:
        """Look over the held pulls."""
        self.held.scan(self._clock.now_ms(), self._store.max_offset)

    def _rerun(self, held: HeldPull) -> None:
        """Second run: a pull that was held because there was nothing responds in any case; what one finds that was held
        for others may have left memory.
        """
        answer: Command | None
        try:
            if held.is_due:
                answer = self._pull(FETCHES_MAX - 1, held.connection, held.command)
            else:
                header = held.command.header(PullMessageHeader)
                result = self._read(held.connection, header, self._check(header))
                answer = self._answer(held.command, header, result, _code_of(result, header.queue_offset))
        except Exception as error:  # an error becomes the response; the other held pulls get theirs
            answer = self._failed(held.command, error)
        if answer is not None:
            held.connection.send(answer)

    def _read(self, connection: Connection, header: PullMessageHeader, wanted: Selection) -> GetResult:
        begun = self._timer()
        group, topic, queue_id = header.consumer_group, header.topic, header.queue_id
        result = self._store.get(
            topic, queue_id, header.queue_offset, header.max_msg_nums, wanted, bulk=header.bulk is True
        )
        self._statistics.got(topic, group, result.count, result.size, self._timer() - begun)
        if self._resumption.is_on:
            self._resumption.reached(connection, group, topic, queue_id, result.next_offset)
        return result

    def _unit(self, topic: str, queue_id: int, queue_offset: int) -> memoryview | None:
        """A message of a queue."""
        entries = self._store.entries(topic, queue_id, queue_offset, 1)
        return self._store.unit_at(entries[0][0]) if entries else None

    def _deadline(self, header: PullMessageHeader) -> int:
        options = self._options
        wait_ms = header.suspend_timeout_millis if options.long_polling_enable else options.short_polling_time_ms
        return self._clock.now_ms() + wait_ms

    def _answer(self, command: Command, header: PullMessageHeader, result: GetResult, code: int) -> Command:
        suggested, next_offset = self._suggested(header, result), result.next_offset
        if not self._corrects and result.status in _CORRECTED:
            # The master may be there already: a reader must not be sent back because its slave is behind.
            next_offset = QueueOffset(header.queue_offset)
            if code == ResponseCode.PULL_OFFSET_MOVED:
                code, suggested = ResponseCode.PULL_RETRY_IMMEDIATELY, self._home(header)
        if code == ResponseCode.PULL_OFFSET_MOVED:
            self._put_event(offset_moved_event(header, result.next_offset, self._options, self.store_host, self._clock))
        answer = command.response(code, _REMARKS[result.status])
        answer.ext = {
            "suggestWhichBrokerId": suggested,
            "nextBeginOffset": str(next_offset),
            "minOffset": str(result.min_offset),
            "maxOffset": str(result.max_offset),
        }
        answer.body_parts = result.buffers
        return answer

    def _put_event(self, event: PutRecord, refused: PutResult | None = None) -> None:
        """Store an event, later if its queue has no room yet. A refusal is dropped: no client waits for it."""
        try:
            if refused is None:
                self._store.put(event, True)
        except RoomAwaited as awaited:
            self._store.when_room(awaited, partial(self._put_event, event))

    def _suggested(self, header: PullMessageHeader, result: GetResult) -> str:
        """The suggested broker id: a group that reads messages no longer in memory may be sent to a slave."""
        if not self._options.slave_read_enable:
            return AT_MASTER
        group = self._groups.find(header.consumer_group)
        if group is None:
            return AT_MASTER
        return str(group.broker_id_when_slow if result.is_behind else group.broker_id)

    def _home(self, header: PullMessageHeader) -> str:
        """The broker id the group reads from as a rule."""
        group = self._groups.find(header.consumer_group)
        return str(group.broker_id) if group is not None else AT_MASTER

    # ------------------------------------------------------------------------------------------------------- checks

    def _check(self, header: PullMessageHeader) -> Selection:
        """Refuse what may not be read; else return the selection of the pull."""
        if not self._options.broker_permission & PERM_READ:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"broker {self._options.broker_name} is not readable")
        group = self._groups.require(header.consumer_group)
        if not group.consume_enabled:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"group {group.name} may not consume")
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist")
        if not topic.perm & PERM_READ:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"topic {topic.name} is not readable")
        if not 0 <= header.queue_id < topic.read_queues:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"queue {header.queue_id} of {topic.name}: it has {topic.read_queues}"
            )
        return self._selecting.selection(header, group)


def _slim(command: Command, header: PullMessageHeader) -> None:
    """Drop fields of a held pull that only cost memory, up to a megabyte if the client wants. The remaining ones are
    limited: names have a maximum length, and so has an expression of the pull's own.
    """
    command.typed, command.ext, command.remark, command.body = header, None, None, b""
    command.language, command.version = LANGUAGE, 0
    header.broker_name = None
    if not header.sys_flag & PULL_SUBSCRIPTION:
        header.subscription = header.expression_type = None


def _code_of(result: GetResult, asked_offset: int) -> int:
    if result.status in _EMPTY:
        return ResponseCode.PULL_NOT_FOUND if asked_offset == 0 else ResponseCode.PULL_OFFSET_MOVED
    return _CODES[result.status]


def offset_moved_event(
    header: PullMessageHeader, new_offset: int, options: BrokerOptions, host: bytes, clock: Clock
) -> PutRecord:
    """Message that reports a pull outside the range of its queue to monitors."""
    queue = {"brokerName": options.broker_name, "queueId": header.queue_id, "topic": header.topic}
    body = {
        "consumerGroup": header.consumer_group,
        "messageQueue": queue,
        "offsetNew": new_offset,
        "offsetRequest": header.queue_offset,
    }
    properties = encode_properties({TAGS: header.consumer_group, KEYS: header.consumer_group})
    return PutRecord(
        topic=OFFSET_MOVED_TOPIC,
        queue_id=0,
        body=dumps(body).encode(),
        properties=properties.encode(),
        born_timestamp=clock.now_ms(),
        born_host=host,
        store_host=host,
    )
