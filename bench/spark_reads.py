"""The cost of reading and archiving messages with Spark, from a store directory and from a broker (`make bench-spark`).

The main result is rows per CPU second: rows by the user and system time of Spark's JVM and all its Python workers;
the load of other programs hardly affects it. Each row is compared with its peer in the same run: a copy of the
log in memory for scans, Spark's own source for Apache Kafka for reads from a broker (the same messages, copied into a
Kafka broker), Spark's writer of Parquet for the archive. What a write into a topic costs before the network is measured
without Spark; of small micro-batches and of many small queues it is the time that counts. About nine minutes; `--only`
chooses rows.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, redirect_stderr, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame, SparkSession
from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from bench.kafka import KafkaBroker, source_jars  # noqa: E402
from bench.micro import sink as sink_works  # noqa: E402
from bench.spark_queues import QUEUE_FILE_SIZE, count_ms, fill_queues, plan_ms, times_ms  # noqa: E402
from orbitmq.message.hosts import encode_host  # noqa: E402
from orbitmq.pipeline.archive import ArchiveJob  # noqa: E402
from orbitmq.pipeline.archive import run as archive  # noqa: E402
from orbitmq.pipeline.job import JobContext  # noqa: E402
from orbitmq.pipeline.progress import shown_on  # noqa: E402
from orbitmq.pipeline.session import DATA_SOURCES  # noqa: E402
from orbitmq.runtime.clock import SystemClock  # noqa: E402
from orbitmq.spark import register  # noqa: E402
from orbitmq.spark.columns import COLUMNS  # noqa: E402
from orbitmq.spark.stores.options import scan_options  # noqa: E402
from orbitmq.spark.stores.source import StoreSource  # noqa: E402
from orbitmq.spark.stores.splits import LogSplit, batch_splits  # noqa: E402
from orbitmq.store.dispatch import TAGS_ONLY  # noqa: E402
from orbitmq.store.engine import MessageStore  # noqa: E402
from orbitmq.store.options import StoreOptions  # noqa: E402
from orbitmq.store.reader import StoreDirectory  # noqa: E402
from orbitmq.store.records import PutRecord  # noqa: E402
from tests.support.orbit_process import OrbitUp  # noqa: E402

MESSAGES = 600_000  # of 1 KiB: 750 MB, of which every row but the copy takes seconds
ROUNDS = 3
TOPICS = ("orders", "orders", "payments", "clicks")  # half of all messages are orders
QUEUES = 4
TICK = os.sysconf("SC_CLK_TCK")
EIGHT = "topic,queueId,queueOffset,msgId,keys,body,properties,storeTimestamp"
FOUR = "topic,queueId,queueOffset,body"
SEVEN = "key,value,topic,partition,offset,timestamp,timestampType"
STORE, PULL, KAFKA, ARCHIVE, PARQUET = "orbitmq-store", "orbitmq", "kafka", "archive", "parquet"
TRIGGER, TRIGGERS = "trigger", 40  # micro-batches, of which the first half warms up
TRIGGER_ROWS = 20
MANY = "many"  # many small queues
LAKE_COLUMNS = ",".join(name for name in COLUMNS if name != "size")  # what an archive keeps
STORES = 4  # that an archive takes at once: its query costs two seconds of CPU before the first message
WARMING = 2  # rounds before those that count: the JVM still compiles in the second one


@dataclass(frozen=True)
class Row:
    """One row of the table: what is read how, and the thousand rows a CPU second that are wanted. `share` of all
    messages come; `peer` and `alone` are the rows it is set beside: somebody else's, and its own on one core.
    """

    title: str
    options: Mapping[str, str] = field(default_factory=dict)
    format: str = STORE
    goal: int = 0
    share: float = 1.0
    cores: int = 2
    peer: str = ""
    alone: str = ""


ROWS = {
    "copy": Row("copy of the log in memory, no Spark", cores=0),
    "decode": Row("8 columns decoded, no Spark", {"columns": EIGHT}, cores=0, peer="copy"),
    "scan8": Row("store, 8 columns with the map", {"columns": EIGHT}, goal=350, peer="copy", alone="scan8core1"),
    "scan4": Row("store, 4 columns", {"columns": FOUR}, peer="copy"),
    "scanless": Row("store, 7 columns without body and map", {"columns": EIGHT.replace("body,properties", "tags")}),
    "splits": Row("store, 8 columns, splits of 32 MiB", {"columns": EIGHT, "splitBytes": str(32 << 20)}),
    "topic": Row("store, one topic of four by its queues", {"columns": EIGHT, "topics": "clicks"}, share=0.25),
    "queues": Row("store, queue entries alone", {"scan": "consumequeue"}),
    "kafka7": Row("Kafka's source, its 7 columns", format=KAFKA, share=0.5, alone="kafka7core1"),
    "kafkaheaders": Row("Kafka's source with headers", {"includeHeaders": "true"}, KAFKA, share=0.5),
    "pull12": Row("broker, the 12 default columns", {}, PULL, 200, 0.5, peer="kafkaheaders"),
    "pull4": Row("broker, 4 columns", {"columns": FOUR}, PULL, 300, 0.5, peer="kafka7", alone="pull4core1"),
    "pull7": Row(
        "broker, the 7 columns of Kafka's source", {"schema": "kafka", "columns": SEVEN}, PULL, 260, 0.5, peer="kafka7"
    ),
    "parquet": Row("stores into Spark's Parquet writer, zstd", {"columns": LAKE_COLUMNS}, PARQUET, share=STORES),
    "archive": Row("stores into the lake, zstd", {}, ARCHIVE, 250, share=STORES, peer="parquet", alone="archivecore1"),
    "archivesmall": Row("one store into the lake, zstd", {}, ARCHIVE),
    "sink": Row("sink into a topic before the network", cores=0, goal=150),
    "trigger": Row("broker, small micro-batches: ms of one", {"columns": FOUR}, TRIGGER, 200),
    "plan": Row("broker, 10,000 queues: ms to plan them", {}, MANY, 2000),
    "times": Row("broker, 1,000 queues from a time on: ms to plan them", {}, MANY, 200),
    "count": Row("broker, 1,000 queues of 20 messages: ms to count", {}, MANY, 4000),
    "scan8core1": Row("store, 8 columns, one core", {"columns": EIGHT}, cores=1),
    "kafka7core1": Row("Kafka's source, its 7 columns, one core", format=KAFKA, share=0.5, cores=1),
    "pull4core1": Row("broker, 4 columns, one core", {"columns": FOUR}, PULL, 0, 0.5, 1),
    "archivecore1": Row("stores into the lake, zstd, one core", {}, ARCHIVE, share=STORES, cores=1),
}
WITHOUT_SPARK: dict[str, Callable[[Path, int], dict[str, float]]] = {
    "copy": lambda store, messages: copy(store, messages),
    "decode": lambda store, messages: decode(store, messages),
    "sink": lambda _store, _messages: encode(),
}
OF_MANY = {"plan": plan_ms, "times": times_ms, "count": count_ms}
SYSTEMS = {
    PULL: "--name-server",
    KAFKA: "--kafka",
    MANY: "--many-queues",
}  # what a row reads from, and the flag its session is told it by


def main() -> int:
    arguments = _arguments()
    if arguments.session:
        _session(arguments)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 165)
    names = [name for name in ROWS if name in (arguments.only or ROWS)]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        store = Path(folder) / "store"
        console.print(f"storing {arguments.messages:,} messages", highlight=False)
        fill(store, arguments.messages)
        found = dict(_measure(names, store, arguments.messages, console))
    console.print(table(found))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ROWS, help="these rows alone")
    parser.add_argument(
        "--messages", type=int, default=MESSAGES, help="number of messages; fewer show less of the steady state"
    )
    parser.add_argument("--directory", type=Path, help="where the store goes; it takes 2.5 GB with Kafka's")
    for internal in ("--store", *SYSTEMS.values()):
        parser.add_argument(internal, default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", type=int, default=0, help=argparse.SUPPRESS)
    parser.add_argument("--fill", action="store_true", help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(names: list[str], store: Path, messages: int, console: Console) -> Iterator[tuple[str, dict[str, float]]]:
    """The rows without Spark, then each number of cores in a session of its own: a JVM cannot change it."""
    for name in names:
        if ROWS[name].cores == 0:
            yield name, WITHOUT_SPARK[name](store, messages)
    with systems({ROWS[name].format for name in names}, store) as told:
        filled: list[str] = ["--fill"]  # the first session fills Kafka's topic for both
        for cores in (2, 1):
            if wanted := [name for name in names if ROWS[name].cores == cores]:
                console.print(f"Spark on {cores} cores: {', '.join(wanted)}", highlight=False)
                own = ["--session", cores, "--store", store, "--messages", messages, *told, *filled, "--only", *wanted]
                filled = []
                command = [sys.executable, __file__, *map(str, own)]
                child = subprocess.run(command, capture_output=True, text=True, check=False)
                if child.returncode:
                    raise SystemExit(child.stderr)
                yield from json.loads(child.stdout.splitlines()[-1]).items()


# ------------------------------------------------------------------------------------------------------------ the store


def fill(root: Path, messages: int) -> None:
    """A store as a broker would have written it, with a topic table that one can start with."""
    store = MessageStore(
        StoreOptions(store_path_root_dir=str(root), message_index_enable=False),
        clock=SystemClock(),
        entry_codes=TAGS_ONLY,
    )
    store.open()
    bodies = [random.Random(number).randbytes(1024) for number in range(500)]
    host = encode_host("127.0.0.1", 10911)
    for number in range(messages):
        properties = (
            b"KEYS\x01order-%d\x02UNIQ_KEY\x017F0000010A2B18B4AAC2%012X\x02WAIT\x01true\x02TAGS\x01Tag%d\x02region\x01eu"
            % (number, number, number % 3)
        )
        topic, queue_id = TOPICS[number % len(TOPICS)], number // len(TOPICS) % QUEUES
        store.put(PutRecord(topic, queue_id, bodies[number % 500], properties, 1_700_000_000_000, host, host))
    store.close()
    config = {"readQueueNums": QUEUES, "writeQueueNums": QUEUES, "perm": 6, "topicFilterType": "SINGLE_TAG"}
    table = {topic: {"topicName": topic, "topicSysFlag": 0, "order": False, **config} for topic in TOPICS}
    (root / "config").mkdir(exist_ok=True)
    text = json.dumps({"dataVersion": {"counter": 1, "timestamp": 0}, "topicConfigTable": table})
    (root / "config" / "topics.json").write_text(text)


@contextmanager
def systems(formats: set[str], store: Path) -> Iterator[list[str]]:
    """What rows of these formats read from; the flags that tell a session where it is."""
    told: list[str] = []
    with ExitStack() as stack:
        if formats & {PULL, KAFKA, TRIGGER}:  # Kafka's topic is filled out of orbitmq's
            home = store.parent / "broker"
            home.mkdir()
            told += [SYSTEMS[PULL], stack.enter_context(OrbitUp(home=home, store_dir=store)).namesrv_address]
        if MANY in formats:
            home = store.parent / "many"
            fill_queues(home / "store")
            up = OrbitUp(home=home, store_dir=home / "store", mappedFileSizeConsumeQueue=QUEUE_FILE_SIZE)
            told += [SYSTEMS[MANY], stack.enter_context(up).namesrv_address]
        if KAFKA in formats:
            home = store.parent / "kafka"
            home.mkdir()
            told += [SYSTEMS[KAFKA], stack.enter_context(KafkaBroker(home, QUEUES)).address]
        yield told


# -------------------------------------------------------------------------------------------------------- without Spark


def _timed(work: Callable[[], int], rounds: int = ROUNDS) -> dict[str, float]:
    rows, figures = work(), []
    for _ in range(rounds):
        cpu, wall = time.process_time(), time.perf_counter()
        rows = work()
        figures.append((time.process_time() - cpu, time.perf_counter() - wall))
    return _figures(rows, figures)


def _figures(rows: int, seconds: list[tuple[float, float]]) -> dict[str, float]:
    return {
        "rows": rows,
        "cpu": rows / statistics.median(cpu for cpu, _ in seconds),
        "wall": rows / statistics.median(wall for _, wall in seconds),
    }


def copy(store: Path, messages: int) -> dict[str, float]:
    """Every byte of the messages copied once, as large pieces."""
    log = StoreDirectory(store).log()
    splits = [part for part in batch_splits(scan_options({"path": str(store)})) if isinstance(part, LogSplit)]

    def work() -> int:
        for split in splits:
            view = memoryview(log.read(split.start, split.end - split.start))
            for piece in range(0, len(view), 1 << 20):
                bytes(view[piece : piece + (1 << 20)])
        return messages

    return _timed(work)


def decode(store: Path, _messages: int) -> dict[str, float]:
    """What the tasks of the 8 columns do, in this process."""
    source = StoreSource({"path": str(store), **ROWS["decode"].options})
    reader = source.reader(source.schema())
    return _timed(lambda: sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))


def encode() -> dict[str, float]:
    """What a task of the sink does with the rows that Spark gives it, until they are requests."""
    batch, options = sink_works.frame(10_000, 1024), sink_works.write_options(sink_works.OPTIONS)
    columns = sink_works.SinkColumns({name: number for number, name in enumerate(batch.schema.names)})
    ids = sink_works.UniqueIds(bytes(4), 1, b"bnch")

    def work() -> int:
        for _ in range(10):
            sink_works.encode(batch, columns, options, ids, spread=False)
        return 10 * batch.num_rows

    return _timed(work)


# ----------------------------------------------------------------------------------------------------------- with Spark


def _session(arguments: argparse.Namespace) -> None:
    """Measure the rows that are told; the last line printed has the figures."""
    spark = _spark(arguments.session, has_kafka=bool(arguments.kafka))
    if arguments.fill and arguments.kafka:
        _fill_kafka(spark, arguments)
    found: dict[str, Any] = {}
    for name in arguments.only:
        row, seconds = ROWS[name], []
        if row.format == TRIGGER:
            found[name] = {"ms": _trigger_ms(spark, row, arguments)}
            continue
        if row.format == MANY:
            found[name] = {"ms": OF_MANY[name](spark, arguments.many_queues)}
            continue
        for number in range(WARMING + ROUNDS):
            forget_memory()
            cpu, wall = cpu_seconds(), time.perf_counter()
            WORK.get(row.format, _read)(spark, row, arguments)
            if number >= WARMING:
                seconds.append((cpu_seconds() - cpu, time.perf_counter() - wall))
        found[name] = {**_figures(round(arguments.messages * row.share), seconds), "task": worker_memory()}
    spark.stop()
    print(json.dumps(found))


def _spark(cores: int, *, has_kafka: bool) -> SparkSession:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.sql.session.timeZone": "UTC",
        "spark.log.level": "ERROR",
        "spark.jars": ",".join(source_jars()) if has_kafka else "",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)
    for kind in DATA_SOURCES:
        spark.dataSource.register(kind)
    return spark


def _frame(spark: SparkSession, row: Row, arguments: argparse.Namespace) -> DataFrame:
    options = dict(row.options)
    if row.format == KAFKA:
        options |= {"kafka.bootstrap.servers": arguments.kafka, "subscribe": "orders"}
        return spark.read.format(KAFKA).options(**options).load()
    if row.format == PULL:
        return spark.read.format(PULL).options(nameServer=arguments.name_server, **options).load("orders")
    return spark.read.format(STORE).options(**options).load(_stores(row, arguments))


def _read(spark: SparkSession, row: Row, arguments: argparse.Namespace) -> None:
    _frame(spark, row, arguments).write.format("noop").mode("overwrite").save()


def _write_parquet(spark: SparkSession, row: Row, arguments: argparse.Namespace) -> None:
    with tempfile.TemporaryDirectory(dir=Path(arguments.store).parent) as folder:
        _frame(spark, row, arguments).write.option("compression", "zstd").parquet(f"{folder}/rows")


def _stores(row: Row, arguments: argparse.Namespace) -> str:
    """The directory, or as many brokers as the row has shares, each with it."""
    names = [f"broker-{number}" for number in range(int(row.share))]
    return json.dumps(dict.fromkeys(names, arguments.store)) if len(names) > 1 else str(arguments.store)


def _archive(spark: SparkSession, row: Row, arguments: argparse.Namespace) -> None:
    """The job as users run it, with its streaming query and its commit."""
    with tempfile.TemporaryDirectory(dir=Path(arguments.store).parent) as folder:
        options = ArchiveJob.parse({"input": "store", "path": _stores(row, arguments), "lake": f"{folder}/lake"})
        with redirect_stderr(io.StringIO()):
            outcome = archive(JobContext(options, lambda: spark, shown_on(sys.stderr)))
    assert outcome.counts["messages"] == arguments.messages * row.share


WORK = {PARQUET: _write_parquet, ARCHIVE: _archive}


def _trigger_ms(spark: SparkSession, row: Row, arguments: argparse.Namespace) -> float:
    """The median of what Spark says a micro-batch of a few rows takes, from its plan to its commit."""
    reader = spark.readStream.format(PULL).options(nameServer=arguments.name_server, **row.options)
    reader = reader.options(subscribe="orders", startingOffsets="earliest", maxOffsetsPerTrigger=str(TRIGGER_ROWS))
    with tempfile.TemporaryDirectory(dir=Path(arguments.store).parent) as folder:
        query = reader.load().writeStream.format("noop").option("checkpointLocation", folder).start()
        try:
            while query.lastProgress is None or query.lastProgress.batchId < TRIGGERS:
                query.awaitTermination(0.2)
            told = query.recentProgress[TRIGGERS // 2 :]
        finally:
            query.stop()
    return statistics.median(progress.durationMs["triggerExecution"] for progress in told)


def _fill_kafka(spark: SparkSession, arguments: argparse.Namespace) -> None:
    """The messages of `orders` in Kafka's topic of that name: the same bodies, keys and properties."""
    reader = spark.read.format(PULL).options(nameServer=arguments.name_server, schema="kafka")
    columns = "key", "value", "topic", "partition", "headers"
    writer = reader.load("orders").select(*columns).write.format(KAFKA).option("includeHeaders", "true")
    writer.option("kafka.bootstrap.servers", arguments.kafka).save()


