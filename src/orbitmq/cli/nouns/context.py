"""Named clusters on the command line."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.completion import contexts
from orbitmq.cli.verbs import Output, noun

app = noun("context", "Named clusters: which one commands mean.")
ContextArgument = Annotated[
    str, typer.Argument(metavar="NAME", help="What the cluster is called here.", autocompletion=contexts)
]


@app.command("list")
def list_(form: Output = "table") -> None:
    """The contexts of the file, the one in use marked. Secrets are told by where they are kept.

    \b
    Examples:
      orbitmq context list
      orbitmq context list -o json
    """
    from orbitmq.cli import context_file

    context_file.tell(form)


@app.command("use")
def use(name: ContextArgument) -> None:
    """Mean this context from now on, where neither --context nor -n nor NAMESRV_ADDR says otherwise.

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
    cluster: Annotated[str | None, typer.Option(metavar="NAME", help="Of several that they know.")] = None,
    access_key: Annotated[str | None, typer.Option(metavar="NAME", help="The account's name.")] = None,
    secret_env: Annotated[str | None, typer.Option(metavar="VARIABLE", help="Where its secret is kept.")] = None,
    secret_file: Annotated[str | None, typer.Option(metavar="FILE", help="Or: a file that holds it.")] = None,
    protected: Annotated[bool, typer.Option("--protected", help="Every change asks for the context's name.")] = False,
    readonly: Annotated[bool, typer.Option("--readonly", help="Nothing is changed through it.")] = False,
    tls: Annotated[bool, typer.Option("--tls", help="Connections are encrypted.")] = False,
    remember: Annotated[
        str | None,
        typer.Option(metavar="SPAN", help="How long a broker that is gone is missed: 72h, 30m; 0 not at all."),
    ] = None,
    mapped: Annotated[
        list[str] | None, typer.Option("--map-addr", metavar="FROM=TO", help="Where a broker is reached; repeatable.")
    ] = None,
) -> None:
    """Write a context into the file; one of the same name is replaced. The first one is used from then on.

    \b
    Examples:
      orbitmq context add local -n 127.0.0.1:9876
      orbitmq context add production -n 10.0.0.1:9876 -n 10.0.0.2:9876 --access-key admin --secret-env MQ_SECRET
    """
    from orbitmq.cli import context_file

    table = {
        "nameServers": name_servers, "cluster": cluster, "accessKey": access_key,
        "secretKey": {"env": secret_env} if secret_env else {"file": secret_file} if secret_file else None,
        "protected": protected or None, "readonly": readonly or None, "tls": {} if tls else None,
        "remember": remember,
        "mapAddr": dict(pair.split("=", 1) for pair in mapped or () if "=" in pair) or None,
    }  # fmt: skip
    context_file.add(name, {key: value for key, value in table.items() if value is not None})


@app.command("remove")
def remove(name: ContextArgument) -> None:
    """Take a context out of the file.

    \b
    Examples:
      orbitmq context remove old
    """
    from orbitmq.cli import context_file

    context_file.remove(name)
