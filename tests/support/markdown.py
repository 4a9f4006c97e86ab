"""The programs in a page of the documentation, and what the page says they print."""

from __future__ import annotations

import re
from dataclasses import dataclass
from pathlib import Path

_PROGRAM = re.compile(
    r"^```python\n(?P<source>.*?)^```\n(?:\n```text\n(?P<output>.*?)^```\n)?", re.MULTILINE | re.DOTALL
)


@dataclass(frozen=True)
class Program:
    """One block of Python. `line` is where it begins, `output` the block of text behind it, None without one."""

    page: str
    line: int
    source: str
    output: str | None

    def __str__(self) -> str:
        return f"{self.page}:{self.line}"


def programs(page: Path) -> list[Program]:
    """Every block of Python in a page."""
    text = page.read_text(encoding="utf-8")
    return [
        Program(page.name, text.count("\n", 0, found.start()) + 2, found["source"], found["output"])
        for found in _PROGRAM.finditer(text)
    ]


def headings(page: Path) -> list[str]:
    """The headings of a page, without those of blocks of code."""
    text = re.sub(r"^ *```.*?^ *```$", "", page.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
    return re.findall(r"^#+ (.+)$", text, re.MULTILINE)
