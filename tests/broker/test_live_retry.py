"""Messages that come later at a live broker: delayed by their sender, or sent back by a consumer."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.errors import ConfigurationError
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageExt
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import ConsumerSendMsgBackHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import BORN_MS, CLUSTER, Client, Time, client_of, live, made_broker, running, send_header
from tests.support.loops import LoopFactory, settle, until

LEVELS = "1s 5s 10s 30s"  # the first level of a retry is the third


async def send_back(client: Client, message: MessageExt, group: str = "g", level: int = 0, **fields: Any) -> Command:
    header = ConsumerSendMsgBackHeader(
        message.commit_log_offset, group, level, message.msg_id, message.topic, **{"max_reconsume_times": 16, **fields}
    )
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def sent(client: Client, body: bytes = b"body", **fields: Any) -> MessageExt:
    """A message that was sent and pulled."""
    assert (await client.send("Orders", body, {"TAGS": "T", "k": "v"}, **fields)).code == 0
    return (await client.read("Orders", fields.get("queue_id", 0)))[-1]


# ------------------------------------------------------------------------------------------------------------- delayed


@pytest.mark.parametrize(("level", "seconds"), [(1, 1), (3, 10), (4, 30), (99, 30)])
async def test_a_delayed_message_comes_when_its_time_has_passed(
    tmp_path: Path, turned_clock: LoopFactory, level: int, seconds: int
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        properties = {"TAGS": "T", "DELAY": str(level)}
        answer = await client.send("Orders", b"later", properties, queue_id=2, flag=5)
        assert answer.code == 0
        assert (answer.ext or {})["queueId"] == "2"
        await time.pass_by(seconds - 0.5)
        assert await client.read("Orders", 2) == []
        await time.pass_by(1)
        (message,) = await client.read("Orders", 2)
        assert (message.body, message.flag, message.born_timestamp) == (b"later", 5, BORN_MS)
        assert (message.queue_id, message.queue_offset) == (2, 0)
        assert message.properties == {
            "TAGS": "T",
            "DELAY": str(min(level, 4)),
            "REAL_TOPIC": "Orders",
            "REAL_QID": "2",
            "CLUSTER": CLUSTER,
        }
        assert [found.body for found in await client.read("Orders", 2, subscription="T")] == [b"later"]
        await time.pass_by(60)
        assert len(await client.read("Orders", 2)) == 1


@pytest.mark.parametrize("level", ["0", "-1", "soon"])
async def test_a_level_that_is_none_delays_nothing(tmp_path: Path, level: str) -> None:
    async with live(tmp_path) as client:
        await client.send("Orders", properties={"DELAY": level})
        assert len(await client.read("Orders")) == 1


async def test_messages_of_a_level_keep_their_order(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        for number in range(700):
            command = request(RequestCode.SEND_MESSAGE_V2, *delayed(number))
            await client.remoting.oneway(client.address, command)
        await client.send("Orders", b"700", {"DELAY": "1"})
        await time.pass_by(1.2)
        await until(lambda: broker.store.max_offset("Orders", 0) == 701)
        found: list[bytes] = []
        while len(found) < 701:
            found += [message.body for message in await client.read("Orders", 0, len(found))]
        assert found == [b"%d" % number for number in range(701)]


def delayed(number: int) -> tuple[Any, bytes]:
    return send_header("Orders", {"DELAY": "1"}), b"%d" % number


async def test_a_consumer_that_waits_is_woken_by_the_delivery(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", queue_id=1)
        await client.send("Orders", b"later", {"DELAY": "1", "TAGS": "T"})
        waiting = asyncio.create_task(
            client.pull("Orders", sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND, subscription="T")
        )
        await until(lambda: len(broker._pulling.held) == 1)
        await time.pass_by(1.2)
        assert (await waiting).code == 0


async def test_delayed_messages_come_to_a_broker_that_flushes_each(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS, flushDiskType="SYNC_FLUSH")
    async with running(broker), client_of(broker) as client:
        for number in range(3):
            assert (await client.send("Orders", b"%d" % number, {"DELAY": "1"})).code == 0
        await time.pass_by(1.2)
        await until(lambda: broker.store.max_offset("Orders", 0) == 3)
        assert [message.body for message in await client.read("Orders")] == [b"0", b"1", b"2"]
        assert broker.store.flushed_offset == broker.store.commit_log_max_offset, "nobody sees what a crash could take"


async def test_what_is_due_while_the_broker_is_down_comes_after_its_start(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    first = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(first), client_of(first) as client:
        await client.send("Orders", b"early", {"DELAY": "1"})
        await time.pass_by(1.2)
        assert len(await client.read("Orders")) == 1
        await client.send("Orders", b"later", {"DELAY": "3"})
    await time.pass_by(20)
    second = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(second), client_of(second) as client:
        await time.pass_by(0.2)
        assert [message.body for message in await client.read("Orders")] == [b"early", b"later"]


async def test_a_shorter_table_delivers_at_once_what_would_come_too_late(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    first = made_broker(tmp_path, time.clock, messageDelayLevel="2h")
    async with running(first), client_of(first) as client:
        await client.send("Orders", b"later", {"DELAY": "1"})
    second = made_broker(tmp_path, time.clock, messageDelayLevel="1s")
    async with running(second), client_of(second) as client:
        await time.pass_by(0.2)
        assert [message.body for message in await client.read("Orders")] == [b"later"]


# ------------------------------------------------------------------------------------------------------------ sent back


async def test_a_slow_disk_holds_up_only_what_needs_a_new_topic(tmp_path: Path) -> None:
    """Clients wait 5 s, then they send a copy: there would be two."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        message = await sent(client)
        assert (await send_back(client, message)).code == 0
        disk: asyncio.Future[None] = asyncio.get_running_loop().create_future()
        broker.topics.file.needs = lambda: disk
        broker.topics.touch()
        assert (await send_back(client, message)).code == 0
        new = asyncio.create_task(send_back(client, message, "new"))
        await until(lambda: broker.topics.get("%RETRY%new"))
        await settle()
        assert not new.done()
        disk.set_result(None)
        assert (await new).code == 0


