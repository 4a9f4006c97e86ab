"""The cluster on the command line: a verdict, its brokers, its slaves."""

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.completion import COMPLETED
from orbitmq.cli.verbs import ContextName, NameServers, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.cluster import ClusterBroker, Overview, Replica
    from orbitmq.admin.elections import ElectedReplica
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session
    from orbitmq.admin.verdict import Finding

app = noun("cluster", "The cluster as a whole: health, brokers and replication.")


@reads(
    app,
    "overview",
    "ClusterOverview",
    (
        "CLUSTER=cluster", "VERDICT=verdict", "MASTERS=masters", "SLAVES=slaves", "PRODUCED/S=inPerS",
        "DELIVERED/S=outPerS",
        "IN TODAY=putToday", "OUT TODAY=gotToday", "DISK=maxDiskRatio", "+VERSIONS=versions",
        "+UNREACHABLE=unreachable", "+NO MASTER=headless",
    ),
)  # fmt: skip
async def overview(session: Session) -> Result[Overview]:
    """One line per cluster, with its verdict. The verdict is the worst finding, or that there is none.

    A sum is unknown (-) while one of its brokers does not respond.

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
        "CLUSTER=cluster", "BROKER=broker", "ID=brokerId", "ADDRESS=address", "VERSION=version", "RESPONDS=answers",
        "PRODUCED/S=inPerS", "DELIVERED/S=outPerS", "SEND QUEUE=sendQueue.size", "SEND WAIT=sendQueue.oldestMs",
        "DISK=diskRatio", "OLDEST=oldestMessageAtMs", "+PULL QUEUE=pullQueue.size", "+PULL WAIT=pullQueue.oldestMs",
        "+LOCK=pageCacheLockMs", "+IN TODAY=putMessages.today", "+OUT TODAY=gotMessages.today",
        "+IN YESTERDAY=putMessages.yesterday", "+OUT YESTERDAY=gotMessages.yesterday", "+STARTED=bootedAtMs",
        "+REGISTERED=registeredAtMs",
    ),
)  # fmt: skip
async def list_(session: Session) -> Result[ClusterBroker]:
    """Every broker with its metrics, masters (id 0) and slaves.

    A broker that does not respond stays in the list, without metrics, as does one that was registered recently and is
    gone; the exit code is then 5.

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
    ("SEVERITY=severity", "CHECK=rule", "SUBJECT=subject", "MESSAGE=message", "+REMEDY=remedy"),
)
async def health(
    session: Session,
    expect: Annotated[
        list[str] | None,
        typer.Option("--expect", metavar="BROKER", help="A broker that must be registered; repeatable."),
    ] = None,
    until_healthy: Annotated[
        float,
        typer.Option(
            "--wait",
            min=0,
            metavar="SECONDS",
            help="Repeat until the cluster is healthy, for at most SECONDS.",
        ),
    ] = 0,
) -> Result[Finding]:
    """Whether the cluster is healthy, what is wrong and what to do.

    Name servers forget a broker that stops. One that was registered recently is reported as missing anyway; name others
    that must be there with --expect.

    Exit code: 0 well or warnings only, 8 something is critical, 5 a name server or broker does not respond.

    \b
    Examples:
      orbitmq cluster health --expect broker-a --expect broker-b
      orbitmq cluster health --wait 60
    """
    from orbitmq.admin import cluster

    return await cluster.health_within(session, until_healthy, expected=expect or ())


@app.command("forget")
def forget(
    broker: Annotated[
        str,
        typer.Argument(
            metavar="BROKER", help="The broker's name, for all its ids, or name:id.", autocompletion=COMPLETED["BROKER"]
        ),
    ],
    name_servers: NameServers = None,
    context_name: ContextName = None,
) -> None:
    """Stop reporting a broker as missing that was removed for good.

    Without a broker that was registered recently, sums are partial. It is reported as missing for 72 hours, or as long
    as `remember` of the context or ORBITMQ_REMEMBER says. This command changes nothing in the cluster; a broker that
    comes back is known again.

    \b
    Examples:
      orbitmq cluster forget broker-b
      orbitmq cluster forget broker-a:1 -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    from orbitmq.cli.execution import forget_broker

    forget_broker(broker, name_servers or (), context_name)


@reads(
    app,
    "ha",
    "ReplicaList",
    (
        "CLUSTER=cluster", "BROKER=broker", "ID=brokerId", "ADDRESS=address", "BEHIND=behindBytes",
        "CONNECTED=connected", "MASTER=master", "+MASTER END=masterEndOffset", "+END=endOffset", "+REFUSAL=refusal",
    ),
)  # fmt: skip
async def ha(session: Session) -> Result[Replica]:
    """Every slave, and how many bytes it is behind its master.

    \b
    Examples:
      orbitmq cluster ha
      orbitmq cluster ha --watch 1 -o wide
    """
    from orbitmq.admin import cluster

    return await cluster.replicas(session)


@reads(
    app,
    "replicas",
    "ElectedReplicaList",
    (
        "CLUSTER=cluster", "BROKER=broker", "ID=brokerId", "ADDRESS=address", "ROLE=role", "EPOCH=epoch",
        "IN SYNC=inSync", "BEHIND=behindBytes", "LEASE=leaseLeftMs", "PROBLEM=problem", "+END=endOffset",
        "+CONFIRMED=confirmedOffset", "+MEMBER=member",
    ),
)  # fmt: skip
async def replicas(session: Session) -> Result[ElectedReplica]:
    """Replicas that elect their master, and who is in sync.

    \b
    Examples:
      orbitmq cluster replicas
      orbitmq cluster replicas --watch 1 -o wide
    """
    from orbitmq.admin import elections

    return await elections.replicas(session)
