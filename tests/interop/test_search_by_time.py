"""Searches by time at every edge: before the first message, equal times within and across files of the queue, a gap,
behind the last one. RocketMQ 5.3.3 and orbitmq find boundaries; 4.9.7 finds the nearest message, which
orbitmq's client and tools correct.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

from orbitmq.client import Message, Producer, PullConsumer
from orbitmq.message.model import MessageQueue
from orbitmq.spark.cluster_client import ClusterClient, Retries
from orbitmq.wire.headers import Boundary, SearchOffsetHeader, SearchOffsetResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import Asker, asking
from tests.support.commands import orbitmq
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, JavaSystem
from tests.support.orbit_process import OrbitUp

FILE_ENTRIES = 20
OPTIONS = {"mappedFileSizeConsumeQueue": 20 * FILE_ENTRIES}
BATCHES = (1, 4, 10, 40, 1, 5)
"""Messages of one time each; the fourth crosses two borders of files."""
QUEUE = MessageQueue("Times", "broker-a", 0)
GAP_MS = 40
LONG_MS = 60_000


@dataclass
class Filled:
    """A system, and the store times of the queue's messages in their order."""

    name: str
    system: System
    times: list[int]

    @property
    def edges(self) -> dict[str, int]:
        """What is searched for, by name."""
        starts = [sum(BATCHES[:number]) for number in range(len(BATCHES))]
        first, few, run, crossing, single, last = (self.times[start] for start in starts)
        return {
            "long before": first - LONG_MS, "just before": first - 1, "first": first, "few": few, "run": run,
            "before a run": run - 1, "after a run": run + 1, "crossing": crossing, "before crossing": crossing - 1,
            "after crossing": crossing + 1, "single": single, "last": last, "just after": last + 1,
            "long after": last + LONG_MS,
        }  # fmt: skip

    def first_at(self, time_ms: int) -> int:
        return next((at for at, time in enumerate(self.times) if time >= time_ms), len(self.times))

    def last_at(self, time_ms: int) -> int:
        return max(self.first_at(time_ms + 1) - 1, 0)

    def answers(self, boundary: Boundary | None = None) -> dict[str, int]:
        """What the broker itself answers."""

        async def ask(asker: Asker) -> dict[str, int]:
            found = {}
            for name, time_ms in self.edges.items():
                header = SearchOffsetHeader(QUEUE.topic, QUEUE.queue_id, time_ms, boundary=boundary)
                answer = await asker.ask(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
                found[name] = answer.header(SearchOffsetResponseHeader).offset
            return found

        return asking(self.system.address, ask)


@pytest.fixture(scope="module", params=["java", "java-5", "orbitmq"])
def filled(request: pytest.FixtureRequest) -> Iterator[Filled]:
    made = {
        "java": lambda: JavaSystem(ROCKETMQ_4, **OPTIONS),
        "java-5": lambda: JavaSystem(ROCKETMQ_5, **OPTIONS),
        "orbitmq": lambda: OrbitUp(**OPTIONS),
    }[request.param]()
    with made as system:
        yield Filled(request.param, system, asyncio.run(fill(system)))


async def fill(system: System) -> list[int]:
    async with Producer("fillers", system.namesrv_address) as producer:
        for size in BATCHES:
            await producer.send_batch([Message(QUEUE.topic, b"x")] * size, queue=QUEUE)
            await asyncio.sleep(GAP_MS / 1000)
    async with PullConsumer("readers", system.namesrv_address) as consumer:
        times: list[int] = []
        while len(times) < sum(BATCHES):
            times += [one.store_timestamp for one in (await consumer.pull(QUEUE, "*", len(times), 32)).messages]
        return times


@pytest.mark.parametrize("boundary", [None, *Boundary])
def test_a_broker_finds_the_boundary_and_4_9_the_nearest_message(
    filled: Filled, boundary: Boundary | None, record_property: Callable[[str, object], None]
) -> None:
    """4.9.7 looks into the first file written since the time only, so that of several files it may pass all in one."""
    answers = filled.answers(boundary)
    record_property("answers", answers)
    search = filled.last_at if boundary is Boundary.UPPER else filled.first_at
    exact = {name: search(time_ms) for name, time_ms in filled.edges.items()}
    if filled.name != "java":
        assert answers == exact
        return
    assert {name for name, offset in answers.items() if offset > filled.first_at(filled.edges[name])}, (
        "messages are skipped"
    )
    assert {answers["just after"], answers["long after"]} == {len(filled.times) - 1}, "the last message, not the end"


def test_clients_and_tools_find_the_first_message_at_every_broker(filled: Filled) -> None:
    names = filled.system.namesrv_address
    exact = {name: filled.first_at(time_ms) for name, time_ms in filled.edges.items()}

    async def by_client() -> dict[str, int]:
        async with PullConsumer("readers", names) as consumer:
            return {name: await consumer.search_offset(QUEUE, time_ms) for name, time_ms in filled.edges.items()}

    assert asyncio.run(by_client()) == exact
    cluster, place = ClusterClient([names], 5000, Retries(3, 100)), (filled.system.address,)
    bounds = cluster.bounds({QUEUE: place})
    found = {
        name: cluster.offsets_at({QUEUE: place}, bounds, {QUEUE: time_ms}, "readers")[QUEUE]
        for name, time_ms in filled.edges.items()
    }
    assert found == exact


@pytest.mark.parametrize("edge", ["run", "crossing", "just after"])
def test_a_group_that_is_reset_to_a_time_skips_no_message_of_it(
    filled: Filled, monkeypatch: pytest.MonkeyPatch, edge: str
) -> None:
    group, time_ms = f"reset-{edge.replace(' ', '-')}", filled.edges[edge]

    async def consumed() -> None:
        async with PullConsumer(group, filled.system.namesrv_address) as consumer:
            consumer.update_offset(QUEUE, len(filled.times))
            await consumer.store_offsets()

    async def stored() -> int:
        async with PullConsumer(group, filled.system.namesrv_address) as consumer:
            return await consumer.fetch_offset(QUEUE, from_store=True)

    monkeypatch.setenv("NAMESRV_ADDR", filled.system.namesrv_address)
    orbitmq("group", "create", group)
    asyncio.run(consumed())
    orbitmq("offset", "reset", group, QUEUE.topic, "--to", time_ms, "--yes")
    assert asyncio.run(stored()) == filled.first_at(time_ms)
