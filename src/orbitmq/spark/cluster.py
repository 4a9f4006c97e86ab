"""What the planning of a read asks the cluster: where a topic's queues are, which offsets they have, and which
offset a point in time is. Blocking; must not know Spark."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TypeVar

from orbitmq.errors import SourceError
from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.message.flags import PERM_READ
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import store_timestamp_of
from orbitmq.spark.channel import PLAIN, Channel, Protection
from orbitmq.spark.fetch import GAPS, refused
from orbitmq.spark.pulls import BROKEN, pull_request
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.codes import RequestCode, ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
)
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import decode

T = TypeVar("T")
Addresses = tuple[str, ...]
LONG_AGO = -1  # time of a message that is already deleted: before any that is asked for


@dataclass(frozen=True)
class Retries:
    """How often a question is asked again when nobody answers, and the pause before."""

    count: int
    interval_ms: int
    pause: Callable[[float], None] = time.sleep


class Cluster:
    """A cluster behind its name servers."""

    def __init__(
        self, name_servers: Sequence[str], timeout_ms: int, retries: Retries, protection: Protection = PLAIN
    ) -> None:
        self._protection = protection
        self._name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms
        self._retries = retries

    def queues(self, topic: str) -> dict[MessageQueue, Addresses]:
        """The readable queues of a topic and the addresses of their brokers, masters first.

        SourceError ORBITMQ_TOPIC_NOT_FOUND when no name server knows the topic.
        """
        asked = request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic))
        (answer,) = self._asking(
            self._name_servers, lambda channel: channel.call(asked), f"topic {topic}", "ORBITMQ_NAMESERVER_UNAVAILABLE"
        )
        if answer.code != ResponseCode.SUCCESS:
            raise refused(f"topic {topic}", answer.code, answer.remark or "")
        route = decode(TopicRouteData, answer.body)
        addresses = {
            data.broker_name: tuple(address for _, address in sorted(data.addresses.items()))
            for data in route.broker_datas
        }
        return {
            MessageQueue(topic, data.broker_name, queue_id): addresses[data.broker_name]
            for data in route.queue_datas
            if data.perm & PERM_READ and addresses.get(data.broker_name)
            for queue_id in range(data.read_queues)
        }

    def bounds(self, queues: Mapping[MessageQueue, Addresses]) -> dict[MessageQueue, tuple[int, int]]:
        """The first offset that can be read and the next one to be written, of each queue."""
        brokers: dict[Addresses, list[MessageQueue]] = defaultdict(list)
        for queue, addresses in queues.items():
            brokers[addresses].append(queue)
        found: dict[MessageQueue, tuple[int, int]] = {}
        for addresses, on_broker in brokers.items():
            found |= self._asking_broker(addresses, on_broker[0], partial(_bounds, on_broker))
        return found

    def offset_at(
        self, queue: MessageQueue, addresses: Addresses, bounds: tuple[int, int], timestamp: int, group: str
    ) -> int:
        """The first offset within `bounds` whose message was stored at or after `timestamp`, else their end.

        Brokers have a request for this, but RocketMQ answers it with the nearest message, which may be an older
        one; looking at the messages themselves gives the same answer on every broker.
        """

        def search(channel: Channel) -> int:
            low, high = bounds
            return low + bisect_left(
                range(low, high), timestamp, key=lambda offset: _stored_at(channel, queue, offset, group)
            )

        return self._asking_broker(addresses, queue, search)

    def _asking_broker(self, addresses: Addresses, queue: MessageQueue, question: Callable[[Channel], T]) -> T:
        return self._asking(addresses, question, f"broker {queue.broker_name}", "ORBITMQ_BROKER_UNAVAILABLE")

    def _asking(self, addresses: Addresses, question: Callable[[Channel], T], whom: str, failure: str) -> T:
        """The answer of the first address that gives one."""
        last: Exception | None = None
        for attempt in range(1 + self._retries.count):
            if attempt:
                self._retries.pause(self._retries.interval_ms / 1000)
            for address in addresses:
                try:
                    with Channel(address, self._timeout_ms, self._protection) as channel:
                        return question(channel)
                except BROKEN as error:
                    last = error
        raise SourceError(failure, f"{whom}: {last}") from last


def _bounds(queues: Sequence[MessageQueue], channel: Channel) -> dict[MessageQueue, tuple[int, int]]:
    """Both ends of all queues of one broker, asked at once."""
    lows = [request(RequestCode.GET_MIN_OFFSET, GetMinOffsetHeader(queue.topic, queue.queue_id)) for queue in queues]
    highs = [request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(queue.topic, queue.queue_id)) for queue in queues]
    answers = channel.call(*lows, *highs)
    return {
        queue: (
            _succeeded(queue, low).header(GetMinOffsetResponseHeader).offset,
            _succeeded(queue, high).header(GetMaxOffsetResponseHeader).offset,
        )
        for queue, low, high in zip(queues, answers[: len(queues)], answers[len(queues) :], strict=True)
    }


def _stored_at(channel: Channel, queue: MessageQueue, offset: int, group: str) -> int:
    (answer,) = channel.call(pull_request(queue, offset, 1, group, SUBSCRIBE_ALL))
    return LONG_AGO if answer.code in GAPS else store_timestamp_of(_succeeded(queue, answer).body)


def _succeeded(queue: MessageQueue, answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise refused(str(queue), answer.code, answer.remark or "")
    return answer
