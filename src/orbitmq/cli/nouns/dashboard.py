"""The noun `dashboard`: the web page, and who may log in to it."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from orbitmq.cli.flags import LogLevel

app = typer.Typer(
    name="dashboard",
    help="The web page of a cluster.",
    invoke_without_command=True,
    rich_markup_mode=None,
    add_completion=False,
)

Accounts = Annotated[
    Path | None,
    typer.Option(
        "--accounts",
        metavar="FILE",
        help="Who may log in.",
        show_default="~/.config/orbitmq/dashboard.toml, where it is there",
        dir_okay=False,
    ),
]


@app.callback()
def dashboard(
    call: typer.Context,
    name_servers: Annotated[
        list[str] | None,
        typer.Option(
            "-n",
            "--name-server",
            metavar="HOST:PORT",
            help="Name servers, repeated or joined by ; or , (else NAMESRV_ADDR, the context, 127.0.0.1:9876).",
        ),
    ] = None,
    contexts: Annotated[
        list[str] | None, typer.Option("--context", metavar="NAME", help="A named cluster; repeatable.")
    ] = None,
    every_context: Annotated[
        bool, typer.Option("--all-contexts", help="Every cluster of `orbitmq context list`.")
    ] = False,
    cluster: Annotated[
        str | None, typer.Option("--cluster", metavar="NAME", help="Only this one of the name servers' clusters.")
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option("--map-addr", metavar="FROM=TO", help="Reach a broker elsewhere than it registers; repeatable."),
    ] = None,
    timeout: Annotated[float, typer.Option("--timeout", min=0.1, metavar="SECONDS", help="For each request.")] = 5.0,
    host: Annotated[
        str, typer.Option(metavar="ADDRESS", help="Address to listen on; others than loopback need accounts.")
    ] = "127.0.0.1",
    port: Annotated[int, typer.Option(min=0, max=65535, metavar="PORT", help="0 takes a free port.")] = 8082,
    accounts: Accounts = None,
    readonly: Annotated[bool, typer.Option("--read-only", help="Nothing is changed through the page.")] = False,
    allowed_hosts: Annotated[
        list[str] | None,
        typer.Option(
            "--allowed-host", metavar="NAME", help="A name the page is reached by, behind a proxy say; repeatable."
        ),
    ] = None,
    proxies: Annotated[
        list[str] | None,
        typer.Option(
            "--proxy",
            metavar="ADDRESS",
            help="Of a reverse proxy, or a network: its X-Forwarded-For and -Proto are taken; repeatable.",
        ),
    ] = None,
    certificate: Annotated[
        Path | None,
        typer.Option("--tls-cert", metavar="FILE", help="Serve https with this certificate.", dir_okay=False),
    ] = None,
    key: Annotated[Path | None, typer.Option("--tls-key", metavar="FILE", help="Its key.", dir_okay=False)] = None,
    audit_log: Annotated[
        Path | None,
        typer.Option(
            metavar="FILE",
            help="A line a change.",
            show_default="~/.local/state/orbitmq/dashboard-audit.jsonl",
            dir_okay=False,
        ),
    ] = None,
    sample: Annotated[
        float, typer.Option(min=0, metavar="SECONDS", help="Between two samples of the curves; 0 takes none.")
    ] = 15.0,
    log_level: LogLevel = "warning",
    descriptor: Annotated[int | None, typer.Option("--fd", hidden=True)] = None,
) -> None:
    """Serve the web page: what a cluster does, where a message is, why nothing is consumed, changes with a preview.

    \b
    On loopback, without accounts, whoever reaches the page may do everything, as whoever reaches the broker may. With
    accounts everybody logs in: viewers look, operators send and move offsets, admins do the rest.

    \b
    Examples:
      orbitmq dashboard -n 127.0.0.1:9876
      orbitmq dashboard --context staging --context production --read-only
      orbitmq dashboard account anna --role admin
    """
    if call.invoked_subcommand is not None:
        return
    from orbitmq.cli import dashboard as page

    page.run(
        page.DashboardClusters(
            tuple(name_servers or ()),
            tuple(contexts or ()),
            every_context,
            cluster,
            tuple(mapped or ()),
            timeout * 1000,
        ),
        page.Serving(
            host,
            port,
            descriptor,
            accounts,
            readonly,
            frozenset(allowed_hosts or ()),
            certificate,
            key,
            audit_log,
            sample,
            tuple(proxies or ()),
        ),
        log_level,
    )


@app.command("account")
def account(
    name: Annotated[str, typer.Argument(metavar="NAME")],
    role: Annotated[
        str | None,
        typer.Option(
            metavar="ROLE", help="viewer, operator or admin.", show_default="the one it has; viewer for a new one"
        ),
    ] = None,
    remove: Annotated[bool, typer.Option("--remove", help="Take the account away.")] = False,
    accounts: Accounts = None,
) -> None:
    """Give somebody an account, or a new password or role: it is asked for, twice, or read from standard input.

    A dashboard that runs takes it at once.

    \b
    Examples:
      orbitmq dashboard account anna --role operator
      orbitmq dashboard account anna --remove
    """
    from orbitmq.cli import dashboard

    dashboard.account(name, role, accounts, remove=remove)
