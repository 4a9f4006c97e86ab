"""mqadmin commands for accounts. Unlike RocketMQ's they print no secrets: see `orbitmq acl list --show-secrets`."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from orbitmq.admin.session import Node
from orbitmq.cli.mqadmin.forms import cells, second, truth
from orbitmq.cli.mqadmin.runner import Work
from orbitmq.operations.access import accounts, acl_version, delete_account, put_account, put_white_addresses
from orbitmq.wire.bodies_access import AccountConfig

MASKED = "******"


async def update_acl_config(work: Work) -> None:
    given = work.given
    account = AccountConfig(
        given.text("a"),
        given.text("s"),
        admin=given.truth("m", False),
        white_remote_address=given.text("w") or None,
        default_topic_perm=given.text("i") or None,
        default_group_perm=given.text("u") or None,
        topic_perms=_lines(given.text("t")) or None,
        group_perms=_lines(given.text("g")) or None,
    )

    async def put(node: Node) -> None:
        await put_account(work.session.remoting, node.address, account)

    for node in await work.each(await work.targets(masters=False), put):
        print(f"create or update plain access config to {node.address} success.")


def _lines(text: str) -> list[str]:
    return [line.strip() for line in text.split(",") if line.strip()]


async def delete_acl_config(work: Work) -> None:
    key = work.given.text("a")

    async def delete(node: Node) -> None:
        await delete_account(work.session.remoting, node.address, key)

    for node in await work.each(await work.targets(masters=False), delete):
        print(f"delete plain access config account from {node.address} success.\naccount's accesskey is:{key}")


async def get_acl_config(work: Work) -> None:
    nodes = await work.targets()
    found = await work.each(nodes, lambda node: accounts(work.session.remoting, node.address))
    for config in found.values():
        print(f"\nglobalWhiteRemoteAddresses: {_list(config.global_white_addrs)}\n\naccounts:")
        for account in config.plain_access_configs:
            print("\n".join(_fields(account)), end="\n\n")


def _fields(account: AccountConfig) -> list[str]:
    pairs = [
        ("accessKey", account.access_key),
        ("secretKey", MASKED),
        ("whiteRemoteAddress", account.white_remote_address or ""),
        ("admin", truth(account.admin)),
        ("defaultTopicPerm", account.default_topic_perm or ""),
        ("defaultGroupPerm", account.default_group_perm or ""),
        ("topicPerms", _list(account.topic_perms) if account.topic_perms else ""),
        ("groupPerms", _list(account.group_perms) if account.group_perms else ""),
    ]
    return [f"  {key:<18}: {value}" for key, value in pairs]


def _list(values: Sequence[str]) -> str:
    return f"[{', '.join(values)}]"


async def cluster_acl_config_version(work: Work) -> None:
    one = "b" in work.given
    nodes = await work.targets()
    found = await work.each(nodes, lambda node: acl_version(work.session.remoting, node.address))
    if not one:
        print(_version_row(
            "#Cluster Name", "#Broker Name", "#Broker Addr", "#AclFilePath", "#AclConfigVersionNum",
            "#AclLastUpdateTime",
        ))  # fmt: skip
    for node, version in found.items():
        for path, each in version.by_file.items():
            at = second(each.timestamp)
            print(_version_row(node.cluster, node.name, node.address, path, each.counter, at))
    if found:
        print(f"get {'broker' if one else 'cluster'}'s plain access config version success.")


def _version_row(*values: object) -> str:
    return cells(*zip(values, (-16, -22, -22, -20, -22, -22), strict=True)).rstrip()


async def update_global_white_addr(work: Work) -> None:
    addresses, path = _lines(work.given.text("g")), work.given.text("p") or None
    put = partial(_put_white, work, addresses, path)
    for node in await work.each(await work.targets(masters=False), put):
        print(f"update global white remote addresses to {node.address} success.")


async def _put_white(work: Work, addresses: list[str], path: str | None, node: Node) -> None:
    await put_white_addresses(work.session.remoting, node.address, addresses, file=path)


COMMANDS = {
    "updateAclConfig": update_acl_config,
    "deleteAclConfig": delete_acl_config,
    "getAclConfig": get_acl_config,
    "clusterAclConfigVersion": cluster_acl_config_version,
    "updateGlobalWhiteAddr": update_global_white_addr,
}
