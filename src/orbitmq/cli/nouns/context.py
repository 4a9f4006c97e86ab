"""Named clusters on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.completion import contexts
from orbitmq.cli.verbs import Output, noun

app = noun("context", "Named clusters, and which one commands use.")
ContextArgument = Annotated[str, typer.Argument(metavar="NAME", help="Name of the context.", autocompletion=contexts)]


@app.command("list")
def list_(form: Output = "table") -> None:
    """The contexts of the file; the current one is marked. Secrets are not shown, only where they are kept.

    \b
    Examples:
      orbitmq context list
      orbitmq context list -o json
    """
    from orbitmq.cli import context_file

    context_file.show(form)


@app.command("use")
def use(name: ContextArgument) -> None:
    """Make a context the current one. It is used without --context, -n and NAMESRV_ADDR.

    \b
    Examples:
      orbitmq context use production
    """
    from orbitmq.cli import context_file

    context_file.use(name)


@app.command("add")
def add(
    name: ContextArgument,
    name_servers: Annotated[list[str], typer.Option("-n", "--name-server", metavar="HOST:PORT", help="Repeatable.")],
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="One of the name servers' clusters.")] = None,
    access_key: Annotated[str | None, typer.Option(metavar="NAME", help="The account's access key.")] = None,
    secret_env: Annotated[
        str | None, typer.Option(metavar="VARIABLE", help="Environment variable with the secret.")
    ] = None,
    secret_file: Annotated[str | None, typer.Option(metavar="FILE", help="Or a file with the secret.")] = None,
    protected: Annotated[
        bool, typer.Option("--protected", help="Prompt for the context's name before each change.")
    ] = False,
    readonly: Annotated[bool, typer.Option("--readonly", help="Forbid changes through this context.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Use TLS.")] = False,
    remember: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="How long to report a broker as missing after it left: 72h, 30m; 0 never."),
    ] = None,
    mapped: Annotated[
        list[str] | None,
        typer.Option(
            "--map-addr",
            metavar="FROM=TO",
            help="Connect to TO for the broker registered at FROM; repeatable.",
        ),
    ] = None,
) -> None:
    """Add a context to the file, or replace the one of that name. The first one becomes the current one.

    \b
    Examples:
      orbitmq context add local -n 127.0.0.1:9876
      orbitmq context add production -n '10.0.0.1:9876;10.0.0.2:9876' --protected
      orbitmq context add test -n 10.1.0.1:9876 --access-key admin --secret-env MQ
    """
    from orbitmq.cli import context_file

    table = {
        "nameServers": name_servers, "cluster": cluster, "accessKey": access_key,
        "secretKey": {"env": secret_env} if secret_env else {"file": secret_file} if secret_file else None,
        "protected": protected or None, "readonly": readonly or None, "tls": {} if tls else None,
        "remember": remember,
    }  # fmt: skip
    context_file.add(name, {key: value for key, value in table.items() if value is not None}, mapped or ())


@app.command("remove")
def remove(name: ContextArgument) -> None:
    """Remove a context from the file.

    \b
    Examples:
      orbitmq context remove old
    """
    from orbitmq.cli import context_file

    context_file.remove(name)
