"""Modules are compiled where there is a C compiler; elsewhere the build and the command give the reason."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib
import zipfile
from pathlib import Path

import pytest

import orbitmq
from orbitmq.runtime.form import COMPILED, form
from supply.locks import ROOT
from tests.test_release import run

HOOK = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
MODULES = HOOK["custom"]["mypyc"]
LOOPS = [str(typed.with_suffix(".py").relative_to(ROOT)) for typed in ROOT.glob("src/**/*.pxd")]


def build(directory: Path, **environment: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", directory]
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    return subprocess.run(
        command, cwd=ROOT, env={**kept, **environment}, capture_output=True, text=True, timeout=120, check=False
    )


def test_every_name_is_that_of_a_file_in_order() -> None:
    assert [name for name in MODULES + LOOPS if not (ROOT / name).is_file()] == []
    assert LOOPS, "Cython compiles something"
    assert set(LOOPS).isdisjoint(MODULES), "one compiler for each"
    assert sorted(set(MODULES)) == MODULES


def test_every_module_is_compiled_and_imported_so() -> None:
    if form() != COMPILED:
        pytest.skip("the sources are tested: make test-interpreted")
    names = [name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in MODULES + LOOPS]
    ask = f"import importlib\nfor name in {names}: print(importlib.import_module(name).__file__)"
    files = subprocess.run([sys.executable, "-c", ask], capture_output=True, text=True, check=True).stdout.split()
    assert len(files) == len(names)
    place = str(Path(orbitmq.__file__).parent)
    assert [file for file in files if not (file.startswith(place) and file.endswith(".so"))] == []


def test_make_setup_has_installed_compiled_modules() -> None:
    if not (ROOT / ".venv" / ".installed").exists():
        pytest.skip("the environment is one of `make develop`, or of another command than `make setup`")
    assert run(ROOT / ".venv" / "bin" / "orbitmq", "--version") == f"orbitmq {orbitmq.__version__} (compiled)\n"


@pytest.mark.parametrize(
    ("environment", "reason"),
    [
        ({"CC": "no-such-compiler"}, "there is no C compiler (no-such-compiler)"),
        ({"ORBITMQ_BUILD": "interpreted"}, "ORBITMQ_BUILD=interpreted"),
    ],
)
def test_without_a_compiler_the_wheel_says_why_and_what_that_costs(
    environment: dict[str, str], reason: str, tmp_path: Path
) -> None:
    made = build(tmp_path, **environment)
    assert made.returncode == 0, made.stderr
    output = " ".join((made.stdout + made.stderr).split())
    assert f"orbitmq is interpreted: {reason}; a message costs about twice the CPU" in output
    (wheel,) = tmp_path.glob("*-py3-none-any.whl")
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(tmp_path / "wheel")
    ask = "from orbitmq.runtime.form import described; print(described())"
    version = run(sys.executable, "-c", ask, PYTHONPATH=str(tmp_path / "wheel"))
    assert version == f"{orbitmq.__version__} (interpreted: {reason}; a message costs about twice the CPU)\n"


def test_who_insists_on_compiled_modules_gets_no_others(tmp_path: Path) -> None:
    made = build(tmp_path, CC="no-such-compiler", ORBITMQ_BUILD="compiled")
    assert made.returncode != 0
    assert "not compiled: there is no C compiler (no-such-compiler)" in made.stderr
    assert list(tmp_path.glob("*.whl")) == []


def test_an_unknown_choice_is_refused(tmp_path: Path) -> None:
    made = build(tmp_path, ORBITMQ_BUILD="fast")
    assert made.returncode != 0
    assert "ORBITMQ_BUILD is 'fast'; set it to auto, compiled, interpreted" in made.stderr


def test_a_wheel_has_the_translations_compiled(tmp_path: Path) -> None:
    made = build(tmp_path, ORBITMQ_BUILD="interpreted")
    assert made.returncode == 0, made.stderr
    with zipfile.ZipFile(next(tmp_path.glob("*.whl"))) as archive:
        names = [name for name in archive.namelist() if name.startswith("orbitmq/locale/")]
    assert names == ["orbitmq/locale/zh_CN/LC_MESSAGES/orbitmq.mo"]
