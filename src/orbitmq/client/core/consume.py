"""Evaluates a listener's result, and builds the retry message for a failed send-back. Pure."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from copy import copy

from orbitmq.client.core.model import ConcurrentContext, ConsumeConcurrentlyStatus
from orbitmq.message.model import Message, MessageExt
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.pop import FIRST_POP_TIME, POP_CK
from orbitmq.message.properties import (
    CLUSTER,
    CONSUME_START_TIME,
    DEAD_LETTER_REASON,
    DELAY,
    MAX_OFFSET,
    MAX_RECONSUME_TIMES,
    MIN_OFFSET,
    ORIGIN_MESSAGE_ID,
    REAL_QID,
    REAL_TOPIC,
    RECONSUME_TIME,
    RETRY_TOPIC,
    TRAN_MSG,
    WAIT,
)
from orbitmq.message.topics import retry_topic
from orbitmq.runtime.printable import printable

RECONSUME_TIMES_MAX = 16  # deliveries of a failing message before it goes to the dead letter topic
# Properties of this delivery, set by the receiver, and the cluster, which brokers set anew.
NOT_COPIED = frozenset((TRAN_MSG, CLUSTER, MIN_OFFSET, MAX_OFFSET, CONSUME_START_TIME))
SPARE = frozenset((ORIGIN_MESSAGE_ID, WAIT, REAL_TOPIC, REAL_QID))  # properties that a retry does not need
FIRST_DELAY_LEVEL = 3  # of a client's own retry send; each failure adds one
REASON_LENGTH_MAX = 1000  # characters: several sentences, and a small part of the properties' size


def chunks(messages: Sequence[MessageExt], size: int) -> Iterator[Sequence[MessageExt]]:
    """Pulled messages in batches for the listener."""
    return (messages[start : start + size] for start in range(0, len(messages), size))


def first_failed(status: ConsumeConcurrentlyStatus | None, context: ConcurrentContext, count: int) -> int:
    """Index of the first of `count` messages that did not succeed, `count` if all did.

    No result is a failure: a listener without a return statement must not lose messages.
    """
    if status is not ConsumeConcurrentlyStatus.CONSUME_SUCCESS:
        return 0
    return max(0, min(context.ack_index + 1, count))


def retry_copies(
    message: MessageExt, group: str, reconsume_times_max: int, namespace: Namespace = NO_NAMESPACE
) -> Iterator[Message]:
    """Candidates for the group's retry topic if the broker could not send the original back: the caller sends the first
    whose properties fit. The last ones have failed too often: brokers make dead letters of them at once.

    Each is a new message; only its ORIGIN_MESSAGE_ID identifies the original. (Java loses that property.)
    """
    whole = _failed_copy(message, group, namespace, reconsume_times_max)
    whole.properties[DELAY] = str(FIRST_DELAY_LEVEL + message.reconsume_times)
    yield whole
    yield _without(whole, SPARE)
    dead = _without(whole, {*SPARE, DELAY})
    dead.properties[MAX_RECONSUME_TIMES] = str(message.reconsume_times)
    yield dead
    yield _without(dead, {RETRY_TOPIC})


def dead_copies(message: MessageExt, group: str, reason: str, namespace: Namespace = NO_NAMESPACE) -> Iterator[Message]:
    """Candidates for the group's retry topic that brokers make dead letters of at once, with the reason: the caller
    sends the first whose properties fit. What a receiver has added for itself is left out.
    """
    # RocketMQ 5 buries what failed more often than allowed, 4.9 what failed as often.
    whole = _without(_failed_copy(message, group, namespace, message.reconsume_times), {DELAY, POP_CK, FIRST_POP_TIME})
    if text := printable(reason)[:REASON_LENGTH_MAX].strip():
        whole.properties[DEAD_LETTER_REASON] = text
    yield whole
    yield _without(whole, SPARE)
    yield _without(whole, {*SPARE, DEAD_LETTER_REASON})
    yield _without(whole, {*SPARE, DEAD_LETTER_REASON, RETRY_TOPIC})


def _failed_copy(message: MessageExt, group: str, namespace: Namespace, reconsume_times_max: int) -> Message:
    properties = {name: value for name, value in message.properties.items() if name not in NOT_COPIED}
    properties.setdefault(ORIGIN_MESSAGE_ID, message.offset_msg_id)
    properties.setdefault(RETRY_TOPIC, namespace.wrap(message.topic))
    properties[RECONSUME_TIME] = str(message.reconsume_times + 1)
    properties[MAX_RECONSUME_TIMES] = str(reconsume_times_max)
    copied = Message(retry_topic(group), message.body, flag=message.flag)
    copied.properties.update(properties)
    return copied


def _without(message: Message, names: Collection[str]) -> Message:
    kept = copy(message)
    kept.properties = {name: value for name, value in message.properties.items() if name not in names}
    return kept


def as_the_listener_sees(message: MessageExt, group: str, namespace: Namespace = NO_NAMESPACE) -> MessageExt:
    """A message delivered again shows its original topic; no topic shows its namespace."""
    if RETRY_TOPIC in message.properties and namespace.wrap(message.topic) == retry_topic(group):
        message.topic = message.properties[RETRY_TOPIC]
    if namespace:
        message.topic = namespace.unwrap(message.topic)
    return message
