"""Requests captured between Java clients and RocketMQ's broker get the same kind of answer from orbitmq's.

Each captured question goes, byte for byte, to a fresh broker that was given what the captured answer presupposes: the
topic, so many messages in the queue, the group's heartbeat, a stored offset. Compared are the response code, the names
of the header fields, those values that are not of that moment, the shape of a JSON body, and the serialization.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, TAG, SubscriptionData, TopicConfig
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.hosts import encode_host
from orbitmq.message.properties import KEYS, REPLY_TO_CLIENT, TAGS, UNIQ_KEY, decode_properties, encode_properties
from orbitmq.message.unit import unit_size
from orbitmq.store.records import PutRecord
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from orbitmq.wire.codes import ResponseCode, SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.deviations import OWN_FIELDS, deviation
from tests.support.frames import Frame, frames
from tests.support.live import Time, made_broker, running
from tests.support.loops import LoopFactory, until
from tests.support.peers import BarePeer, bare_peer
from tests.support.shapes import assert_same_shape

FILES = [f"{name}_{kind}.jsonl" for name in ("producer", "consumer", "raw") for kind in ("json", "rocketmq")] + [
    "producer_client533_broker497.jsonl", "consumer_client533_broker497.jsonl", "client_variants_json.jsonl",
    "client_variants_rocketmq.jsonl",
]  # fmt: skip
SLAVES = ("slave_json.jsonl", "slave_rocketmq.jsonl")
TOOLS = ("admin_json.jsonl.gz", "admin_rocketmq.jsonl.gz", "two_brokers_json.jsonl", "two_brokers_rocketmq.jsonl")
PULLS = (RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE)
OF_MESSAGES = (*PULLS, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID)  # their bodies are stored units
OF_TOOLS = (*OF_MESSAGES, RequestCode.QUERY_CONSUMER_OFFSET)  # tests/golden/test_admin.py has their other requests
COPIED = (
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG,
    RequestCode.GET_ALL_CONSUMER_OFFSET, RequestCode.GET_ALL_DELAY_OFFSET,
)  # fmt: skip
REPLIES = (RequestCode.SEND_REPLY_MESSAGE, RequestCode.SEND_REPLY_MESSAGE_V2)
PLACES = (RequestCode.VIEW_MESSAGE_BY_ID, RequestCode.CONSUMER_SEND_MSG_BACK)
HOST = encode_host("127.0.0.1", 10911)


# ------------------------------------------------------------------------------------------------------- the captures


@dataclass(frozen=True)
class Exchange:
    """A question to the broker and Java's answer to it; None when there was none."""

    frame: Frame
    reply: Frame | None
    heartbeat: Frame | None  # the last one of the same connection before it

    @property
    def question(self) -> Command:
        return command_of(self.frame)

    @property
    def answer(self) -> Command | None:
        return None if self.reply is None else command_of(self.reply)


def command_of(frame: Frame) -> Command:
    (command,) = FrameDecoder(typed=False).feed(frame.data)
    return command


@cache
def exchanges() -> list[Exchange]:
    found = [exchange for file in FILES for exchange in exchanges_of(file)]
    of_tools = (exchange for file in TOOLS for exchange in exchanges_of(file))
    found += (exchange for exchange in of_tools if exchange.frame.row["code"] in OF_TOOLS)
    of_masters = (exchange for file in SLAVES for exchange in exchanges_of(file))
    return found + [exchange for exchange in of_masters if not belongs_to_slaves(exchange)]


def belongs_to_slaves(exchange: Exchange) -> bool:
    """What a slave copies is tests/golden/test_admin.py's, sends that waited for one need one."""
    waited = exchange.answer is not None and exchange.answer.code in (11, 12)  # it was not there, or too slow
    return waited or exchange.frame.row["code"] in COPIED


