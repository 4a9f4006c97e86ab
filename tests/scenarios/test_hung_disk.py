"""A disk that takes writes and never says they are done: what senders hear, and that a broker can still be stopped.

The disk hangs below the broker: in its process every call that waits for the disk waits until a file is gone.
"""

from __future__ import annotations

import asyncio
import signal
import sys
from pathlib import Path

import pytest

from orbitmq.message.unit import decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.operations.pulls import pull
from orbitmq.operations.sends import send
from orbitmq.wire.codes import ResponseCode
from tests.support.live import pull_header, send_header
from tests.support.orbit_process import OrbitUp

TOPIC = "HungTopic"
HANGING = """\
import os, sys, time
from pathlib import Path
from orbitmq.broker import broker
from orbitmq.cli.main import main
hung, patience, sync = Path(sys.argv.pop(1)), float(sys.argv.pop(1)), os.fdatasync
def fdatasync(descriptor):
    while hung.exists():
        time.sleep(0.01)
    sync(descriptor)
os.fdatasync = fdatasync
broker.STOP_PATIENCE_SECONDS = patience
main()
"""


@pytest.fixture
def hung(tmp_path: Path) -> Path:
    """The file; while it exists the disk hangs."""
    return tmp_path / "hung"


@pytest.fixture(params=["SYNC_FLUSH", "ASYNC_FLUSH"])
def broker(request: pytest.FixtureRequest, tmp_path: Path, hung: Path) -> OrbitUp:
    """Not started yet. When it stops it waits for its disk a second."""
    script = tmp_path / "hanging.py"
    script.write_text(HANGING)
    made = OrbitUp(home=tmp_path, flushDiskType=request.param, syncFlushTimeout=5000)
    made.program = (sys.executable, script, hung, 1)
    return made


def test_a_broker_stops_though_its_disk_does_not_answer(
    request: pytest.FixtureRequest, broker: OrbitUp, hung: Path
) -> None:
    waits = "[SYNC_FLUSH]" in request.node.name
    with broker:
        assert [code_of_send(broker.address, b"%d" % number) for number in range(3)] == [0, 0, 0]
        hung.touch()
        late = code_of_send(broker.address, b"late")
        assert late == (ResponseCode.FLUSH_DISK_TIMEOUT if waits else ResponseCode.SUCCESS)
        process, broker.process = broker.process, None
        assert process is not None
        process.signal(signal.SIGTERM)
        assert process.wait(30) == 1
        (line,) = [line for line in process.errors().splitlines() if "has not responded" in line]
        assert "the next start recovers the store as after a crash" in line
        assert (broker.store_dir / "abort").exists()

        hung.unlink()
        broker.program = OrbitUp.program  # with its own patience
        broker.start()
        assert stored(broker.address) == [b"0", b"1", b"2", b"late"]
        assert broker.stop() == 0


def code_of_send(address: str, body: bytes) -> int:
    async def one() -> int:
        remoting = Remoting()
        reply = await send(remoting, address, send_header(TOPIC), body, timeout_ms=30_000)
        await remoting.close()
        return reply.code

    return asyncio.run(one())


def stored(address: str) -> list[bytes]:
    async def all_of_it() -> list[bytes]:
        remoting = Remoting()
        reply = await pull(remoting, address, pull_header(TOPIC))
        await remoting.close()
        return [unit.body for unit in decode_units(reply.body)]

    return asyncio.run(all_of_it())
