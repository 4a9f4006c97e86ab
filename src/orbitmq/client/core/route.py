"""The queues of a topic's route for a producer and for a consumer. Pure; must not know how a route is fetched."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.message.model import MASTER_ID, MessageQueue
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData


@dataclass(frozen=True, slots=True)
class PublishQueues:
    """Where messages of a topic may be sent."""

    queues: tuple[MessageQueue, ...]
    ordered: bool = False
    """The operator fixed the queues (order configuration of the name server); they do not follow the brokers."""


def publish_queues(topic: str, route: TopicRouteData) -> PublishQueues:
    """The queues to send to: those of the order configuration, else all writable ones whose broker has a master."""
    if route.order_topic_conf:
        return PublishQueues(tuple(_ordered_queues(topic, route.order_topic_conf)), ordered=True)
    masters = {broker.broker_name for broker in route.broker_datas if MASTER_ID in broker.addresses}
    usable = [data for data in _sorted(route) if data.perm & PERM_WRITE and data.broker_name in masters]
    return PublishQueues(tuple(_queue(topic, data, n) for data in usable for n in range(data.write_queues)))


def awaits_master(route: TopicRouteData) -> bool:
    """Whether a broker could be sent to if one of its slaves were the master. To be asked where no broker has one."""
    present = {broker.broker_name for broker in route.broker_datas if broker.addresses}
    return any(data.perm & PERM_WRITE and data.broker_name in present for data in route.queue_datas)


def subscribe_queues(topic: str, route: TopicRouteData) -> tuple[MessageQueue, ...]:
    """The queues to consume, sorted: all readable ones, with or without a living master."""
    readable = [data for data in route.queue_datas if data.perm & PERM_READ]
    return tuple(sorted({_queue(topic, data, n) for data in readable for n in range(data.read_queues)}))


def _queue(topic: str, data: QueueData, queue_id: int) -> MessageQueue:
    return MessageQueue(topic, data.broker_name, queue_id)


def _sorted(route: TopicRouteData) -> list[QueueData]:
    return sorted(route.queue_datas, key=lambda data: data.broker_name)


def _ordered_queues(topic: str, configuration: str) -> list[MessageQueue]:
    """`broker-a:8;broker-b:4` names brokers and numbers of queues."""
    items = [item.partition(":") for item in configuration.split(";") if item]
    return [MessageQueue(topic, broker, n) for broker, _, count in items for n in range(int(count))]


def from_template(route: TopicRouteData, queue_count_max: int) -> TopicRouteData:
    """The route a topic will have once its first message creates it from the template topic.

    Java caps both queue numbers of the template by its number of read queues.
    """

    def capped(data: QueueData) -> QueueData:
        count = min(queue_count_max, data.read_queues)
        return QueueData(
            broker_name=data.broker_name,
            perm=data.perm,
            read_queues=count,
            topic_sys_flag=data.topic_sys_flag,
            write_queues=count,
        )

    return TopicRouteData(
        broker_datas=route.broker_datas,
        filter_server_table=route.filter_server_table,
        order_topic_conf=route.order_topic_conf,
        queue_datas=[capped(data) for data in route.queue_datas],
    )


def same_route(one: TopicRouteData, other: TopicRouteData) -> bool:
    """Whether two routes are equal, regardless of the order of their parts."""

    def parts(route: TopicRouteData) -> tuple[object, ...]:
        brokers = sorted(route.broker_datas, key=lambda broker: broker.broker_name)
        return brokers, _sorted(route), route.order_topic_conf, route.filter_server_table

    return parts(one) == parts(other)


def broker_addresses(route: TopicRouteData) -> dict[str, Mapping[int, str]]:
    """Broker name -> broker id -> address."""
    return {broker.broker_name: broker.addresses for broker in route.broker_datas}


@dataclass(frozen=True, slots=True)
class ReadAddress:
    """Where to pull from; a slave takes no offsets."""

    address: str
    is_slave: bool


def read_address(addresses: Mapping[int, str], broker_id: int) -> ReadAddress | None:
    """The broker with `broker_id`; a missing slave's place is taken by the next id, then by any that is there."""
    for candidate in (broker_id, broker_id + 1 if broker_id else broker_id, next(iter(addresses), MASTER_ID)):
        if candidate in addresses:
            return ReadAddress(addresses[candidate], candidate != MASTER_ID)
    return None


def no_queue_cause(topic: str, route: TopicRouteData) -> str:
    """Why a route that exists offers no queue to send to, in words for the user."""
    writable = [data.broker_name for data in route.queue_datas if data.perm & PERM_WRITE]
    if not writable:
        brokers = ", ".join(sorted(data.broker_name for data in route.queue_datas)) or "no broker"
        return f"topic {topic} has no writable queue ({brokers}): its permission or its brokers' forbids writing"
    return f"topic {topic}: no master is registered for {_brokers_of(route.broker_datas, writable)}"


def _brokers_of(brokers: list[BrokerData], names: list[str]) -> str:
    known = {broker.broker_name for broker in brokers}
    texts = [f"broker {name} ({'slaves only' if name in known else 'unknown to the name server'})" for name in names]
    return ", ".join(sorted(texts))
