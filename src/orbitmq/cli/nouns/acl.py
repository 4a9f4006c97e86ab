"""Accounts on the command line."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from orbitmq.cli.verbs import changes, noun, reads

if TYPE_CHECKING:
    from orbitmq.admin.acl import AclAccount, AclFileStatus, WhiteList
    from orbitmq.admin.plans import Plan
    from orbitmq.admin.results import Result
    from orbitmq.admin.session import Session

app = noun("acl", "Access control: accounts and white lists. Each broker, master or slave, has its own files.")

BrokerOption = Annotated[
    str | None,
    typer.Option(
        "--broker", "-b", metavar="BROKER", help="The broker's name, name:id or host:port (default: all brokers)."
    ),
]
AccessKey = Annotated[str, typer.Argument(metavar="ACCESS_KEY", help="The account's access key.")]


@reads(
    app,
    "list",
    "AccountList",
    (
        "ACCESS KEY=accessKey", "BROKER=broker", "ADMIN=admin", "TOPICS=topicPerms", "GROUPS=groupPerms",
        "OTHER TOPICS=defaultTopicPerm", "OTHER GROUPS=defaultGroupPerm", "FROM=whiteRemoteAddress",
        "+SECRET=secretKey", "+ADDRESS=address",
    ),
)  # fmt: skip
async def list_(
    session: Session,
    broker: BrokerOption = None,
    show_secrets: Annotated[bool, typer.Option("--show-secrets", help="Show secrets instead of asterisks.")] = False,
) -> Result[AclAccount]:
    """Every account at every broker; where brokers differ, side by side.

    \b
    Examples:
      orbitmq acl list
      orbitmq acl list --broker broker-a -o json
    """
    from orbitmq.admin import acl

    return acl.plainly(await acl.listed(session, broker, show_secrets=show_secrets))


@changes(app, "set")
async def set_(
    session: Session,
    access_key: AccessKey,
    secret_env: Annotated[
        str | None, typer.Option("--secret-env", metavar="VARIABLE", help="Environment variable with the secret.")
    ] = None,
    secret_file: Annotated[
        Path | None,
        typer.Option("--secret-file", metavar="FILE", help="Or a file with the secret; - reads standard input."),
    ] = None,
    topics: Annotated[
        list[str] | None,
        typer.Option(
            "--topic",
            metavar="NAME=PERM",
            help="Permission on a topic, as Orders=PUB|SUB; repeatable. Replaces the list.",
        ),
    ] = None,
    groups: Annotated[
        list[str] | None,
        typer.Option(
            "--group", metavar="NAME=PERM", help="Permission on a group, as billing=SUB; repeatable. Replaces the list."
        ),
    ] = None,
    topic_perm: Annotated[
        str | None, typer.Option("--other-topics", metavar="PERM", help="DENY, PUB, SUB or PUB|SUB.")
    ] = None,
    group_perm: Annotated[
        str | None, typer.Option("--other-groups", metavar="PERM", help="DENY, PUB, SUB or PUB|SUB.")
    ] = None,
    white: Annotated[
        str | None,
        typer.Option("--from", metavar="ADDRESS", help="No signature is needed from these addresses: 10.0.0.*"),
    ] = None,
    admin: Annotated[bool | None, typer.Option("--admin/--no-admin", help="Grant every permission.")] = None,
    broker: BrokerOption = None,
) -> Plan:
    """Create or change an account. What you do not give stays. Secrets are shown as short hashes.

    \b
    Examples:
      orbitmq acl set order-service --secret-env ORDER_SECRET --group billing=SUB
      orbitmq acl set order-service --topic 'Orders=PUB|SUB'
      orbitmq acl set order-service --other-topics DENY --dry-run
    """
    from orbitmq.admin import acl
    from orbitmq.cli.secrets import secret_of

    secret = secret_of(secret_env, secret_file)
    wanted = acl.AccountChanges(secret, admin, white, topic_perm, group_perm, topics, groups)
    return await acl.plan_account(session, access_key, wanted, broker)


@changes(app, "delete")
async def delete(session: Session, access_key: AccessKey, broker: BrokerOption = None) -> Plan:
    """Delete an account at every broker that has it.

    \b
    Examples:
      orbitmq acl delete order-service
      orbitmq acl delete order-service --broker broker-a --yes
    """
    from orbitmq.admin import acl

    return await acl.plan_delete(session, access_key, broker)


SecretVariable = Annotated[
    str | None,
    typer.Option(
        "--secret-env", metavar="VARIABLE", help="Environment variable with the secret of an account that was deleted."
    ),
]
SecretFile = Annotated[
    Path | None,
    typer.Option("--secret-file", metavar="FILE", help="Or a file with the secret; - reads standard input."),
]


@changes(app, "undo")
async def undo(
    session: Session,
    file: Annotated[Path, typer.Argument(metavar="FILE", help="The undo file that the change wrote.")],
    secret_env: SecretVariable = None,
    secret_file: SecretFile = None,
) -> Plan:
    """Restore an account or a white list from an undo file. The file has no secret: an existing account keeps its own,
    one that was deleted needs a new one.

    \b
    Examples:
      orbitmq acl undo before.json --dry-run
      orbitmq acl undo before.json --secret-env ORDER_SECRET
    """
    from orbitmq.admin import acl
    from orbitmq.admin.undo import plan_undo
    from orbitmq.cli import undo_files
    from orbitmq.cli.secrets import secret_of

    return await plan_undo(session, undo_files.load(file, acl.UNDO), secret_of(secret_env, secret_file))


@reads(app, "versions", "AclVersions", ("BROKER=broker", "FILE=path", "VERSION=version", "CHANGED=changedAtMs"))
async def versions(session: Session, broker: BrokerOption = None) -> Result[AclFileStatus]:
    """The access control files of every broker. With the number of changes to each, and the time of the last one.

    \b
    Examples:
      orbitmq acl versions
      orbitmq acl versions -o json
    """
    from orbitmq.admin import acl

    return acl.plainly(await acl.versions(session, broker))


white_list = noun("acl white", "Addresses that need no account.")
app.add_typer(white_list, name="white")


@reads(white_list, "show", "WhiteLists", ("BROKER=broker", "ADDRESSES=whiteAddresses", "+ADDRESS=address"))
async def show(session: Session, broker: BrokerOption = None) -> Result[WhiteList]:
    """The white list of every broker.

    \b
    Examples:
      orbitmq acl white show
      orbitmq acl white show -o json
    """
    from orbitmq.admin import acl

    return acl.plainly(await acl.white_lists(session, broker))


@changes(white_list, "set")
async def set_white(
    session: Session,
    addresses: Annotated[list[str], typer.Argument(metavar="ADDRESS...", help="10.0.0.1, 10.0.0.*, 10.0.{1,2}.*")],
    file: Annotated[
        str | None, typer.Option("--file", metavar="PATH", help="File on the broker to change, see `acl versions`.")
    ] = None,
    broker: BrokerOption = None,
) -> Plan:
    """Replace the white list of every broker.

    \b
    Examples:
      orbitmq acl white set 10.0.0.*
      orbitmq acl white set 10.0.0.1 10.0.0.2 --dry-run
    """
    from orbitmq.admin import acl

    return await acl.plan_white_list(session, addresses, broker, file=file)
