"""The command line of the jobs: flags are generated from their options. Knows no job.

It uses only the standard library, so that it runs where spark-submit ships nothing but the sources of orbitmq.
"""

from __future__ import annotations

import argparse
import json
import re
import sys
from collections.abc import Mapping, Sequence
from importlib import resources
from pathlib import Path
from typing import TextIO

from orbitmq.errors import ConfigurationError, OrbitMQError
from orbitmq.pipeline.job import JOBS, Job, JobContext, JobOptions, JobResult, job_named
from orbitmq.pipeline.lineage import reported
from orbitmq.pipeline.progress import shown_on
from orbitmq.runtime.error_texts import translated
from orbitmq.runtime.languages import ENGLISH, gettext, language
from orbitmq.runtime.options import Option, as_text, read_properties, unknown_keys
from orbitmq.runtime.printable import printable
from orbitmq.runtime.wide_text import wrapped

EXIT_FAILED = 1
EXIT_USAGE = 2
EXIT_INTERRUPTED = 130
EXIT_CODES = """\
exit code: 0 done, 1 something failed (listed at the end), 2 wrong usage or configuration, 130 interrupted"""
HELP = """\
usage: orbitmq pipeline NAME [FLAGS]

Spark jobs over topics, stores and the lake.

jobs:
{jobs}

orbitmq pipeline NAME --help shows the flags of a job.
orbitmq pipeline pack FOLDER writes the archive and the program for spark-submit.
"""
PACK = "pack"  # no job: it starts no Spark
ARCHIVE = "orbitmq.zip"
PROGRAM = "orbitmq_pipeline.py"
SUBMIT = """\
spark-submit --py-files {archive} {program} JOB [FLAGS]

The driver and the executors also need the packages {packages}."""
ERROR_OF_OURS = re.compile(r"ORBITMQ_[A-Z_]+: [^\n]+")  # inside the stack traces Spark makes of it
OF_THE_CALLER = ("ORBITMQ_BAD_OPTION", "ORBITMQ_WORKER_PYTHON")

OF_SPARK = {
    "Python worker failed to connect back": "a Python process of Spark did not start in time; the machine may be out "
    "of memory or busy, or the interpreter of PYSPARK_PYTHON lacks pyspark",
    "Cannot run program": "Spark cannot run the interpreter of PYSPARK_PYTHON; install it on every executor",
    "PYTHON_VERSION_MISMATCH": "the driver and the executors have different versions of Python; set PYSPARK_PYTHON to "
    "an interpreter of the driver's version that is on every executor",
    "OutOfMemoryError": "the JVM of Spark is out of memory; increase it, for example with "
    "--spark-conf spark.driver.memory=4g",
}
"""Texts inside the stack traces of Spark about its environment, and what they mean."""


def main(arguments: Sequence[str]) -> int:
    """Run the job that the first argument names. Returns the exit code."""
    if not arguments or arguments[0] in ("-h", "--help"):
        jobs = "\n".join(f"  {name:<9} {gettext(entry.summary)}" for name, entry in JOBS.items())
        print(f"{gettext(HELP).format(jobs=jobs)}{gettext(EXIT_CODES)}")
        return 0 if arguments else EXIT_USAGE
    name, *rest = arguments
    if name == PACK:
        return _pack(rest)
    if name not in JOBS:
        print(f"orbitmq pipeline: unknown job {name}; the jobs are {', '.join(JOBS)}", file=sys.stderr)
        return EXIT_USAGE
    try:
        return _run(job_named(name), rest)
    except KeyboardInterrupt:
        return _fail(name, f"interrupted; {job_named(name).again}", EXIT_INTERRUPTED)
    except ConfigurationError as error:
        return _fail(name, str(error), EXIT_USAGE)
    except (OrbitMQError, OSError) as error:
        return _fail(name, str(error), EXIT_USAGE if str(error).startswith(OF_THE_CALLER) else EXIT_FAILED)
    except Exception as error:  # of Spark, with ours inside; without one it is a bug and keeps its stack
        if _was_interrupted(error):
            return _fail(name, f"interrupted; {job_named(name).again}", EXIT_INTERRUPTED)
        text = _meaning(str(error))
        if text is None:
            raise
        return _fail(name, text, EXIT_USAGE if text.startswith(OF_THE_CALLER) else EXIT_FAILED)


def _was_interrupted(error: BaseException) -> bool:
    """Whether an interruption caused the error: Spark's objects may fail once they are stopped."""
    while error.__context__ is not None:
        error = error.__context__
        if isinstance(error, KeyboardInterrupt):
            return True
    return False


def _meaning(text: str) -> str | None:
    """What an error of Spark means: an error of ours inside, or what its environment lacks. None for any other."""
    if found := ERROR_OF_OURS.findall(text):
        return str(found[-1])
    return next((meaning for said, meaning in OF_SPARK.items() if said in text), None)


def _pack(arguments: Sequence[str]) -> int:
    """Write what spark-submit takes into a folder, for a cluster without orbitmq."""
    from orbitmq.spark.session import WORKER_PACKAGES, pack

    made = argparse.ArgumentParser(
        prog="orbitmq pipeline pack",
        description="Write the archive and the program for spark-submit into a folder.",
        allow_abbrev=False,
    )
    made.add_argument("folder", type=Path, metavar="FOLDER", help="The folder. It is created if it does not exist.")
    folder: Path = made.parse_args(arguments).folder
    try:
        folder.mkdir(parents=True, exist_ok=True)
        program = folder / PROGRAM
        program.write_bytes(resources.files("orbitmq.pipeline").joinpath("__main__.py").read_bytes())
        archive = pack(folder / ARCHIVE)
    except OSError as error:
        return _fail(PACK, str(error), EXIT_FAILED)
    print(SUBMIT.format(archive=archive, program=program, packages=", ".join(WORKER_PACKAGES)))
    return 0


