"""Consumers that want some messages only: by SQL92 expression, chosen by the broker, and by tag."""

from __future__ import annotations

import base64
import json

import pytest

from orbitmq.client import BrokerError, LitePullConsumer, MessageSelector, PushConsumer, sync
from orbitmq.message.java_hash import string_hash
from tests.interop.conftest import System
from tests.support.delivery import assert_each_once, messages
from tests.support.java_rocketmq import Driver, run_driver
from tests.support.messages import index_of
from tests.support.process import ProcessFailed
from tests.support.python_client import FIRST, Collector, Row, received_row, send

COUNT = 600
SQL = "index BETWEEN 100 AND 299 AND (TAGS IN ('TagA', 'TagC') OR index = 100) AND missing IS NULL"
WANTED = [index for index in range(100, 300) if index % 3 != 1 or index == 100]


def _client(system: System, label: str) -> tuple[object, ...]:
    return "--namesrv", system.namesrv_address, "--topic", label, "--group", label


def test_a_push_consumer_gets_what_its_expression_takes(system: System, label: str) -> None:
    client = _client(system, label)
    run_driver("send", *client[:4], "--mode", "batch", "--count", 200, "--run", label)
    with Driver("consume", *client, "--sql", SQL, "--expect", len(WANTED), "--linger-ms", 500) as consumer:
        consumer.wait_for_event("assigned")  # the rest finds its pulls waiting
        run_driver("send", *client[:4], "--count", COUNT - 200, "--first", 200, "--run", label)
        received = messages(consumer.finish())
    assert_each_once(received, label, WANTED)


def test_pulls_bring_their_expression(system: System, label: str) -> None:
    client = _client(system, label)
    run_driver("send", *client[:4], "--mode", "batch", "--count", COUNT, "--run", label)
    pulled = messages(run_driver("pull", *client, "--sql", SQL))
    assert_each_once(pulled, label, WANTED)
    assert not messages(run_driver("pull", *client, "--sql", "index > 100000 OR index = 'x' OR index"))


@pytest.mark.parametrize("sql", ["index >", "index > 'x'", "index = NULL"])
def test_an_expression_that_means_nothing_keeps_a_consumer_from_starting(system: System, label: str, sql: str) -> None:
    client = _client(system, label)
    run_driver("send", *client[:4], "--count", 1, "--run", label)
    with pytest.raises(ProcessFailed, match="CODE: 23"):
        run_driver("consume", *client, "--sql", sql)


def test_a_failed_message_comes_back_without_being_filtered_anew(system: System, label: str) -> None:
    client = _client(system, label)
    sql = "index < 20 AND TAGS = 'TagA'"
    run_driver("admin", "--do", "create", *client[:4], "--queues", 4, "--broker", system.address)
    with Driver("consume", *client, "--sql", sql, "--fail-every", 6, "--expect", 7 + 4) as consumer:
        consumer.wait_for_event("assigned")
        run_driver("send", *client[:4], "--count", 40, "--run", label)
        received = messages(consumer.finish())
    assert_each_once([row for row in received if not row["reconsumeTimes"]], label, range(0, 20, 3))
    assert sorted(index_of(row) for row in received if row["reconsumeTimes"]) == [0, 6, 12, 18]


def test_tags_are_chosen_by_hash_and_then_by_name(system: System, label: str) -> None:
    client = _client(system, label)
    run_driver("send", *client[:4], "--mode", "batch", "--count", COUNT, "--run", label)
    consume = ("consume", *client, "--expression", "TagC || TagX", "--expect", COUNT // 3, "--linger-ms", 500)
    assert_each_once(messages(run_driver(*consume)), label, range(2, COUNT, 3))


def test_bitmaps_say_which_filters_take_a_message(extended_system: System, label: str) -> None:
    """Seen by a tool: what lies in the queue's extension, and what the group's filter makes of it."""
    client = _client(extended_system, label)
    run_driver("admin", "--do", "create", *client[:4], "--queues", 1, "--broker", extended_system.address)
    sql = "index < 6 AND TAGS = 'TagA'"
    with Driver("consume", *client, "--sql", sql) as consumer:
        consumer.wait_for_event("assigned")
        run_driver("send", *client[:4], "--count", 9, "--run", label)
        asks = ("admin", "--do", "entries", *client, "--broker", extended_system.address, "--expect", 9)
        told, *entries = run_driver(*asks)
    registered = json.loads(told["filter"])
    assert {name: registered[name] for name in ("consumerGroup", "dead", "expression", "expressionType", "topic")} == {
        "consumerGroup": label, "dead": False, "expression": sql, "expressionType": "SQL92", "topic": label,
    }  # fmt: skip
    bloom = registered["bloomFilterData"]
    assert (bloom["bitNum"], len(bloom["bitPos"])) == (112, 3)
    assert [entry["eval"] for entry in entries] == [index in (0, 3) for index in range(9)]
    mine = sum(1 << bit for bit in bloom["bitPos"])
    for index, entry in enumerate(entries):
        assert int(entry["bits"].replace("\n", ""), 2) == (mine if index in (0, 3) else 0)
        extension = json.loads(entry["extension"])
        bits = int.from_bytes(base64.b64decode(extension["filterBitMap"]), "little")
        assert (extension["size"], bits) == (34, mine if index in (0, 3) else 0)
        assert extension["tagsCode"] == string_hash("Tag" + "ABC"[index % 3])
        assert not entry["message"]


@pytest.mark.with_five
async def test_orbitmqs_own_consumers_bring_expressions_too(system: System, label: str) -> None:
    await send(system.namesrv_address, label, label, COUNT, "batch")
    collector = Collector()
    pushed = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    pushed.subscribe(label, MessageSelector.sql(SQL))
    pushed.set_listener(collector)
    async with pushed:
        assert_each_once(await collector.until(len(WANTED)), label, WANTED)

    pulled = LitePullConsumer(f"{label}-pull", system.namesrv_address, consume_from_where=FIRST)
    pulled.subscribe(label, MessageSelector.sql(SQL))
    rows: list[Row] = []
    async with pulled:
        while len(rows) < len(WANTED):
            rows += map(received_row, await pulled.poll(20))
    assert_each_once(rows, label, WANTED)

    refused = PushConsumer(f"{label}-refused", system.namesrv_address)
    refused.subscribe(label, MessageSelector.sql("index >"))
    refused.set_listener(collector)
    with pytest.raises(BrokerError) as caught:
        await refused.start()
    assert caught.value.code == 23


@pytest.mark.with_five
def test_the_synchronous_face_takes_selectors(system: System, label: str) -> None:
    client = _client(system, label)
    run_driver("send", *client[:4], "--mode", "batch", "--count", 30, "--run", label)
    consumer = sync.LitePullConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(label, MessageSelector.sql("index = 17"))
    with consumer:
        (found,) = consumer.poll(20)
        assert found.properties["index"] == "17"
