"""The driver's requests to a cluster: routes, offsets of queues, offsets by time. Blocking; knows no Spark."""

from __future__ import annotations

import contextlib
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import NamedTuple, TypeVar

from orbitmq.errors import SourceError
from orbitmq.message.config import SUBSCRIBE_ALL
from orbitmq.message.flags import PERM_READ, perm_text
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import ORDER_NAMESPACE
from orbitmq.message.unit import store_timestamp_of
from orbitmq.operations.time_search import BOUNDARY_SINCE, TimeSearch
from orbitmq.spark.address_order import BRIEF_MS, AddressOrder, name_servers
from orbitmq.spark.channel import PLAIN, Channel, Protection
from orbitmq.spark.fetch import GAPS, queue_name, refused
from orbitmq.spark.offsets import Bounds
from orbitmq.spark.pulls import BROKEN, pull_request
from orbitmq.wire.bodies import ClusterInfo, KVTable, TopicList, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import (
    Boundary,
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetHeader,
    GetMinOffsetResponseHeader,
    PullMessageResponseHeader,
    SearchOffsetHeader,
    SearchOffsetResponseHeader,
)
from orbitmq.wire.headers_namesrv import (
    GetKVConfigHeader,
    GetKVConfigResponseHeader,
    GetKVListByNamespaceHeader,
    GetRouteInfoHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode

T = TypeVar("T")
Addresses = tuple[str, ...]
LONG_AGO = -1  # store time of a deleted message: before any that is searched for
SAMPLE_SIZE = 32  # messages sampled for their size; every broker returns this many at once


class BrokerAddresses(NamedTuple):
    """The addresses of the broker of a queue, the master first."""

    addresses: Addresses
    has_master: bool


NOWHERE = BrokerAddresses((), has_master=False)  # of a queue whose broker is in no table of the name server


@dataclass(frozen=True)
class Routes:
    """What a name server knows about some topics."""

    queues: Mapping[MessageQueue, BrokerAddresses]
    """The queues that may be read."""
    closed: Mapping[MessageQueue, int]
    """The queues that may not be read, with the permission of the topic there."""
    unknown: Mapping[str, SourceError]
    """The errors of the topics that do not exist."""


@dataclass(frozen=True)
class Retries:
    """How often a request without response is retried, and the pause before."""

    count: int
    interval_ms: int
    pause: Callable[[float], None] = time.sleep


NO_RETRIES = Retries(0, 0)


class ClusterClient:
    """A blocking client of the cluster behind some name servers.

    `timeout_ms` limits the wait for a response. An address that is silent has less time while another one is left.
    """

    def __init__(
        self, addresses: Sequence[str], timeout_ms: int, retries: Retries, protection: Protection = PLAIN
    ) -> None:
        self._protection = protection
        self._addresses = tuple(addresses)
        self._timeout_ms = timeout_ms
        self._retries = retries
        self._brokers: dict[Addresses, AddressOrder] = {}

    def brief(self, limit_ms: int = 0, retries: Retries | None = None) -> ClusterClient:
        """The same client with a limit of BRIEF_MS, or `limit_ms` if that is more: for brokers that others should not
        wait for. `retries` replaces its retries.
        """
        limit_ms = min(max(limit_ms, BRIEF_MS), self._timeout_ms)
        return ClusterClient(self._addresses, limit_ms, retries or self._retries, self._protection)

    def queues(self, *topics: str) -> dict[MessageQueue, BrokerAddresses]:
        """The queues of topics and the addresses of their brokers.

        SourceError ORBITMQ_TOPIC_NOT_FOUND when no name server knows one of the topics, ORBITMQ_NO_PERMISSION when one
        may not be read.
        """
        found = self.look_up(topics)
        for error in found.unknown.values():
            raise error
        require_open(found.closed)
        return dict(found.queues)

    def look_up(self, topics: Iterable[str]) -> Routes:
        """The routes of topics. SourceError when no name server responds."""
        names = list(topics)
        requests = [request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoHeader(topic)) for topic in names]
        responses = self._call_name_server(lambda channel: channel.call(*requests), f"topic {', '.join(names)}")
        queues: dict[MessageQueue, BrokerAddresses] = {}
        closed: dict[MessageQueue, int] = {}
        unknown: dict[str, SourceError] = {}
        for topic, response in zip(names, responses, strict=True):
            if response.code == ResponseCode.SUCCESS:
                route = decode(TopicRouteData, response.body)
                queues |= _readable(topic, route)
                closed |= _closed(topic, route)
            elif response.code == ResponseCode.TOPIC_NOT_EXIST:
                unknown[topic] = refused(f"topic {topic}", response.code, response.remark or "")
            else:
                raise refused(f"topic {topic}", response.code, response.remark or "")
        return Routes(queues, closed, unknown)

    def ordered(self, topics: Sequence[str]) -> dict[str, frozenset[str]]:
        """The brokers that the order configuration of a topic names, for those topics that have one."""
        if not topics:
            return {}
        requests = [request(RequestCode.GET_KV_CONFIG, GetKVConfigHeader(ORDER_NAMESPACE, topic)) for topic in topics]
        responses = self._call_name_server(lambda channel: channel.call(*requests), "order configurations")
        return {
            topic: _brokers_of(response.header(GetKVConfigResponseHeader).value or "")
            for topic, response in zip(topics, responses, strict=True)
            if response.code == ResponseCode.SUCCESS
        }

    def pairs(self, namespace: str) -> list[dict[str, str]]:
        """The key-value settings of a namespace at each name server that responds: they do not know each other."""
        query = request(RequestCode.GET_KVLIST_BY_NAMESPACE, GetKVListByNamespaceHeader(namespace))
        what, limit_ms = "key-value settings", min(BRIEF_MS, self._timeout_ms)
        responses: list[Command] = []
        for address in self._addresses:
            only = ClusterClient((address,), limit_ms, NO_RETRIES, self._protection)
            with contextlib.suppress(SourceError):  # another one may respond
                responses += only._call_name_server(lambda channel: channel.call(query), what)
        responses = responses or self._call_name_server(lambda channel: channel.call(query), what)
        found = [one for one in responses if one.code != ResponseCode.QUERY_NOT_FOUND]
        return [decode(KVTable, succeeded(what, one).body).table for one in found]

    def topics(self) -> list[str]:
        """The names of all topics."""
        query = request(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)
        (response,) = self._call_name_server(lambda channel: channel.call(query), "topics")
        return decode(TopicList, succeeded("topics", response).body).topic_list

    def info(self) -> ClusterInfo:
        """The brokers that are registered."""
        query = request(RequestCode.GET_BROKER_CLUSTER_INFO)
        (response,) = self._call_name_server(lambda channel: channel.call(query), "brokers")
        return decode(ClusterInfo, succeeded("brokers", response).body)

    def bounds(self, queues: Mapping[MessageQueue, Addresses]) -> dict[MessageQueue, tuple[int, int]]:
        """The first offset that can be read and the next one to be written, of each queue."""
        found: dict[MessageQueue, tuple[int, int]] = {}
        for addresses, on_broker in _by_addresses(queues, queues).items():
            found |= self.call_broker(on_broker[0].broker_name, addresses, partial(_bounds, on_broker))
        return found

    def offsets_at(
        self, queues: Mapping[MessageQueue, Addresses], bounds: Bounds, times: Mapping[MessageQueue, int], group: str
    ) -> dict[MessageQueue, int]:
        """For each queue of `times`, the first offset within its bounds whose message was stored at or after the time,
        else their end.

        RocketMQ before 5.2 finds the nearest message, which may be an older one; then the messages around it decide.
        """
        searches: dict[MessageQueue, TimeSearch] = {}
        filled = [queue for queue in times if bounds[queue][0] < bounds[queue][1]]
        for addresses, on_broker in _by_addresses(filled, queues).items():
            search = partial(_search, on_broker, bounds, times, group, searches)
            self.call_broker(on_broker[0].broker_name, addresses, search)
        return {queue: searches[queue].low if queue in searches else bounds[queue][0] for queue in times}

    def sample(
        self, offsets: Mapping[MessageQueue, int], queues: Mapping[MessageQueue, Addresses], group: str
    ) -> tuple[int, int]:
        """The number and the bytes of some messages of each queue from its offset on, zeros when they are gone."""
        counts, sizes = 0, 0
        for addresses, on_broker in _by_addresses(offsets, queues).items():
            sampled = self.call_broker(
                on_broker[0].broker_name, addresses, partial(_sampled, on_broker, offsets, group)
            )
            counts += sum(count for count, _ in sampled)
            sizes += sum(size for _, size in sampled)
        return counts, sizes

    def stored_at(
        self,
        offsets: Mapping[MessageQueue, int],
        queues: Mapping[MessageQueue, Addresses],
        group: str,
        found: dict[MessageQueue, int],
    ) -> None:
        """Put the store times of the messages at these offsets into `found`, in milliseconds since 1970, of those that
        still exist. After a SourceError it has the times of the brokers before.
        """
        for addresses, on_broker in _by_addresses(offsets, queues).items():
            look = partial(_store_times, on_broker, offsets, group, found)
            self.call_broker(on_broker[0].broker_name, addresses, look)

    def call_broker(self, name: str, addresses: Addresses, call: Callable[[Channel], T]) -> T:
        """The result of `call` over a connection to the broker. SourceError ORBITMQ_BROKER_UNAVAILABLE."""
        order = self._brokers.setdefault(addresses, AddressOrder(addresses))
        return self._call(order, call, f"broker {name}", "ORBITMQ_BROKER_UNAVAILABLE")

    def _call_name_server(self, call: Callable[[Channel], T], what: str) -> T:
        return self._call(name_servers(self._addresses), call, what, "ORBITMQ_NAMESERVER_UNAVAILABLE")

    def _call(self, order: AddressOrder, call: Callable[[Channel], T], what: str, failure: str) -> T:
        """The result from the first address that responds."""
        last: Exception | None = None
        for attempt in range(1 + self._retries.count):
            if attempt:
                self._retries.pause(self._retries.interval_ms / 1000)
            for address, timeout_ms in order.attempts(self._timeout_ms):
                try:
                    with Channel(address, timeout_ms, self._protection) as channel:
                        result = call(channel)
                except BROKEN as error:
                    last = error
                else:
                    order.responded(address)
                    return result
        raise SourceError(failure, f"{what}: {last or 'no address is known'}") from last


