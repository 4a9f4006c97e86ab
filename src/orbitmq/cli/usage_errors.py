"""How an error in what was typed is shown: in the language of the user, and wrapped on a terminal."""

from __future__ import annotations

import re
import sys
from typing import Any, TextIO

import typer

from orbitmq.cli.wrapping import with_remedy
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import gettext

_SHORT = {"-g": "group", "-t": "topic"}
"""Flags of other commands, and of mqadmin, for what is an argument elsewhere."""


def show(error: Any, file: TextIO | None = None) -> None:
    """The usage, where help is, and what is wrong."""
    if error.ctx is not None:
        name = error.ctx.help_option_names[0]
        hint = translated(f"Try '{error.ctx.command_path} {name}' for help.")
        typer.echo(f"{error.ctx.get_usage()}\n{hint}\n", file=file, err=True)
    remedy = _remedy(error)
    if remedy is not None:
        error.possibilities = []  # options that are spelled alike
    text = f"{gettext('Error: ')}{translated(error.format_message())}"
    typer.echo(with_remedy(text, remedy, file or sys.stderr), file=file, err=True)


def _remedy(error: Any) -> str | None:
    """The argument that a wrong option is, or the option that it begins with; the option for a topic too many."""
    if error.ctx is None:
        return None
    options = [name for one in error.ctx.command.params for name in one.opts if name.startswith("-")]
    option = getattr(error, "option_name", None)
    if option is None:
        is_extra = error.format_message().startswith("Got unexpected extra argument")
        return "choose a topic with --topic" if is_extra and "--topic" in options else None
    word = _SHORT.get(option, option.strip("-"))
    if option in options:  # which lacks its value
        return None
    for one in error.ctx.command.params:
        if one.param_type_name == "argument" and word in re.findall("[a-z]+", one.human_readable_name.lower()):
            return f"{one.human_readable_name} is an argument: leave {option} out"
    longest = max((name for name in options if option.startswith(f"{name}-")), default=None, key=len)
    return None if longest is None else f"use {longest} with a value"
