"""The one command that shows the cluster as it lives."""

from __future__ import annotations

from typing import Annotated

import typer

from orbitmq.cli.verbs import ClusterName, ContextName, Mapped, NameServers, Timeout, noun

app = noun("top", "The cluster as it lives: brokers, groups that are behind, what is wrong.")


@app.command("top")
def top(
    every: Annotated[float, typer.Option("--every", min=0.2, metavar="SECONDS", help="Between two looks.")] = 2.0,
    once: Annotated[bool, typer.Option("--once", help="Look once; so it is where there is no terminal.")] = False,
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 2.0,
) -> None:
    """The cluster as it lives: what is wrong, each broker's flow and disk, the groups that are furthest behind. Ctrl-C
    ends it.

    \b
    Figures of a broker that does not answer are `-`, and it is named below.

    \b
    Examples:
      orbitmq top
      orbitmq top --context production --every 5
    """
    from orbitmq.cli import live_view

    live_view.run(every, once, name_servers or (), context_name, cluster, mapped or (), timeout)
