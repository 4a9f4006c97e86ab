"""What brokers deliver to a group by POP, asked for with one instance: receive, acknowledge, change, reject.

The group needs no member for it: what is in flight is known to the brokers. Knows no subscriptions.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Sequence
from typing import Final, NamedTuple

from orbitmq.client.core.retry import BROKER_MISSING
from orbitmq.client.expired import ExpiredMessages
from orbitmq.client.instance import Instance
from orbitmq.client.retry_sender import RetrySender
from orbitmq.errors import BrokerError, ClientError, MessageIllegal, OrbitMQError, RemotingError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.expiry import split_expired
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.message.namespace import NO_NAMESPACE, Namespace
from orbitmq.message.pop import POP_CK, RETRY, Receipt, pop_retry_topic
from orbitmq.operations import pops, sends
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.headers import ConsumerSendMsgBackHeader
from orbitmq.wire.headers_pop import AckMessageHeader, ChangeInvisibleTimeHeader, NotificationHeader, PopMessageHeader

_log = logging.getLogger(__name__)

ALL_QUEUES: Final = -1
NETWORK_MS: Final = 5000  # beyond what a broker may wait
WAIT_MAX_MS: Final = 4000  # of one request: RocketMQ does not wake one that waits when a message is redelivered
FROM_FIRST, FROM_LAST = 0, 1
"""Where a group begins that has no offsets yet."""


class Source(NamedTuple):
    """All queues of a topic at one broker."""

    subscription: SubscriptionData
    broker_name: str


class Deliveries:
    """Of one group. `timeout_ms` is the time for each request that does not wait for messages."""

    def __init__(
        self,
        instance: Instance,
        group: str,
        *,
        begin: int = FROM_FIRST,
        timeout_ms: int = 3000,
        reconsume_times_max: int = 16,
        namespace: Namespace = NO_NAMESPACE,
    ) -> None:
        self._instance = instance
        self._group = group
        self._begin = begin
        self._timeout_ms = timeout_ms
        self._reconsume_times_max = reconsume_times_max
        self._namespace = namespace
        self._sends_back = RetrySender(instance, group, reconsume_times_max, namespace=namespace)
        self._given_back: set[asyncio.Task[None]] = set()
        self.expired = ExpiredMessages(group, instance.clock)

    async def sources(self, subscription: SubscriptionData) -> list[Source]:
        """A topic at its brokers. ClientError when it does not exist."""
        routes, topic = self._instance.routes, subscription.topic
        queues = routes.subscribed(topic) or await routes.find_subscribed(topic)
        return [Source(subscription, name) for name in sorted({queue.broker_name for queue in queues})]

    async def receive(
        self,
        sources: Callable[[], Awaitable[Sequence[Source]]],
        most: int,
        invisible_ms: int,
        timeout: float,
    ) -> tuple[list[MessageExt], Source | None]:
        """Up to `most` messages and where they are from; no messages when there were none within `timeout` seconds.

        `sources` are looked up again for each try. A call that is cancelled has received nothing. BrokerError,
        ClientError, RemotingError when no broker can be asked.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout
        while True:
            present = await sources()
            failures: list[OrbitMQError] = []
            for source in present:
                try:
                    if found := await self._pop(source, most, invisible_ms):
                        return found, source
                except (RemotingError, ClientError) as error:
                    if isinstance(error, ClientError) and error.code != BROKER_MISSING:
                        raise
                    failures.append(error)
            if len(failures) == len(present):
                raise failures[0]
            left_ms = min(WAIT_MAX_MS, round((deadline - loop.time()) * 1000))
            if left_ms <= 0:
                return [], None
            await self.any_messages(present, left_ms)

    async def _pop(self, source: Source, most: int, invisible_ms: int) -> list[MessageExt]:
        """If it is cancelled, what was delivered meanwhile is given back."""
        task = asyncio.get_running_loop().create_task(self._popped(source, most, invisible_ms))
        try:
            return await asyncio.shield(task)
        except asyncio.CancelledError:
            giving = asyncio.get_running_loop().create_task(self._give_back(task))
            self._given_back.add(giving)
            giving.add_done_callback(self._given_back.discard)
            raise

    async def _give_back(self, receiving: asyncio.Task[list[MessageExt]]) -> None:
        try:
            await self.give_back(await receiving)
        except OrbitMQError as error:  # nothing was delivered
            _log.debug("event=receive_given_up group=%s error=%s", self._group, error)

    async def finish(self) -> None:
        """Wait until what was delivered to cancelled calls is given back, but not longer than a request may take."""
        if self._given_back:
            await asyncio.wait(self._given_back, timeout=self._timeout_ms / 1000)

    async def give_back(self, messages: Sequence[MessageExt]) -> None:
        """Have messages of a cancelled receive redelivered at once; at the latest after their time."""
        for message in messages:
            try:
                await self.change_invisible(message, 0)
            except OrbitMQError as error:
                _log.info("event=not_given_back group=%s message=%s error=%s", self._group, message.msg_id, error)

    async def _popped(self, source: Source, most: int, invisible_ms: int) -> list[MessageExt]:
        subscription, broker_name = source
        instance = self._instance
        header = PopMessageHeader(
            consumer_group=self._group,
            topic=subscription.topic,
            queue_id=ALL_QUEUES,
            max_msg_nums=most,
            invisible_time=invisible_ms,
            poll_time=0,
            born_time=instance.clock.now_ms(),
            init_mode=self._begin,
            expression_type=subscription.expression_type,
            expression=subscription.expression,
            order=False,
            broker_name=broker_name,
        )
        address = await instance.routes.master(MessageQueue(subscription.topic, broker_name, 0))
        try:
            messages = await pops.pop(instance.remoting, address, header, broker_name)
        except BrokerError as error:
            if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                raise ClientError(
                    error.code, f"broker {broker_name} does not deliver by POP: it is older than RocketMQ 5"
                ) from error
            raise
        for message in messages:
            message.topic = self._namespace.unwrap(message.topic)
        fresh, expired = split_expired(messages, instance.clock.now_ms())
        if expired:
            self.expired.skipped(expired)
            for message in expired:
                await self._forget(message)
        kept = []
        for message in fresh:
            if message.reconsume_times > self._reconsume_times_max:
                await self._bury(message)
            else:
                kept.append(message)
        return kept

    async def _forget(self, message: MessageExt) -> None:
        """Acknowledge a message that has expired; once more if that fails."""
        try:
            await self.ack(message)
        except OrbitMQError as error:  # the others of the response were delivered all the same
            _log.info("event=expired_not_acknowledged group=%s message=%s error=%s", self._group, message.msg_id, error)

    async def _bury(self, message: MessageExt) -> None:
        """Make a dead letter of a message that was redelivered too often; once more if that fails."""
        try:
            await self.reject(message)
        except OrbitMQError as error:
            _log.warning("event=dead_letter_failed group=%s message=%s error=%s", self._group, message.msg_id, error)

    async def any_messages(self, sources: Sequence[Source], wait_ms: int) -> None:
        """Return when a broker has messages, or the time is up. The last error if no broker can be asked."""
        asked = [asyncio.ensure_future(self._wait_at(source, wait_ms)) for source in sources]
        left = set(asked)
        failure: BaseException | None = None
        try:
            while left:
                done, left = await asyncio.wait(left, return_when=asyncio.FIRST_COMPLETED)
                for one in done:
                    failure = one.exception() or failure
                if any(one.exception() is None and one.result() for one in done):
                    return
            if failure is not None and all(one.exception() is not None for one in asked):
                raise failure
        finally:
            for one in asked:
                one.cancel()
            await asyncio.gather(*asked, return_exceptions=True)

    async def _wait_at(self, source: Source, wait_ms: int) -> bool:
        instance, topic = self._instance, source.subscription.topic
        header = NotificationHeader(
            self._group, topic, ALL_QUEUES, wait_ms, instance.clock.now_ms(), broker_name=source.broker_name
        )
        address = await instance.routes.master(MessageQueue(topic, source.broker_name, 0))
        return await pops.wait_for_messages(instance.remoting, address, header, timeout_ms=wait_ms + NETWORK_MS)

    async def ack(self, message: MessageExt) -> None:
        """Acknowledge a message. MessageIllegal if it was not received; BrokerError, ClientError, RemotingError."""
        topic, receipt, address = await self._place(message)
        header = AckMessageHeader(
            self._group, topic, receipt.queue_id, receipt.encode(), receipt.offset, broker_name=receipt.broker_name
        )
        await pops.acknowledge(self._instance.remoting, address, header, timeout_ms=self._timeout_ms)

    async def change_invisible(self, message: MessageExt, invisible_ms: int) -> None:
        """Have a message redelivered after this time; its receipt is renewed. Errors as of `ack`."""
        topic, receipt, address = await self._place(message)
        header = ChangeInvisibleTimeHeader(
            self._group, topic, receipt.queue_id, receipt.encode(), receipt.offset, invisible_ms,
            broker_name=receipt.broker_name,
        )  # fmt: skip
        answer = await pops.change_invisible_time(self._instance.remoting, address, header, timeout_ms=self._timeout_ms)
        renewed = receipt._replace(
            start=receipt.offset,
            pop_ms=answer.pop_time,
            invisible_ms=answer.invisible_time,
            revive_queue=answer.revive_qid,
        )
        message.properties[POP_CK] = renewed.encode()

    async def reject(self, message: MessageExt) -> None:
        """Make a dead letter of a message, then acknowledge it. Errors as of `ack`."""
        await self._sends_back.send_back(message, -1)
        await self.ack(message)

    async def reject_stored(self, message: MessageExt) -> None:
        """`reject` by the places in a message's receipt and in the log alone, without its body: no copy is sent if its
        broker does not respond.
        """
        _, receipt, address = await self._place(message)
        header = ConsumerSendMsgBackHeader(
            offset=message.commit_log_offset,
            group=self._group,
            delay_level=-1,
            origin_msg_id=message.msg_id,
            origin_topic=self._namespace.wrap(message.topic),
            max_reconsume_times=self._reconsume_times_max,
            broker_name=receipt.broker_name,
        )
        await sends.send_back(self._instance.remoting, address, header, timeout_ms=self._timeout_ms)
        await self.ack(message)

    async def _place(self, message: MessageExt) -> tuple[str, Receipt, str]:
        """Topic, receipt and broker of a message that was received."""
        try:
            receipt = Receipt.decode(message.properties.get(POP_CK, ""))
        except MessageIllegal as error:
            raise MessageIllegal(f"message {message.msg_id} was not received by a SimpleConsumer: {error}") from error
        topic = self._namespace.wrap(message.topic)
        address = await self._instance.routes.master(MessageQueue(topic, receipt.broker_name, 0))
        return pop_retry_topic(topic, self._group) if receipt.kind == RETRY else topic, receipt, address
