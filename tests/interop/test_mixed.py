"""Name server and broker of different systems work together, under the Java client."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeAlias

import pytest

from tests.support.delivery import assert_as_acknowledged, assert_each_once, messages, results
from tests.support.java_rocketmq import JavaBroker, JavaNameServer, run_driver
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.process import wait_until
from tests.support.registration import is_registered

NameServer: TypeAlias = JavaNameServer | OrbitNameServer
Broker: TypeAlias = JavaBroker | OrbitBroker

COUNT = 1000


@pytest.mark.parametrize(
    ("name_server", "broker"),
    [
        pytest.param(OrbitNameServer, JavaBroker, id="java-broker-at-orbitmq-namesrv"),
        pytest.param(JavaNameServer, OrbitBroker, id="orbitmq-broker-at-java-namesrv"),
    ],
)
def test_a_broker_serves_through_the_other_systems_name_server(
    name_server: Callable[[], NameServer], broker: Callable[[str], Broker]
) -> None:
    with name_server() as names, broker(names.address) as served:
        client = ("--namesrv", names.address, "--topic", "orders")
        sent = results(run_driver("send", *client, "--mode", "async", "--count", COUNT, "--run", "mixed"))
        received = messages(run_driver("consume", *client, "--group", "mixed", "--expect", COUNT))
        assert_each_once(received, "mixed", range(COUNT))
        assert_as_acknowledged(received, sent)
        route = run_driver("admin", "--do", "route", *client)
        assert route == [{"broker": "broker-a", "readQueues": 4, "writeQueues": 4, "perm": 6}]

        served.kill()
        wait_until(lambda: not is_registered(names.address, "broker-a"), 10, "the route to leave with the connection")
