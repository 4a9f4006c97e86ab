"""What push and pull consumers share: subscriptions, membership, rebalance, start positions, offsets.

A queue assigned to this consumer is held by a task of its own, which pulls until the queue is given up.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from abc import abstractmethod
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime

from orbitmq.client.background import Background
from orbitmq.client.base import Client
from orbitmq.client.core.allocation import Allocate
from orbitmq.client.core.flow import Thresholds
from orbitmq.client.core.hooks import ReceiveHook
from orbitmq.client.core.position import Ask, start_position
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.core.rebalance import Membership, change
from orbitmq.client.core.route import MASTER_ID, read_address
from orbitmq.client.core.selectors import Selector, subscription_of
from orbitmq.client.instance import Instance
from orbitmq.client.lag import QueueLag, lag_of
from orbitmq.client.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from orbitmq.client.settings import ConsumerSettings
from orbitmq.errors import BrokerError, ConfigurationError, MessageIllegal, OrbitMQError
from orbitmq.message.config import TAG, SubscriptionData
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.topics import DEFAULT_CONSUMER_GROUP, RETRY_PREFIX, check_topic
from orbitmq.operations import membership, offsets
from orbitmq.wire.bodies import (
    ConsumeDirectlyResult,
    ConsumeFromWhere,
    ConsumerData,
    ConsumerRunningInfo,
    ConsumeType,
    MessageModel,
)
from orbitmq.wire.codes import ResponseCode

_log = logging.getLogger(__name__)

REBALANCE_INTERVAL_S = 20.0  # the wait of Java's members; notices of brokers come in between
REBALANCE_AGAIN_S = 1.0  # after a round that could not be finished
START_AGAIN_S = 1.0  # after a start position that could not be found out
HOLD_LOOK_S = 1.0  # a queue that waits for room is looked at again when something changes, at the latest after this
FLOW_CONTROL_DELAY_S = 0.02  # the pause a broker asks for with FLOW_CONTROL
HALF_AN_HOUR_MS = 1_800_000


@dataclass(eq=False, slots=True)
class Held:
    """A queue this consumer reads."""

    queue: MessageQueue
    cached: ProcessQueue = field(default_factory=ProcessQueue)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when messages left the cache, or whatever else pulling may wait for has changed."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when messages came into the cache, or the queue was given up."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no listener that keeps the order has messages of the queue."""
    task: asyncio.Task[None] | None = None

    def drop(self) -> None:
        """The queue is given up: nothing that comes for it counts any more."""
        self.cached.dropped = True
        self.arrived.set()
        if self.task is not None:
            self.task.cancel()

    async def wait_for_room(self, seconds: float) -> None:
        """Until something changed, at most `seconds`."""
        self.room.clear()
        with contextlib.suppress(TimeoutError):
            # Not wait_for: that of Python 3.11 forgets a cancellation which comes together with the event.
            async with asyncio.timeout(seconds):
                await self.room.wait()


