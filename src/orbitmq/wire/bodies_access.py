"""Bodies of the responses about access control; see `orbitmq.wire.bodies` for how they are declared."""

from __future__ import annotations

from msgspec import Struct, field


class AccountConfig(Struct, frozen=True):
    """One account with its secret (Java: PlainAccessConfig)."""

    access_key: str
    secret_key: str
    admin: bool = False
    white_remote_address: str | None = None
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: list[str] | None = None
    group_perms: list[str] | None = None

    def __repr__(self) -> str:
        return f"AccountConfig({self.access_key!r})"


class AclConfig(Struct, frozen=True):
    """Response to GET_BROKER_CLUSTER_ACL_CONFIG (54; Java: GetBrokerClusterAclConfigResponseBody)."""

    global_white_addrs: list[str] = field(default_factory=list)
    plain_access_configs: list[AccountConfig] = field(default_factory=list)
