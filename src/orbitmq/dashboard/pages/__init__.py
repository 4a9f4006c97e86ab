"""The pages. One module for each subject; it registers its pages when it is imported."""

from __future__ import annotations

from typing import NamedTuple

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


NAVIGATION = (
    NavigationEntry("", "Overview"),
    NavigationEntry("brokers", "Brokers"),
    NavigationEntry("topics", "Topics"),
    NavigationEntry("groups", "Groups"),
    NavigationEntry("clients", "Clients"),
    NavigationEntry("messages", "Messages"),
    NavigationEntry("dead-letters", "Dead letters"),
    NavigationEntry("nameservers", "Name servers"),
    NavigationEntry("access", "Access"),
    NavigationEntry("config", "Configuration"),
    NavigationEntry("audit", "Audit", "admin"),
)
