"""Clients that use the VIP channel look for it two ports below the one they are told."""

from __future__ import annotations

import pytest

from orbitmq.client import Producer, PushConsumer
from orbitmq.client.core.addresses import vip_address
from tests.interop.conftest import System
from tests.support.delivery import assert_as_acknowledged, assert_each_once, messages
from tests.support.java_rocketmq import SMALL_JVM, Driver, run_driver
from tests.support.python_client import FIRST, Collector, message, sent_row

COUNT = 100


def test_a_producer_with_the_vip_channel_is_served(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    vip = (*SMALL_JVM, "-Dcom.rocketmq.sendMessageWithVIPChannel=true")
    with Driver("send", *client, "--count", COUNT, "--run", label, jvm=vip) as driver:
        rows = driver.finish(120)
    assert [row["status"] for row in rows[:-1]] == ["SEND_OK"] * COUNT
    received = run_driver("consume", *client, "--group", label, "--expect", COUNT)
    assert_each_once(messages(received), label, range(COUNT))


@pytest.mark.with_five
async def test_orbitmqs_clients_with_the_vip_channel_are_served(system: System, label: str) -> None:
    namesrv, vip = system.namesrv_address, vip_address(system.address)
    async with Producer("producers", namesrv, vip_channel=True) as producer:
        sent = [sent_row(i, await producer.send(message(label, label, i))) for i in range(COUNT)]
        assert producer._instance.remoting.connection(vip) is not None
    collector = Collector(fails=lambda one: one.properties["index"] == "7" and one.reconsume_times == 0)
    consumer = PushConsumer(label, namesrv, vip_channel=True, consume_from_where=FIRST)
    consumer.subscribe(label)
    consumer.set_listener(collector)
    async with consumer:
        received = await collector.until(COUNT + 1)
        assert consumer._instance.remoting.connection(vip) is not None, "offsets, members and what goes back"
        assert consumer._instance.remoting.connection(system.address) is not None, "pulls and heartbeats"
    first = [row for row in received if row["reconsumeTimes"] == 0]
    assert_each_once(first, label, range(COUNT))
    assert_as_acknowledged(first, sent)
