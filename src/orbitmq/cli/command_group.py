"""A group of commands that takes what people type: `help`, flags before the command, former names, words that lead to
another command. Must not know any command.
"""

from __future__ import annotations

from typing import Any

import typer
from typer.core import TyperGroup

from orbitmq.cli.words import leading, proposal, renamed
from orbitmq.runtime.languages import gettext

FLAGS = "orbitmq.flags"
"""Where a context keeps flags that stood before the command."""
SENTENCE_MAX = 200
"""Characters of a command's line in a list, which takes as many lines of the terminal as it needs."""


class CommandGroup(TyperGroup):
    """The program, or a noun with its verbs."""

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Flags of connection and output that stand before the command belong to it."""
        before: list[str] = ctx.meta.setdefault(FLAGS, [])
        flags, rest = leading(args)
        is_own = self.invoke_without_command and (not rest or rest[0].startswith("-"))
        if is_own:
            args, before[:] = [*before, *args], []
        else:
            before += flags
            args = rest
        return super().parse_args(ctx, args)

    def resolve_command(self, ctx: Any, args: list[str]) -> tuple[str | None, Any, list[str]]:
        name, *rest = args
        command = self.get_command(ctx, name)
        if command is None and name == "help" and not ctx.resilient_parsing:
            if rest:
                return self.resolve_command(ctx, [*rest, "--help"])
            typer.echo(ctx.get_help())
            ctx.exit()
        if command is None and not name.startswith("-") and not ctx.resilient_parsing:
            ctx.fail(self._unknown(ctx, name))
        if command is None or isinstance(command, TyperGroup):
            return super().resolve_command(ctx, args)
        rest = renamed(" ".join([*_nouns(ctx), name]), rest)
        before, ctx.meta[FLAGS] = ctx.meta.get(FLAGS, []), []
        passes_on = command.context_settings.get("ignore_unknown_options")  # to a program that begins with its own name
        return name, command, [*rest, *before] if passes_on else [*before, *rest]

    def format_commands(self, ctx: Any, formatter: Any) -> None:
        """The first sentence of each, whole: typer would cut a long one."""
        found = ((name, self.get_command(ctx, name)) for name in self.list_commands(ctx))
        rows = [(name, one.get_short_help_str(SENTENCE_MAX)) for name, one in found if one and not one.hidden]
        with formatter.section(gettext("Commands")):
            formatter.write_dl(rows)

    def _unknown(self, ctx: Any, name: str) -> str:
        found = proposal(name, " ".join(_nouns(ctx)), self.list_commands(ctx), runs=self.invoke_without_command)
        if found is None:
            return f"No such command '{name}'."
        separator, conjunction = gettext(", "), gettext(" or ")
        found = found.replace(", ", separator).replace(" or ", conjunction)
        return f"No such command '{name}'. Use {found}."


def _nouns(ctx: Any) -> list[str]:
    """The words between the program's name and the command."""
    return [] if ctx.parent is None else [*_nouns(ctx.parent), str(ctx.info_name)]
