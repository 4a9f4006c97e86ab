"""Whole conversations of Java clients with RocketMQ's broker, captured from start to shutdown, go the same way here.

Each session is replayed to one broker, frame by frame in the captured order, over as many connections as there were:
what a client asked is sent, what the broker answered or asked by itself is awaited and compared. Places in the log are
this broker's own, so requests that name one are sent with the place of the same message here; all else is sent as
captured. Time is turned where the captured broker let it pass: held pulls, delayed retries, checks of transactions.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from msgspec import structs

from orbitmq.broker.broker import Broker
from orbitmq.message.config import TopicConfig
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.javajson import loads
from orbitmq.message.properties import ORIGIN_MESSAGE_ID, PUSH_REPLY_TIME, decode_properties
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.message.unit import Unit, decode_units
from orbitmq.store.records import PutRecord
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.requests import RequestCode
from tests.support.deviations import OWN_FIELDS, OWN_QUESTIONS, deviation
from tests.support.frames import Frame, files, frames
from tests.support.live import Time, made_broker, running
from tests.support.loops import LoopFactory, settle
from tests.support.peers import BarePeer, bare_peer
from tests.support.recorded import command_of

Queue: TypeAlias = tuple[str, int]
SESSIONS = [file for file in files() if file.startswith("sessions/") and "_broker497" in file]
COUNT = 786  # requests of clients to brokers of 4.9.7 in these files
HOST = encode_host("127.0.0.1", 10911)
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
SENDS = (RequestCode.SEND_MESSAGE_V2, RequestCode.SEND_REPLY_MESSAGE_V2)
WITH_UNITS = (RequestCode.PULL_MESSAGE, RequestCode.CHECK_TRANSACTION_STATE)  # their bodies are stored messages
# Values of that moment and that machine; every other header value is the captured one.
MOMENTARY = {
    "msgId", "offsetMsgId", "commitLogOffset", "tranStateTableOffset", "storeTimestamp", "bornHost", "storeHost",
}  # fmt: skip
SAID_BY = {  # what tells one of the broker's own questions from another
    RequestCode.NOTIFY_CONSUMER_IDS_CHANGED: "consumerGroup", RequestCode.CHECK_TRANSACTION_STATE: "transactionId",
    RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT: "bornTimestamp",
}  # fmt: skip
LATE_SECONDS = 0.5  # an answer that took longer than this waited for something
PATIENCE_TURNS = 60


# ----------------------------------------------------------------------------------------------------- one connection


class Line:
    """A captured connection, made again: sorts what comes into answers and questions of the broker."""

    def __init__(self, peer: BarePeer) -> None:
        self.peer = peer
        self.answers: dict[int, Command] = {}
        self.asked: list[Command] = []

    async def listen(self) -> None:
        while True:
            data = await self.peer.reader.read(1 << 16)
            if not data:
                return
            for command in self.peer._decoder.feed(data):
                if command.is_response:
                    assert command.opaque not in self.answers
                    self.answers[command.opaque] = command
                else:
                    self.asked.append(command)

    def question_like(self, java: Command) -> Command | None:
        """What the broker asked as the captured one did, once."""
        name = SAID_BY[RequestCode(java.code)]
        for found in self.asked:
            if found.code == java.code and (found.ext or {}).get(name) == (java.ext or {}).get(name):
                self.asked.remove(found)
                return found
        return None


@asynccontextmanager
async def line_to(address: str) -> AsyncIterator[Line]:
    async with bare_peer(address) as peer:
        line = Line(peer)
        listening = asyncio.ensure_future(line.listen())
        try:
            yield line
        finally:
            listening.cancel()


# ------------------------------------------------------------------------------------------------------- the replay


class Replay:
    """One session on its way."""

    def __init__(self, file: str, broker: Broker, time: Time, stack: AsyncExitStack) -> None:
        self.broker, self._time, self._stack = broker, time, stack
        self.rows = [frame for frame in frames(file) if frame.row["peer"] != "namesrv"]
        self.by_id = {frame.row["id"]: frame for frame in self.rows}
        self.lines: dict[int, Line] = {}
        self.places: dict[int, tuple[int, int]] = {}  # captured log offset -> ours, and the queue offset
        self.from_broker: dict[int, Command] = {}  # captured question of the broker -> ours
        self.counts: Counter[str] = Counter()

    async def line(self, frame: Frame) -> Line:
        number = frame.row["conn"]
        if number not in self.lines:
            self.lines[number] = await self._stack.enter_async_context(line_to(self.broker.address))
        return self.lines[number]

    async def run(self) -> None:
        for frame in self.rows:
            line = await self.line(frame)
            if frame.row["dir"] == "c2s":
                await self.say(line, frame)
            elif frame.is_response:
                await self.expect_answer(line, frame)
            else:
                await self.expect_question(line, frame)
        self.assert_nothing_else_came()

    async def say(self, line: Line, frame: Frame) -> None:
        command = command_of(frame.row)
        data = frame.data
        if frame.is_response:
            asked = self.from_broker[frame.row["pair"]]
            data = encode_frame(structs.replace(command, opaque=asked.opaque))
        elif (moved := self.moved(command)) is not None:
            data = encode_frame(moved)
        line.peer.writer.write(data)
        self.counts[frame.row["kind"]] += 1
        await settle()

    def moved(self, command: Command) -> Command | None:
        """A request that names a place in the log, with ours."""
        ext = dict(command.ext or {})
        if command.code == RequestCode.END_TRANSACTION:
            place, queue_offset = self.places[int(ext["commitLogOffset"])]
            ext |= {"commitLogOffset": str(place), "tranStateTableOffset": str(queue_offset)}
        elif command.code == RequestCode.CONSUMER_SEND_MSG_BACK:
            ext["offset"] = str(self.places[int(ext["offset"])][0])
        else:
            return None
        return structs.replace(command, ext=ext)

    async def expect_answer(self, line: Line, frame: Frame) -> None:
        java, question = command_of(frame.row), self.by_id[frame.row["pair"]]
        late = frame.row["t"] - question.row["t"] > LATE_SECONDS
        await self.until(lambda: java.opaque in line.answers, late, frame)
        answer = line.answers[java.opaque]
        other = deviation(command_of(question.row), java)
        if other is not None:
            assert answer.code == other.ours, other.reason
            return
        self.assert_alike(answer, java, question.row["code"], frame)
        if question.row["code"] in SENDS:
            self.learn((java.ext or {})["msgId"], (answer.ext or {})["msgId"], (answer.ext or {})["queueOffset"])

    async def expect_question(self, line: Line, frame: Frame) -> None:
        java = command_of(frame.row)
        found: list[Command] = []

        def came() -> bool:
            asked = line.question_like(java)
            found.extend([] if asked is None else [asked])
            return asked is not None

        await self.until(came, java.code == RequestCode.CHECK_TRANSACTION_STATE, frame)
        (asked,) = found
        self.assert_alike(asked, java, java.code, frame)
        assert asked.is_oneway == java.is_oneway
        self.from_broker[frame.row["id"]] = asked
        ours, theirs = asked.ext or {}, java.ext or {}
        if "tranStateTableOffset" in theirs:
            place = int(ours["commitLogOffset"]), int(ours["tranStateTableOffset"])
            self.places[int(theirs["commitLogOffset"])] = place

    async def until(self, condition: Callable[[], bool], late: bool, what: object) -> None:
        """Wait for `condition`; what was late in the capture is worth turning the clock."""
        for _turn in range(PATIENCE_TURNS):
            for _moment in range(30 if late else 400):
                if condition():
                    return
                await asyncio.sleep(0.001)
            if late:
                await self._time.pass_by(1)
        raise AssertionError(f"{what} did not come")

    def learn(self, java_id: str, our_id: str, queue_offset: str) -> None:
        place = decode_offset_message_id(our_id).physical_offset
        self.places[decode_offset_message_id(java_id).physical_offset] = place, int(queue_offset)

    def assert_alike(self, ours: Command, java: Command, code: int, frame: Frame) -> None:
        assert ours.code == java.code, (frame, ours)
        assert ours.serialize_type == (java.serialize_type if java.is_response else OWN_QUESTIONS)
        found, expected = lasting(ours), lasting(java)
        assert found == expected, frame
        if code in WITH_UNITS:
            self.assert_same_messages(ours.body, java.body, frame)
        elif java.body[:1] == b"{":
            assert unordered(loads(ours.body)) == unordered(loads(java.body)), frame
        else:
            assert ours.body == java.body, frame

    def assert_same_messages(self, ours: bytes, java: bytes, frame: Frame) -> None:
        found, expected = list(decode_units(ours)), list(decode_units(java))
        assert [one.body for one in found] == [one.body for one in expected], frame
        for one, other in zip(found, expected, strict=True):
            assert (one.topic, one.queue_id, one.queue_offset) == (other.topic, other.queue_id, other.queue_offset)
            assert one.reconsume_times == other.reconsume_times
            assert properties_of(one) == properties_of(other), frame
            self.places[other.physical_offset] = one.physical_offset, one.queue_offset

    def assert_nothing_else_came(self) -> None:
        """Pulls that had no answer were held; time was up for some of them while another was waited for."""
        answered = {(frame.row["conn"], frame.row["opaque"]) for frame in self.rows if frame.is_response}
        for number, line in self.lines.items():
            more = [answer.code for opaque, answer in line.answers.items() if (number, opaque) not in answered]
            assert set(more) <= {ResponseCode.PULL_NOT_FOUND}, more
            assert not {asked.code for asked in line.asked} - {RequestCode.NOTIFY_CONSUMER_IDS_CHANGED}


def lasting(command: Command) -> dict[str, Any]:
    """Header fields; those of the moment by their names alone."""
    fields: dict[str, Any] = dict(command.ext or {})
    if command.is_response:
        fields = {name: value for name, value in fields.items() if name not in OWN_FIELDS}
    if "properties" in fields:
        fields["properties"] = decode_properties(fields["properties"]) | {PUSH_REPLY_TIME: ""}
    return {name: "" if name in MOMENTARY else value for name, value in fields.items()}


def properties_of(unit: Unit) -> dict[str, str]:
    """All but the place in the log of the message this one was sent back for."""
    found = decode_properties(unit.properties)
    return found | {ORIGIN_MESSAGE_ID: ""} if ORIGIN_MESSAGE_ID in found else found


def unordered(value: Any) -> Any:
    """JSON in which the order of lists tells nothing: RocketMQ's is that of its hash tables."""
    if isinstance(value, Mapping):
        return {name: unordered(content) for name, content in value.items()}
    return sorted(map(unordered, value), key=repr) if isinstance(value, list) else value