def exchanges_of(file: str) -> list[Exchange]:
    table = {frame.row["id"]: frame for frame in frames(file)}
    heartbeats: dict[tuple[str, int], Frame] = {}
    found = []
    for frame in table.values():
        row = frame.row
        if row["kind"] == "response" or row["dir"] != "c2s" or not row["peer"].startswith("broker"):
            continue
        reply = table[row["pair"]] if row["pair"] is not None else None
        connection = (row["note"], row["conn"])
        found.append(Exchange(frame, reply, heartbeats.get(connection)))
        if row["code"] == RequestCode.HEART_BEAT:
            heartbeats[connection] = frame
    return found


def is_handled(exchange: Exchange, handled: frozenset[int]) -> bool:
    return exchange.frame.row["code"] in handled


@cache
def handled_codes() -> frozenset[int]:
    return frozenset(made_broker(Path("never-opened")).router.handlers)


def name_of(exchange: Exchange) -> str:
    row = exchange.frame.row
    return f"{exchange.frame.file.partition('.')[0]}-{row['id']}-{row['name']}-{row['note'].partition('/')[2]}"


# -------------------------------------------------------------------------------------- what an answer presupposes


async def prepare(broker: Broker, peer: BarePeer, exchange: Exchange, time: Time) -> None:
    """Bring the broker into a state in which the captured answer is the right one."""
    question, answer = exchange.question, exchange.answer
    ext = question.ext or {}
    told = (answer.ext if answer is not None else None) or {}
    if exchange.heartbeat is not None:
        await hear(peer, command_of(exchange.heartbeat))
    if question.code in PULLS and "topic" in ext:
        await prepare_pull(broker, peer, exchange)
    elif question.code == RequestCode.GET_CONSUMER_LIST_BY_GROUP and answer is not None and answer.code == 0:
        await hear(peer, heartbeat_of(ext["consumerGroup"]))
    elif question.code == RequestCode.QUERY_CONSUMER_OFFSET:
        broker.offsets.commit(ext["consumerGroup"], ext["topic"], int(ext["queueId"]), int(told["offset"]))
    elif question.code in (RequestCode.GET_MAX_OFFSET, RequestCode.SEARCH_OFFSET_BY_TIMESTAMP) and "offset" in told:
        fill(broker, ext["topic"], int(ext["queueId"]), int(told["offset"]))
    elif question.code == RequestCode.GET_EARLIEST_MSG_STORETIME and told["timestamp"] != "-1":
        fill(broker, ext["topic"], int(ext["queueId"]), 1)
    elif question.code == RequestCode.QUERY_MESSAGE and answer is not None and answer.code == 0:
        await prepare_query(broker, time, ext)
    elif question.code in REPLIES and answer is not None and answer.code == 0:
        waiting = decode_properties(ext.get("i") or ext["properties"])[REPLY_TO_CLIENT]
        data = HeartbeatData(waiting, producer_data_set=[ProducerData("requesters")])
        await hear(peer, request(RequestCode.HEART_BEAT, body=encode(data)))
    elif question.code == RequestCode.GET_ALL_CONSUMER_OFFSET:
        broker.offsets.commit("someone", "Consumed", 0, 1)
    elif question.code == RequestCode.GET_ALL_DELAY_OFFSET:
        broker._delayed.offsets = {1: 1}
    elif question.code in PLACES and answer is not None and answer.code == 0:
        place(broker, int(ext["offset"]))


async def prepare_query(broker: Broker, time: Time, ext: dict[str, str]) -> None:
    """A message with the key sought, stored in the time asked for, and in the index."""
    time.clock.advance(max(0, int(ext["beginTimestamp"]) + 1 - time.clock.now_ms()))
    name = UNIQ_KEY if ext["_UNIQUE_KEY_QUERY"] == "true" else KEYS
    properties = encode_properties({name: ext["key"]}).encode()
    broker.store.put(PutRecord(ext["topic"], 0, b"wanted", properties, 1, HOST, HOST))
    await until(lambda: broker.store.query(ext["topic"], ext["key"], 1, 0, (1 << 63) - 1).buffers)


