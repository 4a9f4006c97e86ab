"""mqadmin commands for topics."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping
from functools import partial
from types import MappingProxyType

from msgspec.structs import replace

from orbitmq.admin import topics
from orbitmq.admin.session import Node
from orbitmq.cli.mqadmin.forms import cells, millisecond, pretty, topic_config
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.client.core.allocation import AllocateAveragely
from orbitmq.errors import ConfigurationError, NotFound
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import MessageQueue
from orbitmq.message.topic_types import parse_changes
from orbitmq.message.topics import DLQ_PREFIX, ORDER_NAMESPACE, RETRY_PREFIX
from orbitmq.operations.kv import delete_kv, kv_value, put_kv
from orbitmq.operations.routes import delete_topic_route
from orbitmq.operations.routes import topics as all_topic_names
from orbitmq.operations.topics import all_topics, create_topic, delete_topic, groups_of_topic, topic_stats
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.objects import plain

QUEUES = 8
"""The tool's default number of queues, which it also gives to existing topics."""
READ_WRITE = 6
UNIT, UNIT_SUBSCRIPTION = 1, 2


async def update_topic(work: Work) -> None:
    given = work.given
    changes = parse_changes(given.text("a"))
    removed = {name: "" for name, value in changes.items() if value is None}  # as if the topic had these now
    topic = TopicConfig(
        given.text("t"),
        read_queues=given.number("r", QUEUES),
        write_queues=given.number("w", QUEUES),
        perm=given.number("p", READ_WRITE),
        sys_flag=UNIT * given.truth("u", False) | UNIT_SUBSCRIPTION * given.truth("s", False),
        order=given.truth("o", False),
        attributes={name: value for name, value in changes.items() if value is not None},
    )
    done = await work.each(await work.targets(), partial(_create, work, topic, known=removed))
    for node in done:
        print(f"create topic to {node.address} success.")
    if not done:
        return
    if topic.order:
        text = ";".join(sorted({f"{node.name}:{topic.write_queues}" for node in done}))
        await _put_order(work, topic.name, text)
        print(f"set {'broker' if 'b' in given else 'cluster'} orderConf. isOrder=true, orderConf=[{text}]")
    print(topic_config(topic))


async def _put_order(work: Work, topic: str, text: str) -> None:
    await work.each_server(lambda server: put_kv(work.session.remoting, server, ORDER_NAMESPACE, topic, text))


async def delete_topic_(work: Work) -> None:
    topic, cluster = work.given.text("t"), work.given.text("c")
    nodes = await work.of_cluster(cluster)
    await drop(work, topic, cluster, nodes)


async def drop(work: Work, topic: str, cluster: str, nodes: list[Node]) -> None:
    """Delete from the brokers first, because a broker would register the route again."""
    await work.each(nodes, lambda node: delete_topic(work.session.remoting, node.address, topic))
    if work.failures:
        return
    print(f"delete topic [{topic}] from cluster [{cluster}] success.")
    await work.each_server(lambda server: delete_topic_route(work.session.remoting, server, topic))
    if not work.failures:
        print(f"delete topic [{topic}] from NameServer success.")


async def topic_list(work: Work) -> None:
    names = await work.session.any_name_server(
        lambda server: all_topic_names(work.session.remoting, server, timeout_ms=work.session.timeout_ms)
    )
    if "c" not in work.given:
        print("\n".join(names))
        return
    print(cells(("#Cluster Name", -20), ("#Topic", -48), ("#Consumer Group", -48)).rstrip())
    shown = [name for name in names if not name.startswith((RETRY_PREFIX, DLQ_PREFIX))]
    for name, rows in zip(shown, await asyncio.gather(*(_groups_of(work, name) for name in shown)), strict=True):
        for cluster, group in rows:
            print(cells((cluster, -20), (name, -64), (group, -64)).rstrip())


async def _groups_of(work: Work, topic: str) -> list[tuple[str, str]]:
    """Cluster and group; one row without a group if the topic has no consumers."""
    homes = await work.session.homes(topic)
    found = await work.each(homes, lambda node: groups_of_topic(work.session.remoting, node.address, topic))
    cluster = homes[0].cluster if homes else ""
    groups = sorted({group for groups in found.values() for group in groups})
    return [(cluster, group) for group in groups] or [(cluster, "")]


async def topic_route(work: Work) -> None:
    route = await work.session.route(work.given.text("t"))
    if "l" not in work.given:
        print(pretty(_as_written(route)))
        return
    brokers = {broker.broker_name: broker for broker in route.broker_datas}
    print(_route_row("#ClusterName", "#BrokerName", "#BrokerAddrs", "#ReadQueue", "#WriteQueue", "#Perm"))
    for queues in sorted(route.queue_datas, key=lambda one: one.broker_name):
        broker = brokers[queues.broker_name]
        addresses = ", ".join(f"{number}={address}" for number, address in broker.addresses.items())
        print(_route_row(
            broker.cluster, queues.broker_name, f"{{{addresses}}}", queues.read_queues, queues.write_queues, queues.perm
        ))  # fmt: skip
    print("-" * 158)
    read, written = (sum(getattr(one, name) for one in route.queue_datas) for name in ("read_queues", "write_queues"))
    print(_route_row("Total:", len(brokers), "", read, written, ""))


def _as_written(route: TopicRouteData) -> object:
    written: dict[str, object] = plain(route)
    return written


def _route_row(*values: object) -> str:
    return " ".join(str(value).ljust(width) for value, width in zip(values, (45, 32, 50, 10, 11, 5), strict=True))