def _processes() -> tuple[dict[int, list[int]], dict[int, tuple[str, float]]]:
    """Children of each process, and each one's name and CPU seconds, those of its dead children included."""
    children: dict[int, list[int]] = {}
    known: dict[int, tuple[str, float]] = {}
    for entry in [path.name for path in Path("/proc").iterdir() if path.name.isdecimal()]:
        try:
            head, _, rest = Path("/proc", entry, "stat").read_text().rpartition(")")
        except OSError:  # it has ended meanwhile
            continue
        fields = rest.split()
        children.setdefault(int(fields[1]), []).append(int(entry))
        known[int(entry)] = head.partition("(")[2], sum(map(int, fields[11:15])) / TICK
    return children, known


def _family() -> list[tuple[int, str, float]]:
    children, known = _processes()
    found, todo = [], [os.getpid()]
    while todo:
        process = todo.pop()
        found.append((process, *known.get(process, ("", 0.0))))
        todo += children.get(process, [])
    return found


def cpu_seconds() -> float:
    """Of this process, the JVM and the Python workers."""
    return sum(seconds for _, _, seconds in _family())


def _workers() -> Iterator[Path]:
    """Of each Python worker, what the kernel tells about it."""
    for process, name, _ in _family():
        if name.startswith("python") and process != os.getpid():
            yield Path("/proc", str(process))


