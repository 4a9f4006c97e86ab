"""Has failed messages delivered to their group again: by the broker they came from, else through the retry topic."""

from __future__ import annotations

import logging

from orbitmq.client.core.consuming import retry_copy
from orbitmq.client.core.outgoing import Packing, outgoing
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import Choosing
from orbitmq.client.instance import Instance
from orbitmq.client.sending import Sender
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageExt
from orbitmq.message.topics import CLIENT_INNER_PRODUCER_GROUP
from orbitmq.operations import sending
from orbitmq.wire.headers import ConsumerSendMsgBackHeader

_log = logging.getLogger(__name__)

RULES = RetryRules(3, 3000)  # attempts and milliseconds of a copy


class Returning:
    """For one group. After `reconsume_times_max` failures the broker puts a message into the dead letter topic."""

    def __init__(self, instance: Instance, group: str, reconsume_times_max: int) -> None:
        self._instance = instance
        self._group = group
        self._reconsume_times_max = reconsume_times_max
        self._sender = Sender(instance, CLIENT_INNER_PRODUCER_GROUP, Choosing(instance.chance))

    async def send_back(self, message: MessageExt, delay_level: int) -> None:
        """To the broker the message came from; if that fails, a copy. BrokerError, ClientError, RemotingError."""
        header = ConsumerSendMsgBackHeader(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=message.topic,
            max_reconsume_times=self._reconsume_times_max,
            broker_name=message.broker_name,
        )
        try:
            address = await self._instance.routes.master(message.queue)
            await sending.send_back(self._instance.remoting, address, header)
        except OrbitMQError as error:
            _log.warning("event=send_back_refused group=%s message=%s error=%s", self._group, message.msg_id, error)
            await self.send_copy(message)

    async def send_copy(self, message: MessageExt) -> None:
        """A copy to the group's retry topic on any broker, which knows from it how often the message has failed."""
        instance = self._instance
        copy = retry_copy(message, self._group, self._reconsume_times_max)
        packed = outgoing(copy, lambda: instance.unique_ids.create(instance.clock.now_ms()), Packing())
        await self._sender.send(packed, RULES)
