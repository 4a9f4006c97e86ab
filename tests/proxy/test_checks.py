"""Each rule for requests of RocketMQ 5 clients: the code of its refusal, its border, and what the text names."""

from __future__ import annotations

from collections.abc import Callable
from itertools import pairwise
from typing import Any

import pytest
from google.protobuf.message import DecodeError
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import StatusError
from orbitmq.proxy.checks import (
    RESERVED,
    Limits,
    check_changed_invisible_ms,
    check_client_id,
    check_client_type,
    check_filter,
    check_invisible_ms,
    check_message,
    check_transaction_id,
    checked_group,
    checked_topic,
    checked_topic_of_send,
    polling_ms,
)
from orbitmq.wire.v2.enums import ClientType, Code, FilterType, MessageType
from orbitmq.wire.v2.messages import Message, Resource, SendMessageRequest, set_time

LIMITS = Limits()
NOW_MS = 1_700_000_000_000
HOUR_MS = 3_600_000

# Written down from RocketMQ 5.3.3.
RESERVED_THERE = [
    "TRACE_ON", "MSG_REGION", "KEYS", "TAGS", "WAIT", "DELAY", "RETRY_TOPIC", "REAL_TOPIC", "REAL_QID", "TRAN_MSG",
    "PGROUP", "MIN_OFFSET", "MAX_OFFSET", "BUYER_ID", "ORIGIN_MESSAGE_ID", "TRANSFER_FLAG", "CORRECTION_FLAG",
    "MQ2_FLAG", "RECONSUME_TIME", "UNIQ_KEY", "MAX_RECONSUME_TIMES", "CONSUME_START_TIME", "POP_CK",
    "POP_CK_OFFSET", "1ST_POP_TIME", "TRAN_PREPARED_QUEUE_OFFSET", "DUP_INFO", "EXTEND_UNIQ_INFO", "INSTANCE_ID",
    "CORRELATION_ID", "REPLY_TO_CLIENT", "TTL", "ARRIVE_TIME", "PUSH_REPLY_TIME", "CLUSTER", "MSG_TYPE",
    "INNER_MULTI_QUEUE_OFFSET", "TIMER_DELAY_MS", "TIMER_DELAY_SEC", "TIMER_DELIVER_MS", "TIMER_ENQUEUE_MS",
    "TIMER_DEQUEUE_MS", "TIMER_ROLL_TIMES", "TIMER_OUT_MS", "TIMER_DEL_UNIQKEY", "TIMER_DELAY_LEVEL", "__BORNHOST",
    "BORN_TIMESTAMP", "DLQ_ORIGIN_TOPIC", "DLQ_ORIGIN_MESSAGE_ID", "__CRC32#",
]  # fmt: skip
FREE_THERE = [
    "INNER_NUM", "INNER_BASE", "CHECK_IMMUNITY_TIME_IN_SECONDS", "__transactionId__", "TRANSACTION_CHECK_TIMES",
    "__SHARDINGKEY", "PROPERTY_FORWARD_QUEUE_ID", "REDIRECT", "INNER_MULTI_DISPATCH", "TRACE_CONTEXT",
    "__RMQ.TRANSIENT.",
]  # fmt: skip


def message(change: Callable[[Any, Any], object] = lambda *_: None) -> Any:
    """One that is accepted, changed: `change` gets it and its system properties."""
    made = Message(topic=Resource(name="Orders"), body=b"x")
    made.system_properties.message_id = "01"
    change(made, made.system_properties)
    return made


def refusal(check: Callable[..., object], *arguments: object) -> StatusError:
    with pytest.raises(StatusError) as raised:
        check(*arguments)
    return raised.value


def code_of(change: Callable[[Any, Any], object]) -> int:
    return refusal(check_message, message(change), LIMITS, NOW_MS).code


def _deliver(system: Any, ahead_ms: int) -> None:
    set_time(system.delivery_timestamp, NOW_MS + ahead_ms)


