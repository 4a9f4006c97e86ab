"""Accounts and white lists of one broker (ACL of 4.x). Each broker, also a slave, has its own files."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from orbitmq.message.config import DataVersion
from orbitmq.message.javajson import loads
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.bodies_access import AccountConfig, AclConfig
from orbitmq.wire.headers_access import (
    AclVersionHeader,
    DeleteAccountHeader,
    UpdateAccountHeader,
    UpdateGlobalWhiteAddressesHeader,
)
from orbitmq.wire.objects import decode, from_plain
from orbitmq.wire.requests import RequestCode


class AclVersion(NamedTuple):
    """Versions of a broker's access control: of the whole, and of each file."""

    whole: DataVersion
    by_file: dict[str, DataVersion]


async def accounts(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> AclConfig:
    """GET_BROKER_CLUSTER_ACL_CONFIG: every account with its secret, and the white list."""
    response = await call(remoting, address, RequestCode.GET_BROKER_CLUSTER_ACL_CONFIG, timeout_ms=timeout_ms)
    return decode(AclConfig, response.body)


async def put_account(remoting: Remoting, address: str, account: AccountConfig, *, timeout_ms: float = 6000) -> None:
    """UPDATE_AND_CREATE_ACL_CONFIG: create or replace an account. BrokerError when the broker refuses it."""
    header = UpdateAccountHeader(
        account.access_key,
        account.secret_key,
        account.white_remote_address,
        account.admin,
        account.default_topic_perm,
        account.default_group_perm,
        _joined(account.topic_perms),
        _joined(account.group_perms),
    )
    await call(remoting, address, RequestCode.UPDATE_AND_CREATE_ACL_CONFIG, header, timeout_ms=timeout_ms)


async def delete_account(remoting: Remoting, address: str, access_key: str, *, timeout_ms: float = 6000) -> None:
    """DELETE_ACL_CONFIG. BrokerError when there is no such account."""
    header = DeleteAccountHeader(access_key)
    await call(remoting, address, RequestCode.DELETE_ACL_CONFIG, header, timeout_ms=timeout_ms)


async def put_white_addresses(
    remoting: Remoting, address: str, white: Sequence[str], *, file: str | None = None, timeout_ms: float = 6000
) -> None:
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG: addresses that need no account. `file` is a path from `acl_version`."""
    header = UpdateGlobalWhiteAddressesHeader(",".join(white), file)
    await call(remoting, address, RequestCode.UPDATE_GLOBAL_WHITE_ADDRS_CONFIG, header, timeout_ms=timeout_ms)


async def acl_version(remoting: Remoting, address: str, *, timeout_ms: float = 6000) -> AclVersion:
    """GET_BROKER_CLUSTER_ACL_INFO: versions of the whole and of each file."""
    response = await call(remoting, address, RequestCode.GET_BROKER_CLUSTER_ACL_INFO, timeout_ms=timeout_ms)
    header = response.header(AclVersionHeader)
    files = {path: from_plain(DataVersion, version) for path, version in loads(header.all_acl_file_version).items()}
    return AclVersion(decode(DataVersion, header.version), files)


def _joined(lines: Sequence[str] | None) -> str | None:
    return None if lines is None else ",".join(lines)
