"""`make soak`: one campaign from the command line; exit code 1 when a promise was broken.

    make soak SOAK="--seed 7 --faults 200 --minutes 15"

What happened stays below `--keep` when that is given, and is removed otherwise.
"""

from __future__ import annotations

import argparse
import contextlib
import secrets
import sys
import tempfile
from pathlib import Path

from bench.soak.campaign import Settings, run
from bench.soak.report import lines


def main() -> int:
    parser = argparse.ArgumentParser(prog="bench.soak", description="Faults in a cluster of two pairs, and a verdict.")
    parser.add_argument("--seed", type=int, help="of all that is random (drawn and printed)")
    parser.add_argument("--faults", type=int, default=250, help="after so many it ends (250)")
    parser.add_argument("--minutes", type=float, default=15, help="or when so much time is over (15)")
    parser.add_argument("--lanes", type=int, default=3, help="faults at a time (3)")
    parser.add_argument("--senders", type=int, default=3, help="to each pair (3)")
    parser.add_argument("--members", type=int, default=2, help="of the group, that come and go beside one (2)")
    parser.add_argument(
        "--java", action="store_true", help="one pair's slave and the other's master are RocketMQ's; no promotions"
    )
    parser.add_argument(
        "--keep", type=Path, help="an empty directory in which the history and copies of the stores stay"
    )
    arguments = parser.parse_args()
    seed = secrets.randbelow(1_000_000) if arguments.seed is None else arguments.seed
    settings = Settings(
        seed,
        arguments.faults,
        arguments.minutes * 60,
        arguments.lanes,
        arguments.senders,
        arguments.members,
        arguments.java,
        keeps_stores=arguments.keep is not None,
    )
    print(f"seed {seed}", file=sys.stderr)
    with contextlib.ExitStack() as stack:
        home = arguments.keep or Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="soak-")))
        outcome = run(home.absolute(), settings)
    print("\n".join(lines(outcome)))
    return 1 if outcome.verdict.violations else 0


if __name__ == "__main__":
    sys.exit(main())
