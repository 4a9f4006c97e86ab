"""POP consumption at RocketMQ 5.3.3 and at orbitmq: the same requests get the same answers, and RocketMQ's own push
consumer is served by both.
"""

from __future__ import annotations

import json
import time
from base64 import b64encode
from collections.abc import Awaitable, Callable, Iterator
from itertools import count
from typing import TypeVar

import pytest

from orbitmq.client import Message, SimpleConsumer
from orbitmq.client.sync import Producer
from orbitmq.message.unit import Unit, decode_units
from orbitmq.wire.command import Command
from orbitmq.wire.headers import QueryConsumerOffsetHeader
from orbitmq.wire.headers_pop import (
    AckMessageHeader,
    ChangeInvisibleTimeHeader,
    NotificationHeader,
    PeekMessageHeader,
    PollingInfoHeader,
    PopMessageHeader,
)
from orbitmq.wire.requests import RequestCode
from tests.interop.conftest import System
from tests.support.asking import Asker, asking
from tests.support.java_rocketmq import ROCKETMQ_5, run_driver

T = TypeVar("T")
_numbers = count()
ZEROS = {"popTime": "0", "invisibleTime": "0", "reviveQid": "0", "restNum": "0"}


@pytest.fixture(scope="module")
def producer(five: System) -> Iterator[Producer]:
    with Producer("pop-producer", five.namesrv_address) as made:
        yield made


@pytest.fixture
def topic(producer: Producer) -> str:
    """With one queue."""
    name = f"Pop{next(_numbers)}"
    producer.create_topic(name, queues=1)
    return name


class Popper:
    """A group that has messages of one topic delivered."""

    def __init__(self, asker: Asker, topic: str, group: str) -> None:
        self._asker = asker
        self.topic = topic
        self.group = group

    async def pop(self, most: int = 32, *, invisible_ms: int = 60_000, poll_ms: int = 0, **further: object) -> Command:
        header = PopMessageHeader(
            self.group, self.topic, -1, most, invisible_ms, poll_ms, time.time_ns() // 1_000_000, 0, **further
        )  # type: ignore[arg-type]
        return await self._asker.ask(RequestCode.POP_MESSAGE, header)

    async def popped(self, bodies: int, *, invisible_ms: int = 60_000, **further: object) -> tuple[Command, list[Unit]]:
        """The first response with messages; they may take some seconds."""
        while True:
            answer = await self.pop(bodies, invisible_ms=invisible_ms, poll_ms=500, **further)
            if answer.code == 0:
                return answer, decode_units(answer.body)

    async def committed(self, offset: int) -> None:
        """Wait until the broker has committed what the group has popped. 5.3.3 reads the committed offset, then what
        was popped since: a look during the commit finds neither.
        """
        header = QueryConsumerOffsetHeader(self.group, self.topic, 0)
        while (await self._asker.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)).ext != {"offset": str(offset)}:
            pass

    async def ack(self, receipt: str, offset: int, queue: int = 0) -> Command:
        header = AckMessageHeader(self.group, self.topic, queue, receipt, offset)
        return await self._asker.ask(RequestCode.ACK_MESSAGE, header)

    async def hide(self, receipt: str, offset: int, invisible_ms: int) -> Command:
        header = ChangeInvisibleTimeHeader(self.group, self.topic, 0, receipt, offset, invisible_ms)
        return await self._asker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, header)


def receipts(answer: Command) -> dict[int, str]:
    """Queue offset -> what acknowledges the message, of a response from one queue."""
    fields = answer.ext or {}
    kind, queue, start = (fields["startOffsetInfo"] or "").split(" ")
    _, _, offsets = (fields["msgOffsetInfo"] or "").split(" ")
    common = f"{start} {fields['popTime']} {fields['invisibleTime']} {fields['reviveQid']} {kind} broker-a {queue}"
    return {int(offset): f"{common} {offset}" for offset in offsets.split(",")}


def fields_of(answer: Command, *names: str) -> tuple[str | None, ...]:
    return tuple((answer.ext or {}).get(name) for name in names)


@pytest.fixture
def run(five: System, topic: str) -> Callable[[Callable[[Popper], Awaitable[T]]], T]:
    return lambda work: asking(five.address, lambda asker: work(Popper(asker, topic, f"group-of-{topic}")))


Run = Callable[[Callable[[Popper], Awaitable[object]]], object]


def fill(producer: Producer, topic: str, messages: int) -> None:
    for number in range(messages):
        producer.send(Message(topic, b"%d" % number, tags="odd" if number % 2 else "even", keys=[f"k{number}"]))


