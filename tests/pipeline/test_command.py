"""The command line of the jobs: flags from the tables, errors in one line, exit codes."""

from __future__ import annotations

import io
import json
import shlex
from dataclasses import dataclass
from pathlib import Path

import pytest

from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.pipeline import command
from orbitmq.pipeline.job import JOBS, Job, JobContext, JobEntry, JobOptions, JobResult, job_named
from orbitmq.pipeline.progress import LINE_SECONDS, _lines
from orbitmq.runtime.options import option


@dataclass(frozen=True)
class SampleOptions(JobOptions):
    name_server: str = option("nameServer", "", "Where.")
    rows: int = option("batchRows", 7, "How many.", minimum=1)
    kind: str = option("kind", "a", "Which.", choices=("a", "b"))


def run(context: JobContext[SampleOptions]) -> JobResult:
    options = context.options
    if options.name_server == "broken":
        raise RuntimeError("Py4JJavaError\n  at x\norbitmq.errors.SourceError: ORBITMQ_DATA_LOSS: 3 are gone\n at y")
    if options.name_server == "wrong":
        raise SourceError("ORBITMQ_BAD_OPTION", "option nameServer is wrong")
    if options.name_server == "no python":
        raise SourceError("ORBITMQ_WORKER_PYTHON", "it is none")
    if options.name_server == "refused":
        raise ConfigurationError("option kind does not suit")
    if options.name_server == "slow":
        raise KeyboardInterrupt
    if options.name_server == "broken off":
        try:
            raise KeyboardInterrupt
        finally:
            raise RuntimeError("the JVM does not answer")
    if options.name_server == "mute":
        raise RuntimeError(
            "Py4JJavaError\n at x\norg.apache.spark.SparkException: Python worker failed to connect back."
        )
    if options.name_server == "a bug":
        raise RuntimeError("Py4JJavaError\n at x")
    with context.progress("sample", "rows") as advance:
        advance(1, 2)
    table: list[dict[str, int | str]] = [{"topic": "orders", "messages": 1234}, {"topic": "x", "messages": 1}]
    failed = ["x: somebody else was faster"] if options.dry_run else []
    return JobResult({"messages": options.rows, "kind": options.kind}, table, failed)


JOB: Job[SampleOptions] = Job(
    "sample", "What it does.", SampleOptions, run, ("--name-server x",), "the next run goes on"
)


