"""`make fuzz`: hostile input for every decoder, and a table of results; exit code 1 if a promise was broken.

    make fuzz FUZZ="--target frame --inputs 2000000"

Inputs that broke a promise, and the output of the engine, are kept below build/fuzz.
"""

from __future__ import annotations

import argparse
import logging
import secrets
import shutil
import sys

from fuzz import corpus, engine
from fuzz.targets import TARGETS

WORK = engine.ROOT / "build" / "fuzz"
INPUTS = 10_000_000
MINUTES = 20.0
ROW = "{:<16} {:>11} {:>9} {:>9} {:>8} {:>9}"


def main() -> int:
    options = _options()
    if not engine.is_there():
        print("no engine: atheris is made for Linux on x86-64; `make develop` installs it there", file=sys.stderr)
        return 2
    logging.disable()  # measuring what to keep runs decoders, which tell about bad bytes
    targets = [TARGETS[name] for name in options.target or TARGETS]
    seed = secrets.randbelow(1 << 31) if options.seed is None else options.seed
    shutil.rmtree(WORK, ignore_errors=True)
    print(f"seed {seed}")
    print(ROW.format("target", "inputs", "seconds", "findings", "corpus", "bytes"), flush=True)
    shares = sum(target.share for target in targets)
    total, findings = [0, 0.0, 0, 0, 0], []
    for number, target in enumerate(targets):
        outcome = engine.run(
            target,
            WORK / target.name,
            inputs=options.inputs * target.share // shares,
            seconds=_seconds(options.minutes * 60 - total[1], len(targets) - number),
            seed=seed,
            corpora=[corpus.folder(target)] if corpus.folder(target).is_dir() else [],
        )
        if options.keep:
            corpus.keep(target, [path.read_bytes() for path in outcome.kept])
        held = corpus.kept(target)
        row = [outcome.inputs, outcome.seconds, len(outcome.findings), len(held), sum(map(len, held))]
        total = [one + other for one, other in zip(total, row, strict=True)]
        findings += [f"{target.name}: {text}" for text in outcome.findings]
        print(_line(target.name, row), flush=True)
    print(_line("all", total))
    print("\n\n".join(["", *findings]) if findings else "every promise was kept")
    return 1 if findings else 0


def _seconds(left: float, targets: int) -> float:
    """For the first of so many targets: more than an equal part of what is left, since most need less; some always."""
    return max(5.0, min(left, 3 * left / targets))


def _line(name: str, row: list[float]) -> str:
    inputs, seconds, findings, count, size = row
    return ROW.format(name, f"{inputs:,}", f"{seconds:.1f}", findings, count, f"{size:,}")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="fuzz", description="Hostile inputs to every decoder.")
    parser.add_argument("--target", action="append", choices=[*TARGETS], metavar="NAME", help=_targets())
    parser.add_argument("--inputs", type=int, default=INPUTS, help=f"of all targets together ({INPUTS:,})")
    parser.add_argument("--minutes", type=float, default=MINUTES, help=f"or until so much time is over ({MINUTES:.0f})")
    parser.add_argument("--seed", type=int, help="of all that is random (drawn and printed)")
    parser.add_argument("--keep", action="store_true", help="add inputs that reach new code to fuzz/corpus")
    return parser.parse_args()


def _targets() -> str:
    return "one of them, may be given again; without it all: " + ", ".join(TARGETS)


if __name__ == "__main__":
    sys.exit(main())
