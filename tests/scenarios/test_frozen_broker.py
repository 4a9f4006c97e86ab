"""Brokers of a mixed cluster freeze, thaw, die and come back, while producers of both clients send.

Two brokers of RocketMQ and two of orbitmq, a topic on all four, name servers of both kinds. What is promised holds for
Java's client as well; how the clients compare in figures is `bench/frozen.py`'s.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import cycle

import pytest

from tests.support.four_brokers import JAVAS, NAMES, OURS, FourBrokers
from tests.support.reading import deliveries
from tests.support.steady import KINDS, Kind, Sent, SteadySender

TOPIC = "frozen"
PATIENCE_S = 60
TIMEOUT_MS = 1000
ISOLATION_MS = 3000
# Only who fails is left out: a busy test machine makes any broker slow.
SETTINGS = {"timeout_ms": TIMEOUT_MS, "isolation": f"0,0,0,0,0,0,{ISOLATION_MS}", "poll_ms": 1000}
CLOCKS_MS = 100  # a row is written a little later than the producer has noted its failure
ONE_OF_EACH = (JAVAS[0], OURS[0])  # they freeze at the same time, and die one after the other
ENOUGH = 60  # sends, a few rounds of all sixteen queues
ERRORS_MIN = 4  # as many as one producer has senders: with fault tolerance each of them may be caught once


@pytest.fixture(scope="module")
def cluster() -> Iterator[FourBrokers]:
    with FourBrokers() as running:
        running.create(TOPIC)
        yield running


def test_producers_outlive_brokers_that_freeze_and_die(cluster: FourBrokers) -> None:
    with ExitStack() as stack:
        producers = {
            kind: stack.enter_context(SteadySender(kind, address, TOPIC, f"{number}", **SETTINGS))  # type: ignore[arg-type]
            for number, (kind, address) in enumerate(zip(KINDS, cycle(cluster.name_servers), strict=False))
        }
        _wait_for_all(producers, lambda sent: len(_stored(sent)) >= ENOUGH, "sends while all is well")
        _wait_for_all(producers, lambda sent: all(_used(sent, broker, 0) for broker in NAMES), "sends to every broker")

        frozen_ms = _now_ms()
        for broker in ONE_OF_EACH:
            cluster.freeze(broker)
        suffering = {kind: producer for kind, producer in producers.items() if not kind.fault}
        _wait_for_all(suffering, lambda sent: len(_failed(sent, frozen_ms)) >= ERRORS_MIN, "sends that fail")
        for broker in ONE_OF_EACH:
            careful = {kind: producer for kind, producer in producers.items() if kind.fault}
            _wait_for_all(careful, lambda sent: len(_while_left_out(sent, broker, frozen_ms)) >= ENOUGH, "goes on")  # noqa: B023
        thawed_ms = _now_ms()
        for broker in ONE_OF_EACH:
            cluster.thaw(broker)
        assert_left_out(producers, frozen_ms, thawed_ms)

        for broker in ONE_OF_EACH:
            _wait_for_all(producers, lambda sent: _used(sent, broker, thawed_ms), "the thawed broker to be used")  # noqa: B023
            assert_dies_and_comes_back(producers, cluster, broker)
        acknowledged = {f"{one.run}-{row.index}" for one in producers.values() for row in _stored(one.end())}
    deliveries(cluster.name_servers[0], TOPIC, acknowledged)


def assert_left_out(producers: dict[Kind, SteadySender], frozen_ms: int, thawed_ms: int) -> None:
    """With fault tolerance nobody tries a frozen broker from the first failure on until its isolation is over, and no
    larger part of the sends fails than without.
    """
    for kind in (kind for kind in KINDS if kind.fault):
        sent = producers[kind].sent()
        for broker in ONE_OF_EACH:
            assert not [row for row in _while_left_out(sent, broker, frozen_ms) if broker in row.tried], (kind, broker)
        without = producers[Kind(kind.client, fault=False)].sent()
        errors = [len(_failed(rows, frozen_ms, thawed_ms)) for rows in (sent, without)]
        sends = [sum(frozen_ms < row.begin < thawed_ms for row in rows) for rows in (sent, without)]
        print(f"{kind.client}, two brokers frozen: {errors} errors of {sends} sends with and without fault tolerance")
        assert errors[0] / sends[0] < errors[1] / sends[1]


def assert_dies_and_comes_back(producers: dict[Kind, SteadySender], cluster: FourBrokers, broker: str) -> None:
    killed_ms = _now_ms()
    cluster.kill(broker)
    _wait_for_all(producers, lambda sent: sum(row.begin > killed_ms for row in sent) >= ENOUGH, "sends without it")
    for kind, producer in producers.items():
        lost = [row for row in producer.sent() if row.begin > killed_ms and row.error and broker in row.tried]
        assert not lost, f"{kind}: a dead broker costs an attempt and no send"
    cluster.start(broker)
    back_ms = _now_ms()
    _wait_for_all(producers, lambda sent: _used(sent, broker, back_ms), "the broker that is back to be used")


def _while_left_out(sent: list[Sent], broker: str, frozen_ms: int) -> list[Sent]:
    """What began while a frozen broker that was met is left out."""
    first_ms = min((row.end for row in sent if _missed(row, broker) and row.end > frozen_ms), default=math.inf)
    return [row for row in sent if first_ms < row.begin < first_ms + ISOLATION_MS - CLOCKS_MS]


def _wait_for_all(producers: dict[Kind, SteadySender], holds: Callable[[list[Sent]], bool], what: str) -> None:
    for kind, producer in producers.items():
        producer.process.wait_for(lambda one=producer: holds(one.sent()), PATIENCE_S, f"{what}, {kind}")  # type: ignore[misc]


def _stored(sent: list[Sent]) -> list[Sent]:
    return [row for row in sent if row.broker is not None]


def _failed(sent: list[Sent], from_ms: int, to_ms: int = 1 << 62) -> list[Sent]:
    """Sends that ended with an error in this time."""
    return [row for row in sent if row.error is not None and from_ms <= row.end < to_ms]


def _missed(row: Sent, broker: str) -> bool:
    """Whether the broker did not answer."""
    return broker in row.tried and (row.error is not None or len(row.tried) > 1)


def _used(sent: list[Sent], broker: str, from_ms: int) -> bool:
    return any(row.broker == broker and row.begin > from_ms for row in sent)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
