"""POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION and POLLING_INFO: delivers messages, waits for some, says if there are any.

A response holds messages of all queues, beginning with a random one, and of the retry topic: one request in five begins
there, so that retries are not kept waiting by a backlog.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from random import Random
from typing import Final

import msgspec

from orbitmq.broker.cold_reads import ColdReads
from orbitmq.broker.filters import Filters, is_tag
from orbitmq.broker.groups import Groups
from orbitmq.broker.message_writer import MessageWriter
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.pop.in_flight import Checkpoint, Key
from orbitmq.broker.pop.journal import Journal, when_room
from orbitmq.broker.pop.ordering import Order, Orders, QueueKey
from orbitmq.broker.pop.waiting import EARLY_MS, SECONDS_MAX, Waiting, WaitingPops
from orbitmq.broker.pull_handler import EXPRESSION_SHARE
from orbitmq.broker.pull_selection import EXPRESSION_LENGTH_MAX, ExpressionLook, by_tags, own_tags
from orbitmq.broker.statistics import Statistics
from orbitmq.broker.topics import Topics
from orbitmq.errors import RequestRejected, UnitError
from orbitmq.message.config import TopicConfig
from orbitmq.message.flags import PERM_READ
from orbitmq.message.pop import MAX_MESSAGES, NORMAL, ORDERLY_REVIVE_QUEUE, POP_CK, RETRY, Receipt, pop_retry_topic
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.topics import TOPIC_LENGTH_MAX
from orbitmq.message.unit import decode_unit, encode_unit
from orbitmq.net.connection import Answer, Connection
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock
from orbitmq.runtime.refusals import Refusals
from orbitmq.store.cold import Pages
from orbitmq.store.engine import MessageStore
from orbitmq.store.pull_batch import EVERYTHING, GetResult, GetStatus, Selection
from orbitmq.store.queue_room import RoomAwaited
from orbitmq.store.records import PutResult, PutStatus
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers_pop import NotificationHeader, PeekMessageHeader, PollingInfoHeader, PopMessageHeader
from orbitmq.wire.requests import RequestCode

RETRY_FIRST_OF: Final = 5  # one request in so many begins with the retry topic
REVIVE_QUEUES: Final = 8  # a response names one of so many, as RocketMQ's do
FROM_OLDEST: Final = 0  # where a new group begins
FETCHES_MAX: Final = 3  # how often one request has pages brought into memory; then it reads what may not be there
NAME_MAX: Final = 256  # characters of an attempt's id; those of clients have 36
_SIZE, _OFFSET_AT, _OFFSET_END = 4, 20, 28  # of a unit: its size, and its queue offset
_OUTSIDE: Final = frozenset(
    (
        GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.OFFSET_FOUND_NULL,
        GetStatus.MESSAGE_WAS_REMOVING,
    )
)  # fmt: skip
_NO_FIELDS: Final = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


class Source(msgspec.Struct, frozen=True):
    """A queue that is read. `kind` tells retry topics from others."""

    topic: str
    queue_id: int
    kind: str


class Found(msgspec.Struct):
    """What one request has found so far; `pop_ms` is its time. `absent` are pages that have to be brought into memory
    first. `skipped` says that the group has passed messages that its filter leaves out.
    """

    pop_ms: int = 0
    revive_queue: int = 0
    buffers: list[bytes | memoryview] = []
    starts: list[str] = []
    offsets: list[str] = []
    counts: list[str] = []
    count: int = 0
    rest: int = 0
    last: PutResult | None = None
    refused: PutResult | None = None
    absent: list[Pages] = []
    skipped: bool = False


class PopHandler:
    """The handlers. `random` decides where a request begins."""

    def __init__(
        self,
        journal: Journal,
        orders: Orders,
        store: MessageStore,
        writing: MessageWriter,
        topics: Topics,
        groups: Groups,
        offsets: ConsumerOffsets,
        filters: Filters,
        options: BrokerOptions,
        clock: Clock,
        statistics: Statistics,
        cold: ColdReads,
        refusals: Refusals,
        random: Random | None = None,
        timer: Callable[[], float] = time.perf_counter,
    ) -> None:
        self.waiting = WaitingPops(refusals)
        self._failed = Router().failed
        self._journal = journal
        self._orders = orders
        self._store = store
        self._writing = writing
        self._topics = topics
        self._groups = groups
        self._offsets = offsets
        self._filters = filters
        self._options = options
        self._clock = clock
        self._statistics = statistics
        self._cold = cold
        self._random = random or Random()  # noqa: S311 - where a request begins is no secret
        self._timer = timer
        self._count = 0
        self._wakes: dict[QueueKey, asyncio.TimerHandle] = {}  # when a queue that is read in order is free
        self._tasks: set[asyncio.Task[None]] = set()

    def add_to(self, router: Router) -> None:
        router.add(RequestCode.POP_MESSAGE, self.pop)
        router.add(RequestCode.PEEK_MESSAGE, self.peek)
        router.add(RequestCode.NOTIFICATION, self.notify)
        router.add(RequestCode.POLLING_INFO, self.polling_info)
        self._failed = router.failed

    # -------------------------------------------------------------------------------------------------------- pop

    async def pop(self, connection: Connection, command: Command) -> Answer:
        """Deliver messages, and note that they are in flight; wait for some if there are none."""
        asked = connection, command.opaque
        self.waiting.begun.add(asked)
        try:
            return await self._pop(connection, command)
        finally:
            self.waiting.begun.discard(asked)

    async def _pop(self, connection: Connection, command: Command) -> Answer:
        header = command.header(PopMessageHeader)
        try:
            wanted = self._wanted(header)
            await self._journal.restored()
            for fetches in reversed(range(FETCHES_MAX)):
                found = await self._writing.with_room(
                    partial(self._collect, header, wanted, may_fetch=fetches > 0), partial(self._refused, header)
                )
                if found.count or found.refused or not found.absent:
                    break
                await self._in_memory(found.absent)
            if found.absent and found.count:
                self._cold.fetch(found.absent, _ignore)  # for the next request
            answer = await self._answered(command, header, found)
        except RequestRejected as error:
            answer = command.response(error.code, error.remark)
            answer.ext = dict(_NO_FIELDS)
            return answer
        is_wanted = (connection, command.opaque) in self.waiting.begun
        if answer.code != ResponseCode.POLLING_TIMEOUT or not is_wanted:
            return answer
        waiting = Waiting(
            connection, command, (header.topic, header.consumer_group, header.queue_id), _later, wanted.matcher,
            1 + len(header.expression or "") // EXPRESSION_SHARE,
        )  # fmt: skip
        waiting.tries = partial(self._try_pop, waiting, header, wanted)
        return self._parked(waiting, header, answer)

    def _refused(self, header: PopMessageHeader, result: PutResult) -> Found:
        found = self._begun(header)
        found.refused = result
        return found

    async def _in_memory(self, absent: Sequence[Pages]) -> None:
        came: asyncio.Future[BaseException | None] = asyncio.get_running_loop().create_future()
        self._cold.fetch(absent, partial(_settle, came))
        if (error := await came) is not None:
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"messages cannot be read: {error}")

    def _try_pop(self, waiting: Waiting, header: PopMessageHeader, wanted: Selection, is_last: bool) -> bool:
        """Answer a request that waits, if there is something for it or its time is up."""
        connection, command = waiting.connection, waiting.command
        try:
            self._checked(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums)
            found = self._collect(header, wanted, may_fetch=not waiting.is_fetched and not is_last)
        except RoomAwaited as awaited:
            found = self._begun(header)
            when_room(self._writing, awaited, partial(self.waiting.wake, waiting.key))
        except Exception as error:  # becomes the response; others that wait get theirs
            connection.send(self._failed(command, error))
            return True
        if found.count or found.refused or is_last:
            task = asyncio.get_running_loop().create_task(self._send(connection, command, header, found))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
            return True
        if found.absent:
            waiting.is_fetched = True
            self._cold.fetch(found.absent, lambda _error: self.waiting.wake(waiting.key))
        elif found.skipped and found.rest:
            self.waiting.wake(waiting.key)  # a read looks over some hundred messages
        return False

    async def _send(self, connection: Connection, command: Command, header: PopMessageHeader, found: Found) -> None:
        try:
            answer = await self._answered(command, header, found)
        except Exception as error:
            answer = self._failed(command, error)
        connection.send(answer)

    async def _answered(self, command: Command, header: PopMessageHeader, found: Found) -> Command:
        """The response; messages only once the record of them is as safe as the store is configured to make it."""
        if found.last is not None and self._writing.can_wait:
            await self._writing.durable(found.last)  # what is missing is an operator's concern, as with RocketMQ
        if found.refused is not None and not found.count:
            remark = f"the record of what is delivered cannot be stored: {found.refused.status.name}"
            raise RequestRejected(ResponseCode.SYSTEM_ERROR, remark)
        code = ResponseCode.SUCCESS if found.count else ResponseCode.POLLING_TIMEOUT
        answer = command.response(code, "FOUND" if found.count else "NO_MESSAGE_IN_QUEUE")
        answer.ext = {
            "popTime": str(found.pop_ms),
            "invisibleTime": str(header.invisible_time),
            "reviveQid": str(found.revive_queue),
            "restNum": str(found.rest),
            "startOffsetInfo": ";".join(found.starts),
            "msgOffsetInfo": ";".join(found.offsets),
        }
        if header.order:
            answer.ext["orderCountInfo"] = ";".join(found.counts)
        answer.body_parts = found.buffers
        return answer

    def _parked(self, waiting: Waiting, header: PopMessageHeader | NotificationHeader, answer: Command) -> Answer:
        """None if the request waits now, else `answer`, which says that there is nothing."""
        born_ms = header.born_time or self._clock.now_ms()
        left_ms = born_ms + header.poll_time - EARLY_MS - self._clock.now_ms()
        if header.poll_time <= 0 or left_ms <= 0:
            return answer
        retry_topic = pop_retry_topic(header.topic, header.consumer_group)
        if not self.waiting.park(waiting, min(left_ms, header.poll_time) / 1000, retry_topic):
            answer.code = ResponseCode.POLLING_FULL
            return answer
        _slim(waiting.command)
        self.waiting.wake(waiting.key)  # something may have arrived since, or there is more than one read looks over
        return None

    # ------------------------------------------------------------------------------------------------- what there is

    def _begun(self, header: PopMessageHeader) -> Found:
        self._count += 1
        queue = ORDERLY_REVIVE_QUEUE if header.order else self._count % REVIVE_QUEUES
        return Found(self._clock.now_ms(), queue)

    def _collect(self, header: PopMessageHeader, wanted: Selection, *, may_fetch: bool) -> Found:
        """Deliver what there is. RoomAwaited if there is no room for the record of it, and nothing was delivered."""
        found = self._begun(header)
        for source in self._sources(header):
            try:
                self._take(found, header, wanted, source, may_fetch=may_fetch)
            except RoomAwaited:
                if not found.count:
                    raise
                break
            if found.refused is not None:
                break
        return found

    def _sources(self, header: PopMessageHeader) -> Iterator[Source]:
        topic = self._topics.get(header.topic)
        if topic is None:  # it was deleted since it was checked
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {header.topic} does not exist")
        retry = Source(pop_retry_topic(header.topic, header.consumer_group), 0, RETRY)
        has_retries = not header.order and self._store.max_offset(retry.topic, 0) > 0
        is_first = has_retries and self._random.randrange(RETRY_FIRST_OF) == 0
        if is_first:
            yield retry
        for queue_id in self._queues(topic, header.queue_id):
            yield Source(header.topic, queue_id, NORMAL)
        if has_retries and not is_first:
            yield retry

    def _queues(self, topic: TopicConfig, queue_id: int) -> list[int]:
        if queue_id >= 0:
            return [queue_id]
        begin = self._random.randrange(max(1, topic.read_queues))
        return [(begin + number) % topic.read_queues for number in range(topic.read_queues)]

    def _take(
        self, found: Found, header: PopMessageHeader, wanted: Selection, source: Source, *, may_fetch: bool
    ) -> None:
        """Deliver messages of one queue."""
        key = source.topic, header.consumer_group, source.queue_id
        offset = self._position(header.consumer_group, source, header.init_mode)
        ahead = self._store.max_offset(source.topic, source.queue_id) - offset
        room = header.max_msg_nums - found.count
        if header.order and self._is_blocked(key, offset, found.pop_ms, header.attempt_id):
            return
        is_full = self._journal.in_flight.is_full(header.consumer_group) and not header.order
        if not ahead or room <= 0 or is_full or not self._may_commit(key, offset):
            found.rest += max(0, ahead)
            return
        if may_fetch and self._is_absent(found, source, offset, wanted):
            found.rest += max(0, ahead)
            return
        result = self._read(header.consumer_group, source, offset, room, wanted)
        if may_fetch and result.places and (absent := self._store.absent_units(result)):
            found.absent += absent
            found.rest += max(0, ahead)
            return
        begin = max(offset, result.min_offset) if offset <= result.max_offset else result.min_offset
        if header.order:
            self._deliver_in_order(found, header, source, begin, result)
        else:
            self._deliver(found, header, source, begin, result)
        if found.refused is None:
            found.rest += max(0, result.max_offset - result.next_offset)

    def _is_absent(self, found: Found, source: Source, offset: int, wanted: Selection) -> bool:
        """Whether what is read has left memory; of several queues one is brought back, and messages of others are
        delivered meanwhile.
        """
        absent = self._store.absent_entries(source.topic, source.queue_id, offset, wanted)
        if not found.absent:
            found.absent += absent
        return bool(absent)

    def _is_blocked(self, key: QueueKey, offset: int, now_ms: int, attempt_id: str | None) -> bool:
        """Whether a queue that is read in order waits; it will be tried again. A group whose offset was set starts
        anew.
        """
        order = self._orders.of(*key)
        if order is None or order.following() != offset or not order.is_blocked(now_ms, attempt_id):
            return False
        if key not in self._wakes:
            self.wake_in_order(key)
        return True

    def _may_commit(self, key: QueueKey, offset: int) -> bool:
        """Whether the group's offset in the queue can be stored: there is a limit to their number."""
        topic, group, queue_id = key
        if self._offsets.query(group, topic, queue_id) is None:
            self._offsets.commit(group, topic, queue_id, offset)
        return self._offsets.query(group, topic, queue_id) is not None

    def _read(self, group: str, source: Source, offset: int, room: int, wanted: Selection) -> GetResult:
        begun = self._timer()
        result = self._store.get(source.topic, source.queue_id, offset, room, wanted)
        if result.status in _OUTSIDE:  # the messages there are gone
            following = _corrected(result)
            self._offsets.commit(group, source.topic, source.queue_id, following)
            result = self._store.get(source.topic, source.queue_id, following, room, wanted)
        self._statistics.got(source.topic, group, result.count, result.size, self._timer() - begun)
        return result

    def _position(self, group: str, source: Source, init_mode: int) -> int:
        """Where the group goes on; a new one at the oldest or newest message, as the request says."""
        known = self._offsets.query(group, source.topic, source.queue_id)
        if known is not None:
            return known
        low: int = self._store.min_offset(source.topic, source.queue_id)
        if init_mode == FROM_OLDEST or source.kind == RETRY:
            return low
        high: int = self._store.max_offset(source.topic, source.queue_id)
        is_young = low == 0 and not self._store.is_on_disk(source.topic, source.queue_id, 0)
        return 0 if is_young else max(0, high - 1)

    def _deliver(self, found: Found, header: PopMessageHeader, source: Source, begin: int, result: GetResult) -> None:
        """Note that the messages are in flight. RoomAwaited."""
        group, following = header.consumer_group, int(result.next_offset)
        offsets = _offsets_of(result.buffers)
        if not offsets:
            found.skipped |= following > begin
            self._offsets.commit(group, source.topic, source.queue_id, following)
            return
        key = Key(source.topic, group, source.queue_id, begin, found.pop_ms)
        if not self._journal.in_flight.is_free(key):
            found.skipped = True  # twice in a millisecond, after the offset was set: the next time
            return
        put = self._journal.add(Checkpoint(key, header.invisible_time, tuple(offsets)), following)
        if put.status is not PutStatus.PUT_OK:
            found.refused = put
            return
        self._offsets.commit(group, source.topic, source.queue_id, following)
        found.last = put
        buffers: list[bytes | memoryview] = list(result.buffers)
        if source.kind == RETRY:
            receipt = Receipt(
                begin, key.pop_ms, header.invisible_time, found.revive_queue, RETRY, self._options.broker_name, 0, 0
            )
            buffers = _readdressed(result.buffers, header.topic, receipt)
        self._add(found, source, begin, offsets, buffers)

    def _deliver_in_order(
        self, found: Found, header: PopMessageHeader, source: Source, begin: int, result: GetResult
    ) -> None:
        group, offsets = header.consumer_group, _offsets_of(result.buffers)
        if not offsets:
            found.skipped |= result.next_offset > begin
            self._offsets.commit(group, source.topic, source.queue_id, result.next_offset)
            return
        key = (source.topic, group, source.queue_id)
        counts = self._orders.deliver(key, found.pop_ms, header.invisible_time, offsets, header.attempt_id)
        self._offsets.commit(group, source.topic, source.queue_id, offsets[0])
        if any(counts.values()):
            found.counts += [f"{NORMAL} qo{source.queue_id}%{offset} {n}" for offset, n in counts.items() if n]
        found.counts.append(f"{NORMAL} {source.queue_id} {min(counts.values(), default=0)}")
        self.wake_in_order(key)
        self._add(found, source, begin, offsets, list(result.buffers))

    def wake_in_order(self, key: QueueKey) -> None:
        """Try those that wait for a queue, now or when its messages are not in flight any more."""
        if (handle := self._wakes.pop(key, None)) is not None:
            handle.cancel()
        order: Order | None = self._orders.of(*key)
        free_ms = None if order is None else order.free_ms()
        left_ms = 0 if free_ms is None else free_ms - self._clock.now_ms()
        if left_ms <= 0:
            self.waiting.wake_group(key[0], key[1])
        else:
            seconds = min(left_ms / 1000, SECONDS_MAX)  # the clock may be set
            self._wakes[key] = asyncio.get_running_loop().call_later(seconds, self.wake_in_order, key)

    def _add(
        self, found: Found, source: Source, begin: int, offsets: list[int], buffers: list[bytes | memoryview]
    ) -> None:
        found.starts.append(f"{source.kind} {source.queue_id} {begin}")
        found.offsets.append(f"{source.kind} {source.queue_id} {','.join(map(str, offsets))}")
        found.buffers += buffers
        found.count += len(offsets)

    # ------------------------------------------------------------------------------------------- what is only asked

    async def peek(self, _connection: Connection, command: Command) -> Command:
        """Messages as POP_MESSAGE would hand them out, without delivering them."""
        header = command.header(PeekMessageHeader)
        asked = PopMessageHeader(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums, 0, 0, 0, 0)
        self._wanted(asked)
        buffers: list[memoryview] = []
        count = rest = 0
        for source in self._sources(asked):
            offset = self._position(header.consumer_group, source, FROM_OLDEST)
            rest += max(0, self._store.max_offset(source.topic, source.queue_id) - offset)
            room = header.max_msg_nums - count
            if room <= 0:
                continue
            if absent := self._store.absent_entries(source.topic, source.queue_id, offset):
                await self._in_memory(absent)
            result = self._store.get(source.topic, source.queue_id, offset, room)
            if result.status in _OUTSIDE:
                result = self._store.get(source.topic, source.queue_id, _corrected(result), room)
            if result.places and (absent := self._store.absent_units(result)):
                await self._in_memory(absent)
            buffers += result.buffers
            count += result.count
        code = ResponseCode.SUCCESS if count else ResponseCode.POLLING_TIMEOUT
        answer = command.response(code, "FOUND" if count else "NO_MESSAGE_IN_QUEUE")
        answer.ext = {**_NO_FIELDS, "restNum": str(rest)}
        answer.body_parts = buffers
        return answer

    def notify(self, connection: Connection, command: Command) -> Answer:
        """Whether there are messages to deliver; waits for some as POP_MESSAGE does."""
        header = command.header(NotificationHeader)
        self._checked(header.consumer_group, header.topic, header.queue_id, 1)
        answer = command.response(ResponseCode.SUCCESS)
        answer.ext = {"hasMsg": "true", "pollingFull": "false"}
        if self._has_messages(header):
            return answer
        answer.ext["hasMsg"] = "false"
        key = (header.topic, header.consumer_group, header.queue_id)
        tries = partial(self._try_notification, connection, command, header)
        parked = self._parked(Waiting(connection, command, key, tries), header, answer)
        if parked is not None and parked.code == ResponseCode.POLLING_FULL:
            parked.code, parked.ext = ResponseCode.SUCCESS, {"hasMsg": "false", "pollingFull": "true"}
        return parked

    def _try_notification(
        self, connection: Connection, command: Command, header: NotificationHeader, is_last: bool
    ) -> bool:
        has_messages = self._has_messages(header)
        if has_messages or is_last:
            answer = command.response(ResponseCode.SUCCESS)
            answer.ext = {"hasMsg": "true" if has_messages else "false", "pollingFull": "false"}
            connection.send(answer)
        return has_messages or is_last

    def _has_messages(self, header: NotificationHeader) -> bool:
        group, now_ms = header.consumer_group, self._clock.now_ms()
        asked = PopMessageHeader(group, header.topic, header.queue_id, 1, 0, 0, 0, 0, order=header.order)
        if self._topics.get(header.topic) is None:
            return False
        for source in self._sources(asked):
            offset = self._position(group, source, FROM_OLDEST)
            key = (source.topic, group, source.queue_id)
            if header.order and self._is_blocked(key, offset, now_ms, header.attempt_id):
                continue
            if offset != self._store.max_offset(source.topic, source.queue_id):
                return True
        return False

    def polling_info(self, _connection: Connection, command: Command) -> Command:
        """How many requests wait for the same messages."""
        header = command.header(PollingInfoHeader)
        self._checked(header.consumer_group, header.topic, header.queue_id, 1)
        answer = command.response(ResponseCode.SUCCESS)
        number = self.waiting.of(header.topic, header.consumer_group, header.queue_id)
        answer.ext = {"pollingNum": str(number)}
        return answer

    # ------------------------------------------------------------------------------------------------------- checks

    def _wanted(self, header: PopMessageHeader) -> Selection:
        """The selection of a request that may be served; RequestRejected of others."""
        self._checked(header.consumer_group, header.topic, header.queue_id, header.max_msg_nums)
        if header.attempt_id is not None and len(header.attempt_id) > NAME_MAX:
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, f"attemptId is longer than {NAME_MAX} characters")
        expression = header.expression
        if expression is None or not expression:
            return EVERYTHING
        if len(expression) > EXPRESSION_LENGTH_MAX:
            remark = f"an expression of {len(expression)} characters is longer than {EXPRESSION_LENGTH_MAX}"
            raise RequestRejected(ResponseCode.SUBSCRIPTION_PARSE_FAILED, remark)
        if is_tag(header.expression_type):
            return by_tags(own_tags(header.topic, expression))
        return Selection(None, ExpressionLook(self._filters.check(expression, header.expression_type)))

    def _checked(self, group_name: str, topic_name: str, queue_id: int, count: int) -> None:
        """Refuse what may not be read."""
        if not self._options.broker_permission & PERM_READ:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"broker {self._options.broker_name} is not readable")
        if not 1 <= count <= MAX_MESSAGES:
            remark = f"one request gets 1 to {MAX_MESSAGES} messages, not {count}"
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
        topic = self._topics.get(topic_name)
        if topic is None:
            raise RequestRejected(ResponseCode.TOPIC_NOT_EXIST, f"topic {topic_name} does not exist")
        if not topic.perm & PERM_READ:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"topic {topic_name} is not readable")
        if not -1 <= queue_id < topic.read_queues:
            remark = f"queue {queue_id} of {topic_name}: it has {topic.read_queues}"
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
        if len(retry_topic := pop_retry_topic(topic_name, group_name)) > TOPIC_LENGTH_MAX:
            remark = f"{retry_topic}, where retries would wait, is longer than {TOPIC_LENGTH_MAX} characters"
            raise RequestRejected(ResponseCode.INVALID_PARAMETER, remark)
        group = self._groups.require(group_name)
        if not group.consume_enabled:
            raise RequestRejected(ResponseCode.NO_PERMISSION, f"group {group_name} may not consume")