async def prepare_pull(broker: Broker, peer: BarePeer, exchange: Exchange) -> None:
    ext = exchange.question.ext or {}
    answer = exchange.answer
    code = None if answer is None else answer.code
    if code != 17 and broker.topics.get(ext["topic"]) is None:
        broker.topics.put(TopicConfig(ext["topic"], 4, 4))
    if not int(ext["sysFlag"]) & PULL_SUBSCRIPTION and code not in (24, 17):
        await subscribe(broker, peer, exchange)
    count = int(ext["queueOffset"]) if answer is None else int((answer.ext or {}).get("maxOffset", 1))
    properties = {TAGS: tag_for(broker, exchange)}
    if code != 20:
        properties |= {"amount": "300", "color": "alpha"}  # what captured expressions ask for
    fill(broker, ext["topic"], int(ext["queueId"]), count, properties)


async def subscribe(broker: Broker, peer: BarePeer, exchange: Exchange) -> None:
    """The heartbeat that the capture left out, if it did: of the version the answer speaks of."""
    ext = exchange.question.ext or {}
    group, topic, version = ext["consumerGroup"], ext["topic"], int(ext["subVersion"])
    outdated = exchange.answer is not None and exchange.answer.code == 25
    known = broker.consumers.groups.get(group)
    subscription = known.subscriptions.get(topic) if known else None
    if subscription is not None and (subscription.version < version) == outdated:
        return
    broker.consumers.groups.pop(group, None)
    expression = "TagA" if exchange.answer is not None and exchange.answer.code == 20 else "*"
    if ext.get("expressionType") == SQL92:
        expression = "color = 'alpha'"
    wanted = SubscriptionData(topic, expression, version=version - outdated, expression_type=ext["expressionType"])
    if wanted.expression_type == TAG:
        wanted = tag_subscription(topic, expression, wanted.version)
    await hear(peer, heartbeat_of(group, wanted))


def heartbeat_of(group: str, *subscriptions: SubscriptionData) -> Command:
    data = HeartbeatData("c", [ConsumerData(group, subscription_data_set=list(subscriptions))])
    return request(RequestCode.HEART_BEAT, body=encode(data))


async def hear(peer: BarePeer, heartbeat: Command) -> None:
    """Send a heartbeat; its answer, among the notices that it brings about."""
    await peer.send(heartbeat)
    while not (answer := await peer.read()).is_response:
        pass
    assert answer.code == 0


def tag_for(broker: Broker, exchange: Exchange) -> str:
    """A tag that makes the filter decide as the captured one did."""
    ext = exchange.question.ext or {}
    if exchange.answer is not None and exchange.answer.code == 20:
        return "a tag that nobody wants"
    if ext.get("expressionType") == SQL92:
        return "any"
    if int(ext["sysFlag"]) & PULL_SUBSCRIPTION:
        tags = tag_subscription(ext["topic"], ext.get("subscription")).tags
    else:
        group = broker.consumers.groups.get(ext["consumerGroup"])
        subscription = group.subscriptions.get(ext["topic"]) if group else None
        tags = subscription.tags if subscription else frozenset()
    return min(tags, default="any")


def record(topic: str, queue_id: int, body: bytes, properties: Mapping[str, str] = {}) -> PutRecord:
    return PutRecord(topic, queue_id, body, encode_properties(properties).encode(), 1, HOST, HOST)


def fill(broker: Broker, topic: str, queue_id: int, count: int, properties: Mapping[str, str] = {}) -> None:
    for number in range(count):
        broker.store.put(record(topic, queue_id, b"%d" % number, properties))


def place(broker: Broker, offset: int) -> None:
    """Have a message begin at `offset` of the log."""
    room = offset - broker.store.commit_log_max_offset
    if room:
        least = unit_size(0, b"", b"Filling", b"")
        broker.store.put(record("Filling", 0, bytes(room - least)))
    assert broker.store.commit_log_max_offset == offset
    broker.store.put(record("GoldC_1", 0, b"wanted"))


# ------------------------------------------------------------------------------------------------------------ replays

ALL = [exchange for exchange in exchanges() if is_handled(exchange, handled_codes())]
ANSWERED = [exchange for exchange in ALL if exchange.reply is not None]
ONEWAY = [exchange for exchange in ALL if exchange.frame.row["kind"] == "oneway"]
# A producer that does not know its transaction's state is told nothing, even if it asks.
UNKNOWN = [exchange for exchange in ALL if exchange.frame.row["code"] == RequestCode.END_TRANSACTION]
SILENT = [exchange for exchange in UNKNOWN if exchange.reply is None and exchange not in ONEWAY]
# A pull that the end of its client cut off: it was held.
HELD = [exchange for exchange in ALL if exchange.reply is None and exchange not in (*ONEWAY, *SILENT)]


