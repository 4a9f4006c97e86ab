"""What the planning of a read asks the cluster: where a topic's queues are, which offsets they have, and which
offset a point in time is. Blocking; must not know Spark."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from orbitmq.errors import SourceError
from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.message.flags import PERM_READ
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import store_timestamp_of
from orbitmq.spark.channel import PLAIN, Channel, Protection
from orbitmq.spark.fetch import GAPS, refused
from orbitmq.spark.pulls import BROKEN, pull_request
from orbitmq.wire.bodies import ClusterInfo, TopicList, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    PullMessageResponseHeader,
)
from orbitmq.wire.headers_namesrv import GetRouteInfoHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

T = TypeVar("T")
Addresses = tuple[str, ...]
LONG_AGO = -1  # time of a message that is already deleted: before any that is asked for
SAMPLE_SIZE = 32  # messages looked at for their size; what every broker gives at once
QUESTIONS_MAX = 500  # sent before answers are read; more might fill the buffers of both ends, and neither would go on


class BrokerAddresses(NamedTuple):
    """Where a queue lives: the addresses of its broker, the master's first."""

    addresses: Addresses
    has_master: bool


@dataclass(frozen=True)
class Retries:
    """How often a question is asked again when nobody answers, and the pause before."""

    count: int
    interval_ms: int
    pause: Callable[[float], None] = time.sleep


class ClusterClient:
    """A cluster behind its name servers."""

    def __init__(
        self, name_servers: Sequence[str], timeout_ms: int, retries: Retries, protection: Protection = PLAIN
    ) -> None:
        self._protection = protection
        self._name_servers = tuple(name_servers)
        self._timeout_ms = timeout_ms
        self._retries = retries

    def hurried(self) -> ClusterClient:
        """The same cluster, asked once only: for brokers that are known not to answer."""
        return ClusterClient(self._name_servers, self._timeout_ms, Retries(0, 0), self._protection)

    def queues(self, *topics: str) -> dict[MessageQueue, BrokerAddresses]:
        """The readable queues of topics and where they are.

        SourceError ORBITMQ_TOPIC_NOT_FOUND when no name server knows one of the topics.
        """
        found, unknown = self.look_up(topics)
        for error in unknown.values():
            raise error
        return found

    def look_up(self, topics: Iterable[str]) -> tuple[dict[MessageQueue, BrokerAddresses], dict[str, SourceError]]:
        """The readable queues of those topics that exist, and why there are none of the others."""
        names = list(topics)
        asked = [request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic)) for topic in names]
        answers = self._asking_name_server(lambda channel: call_all(channel, asked), f"topic {', '.join(names)}")
        found: dict[MessageQueue, BrokerAddresses] = {}
        unknown: dict[str, SourceError] = {}
        for topic, answer in zip(names, answers, strict=True):
            if answer.code == ResponseCode.SUCCESS:
                found |= _readable(topic, decode(TopicRouteData, answer.body))
            elif answer.code == ResponseCode.TOPIC_NOT_EXIST:
                unknown[topic] = refused(f"topic {topic}", answer.code, answer.remark or "")
            else:
                raise refused(f"topic {topic}", answer.code, answer.remark or "")
        return found, unknown

    def topics(self) -> list[str]:
        """The names of all topics."""
        asked = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        (answer,) = self._asking_name_server(lambda channel: channel.call(asked), "topics")
        return decode(TopicList, succeeded("topics", answer).body).topic_list

    def info(self) -> ClusterInfo:
        """The brokers that are registered."""
        asked = request(RequestCode.GET_BROKER_CLUSTER_INFO)
        (answer,) = self._asking_name_server(lambda channel: channel.call(asked), "brokers")
        return decode(ClusterInfo, succeeded("brokers", answer).body)

    def bounds(self, queues: Mapping[MessageQueue, Addresses]) -> dict[MessageQueue, tuple[int, int]]:
        """The first offset that can be read and the next one to be written, of each queue."""
        brokers: dict[Addresses, list[MessageQueue]] = defaultdict(list)
        for queue, addresses in queues.items():
            brokers[addresses].append(queue)
        found: dict[MessageQueue, tuple[int, int]] = {}
        for addresses, on_broker in brokers.items():
            found |= self.ask_broker(on_broker[0].broker_name, addresses, partial(_bounds, on_broker))
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

        return self.ask_broker(queue.broker_name, addresses, search)

    def sample(self, queue: MessageQueue, addresses: Addresses, offset: int, group: str) -> tuple[int, int]:
        """The number and the bytes of some messages from `offset` on; of none when they are gone."""
        asked = pull_request(queue, offset, SAMPLE_SIZE, group, SUBSCRIBE_ALL)
        (answer,) = self.ask_broker(queue.broker_name, addresses, lambda channel: channel.call(asked))
        if answer.code in GAPS:
            return 0, 0
        header = succeeded(str(queue), answer).header(PullMessageResponseHeader)
        return header.next_begin_offset - offset, len(answer.body)

    def ask_broker(self, name: str, addresses: Addresses, question: Callable[[Channel], T]) -> T:
        """What `question` finds out over a connection to the broker. SourceError ORBITMQ_BROKER_UNAVAILABLE."""
        return self._asking(addresses, question, f"broker {name}", "ORBITMQ_BROKER_UNAVAILABLE")

    def _asking_name_server(self, question: Callable[[Channel], T], what: str) -> T:
        return self._asking(self._name_servers, question, what, "ORBITMQ_NAMESERVER_UNAVAILABLE")

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


def _readable(topic: str, route: TopicRouteData) -> dict[MessageQueue, BrokerAddresses]:
    places = {
        data.broker_name: BrokerAddresses(
            tuple(address for _, address in sorted(data.addresses.items())), 0 in data.addresses
        )
        for data in route.broker_datas
        if data.addresses
    }
    return {
        MessageQueue(topic, data.broker_name, queue_id): places[data.broker_name]
        for data in route.queue_datas
        if data.perm & PERM_READ and data.broker_name in places
        for queue_id in range(data.read_queues)
    }


def call_all(channel: Channel, requests: Sequence[Command]) -> list[Command]:
    """The answers to any number of requests, in their order."""
    pieces = (requests[at : at + QUESTIONS_MAX] for at in range(0, len(requests), QUESTIONS_MAX))
    return [answer for piece in pieces for answer in channel.call(*piece)]


def _bounds(queues: Sequence[MessageQueue], channel: Channel) -> dict[MessageQueue, tuple[int, int]]:
    """Both ends of all queues of one broker, asked at once."""
    lows = [request(RequestCode.GET_MIN_OFFSET, GetMinOffsetHeader(queue.topic, queue.queue_id)) for queue in queues]
    highs = [request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(queue.topic, queue.queue_id)) for queue in queues]
    answers = call_all(channel, [*lows, *highs])
    return {
        queue: (
            succeeded(str(queue), low).header(GetMinOffsetResponseHeader).offset,
            succeeded(str(queue), high).header(GetMaxOffsetResponseHeader).offset,
        )
        for queue, low, high in zip(queues, answers[: len(queues)], answers[len(queues) :], strict=True)
    }


def _stored_at(channel: Channel, queue: MessageQueue, offset: int, group: str) -> int:
    (answer,) = channel.call(pull_request(queue, offset, 1, group, SUBSCRIBE_ALL))
    return LONG_AGO if answer.code in GAPS else store_timestamp_of(succeeded(str(queue), answer).body)


def succeeded(what: str, answer: Command) -> Command:
    if answer.code != ResponseCode.SUCCESS:
        raise refused(what, answer.code, answer.remark or "")
    return answer
