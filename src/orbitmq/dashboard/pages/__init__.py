"""The pages. One module for each subject; it registers its pages when it is imported."""

from __future__ import annotations

from typing import NamedTuple

from orbitmq.dashboard.words import N_

MODULES = (
    "overview",
    "groups",
    "group",
    "offsets",
    "clients",
    "brokers",
    "topics",
    "nameservers",
    "access",
    "config",
    "audit",
    "dead_letters",
    "find",
    "messages",
    "send",
    "tail",
    "trace",
    "pending",
)
"""All modules of this package."""


class NavigationEntry(NamedTuple):
    """An entry of the navigation."""

    path: str
    """Path below the cluster."""
    text: str
    role: str = "viewer"
    key: str = ""
    """The key that leads there after `g`."""


NAVIGATION = (
    NavigationEntry("", N_("Overview"), key="o"),
    NavigationEntry("brokers", N_("Brokers"), key="b"),
    NavigationEntry("topics", N_("Topics"), key="t"),
    NavigationEntry("groups", N_("Groups"), key="g"),
    NavigationEntry("clients", N_("Clients"), key="c"),
    NavigationEntry("messages", N_("Messages"), key="m"),
    NavigationEntry("dead-letters", N_("Dead letters"), key="d"),
    NavigationEntry("nameservers", N_("Name servers")),
    NavigationEntry("access", N_("Access")),
    NavigationEntry("config", N_("Configuration")),
    NavigationEntry("audit", N_("Audit"), "admin"),
)