@pytest.fixture(autouse=True)
def sample(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(JOBS, "sample", JobEntry(__name__, "A sample."))


def test_flags_are_those_of_the_options(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sample", "--batch-rows", "12345", "--kind", "b"]) == 0
    out, err = capsys.readouterr()
    assert out == "topic   messages\norders  1,234\nx       1\n\nmessages  12,345\nkind      b\n"
    assert err == ""


def test_a_file_gives_options_and_flags_go_before_it(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "job.properties"
    file.write_text("batchRows=3\nkind=b\n")
    assert command.main(["sample", "-c", str(file), "--batch-rows", "5"]) == 0
    assert "messages  5\nkind      b\n" in capsys.readouterr().out
    file.write_text("batchRow=3\n")
    assert command.main(["sample", "-c", str(file)]) == 2
    assert "has no option batchRow;" in capsys.readouterr().err


def test_the_closing_table_as_json(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sample", "--json"]) == 0
    printed = json.loads(capsys.readouterr().out)
    assert printed["counts"] == {"messages": 7, "kind": "a"}
    assert printed["table"][0] == {"topic": "orders", "messages": 1234}
    assert printed["failed"] == []


def test_what_could_not_be_done_is_said_and_is_the_exit_code(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sample", "--dry-run"]) == 1
    assert "orbitmq pipeline sample: x: somebody else was faster\n" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "code", "text"),
    [
        ("broken", 1, "orbitmq pipeline sample: ORBITMQ_DATA_LOSS: 3 are gone\n"),
        ("wrong", 2, "orbitmq pipeline sample: ORBITMQ_BAD_OPTION: option nameServer is wrong\n"),
        ("no python", 2, "orbitmq pipeline sample: ORBITMQ_WORKER_PYTHON: it is none\n"),
        ("refused", 2, "orbitmq pipeline sample: option kind does not suit\n"),
        ("slow", 130, "orbitmq pipeline sample: interrupted; the next run goes on\n"),
        ("broken off", 130, "orbitmq pipeline sample: interrupted; the next run goes on\n"),
    ],
)
def test_an_error_is_one_line(capsys: pytest.CaptureFixture[str], given: str, code: int, text: str) -> None:
    assert command.main(["sample", "--name-server", given]) == code
    assert capsys.readouterr().err == text


@pytest.mark.parametrize(
    ("flags", "variable", "culprit"),
    [
        (("--master", "sc://host:15002/;token=hush"), "", "option master"),
        (("--spark-conf", "spark.remote=sc://host/;token=hush"), "", "option sparkConf"),
        (("--spark-conf", "spark.api.mode=connect"), "", "option sparkConf"),
        ((), "sc://host/;token=hush", "the environment variable SPARK_REMOTE"),
    ],
)
@pytest.mark.parametrize("job", ["compact", "rebuild", "archive"])
def test_spark_connect_is_refused_at_the_start_with_the_remedy(
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
    job: str,
    flags: tuple[str, ...],
    variable: str,
    culprit: str,
) -> None:
    if variable:
        monkeypatch.setenv("SPARK_REMOTE", variable)
    assert command.main([job, *flags]) == 2, "before options that are missing"
    error = capsys.readouterr().err
    assert f"pipeline {job}: {culprit} selects Spark Connect, and jobs do not run there; run the job" in error
    assert "hush" not in error


def test_what_spark_says_of_its_surroundings_is_put_plainly(capsys: pytest.CaptureFixture[str]) -> None:
    assert command.main(["sample", "--name-server", "mute"]) == 1
    told = capsys.readouterr().err
    assert told.startswith("orbitmq pipeline sample: a Python process of Spark did not start in time; ")
    assert told.count("\n") == 1


def test_a_bug_keeps_its_stack() -> None:
    with pytest.raises(RuntimeError, match="Py4JJavaError"):
        command.main(["sample", "--name-server", "a bug"])


@pytest.mark.parametrize(
    ("arguments", "text"),
    [
        (["nothing"], "unknown job nothing; the jobs are archive, "),
        (["sample", "--batch-rows", "0"], "batchRows"),
        ([], ""),
    ],
)
def test_wrong_usage_is_named(capsys: pytest.CaptureFixture[str], arguments: list[str], text: str) -> None:
    assert command.main(arguments) == 2
    assert text in capsys.readouterr().err


def test_an_unknown_flag_is_named(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as ending:
        command.main(["sample", "--batch-row", "3"])
    assert ending.value.code == 2
    assert "--batch-row" in capsys.readouterr().err


@pytest.mark.parametrize("name", ["archive", "audit", "dlq", "migrate", "replay"])
def test_name_servers_have_the_short_flag_of_other_commands(name: str) -> None:
    for flag in ("-n", "--name-server"):
        assert vars(command.parser(job_named(name)).parse_args([flag, "a:1;b:2"]))["nameServer"] == "a:1;b:2"


@pytest.mark.parametrize("name", [name for name in JOBS if name != "sample"])
def test_every_job_tells_what_it_does(name: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Its help names every option, and its examples are arguments it takes."""
    job = job_named(name)
    text = command.parser(job).format_help()
    assert job.name == name
    assert job.examples
    for key in job.options.table():
        assert command.flag(key) in text
    for example in job.examples:
        command.parser(job).parse_args(shlex.split(example))
    assert JOBS[name].summary.endswith(".")
    assert job.again, "whoever interrupts it is told what the next run does"


def test_a_log_gets_a_line_now_and_then() -> None:
    stream, now = io.StringIO(), [0.0]
    with _lines("archive", "messages", stream, lambda: now[0]) as advance:
        advance(1, 10)
        now[0] = LINE_SECONDS
        advance(5000, 10_000)
        advance(6000, 10_000)
    assert stream.getvalue() == "archive: 5,000 of 10,000 messages\n"


@pytest.mark.parametrize(
    ("key", "flag"),
    [("nameServer", "--name-server"), ("useTLS", "--use-tls"), ("tls.client.checkHost", "--tls-client-check-host")],
)
def test_keys_become_flags(key: str, flag: str) -> None:
    assert command.flag(key) == flag