def _later(_is_last: bool) -> bool:
    return False


def _ignore(_error: BaseException | None) -> None:
    """What is not in memory is asked for again when it is needed."""


def _corrected(result: GetResult) -> int:
    """Where a group goes on whose offset is outside the queue; one that was made anew is read from its beginning."""
    if result.status is GetStatus.OFFSET_OVERFLOW_BADLY and result.min_offset == 0:
        return 0
    return result.next_offset


def _slim(command: Command) -> None:
    """Drop what a request that waits needs no more."""
    command.ext, command.remark, command.body = None, None, b""


def _settle(came: asyncio.Future[BaseException | None], error: BaseException | None) -> None:
    if not came.done():  # the waiting request may be cancelled
        came.set_result(error)


def _offsets_of(buffers: Sequence[memoryview]) -> list[int]:
    """The queue offsets of stored messages."""
    offsets = []
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            offsets.append(int.from_bytes(buffer[at + _OFFSET_AT : at + _OFFSET_END], "big"))
            at += int.from_bytes(buffer[at : at + _SIZE], "big")
    return offsets


def _readdressed(buffers: Sequence[memoryview], topic: str, receipt: Receipt) -> list[bytes | memoryview]:
    """Messages of a retry topic as those of the topic that they were sent to, each with what acknowledges it."""
    made: list[bytes | memoryview] = []
    for buffer in buffers:
        at = 0
        while at < len(buffer):
            size = int.from_bytes(buffer[at : at + _SIZE], "big")
            unit = decode_unit(buffer, at)
            unit.topic = topic
            properties = decode_properties(unit.properties)
            properties[POP_CK] = receipt._replace(queue_id=0, offset=unit.queue_offset).encode()
            unit.properties = encode_properties(properties)
            try:
                made.append(encode_unit(unit))
            except UnitError:  # its properties are as long as they may be
                made.append(buffer[at : at + size])
            at += size
    return made