def test_what_is_not_acknowledged_comes_again_and_the_rest_does_not(producer: Producer, topic: str, run: Run) -> None:
    fill(producer, topic, 5)

    async def work(popper: Popper) -> None:
        answer, units = await popper.popped(3, invisible_ms=3000)
        assert (answer.remark, [unit.body for unit in units]) == ("FOUND", [b"0", b"1", b"2"])
        assert fields_of(answer, "startOffsetInfo", "msgOffsetInfo", "restNum") == ("0 0 0", "0 0 0,1,2", "2")
        known = receipts(answer)
        assert (await popper.ack(known[0], 0)).code == 0
        assert (await popper.ack(known[0], 0)).code == 0, "again"
        assert [unit.body for unit in (await popper.popped(32))[1]] == [b"3", b"4"]
        again, units = await popper.popped(32)
        assert [(unit.topic, unit.body, unit.reconsume_times) for unit in units] == [(topic, b"1", 1), (topic, b"2", 1)]
        begun = fields_of(again, "popTime", "reviveQid")
        for unit in units:
            assert f"POP_CK\x010 {begun[0]} 60000 {begun[1]} 1 broker-a 0 {unit.queue_offset}" in unit.properties
            assert f"1ST_POP_TIME\x01{(answer.ext or {})['popTime']}" in unit.properties
        retry = Popper(popper._asker, f"%RETRY%{popper.group}_{topic}", popper.group)
        assert fields_of(again, "startOffsetInfo", "msgOffsetInfo") == ("1 0 0", "1 0 0,1")
        assert (await retry.ack(receipts(again)[0], 0)).code == 0

    run(work)


def test_a_message_comes_again_when_its_consumer_says(producer: Producer, topic: str, run: Run) -> None:
    fill(producer, topic, 2)

    async def work(popper: Popper) -> None:
        answer, _ = await popper.popped(2)
        known = receipts(answer)
        begun = time.monotonic()
        hidden = await popper.hide(known[1], 1, 1500)
        assert (hidden.code, fields_of(hidden, "invisibleTime")) == (0, ("1500",))
        _, units = await popper.popped(32)
        assert [unit.body for unit in units] == [b"1"]
        assert time.monotonic() - begun > 1.4

    run(work)


def test_many_are_acknowledged_at_once(producer: Producer, topic: str, run: Run) -> None:
    fill(producer, topic, 4)

    async def work(popper: Popper) -> None:
        answer, _ = await popper.popped(4, invisible_ms=2000)
        pop_ms, revive_queue = fields_of(answer, "popTime", "reviveQid")
        one = {
            "c": popper.group, "t": topic, "r": "0", "so": 0, "q": 0, "rq": int(revive_queue or 0), "it": 2000,
            "pt": int(pop_ms or 0), "b": b64encode(bytes([0b1011])).decode(),
        }  # fmt: skip
        body = json.dumps({"brokerName": "broker-a", "acks": [one]}).encode()
        assert (await popper._asker.ask(RequestCode.BATCH_ACK_MESSAGE, body=body)).code == 0
        assert [unit.body for unit in (await popper.popped(32))[1]] == [b"2"]

    run(work)


def test_only_messages_that_are_wanted_are_handed_out(producer: Producer, topic: str, run: Run) -> None:
    fill(producer, topic, 6)

    async def work(popper: Popper) -> None:
        _, units = await popper.popped(2, expression_type="TAG", expression="odd")
        assert [unit.body for unit in units] == [b"1", b"3"]
        _, units = await popper.popped(2, expression_type="TAG", expression="odd || even")
        assert [unit.body for unit in units] == [b"4", b"5"]
        wrong = await popper.pop(expression_type="SQL92", expression="a >")
        assert wrong.code in (1, 23), "5.3.3 does not evaluate expressions unless it is told to"

    run(work)


def test_what_is_wrong_is_refused(topic: str, producer: Producer, run: Run) -> None:
    fill(producer, topic, 1)

    async def work(popper: Popper) -> None:
        answer, _ = await popper.popped(1)
        receipt = receipts(answer)[0]
        for refused, code in (
            (await popper.ack(receipt, 99), 208),
            (await popper.ack(receipt, 0, queue=9), 13),
            (await popper.ack("abc", 0), 1),
            (await popper.hide(receipt, 99, 1000), 208),
            (await popper.pop(33), 29),
        ):
            assert refused.code == code, refused.remark
        absent = Popper(popper._asker, "NoSuchTopic", popper.group)
        nothing = await absent.pop()
        assert (nothing.code, nothing.ext) == (17, ZEROS)
        assert (await absent.ack(receipt, 0)).code == 17
        empty = await popper.pop()
        assert (empty.code, fields_of(empty, "startOffsetInfo", "msgOffsetInfo", "restNum")) == (210, ("", "", "0"))

    run(work)


