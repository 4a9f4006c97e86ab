"""The promises of cli.main: names, flags, and help that is there at once."""

from __future__ import annotations

import subprocess
import sys

import pytest
from typer.testing import CliRunner

from orbitmq import __version__
from orbitmq.cli.main import app
from orbitmq.store.index.loops import IS_COMPILED

# What help may load, counted because time on a busy machine says nothing: typer with its part of the standard library
# is 150 modules and 65 ms, with pydantic for the flags of a command 260 modules and 145 ms; the daemons have 300 more.
MODULES_MAX = 300
HEAVY = ("asyncio", "msgspec", "pyspark", "rich", "uvloop", "orbitmq.broker", "orbitmq.namesrv", "orbitmq.store")


@pytest.mark.parametrize(
    "arguments", [["--help"], ["up", "--help"], ["broker", "--help"], ["proxy", "--help"], ["--version"]]
)
def test_help_loads_nothing_heavy(arguments: list[str]) -> None:
    program = (
        "import sys\n"
        "from orbitmq.cli.main import main\n"
        f"sys.argv = ['orbitmq', *{arguments}]\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    result = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = result.stderr.split()
    assert len(loaded) < MODULES_MAX
    assert not set(HEAVY) & set(loaded)


def test_version() -> None:
    form = " (compiled)" if IS_COMPILED else ""
    assert CliRunner().invoke(app, ["--version"]).output == f"orbitmq {__version__}{form}\n"


@pytest.mark.parametrize(
    ("command", "flags"),
    [
        ("up", ["--data-dir", "--namesrv-port", "--broker-port", "-c"]),
        ("namesrv", ["-c", "--port", "-p", "--print-config"]),
        ("broker", ["-c", "-n", "-p", "--print-config"]),
        ("proxy", ["-c", "-n", "--port", "--set", "-p", "--print-config"]),
    ],
)
def test_the_fixed_flags_are_there(command: str, flags: list[str]) -> None:
    text = CliRunner().invoke(app, [command, "--help"]).output
    assert not [flag for flag in flags if flag not in text]


def test_a_wrong_flag_is_a_usage_error() -> None:
    assert CliRunner().invoke(app, ["broker", "--portt", "1"]).exit_code == 2