# -------------------------------------------------------------------------------------- what a session presupposes


def prepare(replay: Replay) -> None:
    """The topics that were there before, with the messages that were in their queues."""
    sent: dict[Queue, int] = Counter()
    known: set[Queue] = set()
    told = {(one.topic, one.queue_id, one.queue_offset): one for one in pulled(replay)}
    for frame in replay.rows:
        row = frame.row
        if row["kind"] != "response" or row["req_code"] not in (*PULLS, *SENDS):
            continue
        ext, question = row["ext"] or {}, replay.by_id[row["pair"]].row["ext"]
        queue = question.get("topic") or question["b"], int(question.get("queueId") or ext["queueId"])
        end = ext.get("maxOffset") or ext.get("queueOffset")
        if end is not None and queue not in known:
            known.add(queue)
            fill(replay.broker, queue, int(end) - sent[queue], told)
        sent[queue] += row["req_code"] in SENDS


def pulled(replay: Replay) -> Iterator[Unit]:
    """The messages that the captured broker gave."""
    for frame in replay.rows:
        if frame.is_response and frame.row["req_code"] == RequestCode.PULL_MESSAGE:
            yield from decode_units(frame.body)


def fill(broker: Broker, queue: Queue, count: int, told: Mapping[tuple[str, int, int], Unit]) -> None:
    topic, queue_id = queue
    if count <= 0 or topic.startswith(RETRY_PREFIX):
        return
    broker.topics.put(TopicConfig(topic, 4, 4))
    for offset in range(count):
        unit = told.get((topic, queue_id, offset))
        body, properties = (unit.body, unit.properties) if unit else (b"another", "")
        broker.store.put(PutRecord(topic, queue_id, bytes(body), properties.encode(), 1, HOST, HOST))


def like_the_captured(directory: Path, time: Time) -> Broker:
    checks = {"transactionTimeOut": "1000", "transactionCheckInterval": "1000"}
    return made_broker(directory, time.clock, messageDelayLevel="1s 2s 3s 4s 5s 6s", traceTopicEnable="true", **checks)


@pytest.mark.parametrize("file", SESSIONS, ids=lambda file: Path(file).stem)
async def test_a_captured_session_goes_the_same_way(tmp_path: Path, file: str, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = like_the_captured(tmp_path, time)
    async with running(broker), AsyncExitStack() as stack:
        replay = Replay(file, broker, time, stack)
        prepare(replay)
        await replay.run()
        asked = [frame for frame in replay.rows if frame.row["dir"] == "c2s"]
        assert replay.counts.total() == len(asked)


def test_every_captured_request_is_replayed() -> None:
    asked = [
        frame for file in SESSIONS for frame in frames(file)
        if frame.row["dir"] == "c2s" and frame.row["peer"] == "broker-a" and not frame.is_response
    ]  # fmt: skip
    assert len(asked) == COUNT
