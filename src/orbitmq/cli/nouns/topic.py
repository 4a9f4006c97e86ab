"""Topics on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Found
    from orbitmq.admin.session import Session
    from orbitmq.admin.topics import (
        Topic,
        TopicCluster,
        TopicConfiguration,
        TopicFlow,
        TopicGroup,
        TopicHome,
        TopicQueue,
    )

app = noun("topic", "Topics: which there are, where they live, what they hold, and how they are made.")

TopicArgument = Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")]
Brokers = Annotated[
    list[str] | None,
    typer.Option("--broker", "-b", metavar="BROKER", help="Only at this one; repeatable. Else at every master."),
]
ReadQueues = Annotated[int | None, typer.Option("--read-queues", "-r", metavar="N", help="On each broker.")]
WriteQueues = Annotated[int | None, typer.Option("--write-queues", "-w", metavar="N", help="On each broker.")]
Queues = Annotated[int | None, typer.Option("--queues", metavar="N", help="Both numbers at once.")]
Perm = Annotated[str | None, typer.Option("--perm", "-p", metavar="PERM", help="RW, R or W; 6, 4 or 2.")]
Unit = Annotated[bool | None, typer.Option("--unit/--no-unit", help="Its messages stay in their unit.")]
UnitSubscribed = Annotated[
    bool | None, typer.Option("--unit-subscribed/--no-unit-subscribed", help="It is subscribed across units.")
]


@reads(app, "list", "TopicList", ("TOPIC=topic", "TYPE=type"))
async def list_(
    session: Session,
    everything: Annotated[
        bool, typer.Option("--all", "-a", help="Those of the system, for retries and dead letters, too.")
    ] = False,
    containing: Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only names with this text.")] = "",
) -> Found[Topic]:
    """Topics in the order of their names.

    \b
    Examples:
      orbitmq topic list
      orbitmq topic list --all -o name
    """
    from orbitmq.admin import topics

    return await topics.listed(session, everything=everything, containing=containing)


@reads(
    app,
    "status",
    "TopicStatus",
    (
        "BROKER=broker", "QUEUE=queueId", "MIN OFFSET=minOffset", "MAX OFFSET=maxOffset", "MESSAGES=messages",
        "UPDATED=updatedAtMs", "+TOPIC=topic",
    ),
)  # fmt: skip
async def status(session: Session, topic: TopicArgument) -> Found[TopicQueue]:
    """What each queue of the topic holds.

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
async def route(session: Session, topic: TopicArgument) -> Found[TopicHome]:
    """Where producers and consumers of the topic are told to go.

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
        "+UNIT=unit", "+UNIT SUBSCRIBED=unitSubscribed", "+ORDERED=ordered",
    ),
)  # fmt: skip
async def config(session: Session, topic: TopicArgument) -> Found[TopicConfiguration]:
    """How each broker has the topic; several rows that differ are a topic that was made twice.

    \b
    Examples:
      orbitmq topic config Orders
      orbitmq topic config Orders -o yaml
    """
    from orbitmq.admin import topics

    return await topics.configurations(session, topic)


@reads(app, "clusters", "TopicClusters", ("CLUSTER=cluster", "BROKERS=brokers"))
async def clusters(session: Session, topic: TopicArgument) -> Found[TopicCluster]:
    """The clusters that have queues of the topic.

    \b
    Examples:
      orbitmq topic clusters Orders
      orbitmq topic clusters Orders -o name
    """
    from orbitmq.admin import topics

    return await topics.clusters(session, topic)


@reads(app, "consumers", "TopicConsumers", ("GROUP=group", "BROKERS=brokers"))
async def consumers(session: Session, topic: TopicArgument) -> Found[TopicGroup]:
    """Groups that consume the topic now or have done so, by the account of all its brokers.

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
        "TOPIC=topic", "GROUP=group", "LAG=lagMessages", "IN/S=inPerS", "OUT/S=outPerS", "IN 24 H=in24H",
        "OUT 24 H=out24H",
    ),
)  # fmt: skip
async def stats(
    session: Session,
    topic: Annotated[str | None, typer.Argument(metavar="[TOPIC]", help="All that are listed if not given.")] = None,
    active: Annotated[
        bool, typer.Option("--active", help="Only where something went through in the last day.")
    ] = False,
) -> Found[TopicFlow]:
    """What goes through a topic, for each of its groups: rates of the last minute, sums of the last 24 hours.

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
        bool, typer.Option("--ordered", help="Keep its queues in the order settings: global order.")
    ] = False,
    unit: Unit = None,
    unit_subscribed: UnitSubscribed = None,
    brokers: Brokers = None,
) -> Plan:
    """Make a topic at every master, or at some. 8 queues each way and RW unless said otherwise.

    One that is already like that is left alone; one that is different is refused: `orbitmq topic alter`.

    \b
    Examples:
      orbitmq topic create Orders --queues 16
      orbitmq topic create Audit --queues 4 --broker broker-a
    """
    from orbitmq.admin import topic_changes

    wanted = topic_changes.wanted_of(queues, read_queues, write_queues, perm, unit, unit_subscribed)
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
    brokers: Brokers = None,
) -> Plan:
    """Change a topic at every broker that has it, or at some. What is not given stays as it is.

    To make it narrower, lower the write queues, let the last ones drain, then lower the read queues.

    \b
    Examples:
      orbitmq topic alter Orders --queues 32
      orbitmq topic alter Orders --write-queues 8 --dry-run
    """
    from orbitmq.admin import topic_changes

    wanted = topic_changes.wanted_of(queues, read_queues, write_queues, perm, unit, unit_subscribed)
    return await topic_changes.plan_alter(session, topic, wanted, brokers=brokers or ())


@changes(app, "permission")
async def permission(
    session: Session,
    topic: TopicArgument,
    perm: Annotated[str, typer.Argument(metavar="PERM", help="RW, R or W; 6, 4 or 2.")],
    brokers: Brokers = None,
) -> Plan:
    """Say whether a topic may be read and written.

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
    """Delete a topic with all its messages: at every master that has it, and last at every name server.

    Who consumes it is named before. Its messages cannot be brought back; an undo file keeps its configuration.

    \b
    Examples:
      orbitmq topic delete Orders
      orbitmq topic delete Orders --yes
    """
    from orbitmq.admin import topic_changes

    return await topic_changes.plan_delete(session, topic)


@changes(app, "undo")
async def undo(
    session: Session, file: Annotated[Path, typer.Argument(metavar="FILE", help="What the change wrote.")]
) -> Plan:
    """Bring back the configuration of a topic that was changed or deleted, not its messages.

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
        str | None, typer.Argument(metavar="[SETTING]", help="broker-a:4;broker-b:4; none takes it out.")
    ] = None,
) -> Plan:
    """Put the topic into the order settings of every name server, or take it out: brokers and queues that stay the
    same while a broker is away, for a global order. Needs orderMessageEnable=true at the name servers.

    \b
    Examples:
      orbitmq topic order Orders 'broker-a:4;broker-b:4'
      orbitmq topic order Orders
    """
    from orbitmq.admin import topic_changes

    return await topic_changes.plan_order(session, topic, setting)