def _readable(topic: str, route: TopicRouteData) -> dict[MessageQueue, BrokerAddresses]:
    places = {
        data.broker_name: BrokerAddresses(
            tuple(address for _, address in sorted(data.addresses.items())), 0 in data.addresses
        )
        for data in route.broker_datas
    }
    return {
        MessageQueue(topic, data.broker_name, queue_id): places.get(data.broker_name, NOWHERE)
        for data in route.queue_datas
        if data.perm & PERM_READ
        for queue_id in range(data.read_queues)
    }


def _closed(topic: str, route: TopicRouteData) -> dict[MessageQueue, int]:
    """The queues without read permission. Brokers keep a topic of their own name and one of their cluster's, which hold
    nothing and usually have no permission."""
    own = {name for data in route.broker_datas for name in (data.broker_name, data.cluster)}
    return {
        MessageQueue(topic, data.broker_name, queue_id): data.perm
        for data in route.queue_datas
        if not data.perm & PERM_READ and topic not in own
        for queue_id in range(data.read_queues)
    }


def require_open(closed: Mapping[MessageQueue, int]) -> None:
    """SourceError ORBITMQ_NO_PERMISSION when there is a queue that may not be read."""
    if not closed:
        return
    first = min(closed)
    brokers = sorted({queue.broker_name for queue in closed if queue.topic == first.topic})
    raise SourceError(
        "ORBITMQ_NO_PERMISSION",
        f"topic {first.topic} may not be read on {', '.join(brokers)}: its permission there is "
        f"{perm_text(closed[first])}. Allow it with `orbitmq topic permission {first.topic} RW --broker "
        f"{first.broker_name}`, or with brokerPermission=6 if that option of the broker forbids it; a read without "
        "these queues names the others with option assign",
    )


