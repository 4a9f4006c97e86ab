"""Reads the metrics of `table_native.BROKER` from a running broker. Must not know how they are served.

Only two histograms and the counters of transactions and timer messages are kept here: the broker reports each put,
decision and delivery to them. It counts everything else anyway.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Iterable, Iterator

from orbitmq.broker.broker import Broker
from orbitmq.broker.clients import ConnectedClient
from orbitmq.broker.election.election import Election
from orbitmq.broker.progress import fall_behind
from orbitmq.message.config import TopicConfig
from orbitmq.message.topics import (
    DLQ_PREFIX,
    HALF_TOPIC,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    is_system_group,
    is_system_topic,
)
from orbitmq.metrics.connections import loop_delays, memory, refusals
from orbitmq.metrics.largest import largest
from orbitmq.metrics.model import Buckets, Readers, Sample
from orbitmq.metrics.versions import version_name
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.runtime.histogram import Histogram
from orbitmq.store.files import Files
from orbitmq.wire.bodies import ConsumeType

PUT_SECONDS = (0.0001, 0.00025, 0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0, 10.0)
MESSAGE_BYTES = (1 << 10, 4 << 10, 512 << 10, 1 << 20, 2 << 20, 4 << 20)  # RocketMQ's
FINISH_MS = (1, 5, 10, 50, 100, 500, 1000, 5000, 10_000, 60_000, 600_000, 3_600_000)
TOPICS_MAX = 10_000  # with transactions, or timers; clients choose topic names. Further topics are counted together
OTHERS = ""  # their name
STORAGE = ("local", "disk")
UNSPECIFIED = "unspecified"  # the type of a message is in its properties, which a send does not parse
QUEUES_A_STEP = 20  # read before other tasks get a turn: some two milliseconds
MODES = {ConsumeType.CONSUME_PASSIVELY: "push", ConsumeType.CONSUME_ACTIVELY: "pull"}


class BrokerMetrics:
    """Create this before the broker starts. `queue_series`: the number of queues that have a series of their own."""

    def __init__(
        self, broker: Broker, queue_series: int = 0, clock: Clock | None = None, files: Files | None = None
    ) -> None:
        self._broker = broker
        self._clock = clock or SystemClock()
        self._files = files or Files()
        self._queue_series = queue_series
        self._disks: dict[str, float] = {}
        self._put_seconds = Histogram(PUT_SECONDS)
        self._sizes = Histogram(MESSAGE_BYTES)
        self._finish_ms = Histogram(FINISH_MS)
        self._ended: dict[bool, Counter[str]] = {True: Counter(), False: Counter()}
        self._timers: Counter[str] = Counter()
        broker.statistics.on_put = self._put
        broker.transactions.deciding.on_end = self._end
        broker.timers.on_delivery = lambda topic: _count(self._timers, topic)

    @property
    def labels(self) -> dict[str, str]:
        """Labels of every series."""
        options = self._broker.options
        return {"cluster": options.broker_cluster_name, "node_type": "broker", "node_id": options.broker_name}

    async def prepare(self) -> None:
        """Collect what may block; called before the readers."""
        self._disks = await asyncio.to_thread(self._disk_usage)

    def _disk_usage(self) -> dict[str, float]:
        directories = self._broker.store.options.commit_log_directories
        return {str(path): self._files.used_ratio(path) for path in directories if path.exists()}

    def failure(self) -> str | None:
        """Why the broker is unhealthy; None if it is healthy."""
        return "its disk has failed: it stores no messages until it is restarted" if self._is_poisoned else None

    @property
    def _is_poisoned(self) -> bool:
        return self._broker.store.is_poisoned

    # ------------------------------------------------------------------------------------------------------ counting

    def _put(self, messages: int, size: int, seconds: float) -> None:
        if seconds:  # the delivery of a delayed message is not timed
            self._put_seconds.observe(seconds)
        self._sizes.observe(size / messages, messages)

    def _end(self, topic: str, is_commit: bool, waited_ms: int) -> None:
        _count(self._ended[is_commit], topic)
        if is_commit:
            self._finish_ms.observe(max(0, waited_ms))

    # ------------------------------------------------------------------------------------------------------- reading

    def readers(self) -> Readers:
        """One reader for each metric of the table."""
        broker, store, front = self._broker, self._broker.store, self._broker.front
        log = store.commit_log
        return {
            "rocketmq_messages_in_total": lambda: self._in(0),
            "rocketmq_throughput_in_total": lambda: self._in(1),
            "rocketmq_messages_out_total": lambda: self._out(0),
            "rocketmq_throughput_out_total": lambda: self._out(1),
            "rocketmq_send_to_dlq_messages_total": self._dead_letters,
            "orbitmq_send_back_messages_total": self._sent_back,
            "orbitmq_put_failures_total": lambda: _one(broker.statistics.totals.put_failures),
            "rocketmq_commit_messages_total": lambda: _counted(self._ended[True]),
            "rocketmq_rollback_messages_total": lambda: _counted(self._ended[False]),
            "rocketmq_half_messages": self._half_messages,
            "rocketmq_processor_watermark": self._watermarks,
            "rocketmq_broker_permission": lambda: _one(broker.options.broker_permission),
            "rocketmq_topic_number": lambda: _one(len(broker.topics.table)),
            "rocketmq_consumer_group_number": lambda: _one(len(broker.groups.table)),
            "rocketmq_producer_connections": self._producers,
            "rocketmq_consumer_connections": self._consumers,
            "rocketmq_consumer_lag_messages": self._lags,
            "rocketmq_consumer_lag_latency_milliseconds": self._latencies,
            "orbitmq_queue_lag_messages": self._queue_lags,
            "orbitmq_differing_groups": lambda: _one(len(broker.consumers.differing)),
            "rocketmq_storage_size_bytes": lambda: [(STORAGE, log.end - log.min_offset)],
            "rocketmq_storage_flush_behind_bytes": lambda: [(STORAGE, log.end - log.flushed)],
            "rocketmq_storage_dispatch_behind_bytes": lambda: [(STORAGE, 0)],
            "rocketmq_storage_message_reserve_time_milliseconds": lambda: [(STORAGE, self._oldest_ms())],
            "rocketmq_timing_messages": self._delayed,
            "rocketmq_timer_dequeue_latency_milliseconds": lambda: _one(broker.timers.late_ms) if self._times else [],
            "rocketmq_timer_dequeue_total": lambda: _counted(self._timers),
            "rocketmq_consumer_inflight_messages": self._in_flight,
            "rocketmq_pop_revive_retry_messages_total": lambda: _one(broker.revival.revived),
            "orbitmq_storage_disk_used_ratio": lambda: [((path,), ratio) for path, ratio in self._disks.items()],
            "orbitmq_broker_active": lambda: _one(not self._is_poisoned),
            "orbitmq_start_time_seconds": lambda: _one(broker.statistics.started_ms / 1000),
            "orbitmq_event_loop_late_seconds": lambda: _one(broker.lateness.waited_ms() / 1000),
            "orbitmq_event_loop_delay_seconds": lambda: loop_delays(broker.lateness),
            "orbitmq_replication_slaves": lambda: _one(len(broker.replicas.links)),
            "orbitmq_replication_behind_bytes": self._slaves_behind,
            "orbitmq_replication_serving": lambda: _one(not broker.not_serving),
            "orbitmq_replication_epoch_seconds": self._epoch,
            "orbitmq_replication_other_masters": self._other_masters,
            "orbitmq_replication_refused_slaves": self._refused_slaves,
            "orbitmq_election_epoch": lambda: self._elected(lambda one: 0 if one.agreed is None else one.agreed.epoch),
            "orbitmq_election_in_sync": lambda: self._elected(
                lambda one: 0 if one.agreed is None else len(one.agreed.in_sync), only_master=True
            ),
            "orbitmq_election_lease_seconds": lambda: self._elected(
                lambda one: one.lease_left_ms / 1000, only_master=True
            ),
            "orbitmq_election_maintenance": lambda: self._elected(
                lambda one: one.agreed is not None and one.agreed.maintenance
            ),
            "orbitmq_election_agreement_up": lambda: self._elected(lambda one: not one.failure),
            "orbitmq_connections": lambda: _one(len(broker.connections)),
            "orbitmq_grpc_connections": lambda: _one(0 if front is None else len(front.server.connections)),
            "orbitmq_grpc_clients": lambda: _one(0 if front is None else len(front.sessions)),
            "orbitmq_connection_memory_bytes": lambda: memory(broker.budgets),
            "orbitmq_refusals_total": lambda: refusals(broker.refusals),
            "orbitmq_put_latency_seconds": lambda: [((), Buckets.of(self._put_seconds))],
            "rocketmq_message_size": lambda: [((), Buckets.of(self._sizes))],
            "rocketmq_finish_message_latency_milliseconds": lambda: [((), Buckets.of(self._finish_ms))],
        }

    def _in(self, which: int) -> Iterator[Sample]:
        """Messages (0) or bytes (1) of each topic."""
        for topic, flow in list(self._broker.statistics.puts.table.items()):
            yield (topic, UNSPECIFIED, _flag(is_system_topic(topic))), (flow.messages, flow.bytes)[which]

    def _out(self, which: int) -> Iterator[Sample]:
        for (topic, group), flow in list(self._broker.statistics.gets.table.items()):
            is_system = _flag(is_system_topic(topic) or is_system_group(group))
            yield (topic, group, is_system), (flow.messages, flow.bytes)[which]

    def _dead_letters(self) -> Iterator[Sample | None]:
        for topic, flow in list(self._broker.statistics.puts.table.items()):
            if topic.startswith(DLQ_PREFIX):
                group = topic.removeprefix(DLQ_PREFIX)
                yield (topic, group, _flag(is_system_group(group))), flow.messages
            else:
                yield None

    def _sent_back(self) -> Iterator[Sample]:
        for key, flow in list(self._broker.statistics.send_backs.table.items()):
            yield key, flow.messages

    def _half_messages(self) -> Iterator[Sample | None]:
        total = 0
        for count in self._broker.transactions.ledger.undecided(self._broker.store.max_offset(HALF_TOPIC, 0)):
            total += count
            yield None
        yield (), total

    def _watermarks(self) -> Iterable[Sample]:
        broker = self._broker
        waiting = {
            "send": len(broker.store.flush_waits),
            "pull": len(broker.held),
            "query_message": len(broker.searches),
        }
        return [((processor,), count) for processor, count in waiting.items()]

    def _producers(self) -> Iterator[Sample | None]:
        counts: Counter[tuple[str, str, str]] = Counter()
        for group in list(self._broker.producers.groups):
            counts.update(map(_client, self._broker.producers.groups.get(group, {}).values()))
            yield None
        yield from counts.items()

    def _consumers(self) -> Iterator[Sample | None]:
        for name in list(self._broker.consumers.groups):
            group = self._broker.consumers.groups.get(name)
            if group is None:
                continue
            mode, is_system = MODES.get(group.consume_type, "unknown"), _flag(is_system_group(name))
            for client, count in Counter(map(_client, group.members.values())).items():
                yield (name, *client, mode, is_system), count
            yield None

    def _delayed(self) -> Iterable[Sample]:
        store = self._broker.store
        done = self._broker.delay_offsets  # missing for a level from which nothing was delivered
        waiting = (
            store.max_offset(SCHEDULE_TOPIC, queue_id)
            - done.get(queue_id + 1, store.min_offset(SCHEDULE_TOPIC, queue_id))
            for queue_id in store.queue_ids(SCHEDULE_TOPIC)
        )
        delayed: list[Sample] = [((SCHEDULE_TOPIC,), sum(max(0, count) for count in waiting))]
        return [*delayed, ((TIMER_TOPIC,), len(self._broker.timers.pending))] if self._times else delayed

    def _in_flight(self) -> Iterable[Sample]:
        totals: Counter[tuple[str, str]] = Counter()
        for (topic, group, _), count in self._broker.journal.in_flight.messages.items():
            totals[topic, group] += count
        return [(_consumer(*key), count) for key, count in totals.most_common(TOPICS_MAX)]

    @property
    def _times(self) -> bool:
        """Whether the broker delivers timer messages: a slave does not know them, and a start takes a moment."""
        return self._broker.timers.is_ready

    def _oldest_ms(self) -> int:
        oldest = self._broker.store.earliest_message_time
        return max(0, self._clock.now_ms() - oldest) if oldest > 0 else 0

    def _slaves_behind(self) -> Iterable[Sample]:
        end = self._broker.store.commit_log_max_offset
        return [((link.address,), max(0, end - link.acknowledged)) for link in list(self._broker.replicas.links)]

    def _epoch(self) -> Iterable[Sample]:
        watch = self._broker.watch
        return [] if watch is None else _one(watch.epoch / 1000)

    def _other_masters(self) -> Iterable[Sample]:
        watch = self._broker.watch
        if watch is None:
            return []
        others = watch.others.values()
        serving = sum(one.serves for one in others)
        return [(("serving",), serving), (("stopped",), len(others) - serving)]

    def _refused_slaves(self) -> Iterable[Sample]:
        watch = self._broker.watch
        return [] if watch is None else _one(len(watch.refused_slaves))

    def _elected(self, value: Callable[[Election], float], *, only_master: bool = False) -> Iterable[Sample]:
        election = self._broker.election
        if election is None or (only_master and not election.is_master):
            return []
        return _one(value(election))

    # ----------------------------------------------------------------------------------------------------------- lag

    def _consumed(self) -> Iterator[tuple[TopicConfig, str]]:
        """Existing topics, each with the groups that have offsets there and, if online, subscribe to it."""
        broker = self._broker
        for name, group in broker.offsets.pairs():
            topic = broker.topics.get(name)
            online = broker.consumers.groups.get(group)
            if topic is not None and (online is None or not online.subscriptions or name in online.subscriptions):
                yield topic, group

    def _lag(self, topic: str, group: str, queue_id: int) -> int:
        broker = self._broker
        consumed = broker.offsets.query(group, topic, queue_id) or 0
        store = broker.store
        return max(0, store.max_offset(topic, queue_id) - max(consumed, store.min_offset(topic, queue_id)))

    def _lags(self) -> Iterator[Sample | None]:
        for topic, group in self._consumed():
            total = 0
            for queue_id in range(topic.read_queues):
                total += self._lag(topic.name, group, queue_id)
                if queue_id % QUEUES_A_STEP == QUEUES_A_STEP - 1:
                    yield None
            yield _consumer(topic.name, group), total

    def _latencies(self) -> Iterator[Sample | None]:
        broker, now_ms = self._broker, self._clock.now_ms()
        for topic, group in self._consumed():
            longest = 0
            for queue_id in range(topic.read_queues):
                fall = fall_behind(broker.store, broker.offsets, group, topic.name, queue_id, now_ms)
                longest = max(longest, fall.milliseconds if fall is not None else 0)
                if queue_id % QUEUES_A_STEP == QUEUES_A_STEP - 1:
                    yield None
            yield _consumer(topic.name, group), longest

    def _queue_lags(self) -> Iterator[Sample | None]:
        name = self._broker.options.broker_name
        found = (
            (self._lag(topic.name, group, queue_id), (topic.name, group, name, str(queue_id)))
            for topic, group in self._consumed()
            for queue_id in range(topic.read_queues)
        )
        return largest(self._queue_series, found)


def _one(value: float) -> list[Sample]:
    return [((), value)]


def _count(counter: Counter[str], topic: str) -> None:
    counter[topic if topic in counter or len(counter) < TOPICS_MAX else OTHERS] += 1


def _counted(counter: Counter[str]) -> list[Sample]:
    return [((topic,), count) for topic, count in counter.items()]


def _flag(flag: bool) -> str:
    return "true" if flag else "false"


def _consumer(topic: str, group: str) -> tuple[str, str, str, str]:
    is_system = is_system_topic(topic) or is_system_group(group)
    return topic, group, _flag(topic.startswith(RETRY_PREFIX)), _flag(is_system)


def _client(client: ConnectedClient) -> tuple[str, str, str]:
    return client.language.lower(), version_name(client.version), "remoting"
