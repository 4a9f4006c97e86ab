"""Attributes of topics: which types there are, what a message is, and which changes are let in."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import ConfigurationError
from orbitmq.message.topic_types import (
    MESSAGE_TYPE,
    MessageType,
    altered,
    changes_between,
    format_changes,
    message_type,
    parse_changes,
    signed_changes,
    takes,
    type_of,
)

ATTRIBUTES = st.fixed_dictionaries(
    {},
    optional={
        MESSAGE_TYPE: st.sampled_from([str(one) for one in MessageType]),
        "reserve.time": st.integers(-1, (1 << 63) - 1).map(str),
    },
)


@pytest.mark.parametrize(
    ("properties", "found"),
    [
        ({}, MessageType.NORMAL),
        ({"TAGS": "a", "TRAN_MSG": "false"}, MessageType.NORMAL),
        ({"__SHARDINGKEY": "k"}, MessageType.FIFO),
        ({"DELAY": "3", "__SHARDINGKEY": "k"}, MessageType.DELAY),
        ({"TIMER_DELIVER_MS": "1"}, MessageType.DELAY),
        ({"TIMER_DELAY_SEC": "1"}, MessageType.DELAY),
        ({"TIMER_DELAY_MS": "1"}, MessageType.DELAY),
        ({"TRAN_MSG": "true", "DELAY": "3"}, MessageType.TRANSACTION),
    ],
)
def test_the_type_of_a_message_follows_from_its_properties(properties: dict[str, str], found: MessageType) -> None:
    assert message_type(properties) is found


def test_a_topic_without_a_type_is_normal_and_no_topic_has_none() -> None:
    assert type_of({}) is type_of({"reserve.time": "5"}) is MessageType.NORMAL
    assert type_of({MESSAGE_TYPE: "FIFO"}) is MessageType.FIFO
    assert type_of(None) is type_of({MESSAGE_TYPE: "OF_LATER"}) is MessageType.UNSPECIFIED


def test_a_topic_takes_its_own_type_and_a_mixed_one_takes_all() -> None:
    for topic in MessageType:
        taken = {message for message in MessageType if takes(topic, message)}
        assert taken == (set(MessageType) if topic is MessageType.MIXED else {topic})


@given(ATTRIBUTES, ATTRIBUTES)
def test_changes_lead_from_one_state_to_another(before: dict[str, str], after: dict[str, str]) -> None:
    changes = changes_between(before, after)
    assert parse_changes(format_changes(changes)) == changes
    assert altered(before, changes) == after


def test_a_new_topic_has_what_is_added_in_the_order_of_names() -> None:
    text = "+reserve.time=-1,+queue.type=SimpleCQ,+message.type=FIFO,+cleanup.policy=DELETE,"
    assert list(altered(None, parse_changes(text)).items()) == [
        ("cleanup.policy", "DELETE"), ("message.type", "FIFO"), ("queue.type", "SimpleCQ"), ("reserve.time", "-1"),
    ]  # fmt: skip
    assert altered(None, parse_changes("")) == altered(None, parse_changes(",")) == {}


@pytest.mark.parametrize(
    "text",
    [
        "message.type=FIFO", "+message.type", "+message.type=", "+", "-", "+=FIFO", " +message.type=FIFO", "+a+b=1",
        "++message.type=FIFO", "+-message.type=FIFO", "-message.type=FIFO", ",+message.type=FIFO",
        "+message.type=FIFO,+message.type=FIFO", "+message.type=FIFO,-message.type",
    ],
)  # fmt: skip
def test_another_form_is_refused(text: str) -> None:
    with pytest.raises(ConfigurationError):
        parse_changes(text)


@pytest.mark.parametrize(
    ("text", "reason"),
    [
        ("+foo=bar", "attribute foo is unknown: topics have message.type, "),
        ("-foo", "foo cannot be removed: the topic does not have it"),
        ("+message.type=fifo", "'fifo' is not one of UNSPECIFIED, NORMAL, FIFO, DELAY, TRANSACTION, MIXED"),
        ("+message.type=A=B", "'A=B' is not one of"),
        ("+reserve.time=-2", "not a number of milliseconds from -1"),
        ("+reserve.time=9223372036854775808", "not a number of milliseconds"),
        ("+reserve.time=x", "not a number of milliseconds"),
        ("+queue.type=BatchCQ", "BatchCQ is not served: use SimpleCQ"),
        ("+cleanup.policy=COMPACTION", "COMPACTION is not served: use DELETE"),
        ("+cleanup.policy=delete", "'delete' is not one of DELETE"),
    ],
)
def test_an_attribute_of_a_new_topic_is_checked(text: str, reason: str) -> None:
    with pytest.raises(ConfigurationError, match=reason):
        altered(None, parse_changes(text))


@pytest.mark.parametrize("text", ["+queue.type=SimpleCQ", "-queue.type", "+cleanup.policy=DELETE"])
def test_what_is_fixed_with_the_topic_does_not_change(text: str) -> None:
    with pytest.raises(ConfigurationError, match="is fixed once the topic exists: delete and create the topic"):
        altered({"queue.type": "SimpleCQ"}, parse_changes(text))


def test_what_a_later_version_has_written_stays_and_can_be_removed() -> None:
    known = {"of.later": "x", MESSAGE_TYPE: "NORMAL"}
    assert altered(known, parse_changes("+message.type=FIFO")) == {**known, MESSAGE_TYPE: "FIFO"}
    assert altered(known, parse_changes("-of.later")) == {MESSAGE_TYPE: "NORMAL"}


def test_pairs_of_a_body_are_changes_as_well() -> None:
    assert signed_changes([("+message.type", "FIFO"), ("-reserve.time", "")]) == {
        MESSAGE_TYPE: "FIFO",
        "reserve.time": None,
    }
    with pytest.raises(ConfigurationError, match="does not name an attribute"):
        signed_changes([("message.type", "FIFO")])
