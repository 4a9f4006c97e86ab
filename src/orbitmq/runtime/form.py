"""Whether this installation runs compiled modules or interprets their sources; written by `hatch_build.py`."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from orbitmq import __version__

COMPILED = "compiled"
INTERPRETED = "interpreted"

_ROOT = Path(__file__).parents[1]


@cache
def form() -> str:
    """COMPILED or INTERPRETED. Looks for a file, because importing a module takes longer than printing a version."""
    return COMPILED if any(_ROOT.glob("store/index/loops.*.so")) else INTERPRETED


def described(root: Path = _ROOT) -> str:
    """Version and form; for an interpreted installation also the reason, and what it costs."""
    if form() == COMPILED:
        return f"{__version__} (compiled)"
    try:
        reason = (root / "interpreted.txt").read_text(encoding="utf-8").strip()
    except FileNotFoundError:
        reason = "from a source tree"
    return f"{__version__} (interpreted: {reason}; a message costs about twice the CPU)"
