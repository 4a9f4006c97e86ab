"""Accounts for tests of access control, and requests signed by them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from orbitmq.runtime.refusals import Refusals
from orbitmq.wire.command import Command
from orbitmq.wire.signature import Credentials, sign

ADMIN = Credentials("administrator", "admin's secret")
OWNER = Credentials("owner-of-orders", "owner's secret")
APPLICATION = Credentials("an-application", "application's secret")
NOBODY = Credentials("no-permission", "nobody's secret")
IMPOSTOR = Credentials(OWNER.access_key, "not the owner's secret")
STRANGER = Credentials("not-an-account", "stranger's secret")

TOPIC, GROUP = "orders", "billing"
WHITE_ADDRESS = "10.10.103.*"

PLAIN_ACL = f"""\
globalWhiteRemoteAddresses:
- {WHITE_ADDRESS}
accounts:
- accessKey: {ADMIN.access_key}
  secretKey: {ADMIN.secret_key}
  whiteRemoteAddress:
  admin: true
- accessKey: {OWNER.access_key}
  secretKey: {OWNER.secret_key}
  whiteRemoteAddress:
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms:
  - {TOPIC}=PUB|SUB
  - only-in=PUB
  - only-out=SUB
  groupPerms:
  - {GROUP}=SUB
  - shipping=SUB
- accessKey: {APPLICATION.access_key}
  secretKey: {APPLICATION.secret_key}
  topicPerms:
  - jobs=PUB|SUB
  - questions=PUB|SUB
  groupPerms:
  - workers=SUB
  - workers-in-order=SUB
  - answerers=SUB
- accessKey: {NOBODY.access_key}
  secretKey: {NOBODY.secret_key}
"""


def write_acl(home: Path, text: str = PLAIN_ACL, name: str = "conf/plain_acl.yml") -> Path:
    """Put a file below `home` where a broker looks for it."""
    path = home / name
    path.parent.mkdir(parents=True, exist_ok=True)
    whole = path.with_name("whole.txt")
    whole.write_text(text, encoding="utf-8")
    whole.replace(path)
    return path


def signed(command: Command, credentials: Credentials | None) -> Command:
    """The command, signed when there is somebody to sign it."""
    if credentials is not None:
        sign(command, credentials)
    return command


def command_of(code: int, fields: Mapping[str, str] | None = None, body: bytes = b"") -> Command:
    """A request with these header fields."""
    return Command(code=code, ext=dict(fields or {}), body=body, opaque=code + 1)


class _SlowLoop:
    """A second passes whenever the time is asked for."""

    now = 0.0

    def time(self) -> float:
        _SlowLoop.now += 1
        return _SlowLoop.now


class FakeConnection:
    """What access control looks at of a connection."""

    def __init__(self, host: str) -> None:
        self.peer = host, 1
        self.attributes: dict[str, object] = {}
        self.address = f"{host}:1"
        self.refusals = Refusals()
        self.loop = _SlowLoop()
