"""Does what a page tells its reader to do, and says where what comes differs from what stands there.

A page is a row of blocks. Python whose first line is `# NAME.py` is written into that file. A block of `sh` is typed
into one shell that all of them share; the `text` behind it is what it prints. Commands that go on until Ctrl-C get a
process of their own, are awaited until they have printed that text, and interrupted. Knows nothing of orbitmq.
"""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Self

from tests.support.process import ChildProcess

ADDRESS = "127.0.0.1:9876"
_BLOCK = re.compile(r"^```(?P<language>\w+)\n(?P<text>.*?)^```\n", re.MULTILINE | re.DOTALL)
MACHINE = "laptop"
PATIENCE_S = 60  # a command is done in a second on a machine that has nothing else to do
_MARK = "-- done --"
_VARYING = (
    (re.compile(r"\b[0-9A-F]{32}\b"), "ID"),
    (re.compile(r"\d{4}-\d\d-\d\d[T ]\d\d:\d\d:\d\d(\.\d+)?Z?"), "TIME"),
    (re.compile(r"127\.0\.0\.1:\d+"), "ADDRESS"),
    (re.compile(r"queue \d+, offset \d+"), "queue Q, offset O"),
    (re.compile(r"\b[\d.]+ (ms|s)\b"), "DURATION"),
    (re.compile(r" {2,}"), "  "),  # columns are as wide as what stands in them
)


@dataclass(frozen=True)
class Block:
    """What stands between two fences."""

    language: str
    text: str


def blocks(page: Path) -> list[Block]:
    return [Block(found["language"], found["text"]) for found in _BLOCK.finditer(page.read_text(encoding="utf-8"))]


def steps(page: Path) -> Iterator[tuple[Block, str | None]]:
    """Every block that is to be done, and what the page says it prints; None where it says nothing."""
    row = blocks(page)
    for block, after in zip(row, [*row[1:], Block("", "")], strict=True):
        if block.language != "text":
            yield block, after.text if after.language == "text" else None


def alike(text: str, machine: str, home: Path) -> str:
    """A text without what differs from day to day and from machine to machine."""
    text = re.sub(rf"\b{re.escape(machine)}\b", MACHINE, text).replace(str(home), "~")
    for varying, name in _VARYING:
        text = varying.sub(name, text)
    return text.strip()


class Reader:
    """Somebody who follows a page, in a shell that begins in `checkout`.

    `endless` says for each command that does not end what is run in its place, with ports that are free on this
    machine; `address` is where the name server is then.
    """

    def __init__(
        self, home: Path, checkout: Path, environment: dict[str, str], address: str, endless: dict[str, str]
    ) -> None:
        self._home = home
        self._environment = {**environment, "HOME": str(home), "NAMESRV_ADDR": address}
        self._address = address
        self._endless = endless
        self._running: list[ChildProcess] = []
        self._shell = subprocess.Popen(
            ["bash"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            cwd=checkout,
            env=self._environment,
            text=True,
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        for process in self._running:
            process.stop()
        self._shell.kill()
        self._shell.communicate()

    def follow(self, block: Block, prints: str | None) -> None:
        """Do what a block says; AssertionError when something else is printed than the page says."""
        command = block.text.strip()
        if block.language == "python":
            self._write(block.text)
        elif command in self._endless:
            self.begin(command, prints or "")
        else:
            printed = self._type(self._mine(block.text))
            assert self.like(printed) == self.like(prints or ""), f"{command} printed\n{printed}"

    def begin(self, command: str, prints: str) -> ChildProcess:
        """Run an endless command until it has printed this."""
        place, path = self._type("pwd; echo $PATH").splitlines()
        process = ChildProcess(
            ["bash", "-c", f"exec {self._endless[command]}"],
            output=self._home / f"{len(self._running)}.out",
            environment={**self._environment, "PATH": path},
            cwd=Path(place),
        )
        self._running.append(process)
        process.wait_for(lambda: self.like(prints) in self.like(process.output()), PATIENCE_S, prints)
        return process

    def interrupt(self) -> None:
        """Ctrl-C in the terminal that was opened last."""
        process = self._running.pop()
        process.signal(signal.SIGINT)
        process.wait(PATIENCE_S)

    def like(self, text: str) -> str:
        return alike(text, socket.gethostname(), self._home)

    def _write(self, program: str) -> None:
        name = program.split("\n", 1)[0].removeprefix("# ")
        (Path(self._type("pwd").strip()) / name).write_text(self._mine(program), encoding="utf-8")

    def _mine(self, text: str) -> str:
        return text.replace(ADDRESS, self._address)

    def _type(self, commands: str) -> str:
        """What commands print, on either output."""
        assert self._shell.stdin is not None
        assert self._shell.stdout is not None
        self._shell.stdin.write(f"{commands.rstrip()}\nprintf '%s\\n' '{_MARK}'\n")
        self._shell.stdin.flush()
        printed: list[str] = []
        for line in self._shell.stdout:
            if line.strip() == _MARK:
                return "".join(printed)
            printed.append(line)
        raise AssertionError(f"the shell ended in {commands}: {''.join(printed)}")


def without_network(packages: Path) -> dict[str, str]:
    """An environment in which pip asks nobody, for what it would bring lies in `packages` already."""
    return {
        "PATH": f"{sys.base_prefix}/bin:{os.environ['PATH']}",
        "LANG": "C.UTF-8",
        "PYTHONPATH": str(packages),
        "PIP_NO_INDEX": "1",
        "PIP_NO_DEPS": "1",
        "PIP_NO_BUILD_ISOLATION": "0",  # pip reads it the other way round: there is none
        "PIP_DISABLE_PIP_VERSION_CHECK": "1",
    }