def like_the_captured(directory: Path, time: Time | None = None) -> Broker:
    clock = time.clock if time else None
    options = {"traceTopicEnable": "true", "messageDelayLevel": "1s 2s 3s 4s 5s 6s", "enablePropertyFilter": "true"}
    return made_broker(directory, clock, **options)


def waits(exchange: Exchange) -> bool:
    """Whether the captured answer came when the time of a held pull was up."""
    sys_flag = (exchange.question.ext or {}).get("sysFlag", "0")
    waited = exchange.answer is not None and exchange.answer.code == 19
    return waited and exchange.question.code in PULLS and int(sys_flag) & PULL_SUSPEND != 0


def momentary(question: Command) -> set[str]:
    """Header fields whose values belong to the moment, the machine or the rest of the captured broker's life."""
    names = {"msgId", "queueOffset", "timestamp", "nextBeginOffset"}
    names |= {"indexLastUpdateTimestamp", "indexLastUpdatePhyoffset"}
    chooses = (question.ext or {}).get("e") == "-1"  # the broker takes any queue
    return names | {"queueId"} if chooses else names


@pytest.mark.parametrize("exchange", ANSWERED, ids=name_of)
async def test_a_captured_question_gets_javas_kind_of_answer(
    tmp_path: Path, exchange: Exchange, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = like_the_captured(tmp_path, time)
    async with running(broker), bare_peer(broker.address) as peer:
        await prepare(broker, peer, exchange, time)
        java = exchange.answer
        assert java is not None
        peer.writer.write(exchange.frame.data)
        if waits(exchange):
            await until(lambda: len(broker._pulling.held) == 1)
            await time.pass_by(25)
        while not (answer := await peer.read()).is_response:
            if answer.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT:
                await peer.send(answer.response(ResponseCode.SUCCESS))
        assert answer.opaque == exchange.question.opaque
        assert answer.serialize_type == java.serialize_type == exchange.question.serialize_type
        other = deviation(exchange.question, java)
        if other is not None:
            assert answer.code == other.ours, other.reason
            return
        assert answer.code == java.code, (answer, java)
        assert (answer.ext or {}).keys() - OWN_FIELDS == (java.ext or {}).keys()
        if java.serialize_type == SerializeType.JSON:
            assert (answer.ext is None) == (java.ext is None)
        assert bool(answer.body) == bool(java.body)
        if java.body and exchange.question.code not in OF_MESSAGES:
            assert_same_shape(exchange.question.code, answer.body, java.body)
        for name in (java.ext or {}).keys() - momentary(exchange.question):
            assert (answer.ext or {})[name] == (java.ext or {})[name], name


@pytest.mark.parametrize("exchange", [*ONEWAY, *SILENT], ids=name_of)
async def test_a_captured_request_without_answer_is_not_answered(tmp_path: Path, exchange: Exchange) -> None:
    broker = like_the_captured(tmp_path)
    async with running(broker), bare_peer(broker.address) as peer:
        peer.writer.write(exchange.frame.data)
        last = request(4711)
        answer = await peer.ask(last)
        assert answer.opaque == last.opaque


@pytest.mark.parametrize("exchange", HELD, ids=name_of)
async def test_a_captured_pull_that_waited_waits(tmp_path: Path, exchange: Exchange) -> None:
    time = Time()
    broker = like_the_captured(tmp_path, time)
    async with running(broker), bare_peer(broker.address) as peer:
        await prepare(broker, peer, exchange, time)
        peer.writer.write(exchange.frame.data)
        other = deviation(exchange.question, Command(code=ResponseCode.PULL_NOT_FOUND))
        if other is not None:
            assert (await peer.read()).code == other.ours, other.reason
        else:
            await until(lambda: len(broker._pulling.held) == 1)
