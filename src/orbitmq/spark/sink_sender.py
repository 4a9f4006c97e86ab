"""Sends the requests of a task: routes, requests in flight, back-pressure, retries and responses. One event loop for
each task. Knows no rows.

A request without a response may have been stored. At-least-once sends it again. Effectively-once first reads its queue,
after a time in which a busy broker either stores or rejects the request. Until the task's mark is stored on a broker,
all messages to that broker carry the mark, so the mark finds everything that a broker holds of the task.
"""

from __future__ import annotations

import asyncio
import random
import time
from collections import defaultdict
from collections.abc import Collection, Mapping
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from types import TracebackType
from typing import Self

import numpy as np
from numpy.typing import NDArray

from orbitmq.client.core.retry import RETRY_CODES
from orbitmq.client.core.route import broker_addresses, no_queue_cause, publish_queues
from orbitmq.errors import (
    BrokerError,
    ConnectError,
    FrameError,
    HeaderError,
    OrbitMQError,
    RemotingError,
    SourceError,
)
from orbitmq.message.flags import PERM_WRITE
from orbitmq.message.model import MASTER_ID, MessageQueue
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.net.remoting import Remoting
from orbitmq.net.tls import outgoing_context
from orbitmq.operations import queries, routes, sends
from orbitmq.operations.statistics import wait_until_dispatched
from orbitmq.spark.address_order import name_servers
from orbitmq.spark.fetch import refused
from orbitmq.spark.sink_brokers import KnownBrokers, require_brokers
from orbitmq.spark.sink_options import WriteOptions
from orbitmq.spark.sink_report import WriteReport
from orbitmq.spark.sink_requests import ANY_QUEUE, SendRequest
from orbitmq.spark.sink_stored import FoundMarks, StoredKeys, found_marks, places_of
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.signature import sign

BUSY = (ResponseCode.SYSTEM_BUSY, ResponseCode.FLOW_CONTROL)
PAUSE_FIRST_S, PAUSE_MAX_S = 0.1, 2.0
SETTLE_S = 1.0  # RocketMQ drops a request after 200 ms in its queue; after this time a lost one is stored or dropped
MARKS_MAX = 32  # limit of an index query; marks are unique, other results only share the hash
A_DAY_MS = 86_400_000


@dataclass(frozen=True)
class TopicRoute:
    """The route of a topic: its queues in hash order, and the addresses of the masters.

    `known` also has the address of a slave for brokers without a master.
    """

    queues: tuple[MessageQueue, ...]
    masters: Mapping[str, str]
    known: Mapping[str, str]


