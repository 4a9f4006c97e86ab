"""The inputs of an audit: a cluster over the network, store directories, or a lake. Each provides its data in the same
form, or raises an error that says why it cannot."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import NamedTuple, Protocol, TypeVar

from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f
from pyspark.sql.types import IntegerType, StructField, StructType

from orbitmq.errors import ConfigurationError, OrbitMQError, SourceError
from orbitmq.message.delay import UNKNOWN_LEVEL_DELAY_MS, parse_delay_levels
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import (
    HALF_TOPIC,
    OP_HALF_TOPIC,
    REVIVE_PREFIX,
    SCHEDULE_TOPIC,
    TIMER_TOPIC,
    TOOLS_CONSUMER_GROUP,
    TRANSACTION_GROUP,
)
from orbitmq.pipeline.archive import topics_wanted
from orbitmq.pipeline.archive_stream import MESSAGES, STORED_SIZE
from orbitmq.pipeline.audit.backlog import GroupOffset
from orbitmq.pipeline.audit.facts import QUEUE, facts, within, wrong_checksum
from orbitmq.pipeline.audit.messages import Bounds
from orbitmq.pipeline.audit.options import ALL, BACKLOG, DAMAGE, DUPLICATES, OF_MESSAGES, AuditJob
from orbitmq.pipeline.audit.overdue import waiting_timers
from orbitmq.pipeline.shared_options import connection, expected, ranges, time_ms, times
from orbitmq.runtime.files import load_with_backup
from orbitmq.spark.channel import Channel
from orbitmq.spark.cluster_client import BrokerAddresses, ClusterClient, Retries, require_open, succeeded
from orbitmq.spark.cluster_options import parts
from orbitmq.spark.group_offsets import by_broker, stored_offsets
from orbitmq.spark.lake.source import LakeSource
from orbitmq.spark.options import read_options
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import complete_queues
from orbitmq.spark.source import TopicSource
from orbitmq.spark.stores.options import scan_options
from orbitmq.spark.stores.source import StoreSource
from orbitmq.spark.stores.splits import checked
from orbitmq.spark.topic_names import topic_names
from orbitmq.spark.versions import read_batch
from orbitmq.wire.bodies import ConsumerOffsetTable, DelayOffsetTable, TimerProgress
from orbitmq.wire.command import Command, request
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.settings import decode_settings

TIMEOUT_MS = 30_000
RETRIES = Retries(3, 1000)
LEVELS = "messageDelayLevel"
_EVERYTHING = StructType([*MESSAGES.fields, StructField(STORED_SIZE, IntegerType())])
WAITING_COLUMNS = ("brokerName", "queueId", "queueOffset", "msgId", "properties", "bornTimestamp", "storeTimestamp")
TIMER_COLUMNS = (*WAITING_COLUMNS, "physOffset")
OP_COLUMNS = ("brokerName", "queueId", "queueOffset", "body")
RECORD_COLUMNS = ("brokerName", "queueOffset", "tags", "body")
T = TypeVar("T")


class MessageFacts(NamedTuple):
    """The data for checks of messages: `facts` of each message, the `bounds` of queues at the brokers, and `read`, the
    ranges that should be complete. The last two are empty when unknown."""

    facts: DataFrame
    bounds: Bounds
    read: Bounds


class AuditInput(Protocol):
    """An input of an audit."""

    def plan(self) -> list[dict[str, int | str]]:
        """What would be read, a row for each part."""
        ...

    def material(self) -> MessageFacts: ...
    def lows(self) -> Bounds:
        """The bounds after the read: brokers delete messages meanwhile. Empty when unknown."""
        ...

    def standings(self) -> list[GroupOffset]:
        """The offsets of groups. OrbitMQError when brokers reject the request, which does not stop other checks."""
        ...

    def traces(self) -> DataFrame: ...
    def half(self) -> tuple[DataFrame, DataFrame]:
        """Half and op messages that are not settled."""
        ...

    def delayed(self) -> DataFrame:
        """Delayed messages that are not delivered, with `due` and `level`; timer messages among them, without one."""
        ...

    def in_flight(self) -> DataFrame:
        """The records of POP consumption."""
        ...


def input_of(spark: SparkSession, options: AuditJob) -> AuditInput:
    """The input that the options name. ConfigurationError when options are missing."""
    needed = {"pull": ("nameServer", options.name_server), "store": ("path", options.path)}
    key, value = needed.get(options.input, ("lake", options.lake))
    if not value:
        raise ConfigurationError(f"option {key} is missing; input {options.input} needs it")
    kinds: dict[str, Callable[[SparkSession, AuditJob], AuditInput]] = {
        "pull": ClusterInput,
        "store": StoreInput,
        "lake": LakeInput,
    }
    return kinds[options.input](spark, options)


# ------------------------------------------------------------------------------------------------------------ cluster


class ClusterInput:
    """Brokers over the network. Queues are read up to their end at the start of the audit."""

    def __init__(self, spark: SparkSession, options: AuditJob) -> None:
        self._spark = spark
        self._options = options
        self._cluster = ClusterClient(options.name_servers, TIMEOUT_MS, RETRIES, options.protection)
        self._places: Mapping[MessageQueue, BrokerAddresses] = {}
        self._bounds: Bounds = {}
        self._closed: SourceError | None = None  # a topic may not be read: no checks of messages
        self._standings: list[GroupOffset] = []
        self._refusal: OrbitMQError | None = None  # of the request for group offsets; other checks run without them
        self._query_all()

    def _query_all(self) -> None:
        try:
            self._places = self._find_places()
            self._bounds = self._bounds_of(self._places)
        except SourceError as error:
            if error.name != "ORBITMQ_NO_PERMISSION":
                raise
            self._closed = error
            return
        try:
            self._standings = self._progress_by_group() if BACKLOG in self._options.wanted else []
        except OrbitMQError as error:
            self._refusal = error

    def _find_places(self) -> dict[MessageQueue, BrokerAddresses]:
        options = self._options
        given = read_options(connection(options) | expected(options) | topics_wanted(options.topics))
        return complete_queues(self._cluster, given, queue_selection(given))

    def plan(self) -> list[dict[str, int | str]]:
        self._check_open()
        return [
            {"topic": q.topic, "broker": q.broker_name, "queue": q.queue_id, "messages": end - start}
            for q, (start, end) in sorted(self._ranges().items())
        ]

    def _check_open(self) -> None:
        if self._closed is not None:
            raise self._closed

    def material(self) -> MessageFacts:
        self._check_open()
        options, read = self._options, self._ranges()
        names = [*QUEUE, "queueOffset", "msgId", "keys", "bornTimestamp", "storeTimestamp", "size"]
        names += ["properties"] if DUPLICATES in options.wanted else []
        names += ["body", "bodyCrc", "sysFlag"] if DAMAGE in options.wanted else []
        frame = self._read(read, names, failOnDataLoss="false", verifyCrc="false", decompress="false")
        damage = wrong_checksum(is_unpacked=False) if DAMAGE in options.wanted else None
        return MessageFacts(facts(frame, f.col("size"), damage), self._bounds, read)

    def lows(self) -> Bounds:
        return self._bounds_of(self._places)

    def standings(self) -> list[GroupOffset]:
        if self._refusal is not None:
            raise self._refusal
        return self._standings

    def traces(self) -> DataFrame:
        begin_ms = time_ms("from", self._options.begin)
        found = self._queues_of(self._options.trace_topic)
        bounds = self._bounds_of(found)
        starts = self._starts(found, bounds, begin_ms)
        wanted = {queue: (starts[queue], bounds[queue][1]) for queue in found}
        return self._read(wanted, ["body", "storeTimestamp"], failOnDataLoss="false")

    def half(self) -> tuple[DataFrame, DataFrame]:
        frames = []
        found_of = {topic: self._queues_of(topic) for topic in (HALF_TOPIC, OP_HALF_TOPIC)}
        # Brokers continue meanwhile, so the order matters: first the progress of op messages, then of half messages;
        # then the end of the half messages, last that of the op messages. So a half message that is copied is seen at
        # its old offset, and no decision about a message that was read is missed.
        done_of = {
            topic: stored_offsets(self._cluster, TRANSACTION_GROUP, _addresses(found_of[topic]))
            for topic in (OP_HALF_TOPIC, HALF_TOPIC)
        }
        for topic, names in ((HALF_TOPIC, WAITING_COLUMNS), (OP_HALF_TOPIC, OP_COLUMNS)):
            bounds, done = self._bounds_of(found_of[topic]), done_of[topic]
            wanted = {queue: (max(low, done.get(queue, low)), high) for queue, (low, high) in bounds.items()}
            frames.append(self._read(wanted, names, failOnDataLoss="false"))
        return frames[0], frames[1]

    def delayed(self) -> DataFrame:
        found = self._queues_of(SCHEDULE_TOPIC)
        bounds = self._bounds_of(found)
        wanted: dict[MessageQueue, tuple[int, int]] = {}
        delays: list[tuple[str, int, int]] = []
        timers: dict[str, TimerProgress] = {}
        for name, queues in by_broker(found).items():
            place = found[queues[0]]
            table = decode(DelayOffsetTable, self._request(name, place, RequestCode.GET_ALL_DELAY_OFFSET))
            if table.timers is not None:  # before the messages are read: what is delivered meanwhile is not late
                timers[name] = table.timers
            done = table.offset_table
            levels = self._levels(name, place)
            for queue in queues:
                low, high = bounds[queue]
                wanted[queue] = max(low, done.get(queue.queue_id + 1, low)), high
                known = queue.queue_id < len(levels)
                delays.append((name, queue.queue_id, levels[queue.queue_id] if known else UNKNOWN_LEVEL_DELAY_MS))
        frame = self._read(wanted, WAITING_COLUMNS, failOnDataLoss="false")
        known_delays = self._spark.createDataFrame(delays, "brokerName STRING, queueId INT, delay BIGINT")
        waiting = frame.join(f.broadcast(known_delays), ["brokerName", "queueId"]).select(
            *WAITING_COLUMNS, (f.unix_millis("storeTimestamp") + f.col("delay")).alias("due"), _level()
        )
        if not timers:
            return waiting
        queues_of_timers = self._bounds_of(self._queues_of(TIMER_TOPIC))
        return waiting.unionByName(
            waiting_timers(self._read(queues_of_timers, TIMER_COLUMNS, failOnDataLoss="false"), timers)
        )

    def in_flight(self) -> DataFrame:
        topics = [topic for topic in self._cluster.topics() if topic.startswith(REVIVE_PREFIX)]
        queues = {queue: place for topic in topics for queue, place in self._queues_of(topic).items()}
        return self._read(self._bounds_of(queues), RECORD_COLUMNS, failOnDataLoss="false")

    def _levels(self, name: str, place: BrokerAddresses) -> Sequence[int]:
        settings = decode_settings(self._request(name, place, RequestCode.GET_BROKER_CONFIG))
        if LEVELS not in settings:
            raise SourceError("ORBITMQ_BROKER_UNAVAILABLE", f"broker {name} does not report its {LEVELS}")
        return parse_delay_levels(settings[LEVELS])

    def _ranges(self) -> dict[MessageQueue, tuple[int, int]]:
        """The range to read of each queue: from the start time on, and the backlog of all groups."""
        options = self._options
        begin_ms, found = time_ms("from", options.begin), {}
        needed: dict[MessageQueue, int] = {}
        for standing in self._standings:
            needed[standing.queue] = min(standing.offset, needed.get(standing.queue, standing.offset))
        starts = self._starts(self._places, self._bounds, begin_ms) if options.wanted & OF_MESSAGES else {}
        for queue, (low, high) in self._bounds.items():
            found[queue] = max(low, min(starts.get(queue, high), needed.get(queue, high))), high
        return found

    def _starts(
        self, places: Mapping[MessageQueue, BrokerAddresses], bounds: Bounds, begin_ms: int
    ) -> dict[MessageQueue, int]:
        if not begin_ms:
            return {queue: low for queue, (low, _) in bounds.items()}
        times = dict.fromkeys(bounds, begin_ms)
        return self._cluster.offsets_at(_addresses(places), bounds, times, TOOLS_CONSUMER_GROUP)

    def _progress_by_group(self) -> list[GroupOffset]:
        options = self._options
        if options.groups.strip() != ALL:
            return [
                GroupOffset(group, queue, offset)
                for group in parts(options.groups, ",")
                for queue, offset in stored_offsets(self._cluster, group, _addresses(self._places)).items()
            ]
        found = []
        for name, queues in by_broker(self._places).items():
            table = self._request(name, self._places[queues[0]], RequestCode.GET_ALL_CONSUMER_OFFSET)
            found += _standings(decode(ConsumerOffsetTable, table), name, self._places)
        return found

    def _queues_of(self, topic: str) -> dict[MessageQueue, BrokerAddresses]:
        """Empty for a topic that does not exist yet. SourceError for one that may not be read."""
        found = self._cluster.look_up([topic])
        require_open(found.closed)
        return dict(found.queues)

    def _bounds_of(self, queues: Mapping[MessageQueue, BrokerAddresses]) -> dict[MessageQueue, tuple[int, int]]:
        return self._cluster.bounds(_addresses(queues))

    def _read(self, wanted: Bounds, names: Collection[str], **how: str) -> DataFrame:
        filled = {queue: (start, end) for queue, (start, end) in wanted.items() if start < end}
        if not filled:
            fields = [field for field in _EVERYTHING.fields if field.name in names]
            return self._spark.createDataFrame([], StructType(fields))
        read = {**connection(self._options), **ranges(filled), "columns": ",".join(names), **how}
        return read_batch(self._spark, TopicSource, read)

    def _request(self, name: str, place: BrokerAddresses, code: RequestCode) -> bytes:
        def requests(channel: Channel) -> list[Command]:
            return channel.call(request(code))

        (response,) = self._cluster.call_broker(name, place.addresses, requests)
        return bytes(succeeded(f"{code.name} of {name}", response).body)


def _level() -> Column:
    return (f.col("queueId") + 1).alias("level")


def _addresses(queues: Mapping[MessageQueue, BrokerAddresses]) -> dict[MessageQueue, tuple[str, ...]]:
    return {queue: place.addresses for queue, place in queues.items()}


def _standings(table: ConsumerOffsetTable, broker: str, queues: Collection[MessageQueue]) -> list[GroupOffset]:
    """The offsets of one broker for these queues."""
    found = []
    for key, offsets in table.offset_table.items():
        topic, _, group = key.partition("@")
        for queue_id, offset in offsets.items():
            queue = MessageQueue(topic, broker, queue_id)
            if queue in queues:
                found.append(GroupOffset(group, queue, offset))
    return found


# ------------------------------------------------------------------------------------------------------------- stores


class StoreInput:
    """Store directories, with the saved offsets of their brokers, which may be some seconds old."""

    def __init__(self, spark: SparkSession, options: AuditJob) -> None:
        self._spark = spark
        self._options = options
        self._stores = checked(scan_options({"path": options.path}).stores)

    def plan(self) -> list[dict[str, int | str]]:
        return [
            {"broker": name, "queues": len(store.queues()), "bytes": store.log().size}
            for name, store in self._stores.items()
        ]

    def material(self) -> MessageFacts:
        wanted = self._options.wanted
        names = [*QUEUE, "queueOffset", "msgId", "keys", "bornTimestamp", "storeTimestamp", "size", "corrupt"]
        names += ["properties"] if DUPLICATES in wanted else []
        names += ["body"] if DAMAGE in wanted else []
        how = {"onCorruptRecord": "raw" if DAMAGE in wanted else "skip", "decompress": "false"}
        frame = self._read(names, topics=self._options.topics, **how)
        bounds = self._bounds()
        return MessageFacts(facts(frame, f.col("size"), f.col("corrupt")), bounds, bounds)

    def lows(self) -> Bounds:
        return {}

    def standings(self) -> list[GroupOffset]:
        names = None if self._options.groups.strip() == ALL else parts(self._options.groups, ",")
        bounds, found = self._bounds(), []
        for broker in self._stores:
            table = self._saved(broker, "consumerOffset.json", ConsumerOffsetTable) or ConsumerOffsetTable()
            found += _standings(table, broker, bounds)
        return [standing for standing in found if names is None or standing.group in names]

    def traces(self) -> DataFrame:
        frame = self._read(["body", "storeTimestamp"], topics=self._options.trace_topic)
        return _stored_within(frame, self._options)

    def half(self) -> tuple[DataFrame, DataFrame]:
        frames = []
        for topic, names in ((HALF_TOPIC, WAITING_COLUMNS), (OP_HALF_TOPIC, OP_COLUMNS)):
            done = {}
            for broker in self._stores:
                table = self._saved(broker, "consumerOffset.json", ConsumerOffsetTable) or ConsumerOffsetTable()
                done[broker] = table.offset_table.get(f"{topic}@{TRANSACTION_GROUP}", {})
            frames.append(self._behind(self._read([*names], topics=topic), done))
        return frames[0], frames[1]

    def delayed(self) -> DataFrame:
        done, timers = {}, dict[str, TimerProgress]()
        for broker in self._stores:
            saved = self._saved(broker, "delayOffset.json", DelayOffsetTable) or DelayOffsetTable()
            if (progress := self._saved(broker, "timerProgress.json", TimerProgress)) is not None:
                timers[broker] = progress
            done[broker] = {level - 1: offset for level, offset in saved.offset_table.items()}
        frame = self._behind(self._read([*WAITING_COLUMNS], topics=SCHEDULE_TOPIC), done)
        entries = self._read(
            ["brokerName", "queueId", "queueOffset", "tagsCode"], scan="consumequeue", topics=SCHEDULE_TOPIC
        )
        due = entries.withColumnRenamed("tagsCode", "due")  # as brokers deliver by it
        waiting = frame.join(due, ["brokerName", "queueId", "queueOffset"]).select(*WAITING_COLUMNS, "due", _level())
        return waiting.unionByName(waiting_timers(self._read([*TIMER_COLUMNS], topics=TIMER_TOPIC), timers))

    def in_flight(self) -> DataFrame:
        queues = [queue for store in self._stores.values() for queue in store.queues()]
        topics = sorted({topic for topic, _ in queues if topic.startswith(REVIVE_PREFIX)})
        return self._read(RECORD_COLUMNS, topics=",".join(topics) or f"{REVIVE_PREFIX}none")

    def _behind(self, frame: DataFrame, done: Mapping[str, Mapping[int, int]]) -> DataFrame:
        """Messages at or after the offsets that are done."""
        rows = [(broker, queue, offset) for broker, offsets in done.items() for queue, offset in offsets.items()]
        if not rows:
            return frame
        table = self._spark.createDataFrame(rows, "brokerName STRING, queueId INT, done BIGINT")
        joined = frame.join(f.broadcast(table), ["brokerName", "queueId"], "left")
        return joined.where(f.col("queueOffset") >= f.coalesce("done", f.lit(0))).drop("done")

    def _bounds(self) -> Bounds:
        """The bounds of those queue entries whose messages are still in the log."""
        entries = self._read([*QUEUE, "queueOffset"], scan="consumequeue", topics=self._options.topics)
        found = entries.groupBy(*QUEUE).agg(f.min("queueOffset").alias("low"), f.max("queueOffset").alias("high"))
        return {
            MessageQueue(row.topic, row.brokerName, row.queueId): (row.low, row.high + 1) for row in found.collect()
        }

    def _read(self, names: Collection[str], **how: str) -> DataFrame:
        read = {"path": self._options.path, "columns": ",".join(names), "failOnDataLoss": "false"}
        return read_batch(self._spark, StoreSource, {**read, "onCorruptRecord": "skip", **how})

    def _saved(self, broker: str, name: str, kind: type[T]) -> T | None:
        path = Path(self._stores[broker].root) / "config" / name
        return load_with_backup(path, partial(decode, kind))


# --------------------------------------------------------------------------------------------------------------- lake


class LakeInput:
    """A lake: messages, and traces if they were archived."""

    def __init__(self, spark: SparkSession, options: AuditJob) -> None:
        self._spark = spark
        self._options = options
        self._lake = options.open_existing()

    def plan(self) -> list[dict[str, int | str]]:
        found: dict[str, list[int]] = defaultdict(lambda: [0, 0, 0])
        for file in self._lake.files():
            sums = found[file.topic]
            found[file.topic] = [sums[0] + 1, sums[1] + file.rows, sums[2] + file.size]
        return [
            {"topic": topic, "files": files, "messages": rows, "bytes": size}
            for topic, (files, rows, size) in sorted(found.items())
        ]

    def material(self) -> MessageFacts:
        names = [*QUEUE, "queueOffset", "msgId", "keys", "bornTimestamp", "storeTimestamp"]
        names += ["body", "bodyCrc", "sysFlag"]
        names += ["properties"] if DUPLICATES in self._options.wanted else []
        frame = self._read(names, self._options.topics)
        return MessageFacts(facts(frame, f.octet_length("body"), wrong_checksum(is_unpacked=True)), {}, {})

    def lows(self) -> Bounds:
        return {}

    def standings(self) -> list[GroupOffset]:
        return []

    def traces(self) -> DataFrame:
        return self._read(["body", "storeTimestamp"], self._options.trace_topic)

    def half(self) -> tuple[DataFrame, DataFrame]:
        raise _not_in_a_lake()

    def delayed(self) -> DataFrame:
        raise _not_in_a_lake()

    def in_flight(self) -> DataFrame:
        raise _not_in_a_lake()

    def _read(self, names: Collection[str], topics: str) -> DataFrame:
        known = topic_names(topics)
        if not any(not file.topic or file.topic in known for file in self._lake.files()):
            return self._spark.createDataFrame([], StructType([field for field in MESSAGES if field.name in names]))
        period = times(time_ms("from", self._options.begin), time_ms("until", self._options.end))
        read = {**self._options.reading(), **period, "columns": ",".join(names), "topics": topics}
        return read_batch(self._spark, LakeSource, read)


def _not_in_a_lake() -> OrbitMQError:
    return ConfigurationError("input lake has no pending messages of brokers")


def _stored_within(frame: DataFrame, options: AuditJob) -> DataFrame:
    stored = frame.withColumn("stored", f.unix_millis("storeTimestamp"))
    return within(stored, time_ms("from", options.begin), time_ms("until", options.end)).drop("stored")
