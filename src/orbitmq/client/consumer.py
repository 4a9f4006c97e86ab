"""What all consumers share: subscriptions, group membership, rebalance, offsets. Pulls nothing.

A queue assigned to this consumer is held until it is released; subclasses decide how it is read.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from orbitmq.client import consistency
from orbitmq.client.background import Background, one_round
from orbitmq.client.base import Client, ClientState
from orbitmq.client.consistency import SubscriptionCheck
from orbitmq.client.core.allocation import AllocateAveragely, AllocateStrategy
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.hooks import ConsumeContext, ConsumeHook, FilterHook, ReceiveHook, each
from orbitmq.client.core.identity import DEFAULT_INSTANCE, client_id
from orbitmq.client.core.model import ConcurrentContext, ConsumeConcurrentlyStatus
from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.client.core.rebalance import AllocationGuard, change
from orbitmq.client.core.route import read_address
from orbitmq.client.core.selectors import Selector, subscription_of
from orbitmq.client.instance import Instance
from orbitmq.client.lag import QueueLag, lag_of
from orbitmq.client.loops import check_loop
from orbitmq.client.offset_store import BrokerOffsets, FileOffsets, OffsetStore
from orbitmq.client.puller import Puller
from orbitmq.client.queue_listeners import ON_QUEUES, QueueListener, QueueListeners
from orbitmq.client.reports import properties
from orbitmq.client.retry_sender import RetrySender
from orbitmq.client.settings import MemberSettings
from orbitmq.client.stacks import stacks as all_stacks
from orbitmq.errors import InvalidStateError, MessageIllegal, OrbitMQError, RequestRejected
from orbitmq.message.config import TAG, SubscriptionData
from orbitmq.message.model import MASTER_ID, MessageExt, MessageQueue
from orbitmq.message.topics import DEFAULT_CONSUMER_GROUP, RETRY_PREFIX, check_topic, retry_topic
from orbitmq.operations import membership
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
COMPARED_MEMBERS_MAX = (
    8  # members whose subscriptions are compared at start: in a large group comparing all would be too much load
)
REBALANCE_AGAIN_S = 1.0  # after a round that could not be finished


@dataclass(eq=False, slots=True)
class HeldQueue:
    """A queue that this consumer reads."""

    queue: MessageQueue
    cached: ProcessQueue = field(default_factory=ProcessQueue)
    room: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when messages leave the cache, or something else changes that pulling may wait for."""
    arrived: asyncio.Event = field(default_factory=asyncio.Event)
    """Set when messages enter the cache, or the queue is given up."""
    idle: asyncio.Event = field(default_factory=asyncio.Event)
    """Set while no orderly listener has messages of the queue."""
    confirmed: int = -1
    """The offset that the broker has confirmed."""
    carried: int = 0
    """The offset that the last pull had with it."""
    task: asyncio.Task[None] | None = None

    def stop(self) -> None:
        """Nothing more is pulled; what is cached still counts."""
        if self.task is not None:
            self.task.cancel()

    def drop(self) -> None:
        """Give the queue up: what still arrives for it is ignored."""
        self.cached.dropped = True
        self.arrived.set()
        self.stop()

    async def wait_for_room(self, seconds: float) -> None:
        """Return when something changes, after `seconds` at the latest."""
        self.room.clear()
        with contextlib.suppress(TimeoutError):
            # Not wait_for: in Python 3.11 it loses a cancellation that coincides with the event.
            async with asyncio.timeout(seconds):
                await self.room.wait()


