"""The permissions a request needs, read from it as its row in `wire.requests` declares. Must not know accounts."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from orbitmq.broker.access.accounts import group_resource
from orbitmq.errors import MessageIllegal, RequestRejected, UnitError
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.pop import pop_retry_topic
from orbitmq.message.properties import INNER_MULTI_DISPATCH, REAL_TOPIC, decode_properties
from orbitmq.message.topics import HALF_TOPIC, SCHEDULE_TOPIC, TIMER_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.store.engine import MessageStore
from orbitmq.store.multi_dispatch import dispatch_names, is_dispatched
from orbitmq.wire.bodies import HeartbeatData, QueueLockRequest
from orbitmq.wire.bodies_pop import AssignmentQuery, read_batch
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.objects import decode_request
from orbitmq.wire.request import PUB, SUB, Need, Request, Resource

TopicAt = Callable[[int], str | None]
"""Returns the topic of the message at a physical offset, as its sender set it; None if no message begins there."""
Resources = Iterator[tuple[str, int]]


def needed(request: Request, command: Command, topic_at: TopicAt) -> Resources:
    """Each resource the request needs, with the permission. RequestRejected when it does not name one of them."""
    for need in request.access.needs:
        if not need.is_optional or (command.ext or {}).get(need.field):
            yield from _READERS[need.resource](need, command, topic_at)


def _field(command: Command, name: str) -> str:
    """A field that names a resource; without it there is nothing to check, so the request cannot pass."""
    value = (command.ext or {}).get(name)
    if not value:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"field {name} is missing, access cannot be checked")
    return value


def _topic(need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    yield _field(command, need.field), need.permission


def _group(need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    yield group_resource(_field(command, need.field)), need.permission


def _sent_topic(need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    """PUB on the topic and on each further queue that the message names. A retry topic belongs to the group that
    consumes it; messages sent to it are not dispatched to further queues.
    """
    topic = _field(command, need.field)
    yield _published(topic)
    text = (command.ext or {}).get(need.properties)
    if text and INNER_MULTI_DISPATCH in text and is_dispatched(topic):
        yield from map(_published, dispatch_names(text.encode()))


def _published(topic: str) -> tuple[str, int]:
    return topic, SUB if topic == group_resource(topic) else PUB


def _heartbeat(_need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    for consumer in decode_request(HeartbeatData, command.body).consumer_data_set:
        yield group_resource(consumer.group_name), SUB
        for subscription in consumer.subscription_data_set:
            yield subscription.topic, SUB


def _locks(_need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    batch = decode_request(QueueLockRequest, command.body)
    yield group_resource(batch.consumer_group), SUB
    for topic in {queue.topic for queue in batch.mq_set}:
        yield topic, SUB


def _popped(need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    """The group, and the topic that a message was sent to: redelivered ones name the retry topic of both."""
    group, topic = _field(command, "consumerGroup"), _field(command, need.field)
    yield group_resource(group), SUB
    yield topic.removeprefix(pop_retry_topic("", group)), SUB


def _assignment(_need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    asked = decode_request(AssignmentQuery, command.body)
    yield group_resource(asked.consumer_group), SUB
    yield asked.topic, SUB


def _batch_ack(_need: Need, command: Command, _topic_at: TopicAt) -> Resources:
    for one in read_batch(command.body):
        yield group_resource(one.c), SUB
        yield one.t, SUB


def _message(need: Need, command: Command, topic_at: TopicAt) -> Resources:
    text = _field(command, need.field)
    try:
        offset = int(text)
    except ValueError:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"field {need.field} is no whole number") from None
    yield _topic_of_message(offset, topic_at), need.permission


def _message_id(need: Need, command: Command, topic_at: TopicAt) -> Resources:
    try:
        place = decode_offset_message_id(_field(command, need.field))
    except MessageIllegal as error:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, str(error)) from error
    yield _topic_of_message(place.physical_offset, topic_at), need.permission


def _topic_of_message(offset: int, topic_at: TopicAt) -> str:
    topic = topic_at(offset)
    if topic is None:
        raise RequestRejected(ResponseCode.SYSTEM_ERROR, f"no message can be read at offset {offset}")
    return topic


_READERS: Mapping[Resource, Callable[[Need, Command, TopicAt], Resources]] = {
    Resource.TOPIC: _topic,
    Resource.GROUP: _group,
    Resource.SENT_TOPIC: _sent_topic,
    Resource.HEARTBEAT: _heartbeat,
    Resource.LOCKS: _locks,
    Resource.POPPED: _popped,
    Resource.ASSIGNMENT: _assignment,
    Resource.BATCH_ACK: _batch_ack,
    Resource.MESSAGE: _message,
    Resource.MESSAGE_ID: _message_id,
}


def topic_at(store: MessageStore, offset: int) -> str | None:
    """A `TopicAt` of a store.

    Bytes in a body can look like a message of any topic and size, so the consume queue of that topic must lead to it.
    """
    stored = store.unit_at(offset) if offset >= 0 else None
    if stored is None:
        return None
    try:
        unit = decode_unit(stored, with_body=False)
    except UnitError:
        return None
    entries = store.entries(unit.topic, unit.queue_id, unit.queue_offset, 1)
    if not entries or entries[0][:2] != (offset, len(stored)):
        return None
    if unit.topic in (
        HALF_TOPIC,
        SCHEDULE_TOPIC,
        TIMER_TOPIC,
    ):  # the broker put it there and keeps its topic in a property
        return decode_properties(unit.properties).get(REAL_TOPIC, unit.topic)
    return unit.topic
