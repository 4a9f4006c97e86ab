"""Pulls messages of a queue for one consumer: chooses the broker, decodes, filters. Keeps no messages."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from orbitmq.client.core.hooks import FilterContext, FilterHook, ReceiveContext, ReceiveHook, each
from orbitmq.client.core.model import PullResult, PullStatus
from orbitmq.client.core.retry import BROKER_MISSING
from orbitmq.client.core.route import ReadAddress, read_address
from orbitmq.client.instance import Instance
from orbitmq.errors import BrokerError, ClientError, RemotingError
from orbitmq.filter.tags import wants
from orbitmq.message.config import TAG, SubscriptionData
from orbitmq.message.flags import PULL_COMMIT_OFFSET, PULL_LITE, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.message_loops import decode_messages
from orbitmq.message.model import MASTER_ID, MessageExt, MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.properties import MAX_OFFSET, MIN_OFFSET, TRAN_MSG, UNIQ_KEY
from orbitmq.operations import pulls as operations
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import PullMessageHeader

STATUSES: Mapping[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}

FOLLOW_ADVICE = -1  # as a broker id: read from the node that the broker suggests


class Puller:
    """Pulls for one group. Follows each broker's suggestion which of its nodes to read a queue from."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        flags: int,
        suspend_ms: int,
        timeout_ms: int,
        hooks: Sequence[ReceiveHook] = (),
        filters: Sequence[FilterHook] = (),
        broker_id: int = FOLLOW_ADVICE,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        """`flags` are set in every pull; a broker may hold a pull `suspend_ms` when PULL_SUSPEND is among them.

        Messages are returned without `namespace`. With a `broker_id` that node of each broker is used while it exists.
        """
        self._namespace = namespace
        self._hooks = hooks
        self._filters = filters
        self._broker_id = broker_id
        self._instance = instance
        self._group = group
        self._flags = flags
        self._suspend_ms = suspend_ms
        self._timeout_ms = timeout_ms
        self._advised: dict[MessageQueue, int] = {}

    async def pull(
        self,
        queue: MessageQueue,
        offset: int,
        count: int,
        subscription: SubscriptionData,
        commit: int = 0,
        *,
        may_wait: bool = True,
        timeout_ms: float | None = None,
    ) -> PullResult:
        """Up to `count` messages from `offset` on, without those whose tag is not subscribed.

        A `commit` above 0 is stored as the group's offset with the request. Unless it `may_wait` the broker responds at
        once. BrokerError, ClientError, RemotingError, UnitError if the response cannot be decoded.
        """
        source = await self._source(queue)
        flags = self._flags if may_wait else self._flags & ~PULL_SUSPEND
        flags |= PULL_COMMIT_OFFSET if commit > 0 and not source.is_slave else 0
        header = PullMessageHeader(
            consumer_group=self._group,
            topic=queue.topic,
            queue_id=queue.queue_id,
            queue_offset=offset,
            max_msg_nums=count,
            sys_flag=flags,
            commit_offset=commit if flags & PULL_COMMIT_OFFSET else 0,
            suspend_timeout_millis=self._suspend_ms if flags & PULL_SUSPEND else 0,
            # A broker that gets the expression of tags with the pull needs no version to find it by.
            sub_version=0 if flags & PULL_LITE and subscription.expression_type == TAG else subscription.version,
            subscription=subscription.expression if flags & PULL_SUBSCRIPTION else None,
            expression_type=subscription.expression_type,
            broker_name=queue.broker_name,
        )
        began_ms = self._instance.clock.now_ms() if self._hooks else 0
        timeout_ms = self._timeout_ms if timeout_ms is None else timeout_ms
        try:
            reply = await operations.pull(self._instance.remoting, source.address, header, timeout_ms=timeout_ms)
        except (BrokerError, RemotingError) as error:
            self._instance.doubt(queue.broker_name, error)
            # Leave a slave that does not respond or does not know the topic yet; the master suggests a broker.
            self._advised.pop(queue, None)
            raise
        self._advised[queue] = reply.suggested_broker_id
        messages = _messages(reply, queue, subscription)
        if self._namespace:
            for message in messages:
                message.topic = self._namespace.unwrap(message.topic)
        if self._filters and messages:
            found = FilterContext(self._group, queue, messages)
            each(self._filters, lambda hook, seen: hook(seen), found)
        if self._hooks and messages:
            cost_ms = self._instance.clock.now_ms() - began_ms
            context = ReceiveContext(self._group, queue, messages, began_ms, cost_ms)
            each(self._hooks, lambda hook, seen: hook(seen), context)
        return PullResult(STATUSES[reply.code], reply.next_begin_offset, reply.min_offset, reply.max_offset, messages)

    async def _source(self, queue: MessageQueue) -> ReadAddress:
        broker_id = self._advised.get(queue, MASTER_ID) if self._broker_id == FOLLOW_ADVICE else self._broker_id
        source = read_address(self._instance.routes.addresses(queue.broker_name), broker_id)
        if source is None:
            await self._instance.routes.refresh(queue.topic)
            source = read_address(self._instance.routes.addresses(queue.broker_name), broker_id)
        if source is None:
            raise ClientError(
                BROKER_MISSING, f"broker {queue.broker_name} has no address in the route of {queue.topic}"
            )
        return source


def _messages(reply: operations.PullReply, queue: MessageQueue, subscription: SubscriptionData) -> list[MessageExt]:
    messages: list[MessageExt] = []
    limits = {MIN_OFFSET: str(reply.min_offset), MAX_OFFSET: str(reply.max_offset)}
    for message in decode_messages(reply.body, queue.broker_name):
        properties = message.properties
        if subscription.tags and not wants(subscription, message.tags):
            continue
        properties.update(limits)
        if properties.get(TRAN_MSG) == "true":
            message.transaction_id = properties.get(UNIQ_KEY)
        messages.append(message)
    return messages
