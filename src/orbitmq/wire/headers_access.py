"""Header declarations of the requests about access control (ACL of 4.x), and of their responses."""

from __future__ import annotations

from orbitmq.wire.header import Header


class UpdateAccountHeader(Header):
    """UPDATE_AND_CREATE_ACL_CONFIG (50). Permissions are joined by commas, `orders=PUB|SUB,bills=DENY`."""

    access_key: str
    secret_key: str | None = None
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: str | None = None
    group_perms: str | None = None

    def __repr__(self) -> str:
        return f"UpdateAccountHeader({self.access_key!r})"


class DeleteAccountHeader(Header):
    """DELETE_ACL_CONFIG (51)."""

    access_key: str


class UpdateGlobalWhiteAddressesHeader(Header):
    """UPDATE_GLOBAL_WHITE_ADDRS_CONFIG (53). Addresses are joined by commas; no path means the main file."""

    global_white_addrs: str
    acl_file_full_path: str | None = None


class AclVersionHeader(Header):
    """Response to GET_BROKER_CLUSTER_ACL_INFO (52). Both versions are JSON texts, the second one path -> version."""

    version: str
    all_acl_file_version: str
    broker_name: str
    broker_addr: str
    cluster_name: str
