"""The stock `mqadmin` of Apache RocketMQ, one JVM for many commands. Knows no command."""

from __future__ import annotations

import re
import tempfile
from itertools import count
from pathlib import Path
from typing import Self

from typer.testing import CliRunner

from orbitmq.cli.main import app
from tests.support.java_rocketmq import ROCKETMQ_4, SMALL_JVM, Driver

_TIMEOUT_S = 90


class Mqadmin:
    """Call it with a command's words; the answer is what the command prints. `-n` is added."""

    def __init__(self, namesrv: str, version: str = ROCKETMQ_4, *, jvm: tuple[str, ...] = SMALL_JVM) -> None:
        self._namesrv = namesrv
        self._version = version
        self._jvm = jvm
        self._directory = tempfile.TemporaryDirectory(prefix="mqadmin-")
        self._commands = Path(self._directory.name) / "commands"
        self._commands.touch()
        self._numbers = count(1)

    def __call__(self, *words: object) -> str:
        return self.answer(self.ask(*words))

    def ask(self, *words: object) -> int:
        """Have a command run; the number it is asked by."""
        number = next(self._numbers)
        with self._commands.open("a") as file:
            file.write("\t".join(map(str, (number, *words, "-n", self._namesrv))) + "\n")
        return number

    def answer(self, number: int) -> str:
        """What the command of this number printed, once it has ended."""
        row = self._driver.wait_for_row(lambda row: row["number"] == number, _TIMEOUT_S, f"command {number}")
        return str(row["printed"])

    def __enter__(self) -> Self:
        self._driver = Driver("mqadmin", "--commands", self._commands, version=self._version, jvm=self._jvm)
        return self

    def __exit__(self, *error: object) -> None:
        self._driver.__exit__(*error)
        self._directory.cleanup()


class OurMqadmin:
    """The same for `orbitmq mqadmin`, run inside the test; the answer is what it prints on both outputs."""

    def __init__(self, namesrv: str) -> None:
        self._namesrv = namesrv

    def __call__(self, *words: object) -> str:
        return CliRunner().invoke(app, ["mqadmin", *map(str, words), "-n", self._namesrv]).output


def rows(printed: str, heading: str) -> list[list[str]]:
    """The cells of the lines below the line that begins with `heading`, up to an empty line; two blanks or more
    separate cells."""
    lines = iter(printed.splitlines())
    for line in lines:
        if line.startswith(heading):
            break
    else:
        raise AssertionError(f"no heading {heading!r} in:\n{printed}")
    found = []
    for line in lines:
        if not line.strip():
            break
        found.append(re.split(r"\s{2,}", line.strip()))
    return found
