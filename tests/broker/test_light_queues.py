"""Light queues: topics and groups of %LMQ% are there without being configured, and messages enter them by name."""

from __future__ import annotations

import asyncio
import json
from pathlib import Path

import pytest

from orbitmq.broker.light_queues import folded, light_group, light_topic
from orbitmq.broker.offsets import ConsumerOffsets
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.javajson import loads
from orbitmq.message.properties import (
    INNER_MULTI_DISPATCH,
    INNER_MULTI_QUEUE_OFFSET,
    REAL_TOPIC,
    TRAN_PREPARED_QUEUE_OFFSET,
    TRANSACTION_CHECK_TIMES,
    encode_properties,
)
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC, SEND_FORBIDDEN_TOPICS
from orbitmq.store.multi_dispatch import MultiDispatch
from orbitmq.wire.headers import QueryConsumerOffsetHeader
from orbitmq.wire.requests import RequestCode
from tests.support.golden import unpack
from tests.support.live import Time, client_of, live, made_broker, running
from tests.support.loops import LoopFactory, settle, until

ON = {"enableLmq": "true", "enableMultiDispatch": "true"}
ANNA, BERT, GROUP = "%LMQ%anna", "%LMQ%bert", "%LMQ%readers"
TO_BOTH = {INNER_MULTI_DISPATCH: f"{ANNA},{BERT}"}


def test_names_decide() -> None:
    assert light_topic(ANNA) == TopicConfig(ANNA, 1, 1, 6)
    assert light_group(GROUP) == SubscriptionGroup(GROUP)
    assert light_topic("LMQ") is light_group("readers") is None
    assert (folded(ANNA), folded("Orders")) == ("%LMQ%", "Orders")


async def test_a_message_is_read_from_every_light_queue_it_names(tmp_path: Path) -> None:
    async with live(tmp_path, **ON) as client:
        for number in range(3):
            names = {INNER_MULTI_DISPATCH: ANNA} if number == 1 else TO_BOTH
            assert (await client.send("Orders", b"%d" % number, names, queue_id=number)).code == 0
        found = await client.read(ANNA, consumer_group=GROUP)
        assert [message.body for message in found] == [b"0", b"1", b"2"]
        assert [message.body for message in await client.read(BERT, consumer_group=GROUP)] == [b"0", b"2"]
        assert [message.topic for message in found] == ["Orders"] * 3, "it is the message of the topic, not a copy"
        assert [message.properties[INNER_MULTI_QUEUE_OFFSET] for message in found] == ["0,0", "1", "2,1"]
        assert (await client.pull(ANNA, 1, consumer_group=GROUP)).code == 1, "a light topic has one queue"
        answer = await client.send(ANNA, b"direct")
        assert (answer.code, (answer.ext or {})["queueOffset"]) == (0, "3")


@pytest.mark.parametrize("topic", sorted(SEND_FORBIDDEN_TOPICS))
async def test_no_message_enters_a_queue_of_the_brokers_own(tmp_path: Path, topic: str) -> None:
    """Else whoever may send would deliver to any topic, by way of the schedule, or end others' transactions."""
    async with live(tmp_path, **ON) as client:
        for waits in ({}, {"DELAY": "1"}):
            answer = await client.send("Orders", properties={INNER_MULTI_DISPATCH: f"{ANNA},{topic}", **waits})
            assert (answer.code, answer.remark) == (13, f"sending to the system topic {topic} is not allowed")


async def test_a_held_pull_of_a_light_queue_wakes(tmp_path: Path, turned_clock: LoopFactory) -> None:
    broker = made_broker(tmp_path, **ON)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", b"first", {INNER_MULTI_DISPATCH: ANNA})
        wait = PULL_SUBSCRIPTION | PULL_SUSPEND
        waiting = asyncio.create_task(client.read(ANNA, offset=1, consumer_group=GROUP, sys_flag=wait))
        await until(lambda: len(broker._pulling.held) == 1)
        await client.send("Orders", b"other", {INNER_MULTI_DISPATCH: BERT})
        await settle()
        assert not waiting.done()
        await client.send("Orders", b"second", TO_BOTH)
        assert [message.body for message in await waiting] == [b"second"]


@pytest.mark.parametrize("waits", [{}, {"DELAY": "1"}, {"TRAN_MSG": "true", "PGROUP": "p"}])
@pytest.mark.parametrize("names", ["a,,b", "a/b", "a," + "b" * 128])
async def test_names_that_cannot_be_stored_are_refused_even_when_the_message_waits(
    tmp_path: Path, waits: dict[str, str], names: str
) -> None:
    """Later there is nobody to be told of it."""
    broker = made_broker(tmp_path, **ON)
    async with running(broker), client_of(broker) as client:
        answer = await client.send("Orders", b"body", {INNER_MULTI_DISPATCH: names, **waits})
        wrong = "" if ",," in names else names.removeprefix("a,")
        assert (answer.code, answer.remark) == (13, f"a topic named {wrong!r} cannot be stored")
        assert broker.store.commit_log_max_offset == 0


