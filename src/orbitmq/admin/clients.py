"""Connected clients: members of consumer groups, producers, and what a consumer reports about itself.

A client connects to one broker after the other, so the list of a single broker may be incomplete: every broker is
queried and the responses are merged by client id. Knows no progress.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass, field

from msgspec import Struct

from orbitmq.admin.masters import each_master
from orbitmq.admin.results import Failure, Gathered, Result
from orbitmq.admin.session import Node, Session, nearest
from orbitmq.errors import NotFound, OrbitMQError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import retry_topic
from orbitmq.operations import groups as group_requests
from orbitmq.operations.membership import running_info
from orbitmq.operations.tables import all_groups
from orbitmq.wire.bodies import ClientConnection, ConsumerConnection, ConsumerRunningInfo, ProcessQueueInfo
from orbitmq.wire.codes import version_name

CLIENT_TIMEOUT_MS = 12_000.0
"""A broker waits 10 s for the client; the request to the broker waits a little longer."""
OFFLINE_HINT = "start one; `orbitmq group list` shows the groups"


class ConsumerMember(Struct, frozen=True, rename="camel"):
    """One client in a group."""

    client_id: str
    address: str | None
    """Where it connects from, `host:port`, as a broker sees it."""
    language: str | None
    version: str | None
    """Of the client library: `V4_9_7`."""
    brokers: list[str]
    """Names of the brokers it is connected to."""
    missing: list[str] = []
    """Names of brokers that responded and do not know it, although other members are connected to them."""


class Subscription(Struct, frozen=True, rename="camel"):
    """The subscriptions of a group's members to one topic. Members with different subscriptions have separate rows."""

    topic: str
    expression: str | None
    """None for members that do not subscribe the topic, while others do."""
    expression_type: str | None
    clients: list[str]
    conflict: bool
    """Members of the group differ in this topic: what each gets is then a matter of luck."""


class ProducerMember(Struct, frozen=True, rename="camel"):
    """One client in a producer group."""

    group: str
    client_id: str
    address: str | None
    language: str | None
    version: str | None
    seen_at_ms: int | None
    """Its last heartbeat; None if the broker does not report it."""
    brokers: list[str]


class RunningQueue(Struct, frozen=True, rename="camel"):
    """One queue inside a consumer."""

    topic: str
    broker_name: str
    queue_id: int
    commit_offset: int
    """The next message to be consumed, as the client has it in memory."""
    cached_messages: int
    """Pulled and not yet acknowledged by the listener."""
    cached_min_offset: int
    cached_max_offset: int
    cached_size_mib: int
    """Whole mebibytes, rounded down by the client."""
    locked: bool
    """Of an orderly consumer: the broker has given it the queue."""
    dropped: bool
    """The queue was released, and its cached messages are still being processed."""
    unlock_attempts: int
    last_pull_at_ms: int | None
    last_consume_at_ms: int | None
    last_lock_at_ms: int | None


class RunningTopic(Struct, frozen=True, rename="camel"):
    """Rates of one topic inside a consumer; times are means of the last minute."""

    topic: str
    pull_time_ms: float
    pull_tps: float
    consume_time_ms: float
    consume_ok_tps: float
    consume_failed_tps: float
    failed_last_hour: int


class ConsumerReport(Struct, frozen=True, rename="camel"):
    """A consumer's report about itself."""

    client_id: str
    version: str | None
    kind: str | None
    """`CONSUME_PASSIVELY` pushes to a listener, `CONSUME_ACTIVELY` polls."""
    orderly: bool | None
    threads: int | None
    started_at_ms: int | None
    name_servers: str | None
    subscriptions: list[Subscription]
    queues: list[RunningQueue]
    topics: list[RunningTopic]
    properties: dict[str, str]
    stack: str | None = None
    """Stacks of its threads; only on request."""


class Position(Struct, frozen=True, rename="camel"):
    """Where one member is in one queue, as it has it in memory; what brokers have stored follows some seconds later."""

    client_id: str
    topic: str
    broker_name: str
    queue_id: int
    offset: int
    """The next message to be consumed."""


