"""A disk fuller than the operator allows: the same words from both brokers, and reads go on."""

from __future__ import annotations

import asyncio
import contextlib
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.operations.offsets import min_offset, update_consumer_offset
from orbitmq.operations.sends import send
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.java_rocketmq import ROCKETMQ_4, SMALL_JVM, JavaSystem
from tests.support.live import pull_header, send_header
from tests.support.mounts import Ballast, CannotMount, mounted
from tests.support.orbit_process import OrbitUp

RATIO = "rocketmq.broker.diskSpaceWarningLevelRatio"  # a system property of RocketMQ's JVM, a key of orbitmq's file
SYSTEMS: dict[str, Callable[[], System]] = {
    "java": lambda: JavaSystem(ROCKETMQ_4, jvm=(*SMALL_JVM, f"-D{RATIO}=0.001"), cleanFileForciblyEnable="false"),
    "orbitmq": lambda: OrbitUp(**{RATIO: 0.001, "cleanResourceInterval": 100, "cleanFileForciblyEnable": "false"}),
}
FORCIBLE = "rocketmq.broker.diskSpaceCleanForciblyRatio"
FILE_SIZE = 1 << 20
SMALL_FILES = {
    "mappedFileSizeCommitLog": FILE_SIZE,
    "cleanResourceInterval": 100,
    "diskMaxUsedSpaceRatio": 30,  # RocketMQ forces nothing below it, either
    "messageIndexEnable": "false",
}
FIRST_CLEANING_SECONDS = 120  # either broker waits a minute before it removes anything
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


@pytest.fixture
def disk(tmp_path: Path) -> Iterator[Path]:
    try:
        with mounted("tmpfs", tmp_path / "disk", 128 << 20) as disk:
            yield disk
    except CannotMount as error:
        pytest.skip(f"needs a file system of its own: {error}")


async def eventually(condition: Callable[[], Awaitable[bool]]) -> None:
    async with asyncio.timeout(FIRST_CLEANING_SECONDS):
        while not await condition():  # noqa: ASYNC110 - another process tells nobody
            await asyncio.sleep(0.5)


@pytest.mark.long
async def test_a_nearly_full_disk_takes_unread_messages_as_rocketmqs_does_only_when_it_is_told_to(disk: Path) -> None:
    """RocketMQ's rule is orbitmq's option. Without it, what a group has not read stays as long as it is fresh."""
    pairs = {FORCIBLE: 0.3, RATIO: 0.99}
    jvm = (*SMALL_JVM, *(f"-D{key}={value}" for key, value in pairs.items()))
    default = OrbitUp(store_dir=disk / "default", **pairs, **SMALL_FILES)
    systems: dict[str, System] = {
        "java": JavaSystem(ROCKETMQ_4, store_dir=disk / "java", jvm=jvm, **SMALL_FILES),
        "as java": OrbitUp(store_dir=disk / "as-java", **pairs, **SMALL_FILES, cleanUnreadFileForciblyEnable="true"),
        "default": default,
    }
    remoting = Remoting()
    queue = MessageQueue("Crowded", "", 0)

    async def begin(name: str) -> int:
        return await min_offset(remoting, systems[name].address, queue)

    async def are_cleaned() -> bool:
        return min(await begin("java"), await begin("as java")) > 0

    async def is_told() -> bool:
        return default.process is not None and "event=unread_log_file_kept" in default.process.errors()

    with contextlib.ExitStack() as stack:
        for system in systems.values():
            stack.enter_context(system)
            for _ in range(3 * FILE_SIZE // 100_000):
                await send(remoting, system.address, send_header("Crowded"), bytes(100_000), timeout_ms=30_000)
            await update_consumer_offset(remoting, system.address, "readers", queue, 1)
        Ballast(disk).fill_to(60)
        await eventually(are_cleaned)
        await eventually(is_told)
        assert await begin("default") == 0
        await remoting.close()
