"""Lists and edits the file of contexts. Must not know what a context is for."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from typing import Any

import tomlkit
from msgspec import Struct

from orbitmq.admin.results import Result
from orbitmq.cli import output
from orbitmq.cli.contexts import FILE_BYTES_MAX, address_pair, load, parse, path_of
from orbitmq.cli.exit_codes import one_line_errors
from orbitmq.errors import NotFound
from orbitmq.runtime.files import replace_text

COLUMNS = (
    "NAME=name", "IN USE=inUse", "NAME SERVERS=nameServers", "CLUSTER=cluster", "ACCOUNT=accessKey", "SECRET=secret",
    "+TLS=tls", "+REMEMBER=remember", "+PROTECTED=protected", "+READONLY=readonly",
)  # fmt: skip


class NamedCluster(Struct, frozen=True, rename="camel"):
    """One context."""

    name: str
    in_use: bool
    """Whether commands use it by default."""
    name_servers: list[str]
    cluster: str | None
    access_key: str | None
    secret: str | None
    """Where the secret key is stored, for example `env MQ_SECRET`; never the secret itself."""
    tls: bool
    remember: str | None
    """How long a stopped broker is expected back; None for the default of 72 hours."""
    protected: bool
    readonly: bool


def show(form: str) -> None:
    with one_line_errors("context list"):
        path = path_of()
        tables = load(path)
        contexts = [(name, parse(name, table, path)) for name, table in tables.get("contexts", {}).items()]
        items = [
            NamedCluster(
                name, name == tables.get("current"), list(one.name_servers), one.cluster, one.access_key or None,
                None if isinstance(one.secret, str) else _reference(dict(one.secret)), one.tls is not None,
                one.remember, one.protected, one.readonly,
            )
            for name, one in contexts
        ]  # fmt: skip
        now_ms = time.time_ns() // 1_000_000
        output.write("ContextList", Result(items), COLUMNS, output.check(form), cluster=None, now_ms=now_ms)


def use(name: str) -> None:
    def change(document: tomlkit.TOMLDocument) -> None:
        _known(document, name)
        document["current"] = name

    _edit("context use", change)


def add(name: str, table: dict[str, Any], mapped: Sequence[str] = ()) -> None:
    """`mapped` are the values of --map-addr."""

    def change(document: tomlkit.TOMLDocument) -> None:
        if mapped:
            table["mapAddr"] = dict(map(address_pair, mapped))
        parse(name, table, path_of())
        document.setdefault("current", name)
        contexts = document.setdefault("contexts", tomlkit.table(is_super_table=True))
        contexts[name] = table

    _edit("context add", change)


def remove(name: str) -> None:
    def change(document: tomlkit.TOMLDocument) -> None:
        _known(document, name)
        del document["contexts"][name]
        if document.get("current") == name:
            del document["current"]

    _edit("context remove", change)


def _known(document: tomlkit.TOMLDocument, name: str) -> None:
    known = document.get("contexts", {})
    if name not in known:
        raise NotFound(f"there is no context {name} in {path_of()} (known: {', '.join(known) or 'none'})")


def _edit(command: str, change: Callable[[tomlkit.TOMLDocument], None]) -> None:
    """Edit the file through a temporary file that replaces it: comments stay, and no partial file is ever read."""
    with one_line_errors(command):
        path = path_of()
        load(path)  # reports an invalid file as all commands do
        text = path.read_bytes()[:FILE_BYTES_MAX].decode() if path.exists() else ""
        document = tomlkit.parse(text)
        change(document)
        replace_text(path, tomlkit.dumps(document))


def _reference(secret: dict[str, Any]) -> str:
    kind, place = next(iter(secret.items()))
    return f"{kind} {' '.join(place) if isinstance(place, list) else place}"
