"""Sends failed messages back for retry: to the broker they came from, else as a copy to the retry topic."""

from __future__ import annotations

import logging
import sys
from collections.abc import Iterable

from orbitmq.client.core.consume import dead_copies, retry_copies
from orbitmq.client.core.outgoing_message import Packing, outgoing
from orbitmq.client.core.retry import RetryRules
from orbitmq.client.core.selection import QueueChooser
from orbitmq.client.instance import Instance
from orbitmq.client.sender import MessageSender
from orbitmq.errors import BrokerError, MessageIllegal, OrbitMQError
from orbitmq.message.model import Message, MessageExt, MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.topics import CLIENT_INNER_PRODUCER_GROUP, check_consumer_group
from orbitmq.operations import sends
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import ConsumerSendMsgBackHeader

_log = logging.getLogger(__name__)

RULES = RetryRules(3, 3000)  # attempts and milliseconds of a copy
TIMES_MAX = 2**31 - 1  # the largest number of the header
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
        # Brokers create retry topics with one queue, so that a copy for a topic that has no route yet goes to that one.
        choosing = QueueChooser(instance.chance)
        self._sender = MessageSender(instance, CLIENT_INNER_PRODUCER_GROUP, choosing, template_queues=1)

    async def send_back(
        self,
        message: MessageExt,
        delay_level: int,
        broker_name: str | None = None,
        group: str | None = None,
        *,
        counts: bool = True,
    ) -> None:
        """Send the message to the broker it came from, or to `broker_name`; if that fails, send a copy. `group` is
        another group that should get it. Unless it `counts`, no dead letter is made of it now. BrokerError,
        ClientError, RemotingError; MessageIllegal for a group that cannot.
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
            max_reconsume_times=self._reconsume_times_max if counts else TIMES_MAX,
            unit_mode=self._instance.settings["unit_mode"],
            broker_name=broker_name,
        )
        try:
            address = await self._address(message, broker_name)
            await sends.send_back(self._instance.remoting, address, header)
        except OrbitMQError as error:
            _log.warning("event=send_back_refused group=%s message=%s error=%s", self._group, message.msg_id, error)
            await self.send_copy(message, group, counts=counts)

    async def _address(self, message: MessageExt, broker_name: str) -> str:
        """The master of the broker; for a message that was found by its id only its address is known."""
        if not broker_name:
            return message.store_host
        queue = MessageQueue(self._namespace.wrap(message.topic), broker_name, message.queue_id)
        return await self._instance.routes.master(queue)

    async def send_copy(self, message: MessageExt, group: str | None = None, *, counts: bool = True) -> None:
        """Send a copy, which holds the number of failures, to the group's retry topic on any broker. A message without
        room for the delay property becomes a dead letter.
        """
        group = group or self._group
        times_max = self._reconsume_times_max if counts else TIMES_MAX
        copies = retry_copies(message, group, times_max, self._namespace)
        await self._send_first(copies, message, group)

    async def make_dead_letter(self, message: MessageExt, reason: str) -> None:
        """Make a dead letter of the message. With a reason a copy is sent, because a broker that takes a message back
        cannot be given any. BrokerError, ClientError, RemotingError; MessageIllegal for a group without dead letters.
        """
        if not reason:
            await self.send_back(message, -1)
            return
        check_consumer_group(self._group)
        await self._send_first(dead_copies(message, self._group, reason, self._namespace), message, self._group)
        text = "event=message_rejected group=%s message=%s reason=%.300s"
        _log.warning(text, self._group, message.msg_id, reason)

    async def _send_first(self, copies: Iterable[Message], message: MessageExt, group: str) -> None:
        """Send the first of these copies whose properties fit."""
        instance = self._instance
        refusal: OrbitMQError | None = None
        for copy in copies:
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
