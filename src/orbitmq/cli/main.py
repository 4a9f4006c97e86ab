"""The command table of `orbitmq`: names, flags and help, nothing else.

`orbitmq --help` must answer at once, so nothing heavier than typer is imported here; each command imports its work
when it is called. Must not know what a daemon is made of.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal

import typer

from orbitmq import __version__

app = typer.Typer(
    name="orbitmq",
    help="A message system compatible with Apache RocketMQ 4.9 on the wire and on disk.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode=None,
    context_settings={"help_option_names": ["-h", "--help"]},
)

PrintConfig = Annotated[
    bool, typer.Option("-p", "--print-config", help="Print the effective configuration as a properties file and exit.")
]
LogLevel = Annotated[
    Literal["debug", "info", "warning", "error"], typer.Option(help="Log lines go to standard error, from this level.")
]


def _version(asked: bool) -> None:
    if asked:
        typer.echo(f"orbitmq {__version__}")
        raise typer.Exit


@app.callback()
def root(
    version: Annotated[
        bool, typer.Option("--version", callback=_version, is_eager=True, help="Print the version.")
    ] = False,
) -> None:
    """A message system compatible with Apache RocketMQ 4.9 on the wire and on disk."""


@app.command()
def up(
    data_dir: Annotated[
        Path | None,
        typer.Option(
            help="Where everything is kept that the file does not place elsewhere.",
            show_default="~/.orbitmq",
            file_okay=False,
            metavar="DIR",
        ),
    ] = None,
    namesrv_port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.")] = 9876,
    broker_port: Annotated[
        int | None, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.", show_default="10911")
    ] = None,
    config: Annotated[Path | None, typer.Option("-c", help="Properties file of the broker.", metavar="FILE")] = None,
    log_level: LogLevel = "warning",
) -> None:
    """Run a name server and a broker in one process, for development and small installations.

    \b
    Examples:
      orbitmq up
      orbitmq up --data-dir ./data --namesrv-port 0 --broker-port 0
    """
    from orbitmq.cli import daemons

    daemons.up(data_dir, namesrv_port, broker_port, config, log_level)


@app.command()
def namesrv(
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    port: Annotated[
        int | None,
        typer.Option(
            min=0, max=65535, metavar="PORT", help="Overrides listenPort; 0 takes a free port.", show_default="9876"
        ),
    ] = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
) -> None:
    """Run a name server.

    \b
    Examples:
      orbitmq namesrv
      orbitmq namesrv -c namesrv.conf --port 9876
    """
    from orbitmq.cli import daemons

    daemons.namesrv(config, port, print_only=print_config, log_level=log_level)


@app.command()
def broker(
    config: Annotated[Path | None, typer.Option("-c", help="Properties file.", metavar="FILE")] = None,
    namesrv_addresses: Annotated[
        str | None,
        typer.Option("-n", help="Name servers as host:port, joined by ';'. Overrides namesrvAddr.", metavar="NAMESRV"),
    ] = None,
    print_config: PrintConfig = False,
    log_level: LogLevel = "info",
) -> None:
    """Run a broker.

    \b
    Examples:
      orbitmq broker -c broker.conf
      orbitmq broker -c broker.conf -n '10.0.0.1:9876;10.0.0.2:9876' -p
    """
    from orbitmq.cli import daemons

    daemons.broker(config, namesrv_addresses, print_only=print_config, log_level=log_level)


def main() -> None:
    """The entry point of the `orbitmq` command."""
    app()
