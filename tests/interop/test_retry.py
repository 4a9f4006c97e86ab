"""Messages that fail come again, as often as allowed, and end as dead letters: of a Java consumer, of orbitmq's client
where the broker does not take a message back, and by hand.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Sequence
from typing import Any

import pytest

from orbitmq.client import (
    ConsumeConcurrentlyStatus,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    Message,
    MessageExt,
    Producer,
    PullConsumer,
    PushConsumer,
)
from orbitmq.message.config import SubscriptionData, SubscriptionGroup
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.properties import DEAD_LETTER_REASON, decode_properties, encode_properties
from orbitmq.message.unit import Unit, decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, SubscriptionGroupTable, TopicTable
from orbitmq.wire.command import Command
from orbitmq.wire.headers import ConsumerSendMsgBackHeader, SendMessageResponseHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import Asker, asking
from tests.support.delivery import assert_content, messages, results
from tests.support.java_rocketmq import Driver, JavaSystem, run_driver
from tests.support.live import pull_header, send_header
from tests.support.loops import until
from tests.support.messages import index_of
from tests.support.python_client import FIRST, Collector, send

COUNT = 5


def test_a_message_that_always_fails_becomes_a_dead_letter(system: System, label: str) -> None:
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    consume = ("consume", *client, "--group", label, "--fail-below", 99, "--max-reconsume", 2)
    sent = results(run_driver("send", *client, "--count", COUNT, "--run", label))
    received = messages(run_driver(*consume, "--expect", 3 * COUNT, "--linger-ms", 1500))
    assert_content(received, label)
    assert Counter((index_of(row), row["reconsumeTimes"]) for row in received) == {
        (index, times): 1 for index in range(COUNT) for times in range(3)
    }
    letters = asking(system.address, lambda asker: _read(asker, f"%DLQ%{label}"))
    origins = {row["index"]: row["offsetMsgId"] for row in sent}
    assert len(letters) == COUNT
    for letter in letters:
        properties = decode_properties(letter.properties)
        assert letter.reconsume_times == 3
        assert properties["RETRY_TOPIC"] == label
        assert properties["ORIGIN_MESSAGE_ID"] == origins.pop(int(properties["index"]))
    tables = asking(system.address, _tables)
    grave = tables[0].topics[f"%DLQ%{label}"]
    assert (grave.read_queues, grave.write_queues, grave.perm) == (1, 1, 6)
    retry = tables[0].topics[f"%RETRY%{label}"]
    assert (retry.read_queues, retry.write_queues, retry.perm) == (1, 1, 6)
    assert tables[1].groups[label].retry_max == 16, "the consumer's own limit changes nothing of the group"


async def _tables(asker: Asker) -> tuple[TopicTable, SubscriptionGroupTable]:
    topics = await asker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)
    groups = await asker.ask(RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG)
    return decode(TopicTable, topics.body), decode(SubscriptionGroupTable, groups.body)


# ---------------------------------------------------------------------------------------------------- orbitmq's client


async def _pulled(consumer: PullConsumer, topic: str, index: str) -> MessageExt:
    for queue in await consumer.fetch_queues(topic):
        for message in (await consumer.pull(queue, "*", 0, COUNT)).messages:
            if message.properties["index"] == index:
                return message
    raise AssertionError(f"no message {index} in {topic}")


@pytest.mark.with_five
async def test_what_the_broker_does_not_find_when_it_goes_back_comes_as_a_copy(system: System, label: str) -> None:
    namesrv, group = system.namesrv_address, label
    sent = {str(row["index"]): row["offsetMsgId"] for row in await send(namesrv, label, label, COUNT)}
    collector = Collector()
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST)
    consumer.subscribe(label)
    consumer.set_listener(collector)
    async with consumer:
        await collector.until(COUNT)
        # The copy says that it failed once. RocketMQ 5 buries what failed more often than allowed, 4.9 what as often.
        for index, times_max in (("1", 16), ("2", 0)):
            async with PullConsumer(f"{group}-pull", namesrv, max_reconsume_times=times_max) as pulling:
                lost = await _pulled(pulling, label, index)
                lost.commit_log_offset += 1 << 40
                await pulling.send_message_back(lost, group=group)
        *_, again = await collector.until(COUNT + 1)
    assert len(collector.rows) == COUNT + 1
    assert (again["topic"], again["reconsumeTimes"]) == (label, 1)
    assert (again["properties"]["index"], again["properties"]["ORIGIN_MESSAGE_ID"]) == ("1", sent["1"])
    async with LitePullConsumer(f"{group}-dead", namesrv, consume_from_where=FIRST) as reader:
        reader.subscribe(f"%DLQ%{group}")
        (letter,) = await reader.poll(30)
    assert (letter.properties["index"], letter.reconsume_times) == ("2", 1)
    assert (letter.properties["RETRY_TOPIC"], letter.properties["ORIGIN_MESSAGE_ID"]) == (label, sent["2"])


# ----------------------------------------------------------------------------------------------- without room to spare

FULL = (32_600, 32_700)  # bytes of properties as they are sent; 32,767 may be stored, with what is added on the way


async def _send_full(namesrv: str, topic: str) -> list[dict[str, str]]:
    sent = []
    async with Producer("full-senders", namesrv) as producer:
        for size in FULL:
            message = Message(topic, b"full")
            message.properties["UNIQ_KEY"] = f"{topic}-{size}"
            filler = size - len(encode_properties({**message.properties, "x": ""}))
            message.set_property("x", "x" * filler)
            await producer.send(message)
            sent.append({name: message.properties[name] for name in ("UNIQ_KEY", "x")})
    return sent


def _assert_dead(letters: list[Unit], sent: list[dict[str, str]]) -> None:
    found = {decode_properties(letter.properties)["UNIQ_KEY"]: letter for letter in letters}
    assert len(found) == len(letters), "each once"
    for own in sent:
        assert own.items() <= decode_properties(found[own["UNIQ_KEY"]].properties).items()


async def _dead(asker: Asker, group: str, count: int) -> list[Unit]:
    letters: list[Unit] = []
    async with asyncio.timeout(90):
        while len(letters) < count:
            letters = await _read(asker, f"%DLQ%{group}")
            await asyncio.sleep(0.2)
    return letters


@pytest.mark.with_five
async def test_what_has_no_room_for_a_retry_ends_as_a_dead_letter(system: System, label: str) -> None:
    """Whichever of the two sees to it: orbitmq's broker does, at brokers of RocketMQ orbitmq's client."""
    namesrv = system.namesrv_address
    sent = await _send_full(namesrv, label)
    consumer = PushConsumer(label, namesrv, consume_from_where=FIRST, max_reconsume_times=1)
    consumer.subscribe(label)
    consumer.set_listener(Collector(lambda _: True))
    remoting = Remoting()
    try:
        async with consumer:
            letters = await _dead(Asker(system.address, remoting), label, len(FULL))
    finally:
        await remoting.close()
    _assert_dead(letters, sent)


@pytest.mark.parametrize("system", ["orbitmq"], indirect=True, scope="session")
def test_what_has_no_room_for_a_retry_of_a_java_consumer_ends_as_a_dead_letter(system: System, label: str) -> None:
    """At a broker of RocketMQ its consumer gets such a message every 5 s, for ever."""
    sent = asyncio.run(_send_full(system.namesrv_address, label))
    client = ("--namesrv", system.namesrv_address, "--topic", label, "--group", label)
    failing = ("--fail-below", 99, "--max-reconsume", 1, "--expect", 99)
    with Driver("consume", *client, *failing):
        letters = asking(system.address, lambda asker: _dead(asker, label, len(FULL)))
    _assert_dead(letters, sent)


# ------------------------------------------------------------------------------------------------------------- by hand


async def _group(asker: Asker, group: SubscriptionGroup) -> None:
    answer = await asker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=encode(group))
    assert answer.code == 0


async def _send(asker: Asker, topic: str, **fields: object) -> SendMessageResponseHeader:
    properties = {"TAGS": "T", "KEYS": "k"}
    answer = await asker.ask(RequestCode.SEND_MESSAGE_V2, send_header(topic, properties, **fields), b"by hand")
    assert answer.code == 0, answer.remark
    return answer.header(SendMessageResponseHeader)


async def _read(asker: Asker, topic: str, queue_id: int = 0) -> list[Unit]:
    """What one pull brings; held until something is there, for RocketMQ shows messages a little later."""
    header = pull_header(topic, queue_id, sys_flag=PULL_SUBSCRIPTION | PULL_SUSPEND)
    answer = await asker.ask(RequestCode.PULL_MESSAGE, header)
    return decode_units(answer.body) if answer.code == 0 else []


async def _back(asker: Asker, offset: int, group: str, **fields: object) -> Command:
    known = {"delay_level": 0, "origin_msg_id": "x", "origin_topic": "y"}
    header = ConsumerSendMsgBackHeader(offset=offset, group=group, **{**known, **fields})  # type: ignore[arg-type]
    return await asker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


def _place(sent: SendMessageResponseHeader) -> int:
    return int(sent.msg_id[16:], 16)


def test_what_a_group_allows_decides_when_the_request_does_not(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        await _group(asker, SubscriptionGroup(label, retry_max=0, retry_queues=3))
        place = _place(await _send(asker, label))
        assert (await _back(asker, place, label)).code == 0
        (letter,) = await _read(asker, f"%DLQ%{label}")
        assert (letter.body, letter.reconsume_times) == (b"by hand", 1)
        topics, _ = await _tables(asker)
        assert topics.topics[f"%RETRY%{label}"].write_queues == 3

    asking(system.address, scenario)


def test_a_group_without_retries_loses_what_is_sent_back(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        await _group(asker, SubscriptionGroup(label, retry_queues=0))
        place = _place(await _send(asker, label))
        assert (await _back(asker, place, label)).code == 0
        topics, _ = await _tables(asker)
        assert not {f"%RETRY%{label}", f"%DLQ%{label}"} & set(topics.topics)

    asking(system.address, scenario)


def test_a_negative_level_is_a_dead_letter_at_once(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        sent = await _send(asker, label)
        assert (await _back(asker, _place(sent), label, delay_level=-1, max_reconsume_times=16)).code == 0
        (letter,) = await _read(asker, f"%DLQ%{label}")
        properties = decode_properties(letter.properties)
        assert properties["ORIGIN_MESSAGE_ID"] == sent.msg_id
        assert properties["RETRY_TOPIC"] == label
        assert properties["DELAY"] == "0"
        assert properties["WAIT"] == "false"

    asking(system.address, scenario)


def test_what_is_sent_to_a_retry_topic_too_often_is_a_dead_letter(system: System, label: str) -> None:
    """As a Java client does when the broker would not take a message back."""

    async def scenario(asker: Asker) -> None:
        retry = f"%RETRY%{label}"
        again = await _send(asker, retry, reconsume_times=1, max_reconsume_times=2)
        last = await _send(asker, retry, reconsume_times=2, max_reconsume_times=2)
        assert (again.queue_offset, last.queue_id, last.queue_offset) == (0, 0, 0)
        assert [unit.reconsume_times for unit in await _read(asker, retry)] == [1]
        assert [unit.reconsume_times for unit in await _read(asker, f"%DLQ%{label}")] == [2]

    asking(system.address, scenario)


def test_what_cannot_be_sent_back_is_refused(system: System, label: str) -> None:
    async def scenario(asker: Asker) -> None:
        place = _place(await _send(asker, label))
        assert (await _back(asker, place + (1 << 40), label)).code == 1
        assert (await _back(asker, place, label, delay_level=1)).code == 0

    asking(system.address, scenario)


def test_a_group_whose_messages_could_not_come_again_is_refused_by_orbitmq_alone(system: System, label: str) -> None:
    """RocketMQ takes it, and fails each of its send-backs for ever."""
    group = label.ljust(125, "g")

    async def scenario(asker: Asker) -> None:
        beat = HeartbeatData("by-hand", [ConsumerData(group, subscription_data_set=[SubscriptionData(label)])])
        place = _place(await _send(asker, label))
        heard = await asker.ask(RequestCode.HEART_BEAT, body=encode(beat))
        back = await _back(asker, place, group)
        if isinstance(system, JavaSystem):
            assert (heard.code, back.code, back.remark) == (0, 1, "MESSAGE_ILLEGAL")
        else:
            assert (heard.code, back.code) == (26, 26)
            assert heard.remark == back.remark
            assert f"group '{group}' has 125 characters, at most 120 are allowed" in (heard.remark or "")

    asking(system.address, scenario)


# ------------------------------------------------------------------------------------------------------------ rejected


@pytest.mark.with_five
@pytest.mark.parametrize("orderly", [False, True], ids=["concurrent", "orderly"])
async def test_a_rejected_message_is_a_dead_letter_with_its_reason(
    system: System, label: str, *, orderly: bool
) -> None:
    await send(system.namesrv_address, label, label, 2)
    seen: list[str] = []

    def listen(messages: Sequence[MessageExt], context: Any) -> Any:
        seen.append(messages[0].properties["index"])
        if seen[-1] == "0":
            context.reject(messages[0], "no such order")
        return ConsumeOrderlyStatus.SUCCESS if orderly else ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(label, system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(label)
    consumer.set_listener(listen, orderly=orderly)
    async with consumer, LitePullConsumer(f"{label}-dead", system.namesrv_address, consume_from_where=FIRST) as reader:
        reader.subscribe(f"%DLQ%{label}")
        (letter,) = await reader.poll(60)
        await until(lambda: len(seen) == 2)
    properties = letter.properties
    assert (properties["index"], properties["RETRY_TOPIC"]) == ("0", label)
    assert properties[DEAD_LETTER_REASON] == "no such order"
    assert sorted(seen) == ["0", "1"]