def _brokers_of(configuration: str) -> frozenset[str]:
    """The brokers of `broker-a:8;broker-b:4`."""
    return frozenset(item.partition(":")[0] for item in configuration.split(";") if item)


def _by_addresses(
    wanted: Iterable[MessageQueue], queues: Mapping[MessageQueue, Addresses]
) -> dict[Addresses, list[MessageQueue]]:
    """The wanted queues of each broker."""
    brokers: dict[Addresses, list[MessageQueue]] = defaultdict(list)
    for queue in wanted:
        brokers[queues[queue]].append(queue)
    return brokers


def _bounds(queues: Sequence[MessageQueue], channel: Channel) -> dict[MessageQueue, tuple[int, int]]:
    """First and next offset of all queues of one broker, requested together."""
    lows = [request(RequestCode.GET_MIN_OFFSET, GetMinOffsetHeader(queue.topic, queue.queue_id)) for queue in queues]
    highs = [request(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(queue.topic, queue.queue_id)) for queue in queues]
    responses = channel.call(*lows, *highs)
    return {
        queue: (
            succeeded(queue_name(queue), low).header(GetMinOffsetResponseHeader).offset,
            succeeded(queue_name(queue), high).header(GetMaxOffsetResponseHeader).offset,
        )
        for queue, low, high in zip(queues, responses[: len(queues)], responses[len(queues) :], strict=True)
    }


