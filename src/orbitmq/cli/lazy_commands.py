"""The group of all commands. The module of a noun is imported when the noun is called, not to list it: building the
flags of a hundred verbs takes half a second, and `orbitmq --help` must print without delay."""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from typing import Any

import typer
from typer.core import TyperCommand
from typer.main import get_command

from orbitmq.cli.command_group import CommandGroup
from orbitmq.cli.help_texts import localize
from orbitmq.runtime.languages import ENGLISH, gettext, language

_UsageError: Any = typer.BadParameter.__base__

# Name -> its line in the list of all commands. `orbitmq.cli.nouns.NAME` has the verbs.
NOUNS = {
    "namesrv": "Run a name server, or show and change those of a cluster.",
    "broker": "Run a broker, or show and change those of a cluster.",
    "cluster": "The cluster as a whole: health, brokers, replication.",
    "topic": "Topics: list, inspect, create and change them.",
    "schema": "Schemas of topics: show, check, register and remove.",
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

SECTIONS: dict[str, tuple[tuple[str, ...], str]] = {
    "Messages": (("msg", "trace"), "orbitmq msg tail Orders"),
    "Topics": (("topic", "schema"), "orbitmq topic create Orders --queues 8"),
    "Groups": (("group", "offset", "client"), "orbitmq group why billing"),
    "Cluster": (
        ("cluster", "doctor", "top", "check", "health", "wait", "acl", "config", "bench"),
        "orbitmq cluster health",
    ),
    "Run": (("up", "namesrv", "broker", "host", "proxy", "gateway", "dashboard", "exporter"), "orbitmq up"),
    "Data": (("store", "pipeline"), "orbitmq pipeline archive --lake ./lake"),
    "Command line": (("context", "completion", "mqadmin"), "orbitmq context add production -n 10.0.0.1:9876"),
}
"""What people want -> its commands in the order of help, and an example."""


class Nouns(CommandGroup):
    """The root command: its own commands, and the nouns."""

    _listing = False

    def list_commands(self, ctx: Any) -> list[str]:
        own = super().list_commands(ctx)
        return [*own, *(name for name in NOUNS if name not in own)]

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        if cmd_name not in NOUNS:
            return super().get_command(ctx, cmd_name)
        if self._listing:
            text = gettext(NOUNS[cmd_name])
            return TyperCommand(cmd_name, help=text, short_help=None if language() == ENGLISH else text)
        if cmd_name not in self.commands:
            module = import_module(f"orbitmq.cli.nouns.{cmd_name}")
            self.commands[cmd_name] = get_command(module.app)
            if language() != ENGLISH:
                localize(self.commands[cmd_name], gettext)
        return self.commands[cmd_name]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        width = max(map(len, self.list_commands(ctx)))
        with self._names_only():
            for title, (names, example) in SECTIONS.items():
                found = ((name, self.get_command(ctx, name)) for name in names)
                with formatter.section(gettext(title)):
                    formatter.write_dl(
                        [(f"{name:{width}}", command.get_short_help_str(formatter.width)) for name, command in found]
                    )
                    formatter.write_text(f"$ {example}")

    def shell_complete(self, ctx: Any, incomplete: str) -> Any:
        with self._names_only():
            return super().shell_complete(ctx, incomplete)

    def main(self, *args: Any, **more: Any) -> Any:
        """Shells request completion through a variable. Typer reads it only with its own scripts, which lose addresses
        that were typed before.
        """
        if os.environ.get("_ORBITMQ_COMPLETE"):
            import_module("typer.completion").completion_init()
        if language() != ENGLISH:
            import_module("orbitmq.cli.localization").begin(self)
        return super().main(*args, **more)

    def make_context(self, *args: Any, **more: Any) -> Any:
        with _usage_errors():
            return super().make_context(*args, **more)

    def invoke(self, ctx: Any) -> Any:
        with _usage_errors():
            return super().invoke(ctx)

    @contextmanager
    def _names_only(self) -> Iterator[None]:
        self._listing = True
        try:
            yield
        finally:
            self._listing = False


@contextmanager
def _usage_errors() -> Iterator[None]:
    try:
        yield
    except _UsageError as error:
        if type(error).show is _UsageError.show:  # not what shows help instead
            error.show = partial(import_module("orbitmq.cli.usage_errors").show, error)
        raise
