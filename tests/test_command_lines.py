"""Every command line in the guides is one: its words are commands, its flags exist."""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Iterator
from itertools import dropwhile
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from orbitmq.cli.main import app
from orbitmq.pipeline.command import parser
from orbitmq.pipeline.job import JOBS, job_named

DOCS = Path(__file__).parents[1] / "docs"
PASSED_ON = {"pipeline", "mqadmin"}
"""Commands that read their own words."""
PROGRAM = "orbitmq_pipeline.py"
SUBMITTED = re.compile(rf"{re.escape(PROGRAM)} (?:.* -- )?([a-z]+ -.*)")
"""A job that spark-submit, or what a service has in its place, is given."""


def command_lines() -> Iterator[tuple[str, str]]:
    for page in sorted(DOCS.glob("*.md")):
        blocks = re.findall(r"^```(\S*)\n(.*?)^```\n", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for block in (block for language, block in blocks if language != "text"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("orbitmq "):
                    yield page.name, line
                elif submitted := SUBMITTED.search(line):
                    yield page.name, f"orbitmq pipeline {submitted[1]}"
        for block in (block for language, block in blocks if language == "json" and PROGRAM in block):
            (step,) = json.loads(block)
            words = dropwhile(lambda word: not word.endswith(PROGRAM), step["Args"])
            yield page.name, shlex.join(["orbitmq", "pipeline", *list(words)[1:]])


LINES = sorted(set(command_lines()))


@pytest.mark.parametrize(("page", "line"), LINES, ids=[f"{page}: {line[:60]}" for page, line in LINES])
def test_a_command_line_of_a_guide_is_understood(page: str, line: str) -> None:
    words = shlex.split(re.split(r"\s[|>&]", line)[0], comments=True)[1:]
    command: Any = get_command(app)
    context = command.context_class(command, info_name="orbitmq")
    while isinstance(command, TyperGroup):
        first = next((word for word in words if not word.startswith("-")), None)
        inner = None if first is None else command.get_command(context, first)
        if inner is None:
            is_whole = command.invoke_without_command or (first is None and words)  # else options alone, --version
            assert is_whole, f"{page}: there is no {first} in {line}"
            break
        words.remove(first)
        command, context = inner, inner.context_class(inner, info_name=first, parent=context)
    if command.name == "pipeline" and words[0] != "pack":
        assert words[0] in JOBS, f"{page}: there is no job {words[0]}"
        parser(job_named(words[0])).parse_args(words[1:])
    if command.name not in PASSED_ON:
        _, left, _ = command.make_parser(context).parse_args(words)
        assert not (left and isinstance(command, TyperGroup)), f"{page}: there is no {left} in {line}"
