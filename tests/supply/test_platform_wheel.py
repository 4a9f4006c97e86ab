"""What the wheel of a platform has compiled is what pyproject.toml names, and what has a `.pxd` beside it."""

from __future__ import annotations

import os
import subprocess
import sys
import tomllib

import pytest

from supply.locks import ROOT

NAMED = tomllib.loads((ROOT / "pyproject.toml").read_text())["tool"]["hatch"]["build"]["targets"]["wheel"]["hooks"]
MODULES = [one.removeprefix("/") for one in NAMED["mypyc"]["include"]]
LOOPS = [str(typed.with_suffix(".py").relative_to(ROOT)) for typed in ROOT.glob("src/**/*.pxd")]
PLATFORM = ROOT / ".venv" / "platform"


def test_every_name_is_that_of_a_file_in_order() -> None:
    assert [name for name in MODULES + LOOPS if not (ROOT / name).is_file()] == []
    assert LOOPS, "Cython compiles something"
    assert set(LOOPS).isdisjoint(MODULES), "one compiler for each"
    assert sorted(set(MODULES)) == MODULES


def test_every_module_is_compiled_and_imported_so() -> None:
    if not (PLATFORM / ".built").exists():
        pytest.skip("`make platform` has not been run")
    names = [name.removeprefix("src/").removesuffix(".py").replace("/", ".") for name in MODULES + LOOPS]
    ask = f"import importlib\nfor name in {names}: print(importlib.import_module(name).__file__)"
    environment = {**os.environ, "PYTHONPATH": str(PLATFORM)}
    told = subprocess.run([sys.executable, "-c", ask], env=environment, capture_output=True, text=True, check=True)
    files = told.stdout.split()
    assert len(files) == len(names)
    assert [file for file in files if not (file.startswith(str(PLATFORM)) and file.endswith(".so"))] == []
