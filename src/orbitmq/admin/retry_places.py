"""Where a group reads what is sent to it again."""

from __future__ import annotations

from dataclasses import dataclass

from orbitmq.admin.bodies import real_topic
from orbitmq.admin.clients import membership
from orbitmq.admin.scan import readable_queues
from orbitmq.admin.session import Session
from orbitmq.errors import NotFound
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import FIRST_POP_TIME, pop_retry_topic, pop_retry_topics
from orbitmq.message.topics import retry_topic
from orbitmq.operations.offsets import query_consumer_offset
from orbitmq.operations.routes import topics
from orbitmq.wire.bodies import ConsumeType


@dataclass(frozen=True, slots=True)
class RetryPlaces:
    """Push consumers have one topic for all retries. Members that pop have one for each topic at each broker, which it
    makes with the first retry, and do not read the other.
    """

    group: str
    is_popped: bool = False

    def place(self, message: MessageExt, now_ms: int) -> str:
        """The topic for this message, which gets the property by which retries of POP are recognized."""
        if not self.is_popped:
            return retry_topic(self.group)
        topic = real_topic(message)
        if FIRST_POP_TIME in message.properties and topic.startswith(pop_retry_topic("", self.group)):
            return topic  # it was dead after a retry
        message.properties.setdefault(FIRST_POP_TIME, str(now_ms))
        return pop_retry_topic(topic, self.group)

    def __str__(self) -> str:
        return pop_retry_topic("*", self.group) if self.is_popped else retry_topic(self.group)


async def retry_places(session: Session, group: str) -> RetryPlaces:
    """Members that are online pop if they do not subscribe to the retry topic of push consumers; those that pull do not
    either, and have no retries. While none is online, retry topics show it, and no offset of a push consumer.
    """
    who, own = await membership(session, group), retry_topic(group)
    if own in who.subscribed:
        return RetryPlaces(group)
    names = await session.any_name_server(lambda server: session.request(topics, server))
    has_retries = bool(pop_retry_topics(group, names))
    if who.online:
        return RetryPlaces(group, has_retries or who.kind != ConsumeType.CONSUME_ACTIVELY.name)
    return RetryPlaces(group, has_retries and not await _was_pushed(session, group))


async def _was_pushed(session: Session, group: str) -> bool:
    try:
        queues = await readable_queues(session, retry_topic(group))
    except NotFound:
        return False
    named = {queue: f"{node}: queue {queue.queue_id}" for queue, node in queues.items()}
    stored = await session.each(
        named, lambda queue: session.request(query_consumer_offset, queues[queue], group, queue)
    )
    # 0 is also what brokers say of a group that they do not know.
    return bool(stored.failures) or any(stored.responses.values())