@dataclass(slots=True)
class GroupMembership:
    """One group's members as every broker knows them."""

    group: str
    members: list[ConsumerMember]
    responses: dict[Node, ConsumerConnection | None]
    """The response of each broker; None if no member is connected to it."""
    failures: list[Failure] = field(default_factory=list)

    @property
    def connections(self) -> list[ConsumerConnection]:
        return [one for one in self.responses.values() if one is not None]

    @property
    def online(self) -> bool:
        return bool(self.members)

    @property
    def model(self) -> str | None:
        """`CLUSTERING` or `BROADCASTING`; None if no member is online."""
        return next((one.message_model.name for one in self.connections if one.message_model), None)

    @property
    def kind(self) -> str | None:
        """`CONSUME_PASSIVELY`, `CONSUME_ACTIVELY` or None."""
        return next((one.consume_type.name for one in self.connections if one.consume_type), None)

    @property
    def start(self) -> str | None:
        """Where members start in a queue without an offset: `CONSUME_FROM_LAST_OFFSET`..."""
        return next((one.consume_from_where.name for one in self.connections if one.consume_from_where), None)

    @property
    def subscribed(self) -> dict[str, SubscriptionData]:
        """Topic -> the subscription a broker filters by: the last heartbeat's where members differ."""
        return {topic: one for connection in self.connections for topic, one in connection.subscription_table.items()}

    def home(self, client_id: str) -> Node | None:
        """A broker the client is connected to."""
        for node, connection in self.responses.items():
            if connection and any(one.client_id == client_id for one in connection.connection_set):
                return node
        return None


# ---------------------------------------------------------------------------------------------------------- pure parts


def members_of(connections: Mapping[Node, ConsumerConnection | None]) -> list[ConsumerMember]:
    """All clients by id, each with the brokers that it is connected to and those that it is not."""
    at: dict[str, dict[str, ClientConnection]] = defaultdict(dict)
    here = [(node, one) for node, one in connections.items() if one is not None]
    for node, connection in here:
        for client in connection.connection_set:
            at[client.client_id or ""][node.name] = client
    names = {node.name for node, _ in here}
    return [_member(client_id, brokers, names) for client_id, brokers in sorted(at.items())]


def _member(client_id: str, brokers: Mapping[str, ClientConnection], names: Collection[str]) -> ConsumerMember:
    one = next(iter(brokers.values()))
    version = version_name(one.version) if one.version else None
    return ConsumerMember(
        client_id, one.client_addr, one.language, version, sorted(brokers), sorted(set(names) - set(brokers))
    )


def compared(group: str, wanted: Mapping[str, Iterable[SubscriptionData]]) -> list[Subscription]:
    """Subscriptions by topic; `wanted` is client id -> subscriptions. The group's own retry topic does not count."""
    by_topic: dict[str, dict[tuple[str, str], list[str]]] = defaultdict(lambda: defaultdict(list))
    for client, subscriptions in wanted.items():
        for one in subscriptions:
            if one.topic != retry_topic(group):
                by_topic[one.topic][one.expression, one.expression_type].append(client)
    return [row for topic in sorted(by_topic) for row in _rows(topic, by_topic[topic], wanted)]


def _rows(topic: str, wants: Mapping[tuple[str, str], list[str]], clients: Collection[str]) -> list[Subscription]:
    without = sorted(set(clients) - {client for some in wants.values() for client in some})
    conflict = len(wants) > 1 or bool(without)
    found = [Subscription(topic, text, kind, sorted(some), conflict) for (text, kind), some in sorted(wants.items())]
    return [*found, Subscription(topic, None, None, without, conflict)] if without else found


