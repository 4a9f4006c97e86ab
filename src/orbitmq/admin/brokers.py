"""Single brokers: status, settings, the lags of their groups, cleanup, write permission, and the time of a send."""

from __future__ import annotations

import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from enum import StrEnum
from functools import partial

from msgspec import Struct

from orbitmq.admin.cluster import each_runtime
from orbitmq.admin.masters import each_master, untouched
from orbitmq.admin.plans import Change, Plan, Step
from orbitmq.admin.results import Result
from orbitmq.admin.runtime import Runtime
from orbitmq.admin.session import Node, Session, nearest
from orbitmq.errors import BadArgument, ConfigurationError, Conflict, NotFound, OrbitMQError
from orbitmq.message.flags import PERM_WRITE
from orbitmq.net.remoting import Remoting
from orbitmq.operations.cleanup import clean_expired_queues, clean_unused_topics, delete_expired_log
from orbitmq.operations.routes import add_write_permission, route, wipe_write_permission
from orbitmq.operations.sends import send
from orbitmq.operations.settings import broker_settings, change_broker_settings
from orbitmq.operations.statistics import broker_consume_stats, runtime_info
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.options import StoreOptions
from orbitmq.wire.headers import SendMessageV2Header

CONSUME_STATS_TIMEOUT_MS = 50_000.0
"""For this response a broker reads the last message of every queue of every group; the stock tool waits as long."""
TEST_GROUP = "orbitmq-test"
SETTINGS_HINT = "`orbitmq broker config show` shows the settings"
FLAG_VALUES = ("true", "false")
FIXED_SETTINGS = frozenset(
    (
        "rocketmqHome", "namesrvAddr", "brokerName", "brokerId", "brokerClusterName", "brokerIP1", "brokerIP2",
        "brokerRole", "listenPort", "haListenPort", "storePathRootDir", "storePathCommitLog",
        "storePathDLedgerCommitLog", "storePathConsumeQueue", "storePathIndex", "storeCheckpoint", "abortFile",
        "brokerConfigPath", "configStorePath", "kvConfigPath", "filterServerNums", "messageStorePlugIn",
    )
)  # fmt: skip
"""Identity, files and programs of a broker: old brokers let any client change these and write to other files."""


class BrokerStatus(Struct, frozen=True, rename="camel"):
    """One broker and all its metrics."""

    cluster: str
    broker: str
    broker_id: int
    address: str
    runtime: Runtime


class BrokerEntry(Struct, frozen=True, rename="camel"):
    """One key of a broker, as the broker writes it."""

    broker: str
    address: str
    key: str
    value: str


class Difference(Struct, frozen=True, rename="camel"):
    """A setting the masters do not agree about."""

    key: str
    values: dict[str, str | None]
    """By broker name; None where a broker has no such setting."""


class Consumption(Struct, frozen=True, rename="camel"):
    """How far a group is in one queue, as the broker of the queue sees it."""

    topic: str
    group: str
    broker: str
    queue_id: int
    broker_offset: int
    consumer_offset: int
    lag_messages: int
    """As the broker reports it: negative if the group is beyond the end."""
    last_consumed_at_ms: int | None
    """When the last message was stored that the group has consumed."""


class SendTest(Struct, frozen=True, rename="camel"):
    """Some messages sent to a broker, one after the other."""

    cluster: str
    broker: str
    address: str
    sent: int
    failed: int
    mean_ms: float | None
    """Without the first one, which opens the connection; None when nothing is left."""
    shortest_ms: float | None
    longest_ms: float | None


class Cleaning(StrEnum):
    """The cleanups that a broker supports."""

    EXPIRED_QUEUES = "expired-queues"
    """Queues that hold no message that is left."""
    UNUSED_TOPICS = "unused-topics"
    """Queues of topics that are deleted."""
    EXPIRED_LOG = "expired-log"
    """Files of the log that are older than they are kept, now instead of at their hour."""


_CLEANING: Mapping[Cleaning, Callable[..., Awaitable[None]]] = {
    Cleaning.EXPIRED_QUEUES: clean_expired_queues,
    Cleaning.UNUSED_TOPICS: clean_unused_topics,
    Cleaning.EXPIRED_LOG: delete_expired_log,
}


async def chosen(session: Session, broker: str | None) -> list[Node]:
    """The named broker, or all of them."""
    return await session.nodes() if broker is None else [await session.node(broker)]


async def status(session: Session, broker: str | None = None) -> Result[BrokerStatus]:
    """The metrics of one broker, or of every broker."""
    gathered = await each_runtime(session, await chosen(session, broker))
    rows = [
        BrokerStatus(node.cluster, node.name, node.id, node.address, one) for node, one in gathered.responses.items()
    ]
    return Result(rows, failures=list(gathered.failures))


async def runtime_table(session: Session, broker: str | None = None) -> Result[BrokerEntry]:
    """The same as the broker writes it, key by key."""
    return await _entries(session, broker, partial(session.request, runtime_info))