def _recover(system: Any, seconds: int, kind: MessageType = MessageType.TRANSACTION) -> None:
    system.message_type = kind
    system.orphaned_transaction_recovery_duration.seconds = seconds


def _properties(made: Any, count: int, size: int = 1) -> None:
    for number in range(count):
        made.user_properties[f"{number:04}"] = "x" * size


def _set(target: Any, name: str, value: object) -> None:
    setattr(target, name, value)


REFUSED: dict[str, tuple[Callable[[Any, Any], object], Code]] = {
    "empty body": (lambda m, _: m.ClearField("body"), Code.MESSAGE_BODY_EMPTY),
    "large body": (lambda m, _: _set(m, "body", bytes((4 << 20) + 1)), Code.MESSAGE_BODY_TOO_LARGE),
    "129 properties": (lambda m, _: _properties(m, 129), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    "control in a name": (lambda m, _: m.user_properties.update({"a\x02": "1"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "control in a value": (lambda m, _: m.user_properties.update({"a": "\x85"}), Code.ILLEGAL_MESSAGE_PROPERTY_KEY),
    "blank tag": (lambda _, s: _set(s, "tag", "  "), Code.ILLEGAL_MESSAGE_TAG),
    "tag with a bar": (lambda _, s: _set(s, "tag", "a|b"), Code.ILLEGAL_MESSAGE_TAG),
    "tag with control": (lambda _, s: _set(s, "tag", "a\x7f"), Code.ILLEGAL_MESSAGE_TAG),
    "blank key": (lambda _, s: s.keys.append("\t"), Code.ILLEGAL_MESSAGE_KEY),
    "key with control": (lambda _, s: s.keys.append("a\x01"), Code.ILLEGAL_MESSAGE_KEY),
    "large properties": (lambda m, _: _properties(m, 16, 1021), Code.MESSAGE_PROPERTIES_TOO_LARGE),
    "no message id": (lambda _, s: s.ClearField("message_id"), Code.ILLEGAL_MESSAGE_ID),
    "blank message id": (lambda _, s: _set(s, "message_id", " "), Code.ILLEGAL_MESSAGE_ID),
    "message id that adds a property": (lambda _, s: _set(s, "message_id", "1\x02A\x01b"), Code.ILLEGAL_MESSAGE_ID),
    "late recovery": (lambda _, s: _recover(s, 3601), Code.BAD_REQUEST),
    "recovery in the past": (lambda _, s: _recover(s, -1), Code.BAD_REQUEST),
    "delivery after a day": (lambda _, s: _deliver(s, 24 * HOUR_MS + 1), Code.ILLEGAL_DELIVERY_TIME),
    "blank group": (lambda _, s: _set(s, "message_group", " "), Code.ILLEGAL_MESSAGE_GROUP),
    "long group": (lambda _, s: _set(s, "message_group", "é" * 32), Code.ILLEGAL_MESSAGE_GROUP),
    "group with control": (lambda _, s: _set(s, "message_group", "a\n"), Code.ILLEGAL_MESSAGE_GROUP),
    "trace context that adds a property": (lambda _, s: _set(s, "trace_context", "1\x02A\x01b"), Code.BAD_REQUEST),
    "born host that adds a property": (lambda _, s: _set(s, "born_host", "1\x02A\x01b"), Code.BAD_REQUEST),
    "lite topic": (lambda _, s: _set(s, "lite_topic", "a"), Code.UNSUPPORTED),
}
"""In the order of the checks."""

ACCEPTED: dict[str, Callable[[Any, Any], object]] = {
    "as it is": lambda *_: None,
    "largest body": lambda m, _: _set(m, "body", bytes(4 << 20)),
    "128 properties": lambda m, _: _properties(m, 128),
    "16 KiB of properties": lambda m, _: _properties(m, 16, 1020),
    "empty tag": lambda _, s: _set(s, "tag", ""),
    "empty key": lambda _, s: s.keys.append(""),
    "tag with a space": lambda _, s: _set(s, "tag", "a b"),
    "other scripts": lambda m, _: m.user_properties.update({"größe": "訂單\u00a0\u2028"}),
    "recovery after an hour": lambda _, s: _recover(s, 3600),
    "recovery time of a normal message": lambda _, s: _recover(s, 9999, MessageType.NORMAL),
    "delivery after a day": lambda _, s: _deliver(s, 24 * HOUR_MS),
    "delivery in the past": lambda _, s: _set(s.delivery_timestamp, "seconds", -(1 << 62)),
    "63 bytes of group": lambda _, s: _set(s, "message_group", "a" + "é" * 31),
    "type of tomorrow": lambda _, s: _set(s, "message_type", 99),
}


@pytest.mark.parametrize("case", REFUSED)
def test_a_fault_is_refused_with_its_code(case: str) -> None:
    change, code = REFUSED[case]
    assert code_of(change) == code


@pytest.mark.parametrize("case", ACCEPTED)
def test_what_is_within_the_limits_is_accepted(case: str) -> None:
    check_message(message(ACCEPTED[case]), LIMITS, NOW_MS)


def test_of_several_faults_the_first_check_reports() -> None:
    cases = list(REFUSED.values())
    for (first, code), (second, _) in pairwise(cases):

        def both(made: Any, system: Any, first: Any = first, second: Any = second) -> None:
            second(made, system)
            first(made, system)

        assert code_of(both) == code


def test_a_refusal_names_culprit_and_remedy() -> None:
    error = refusal(check_message, message(lambda _, s: _set(s, "tag", "red|blue" + "x" * 900)), LIMITS, NOW_MS)
    assert "'red|blue" in error.text
    assert "remove it" in error.text
    assert len(error.text) < 200, "a peer's text is cut"


def test_reserved_names_are_those_of_rocketmq() -> None:
    assert set(RESERVED_THERE) == RESERVED
    assert RESERVED.isdisjoint(FREE_THERE)


@pytest.mark.parametrize("name", RESERVED_THERE)
def test_a_reserved_name_is_refused(name: str) -> None:
    error = refusal(check_message, message(lambda m, _: m.user_properties.update({name: "1"})), LIMITS, NOW_MS)
    assert error.code == Code.ILLEGAL_MESSAGE_PROPERTY_KEY
    assert name in error.text


@pytest.mark.parametrize("name", FREE_THERE)
def test_a_name_that_rocketmq_leaves_free_is_accepted(name: str) -> None:
    check_message(message(lambda m, _: m.user_properties.update({name: "1"})), LIMITS, NOW_MS)


@given(st.binary(max_size=200))
def test_a_message_of_any_bytes_is_accepted_or_refused_with_a_code(data: bytes) -> None:
    try:
        check_message(Message.FromString(data), LIMITS, NOW_MS)
    except DecodeError:
        return
    except StatusError as error:
        refused = error
    else:
        return
    assert refused.code in list(Code)


@pytest.mark.parametrize("name", ["", " ", "a b", "a/b", "é", "x" * 128, "TBW102", "rmq_sys_x", "SCHEDULE_TOPIC_XXXX"])
def test_illegal_and_system_topics_are_refused(name: str) -> None:
    assert refusal(checked_topic, Resource(name=name)).code == Code.ILLEGAL_TOPIC


@pytest.mark.parametrize("name", ["", " ", "a b", "x" * 121, "CID_RMQ_SYS_x"])
def test_illegal_and_system_groups_are_refused(name: str) -> None:
    assert refusal(checked_group, Resource(name=name)).code == Code.ILLEGAL_CONSUMER_GROUP


def test_names_get_their_namespace() -> None:
    assert checked_topic(Resource(name="Orders")) == "Orders"
    assert checked_topic(Resource(name="Orders", resource_namespace="shop")) == "shop%Orders"
    assert checked_group(Resource(name="billing", resource_namespace="shop")) == "shop%billing"
    assert refusal(checked_topic, Resource(name="a", resource_namespace="x" * 126)).code == Code.ILLEGAL_TOPIC


def test_messages_of_a_request_have_one_topic() -> None:
    assert refusal(checked_topic_of_send, SendMessageRequest()).code == Code.MESSAGE_CORRUPTED
    other = message(lambda m, _: _set(m.topic, "name", "Others"))
    assert checked_topic_of_send(SendMessageRequest(messages=[message(), message()])) == "Orders"
    request = SendMessageRequest(messages=[message(), other])
    assert refusal(checked_topic_of_send, request).code == Code.MESSAGE_CORRUPTED


def test_invisible_times_have_limits() -> None:
    for accepted in (10_000, 12 * HOUR_MS):
        check_invisible_ms(accepted, LIMITS)
    for refused in (0, 9_999, 12 * HOUR_MS + 1, -1):
        assert refusal(check_invisible_ms, refused, LIMITS).code == Code.ILLEGAL_INVISIBLE_TIME
    for accepted in (0, 12 * HOUR_MS):
        check_changed_invisible_ms(accepted, LIMITS)
    for refused in (-1, 12 * HOUR_MS + 1):
        assert refusal(check_changed_invisible_ms, refused, LIMITS).code == Code.ILLEGAL_INVISIBLE_TIME


@pytest.mark.parametrize(
    ("requested", "timeout", "remaining", "expected"),
    [
        (8_000, 3_000, 60_000, 8_000),
        (1, 3_000, 60_000, 5_000),
        (40_000, 3_000, 60_000, 20_000),  # what the Rust client requests
        (None, 3_000, 23_000, 20_000),
        (None, 4_000, 10_000, 8_000),
        (None, 3_000, None, 20_000),
        (15_000, 3_000, 9_000, 9_000),
        (15_000, 3_000, 5_000, 5_000),
    ],
)
def test_polling_lasts_as_long_as_client_and_limits_allow(
    requested: int | None, timeout: int, remaining: int | None, expected: int
) -> None:
    assert polling_ms(requested, timeout, remaining, "5.0.7", LIMITS) == expected


def test_a_client_that_cannot_wait_is_refused_with_a_code_it_knows() -> None:
    for version, code in (("5.0.2", Code.BAD_REQUEST), ("5.0.3", Code.ILLEGAL_POLLING_TIME), ("", Code.BAD_REQUEST)):
        assert refusal(polling_ms, None, 3_000, 4_999, version, LIMITS).code == code


def test_expressions_must_compile() -> None:
    for kind, text in ((FilterType.TAG, "a || b"), (FilterType.TAG, ""), (0, "*"), (FilterType.SQL, "a > 5")):
        check_filter("Orders", kind, text)
    for kind, text in ((FilterType.TAG, "||"), (FilterType.SQL, "a >"), (FilterType.SQL, "")):
        assert refusal(check_filter, "Orders", kind, text).code == Code.ILLEGAL_FILTER_EXPRESSION


def test_clients_without_id_or_of_other_kinds_are_refused() -> None:
    check_client_id("host@1")
    check_client_type(ClientType.SIMPLE_CONSUMER)
    assert refusal(check_client_id, " ").code == Code.CLIENT_ID_REQUIRED
    for kind in (0, ClientType.PULL_CONSUMER, ClientType.LITE_PUSH_CONSUMER, 99, -1):
        assert refusal(check_client_type, kind).code == Code.UNRECOGNIZED_CLIENT_TYPE


def test_a_transaction_is_ended_by_its_id() -> None:
    check_transaction_id("01")
    assert refusal(check_transaction_id, "  ").code == Code.INVALID_TRANSACTION_ID