def test_a_look_changes_nothing(producer: Producer, topic: str, run: Run) -> None:
    fill(producer, topic, 3)

    async def work(popper: Popper) -> None:
        ask, group, now = popper._asker.ask, popper.group, time.time_ns() // 1_000_000
        await popper.popped(1)
        await popper.committed(1)
        for _ in range(2):
            answer = await ask(RequestCode.PEEK_MESSAGE, PeekMessageHeader(group, topic, -1, 1))
            assert (answer.code, fields_of(answer, "popTime", "invisibleTime", "restNum")) == (0, ("0", "0", "2"))
            assert [unit.body for unit in decode_units(answer.body)] == [b"1"]
        answer = await ask(RequestCode.NOTIFICATION, NotificationHeader(group, topic, -1, 0, now))
        assert answer.ext == {"hasMsg": "true", "pollingFull": "false"}
        await popper.popped(2)
        await popper.committed(3)
        answer = await ask(RequestCode.NOTIFICATION, NotificationHeader(group, topic, -1, 0, now))
        assert answer.ext == {"hasMsg": "false", "pollingFull": "false"}
        answer = await ask(RequestCode.POLLING_INFO, PollingInfoHeader(group, topic, -1))
        assert answer.ext == {"pollingNum": "0"}

    run(work)


def test_a_queue_is_read_in_order(producer: Producer, topic: str, run: Run) -> None:
    fill(producer, topic, 4)

    async def work(popper: Popper) -> None:
        first, units = await popper.popped(3, invisible_ms=1500, order=True, attempt_id="one")
        assert [unit.body for unit in units] == [b"0", b"1", b"2"]
        assert fields_of(first, "reviveQid", "orderCountInfo") == ("999", "0 0 0")
        blocked = await popper.pop(order=True, attempt_id="two")
        assert (blocked.code, fields_of(blocked, "orderCountInfo")) == (210, ("",))
        same, units = await popper.popped(3, invisible_ms=1500, order=True, attempt_id="one")
        assert [unit.body for unit in units] == [b"0", b"1", b"2"], "its answer was lost"
        assert fields_of(same, "orderCountInfo") == ("0 0 0",)
        again, units = await popper.popped(3, order=True, attempt_id="three")
        assert [unit.body for unit in units] == [b"0", b"1", b"2"]
        counts = "0 qo0%0 1;0 qo0%1 1;0 qo0%2 1;0 0 1"
        assert fields_of(again, "orderCountInfo") == (counts,)
        assert (await popper.ack(receipts(first)[0], 0)).code == 0, "of an earlier delivery: nothing happens"
        known = receipts(again)
        assert (await popper.ack(known[0], 0)).code == 0
        assert (await popper.ack(known[2], 2)).code == 0
        assert (await popper.hide(known[1], 1, 1000)).code == 0
        last, units = await popper.popped(32, order=True, attempt_id="four")
        assert [unit.body for unit in units] == [b"1", b"2", b"3"], "from the first that is not acknowledged"
        for offset, receipt in receipts(last).items():
            assert (await popper.ack(receipt, offset)).code == 0
        assert (await popper.pop(order=True)).code == 210

    run(work)


def test_rocketmqs_own_consumer_has_messages_handed_out(five: System, producer: Producer, topic: str) -> None:
    async def set_mode(asker: Asker) -> list[int]:
        mode = {"consumerGroup": "java-pop", "mode": "POP", "popShareQueueNum": 0}
        bodies = [json.dumps({**mode, "topic": one}).encode() for one in (topic, "%RETRY%java-pop", "NoSuchTopic")]
        return [(await asker.ask(RequestCode.SET_MESSAGE_REQUEST_MODE, body=body)).code for body in bodies]

    assert asking(five.address, set_mode) == [0, 16, 17]
    for number in range(40):
        producer.send(Message(topic, b"%d" % number, properties={"index": str(number)}))
    consume = (
        "consume",
        "--namesrv",
        five.namesrv_address,
        "--topic",
        topic,
        "--group",
        "java-pop",
        "--assigned",
        "true",
    )
    rows = run_driver(
        *consume, "--invisible-ms", 60_000, "--fail-every", 10, "--expect", 44, version=ROCKETMQ_5, timeout_s=60
    )
    came = [row for row in rows if row["event"] == "message"]
    firsts = [row["properties"]["index"] for row in came if row["reconsumeTimes"] == 0]
    assert sorted(map(int, firsts)) == list(range(40))
    retried = [row for row in came if row["reconsumeTimes"] == 1]
    assert sorted(row["properties"]["index"] for row in retried) == ["0", "10", "20", "30"]
    assert {row["topic"] for row in came} == {topic}
    assert all("POP_CK" in row["properties"] for row in came)


async def test_orbitmqs_own_consumer_works_with_both(five: System, producer: Producer, topic: str) -> None:
    fill(producer, topic, 3)
    async with SimpleConsumer("simple", five.namesrv_address) as consumer:
        consumer.subscribe(topic, "odd || even")
        found = await consumer.receive(3, invisible=2.0, timeout=20)
        assert [message.body for message in found] == [b"0", b"1", b"2"]
        await consumer.ack(found[0])
        await consumer.change_invisible(found[1], 60)
        (again,) = await consumer.receive(timeout=20)
        assert (again.body, again.topic, again.reconsume_times) == (b"2", topic, 1)
        for message in (found[1], again):
            await consumer.ack(message)
        assert await consumer.receive(timeout=3) == []
