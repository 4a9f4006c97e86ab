"""Every text of the help of commands, read from the commands themselves. Imports the command line."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from typer import Context
from typer.main import get_command

from orbitmq.cli.help_texts import localize
from orbitmq.cli.lazy_commands import NOUNS, SECTIONS
from orbitmq.cli.main import app
from orbitmq.pipeline import command
from orbitmq.pipeline.job import JOBS, job_named

OF_TYPER = (
    "Usage: ", "Error: ", "Arguments", "Options", "Commands", "Show this message and exit.", "required",
    "default: {default}", "env var: {var}",
)  # fmt: skip
OF_ARGPARSE = (
    "usage: ", "options", "positional arguments", "show this help message and exit",
    "the following arguments are required: %s", "unrecognized arguments: %s", "expected one argument",
    "argument %(argument_name)s: %(message)s", "invalid %(type)s value: %(value)r", "%(prog)s: error: %(message)s\n",
    "invalid choice: %(value)r (choose from %(choices)s)",
)  # fmt: skip
"""Jobs of `orbitmq pipeline` use it. Versions of Python have others as well."""


def texts() -> Iterator[tuple[str, str]]:
    """Module and text of each."""
    for text in (*OF_TYPER, *OF_ARGPARSE):
        yield "cli/localization.py", text
    for text in (*NOUNS.values(), *SECTIONS):
        yield "cli/lazy_commands.py", text
    root: Any = get_command(app)
    yield from (("cli/main.py", text) for text in _of(root))
    for name in NOUNS:
        noun = root.get_command(Context(root, info_name="orbitmq"), name)
        yield from ((f"cli/nouns/{name}.py", text) for text in _of(noun))
    yield from (("pipeline/command.py", text) for text in _of_jobs())


def _of_jobs() -> Iterator[str]:
    yield from (command.HELP, command.EXIT_CODES)
    for name, entry in JOBS.items():
        job = job_named(name)
        yield from (entry.summary, *command.paragraphs(job.description))
        for _, option in job.options.table().values():
            yield option.text
            if option.unit:
                yield option.unit


def _of(noun: Any) -> Iterator[str]:
    found: list[str] = []

    def collect(text: str) -> str:
        found.append(text)
        return text

    localize(noun, collect)
    return iter(found)
