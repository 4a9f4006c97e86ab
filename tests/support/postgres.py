"""A PostgreSQL of its own, on a free port, in a directory that goes with it; the server runs as an unprivileged user.

Knows nothing of orbitmq.
"""

from __future__ import annotations

import os
import pwd
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.support.process import ChildProcess, free_port

START_SECONDS = 60
READY = "database system is ready to accept connections"  # it listens before that, and refuses
USERS = ("postgres", "nobody")  # initdb refuses to work for root


def binaries() -> Path | None:
    """The directory of the newest server installed; None without one."""
    found = sorted(Path("/usr/lib/postgresql").glob("*/bin/postgres"), key=lambda path: int(path.parts[-3]))
    return found[-1].parent if found else None


@contextmanager
def postgres() -> Iterator[str]:
    """A running server; its URL without the driver: `user@host:port/database`."""
    programs = binaries()
    assert programs is not None, "no PostgreSQL server is installed; make services installs it"
    as_user = _as_user()
    home = Path(tempfile.mkdtemp(prefix="postgres-"))
    try:
        _give(home, as_user)
        data, port = home / "data", free_port()
        make = [programs / "initdb", "-D", data, "-U", "tester", "-A", "trust", "-N", "--locale=C.UTF-8"]
        with ChildProcess([*as_user, *map(str, make)], output=home / "initdb.out", cwd=home) as process:
            assert process.wait(START_SECONDS) == 0, process.output()
        options = ["-k", home, "-h", "127.0.0.1", "-p", port, "-c", "fsync=off"]
        serve = [programs / "postgres", "-D", data, *options]
        with ChildProcess([*as_user, *map(str, serve)], output=home / "postgres.out", cwd=home) as process:
            process.wait_for(lambda: READY in process.errors(), START_SECONDS, "PostgreSQL accepts connections")
            yield f"tester@127.0.0.1:{port}/postgres"
    finally:
        shutil.rmtree(home)


def _as_user() -> list[str]:
    if os.getuid() != 0:
        return []
    known = {entry.pw_name for entry in pwd.getpwall()}
    name = next(user for user in USERS if user in known)
    return ["setpriv", f"--reuid={name}", f"--regid={pwd.getpwnam(name).pw_gid}", "--clear-groups"]


def _give(home: Path, as_user: list[str]) -> None:
    home.chmod(0o755)
    if as_user:
        entry = pwd.getpwnam(as_user[1].removeprefix("--reuid="))
        os.chown(home, entry.pw_uid, entry.pw_gid)
