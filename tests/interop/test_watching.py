"""`orbitmq wait` and `orbitmq top`, of RocketMQ 4.9.7 and of orbitmq."""

from __future__ import annotations

import pytest

from orbitmq.admin.wait_conditions import CONDITIONS, condition_of
from orbitmq.errors import ConfigurationError
from tests.interop.conftest import System
from tests.support.commands import answer, items, orbitmq
from tests.support.delivery import messages
from tests.support.first_offsets import make_known
from tests.support.java_rocketmq import run_driver

SOON = ("--wait", "0")
PATIENT = ("--wait", "60")


def test_what_is_so_is_told_and_what_is_not_is_an_exit_code(system: System, label: str) -> None:
    here = ("-n", system.namesrv_address)
    (told,) = items("wait", "topic", label, "--for", "exists", *SOON, *here, code=8)
    assert (told["thing"], told["holds"]) == (f"topic {label}", False)
    orbitmq("wait", "topic", label, "--for", "gone", *SOON, *here)
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    sent = [row for row in run_driver("send", *client, "--count", 3, "--run", label) if "index" in row]
    orbitmq("wait", "topic", label, "--for", "exists", *PATIENT, *here)
    orbitmq("wait", "message", sent[0]["offsetMsgId"], "--for", "stored", *SOON, *here)
    orbitmq("wait", "message", f"{label}/{sent[0]['msgId']}", "--for", "stored", *PATIENT, *here)
    (told,) = items("wait", "group", label, "--for", "lag=0", *SOON, *here, code=8)
    assert told["last"].startswith(f"there is no group {label}; ")
    make_known(system.address, label, label)
    assert len(messages(run_driver("consume", *client, "--group", label, "--expect", 3))) == 3
    orbitmq("wait", "group", label, "--for", "lag=0", *PATIENT, *here)
    orbitmq("wait", "group", label, "--for", "offline", *PATIENT, *here)
    orbitmq("wait", "group", label, "--for", "online", *SOON, *here, code=8)
    orbitmq("wait", "broker", "broker-a", "--for", "up", *SOON, *here)
    told = answer("wait", "cluster", "--for", "healthy", "--wait", 15, *here, code=None)
    assert told["kind"] == "Waited"
    (cluster,) = told["items"]
    assert cluster["holds"] or "no client of" in cluster["last"], "of other tests' groups some have messages waiting"


def test_top_shows_brokers_and_the_groups_furthest_behind(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    run_driver("send", *client, "--count", 8, "--run", label)
    make_known(system.address, label, label)
    assert len(messages(run_driver("consume", *client, "--group", label, "--expect", 8))) == 8
    lines = orbitmq("top", "--once", "-n", system.namesrv_address).stdout.splitlines()
    (broker,) = [line for line in lines if "broker-a" in line and system.address in line]
    assert broker.split()[:5] == ["DefaultCluster", "broker-a", "master", system.address, "V4_9_7"]
    (group,) = [line.split() for line in lines if line.startswith(label)]
    assert int(group[1]) >= 0
    assert "DefaultCluster: " in lines[0]


def test_a_wait_for_nothing_names_what_there_is() -> None:
    assert all(condition_of(thing, f"{word}=7" if word == "lag" else word)[0] for thing, word in CONDITIONS)
    for thing, text in (
        ("topic", "nice"),
        ("group", "lag"),
        ("group", "lag=many"),
        ("topic", "exists=1"),
        ("moon", "up"),
    ):
        with pytest.raises(ConfigurationError, match="group lag=N"):
            condition_of(thing, text)
