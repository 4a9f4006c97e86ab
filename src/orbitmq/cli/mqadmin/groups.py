"""mqadmin commands for groups and their members."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Mapping
from enum import Enum
from functools import partial
from pathlib import Path

from orbitmq.admin.session import Node
from orbitmq.cli.mqadmin.forms import cells, group_fields, second, settings
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.cli.mqadmin.topics import drop
from orbitmq.errors import BodyError, BrokerError, ConfigurationError, NotFound, OrbitMQError
from orbitmq.message.config import RetryPolicy, SubscriptionGroup
from orbitmq.message.model import MessageQueue
from orbitmq.message.topics import DLQ_PREFIX, RETRY_PREFIX
from orbitmq.operations.groups import (
    consume_stats,
    consumer_connections,
    create_group,
    delete_group,
    producer_connections,
)
from orbitmq.operations.membership import running_info
from orbitmq.operations.routes import topics as all_topic_names
from orbitmq.operations.tables import all_groups
from orbitmq.wire.bodies import ClientConnection, ConsumerConnection, ConsumerRunningInfo, QueueProgress
from orbitmq.wire.codes import ResponseCode, version_name
from orbitmq.wire.objects import decode

YOUNG_MS = 2 * 60 * 1000
"""Younger members are not compared: they may not have subscribed to everything yet."""
MONITOR_SECONDS = 60
SAME, BALANCED = "Same subscription in the same group of consumer", "Rebalance OK"
STUCK_MS = 60_000
"""Messages cached, none consumed for so long: the listener is probably blocked."""


async def consumer_progress(work: Work) -> None:
    group = work.given.text("g")
    if not group:
        await _all_progress(work)
        return
    tps, progress = await _progress_of(work, group)
    owners = await _owners(work, group) if work.given.truth("s", False) else None
    heading: list[object] = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset"]
    print(_progress_row([*heading, *(["#Client IP"] if owners is not None else []), "#Diff", "#LastTime"]))
    total = 0
    for queue, one in sorted(progress.items()):
        behind = one.broker_offset - one.consumer_offset
        total += behind
        at = second(one.last_timestamp) if one.last_timestamp > 0 else "N/A"
        row: list[object] = [queue.topic, queue.broker_name, queue.queue_id, one.broker_offset, one.consumer_offset]
        print(_progress_row([*row, *([owners.get(queue, "N/A")] if owners is not None else []), behind, at]))
    print(f"\nConsume TPS: {tps:.2f}\nDiff Total: {total}")


def _progress_row(values: list[object]) -> str:
    widths = (-64, -32, -4, -20, -20, *([-20] * (len(values) - 5)))
    return cells(*zip(values, widths, strict=True)).rstrip()


async def _progress_of(work: Work, group: str) -> tuple[float, dict[MessageQueue, QueueProgress]]:
    """From every broker of the group's retry topic, as RocketMQ's tool does."""
    homes = await work.session.homes(RETRY_PREFIX + group)
    found = await work.each(homes, lambda node: consume_stats(work.session.remoting, node.address, group))
    progress = {queue: one for stats in found.values() for queue, one in stats.offset_table.items()}
    return sum(stats.consume_tps for stats in found.values()), progress


async def _owners(work: Work, group: str) -> dict[MessageQueue, str]:
    """Queue -> the address in the id of the member that has it."""
    found = {}
    for client, info in (await _reports(work, group)).items():
        found.update(dict.fromkeys(info.mq_table, client.partition("@")[0]))
    return found


async def _all_progress(work: Work) -> None:
    print(_group_row("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    names = await work.session.any_name_server(
        lambda server: all_topic_names(work.session.remoting, server, timeout_ms=work.session.timeout_ms)
    )
    groups = [name.removeprefix(RETRY_PREFIX) for name in names if name.startswith(RETRY_PREFIX)]
    for row in await asyncio.gather(*(_group(work, group) for group in groups)):
        print(_group_row(*row))


async def _group(work: Work, group: str) -> tuple[object, ...]:
    """The row of a group, also if it has no members or no offsets."""
    try:
        tps, progress = await _progress_of(work, group)
        connection = await _connection(work, group)
    except NotFound:  # deleted concurrently
        tps, progress, connection = 0.0, {}, None
    behind = sum(one.broker_offset - one.consumer_offset for one in progress.values())
    if connection is None:
        return group, 0, "OFFLINE", "", "", int(tps), behind
    kind = {"CONSUME_PASSIVELY": "PUSH", "CONSUME_ACTIVELY": "PULL"}.get(_name(connection.consume_type), "")
    lowest = version_name(min(member.version for member in connection.connection_set))
    return group, len(connection.connection_set), lowest, kind, _name(connection.message_model), int(tps), behind


def _group_row(*values: object) -> str:
    widths = (-64, -6, -24, -5, -14, -7, -1)
    return "  ".join(str(value).ljust(-width) for value, width in zip(values, widths, strict=True)).rstrip()


def _name(value: Enum | None) -> str:
    return value.name if value is not None else ""


async def _connection(work: Work, group: str) -> ConsumerConnection | None:
    """The members at all brokers of the group; None if none is online."""
    nodes = await work.targets() if "b" in work.given else await work.session.homes(RETRY_PREFIX + group)
    found = await work.each(nodes, lambda node: consumer_connections(work.session.remoting, node.address, group))
    connections = [one for one in found.values() if one is not None]
    if not connections:
        return None
    members = {member.client_id: member for one in connections for member in one.connection_set}
    first = connections[0]
    return ConsumerConnection(
        list(members.values()),
        first.consume_from_where,
        first.consume_type,
        first.message_model,
        first.subscription_table,
    )


def _offline(group: str) -> BrokerError:
    return BrokerError(ResponseCode.CONSUMER_NOT_ONLINE, f"group {group} has no member online")


async def consumer_connection(work: Work) -> None:
    group = work.given.text("g")
    found = await _connection(work, group)
    if found is None:
        raise _offline(group)
    print(cells(("#ClientId", -35), ("#ClientAddr", -22), ("#Language", -10), ("#Version", -1)))
    for member in found.connection_set:
        print(cells((member.client_id, -35), *_member(member)))
    print("\nBelow is subscription:")
    print(cells(("#Topic", -20), ("#SubExpression", -1)))
    for topic, subscription in found.subscription_table.items():
        print(cells((topic, -20), (subscription.expression, -1)))
    print(f"\nConsumeType: {_name(found.consume_type)}")
    print(f"MessageModel: {_name(found.message_model)}")
    print(f"ConsumeFromWhere: {_name(found.consume_from_where)}")


def _member(member: ClientConnection) -> tuple[tuple[object, int], ...]:
    return (member.client_addr, -22), (member.language, -8), (version_name(member.version), -1)


async def producer_connection(work: Work) -> None:
    group = work.given.text("g")
    homes = await work.session.homes(work.given.text("t"))
    found = await work.each(homes, lambda node: producer_connections(work.session.remoting, node.address, group))
    members = {member.client_id: member for one in found.values() for member in one}
    if not members:
        raise BrokerError(ResponseCode.SYSTEM_ERROR, f"the producer group[{group}] not exist")
    for number, member in enumerate(members.values(), 1):
        print(cells((f"{number:04}", -4), (member.client_id, -32), *_member(member)))


# ------------------------------------------------------------------------------------------------------ running members


async def _reports(work: Work, group: str) -> dict[str, ConsumerRunningInfo]:
    """What each member reports, by client id."""
    connection = await _connection(work, group)
    if connection is None:
        raise _offline(group)
    ids = [str(member.client_id) for member in connection.connection_set]
    gathered = await work.session.each({client: client for client in ids}, partial(_report, work, group))
    work.failures += gathered.failures
    return gathered.responses


async def _report(work: Work, group: str, client: str) -> ConsumerRunningInfo:
    """From the broker the member is connected to."""
    failure: OrbitMQError | None = None
    for node in await work.session.homes(RETRY_PREFIX + group):
        try:
            return await running_info(work.session.remoting, node.address, group, client)
        except BrokerError as error:
            failure = error
    raise failure or _offline(group)


async def consumer_status(work: Work) -> None:
    group, client = work.given.text("g"), work.given.text("i")
    if client:
        print("\n".join(_text_of(await _report(work, group, client), stack="s" in work.given)))
        return
    reports = await _reports(work, group)
    connection = await _connection(work, group)
    versions = {member.client_id: member.version for member in connection.connection_set} if connection else {}
    folder = Path(str(time.time_ns() // 1_000_000))
    print(_status_row("#Index", "#ClientId", "#Version", "#ConsumerRunningInfoFile"))
    for number, (member, info) in enumerate(reports.items(), 1):
        path = await asyncio.to_thread(_save, folder, member, _text_of(info, stack="s" in work.given))
        print(_status_row(number, member, version_name(versions.get(member, 0)), path))
    print("\n" + "\n".join(_checks(reports)))


def _status_row(*values: object) -> str:
    return " ".join(str(value).ljust(width) for value, width in zip(values, (10, 40, 20, 1), strict=True)).rstrip()


def _save(folder: Path, client: str, lines: list[str]) -> Path:
    """The client chooses its id, so the id must not lead out of the folder."""
    folder.mkdir(exist_ok=True)
    path = folder / client.replace("/", "_").lstrip(".")
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def _checks(reports: Mapping[str, ConsumerRunningInfo]) -> list[str]:
    now_ms = time.time() * 1000
    old = {
        client: info
        for client, info in reports.items()
        if now_ms - int(info.properties.get("PROP_CONSUMER_START_TIMESTAMP", now_ms)) > YOUNG_MS
    }
    wanted = Counter(tuple(sorted((s.topic, s.expression) for s in info.subscription_set)) for info in old.values())
    lines = [SAME if len(wanted) <= 1 else "WARN: Different subscription in the same group of consumer!!!"]
    owned = Counter(queue for info in reports.values() for queue in info.mq_table)
    twice = [queue for queue, count in owned.items() if count > 1]
    lines += ["", BALANCED if not twice else f"WARN: {len(twice)} queues have more than one owner"]
    for client, info in reports.items():
        for queue, state in info.mq_table.items():
            waits_ms = now_ms - state.last_consume_timestamp
            if state.cached_msg_count > 0 and waits_ms > STUCK_MS:
                text = f"{queue} has {state.cached_msg_count} messages and consumed none for {waits_ms:.0f} ms"
                lines.append(f"{client}: {text}; probably blocked")
    return lines


def _text_of(info: ConsumerRunningInfo, *, stack: bool) -> list[str]:
    lines = ["#Consumer Properties#", *(f"{key:<40}: {value}" for key, value in sorted(info.properties.items()))]
    lines += ["", "", "#Consumer Subscription#"]
    for number, one in enumerate(info.subscription_set, 1):
        lines.append(f"{number:03} Topic: {one.topic:<40} ClassFilter: false    SubExpression: {one.expression}")
    lines += ["", "", "#Consumer Offset#", _queue_row("#Topic", "#Broker Name", "#QID", "#Consumer Offset")]
    lines += [_queue_row(*_place(queue), state.commit_offset) for queue, state in sorted(info.mq_table.items())]
    lines += ["", "", "#Consumer MQ Detail#", _queue_row("#Topic", "#Broker Name", "#QID", "#ProcessQueueInfo")]
    for queue, state in sorted(info.mq_table.items()):
        detail = (
            f"commitOffset={state.commit_offset}, cachedMsgMinOffset={state.cached_msg_min_offset}, "
            f"cachedMsgMaxOffset={state.cached_msg_max_offset}, cachedMsgCount={state.cached_msg_count}, "
            f"locked={state.locked}, droped={state.dropped}, lastPull={state.last_pull_timestamp}, "
            f"lastConsume={state.last_consume_timestamp}"
        )
        lines.append(_queue_row(*_place(queue), detail))
    heads = (
        "#Topic",
        "#Pull RT",
        "#Pull TPS",
        "#Consume RT",
        "#ConsumeOK TPS",
        "#ConsumeFailed TPS",
        "#ConsumeFailedMsgsInHour",
    )
    lines += ["", "", "#Consumer RT&TPS#", _rate_row(*heads)]
    for topic, rates in sorted(info.status_table.items()):
        values = (rates.pull_rt, rates.pull_tps, rates.consume_rt, rates.consume_ok_tps, rates.consume_failed_tps)
        lines.append(_rate_row(topic, *(f"{value:.2f}" for value in values), rates.consume_failed_msgs))
    if stack or info.jstack:
        lines += ["", "", "#Consumer jstack#", info.jstack or ""]
    return lines


def _place(queue: MessageQueue) -> tuple[object, ...]:
    return queue.topic, queue.broker_name, queue.queue_id


def _queue_row(*values: object) -> str:
    return cells(*zip(values, (-64, -32, -4, -1), strict=True))


def _rate_row(*values: object) -> str:
    return cells((values[0], -64), *((value, 14) for value in values[1:]))


# --------------------------------------------------------------------------------------------------------------- rules


async def update_sub_group(work: Work) -> None:
    given = work.given
    group = SubscriptionGroup(
        given.text("g"),
        consume_enabled=given.truth("s", True),
        consume_from_min_enabled=given.truth("m", False),
        consume_broadcast_enabled=given.truth("d", False),
        retry_queues=given.number("q", 1),
        retry_max=given.number("r", 16),
        broker_id=given.number("i", 0),
        broker_id_when_slow=given.number("w", 1),
        notify_consumer_ids_changed=given.truth("a", True),
        consume_orderly=given.truth("o", False),
        retry_policy=_retry_policy(given.text("p")),
    )
    done = await work.each(await work.targets(), lambda node: create_group(work.session.remoting, node.address, group))
    for node in done:
        print(f"create subscription group to {node.address} success.")
    fields = ", ".join(f"{key}={value}" for key, value in group_fields(group))
    if done:
        print(f"SubscriptionGroupConfig [{fields}]")


def _retry_policy(text: str) -> RetryPolicy:
    try:
        return decode(RetryPolicy, text.encode()) if text else RetryPolicy()
    except BodyError as error:
        raise ConfigurationError(f"-p {text}: {error}") from error


async def delete_sub_group(work: Work) -> None:
    group, offsets = work.given.text("g"), work.given.truth("r", False)
    nodes = await work.targets()

    async def delete(node: Node) -> None:
        await delete_group(work.session.remoting, node.address, group, with_offsets=offsets)

    done = await work.each(nodes, delete)
    cluster = work.given.text("c")
    where = f" in cluster [{cluster}]" if cluster else ""
    for node in done:
        print(f"delete subscription group [{group}] from broker [{node.address}]{where} success.")
    if cluster:
        for topic in (RETRY_PREFIX + group, DLQ_PREFIX + group):
            await drop(work, topic, cluster, nodes)


async def get_consumer_config(work: Work) -> None:
    group = work.given.text("g")
    nodes = await work.session.masters()
    found = await work.each(nodes, lambda node: all_groups(work.session.remoting, node.address))
    for node, table in found.items():
        rules = table.groups.get(group)
        if rules is not None:
            print(f"{f'{node.cluster}:{node.name}':=^80}")
            print("\n".join(settings(group_fields(rules), width=40)), end="\n\n")


async def start_monitoring(work: Work) -> None:
    """Every minute until Ctrl-C: groups with lag, with different members, or with a listener that hangs."""
    while True:
        names = await work.session.any_name_server(
            lambda server: all_topic_names(work.session.remoting, server, timeout_ms=work.session.timeout_ms)
        )
        for name in names:
            if name.startswith(RETRY_PREFIX):
                await _monitor(work, name.removeprefix(RETRY_PREFIX))
        await asyncio.sleep(MONITOR_SECONDS)


async def _monitor(work: Work, group: str) -> None:
    _tps, progress = await _progress_of(work, group)
    behind = sum(one.broker_offset - one.consumer_offset for one in progress.values())
    at = second(time.time_ns() // 1_000_000)
    if behind > 0:
        print(f"{at} group {group} is {behind} messages behind", flush=True)
    if await _connection(work, group) is not None:
        wrong = [line for line in _checks(await _reports(work, group)) if line and line not in (SAME, BALANCED)]
        print("".join(f"{at} group {group}: {line}\n" for line in wrong), end="", flush=True)


COMMANDS = {
    "consumer": consumer_status,
    "startMonitoring": start_monitoring,
    "consumerProgress": consumer_progress,
    "consumerConnection": consumer_connection,
    "producerConnection": producer_connection,
    "consumerStatus": consumer_status,
    "updateSubGroup": update_sub_group,
    "deleteSubGroup": delete_sub_group,
    "getConsumerConfig": get_consumer_config,
}
