"""Clients on the command line: producers, consumers, and what consumers report."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.clients import ConsumerMember, ConsumerReport, Position, ProducerMember
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = noun("client", "Connected producers and consumers, and what they report.")

GroupArgument = Annotated[str, typer.Argument(metavar="GROUP", help="The consumer group's name.")]
Clients = Annotated[
    list[str] | None,
    typer.Option("--client", "-i", metavar="ID", help="Only this client; repeatable (default: all members)."),
]


@reads(
    app,
    "producers",
    "ProducerList",
    (
        "GROUP=group", "CLIENT=clientId", "ADDRESS=address", "LANGUAGE=language", "VERSION=version",
        "SEEN=seenAtMs", "+BROKERS=brokers",
    ),
)  # fmt: skip
async def producers(
    session: Session,
    group: Annotated[str | None, typer.Option("--group", "-g", metavar="GROUP", help="Only this group.")] = None,
) -> Result[ProducerMember]:
    """Producers that are connected to any master.

    \b
    Examples:
      orbitmq client producers
      orbitmq client producers --group orders -o json
    """
    from orbitmq.admin import clients

    return await clients.producers(session, group)


@reads(
    app,
    "consumers",
    "MemberList",
    (
        "CLIENT=clientId", "ADDRESS=address", "LANGUAGE=language", "VERSION=version", "BROKERS=brokers",
        "+MISSING=missing",
    ),
)  # fmt: skip
async def consumers(session: Session, group: GroupArgument) -> Result[ConsumerMember]:
    """The members of a group that are online.

    \b
    Examples:
      orbitmq client consumers payments
      orbitmq client consumers payments -o name
    """
    from orbitmq.admin import clients

    return await clients.connections(session, group)


@reads(
    app,
    "show",
    "ClientReport",
    (
        "CLIENT=clientId", "VERSION=version", "KIND=kind", "ORDERLY=orderly", "THREADS=threads",
        "STARTED=startedAtMs", "+NAME SERVERS=nameServers",
    ),
)  # fmt: skip
async def show(session: Session, group: GroupArgument, clients: Clients = None) -> Result[ConsumerReport]:
    """Queues, rates and settings that members report.

    \b
    Examples:
      orbitmq client show payments -o yaml
      orbitmq client show payments -o json | jq '.items[].queues'
    """
    from orbitmq.admin.clients import reports

    return await reports(session, group, clients)


@reads(app, "stack", "ClientStack", ("CLIENT=clientId", "STACK=stack"))
async def stack(session: Session, group: GroupArgument, clients: Clients = None) -> Result[ConsumerReport]:
    """Stack traces of members: what to read when a listener hangs.

    \b
    Examples:
      orbitmq client stack payments --client 10.0.0.7@4711 -o 'template=$stack'
      orbitmq client stack payments -o json
    """
    from orbitmq.admin.clients import reports

    return await reports(session, group, clients, stacks=True)


@reads(
    app,
    "positions",
    "PositionList",
    ("CLIENT=clientId", "TOPIC=topic", "BROKER=brokerName", "QUEUE=queueId", "OFFSET=offset"),
)
async def positions(
    session: Session,
    group: GroupArgument,
    topic: Annotated[str, typer.Argument(metavar="TOPIC", help="The topic's name.")],
) -> Result[Position]:
    """Offsets of members in a topic, from their memory. They commit them some seconds later.

    \b
    Examples:
      orbitmq client positions payments Orders
      orbitmq client positions payments Orders -o csv
    """
    from orbitmq.admin import clients

    return await clients.positions(session, group, topic)
