"""`orbitmq host`: several brokers of one cluster, kept running and stopped together."""

from __future__ import annotations

import asyncio
import itertools
import os
import re
import signal
import socket
import subprocess
import sys
import urllib.request
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from subprocess import SubprocessError

import pytest

from orbitmq.cli import host
from orbitmq.cli.host import PORT_STEP, ports
from orbitmq.client import Message
from orbitmq.client.sync import LitePullConsumer, Producer
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.options import read_properties
from tests.support.commands import orbitmq
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, accepts, free_port, wait_until
from tests.support.registration import is_registered

PATIENCE_S = 90
PLACES = re.compile(r"^  (name server|\w+-\d+) +(\S+)$", re.MULTILINE)


@pytest.fixture
def started(tmp_path: Path) -> Iterator[ChildProcess]:
    config = tmp_path / "all.conf"
    metrics = f"metricsExporterType=PROM\nmetricsPromExporterPort={free_port(1)}\n"
    config.write_text(f"flushDiskType=SYNC_FLUSH\nbrokerIP1=127.0.0.1\n{metrics}")
    options = ("--brokers", 2, "--namesrv-port", 0, "--broker-port", 0, "--log-level", "info")
    child = ChildProcess(
        [*map(str, (ORBITMQ, "host", "--data-dir", tmp_path / "data", "-c", config, *options))],
        output=tmp_path / "host.out",
    )
    yield child
    child.stop()


def _places(host: ChildProcess) -> dict[str, str]:
    host.wait_for(lambda: "  data " in host.output(), PATIENCE_S, "all to be ready")
    places = dict(PLACES.findall(host.output()))
    host.wait_for(lambda: all(_pids(host, name) for name in places), PATIENCE_S, "the log, which a thread writes")
    return places


def _pids(host: ChildProcess, name: str) -> list[int]:
    return [int(pid) for pid in re.findall(rf"event=node_ready node='{name}' pid=(\d+)", host.errors())]


def test_brokers_share_a_topic_and_one_that_is_killed_comes_back_with_its_messages(
    started: ChildProcess, tmp_path: Path
) -> None:
    places = _places(started)
    namesrv = places["name server"]
    assert set(places) == {"name server", "broker-0", "broker-1"}
    orbitmq("topic", "create", "Orders", "-n", namesrv, "-y")
    with Producer("producers", namesrv, send_timeout_ms=60_000) as producer:
        results = [producer.send(Message("Orders", b"%d" % number)) for number in range(32)]
        assert {result.queue.broker_name for result in results} == {"broker-0", "broker-1"}
        (pid,) = _pids(started, "broker-1")
        os.kill(pid, signal.SIGKILL)
        started.wait_for(lambda: len(_pids(started, "broker-1")) == 2, PATIENCE_S, "broker-1 to come back")
        assert accepts(int(places["broker-1"].rpartition(":")[2]))
        wait_until(lambda: is_registered(namesrv, "broker-1"), PATIENCE_S, "broker-1 to be registered")
    with LitePullConsumer("readers", namesrv) as consumer:
        consumer.subscribe("Orders")
        bodies: set[bytes] = set()
        wait_until(
            lambda: bodies.update(one.body for one in consumer.poll(timeout=1)) or len(bodies) == 32, PATIENCE_S, "all"
        )
    assert len(_pids(started, "broker-0")) == 1, "the other was left alone"
    pids = [_pids(started, name)[-1] for name in places]
    assert started.stop() == 0
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not list((tmp_path / "data").glob("*/abort")), "each was stopped as it should be"


def test_what_a_tool_tells_one_broker_is_that_broker_s_and_stays(started: ChildProcess, tmp_path: Path) -> None:
    namesrv = _places(started)["name server"]
    orbitmq("broker", "config", "set", "fileReservedTime=5", "--broker", "broker-0", "-n", namesrv, "-y")
    kept = [(tmp_path / "data" / f"broker-{number}.conf").read_text() for number in range(2)]
    assert ["fileReservedTime=5" in text for text in kept] == [True, False]
    assert ["SYNC_FLUSH" in text for text in kept] == [True, True]


def test_each_broker_serves_its_metrics_on_the_next_port(started: ChildProcess, tmp_path: Path) -> None:
    _places(started)
    first = int(read_properties(tmp_path / "all.conf")["metricsPromExporterPort"])
    for number in range(2):
        with urllib.request.urlopen(f"http://127.0.0.1:{first + number}/metrics", timeout=PATIENCE_S) as page:
            assert f'node_id="broker-{number}"' in page.read().decode()


