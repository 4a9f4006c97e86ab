"""The probes as a service manager calls them: an exit code and one line, against daemons in every state."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import Result
from typer.testing import CliRunner

from orbitmq.cli.main import app
from orbitmq.testing import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.access import write_acl
from tests.support.process import write_properties

UNANSWERED_S = "0.3"


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def health(*arguments: object) -> Result:
    return CliRunner().invoke(app, ["health", *map(str, arguments)])


def test_daemons_that_serve_are_ready(cluster: Cluster) -> None:
    names, broker = cluster.namesrv_address, cluster.broker_address
    result = health("namesrv", "--address", names)
    assert (result.exit_code, result.output) == (0, f"{names} is ready: broker names known: 1\n")
    result = health("broker", "--address", broker)
    assert (result.exit_code, result.stderr) == (0, "")
    assert result.stdout.startswith(f"{broker} is ready: log from ")


def test_the_address_is_the_one_of_the_daemons_own_configuration(cluster: Cluster, tmp_path: Path) -> None:
    port = cluster.broker_address.rpartition(":")[2]
    for listens_at in ("", "0.0.0.0", "127.0.0.1"):
        file = write_properties(tmp_path / "broker.conf", {"listenPort": 1, "bindAddress": listens_at})
        assert health("broker", "-c", file, "--set", f"listenPort={port}").exit_code == 0
    file = write_properties(tmp_path / "namesrv.conf", {"listenPort": cluster.namesrv_address.rpartition(":")[2]})
    assert health("namesrv", "-c", file).exit_code == 0


@pytest.mark.parametrize("daemon", ["namesrv", "broker"])
def test_where_nobody_listens_nothing_is_ready(daemon: str) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = taken.getsockname()[1]
    result = health(daemon, "--address", f"127.0.0.1:{port}")
    assert (result.exit_code, result.stdout) == (1, "")
    assert result.stderr.startswith(f"orbitmq health {daemon}: 127.0.0.1:{port} is not ready: cannot connect")
    assert result.stderr.count("\n") == 1


@pytest.mark.parametrize(
    ("daemon", "asked"),
    [("namesrv", RequestCode.GET_BROKER_CLUSTER_INFO), ("broker", RequestCode.GET_BROKER_RUNTIME_INFO)],
)
def test_a_daemon_that_does_not_answer_in_time_is_not_ready(cluster: Cluster, daemon: str, asked: int) -> None:
    silent = cluster.drop(asked, times=None)
    address = cluster.namesrv_address if daemon == "namesrv" else cluster.broker_address
    result = health(daemon, "--address", address, "--timeout", UNANSWERED_S)
    silent.end()
    assert (result.exit_code, result.stderr.count("\n")) == (1, 1)


def test_a_broker_that_answers_with_an_error_is_not_ready(cluster: Cluster) -> None:
    cluster.refuse(RequestCode.GET_BROKER_RUNTIME_INFO, remark="out of order")
    result = health("broker", "--address", cluster.broker_address)
    assert result.exit_code == 1
    assert "out of order" in result.stderr


def test_a_broker_whose_disk_has_failed_is_not_ready() -> None:
    with Cluster() as cluster:
        broker = cluster._nodes[0].broker
        assert broker is not None
        broker.store._poison(OSError(5, "Input/output error"))
        result = health("broker", "--address", cluster.broker_address)
    assert result.exit_code == 1
    assert "disk has failed" in result.stderr


def test_a_broker_with_access_control_is_ready_without_an_account(tmp_path: Path) -> None:
    write_acl(tmp_path)
    with Cluster(aclEnable=True, rocketmqHome=str(tmp_path)) as cluster:
        result = health("broker", "--address", cluster.broker_address)
    assert (result.exit_code, result.stderr) == (0, "")


def test_daemons_that_take_encrypted_connections_only_are_asked_over_tls(tmp_path: Path) -> None:
    tls = {"tls.server.mode": "enforcing"}
    file = write_properties(tmp_path / "any.conf", tls)
    with Cluster(options=tls) as cluster:
        for daemon, address in (("broker", cluster.broker_address), ("namesrv", cluster.namesrv_address)):
            assert health(daemon, "-c", file, "--address", address).exit_code == 0
            assert health(daemon, "--address", address, "--timeout", UNANSWERED_S).exit_code == 1


@pytest.mark.parametrize("arguments", [("--set", "listenPort=0"), ("-c", "no-such-file"), ("--set", "listenPort")])
def test_a_question_that_cannot_be_asked_is_wrong_usage(arguments: tuple[str, str]) -> None:
    assert health("broker", *arguments).exit_code == 2
