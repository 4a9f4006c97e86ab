"""The pull consumer for asyncio: pulls any queue from any offset. The application does the rest."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from typing import Unpack

from orbitmq.client.consumer import Consumer
from orbitmq.client.core.allocation import AllocateStrategy
from orbitmq.client.core.arguments import checks_arguments
from orbitmq.client.core.model import PullResult
from orbitmq.client.core.selectors import Selector, subscription_of
from orbitmq.client.instance import Instance
from orbitmq.client.offset_store import OffsetStore
from orbitmq.client.puller import Puller
from orbitmq.client.queue_listeners import QueueListener
from orbitmq.client.retry_sender import RetrySender
from orbitmq.client.settings import PullSettings, complete
from orbitmq.client.topic_read import Place, TopicRead
from orbitmq.errors import ConfigurationError
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.wire.bodies import ConsumeFromWhere, ConsumeType, MessageModel


class PullConsumer(Consumer):
    """Pulls a queue on request, from any offset. Nothing is prefetched and nothing is retried.

        async with PullConsumer("group", "127.0.0.1:9876") as consumer:
            for queue in await consumer.fetch_queues("topic"):
                offset = max(0, await consumer.fetch_offset(queue))
                result = await consumer.pull(queue, "*", offset, 32)
                ...
                consumer.update_offset(queue, result.next_begin_offset)

    `read_all` reads a whole topic. Topics that you pass to `register_topic` are shared with the other members of the
    group; `fetch_balanced_queues` returns the queues of this member. Further keywords are `PullSettings`. For most
    applications `LitePullConsumer` is the better choice.
    """

    _consume_type = ConsumeType.CONSUME_ACTIVELY
    _settings_kind = PullSettings
    _stream = True

    @checks_arguments
    def __init__(
        self,
        group: str,
        namesrv_addr: str | Iterable[str] | None = None,
        *,
        message_model: MessageModel = MessageModel.CLUSTERING,
        allocate_strategy: AllocateStrategy | None = None,
        offset_store: OffsetStore | None = None,
        **settings: Unpack[PullSettings],
    ) -> None:
        self._settings = complete(PullSettings, settings)
        super().__init__(
            group,
            namesrv_addr,
            self._settings,
            message_model=message_model,
            consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            allocate_strategy=allocate_strategy,
            offset_store=offset_store,
        )
        self._puller: Puller | None = None
        self._sends_back: RetrySender | None = None

    # ------------------------------------------------------------------------------------------------------- messages

    @checks_arguments
    async def pull(
        self,
        queue: MessageQueue,
        expression: Selector,
        offset: int,
        max_num: int,
        *,
        block: bool = False,
        timeout: float | None = None,
    ) -> PullResult:
        """Up to `max_num` messages of `queue` from `offset` on that match `expression` (as for a push consumer).

        The broker responds at once; with `block` it holds the pull up to `broker_suspend_max_ms` until there are
        messages. `timeout` is in seconds; the default is `consumer_pull_timeout_ms`, with `block` `pull_timeout_ms`.
        ConfigurationError when `offset` or `max_num` is out of range, BrokerError, ClientError, RemotingError when the
        pull failed.
        """
        self._check_running()
        if offset < 0 or max_num < 1:
            raise ConfigurationError(f"offset {offset} and max_num {max_num} are not allowed; use at least 0 and 1")
        assert self._puller is not None, "start makes the puller"
        queue = self._namespace.wrap_queue(queue)
        subscription = subscription_of(queue.topic, expression)
        usual_ms = self._settings["pull_timeout_ms" if block else "consumer_pull_timeout_ms"]
        timeout_ms = usual_ms if timeout is None else timeout * 1000
        result = await self._puller.pull(queue, offset, max_num, subscription, may_wait=block, timeout_ms=timeout_ms)
        self._show_hooks(queue, result.messages)
        return result

    @checks_arguments
    def read_all(
        self, topic: str, expression: Selector = "*", *, start: Place | None = None, until: Place | None = None
    ) -> TopicRead:
        """All messages of all queues of `topic` that match `expression`, from `start` (default: the first that can be
        read) up to `until` (not included; default, and at most: the ends of the queues when the reading begins).
        Iterate over it with `async for`, or await its `to_arrow()`.

        A place is a datetime with a time zone, which stands for the first message stored at or after it, or offsets;
        queues that are not among them have the default. The messages of a queue come in its order, those of several
        mixed; at most 16 pulls are held in memory. No offset of the group is read or changed.

        ConfigurationError for a time without a zone.
        """
        return TopicRead(self, topic, expression, start, until)

    @checks_arguments
    async def send_message_back(
        self, message: MessageExt, delay_level: int = 0, broker_name: str | None = None, group: str | None = None
    ) -> None:
        """Send `message` back for retry by `group` (default: the consumer's group), as `PushConsumer.send_message_back`
        does. BrokerError, ClientError, RemotingError.
        """
        self._check_running()
        assert self._sends_back is not None, "start makes it"
        await self._sends_back.send_back(message, delay_level, broker_name, group)

    # --------------------------------------------------------------------------------------------------------- queues

    @checks_arguments
    def register_topic(self, topic: str, listener: QueueListener | None = None) -> None:
        """Share the queues of `topic` with the group; before or after start. `listener(topic, queues, own)` is called
        for every change of the assignment, with all queues of the topic and those of this consumer, under the rules of
        `on_assigned`.
        """
        self._listen_to_queues(topic, listener)
        # The highest version wins where members differ; this member must not, it sends the expression with each pull.
        self._subscribe(topic, "*", version=0)

    @checks_arguments
    def fetch_balanced_queues(self, topic: str) -> list[MessageQueue]:
        """The queues of a registered topic that are assigned to this consumer now."""
        return sorted(queue for queue in self.assignment() if queue.topic == topic)

    # -------------------------------------------------------------------------------------------------------- offsets

    @checks_arguments
    def update_offset(self, queue: MessageQueue, offset: int) -> None:
        """Set the offset of the group in `queue`, the next one to consume; it is stored at the next interval and by
        shutdown. InvalidStateError before start.
        """
        self._check_running()
        self._offsets.table.set(self._namespace.wrap_queue(queue), offset)

    @checks_arguments
    async def fetch_offset(self, queue: MessageQueue, from_store: bool = False) -> int:
        """The offset of the group in `queue`, -1 when it has none: the one in memory, else (or always, with
        `from_store`) the stored one. BrokerError, ClientError, RemotingError.
        """
        self._check_running()
        queue = self._namespace.wrap_queue(queue)
        known = -1 if from_store else self._offsets.table.read(queue)
        return known if known >= 0 else await self._stored_offset(queue)

    async def store_offsets(self) -> None:
        """Store now the offsets that were set. BrokerError, ClientError, RemotingError when that is not confirmed;
        OSError for the offsets file of a BROADCASTING consumer.
        """
        self._check_running()
        await self._offsets.commit(self._offsets_to_store())

    def _offsets_to_store(self) -> Collection[MessageQueue]:
        """All queues whose offset the application set, held or not. The file of a BROADCASTING consumer is replaced as
        a whole, so it gets those that it had.
        """
        table = self._offsets.table
        if self._message_model is MessageModel.BROADCASTING:
            return table.queues()
        return [queue for queue in table.queues() if table.is_own(queue)]

    # ------------------------------------------------------------------------------------------------------ lifecycle

    async def _begin(self, instance: Instance) -> None:
        settings = self._settings
        self._puller = self._puller_of(
            instance,
            flags=PULL_SUBSCRIPTION | PULL_SUSPEND,
            suspend_ms=settings["broker_suspend_max_ms"],
            timeout_ms=settings["pull_timeout_ms"],
        )
        times_max = settings["max_reconsume_times"]
        self._sends_back = RetrySender(instance, self.group, times_max, namespace=self._namespace)
        await self._begin_consuming(instance)

    async def _end(self, instance: Instance) -> None:
        await self._end_services()
        await self._end_consuming(instance)


@checks_arguments
async def reset_offset_by_timestamp(
    group: str,
    topic: str,
    timestamp_ms: int,
    namesrv_addr: str | Iterable[str] | None = None,
    *,
    message_model: MessageModel = MessageModel.CLUSTERING,
    **settings: Unpack[PullSettings],
) -> dict[MessageQueue, int]:
    """Reset the offsets of `group`, in every queue of `topic`, to the first message stored at or after `timestamp_ms`
    (milliseconds since the epoch), and return them. For a BROADCASTING group they are in the file that `instance_name`
    and `local_offset_dir` name. Stop the consumers of the group before: a running one overwrites the offsets with its
    own.

    BrokerError, ClientError, RemotingError.
    """
    async with PullConsumer(group, namesrv_addr, message_model=message_model, **settings) as consumer:
        found = {
            queue: await consumer.search_offset(queue, timestamp_ms) for queue in await consumer.fetch_queues(topic)
        }
        for queue, offset in found.items():
            consumer.update_offset(queue, offset)
        await consumer.store_offsets()
        return found
