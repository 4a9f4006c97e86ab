"""What a cluster is given that has no orbitmq installed: an archive of the sources, and the file spark-submit starts.
Knows no job and starts no Spark."""

from __future__ import annotations

import argparse
import shutil
from collections.abc import Sequence
from pathlib import Path

import orbitmq.pipeline.__main__ as entry
from orbitmq.spark.session import WORKER_PACKAGES, pack

SUMMARY = "Write the archive and the file that spark-submit is given, into a folder."
ARCHIVE = "orbitmq.zip"
PROGRAM = "orbitmq_pipeline.py"
SUBMIT = """\
spark-submit --py-files {archive} {program} JOB [FLAGS]

Executors and driver further need the packages {packages}."""


def run(arguments: Sequence[str]) -> str:
    """`orbitmq pipeline pack FOLDER`; what to do with what was written."""
    parser = argparse.ArgumentParser(prog="orbitmq pipeline pack", description=SUMMARY, allow_abbrev=False)
    parser.add_argument("folder", type=Path, metavar="FOLDER", help="Where to; it is made if it is missing.")
    archive, program = pack_into(parser.parse_args(arguments).folder)
    return SUBMIT.format(archive=archive, program=program, packages=", ".join(WORKER_PACKAGES))


def pack_into(folder: Path) -> tuple[Path, Path]:
    """The archive and the program, written into the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    program = folder / PROGRAM
    shutil.copyfile(entry.__file__, program)
    return pack(folder / ARCHIVE), program