async def test_a_message_sent_back_comes_to_the_retry_topic_after_its_level(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        original = await sent(client, b"hard", queue_id=3, flag=9)
        assert (await send_back(client, original)).code == 0
        await time.pass_by(9)
        assert (await client.pull("%RETRY%g")).code == 19
        await time.pass_by(1.2)
        (message,) = await client.read("%RETRY%g")
        assert (message.body, message.flag, message.born_timestamp) == (b"hard", 9, BORN_MS)
        assert (message.born_host, message.store_host) == (original.born_host, original.store_host)
        assert message.reconsume_times == 1
        assert message.properties == {
            "TAGS": "T",
            "k": "v",
            "CLUSTER": CLUSTER,
            "RETRY_TOPIC": "Orders",
            "ORIGIN_MESSAGE_ID": original.offset_msg_id,
            "WAIT": "false",
            "DELAY": "3",
            "REAL_TOPIC": "%RETRY%g",
            "REAL_QID": "0",
        }
        assert broker.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


async def test_a_second_retry_waits_longer_and_remembers_the_first_message(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        original = await sent(client)
        await send_back(client, original)
        await time.pass_by(10.2)
        (once,) = await client.read("%RETRY%g")
        await send_back(client, once)
        await time.pass_by(29)
        assert len(await client.read("%RETRY%g")) == 1
        await time.pass_by(1.2)
        (twice,) = await client.read("%RETRY%g", 0, 1)
        assert (twice.reconsume_times, twice.properties["DELAY"]) == (2, "4")
        assert twice.properties["RETRY_TOPIC"] == "Orders"
        assert twice.properties["ORIGIN_MESSAGE_ID"] == original.offset_msg_id


async def test_a_consumer_may_name_the_level(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        await send_back(client, await sent(client), level=1)
        await time.pass_by(1.2)
        assert (await client.read("%RETRY%g"))[0].properties["DELAY"] == "1"


@pytest.mark.parametrize(
    "fields", [{"level": -1}, {"max_reconsume_times": 0}, {"max_reconsume_times": None, "group": "strict"}]
)
async def test_what_was_tried_often_enough_becomes_a_dead_letter_at_once(
    tmp_path: Path, fields: dict[str, Any]
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        broker.groups.put(SubscriptionGroup("strict", retry_max=0))
        original = await sent(client, b"hopeless")
        assert (await send_back(client, original, **fields)).code == 0
        topic = "%DLQ%" + fields.get("group", "g")
        (message,) = await client.read(topic)
        assert (message.body, message.reconsume_times, message.properties["DELAY"]) == (b"hopeless", 1, "0")
        assert message.properties["ORIGIN_MESSAGE_ID"] == original.offset_msg_id
        assert broker.topics.get(topic) == TopicConfig(topic, 1, 1, 6)


async def test_after_as_many_tries_as_the_group_allows_it_is_dead(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel="1s 1s 1s 1s 1s 1s")
    async with running(broker), client_of(broker) as client:
        broker.groups.put(SubscriptionGroup("g", retry_max=2))
        message = await sent(client)
        for times in range(3):
            assert message.reconsume_times == times
            await send_back(client, message, max_reconsume_times=None)
            await time.pass_by(1.2)
            message = (await client.read("%RETRY%g"))[-1]
        assert len(await client.read("%RETRY%g")) == 2
        (dead,) = await client.read("%DLQ%g")
        assert dead.reconsume_times == 3


async def test_retries_spread_over_the_groups_queues(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        broker.groups.put(SubscriptionGroup("g", retry_queues=2))
        message = await sent(client)
        for _ in range(40):
            await send_back(client, message, level=1)
        await time.pass_by(1.2)
        counts = [broker.store.max_offset("%RETRY%g", queue) for queue in range(3)]
        assert counts[0] > 0
        assert counts[1] > 0
        assert counts == [counts[0], 40 - counts[0], 0]


@pytest.mark.parametrize("queues", [1, 0])
async def test_retries_stay_in_the_queues_that_their_topic_has(
    tmp_path: Path, turned_clock: LoopFactory, queues: int
) -> None:
    """The topic is older than the group's wish for more; a topic that is made unreadable keeps what comes meanwhile."""
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("%RETRY%g", queues, 1))
        broker.groups.put(SubscriptionGroup("g", retry_queues=4))
        message = await sent(client)
        for _ in range(20):
            assert (await send_back(client, message, level=1)).code == 0
        await time.pass_by(1.2)
        broker.topics.put(TopicConfig("%RETRY%g", 1, 1))
        assert len(await client.read("%RETRY%g")) == 20


async def test_a_group_without_retries_drops_the_message(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        broker.groups.put(SubscriptionGroup("g", retry_queues=0))
        assert (await send_back(client, await sent(client))).code == 0
        assert not {"%RETRY%g", "%DLQ%g"} & set(broker.topics.table)


async def test_a_group_that_could_not_get_the_message_again_is_refused(tmp_path: Path) -> None:
    long = "g" * 125
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        message = await sent(client)
        for known in (False, True):
            if known:  # of a store of RocketMQ
                broker.groups.table[long] = SubscriptionGroup(long)
            answers = [await send_back(client, message, long), await client.send("%RETRY%" + long)]
            assert [answer.code for answer in answers] == [26, 1]
            assert f"group '{long}' has 125 characters, at most 120 are allowed" in (answers[0].remark or "")
        assert not await client.read("Orders", 0, 1), "nothing was stored"


@pytest.mark.parametrize("case", ["unknown group", "broker", "retry topic", "offset beyond", "offset within"])
async def test_what_cannot_be_sent_back_is_refused(tmp_path: Path, case: str) -> None:
    pairs = {
        "unknown group": {"autoCreateSubscriptionGroup": "false"},
        "broker": {"brokerPermission": "4"},
    }
    broker = made_broker(tmp_path, **pairs.get(case, {}))
    async with running(broker), client_of(broker) as client:
        await client.send("Orders")
        message = MessageExt(
            "Orders", commit_log_offset={"offset beyond": 1 << 40, "offset within": 3}.get(case, 0), body=b""
        )
        if case == "retry topic":
            broker.topics.put(TopicConfig("%RETRY%g", 1, 1, perm=4))
        end = broker.store.commit_log_max_offset
        code = {"unknown group": 26, "broker": 16, "retry topic": 16}.get(case, 1)
        answer = await send_back(client, message)
        assert answer.code == code
        assert answer.remark
        assert broker.store.commit_log_max_offset == end


def test_the_delay_table_is_checked_when_the_broker_is_made(tmp_path: Path) -> None:
    with pytest.raises(ConfigurationError, match="delay level"):
        made_broker(tmp_path, messageDelayLevel="1s soon")
    assert isinstance(made_broker(tmp_path, messageDelayLevel="1s 2h"), Broker)
