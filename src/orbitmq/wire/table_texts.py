"""Encoded texts of large tables of topics and groups: an entry is encoded again only if its object was replaced.

A broker with ten thousand topics sends all of them to slaves, tools, name servers and its own files; encoding every
entry anew would block the event loop for a tenth of a second each time. The texts are those of `wire.objects`.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Generic, NamedTuple, TypeVar

from orbitmq.message.config import DataVersion
from orbitmq.message.javajson import dumps, dumps_pretty
from orbitmq.wire.objects import plain

T = TypeVar("T")

_ENTRY_DEPTH = 2  # of an entry in its file: the file's object, then the table


class TableTexts(Generic[T]):
    """The texts of one table of frozen entries. `name` is what Java calls the table."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[str, _Entry[T]] = {}
        self.size = 0
        """Characters of the encoded entries; nearly all of them are one byte."""

    def write(self, name: str, value: T) -> None:
        """Encode an entry now. Callers with thousands of entries spread this over several turns of the event loop."""
        self.forget(name)
        entry = self._known[name] = _written(name, value)
        self.size += len(entry.compact)

    def forget(self, name: str) -> None:
        """Remove an entry."""
        known = self._known.pop(name, None)
        if known is not None:
            self.size -= len(known.compact)

    def keep(self, table: Mapping[str, T]) -> None:
        """Encode new entries of the table, and remove those it does not have."""
        for name in self._known.keys() - table.keys():
            self.forget(name)
        for name, value in table.items():
            if name not in self._known or self._known[name].value is not value:
                self.write(name, value)

    def of(self, version: DataVersion, table: Mapping[str, T]) -> TableText[T]:
        """A snapshot of the table, to be encoded on a thread."""
        return TableText(self._name, version, list(table.items()), self._known)


class _Entry(NamedTuple, Generic[T]):
    value: T
    compact: str
    pretty: str


class TableText(Generic[T]):
    """A table of one moment. For any thread: `known` may change meanwhile, and is only believed of the same objects."""

    def __init__(
        self, name: str, version: DataVersion, items: Sequence[tuple[str, T]], known: Mapping[str, _Entry[T]]
    ) -> None:
        self._name = name
        self._version = version
        self._items = items
        self._known = known

    def compact(self) -> str:
        """The form on the wire: version and table."""
        entries = ",".join([entry.compact for entry in self._entries()])
        return f'{{"dataVersion":{dumps(plain(self._version))},"{self._name}":{{{entries}}}}}'

    def pretty(self) -> str:
        """The form in a file."""
        head = f'{{\n\t"dataVersion":{dumps_pretty(plain(self._version), 1)},\n\t"{self._name}":'
        if not self._items:
            return head + "{}\n}"
        entries = ",\n\t\t".join([entry.pretty for entry in self._entries()])
        return f"{head}{{\n\t\t{entries}\n\t}}\n}}"

    def _entries(self) -> Iterator[_Entry[T]]:
        for name, value in self._items:
            entry = self._known.get(name)
            yield entry if entry is not None and entry.value is value else _written(name, value)


def _written(name: str, value: T) -> _Entry[T]:
    key, members = dumps(name), plain(value)
    return _Entry(value, f"{key}:{dumps(members)}", f"{key}:{dumps_pretty(members, _ENTRY_DEPTH)}")
