"""Brokers whose disk takes nothing as long as a file, `stalled`, exists: as if it hung, which the page cache hides from
all but those who wait for the disk.

In RocketMQ a launcher among the Java drivers holds back each flush of the commit log (class StalledDisk), in orbitmq a
program that stands for the command each call that waits for the disk.
"""

from __future__ import annotations

import sys
from pathlib import Path

from tests.support.java_rocketmq import JavaBroker
from tests.support.orbit_process import OrbitUp

_PROGRAM = """\
import os, sys, time
from pathlib import Path
from orbitmq.cli.main import main
stalled, sync = Path(sys.argv.pop(1)), os.fdatasync
def fdatasync(descriptor):
    while stalled.exists():
        time.sleep(0.005)
    sync(descriptor)
os.fdatasync = fdatasync
main()
"""


class StalledJavaBroker(JavaBroker):
    _main = "orbitmq.drivers.StalledDisk"

    def __init__(self, namesrv: str, stalled: Path, **more: object) -> None:
        super().__init__(namesrv, **more)  # type: ignore[arg-type]
        self._jvm = (*self._jvm, f"-Dorbitmq.stalled={stalled}")


class StalledOrbitUp(OrbitUp):
    def __init__(self, stalled: Path, **more: object) -> None:
        super().__init__(**more)  # type: ignore[arg-type]
        script = self.home / "stalled.py"
        script.write_text(_PROGRAM)
        self.program = (sys.executable, script, stalled)
