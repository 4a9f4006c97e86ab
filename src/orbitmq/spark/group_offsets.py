"""Committed offsets of a consumer group: a read may start at them, and a stream reports its progress with them.

The group is never joined, so that no consumer loses a queue to a stream. Knows no Spark.
"""

from __future__ import annotations

import logging
from collections import defaultdict
from collections.abc import Iterable, Mapping
from functools import partial

from orbitmq.errors import SourceError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageQueue
from orbitmq.spark.channel import Channel
from orbitmq.spark.cluster_client import NO_RETRIES, Addresses, BrokerAddresses, ClusterClient, succeeded
from orbitmq.spark.fetch import queue_name
from orbitmq.wire.bodies import (
    ConsumeFromWhere,
    ConsumerConnection,
    ConsumerData,
    ConsumerIdList,
    ConsumeType,
    HeartbeatData,
    MessageModel,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import request
from orbitmq.wire.headers import (
    GetConsumerListByGroupHeader,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    UnregisterClientHeader,
    UpdateConsumerOffsetHeader,
)
from orbitmq.wire.headers_admin import GetConsumerConnectionListHeader
from orbitmq.wire.objects import decode, encode
from orbitmq.wire.requests import RequestCode

LOG = logging.getLogger(__name__)


def by_broker(queues: Iterable[MessageQueue]) -> dict[str, list[MessageQueue]]:
    """The queues of each broker."""
    brokers: dict[str, list[MessageQueue]] = defaultdict(list)
    for queue in queues:
        brokers[queue.broker_name].append(queue)
    return brokers


def stored_offsets(
    cluster: ClusterClient, group: str, queues: Mapping[MessageQueue, Addresses]
) -> dict[MessageQueue, int]:
    """The committed offsets of the group, for those queues that have one."""
    found: dict[MessageQueue, int] = {}
    for name, on_broker in by_broker(queues).items():
        found |= cluster.call_broker(name, queues[on_broker[0]], partial(_query, group, on_broker))
    return found


def _query(group: str, queues: list[MessageQueue], channel: Channel) -> dict[MessageQueue, int]:
    code = RequestCode.QUERY_CONSUMER_OFFSET
    requests = [request(code, QueryConsumerOffsetHeader(group, queue.topic, queue.queue_id)) for queue in queues]
    responses = zip(queues, channel.call(*requests), strict=True)
    return {
        queue: succeeded(queue_name(queue), response).header(QueryConsumerOffsetResponseHeader).offset
        for queue, response in responses
        if response.code != ResponseCode.QUERY_NOT_FOUND
    }


def running_consumers(cluster: ClusterClient, group: str, places: Mapping[MessageQueue, BrokerAddresses]) -> list[str]:
    """The ids of the group's consumers that are connected to the brokers of these queues."""
    found: set[str] = set()
    for name, queues in by_broker(places).items():
        found |= set(cluster.call_broker(name, places[queues[0]].addresses[:1], partial(_running, group)))
    return sorted(found)


def connected(
    cluster: ClusterClient, group: str, places: Mapping[MessageQueue, BrokerAddresses]
) -> list[ConsumerConnection]:
    """What the brokers of these queues know of the group's consumers; empty if none is connected."""
    found: list[ConsumerConnection] = []
    for name, queues in by_broker(places).items():
        found += cluster.call_broker(name, places[queues[0]].addresses, partial(_connected, group))
    return found


def _connected(group: str, channel: Channel) -> list[ConsumerConnection]:
    (response,) = channel.call(
        request(RequestCode.GET_CONSUMER_CONNECTION_LIST, GetConsumerConnectionListHeader(group))
    )
    if response.code == ResponseCode.CONSUMER_NOT_ONLINE:
        return []
    return [decode(ConsumerConnection, succeeded(f"consumers of {group}", response).body)]


def _running(group: str, channel: Channel) -> list[str]:
    (response,) = channel.call(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupHeader(group)))
    if response.code != ResponseCode.SUCCESS:  # the response for a group without consumers
        return []
    return list(decode(ConsumerIdList, response.body).consumer_id_list)


class OffsetReporter:
    """Commits the progress of a stream to the brokers of its queues. Failures are logged and do not stop the stream.

    `option` and `remedy` are for the error when consumers of the group are running.
    """

    def __init__(
        self,
        cluster: ClusterClient,
        group: str,
        option: str = "commitOffsets",
        remedy: str = "use a groupId for this stream only",
    ) -> None:
        self._cluster = cluster.brief(retries=NO_RETRIES)  # a broker that is down gets the offsets next time
        self._group = group
        self._option = option
        self._remedy = remedy
        self._reported: dict[MessageQueue, int] = {}
        self._enrolled: set[str] = set()

    def report(self, offsets: Mapping[MessageQueue, int], places: Mapping[MessageQueue, BrokerAddresses]) -> None:
        """Commit the offsets up to which everything is processed.

        SourceError when consumers of the group are running, whose offsets these would overwrite.
        """
        changed = {queue: at for queue, at in offsets.items() if queue in places and self._reported.get(queue) != at}
        for name, queues in by_broker(changed).items():
            try:
                self._cluster.call_broker(
                    name, places[queues[0]].addresses[:1], partial(self._report_to_broker, name, queues, changed)
                )
            except SourceError as error:
                if error.name == "ORBITMQ_BAD_OPTION":
                    raise
                LOG.warning("event=group_offsets_not_told group=%s broker=%s error=%s", self._group, name, error)

    def _report_to_broker(
        self, name: str, queues: list[MessageQueue], offsets: Mapping[MessageQueue, int], channel: Channel
    ) -> None:
        if name not in self._enrolled:
            self._enroll(sorted({queue.topic for queue in queues}), channel)
            self._enrolled.add(name)
        # A RocketMQ broker loses one of two concurrent first offsets of a topic, so one is sent first.
        known = {queue.topic for queue in self._reported if queue.broker_name == name}
        ahead = set({queue.topic: queue for queue in queues if queue.topic not in known}.values())
        for portion in (sorted(ahead), [queue for queue in queues if queue not in ahead]):
            self._commit(portion, offsets, channel)

    def _commit(self, queues: list[MessageQueue], offsets: Mapping[MessageQueue, int], channel: Channel) -> None:
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        requests = [
            request(code, UpdateConsumerOffsetHeader(self._group, queue.topic, queue.queue_id, offsets[queue]))
            for queue in queues
        ]
        for queue, response in zip(queues, channel.call(*requests), strict=True):
            succeeded(queue_name(queue), response)
            self._reported[queue] = offsets[queue]

    def _enroll(self, topics: list[str], channel: Channel) -> None:
        """Register the group like a consumer would: tools look for its retry topic."""
        if running := _running(self._group, channel):
            raise SourceError(
                "ORBITMQ_BAD_OPTION",
                f"option {self._option}: group {self._group} has running consumers: {len(running)}, such as "
                f"{running[0]}, whose offsets would be overwritten; {self._remedy}",
            )
        client = f"{self._group}@spark"
        consumer = ConsumerData(
            self._group,
            ConsumeType.CONSUME_ACTIVELY,
            MessageModel.CLUSTERING,
            ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            [SubscriptionData(topic) for topic in topics],
        )
        heartbeat = request(RequestCode.HEART_BEAT, body=encode(HeartbeatData(client, [consumer])))
        goodbye = request(RequestCode.UNREGISTER_CLIENT, UnregisterClientHeader(client, None, self._group))
        for each in (heartbeat, goodbye):
            (response,) = channel.call(each)
            succeeded(f"group {self._group}", response)
