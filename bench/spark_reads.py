"""What it costs to read messages with Spark, from a store directory and from a broker (`make bench-spark`).

The figure to look at is rows a CPU second: rows by the user and system time of Spark's JVM and all its Python workers;
the load of other programs hardly shows in it. A copy of the log in memory stands beside as what no reader can reach,
and decoding without Spark as what its transport leaves. About three minutes; `--only` chooses rows.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from rich.console import Console
from rich.table import Table

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from orbitmq.message.hosts import encode_host  # noqa: E402
from orbitmq.runtime.clock import SystemClock  # noqa: E402
from orbitmq.spark.stores.source import StoreSource  # noqa: E402
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
STORE, PULL = "orbitmq-store", "orbitmq"


@dataclass(frozen=True)
class Row:
    """One row of the table: what is read how, and the thousand rows a CPU second that are wanted. `share` of all
    messages come.
    """

    title: str
    options: Mapping[str, str] = field(default_factory=dict)
    format: str = STORE
    goal: int = 0
    share: float = 1.0
    cores: int = 2


ROWS = {
    "copy": Row("copy of the log in memory, no Spark", cores=0),
    "decode": Row("8 columns decoded, no Spark", {"columns": EIGHT}, cores=0),
    "scan8": Row("store, 8 columns with the map", {"columns": EIGHT}, goal=240),
    "scan8core1": Row("store, 8 columns, one core", {"columns": EIGHT}, cores=1),
    "scan4": Row("store, 4 columns", {"columns": FOUR}),
    "scanless": Row("store, 7 columns without body and map", {"columns": EIGHT.replace("body,properties", "tags")}),
    "splits": Row("store, 8 columns, splits of 32 MiB", {"columns": EIGHT, "splitBytes": str(32 << 20)}),
    "topic": Row("store, one topic of four by its queues", {"columns": EIGHT, "topics": "clicks"}, share=0.25),
    "queues": Row("store, queue entries alone", {"scan": "consumequeue"}),
    "pull12": Row("broker, the 12 default columns", format=PULL, goal=150, share=0.5),
    "pull4": Row("broker, 4 columns", {"columns": FOUR}, PULL, 240, 0.5),
}


def main() -> int:
    arguments = _arguments()
    if arguments.session:
        _session(arguments.session, Path(arguments.store), arguments.name_server, arguments.only)
        return 0
    console = Console(width=None if sys.stdout.isatty() else 130)
    names = [name for name in ROWS if name in (arguments.only or ROWS)]
    with tempfile.TemporaryDirectory(dir=arguments.directory) as folder:
        store = Path(folder) / "store"
        console.print(f"storing {MESSAGES:,} messages", highlight=False)
        fill(store)
        found = dict(_measure(names, store, Path(folder), console))
    console.print(table(found))
    return 0


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--only", nargs="+", choices=ROWS, help="these rows alone")
    parser.add_argument("--directory", type=Path, help="where the store goes; it takes 1.2 GB")
    for internal in ("--store", "--name-server"):
        parser.add_argument(internal, default="", help=argparse.SUPPRESS)
    parser.add_argument("--session", type=int, default=0, help=argparse.SUPPRESS)
    return parser.parse_args()


def _measure(names: list[str], store: Path, folder: Path, console: Console) -> Iterator[tuple[str, dict[str, float]]]:
    """The rows without Spark, then each number of cores in a session of its own: a JVM cannot change it."""
    for name in names:
        if ROWS[name].cores == 0:
            yield name, (copy if name == "copy" else decode)(store)
    with broker(store, folder) if any(ROWS[name].format == PULL for name in names) else nobody() as name_server:
        for cores in (2, 1):
            wanted = [name for name in names if ROWS[name].cores == cores]
            if wanted:
                console.print(f"Spark on {cores} cores: {', '.join(wanted)}", highlight=False)
                command = [sys.executable, __file__, "--session", cores, "--store", store, "--name-server", name_server]
                child = subprocess.run(
                    [*map(str, command), "--only", *wanted], capture_output=True, text=True, check=False
                )
                if child.returncode:
                    raise SystemExit(child.stderr)
                yield from json.loads(child.stdout.splitlines()[-1]).items()


# ------------------------------------------------------------------------------------------------------------ the store


def fill(root: Path) -> None:
    """A store as a broker would have written it, with a topic table that one can start with."""
    store = MessageStore(StoreOptions(store_path_root_dir=str(root), message_index_enable=False), clock=SystemClock())
    store.open()
    bodies = [random.Random(number).randbytes(1024) for number in range(500)]
    host = encode_host("127.0.0.1", 10911)
    for number in range(MESSAGES):
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
def broker(store: Path, folder: Path) -> Iterator[str]:
    """A broker over the store; the address of its name server."""
    home = folder / "broker"
    home.mkdir()
    with OrbitUp(home=home, store_dir=store) as running:
        yield running.namesrv_address


@contextmanager
def nobody() -> Iterator[str]:
    yield ""


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


def copy(store: Path) -> dict[str, float]:
    """Every byte of the log copied once, as large pieces."""
    log = StoreDirectory(store).log()

    def work() -> int:
        for start in log.starts:
            view = memoryview(log.read(start, log.file_size))
            for piece in range(0, len(view), 1 << 20):
                bytes(view[piece : piece + (1 << 20)])
        return MESSAGES

    return _timed(work)


def decode(store: Path) -> dict[str, float]:
    """What the tasks of the 8 columns do, in this process."""
    source = StoreSource({"path": str(store), **ROWS["decode"].options})
    reader = source.reader(source.schema())
    return _timed(lambda: sum(batch.num_rows for part in reader.partitions() for batch in reader.read(part)))


# ----------------------------------------------------------------------------------------------------------- with Spark


def _session(cores: int, store: Path, name_server: str, names: list[str]) -> None:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    from orbitmq.spark import register

    settings = {
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.driver.host": "127.0.0.1",
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.memory": "1g",
        "spark.python.unix.domain.socket.enabled": "true",
        "spark.log.level": "ERROR",
    }
    builder = SparkSession.builder.master(f"local[{cores}]").appName("bench")
    for key, value in settings.items():
        builder = builder.config(key, value)
    spark = builder.getOrCreate()
    register(spark)

    def read(row: Row) -> None:
        options = dict(row.options)
        if row.format == PULL:
            options["nameServer"] = name_server
        path = "orders" if row.format == PULL else str(store)
        frame = spark.read.format(row.format).options(**options).load(path)
        frame.write.format("noop").mode("overwrite").save()

    found: dict[str, Any] = {}
    for name in names:
        row, seconds = ROWS[name], []
        for number in range(ROUNDS + 1):
            cpu, wall = cpu_seconds(), time.perf_counter()
            read(row)
            if number:  # the first one warms
                seconds.append((cpu_seconds() - cpu, time.perf_counter() - wall))
        found[name] = {**_figures(round(MESSAGES * row.share), seconds), "task": worker_memory()}
    spark.stop()
    print(json.dumps(found))


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


def worker_memory() -> int:
    """The most memory that a Python worker has had, in MiB."""
    sizes = [0]
    for process, name, _ in _family():
        if name.startswith("python") and process != os.getpid():
            text = Path("/proc", str(process), "status").read_text()
            sizes += [int(line.split()[1]) >> 10 for line in text.splitlines() if line.startswith("VmHWM")]
    return max(sizes)


def table(found: Mapping[str, Mapping[str, float]]) -> Table:
    """What is printed."""
    made = Table(
        title=f"thousand rows of 1 KiB, medians of {ROUNDS}; {os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}"
    )
    for heading in ("read", "rows a CPU s", "goal", "rows a s", "MiB of a worker at most"):
        made.add_column(heading, justify="left" if heading == "read" else "right")
    for name, row in ROWS.items():
        if name in found:
            figures = found[name]
            made.add_row(
                row.title,
                f"{figures['cpu'] / 1000:,.0f}",
                str(row.goal or ""),
                f"{figures['wall'] / 1000:,.0f}",
                f"{figures['task']:,.0f}" if "task" in figures else "",
            )
    return made


if __name__ == "__main__":
    sys.exit(main())
