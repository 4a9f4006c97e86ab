"""Messages whose properties leave no room: whatever a live broker has answered with success is delivered, or ends among
the dead letters; nothing is dropped later, and nothing is refused for ever.
"""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.batch import ITEM_HEAD, ITEM_OVERHEAD
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import PROPERTIES_SIZE_MAX, REAL_QID, REAL_TOPIC, encode_properties
from orbitmq.message.topics import HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from orbitmq.message.unit import PROPERTIES_LENGTH
from orbitmq.store.records import PutRecord
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import ConsumerSendMsgBackHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import CLUSTER, Client, Time, client_of, made_broker, running, send_header
from tests.support.loops import LoopFactory, settle, until
from tests.support.transactions import COMMIT, RawProducer, raw_producer

LEVELS = "1s 1s 1s 1s 1s 1s"
HOST = bytes((127, 0, 0, 1, 0, 0, 0x2A, 0x9F))
LARGEST = PROPERTIES_SIZE_MAX - len(f"\x02CLUSTER\x01{CLUSTER}")  # what a sender may fill
SIZES = [32_300, *range(LARGEST - 280, LARGEST + 1, 10), LARGEST]


def filled(size: int, **properties: str) -> dict[str, str]:
    """Properties of so many bytes as text."""
    return {**properties, "x": "x" * (size - len(encode_properties({**properties, "x": ""}).encode()))}


async def send_back(client: Client, message: MessageExt, group: str, times_max: int) -> Command:
    header = ConsumerSendMsgBackHeader(message.commit_log_offset, group, 0, message.msg_id, message.topic)
    header.max_reconsume_times = times_max
    return await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, header)


async def all_of(client: Client, topic: str, offset: int = 0) -> list[MessageExt]:
    """Everything in queue 0 from `offset` on, however many pulls it takes."""
    found: list[MessageExt] = []
    while more := await client.read(topic, 0, offset + len(found)):
        found += more
    return found


