"""The form in which a message is sent.

In a module of its own, which is not compiled: the outbox keeps such messages, and msgspec, which reads them, finds the
types of fields in interpreted classes only.
"""

from __future__ import annotations

import msgspec

from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import AUTO_CREATE_TOPIC
from orbitmq.wire.headers import SendMessageV2Header


class Outgoing(msgspec.Struct, frozen=True, gc=False):
    """A message as every attempt of one send transmits it."""

    topic: str
    """As brokers know it, namespace included."""
    body: bytes
    """As it is sent, possibly compressed; of a batch all messages in one."""
    properties: str
    """Names and values in the text form of the protocol."""
    msg_id: str
    """The unique id; of a batch all ids, joined by commas."""
    flag: int = 0
    """The flag that the application set."""
    sys_flag: int = 0
    """The bits of the protocol: compression, transaction."""
    batch: bool = False
    """Whether it is a batch of messages."""
    reconsume_times: int = 0
    """Of a message that its consumer sends for retry: how often it failed."""
    reconsume_times_max: int | None = None
    """And how often it may fail."""
    original_size: int = 0
    """Bytes of the body before compression."""

    def header(
        self,
        group: str,
        queue: MessageQueue,
        born_ms: int,
        template: str = AUTO_CREATE_TOPIC,
        queue_count: int = 4,
        *,
        unit_mode: bool = False,
    ) -> SendMessageV2Header:
        """The request header of an attempt that goes to `queue`; a missing topic is created like `template`."""
        return SendMessageV2Header(
            producer_group=group,
            topic=self.topic,
            default_topic=template,
            default_topic_queue_nums=queue_count,
            queue_id=queue.queue_id,
            sys_flag=self.sys_flag,
            born_timestamp=born_ms,
            flag=self.flag,
            properties=self.properties,
            reconsume_times=self.reconsume_times,
            unit_mode=unit_mode,
            max_reconsume_times=self.reconsume_times_max,
            batch=self.batch,
            broker_name=queue.broker_name,
        )
