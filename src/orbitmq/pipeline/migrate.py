"""The job `migrate`: copies topics and group offsets between clusters of orbitmq or RocketMQ."""

from __future__ import annotations

import time
import uuid
from collections import Counter, defaultdict
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path

from pyspark.errors import PySparkException
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as f

from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.message.model import MessageQueue
from orbitmq.message.properties import RESERVED
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.pipeline.datasets import Lineage, counted_topics, topics
from orbitmq.pipeline.job import Advance, Job, JobContext, JobOptions, JobResult
from orbitmq.pipeline.moves import Migration, Move, load, paired
from orbitmq.pipeline.send import send
from orbitmq.pipeline.shared_options import ExpectedBrokers, connection, expected, ranges
from orbitmq.pipeline.task_progress import tasks_shown
from orbitmq.runtime.options import option
from orbitmq.spark.channel import Channel
from orbitmq.spark.cluster_client import BrokerAddresses, ClusterClient, Retries, require_open, succeeded
from orbitmq.spark.cluster_options import ClusterOptions, parts
from orbitmq.spark.group_offsets import OffsetReporter, running_consumers, stored_offsets
from orbitmq.spark.options import read_options
from orbitmq.spark.queue_selection import queue_selection
from orbitmq.spark.read_brokers import Witness, complete_queues
from orbitmq.spark.sink_keys import IDEMPOTENCY_KEY, digest
from orbitmq.spark.source import TopicSource
from orbitmq.spark.versions import read_batch
from orbitmq.wire.bodies import ConsumerOffsetTable
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers_admin import CreateTopicHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

COLUMNS = ("topic", "brokerName", "queueId", "queueOffset", "body", "keys", "tags", "properties", "flag")
QUEUE = ("topic", "brokerName", "queueId")
MARK_AT_END = r" ?\b[0-9a-f]{32}$"  # the mark of a task, a key of the first message of a pass
ROUTE_SECONDS = 60.0  # a new topic is in the route once its broker has registered it, within 30 s
QUEUE_SECONDS = 30.0  # RocketMQ builds queue entries after it has responded; a broker that restarts takes longer
LOOK_SECONDS = 0.2
TIMEOUT_MS = 30_000
RETRIES = Retries(3, 1000)
ORBITMQ_PREFIX = "ORBIT_"  # of properties of orbitmq
DATA_LOSS = "ORBITMQ_DATA_LOSS"
COMPARISONS_MAX = 5  # a comparison starts again when a broker has deleted a file meanwhile


@dataclass(frozen=True)
class MigrateJob(ExpectedBrokers, ClusterOptions, JobOptions):
    """Options of the job `migrate`."""

    topics: str = option("topics", "", "Topics to copy, separated by commas.")
    pattern: str = option(
        "topicPattern", "", "Instead of topics: copy all topics whose whole name matches this regular expression."
    )
    groups: str = option("groups", "", "Groups whose offsets are copied, separated by commas. `*` is all.")
    state: str = option(
        "state", "", "File that keeps the progress of the migration, the same for each of its runs. Required."
    )
    pass_size: int = option(
        "passRows", 500_000, "Messages of a queue that are copied before the state is saved.", minimum=1
    )
    fail_on_data_loss: bool = option(
        "failOnDataLoss",
        True,
        "Stop when messages were deleted before they could be copied. Otherwise skip them and report how many.",
    )
    rewind: bool = option(
        "rewindOffsets",
        False,
        "Also set an offset of a group back where it is further on the target. Otherwise it stays there.",
    )
    create_topics: bool = option("createTopics", True, "Create topics and queues that the target lacks.")
    verify: bool = option("verify", True, "Read both clusters at the end, and compare counts and hashes of each queue.")
    to_name_server: str = option("toNameServer", "", "Name servers of the target cluster. Required.")
    to_cluster: str = option(
        "toCluster", "", "Name of the target cluster when its name servers know several. Empty is any."
    )
    to_access_key: str = option("toAccessKey", "", "Account on the target.")
    to_secret_key: str = option("toSecretKey", "", "Secret of that account.", secret=True)
    to_use_tls: bool = option("toUseTLS", False, "Use TLS for connections to the target.")
    to_trusted: str = option(
        "toTrustCertPath",
        "",
        "File with the certificate authorities to trust for the target. Empty trusts those of the machine.",
    )

    @property
    def target(self) -> ClusterOptions:
        """How the target cluster is reached."""
        return ClusterOptions(
            name_server=self.to_name_server,
            access_key=self.to_access_key,
            secret_key=self.to_secret_key,
            use_tls=self.to_use_tls,
            trusted=self.to_trusted,
        )


