"""A stream into Parquet whose driver is killed (-9) again and again at random moments (`make spark-kills`).

Messages go on being sent meanwhile. In the end every message must stand in the table exactly once; the counts are
printed, and the exit code is 1 if they are not what was sent. `--system java` reads from Apache RocketMQ 4.9.7.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sys
import tempfile
import threading
import time
from pathlib import Path

ROOT = Path(__file__).parents[1]
sys.path.insert(0, str(ROOT))

from orbitmq.client.sync import Producer  # noqa: E402
from orbitmq.message.model import Message  # noqa: E402
from tests.support.java_rocketmq import JavaSystem  # noqa: E402
from tests.support.orbit_process import OrbitUp  # noqa: E402
from tests.support.process import ChildProcess  # noqa: E402

SYSTEMS = {"orbitmq": OrbitUp, "java": JavaSystem}
TOPIC = "orders"
START_TIMEOUT_S = 120  # a session with a warm Python worker; many times what it takes alone
BATCHES_MAX = 4  # of a query before its driver is killed; none means within its first one
LAST_S = 0.6  # and so long at most into the next, about what one takes
SENDS_PER_S = 200


class Driver:
    """A process with a Spark session that waits to be told what to do, so that the next one is warm when one dies."""

    def __init__(self, name_server: str, folder: Path, number: int) -> None:
        self._child = ChildProcess(
            [sys.executable, __file__, "--query", name_server, str(folder)],
            output=folder / f"driver-{number}.out",
            environment={"PYSPARK_PYTHON": sys.executable},
            listens=True,
        )

    def tell(self, word: str, answer: str) -> dict[str, int]:
        """Have it begin; what it answers when it has."""
        self._line("ready", START_TIMEOUT_S)
        self._child.tell(word)
        return self._line(answer, START_TIMEOUT_S)

    def wait_for_batches(self, count: int) -> None:
        """Wait until so many batches are done."""
        self._child.wait_for(lambda: self._batches() >= count, START_TIMEOUT_S, f"{count} batches")

    def kill(self) -> int:
        """End the virtual machine and its Python without a word; the number of batches they made."""
        os.kill(self._line("ready", 0)["jvm"], signal.SIGKILL)
        self._child.kill()
        return self._batches()

    def _batches(self) -> int:
        return self._child.output().count('{"batch"')

    def stop(self) -> None:
        self._child.kill()

    def _line(self, name: str, timeout_s: float) -> dict[str, int]:
        def found() -> dict[str, int] | None:
            lines = [line for line in self._child.output().splitlines() if line.startswith(f'{{"{name}"')]
            return json.loads(lines[0])[name] if lines else None

        return found() or self._child.wait_for(found, timeout_s, name)


def query(name_server: str, folder: Path) -> None:
    """What a driver does: `go` runs the query until somebody ends it, `finish` reads the rest and counts."""
    from pyspark.sql import SparkSession
    from pyspark.sql.streaming import StreamingQueryListener

    class Batches(StreamingQueryListener):
        def onQueryStarted(self, event: object) -> None: ...  # noqa: N802 - Spark's names

        def onQueryTerminated(self, event: object) -> None: ...  # noqa: N802

        def onQueryProgress(self, event: object) -> None:  # noqa: N802
            tell("batch", event.progress.batchId)

    builder = SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    for name, value in {
        "spark.driver.host": "127.0.0.1",
        "spark.driver.memory": "700m",
        "spark.driver.extraJavaOptions": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC",
        "spark.log.level": "ERROR",
        "spark.python.unix.domain.socket.enabled": "true",
    }.items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.streams.addListener(Batches())
    options = {"nameServer": name_server, "startingOffsets": "earliest", "maxOffsetsPerTrigger": "500"}
    options["columns"] = "queueId,queueOffset,body"
    spark.read.format("orbitmq").options(**options).load(TOPIC).limit(1).collect()
    tell("ready", {"jvm": spark.sparkContext._gateway.proc.pid})  # noqa: SLF001 - nothing else tells whom to kill
    word = sys.stdin.readline().strip()
    frame = spark.readStream.format("orbitmq").options(**options).load(TOPIC)
    writer = frame.writeStream.format("parquet").option("path", f"{folder}/rows")
    writer = writer.option("checkpointLocation", f"{folder}/checkpoint")
    if word == "go":
        running = writer.trigger(processingTime="0 seconds").start()
        tell("begun", {"pid": os.getpid()})
        running.awaitTermination()
    writer.trigger(availableNow=True).start().awaitTermination()
    rows = spark.read.parquet(f"{folder}/rows")
    tell("counts", {"rows": rows.count(), "distinct": rows.select("body").distinct().count()})


def tell(name: str, value: object) -> None:
    print(json.dumps({name: value}), flush=True)


class Sender(threading.Thread):
    """Sends numbered messages until it is stopped; `sent` says how many."""

    def __init__(self, name_server: str) -> None:
        super().__init__(name="sender")
        self._name_server = name_server
        self._stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer("kill-senders", self._name_server) as producer:
            while not self._stopped.wait(1 / SENDS_PER_S):
                producer.send(Message(TOPIC, b"%d" % self.sent))
                self.sent += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--system", choices=SYSTEMS, default="orbitmq")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--query", nargs=2, metavar=("NAME_SERVER", "FOLDER"), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.query:
        query(arguments.query[0], Path(arguments.query[1]))
        return 0
    chance = random.Random(arguments.seed)
    began = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="spark-kills-") as name, SYSTEMS[arguments.system]() as system:
        folder = Path(name)
        sender = Sender(system.namesrv_address)
        sender.start()
        try:
            drivers = [Driver(system.namesrv_address, folder, 0)]
            batches = 0
            for number in range(arguments.kills):
                drivers.append(Driver(system.namesrv_address, folder, number + 1))
                drivers[-2].tell("go", "begun")
                drivers[-2].wait_for_batches(chance.randrange(BATCHES_MAX + 1))
                time.sleep(chance.uniform(0, LAST_S))
                batches += drivers[-2].kill()
        finally:
            sender.stop()
        counts = drivers[-1].tell("finish", "counts")
        drivers[-1].stop()
    took = time.monotonic() - began
    print(
        f"{arguments.system}, seed {arguments.seed}: {arguments.kills} kills of the driver in {batches} whole batches"
    )
    print(f"{sender.sent} messages sent, {counts['rows']} rows, {counts['distinct']} distinct, {took:.0f} s")
    return 0 if counts["rows"] == counts["distinct"] == sender.sent else 1


if __name__ == "__main__":
    sys.exit(main())
