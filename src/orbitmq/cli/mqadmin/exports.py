"""mqadmin commands that export a cluster's configuration and metrics to JSON files.

As in RocketMQ's tool, a topic of several brokers has the sum of their queues; `orbitmq config export` writes them per
broker.
"""

from __future__ import annotations

import asyncio
import json
import time
from pathlib import Path
from typing import Any

from msgspec.structs import replace

from orbitmq.admin.session import Node
from orbitmq.admin.topics import day_sum
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.errors import ConfigurationError
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.topics import DLQ_PREFIX, RETRY_PREFIX, is_system_group, is_system_topic
from orbitmq.operations.groups import consumer_connections
from orbitmq.operations.settings import broker_settings
from orbitmq.operations.statistics import runtime_info, statistic
from orbitmq.operations.tables import all_groups
from orbitmq.operations.topics import all_topics, system_topics
from orbitmq.wire.bodies import StatsItem
from orbitmq.wire.codes import version_name
from orbitmq.wire.objects import plain

FOLDER = "/tmp/rocketmq/export"  # noqa: S108 -- the default of RocketMQ's tool; files are created anew
SETTINGS = (
    "brokerClusterName", "brokerId", "brokerName", "brokerRole", "fileReservedTime", "filterServerNums",
    "flushDiskType", "maxMessageSize", "messageDelayLevel", "msgTraceTopicName", "slaveReadEnable", "traceOn",
    "traceTopicEnable", "useTLS", "autoCreateTopicEnable", "autoCreateSubscriptionGroup",
)  # fmt: skip
SCHEDULE_TOPIC, HALF_TOPIC = "SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC"


async def export_metadata(work: Work) -> None:
    given = work.given
    if "b" not in given and "c" not in given:
        raise ConfigurationError("give -b brokerAddr or -c clusterName")
    topics: dict[str, TopicConfig] = {}
    groups: dict[str, SubscriptionGroup] = {}
    for node in await work.targets():
        await _add(work, node, topics, groups)
    both = "t" not in given and "g" not in given
    document: dict[str, Any] = {}
    if both or "t" in given:
        document["topicConfigTable"] = {name: plain(one) for name, one in sorted(topics.items())}
    if both or "g" in given:
        document["subscriptionGroupTable"] = {name: plain(one) for name, one in sorted(groups.items())}
    document["exportTime"] = time.time_ns() // 1_000_000
    await _write(work, "metadata" if both else "topic" if "t" in given else "subscriptionGroup", document)


async def _add(work: Work, node: Node, topics: dict[str, TopicConfig], groups: dict[str, SubscriptionGroup]) -> None:
    """Add the topics and groups of one broker; a topic of several brokers has the sum of their queues."""
    remoting, special = work.session.remoting, "s" in work.given
    own = set(await system_topics(remoting, node.address))
    for name, topic in (await all_topics(remoting, node.address)).topics.items():
        derived = name.startswith((RETRY_PREFIX, DLQ_PREFIX))
        if name in own or is_system_topic(name) or (derived and not special):
            continue
        read, write = (topic.read_queues, topic.write_queues)
        if (known := topics.get(name)) is not None:
            read, write = read + known.read_queues, write + known.write_queues
        topics[name] = replace(topic, read_queues=read, write_queues=write)
    found = (await all_groups(remoting, node.address)).groups
    groups.update({name: group for name, group in found.items() if not is_system_group(name)})


async def export_configs(work: Work) -> None:
    nodes = await work.of_cluster(work.given.text("c"), masters=False)
    masters = [node for node in nodes if node.is_master]
    found = await work.each(masters, lambda node: broker_settings(work.session.remoting, node.address))
    scale = {
        "namesrvSize": len(work.session.name_servers),
        "masterBrokerSize": len(masters),
        "slaveBrokerSize": len(nodes) - len(masters),
    }
    chosen = {node.name: {key: one.values[key] for key in SETTINGS if key in one.values} for node, one in found.items()}
    await _write(work, "configs", {"clusterScale": scale, "brokerConfigs": chosen})


