"""The accounts of the page: a TOML file with a role and a hashed password for each name.

    [accounts.anna]
    role = "operator"
    password = "scrypt$16384$8$1$<salt>$<hash>"

The file is read again when it has changed. `orbitmq dashboard account` writes it. Must not know a page.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import os
import tomllib
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

import tomlkit
from tomlkit.exceptions import TOMLKitError

from orbitmq.dashboard.roles import Role, role_of
from orbitmq.errors import ConfigurationError
from orbitmq.runtime.files import replace_text

FILE_BYTES_MAX = 1 << 20
PASSWORD_CHARS_MIN = 8
PASSWORD_BYTES_MAX = 1024  # limits the work of hashing, which needs no login
NAME_CHARS_MAX = 64
# 16 MiB and some 50 ms per hash, as OWASP's password storage sheet recommends for scrypt with p = 5 or less memory.
COST, BLOCK, PARALLEL = 1 << 14, 8, 5
SALT_BYTES = 16
_KIND = "scrypt"
_MEMORY_MAX = 64 << 20  # for the hash parameters of an edited file


class DashboardAccount(NamedTuple):
    """One account of the file."""

    name: str
    role: Role
    hashed: str


def hashed(password: str, salt: bytes | None = None) -> str:
    """The hash to store in the file. ConfigurationError for a password that is too short or too long."""
    raw = password.encode()
    if len(password) < PASSWORD_CHARS_MIN or len(raw) > PASSWORD_BYTES_MAX:
        raise ConfigurationError(
            f"a password has {PASSWORD_CHARS_MIN} characters or more, and {PASSWORD_BYTES_MAX} bytes or less"
        )
    salt = os.urandom(SALT_BYTES) if salt is None else salt
    found = _scrypt(raw, salt, COST, BLOCK, PARALLEL)
    return "$".join((_KIND, str(COST), str(BLOCK), str(PARALLEL), _text(salt), _text(found)))


def is_right(password: str, hashed: str) -> bool:
    """Whether the password matches the hash; takes the same time if it does not. Some 100 ms: not on the event loop."""
    raw = password.encode()
    kind, *parts = hashed.split("$")
    if kind != _KIND or len(parts) != 5 or len(raw) > PASSWORD_BYTES_MAX:
        return False
    cost, block, parallel = map(int, parts[:3])
    found = _scrypt(raw, base64.b64decode(parts[3]), cost, block, parallel)
    return hmac.compare_digest(found, base64.b64decode(parts[4]))


UNKNOWN_NAME_DIGEST = base64.b64encode(bytes(64)).decode()
UNKNOWN_NAME_HASH = f"{_KIND}${COST}${BLOCK}${PARALLEL}${base64.b64encode(bytes(16)).decode()}${UNKNOWN_NAME_DIGEST}"
"""The hash to compare with for an unknown name, so that the response time does not reveal which names exist."""


def _scrypt(password: bytes, salt: bytes, cost: int, block: int, parallel: int) -> bytes:
    return hashlib.scrypt(password, salt=salt, n=cost, r=block, p=parallel, maxmem=_MEMORY_MAX)


def _text(data: bytes) -> str:
    return base64.b64encode(data).decode()


class AccountFile:
    """The current accounts."""

    def __init__(self, path: Path) -> None:
        self.path = path
        self._stamp: tuple[int, int] | None = None
        self._accounts: dict[str, DashboardAccount] = {}

    def accounts(self) -> Mapping[str, DashboardAccount]:
        """The accounts, read again if the file has changed. ConfigurationError names what is wrong with it."""
        try:
            found = self.path.stat()
            stamp = (found.st_mtime_ns, found.st_size)
            if stamp != self._stamp:
                data = self.path.read_bytes()[:FILE_BYTES_MAX]
                if not data:
                    raise ConfigurationError(
                        f"{self.path}: the file is empty, its accounts are lost; restore or remove it"
                    )
                self._accounts = parse(data, str(self.path))
                self._stamp = stamp
        except OSError as error:
            raise ConfigurationError(
                f"{self.path}: {error.strerror}; `orbitmq dashboard account NAME` creates it"
            ) from error
        return self._accounts


def parse(data: bytes, where: str) -> dict[str, DashboardAccount]:
    """The accounts of a file's text. ConfigurationError."""
    try:
        tables = tomllib.loads(data.decode()).get("accounts", {})
        return {
            name: DashboardAccount(name, role_of(table["role"]), _checked(table["password"]))
            for name, table in tables.items()
        }
    except (tomllib.TOMLDecodeError, UnicodeDecodeError, ValueError, AttributeError) as error:
        raise ConfigurationError(f"{where}: {error}") from error
    except (KeyError, TypeError) as error:
        raise ConfigurationError(f"{where}: each account needs a role and a password ({error})") from error


def _checked(text: str) -> str:
    kind, *parts = text.split("$")
    if kind != _KIND or len(parts) != 5:
        raise ValueError("a password must be in the file as `orbitmq dashboard account` writes it, hashed")
    cost, block, _ = map(int, parts[:3])
    if 128 * cost * block > _MEMORY_MAX:
        raise ValueError(f"the parameters of a password need more than {_MEMORY_MAX >> 20} MiB")
    for part in parts[3:]:
        base64.b64decode(part, validate=True)
    return text


def put(path: Path, name: str, role: Role, password: str) -> None:
    """Write or replace an account; comments of the file stay. Only the owner may read the file."""
    if not name.isprintable() or not 0 < len(name) <= NAME_CHARS_MAX:
        raise ConfigurationError(f"a name has 1 to {NAME_CHARS_MAX} printable characters")
    document = _document(path)
    table = tomlkit.table()
    table.update({"role": role.word, "password": hashed(password)})
    document.setdefault("accounts", tomlkit.table(is_super_table=True))[name] = table
    _save(path, tomlkit.dumps(document))


def remove(path: Path, name: str) -> None:
    """ConfigurationError if there is no such account."""
    document = _document(path)
    if name not in document.get("accounts", {}):
        raise ConfigurationError(f"{path}: there is no account {name}")
    del document["accounts"][name]
    _save(path, tomlkit.dumps(document))


def _document(path: Path) -> tomlkit.TOMLDocument:
    try:
        return tomlkit.parse(path.read_text())
    except FileNotFoundError:
        return tomlkit.document()
    except (OSError, UnicodeError, TOMLKitError) as error:
        raise ConfigurationError(f"{path}: {error}") from error


def _save(path: Path, text: str) -> None:
    try:
        replace_text(path, text)
    except OSError as error:
        raise ConfigurationError(f"{path}: {error.strerror}") from error
