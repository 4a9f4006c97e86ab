"""Who may do what: three roles, each with what the one before it may."""

from __future__ import annotations

from enum import IntEnum


class Role(IntEnum):
    """The higher, the more is allowed."""

    VIEWER = 1
    """Sees everything but secrets, message bodies included, and changes nothing."""
    OPERATOR = 2
    """Sends and sends again, moves offsets, redelivers dead letters, asks clients for their stacks."""
    ADMIN = 3
    """Creates, changes and deletes topics, groups, accounts and settings; reads the audit log."""

    @property
    def word(self) -> str:
        return self.name.lower()


def role_of(word: str) -> Role:
    """ValueError names the roles there are."""
    for role in Role:
        if role.word == word:
            return role
    raise ValueError(f"there is no role {word!r}; give {', '.join(role.word for role in Role)}")