async def settings(session: Session, broker: str | None = None, *, containing: str = "") -> Result[BrokerEntry]:
    """What brokers run with, defaults included; only keys with this text in them."""
    return await _entries(session, broker, partial(_settings, session), containing)


async def _settings(session: Session, node: Node) -> dict[str, str]:
    return (await session.request(broker_settings, node)).values


async def _entries(
    session: Session, broker: str | None, request: Callable[[Node], Awaitable[dict[str, str]]], containing: str = ""
) -> Result[BrokerEntry]:
    gathered = await session.each_node(await chosen(session, broker), request)
    rows = [
        BrokerEntry(node.name if node.is_master else f"{node.name}:{node.id}", node.address, key, value)
        for node, table in gathered.responses.items()
        for key, value in sorted(table.items())
        if containing.lower() in key.lower()
    ]
    return Result(rows, failures=list(gathered.failures))


async def plan_settings(
    session: Session, pairs: Mapping[str, str], broker: str | None = None, *, slaves: bool = False
) -> Plan:
    """Set keys at one broker, or at every master, with `slaves` at every broker. Conflict for a key of the broker's
    identity; NotFound for an unknown key, which a broker would accept and ignore; BadArgument for a wrong value.
    """
    if fixed := sorted(pairs.keys() & FIXED_SETTINGS):
        raise Conflict(
            f"{fixed[0]} sets the broker's identity or its files", "change it in its file and restart the broker"
        )
    is_for_all = broker is None and not slaves
    nodes = await session.masters() if is_for_all else await chosen(session, broker)
    gathered = await session.each_node(nodes, partial(_settings, session))
    known = set[str]().union(*gathered.responses.values())
    for key in pairs:
        if known and key not in known:
            raise NotFound(f"there is no setting {key}", nearest(key, known) or SETTINGS_HINT)
    for key, value in pairs.items():
        _check_value(key, value, {table[key] for table in gathered.responses.values() if key in table})
    nodes = list(gathered.responses)
    place = str(nodes[0]) if len(nodes) == 1 else f"{len(nodes)} brokers"
    plan = Plan(f"set {', '.join(pairs)} at {place}", failures=list(gathered.failures))
    plan.warnings = await untouched(session) if is_for_all else []
    for node, table in gathered.responses.items():
        plan.changes += [_setting(session, node, key, table.get(key), value) for key, value in pairs.items()]
    return plan


def _check_value(key: str, value: str, present: set[str]) -> None:
    """BadArgument for what no broker takes. How small or large a number may be is for each broker to say."""
    _, declared = StoreOptions.table().get(key, ("", None))
    choices = FLAG_VALUES if present and present <= set(FLAG_VALUES) else declared.choices if declared else ()
    if choices and value not in choices:
        raise BadArgument(f"{value!r} is no value of the setting {key}", f"use one of {', '.join(choices)}")


def _setting(session: Session, node: Node, key: str, before: str | None, after: str) -> Change:
    async def make() -> None:
        await session.request(change_broker_settings, node, {key: after})

    async def read_back() -> str | None:
        return (await _settings(session, node)).get(key)

    return Change(Step(str(node), "set", key, before, after), make, read_back)


def pairs_of(texts: Sequence[str]) -> dict[str, str]:
    """`KEY=VALUE` each; the value is used as it is, with blanks and further equals signs."""
    found: dict[str, str] = {}
    for text in texts:
        key, equals, value = text.partition("=")
        if not key.strip() or not equals:
            hint = f"join them with an equals sign: {'='.join(texts)}" if len(texts) == 2 else None
            raise BadArgument(f"{text!r} is not KEY=VALUE", hint)
        found[key.strip()] = value
    return found


def cleaning_of(text: str) -> Cleaning:
    """ConfigurationError for an unknown word."""
    if text not in set(Cleaning):
        raise ConfigurationError(f"{text!r} cannot be cleaned; use one of {', '.join(Cleaning)}")
    return Cleaning(text)


async def differences(session: Session) -> Result[Difference]:
    """Settings in which the masters of a cluster differ, without those that must differ."""
    gathered = await each_master(session, partial(_settings, session))
    found = Result[Difference](failures=list(gathered.failures))
    for key in sorted(set[str]().union(*gathered.responses.values()) - FIXED_SETTINGS):
        values = {node.name: table.get(key) for node, table in gathered.responses.items()}
        if len(set(values.values())) > 1:
            found.items.append(Difference(key, values))
    return found