def forget_memory() -> None:
    """Have the kernel count the most memory of each worker anew."""
    for worker in _workers():
        with suppress(OSError):  # it has ended meanwhile
            (worker / "clear_refs").write_text("5")


def worker_memory() -> int:
    """The most memory that a Python worker has had since it was forgotten, in MiB."""
    sizes = [0]
    for worker in _workers():
        with suppress(OSError):
            text = (worker / "status").read_text()
            sizes += [int(line.split()[1]) >> 10 for line in text.splitlines() if line.startswith("VmHWM")]
    return max(sizes)


def table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """What is printed."""
    made = Table(
        title=f"thousand rows of 1 KiB, medians of {ROUNDS}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    headings = (
        "read",
        "rows a CPU s",
        "goal",
        "of the goal",
        "of its peer",
        "rows a s",
        "of one core",
        "MiB of a worker",
    )
    for heading in headings:
        made.add_column(heading, justify="left" if heading == "read" else "right")
    for name, row in ROWS.items():
        if "ms" in found.get(name, {}):
            ms = found[name]["ms"]
            made.add_row(row.title, f"{ms:,.0f} ms", f"{row.goal} ms", f"{row.goal / ms:.2f}")
        elif name in found:
            figures = found[name]
            made.add_row(
                row.title,
                f"{figures['cpu'] / 1000:,.0f}",
                str(row.goal or ""),
                f"{figures['cpu'] / 1000 / row.goal:.2f}" if row.goal else "",
                f"{figures['cpu'] / found[row.peer]['cpu']:.2f} of {row.peer}" if row.peer in found else "",
                f"{figures['wall'] / 1000:,.0f}",
                f"{figures['wall'] / found[row.alone]['wall']:.2f}" if row.alone in found else "",
                f"{figures['task']:,.0f}" if "task" in figures else "",
            )
    return made


if __name__ == "__main__":
    sys.exit(main())