def run(context: JobContext[MigrateJob]) -> JobResult:
    """Copy what is there now, copy the group offsets, and compare."""
    options = context.options
    _check(options)
    source, target = cluster(options), cluster(options.target)
    path = Path(options.state).expanduser()
    ends = (";".join(options.name_servers), ";".join(options.target.name_servers))
    migration = load(path, ends) or Migration(uuid.uuid4().hex, ends)
    goals = enlist(migration, options, source, target)
    if options.dry_run:
        rows = [_row(move, goals.get(move.source, move.done) - move.done) for move in migration.moves]
        return JobResult({"queues": len(rows), "messages to copy": sum(int(row["messages"]) for row in rows)}, rows)
    migration.save(path)
    began, before, had = time.monotonic(), _copied(migration), _by_topic(migration)
    spark = context.spark()
    if not options.fail_on_data_loss:
        leave_out(spark, options, migration, source)
    with context.progress("migrate", "messages") as advance, tasks_shown(context, "pass"):
        copy(spark, options, migration, goals, advance)
    wait_for_queues(migration, target)
    carried, failed = carry(options, migration, source, target)
    counts: dict[str, int | str] = {
        "messages copied": _copied(migration) - before,
        "copied before": before,
        "deleted uncopied": sum(move.gone for move in migration.moves),
        **carried,
    }
    failed += foreign(migration, target)
    if options.verify:
        with tasks_shown(context, "compare"):
            compared, unequal = compare(spark, options, migration, source, target)
        counts |= {"messages compared": compared, "queues": len(migration.moves)}
        counts |= {"queues equal": len(migration.moves) - len(unequal)}
        failed += unequal
    table = [_row(move, move.copied) for move in migration.moves]
    now = {topic: count - had[topic] for topic, count in _by_topic(migration).items()}
    moved = Lineage(counted_topics(options.name_servers, now), counted_topics(options.target.name_servers, now))
    return JobResult({**counts, "seconds": f"{time.monotonic() - began:.1f}"}, table, failed, moved)


def lineage(options: MigrateJob) -> Lineage:
    """The topics that the options name, on both clusters."""
    named = parts(options.topics, ",")
    return Lineage(topics(options.name_servers, named), topics(options.target.name_servers, named))


# ------------------------------------------------------------------------------------------------------- what to copy


def cluster(options: ClusterOptions) -> ClusterClient:
    return ClusterClient(options.name_servers, TIMEOUT_MS, RETRIES, options.protection)


def enlist(
    migration: Migration, options: MigrateJob, source: ClusterClient, target: ClusterClient
) -> dict[MessageQueue, int]:
    """Add new queues to the migration. Returns the current end of each source queue."""
    wanted = {"subscribe": options.topics} if options.topics else {"subscribePattern": options.pattern}
    strict = {"failOnDataLoss": str(options.fail_on_data_loss)}
    given = read_options(connection(options) | expected(options) | wanted | strict)
    claim = ("the state of the migration has one", "set failOnDataLoss=false to migrate what is left")
    seen = {Witness(move.source.broker_name, move.source.topic, *claim) for move in migration.moves}
    places = complete_queues(source, given, queue_selection(given), seen)
    bounds = source.bounds({queue: place.addresses for queue, place in places.items()})
    known = {move.source for move in migration.moves}
    for topic in sorted({queue.topic for queue in places}):
        queues = [queue for queue in places if queue.topic == topic and queue not in known]
        if not queues:
            continue
        there = homes(migration, topic, places, masters(target, options.to_cluster))
        bases = _bases(target, options, {there[queue] for queue in queues})
        for queue in sorted(queues):
            migration.add(queue, there[queue], bounds[queue][0], bases[there[queue]])
    return {queue: high for queue, (_, high) in bounds.items()}


def homes(
    migration: Migration, topic: str, places: Collection[MessageQueue], brokers: Collection[str]
) -> dict[MessageQueue, MessageQueue]:
    """The target of each queue of a topic. ConfigurationError when a target belongs to another queue already, since the
    topic has more queues than when the migration began."""
    there = paired((queue for queue in places if queue.topic == topic), sorted(brokers))
    taken = {move.target: move.source for move in migration.moves}
    for queue, home in there.items():
        if taken.get(home, queue) != queue:
            raise ConfigurationError(
                f"topic {topic} has more queues than when the migration began; start a new migration"
            )
    return there


