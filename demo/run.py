"""The whole way of 12,506 order events, watched: sent, consumed by a group of two, read by Spark, written to Parquet.

    make demo

Starts a name server and a broker of its own on free ports below a temporary directory, and leaves nothing behind.
Exits with 1 when any count or sum is not what the data set says.
"""

from __future__ import annotations

import gzip
import json
import os
import re
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

from rich.box import SIMPLE_HEAD
from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, SpinnerColumn, TextColumn, TimeElapsedColumn
from rich.table import Table

from orbitmq.client import ConsumeConcurrentlyStatus, Message, MessageExt
from orbitmq.client.sync import Producer, PushConsumer

TOPIC = "orders"
START_TIMEOUT_S = 30
CONSUME_TIMEOUT_S = 120
EVENTS_FILE = Path(__file__).with_name("orders.jsonl.gz")
ORBITMQ = Path(sys.executable).with_name("orbitmq")

console = Console()
Figures = dict[str, tuple[int, int]]  # event -> how many, and the sum of their amounts in cents


def figures(events: list[dict[str, Any]]) -> Figures:
    count: Counter[str] = Counter()
    cents: Counter[str] = Counter()
    for event in events:
        count[event["event"]] += 1
        cents[event["event"]] += event["amount_cents"]
    return {name: (count[name], cents[name]) for name in count}


def read_events() -> list[dict[str, Any]]:
    with gzip.open(EVENTS_FILE, "rt", encoding="utf-8") as lines:
        return [json.loads(line) for line in lines]


def message_of(event: dict[str, Any]) -> Message:
    """The event is the tag, order and customer are keys to find it by, the city is a property of its own."""
    return Message(
        TOPIC,
        json.dumps(event, ensure_ascii=False).encode(),
        tags=event["event"],
        keys=[event["order_id"], event["customer_id"]],
        properties={"city": event["city"]},
    )


# ------------------------------------------------------------------------------------------------------- the broker


@contextmanager
def running_broker(home: Path) -> Iterator[str]:
    """`orbitmq up` on free ports; gives the address of its name server and insists on a clean stop."""
    command = [str(ORBITMQ), "up", "--data-dir", str(home), "--namesrv-port", "0", "--broker-port", "0"]
    process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    try:
        yield _name_server_address(process)
        process.terminate()
        if process.wait(START_TIMEOUT_S) != 0:
            raise SystemExit(f"the broker did not stop cleanly: exit code {process.returncode}")
    finally:
        if process.poll() is None:
            process.kill()
            process.wait()


def _name_server_address(process: subprocess.Popen[str]) -> str:
    timer = threading.Timer(START_TIMEOUT_S, process.kill)  # ends the reading below if nothing is ever printed
    timer.start()
    assert process.stdout
    for line in process.stdout:
        if found := re.search(r"name server +(\S+:\d+)", line):
            timer.cancel()
            return found[1]
    raise SystemExit("the broker did not start")


# --------------------------------------------------------------------------------------------------- send and consume


