"""mqadmin commands that move the offsets of groups."""

from __future__ import annotations

from functools import partial

from orbitmq.admin.session import Node
from orbitmq.cli.mqadmin.forms import truth
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.cli.mqadmin.times import TO_THE_END, timestamp_ms
from orbitmq.errors import ConfigurationError
from orbitmq.message.model import MessageQueue
from orbitmq.operations.groups import consume_stats, consumer_positions, reset_offsets
from orbitmq.operations.offsets import max_offset, search_offset, update_consumer_offset
from orbitmq.operations.topics import topic_stats
from orbitmq.wire.bodies import QueueProgress


async def reset_offset_by_time(work: Work) -> None:
    given = work.given
    group, topic, text, force = given.text("g"), given.text("t"), given.text("s"), given.truth("f", True)
    at_ms = timestamp_ms(text)
    if at_ms is None:
        raise ConfigurationError(f"-s {text}: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
    print(
        f"rollback consumer offset by specified group[{group}], topic[{topic}], force[{truth(force)}], "
        f"timestamp(string)[{text}], timestamp(long)[{at_ms}]"
    )
    await _reset(work, group, topic, at_ms, force=force)


async def skip_accumulated_message(work: Work) -> None:
    given = work.given
    await _reset(work, given.text("g"), given.text("t"), TO_THE_END, force=given.truth("f", True))


async def _reset(work: Work, group: str, topic: str, at_ms: int, *, force: bool) -> None:
    """Brokers notify members that are online; at a broker without members, the offsets are written."""
    homes = await work.session.homes(topic)

    async def reset(node: Node) -> dict[MessageQueue, int] | None:
        return await reset_offsets(work.session.remoting, node.address, group, topic, at_ms, force=force)

    resets = await work.each(homes, reset)
    if any(offsets is not None for offsets in resets.values()):
        print(_row("#brokerName", "#queueId", "#offset"))
        for queue, offset in sorted(pair for offsets in resets.values() if offsets for pair in offsets.items()):
            print(_row(queue.broker_name, queue.queue_id, offset))
    offline = [node for node, offsets in resets.items() if offsets is None]
    if offline:
        await _reset_offline(work, group, topic, at_ms, offline, force=force)


def _row(*values: object) -> str:
    return "  ".join(str(value).ljust(40) for value in values).rstrip()


async def _reset_offline(work: Work, group: str, topic: str, at_ms: int, homes: list[Node], *, force: bool) -> None:
    print(_offline_row(
        "#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset"
    ))  # fmt: skip
    for node in homes:
        progress = (await work.each([node], partial(_progress, work, group, topic))).get(node, {})
        for queue, one in sorted(progress.items()):
            found = await _offset_at(work, node, queue, at_ms)
            goal = found if force or found < one.consumer_offset else one.consumer_offset
            if goal != one.consumer_offset:
                await update_consumer_offset(work.session.remoting, node.address, group, queue, goal)
            print(_offline_row(queue.broker_name, queue.queue_id, one.broker_offset, one.consumer_offset, found, goal))


def _offline_row(*values: object) -> str:
    widths = (-20, -20, -20, -20, -20, -20)
    return "  ".join(str(value).ljust(-width) for value, width in zip(values, widths, strict=True)).rstrip()


async def _progress(work: Work, group: str, topic: str, node: Node) -> dict[MessageQueue, QueueProgress]:
    """A group that has never consumed has no offsets: the ends of the queues are used."""
    stats = await consume_stats(work.session.remoting, node.address, group, topic)
    if stats.offset_table:
        return dict(stats.offset_table)
    ranges = await topic_stats(work.session.remoting, node.address, topic)
    return {queue: QueueProgress(one.max_offset, 0, 0) for queue, one in ranges.offset_table.items()}


async def _offset_at(work: Work, node: Node, queue: MessageQueue, at_ms: int) -> int:
    if at_ms == TO_THE_END:
        return await max_offset(work.session.remoting, node.address, queue)
    return await search_offset(work.session.remoting, node.address, queue, at_ms)


async def reset_offset_by_time_old(work: Work) -> None:
    """Writes the offsets even if members are online."""
    given = work.given
    group, topic, text = given.text("g"), given.text("t"), given.text("s")
    at_ms = timestamp_ms(text)
    if at_ms is None:
        raise ConfigurationError(f"-s {text}: now, milliseconds, or yyyy-MM-dd#HH:mm:ss:SSS")
    homes = await work.session.homes(topic)
    await _reset_offline(work, group, topic, at_ms, homes, force=given.truth("f", True))


async def get_consumer_status(work: Work) -> None:
    given = work.given
    group, topic, only = given.text("g"), given.text("t"), given.text("i")
    homes = await work.session.homes(topic)

    async def query(node: Node) -> dict[str, dict[MessageQueue, int]]:
        return await consumer_positions(work.session.remoting, node.address, group, topic)

    found = await work.each(homes, query)
    print(_status_row("#clientId", "#brokerName", "#queueId", "#offset"))
    for clients in found.values():
        for client, offsets in clients.items():
            for queue, offset in sorted(offsets.items()):
                if only in ("", client):
                    print(_status_row(client, queue.broker_name, queue.queue_id, offset))


def _status_row(*values: object) -> str:
    return "  ".join(str(value).ljust(width) for value, width in zip(values, (50, 15, 15, 20), strict=True)).rstrip()


async def clone_group_offset(work: Work) -> None:
    source, destination, topic = (work.given.text(letter) for letter in "sdt")
    homes = await work.session.homes(topic)

    async def clone(node: Node) -> None:
        stats = await consume_stats(work.session.remoting, node.address, source, topic)
        for queue, one in stats.offset_table.items():
            if one.consumer_offset >= 0:
                await update_consumer_offset(
                    work.session.remoting, node.address, destination, queue, one.consumer_offset
                )

    await work.each(homes, clone)
    if not work.failures:
        print(f"clone group offset success. srcGroup[{source}], destGroup=[{destination}], topic[{topic}]")


COMMANDS = {
    "resetOffsetByTime": reset_offset_by_time,
    "skipAccumulatedMessage": skip_accumulated_message,
    "resetOffsetByTimeOld": reset_offset_by_time_old,
    "getConsumerStatus": get_consumer_status,
    "cloneGroupOffset": clone_group_offset,
}