def dropped(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [line for line in caplog.messages if "delayed_message_dropped" in line or "delivery_waits" in line]


@pytest.mark.parametrize("times_max", [1, 3])
@pytest.mark.parametrize("group", ["g", "g" * 120], ids=["short", "long"])
async def test_a_message_that_always_fails_becomes_a_dead_letter_whatever_its_properties(
    tmp_path: Path, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture, group: str, times_max: int
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client:
        waiting: list[MessageExt] = []
        for number, size in enumerate(SIZES):
            assert (await client.send(f"T{number}", b"%d" % number, filled(size, UNIQ_KEY=str(number)))).code == 0
            waiting += await client.read(f"T{number}")
        retried = 0
        for _ in range(times_max + 1):
            for message in waiting:
                assert (await send_back(client, message, group, times_max)).code == 0
            await time.pass_by(1.2)
            waiting, before = await all_of(client, "%RETRY%" + group, retried), retried
            retried += len(waiting)
            if retried == before:
                break
        letters = await all_of(client, "%DLQ%" + group)
        assert sorted(int(letter.body) for letter in letters) == list(range(len(SIZES))), "each once"
        assert 0 < retried < times_max * len(SIZES), "some had no room for a retry"
        for letter in letters:
            sent = filled(SIZES[int(letter.body)], UNIQ_KEY=letter.body.decode())
            assert sent.items() <= letter.properties.items(), "what the sender wrote is there"
            assert letter.properties.get("RETRY_TOPIC", f"T{letter.body.decode()}") == f"T{letter.body.decode()}"
        assert not dropped(caplog)
        assert "event=dead_letter_without_retry" in caplog.text


async def test_the_consumer_hears_why_its_message_is_a_dead_letter(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", b"full", filled(LARGEST))
        answer = await send_back(client, (await client.read("Orders"))[0], "g", 16)
        assert answer.code == 0
        assert (
            answer.remark == f"its properties of {PROPERTIES_SIZE_MAX} bytes leave no room for a retry: a dead letter"
        )
        (letter,) = await client.read("%DLQ%g")
        assert (letter.body, letter.reconsume_times) == (b"full", 1)


@pytest.mark.parametrize("name", ["UNIQ_KEY", "RETRY_TOPIC", "x"])
async def test_a_message_whose_properties_are_no_text_becomes_a_dead_letter(tmp_path: Path, name: str) -> None:
    """Those of a batch are stored as they come; as text they are three times as long."""
    properties = f"{name}\x01".encode() + b"\xff" * 20_000
    item = ITEM_HEAD.pack(ITEM_OVERHEAD + 4 + len(properties), 0, 4) + b"body"
    item += PROPERTIES_LENGTH.pack(len(properties)) + properties
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        header = send_header("Orders", batch=True)
        assert (await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, item)).code == 0
        answer = await send_back(client, (await client.read("Orders"))[0], "g", 0)
        assert (answer.code, answer.remark) == (0, None)
        (letter,) = await client.read("%DLQ%g")
        assert letter.body == b"body"


async def test_a_copy_that_a_client_sends_to_the_retry_topic_becomes_a_dead_letter_too(tmp_path: Path) -> None:
    """As a Java client does when the broker of the message is away; it cannot make its copy shorter."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for number, size in enumerate(SIZES):
            properties = filled(size, UNIQ_KEY=str(number)) | {
                "ORIGIN_MESSAGE_ID": "0" * 32, "RETRY_TOPIC": "Orders", "DELAY": "3", "RECONSUME_TIME": "1",
                "MAX_RECONSUME_TIMES": "16", "CLUSTER": CLUSTER,
            }  # fmt: skip
            answer = await client.send(
                "%RETRY%g", b"%d" % number, properties, reconsume_times=1, max_reconsume_times=16
            )
            assert answer.code == 0, answer.remark
        waiting = broker.store.max_offset("SCHEDULE_TOPIC_XXXX", 2)
        letters = [letter.body for letter in await all_of(client, "%DLQ%g")]
        assert len(letters) + waiting == len(SIZES)
        assert letters
        assert letters[-1] == b"%d" % (len(SIZES) - 1)


async def test_a_delayed_message_is_refused_now_or_delivered_later(
    tmp_path: Path, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS, enableMultiDispatch="true", enableLmq="true")
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("T" * 127, 1, 1))
        names = ",".join(f"%LMQ%{number}" for number in range(5))
        for topic, more in (("Orders", {}), ("T" * 127, {}), ("Orders", {"INNER_MULTI_DISPATCH": names})):
            accepted = 0
            before = broker.store.max_offset(topic, 0)
            for size in SIZES:
                answer = await client.send(topic, b"later", filled(size, DELAY="1", **more))
                assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL)
                accepted += answer.code == 0
            await time.pass_by(1.2)
            await until(lambda due=before + accepted, topic=topic: broker.store.max_offset(topic, 0) == due)  # type: ignore[misc]
            assert 0 < accepted < len(SIZES)
        assert not dropped(caplog)


@pytest.mark.parametrize("name", ["T" * 128, "a/b"], ids=["long", "slash"])
async def test_a_topic_that_cannot_be_stored_takes_no_delayed_message(tmp_path: Path, name: str) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        broker.topics.table[name] = TopicConfig(name, 1, 1)  # of a store of RocketMQ, which looks at no name
        end = broker.store.commit_log_max_offset
        for properties in ({}, {"DELAY": "1"}, {"TRAN_MSG": "true", "PGROUP": producer.group}):
            answer = await client.send(name, properties=properties)
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL
            assert f"a topic named '{name}' cannot be stored" in (answer.remark or "")
        assert broker.store.commit_log_max_offset == end


@pytest.mark.parametrize("switched_on", ["false", "true"])
async def test_names_that_cannot_be_stored_are_refused_before_the_message_waits(
    tmp_path: Path, switched_on: str
) -> None:
    """Also while further queues are switched off: that may be otherwise when it is due."""
    broker = made_broker(tmp_path, enableMultiDispatch=switched_on)
    async with running(broker), client_of(broker) as client:
        for waits in ({"DELAY": "1"}, {"TRAN_MSG": "true", "PGROUP": "p"}):
            answer = await client.send("Orders", properties={"INNER_MULTI_DISPATCH": "a/b", **waits})
            assert answer.code == ResponseCode.MESSAGE_ILLEGAL


# -------------------------------------------------------------------------------------------------------- transactions


async def round_of(broker: Broker, time: Time, producer: RawProducer) -> None:
    checking = broker.transactions.checking
    due_ms = checking.next_round_ms
    await producer.register()
    await time.pass_by(60)
    await until(lambda: checking.next_round_ms > due_ms, "the end of the round")
    await settle()


async def test_a_half_message_is_refused_now_or_asked_about_and_delivered_later(
    tmp_path: Path, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        accepted = 0
        for size in SIZES:
            known = {"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": str(size), "DELAY": "1"}
            answer = await client.send("Orders", b"half", filled(size, **known), born_timestamp=time.clock.now_ms())
            assert answer.code in (0, ResponseCode.MESSAGE_ILLEGAL)
            accepted += answer.code == 0
        assert 0 < accepted < len(SIZES)
        for _ in range(3):
            await round_of(broker, time, producer)
            questions = [await producer.asked.get() for _ in range(accepted)]
        for question in questions:
            await producer.end(question.prepared, COMMIT)
        await time.pass_by(1.2)
        await until(lambda: broker.store.max_offset("Orders", 0) == accepted)
        assert not dropped(caplog)
        assert "paused" not in caplog.text


async def test_a_half_message_without_room_for_its_checks_holds_up_no_other(
    tmp_path: Path, turned_clock: LoopFactory, caplog: pytest.LogCaptureFixture
) -> None:
    """RocketMQ keeps no room, so one may be in a store that was taken over."""
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), raw_producer(broker.address, "payers") as producer:
        known = {"TRAN_MSG": "true", "PGROUP": "payers", "UNIQ_KEY": "full", REAL_TOPIC: "Orders", REAL_QID: "0"}
        text = encode_properties(filled(PROPERTIES_SIZE_MAX, **known)).encode()
        broker.store.put(PutRecord(HALF_TOPIC, 0, b"full", text, time.clock.now_ms(), HOST, HOST))
        await producer.prepare("Orders", b"behind", "behind", born_ms=time.clock.now_ms())
        await round_of(broker, time, producer)
        async with asyncio.timeout(10):
            question = await producer.asked.get()
        assert question.prepared.unique_id == "behind"
        assert broker.store.max_offset(TRANSACTION_CHECK_MAX_TOPIC, 0) == 1, "it is kept"
        assert "event=transaction_given_up topic=Orders id=full reason=no_room_for_its_checks" in caplog.text


# --------------------------------------------------------------------------------------------- a limit that was lowered


async def test_what_is_larger_than_new_messages_may_be_is_retried_buried_and_committed(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    body = b"x" * (128 << 10)
    before = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS)
    async with running(before), client_of(before) as client, raw_producer(before.address, "payers") as producer:
        assert (await client.send("Orders", body)).code == 0
        await producer.prepare("Orders", body, "u1", born_ms=time.clock.now_ms(), queue_id=1)
    broker = made_broker(tmp_path, time.clock, messageDelayLevel=LEVELS, maxMessageSize="1024")
    async with running(broker), client_of(broker) as client, raw_producer(broker.address, "payers") as producer:
        assert (await client.send("Orders", body)).code == ResponseCode.MESSAGE_ILLEGAL
        (message,) = await client.read("Orders")
        assert (await send_back(client, message, "g", 1)).code == 0
        await time.pass_by(1.2)
        (again,) = await client.read("%RETRY%g")
        assert (await send_back(client, again, "g", 1)).code == 0
        assert [letter.body for letter in await client.read("%DLQ%g")] == [body]
        await round_of(broker, time, producer)
        await producer.end((await producer.asked.get()).prepared, COMMIT)
        assert [one.body for one in await client.read("Orders", 1)] == [body]
