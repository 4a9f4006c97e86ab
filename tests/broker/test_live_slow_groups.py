"""A group that reads too far behind the end of the log is switched off, if the operator wants that."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.slow_groups import LOOK_SECONDS
from orbitmq.message.config import SubscriptionData
from tests.support.live import Client, Time, client_of, consumer, made_broker, running
from tests.support.loops import LoopFactory

ORDERS = SubscriptionData("Orders", version=1)
LIMIT = 10_000  # bytes


async def beat_for(time: Time, client: Client, seconds: float) -> None:
    """Time passes while the client stays a member."""
    for _ in range(round(seconds / 60)):
        await time.pass_by(60)
        await client.heartbeat(consumer("slow", ORDERS), consumer("quick", ORDERS))
    await time.pass_by(1)


@pytest.mark.parametrize("wanted", [True, False])
async def test_a_group_that_is_too_far_behind_may_not_go_on(
    tmp_path: Path, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture, wanted: bool
) -> None:
    time = Time()
    broker = made_broker(
        tmp_path,
        time.clock,
        disableConsumeIfConsumerReadSlowly=str(wanted).lower(),
        consumerFallbehindThreshold=str(LIMIT),
    )
    async with running(broker), client_of(broker) as client:
        for number in range(20):
            await client.send("Orders", bytes(1000), queue_id=number % 2)
        for queue_id in (0, 1):
            broker.offsets.commit("quick", "Orders", queue_id, 8)
            broker.offsets.commit("away", "Orders", queue_id, 0)
        broker.offsets.commit("slow", "Orders", 0, 10)
        broker.offsets.commit("slow", "Orders", 1, 1)
        await client.heartbeat(consumer("slow", ORDERS), consumer("quick", ORDERS))
        await beat_for(time, client, LOOK_SECONDS)
        assert broker.groups.table["slow"].consume_enabled is not wanted
        assert broker.groups.table["quick"].consume_enabled
        assert "away" not in broker.groups.table, "nobody of it is there"
        assert (await client.pull("Orders", consumer_group="slow")).code == (16 if wanted else 0)
        assert (await client.pull("Orders", consumer_group="quick")).code == 0
        assert caplog.text.count("event=group_stopped group=slow topic=Orders queue=1") == wanted
        await beat_for(time, client, LOOK_SECONDS)
        assert caplog.text.count("event=group_stopped") == wanted, "once"
