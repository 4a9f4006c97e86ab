"""An account: its secret, its permissions, and the addresses it may use without a signature.

A resource is a topic by its name, or a group by the name of its retry topic, so a group and its retry topic are one
resource. Pure; must not know files or requests.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from orbitmq.broker.access.addresses import Matches, pattern
from orbitmq.errors import ConfigurationError
from orbitmq.message.topics import RETRY_PREFIX, TRACE_TOPIC
from orbitmq.wire.request import ANY, DENY, PUB, SUB

_WRITTEN = {"PUB": PUB, "SUB": SUB, "PUB|SUB": PUB | SUB, "SUB|PUB": PUB | SUB}
_KEY_SIZE_MIN = 7  # RocketMQ refuses shorter access and secret keys
_TEXT_FIELDS = ("accessKey", "secretKey", "whiteRemoteAddress", "defaultTopicPerm", "defaultGroupPerm")
_LIST_FIELDS = ("topicPerms", "groupPerms")


@dataclass(frozen=True)
class Config:
    """An account as its file declares it; None is a missing field."""

    access_key: str
    secret_key: str = field(repr=False)
    white_remote_address: str | None = None
    admin: bool = False
    default_topic_perm: str | None = None
    default_group_perm: str | None = None
    topic_perms: tuple[str, ...] | None = None
    group_perms: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Account:
    """What requests are checked against."""

    access_key: str
    secret: bytes = field(repr=False)
    is_admin: bool
    is_white: Matches
    default_topic: int
    default_group: int
    permissions: Mapping[str, int]

    @property
    def may_everything(self) -> bool:
        """An administrator without permissions of its own; one that has some is limited to them, as in RocketMQ."""
        return self.is_admin and not self.permissions

    def missing(self, needed: Iterable[tuple[str, int]]) -> str | None:
        """The first resource the account has not the permission for."""
        if self.may_everything:
            return None
        for resource, permission in needed:
            if not grants(self.owned(resource), permission) and not _is_trace(resource, permission):
                return resource
        return None

    def owned(self, resource: str) -> int:
        """The permission on a topic, or on a group named by its retry topic."""
        default = self.default_group if resource.startswith(RETRY_PREFIX) else self.default_topic
        return self.permissions.get(resource, default)


def _is_trace(resource: str, permission: int) -> bool:
    """Every client may write traces."""
    return resource == TRACE_TOPIC and permission == PUB


def grants(owned: int, needed: int) -> bool:
    """Whether `owned` is sufficient; DENY overrides any other permission."""
    if owned & DENY:
        return False
    if needed & ANY:
        return owned & (PUB | SUB) != 0
    return owned & needed != 0


def group_resource(group: str) -> str:
    """The name under which permissions of a group are kept."""
    return group if group.startswith(RETRY_PREFIX) else RETRY_PREFIX + group


def resource_text(resource: str) -> str:
    """`topic:orders` or `group:billing`, for people."""
    if resource.startswith(RETRY_PREFIX):
        return f"group:{resource.removeprefix(RETRY_PREFIX)}"
    return f"topic:{resource}"


def permission(text: str | None) -> int:
    """The number of a permission; what RocketMQ does not know is DENY, `ANY` and lower case included."""
    return _WRITTEN.get((text or "").strip(), DENY)


def is_permission(text: str) -> bool:
    """Whether `text` is spelt as a permission; ANY is, and means DENY."""
    return text in _WRITTEN or text in ("DENY", "ANY")


def config_of(fields: object) -> Config:
    """An entry of `accounts`; unknown members are ignored. ConfigurationError names the account and the member."""
    if not isinstance(fields, dict):
        raise ConfigurationError("an entry of accounts is no mapping")
    texts = {name: _text(fields, name) for name in _TEXT_FIELDS}
    lists = {name: _list(fields, name) for name in _LIST_FIELDS}
    config = Config(
        texts["accessKey"] or "",
        texts["secretKey"] or "",
        texts["whiteRemoteAddress"],
        str(fields.get("admin")).lower() == "true",
        texts["defaultTopicPerm"],
        texts["defaultGroupPerm"],
        lists["topicPerms"],
        lists["groupPerms"],
    )
    check_keys(config)
    return config


def check_keys(config: Config) -> None:
    """ConfigurationError when one of the keys is missing or too short. The text never has the secret."""
    if min(len(config.access_key), len(config.secret_key)) < _KEY_SIZE_MIN:
        raise ConfigurationError(
            f"The accessKey={config.access_key} and its secretKey cannot be null and length should longer than 6"
        )


def account_of(config: Config) -> Account:
    """ConfigurationError names the account and the problem."""
    try:
        is_white = pattern(config.white_remote_address or "")
        permissions = dict(_resources(config.topic_perms or (), is_group=False))
        permissions |= _resources(config.group_perms or (), is_group=True)
    except ConfigurationError as error:
        raise ConfigurationError(f"account {config.access_key}: {error}") from error
    return Account(
        config.access_key,
        config.secret_key.encode(errors="replace"),
        config.admin,
        is_white,
        permission(config.default_topic_perm),
        permission(config.default_group_perm),
        permissions,
    )


def _resources(lines: Iterable[str], *, is_group: bool) -> Iterable[tuple[str, int]]:
    for line in lines:
        name, equals, text = line.partition("=")
        if not equals or "=" in text:
            raise ConfigurationError(f"{line!r} is not name=permission")
        yield group_resource(name.strip()) if is_group else name.strip(), permission(text)


def _text(fields: Mapping[Any, Any], name: str) -> str | None:
    """A scalar as RocketMQ takes it: numbers in the form YAML understood them, so `0123` is 83."""
    value = fields.get(name)
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, int | float):
        return str(value)
    raise ConfigurationError(f"{name} of an account is no text")


def _list(fields: Mapping[Any, Any], name: str) -> tuple[str, ...] | None:
    value = fields.get(name)
    if value is None:
        return None
    if not isinstance(value, list):
        raise ConfigurationError(f"{name} of an account is no list")
    return texts(value, f"{name} of an account")


def texts(items: Iterable[object], what: str) -> tuple[str, ...]:
    """Scalar members of a list as strings. A few lines of YAML aliases can expand to nested lists without end."""
    if any(isinstance(item, dict | list | set | tuple) for item in items):
        raise ConfigurationError(f"{what} has members that are no texts")
    return tuple(map(str, items))
