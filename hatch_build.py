"""The wheel, with the modules on the path of a message compiled from the same source where a C compiler is at hand.

mypyc compiles the modules that pyproject.toml names, Cython those with a `.pxd` beside them. Without a compiler the
wheel holds the sources alone, and `orbitmq/interpreted.txt` with the reason, which `orbitmq --version` prints.
Translations are compiled in either form, those of an editable install beside their source.

The environment variable ORBITMQ_BUILD decides: `auto` (the default), `compiled`, which fails where nothing can be
compiled, or `interpreted`. An editable install is always interpreted. Needs no network.
"""

from __future__ import annotations

import json
import os
import shlex
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

CHOICES = ("auto", "compiled", "interpreted")
REASON = "orbitmq/interpreted.txt"
COST = "a message costs about twice the CPU"

# Run in a copy of the sources: the compilers put their modules beside them. Its first argument is a compiler's name.
_SETUP = """
import json
import os
import sys
from concurrent.futures import ThreadPoolExecutor

from setuptools import setup
from setuptools.command.build_ext import build_ext


class Build(build_ext):
    # One extension is all that mypyc makes; setuptools compiles the files of an extension one after the other.
    def build_extensions(self):
        compile_file, compile_files, started = self.compiler._compile, self.compiler.compile, []

        def compile(*arguments, **options):
            objects = compile_files(*arguments, **options)
            for one in started:
                one.result()
            started.clear()
            return objects

        with ThreadPoolExecutor(len(os.sched_getaffinity(0))) as pool:
            self.compiler._compile = lambda *arguments: started.append(pool.submit(compile_file, *arguments))
            self.compiler.compile = compile
            super().build_extensions()


def modules(compiler):
    given = json.load(open("modules.json"))
    if compiler == "cython":
        from Cython.Build import cythonize

        found = cythonize(given["cython"], quiet=True)
        for one in found:
            one.extra_compile_args = ["-g0"]
        return found
    from mypyc.build import mypycify

    paths = [*given["arguments"], *given["mypyc"]]
    return mypycify(paths, opt_level="1", debug_level="0", group_name="orbitmq", multi_file=True)


setup(
    name="orbitmq",
    package_dir={"": "src"},
    packages=[],
    ext_modules=modules(sys.argv.pop(1)),
    cmdclass={"build_ext": Build},
)
"""


class NotCompiledError(Exception):
    """The message is one line: the reason."""


class CompiledModules(BuildHookInterface):  # type: ignore[type-arg]
    PLUGIN_NAME = "custom"

    _copy: Path | None = None

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        choice = os.environ.get("ORBITMQ_BUILD", "auto")
        if choice not in CHOICES:
            raise SystemExit(f"ORBITMQ_BUILD is {choice!r}; set it to {', '.join(CHOICES)}")
        if version == "editable":
            self._compile_texts(Path(self.root) / "src")
            return
        self._copy = Path(tempfile.mkdtemp(prefix="orbitmq-build-"))
        for made in self._compile_texts(self._copy / "texts"):
            build_data["force_include"][str(made)] = str(made.relative_to(self._copy / "texts"))
        try:
            if choice == "interpreted":
                raise NotCompiledError("ORBITMQ_BUILD=interpreted")
            self._compile(self._copy)
        except NotCompiledError as error:
            if choice == "compiled":
                self._remove()
                raise SystemExit(f"not compiled: {error}") from None
            self.app.display_warning(f"orbitmq is interpreted: {error}; {COST}")
            reason = self._copy / "interpreted.txt"
            reason.write_text(f"{error}\n")
            build_data["force_include"][str(reason)] = REASON
            return
        source = self._copy / "src"
        for made in sorted([*source.glob("*.so"), *source.glob("orbitmq/**/*.so")]):
            build_data["force_include"][str(made)] = str(made.relative_to(source))
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        self._remove()

    def _remove(self) -> None:
        if self._copy is not None:
            shutil.rmtree(self._copy, ignore_errors=True)

    def _compile_texts(self, folder: Path) -> list[Path]:
        """Compile each catalogue to its place below the folder."""
        # Installers load this file to learn what a build needs, before they install it.
        from babel.messages.mofile import write_mo
        from babel.messages.pofile import read_po

        source, made = Path(self.root) / "src", []
        for path in sorted(source.glob("orbitmq/locale/*/LC_MESSAGES/*.po")):
            target = folder / path.relative_to(source).with_suffix(".mo")
            target.parent.mkdir(parents=True, exist_ok=True)
            with path.open("rb") as text, target.open("wb") as file:
                write_mo(file, read_po(text))
            made.append(target)
        return made

    def _compile(self, copy: Path) -> None:
        _look_for_compiler()
        ignored = shutil.ignore_patterns("__pycache__", "*.so")
        shutil.copytree(Path(self.root) / "src", copy / "src", ignore=ignored)
        loops = sorted(str(typed.relative_to(copy).with_suffix(".py")) for typed in copy.glob("src/**/*.pxd"))
        given = {"arguments": self.config["mypy-args"], "mypyc": self.config["mypyc"], "cython": loops}
        (copy / "modules.json").write_text(json.dumps(given))
        (copy / "setup.py").write_text(_SETUP)
        paths = [str(copy / "src"), *filter(None, [os.environ.get("PYTHONPATH")])]
        environment = {**os.environ, "MYPYPATH": str(copy / "src"), "PYTHONPATH": os.pathsep.join(paths)}
        # Cython works while mypyc, which needs one processor at first, reads the sources.
        running = [
            subprocess.Popen(
                [sys.executable, "setup.py", compiler, "--quiet", "build_ext", "--inplace", "--build-temp", compiler],
                cwd=copy,
                env=environment,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                text=True,
            )
            for compiler in ("mypyc", "cython")
        ]
        texts = [one.communicate()[0] for one in running]
        for one, text in zip(running, texts, strict=True):
            if one.returncode:
                self.app.display_error(text)
                raise NotCompiledError(_last_line(text) or "the compiler failed")


def _look_for_compiler() -> None:
    compiler = shlex.split(os.environ.get("CC") or sysconfig.get_config_var("CC") or "cc")[0]
    if shutil.which(compiler) is None:
        raise NotCompiledError(f"there is no C compiler ({compiler})")
    header = Path(sysconfig.get_path("include")) / "Python.h"
    if not header.is_file():
        raise NotCompiledError(f"there are no headers of Python ({header})")


def _last_line(text: str) -> str:
    lines = [line.strip() for line in text.splitlines() if line.strip()]
    return lines[-1] if lines else ""
