"""The corpus: for each target the shortest inputs that together take every step that any of them takes.

A step leads from one line of orbitmq to the next, and is another one when it is taken twice, four times, eight times as
often. Measured without the engine, so that the same inputs stay wherever it is done. The names of files are the sums
of what is in them.
"""

from __future__ import annotations

import contextlib
import hashlib
import sys
from collections import Counter
from collections.abc import Iterable
from pathlib import Path
from types import FrameType
from typing import Any

from fuzz.promise import Target

PLACE = Path(__file__).parent / "corpus"
SIZE_MAX = 1 << 20  # of all that is kept: it comes with every clone
_PRODUCT = str(Path(__file__).parents[1] / "src" / "orbitmq")

Step = tuple[str, int, int, int]  # file, line before, line, how often as a power of two


def folder(target: Target) -> Path:
    return PLACE / target.name


def kept(target: Target) -> list[bytes]:
    """The inputs of a target that are kept."""
    place = folder(target)
    return [path.read_bytes() for path in sorted(place.iterdir())] if place.is_dir() else []


def keep(target: Target, inputs: Iterable[bytes]) -> int:
    """Keep what covers new ground out of the inputs and of what was kept before; how many those are."""
    chosen = fewest(target, {*inputs, *kept(target)})
    place = folder(target)
    if chosen:
        place.mkdir(parents=True, exist_ok=True)
    names = {hashlib.sha1(data).hexdigest()[:16]: data for data in chosen}
    for path in place.iterdir() if place.is_dir() else ():
        if path.name not in names:
            path.unlink()
    for name, data in names.items():
        (place / name).write_bytes(data)
    return len(names)


def fewest(target: Target, inputs: Iterable[bytes]) -> list[bytes]:
    """Shortest first, each that takes a step none before it takes; seeds come with the target."""
    covered: set[Step] = set()
    for seed in target.seeds():
        covered |= steps(target, seed)
    chosen = []
    for data in sorted(inputs, key=lambda one: (len(one), one)):
        found = steps(target, data)
        if not found <= covered:
            covered |= found
            chosen.append(data)
    return chosen


def steps(target: Target, data: bytes) -> set[Step]:
    """From which line to which the code of the product goes; what is raised there is for others to tell."""
    found: Counter[tuple[str, int, int]] = Counter()

    def enter(frame: FrameType, _event: str, _argument: Any) -> Any:
        name = frame.f_code.co_filename
        if not name.startswith(_PRODUCT):
            return None
        before = 0

        def line(frame: FrameType, event: str, _argument: Any) -> Any:
            nonlocal before
            if event == "line":
                found[name, before, frame.f_lineno] += 1
                before = frame.f_lineno
            return line

        return line

    previous = sys.gettrace()
    sys.settrace(enter)
    try:
        with contextlib.suppress(Exception):
            target.check(data)
    finally:
        sys.settrace(previous)
    return {(*step, count.bit_length()) for step, count in found.items()}
