"""Clients that use the VIP channel look for it two ports below the one they are told."""

from __future__ import annotations

from tests.interop.conftest import System
from tests.support.delivery import assert_each_once, messages
from tests.support.java_rocketmq import SMALL_JVM, Driver, run_driver


def test_a_producer_with_the_vip_channel_is_served(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    vip = (*SMALL_JVM, "-Dcom.rocketmq.sendMessageWithVIPChannel=true")
    with Driver("send", *client, "--count", 100, "--run", label, jvm=vip) as driver:
        rows = driver.finish(120)
    assert [row["status"] for row in rows[:-1]] == ["SEND_OK"] * 100
    received = run_driver("consume", *client, "--group", label, "--expect", 100)
    assert_each_once(messages(received), label, range(100))