def masters(target: ClusterClient, name: str) -> dict[str, BrokerAddresses]:
    """The masters of a cluster. ConfigurationError when there is none."""
    info = target.info()
    names = set(info.brokers) if not name else set(info.clusters.get(name, ()))
    found = {
        broker: BrokerAddresses((data.addresses[0],), has_master=True)
        for broker, data in info.brokers.items()
        if broker in names and 0 in data.addresses
    }
    if not found:
        raise ConfigurationError(
            f"cluster {name} has no broker to copy to" if name else "the target cluster has no broker to copy to"
        )
    return found


def _bases(target: ClusterClient, options: MigrateJob, wanted: set[MessageQueue]) -> dict[MessageQueue, int]:
    """The next offset of each target queue. Missing queues start at 0, and are created unless this is a dry run."""
    topic = next(iter(wanted)).topic
    found = _open(target, topic)
    missing = wanted - found.keys()
    if missing and not options.dry_run:
        if not options.create_topics:
            raise ConfigurationError(f"topic {topic} lacks queues on the target, and option createTopics is false")
        _create(target, options, topic, wanted)
        found = _awaited(target, topic, wanted)
    there = {queue: place.addresses for queue, place in found.items() if queue in wanted}
    return dict.fromkeys(missing, 0) | {queue: high for queue, (_, high) in target.bounds(there).items()}


def _create(target: ClusterClient, options: MigrateJob, topic: str, wanted: set[MessageQueue]) -> None:
    brokers = masters(target, options.to_cluster)
    present = _open(target, topic)
    for name in sorted({queue.broker_name for queue in wanted}):
        ids = [queue.queue_id for queue in {*wanted, *present} if queue.broker_name == name]
        count = 1 + max(ids)  # existing queues stay
        header = CreateTopicHeader(
            topic, AUTO_CREATE_TOPIC, count, count, PERM_READ | PERM_WRITE, "SINGLE_TAG", order=False, topic_sys_flag=0
        )
        asked = request(RequestCode.UPDATE_AND_CREATE_TOPIC, header)
        (response,) = target.call_broker(name, brokers[name].addresses, partial(_call, asked))
        succeeded(f"topic {topic} on {name}", response)


def _awaited(target: ClusterClient, topic: str, wanted: set[MessageQueue]) -> Mapping[MessageQueue, BrokerAddresses]:
    deadline = time.monotonic() + ROUTE_SECONDS
    while True:
        found = _open(target, topic)
        if wanted <= found.keys():
            return found
        if time.monotonic() > deadline:
            raise ConfigurationError(f"topic {topic} was created, but the name server does not know it")
        time.sleep(LOOK_SECONDS)


def _open(target: ClusterClient, topic: str) -> Mapping[MessageQueue, BrokerAddresses]:
    """The queues of a topic on the target, none if it does not exist. SourceError when it may not be read: a copy is
    looked for before it is repeated."""
    found = target.look_up([topic])
    require_open(found.closed)
    return found.queues


# ---------------------------------------------------------------------------------------------------------- the copy


def leave_out(spark: SparkSession, options: MigrateJob, migration: Migration, source: ClusterClient) -> None:
    """Skip what the source has deleted.

    This is done only at the start of a run, when no task of the previous run sends any more: part of an interrupted
    pass may be stored.
    """
    lows = {queue: low for queue, (low, _) in _bounds(source, [move.source for move in migration.moves]).items()}
    if any(lows.get(move.source, 0) > move.done for move in migration.moves):
        migration.settle(stored_of(spark, options, migration), lows)
        migration.save(Path(options.state).expanduser())


def stored_of(spark: SparkSession, options: MigrateJob, migration: Migration) -> dict[MessageQueue, int]:
    """How much of the unfinished pass each target queue has. ConfigurationError when its last message is not of it."""
    ends = _bounds(cluster(options.target), [move.target for move in migration.pending])
    begun = [move for move in migration.pending if ends.get(move.target, (0, 0))[1] > move.top]
    if not begun:
        return {}
    last = read(
        spark, options.target, {move.target: (ends[move.target][1] - 1, ends[move.target][1]) for move in begun}
    )
    rows = last.select(*QUEUE, f.col("properties")[IDEMPOTENCY_KEY].alias("key")).collect()
    keys = {MessageQueue(row.topic, row.brokerName, row.queueId): row.key for row in rows}
    stored = {move.target: ends[move.target][1] - move.top for move in begun}
    for move in begun:
        if keys.get(move.target) != _key(migration, move.source, move.done + stored[move.target] - 1):
            raise ConfigurationError(f"{_named(move)}: another producer writes into its copy; start a new migration")
    return stored


