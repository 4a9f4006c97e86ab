"""The command `top`, a live view of the cluster."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.verbs import ClusterName, ContextName, Mapped, NameServers, Timeout, noun

app = noun("top", "Live view of the cluster: its verdict, brokers and groups with a lag.")


@app.command("top")
def top(
    every: Annotated[
        float, typer.Option("--watch", min=0.2, metavar="SECONDS", help="Time between two updates.")
    ] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Print once, as without a terminal.")] = False,
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 2.0,
) -> None:
    """Live view of the cluster: its verdict, the rates and disk of each broker, the groups with the longest lag. Ctrl-C
    ends it.

    \b
    Values of a broker that does not respond are `-`, and its name is below.

    \b
    Examples:
      orbitmq top
      orbitmq top --context production --watch 5
    """
    from orbitmq.cli import live_view

    live_view.run(every, once, name_servers or (), context_name, cluster, mapped or (), timeout)