class SinkSender:
    """Sends for one task and records in `written` what is stored. An asynchronous context manager."""

    def __init__(self, options: WriteOptions, written: WriteReport) -> None:
        self._options = options
        self._written = written
        self._stored = StoredKeys(options)
        self._routes: dict[str, TopicRoute] = {}
        self._room = asyncio.Semaphore(options.in_flight_max)
        self._tried: defaultdict[str, set[str]] = defaultdict(set)  # topic -> brokers that marked requests were for
        self._marked: defaultdict[str, set[str]] = defaultdict(set)  # topic -> brokers that hold the task's mark
        self._locks: defaultdict[MessageQueue, asyncio.Lock] = defaultdict(asyncio.Lock)
        self._tasks: set[asyncio.Task[None]] = set()
        self._failure: BaseException | None = None
        self._turn = random.randrange(1 << 16)  # noqa: S311 - tasks shall not all begin with the same queue
        self._next_at = 0.0  # loop time at which the rate allows the next request
        self._began_ms = int(time.time() * 1000)

    async def __aenter__(self) -> Self:
        protection = self._options.protection
        tls = None
        if protection.tls:
            tls = outgoing_context(
                verify=protection.verify, check_host=protection.check_host, trusted=protection.trusted
            )
        credentials = protection.credentials
        signing = None if credentials is None else partial(sign, credentials=credentials)
        self._remoting = Remoting(sign=signing, tls=tls)
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._tasks:
            await asyncio.wait(self._tasks)  # the report includes what they store; each has its own timeout
        await self._remoting.close()

    async def route(self, topic: str) -> TopicRoute:
        """The cached route of a topic. SourceError when it has no queue to send to."""
        if topic not in self._routes:
            self._routes[topic] = await self._fetch_route(topic)
        return self._routes[topic]

    async def find_marks(self, topic: str, mark: str, known: KnownBrokers) -> FoundMarks:
        """Look up the marks of a task on the brokers of the topic.

        SourceError ORBITMQ_BROKER_UNAVAILABLE when a broker that may have messages of the task stays unavailable for
        all retries.
        """
        failures, pause = 0, PAUSE_FIRST_S
        while True:
            try:
                found = await self._find_marks(topic, mark, known)
                self._holds_mark(topic, found.holders)
                return found
            except SourceError as error:
                failures += 1
                if error.name != "ORBITMQ_BROKER_UNAVAILABLE" or failures > self._options.retries:
                    raise
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)

    async def _find_marks(self, topic: str, mark: str, known: KnownBrokers) -> FoundMarks:
        if known.of_cluster:
            require_brokers(known.of_cluster, await asyncio.to_thread(self._stored.brokers))
        expected = known.of_topics.get(topic, frozenset())
        try:
            route = self._routes[topic] = await self._fetch_route(topic)
        except SourceError as error:
            if error.name == "ORBITMQ_TOPIC_NOT_FOUND":  # also the case when all brokers of a topic are down
                require_brokers(expected, ())
            raise
        require_brokers(expected, route.masters)
        found = found_marks([(broker, await self._search(broker, route, topic, mark)) for broker in route.known], mark)
        require_brokers(found.brokers, route.masters)
        return found

    async def _search(self, broker: str, route: TopicRoute, topic: str, mark: str) -> bytes:
        """The units whose KEYS have the hash of `mark`, among all that the broker stored until now."""
        until = int(time.time() * 1000) + A_DAY_MS
        try:
            await self._dispatched(broker, route)
            reply = await queries.query_messages(
                self._remoting, route.known[broker], topic, mark, MARKS_MAX, 0, until, unique=None,
                timeout_ms=self._options.send_timeout_ms,
            )  # fmt: skip
        except BrokerError as error:
            raise refused(f"search on broker {broker}", error.code, error.remark) from error
        except RemotingError as error:
            raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"broker {broker}: {error}") from error
        return reply.body

    async def _dispatched(self, broker: str, route: TopicRoute) -> None:
        """Wait until what the broker stored can be read: without it, an earlier attempt's last messages are missed."""
        timeout_ms = self._options.send_timeout_ms
        if broker in route.known and not await wait_until_dispatched(
            self._remoting, route.known[broker], timeout_ms=timeout_ms
        ):
            raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"broker {broker} does not dispatch what it stored")

    def to_mark(self, topic: str, places: NDArray[np.int64]) -> NDArray[np.bool_]:
        """Which rows must carry the mark: the first for each broker that has none, and of the rows for any queue as
        many as there are brokers that were not tried.
        """
        queues = self._routes[topic].queues
        wanted = np.zeros(len(places), np.bool_)
        untried = {queue.broker_name for queue in queues} - self._tried[topic]
        wanted[np.flatnonzero(places == ANY_QUEUE)[: len(untried)]] = True
        seen = set(self._marked[topic])
        numbers, firsts = np.unique(places, return_index=True)
        for first, number in sorted(zip(firsts.tolist(), numbers.tolist(), strict=True)):
            if number != ANY_QUEUE and queues[number].broker_name not in seen:
                seen.add(queues[number].broker_name)
                wanted[first] = True
        return wanted

    async def submit(self, request: SendRequest) -> None:
        """Send a request in the background. Waits for room in flight and for the rate.

        Raises the error of an earlier request.
        """
        if self._options.rate_max:
            await self._limit_rate(request.count)
        await self._room.acquire()
        if self._failure is not None:
            self._room.release()
            raise self._failure
        task = asyncio.get_running_loop().create_task(self._send(request))
        self._tasks.add(task)
        task.add_done_callback(self._done)

    async def drain(self) -> None:
        """Wait until all requests are stored. Raises the error of a failed one."""
        while self._tasks:
            await asyncio.wait(set(self._tasks))
        if self._failure is not None:
            raise self._failure

    # ---------------------------------------------------------------------------------------------------------------

    async def _limit_rate(self, count: int) -> None:
        """Wait until the rate allows the next request."""
        now = asyncio.get_running_loop().time()
        self._next_at = max(self._next_at, now)
        await asyncio.sleep(self._next_at - now)
        self._next_at += count / self._options.rate_max

    def _done(self, task: asyncio.Task[None]) -> None:
        self._tasks.discard(task)
        self._room.release()
        if not task.cancelled():
            error = task.exception()  # retrieve each, or the loop logs it as never retrieved
            self._failure = self._failure or error

    async def _send(self, request: SendRequest) -> None:
        queue = (await self.route(request.topic)).queues[request.queue] if request.queue != ANY_QUEUE else None
        if queue is None:
            await self._deliver(request, None)
        else:
            async with self._locks[queue]:  # one after another, or a retry would change the order
                if self._failure is None:
                    await self._deliver(request, queue)

    async def _deliver(self, request: SendRequest, wanted: MessageQueue | None) -> None:
        """Retry until the request is stored. SourceError when it fails for good."""
        failures, pause, busy_since = 0, PAUSE_FIRST_S, None
        doubtful: MessageQueue | None = None  # the queue of an attempt without response
        while True:
            queue = doubtful or wanted or self._next_queue(request)
            try:
                if doubtful is None or not await self._is_stored(request, doubtful):
                    doubtful = None
                    await self._attempt(request, queue)
                if request.marked:
                    self._holds_mark(request.topic, {queue.broker_name})
                return
            except BrokerError as error:
                if error.code in BUSY:
                    busy_since = busy_since or time.monotonic()
                    self._check_busy_timeout(busy_since, queue, error)
                elif error.code in RETRY_CODES and failures < self._options.retries:
                    failures += 1
                else:
                    raise refused(_what(request, queue), error.code, error.remark) from error
            except (RemotingError, FrameError, HeaderError) as error:
                failures += 1
                if failures > self._options.retries:
                    raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"{_what(request, queue)}: {error}") from error
                if self._options.effectively_once and not isinstance(error, ConnectError):
                    doubtful = queue
                    await asyncio.sleep(SETTLE_S)
            await asyncio.sleep(pause)
            pause = min(2 * pause, PAUSE_MAX_S)
            await self._refresh_route(request.topic)

    def _holds_mark(self, topic: str, brokers: Collection[str]) -> None:
        self._tried[topic].update(brokers)
        self._marked[topic].update(brokers)

    async def _attempt(self, request: SendRequest, queue: MessageQueue) -> None:
        masters = (await self.route(request.topic)).masters
        if queue.broker_name not in masters:
            raise ConnectError(f"broker {queue.broker_name} has no master at present")
        header = self._header(request, queue)
        timeout_ms = self._options.send_timeout_ms
        reply = await sends.send(
            self._remoting, masters[queue.broker_name], header, request.body, timeout_ms=timeout_ms
        )
        if reply.queue_id != queue.queue_id:
            queue = MessageQueue(queue.topic, queue.broker_name, reply.queue_id)
        self._written.stored(queue, reply.queue_offset, request.count)
        if reply.code != ResponseCode.SUCCESS:
            status = ResponseCode(reply.code).name
            self._written.not_confirmed(status, request.count)
            if self._options.ack_policy == "safe":
                raise SourceError("ORBITMQ_NOT_SAFE", f"{_what(request, queue)}: stored, but the response is {status}")

    async def _is_stored(self, request: SendRequest, queue: MessageQueue) -> bool:
        """Whether a request without response was stored. A batch is stored as a whole or not at all.

        ConnectError when this cannot be found out now.
        """
        brokers = [queue.broker_name]
        try:
            await self._dispatched(queue.broker_name, await self.route(request.topic))
            found = await asyncio.to_thread(self._stored.since, request.topic, self._began_ms, brokers, queue)
        except SourceError as error:
            raise ConnectError(f"cannot find out whether they are stored: {error}") from error
        places = places_of(found, request.keys)
        for place, offset in places:
            self._written.stored(place, offset, 1)
        return bool(places)

    def _header(self, request: SendRequest, queue: MessageQueue) -> SendMessageV2Header:
        return SendMessageV2Header(
            producer_group=self._options.group,
            topic=request.topic,
            default_topic=AUTO_CREATE_TOPIC,
            default_topic_queue_nums=4,
            queue_id=queue.queue_id,
            sys_flag=0,
            born_timestamp=int(time.time() * 1000) if request.born_ms is None else request.born_ms,
            flag=request.flag,
            properties=request.properties,
            reconsume_times=0,
            unit_mode=False,
            batch=request.batch,
            broker_name=queue.broker_name,
        )

    def _next_queue(self, request: SendRequest) -> MessageQueue:
        """The next queue, round robin. For effectively-once on a broker that has the mark, or will get it."""
        self._turn += 1
        topic, queues = request.topic, self._routes[request.topic].queues
        if self._options.effectively_once:
            untried = [queue for queue in queues if request.marked and queue.broker_name not in self._tried[topic]]
            marked = [queue for queue in queues if queue.broker_name in self._marked[topic]]
            queues = tuple(untried or marked or queues)  # the last for marks only: others wait until one is stored
        queue = queues[self._turn % len(queues)]
        if request.marked:
            self._tried[topic].add(queue.broker_name)
        return queue

    def _check_busy_timeout(self, busy_since: float, queue: MessageQueue, error: BrokerError) -> None:
        if (time.monotonic() - busy_since) * 1000 > self._options.busy_timeout_ms:
            text = f"broker {queue.broker_name} stays busy: code {error.code}, {error.remark}"
            raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", text)

    async def _refresh_route(self, topic: str) -> None:
        """Refresh the route, since a broker may have moved. Keep the old one when no name server responds."""
        with suppress(SourceError):
            fresh, known = await self._fetch_route(topic), self._routes[topic]
            queues = known.queues if self._options.keeps_order or self._options.effectively_once else fresh.queues
            self._routes[topic] = TopicRoute(queues, fresh.masters, fresh.known)

    async def _fetch_route(self, topic: str) -> TopicRoute:
        last: OrbitMQError | None = None
        order = name_servers(self._options.name_servers)
        for address, timeout_ms in order.attempts(self._options.send_timeout_ms):
            try:
                route = await routes.route(self._remoting, address, topic, timeout_ms=timeout_ms)
            except (RemotingError, FrameError, HeaderError, BrokerError) as error:
                last = error
                continue
            order.responded(address)
            if route is None:
                raise SourceError("ORBITMQ_TOPIC_NOT_FOUND", f"topic {topic} does not exist; create it first")
            queues = publish_queues(topic, route).queues
            if not queues:
                is_closed = not any(data.perm & PERM_WRITE for data in route.queue_datas)
                name = "ORBITMQ_NO_PERMISSION" if is_closed else "ORBITMQ_BROKER_UNAVAILABLE"
                raise SourceError(name, no_queue_cause(topic, route))
            brokers = {name: ids for name, ids in broker_addresses(route).items() if ids}
            masters = {name: ids[MASTER_ID] for name, ids in brokers.items() if MASTER_ID in ids}
            return TopicRoute(queues, masters, {name: ids[min(ids)] for name, ids in brokers.items()})
        raise SourceError("ORBITMQ_NAMESERVER_UNAVAILABLE", f"topic {topic}: {last}")


def _what(request: SendRequest, queue: MessageQueue) -> str:
    messages = "a message" if request.count == 1 else f"{request.count} messages"
    return f"{messages} to queue {queue.queue_id} of topic {queue.topic} on {queue.broker_name}"
