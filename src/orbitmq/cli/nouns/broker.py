"""Brokers on the command line: the daemon, and its administration."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.flags import LogLevel, PrintConfig, Settings
from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.brokers import BrokerEntry, BrokerStatus, Consumption, Difference, SendTest
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = typer.Typer(
    name="broker",
    cls=CommandGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def broker(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    namesrv_addresses: Annotated[
        str | None,
        typer.Option(
            "-n", "--name-server", metavar="HOST:PORT", help="Name servers, joined by `;`. Overrides namesrvAddr."
        ),
    ] = None,
    settings: Settings = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
) -> None:
    """Run a broker.

    \b
    Examples:
      orbitmq broker -c broker.conf
      orbitmq broker -c broker.conf -n '10.0.0.1:9876;10.0.0.2:9876' -p
      orbitmq broker -c broker.conf --set brokerRole=SLAVE --set brokerId=1
    """
    if context.invoked_subcommand is not None:
        return
    from orbitmq.cli import daemons

    daemons.broker(config, namesrv_addresses, settings or (), print_only=print_config, log_level=log_level)


@app.command("promote")
def broker_promote(
    config: Annotated[
        Path | None, typer.Option("-c", help="Properties file of the slave, for its address.", metavar="FILE")
    ] = None,
    address: Annotated[
        str | None,
        typer.Option("--address", help="Address of the slave, instead of its properties file.", metavar="HOST:PORT"),
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only show the checks for the promotion.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Promote despite doubts.")] = False,
    sync: Annotated[
        bool | None,
        typer.Option(
            "--sync/--async", help="Make it a SYNC_MASTER or an ASYNC_MASTER (default: the former master's role)."
        ),
    ] = None,
) -> None:
    """Make a running slave the master of its broker name. Do this when the master is dead.

    Refused while the master responds. Without --force also refused while the master may be alive, or if it had messages
    that are missing here; the number of missing bytes is shown. brokerRole and brokerId=0 are written to the slave's
    properties file; then it restarts as the master, in the same process. It keeps the role of the former master unless
    you give --sync or --async; what a response to a send guarantees in that role is shown.
    Exit code: 0 done, or possible with --dry-run, 1 refused.

    \b
    Examples:
      orbitmq broker promote -c slave.conf --dry-run
      orbitmq broker promote --address 10.0.0.2:10911 --force
    """
    from orbitmq.cli import promotion

    promotion.promote(config, address, dry_run=dry_run, force=force, sync=sync)


BrokerArgument = Annotated[
    str | None,
    typer.Argument(metavar="[BROKER]", help="The broker's name, name:id or host:port (default: all brokers)."),
]
BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker", "-b", metavar="BROKER", help="The broker's name, name:id or host:port (default: all brokers)."
    ),
]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="The broker's name.")]
Pairs = Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings and their new values.")]


@reads(
    app,
    "status",
    "BrokerStatus",
    (
        "BROKER=broker", "ID=brokerId", "ADDRESS=address", "VERSION=runtime.version", "FORM=runtime.form",
        "STARTED=runtime.bootedAtMs",
        "PRODUCED/S=runtime.putPerS.last60S", "DELIVERED/S=runtime.transferredPerS.last60S", "PUT 99%=runtime.put99Ms",
        "SEND QUEUE=runtime.sendQueue.size", "UNFLUSHED=runtime.unflushedBytes", "DISK=runtime.logDiskRatio",
        "FREE=runtime.diskFreeBytes", "+SEND WAIT=runtime.sendQueue.oldestMs", "+LOG END=runtime.logEndOffset",
        "+UNDISPATCHED=runtime.undispatchedBytes", "+OLDEST=runtime.oldestMessageAtMs",
        "+PUT TOTAL=runtime.putTotal", "+PUT FAILURES=runtime.putFailures", "+MASTER=runtime.replication.master",
        "+REFUSAL=runtime.replication.refusal", "+SUPERSEDED=runtime.replication.supersededBy",
        "+OTHER MASTERS=runtime.replication.otherMasters", "+REFUSED SLAVES=runtime.replication.refusedSlaves",
    ),
)  # fmt: skip
async def status(session: Session, broker: BrokerArgument = None) -> Result[BrokerStatus]:
    """Metrics of a broker or of all, with units. The table shows some, -o json all. Rates are of the last minute.

    What a broker does not report is unknown (-): right after its start it has no mean over ten minutes.

    \b
    Examples:
      orbitmq broker status
      orbitmq broker status broker-a -o json
    """
    from orbitmq.admin import brokers

    return await brokers.status(session, broker)


@reads(app, "runtime", "BrokerEntries", ("BROKER=broker", "KEY=key", "VALUE=value", "+ADDRESS=address"))
async def runtime(session: Session, broker: BrokerArgument = None) -> Result[BrokerEntry]:
    """Raw runtime metrics of a broker, key by key.

    \b
    Examples:
      orbitmq broker runtime broker-a
      orbitmq broker runtime -o csv
    """
    from orbitmq.admin import brokers

    return await brokers.runtime_table(session, broker)


@reads(
    app,
    "consume-stats",
    "BrokerConsumption",
    (
        "TOPIC=topic", "GROUP=group", "BROKER=broker", "QUEUE=queueId", "BROKER OFFSET=brokerOffset",
        "CONSUMER OFFSET=consumerOffset", "LAG=lagMessages", "LAST=lastConsumedAtMs",
    ),
)  # fmt: skip
async def consume_stats(
    session: Session,
    broker: BrokerArgument = None,
    lag_min: Annotated[int, typer.Option("--lag-min", metavar="N", help="Only queues with at least this lag.")] = 0,
) -> Result[Consumption]:
    """Offset and lag of every group in every queue. Of a broker, or of all; includes queues that were never consumed.

    \b
    Examples:
      orbitmq broker consume-stats broker-a
      orbitmq broker consume-stats --lag-min 1000
    """
    from orbitmq.admin import brokers

    return await brokers.consumption(session, broker, lag_min=lag_min)


@reads(
    app,
    "send-test",
    "SendTest",
    (
        "CLUSTER=cluster", "BROKER=broker", "ADDRESS=address", "SENT=sent", "FAILED=failed", "MEAN=meanMs",
        "SHORTEST=shortestMs", "LONGEST=longestMs",
    ),
)  # fmt: skip
async def send_test(
    session: Session,
    broker: BrokerArgument = None,
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Number of messages to each broker.")] = 20,
    body_bytes: Annotated[int, typer.Option("--size", min=0, metavar="BYTES", help="Size of each message.")] = 128,
) -> Result[SendTest]:
    """Measure the latency of sends to a master, or to each. Messages go to the topic that every broker has under its
    own name; the first is not counted because it opens the connection.

    \b
    Examples:
      orbitmq broker send-test
      orbitmq broker send-test broker-a --count 100 --size 1024
    """
    from orbitmq.admin import brokers

    return await brokers.send_test(session, broker, count=count, body_bytes=body_bytes)


@changes(app, "clean")
async def clean(
    session: Session,
    what: Annotated[
        str,
        typer.Argument(metavar="WHAT", help="expired-queues, unused-topics or expired-log."),
    ],
    broker: BrokerOption = None,
) -> Plan:
    """Remove now what brokers would remove later by themselves.

    \b
    expired-queues: queues whose messages have all expired.
    unused-topics: queues of topics that were deleted.
    expired-log: files of the commit log that are past their retention.

    \b
    Examples:
      orbitmq broker clean expired-log --broker broker-a
      orbitmq broker clean unused-topics --yes
    """
    from orbitmq.admin import brokers

    return await brokers.plan_cleaning(session, brokers.cleaning_of(what), broker)


@changes(app, "forbid-writing")
async def forbid_writing(session: Session, broker: BrokerName) -> Plan:
    """Remove a broker from the routes of producers. At every name server, for example before you stop it.

    Producers stop within 30 s. It ends as soon as the broker registers with changed topics.

    \b
    Examples:
      orbitmq broker forbid-writing broker-a
      orbitmq broker forbid-writing broker-a --yes
    """
    from orbitmq.admin import brokers

    return await brokers.plan_writing(session, broker, allowed=False)


@changes(app, "allow-writing")
async def allow_writing(session: Session, broker: BrokerName) -> Plan:
    """Return a broker to the routes of producers. At every name server; all its topics become readable and writable in
    the routes, read-only ones too, until it registers again.

    \b
    Examples:
      orbitmq broker allow-writing broker-a
      orbitmq broker allow-writing broker-a --yes
    """
    from orbitmq.admin import brokers

    return await brokers.plan_writing(session, broker, allowed=True)


@changes(app, "switch")
async def switch(
    session: Session,
    broker: BrokerName,
    to: Annotated[
        str | None,
        typer.Option("--to", metavar="ID", help="Broker id or address of the new master (default: one in sync)."),
    ] = None,
    unclean: Annotated[
        bool, typer.Option("--unclean", help="Take one that is not in sync, while there is no master.")
    ] = False,
) -> Plan:
    """Have another replica be the master. For brokers that elect their master, for example before you stop it.

    No acknowledged message is lost; clients try again what is refused meanwhile. --unclean is the last resort: messages
    that this replica lacks are lost for consumers.

    \b
    Examples:
      orbitmq broker switch broker-a
      orbitmq broker switch broker-a --to 2 --yes
    """
    from orbitmq.admin import elections

    return await elections.plan_switch(session, broker, to=to, unclean=unclean)


@changes(app, "maintenance")
async def maintenance(
    session: Session,
    broker: BrokerName,
    end: Annotated[bool, typer.Option("--end", help="End it.")] = False,
) -> Plan:
    """Have no replica take over while you work on the machines. For brokers that elect their master.

    The master may stop and come back: no other replica is elected. Sends are refused meanwhile, and slaves can be read
    from. `broker switch` works as before.

    \b
    Examples:
      orbitmq broker maintenance broker-a
      orbitmq broker maintenance broker-a --end --yes
    """
    from orbitmq.admin import elections

    return await elections.plan_maintenance(session, broker, is_on=not end)


config = noun("broker config", "Settings of brokers.")
app.add_typer(config, name="config")


@reads(config, "show", "BrokerEntries", ("BROKER=broker", "KEY=key", "VALUE=value", "+ADDRESS=address"))
async def show(
    session: Session,
    broker: BrokerArgument = None,
    containing: Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only keys that contain this text.")] = "",
) -> Result[BrokerEntry]:
    """Every setting of a broker, or of all, including defaults.

    \b
    Examples:
      orbitmq broker config show broker-a
      orbitmq broker config show --grep flush -o csv
    """
    from orbitmq.admin import brokers

    return await brokers.settings(session, broker, containing=containing)


@changes(config, "set")
async def set_(
    session: Session,
    pairs: Pairs,
    broker: BrokerOption = None,
    slaves: Annotated[bool, typer.Option("--slaves", help="Change slaves, too (default: only masters).")] = False,
) -> Plan:
    """Change settings of a running broker, or of every master. Shows old and new values.

    A broker's identity and the places of its files cannot be changed while it runs.

    \b
    Examples:
      orbitmq broker config set fileReservedTime=48
      orbitmq broker config set flushDiskType=SYNC_FLUSH -b broker-a --dry-run
    """
    from orbitmq.admin import brokers

    return await brokers.plan_settings(session, brokers.pairs_of(pairs), broker, slaves=slaves)


@reads(
    config,
    "compare",
    "BrokerDifferences",
    ("KEY=key", "VALUES=values"),
)
async def compare(session: Session) -> Result[Difference]:
    """Settings that differ between the masters of a cluster. Addresses, names and paths are left out.

    \b
    Examples:
      orbitmq broker config compare
      orbitmq broker config compare -o json
    """
    from orbitmq.admin import brokers

    return await brokers.differences(session)
