"""Key-value settings by namespace, kept in one file in Java's form. Knows no requests and gives values no meaning."""

from __future__ import annotations

from pathlib import Path

from msgspec import Struct, field

from orbitmq.errors import RequestRejected
from orbitmq.runtime.files import load_with_backup, save_with_backup
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.objects import decode, encode

# Characters of all namespaces, keys and values: orders of some 50,000 topics. The whole file is written each time.
SIZE_MAX = 4 << 20


class KVFile(Struct, frozen=True):
    """The content of kvConfig.json: namespace -> key -> value."""

    tables: dict[str, dict[str, str]] = field(name="configTable", default_factory=dict)


class KVConfig:
    """The settings of one name server. A change is in the file before it can be read back."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._tables: dict[str, dict[str, str]] = {}

    def load(self) -> None:
        """Read the file, if there is one; StoreDamaged if neither it nor its backup can be read."""
        file = load_with_backup(self._path, lambda text: decode(KVFile, text))
        self._tables = file.tables if file else {}

    def put(self, namespace: str, key: str, value: str) -> None:
        """Set one value and write the file; OSError leaves everything unchanged. RequestRejected if that exceeds the
        maximum size; settings written by RocketMQ may already exceed it, and may be replaced.
        """
        grown = len(key) + len(value)
        table = self._tables.get(namespace)
        if table is None:
            grown += len(namespace)
        elif key in table:
            grown -= len(key) + len(table[key])
        size = self._size()
        if grown > 0 and size + grown > SIZE_MAX:
            raise RequestRejected(
                ResponseCode.SYSTEM_ERROR, f"the settings have {size} characters, {SIZE_MAX} is the limit"
            )
        self._replace(namespace, {**self._tables.get(namespace, {}), key: value})

    def _size(self) -> int:
        sizes = (sum(map(len, table)) + sum(map(len, table.values())) for table in self._tables.values())
        return sum(map(len, self._tables)) + sum(sizes)

    def delete(self, namespace: str, key: str) -> None:
        """Remove one value; the namespace stays, even empty."""
        table = self._tables.get(namespace)
        if table is not None and key in table:
            self._replace(namespace, {name: value for name, value in table.items() if name != key})

    def _replace(self, namespace: str, table: dict[str, str]) -> None:
        tables = {**self._tables, namespace: table}
        save_with_backup(self._path, encode(KVFile(tables)).decode())
        self._tables = tables

    def value(self, namespace: str, key: str) -> str | None:
        """One value, None when it was never put."""
        return self._tables.get(namespace, {}).get(key)

    def table(self, namespace: str) -> dict[str, str] | None:
        """All values of a namespace, None for one that was never used."""
        return self._tables.get(namespace)