class Worker:
    """One member of the group: counts what it is given, once an event however often it is delivered."""

    def __init__(self, name: str, namesrv: str, seen: set[int], advance: Callable[[], None]) -> None:
        self.events: list[dict[str, Any]] = []
        self.again = 0
        self._seen = seen
        self._advance = advance
        self._lock = threading.Lock()
        self.consumer = PushConsumer("billing", namesrv, instance_name=name)
        self.consumer.subscribe(TOPIC)
        self.consumer.set_listener(self.consume)

    def consume(self, messages: list[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
        for message in messages:
            event = json.loads(message.body)
            with self._lock:
                if event["event_id"] in self._seen:
                    self.again += 1
                    continue
                self._seen.add(event["event_id"])
                self.events.append(event)
            self._advance()
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def send_and_consume(namesrv: str, events: list[dict[str, Any]], progress: Progress) -> tuple[Figures, list[Worker]]:
    """Two consumers wait for the events of one producer; returns what was acknowledged and who consumed what."""
    sent_bar = progress.add_task("sent", total=len(events))
    consumed_bar = progress.add_task("consumed by two", total=len(events))
    seen: set[int] = set()
    with ExitStack() as stack:
        producer = stack.enter_context(Producer("order-service", namesrv))
        acknowledged: list[dict[str, Any]] = []

        def send(event: dict[str, Any]) -> None:
            # An order's events share a queue, so they are stored in the order they happened.
            producer.send(message_of(event), sharding_key=event["order_id"])
            acknowledged.append(event)
            progress.advance(sent_bar)

        send(events[0])  # creates the topic, so that the consumers find queues when they start
        workers = [Worker(f"worker-{n}", namesrv, seen, lambda: progress.advance(consumed_bar)) for n in (1, 2)]
        for worker in workers:
            stack.enter_context(worker.consumer)
        for event in events[1:]:
            send(event)
        deadline = time.monotonic() + CONSUME_TIMEOUT_S
        while len(seen) < len(events) and time.monotonic() < deadline:
            time.sleep(0.05)
    return figures(acknowledged), workers


# -------------------------------------------------------------------------------------------------------------- spark


def read_with_spark(
    namesrv: str, home: Path, progress: Progress
) -> tuple[Figures, Figures, list[tuple[str, int, int]]]:
    """The topic as a DataFrame, written to Parquet and read back: figures of both, and the cities by turnover."""
    steps = progress.add_task("Spark: start", total=4)

    def step(title: str) -> None:
        progress.update(steps, description=f"Spark: {title}", advance=1)

    with stderr_to(home / "spark.log"):  # Spark's JVM keeps it: its start-up lines would cut through the bars
        spark = _spark_session(home)
    try:
        from pyspark.sql import functions as f

        import orbitmq.spark

        orbitmq.spark.register(spark)
        step("read the topic")
        topic = spark.read.format("orbitmq").option("nameServer", namesrv).load(TOPIC)
        event = f.from_json(
            f.col("body").cast("string"), "event_id long, order_id string, city string, amount_cents long"
        )
        orders = topic.select("tags", "keys", "queueId", "queueOffset", "storeTimestamp", event.alias("event"))
        flat = orders.select("*", "event.*").drop("event").cache()
        from_topic = _spark_figures(flat)
        step("write Parquet")
        parquet = str(home / "orders.parquet")
        flat.write.partitionBy("tags").parquet(parquet)
        step("read Parquet")
        table = spark.read.parquet(parquet)
        from_parquet = _spark_figures(table)
        paid = table.where("tags = 'OrderPaid'").groupBy("city").agg(f.count("*"), f.sum("amount_cents").alias("cents"))
        cities = [(row[0], row[1], row[2]) for row in paid.orderBy(f.desc("cents")).limit(5).collect()]
        step("done")
        return from_topic, from_parquet, cities
    finally:
        spark.stop()


@contextmanager
def stderr_to(file: Path) -> Iterator[None]:
    """Standard error goes to `file`, also that of processes started meanwhile; a failure shows what came there."""
    kept = os.dup(2)
    with file.open("wb") as log:
        os.dup2(log.fileno(), 2)
    try:
        yield
    except BaseException:
        os.write(kept, file.read_bytes())
        raise
    finally:
        os.dup2(kept, 2)
        os.close(kept)


def _spark_session(home: Path) -> Any:
    os.environ["PYSPARK_PYTHON"] = sys.executable
    from pyspark.sql import SparkSession

    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        # Most of the time of so small a job is Spark's own start: compile little, collect on one thread.
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.warehouse.dir": str(home / "warehouse"),
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    return SparkSession.builder.master("local[*]").appName("orbitmq demo").config(map=settings).getOrCreate()


def _spark_figures(frame: Any) -> Figures:
    from pyspark.sql import functions as f

    rows = frame.groupBy("tags").agg(f.count("*"), f.sum("amount_cents")).collect()
    return {row[0]: (row[1], row[2]) for row in rows}


# ------------------------------------------------------------------------------------------------------------- report


def report(stations: dict[str, Figures]) -> bool:
    """The closing table: a column each station, a row each event. True when all stations agree with the first."""
    expected = next(iter(stations.values()))
    table = Table(title="Order events at each station", show_footer=True, box=SIMPLE_HEAD)
    table.add_column("event", footer="all")
    for title, station in stations.items():
        total = sum(count for count, _ in station.values())
        style = "" if station == expected else "bold red"
        table.add_column(title, footer=f"{total:,}", justify="right", style=style, footer_style=style)
    for name in sorted(expected, key=lambda event: -expected[event][0]):
        table.add_row(name, *(f"{station.get(name, (0, 0))[0]:,}" for station in stations.values()))
    console.print(table)
    return all(station == expected for station in stations.values())


def report_cities(cities: list[tuple[str, int, int]]) -> None:
    table = Table(title="Turnover by city, from Parquet", box=SIMPLE_HEAD)
    for title in ("city", "paid orders", "amount"):
        table.add_column(title, justify="left" if title == "city" else "right")
    for city, count, cents in cities:
        table.add_row(city, f"{count:,}", f"{cents / 100:,.2f}")
    console.print(table)


def progress_bars() -> Progress:
    columns = (
        SpinnerColumn(),
        TextColumn("{task.description:<20}"),
        BarColumn(),
        MofNCompleteColumn(),
        TimeElapsedColumn(),
    )
    return Progress(*columns, console=console)


def main() -> int:
    events = read_events()
    with tempfile.TemporaryDirectory(prefix="orbitmq-demo-") as directory:
        home = Path(directory)
        with running_broker(home) as namesrv:
            console.print(f"orbitmq is up: name server {namesrv}, {len(events):,} order events to send")
            with progress_bars() as progress:
                sent, workers = send_and_consume(namesrv, events, progress)
            with progress_bars() as progress:
                from_topic, from_parquet, cities = read_with_spark(namesrv, home, progress)
    consumed = figures([event for worker in workers for event in worker.events])
    stations = {
        "file": figures(events),
        "sent": sent,
        "consumed": consumed,
        "Spark": from_topic,
        "Parquet": from_parquet,
    }
    good = report(stations)
    report_cities(cities)
    shares = " and ".join(f"{len(worker.events):,}" for worker in workers)
    again = sum(worker.again for worker in workers)
    console.print(f"The two consumers took {shares} events; {again} came more than once.")
    console.print("The broker has stopped and its directory is gone.")
    console.print("[bold green]Every count and every sum agrees." if good else "[bold red]Counts are off.")
    return 0 if good else 1


if __name__ == "__main__":
    sys.exit(main())