def running_of(client_id: str, info: ConsumerRunningInfo) -> ConsumerReport:
    """The structure of a client's report."""
    properties = info.properties
    threads, started = properties.get("PROP_THREADPOOL_CORE_SIZE"), properties.get("PROP_CONSUMER_START_TIMESTAMP")
    orderly = properties.get("PROP_CONSUMEORDERLY")
    return ConsumerReport(
        client_id,
        version=properties.get("PROP_CLIENT_VERSION"),
        kind=properties.get("PROP_CONSUME_TYPE"),
        orderly=None if orderly is None else orderly == "true",
        threads=_count(threads),
        started_at_ms=_count(started),
        name_servers=properties.get("PROP_NAMESERVER_ADDR"),
        subscriptions=[
            Subscription(one.topic, one.expression, one.expression_type, [client_id], conflict=False)
            for one in sorted(info.subscription_set, key=lambda one: one.topic)
        ],
        queues=[_running_queue(queue, state) for queue, state in sorted(info.mq_table.items())],
        topics=[
            RunningTopic(
                topic, one.pull_rt, one.pull_tps, one.consume_rt, one.consume_ok_tps, one.consume_failed_tps,
                one.consume_failed_msgs,
            )
            for topic, one in sorted(info.status_table.items())
        ],
        properties=dict(sorted(properties.items())),
        stack=info.jstack or None,
    )  # fmt: skip


def _count(text: str | None) -> int | None:
    return int(text) if text and text.isdecimal() else None


def _running_queue(queue: MessageQueue, state: ProcessQueueInfo) -> RunningQueue:
    return RunningQueue(
        queue.topic, queue.broker_name, queue.queue_id, state.commit_offset, state.cached_msg_count,
        state.cached_msg_min_offset, state.cached_msg_max_offset, state.cached_msg_size_in_mib,
        locked=state.locked,
        dropped=state.dropped,
        unlock_attempts=state.try_unlock_times,
        last_pull_at_ms=state.last_pull_timestamp or None,
        last_consume_at_ms=state.last_consume_timestamp or None,
        last_lock_at_ms=state.last_lock_timestamp or None,
    )  # fmt: skip


# ----------------------------------------------------------------------------------------------------------- requests


async def membership(session: Session, group: str) -> GroupMembership:
    """The online members of the group, from every broker. A group without online members is a result, not an error."""
    nodes = await session.readable()
    gathered = await session.each_node(
        nodes,
        lambda node: session.request(group_requests.consumer_connections, node, group),
        slaves_suffice=True,  # consumers send heartbeats to slaves, too
    )
    return GroupMembership(group, members_of(gathered.responses), gathered.responses, gathered.failures)


async def running(
    session: Session, who: GroupMembership, clients: Collection[str] | None = None, *, stacks: bool = False
) -> Gathered[str, ConsumerRunningInfo]:
    """What each member reports about itself, requested through a broker that it is connected to; all members unless
    `clients` names some. A member that does not respond is a failure by its client id.
    """
    homes = {one.client_id: who.home(one.client_id) for one in who.members}
    wanted = {client: home for client, home in homes.items() if home and (clients is None or client in clients)}

    async def report_of(client_id: str) -> ConsumerRunningInfo:
        home = wanted[client_id]
        return await session.request(
            running_info,
            home,
            who.group,
            client_id,
            stacks=stacks,
            timeout_ms=max(session.timeout_ms, CLIENT_TIMEOUT_MS),
        )

    return await session.each({client: f"client {client}" for client in wanted}, report_of)


async def connections(session: Session, group: str) -> Result[ConsumerMember]:
    """The members of the group. NotFound if every broker responds and none is online."""
    who = await membership(session, group)
    await _check_online(session, who)
    found = Result(who.members, failures=who.failures)
    found.warnings = [
        f"{one.client_id} is not connected to {', '.join(one.missing)}: it gets nothing from there"
        for one in who.members
        if one.missing
    ]
    return found


async def _check_online(session: Session, who: GroupMembership) -> None:
    if not who.online and not who.failures:
        known = await group_names(session)
        similar = None if who.group in known else nearest(who.group, known)
        raise NotFound(f"no consumer of the group {who.group} is online", similar or OFFLINE_HINT)


async def group_names(session: Session) -> set[str]:
    """The groups that brokers have settings of; those of a broker that does not respond are missing."""
    gathered = await session.each_node(await session.readable(), lambda node: session.request(all_groups, node))
    return {name for table in gathered.responses.values() for name in table.groups}


async def unknown_group(session: Session, group: str, text: str | None = None) -> NotFound:
    """The error for a group that no broker has, with the names most like it."""
    known = await group_names(session)
    similar = None if group in known else nearest(group, known)
    return NotFound(text or f"there is no group {group}", similar or "`orbitmq group list` shows the groups")


