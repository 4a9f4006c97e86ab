"""The broker on the command line: the daemon, and what an administrator asks of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.flags import LogLevel, PrintConfig, Settings
from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.brokers import BrokerEntry, BrokerStatus, Consumption, Difference, SendTest
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Found
    from orbitmq.admin.session import Session

app = typer.Typer(
    name="broker", invoke_without_command=True, no_args_is_help=False, rich_markup_mode=None, add_completion=False
)


@app.callback()
def broker(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    namesrv_addresses: Annotated[
        str | None,
        typer.Option("-n", help="Name servers as host:port, joined by ';'. Overrides namesrvAddr.", metavar="NAMESRV"),
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
        Path | None, typer.Option("-c", help="Properties file of the slave: where it listens.", metavar="FILE")
    ] = None,
    address: Annotated[
        str | None, typer.Option("--address", help="The slave as host:port, instead.", metavar="HOST:PORT")
    ] = None,
    dry_run: Annotated[bool, typer.Option("--dry-run", help="Only say what stands for and against it.")] = False,
    force: Annotated[bool, typer.Option("--force", help="Do it although there are doubts.")] = False,
    sync: Annotated[
        bool | None, typer.Option("--sync/--async", help="Make it a SYNC_MASTER, or an ASYNC_MASTER; else as it was.")
    ] = None,
) -> None:
    """Make a running slave the master of its broker name, when the master is dead.

    Refused while the master answers; and, without --force, while it may be alive, or had messages that are missing
    here: how many bytes is shown. The slave's properties file gets brokerRole and brokerId=0; then it starts anew as
    the master, in the same process. The role stays that of the former master unless --sync or --async is given; what
    an answer to a send means with it is shown.
    Exit code: 0 done, or possible with --dry-run, 1 refused.

    \b
    Examples:
      orbitmq broker promote -c slave.conf --dry-run
      orbitmq broker promote --address 10.0.0.2:10911 --force
    """
    from orbitmq.cli import promotion

    promotion.promote(config, address, dry_run=dry_run, force=force, sync=sync)


BrokerArgument = Annotated[
    str | None, typer.Argument(metavar="[BROKER]", help="Its name, name:id or host:port; all of them if not given.")
]
BrokerOption = Annotated[
    str | None, typer.Option("--broker", "-b", metavar="BROKER", help="Name, name:id or host:port; else all of them.")
]
BrokerName = Annotated[str, typer.Argument(metavar="BROKER", help="Its name.")]
Pairs = Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings and their new values.")]


@reads(
    app,
    "status",
    "BrokerStatus",
    (
        "BROKER=broker", "ID=brokerId", "ADDRESS=address", "VERSION=runtime.version", "STARTED=runtime.bootedAtMs",
        "IN/S=runtime.putPerS.last60S", "OUT/S=runtime.transferredPerS.last60S", "PUT 99%=runtime.put99Ms",
        "SEND QUEUE=runtime.sendQueue.size", "UNFLUSHED=runtime.unflushedBytes", "DISK=runtime.logDiskRatio",
        "FREE=runtime.diskFreeBytes", "+SEND WAIT=runtime.sendQueue.oldestMs", "+LOG END=runtime.logEndOffset",
        "+UNDISPATCHED=runtime.undispatchedBytes", "+OLDEST=runtime.oldestMessageAtMs",
        "+PUT TOTAL=runtime.putTotal", "+PUT FAILURES=runtime.putFailures", "+MASTER=runtime.replication.master",
        "+REFUSAL=runtime.replication.refusal", "+SUPERSEDED=runtime.replication.supersededBy",
        "+OTHER MASTERS=runtime.replication.otherMasters", "+REFUSED SLAVES=runtime.replication.refusedSlaves",
    ),
)  # fmt: skip
async def status(session: Session, broker: BrokerArgument = None) -> Found[BrokerStatus]:
    """The figures of a broker or of all, with units; the table shows some, -o json all. Rates are of the last minute.

    What a broker does not tell is unknown (-): a young one has no mean over ten minutes.

    \b
    Examples:
      orbitmq broker status
      orbitmq broker status broker-a -o json
    """
    from orbitmq.admin import brokers

    return await brokers.status(session, broker)


@reads(app, "runtime", "BrokerEntries", ("BROKER=broker", "KEY=key", "VALUE=value", "+ADDRESS=address"))
async def runtime(session: Session, broker: BrokerArgument = None) -> Found[BrokerEntry]:
    """The same as the broker writes it, key by key.

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
    lag_min: Annotated[int, typer.Option("--lag-min", metavar="N", help="Only queues at least so far behind.")] = 0,
) -> Found[Consumption]:
    """How far every group is in every queue of a broker, or of all. Queues that were never consumed are in it.

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
    count: Annotated[int, typer.Option("--count", min=1, metavar="N", help="Messages to each broker.")] = 20,
    body_bytes: Annotated[int, typer.Option("--size", min=0, metavar="BYTES", help="Of each message.")] = 128,
) -> Found[SendTest]:
    """Send some messages to a master, or to each, and tell how long that takes. They go to the topic that every broker
    has under its own name; the first of them is not counted, for it opens the connection.

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
    """Have a broker, or all, remove now what it would remove by itself some time.

    \b
    expired-queues: queues that hold no message that is left.
    unused-topics: queues of topics that are deleted.
    expired-log: files of the log that are older than they are kept.

    \b
    Examples:
      orbitmq broker clean expired-log --broker broker-a
      orbitmq broker clean unused-topics --yes
    """
    from orbitmq.admin import brokers

    return await brokers.plan_cleaning(session, brokers.cleaning_of(what), broker)


