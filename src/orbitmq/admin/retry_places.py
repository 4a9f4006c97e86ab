"""Where a group reads what is sent to it again."""

from __future__ import annotations

from dataclasses import dataclass

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


@dataclass(frozen=True, slots=True)
class RetryPlaces:
    """Push consumers have one topic for all retries. Members that pop have one for each topic, and do not read the
    other.
    """

    group: str
    pop_topics: frozenset[str] = frozenset()
    """The retry topics of a group that pops; empty for any other."""

    def place(self, message: MessageExt, now_ms: int) -> str:
        """The topic for this message, which gets the property by which retries of POP are recognized."""
        real = real_topic(message)  # of a dead letter that was a retry already, its retry topic
        for topic in (real, pop_retry_topic(real, self.group)):
            if topic in self.pop_topics:
                message.properties.setdefault(FIRST_POP_TIME, str(now_ms))
                return topic
        return retry_topic(self.group)

    def __str__(self) -> str:
        return ", ".join(sorted(self.pop_topics)) or retry_topic(self.group)


async def retry_places(session: Session, group: str) -> RetryPlaces:
    """A group pops if brokers have made retry topics for that, and none of its members, or, while none is online, no
    offset shows a push consumer.
    """
    prefix = pop_retry_topic("", group)
    names = await session.any_name_server(lambda server: session.request(topics, server))
    found = frozenset(name for name in names if name.startswith(prefix))
    return RetryPlaces(group, found if found and not await _is_pushed(session, group) else frozenset())


async def _is_pushed(session: Session, group: str) -> bool:
    who, topic = await membership(session, group), retry_topic(group)
    if who.online:
        return topic in who.subscribed
    try:
        queues = await readable_queues(session, topic)
    except NotFound:
        return False
    named = {queue: f"{node}: queue {queue.queue_id}" for queue, node in queues.items()}
    stored = await session.each(
        named, lambda queue: session.request(query_consumer_offset, queues[queue], group, queue)
    )
    return any(stored.responses.values())  # 0 is also what brokers say of a group that they do not know
