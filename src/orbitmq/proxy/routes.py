"""QueryRoute and QueryAssignment."""

from __future__ import annotations

from collections.abc import Sequence
from ipaddress import ip_address
from typing import Any

from orbitmq.errors import StatusError
from orbitmq.message.flags import PERM_READ, PERM_WRITE
from orbitmq.message.model import MASTER_ID
from orbitmq.proxy.backend import Backend, TopicRoute
from orbitmq.proxy.checks import checked_group, checked_topic
from orbitmq.proxy.statuses import OK
from orbitmq.proxy.topic_types import accept_message_types
from orbitmq.wire.bodies import BrokerData, QueueData
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import AddressScheme, Code, Permission

ADDRESSES_MAX = 16  # of a client's endpoints; they are repeated for each queue


async def require_route(backend: Backend, topic: str) -> TopicRoute:
    """The route of a topic. StatusError if it has none."""
    found = backend.known(topic) or await backend.route(topic)
    if found is None or not found.data.queue_datas:
        raise StatusError(Code.TOPIC_NOT_FOUND, f"no route to topic {topic[:300]}: create it first")
    return found


def address_of(route: TopicRoute, broker_name: str) -> str:
    """The master of a broker that has the topic. StatusError for any other."""
    for one in route.data.broker_datas:
        if one.broker_name == broker_name and MASTER_ID in one.addresses:
            return one.addresses[MASTER_ID]
    raise StatusError(Code.BAD_REQUEST, f"no broker {broker_name[:300]!r} has this topic, or it has no master")


async def query_route(backend: Backend, request: Any, endpoints: Any) -> bytes:
    """All queues; `endpoints` is where clients of this front find each broker."""
    topic = checked_topic(request.topic)
    route = await require_route(backend, topic)
    answer = v2.QueryRouteResponse(status=OK)
    queues = {one.broker_name: one for one in route.data.queue_datas}
    for broker in route.data.broker_datas:
        data = queues.get(broker.broker_name)
        if data is not None:
            for broker_id in sorted(broker.addresses):
                _add(
                    answer, request.topic, data, broker, broker_id, endpoints, accept_message_types(route.message_type)
                )
    return bytes(answer.SerializeToString())


def _add(
    answer: Any, topic: Any, data: QueueData, broker: BrokerData, broker_id: int, endpoints: Any, types: Sequence[int]
) -> None:
    """Queues that can only be read first, then those that can only be written, then those that can be both."""
    for queue_id, permission in enumerate(permissions(data)):
        queue = answer.message_queues.add(id=queue_id, permission=permission, accept_message_types=types)
        queue.topic.CopyFrom(topic)
        queue.broker.name, queue.broker.id = broker.broker_name, broker_id
        queue.broker.endpoints.CopyFrom(endpoints)


def permissions(data: QueueData) -> list[Permission]:
    """Of each queue id."""
    read, write = data.read_queues, data.write_queues
    if data.perm & PERM_READ and data.perm & PERM_WRITE:
        both = min(read, write)
        return [Permission.READ] * (read - both) + [Permission.WRITE] * (write - both) + [Permission.READ_WRITE] * both
    if data.perm & PERM_WRITE:
        return [Permission.WRITE] * write
    if data.perm & PERM_READ:
        return [Permission.READ] * read
    return [Permission.NONE] * max(1, read, write)


async def query_assignment(backend: Backend, request: Any, endpoints: Any) -> bytes:
    """The queues that a push consumer receives from: all of a broker at once, or each of a group in order."""
    topic, group = checked_topic(request.topic), checked_group(request.group)
    route = await require_route(backend, topic)
    known = await backend.group(group)
    is_orderly = known is not None and known.is_fifo
    answer = v2.QueryAssignmentResponse(status=OK)
    brokers = {one.broker_name: one for one in route.data.broker_datas if MASTER_ID in one.addresses}
    for data in route.data.queue_datas:
        if data.broker_name not in brokers or not data.perm & PERM_READ or not data.read_queues:
            continue
        for queue_id in range(data.read_queues) if is_orderly else (-1,):
            queue = answer.assignments.add().message_queue
            queue.id, queue.permission = queue_id, Permission.READ_WRITE if data.perm & PERM_WRITE else Permission.READ
            queue.topic.CopyFrom(request.topic)
            queue.broker.name, queue.broker.id = data.broker_name, MASTER_ID
            queue.broker.endpoints.CopyFrom(endpoints)
            queue.accept_message_types.extend(accept_message_types(route.message_type))
    if not answer.assignments:
        raise StatusError(Code.FORBIDDEN, f"topic {topic[:300]} has no readable queue")
    return bytes(answer.SerializeToString())


def endpoints_of(asked: Any, port: int, host: str) -> Any:
    """Where the client finds brokers: by the address at which it has found the front. A name or a mapped port that it
    used stays what it can reach; an empty list gets the front's own address.
    """
    found = v2.Endpoints()
    if asked.addresses:
        found.scheme = asked.scheme or AddressScheme.DOMAIN_NAME
        for one in asked.addresses[:ADDRESSES_MAX]:
            found.addresses.add(host=one.host, port=port)
    else:
        found.scheme = _scheme(host)
        found.addresses.add(host=host, port=port)
    return found


def _scheme(host: str) -> AddressScheme:
    try:
        version = ip_address(host).version
    except ValueError:
        return AddressScheme.DOMAIN_NAME
    return AddressScheme.IPv6 if version == 6 else AddressScheme.IPv4
