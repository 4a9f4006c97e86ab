"""One target under atheris (libFuzzer inside CPython): a process of its own, and the function that runs it.

The process records its findings and continues, so one run reports all of them; only input that takes the process down
(hangs, out of memory) ends it. The same seed and corpus give the same inputs.

    python -m fuzz.engine fuzz.streams frame WORK SEED INPUTS SECONDS CORPUS...
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib
import logging
import os
import re
import resource
import subprocess
import sys
import time
import traceback
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType

from fuzz.promise import Target

ROOT = Path(__file__).parents[1]
ENGINE_PLACE = ROOT / ".venv" / "fuzz"  # where `make develop` puts atheris

CPU_SECONDS_MAX = 2.0  # of one input; the slowest honest one takes some 20 ms while every line of it is counted
WALL_SECONDS_MAX = 60  # of one input, then libFuzzer ends the process: on a machine with other work
MEMORY_MAX = 1 << 30  # of the process: several times what an honest input takes, half of what four bytes can ask for
FINDINGS_MAX = 20  # kept of one run; what is found in another place of the code is another one
NO_WORDS = (b"\0\0\0\0",)  # an empty dictionary is an error to libFuzzer
PATIENCE_SECONDS = 240  # over what a run may take, for starting and ending it


@dataclass(frozen=True)
class Outcome:
    """What a run came to. `findings` are texts that say what happened; the inputs lie below `work`."""

    inputs: int
    seconds: float
    findings: tuple[str, ...]
    work: Path

    @property
    def kept(self) -> list[Path]:
        """Inputs that covered what no other did."""
        return sorted(path for path in (self.work / "corpus").iterdir() if path.is_file())


def is_there() -> bool:
    """Whether the engine is installed; it is made for Linux on x86-64 alone."""
    return (ENGINE_PLACE / "atheris").is_dir()


def run(target: Target, work: Path, *, inputs: int, seconds: float, seed: int, corpora: Sequence[Path] = ()) -> Outcome:
    """Try so many inputs, or for so long. Everything it leaves lies below `work`, which it makes."""
    (work / "corpus").mkdir(parents=True)
    command = [
        sys.executable,
        "-m",
        "fuzz.engine",
        target.check.__module__,
        target.name,
        work,
        seed,
        inputs,
        max(1, round(seconds)),
        *corpora,
    ]
    path = os.pathsep.join(map(str, (ROOT, ROOT / "src", ENGINE_PLACE)))
    started = time.monotonic()
    late = False
    with (work / "log").open("wb") as log:
        process = subprocess.Popen(
            [*map(str, command)],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": path, "PYTHONHASHSEED": "0"},
            stdout=log,
            stderr=subprocess.STDOUT,
        )
        try:
            process.wait(seconds + PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            late = True
        finally:  # whatever ends this process must not leave that one
            process.kill()
            process.wait()
    passed = time.monotonic() - started
    text = (work / "log").read_text(errors="replace")
    findings = [path.read_text() for path in sorted(work.glob("finding-*.txt"))]
    if late or process.returncode:
        ended = "did not end" if late else f"ended with {process.returncode}"
        findings.append(f"the process {ended}; the end of {work / 'log'}:\n{text[-2000:]}")
    counted = re.search(r"stat::number_of_executed_units:\s*(\d+)", text)
    return Outcome(int(counted[1]) if counted else 0, passed, tuple(findings), work)


# --------------------------------------------------------------------------------------------------- inside the process


class Watch:
    """Calls the check of a target and keeps the first input that breaks a promise in one place of the code."""

    def __init__(self, target: Target, work: Path) -> None:
        self._check = target.check
        self._work = work
        self._places: set[str] = set()

    def try_one(self, data: bytes) -> None:
        started = time.process_time()
        try:
            self._check(data)
            passed = time.process_time() - started
            assert passed < CPU_SECONDS_MAX, f"an input of {len(data)} bytes took {passed:.1f} s"
        except Exception as error:  # whatever is no documented error is the finding; the next input must still come
            self._keep(data, error)

    def _keep(self, data: bytes, error: Exception) -> None:
        place = f"{type(error).__name__} {_innermost(error.__traceback__)}"
        if place in self._places or len(self._places) >= FINDINGS_MAX:
            return
        self._places.add(place)
        name = self._work / f"finding-{hashlib.sha1(data).hexdigest()[:12]}"
        name.with_suffix(".bin").write_bytes(data)
        text = "".join(traceback.format_exception(error))
        name.with_suffix(".txt").write_text(f"{place}\n{len(data)} bytes: {data[:200]!r}\n{text}")


def _innermost(trace: TracebackType | None) -> str:
    """The line of our own code that raised, or called what raised."""
    place = ""
    for frame, line in traceback.walk_tb(trace):
        file = Path(frame.f_code.co_filename)
        if file.is_relative_to(ROOT) and ".venv" not in file.parts:
            place = f"{file.relative_to(ROOT)}:{line}"
    return place


def main(arguments: Sequence[str]) -> None:
    module, name, work, seed, inputs, seconds, *corpora = arguments
    import atheris

    logging.disable()  # what a decoder tells about bad bytes is told millions of times
    with atheris.instrument_imports(include=["orbitmq", module], enable_loader_override=False):
        targets: Sequence[Target] = importlib.import_module(module).TARGETS
    target = next(target for target in targets if target.name == name)
    place = Path(work)
    seeds, words = place / "seeds", place / "words"
    seeds.mkdir()
    for number, content in enumerate(target.seeds()):
        (seeds / str(number)).write_bytes(content)
    words.write_text("# words\n" + "".join(map(_quoted, target.words or NO_WORDS)))
    with contextlib.suppress(ValueError):  # the machine allows less
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY_MAX, MEMORY_MAX))
    settings = {
        "seed": seed, "runs": inputs, "max_total_time": seconds, "timeout": WALL_SECONDS_MAX,
        "max_len": target.size_max, "rss_limit_mb": MEMORY_MAX >> 20, "dict": words, "artifact_prefix": f"{place}/",
        "print_final_stats": 1, "use_value_profile": 1, "reload": 0,
    }  # fmt: skip
    options = [f"-{key}={value}" for key, value in settings.items()]
    existing = [folder for folder in map(str, corpora) if any(Path(folder).iterdir())]
    atheris.Setup(["fuzz", *options, str(place / "corpus"), str(seeds), *existing], Watch(target, place).try_one)
    atheris.Fuzz()


def _quoted(word: bytes) -> str:
    """A line of libFuzzer's dictionary."""
    return '"' + "".join(f"\\x{byte:02x}" for byte in word) + '"\n'


if __name__ == "__main__":
    main(sys.argv[1:])
