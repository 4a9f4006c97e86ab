"""Sends failed messages back for retry: to the broker they came from, else as a copy to the retry topic."""

from __future__ import annotations

import logging
import sys

from orbitmq.client.core.consume import retry_copies
from orbitmq.client.core.outgoing_message import Packing, outgoing
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import QueueChooser
from orbitmq.client.instance import Instance
from orbitmq.client.sender import MessageSender
from orbitmq.errors import BrokerError, MessageIllegal, OrbitMQError
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.topics import CLIENT_INNER_PRODUCER_GROUP, check_consumer_group
from orbitmq.operations import sends
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import ConsumerSendMsgBackHeader

_log = logging.getLogger(__name__)

RULES = RetryRules(3, 3000)  # attempts and milliseconds of a copy
PACKING = Packing(sys.maxsize)  # a message that a broker has stored is not too large for this client


class RetrySender:
    """Sends back for one group. After `reconsume_times_max` failures the broker makes a dead letter of it."""

    def __init__(
        self, instance: Instance, group: str, reconsume_times_max: int, *, namespace: Namespace = NO_NAMESPACE
    ) -> None:
        self._namespace = namespace
        self._instance = instance
        self._group = group
        self._reconsume_times_max = reconsume_times_max
        self._sender = MessageSender(instance, CLIENT_INNER_PRODUCER_GROUP, QueueChooser(instance.chance))

    async def send_back(
        self, message: MessageExt, delay_level: int, broker_name: str | None = None, group: str | None = None
    ) -> None:
        """Send the message to the broker it came from, or to `broker_name`; if that fails, send a copy. `group` is
        another group that should get it. BrokerError, ClientError, RemotingError; MessageIllegal for a group that
        cannot.
        """
        group = self._group if group is None else self._namespace.wrap(group)
        check_consumer_group(group)
        broker_name = broker_name or message.broker_name
        header = ConsumerSendMsgBackHeader(
            offset=message.commit_log_offset,
            group=group,
            delay_level=delay_level,
            origin_msg_id=message.msg_id,
            origin_topic=self._namespace.wrap(message.topic),
            max_reconsume_times=self._reconsume_times_max,
            unit_mode=self._instance.settings["unit_mode"],
            broker_name=broker_name,
        )
        try:
            address = await self._address(message, broker_name)
            await sends.send_back(self._instance.remoting, address, header)
        except OrbitMQError as error:
            _log.warning("event=send_back_refused group=%s message=%s error=%s", self._group, message.msg_id, error)
            await self.send_copy(message, group)

    async def _address(self, message: MessageExt, broker_name: str) -> str:
        """The master of the broker; for a message that was found by its id only its address is known."""
        if not broker_name:
            return message.store_host
        queue = MessageQueue(self._namespace.wrap(message.topic), broker_name, message.queue_id)
        return await self._instance.routes.master(queue)

    async def send_copy(self, message: MessageExt, group: str | None = None) -> None:
        """Send a copy, which holds the number of failures, to the group's retry topic on any broker. A message without
        room for the delay property becomes a dead letter.
        """
        instance, group = self._instance, group or self._group
        refusal: OrbitMQError | None = None
        for copy in retry_copies(message, group, self._reconsume_times_max, self._namespace):
            try:
                packed = outgoing(copy, lambda: instance.unique_ids.create(instance.clock.now_ms()), PACKING)
                await self._sender.send(packed, RULES)
            except MessageIllegal as error:
                refusal = error
            except BrokerError as error:
                if error.code != ResponseCode.MESSAGE_ILLEGAL:
                    raise
                refusal = error
            else:
                if refusal is not None:
                    text = "event=send_back_shortened group=%s message=%s properties=%s because=%s"
                    _log.warning(text, group, message.msg_id, sorted(copy.properties), refusal)
                return
        assert refusal is not None, "there is a copy"
        raise refusal
