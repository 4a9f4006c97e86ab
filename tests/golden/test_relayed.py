"""What tools asked a consumer through RocketMQ's broker reaches it through orbitmq's, and its answer comes back alike.

The consumer is a scripted one: it says its captured heartbeat, hears the question and gives the captured answer.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest
from msgspec import structs

from orbitmq.broker.broker import Broker
from orbitmq.message.hosts import encode_host
from orbitmq.message.javajson import loads
from orbitmq.message.unit import Unit, decode_unit, unit_size
from orbitmq.store.records import PutRecord
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from tests.support.deviations import OWN_QUESTIONS
from tests.support.frames import Frame, frames
from tests.support.live import made_broker, running
from tests.support.peers import BarePeer, bare_peer
from tests.support.recorded import command_of

FILES = ("admin_json.jsonl.gz", "admin_rocketmq.jsonl.gz")
HOST = encode_host("127.0.0.1", 10911)
RELAYED = {  # what a tool asks, and what the broker then asks the consumer
    RequestCode.GET_CONSUMER_RUNNING_INFO: RequestCode.GET_CONSUMER_RUNNING_INFO,
    RequestCode.CONSUME_MESSAGE_DIRECTLY: RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS: RequestCode.GET_CONSUMER_STATUS_FROM_CLIENT,
}


@dataclass(frozen=True)
class Relay:
    """A captured question with its answer, and what went on to the consumer; None when nobody was asked."""

    question: Frame
    answer: Frame
    asked: Frame | None
    told: Frame | None
    heartbeat: Frame | None

    def __repr__(self) -> str:
        return f"{self.question.file.partition('.')[0]}-{self.question.name}-{self.question.row['note']}"


def relays(file: str) -> Iterator[Relay]:
    table = {frame.row["id"]: frame for frame in frames(file)}
    for frame in table.values():
        row = frame.row
        if frame.is_response or row["dir"] != "c2s" or row["code"] not in RELAYED:
            continue
        between = [table[number] for number in range(row["id"] + 1, row["pair"]) if number in table]
        asked = next((f for f in between if f.row["code"] == RELAYED[row["code"]] and not f.is_response), None)
        if asked is None:
            yield Relay(frame, table[row["pair"]], None, None, None)
            continue
        spoken = (f for f in table.values() if f.row["conn"] == asked.row["conn"] and f.row["dir"] == "c2s")
        heartbeat = next(f for f in spoken if f.row["code"] == RequestCode.HEART_BEAT)
        yield Relay(frame, table[row["pair"]], asked, table[asked.row["pair"]], heartbeat)


ALL = [relay for file in FILES for relay in relays(file)]


def place(broker: Broker, unit: Unit) -> None:
    """Have the captured message begin where it began."""
    least = unit_size(0, b"", b"Filling", b"")
    broker.store.put(PutRecord("Filling", 0, bytes(unit.physical_offset - least), b"", 1, HOST, HOST))
    assert broker.store.commit_log_max_offset == unit.physical_offset
    properties = unit.properties.encode()
    broker.store.put(PutRecord(unit.topic, unit.queue_id, bytes(unit.body), properties, 1, HOST, HOST))


async def read(peer: BarePeer) -> Command:
    """The next command but notices of changed members."""
    while (command := await peer.read()).code == RequestCode.NOTIFY_CONSUMER_IDS_CHANGED:
        pass
    return command


def assert_same_question(ours: Command, java: Command) -> None:
    assert (ours.code, ours.ext or {}, ours.is_oneway) == (java.code, java.ext or {}, java.is_oneway)
    assert ours.serialize_type == OWN_QUESTIONS
    if java.body:
        found, expected = decode_unit(ours.body), decode_unit(java.body)
        for one in (found, expected):
            one.queue_offset = one.store_timestamp = one.born_timestamp = 0
            one.store_host = one.born_host = HOST
        assert found == expected
    else:
        assert not ours.body


def assert_same_answer(ours: Command, java: Command, question: int) -> None:
    assert (ours.code, ours.serialize_type) == (java.code, java.serialize_type)
    assert (ours.ext or {}) == (java.ext or {})
    if question == RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS:
        assert loads(ours.body) == loads(java.body)
    else:
        assert ours.body == java.body


@pytest.mark.parametrize("relay", ALL, ids=repr)
async def test_a_question_reaches_the_consumer_and_its_answer_the_tool(tmp_path: Path, relay: Relay) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), bare_peer(broker.address) as tool, bare_peer(broker.address) as consumer:
        if relay.asked is None or relay.told is None or relay.heartbeat is None:
            tool.writer.write(relay.question.data)
        else:
            consumer.writer.write(relay.heartbeat.data)
            assert (await read(consumer)).code == 0
            expected = command_of(relay.asked.row)
            if relay.asked.body:
                place(broker, decode_unit(relay.asked.body))
            tool.writer.write(relay.question.data)
            asked = await read(consumer)
            assert_same_question(asked, expected)
            await consumer.send(structs.replace(command_of(relay.told.row), opaque=asked.opaque))
        answer = await tool.read()
        question = command_of(relay.question.row)
        assert answer.opaque == question.opaque
        assert_same_answer(answer, command_of(relay.answer.row), question.code)


def test_nothing_relayed_is_left_out() -> None:
    assert len(ALL) == 16
    assert {relay.question.row["code"] for relay in ALL} == set(RELAYED)
