"""Replies reach the client that waits for them, and the reply topic; the answer tells which."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.replies import PUSH_TIMEOUT_MS
from orbitmq.message.properties import CORRELATION_ID, PUSH_REPLY_TIME, REPLY_TO_CLIENT, decode_properties
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.wire.command import Command
from orbitmq.wire.headers_reply import PushReplyMessageHeader
from orbitmq.wire.requests import RequestCode
from tests.support.golden import rows
from tests.support.live import BORN_MS, Client, Time, client_of, live, long_header, made_broker, running, send_header
from tests.support.loops import LoopFactory, until

REPLY_TOPIC = "DefaultCluster_REPLY_TOPIC"
FOR_ANNA = {CORRELATION_ID: "4711", REPLY_TO_CLIENT: "anna"}


class Waiting(Client):
    """A client that waits for replies; `answer` says what it makes of one, None never to answer."""

    def __init__(self, broker: Any, answer: Callable[[Command], Command | None]) -> None:
        super().__init__(broker, "anna")
        router = Router("anna")
        router.add(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, self._take)
        self.remoting = Remoting(router)
        self._answer = answer

    async def _take(self, _connection: object, command: Command) -> Command:
        self.heard.append(command)
        answer = self._answer(command)
        if answer is None:
            await asyncio.Event().wait()
            raise AssertionError
        return answer


def taken(command: Command) -> Command:
    return command.response(0)


async def reply(client: Client, properties: dict[str, str], **fields: Any) -> Command:
    header = send_header(REPLY_TOPIC, properties, **fields)
    return await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"yes")


@pytest.mark.parametrize("long", [False, True])
async def test_a_reply_is_handed_over_and_stored(tmp_path: Path, *, long: bool) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as responder:
        anna = Waiting(broker, taken)
        await anna.heartbeat(producers=["requesters"])
        header = send_header(REPLY_TOPIC, {**FOR_ANNA, "WAIT": "true"}, flag=7, reconsume_times=0)
        code = RequestCode.SEND_REPLY_MESSAGE if long else RequestCode.SEND_REPLY_MESSAGE_V2
        answer = await responder.ask(code, long_header(header) if long else header, b"yes")
        assert (answer.code, answer.remark) == (0, None)
        (stored,) = await responder.read(REPLY_TOPIC)
        assert (answer.ext or {}) == {
            "MSG_REGION": "DefaultRegion", "TRACE_ON": "true", "queueId": "0", "queueOffset": "0",
            "msgId": stored.offset_msg_id,
        }  # fmt: skip
        assert (stored.body, stored.flag, stored.properties) == (b"yes", 7, {**FOR_ANNA, "WAIT": "true"})

        (push,) = anna.heard
        told = push.header(PushReplyMessageHeader)
        assert push.body == b"yes"
        assert (told.topic, told.producer_group, told.queue_id, told.flag) == (REPLY_TOPIC, "producers", 0, 7)
        assert (told.born_timestamp, told.store_host, told.reconsume_times) == (BORN_MS, broker.address, 0)
        assert told.born_host == stored.born_host
        properties = decode_properties(told.properties or "")
        assert int(properties.pop(PUSH_REPLY_TIME)) == told.store_timestamp
        assert properties == {**FOR_ANNA, "WAIT": "true"}
        await anna.remoting.close()


async def test_the_push_has_the_fields_of_rocketmqs(tmp_path: Path) -> None:
    (golden, *_) = [row for row in rows("producer_json.jsonl") if row.get("code") == 326 and row["kind"] == "request"]
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as responder:
        anna = Waiting(broker, taken)
        await anna.heartbeat(producers=["requesters"])
        await reply(responder, FOR_ANNA)
        assert set(anna.heard[0].ext or {}) == set(golden["ext"])
        await anna.remoting.close()


@pytest.mark.parametrize(
    ("properties", "remark"),
    [
        (FOR_ANNA, "push reply message fail, channel of <anna> not found."),
        ({CORRELATION_ID: "4711"}, "reply message properties[REPLY_TO_CLIENT] is null"),
    ],
)
async def test_a_reply_nobody_waits_for_is_stored_and_fails(
    tmp_path: Path, properties: dict[str, str], remark: str
) -> None:
    async with live(tmp_path) as client:
        answer = await reply(client, properties)
        assert (answer.code, answer.remark) == (1, remark)
        (stored,) = await client.read(REPLY_TOPIC)
        assert (answer.ext or {})["msgId"] == stored.offset_msg_id


async def test_a_client_that_refuses_or_has_gone_makes_the_reply_fail(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as responder:
        anna = Waiting(broker, lambda push: push.response(1, "who asked?"))
        await anna.heartbeat(producers=["requesters"])
        answer = await reply(responder, FOR_ANNA)
        assert (answer.code, answer.remark) == (1, "push reply message to annafail.")
        await anna.remoting.close()
        await until(lambda: broker.producers.find("anna") is None)
        answer = await reply(responder, FOR_ANNA)
        assert (answer.code, answer.remark) == (1, "push reply message fail, channel of <anna> not found.")


async def test_a_client_that_never_answers_is_waited_for_ten_seconds(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as responder:
        anna = Waiting(broker, lambda _push: None)
        await anna.heartbeat(producers=["requesters"])
        waiting = asyncio.create_task(reply(responder, FOR_ANNA))
        await until(lambda: anna.heard)
        await time.pass_by(PUSH_TIMEOUT_MS / 1000 - 1)
        assert not waiting.done()
        await time.pass_by(2)
        assert (await waiting).remark == "push reply message to annafail."
        await anna.remoting.close()


async def test_replies_are_not_stored_without_the_option(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, storeReplyMessageEnable="false")
    async with running(broker), client_of(broker) as responder:
        anna = Waiting(broker, taken)
        await anna.heartbeat(producers=["requesters"])
        answer = await reply(responder, FOR_ANNA)
        assert answer.code == 0
        assert {name: (answer.ext or {})[name] for name in ("msgId", "queueId", "queueOffset")} == {
            "msgId": "0", "queueId": "0", "queueOffset": "0",
        }  # fmt: skip
        failed = await reply(responder, {})
        assert failed.code == 1
        assert set(failed.ext or {}) == {"MSG_REGION", "TRACE_ON"}
        assert broker.store.max_offset(REPLY_TOPIC, 0) == 0
        await anna.remoting.close()


@pytest.mark.parametrize(
    ("topic", "fields", "code"),
    [("", {}, 1), ("no topic!", {}, 1), ("SCHEDULE_TOPIC_XXXX", {}, 16), (REPLY_TOPIC, {"queue_id": 9}, 1)],
)
async def test_a_reply_that_may_not_be_stored_is_refused(
    tmp_path: Path, topic: str, fields: dict[str, int], code: int
) -> None:
    async with live(tmp_path) as client:
        header = send_header(topic, FOR_ANNA, **fields)
        answer = await client.ask(RequestCode.SEND_REPLY_MESSAGE_V2, header, b"yes")
        assert answer.code == code
        assert answer.remark
        assert set(answer.ext or {}) == {"MSG_REGION", "TRACE_ON"}
