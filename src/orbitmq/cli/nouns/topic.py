"""Topics on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session
    from orbitmq.admin.topic_summaries import TopicRow
    from orbitmq.admin.topics import (
        TopicCluster,
        TopicConfiguration,
        TopicFlow,
        TopicGroup,
        TopicHome,
        TopicQueue,
    )

app = noun("topic", "Topics: list, inspect, create and change them.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Brokers = Annotated[
    list[str] | None,
    typer.Option("--broker", "-b", metavar="BROKER", help="Only at this broker; repeatable (default: every master)."),
]
ReadQueues = Annotated[int | None, typer.Option("--read-queues", "-r", metavar="N", help="Read queues on each broker.")]
WriteQueues = Annotated[
    int | None, typer.Option("--write-queues", "-w", metavar="N", help="Write queues on each broker.")
]
Queues = Annotated[int | None, typer.Option("--queues", metavar="N", help="Sets both read and write queues.")]
Perm = Annotated[str | None, typer.Option("--perm", "-p", metavar="PERM", help="RW, R or W; 6, 4 or 2.")]
Unit = Annotated[bool | None, typer.Option("--unit/--no-unit", help="Mark the topic as a unit topic of RocketMQ.")]
UnitSubscribed = Annotated[
    bool | None,
    typer.Option("--unit-subscribed/--no-unit-subscribed", help="Mark the topic as subscribed across units."),
]
MessageTypeOption = Annotated[
    str | None,
    typer.Option(
        "--type",
        metavar="TYPE",
        help="Messages that clients of RocketMQ 5 may send to it: normal, fifo, delay, transaction or mixed.",
    ),
]


@reads(
    app,
    "list",
    "TopicList",
    (
        "TOPIC=topic", "QUEUES=writeQueues", "MESSAGES=messages", "PRODUCED/S=inPerS", "LAG=lagMessages",
        "ACCEPTS=messageTypes", "+TYPE=type", "+READ QUEUES=readQueues", "+GROUPS=groups", "+BROKERS=brokers",
        "+LAST MESSAGE=updatedAtMs", "+LEAST LAG=knownLagMessages",
    ),
)  # fmt: skip
async def list_(
    session: Session,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Include system, retry and dead-letter topics.")
    ] = False,
    containing: Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only names that contain this text.")] = "",
    quick: Annotated[bool, typer.Option("--quick", help="Names and types only, with fewer requests.")] = False,
) -> Result[TopicRow]:
    """Topics by name, with their queues, messages, rate and lag. LAG is that of all groups, PRODUCED/S of the last
    minute.

    \b
    Examples:
      orbitmq topic list
      orbitmq topic list --grep order -o wide
      orbitmq topic list --all --quick -o name
    """
    from orbitmq.admin import topic_summaries

    return await topic_summaries.rows(session, everything=everything, containing=containing, quick=quick)


@reads(
    app,
    "status",
    "TopicStatus",
    (
        "BROKER=broker", "QUEUE=queueId", "MIN OFFSET=minOffset", "MAX OFFSET=maxOffset", "MESSAGES=messages",
        "UPDATED=updatedAtMs", "+TOPIC=topic",
    ),
)  # fmt: skip
async def status(session: Session, topic: TopicArgument) -> Result[TopicQueue]:
    """Offsets, messages and last store time of each queue.

    \b
    Examples:
      orbitmq topic status Orders
      orbitmq topic status Orders --watch 1
    """
    from orbitmq.admin import topics

    return await topics.status(session, topic)


@reads(
    app,
    "route",
    "TopicRoute",
    (
        "CLUSTER=cluster", "BROKER=broker", "READ QUEUES=readQueues", "WRITE QUEUES=writeQueues", "PERM=perm",
        "ADDRESSES=addresses", "+ORDER=ordered",
    ),
)  # fmt: skip
async def route(session: Session, topic: TopicArgument) -> Result[TopicHome]:
    """The route of a topic: the brokers and queues that clients use.

    \b
    Examples:
      orbitmq topic route Orders
      orbitmq topic route Orders -o json
    """
    from orbitmq.admin import topics

    return await topics.route(session, topic)


@reads(
    app,
    "config",
    "TopicConfig",
    (
        "CLUSTER=cluster", "BROKER=broker", "READ QUEUES=readQueues", "WRITE QUEUES=writeQueues", "PERM=perm",
        "MESSAGES=messageType", "+UNIT=unit", "+UNIT SUBSCRIBED=unitSubscribed", "+ORDERED=ordered",
    ),
)  # fmt: skip
async def config(session: Session, topic: TopicArgument) -> Result[TopicConfiguration]:
    """The topic's settings at each broker. Rows that differ mean that it was created twice.

    \b
    Examples:
      orbitmq topic config Orders
      orbitmq topic config Orders -o yaml
    """
    from orbitmq.admin import topics

    return await topics.configurations(session, topic)


@reads(app, "clusters", "TopicClusters", ("CLUSTER=cluster", "BROKERS=brokers"))
async def clusters(session: Session, topic: TopicArgument) -> Result[TopicCluster]:
    """The clusters that have queues of the topic.

    \b
    Examples:
      orbitmq topic clusters Orders
      orbitmq topic clusters Orders -o name
    """
    from orbitmq.admin import topics

    return await topics.clusters(session, topic)


@reads(app, "consumers", "TopicConsumers", ("GROUP=group", "BROKERS=brokers"))
async def consumers(session: Session, topic: TopicArgument) -> Result[TopicGroup]:
    """Groups that consume or consumed the topic, at any broker.

    \b
    Examples:
      orbitmq topic consumers Orders
      orbitmq topic consumers Orders -o name
    """
    from orbitmq.admin import topics

    return await topics.consumers(session, topic)


@reads(
    app,
    "stats",
    "TopicStats",
    (
        "TOPIC=topic", "GROUP=group", "LAG=lagMessages", "PRODUCED/S=inPerS", "DELIVERED/S=outPerS", "IN 24 H=in24H",
        "OUT 24 H=out24H",
    ),
)  # fmt: skip
async def stats(
    session: Session,
    topic: Annotated[
        str | None, typer.Argument(metavar="[TOPIC]", help="The topic's name (default: all topics).")
    ] = None,
    active: Annotated[bool, typer.Option("--active", help="Only topics with traffic in the last day.")] = False,
) -> Result[TopicFlow]:
    """Traffic of a topic for each of its groups. Rates are of the last minute, sums of the last 24 hours.

    \b
    Examples:
      orbitmq topic stats Orders
      orbitmq topic stats --active
    """
    from orbitmq.admin import topics

    return await topics.flows(session, topic, active=active)


@changes(app, "create")
async def create(
    session: Session,
    topic: TopicArgument,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Perm = None,
    ordered: Annotated[
        bool, typer.Option("--ordered", help="Add its queues to the order settings, for a global order.")
    ] = False,
    unit: Unit = None,
    unit_subscribed: UnitSubscribed = None,
    message_type: MessageTypeOption = None,
    brokers: Brokers = None,
) -> Plan:
    """Create a topic at every master, or at some. By default with 8 read and 8 write queues, and RW.

    Does nothing if the topic already is like that; refused if it is different: use `orbitmq topic alter`.

    \b
    Examples:
      orbitmq topic create Orders --queues 16
      orbitmq topic create Audit --queues 4 --broker broker-a
      orbitmq topic create Payments --type fifo
    """
    from orbitmq.admin import topic_changes

    wanted = topic_changes.wanted_of(queues, read_queues, write_queues, perm, unit, unit_subscribed, message_type)
    return await topic_changes.plan_create(session, topic, wanted, brokers=brokers or (), ordered=ordered)


@changes(app, "alter")
async def alter(
    session: Session,
    topic: TopicArgument,
    queues: Queues = None,
    read_queues: ReadQueues = None,
    write_queues: WriteQueues = None,
    perm: Perm = None,
    unit: Unit = None,
    unit_subscribed: UnitSubscribed = None,
    message_type: MessageTypeOption = None,
    brokers: Brokers = None,
) -> Plan:
    """Change a topic at every broker that has it, or at some. What you do not give stays as it is.

    To remove queues, lower the write queues, let consumers finish the last ones, then lower the read queues.

    \b
    Examples:
      orbitmq topic alter Orders --queues 32
      orbitmq topic alter Orders --write-queues 8 --dry-run
    """
    from orbitmq.admin import topic_changes

    wanted = topic_changes.wanted_of(queues, read_queues, write_queues, perm, unit, unit_subscribed, message_type)
    return await topic_changes.plan_alter(session, topic, wanted, brokers=brokers or ())


@changes(app, "permission")
async def permission(
    session: Session,
    topic: TopicArgument,
    perm: Annotated[str, typer.Argument(metavar="PERM", help="RW, R or W; 6, 4 or 2.")],
    brokers: Brokers = None,
) -> Plan:
    """Set the permission of a topic: read, write or both.

    \b
    Examples:
      orbitmq topic permission Orders R
      orbitmq topic permission Orders RW --broker broker-a
    """
    from orbitmq.admin import topic_changes

    wanted = topic_changes.TopicChanges(perm=topic_changes.perm_of(perm))
    return await topic_changes.plan_alter(session, topic, wanted, brokers=brokers or ())


@changes(app, "delete")
async def delete(session: Session, topic: TopicArgument) -> Plan:
    """Delete a topic with all its messages. At every master that has it, and last at every name server.

    Shows its consumers first. Its messages are lost; an undo file keeps its configuration.

    \b
    Examples:
      orbitmq topic delete Orders
      orbitmq topic delete Orders --yes
    """
    from orbitmq.admin import topic_changes

    return await topic_changes.plan_delete(session, topic)


@changes(app, "undo")
async def undo(
    session: Session, file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file that the change wrote.")]
) -> Plan:
    """Restore the configuration of a changed or deleted topic. Its messages are not restored.

    \b
    Examples:
      orbitmq topic undo ~/.local/state/orbitmq/undo/20240501-080000-4711.json
      orbitmq topic undo before.json --dry-run
    """
    from orbitmq.admin import topic_changes
    from orbitmq.admin.undo import plan_undo
    from orbitmq.cli import undo_files

    return await plan_undo(session, undo_files.load(file, topic_changes.UNDO))


@changes(app, "order")
async def order(
    session: Session,
    topic: TopicArgument,
    setting: Annotated[
        str | None,
        typer.Argument(
            metavar="[SETTING]", help="For example broker-a:4;broker-b:4. Without it, the topic is removed."
        ),
    ] = None,
) -> Plan:
    """Add a topic to the order settings, or remove it. At every name server, they fix its brokers and queues, even
    while a broker is down, for a global order. Needs orderMessageEnable=true at the name servers.

    \b
    Examples:
      orbitmq topic order Orders 'broker-a:4;broker-b:4'
      orbitmq topic order Orders
    """
    from orbitmq.admin import topic_changes

    return await topic_changes.plan_order(session, topic, setting)
