"""The daemons as an operator meets them: processes with configuration files, ports, directories and signals."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from urllib.request import urlopen

import pytest

from orbitmq.runtime.options import read_properties
from tests.support.five import Five, channel
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, free_port, wait_until, write_properties
from tests.support.registration import is_registered

SMALL_STORE = {"mappedFileSizeCommitLog": 1 << 20, "listenPort": 0}


def run(*arguments: object, namesrv: str = "") -> subprocess.CompletedProcess[str]:
    """The command, which is expected to end by itself."""
    environment = {**os.environ, "NAMESRV_ADDR": namesrv}
    command = [str(ORBITMQ), *map(str, arguments)]
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)


def conf(directory: Path, **pairs: object) -> Path:
    return write_properties(
        directory / "broker.conf", {"storePathRootDir": directory / "store", **SMALL_STORE, **pairs}
    )


def started(tmp_path: Path, *arguments: object) -> ChildProcess:
    """The command, once it has printed the address it serves at."""
    process = ChildProcess([str(ORBITMQ), *map(str, arguments)], output=tmp_path / f"{arguments[0]}.out", cwd=tmp_path)
    process.wait_for(lambda: address(process, str(arguments[0])), 30, "its address")
    return process


def address(process: ChildProcess, name: str) -> str:
    line = {"namesrv": "name server", "up": "broker", "proxy": "gRPC"}.get(name, name)
    found = re.search(rf"^ *{line} +(\S+:\d+)$", process.output(), re.MULTILINE)
    return found[1] if found else ""


@pytest.fixture
def taken_port() -> Iterator[int]:
    with socket.create_server(("127.0.0.1", 0)) as listener:
        yield listener.getsockname()[1]


def up_at(directory: Path) -> tuple[object, ...]:
    """Arguments of `orbitmq up` on free ports."""
    return "--data-dir", directory, "--namesrv-port", 0, "--broker-port", 0, "--no-dashboard"


def one_line(text: str) -> str:
    assert text.endswith("\n")
    assert text.count("\n") == 1, text
    return text


# ---------------------------------------------------------------------------------------------------- configuration


def test_the_broker_prints_its_effective_configuration(tmp_path: Path) -> None:
    file = conf(tmp_path, brokerName="broker-x", brokerIP1="10.1.2.3", flushDiskType="ASYNC_FLUSH")
    result = run("broker", "-c", file, "-n", "10.0.0.1:9876;10.0.0.2:9876", "-p")
    assert (result.returncode, result.stderr) == (0, "")
    (tmp_path / "printed.conf").write_text(result.stdout)
    printed = read_properties(tmp_path / "printed.conf")
    assert printed["brokerName"] == "broker-x"
    assert printed["namesrvAddr"] == "10.0.0.1:9876;10.0.0.2:9876"
    assert printed["storePathRootDir"] == str(tmp_path / "store")
    assert printed["mappedFileSizeConsumeQueue"] == "6000000"
    assert not (tmp_path / "store").exists()
    assert run("broker", "-c", tmp_path / "printed.conf", "--print-config").stdout == result.stdout


def test_name_servers_come_from_flag_file_and_environment_in_this_order(tmp_path: Path) -> None:
    file, empty = conf(tmp_path, namesrvAddr="file:1"), write_properties(tmp_path / "empty.conf", {})
    printed = [
        run("broker", "-c", file, "-n", "flag:1", "-p", namesrv="environment:1").stdout,
        run("broker", "-c", file, "-p", namesrv="environment:1").stdout,
        run("broker", "-c", empty, "-p", namesrv="environment:1").stdout,
    ]
    assert [text.splitlines()[0].partition("=")[2] for text in printed] == ["flag:1", "file:1", "environment:1"]


def test_a_secret_is_not_printed(tmp_path: Path) -> None:
    result = run("broker", "-c", conf(tmp_path, **{"tls.server.keyPassword": "hush"}), "-p")
    assert result.returncode == 0
    assert "tls.server.keyPassword=******" in result.stdout.splitlines()
    assert "hush" not in result.stdout


def test_the_name_server_prints_its_effective_configuration(tmp_path: Path) -> None:
    file = write_properties(tmp_path / "namesrv.conf", {"orderMessageEnable": "true", "listenPort": 1})
    result = run("namesrv", "-c", file, "--port", 9999, "-p")
    assert result.returncode == 0
    assert {"listenPort=9999", "orderMessageEnable=true"} <= set(result.stdout.splitlines())


def test_the_proxy_prints_its_effective_configuration(tmp_path: Path) -> None:
    file = write_properties(tmp_path / "proxy.conf", {"grpcServerPort": 1, "secretKey": "hush", "bindAddress": "::1"})
    result = run("proxy", "-c", file, "--port", 9999, "-p", namesrv="10.0.0.1:9876")
    assert (result.returncode, result.stderr) == (0, "")
    printed = result.stdout.splitlines()
    assert {"namesrvAddr=10.0.0.1:9876", "grpcServerPort=9999", "bindAddress=::1", "secretKey=******"} <= set(printed)


def test_an_unknown_key_is_a_warning_and_a_known_one_without_effect_another(tmp_path: Path) -> None:
    result = run("broker", "-c", conf(tmp_path, brokerNane="b", sendMessageThreadPoolNums=16), "-p")
    assert result.returncode == 0
    warnings = result.stderr.splitlines()
    assert "unknown key brokerNane is ignored; did you mean brokerName?" in warnings[0]
    assert "sendMessageThreadPoolNums has no effect in orbitmq" in warnings[1]
    assert len(warnings) == 2


@pytest.mark.parametrize(
    ("command", "key", "value", "allowed"),
    [
        ("broker", "listenPort", "99999", "a whole number from 0 to 65535"),
        ("broker", "flushDiskType", "SOMETIMES", "one of ASYNC_FLUSH, SYNC_FLUSH"),
        ("broker", "autoCreateTopicEnable", "yes", "true or false"),
        ("broker", "aclEnable", "perhaps", "true or false"),
        ("namesrv", "listenPort", "many", "a whole number from 0 to 65535"),
        ("proxy", "grpcServerPort", "-1", "a whole number from 0 to 65535"),
    ],
)
def test_a_bad_value_names_key_value_and_what_is_allowed(
    tmp_path: Path, command: str, key: str, value: str, allowed: str
) -> None:
    result = run(command, "-c", write_properties(tmp_path / "bad.conf", {key: value}), "-p")
    assert (result.returncode, result.stdout) == (2, "")
    line = f"orbitmq {command}: option {key}: value {value!r} is not allowed; use {allowed}\n"
    assert one_line(result.stderr) == line


# ------------------------------------------------------------------------------------------------ what stops a start


@pytest.mark.parametrize("command", ["namesrv", "broker", "up", "up for gRPC", "proxy"])
def test_a_port_in_use_is_one_line(tmp_path: Path, taken_port: int, command: str) -> None:
    arguments = {
        "namesrv": ("--port", taken_port),
        "broker": ("-c", conf(tmp_path, listenPort=taken_port)),
        "up": ("--data-dir", tmp_path, "--namesrv-port", 0, "--broker-port", taken_port),
        "up for gRPC": (*up_at(tmp_path), "--grpc-port", taken_port),
        "proxy": ("-n", "127.0.0.1:1", "--port", taken_port),
    }[command]
    result = run(command.split()[0], *arguments, "--log-level", "error")
    assert (result.returncode, result.stdout) == (7, "")
    assert f":{taken_port}" in one_line(result.stderr)
    flag = {"namesrv": "--port;", "proxy": "--port;", "broker": "--set listenPort=PORT;"}.get(command, "--broker-port,")
    assert "choose another port with" in result.stderr
    assert flag in result.stderr


def test_a_proxy_without_a_name_server_is_one_line() -> None:
    result = run("proxy")
    assert (result.returncode, result.stdout) == (2, "")
    assert "namesrvAddr" in one_line(result.stderr)


def test_a_proxy_without_its_accounts_is_one_line(tmp_path: Path) -> None:
    own = ("--set", "aclEnable=true", "--set", f"rocketmqHome={tmp_path}", "--log-level", "error")
    result = run("proxy", "-n", "127.0.0.1:1", "--port", 0, *own)
    assert result.returncode == 2
    assert str(tmp_path / "conf" / "plain_acl.yml") in one_line(result.stderr)


def test_a_locked_directory_is_one_line(tmp_path: Path) -> None:
    file = conf(tmp_path)
    with started(tmp_path, "broker", "-c", file):
        result = run("broker", "-c", file, "--log-level", "error")
        assert (result.returncode, result.stdout) == (7, "")
        assert str(tmp_path / "store") in one_line(result.stderr)


@pytest.mark.skipif(sys.platform != "linux", reason="needs a directory that even root cannot write: Linux's /sys")
def test_an_unwritable_directory_is_one_line(tmp_path: Path) -> None:
    result = run("broker", "-c", conf(tmp_path, storePathRootDir="/sys/orbitmq"), "--log-level", "error")
    assert (result.returncode, result.stdout) == (4, "")
    assert "/sys/orbitmq" in one_line(result.stderr)


def test_a_missing_configuration_file_is_one_line(tmp_path: Path) -> None:
    result = run("broker", "-c", tmp_path / "nowhere.conf")
    assert result.returncode == 2
    assert "nowhere.conf" in one_line(result.stderr)


# ------------------------------------------------------------------------------------------------------ running, stop


def test_sigterm_stops_a_broker_cleanly(tmp_path: Path) -> None:
    with started(tmp_path, "broker", "-c", conf(tmp_path)) as process:
        assert (tmp_path / "store" / "abort").exists()
        assert process.stop() == 0
    assert not (tmp_path / "store" / "abort").exists()


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_up_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "up", "--data-dir", tmp_path, "--namesrv-port", 0, "--broker-port", 0) as process:
        assert (tmp_path / "store" / "abort").exists()
        process.signal(number)
        assert process.wait(30) == 0
    assert not (tmp_path / "store" / "abort").exists()
    stalled = "event=loop_stalled"  # what a busy machine does to it
    assert [line for line in process.errors().splitlines() if stalled not in line] == []


def test_sigterm_stops_a_name_server_cleanly(tmp_path: Path) -> None:
    with started(tmp_path, "namesrv", "--port", 0) as process:
        assert process.stop() == 0


def test_up_prints_addresses_that_answer_and_commands_that_work(tmp_path: Path) -> None:
    with started(tmp_path, "up", "--data-dir", tmp_path, "--namesrv-port", 0, "--broker-port", 0) as process:
        for name in ("namesrv", "up"):
            host, port = address(process, name).split(":")
            socket.create_connection((host, int(port)), timeout=5).close()
        steps = process.output().split("\n\n")[-1]
        result = subprocess.run(["sh", "-e"], input=steps, capture_output=True, text=True, timeout=60, check=False)
        assert result.returncode == 0, result.stderr
        assert "SEND_OK" in result.stdout
        assert "hello" in result.stdout.partition("SEND_OK")[2]


def test_a_configuration_file_places_the_store_of_up(tmp_path: Path) -> None:
    file = conf(tmp_path, storePathRootDir=tmp_path / "elsewhere")
    arguments = ("--data-dir", tmp_path / "data", "--namesrv-port", 0, "--broker-port", 0, "-c", file)
    with started(tmp_path, "up", *arguments):
        assert (tmp_path / "elsewhere" / "abort").exists()
        assert not (tmp_path / "data" / "store").exists()


def test_a_broker_started_before_its_name_server_registers_when_that_comes(tmp_path: Path) -> None:
    namesrv = f"127.0.0.1:{free_port()}"
    with started(tmp_path, "broker", "-c", conf(tmp_path, brokerName="early"), "-n", namesrv):
        assert not is_registered(namesrv, "early")
        with started(tmp_path, "namesrv", "--port", namesrv.split(":")[1]):
            wait_until(lambda: is_registered(namesrv, "early"), 30, "the registration")


# --------------------------------------------------------------------------------------------- clients of RocketMQ 5


async def sent_and_received(grpc_address: str, topic: str = "greetings") -> list[bytes]:
    """What a client of RocketMQ 5 gets back of the messages that it sends."""
    async with channel(int(grpc_address.rpartition(":")[2])) as made:
        client = Five(made)
        await client.consume("greeters", topic)
        waiting = asyncio.create_task(client.receive("greeters", topic, poll_s=20))  # a new group begins at the end
        while not waiting.done():
            assert (await client.send(topic, b"hello")).status.code == 20000
            await asyncio.sleep(0.1)
        return [one.body for one in await waiting][:1]


def create_topic(namesrv: str) -> None:
    result = run("topic", "create", "greetings", "--cluster", "DefaultCluster", "--queues", 1, "-n", namesrv)
    assert result.returncode == 0, result.stderr


def test_up_serves_clients_of_five(tmp_path: Path) -> None:
    with started(tmp_path, "up", *up_at(tmp_path), "--grpc-port", 0) as process:
        create_topic(address(process, "namesrv"))
        assert asyncio.run(sent_and_received(address(process, "proxy"))) == [b"hello"]


def test_up_serves_them_at_a_free_port_when_the_usual_one_is_taken(tmp_path: Path) -> None:
    with suppress(OSError), socket.create_server(("127.0.0.1", 8081)) as usual:  # or it is taken already
        usual.listen()
        with started(tmp_path, "up", *up_at(tmp_path)) as process:
            assert address(process, "proxy").rpartition(":")[2] not in ("", "8081")


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_proxy_serves_a_cluster_and_stops_cleanly(tmp_path: Path, number: signal.Signals) -> None:
    with started(tmp_path, "up", *up_at(tmp_path), "--grpc-port", 0) as up:
        names = address(up, "namesrv")
        create_topic(names)
        metrics = "--set", "metricsExporterType=PROM", "--set", "metricsPromExporterPort=0"
        with started(tmp_path, "proxy", "-n", names, "--port", 0, *metrics, "--log-level", "warning") as process:
            page = re.search(r"^ *figures +(\S+)/metrics$", process.output(), re.MULTILINE)
            assert page is not None
            assert urlopen(f"{page[1]}/healthz").read() == b"ok\n"
            assert asyncio.run(sent_and_received(address(process, "proxy"))) == [b"hello"]
            process.signal(number)
            assert process.wait(30) == 0
            stalled = "event=loop_stalled"
            assert [line for line in process.errors().splitlines() if stalled not in line] == []
