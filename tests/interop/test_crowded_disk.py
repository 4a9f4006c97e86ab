"""A disk fuller than the operator allows: the same words from both brokers, and reads go on."""

from __future__ import annotations

import asyncio
import re
from collections.abc import Callable, Iterator

import pytest

from orbitmq.message.unit import decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, request
from tests.interop.conftest import System
from tests.support.java_rocketmq import ROCKETMQ_4, SMALL_JVM, JavaSystem
from tests.support.live import pull_header, send_header
from tests.support.orbit_process import OrbitUp

RATIO = "rocketmq.broker.diskSpaceWarningLevelRatio"  # a system property of RocketMQ's JVM, a key of orbitmq's file
SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(ROCKETMQ_4, jvm=(*SMALL_JVM, f"-D{RATIO}=0.001"), cleanFileForciblyEnable="false"),
    "orbitmq": lambda: OrbitUp(**{RATIO: 0.001, "cleanResourceInterval": 100, "cleanFileForciblyEnable": "false"}),
}
PATIENCE_SECONDS = 60  # RocketMQ looks at its disk every ten
USE = re.compile(r"CL: +-?\d\.\d\d CQ: +-?\d\.\d\d INDEX: +-?\d\.\d\d")


@pytest.fixture(params=SYSTEMS)
def crowded(request: pytest.FixtureRequest) -> Iterator[System]:
    with SYSTEMS[request.param]() as running:
        yield running


async def test_a_crowded_disk_takes_no_messages_and_gives_those_it_has(crowded: System) -> None:
    remoting = Remoting()

    async def ask(command: Command) -> Command:
        return await remoting.call(crowded.address, command, 30_000)

    def a_send() -> Command:
        return request(RequestCode.SEND_MESSAGE_V2, send_header("Crowded"), b"body")

    taken = 0
    async with asyncio.timeout(PATIENCE_SECONDS):
        while (answer := await ask(a_send())).code == ResponseCode.SUCCESS:
            taken += 1
            await asyncio.sleep(0.02)
    for _ in range(3):
        assert answer.code == ResponseCode.SERVICE_NOT_AVAILABLE
        assert USE.search(str(answer.remark)), answer.remark
        assert set(answer.ext or {}) >= {"MSG_REGION", "TRACE_ON"}
        answer = await ask(a_send())
    found = 0
    while found < taken:
        units = decode_units((await ask(request(RequestCode.PULL_MESSAGE, pull_header("Crowded", 0, found)))).body)
        assert [unit.queue_offset for unit in units] == list(range(found, found + len(units))) != []
        found += len(units)
    assert found == taken
    await remoting.close()
