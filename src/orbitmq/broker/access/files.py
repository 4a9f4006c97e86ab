"""Access control files as RocketMQ 4.9 writes them: YAML with white list, accounts and version.

Reading returns declared values; a change edits the whole document, so members that orbitmq does not know survive. An
error names file and line and never quotes the text, which contains secrets.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from orbitmq.broker.access.accounts import Config, config_of, texts
from orbitmq.errors import ConfigurationError
from orbitmq.message.config import DataVersion
from orbitmq.runtime.files import sync_directory

FILE_SIZE_MAX = 16 << 20  # some 50,000 accounts; reading more would take minutes
FILES_MAX = 1000  # below conf/acl; more than that is some other directory

_Loader: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
_NO_YAML = (yaml.YAMLError, ValueError, TypeError, AttributeError, LookupError, ArithmeticError, RecursionError)
"""Errors of the YAML reader; constructors of tagged values such as `!!bool x` raise arbitrary ones."""
_Dumper: Any = getattr(yaml, "CSafeDumper", yaml.SafeDumper)
WHITE, ACCOUNTS, VERSION = "globalWhiteRemoteAddresses", "accounts", "dataVersion"

Document = dict[Any, Any]
Signature = tuple[tuple[str, int, int, int], ...]


@dataclass(frozen=True)
class AclFile:
    """The content of one file."""

    path: Path
    white: tuple[str, ...]
    accounts: tuple[Config, ...]
    version: DataVersion

    @property
    def is_open_to_all(self) -> bool:
        """Whether every user of this machine can read the secrets in it."""
        return self.path.exists() and self.path.stat().st_mode & stat.S_IROTH != 0


@dataclass(frozen=True)
class AclPlaces:
    """Where the files are: `directory` with any file below it that ends in .yml or .yaml, and `main`."""

    main: Path
    directory: Path

    def paths(self) -> list[Path]:
        """The existing files, those of the directory first: the first entry of an account is in effect."""
        below = sorted(p for p in self.directory.rglob("*") if p.suffix in (".yml", ".yaml") and p.is_file())
        if len(below) > FILES_MAX:
            raise ConfigurationError(f"{self.directory}: {len(below)} files, at most {FILES_MAX} are read")
        return below if self.main in below or not self.main.is_file() else [*below, self.main]

    def signature(self) -> Signature:
        """Changes whenever a file is changed, replaced, added or removed."""
        found = []
        for path in self.paths():
            status = path.stat()
            found.append((str(path), status.st_ino, status.st_mtime_ns, status.st_size))
        return tuple(found)


def load_document(path: Path) -> Document:
    """The file as it is."""
    if path.stat().st_size > FILE_SIZE_MAX:
        raise ConfigurationError(f"{path}: larger than {FILE_SIZE_MAX} bytes, this is no access control file")
    return parse_document(path, path.read_bytes())


def parse_document(path: Path, data: bytes) -> Document:
    """Parse a file. ConfigurationError names the line if it is known. An empty file is an error: it was truncated, and
    all accounts would silently be lost.
    """
    if not data:
        raise ConfigurationError(f"{path}: the file is empty, its accounts are lost; restore or remove it")
    try:
        document = yaml.load(data, _Loader)  # noqa: S506 - one of the safe loaders
    except _NO_YAML as error:
        mark = getattr(error, "problem_mark", None)
        place = f", line {mark.line + 1}" if mark is not None else ""
        raise ConfigurationError(f"{path}{place}: this is no YAML") from None
    if document is None:
        return {}
    if not isinstance(document, dict):
        raise ConfigurationError(f"{path}: this is no mapping with {WHITE} and {ACCOUNTS}")
    return document


def parse(path: Path, document: Document) -> AclFile:
    """ConfigurationError names file, account and member."""
    try:
        white = texts(_list(document, WHITE), WHITE)
        accounts = tuple(map(config_of, _list(document, ACCOUNTS)))
        return AclFile(path, white, accounts, version_of(document))
    except ConfigurationError as error:
        raise ConfigurationError(f"{path}: {error}") from error


def version_of(document: Mapping[Any, Any]) -> DataVersion:
    """The version of the last change; None for a file that was never changed."""
    entries = _list(document, VERSION)
    if not entries:
        return DataVersion()
    try:
        return DataVersion(int(entries[0]["counter"]), int(entries[0]["timestamp"]))
    except (KeyError, TypeError, ValueError):
        raise ConfigurationError(f"{VERSION} has no counter and timestamp") from None


def _list(document: Mapping[Any, Any], name: str) -> list[Any]:
    value = document.get(name)
    if value is None:
        return []
    if not isinstance(value, list):
        raise ConfigurationError(f"{name} is no list")
    return value


# ---------------------------------------------------------------------------------------------------------- changes


def with_account(document: Document, config: Config) -> Document:
    """An account added or changed; of an account that is there, what `config` leaves out stays."""
    accounts = list(_list(document, ACCOUNTS))
    at = next((i for i, fields in enumerate(accounts) if _key_of(fields) == config.access_key), None)
    fields = {"accessKey": config.access_key} if at is None else dict(accounts[at])
    fields |= _fields_of(config)
    if at is None:
        accounts.append(fields)
    else:
        accounts[at] = fields
    return {**document, ACCOUNTS: accounts}


def without_account(document: Document, access_key: str) -> Document:
    """An account removed."""
    return {**document, ACCOUNTS: [fields for fields in _list(document, ACCOUNTS) if _key_of(fields) != access_key]}


def with_white(document: Document, addresses: Sequence[str]) -> Document:
    """The white list replaced."""
    return {**document, WHITE: list(addresses)}


def with_next_version(document: Document, now_ms: int) -> Document:
    """One change more."""
    version = version_of(document).next(now_ms)
    return {**document, VERSION: [{"counter": version.counter, "timestamp": version.timestamp}]}


def _key_of(fields: object) -> str | None:
    key = fields.get("accessKey") if isinstance(fields, dict) else None
    return None if key is None else str(key)


def _fields_of(config: Config) -> dict[str, object]:
    lists = {"topicPerms": config.topic_perms, "groupPerms": config.group_perms}
    fields = {
        "secretKey": config.secret_key,
        "whiteRemoteAddress": config.white_remote_address,
        "admin": config.admin,
        "defaultTopicPerm": config.default_topic_perm,
        "defaultGroupPerm": config.default_group_perm,
        **{name: list(lines) if lines else None for name, lines in lists.items()},
    }
    return {name: value for name, value in fields.items() if value is not None}


def save(path: Path, document: Document) -> None:
    """Replace the whole file, in RocketMQ's form. Its mode is kept; only the owner may read a new file."""
    text = yaml.dump(document, Dumper=_Dumper, sort_keys=False, default_flow_style=False, allow_unicode=True)
    path.parent.mkdir(parents=True, exist_ok=True)
    mode = stat.S_IMODE(path.stat().st_mode) if path.exists() else stat.S_IRUSR | stat.S_IWUSR
    temporary = path.with_name(path.name + ".tmp")
    temporary.unlink(missing_ok=True)
    with os.fdopen(os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_EXCL, mode), "wb") as file:
        os.fchmod(file.fileno(), mode)
        file.write(text.encode())
        file.flush()
        os.fsync(file.fileno())
    os.replace(temporary, path)
    sync_directory(path.parent)