@pytest.mark.parametrize(
    ("topic", "properties"),
    [
        (SCHEDULE_TOPIC, {REAL_TOPIC: "%RETRY%g"}),
        (HALF_TOPIC, {REAL_TOPIC: "Orders", TRANSACTION_CHECK_TIMES: "1"}),
        (HALF_TOPIC, {REAL_TOPIC: "Orders", TRAN_PREPARED_QUEUE_OFFSET: "0"}),
        ("TRANS_CHECK_MAX_TIME_TOPIC", {REAL_TOPIC: "Orders"}),
    ],
)
def test_names_of_what_is_moved_on_inside_the_broker_are_not_looked_at(topic: str, properties: dict[str, str]) -> None:
    """A retry enters no further queue, and a copy of a half message that is refused would stop all checks behind it."""
    text = encode_properties({INNER_MULTI_DISPATCH: "a,,b", **properties}).encode()
    assert MultiDispatch(is_enabled=True).queues(topic, 0, text) == []


async def test_a_delayed_message_enters_its_light_queues_when_it_is_due(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, **ON)
    async with running(broker), client_of(broker) as client:
        assert (await client.send("Orders", b"later", {"DELAY": "1", **TO_BOTH})).code == 0
        assert await client.read(ANNA, consumer_group=GROUP) == []
        await time.pass_by(1.2)
        for name in (ANNA, BERT):
            assert [message.body for message in await client.read(name, consumer_group=GROUP)] == [b"later"]


async def test_a_name_longer_than_any_is_not_kept(tmp_path: Path) -> None:
    """A pull that waits keeps its names, and light ones need not be configured."""
    broker = made_broker(tmp_path, **ON)
    async with running(broker), client_of(broker) as client:
        await client.send(ANNA)
        wait = PULL_SUBSCRIPTION | PULL_SUSPEND
        asking = asyncio.create_task(client.pull("%LMQ%" + "x" * 123, consumer_group=GROUP, sys_flag=wait))
        await until(lambda: asking.done() or len(broker._pulling.held) == 1)
        assert len(broker._pulling.held) == 0
        assert (await asking).code == 19
        assert (await client.pull(ANNA, consumer_group="%LMQ%" + "x" * 116)).code == 26
        assert (await client.pull(ANNA, consumer_group="%LMQ%" + "x" * 115)).code == 0
        waiting = asyncio.create_task(client.pull("%LMQ%" + "x" * 122, consumer_group=GROUP, sys_flag=wait))
        await until(lambda: len(broker._pulling.held) == 1)
        waiting.cancel()


async def test_light_names_are_in_no_table_and_no_figure(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, **ON)
    async with running(broker), client_of(broker) as client:
        version = broker.topics.version
        await client.send("Orders", b"body", TO_BOTH)
        await client.send(ANNA)
        await client.read(ANNA, consumer_group=GROUP)
        await client.read(BERT, consumer_group=GROUP)
        broker.topics.put(TopicConfig(ANNA, 9, 9))
        broker.groups.put(SubscriptionGroup(GROUP, retry_max=1))
        assert not [name for name in (*broker.topics.table, *broker.groups.table) if name.startswith("%LMQ%")]
        assert broker.topics.version.counter == version.counter + 1, "that is the topic Orders"
        assert set(broker.statistics.puts.table) == {"Orders", "%LMQ%"}
        assert set(broker.statistics.gets.table) == {("%LMQ%", "%LMQ%")}


async def test_offsets_of_light_groups_are_one_number_each(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, **ON)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", b"body", TO_BOTH)
        commit = {"sys_flag": PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, "commit_offset": 1}
        await client.pull(ANNA, 0, 1, consumer_group=GROUP, **commit)
        await client.pull("Orders", 0, 1, consumer_group="readers", **commit)
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, QueryConsumerOffsetHeader(GROUP, ANNA, 0))
        assert (answer.code, (answer.ext or {})["offset"]) == (0, "1")
        everything = (await client.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body
        assert loads(everything) == {
            "dataVersion": {"counter": 0, "timestamp": 0},
            "lmqOffsetTable": {f"{ANNA}@{GROUP}": 1},
            "offsetTable": {"Orders@readers": {0: 1}},
        }
    config = tmp_path / "config"
    saved = (config / "lmqConsumerOffset.json").read_text()
    assert f'"lmqOffsetTable":{{\n\t\t"{ANNA}@{GROUP}":1\n\t}}' in saved
    assert '"offsetTable":{\n\t\t"Orders@readers":{0:1\n\t\t}\n\t}' in saved
    assert not (config / "consumerOffset.json").exists()
    again = ConsumerOffsets(config, with_light_queues=True)
    again.load()
    assert (again.query(GROUP, ANNA, 7), again.query("readers", "Orders", 0)) == (1, 1)


def test_rocketmqs_file_of_no_offsets_is_ours(tmp_path: Path) -> None:
    path = unpack("lmq", tmp_path) / "config" / "lmqConsumerOffset.json"
    offsets = ConsumerOffsets(path.parent, with_light_queues=True)
    offsets.load()
    assert offsets._text()() == path.read_text()


def test_a_broker_whose_light_queues_are_switched_on_goes_on_with_its_offsets(tmp_path: Path) -> None:
    (tmp_path / "consumerOffset.json").write_text(json.dumps({"offsetTable": {"Orders@g": {"0": 7}}}))
    offsets = ConsumerOffsets(tmp_path, with_light_queues=True)
    offsets.load()
    assert offsets.query("g", "Orders", 0) == 7


@pytest.mark.parametrize("name", ["enableLmq", "enableMultiDispatch"])
async def test_without_the_options_they_are_names_like_others(tmp_path: Path, name: str) -> None:
    async with live(tmp_path, **{**ON, name: "false"}) as client:
        await client.send("Orders", b"body", TO_BOTH)
        answer = await client.pull(ANNA, consumer_group=GROUP)
        assert answer.code == (17 if name == "enableLmq" else 19)
