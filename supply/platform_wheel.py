"""The wheel for this platform and this Python: the one for all, with the modules on the way of a message compiled from
the same source (`make wheel`): by mypyc those that pyproject.toml names, by Cython those with a `.pxd` beside them.
Works without a network.
"""

from __future__ import annotations

import argparse
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from pathlib import Path

from supply.locks import ROOT

MADE_OF = ("src", "pyproject.toml", "README.md", "LICENSE", "NOTICE")
ENABLED = {"HATCH_BUILD_HOOK_ENABLE_MYPYC": "true"}


def build(directory: Path) -> Path:
    """Make the wheel there. CalledProcessError, with what the compiler said, when it cannot be made.

    Made from a copy: the compiler puts its modules beside their sources, where every program of this environment would
    import them.
    """
    directory.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="orbitmq-wheel-") as copy:
        tree, made = Path(copy) / "tree", Path(copy) / "made"
        for name in MADE_OF:
            source = ROOT / name
            if source.is_dir():
                shutil.copytree(source, tree / name, ignore=shutil.ignore_patterns("__pycache__", "*.so"))
            else:
                shutil.copy(source, tree / name)
        loops = [typed.with_suffix(".py") for typed in tree.glob("src/**/*.pxd")]
        subprocess.run(  # noqa: S603 - this Python, and files of the project
            [sys.executable, "-m", "Cython.Build.Cythonize", "--inplace", "--quiet", *loops], cwd=tree, check=True
        )
        for source in loops:
            source.with_suffix(".c").unlink()
        subprocess.run(  # noqa: S603
            [sys.executable, "-m", "hatchling", "build", "-t", "wheel", "-d", made],
            cwd=tree,
            env={**os.environ, **ENABLED},
            check=True,
        )
        (wheel,) = made.iterdir()
        return Path(shutil.move(wheel, directory / wheel.name))


def unpack(wheel: Path, directory: Path) -> None:
    """Put what the wheel holds there, in place of what was there; a PYTHONPATH that names it runs it."""
    shutil.rmtree(directory, ignore_errors=True)
    with zipfile.ZipFile(wheel) as archive:
        archive.extractall(directory)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("directory", type=Path, help="where the wheel goes")
    parser.add_argument("--unpack", type=Path, metavar="DIRECTORY", help="and what it holds, in place of what is there")
    arguments = parser.parse_args()
    wheel = build(arguments.directory)
    if arguments.unpack:
        unpack(wheel, arguments.unpack)
    print(wheel)  # noqa: T201 - its answer
    return 0


if __name__ == "__main__":
    sys.exit(main())
