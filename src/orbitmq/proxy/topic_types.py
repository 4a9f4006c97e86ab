"""Which types of messages a topic accepts from RocketMQ 5 clients. Pure."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final

from orbitmq.errors import StatusError
from orbitmq.message.properties import TRANSFER_FLAG
from orbitmq.message.topic_types import MESSAGE_TYPE, message_type, takes
from orbitmq.message.topic_types import MessageType as TopicType
from orbitmq.message.topics import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.wire.v2.enums import Code, MessageType

_ACCEPTED: Final = {
    TopicType.UNSPECIFIED: (MessageType.MESSAGE_TYPE_UNSPECIFIED,),
    TopicType.NORMAL: (MessageType.NORMAL,),
    TopicType.FIFO: (MessageType.FIFO,),
    TopicType.DELAY: (MessageType.DELAY,),
    TopicType.TRANSACTION: (MessageType.TRANSACTION,),
    TopicType.MIXED: (MessageType.NORMAL, MessageType.FIFO, MessageType.DELAY, MessageType.TRANSACTION),
}


def accept_message_types(of: TopicType) -> tuple[MessageType, ...]:
    """The types in a route; clients refuse other messages themselves."""
    return _ACCEPTED[of]


def check_message_type(topic: str, of: TopicType, properties: Mapping[str, str]) -> None:
    """StatusError for a message that the topic is not for; what is sent back or forwarded may be of any type."""
    actual = message_type(properties)
    if takes(of, actual) or topic.startswith((RETRY_PREFIX, DLQ_PREFIX)) or properties.get(TRANSFER_FLAG):
        return
    raise _conflict(of, actual, f"send it to another topic, or change the attribute {MESSAGE_TYPE} of {topic}")


def no_topic(topic: str, properties: Mapping[str, str]) -> StatusError:
    """A message for a topic that does not exist, with the status of RocketMQ's proxy."""
    return _conflict(TopicType.UNSPECIFIED, message_type(properties), f"there is no topic {topic}: create it first")


def _conflict(expected: TopicType, actual: TopicType, remedy: str) -> StatusError:
    return StatusError(
        Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE,
        f"TopicMessageType validate failed, the expected type is {expected}, but actual type is {actual}: {remedy}",
    )
