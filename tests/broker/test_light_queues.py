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
from orbitmq.message.properties import INNER_MULTI_DISPATCH, INNER_MULTI_QUEUE_OFFSET
from orbitmq.wire.codes import RequestCode
from orbitmq.wire.headers import QueryConsumerOffsetHeader
from tests.support.golden import unpack
from tests.support.live import client_of, live, made_broker, running
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