@changes(app, "forbid-writing")
async def forbid_writing(session: Session, broker: BrokerName) -> Plan:
    """Take a broker out of the routes of producers, at every name server: before it is stopped, say.

    Producers follow within 30 s. It is undone as soon as the broker registers with changed topics.

    \b
    Examples:
      orbitmq broker forbid-writing broker-a
      orbitmq broker forbid-writing broker-a --yes -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    from orbitmq.admin import brokers

    return await brokers.plan_writing(session, broker, allowed=False)


@changes(app, "allow-writing")
async def allow_writing(session: Session, broker: BrokerName) -> Plan:
    """Give a broker back to producers, at every name server. All its topics are readable and writable in the routes
    then, also those that were meant to be read only, until it registers anew.

    \b
    Examples:
      orbitmq broker allow-writing broker-a
      orbitmq broker allow-writing broker-a --yes
    """
    from orbitmq.admin import brokers

    return await brokers.plan_writing(session, broker, allowed=True)


config = noun("broker config", "What brokers run with.")
app.add_typer(config, name="config")


@reads(config, "show", "BrokerEntries", ("BROKER=broker", "KEY=key", "VALUE=value", "+ADDRESS=address"))
async def show(
    session: Session,
    broker: BrokerArgument = None,
    containing: Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only keys with this text.")] = "",
) -> Found[BrokerEntry]:
    """Every setting of a broker, or of all, with its value, defaults included.

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
    slaves: Annotated[bool, typer.Option("--slaves", help="At slaves, too; else at masters.")] = False,
) -> Plan:
    """Change settings of a running broker, or of every master; before and after is shown.

    Who a broker is and where its files are cannot be changed while it runs.

    \b
    Examples:
      orbitmq broker config set fileReservedTime=48
      orbitmq broker config set flushDiskType=SYNC_FLUSH --broker broker-a --dry-run
    """
    from orbitmq.admin import brokers

    return await brokers.plan_settings(session, brokers.pairs_of(pairs), broker, slaves=slaves)


@reads(
    config,
    "compare",
    "BrokerDifferences",
    ("KEY=key", "VALUES=values"),
)
async def compare(session: Session) -> Found[Difference]:
    """Settings that differ between the masters of a cluster. Addresses, names and paths are left out.

    \b
    Examples:
      orbitmq broker config compare
      orbitmq broker config compare -o json
    """
    from orbitmq.admin import brokers

    return await brokers.differences(session)
