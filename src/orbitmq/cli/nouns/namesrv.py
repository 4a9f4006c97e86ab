"""The name server on the command line: the daemon, and the administration of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.flags import LogLevel, PrintConfig, Settings
from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.namesrv import NameServerStatus, Pair
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = typer.Typer(
    name="namesrv",
    cls=CommandGroup,
    invoke_without_command=True,
    no_args_is_help=False,
    rich_markup_mode=None,
    add_completion=False,
)


@app.callback()
def namesrv(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Overrides listenPort; 0 picks a free port.", show_default="9876"
        ),
    ] = None,
    settings: Settings = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
) -> None:
    """Run a name server.

    \b
    Examples:
      orbitmq namesrv
      orbitmq namesrv -c namesrv.conf --port 9876
    """
    if context.invoked_subcommand is not None:
        return
    from orbitmq.cli import daemons

    daemons.namesrv(config, port, settings or (), print_only=print_config, log_level=log_level)


Namespace = Annotated[str, typer.Argument(metavar="NAMESPACE", help="ORDER_TOPIC_CONFIG holds the order settings.")]
Key = Annotated[str, typer.Argument(metavar="KEY", help="The key of the value.")]
PAIRS = ("NAME SERVER=nameServer", "KEY=key", "VALUE=value", "DIFFERS=differs")


@reads(
    app,
    "list",
    "NameServerList",
    (
        "NAME SERVER=address", "BROKERS=brokers", "TOPICS=topics", "MISSING BROKERS=missingBrokers",
        "MISSING TOPICS=missingTopics",
    ),
)  # fmt: skip
async def list_(session: Session) -> Result[NameServerStatus]:
    """The brokers and topics of each name server, and missing ones. Name servers do not replicate each other.

    \b
    Examples:
      orbitmq namesrv list
      orbitmq namesrv list -n '10.0.0.1:9876;10.0.0.2:9876'
    """
    from orbitmq.admin import namesrv as name_servers

    return await name_servers.listed(session)


config = noun("namesrv config", "Settings of name servers.")
app.add_typer(config, name="config")


@reads(config, "show", "NameServerSettings", PAIRS)
async def show(
    session: Session,
    containing: Annotated[str, typer.Option("--grep", metavar="TEXT", help="Only keys that contain this text.")] = "",
) -> Result[Pair]:
    """Every setting of each name server, and where they differ.

    \b
    Examples:
      orbitmq namesrv config show
      orbitmq namesrv config show --grep order
    """
    from orbitmq.admin import namesrv as name_servers

    return await name_servers.settings(session, containing=containing)


@changes(config, "set")
async def set_(
    session: Session,
    pairs: Annotated[list[str], typer.Argument(metavar="KEY=VALUE...", help="Settings and their new values.")],
) -> Plan:
    """Change settings at every name server.

    \b
    Examples:
      orbitmq namesrv config set orderMessageEnable=true
      orbitmq namesrv config set orderMessageEnable=true --dry-run
    """
    from orbitmq.admin import namesrv as name_servers
    from orbitmq.admin.brokers import pairs_of

    return await name_servers.plan_settings(session, pairs_of(pairs))


kv = noun("namesrv kv", "Key-value pairs of name servers, by namespace.")
app.add_typer(kv, name="kv")


@reads(kv, "list", "NameServerPairs", PAIRS)
async def list_pairs(session: Session, namespace: Namespace) -> Result[Pair]:
    """All pairs of a namespace at each name server, and where they differ.

    \b
    Examples:
      orbitmq namesrv kv list ORDER_TOPIC_CONFIG
      orbitmq namesrv kv list ORDER_TOPIC_CONFIG -o json
    """
    from orbitmq.admin import namesrv as name_servers

    return await name_servers.pairs(session, namespace)


@reads(kv, "get", "NameServerPairs", PAIRS)
async def get(session: Session, namespace: Namespace, key: Key) -> Result[Pair]:
    """One pair at each name server.

    \b
    Examples:
      orbitmq namesrv kv get ORDER_TOPIC_CONFIG Orders
      orbitmq namesrv kv get ORDER_TOPIC_CONFIG Orders -o template='$value'
    """
    from orbitmq.admin import namesrv as name_servers

    return await name_servers.pair(session, namespace, key)


@changes(kv, "put")
async def put(
    session: Session,
    namespace: Namespace,
    key: Key,
    value: Annotated[str, typer.Argument(metavar="VALUE", help="The value, stored unchanged.")],
) -> Plan:
    """Store a pair at every name server; it survives restarts.

    \b
    Examples:
      orbitmq namesrv kv put ORDER_TOPIC_CONFIG Orders 'broker-a:4;broker-b:4'
      orbitmq namesrv kv put settings colour blue --yes
    """
    from orbitmq.admin import namesrv as name_servers

    return await name_servers.plan_pair(session, namespace, key, value)


@changes(kv, "delete")
async def delete(session: Session, namespace: Namespace, key: Key) -> Plan:
    """Remove a pair at every name server that has it.

    \b
    Examples:
      orbitmq namesrv kv delete settings colour
      orbitmq namesrv kv delete ORDER_TOPIC_CONFIG Orders --yes
    """
    from orbitmq.admin import namesrv as name_servers

    return await name_servers.plan_pair(session, namespace, key, None)
