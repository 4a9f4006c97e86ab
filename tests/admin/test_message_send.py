"""JSON lines become messages, what is wrong with one is named; stored messages come again as retries or as new ones."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.admin import message_send
from orbitmq.admin.bodies import shown
from orbitmq.admin.envelope import plain
from orbitmq.admin.message_input import MessageDefaults, draft, draft_of_json, queue_of
from orbitmq.admin.message_send import Outlet, again, message_of_json
from orbitmq.admin.plans import Step, StepOutcome
from orbitmq.admin.results import Result
from orbitmq.admin.session import Session
from orbitmq.client.core.outgoing import Outgoing
from orbitmq.errors import ConfigurationError, MessageIllegal
from orbitmq.message.compression import COMPRESSION_FLAGS, compress
from orbitmq.message.flags import COMPRESSED, TRANSACTION_COMMIT
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import decode_properties
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.clock import SystemClock


def stored(body: bytes, **fields: Any) -> MessageExt:
    properties = {"UNIQ_KEY": "A1", "KEYS": "k1 k2", "TAGS": "red", "WAIT": "true", "city": "東京", "CLUSTER": "c"}
    return MessageExt("Orders", body, 7, properties, offset_msg_id="0A", **fields)


@given(st.binary(min_size=1, max_size=50) | st.text(min_size=1, max_size=20).map(str.encode))
def test_what_is_shown_can_be_sent_again(body: bytes) -> None:
    line = json.dumps(plain(shown(stored(body), limit=None)))
    made, key = draft_of_json(MessageDefaults("Copy"), line)
    assert (made.topic, made.body, made.flag, key) == ("Copy", body, 7, None)
    assert made.properties == {"TAGS": "red", "KEYS": "k1 k2", "WAIT": "true", "city": "東京"}


def test_a_packed_body_is_sent_again_unpacked() -> None:
    packed = stored(compress(b"x" * 100, "LZ4"), sys_flag=COMPRESSED | COMPRESSION_FLAGS["LZ4"])
    assert message_of_json(plain(shown(packed, limit=None)), "Copy")[0].body == b"x" * 100


def test_a_line_says_what_it_wants_and_flags_the_rest() -> None:
    common = MessageDefaults("Orders", "red", ("k",), {"city": "Rome", "a": "1"}, 3, ordering_key="order-1")
    made, key = draft_of_json(common, '{"body":"x","tags":"blue","properties":{"city":"Oslo"},"orderingKey":5}')
    assert (made.tags, made.keys, made.delay_level, key) == ("blue", "k", 3, "5")
    assert {name: made.properties[name] for name in ("city", "a")} == {"city": "Oslo", "a": "1"}
    made, key = draft(common, "hello")
    assert (made.body, made.tags, made.delay_level, key) == (b"hello", "red", 3, "order-1")
    assert message_of_json({"topic": "T", "body": "x"})[0].topic == "T"


def test_a_message_says_when_it_expires() -> None:
    common = MessageDefaults("Orders", deliver_after_s=5, expires_after_s=60)
    for made, after_ms in (
        (draft(common, "x")[0], "60000"),
        (draft_of_json(common, '{"body":"x"}')[0], "60000"),
        (draft_of_json(common, '{"body":"x","expiresAfterSeconds":1.5}')[0], "1500"),
    ):
        assert made.properties["EXPIRES_AFTER_MS"] == after_ms
    with pytest.raises(MessageIllegal, match="delay_level"):
        draft(MessageDefaults("Orders", delay_level=3, expires_after_s=60), "x")


@pytest.mark.parametrize(
    ("line", "what"),
    [
        ("{", "no JSON"),
        ("[]", "a JSON object is needed"),
        ("{}", "the body must be a text"),
        ('{"body":5}', "the body must be a text"),
        ('{"body":{"form":"base64","content":"?"}}', "the body is no base64"),
        ('{"body":{"form":"text","content":"x","truncated":true}}', "the beginning only"),
        ('{"body":{"form":"text","content":"x","charset":"klingon"}}', "the body is no text"),
        ('{"body":{"form":"text","content":"x","charset":5}}', "the body is no text"),
        ('{"body":"x","keys":5}', "keys must be"),
        ('{"body":"x","properties":[1]}', "properties must be an object"),
        ('{"body":"x","flag":4294967296}', "flag must fit into 32 bits"),
        ('{"body":"\udce9"}', "no JSON"),
        ('{"body":"x","delayLevel":"soon"}', "must be numbers"),
        ('{"body":"x","expiresAfterSeconds":"soon"}', "must be numbers"),
        ('{"body":"x","properties":{"":"x"}}', "must not be blank"),
    ],
)
def test_what_is_wrong_with_a_line_is_named(line: str, what: str) -> None:
    with pytest.raises(MessageIllegal, match=what):
        draft_of_json(MessageDefaults("Orders"), line)


def test_bytes_that_are_no_text_are_a_body_and_nothing_else() -> None:
    """Python reads them from arguments, and the command from standard input, as characters that stand for one byte."""
    assert draft(MessageDefaults("Orders"), "caf\udce9")[0].body == b"caf\xe9"
    wrong = (
        MessageDefaults("Orders", tags="\udce9"),
        MessageDefaults("Orders", keys=["\udce9"]),
        MessageDefaults("Orders", ordering_key="\udce9"),
        MessageDefaults("Orders", properties={"city": "\udce9"}),
    )
    for common in wrong:
        with pytest.raises(MessageIllegal, match="must be UTF-8"):
            draft(common, "x")
        with pytest.raises(MessageIllegal, match="must be UTF-8"):
            draft_of_json(common, '{"body":"x"}')


def test_a_topic_is_needed_and_a_queue_has_a_broker() -> None:
    with pytest.raises(MessageIllegal, match="has no topic"):
        draft_of_json(MessageDefaults(), '{"body":"x"}')
    with pytest.raises(ConfigurationError, match="give the topic"):
        draft(MessageDefaults(), "x")
    assert queue_of("broker-a", 0) == ("broker-a", 0)
    with pytest.raises(ConfigurationError, match="together"):
        queue_of("broker-a", None)


def test_a_dead_letter_comes_back_as_the_message_it_was() -> None:
    dead = stored(b"x", sys_flag=COMPRESSED | TRANSACTION_COMMIT)
    dead.topic = "%DLQ%g"
    dead.properties |= {"RETRY_TOPIC": "Orders", "ORIGIN_MESSAGE_ID": "0B", "DELAY": "5", "REAL_TOPIC": "%DLQ%g"}
    found = again(dead, "%RETRY%g", as_retry=True)
    assert (found.topic, found.body, found.msg_id, found.sys_flag) == ("%RETRY%g", b"x", "A1", COMPRESSED)
    assert decode_properties(found.properties) == {
        "KEYS": "k1 k2", "TAGS": "red", "city": "東京", "WAIT": "true", "RETRY_TOPIC": "Orders",
        "ORIGIN_MESSAGE_ID": "0B", "UNIQ_KEY": "A1",
    }  # fmt: skip


def test_a_copy_is_a_new_message() -> None:
    found = again(stored(b"x"), "Other", as_retry=False)
    assert decode_properties(found.properties) == {"KEYS": "k1 k2", "TAGS": "red", "city": "東京", "WAIT": "true"}


def test_a_plan_keeps_no_messages_and_reads_them_again_when_it_is_made(monkeypatch: pytest.MonkeyPatch) -> None:
    async def recorded(_session: Session, name: str, _now_ms: int, *, topic: str | None) -> MessageExt:
        return replace(stored(b"as it was planned"), offset_msg_id=name, broker_name="b")

    async def read(_session: Session, offset_id: str) -> Result[MessageExt]:
        there = {"01": [stored(b"as it is stored")], "02": [], "03": [other]}
        return Result([replace(one, offset_msg_id=offset_id) for one in there[offset_id]])

    async def routed(_session: Session, _topic: str) -> None:
        return None

    async def send(_outlet: Outlet, packed: Outgoing, _message: MessageExt, *, home: None) -> None:
        assert home is None, "only retries of POP have one"
        sent.append(packed.body)

    sent: list[bytes] = []
    other = replace(stored(b"another's"), properties={"UNIQ_KEY": "B2"})
    monkeypatch.setattr(message_send, "record", recorded)
    monkeypatch.setattr(message_send, "by_offset_id", read)
    monkeypatch.setattr(Session, "route", routed)
    monkeypatch.setattr(Outlet, "send_packed", send)

    async def make() -> Result[Step]:
        plan = await message_send.plan_resend(
            Session(Remoting(), ["n:1"]), ["01", "02", "03"], SystemClock(), to="Copy"
        )
        return await plan.make()

    done = asyncio.run(make())
    assert sent == [b"as it is stored"]
    assert [step.outcome for step in done.items] == [StepOutcome.DONE, StepOutcome.FAILED, StepOutcome.FAILED]
    assert [failure.message for failure in done.failures] == [
        "message 02 is not stored any more",
        "message 03 is not stored any more",
    ]