async def export_metrics(work: Work) -> None:
    nodes = await work.of_cluster(work.given.text("c"))
    reports = await work.each(nodes, lambda node: _report(work, node))
    quotas = [report["runtimeQuota"] for report in reports.values()]

    def total(part: str, key: str) -> Any:
        return sum(quota[part][key] for quota in quotas)

    days = {key: total("oneDayNum", key) for key in _DAY}
    rates = {f"total{key[0].upper()}{key[1:]}": total("tps", key) for key in _TPS}
    document = {
        "evaluateReport": {node.name: report for node, report in reports.items()},
        "totalData": {"totalOneDayNum": days, "totalTps": rates},
    }
    await _write(work, "metrics", document)


_TPS = ("normalInTps", "normalOutTps", "scheduleInTps", "transInTps")
_DAY = ("normalOneDayInNum", "normalOneDayOutNum", "scheduleOneDayInNum", "transOneDayInNum")


async def _report(work: Work, node: Node) -> dict[str, Any]:
    remoting = work.session.remoting
    table = await runtime_info(remoting, node.address)
    settings = (await broker_settings(remoting, node.address)).values
    topics = (await all_topics(remoting, node.address)).topics
    groups = (await all_groups(remoting, node.address)).groups
    scheduled, half = (
        await _rate(work, node, "TOPIC_PUT_NUMS", SCHEDULE_TOPIC), await _rate(work, node, "TOPIC_PUT_NUMS", HALF_TOPIC)
    )  # fmt: skip
    return {
        "runtimeEnv": {"cpuNum": settings.get("clientCallbackExecutorThreads")},
        "runtimeQuota": {
            "diskRatio": {key: table.get(key) for key in ("commitLogDiskRatio", "consumeQueueDiskRatio")},
            "tps": {
                "normalInTps": _first(table, "putTps"), "normalOutTps": _first(table, "getTransferedTps"),
                "scheduleInTps": scheduled[0], "transInTps": half[0],
            },
            "oneDayNum": {
                "normalOneDayInNum": _today(table, "Put"), "normalOneDayOutNum": _today(table, "Get"),
                "scheduleOneDayInNum": scheduled[1], "transOneDayInNum": half[1],
            },
            "messageAverageSize": table.get("putMessageAverageSize"),
            "topicSize": sum(1 for name in topics if not is_system_topic(name)),
            "groupSize": sum(1 for name in groups if not is_system_group(name)),
        },
        "runtimeVersion": {
            "rocketmqVersion": table.get("brokerVersionDesc"),
            "clientInfo": await _clients(work, node, [name for name in groups if not is_system_group(name)]),
        },
    }  # fmt: skip


async def _rate(work: Work, node: Node, name: str, key: str) -> tuple[float, int]:
    found = await statistic(work.session.remoting, node.address, name, key)
    minute = found.stats_minute if found is not None else StatsItem()
    return minute.tps, day_sum(found) if found is not None else 0


def _first(table: dict[str, str], key: str) -> float:
    return float((table.get(key) or "").split(" ")[0] or 0)


def _today(table: dict[str, str], way: str) -> int:
    return int(table.get(f"msg{way}TotalTodayNow", 0)) - int(table.get(f"msg{way}TotalTodayMorning", 0))


async def _clients(work: Work, node: Node, groups: list[str]) -> list[str]:
    """`JAVA%V4_9_7` of all consumers."""
    gathered = await work.session.each(
        {group: group for group in groups},
        lambda group: consumer_connections(work.session.remoting, node.address, group),
    )
    work.failures += gathered.failures
    connected = (member for one in gathered.responses.values() if one is not None for member in one.connection_set)
    return sorted({f"{member.language}%{version_name(member.version)}" for member in connected})


async def _write(work: Work, name: str, document: dict[str, Any]) -> None:
    path = Path(work.given.text("f", FOLDER)) / f"{name}.json"
    await asyncio.to_thread(_save, path, json.dumps(document, indent="\t", ensure_ascii=False))
    print(f"export {path} success")


def _save(path: Path, text: str) -> None:
    """Creates the file anew, so it never writes through a link that another user placed there."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.unlink(missing_ok=True)
    with path.open("x", encoding="utf-8") as file:
        file.write(text + "\n")


COMMANDS = {
    "exportMetadata": export_metadata,
    "exportConfigs": export_configs,
    "exportMetrics": export_metrics,
}
