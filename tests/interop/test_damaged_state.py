"""What a broker makes of a topics.json that is empty or cut off and has no backup: RocketMQ 4.9.7 forgets the topic.
orbitmq keeps it, says so, and `doctor` does.
"""

from __future__ import annotations

import asyncio
import subprocess
from pathlib import Path

import pytest

from orbitmq.errors import BrokerError
from orbitmq.net.remoting import Remoting
from orbitmq.operations.pulls import pull
from orbitmq.operations.sends import send
from orbitmq.wire.codes import ResponseCode
from tests.support.java_rocketmq import JavaSystem
from tests.support.live import pull_header, send_header
from tests.support.orbit_process import ORBITMQ, OrbitUp
from tests.support.process import ProcessFailed

MESSAGES = 80
KINDS = ["empty", "cut"]


async def fill(address: str) -> None:
    remoting = Remoting()
    for number in range(MESSAGES):
        await send(remoting, address, send_header("Kept"), b"%d" % number, timeout_ms=30_000)
    await remoting.close()


async def first_messages(address: str) -> int:
    """How many a first pull finds; BrokerError when the broker knows no such topic."""
    remoting = Remoting()
    try:
        return (await pull(remoting, address, pull_header("Kept"))).body.count(b"Kept")
    finally:
        await remoting.close()


def damage(store: Path, kind: str) -> None:
    path = store / "config/topics.json"
    path.write_bytes(path.read_bytes()[: path.stat().st_size // 4] if kind == "cut" else b"")
    path.with_name(path.name + ".bak").unlink(missing_ok=True)


@pytest.mark.parametrize("kind", KINDS)
def test_a_topic_whose_table_is_damaged_is_served_again_and_doctor_says_so(tmp_path: Path, kind: str) -> None:
    with OrbitUp(home=tmp_path, store_dir=tmp_path / "store") as broker:
        asyncio.run(fill(broker.address))
        assert broker.stop() == 0
        damage(broker.store_dir, kind)
        broker.start()
        assert asyncio.run(first_messages(broker.address)) > 0
        process = broker.process
        assert process is not None
        assert "event=state_file_damaged" in process.errors()
        command = [ORBITMQ, "doctor", "-n", broker.namesrv_address]
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert told.returncode != 0
        assert "has found state files damaged: topics.json" in " ".join(told.stdout.split())
        (broker.store_dir / "config/topics.json.damaged-1").unlink()
        told = subprocess.run(command, capture_output=True, text=True, check=False)
        assert "no broker has found a state file damaged" in " ".join(told.stdout.split())


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.long
def test_rocketmq_forgets_such_a_topic(tmp_path: Path, kind: str) -> None:
    """So that the difference is known."""
    with JavaSystem(store_dir=tmp_path / "store") as system:
        asyncio.run(fill(system.address))
        system.broker.stop()
        damage(system.store_dir, kind)
        system.broker.start()
        with pytest.raises(BrokerError) as refused:
            asyncio.run(first_messages(system.address))
        assert refused.value.code == ResponseCode.TOPIC_NOT_EXIST


def test_rocketmq_does_not_start_with_a_damaged_backup_and_orbitmq_serves_what_it_can(tmp_path: Path) -> None:
    with JavaSystem(store_dir=tmp_path / "store") as system:
        asyncio.run(fill(system.address))
        system.broker.stop()
        damage(system.store_dir, "cut")
        (system.store_dir / "config/topics.json.bak").write_text("{")
        with pytest.raises(ProcessFailed):
            system.broker.start()
        system.broker.process = None  # it has ended
        with OrbitUp(home=tmp_path, store_dir=system.store_dir) as broker:
            assert asyncio.run(first_messages(broker.address)) > 0
            assert broker.stop() == 0
