"""The group of all commands. The module of a noun is imported when the noun is called, not to list it: building the
flags of a hundred verbs takes half a second, and `orbitmq --help` must print without delay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from typer.core import TyperCommand, TyperGroup
from typer.main import get_command

# Name -> its line in the list of all commands. `orbitmq.cli.nouns.NAME` has the verbs.
NOUNS = {
    "namesrv": "Run a name server, or show and change those of a cluster.",
    "broker": "Run a broker, or show and change those of a cluster.",
    "cluster": "The cluster as a whole: health, brokers, replication.",
    "topic": "Topics: list, inspect, create and change them.",
    "acl": "Access control: accounts and white lists of brokers.",
    "group": "Consumer groups: settings, lag, and why one does not consume.",
    "offset": "Offsets of consumer groups: show, reset, skip, clone, undo.",
    "client": "Connected producers and consumers.",
    "msg": "Messages: find, show, read and send them.",
    "trace": "Message traces that producers and consumers recorded.",
    "config": "Configuration as code: topics, groups, accounts in a file.",
    "doctor": "Find what could keep clients from working, and what to do.",
    "bench": "Benchmarks: sending, consuming and end-to-end latency.",
    "check": "Checks for a monitoring system, as a Nagios plugin.",
    "wait": "Wait for a condition, in scripts and tests.",
    "dashboard": "Serve the web page of a cluster.",
    "top": "Live view of brokers, lag and findings.",
    "context": "Named clusters, and which one commands use.",
}

SECTIONS = {
    "Run": ("up", "namesrv", "broker", "host", "proxy", "dashboard", "exporter"),
    "Manage": ("cluster", "topic", "group", "offset", "msg", "trace", "client", "acl", "config"),
    "Monitor": ("doctor", "top", "check", "health", "wait", "bench"),
    "Tools": ("store", "pipeline", "context", "completion", "mqadmin"),
}
"""The commands in the order of help."""


class Nouns(TyperGroup):
    """The root command: its own commands, and the nouns."""

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
        width = max(map(len, self.list_commands(ctx)))
        with self._names_only():
            for title, names in SECTIONS.items():
                found = ((name, self.get_command(ctx, name)) for name in names)
                with formatter.section(title):
                    formatter.write_dl(
                        [(f"{name:{width}}", command.get_short_help_str(formatter.width)) for name, command in found]
                    )

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._names_only():
            return super().shell_complete(ctx, incomplete)

    def main(self, *args: Any, **more: Any) -> Any:
        """Shells request completion through a variable. Typer reads it only with its own scripts, which lose addresses
        that were typed before.
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
