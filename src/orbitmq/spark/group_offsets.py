"""Offsets that brokers keep for a consumer group: where a read may begin, and where a stream tells how far it is.

The group is never joined, so that no consumer loses a queue to a stream. Must not know Spark.
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
from orbitmq.spark.cluster_client import Addresses, BrokerAddresses, ClusterClient, call_all, succeeded
from orbitmq.wire.bodies import (
    ConsumeFromWhere,
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
    """Where the group stands in those queues for which its brokers know."""
    found: dict[MessageQueue, int] = {}
    for name, on_broker in by_broker(queues).items():
        found |= cluster.ask_broker(name, queues[on_broker[0]], partial(_query, group, on_broker))
    return found


def _query(group: str, queues: list[MessageQueue], channel: Channel) -> dict[MessageQueue, int]:
    code = RequestCode.QUERY_CONSUMER_OFFSET
    asked = [request(code, QueryConsumerOffsetHeader(group, queue.topic, queue.queue_id)) for queue in queues]
    answers = zip(queues, call_all(channel, asked), strict=True)
    return {
        queue: succeeded(str(queue), answer).header(QueryConsumerOffsetResponseHeader).offset
        for queue, answer in answers
        if answer.code != ResponseCode.QUERY_NOT_FOUND
    }


def running_consumers(cluster: ClusterClient, group: str, places: Mapping[MessageQueue, BrokerAddresses]) -> list[str]:
    """The consumers of the group that are connected to the brokers of these queues."""
    found: set[str] = set()
    for name, queues in by_broker(places).items():
        found |= set(cluster.ask_broker(name, places[queues[0]].addresses[:1], partial(_running, group)))
    return sorted(found)


def _running(group: str, channel: Channel) -> list[str]:
    (answer,) = channel.call(request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupHeader(group)))
    if answer.code != ResponseCode.SUCCESS:  # what a broker says of a group that nobody is in
        return []
    return list(decode(ConsumerIdList, answer.body).consumer_id_list)


class OffsetReporter:
    """Tells the brokers of a stream's queues how far it is. What cannot be told is logged; the stream goes on."""

    def __init__(self, cluster: ClusterClient, group: str) -> None:
        self._cluster = cluster.hurried()  # a broker that is down is told the next time
        self._group = group
        self._told: dict[MessageQueue, int] = {}
        self._enrolled: set[str] = set()

    def tell(self, offsets: Mapping[MessageQueue, int], places: Mapping[MessageQueue, BrokerAddresses]) -> None:
        """The offsets up to which everything is processed.

        SourceError when consumers of the group are running, whose offsets these would overwrite.
        """
        changed = {queue: at for queue, at in offsets.items() if queue in places and self._told.get(queue) != at}
        for name, queues in by_broker(changed).items():
            try:
                self._cluster.ask_broker(
                    name, places[queues[0]].addresses[:1], partial(self._tell_broker, name, queues, changed)
                )
            except SourceError as error:
                if error.name == "ORBITMQ_BAD_OPTION":
                    raise
                LOG.warning("event=group_offsets_not_told group=%s broker=%s error=%s", self._group, name, error)

    def _tell_broker(
        self, name: str, queues: list[MessageQueue], offsets: Mapping[MessageQueue, int], channel: Channel
    ) -> None:
        if name not in self._enrolled:
            self._enroll(sorted({queue.topic for queue in queues}), channel)
            self._enrolled.add(name)
        # A RocketMQ broker forgets one of two first offsets of a topic that come at the same time: one goes ahead.
        known = {queue.topic for queue in self._told if queue.broker_name == name}
        ahead = list({queue.topic: queue for queue in queues if queue.topic not in known}.values())
        for portion in (ahead, [queue for queue in queues if queue not in ahead]):
            self._tell_all(portion, offsets, channel)

    def _tell_all(self, queues: list[MessageQueue], offsets: Mapping[MessageQueue, int], channel: Channel) -> None:
        code = RequestCode.UPDATE_CONSUMER_OFFSET
        told = [
            request(code, UpdateConsumerOffsetHeader(self._group, queue.topic, queue.queue_id, offsets[queue]))
            for queue in queues
        ]
        for queue, answer in zip(queues, call_all(channel, told), strict=True):
            succeeded(str(queue), answer)
            self._told[queue] = offsets[queue]

    def _enroll(self, topics: list[str], channel: Channel) -> None:
        """Make the broker know the group as if a consumer had been there once: tools look for its retry topic."""
        if running := _running(self._group, channel):
            raise SourceError(
                "ORBITMQ_BAD_OPTION",
                f"option commitOffsets: group {self._group} has {len(running)} running consumers, {running[0]} among "
                "them, whose offsets would be overwritten; give a groupId of the stream's own",
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
        for asked in (heartbeat, goodbye):
            (answer,) = channel.call(asked)
            succeeded(f"group {self._group}", answer)
