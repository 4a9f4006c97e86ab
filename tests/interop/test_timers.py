"""Timer messages at RocketMQ 5.3.3 and at orbitmq: accepted, refused, delivered and recalled alike.

RocketMQ delivers at a full second, orbitmq to the millisecond; both not before the time less a second.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.schedule import entry_codes
from orbitmq.broker.timers.delivery import TimerDelivery
from orbitmq.broker.timers.progress import read_timer_check
from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, SendResult
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.errors import BrokerError, ClientError
from orbitmq.message.javajson import loads
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.timers import RecallHandle
from orbitmq.message.topics import TIMER_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import TIMER_LIMIT_S, TIMER_SLOT_MAX, System
from tests.support.asking import asking
from tests.support.java_rocketmq import ROCKETMQ_5, JavaSystem
from tests.support.process import wait_until

TOPIC, LIMIT_S, SLOT_MAX = "Timed", TIMER_LIMIT_S, TIMER_SLOT_MAX


@pytest.fixture(scope="module")
def producer(five: System) -> Iterator[Producer]:
    with Producer("timed-producer", five.namesrv_address) as made:
        made.send(Message(TOPIC, b"first"))
        yield made


@pytest.fixture(scope="module")
def came(five: System, producer: Producer) -> Iterator[dict[bytes, tuple[float, MessageExt]]]:
    """Body -> when it came, and the message."""
    found: dict[bytes, tuple[float, MessageExt]] = {}
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = PushConsumer("timed-group", five.namesrv_address, consume_from_where=first)
    consumer.subscribe(TOPIC)

    @consumer.on_message
    def take(messages: list[MessageExt], _context: object) -> ConsumeConcurrentlyStatus:
        found.update({message.body: (time.time(), message) for message in messages})
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with consumer:
        wait_until(lambda: b"first" in found, 30, "the first message")
        yield found


def send(producer: Producer, body: bytes, **properties: str) -> SendResult:
    message = Message(TOPIC, body)
    message.properties.update(properties)
    return producer.send(message)


def test_messages_come_at_their_times(producer: Producer, came: dict[bytes, tuple[float, MessageExt]]) -> None:
    begun_ms = time.time_ns() // 1_000_000
    asked = {
        b"sec": {"TIMER_DELAY_SEC": "2"},
        b"ms": {"TIMER_DELAY_MS": "1500"},
        b"at": {"TIMER_DELIVER_MS": str(begun_ms + 2500)},
    }
    handles = {body: send(producer, body, **properties).recall_handle for body, properties in asked.items()}
    now = {
        b"past": {"TIMER_DELIVER_MS": str(begun_ms - 5000)},
        b"zero": {"TIMER_DELAY_SEC": "0"},
        b"negative": {"TIMER_DELAY_MS": "-5"},
        b"done": {"TIMER_DELAY_SEC": "900", "TIMER_OUT_MS": "5"},
        b"plain": {},
    }
    assert [send(producer, body, **properties).recall_handle for body, properties in now.items()] == [None] * len(now)
    level = send(producer, b"level", TIMER_DELAY_SEC="900", DELAY="1")
    assert level.recall_handle is None, "a delay level wins"
    wait_until(lambda: {*asked, *now, b"level"} <= came.keys(), 30, "all messages")
    for body, due_ms in ((b"sec", 2000), (b"ms", 1500), (b"at", 2500)):
        when, message = came[body]
        assert when * 1000 - begun_ms > due_ms - 1000, body
        properties = message.properties
        assert asked[body].items() <= properties.items()
        assert {"TIMER_OUT_MS", "TIMER_ENQUEUE_MS", "TIMER_DEQUEUE_MS"} <= properties.keys()
        assert properties["REAL_TOPIC"] == TOPIC
        handle = RecallHandle.decode(handles[body] or "")
        assert handle[:2] == (TOPIC, "broker-a")
        assert handle.due_ms == int(properties["TIMER_OUT_MS"]) + 1
        assert handle.unique_id == message.msg_id
    assert not {name for name in came[b"level"][1].properties if name.startswith("TIMER")}
    assert not {"REAL_TOPIC", "TIMER_DEQUEUE_MS"} & came[b"past"][1].properties.keys()


@pytest.mark.parametrize(
    "properties",
    [{"TIMER_DELAY_SEC": "x"}, {"TIMER_DELAY_SEC": str(LIMIT_S + 1)}, {"TIMER_DELAY_MS": f"{LIMIT_S}999"}],
    ids=["no number", "seconds beyond the limit", "milliseconds beyond it"],
)
def test_a_wrong_time_is_refused(producer: Producer, properties: dict[str, str]) -> None:
    with pytest.raises(BrokerError) as error:
        send(producer, b"wrong", **properties)
    assert error.value.code == 13


def test_too_many_messages_for_one_second_are_refused(producer: Producer) -> None:
    """RocketMQ counts a moment later, and refuses at random until there are twice as many."""
    due_ms = str((time.time_ns() // 1_000_000_000 + LIMIT_S - 10) * 1000)
    for _ in range(SLOT_MAX + 1):
        send(producer, b"one of many", TIMER_DELIVER_MS=due_ms)
    errors: list[ClientError] = []

    def is_refused() -> bool:
        try:
            send(producer, b"too many", TIMER_DELIVER_MS=due_ms)
        except ClientError as error:  # after its retries
            errors.append(error)
        return bool(errors)

    wait_until(is_refused, 30, "a refusal")
    assert "CODE: 1 DESC: timer message is under flow control" in str(errors[0])


def test_a_recalled_message_does_not_come(producer: Producer, came: dict[bytes, tuple[float, MessageExt]]) -> None:
    due_ms = time.time_ns() // 1_000_000 + 3000
    kept, recalled = (send(producer, body, TIMER_DELIVER_MS=str(due_ms)) for body in (b"kept", b"recalled"))
    assert recalled.recall_handle is not None
    assert producer.recall(TOPIC, recalled.recall_handle) == recalled.msg_id
    last = send(producer, b"last", TIMER_DELIVER_MS=str(due_ms + 2000))
    wait_until(lambda: {b"kept", b"last"} <= came.keys(), 30, "the others")
    assert b"recalled" not in came
    assert kept.recall_handle is not None
    assert last.recall_handle is not None


def metrics(system: System) -> Any:
    answer = asking(system.address, lambda asker: asker.ask(RequestCode.GET_TIMER_METRICS))
    assert answer.code == 0, answer.remark
    return loads(bytes(answer.body).decode())


def waiting(system: System, topic: str) -> int:
    return int(metrics(system)["timingCount"].get(topic, {}).get("count", 0))


def test_slaves_are_told_how_many_messages_wait_for_a_topic(five: System, producer: Producer) -> None:
    topic = "Counted"
    messages = [Message(topic, b"x", properties={"TIMER_DELAY_SEC": str(LIMIT_S - 100 - n)}) for n in range(3)]
    sent = [producer.send(one) for one in messages]
    wait_until(lambda: waiting(five, topic) == 3, 30, "three to wait")
    found = metrics(five)
    assert found.keys() == {"dataVersion", "timingCount"}
    assert found["dataVersion"].keys() == {"counter", "stateVersion", "timestamp"}
    assert found["timingCount"][topic].keys() == {"count", "timeStamp"}
    assert sent[0].recall_handle is not None
    producer.recall(topic, sent[0].recall_handle)
    wait_until(lambda: waiting(five, topic) == 2, 30, "one to be recalled")
    assert metrics(five)["dataVersion"] != found["dataVersion"]
    producer.send(Message(topic, b"x", properties={"TIMER_DELAY_SEC": "6"}))
    wait_until(lambda: waiting(five, topic) == 3, 30, "another to wait")
    wait_until(lambda: waiting(five, topic) == 2, 30, "it to be delivered")


@pytest.mark.parametrize(
    ("change", "code"),
    [({"topic": "Unknown"}, 17), ({"due_ms": 5}, 604), ({"due_ms": 1 << 42}, 604)],
    ids=["of another topic", "for a time that is over", "for a time beyond the limit"],
)
def test_a_recall_that_cannot_be_is_refused(producer: Producer, change: dict[str, object], code: int) -> None:
    sent = send(producer, b"far", TIMER_DELAY_SEC=str(LIMIT_S - 1))
    handle = RecallHandle.decode(sent.recall_handle or "")._replace(**change)  # type: ignore[arg-type]
    with pytest.raises(BrokerError) as error:
        producer.recall(handle.topic, handle.encode())
    assert error.value.code == code


def test_a_store_of_rocketmq_is_taken_over_and_each_message_comes_once(tmp_path: Path) -> None:
    """What waits for longer than two slots was copied by RocketMQ: its log has it twice or more."""
    delays_ms = (500, 1500, 2500, 30_000, 40_000)
    options = {"timerWheelEnable": "true", "timerRollWindowSlot": 2, "mappedFileSizeCommitLog": 1 << 20}
    with JavaSystem(ROCKETMQ_5, store_dir=tmp_path, **options) as java:
        with Producer("before", java.namesrv_address) as producer:
            producer.send(Message(TOPIC, b"first"))
            begun_ms = time.time_ns() // 1_000_000
            for delay_ms in delays_ms:
                send(producer, b"%d" % delay_ms, TIMER_DELIVER_MS=str(begun_ms + delay_ms))
            check, due_ms = tmp_path / "config" / "timercheck", begun_ms + delays_ms[2]
            wait_until(lambda: (read_timer_check(check) or (0, 0))[0] > due_ms, 30, "the third to be done and saved")
        java.kill()
    (tmp_path / "abort").unlink()  # as a clean stop does, which takes 18 s while timers wait
    clock = ManualClock(begun_ms + 10_000)
    where = StoreOptions.parse({"storePathRootDir": str(tmp_path), "mappedFileSizeCommitLog": str(1 << 20)})
    store = MessageStore(where, clock=clock, entry_codes=entry_codes((1000,)))
    store.open()
    for queue_id in store.queue_ids(TOPIC):
        store.consume_queues.find_or_create(TOPIC, queue_id).make_room()
    timers = TimerDelivery(store, tmp_path / "config", clock)
    timers.load()
    asyncio.run(timers.restore())
    assert store.max_offset(TIMER_TOPIC, 0) > len(delays_ms), "RocketMQ made copies"
    assert len(timers.pending) == 2
    clock.advance(40_000)
    while timers.deliver_turn():
        pass
    places = [place for queue_id in store.queue_ids(TOPIC) for place, _, _ in store.entries(TOPIC, queue_id, 0, 100)]
    bodies = sorted(bytes(decode_unit(stored).body) for place in places if (stored := store.unit_at(place)) is not None)
    store.close()
    assert bodies == sorted([b"first", *(b"%d" % delay_ms for delay_ms in delays_ms)])
