"""What has failed beside others is run once more alone, and both outcomes are told (`make test` calls it).

Three tests at a time, with several JVMs, are more than a small machine has processors for: clients and tools of
RocketMQ have time limits of their own, which no test can turn. A test that fails alone as well fails the run; so do
more than a few of them, for then it is not the machine. Each one that passes alone only is named at the end as
UNSTEADY: it is a defect, of the test or of what it tests, and waits to be understood.
"""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

LIMIT = 5
ROOT = Path(__file__).parents[2]
LAST_FAILED = ROOT / ".pytest_cache" / "v" / "cache" / "lastfailed"


def failed() -> list[str]:
    """The tests the last run has failed, without the group that xdist writes behind a name."""
    return sorted({name.rpartition("@")[0] or name for name in json.loads(LAST_FAILED.read_text(encoding="utf-8"))})


def main() -> int:
    names = failed()
    if not names or len(names) > LIMIT:
        print(
            f"{len(names)} tests failed: no second look at so many"
            if names
            else "it did not end as a run of tests does"
        )
        return 1
    print(f"a second look, alone, at {len(names)} that failed beside others:", *names, sep="\n  ", flush=True)
    code = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *names], cwd=ROOT, check=False).returncode
    if code == 0:
        print(*(f"UNSTEADY {name}" for name in names), sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