async def topic_status(work: Work) -> None:
    topic, cluster = work.given.text("t"), work.given.text("c")
    homes = await (work.of_cluster(cluster) if cluster else work.session.homes(topic))
    found = await work.each(homes, lambda node: topic_stats(work.session.remoting, node.address, topic))
    print(_status_row("#Broker Name", "#QID", "#Min Offset", "#Max Offset", "#Last Updated"))
    ranges = {queue: one for table in found.values() for queue, one in table.offset_table.items()}
    for queue, one in sorted(ranges.items()):
        at = millisecond(one.last_update_timestamp) if one.last_update_timestamp > 0 else ""
        print(_status_row(queue.broker_name, queue.queue_id, one.min_offset, one.max_offset, at))


def _status_row(*values: object) -> str:
    return cells(*zip(values[:4], (-32, -4, -20, -20), strict=True)) + f"    {values[4]}"


async def topic_cluster_list(work: Work) -> None:
    homes = await work.session.homes(work.given.text("t"))
    print("\n".join(sorted({node.cluster for node in homes})))


async def update_topic_perm(work: Work) -> None:
    given = work.given
    topic, perm = given.text("t"), given.number("p", READ_WRITE)
    route = await work.session.route(topic)
    places = {queues.broker_name: queues for queues in route.queue_datas}
    if "b" not in given and "c" not in given:
        raise ConfigurationError("give -b brokerAddr or -c clusterName")
    nodes = [node for node in await work.targets() if node.name in places]
    if not nodes:
        raise NotFound(f"topic {topic} does not exist")
    tables = await work.each(nodes, lambda node: all_topics(work.session.remoting, node.address))
    for node in tables:
        queues = places[node.name]
        if queues.perm == perm:
            print("new perm equals to the old one!")
            continue
        usual = TopicConfig(topic, queues.read_queues, queues.write_queues, sys_flag=queues.topic_sys_flag)
        known = tables[node].topics.get(topic, usual)  # routes do not contain `order`
        changed = replace(known, perm=perm, attributes={})  # the broker keeps them
        done = await work.each([node], partial(_create, work, changed))
        if done:
            print(f"update topic perm from {queues.perm} to {perm} in {node.address} success.")
            if "b" in given:
                print(f"{topic_config(changed)}.")


async def _create(work: Work, topic: TopicConfig, node: Node, known: Mapping[str, str] = MappingProxyType({})) -> None:
    await create_topic(work.session.remoting, node.address, topic, known=known)


async def stats_all(work: Work) -> None:
    only = work.given.text("t") or None
    found = await topics.flows(work.session, only, active="a" in work.given)
    work.failures += found.failures
    print(
        _stats_row("#Topic", "#Consumer Group", "#Accumulation", "#InTPS", "#OutTPS", "#InMsg24Hour", "#OutMsg24Hour")
    )
    for row in found.items:
        came = (f"{row.in_per_s or 0:.2f}", row.in_24_h or 0)
        if row.group is None:
            print(_stats_row(row.topic, "", 0, came[0], "", came[1], "NO_CONSUMER"))
        else:
            out = (f"{row.out_per_s or 0:.2f}", row.out_24_h or 0)
            print(_stats_row(row.topic, row.group, max(0, row.lag_messages or 0), came[0], out[0], came[1], out[1]))


def _stats_row(*values: object) -> str:
    left = cells((values[0], -64), (values[1], -64))
    return f"{left} " + " ".join(
        str(value).rjust(width) for value, width in zip(values[2:], (12, 11, 11, 14, 14), strict=True)
    )


async def allocate_mq(work: Work) -> None:
    topic = work.given.text("t")
    members = sorted(work.given.text("i").split(","))
    route = await work.session.route(topic)
    queues = sorted(
        MessageQueue(topic, one.broker_name, number) for one in route.queue_datas for number in range(one.read_queues)
    )
    share = partial(AllocateAveragely().allocate, "")
    shares = {member: share(member, queues, members) for member in members}
    written = {
        member: [{"brokerName": one.broker_name, "queueId": one.queue_id, "topic": topic} for one in mine]
        for member, mine in shares.items()
    }
    print(json.dumps({"result": written}, separators=(",", ":"), ensure_ascii=False))


async def update_order_conf(work: Work) -> None:
    topic, method = work.given.text("t"), work.given.text("m")
    remoting = work.session.remoting
    if method == "get":
        value = await work.session.any_name_server(lambda server: kv_value(remoting, server, ORDER_NAMESPACE, topic))
        if value is None:
            raise NotFound(f"topic {topic} has no order configuration")
        print(f"get orderConf success. topic=[{topic}], orderConf=[{value}] ")
    elif method == "put":
        value = work.given.text("v")
        if not value:
            raise ConfigurationError("-v orderConf must be given to put: broker:queues;broker:queues")
        await _put_order(work, topic, value)
        if not work.failures:
            print(f"update orderConf success. topic=[{topic}], orderConf=[{value}]")
    elif method == "delete":
        await work.each_server(lambda server: delete_kv(remoting, server, ORDER_NAMESPACE, topic))
        if not work.failures:
            print(f"delete orderConf success. topic=[{topic}]")
    else:
        raise ConfigurationError(f"-m {method}: put, get or delete")


COMMANDS = {
    "updateTopic": update_topic,
    "deleteTopic": delete_topic_,
    "topicList": topic_list,
    "topicRoute": topic_route,
    "topicStatus": topic_status,
    "topicClusterList": topic_cluster_list,
    "updateTopicPerm": update_topic_perm,
    "statsAll": stats_all,
    "allocateMQ": allocate_mq,
    "updateOrderConf": update_order_conf,
}
