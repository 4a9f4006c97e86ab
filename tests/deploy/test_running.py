"""What the deployment files start really runs: commands and probes as they are written there, on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
from collections.abc import Callable, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path

import pytest

from orbitmq.client import Message, SendStatus
from orbitmq.client.sync import Producer
from orbitmq.errors import OrbitMQError
from tests.support.deployments import (
    FAILOVER,
    KUBERNETES_FAILOVER,
    LOOPBACK,
    READY_S,
    Moved,
    Written,
    etcds_of_compose,
    moved,
    of_compose,
    of_kubernetes,
    of_systemd,
)
from tests.support.orbit_process import ORBITMQ
from tests.support.process import ChildProcess, wait_until


@contextmanager
def manager(path: Path) -> Iterator[socket.socket]:
    """Where systemd listens for one of its services."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as door:
        door.bind(str(path))
        door.settimeout(READY_S)
        yield door


def together(ask: Callable[[Moved], object], daemons: list[Moved]) -> list[object]:
    with ThreadPoolExecutor(len(daemons)) as threads:
        return list(threads.map(ask, daemons))


def test_units_tell_systemd_when_they_serve_and_stop_cleanly(tmp_path: Path) -> None:
    daemons = moved([of_systemd("namesrv"), of_systemd("broker")], tmp_path)
    with ExitStack() as stack:
        doors = [stack.enter_context(manager(daemon.home / "notify")) for daemon in daemons]
        for daemon in daemons:
            stack.enter_context(daemon.start(NOTIFY_SOCKET=str(daemon.home / "notify")))
        assert [door.recv(100) for door in doors] == [b"READY=1"] * 2
        assert together(Moved.probe, daemons) == [0, 0], "who is ready answers"
        assert together(Moved.stop, daemons) == [0, 0]
        assert [door.recv(100) for door in doors] == [b"STOPPING=1"] * 2
    assert together(Moved.probe, daemons) == [1, 1]
    assert not (daemons[1].store / "abort").exists()


@pytest.mark.parametrize("files", [of_compose, of_kubernetes], ids=["compose", "kubernetes"])
def test_a_cluster_comes_up_copies_to_its_slave_and_stops_cleanly(
    tmp_path: Path, files: Callable[[], Iterable[Written]]
) -> None:
    written = sorted(files(), key=lambda daemon: daemon.is_broker)
    assert [daemon.is_broker for daemon in written] == [False, False, True, True]
    daemons = moved(written, tmp_path)
    names, brokers = daemons[:2], daemons[2:]
    with ExitStack() as stack:
        for some in (names, brokers):
            for daemon in some:
                stack.enter_context(daemon.start())
            assert together(Moved.serves, some) == [True, True]
        with Producer("shop", ";".join(f"{LOOPBACK}:{daemon.port}" for daemon in names)) as producer:
            wait_until(lambda: _is_sent_to_both(producer), READY_S, "the slave to have what is sent")
        assert together(Moved.stop, daemons) == [0] * 4
    assert not [daemon.written.name for daemon in brokers if (daemon.store / "abort").exists()]


def _is_sent_to_both(producer: Producer) -> bool:
    return producer.send(Message("orders", b"a coffee")).status is SendStatus.SEND_OK


@pytest.mark.parametrize(
    "files", [lambda: of_compose(FAILOVER), lambda: of_kubernetes(KUBERNETES_FAILOVER)], ids=["compose", "kubernetes"]
)
def test_brokers_come_up_elect_a_master_and_another_one_when_it_stops(
    tmp_path: Path, files: Callable[[], Iterable[Written]]
) -> None:
    """With the etcds of the compose file: nothing here serves Leases."""
    written = sorted(files(), key=lambda daemon: daemon.is_broker)
    assert [daemon.is_broker for daemon in written] == [False] * 2 + [True] * 3
    etcds = etcds_of_compose(tmp_path)
    others = {f"{name}:2379": place for name, (place, _) in etcds.items()}
    others["kubernetes://orbitmq"] = "etcd://" + ",".join(others.values())
    daemons = moved(written, tmp_path, others)
    names, brokers = daemons[:2], daemons[2:]
    with ExitStack() as stack:
        for name, (_, environment) in etcds.items():
            of_one = {**os.environ, **environment, "ETCD_LOG_LEVEL": "error"}
            stack.enter_context(ChildProcess(["etcd"], output=tmp_path / f"{name}.out", environment=of_one))
        for some in (names, brokers):
            for daemon in some:
                stack.enter_context(daemon.start())
            assert together(Moved.serves, some) == [True] * len(some)
        addresses = ";".join(f"{LOOPBACK}:{daemon.port}" for daemon in names)
        with Producer("shop", addresses) as producer:
            wait_until(lambda: len(_in_sync(addresses)) == 3, READY_S, "all replicas in sync")
            assert producer.send(Message("orders", b"a coffee")).status is SendStatus.SEND_OK
            (master,) = [daemon for daemon in brokers if f":{daemon.port}" in _in_sync(addresses)[0]]
            assert master.stop() == 0
            wait_until(lambda: _is_sent(producer), READY_S, "another master")
        brokers.remove(master)
        assert together(Moved.stop, [*names, *brokers]) == [0] * 4


def _is_sent(producer: Producer) -> bool:
    try:
        return producer.send(Message("orders", b"another one")).status is SendStatus.SEND_OK
    except OrbitMQError:
        return False


def _in_sync(addresses: str) -> list[str]:
    """The replicas in sync, the master first."""
    ran = subprocess.run(
        [ORBITMQ, "cluster", "replicas", "-o", "json", "-n", addresses], capture_output=True, text=True, check=True
    )
    rows = sorted(json.loads(ran.stdout)["items"], key=lambda row: row["brokerId"])
    return [row["address"] for row in rows if row["inSync"]] if rows and rows[0]["brokerId"] == 0 else []
