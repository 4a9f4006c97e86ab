"""mqadmin commands for clusters and brokers."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable

from orbitmq.admin.session import Node
from orbitmq.cli.mqadmin.forms import cells, second, settings
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.errors import ConfigurationError
from orbitmq.operations.cleanup import clean_expired_queues, clean_unused_topics, delete_expired_log
from orbitmq.operations.groups import all_producers
from orbitmq.operations.settings import broker_settings, change_broker_settings
from orbitmq.operations.statistics import broker_consume_stats, runtime_info

_MS_PER_HOUR = 3_600_000


async def cluster_list(work: Work) -> None:
    """Once, or every `-i` seconds until Ctrl-C."""
    while True:
        await _clusters(work)
        seconds = work.given.number("i", 0)
        if seconds <= 0:
            return
        print(flush=True)
        await asyncio.sleep(seconds)


async def _clusters(work: Work) -> None:
    nodes = await work.session.nodes()
    tables = await work.each(nodes, lambda node: runtime_info(work.session.remoting, node.address))
    more = "m" in work.given
    print(_TOTALS_HEAD if more else _LOAD_HEAD)
    for node, table in tables.items():
        print(_totals(node, table) if more else _load(node, table))


_LOADS = (
    ("#Version", -16),
    ("#InTPS(LOAD)", 19),
    ("#OutTPS(LOAD)", 19),
    ("#PCWait(ms)", 10),
    ("#Hour", 5),
    ("#SPACE", 6),
)
_LOAD_HEAD = f"{cells(('#Cluster Name', -16), ('#Broker Name', -22), ('#BID', -4), ('#Addr', -22))}  " + " ".join(
    text.ljust(-width) if width < 0 else text.rjust(width) for text, width in _LOADS
)
_TOTALS_HEAD = f"{cells(('#Cluster Name', -16), ('#Broker Name', -32))} " + " ".join(
    text.rjust(14) for text in ("#InTotalYest", "#OutTotalYest", "#InTotalToday", "#OutTotalToday")
)


def _load(node: Node, table: dict[str, str]) -> str:
    sent, taken = _rate(table, "putTps", "send"), _rate(table, "getTransferedTps", "pull")
    place = cells((node.cluster, -16), (node.name, -22), (node.id, -4), (node.address, -22))
    space = f"{float(table.get('commitLogDiskRatio', -1)):.4f}"
    values = (
        table.get("brokerVersionDesc", "").ljust(16), sent.rjust(19), taken.rjust(19),
        table.get("pageCacheLockTimeMills", "").rjust(10), _hours(table).rjust(5), space.rjust(6),
    )  # fmt: skip
    return f"{place}  {' '.join(values)}"


def _rate(table: dict[str, str], rate: str, queue: str) -> str:
    first = (table.get(rate) or table.get(rate.replace("Transfered", "Transferred")) or "").split(" ")[0]
    size = table.get(f"{queue}ThreadPoolQueueSize", "")
    waited = table.get(f"{queue}ThreadPoolQueueHeadWaitTimeMills", "")
    return f"{float(first or 0):.2f}({size},{waited}ms)".rjust(9)


def _hours(table: dict[str, str]) -> str:
    """The age of the oldest message in hours; 0.00 for an empty store, where RocketMQ prints the hours since 1970."""
    oldest = int(table.get("earliestMessageTimeStamp", -1))
    return f"{(time.time() * 1000 - oldest) / _MS_PER_HOUR if oldest >= 0 else 0:.2f}"


def _totals(node: Node, table: dict[str, str]) -> str:
    def total(way: str, until: str, since: str) -> int:
        return int(table.get(f"msg{way}Total{until}", 0)) - int(table.get(f"msg{way}Total{since}", 0))

    yesterday = [total(way, "TodayMorning", "YesterdayMorning") for way in ("Put", "Get")]
    today = [total(way, "TodayNow", "TodayMorning") for way in ("Put", "Get")]
    values = " ".join(f"{value:>14}" for value in (*yesterday, *today))
    return f"{cells((node.cluster, -16), (node.name, -32))} {values}"


async def broker_status(work: Work) -> None:
    nodes = await work.targets(masters=False)
    tables = await work.each(nodes, lambda node: runtime_info(work.session.remoting, node.address))
    for node, table in tables.items():
        place = "" if "b" in work.given else f"{node.address:<24} "
        for key in sorted(table):
            print(f"{place}{key:<32}: {table[key]}")


async def get_broker_config(work: Work) -> None:
    nodes = await work.targets(masters=False)
    found = await work.each(nodes, lambda node: broker_settings(work.session.remoting, node.address))
    for node, one in found.items():
        role = "" if "b" in work.given else "Master: " if node.is_master else "Slave: "
        print(f"============{role}{node.address}============")
        print("\n".join(settings(one.values)), end="\n\n")


async def update_broker_config(work: Work) -> None:
    pair = {work.given.text("k"): work.given.text("v")}
    nodes = await work.targets()
    done = await work.each(nodes, lambda node: change_broker_settings(work.session.remoting, node.address, pair))
    for node in done:
        print(f"update broker config success, {node.address}")


async def broker_consume_stats_(work: Work) -> None:
    node = await work.session.node(work.given.text("b"))
    found = await broker_consume_stats(
        work.session.remoting,
        node.address,
        ordered=work.given.truth("o", False),
        timeout_ms=work.given.number("t", 50_000),
    )
    least = work.given.number("l", 0)
    print(
        _consumption(
            "#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"
        )
    )
    rows = [
        (queue, group, progress)
        for groups in found.consume_stats_list
        for group, stats in groups.items()
        for one in stats
        for queue, progress in sorted(one.offset_table.items())
    ]
    for queue, group, progress in rows:
        behind = progress.broker_offset - progress.consumer_offset
        if behind >= least and progress.last_timestamp > 0:
            print(_consumption(
                queue.topic, group, queue.broker_name, queue.queue_id, progress.broker_offset, progress.consumer_offset,
                behind, second(progress.last_timestamp),
            ))  # fmt: skip
    print(f"\nDiff Total: {found.total_diff}")


def _consumption(*values: object) -> str:
    return cells(*zip(values, (-64, -64, -32, -4, -20, -20, -20, -20), strict=True)).rstrip()


async def producer(work: Work) -> None:
    node = await work.session.node(work.given.text("b"))
    groups = await all_producers(work.session.remoting, node.address)
    if not groups:
        print("producer instance is empty!")
    for group, members in groups.items():
        for one in members:
            print(
                f"producer group ({group}) instance : clientId={one.client_id},remoteIP={one.remote_ip}, "
                f"language={one.language}, version={one.version}, lastUpdateTimestamp={one.last_update_timestamp}"
            )


def _cleaning(request: Callable[..., Awaitable[None]]) -> Callable[[Work], Awaitable[None]]:
    async def clean(work: Work) -> None:
        if "b" not in work.given and "c" not in work.given:
            raise ConfigurationError("give -b brokerAddr or -c cluster")
        await work.each(await work.targets(), lambda node: request(work.session.remoting, node.address))
        if not work.failures:
            print("success")

    return clean


COMMANDS = {
    "clusterList": cluster_list,
    "brokerStatus": broker_status,
    "getBrokerConfig": get_broker_config,
    "updateBrokerConfig": update_broker_config,
    "brokerConsumeStats": broker_consume_stats_,
    "cleanExpiredCQ": _cleaning(clean_expired_queues),
    "cleanUnusedTopic": _cleaning(clean_unused_topics),
    "deleteExpiredCommitLog": _cleaning(delete_expired_log),
    "producer": producer,
}
