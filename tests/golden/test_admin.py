"""Tools and slaves of RocketMQ get from orbitmq the code, header fields and shape of body that RocketMQ gave them.

One broker answers all captures of a file in turn; before each request it is given what the captured answer presupposes:
topics with messages, groups with offsets, members.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.hosts import encode_host
from orbitmq.message.javajson import loads
from orbitmq.message.properties import encode_properties
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.store.records import PutRecord
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.frames import Frame, frames
from tests.support.live import made_broker, running
from tests.support.peers import BarePeer, bare_peer
from tests.support.shapes import assert_same_shape

FILES = (
    "admin_json.jsonl.gz", "admin_rocketmq.jsonl.gz", "slave_json.jsonl", "slave_rocketmq.jsonl",
    "two_brokers_json.jsonl", "two_brokers_rocketmq.jsonl",
)  # fmt: skip
HOST = encode_host("127.0.0.1", 10911)
GROUP_FIELDS = ("consumerGroup", "group", "producerGroup", "compareGroup", "srcGroup")

RELAYED = {  # tests/golden/test_relayed.py has a consumer answer these
    RequestCode.GET_CONSUMER_RUNNING_INFO, RequestCode.CONSUME_MESSAGE_DIRECTLY,
    RequestCode.INVOKE_BROKER_TO_GET_CONSUMER_STATUS,
}  # fmt: skip
ELSEWHERE = {  # tests/golden/test_broker.py replays these
    RequestCode.PULL_MESSAGE, RequestCode.QUERY_MESSAGE, RequestCode.VIEW_MESSAGE_BY_ID,
    RequestCode.QUERY_CONSUMER_OFFSET,
}  # fmt: skip

SLAVES = {  # what a slave copies; the rest of those captures are clients again, and test_broker.py's
    RequestCode.GET_ALL_TOPIC_CONFIG, RequestCode.GET_ALL_SUBSCRIPTIONGROUP_CONFIG, RequestCode.GET_ALL_CONSUMER_OFFSET,
    RequestCode.GET_ALL_DELAY_OFFSET,
}  # fmt: skip


def command_of(frame: Frame) -> Command:
    (command,) = FrameDecoder(typed=False).feed(frame.data)
    return command


def captured(file: str) -> list[tuple[Frame, Frame]]:
    """Questions to the broker with their answers, in the order of the capture."""
    table = {frame.row["id"]: frame for frame in frames(file)}
    asked = (f for f in table.values() if f.row["dir"] == "c2s" and f.row["peer"].startswith("broker"))
    return [(f, table[f.row["pair"]]) for f in asked if not f.is_response and f.row["pair"] is not None]


# -------------------------------------------------------------------------------------- what an answer presupposes


async def hear(peer: BarePeer, data: HeartbeatData) -> None:
    await peer.send(request(RequestCode.HEART_BEAT, body=encode(data)))
    while not (await peer.read()).is_response:
        pass


def fill(broker: Broker, topic: str, queues: int, count: int) -> None:
    for queue_id in range(queues):
        while broker.store.max_offset(topic, queue_id) < count:
            broker.store.put(PutRecord(topic, queue_id, b"x", b"TAGS\x01TagA", 1, HOST, HOST))


async def prepare(broker: Broker, peer: BarePeer, question: Command, java: Command) -> None:
    code, ext = question.code, question.ext or {}
    topic = ext.get("topic") or ext.get("b")
    group = next((ext[name] for name in GROUP_FIELDS if name in ext), None)
    if topic and java.code == 0 and code != RequestCode.UPDATE_AND_CREATE_TOPIC and broker.topics.get(topic) is None:
        broker.topics.put(TopicConfig(topic, 4, 4))
    if topic and java.code == 0 and broker.topics.get(topic) is not None:
        fill(broker, topic, 2, 8)
    if topic and group and java.code in (0, 206):
        for queue_id in range(4):
            broker.offsets.commit(group, topic, queue_id, 1)
    await prepare_members(broker, peer, code, group, topic, java)
    if code == RequestCode.GET_CONSUME_STATS:
        prepare_progress(broker, str(group), topic, empty=not loads(java.body)["offsetTable"])
    elif code == RequestCode.GET_BROKER_CONSUME_STATS:
        broker.groups.put(SubscriptionGroup("someone"))
        prepare_progress(broker, "someone", None, empty=False)
    elif code == RequestCode.QUERY_CORRECTION_OFFSET or (
        code == RequestCode.QUERY_TOPIC_CONSUME_BY_WHO and loads(java.body)["groupList"]
    ):
        broker.offsets.commit("someone", str(topic), 0, 1)
    elif code == RequestCode.GET_ALL_CONSUMER_OFFSET:
        broker.offsets.commit("someone", "Consumed", 0, 1)
    elif code == RequestCode.GET_ALL_DELAY_OFFSET:
        broker._delayed.offsets = {1: 1} if loads(java.body)["offsetTable"] else {}
    elif code == RequestCode.VIEW_BROKER_STATS_DATA:
        prepare_figure(broker, ext, counted=java.code == 0)


def undecided(broker: Broker) -> str:
    """The id of the half of a transaction."""
    properties = encode_properties({"REAL_TOPIC": "T", "REAL_QID": "0", "PGROUP": "producers", "UNIQ_KEY": "u"})
    half = broker.store.put(PutRecord(HALF_TOPIC, 0, b"half", properties.encode(), 1, HOST, HOST))
    return half.message_id


def prepare_progress(broker: Broker, group: str, topic: str | None, *, empty: bool) -> None:
    broker.offsets.forget_group(group)
    name = topic or "Consumed"
    broker.topics.put(TopicConfig(name, 4, 4))
    if not empty:
        broker.offsets.commit(group, name, 0, 1)


def prepare_figure(broker: Broker, ext: Mapping[str, str], *, counted: bool) -> None:
    topic, _, group = ext["statsKey"].partition("@")
    broker.statistics.forget_topic(topic)
    if counted:
        broker.statistics.put(topic, 1, 1, 0)
        broker.statistics.got(topic, group, 1, 1, 0)


async def prepare_members(
    broker: Broker, peer: BarePeer, code: int, group: str | None, topic: str | None, java: Command
) -> None:
    needs_member = code in (
        RequestCode.GET_CONSUMER_CONNECTION_LIST, RequestCode.GET_CONSUMER_LIST_BY_GROUP,
        RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, RequestCode.QUERY_CONSUME_QUEUE,
    )  # fmt: skip
    resets = code == RequestCode.INVOKE_BROKER_TO_RESET_OFFSET and java.code == 1  # a queue without an offset
    if group and resets:
        broker.offsets.forget_group(group)
    if group and needs_member and (java.code == 0 or resets):
        subscription = tag_subscription(topic or "Consumed", "TagA", 1)
        member = ConsumerData(group, subscription_data_set=[subscription])
        await hear(peer, HeartbeatData("member", [member]))
    elif group and java.code in (206, 1):
        broker.consumers.groups.pop(group, None)
    elif code == RequestCode.GET_PRODUCER_CONNECTION_LIST:
        await hear(peer, HeartbeatData("member", producer_data_set=[ProducerData(str(group))]))
    elif code == RequestCode.GET_ALL_PRODUCER_INFO:
        await hear(peer, HeartbeatData("member", producer_data_set=[ProducerData("someone")]))


# ------------------------------------------------------------------------------------------------------------ replays


@pytest.mark.parametrize("file", FILES)
async def test_tools_get_answers_of_javas_kind(tmp_path: Path, file: str) -> None:
    broker = made_broker(tmp_path, traceTopicEnable="true")
    differing = {}
    async with running(broker):
        for number, (frame, reply) in enumerate(captured(file)):
            question, java = command_of(frame), command_of(reply)
            if question.code in RELAYED | ELSEWHERE or (file.startswith("slave") and question.code not in SLAVES):
                continue
            async with bare_peer(broker.address) as peer:
                await prepare(broker, peer, question, java)
                data = frame.data
                if question.code == RequestCode.RESUME_CHECK_HALF_MESSAGE:
                    data = data.replace((question.ext or {})["msgId"].encode(), undecided(broker).encode())
                peer.writer.write(data)
                while not (answer := await peer.read()).is_response:
                    pass
            try:
                assert_same_kind(question, answer, java)
            except AssertionError as error:
                differing[f"{number} {frame.row['code']} {frame.name} {frame.row['note']}"] = str(error)[:600]
    assert not differing, "\n".join(f"{name}: {error}" for name, error in differing.items())


def assert_same_kind(question: Command, answer: Command, java: Command) -> None:
    assert answer.opaque == question.opaque
    assert answer.serialize_type == java.serialize_type
    assert answer.code == java.code, answer.remark
    if java.serialize_type == SerializeType.JSON:
        assert (answer.ext is None) == (java.ext is None)
    assert set(answer.ext or {}) == set(java.ext or {})
    assert bool(answer.body) == bool(java.body)
    if java.body:
        assert_same_shape(question.code, answer.body, java.body)


# --------------------------------------------------------------------------------------- requests without any field


@pytest.mark.parametrize("file", ["raw_unsupported_json.jsonl", "raw_unsupported_rocketmq.jsonl"])
async def test_requests_without_fields_end_as_in_rocketmq(tmp_path: Path, file: str) -> None:
    """Where RocketMQ stays silent, as with access control requests while that is off, orbitmq answers an error."""
    broker = made_broker(tmp_path)
    differing = {}
    async with running(broker), bare_peer(broker.address) as peer:
        for frame, reply in captured(file):
            peer.writer.write(frame.data)
            while not (answer := await peer.read()).is_response:
                pass
            if answer.code != (expected := command_of(reply).code):
                differing[frame.row["code"]] = (answer.code, expected, answer.remark)
    assert not differing
