"""Texts of large tables of topics and groups: each entry is written once, and again only when it is another object.

A broker with ten thousand topics tells all of them to slaves, tools, name servers and its own files; writing every
entry anew would hold the event loop for a tenth of a second each time. The texts are those of `wire.objects`.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Generic, TypeVar

from orbitmq.message.config import DataVersion
from orbitmq.message.javajson import dumps, dumps_pretty
from orbitmq.wire.objects import plain

T = TypeVar("T")

_ENTRY_DEPTH = 2  # of an entry in its file: the file's object, then the table


class TableTexts(Generic[T]):
    """The texts of one table of frozen entries. `name` is what Java calls the table."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._known: dict[str, tuple[T, str, str]] = {}
        self.size = 0
        """Characters of what is known, as it goes over the wire; nearly all of them are one byte."""

    def write(self, name: str, value: T) -> None:
        """Write an entry now. Who makes thousands of them spreads this over as many turns of the event loop."""
        self._know(name, value)

    def forget(self, name: str) -> None:
        """An entry is gone."""
        known = self._known.pop(name, None)
        if known is not None:
            self.size -= len(known[1])

    def _know(self, name: str, value: T) -> tuple[T, str, str]:
        self.forget(name)
        entry = self._known[name] = _written(name, value)
        self.size += len(entry[1])
        return entry

    def compact(self, version: DataVersion, table: Mapping[str, T]) -> str:
        """As it goes over the wire: version and table."""
        entries = ",".join([entry[1] for entry in self._entries(table)])
        return f'{{"dataVersion":{dumps(plain(version))},"{self._name}":{{{entries}}}}}'

    def pretty(self, version: DataVersion, table: Mapping[str, T]) -> str:
        """As it stands in a file."""
        head = f'{{\n\t"dataVersion":{dumps_pretty(plain(version), 1)},\n\t"{self._name}":'
        if not table:
            return head + "{}\n}"
        entries = ",\n\t\t".join([entry[2] for entry in self._entries(table)])
        return f"{head}{{\n\t\t{entries}\n\t}}\n}}"

    def _entries(self, table: Mapping[str, T]) -> list[tuple[T, str, str]]:
        known = self._known
        if len(known) > 2 * len(table) + 100:
            known.clear()  # most of what is known is gone
            self.size = 0
        found = []
        for name, value in table.items():
            entry = known.get(name)
            if entry is None or entry[0] is not value:
                entry = self._know(name, value)
            found.append(entry)
        return found


def _written(name: str, value: T) -> tuple[T, str, str]:
    key, members = dumps(name), plain(value)
    return value, f"{key}:{dumps(members)}", f"{key}:{dumps_pretty(members, _ENTRY_DEPTH)}"
