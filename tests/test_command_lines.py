"""Every command line in the guides is one: its words are commands, its flags exist."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.core import TyperGroup
from typer.main import get_command

from orbitmq.cli.main import app

DOCS = Path(__file__).parents[1] / "docs"
PASSED_ON = {"pipeline", "mqadmin"}
"""Commands that read their own words."""


def command_lines() -> Iterator[tuple[str, str]]:
    for page in sorted(DOCS.glob("*.md")):
        blocks = re.findall(r"^```(\S*)\n(.*?)^```\n", page.read_text(encoding="utf-8"), re.MULTILINE | re.DOTALL)
        for block in (block for language, block in blocks if language != "text"):
            for line in block.replace("\\\n", " ").splitlines():
                if line.startswith("orbitmq "):
                    yield page.name, line


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
    if command.name not in PASSED_ON:
        _, left, _ = command.make_parser(context).parse_args(words)
        assert not (left and isinstance(command, TyperGroup)), f"{page}: there is no {left} in {line}"
