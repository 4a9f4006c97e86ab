"""The noun `dashboard`: the web page, and who may log in to it."""

from __future__ import annotations

import inspect
from pathlib import Path
from typing import Annotated, Any, NamedTuple, get_type_hints

import typer

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.flags import LogLevel
from orbitmq.cli.verbs import ClusterName, Mapped, NameServers, Timeout, shared

app = typer.Typer(
    name="dashboard",
    cls=CommandGroup,
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
)

Accounts = Annotated[
    Path | None,
    typer.Option(
        "--accounts",
        metavar="FILE",
        help="File with the accounts that may log in.",
        show_default="~/.config/orbitmq/dashboard.toml if it exists",
        dir_okay=False,
    ),
]


class DashboardFlags(NamedTuple):
    """The flags of `orbitmq dashboard`, in the order in which help shows them."""

    name_servers: NameServers = None
    contexts: Annotated[
        list[str] | None,
        typer.Option("--context", metavar="NAME", help="A cluster of `orbitmq context list`; repeatable."),
    ] = None
    every_context: Annotated[bool, typer.Option("--all-contexts", help="All clusters of `orbitmq context list`.")] = (
        False
    )
    cluster: ClusterName = None
    mapped: Mapped = None
    timeout: Timeout = 5.0
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; without accounts only loopback.")
    ] = "127.0.0.1"
    port: Annotated[
        int, typer.Option(min=0, max=65535, metavar="PORT", help="Port to listen on; 0 picks a free one.")
    ] = 8082
    accounts: Accounts = None
    read_only: Annotated[bool, typer.Option("--read-only", help="Forbid changes through the page.")] = False
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host",
            metavar="NAME",
            help="A host name that the page is reached by, for example behind a proxy; repeatable.",
        ),
    ] = None
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            metavar="ADDRESS",
            help="Trusted proxy, address or network: its X-Forwarded-For and -Proto are used; repeatable.",
        ),
    ] = None
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve https with this certificate.", dir_okay=False),
    ] = None
    key: Annotated[
        Path | None, typer.Option("--tls-key", metavar="FILE", help="Private key of the certificate.", dir_okay=False)
    ] = None
    audit_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="Record each change as a line in this file.",
            show_default="~/.local/state/orbitmq/dashboard-audit.jsonl",
            dir_okay=False,
        ),
    ] = None
    sample: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Time between two samples of the charts; 0 turns them off.")
    ] = 15.0
    log_level: LogLevel = "warning"
    descriptor: Annotated[int | None, typer.Option("--fd", hidden=True)] = None
    """A socket that already listens."""


@app.callback()
def dashboard(call: typer.Context, **flags: Any) -> None:
    """Serve the web page: metrics, where a message is, why a group does not consume, and changes with a preview.

    Without accounts it listens on loopback, and everyone who reaches it may do everything. With accounts everyone logs
    in: a viewer reads, an operator also sends messages and moves offsets, an admin does everything.

    \b
    Examples:
      orbitmq dashboard -n 127.0.0.1:9876
      orbitmq dashboard --context staging --context production --read-only
      orbitmq dashboard account anna --role admin
    """
    if call.invoked_subcommand is None:
        from orbitmq.cli import dashboard as page

        page.run(DashboardFlags(**flags))


dashboard.__signature__ = inspect.Signature(  # type: ignore[attr-defined]
    [
        inspect.Parameter("call", inspect.Parameter.POSITIONAL_OR_KEYWORD, annotation=typer.Context),
        *shared(
            **{
                name: (hint, DashboardFlags._field_defaults[name])
                for name, hint in get_type_hints(DashboardFlags, include_extras=True).items()
            }
        ),
    ]
)


@app.command("account")
def account(
    name: Annotated[str, typer.Argument(metavar="NAME", help="Name to log in with.")],
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE", help="viewer, operator or admin.", show_default="the one it has; viewer for a new one"
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Remove the account.")] = False,
    accounts: Accounts = None,
) -> None:
    """Create or remove an account, or change its password or role. The password is prompted for, twice, or read from
    standard input.

    A running dashboard uses it at once.

    \b
    Examples:
      orbitmq dashboard account anna --role operator
      orbitmq dashboard account anna --remove
    """
    from orbitmq.cli import dashboard

    dashboard.account(name, role, accounts, remove=remove)