def _search(
    queues: Sequence[MessageQueue],
    bounds: Bounds,
    times: Mapping[MessageQueue, int],
    group: str,
    found: dict[MessageQueue, TimeSearch],
    channel: Channel,
) -> None:
    """Search all queues of one broker in step. `found` keeps what is known when the connection breaks."""
    new = [queue for queue in queues if queue not in found]
    for number, response in channel.each([_search_request(queue, times[queue]) for queue in new]):
        found[new[number]] = _started(new[number], bounds[new[number]], response)
    while open_ := [queue for queue in queues if not found[queue].is_done]:
        pulls = [pull_request(queue, found[queue].at, 1, group, SUBSCRIBE_ALL) for queue in open_]
        for number, response in channel.each(pulls):
            queue = open_[number]
            found[queue].learn(is_before=_stored_at(queue, response) < times[queue])


def _search_request(queue: MessageQueue, time_ms: int) -> Command:
    header = SearchOffsetHeader(queue.topic, queue.queue_id, time_ms, boundary=Boundary.LOWER)
    return request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)


def _started(queue: MessageQueue, bounds: tuple[int, int], response: Command) -> TimeSearch:
    """The search of a queue after the broker's own one, which is the result if the broker finds the first message."""
    low, high = bounds
    found = succeeded(queue_name(queue), response).header(SearchOffsetResponseHeader)
    if found.boundary is not None or response.version >= BOUNDARY_SINCE:
        low = high = min(max(found.offset, low), high)
    return TimeSearch(low, high, found.offset)


def _stored_at(queue: MessageQueue, response: Command) -> int:
    return LONG_AGO if response.code in GAPS else store_timestamp_of(succeeded(queue_name(queue), response).body)


def _store_times(
    queues: Sequence[MessageQueue],
    offsets: Mapping[MessageQueue, int],
    group: str,
    found: dict[MessageQueue, int],
    channel: Channel,
) -> None:
    new = [queue for queue in queues if queue not in found]
    for number, response in channel.each(
        [pull_request(queue, offsets[queue], 1, group, SUBSCRIBE_ALL) for queue in new]
    ):
        if response.code not in GAPS:
            found[new[number]] = _stored_at(new[number], response)


def _sampled(
    queues: Sequence[MessageQueue], offsets: Mapping[MessageQueue, int], group: str, channel: Channel
) -> list[tuple[int, int]]:
    """The number and the bytes of messages in one pull of each queue."""
    pulls = [pull_request(queue, offsets[queue], SAMPLE_SIZE, group, SUBSCRIBE_ALL) for queue in queues]
    sampled = []
    for number, response in channel.each(pulls):
        queue = queues[number]
        if response.code not in GAPS:
            header = succeeded(queue_name(queue), response).header(PullMessageResponseHeader)
            sampled.append((header.next_begin_offset - offsets[queue], len(response.body)))
    return sampled


def succeeded(what: str, response: Command) -> Command:
    if response.code != ResponseCode.SUCCESS:
        raise refused(what, response.code, response.remark or "")
    return response
