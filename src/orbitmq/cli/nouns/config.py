"""Configuration as code on the command line: a cluster's topics, groups and accounts as a file."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import ClusterName, ContextName, Mapped, NameServers, Timeout, changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.config_as_code import Divergence
    from orbitmq.admin.plans import Plan, Step
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = noun("config", "Configuration as code: keep topics, groups and accounts in a file and apply it.")

DocumentFile = Annotated[
    Path,
    typer.Option(
        "--file", "-f", metavar="FILE", help="YAML, as `orbitmq config export` writes it; - reads standard input."
    ),
]
Prune = Annotated[
    bool, typer.Option("--prune", help="Delete what a section of the file does not name, including messages of topics.")
]


@changes(app, "apply")
async def apply(session: Session, file: DocumentFile, prune: Prune = False) -> Plan:
    """Change topics, groups and accounts to what a file says. Settings that it does not give stay as they are. What it
    does not name is kept, unless you give --prune; a section that it does not have is never changed.

    \b
    Examples:
      orbitmq config apply -f cluster.yaml --dry-run
      orbitmq config apply -f cluster.yaml --prune --yes
    """
    from orbitmq.cli import documents

    return await documents.plan(session, file, prune=prune)


@changes(app, "undo")
async def undo(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file that the change wrote.")],
    secret_env: Annotated[
        str | None,
        typer.Option(
            "--secret-env",
            metavar="VARIABLE",
            help="Environment variable with the secret of an account that was deleted.",
        ),
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Or a file with the secret; - reads standard input."),
    ] = None,
) -> Plan:
    """Restore what an undo file keeps. Topics without messages, groups and offsets, accounts without secrets.

    \b
    Examples:
      orbitmq config undo before.json --dry-run
      orbitmq config undo before.json --secret-env ORDER_SECRET
    """
    from orbitmq.admin.undo import COMMANDS, plan_undo
    from orbitmq.cli import undo_files
    from orbitmq.cli.secrets import secret_of

    return await plan_undo(session, undo_files.load(file, *COMMANDS), secret_of(secret_env, secret_file))


@reads(
    app,
    "diff",
    "ConfigDifferences",
    ("TARGET=target", "ACTION=action", "SUBJECT=subject", "BEFORE=before", "AFTER=after"),
)
async def diff(session: Session, file: DocumentFile, prune: Prune = False) -> Result[Step]:
    """Show what `apply` would change; changes nothing.

    \b
    Exit code: 0 the cluster is what the file says, 8 it is not.

    \b
    Examples:
      orbitmq config diff -f cluster.yaml
      orbitmq config diff -f cluster.yaml --prune -o json
    """
    from orbitmq.cli import documents

    return await documents.differences(session, file, prune=prune)


@app.command("export")
def export(
    sections: Annotated[
        list[str] | None,
        typer.Argument(metavar="[SECTION]...", help="topics, groups, accounts; the first two if not given."),
    ] = None,
    file: Annotated[
        Path | None,
        typer.Option("--file", "-f", metavar="FILE", help="Write to this file, atomically (default: standard output)."),
    ] = None,
    name_servers: NameServers = None,
    context_name: ContextName = None,
    cluster: ClusterName = None,
    mapped: Mapped = None,
    timeout: Timeout = 5.0,
) -> None:
    """Write topics, groups and accounts to a file for `apply`. The same cluster gives the same text.

    Secrets are left out. Nothing is written if a broker does not respond.

    \b
    Examples:
      orbitmq config export -f cluster.yaml
      orbitmq config export topics > topics.yaml
    """
    from orbitmq.cli import documents

    documents.export(sections or [], file, name_servers or (), context_name, cluster, mapped or (), timeout * 1000)


@reads(app, "compare", "ConfigDivergences", ("KIND=kind", "NAME=name", "VALUES=values"))
async def compare(session: Session) -> Result[Divergence]:
    """Topics and groups that differ between the masters of a cluster.

    \b
    Examples:
      orbitmq config compare
      orbitmq config compare -o json
    """
    from orbitmq.admin import config_as_code

    return await config_as_code.compare(session)
