"""The broker on the command line: the daemon, and what an administrator asks of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.flags import LogLevel, PrintConfig, Settings

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
    sync: Annotated[bool, typer.Option("--sync", help="Make it a SYNC_MASTER instead of an ASYNC_MASTER.")] = False,
) -> None:
    """Make a running slave the master of its broker name, when the master is dead.

    Refused while the master answers; and, without --force, while it may be alive, or had messages that are missing
    here: how many bytes is shown. The slave's properties file gets brokerRole and brokerId=0; then it starts anew as
    the master, in the same process.
    Exit code: 0 done, or possible with --dry-run, 1 refused.

    \b
    Examples:
      orbitmq broker promote -c slave.conf --dry-run
      orbitmq broker promote --address 10.0.0.2:10911 --force
    """
    from orbitmq.cli import promoting

    promoting.promote(config, address, dry_run=dry_run, force=force, sync=sync)