def _key(migration: Migration, queue: MessageQueue, offset: int) -> str:
    """The idempotency key of a copy, as the sink makes it."""
    return digest("k", "/".join(map(str, (migration.name, *_queue(queue), offset))))


def _bounds(asked: ClusterClient, queues: Sequence[MessageQueue]) -> dict[MessageQueue, tuple[int, int]]:
    """First and next offset of those queues that exist."""
    places = asked.look_up(sorted({queue.topic for queue in queues})).queues
    return asked.bounds({queue: places[queue].addresses for queue in queues if queue in places})


def copy(
    spark: SparkSession, options: MigrateJob, migration: Migration, goals: Mapping[MessageQueue, int], advance: Advance
) -> None:
    """Copy pass by pass. Each is saved in the state before it starts; an unfinished one is repeated under its name."""
    path, total = Path(options.state).expanduser(), _copied(migration)
    total += sum(max(0, goals.get(move.source, move.done) - move.done) for move in migration.moves)
    advance(_copied(migration), total)
    while migration.pending or migration.plan(goals, options.pass_size):
        migration.save(path)
        try:
            _pass(spark, options, migration)
        except (PySparkException, SourceError) as error:  # the latter of a plan without data sources
            if DATA_LOSS not in str(error) or options.fail_on_data_loss:
                raise
            text = "messages were deleted while they were copied; the next run with this state skips them"
            raise SourceError(DATA_LOSS, text) from error
        migration.finish()
        migration.save(path)
        advance(_copied(migration), total)


def _pass(spark: SparkSession, options: MigrateJob, migration: Migration) -> None:
    moves = migration.pending
    frame = read(spark, options, {move.source: (move.done, move.end) for move in moves})
    rows = [(*_queue(move.source), move.target.broker_name, move.target.queue_id) for move in moves]
    kinds = "topic STRING, brokerName STRING, queueId INT, toBroker STRING, toQueue INT"
    there = frame.join(f.broadcast(spark.createDataFrame(rows, kinds)), list(QUEUE)).select(
        "topic", "body", "keys", "tags", "properties", "flag",
        f.col("toBroker").alias("brokerName"),
        f.col("toQueue").alias("queueId"),
        f.concat_ws("/", f.lit(migration.name), *QUEUE, "queueOffset").alias("idempotencyKey"),
    )  # fmt: skip
    sink = {
        "jobId": f"{migration.name}/{migration.passes}",
        "deliveryGuarantee": "effectively-once",
        "queueSelector": "fixed",
    }
    send(there, connection(options.target) | sink)


def read(spark: SparkSession, options: ClusterOptions, wanted: Mapping[MessageQueue, tuple[int, int]]) -> DataFrame:
    """The messages of these ranges, each queue in its order in one task."""
    return read_batch(spark, TopicSource, {**connection(options), **ranges(wanted), "columns": ",".join(COLUMNS)})


# -------------------------------------------------------------------------------------------------------- the offsets


def carry(
    options: MigrateJob, migration: Migration, source: ClusterClient, target: ClusterClient
) -> tuple[dict[str, int | str], list[str]]:
    """Set the offsets of the groups on the target. Returns how many are set and how many are further ahead, and what
    could not be set. A failure of one group does not stop the others."""
    topics = sorted({move.source.topic for move in migration.moves})
    here = {queue: place.addresses for queue, place in (source.queues(*topics) if topics else {}).items()}
    there = target.queues(*topics) if topics else {}
    counts, failed = {"offsets carried": 0, "offsets further there": 0}, []
    try:
        wanted_of = groups(options, source, topics)
    except SourceError as error:
        return {**counts}, [f"group offsets are not copied: {error}; name the groups if your account may not list them"]
    for group, own in wanted_of.items():
        try:
            stored = stored_offsets(source, group, {queue: at for queue, at in here.items() if queue.topic in own})
            wanted = {
                move.target: move.offset_of(stored[move.source])
                for move in migration.moves
                if move.source in stored and move.target in there
            }
            places = {queue: there[queue] for queue in wanted}
            found, refusal = settled(target, group, wanted, places, rewind=options.rewind)
        except SourceError as error:
            failed.append(f"group {group}: {error}")
            continue
        further = [queue for queue, offset in wanted.items() if found.get(queue, -1) > offset and not options.rewind]
        late = [queue for queue, offset in wanted.items() if found.get(queue) != offset and queue not in further]
        counts["offsets carried"] += len(wanted) - len(further) - len(late)
        counts["offsets further there"] += len(further)
        failed += [refusal] if refusal and late else [_not_there(group, queue, wanted[queue]) for queue in late]
    return {**counts}, failed


