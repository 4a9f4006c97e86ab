"""`make soak`: one campaign from the command line; exit code 1 when a promise was broken.

    make soak SOAK="--seed 7 --faults 200 --minutes 15"
    make soak-steady SOAK="--minutes 10"

With `--steady` nothing is done to the broker but work, for an hour. What happened stays below `--keep` when that is
given, and is removed otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.soak import steady
from bench.soak.campaign import Settings, run
from bench.soak.judge import Bounds
from bench.soak.report import lines

FAULTS_MINUTES, STEADY_MINUTES = 15, 60
FIRST_REMOVAL_S = 60  # a broker first looks for old files a minute after its start


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Faults in a cluster of two pairs, and a verdict.")
    parser.add_argument("--seed", type=int, help="of all that is random (drawn and printed)")
    parser.add_argument("--faults", type=int, default=250, help="after so many it ends (250)")
    parser.add_argument("--minutes", type=float, help="or when so much time is over (15; 60 with --steady)")
    parser.add_argument("--steady", action="store_true", help="an even load instead of faults; with --minutes, --keep")
    parser.add_argument("--lanes", type=int, default=3, help="faults at a time (3)")
    parser.add_argument("--senders", type=int, default=3, help="to each pair (3)")
    parser.add_argument(
        "--members", type=int, default=2, help="members that join and leave, besides one that stays (2)"
    )
    parser.add_argument(
        "--java", action="store_true", help="one pair's slave and the other's master are RocketMQ's; no promotions"
    )
    parser.add_argument(
        "--keep", type=Path, help="an empty directory in which the history and copies of the stores stay"
    )
    arguments = parser.parse_args()
    return _steady(arguments) if arguments.steady else _faults(arguments)


def _steady(arguments: argparse.Namespace) -> int:
    seconds = (arguments.minutes or STEADY_MINUTES) * 60
    peak_seconds = min(60.0, seconds / 3)
    bounds = Bounds(removes_files=seconds >= steady.Settings(0).kept_s + peak_seconds + FIRST_REMOVAL_S)
    settings = steady.Settings(seconds, peak_seconds, bounds=bounds)
    with _home(arguments) as home:
        outcome = steady.run(home, settings, lambda line: print(line, file=sys.stderr, flush=True))
    print("\n".join(steady.lines(outcome)))
    return 1 if outcome.judged.violations else 0


def _faults(arguments: argparse.Namespace) -> int:
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    settings = Settings(
        seed,
        arguments.faults,
        (arguments.minutes or FAULTS_MINUTES) * 60,
        arguments.lanes,
        arguments.senders,
        arguments.members,
        arguments.java,
        keeps_stores=arguments.keep is not None,
    )
    print(f"seed {seed}", file=sys.stderr)
    with _home(arguments) as home:
        outcome = run(home, settings)
    print("\n".join(lines(outcome)))
    return 1 if outcome.verdict.violations else 0


@contextlib.contextmanager
def _home(arguments: argparse.Namespace) -> Iterator[Path]:
    with contextlib.ExitStack() as stack:
        home = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        yield home.absolute()


if __name__ == "__main__":
    sys.exit(main())
