"""A master dies with messages that its slave never got and consumers have seen; the slave is promoted and gets others
in their place. Consumers of both kinds come back with their old positions, and must miss none of the new ones.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable

from orbitmq.client import Message, MessageQueue
from orbitmq.client import sync as threads
from tests.scenarios.test_promotion import promote
from tests.support.java_rocketmq import ROCKETMQ_4
from tests.support.mixed_groups import TOPIC, Group, Host, java_host, python_host
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until

QUEUES = 4
COPIED, LOST = 3, 5  # messages of each queue
NEW = (1, 3, 8, 20)  # by queue: the first two end before the old positions, the others behind them
KINDS = ("push", "orderly", "lite")
PATIENCE_S = 120  # a route is looked for every 30 s, a frozen Java client has timed out before


def send(names: str, counts: Iterable[int]) -> None:
    """So many messages to each queue."""
    with threads.Producer("senders", names, send_timeout_ms=20_000) as producer:
        for queue_id, count in enumerate(counts):
            for number in range(count):
                producer.send(Message(TOPIC, b"%d" % number), queue=MessageQueue(TOPIC, "broker-a", queue_id))


class Seen:
    """What the members of a host have got, by kind: queue and offset."""

    def __init__(self, host: Host, strategy: str) -> None:
        self.host = host
        self.groups = [Group(strategy, kind) for kind in KINDS]
        self.by_group: dict[str, set[tuple[str, int]]] = {}
        self.forget()

    def join(self, names: str) -> None:
        for group in self.groups:
            self.host.join("ours", names, group, ())

    def forget(self) -> None:
        self.host.rows()
        self.by_group = {group.name: set() for group in self.groups}

    def have(self, wanted: set[tuple[str, int]]) -> bool:
        for row in self.host.rows():
            if row["event"] == "message":
                self.by_group[row["member"].partition("/")[2]].add((row["queue"], row["offset"]))
        return all(got >= wanted for got in self.by_group.values())


def places(first: int, counts: Iterable[int]) -> set[tuple[str, int]]:
    return {(f"broker-a:{queue}", first + number) for queue, count in enumerate(counts) for number in range(count)}


def test_nobody_misses_what_takes_the_place_of_lost_messages() -> None:
    with (
        OrbitNameServer() as names,
        OrbitBroker(names.address) as master,
        python_host("python") as python,
        java_host("java", ROCKETMQ_4) as java,
    ):
        everybody = (Seen(python, "AVG"), Seen(java, "AVG_BY_CIRCLE"))
        with OrbitBroker(names.address, brokerRole="SLAVE", brokerId=1) as slave:
            send(names.address, [COPIED] * QUEUES)
            for seen in everybody:
                seen.join(names.address)
            before = places(0, [COPIED] * QUEUES)
            wait_until(lambda: all(seen.have(before) for seen in everybody), PATIENCE_S, "the first messages")
            wait_until(lambda: copied(slave) == copied(master), PATIENCE_S, "the slave has them")
            slave.stop()
            send(names.address, [LOST] * QUEUES)
            before |= places(COPIED, [LOST] * QUEUES)
            wait_until(lambda: all(seen.have(before) for seen in everybody), PATIENCE_S, "what will be lost")
            for seen in everybody:
                seen.host.process.signal(signal.SIGSTOP)
            master.kill()
            slave.start()
            code, output = promote(slave, "--force")
            assert code == 0, output

            send(names.address, NEW)
            for seen in everybody:
                seen.forget()
                seen.host.process.signal(signal.SIGCONT)
            after = places(COPIED, NEW)
            wait_until(lambda: all(seen.have(after) for seen in everybody), PATIENCE_S, "what came later")


def copied(broker: OrbitBroker) -> bytes:
    with (broker.store_dir / "commitlog/00000000000000000000").open("rb") as file:
        return file.read(1 << 20)
