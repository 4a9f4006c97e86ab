"""The cluster on the command line: a verdict, its brokers, its slaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.answers import Found
    from orbitmq.admin.cluster import Health, Member, Overview, Replica
    from orbitmq.admin.session import Session

app = noun("cluster", "The cluster as a whole: whether it is well, its brokers, its slaves.")


@reads(
    app,
    "overview",
    "ClusterOverview",
    (
        "CLUSTER=cluster", "VERDICT=verdict", "MASTERS=masters", "SLAVES=slaves", "IN/S=inPerS", "OUT/S=outPerS",
        "IN TODAY=putToday", "OUT TODAY=gotToday", "DISK=maxDiskRatio", "+VERSIONS=versions",
        "+UNREACHABLE=unreachable", "+NO MASTER=headless",
    ),
)  # fmt: skip
async def overview(session: Session) -> Found[Overview]:
    """Each cluster in a line, with a verdict in words: all is well, or the worst that was found.

    A sum is unknown (-) while one of its brokers does not answer.

    \b
    Examples:
      orbitmq cluster overview
      orbitmq cluster overview -o json | jq '.items[].findings'
    """
    from orbitmq.admin import cluster

    return await cluster.overview(session)


@reads(
    app,
    "list",
    "BrokerList",
    (
        "CLUSTER=cluster", "BROKER=broker", "ID=brokerId", "ADDRESS=address", "VERSION=version", "ANSWERS=answers",
        "IN/S=inPerS", "OUT/S=outPerS", "SEND QUEUE=sendQueue.size", "SEND WAIT=sendQueue.oldestMs",
        "DISK=diskRatio", "OLDEST=oldestMessageAtMs", "+PULL QUEUE=pullQueue.size", "+PULL WAIT=pullQueue.oldestMs",
        "+LOCK=pageCacheLockMs", "+IN TODAY=putMessages.today", "+OUT TODAY=gotMessages.today",
        "+IN YESTERDAY=putMessages.yesterday", "+OUT YESTERDAY=gotMessages.yesterday", "+STARTED=bootedAtMs",
    ),
)  # fmt: skip
async def list_(session: Session) -> Found[Member]:
    """Every registered broker with its figures, masters (id 0) and slaves.

    One that does not answer stays in the list, without figures, and the exit code is 5.

    \b
    Examples:
      orbitmq cluster list
      orbitmq cluster list -o wide --watch 2
    """
    from orbitmq.admin import cluster

    return await cluster.listed(session)


@reads(
    app,
    "health",
    "ClusterHealth",
    ("SEVERITY=severity", "CHECK=check", "SUBJECT=subject", "MESSAGE=message", "+REMEDY=remedy"),
)
async def health(
    session: Session,
    expect: Annotated[
        list[str] | None, typer.Option("--expect", metavar="BROKER", help="A broker that must be there; repeatable.")
    ] = None,
    until_healthy: Annotated[
        float,
        typer.Option(
            "--exit-when-healthy", min=0, metavar="SECONDS", help="Ask again until all is well, at most so long."
        ),
    ] = 0,
) -> Found[Health]:
    """Whether the cluster is well, and if not, what is wrong and what to do about it.

    A broker that is stopped leaves no trace at a name server: name those that must be there with --expect.

    \b
    Exit code: 0 well or warnings only, 8 something is critical, 5 nobody could be asked.

    \b
    Examples:
      orbitmq cluster health --expect broker-a --expect broker-b
      orbitmq cluster health --exit-when-healthy 60
    """
    from orbitmq.admin import cluster

    return await cluster.health_within(session, until_healthy, expected=expect or ())


@reads(
    app,
    "ha",
    "ReplicaList",
    (
        "CLUSTER=cluster", "BROKER=broker", "ID=brokerId", "ADDRESS=address", "BEHIND=behindBytes",
        "CONNECTED=connected", "MASTER=master", "+MASTER END=masterEndOffset", "+END=endOffset", "+REFUSAL=refusal",
    ),
)  # fmt: skip
async def ha(session: Session) -> Found[Replica]:
    """Every slave and how many bytes of its master's log it lacks.

    \b
    Examples:
      orbitmq cluster ha
      orbitmq cluster ha --watch 1 -o wide
    """
    from orbitmq.admin import cluster

    return await cluster.replicas(session)