class Consumer(Client):
    """Base of the push, lite pull and pull consumers: a member of a consumer group."""

    _consumes = True
    _consume_type: ConsumeType
    _settings_kind: type[MemberSettings]

    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None,
        settings: MemberSettings,
        *,
        message_model: MessageModel,
        consume_from_where: ConsumeFromWhere = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
        allocate_strategy: AllocateStrategy | None,
        offset_store: OffsetStore | None,
    ) -> None:
        if group == DEFAULT_CONSUMER_GROUP:
            raise MessageIllegal(f"{DEFAULT_CONSUMER_GROUP} is reserved; choose another group name")
        super().__init__(group, namesrv_addr, settings)
        self._member_settings = settings
        self._message_model = message_model
        self._confirms_offsets = False
        """Whether the broker must confirm offsets before a queue continues or is given up."""
        self._consume_from_where = consume_from_where
        self._strategy = allocate_strategy or AllocateAveragely()
        self._subscriptions: dict[str, SubscriptionData] = {}
        self._allocation_guards: dict[str, AllocationGuard] = {}
        self._members: list[str] = []
        """The client ids of the group, as a broker last reported them."""
        self._held: dict[MessageQueue, HeldQueue] = {}
        self._unstored: set[MessageQueue] = set()
        """Queues that were given up and whose offsets are not stored yet."""
        self._rebalance_wanted = asyncio.Event()
        self._rebalancing = asyncio.Lock()
        self._background = Background(self._name())
        self._store = offset_store
        self._queue_listeners = QueueListeners(self._namespace, self._name())
        self._hooks: list[ConsumeHook] = []
        self._receive_hooks: list[ReceiveHook] = []
        self._filter_hooks: list[FilterHook] = []
        self._started_ms = 0
        self._open_for_callbacks: Instance | None = None

    # -------------------------------------------------------------------------------------------- for the instance

    def wanted_topics(self) -> Iterable[str]:
        """The topics whose routes this consumer needs."""
        return tuple(self._subscriptions)

    def heartbeat_data(self) -> ConsumerData:
        """What the heartbeat says about this consumer."""
        return ConsumerData(
            group_name=self.group,
            consume_type=self._consume_type,
            message_model=self._message_model,
            consume_from_where=self._consume_from_where,
            unit_mode=self._base_settings["unit_mode"],
            subscription_data_set=list(self._subscriptions.values()),
        )

    def wake_rebalance(self) -> None:
        """Rebalance now instead of at the end of the interval."""
        self._rebalance_wanted.set()

    def known_offsets(self, topic: str) -> Mapping[MessageQueue, int]:
        """The offsets of the topic's queues that this consumer holds in memory."""
        return self._store.table.of_topic(topic) if self._store is not None else {}

    # -------------------------------------------------------------------------------------------------- for operators

    def move(self, topic: str, _offsets: Mapping[MessageQueue, int]) -> None:
        """An operator reset the offsets: a consumer that pulls in the background soon continues there. For other
        consumers only the application decides where to read, as in RocketMQ.
        """
        _log.warning("event=offsets_not_moved group=%s topic=%s reason=pull_consumer", self.group, topic)

    def running_info(self, *, stacks: bool) -> ConsumerRunningInfo:
        """Settings, subscriptions and state; with `stacks`, the stacks of all threads and tasks. Without a listener the
        cached messages are not reported.
        """
        return ConsumerRunningInfo(
            jstack=all_stacks() if stacks else None,
            properties=self._properties(),
            subscription_set=list(self._subscriptions.values()),
        )

    def _properties(self, *, workers: int = 0, is_orderly: bool = False) -> dict[str, str]:
        return (
            properties(
                self._settings_kind,
                self._member_settings,
                self.heartbeat_data(),
                name_servers=self._instance.name_servers.addresses,
                workers=workers,
                started_ms=self._started_ms,
                is_orderly=is_orderly,
            )
            | self._condition()
        )

    def _condition(self) -> dict[str, str]:
        """What an operator should know about its state; `ConsumerRunningInfo` has the keys."""
        return {}

    async def consume_directly(self, _message: MessageExt) -> ConsumeDirectlyResult:
        """Call the listener with a message of any queue. RequestRejected without a listener."""
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"{self._name()} has no listener: it is a pull consumer")

    # ----------------------------------------------------------------------------------------------- subscriptions

    def _subscribe(self, topic: str, selector: Selector, version: int | None = None) -> None:
        check_loop(self._name(), self._loop)
        check_topic(topic := self._namespace.wrap(topic))
        version = self._clock.now_ms() if version is None else version
        self._subscriptions[topic] = subscription_of(topic, selector, version)
        if self.is_running:
            self._background.spawn(self._announce(self._instance))

    def _unsubscribe(self, topic: str) -> None:
        check_loop(self._name(), self._loop)
        if self._subscriptions.pop(self._namespace.wrap(topic), None) is not None and self.is_running:
            self._background.spawn(self._announce(self._instance))

    async def _announce(self, instance: Instance) -> None:
        """Send the new subscriptions to the brokers before any queue is pulled with them."""
        await self._find_routes(instance)
        await instance.beat()
        self.wake_rebalance()

    def assignment(self) -> set[MessageQueue]:
        """The queues assigned to this consumer now, including those of the retry topic."""
        return set(map(self._namespace.unwrap_queue, self._held))

    @checks_arguments
    def on_assigned(self, callback: ON_QUEUES) -> ON_QUEUES:
        """Call `callback(queues)` whenever queues are assigned; also as a decorator. A function must not block; the
        consumer awaits a coroutine function for up to 10 seconds. What it raises is logged.
        """
        self._queue_listeners.assigned_callbacks.append(callback)
        return callback

    @checks_arguments
    def on_revoked(self, callback: ON_QUEUES) -> ON_QUEUES:
        """Call `callback(queues)` before queues are given up, also by shutdown; otherwise as `on_assigned`. No more
        messages are pulled from them by then; what the callback commits still counts.
        """
        self._queue_listeners.revoked_callbacks.append(callback)
        return callback

    def _listen_to_queues(self, topic: str, listener: QueueListener | None) -> None:
        if listener is not None:
            self._queue_listeners.listeners[self._namespace.wrap(topic)] = listener

    # ------------------------------------------------------------------------------------------------------- hooks

    @checks_arguments
    def add_consume_hook(self, hook: ConsumeHook) -> None:
        """Call `hook` before and after every call of the listener; without a listener, for every pull that returns
        messages. Only before start; InvalidStateError afterwards.
        """
        self._check_not_started()
        self._hooks.append(hook)

    @checks_arguments
    def add_filter_hook(self, hook: FilterHook) -> None:
        """Call `hook` for every pull that returns messages, so that it can remove messages from the list in place; they
        are not delivered. It runs on the event loop and must not block. Only before start; InvalidStateError
        afterwards.
        """
        self._check_not_started()
        self._filter_hooks.append(hook)

    @checks_arguments
    def add_receive_hook(self, hook: ReceiveHook) -> None:
        """Call `hook` for every pull that returns messages. It runs on the event loop and must not block."""
        self._receive_hooks.append(hook)

    def _show_hooks(self, queue: MessageQueue, messages: Sequence[MessageExt]) -> None:
        """Call the hooks for pulled messages: without a listener these are delivered."""
        if self._hooks and messages:
            plain = self._namespace.unwrap_queue(queue)
            context = ConsumeContext(self.group, plain, messages, ConcurrentContext(plain), self._clock.now_ms())
            each(self._hooks, lambda hook, seen: hook.before(seen), context)
            context.status = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
            each(self._hooks, lambda hook, seen: hook.after(seen), context)

    def _check_not_started(self) -> None:
        if self._state is not ClientState.CREATED:
            raise InvalidStateError(f"{self._name()} is {self._state.value}; add hooks before start")

    def _puller_of(self, instance: Instance, *, flags: int, suspend_ms: int, timeout_ms: int) -> Puller:
        return Puller(
            instance,
            self.group,
            flags=flags,
            suspend_ms=suspend_ms,
            timeout_ms=timeout_ms,
            hooks=self._receive_hooks,
            filters=self._filter_hooks,
            broker_id=self._member_settings["pull_from_broker_id"],
            namespace=self._namespace,
        )

    @checks_arguments
    async def reject(self, message: MessageExt, reason: str = "") -> None:
        """Make a dead letter of a message that no retry would help, with `reason` as its property DEAD_LETTER_REASON
        (its first 1000 characters). A simple consumer acknowledges it as well; any other commits it as usual. In the
        listener of a push consumer use `context.reject`. BrokerError, ClientError, RemotingError: then the message may
        be a dead letter all the same.
        """
        self._check_running()
        async with self._settling(message):
            await self._make_dead_letter(message, reason)
            await self._rejected(message)

    async def _make_dead_letter(self, message: MessageExt, reason: str) -> None:
        sender = RetrySender(self._check_running(), self.group, 0, namespace=self._namespace)
        await sender.make_dead_letter(message, reason)

    def _settling(self, message: MessageExt) -> contextlib.AbstractAsyncContextManager[None]:  # noqa: ARG002
        """Around a request that ends the delivery of a message."""
        return contextlib.nullcontext()

    async def _rejected(self, message: MessageExt) -> None:
        """A message is a dead letter by now."""

    @checks_arguments
    async def lag(self, topic: str | None = None) -> list[QueueLag]:
        """The lag of the group in every queue of its subscriptions, or of one topic, whichever member reads it. A
        broadcasting consumer reports its own lag. Where the lag is unknown it is None, with the problem; `total_lag`
        returns the sum. ClientError when a topic does not exist.
        """
        queues: list[MessageQueue] = []
        for name in self._subscriptions if topic is None else (self._namespace.wrap(topic),):
            if self._instance.routes.subscribed(name) or not name.startswith(RETRY_PREFIX):
                queues += await self._instance.routes.find_subscribed(name)
        lags = await lag_of(self._instance, self.group, queues, self._lag_offset)
        return [replace(one, queue=self._namespace.unwrap_queue(one.queue)) for one in lags]

    @checks_arguments
    async def check_subscription_consistency(self, group: str | None = None) -> SubscriptionCheck:
        """Compare the subscriptions of all members of a group, by default of this one. Where they differ messages get
        lost: a broker filters by one subscription per group. BrokerError, ClientError, RemotingError when no broker can
        list the members; the result names members that do not respond.
        """
        instance = self._check_running()
        return await consistency.check(instance, self.group if group is None else self._namespace.wrap(group))

    async def _compare_subscriptions(self, instance: Instance) -> None:
        """Log a warning if members have other subscriptions than this one. Comparing a few of them is enough."""
        others = [client_id for client_id in self._members if client_id != instance.client_id]
        try:
            broker = await instance.any_broker(next(iter(self._subscriptions), retry_topic(self.group)))
            said = await consistency.subscriptions_of(instance, broker, self.group, others[:COMPARED_MEMBERS_MAX])
        except OrbitMQError as error:
            _log.info("event=subscriptions_not_compared group=%s error=%s", self.group, error)
            return
        own = consistency.subscribed(self._subscriptions.values(), self.group)
        for difference in consistency.differences({instance.client_id: own, **said.subscribed}):
            _log.warning(
                "event=subscriptions_differ group=%s topic=%s members=%s; messages will be lost for some of them",
                self.group, difference.topic, dict(difference.members),
            )  # fmt: skip

    async def _lag_offset(self, queue: MessageQueue) -> int | None:
        offset = await self._stored_offset(queue)
        return offset if offset >= 0 else None

    async def _stored_offset(self, queue: MessageQueue) -> int:
        """The stored offset, -1 without one. That of a queue which is not held is not kept: when the queue is assigned
        it may be wrong, and would be committed.
        """
        table = self._offsets.table
        is_known = queue in table
        offset = await self._offsets.stored(queue)
        if not is_known and queue not in self._held and not table.is_own(queue):
            table.forget(queue)
        return offset

    # --------------------------------------------------------------------------------------------------- lifecycle

    async def _begin_consuming(self, instance: Instance) -> None:
        """Join the group: offsets, routes, heartbeat, first rebalance, then the services."""
        instance.add_consumer(self)
        self._started_ms = self._clock.now_ms()
        await self._ensure_store(instance).open()
        await self._find_routes(instance)
        for subscription in self._subscriptions.values():
            await self._check(instance, subscription)
        await instance.beat()
        with self._callbacks_may_request(instance):
            await self._rebalance(instance)
        self._background.spawn(self._rebalance_regularly(instance))
        self._background.spawn(self._persist_regularly())
        if any(client_id != instance.client_id for client_id in self._members):
            self._background.spawn(self._compare_subscriptions(instance))

    async def _check(self, instance: Instance, subscription: SubscriptionData) -> None:
        """Have a broker of the topic check an expression that it must evaluate. BrokerError if it refuses it."""
        queues = instance.routes.subscribed(subscription.topic)
        if subscription.expression_type == TAG or not queues:
            return
        source = read_address(instance.routes.addresses(queues[0].broker_name), MASTER_ID)
        if source is not None:
            timeout_ms = self._member_settings["api_timeout_ms"]
            await membership.check_client(
                instance.remoting, source.address, instance.client_id, self.group, subscription, timeout_ms=timeout_ms
            )

    async def _find_routes(self, instance: Instance) -> None:
        missing = [topic for topic in self.wanted_topics() if not instance.routes.subscribed(topic)]
        await instance.routes.refresh_each(missing)
        if not all(instance.routes.subscribed(topic) for topic in missing):
            instance.want_routes()

    @contextlib.contextmanager
    def _callbacks_may_request(self, instance: Instance) -> Iterator[None]:
        """Let callbacks of start and shutdown pull, seek and commit, too."""
        self._open_for_callbacks = instance
        try:
            yield
        finally:
            self._open_for_callbacks = None

    def _check_running(self) -> Instance:
        return super()._check_running() if self._open_for_callbacks is None else self._open_for_callbacks

    async def _end_services(self) -> None:
        """Stop the background tasks. The next member to read a queue starts at its stored offset, so offsets that an
        interrupted rebalance has not stored yet are stored here, and at once: later that might overwrite the progress
        of the other member.
        """
        await self._background.stop()
        if self._unstored:
            await self._confirm(self._unstored)
            self._unstored.clear()

    async def _end_consuming(self, instance: Instance) -> None:
        """Store the offsets of consumed messages, leave the group, drop the rest."""
        with self._callbacks_may_request(instance):
            await self._queue_listeners.revoked(self._held)
        await self._confirm(self._offsets_to_store())
        await self._hand_over()
        await instance.dismiss(self.group, consumer=True)
        for held in self._held.values():
            held.drop()

    async def _hand_over(self) -> None:
        """Release what other members wait for, before they are notified that this member leaves."""

    async def _leave(self, instance: Instance) -> None:
        await self._background.stop()
        if self._store is not None:
            self._store.close()
        await super()._leave(instance)

    async def _abandon(self, instance: Instance) -> None:
        await super()._abandon(instance)
        if self._store is not None:
            self._store.close()

    def _ensure_store(self, instance: Instance) -> OffsetStore:
        if self._store is None:
            self._store = self._make_store(instance)
        return self._store

    def _make_store(self, instance: Instance) -> OffsetStore:
        if self._message_model is MessageModel.CLUSTERING:
            return BrokerOffsets(instance, self.group)
        settings = self._member_settings
        name = settings["instance_name"]
        if name == DEFAULT_INSTANCE:
            _log.warning(
                "event=shared_offsets_file group=%s; use a different instance_name for each broadcasting consumer of a "
                "group on a machine: its offsets file is named after it",
                self.group,
            )
        owner = client_id(instance.client_ip, name, settings["unit_name"], stream=instance.stream)
        return FileOffsets(settings["local_offset_dir"], owner, self.group)

    async def _confirm(self, queues: Collection[MessageQueue]) -> None:
        """Store offsets and wait for the confirmation, as far as brokers respond in time."""
        try:
            async with asyncio.timeout(self._member_settings["api_timeout_ms"] / 1000):
                await self._offsets.commit(queues)
        except Exception as error:  # the store may be the application's; the consumer continues or ends regardless
            _log.warning("event=offsets_not_confirmed group=%s error=%r", self.group, error)

    @property
    def _offsets(self) -> OffsetStore:
        assert self._store is not None, "start makes the store"
        return self._store

    async def _persist_regularly(self) -> None:
        while True:
            await asyncio.sleep(self._member_settings["persist_offset_interval_ms"] / 1000)
            with one_round(self._name(), "offsets"):  # the store may be the application's
                await self._offsets.persist(self._offsets_to_store())

    def _offsets_to_store(self) -> Collection[MessageQueue]:
        """The queues whose offsets are stored regularly."""
        return list(self._held)

    # --------------------------------------------------------------------------------------------------- rebalance

    async def _rebalance_regularly(self, instance: Instance) -> None:
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(REBALANCE_INTERVAL_S):
                    await self._rebalance_wanted.wait()
            self._rebalance_wanted.clear()
            with one_round(self._name(), "rebalance"):
                await self._rebalance(instance)

    async def _rebalance(self, instance: Instance) -> None:
        """One round over all subscribed topics. A topic that fails keeps its queues and is retried soon."""
        async with self._rebalancing:
            for topic in list(self._subscriptions):
                try:
                    await self._rebalance_topic(instance, topic)
                except Exception as error:  # the other topics must not wait for this one's
                    unexpected = not isinstance(error, OrbitMQError)
                    _log.warning(
                        "event=not_rebalanced group=%s topic=%s error=%r", self.group, topic, error, exc_info=unexpected
                    )
                    asyncio.get_running_loop().call_later(REBALANCE_AGAIN_S, self.wake_rebalance)
            await self._release([queue for queue in self._held if queue.topic not in self._subscriptions])

    async def _rebalance_topic(self, instance: Instance, topic: str) -> None:
        queues = instance.routes.subscribed(topic)
        if not queues:
            return  # the instance looks for the route and wakes the rebalance when it is found
        assigned = await self._assigned(instance, topic, queues)
        if assigned is None:
            asyncio.get_running_loop().call_later(REBALANCE_AGAIN_S, self.wake_rebalance)
            return
        step = change(topic, self._reading(), assigned)
        if step:
            _log.info("event=rebalanced group=%s topic=%s held=%d", self.group, topic, len(assigned))
            await self._release([queue for queue in (*step.dropped, *step.added) if queue in self._held])
            taken = await self._free(step.added)
            self._take(taken)
            await self._queue_listeners.assigned(taken)
            await self._queue_listeners.changed(topic, queues, [queue for queue in self._held if queue.topic == topic])

    async def _assigned(
        self, instance: Instance, topic: str, queues: tuple[MessageQueue, ...]
    ) -> Collection[MessageQueue] | None:
        """The queues of `topic` that this member should read; None to keep those it has."""
        if self._message_model is MessageModel.BROADCASTING:
            return queues
        broker = await instance.any_broker(topic)
        members = self._members = await membership.consumer_ids(instance.remoting, broker, self.group)
        decides = self._allocation_guards.setdefault(topic, AllocationGuard())
        try:
            return decides.assignment(self._strategy, self.group, instance.client_id, queues, members)
        except Exception:  # the strategy may be the application's; queues are never given up because of an error
            _log.exception("event=not_allocated group=%s topic=%s strategy=%s", self.group, topic, self._strategy.name)
            return None

    def _reading(self) -> list[MessageQueue]:
        """The held queues whose task is running; one whose task failed is not held, so it is taken again."""
        return [queue for queue, held in self._held.items() if held.task is None or not held.task.done()]

    async def _free(self, queues: Collection[MessageQueue]) -> Collection[MessageQueue]:
        """Those of the queues that may be read now; the others wait for the next round."""
        return queues

    def _take(self, queues: Iterable[MessageQueue]) -> None:
        for queue in queues:
            self._hold(queue)
        self._assignment_changed()

    def _hold(self, queue: MessageQueue) -> None:
        """Start to read `queue`."""
        self._held[queue] = HeldQueue(queue)

    async def _release(self, queues: Collection[MessageQueue]) -> None:
        for queue in queues:
            self._held[queue].stop()
        await self._queue_listeners.revoked(queues)
        if self._confirms_offsets:
            await self._confirm(queues)
        for queue in queues:
            self._held.pop(queue).drop()
            self._unstored.add(queue)
            try:
                await self._offsets.release(queue)
            except Exception:  # the store may be the application's; others wait for the queue
                _log.exception("event=offset_not_stored group=%s queue=%s", self.group, queue)
            self._unstored.discard(queue)  # but not when this is cancelled
        if queues:
            self._assignment_changed()

    def _assignment_changed(self) -> None:
        """Called when queues were taken or given up."""