def settled(
    target: ClusterClient,
    group: str,
    wanted: Mapping[MessageQueue, int],
    places: Mapping[MessageQueue, BrokerAddresses],
    *,
    rewind: bool,
) -> tuple[dict[MessageQueue, int], str]:
    """The offsets of the group after they were set, and why they were not if running consumers would overwrite them."""
    addresses = {queue: place.addresses for queue, place in places.items()}
    before = stored_offsets(target, group, addresses)
    if running := running_consumers(target, group, places):
        whom = f"{len(running)} consumers, such as {running[0]}" if running[1:] else running[0]
        return (
            before,
            f"group {group} is consuming on the target ({whom}), so its offsets were not set; stop it and run again",
        )
    due = {queue: offset for queue, offset in wanted.items() if rewind or before.get(queue, 0) <= offset}
    OffsetReporter(target, group).report(due, places)
    return stored_offsets(target, group, addresses), ""


def _not_there(group: str, queue: MessageQueue, offset: int) -> str:
    where = f"queue {queue.queue_id} of {queue.topic} on {queue.broker_name}"
    return f"the offset of group {group} in {where} should be {offset}, but is not"


def groups(options: MigrateJob, source: ClusterClient, topics: Collection[str]) -> dict[str, Collection[str]]:
    """The groups whose offsets are copied, and their topics. `*` is all groups with offsets in these topics."""
    if options.groups != "*":
        return dict.fromkeys(parts(options.groups, ","), topics)
    found: dict[str, set[str]] = defaultdict(set)
    for name, place in masters(source, "").items():
        asked = request(RequestCode.GET_ALL_CONSUMER_OFFSET)
        (response,) = source.call_broker(name, place.addresses, partial(_call, asked))
        table = decode(ConsumerOffsetTable, succeeded(f"offsets of {name}", response).body).offset_table
        for topic, _, group in (key.partition("@") for key in table):
            if topic in topics:
                found[group].add(topic)
    return {group: found[group] for group in sorted(found)}


def wait_for_queues(migration: Migration, target: ClusterClient) -> None:
    """Wait until each target queue has what was copied into it, at most QUEUE_SECONDS."""
    deadline = time.monotonic() + QUEUE_SECONDS
    while _is_behind(migration, target) and time.monotonic() < deadline:
        time.sleep(LOOK_SECONDS)


def _is_behind(migration: Migration, target: ClusterClient) -> bool:
    bounds = _bounds(target, [move.target for move in migration.moves])
    return any(move.target in bounds and bounds[move.target][1] < move.top for move in migration.moves)


# ----------------------------------------------------------------------------------------------------- the comparison


def foreign(migration: Migration, target: ClusterClient) -> list[str]:
    """Target queues with messages of another producer, after which offsets do not match any more."""
    bounds = _bounds(target, [move.target for move in migration.moves])
    ends = {queue: end for queue, (_, end) in bounds.items()}
    return [
        f"queue {move.target.queue_id} of {move.target.topic} on {move.target.broker_name} ends at "
        f"{ends.get(move.target, 0)} instead of {move.top}: another producer writes there"
        for move in migration.moves
        if ends.get(move.target, 0) != move.top
    ]


def compare(
    spark: SparkSession, options: MigrateJob, migration: Migration, source: ClusterClient, target: ClusterClient
) -> tuple[int, list[str]]:
    """The number of messages compared, and the queues whose copy differs."""
    for _ in range(COMPARISONS_MAX - 1):
        try:
            return _compared(spark, options, migration, source, target)
        except (PySparkException, SourceError) as error:  # the latter of a plan without data sources
            if DATA_LOSS not in str(error):
                raise
    return _compared(spark, options, migration, source, target)


