"""What leaves for the broker is checked, named and packed, and the user's object stays as it was."""

from __future__ import annotations

import zlib
from typing import Any

import pytest

from orbitmq.client.core.outgoing_message import Packing, check_message, outgoing, outgoing_batch
from orbitmq.errors import MessageIllegal
from orbitmq.message.model import Message, MessageQueue
from orbitmq.message.properties import decode_properties
from tests.support.batches import decode_batch
from tests.support.golden import rows, vectors


def new_id() -> str:
    return "THE-ID"


@pytest.mark.parametrize("case", [c for c in vectors()["validators_message"] if c["topic"] is not None])
def test_messages_are_refused_when_java_refuses_them(case: dict[str, Any]) -> None:
    message = Message(case["topic"], None if case["bodyLen"] is None else bytes(case["bodyLen"]))  # type: ignore[arg-type]
    if case["result"] == "ok":
        check_message(message, case["maxMessageSize"])
    else:
        with pytest.raises(MessageIllegal):
            check_message(message, case["maxMessageSize"])


def test_a_message_gets_an_id_and_stays_untouched() -> None:
    message = Message("T", b"x", tags="a", keys=["k1", "k2"], flag=9)
    before = dict(message.properties)
    sent = outgoing(message, new_id, Packing())
    assert message.properties == before
    assert sent.msg_id == "THE-ID"
    assert decode_properties(sent.properties) == {
        "TAGS": "a",
        "KEYS": "k1 k2",
        "WAIT": "true",
        "UNIQ_KEY": "THE-ID",
    }
    assert (sent.body, sent.flag, sent.sys_flag) == (b"x", 9, 0)


def test_an_id_that_is_there_is_kept() -> None:
    message = Message("T", b"x")
    message.properties["UNIQ_KEY"] = "FIRST"
    assert outgoing(message, new_id, Packing()).msg_id == "FIRST"


def test_bodies_from_the_threshold_on_are_compressed() -> None:
    small, large = Message("T", bytes(4095)), Message("T", bytes(4096))
    assert outgoing(small, new_id, Packing()).sys_flag == 0
    sent = outgoing(large, new_id, Packing())
    assert sent.sys_flag == 0x301
    assert zlib.decompress(sent.body) == large.body


def test_the_size_limit_is_measured_before_compression() -> None:
    with pytest.raises(MessageIllegal, match="at most 4194304"):
        outgoing(Message("T", bytes((4 << 20) + 1)), new_id, Packing())


def test_properties_that_do_not_fit_are_refused_before_they_leave() -> None:
    with pytest.raises(MessageIllegal, match="32767"):
        outgoing(Message("T", b"x", properties={"p": "é" * 17000}), new_id, Packing())


def test_retry_counters_move_into_the_header() -> None:
    message = Message("%RETRY%g", b"x")
    message.properties.update({"RECONSUME_TIME": "3", "MAX_RECONSUME_TIMES": "16"})
    header = outgoing(message, new_id, Packing()).header("g", MessageQueue("%RETRY%g", "b", 0), 1)
    assert (header.reconsume_times, header.max_reconsume_times) == (3, 16)
    message = Message("T", b"x")
    message.properties["RECONSUME_TIME"] = "3"
    assert outgoing(message, new_id, Packing()).header("g", MessageQueue("T", "b", 0), 1).reconsume_times == 0


def test_a_batch_has_an_id_a_message_and_the_form_java_sends() -> None:
    java = next(row for row in rows("producer_json.jsonl") if row["name"] == "SEND_BATCH_MESSAGE")
    sent = outgoing_batch([Message("T", b"a", tags="x"), Message("T", b"b", flag=2)], new_id, Packing())
    assert sent.batch
    assert sent.msg_id == "THE-ID,THE-ID"
    assert sent.properties == java["ext"]["i"]
    first, second = decode_batch(sent.body)
    assert (first.body, second.body, second.flag) == (b"a", b"b", 2)
    assert decode_properties(first.properties.decode()) == {"TAGS": "x", "WAIT": "true", "UNIQ_KEY": "THE-ID"}


@pytest.mark.parametrize(
    "messages",
    [
        [],
        [Message("T", b"a"), Message("U", b"a")],
        [Message("T", b"a"), Message("T", b"a", wait_store_ok=False)],
        [Message("T", b"a", delay_level=1)],
        [Message("%RETRY%g", b"a")],
        [Message("T", b"")],
        [Message("T", bytes(3 << 20)), Message("T", bytes(3 << 20))],
    ],
)
def test_a_batch_that_cannot_be_stored_as_one_is_refused(messages: list[Message]) -> None:
    with pytest.raises(MessageIllegal):
        outgoing_batch(messages, new_id, Packing())


@pytest.mark.parametrize("message", [Message("T", b"x", keys="a\x02b"), Message("T", b"x", tags="a\x02b")])
def test_what_would_end_a_property_early_is_refused(message: Message) -> None:
    with pytest.raises(MessageIllegal, match=r"property (KEYS|TAGS) holds"):
        outgoing(message, lambda: "ID", Packing())
    with pytest.raises(MessageIllegal, match=r"property (KEYS|TAGS) holds"):
        outgoing_batch([message], lambda: "ID", Packing())
