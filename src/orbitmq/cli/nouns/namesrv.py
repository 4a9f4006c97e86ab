"""The name server on the command line: the daemon, and what an administrator asks of all of them."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.flags import LogLevel, PrintConfig, Settings

app = typer.Typer(
    name="namesrv", invoke_without_command=True, no_args_is_help=False, rich_markup_mode=None, add_completion=False
)


@app.callback()
def namesrv(
    context: typer.Context,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Overrides listenPort; 0 takes a free port.", show_default="9876"
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