def test_a_file_that_each_broker_has_already_is_no_difference(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    config = tmp_path / "all.conf"
    config.write_text("metricsExporterType=PROM\nmetricsPromExporterPort=7000\n")
    brokers = [host.broker(number, 0, tmp_path, "", "b") for number in range(3)]
    for _ in range(2):
        host._make_settings(tmp_path, brokers, config)
    kept = [read_properties(tmp_path / f"b-{number}.conf")["metricsPromExporterPort"] for number in range(3)]
    assert kept == ["7000", "7001", "7002"]
    assert not capsys.readouterr().err
    config.write_text("metricsExporterType=PROM\nmetricsPromExporterPort=8000\n")
    host._make_settings(tmp_path, brokers, config)
    assert capsys.readouterr().err.count("exists and differs") == 3
    config.write_text("metricsExporterType=PROM\nmetricsPromExporterPort=65534\n")
    with pytest.raises(ConfigurationError, match="metricsPromExporterPort 65534 is too high: the next 2 are used, too"):
        host._make_settings(tmp_path, brokers, config)


def test_it_does_not_outlive_a_supervisor_that_is_killed(started: ChildProcess) -> None:
    places = _places(started)
    pids = [_pids(started, name)[-1] for name in places]
    started.kill()
    wait_until(lambda: not any(_is_alive(pid) for pid in pids), PATIENCE_S, "the brokers to end")


def _is_alive(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[:1]
    except FileNotFoundError:
        return False


def test_what_no_repetition_mends_ends_it_with_its_reason(tmp_path: Path) -> None:
    config = tmp_path / "all.conf"
    config.write_text("deleteWhen=never\n")
    options = ("--data-dir", tmp_path / "d", "--namesrv-port", 0, "--broker-port", 0, "-c", config)
    ended = subprocess.run(
        [*map(str, (ORBITMQ, "host", *options))], capture_output=True, check=False, timeout=PATIENCE_S
    )
    assert ended.returncode == 2
    assert b"deleteWhen" in ended.stderr


def test_a_file_for_all_says_nothing_that_is_one_s_own(tmp_path: Path) -> None:
    config = tmp_path / "all.conf"
    config.write_text("brokerName=a\nlistenPort=1\nbrokerClusterName=c\n")
    ended = orbitmq("host", "--data-dir", tmp_path / "d", "-c", config, code=2)
    assert "all.conf: brokerName, listenPort: each of the brokers has its own" in ended.stderr
    assert not (tmp_path / "d").exists()


def test_ports_do_not_clash() -> None:
    assert ports(10911, 3) == [10911, 10921, 10931]
    found = sorted(ports(0, 5))
    assert all(after - before >= PORT_STEP for before, after in itertools.pairwise(found))
    for first, count in ((65535, 1), (65500, 5), (1, 1), (2, 1)):
        with pytest.raises(ConfigurationError, match=f"--broker-port {first}"):
            ports(first, count)


def test_free_ports_are_free_with_their_neighbours(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
        assert [host._is_free(port + offset) for offset in (0,)] == [False]
    monkeypatch.setattr(host, "_is_free", lambda port: False)
    with pytest.raises(ConfigurationError, match="no three free ports"):
        ports(0, 1)


def _kept(
    monkeypatch: pytest.MonkeyPatch, start: Callable[[], Awaitable[object]], ends: Callable[[], bool]
) -> list[int]:
    """Keep one node that is begun by `start` until `ends`; the exit codes with which it was given up."""
    gave_up: list[int] = []

    async def begin(_node: host.HostedProcess, _log_level: str) -> object:
        return await start()

    async def keep() -> None:
        running = host.RunningProcess(host.HostedProcess("broker-0", (), "broker", ""))
        keeping = asyncio.create_task(host._supervise(running, "info", lambda _running, code: gave_up.append(code)))
        async with asyncio.timeout(30):
            while not ends() and not gave_up:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        keeping.cancel()
        await asyncio.gather(keeping, return_exceptions=True)
        await host._stop(running)

    monkeypatch.setattr(host, "_start", begin)
    monkeypatch.setattr(host, "FIRST_WAIT_SECONDS", 0.01)
    asyncio.run(keep())
    return gave_up


def _printing(words: str) -> Awaitable[asyncio.subprocess.Process]:
    return asyncio.create_subprocess_exec(
        sys.executable, "-c", words, stdout=asyncio.subprocess.PIPE, limit=host._LINE_BYTES_MAX
    )


def test_a_machine_that_has_no_room_for_a_process_is_asked_again(monkeypatch: pytest.MonkeyPatch) -> None:
    errors: list[Exception] = [BlockingIOError(11, "no room"), SubprocessError("fork"), OSError(12, "no memory")]
    starts = 0

    async def start() -> object:
        nonlocal starts
        starts += 1
        if errors:
            raise errors.pop()
        return await _printing("pass")

    assert _kept(monkeypatch, start, lambda: starts == 5) == []


def test_a_line_that_is_too_long_ends_nobody(monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture) -> None:
    long = host._LINE_BYTES_MAX * 3
    words = f"import time; print('x' * {long}, flush=True); print('broker here', flush=True); time.sleep(60)"
    with caplog.at_level("INFO"):
        codes = _kept(monkeypatch, lambda: _printing(words), lambda: "event=node_ready" in caplog.text)
    assert codes == []
    assert "starts=1" in caplog.text
    assert "event=node_ended" not in caplog.text


def test_a_keeper_that_fails_says_so_and_is_given_up(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def start() -> object:
        raise RuntimeError("a bug")

    assert _kept(monkeypatch, start, lambda: False) == [1]
    assert "event=node_not_supervised node='broker-0'" in caplog.text
    assert "a bug" in caplog.text