class Consumer(Client):
    """Base of consumers that are members of a group."""

    _consumes = True
    _consume_type: ConsumeType

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None,
        settings: ConsumerSettings,
        *,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere,
        consume_timestamp: datetime | str | None,
        allocate: Allocate,
    ) -> None:
        if group == DEFAULT_CONSUMER_GROUP:
            raise MessageIllegal(f"{DEFAULT_CONSUMER_GROUP} is no group of an application, choose a name")
        super().__init__(group, namesrv_addr, settings)
        self._consumer_settings = settings
        self._message_model = message_model
        self._consume_from_where = consume_from_where
        self._start_time_ms = _milliseconds(consume_timestamp)
        self._allocate = allocate
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._memberships: dict[str, Membership] = {}
        self._held: dict[MessageQueue, Held] = {}
        self._thresholds = Thresholds(
            settings["pull_threshold_for_queue"],
            settings["pull_threshold_size_for_queue"],
            settings["consume_max_span"],
        )
        self._rebalance_wanted = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._background = Background(self._name())
        self._store: OffsetStore | None = None
        self._receive_hooks: list[ReceiveHook] = []
        self._started_ms = 0

    # -------------------------------------------------------------------------------------------- for the instance

    def wanted_topics(self) -> Iterable[str]:
        """The topics whose routes this consumer needs."""
        return tuple(self._subscriptions)

    def heartbeat_data(self) -> ConsumerData:
        """What brokers are told of this consumer."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model=self._message_model,
            consume_from_where=self._consume_from_where,
            subscription_data_set=list(self._subscriptions.values()),
        )

    def wake_rebalance(self) -> None:
        """Rebalance now instead of at the end of the interval."""
        self._rebalance_wanted.set()

    def known_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offsets of the topic's queues that this consumer holds in memory."""
        return self._store.table.of_topic(topic) if self._store is not None else {}

    @abstractmethod
    def move(self, topic: str, offsets: Mapping[MessageQueue, int]) -> None:
        """An operator set these offsets: go on there soon."""

    @abstractmethod
    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """What it is doing, with the stacks of all threads and tasks if wanted."""

    @abstractmethod
    async def consume_directly(self, message: MessageExt) -> ConsumeDirectlyResult:
        """Have the listener take a message, whatever queue it is of. RequestRejected without a listener."""

    # ----------------------------------------------------------------------------------------------- subscriptions

    def _subscribe(self, topic: str, selector: Selector) -> None:
        check_topic(topic)
        self._subscriptions[topic] = subscription_of(topic, selector, self._clock.now_ms())
        if self.is_running:
            self._background.spawn(self._announce(self._instance))

    def _unsubscribe(self, topic: str) -> None:
        if self._subscriptions.pop(topic, None) is not None and self.is_running:
            self._background.spawn(self._announce(self._instance))

    async def _announce(self, instance: Instance) -> None:
        """Brokers learn the new subscriptions before any queue is pulled with them."""
        await self._find_routes(instance)
        await instance.beat()
        self.wake_rebalance()

    def assignment(self) -> set[MessageQueue]:
        """The queues read at this moment, those of the retry topic included."""
        return set(self._held)

    async def fetch_queues(self, topic: str) -> list[MessageQueue]:
        """The readable queues of `topic`. ClientError when it does not exist."""
        return list(await self._instance.routes.find_subscribed(topic))

    def add_receive_hook(self, hook: ReceiveHook) -> None:
        """Have `hook` see every pull that brings messages. It runs on the event loop and must not wait."""
        self._receive_hooks.append(hook)

    async def lag(self, topic: str | None = None) -> list[QueueLag]:
        """How far the group is behind, in every queue of its subscriptions or of one topic, whoever reads it. A
        broadcasting consumer tells its own progress. What cannot be found out is None, with the problem; `total` of
        `orbitmq.client.lag` adds up. ClientError when a topic does not exist.
        """
        queues: list[MessageQueue] = []
        for name in self._subscriptions if topic is None else (topic,):
            if self._instance.routes.subscribed(name) or not name.startswith(RETRY_PREFIX):
                queues += await self.fetch_queues(name)
        return await lag_of(self._instance, self.group, queues, self._stored_offset)

    async def _stored_offset(self, queue: MessageQueue) -> int | None:
        offset = await self._offsets.stored(queue)
        return offset if offset >= 0 else None

    # --------------------------------------------------------------------------------------------------- lifecycle

    async def _begin_consuming(self, instance: Instance) -> None:
        """Join the group: offsets, routes, heartbeat, first rebalance, then the services."""
        instance.add_consumer(self)
        self._started_ms = self._clock.now_ms()
        self._store = self._make_store(instance)
        await self._store.open()
        await self._find_routes(instance)
        for subscription in self._subscriptions.values():
            await self._check(instance, subscription)
        await instance.beat()
        await self._rebalance(instance)
        self._background.spawn(self._rebalance_regularly(instance))
        self._background.spawn(self._persist_regularly())

    async def _check(self, instance: Instance, subscription: SubscriptionData) -> None:
        """Have a broker of the topic look at an expression that it will evaluate. BrokerError when it will not."""
        queues = instance.routes.subscribed(subscription.topic)
        if subscription.expression_type == TAG or not queues:
            return
        source = read_address(instance.routes.addresses(queues[0].broker_name), MASTER_ID)
        if source is not None:
            timeout_ms = self._consumer_settings["api_timeout_ms"]
            await membership.check_client(
                instance.remoting, source.address, instance.client_id, self.group, subscription, timeout_ms=timeout_ms
            )

    async def _find_routes(self, instance: Instance) -> None:
        missing = [topic for topic in self.wanted_topics() if not instance.routes.subscribed(topic)]
        await instance.routes.refresh_each(missing)
        if not all(instance.routes.subscribed(topic) for topic in missing):
            instance.want_routes()

    async def _end_consuming(self, instance: Instance) -> None:
        """Store the offsets of what is done, leave the group, drop the rest."""
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(self._consumer_settings["api_timeout_ms"] / 1000):
                await self._offsets.persist(list(self._held))
        await instance.dismiss(self.group, consumer=True)
        for held in self._held.values():
            held.drop()

    async def _leave(self, instance: Instance) -> None:
        await self._background.stop()
        if self._store is not None:
            self._store.close()
        await super()._leave(instance)

    def _make_store(self, instance: Instance) -> OffsetStore:
        if self._message_model is MessageModel.CLUSTERING:
            return BrokerOffsets(instance, self.group)
        settings = self._consumer_settings
        owner = f"{instance.client_ip}@{settings['instance_name']}"
        return FileOffsets(settings["local_offset_dir"], owner, self.group)

    @property
    def _offsets(self) -> OffsetStore:
        assert self._store is not None, "start makes the store"
        return self._store

    async def _persist_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._consumer_settings["persist_offset_interval_ms"] / 1000)
            await self._offsets.persist(list(self._held))

    # --------------------------------------------------------------------------------------------------- rebalance

    async def _rebalance_regularly(self, instance: Instance) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_INTERVAL_S):
                    await self._rebalance_wanted.wait()
            self._rebalance_wanted.clear()
            await self._rebalance(instance)

    async def _rebalance(self, instance: Instance) -> None:
        """One round over all subscribed topics. A topic that fails keeps its queues and is asked about again soon."""
        async with self._rebalancing:
            for topic in list(self._subscriptions):
                try:
                    await self._rebalance_topic(instance, topic)
                except OrbitMQError as error:
                    _log.warning("event=not_rebalanced group=%s topic=%s error=%s", self.group, topic, error)
                    asyncio.get_running_loop().call_later(REBALANCE_AGAIN_S, self.wake_rebalance)
            await self._release([queue for queue in self._held if queue.topic not in self._subscriptions])

    async def _rebalance_topic(self, instance: Instance, topic: str) -> None:
        queues = instance.routes.subscribed(topic)
        if not queues:
            return  # the instance asks for the route and wakes us when it is there
        assigned = await self._assigned(instance, topic, queues)
        if assigned is None:
            asyncio.get_running_loop().call_later(REBALANCE_AGAIN_S, self.wake_rebalance)
            return
        step = change(topic, self._reading(), assigned)
        if step:
            _log.info("event=rebalanced group=%s topic=%s held=%d", self.group, topic, len(assigned))
            await self._release([queue for queue in (*step.dropped, *step.added) if queue in self._held])
            self._take(await self._free(step.added))

    async def _assigned(
        self, instance: Instance, topic: str, queues: tuple[MessageQueue, ...]
    ) -> Collection[MessageQueue] | None:
        """The queues of `topic` this member shall read; None to keep what it has."""
        if self._message_model is MessageModel.BROADCASTING:
            return queues
        broker = await instance.any_broker(topic)
        members = await membership.consumer_ids(instance.remoting, broker, self.group)
        decides = self._memberships.setdefault(topic, Membership())
        return decides.assignment(self._allocate, instance.client_id, queues, members)

    def _reading(self) -> list[MessageQueue]:
        """The held queues whose task lives; one that died of an error counts as not held, so that it is taken anew."""
        return [queue for queue, held in self._held.items() if held.task is None or not held.task.done()]

    async def _free(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """Those of the queues that may be read now; the others wait for another round."""
        return queues

    def _take(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._hold(queue)
        self._assignment_changed()

    def _hold(self, queue: MessageQueue) -> None:
        """Begin reading `queue`."""
        held = self._held[queue] = Held(queue)
        held.task = self._background.spawn(self._read(held))

    async def _release(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            self._held.pop(queue).drop()
            await self._offsets.release(queue)
        if queues:
            self._assignment_changed()

    def _assignment_changed(self) -> None:
        """Called when queues were taken or given up."""

    @abstractmethod
    async def _read(self, held: Held) -> None:
        """Pull the queue until it is given up."""

    def _pause_after(self, error: OrbitMQError, queue: MessageQueue) -> float:
        """Seconds to wait after a pull that failed."""
        if isinstance(error, BrokerError) and error.code == ResponseCode.FLOW_CONTROL:
            return FLOW_CONTROL_DELAY_S
        _log.warning("event=pull_failed group=%s queue=%s error=%s", self.group, queue, error)
        return self._consumer_settings["pull_error_delay_ms"] / 1000

    # ---------------------------------------------------------------------------------------------- start position

    async def _start_offset(self, held: Held) -> int:
        """Where to begin; asked until somebody knows."""
        while True:
            try:
                return await self._find_start(held.queue)
            except OrbitMQError as error:
                _log.warning("event=no_start_position group=%s queue=%s error=%s", self.group, held.queue, error)
                await asyncio.sleep(START_AGAIN_S)

    async def _find_start(self, queue: MessageQueue) -> int:
        position = start_position(queue.topic, await self._offsets.stored(queue), self._consume_from_where)
        if not isinstance(position, Ask):
            return position
        assert self._shared is not None, "a queue is held only while an instance is shared"
        remoting, address = self._shared.remoting, await self._shared.routes.master(queue)
        if position is Ask.MAX_OFFSET:
            return await offsets.max_offset(remoting, address, queue)
        if position is Ask.MIN_OFFSET:
            return await offsets.min_offset(remoting, address, queue)
        time_ms = self._start_time_ms or self._clock.now_ms() - HALF_AN_HOUR_MS
        return await offsets.search_offset(remoting, address, queue, time_ms)


def _milliseconds(time: datetime | str | None) -> int | None:
    """A start time as milliseconds since the epoch; texts are `yyyyMMddHHmmss` in local time."""
    if time is None:
        return None
    if isinstance(time, datetime):
        return int(time.timestamp() * 1000)
    try:
        return int(datetime.strptime(time, "%Y%m%d%H%M%S").timestamp() * 1000)  # noqa: DTZ007 - local time is meant
    except ValueError:
        raise ConfigurationError(f"consume_timestamp {time!r} is not allowed; give yyyyMMddHHmmss") from None
