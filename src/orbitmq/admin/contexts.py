"""A named cluster as it is told. Knows no file."""

from __future__ import annotations

from msgspec import Struct


class NamedCluster(Struct, frozen=True, rename="camel"):
    """One context."""

    name: str
    in_use: bool
    """Whether commands mean it that say nothing else."""
    name_servers: list[str]
    cluster: str | None
    access_key: str | None
    secret: str | None
    """Where the secret key is kept: `env MQ_SECRET`; never the secret."""
    tls: bool
    remember: str | None
    """How long a broker that is gone is missed; None for the usual 72 hours."""
    protected: bool
    readonly: bool
