"""Which message may be sent to which topic."""

from __future__ import annotations

import pytest

from orbitmq.errors import StatusError
from orbitmq.message.topic_types import MessageType as TopicType
from orbitmq.proxy.topic_types import accept_message_types, check_message_type
from orbitmq.wire.v2.enums import Code, MessageType

SAMPLES = {
    MessageType.NORMAL: {},
    MessageType.FIFO: {"__SHARDINGKEY": "g"},
    MessageType.DELAY: {"TIMER_DELIVER_MS": "5"},
    MessageType.TRANSACTION: {"TRAN_MSG": "true"},
}


@pytest.mark.parametrize("of", TopicType)
@pytest.mark.parametrize("kind", SAMPLES)
def test_a_topic_takes_the_messages_it_is_for(of: TopicType, kind: MessageType) -> None:
    properties: dict[str, str] = SAMPLES[kind]
    if of is TopicType.MIXED or of.name == kind.name:
        check_message_type("Orders", of, properties)
        assert kind in accept_message_types(of)
        return
    assert kind not in accept_message_types(of)
    with pytest.raises(StatusError) as raised:
        check_message_type("Orders", of, properties)
    assert raised.value.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
    expected = f"TopicMessageType validate failed, the expected type is {of}, but actual type is {kind.name}"
    assert raised.value.text.startswith(expected), "as RocketMQ says it"
    assert "message.type of Orders" in raised.value.text


def test_what_comes_back_or_was_forwarded_may_be_of_any_type() -> None:
    for topic in ("%RETRY%billing", "%DLQ%billing"):
        check_message_type(topic, TopicType.FIFO, {})
    check_message_type("Orders", TopicType.FIFO, {"TRANSFER_FLAG": "1"})
