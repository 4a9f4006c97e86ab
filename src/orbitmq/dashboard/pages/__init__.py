"""The pages. A module a subject; each registers its pages when it is imported."""

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
    "waiting",
)
"""All modules of this folder."""


class Entry(NamedTuple):
    """A line of the navigation."""

    path: str
    """Below the place."""
    text: str
    role: str = "viewer"


NAVIGATION = (
    Entry("", "Overview"),
    Entry("brokers", "Brokers"),
    Entry("topics", "Topics"),
    Entry("groups", "Groups"),
    Entry("clients", "Clients"),
    Entry("messages", "Messages"),
    Entry("dead-letters", "Dead letters"),
    Entry("nameservers", "Name servers"),
    Entry("access", "Access"),
    Entry("config", "Configuration"),
    Entry("audit", "Audit", "admin"),
)
