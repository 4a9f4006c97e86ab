"""Where a group reads what is sent to it again."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from orbitmq.admin.bodies import real_topic
from orbitmq.admin.clients import membership
from orbitmq.admin.scan import readable_queues
from orbitmq.admin.session import Session
from orbitmq.errors import NotFound
from orbitmq.message.model import MessageExt
from orbitmq.message.pop import FIRST_POP_TIME, pop_retry_topic
from orbitmq.message.topics import retry_topic
from orbitmq.operations.offsets import query_consumer_offset
from orbitmq.operations.routes import topics
from orbitmq.wire.bodies_pop import is_popped


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
    """The place of the group's retries, by its members, or, while none is online, by its retry topics and offsets."""
    who = await membership(session, group)
    popped = is_popped(group, who.connections, await session.any_name_server(partial(session.request, topics)))
    return RetryPlaces(group, not await _was_pushed(session, group) if popped is None else popped)


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
