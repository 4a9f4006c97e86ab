"""Three roles, each with the permissions of the one before it."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """A higher value has more permissions."""

    VIEWER = 1
    """Sees everything but secrets, message bodies included, and changes nothing."""
    OPERATOR = 2
    """Sends and resends messages, moves offsets, redelivers dead letters, requests stacks of clients."""
    ADMIN = 3
    """Creates, changes and deletes topics, groups, accounts and settings; reads the audit log."""

    @property
    def word(self) -> str:
        return self.name.lower()


def role_of(word: str) -> Role:
    """ValueError names the roles that exist."""
    for role in Role:
        if role.word == word:
            return role
    raise ValueError(f"there is no role {word!r}; use {', '.join(role.word for role in Role)}")
