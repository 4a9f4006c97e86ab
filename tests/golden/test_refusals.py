"""Brokers with narrow settings refuse what RocketMQ's refuse: the captured requests in their order, to one broker.

The captures are thinned, so what some of them presuppose is made here. Those of a flood and of a slow disk belong to
their moment and are not replayed.
"""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.hosts import encode_host
from orbitmq.store.records import PutRecord
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder
from orbitmq.wire.requests import RequestCode
from tests.support.frames import Frame, frames
from tests.support.live import made_broker, running
from tests.support.peers import bare_peer

HOST = encode_host("127.0.0.1", 10911)
STORIES = {
    "limits": ("limits_setup/", "raw/noauto/"),
    "permissions": ("perm_setup/", "perm_setup2/", "raw/perm/"),
}
SETTINGS = {
    "limits": {
        "autoCreateTopicEnable": "false", "autoCreateSubscriptionGroup": "false", "maxMessageSize": "8192",
        "rejectTransactionMessage": "true",
    },
    "permissions": {},
}  # fmt: skip


def command_of(frame: Frame) -> Command:
    (command,) = FrameDecoder(typed=False).feed(frame.data)
    return command


def story(file: str, name: str) -> list[tuple[Frame, Frame]]:
    table = {frame.row["id"]: frame for frame in frames(file)}
    asked = (f for f in table.values() if f.row["dir"] == "c2s" and f.row["peer"].startswith("broker"))
    wanted = (f for f in asked if not f.is_response and f.row["note"].startswith(STORIES[name]))
    return [(f, table[f.row["pair"]]) for f in wanted if f.row["pair"] is not None]


@pytest.mark.parametrize("name", STORIES)
@pytest.mark.parametrize("file", ["errors_json.jsonl", "errors_rocketmq.jsonl"])
async def test_narrow_brokers_refuse_as_javas(tmp_path: Path, file: str, name: str) -> None:
    broker = made_broker(tmp_path, **SETTINGS[name])
    found, expected = [], []
    async with running(broker), bare_peer(broker.address) as peer:
        for frame, reply in story(file, name):
            question, java = command_of(frame), command_of(reply)
            prepare(broker, question, java)
            peer.writer.write(frame.data)
            while not (answer := await peer.read()).is_response:
                pass
            found.append((frame.row["note"], answer.code, kind_of_fields(answer), bool(answer.body)))
            expected.append((frame.row["note"], java.code, kind_of_fields(java), bool(java.body)))
    assert len(expected) > 5
    assert found == expected


def prepare(broker: Broker, question: Command, java: Command) -> None:
    """Topic, group and message that the captured answer presupposes."""
    ext = question.ext or {}
    topic, group = ext.get("b") or ext.get("topic"), ext.get("consumerGroup") or ext.get("group")
    if topic and java.code != 17 and question.code != RequestCode.UPDATE_AND_CREATE_TOPIC:
        broker.topics.table.setdefault(topic, TopicConfig(topic, 4, 4, perm_of(topic)))
    if group and java.code != 26:
        broker.groups.table.setdefault(group, group_of(group))
    pulls = question.code == RequestCode.PULL_MESSAGE and java.code == 0
    if topic and pulls and not broker.store.max_offset(topic, 0):
        broker.store.put(PutRecord(topic, 0, b"x", b"", 1, HOST, HOST))


def perm_of(topic: str) -> int:
    return {"RO": 4, "WO": 2}.get(topic.removeprefix("Lim")[:2], 6)


def group_of(name: str) -> SubscriptionGroup:
    return SubscriptionGroup(name, consume_enabled="off" not in name, retry_queues=0 if "noretry" in name else 1)


def kind_of_fields(command: Command) -> frozenset[str] | None:
    if command.ext is None or (command.serialize_type == SerializeType.ROCKETMQ and not command.ext):
        return None
    return frozenset(command.ext)
