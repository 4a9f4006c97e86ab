"""Promotions among brokers and name servers of RocketMQ, which know no epochs and pass them over."""

from __future__ import annotations

import asyncio
import signal
from contextlib import ExitStack

import pytest

from orbitmq.errors import BrokerError
from orbitmq.operations.routes import cluster_info
from orbitmq.wire.codes import ResponseCode
from tests.scenarios.test_mastership import SLAVE, anew, client_at, figure, put, send_signal, until_figure
from tests.scenarios.test_promotion import promote
from tests.support.java_rocketmq import JavaBroker, JavaNameServer
from tests.support.live import Client
from tests.support.orbit_process import OrbitBroker

BROKER = "broker-a"


@pytest.mark.parametrize("former_system", [OrbitBroker, JavaBroker])
async def test_with_name_servers_of_rocketmq_the_later_master_keeps_its_place(
    former_system: type[OrbitBroker | JavaBroker],
) -> None:
    """A former master of orbitmq stops. One of RocketMQ goes on, and is noticed; the later one registers again."""
    is_ours = former_system is OrbitBroker
    with ExitStack() as stack:
        names = stack.enter_context(JavaNameServer())
        quick = {"registerNameServerPeriod": 10_000}
        former = stack.enter_context(former_system(names.address, brokerRole="SYNC_MASTER", **quick))
        later = stack.enter_context(OrbitBroker(names.address, **SLAVE, **quick))
        async with client_at(former) as at_former, client_at(later) as at_later:
            await put(at_former, b"both", 10)
            await until_figure(at_later, "commitLogMaxOffset", await log_end(at_former))
            send_signal(former, signal.SIGSTOP)
            code, output = await asyncio.to_thread(promote, later, "--force")
            send_signal(former, signal.SIGCONT)
            assert code == 0, output
            assert "its role as the master       SYNC_MASTER (as the master's)" in output
            answer = await at_former.send("T", b"thawed")
            if is_ours:
                assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
            else:
                assert answer.code in (ResponseCode.SUCCESS, ResponseCode.SLAVE_NOT_AVAILABLE)
            wanted = "it has stopped" if is_ours else "a broker of RocketMQ with brokerRole=SYNC_MASTER"
            await until_figure(anew(at_later), "replicationOtherMasters", wanted)
            # RocketMQ's name server lists who registered last; the later one does so again.
            ends = asyncio.get_running_loop().time() + 60
            while (listed := await listed_master(at_later, names.address)) != later.address:
                assert asyncio.get_running_loop().time() < ends, listed
                await asyncio.sleep(0.2)


async def log_end(client: Client) -> str:
    """A broker of RocketMQ refuses its runtime information until it has first sampled itself."""
    ends = asyncio.get_running_loop().time() + 30
    while True:
        try:
            return await figure(client, "commitLogMaxOffset")
        except BrokerError as error:
            if "NoSuchElementException" not in error.remark or asyncio.get_running_loop().time() > ends:
                raise
        await asyncio.sleep(0.1)


async def listed_master(client: Client, names: str) -> str | None:
    return (await cluster_info(client.remoting, names, timeout_ms=3000)).brokers[BROKER].addresses.get(0)