async def subscriptions(session: Session, group: str) -> Result[Subscription]:
    """The members' subscriptions by topic, as each reports them; differences are marked and cause a warning."""
    who = await membership(session, group)
    await _check_online(session, who)
    gathered = await running(session, who)
    rows = compared(group, {client: info.subscription_set for client, info in gathered.responses.items()})
    found = Result(rows, failures=[*who.failures, *gathered.failures])
    differing = sorted({row.topic for row in rows if row.conflict})
    if differing:
        found.warnings.append(
            f"members of {group} subscribe {', '.join(differing)} differently: the broker filters by the last "
            "heartbeat, so messages are lost to the others; use the same subscriptions in all members"
        )
    return found


async def reports(
    session: Session, group: str, clients: Collection[str] | None = None, *, stacks: bool = False
) -> Result[ConsumerReport]:
    """The members' reports about themselves. NotFound for a client that is not in the group."""
    who = await membership(session, group)
    await _check_online(session, who)
    known = {one.client_id for one in who.members}
    absent = sorted(set(clients or ()) - known)
    if absent and not who.failures:
        raise NotFound(f"{absent[0]} is not in the group {group}", f"orbitmq group connections {group}")
    gathered = await running(session, who, clients, stacks=stacks)
    found = Result([running_of(client, info) for client, info in gathered.responses.items()])
    found.failures = [*who.failures, *gathered.failures]
    return found


async def positions(session: Session, group: str, topic: str) -> Result[Position]:
    """The position of each member in the topic. NotFound if none is online."""
    who = await membership(session, group)
    await _check_online(session, who)
    nodes = [node for node, connection in who.responses.items() if connection is not None]
    gathered = await session.each_node(
        nodes, lambda node: group_requests.consumer_positions(session.remoting, node.address, group, topic)
    )
    rows = {
        (client, queue): Position(client, queue.topic, queue.broker_name, queue.queue_id, offset)
        for clients in gathered.responses.values()
        for client, queues in clients.items()
        for queue, offset in queues.items()
    }
    return Result([rows[key] for key in sorted(rows)], failures=[*who.failures, *gathered.failures])


async def producers(session: Session, group: str | None = None) -> Result[ProducerMember]:
    """Producers of every group, or of one. A broker that does not list all groups is queried for the one."""

    async def producers_at(node: Node) -> list[ProducerMember]:
        all_producers = await session.request(group_requests.all_producers, node)
        return [
            ProducerMember(
                name, one.client_id or "", (one.remote_ip or "").lstrip("/") or None, one.language,
                version_name(one.version) if one.version else None, one.last_update_timestamp or None, [node.name],
            )
            for name, members in all_producers.items()
            for one in members
            if group in (None, name)
        ]  # fmt: skip

    async def producers_or_none(node: Node) -> list[ProducerMember]:
        try:
            return await producers_at(node)
        except OrbitMQError:
            if group is None:
                raise
            return await _of_group(session, node, group)

    gathered = await each_master(session, producers_or_none)
    return Result(_merged(one for some in gathered.responses.values() for one in some), failures=gathered.failures)


async def _of_group(session: Session, node: Node, group: str) -> list[ProducerMember]:
    found = await session.request(group_requests.producer_connections, node, group)
    return [
        ProducerMember(
            group, one.client_id or "", one.client_addr, one.language,
            version_name(one.version) if one.version else None, None, [node.name],
        )
        for one in found
    ]  # fmt: skip


def _merged(rows: Iterable[ProducerMember]) -> list[ProducerMember]:
    found: dict[tuple[str, str], ProducerMember] = {}
    for row in rows:
        key = (row.group, row.client_id)
        old = found.get(key)
        if old is None:
            found[key] = row
            continue
        newest = max(row, old, key=lambda one: one.seen_at_ms or 0)
        found[key] = ProducerMember(
            row.group, row.client_id, newest.address, newest.language, newest.version, newest.seen_at_ms,
            sorted({*old.brokers, *row.brokers}),
        )  # fmt: skip
    return [found[key] for key in sorted(found)]