def _compared(
    spark: SparkSession, options: MigrateJob, migration: Migration, source: ClusterClient, target: ClusterClient
) -> tuple[int, list[str]]:
    """Compare what both sides still have: brokers delete old messages meanwhile."""
    bounds = _bounds(source, [move.source for move in migration.moves])
    copies = _bounds(target, [move.target for move in migration.moves])
    unequal = [
        f"{_named(move)} cannot be compared: the source no longer has the queue"
        for move in migration.moves
        if move.source not in bounds
    ]
    moves = [move for move in migration.moves if move.source in bounds and move.target in copies]
    begins = {move.source: move.shared(bounds[move.source][0], copies[move.target][0]) for move in moves}
    moves = [move for move in moves if begins[move.source][0] < move.done]
    here = digests(spark, options, {move.source: (begins[move.source][0], move.done) for move in moves})
    there = digests(spark, options.target, {move.target: (begins[move.source][1], move.top) for move in moves})
    unequal += [
        f"{_named(move)}: (messages, hash) are {here.get(move.source)} at the source, "
        f"{there.get(move.target)} at the target"
        for move in moves
        if here.get(move.source) != there.get(move.target)
    ]
    return sum(move.done - begins[move.source][0] for move in moves), unequal


def _named(move: Move) -> str:
    return f"queue {move.source.queue_id} of {move.source.topic} on {move.source.broker_name}"


def digests(
    spark: SparkSession, options: ClusterOptions, wanted: Mapping[MessageQueue, tuple[int, int]]
) -> dict[MessageQueue, tuple[int, int]]:
    """Number and hash of the messages of each range, over the application's content and the position in the range."""
    if not wanted:
        return {}
    rows = [(*_queue(queue), start) for queue, (start, _) in wanted.items()]
    starts = spark.createDataFrame(rows, "topic STRING, brokerName STRING, queueId INT, start BIGINT")
    frame = read(spark, options, wanted).join(f.broadcast(starts), list(QUEUE))
    keys = f.regexp_replace(f.coalesce("keys", f.lit("")), MARK_AT_END, "")
    digest = f.xxhash64(f.col("queueOffset") - f.col("start"), "body", keys, "tags", "flag", _own_properties())
    found = frame.groupBy(*QUEUE).agg(f.count("*").alias("messages"), f.bit_xor(digest).alias("hash")).collect()
    return {MessageQueue(row.topic, row.brokerName, row.queueId): (row.messages, row.hash) for row in found}


def _own_properties() -> Column:
    """The application's properties as one text, without reserved ones and those that the sink adds."""
    known = sorted(RESERVED)
    own = f.map_filter(
        f.coalesce("properties", f.create_map().cast("map<string,string>")),
        lambda name, _: ~name.isin(known) & ~name.startswith(ORBITMQ_PREFIX),
    )
    return f.to_json(f.array_sort(f.map_entries(own)))


# ------------------------------------------------------------------------------------------------------------- words


def _check(options: MigrateJob) -> None:
    needed = {"nameServer": options.name_server, "toNameServer": options.to_name_server, "state": options.state}
    for key, value in needed.items():
        if not value:
            raise ConfigurationError(f"option {key} is missing")
    if bool(options.topics) == bool(options.pattern):
        raise ConfigurationError("set one of the options topics and topicPattern")


def _call(asked: Command, channel: Channel) -> list[Command]:
    return channel.call(asked)


def _queue(queue: MessageQueue) -> tuple[str, str, int]:
    return queue.topic, queue.broker_name, queue.queue_id


def _copied(migration: Migration) -> int:
    return sum(move.copied for move in migration.moves)


def _by_topic(migration: Migration) -> Counter[str]:
    found: Counter[str] = Counter()
    for move in migration.moves:
        found[move.source.topic] += move.copied
    return found


def _row(move: Move, messages: int) -> dict[str, int | str]:
    there = f"{move.target.broker_name}/{move.target.queue_id} from {move.base}"
    topic, broker, queue = _queue(move.source)
    return {"topic": topic, "broker": broker, "queue": queue, "to": there, "messages": messages}


JOB = Job(
    "migrate",
    "Each queue is copied in order into a queue of its own, so that group offsets can be copied: groups resume on the\n"
    "target where they were on the source. No other producer may write into the target queues. Run it again with the\n"
    "same state to copy new messages, or to resume a failed run without duplicates. Ids, times and delays are new on\n"
    "the target, and the first message of each pass has one more key. Retries and dead letters are copied when you\n"
    "name their topics.",
    MigrateJob,
    run,
    (
        "--name-server 10.0.0.1:9876 --to-name-server 10.1.0.1:9876 --topics orders --state orders.json --dry-run",
        "--name-server 10.0.0.1:9876 --to-name-server 10.1.0.1:9876 --topics orders --groups '*' --state orders.json",
    ),
    "the next run with the same --state resumes without duplicates",
    lineage,
)