def _run(job: Job[JobOptions], arguments: Sequence[str]) -> int:
    given = vars(parser(job).parse_args(arguments))
    as_json, file = given.pop("output") == "json", given.pop("config")
    flags = {key: as_text(value) for key, value in given.items() if value is not None}
    options = job.options.parse(_in_file(file, job) | flags)
    from orbitmq.pipeline.session import session_of  # loads Spark, which --help does not need

    with (
        reported(job, options, lambda text: _tell(job.name, text), _meaning) as finish,
        session_of(job.name, options) as spark,
    ):
        outcome = job.run(JobContext(options, spark, shown_on(sys.stderr)))
        finish(outcome)
    (print_json if as_json else print_table)(job, outcome, sys.stdout)
    return EXIT_FAILED if outcome.failed else 0


def _in_file(file: str | None, job: Job[JobOptions]) -> dict[str, str]:
    """The options of a properties file. ConfigurationError names a key that the job does not have."""
    pairs = read_properties(Path(file).expanduser()) if file else {}
    if unknown := unknown_keys(pairs, job.options):
        raise ConfigurationError(
            f"{file}: the job {job.name} has no option {unknown[0]}; see orbitmq pipeline {job.name} --help"
        )
    return pairs


class _Formatter(argparse.RawDescriptionHelpFormatter):
    """Breaks lines of wide characters where they may be broken."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return super()._split_lines(text, width) if language() == ENGLISH else wrapped(text, width)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        if language() == ENGLISH or "orbitmq pipeline" in text:
            return super()._fill_text(text, width, indent)
        return "\n\n".join("\n".join(wrapped(one, width)) for one in text.split("\n\n"))


def paragraphs(text: str) -> list[str]:
    """Each as one line."""
    return [" ".join(one.split()) for one in text.split("\n\n")]


def _description(job: Job[JobOptions]) -> str:
    if language() == ENGLISH:
        return job.description
    return "\n\n".join(map(gettext, paragraphs(job.description)))


def parser(job: Job[JobOptions]) -> argparse.ArgumentParser:
    """The flags of a job: one an option, `--config` and `--output`."""
    title = gettext("examples:")
    examples = "\n".join(f"  orbitmq pipeline {job.name} {example}" for example in job.examples)
    made = argparse.ArgumentParser(
        prog=f"orbitmq pipeline {job.name}",
        description=f"{gettext(JOBS[job.name].summary)}\n\n{_description(job)}",
        epilog=f"{title}\n{examples}\n\n{gettext(EXIT_CODES)}",
        formatter_class=_Formatter,
        allow_abbrev=False,
    )
    for key, (_, declared) in job.options.table().items():
        _add_flag(made, key, declared)
    made.add_argument(
        "-c",
        "--config",
        metavar="FILE",
        help=gettext("Properties file with options, for example secrets. Flags take precedence."),
    )
    made.add_argument(
        "-o", "--output", choices=["table", "json"], default="table", help=gettext("How to print the result.")
    )
    made.add_argument("--json", dest="output", action="store_const", const="json", help=argparse.SUPPRESS)
    return made


def _add_flag(made: argparse.ArgumentParser, key: str, declared: Option) -> None:
    text = gettext(declared.text)
    if declared.unit:
        text += gettext(" Unit: {unit}.").format(unit=gettext(declared.unit))
    text = text.replace("%", "%%")
    if isinstance(declared.default, bool):
        made.add_argument(flag(key), dest=key, action=argparse.BooleanOptionalAction, default=None, help=text)
        return
    default = "" if declared.default == "" else gettext(" Default: {value}.").format(value=as_text(declared.default))
    choices = list(declared.choices) or None
    made.add_argument(
        *(["-n"] if key == "nameServer" else []),
        flag(key),
        dest=key,
        metavar=None if choices else "VALUE",
        choices=choices,
        help=text + default.replace("%", "%%"),
    )


def flag(key: str) -> str:
    """`nameServer` as `--name-server`, `tls.client.checkHost` as `--tls-client-check-host`."""
    words = re.sub(r"(?<=[a-z0-9])(?=[A-Z])|\.", "-", key)
    return f"--{words.lower()}"


def print_table(job: Job[JobOptions], outcome: JobResult, out: TextIO) -> None:
    """Print rows, counts and failures as text."""
    if outcome.table:
        names = list(outcome.table[0])
        texts = [names, *([_text(row[name]) for name in names] for row in outcome.table)]
        widths = [max(len(text[number]) for text in texts) for number in range(len(names))]
        for parts in texts:
            print("  ".join(part.ljust(width) for part, width in zip(parts, widths, strict=True)).rstrip(), file=out)
        print(file=out)
    longest = max(map(len, outcome.counts), default=0)
    for name, value in outcome.counts.items():
        print(f"{name.ljust(longest)}  {_text(value)}", file=out)
    for text in outcome.failed:
        print(printable(f"orbitmq pipeline {job.name}: {text}"), file=sys.stderr)


def print_json(_job: Job[JobOptions], outcome: JobResult, out: TextIO) -> None:
    """Print the same as one JSON object."""
    whole: Mapping[str, object] = {
        "counts": dict(outcome.counts),
        "table": [dict(row) for row in outcome.table],
        "failed": list(outcome.failed),
    }
    print(json.dumps(whole), file=out)


def _text(value: int | str) -> str:
    return f"{value:,}" if isinstance(value, int) else printable(value)


def _fail(name: str, text: str, code: int) -> int:
    _tell(name, text)
    return code


def _tell(name: str, text: str) -> None:
    print(f"orbitmq pipeline {name}: {printable(translated(' '.join(text.split())))}", file=sys.stderr)