async def consumption(session: Session, broker: str | None = None, *, lag_min: int = 0) -> Result[Consumption]:
    """How far every group is in every write queue, by the brokers' own account; only those at least so far behind."""
    nodes = await session.readable() if broker is None else [await session.node(broker)]

    async def one(node: Node) -> list[Consumption]:
        timeout_ms = max(CONSUME_STATS_TIMEOUT_MS, session.timeout_ms)
        stats = await session.request(broker_consume_stats, node, timeout_ms=timeout_ms)
        return [
            Consumption(
                queue.topic,
                group,
                queue.broker_name,
                queue.queue_id,
                progress.broker_offset,
                progress.consumer_offset,
                progress.broker_offset - progress.consumer_offset,
                progress.last_timestamp or None,
            )
            for groups in stats.consume_stats_list
            for group, parts in groups.items()
            for part in parts
            for queue, progress in part.offset_table.items()
        ]

    gathered = await session.each_node(nodes, one)
    rows = [row for rows in gathered.responses.values() for row in rows if row.lag_messages >= lag_min]
    return Result(
        sorted(rows, key=lambda row: (row.topic, row.group, row.broker, row.queue_id)), failures=list(gathered.failures)
    )


async def plan_cleaning(session: Session, what: Cleaning, broker: str | None = None) -> Plan:
    """Request one broker, or every broker, to run a cleanup now that it would run later by itself."""
    nodes = await session.registered() if broker is None else [await session.node(broker)]
    timeout_ms = max(30_000.0, session.timeout_ms)
    return Plan(
        f"have {nodes[0] if len(nodes) == 1 else f'{len(nodes)} brokers'} remove {what.value}",
        [
            Change(
                Step(str(node), "remove", what.value, None, "removed"),
                partial(session.request, _CLEANING[what], node, timeout_ms=timeout_ms),
            )
            for node in nodes
        ],
        failures=await session.absent() if broker is None else [],
    )


async def plan_writing(session: Session, broker: str, *, allowed: bool) -> Plan:
    """Have every name server remove the write permission of a broker from its routes, or restore it. Producers follow
    with their next route update, within 30 s.
    """
    known = {node.name for node in await session.registered()}
    if broker not in known:
        raise NotFound(f"there is no broker {broker}", nearest(broker, known))
    change = add_write_permission if allowed else wipe_write_permission
    before = await session.every_name_server(lambda server: writable(session, server, broker))
    plan = Plan(
        f"allow writing to {broker}" if allowed else f"forbid writing to {broker}", failures=list(before.failures)
    )
    for server, now in before.responses.items():
        step = Step(server, "allow writing" if allowed else "forbid writing", broker, now, allowed)
        make = _without_result(partial(session.request, change, server, broker))
        plan.changes.append(Change(step, make, partial(writable, session, server, broker)))
    if allowed:
        plan.warnings.append("topics that were meant to be read only are written, too, until the broker registers anew")
    else:
        plan.warnings.append(
            f"it is undone when {broker} registers with changed topics; "
            f"for good: orbitmq broker config set brokerPermission=4 --broker {broker}"
        )
    return plan


def _without_result(request: Callable[[], Awaitable[object]]) -> Callable[[], Awaitable[None]]:
    async def run() -> None:
        await request()

    return run


async def writable(session: Session, server: str, broker: str) -> bool | None:
    """Whether this name server's routes allow writes, by the broker's own topic; None without one."""
    found = await session.request(route, server, broker)
    queues = [] if found is None else [one for one in found.queue_datas if one.broker_name == broker]
    return bool(queues[0].perm & PERM_WRITE) if queues else None


async def send_test(
    session: Session, broker: str | None = None, *, count: int = 10, body_bytes: int = 128
) -> Result[SendTest]:
    """Send to each broker's own topic, one message after the other, and measure the time."""
    if count < 1:
        raise BadArgument("a test needs at least one message")

    async def one(node: Node) -> SendTest:
        return await _send_test(session, node, count, body_bytes)

    gathered = await (
        each_master(session, one) if broker is None else session.each_node([await session.node(broker)], one)
    )
    return Result(list(gathered.responses.values()), failures=list(gathered.failures))


async def _send_test(session: Session, node: Node, count: int, body_bytes: int) -> SendTest:
    """Raises the last failure when nothing at all could be sent."""
    times: list[float] = []
    failure: OrbitMQError | None = None
    for _ in range(count):
        began = time.perf_counter()
        try:
            await _send(session.remoting, node, body_bytes, session.timeout_ms)
        except OrbitMQError as error:
            failure = error
        else:
            times.append((time.perf_counter() - began) * 1000)
    if failure is not None and not times:
        raise failure
    counted = times[1:]
    mean = sum(counted) / len(counted) if counted else None
    shortest, longest = min(counted, default=None), max(counted, default=None)
    return SendTest(node.cluster, node.name, node.address, len(times), count - len(times), mean, shortest, longest)


async def _send(remoting: Remoting, node: Node, body_bytes: int, timeout_ms: float) -> None:
    header = SendMessageV2Header(
        producer_group=TEST_GROUP,
        topic=node.name,
        default_topic="TBW102",
        default_topic_queue_nums=1,
        queue_id=0,
        sys_flag=0,
        born_timestamp=SystemClock().now_ms(),
        flag=0,
        properties="",
    )
    await send(remoting, node.address, header, b"a" * body_bytes, timeout_ms=timeout_ms)
