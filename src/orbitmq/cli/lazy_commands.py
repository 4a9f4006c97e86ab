"""The group of all commands: a noun's module is imported when the noun is called, not to list it. Help of the whole
must be there at once, and a dozen nouns with a hundred verbs are half a second of building flags.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

# Name -> what the list of all commands says of it. `orbitmq.cli.nouns.NAME` holds the verbs.
NOUNS = {
    "namesrv": "Run a name server, or show and change those of a cluster.",
    "broker": "Run a broker, or show and change those of a cluster.",
    "cluster": "The cluster as a whole: health, brokers and replication.",
    "topic": "Topics: list, inspect, create and change them.",
    "acl": "Access control: accounts and white lists of brokers.",
    "group": "Consumer groups: list and change them, their lag, and why one does not consume.",
    "offset": "Offsets of consumer groups: show and move them, with a preview and undo.",
    "client": "Connected producers and consumers, and what a consumer reports about itself.",
    "msg": "Messages: find, show, read and send them.",
    "trace": "Message traces that producers and consumers recorded.",
    "config": "Configuration as code: keep topics, groups and accounts in a file and apply it.",
    "doctor": "Check everything that could keep a client from working, and say what to do.",
    "bench": "Benchmarks: sending, consuming and end-to-end latency.",
    "check": "Checks for a monitoring system, as a Nagios plugin.",
    "wait": "Wait for a condition, in scripts and tests.",
    "dashboard": "The web page of a cluster, and its accounts.",
    "top": "Live view of the cluster: brokers, groups with the longest lag, findings.",
    "context": "Named clusters, and which one commands use.",
}


class Nouns(TyperGroup):
    """The root: its own commands, and the nouns."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in NOUNS if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in NOUNS:
            return super().get_command(ctx, cmd_name)
        if self._listing:
            return TyperCommand(cmd_name, help=NOUNS[cmd_name])
        if cmd_name not in self.commands:
            module = import_module(f"orbitmq.cli.nouns.{cmd_name}")
            self.commands[cmd_name] = get_command(module.app)
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        with self._names_only():
            super().format_commands(ctx, formatter)

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._names_only():
            return super().shell_complete(ctx, incomplete)

    def main(self, *args: Any, **more: Any) -> Any:
        """A shell that completes asks through a variable; typer knows it only where its own scripts are offered, which
        lose addresses that were typed before.
        """
        if os.environ.get("_ORBITMQ_COMPLETE"):
            import_module("typer.completion").completion_init()
        return super().main(*args, **more)

    @contextmanager
    def _names_only(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False
