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
    "namesrv": "Run a name server, or ask and change those of a cluster.",
    "broker": "Run a broker, or ask and change those of a cluster.",
    "cluster": "The cluster as a whole: whether it is well, its brokers, its slaves.",
    "topic": "Topics: which there are, where they live, what they hold, and how they are made.",
    "acl": "Accounts: who may do what, from where; at masters and slaves.",
    "group": "Consumer groups: which there are, how far they are, why one does not consume, and their rules.",
    "offset": "Offsets of groups: what is stored, and moving them, with a preview and a way back.",
    "client": "Clients: producers and consumers that are connected, and what a consumer says of itself.",
    "msg": "Messages: where one is, what is in it, reading and sending them.",
    "trace": "Traces: what producers and consumers wrote down about a message.",
    "config": "Configuration as code: topics, groups and accounts as a file that is applied.",
    "doctor": "Look at everything that keeps a client from working, and say what to do.",
    "bench": "A load that is measured: sending, consuming, and how long a message takes.",
    "check": "One question for a monitoring system, answered as a Nagios plugin does.",
    "wait": "Wait until something is so: for scripts and tests.",
    "dashboard": "The web page of a cluster, and who may log in to it.",
    "top": "The cluster as it lives: brokers, groups that are behind, what is wrong.",
    "context": "Named clusters: which one commands mean.",
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
