"""`orbitmq exporter` as an operator runs it: with an account that stands on no command line, until a signal ends it."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path

from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from tests.support.access import ADMIN, write_acl
from tests.support.live import made_broker, running
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess
from tests.support.scraped import Scraped

PATIENCE_SECONDS = 60


async def _page_of(process: ChildProcess) -> str:
    """Where it says that it serves."""
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := re.search(r"http://\S+", process.output())):
            assert process.exit_code is None, process.errors()
            await asyncio.sleep(0.05)
    return found[0]


async def _scraped_when(process: ChildProcess, name: str) -> Scraped:
    """The page once it has a metric."""
    page = await _page_of(process)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while not (found := await Scraped.from_page(page)).values(name):  # noqa: ASYNC110 - of another process
            await asyncio.sleep(0.05)
    return found


def _command_line(process: ChildProcess) -> str:
    return Path(f"/proc/{process.pid}/cmdline").read_text()


async def test_an_account_comes_from_the_environment_and_is_told_nowhere(tmp_path: Path) -> None:
    write_acl(tmp_path / "home")
    names = NameServer(NamesrvOptions(listen_port=0))
    await names.start()
    broker = made_broker(
        tmp_path / "store", namesrvAddr=names.address, aclEnable="true", rocketmqHome=str(tmp_path / "home")
    )
    command = [str(ORBITMQ), "exporter", "-n", names.address, "--port", "0", "--log-level", "debug"]
    account = {"ORBITMQ_ACCESS_KEY": ADMIN.access_key, "ORBITMQ_SECRET_KEY": ADMIN.secret_key}
    try:
        async with running(broker):
            await broker.announced()
            output = tmp_path / "exporter.out"
            with ChildProcess(command, output=output, environment=account, cwd=tmp_path) as process:
                found = await _scraped_when(process, "rocketmq_brokeruntime_commitlog_disk_ratio")
                assert found.value("orbitmq_broker_up", broker="broker-a") == 1
                arguments = _command_line(process)
                assert await asyncio.to_thread(process.stop) == 0
            assert ADMIN.secret_key not in arguments + process.output() + process.errors()

            stranger = {"ORBITMQ_ACCESS_KEY": "", "ROCKETMQ_HOME": ""}
            with ChildProcess(command, output=output, environment=stranger, cwd=tmp_path) as process:
                found = await _scraped_when(process, "orbitmq_broker_up")
                assert found.value("orbitmq_broker_up", broker="broker-a") == 1  # it answers: no
                assert not found.values("rocketmq_brokeruntime_commitlog_disk_ratio")
    finally:
        await names.stop()


def test_a_name_server_that_is_none_is_a_wrong_usage(tmp_path: Path) -> None:
    with ChildProcess([str(ORBITMQ), "exporter", "-n", "nowhere"], output=tmp_path / "out", cwd=tmp_path) as process:
        assert process.wait(PATIENCE_SECONDS) == 2
    assert "orbitmq exporter: name server 'nowhere': use host:port" in process.errors()
