"""Streams whose driver is killed (-9) repeatedly at random moments (`make spark-kills`): into Parquet, into a
lake, into a topic effectively once and into a topic at least once, all in one driver.

Messages are sent all the time. Python workers of Spark and the broker are killed as well. In the end every sink must
have kept its guarantee; the counts are printed, and the exit code is 1 if one has not. `--system java`
reads from and writes to Apache RocketMQ 4.9.7. Ctrl-C ends the kills early, and counts what exists by then.
"""

from __future__ import annotations

import argparse
import contextlib
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
from orbitmq.errors import OrbitMQError  # noqa: E402
from orbitmq.message.model import Message  # noqa: E402
from tests.support.java_rocketmq import JavaSystem, run_driver  # noqa: E402
from tests.support.killed_streams import COPIES, TOPIC, Counts, Driver, broken  # noqa: E402
from tests.support.orbit_process import OrbitUp  # noqa: E402

SYSTEMS = {"orbitmq": OrbitUp, "java": JavaSystem}
BATCHES_MAX = 6  # of the four streams together since all have begun; none means at once
LAST_S = 1.5  # and so long at most into the next, about what one takes
SENDS_PER_S = 100
WORKER_EVERY = 2  # rounds in which a Python worker dies before the driver does
BROKER_EVERY = 5  # and the broker


class Sender(threading.Thread):
    """Sends numbered messages until it is stopped, each until it is acknowledged; `sent` says how many."""

    def __init__(self, name_server: str) -> None:
        super().__init__(name="sender")
        self._name_server = name_server
        self._stopped = threading.Event()
        self.sent = 0

    def run(self) -> None:
        with Producer("kill-senders", self._name_server) as producer:
            while not self._stopped.wait(1 / SENDS_PER_S):
                with contextlib.suppress(OrbitMQError):  # the broker is dead; the same message again
                    producer.send(Message(TOPIC, b"%d" % self.sent))
                    self.sent += 1

    def stop(self) -> None:
        self._stopped.set()
        self.join()


class Killer:
    """Kills a driver and, on the way, what it works with; `killed` counts."""

    def __init__(self, system: OrbitUp | JavaSystem, chance: random.Random) -> None:
        self._broker = system.broker if isinstance(system, JavaSystem) else system
        self._chance = chance
        self.killed = {"drivers": 0, "workers": 0, "brokers": 0}

    def end(self, driver: Driver, number: int) -> None:
        """Let the driver work for a random while, and kill it."""
        if number % BROKER_EVERY == BROKER_EVERY - 1:
            driver.wait_for_batches(driver.batches + self._chance.randrange(1, BATCHES_MAX))
            self._broker.kill()
            time.sleep(self._chance.uniform(0, LAST_S))
            self._broker.start()
            self.killed["brokers"] += 1
        elif number % WORKER_EVERY:
            driver.wait_for_batches(driver.batches + self._chance.randrange(1, BATCHES_MAX))
            with contextlib.suppress(ProcessLookupError):  # it was just ending
                os.kill(self._chance.choice(driver.workers()), signal.SIGKILL)
                self.killed["workers"] += 1
        driver.wait_for_batches(driver.batches + self._chance.randrange(BATCHES_MAX + 1))
        time.sleep(self._chance.uniform(0, LAST_S))
        driver.kill()
        self.killed["drivers"] += 1


def create_topics(system: OrbitUp | JavaSystem) -> None:
    for topic in (TOPIC, *COPIES.values()):
        arguments = ("--do", "create", "--topic", topic, "--queues", 4, "--broker", system.address)
        run_driver("admin", "--namesrv", system.namesrv_address, *arguments)


def campaign(name_server: str, folder: Path, drivers: list[Driver], killer: Killer, kills: int) -> None:
    """Kill one driver after the other; the next one is warm by then. `drivers` gets all of them; the last has done
    nothing."""
    drivers.append(Driver(name_server, folder, 0))
    for number in range(kills):
        drivers[-1].tell("go", "begun")
        # Not before: while its streams begin, the machine is to have time for the processes they plan in.
        drivers.append(Driver(name_server, folder, number + 1))
        killer.end(drivers[-2], number)
        print(f"{number + 1} of {kills}", file=sys.stderr, flush=True)


def report(name: str, killer: Killer, drivers: list[Driver], sender: Sender, counts: Counts) -> None:
    killed = ", ".join(f"{count} {what}" for what, count in killer.killed.items())
    batches, failures = (sum(getattr(driver, what) for driver in drivers) for what in ("batches", "failures"))
    print(f"{name}: killed {killed} in {batches} batches; streams that failed and began again: {failures}")
    print(f"{sender.sent} messages acknowledged; in the topic and in the sinks:")
    for sink, (rows, missing, more) in counts.items():
        print(f"  {sink:<17} {rows:>8,} rows  {missing} missing  {more} more than once")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--kills", type=int, default=20)
    parser.add_argument("--system", choices=SYSTEMS, default="orbitmq")
    parser.add_argument("--seed", type=int, default=int(time.time()))
    parser.add_argument("--keep", type=Path, help="Folder for everything that is written, which then stays.")
    arguments = parser.parse_args()
    chance = random.Random(arguments.seed)
    began = time.monotonic()
    with contextlib.ExitStack() as stack:
        folder = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="spark-kills-")))
        folder.mkdir(parents=True, exist_ok=True)
        system = stack.enter_context(SYSTEMS[arguments.system]())
        create_topics(system)
        killer, sender = Killer(system, chance), Sender(system.namesrv_address)
        sender.start()
        drivers: list[Driver] = []
        try:
            campaign(system.namesrv_address, folder, drivers, killer, arguments.kills)
        except KeyboardInterrupt:
            for driver in drivers[-2:]:  # those that may still live
                driver.kill()
            drivers.append(Driver(system.namesrv_address, folder, len(drivers)))
        finally:
            sender.stop()
        counts = drivers[-1].tell("finish", "counts")
        drivers[-1].child.stop()
        name = f"{arguments.system}, seed {arguments.seed}, {time.monotonic() - began:.0f} s"
        report(name, killer, drivers, sender, counts)
    return 1 if broken(counts) else 0


if __name__ == "__main__":
    sys.exit(main())
