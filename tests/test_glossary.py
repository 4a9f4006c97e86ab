"""What users read and import uses the words of docs/glossary.md."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from orbitmq.cli.main import app
from tests.support.markdown import headings

ROOT = Path(__file__).parents[1]
PACKAGE = ROOT / "src" / "orbitmq"


def unused_words() -> list[str]:
    """The words set in code in the last column."""
    rows = re.findall(r"^\|.*\|([^|]*)\|$", (ROOT / "docs" / "glossary.md").read_text(encoding="utf-8"), re.MULTILINE)
    return [word for row in rows for word in re.findall(r"`([^`]+)`", row)]


@cache
def _form_of(word: str) -> re.Pattern[str]:
    stem, endings = word, "|s|es|ed|ing"
    if word[-1] in "ey":
        stem, endings = word[:-1], {"e": "e|es|ed|ing", "y": "y|ies"}[word[-1]]
    return re.compile(rf"\b{'[ _-]'.join(stem.split())}(?:{endings})\b", re.IGNORECASE)


def used(text: str) -> Iterator[str]:
    return (word for word in unused_words() if _form_of(word).search(text))


def _public_names() -> Iterator[tuple[str, str]]:
    for path in PACKAGE.rglob("*.py"):
        module = ".".join(path.relative_to(PACKAGE).with_suffix("").parts)
        yield module, _spelled(path.stem)
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef) and not node.name.startswith(
                "_"
            ):
                yield f"{module}.{node.name}", _spelled(node.name)


def _spelled(name: str) -> str:
    """`QueueLag` and `queue_lag` as words."""
    return " ".join(re.findall(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+", name))


def _headings() -> Iterator[tuple[str, str]]:
    for path in (
        ROOT / "README.md",
        ROOT / "ARCHITECTURE.md",
        ROOT / "CONTRIBUTING.md",
        *(ROOT / "docs").rglob("*.md"),
    ):
        for heading in headings(path):
            yield f"{path.relative_to(ROOT)}: {heading}", heading


def _help_texts() -> Iterator[tuple[str, str]]:
    command = get_command(app)
    return _help_of(command, Context(command, info_name="orbitmq"))


def _help_of(command: Any, context: Context) -> Iterator[tuple[str, str]]:
    """All of it but mqadmin's, whose words are RocketMQ's."""
    yield context.command_path, command.help or ""
    for parameter in command.params:
        if not getattr(parameter, "hidden", False):
            name = max(parameter.opts, key=len)
            yield f"{context.command_path} {name}", f"{name} {getattr(parameter, 'help', None) or ''}"
    if isinstance(command, TyperGroup):
        for name in command.list_commands(context):
            inner = command.get_command(context, name)
            if inner is not None and name != "mqadmin":
                yield from _help_of(inner, Context(inner, parent=context, info_name=name))


def _templates() -> Iterator[tuple[str, str]]:
    """Lines of the page's templates without names of variables: text, titles, and texts in expressions."""
    for path in (PACKAGE / "dashboard" / "templates").glob("*.html"):
        text = path.read_text(encoding="utf-8")
        text = re.sub(r"\{#.*?#\}", "", text, flags=re.DOTALL)
        text = re.sub(r"\{[{%](.*?)[%}]\}", lambda found: _texts_in(found[1]), text, flags=re.DOTALL)
        text = re.sub(r"</?[a-z](.*?)>", lambda found: _titles_in(found[1]), text, flags=re.DOTALL)
        for line in text.splitlines():
            yield f"{path.stem}: {' '.join(line.split())}", line


def _texts_in(expression: str) -> str:
    return " ".join(text for text in re.findall(r'"([^"]*)"', expression) if " " in text)


def _titles_in(tag: str) -> str:
    return " ".join(re.findall(r'(?:title|placeholder|aria-label|alt)="([^"]*)"', tag))


KINDS = {"name": _public_names, "heading": _headings, "help": _help_texts, "page": _templates}


@pytest.mark.parametrize("kind", KINDS)
def test_no_word_is_used_that_the_glossary_replaces(kind: str) -> None:
    assert not [(place, word) for place, text in KINDS[kind]() for word in used(text)]


@pytest.mark.parametrize(
    "text", ["Answers", "it has answered", "figures", "under-way", "GroupStory", "stories", "owed"]
)
def test_a_word_is_found_in_every_form(text: str) -> None:
    assert list(used(_spelled(text) if text[0].isupper() else text))


@pytest.mark.parametrize("text", ["response", "configure", "surface", "history", "shows", "power", "outdoor"])
def test_a_word_inside_another_is_none(text: str) -> None:
    assert not list(used(text))
