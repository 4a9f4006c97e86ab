"""How help is laid out in a language of wide characters."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from typer.core import TyperGroup

from orbitmq.cli.help_texts import VERBATIM
from orbitmq.runtime.languages import gettext
from orbitmq.runtime.wide_text import width, wrapped

_HelpFormatter: Any = TyperGroup.context_class.formatter_class
FLAGS_MAX = 30
"""Columns of the longest flag that has its help on the same line."""


class WideHelp(_HelpFormatter):  # type: ignore[misc]
    """Lays out paragraphs and lists; the rest is as with narrow characters."""

    def write_usage(self, prog: str, args: str = "", prefix: str | None = None) -> None:
        super().write_usage(prog, args, gettext("Usage: ") if prefix is None else prefix)

    def write_heading(self, heading: str) -> None:
        self.write(f"{'':{self.current_indent}}{heading}：\n")

    def write_text(self, text: str) -> None:
        for number, paragraph in enumerate(text.split("\n\n")):
            self.write("\n" if number else "")
            for line in self._lines(paragraph):
                self.write(f"{'':{self.current_indent}}{line}\n")

    def _lines(self, paragraph: str) -> Iterator[str]:
        columns = self.width - self.current_indent
        if paragraph.startswith(VERBATIM):
            for line in paragraph.removeprefix(VERBATIM).splitlines():
                indent = len(line) - len(line.lstrip())
                is_command = line.lstrip().startswith("orbitmq ")
                yield from [line] if is_command else (" " * indent + one for one in wrapped(line, columns - indent))
        else:
            yield from wrapped(" ".join(paragraph.split("\n")), columns)

    def write_dl(self, rows: Sequence[tuple[str, str]], col_max: int = FLAGS_MAX, col_spacing: int = 2) -> None:
        first = min(max(width(name) for name, _ in rows), col_max) + col_spacing
        for name, text in rows:
            fits = width(name) <= first - col_spacing
            lines = wrapped(gettext(text), self.width - self.current_indent - first)
            head = f"{name}{'':{first - width(name)}}{lines[0]}" if fits else name
            for number, line in enumerate([head, *lines[1 if fits else 0 :]]):
                self.write(f"{'':{self.current_indent + (first if number else 0)}}{line}".rstrip() + "\n")
