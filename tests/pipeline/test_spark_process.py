"""Spark's JVM starts without a word of its own; what orbitmq logs in it and in its workers comes through."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace

import pytest
from py4j.protocol import Py4JError, Py4JNetworkError  # type: ignore[import-untyped]

from orbitmq.errors import ConfigurationError, SourceError
from orbitmq.pipeline import session as spark_session
from orbitmq.pipeline import spark_process
from orbitmq.pipeline.job import JobOptions
from orbitmq.pipeline.session import SUBMITTED, session_of
from orbitmq.pipeline.spark_process import StderrReader, launch
from tests.support.process import wait_until
from tests.support.spark_jvm import quick

START_TIMEOUT_S = 600  # many times what a session takes to start alone
SAID = b"WARNING: Using incubator modules\nevent=bodies_do_not_fit count=3\n\tat java.lang.Thread.run\n\xff event=x\n"
SESSION = """
import sys, time
from orbitmq.pipeline.job import JobOptions
from orbitmq.pipeline.session import session_of

def work(number):
    print("a worker's own words", file=sys.stderr)
    print("event=seen number=%d" % number, file=sys.stderr, flush=True)
    time.sleep(0 if number else 600)

quick = "spark.driver.memory=512m;spark.driver.extraJavaOptions=" + sys.argv[1]
with session_of("sample", JobOptions(master="local[1]", spark_conf=quick)) as spark:
    try:
        spark().range(1).where("nothing = 1")
    except Exception as error:
        print(type(error).__name__)
    print(spark().sparkContext.parallelize([1], 1).map(work).count(), flush=True)
    spark().sparkContext.parallelize([0], 1).map(work).count()
"""


@pytest.mark.parametrize(
    ("is_verbose", "told"),
    [(False, ["event=bodies_do_not_fit count=3"]), (True, SAID.decode(errors="replace").splitlines())],
)
def test_lines_of_orbitmq_are_passed_on_and_others_kept(is_verbose: bool, told: list[str]) -> None:
    ear, mouth = os.pipe()
    os.write(mouth, SAID)
    os.close(mouth)
    found: list[str] = []
    voice = StderrReader(ear, found.append, is_verbose=is_verbose)
    voice.run()
    assert found == told
    assert list(voice.last) == SAID.decode(errors="replace").splitlines()


def test_a_jvm_that_does_not_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho no heap for you >&2\nexit 1\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(tmp_path))
    with pytest.raises(
        ConfigurationError, match=r"^Spark does not start, which needs Java 17 or later: .*no heap for you"
    ):
        launch({"spark.master": "local[1]"}, is_verbose=False)


def test_spark_that_cannot_be_run_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SPARK_HOME", str(tmp_path))
    with pytest.raises(ConfigurationError, match=r"^Spark does not start \(.*spark-submit'\): it says nothing$"):
        launch({"spark.master": "local[1]"}, is_verbose=False)


def test_a_context_that_spark_refuses_is_one_sentence_and_leaves_no_jvm(monkeypatch: pytest.MonkeyPatch) -> None:
    words = "echo 'ERROR no port is free' >&2; echo '\tat java.lang.Thread.run' >&2; cat"
    started: list[subprocess.Popen[bytes]] = []

    def launched(_conf: object, streams: dict[str, int]) -> SimpleNamespace:
        started.append(subprocess.Popen(["sh", "-c", words], stdin=subprocess.PIPE, stderr=streams["stderr"]))
        return SimpleNamespace(proc=started[0])

    def refused(**_: object) -> None:
        raise Py4JError("An error occurred\n: the master is none\n\tat org.apache.spark.SparkContext")

    monkeypatch.setattr(spark_process, "launch_gateway", launched)
    monkeypatch.setattr(spark_process.SparkContext, "__init__", lambda _self, **given: refused(**given))
    for name in ("_gateway", "_jvm"):  # of the session that other tests share
        monkeypatch.setattr(spark_process.SparkContext, name, None)
    told = r"^Spark does not start \(An error occurred : the master is none\): ERROR no port is free$"
    with pytest.raises(ConfigurationError, match=told):
        launch({"spark.master": "none"}, is_verbose=False)
    assert started[0].returncode == 0


def test_a_python_that_cannot_be_is_refused_before_the_jvm_starts(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(SUBMITTED, raising=False)
    monkeypatch.setenv("PYSPARK_PYTHON", "./environment/bin/python")
    monkeypatch.setattr(spark_session.SparkContext, "_active_spark_context", None)
    monkeypatch.setattr(spark_session, "launch", lambda *_, **__: pytest.fail("the JVM was started"))
    with pytest.raises(SourceError, match="ORBITMQ_WORKER_PYTHON"), session_of("sample", JobOptions()) as spark:
        spark()


def test_a_session_is_silent_and_ends_with_one_interrupt(tmp_path: Path) -> None:
    """A query that fails and Ctrl-C in the middle of a task show neither stacks of Spark nor of py4j."""
    out, err = tmp_path / "out", tmp_path / "err"
    with out.open("wb") as to_out, err.open("wb") as to_err:
        child = subprocess.Popen([sys.executable, "-c", SESSION, quick()], stdout=to_out, stderr=to_err, cwd=tmp_path)
    try:
        wait_until(lambda: b"number=0" in err.read_bytes(), START_TIMEOUT_S, "the second task runs")
        child.send_signal(signal.SIGINT)
        assert child.wait(60) != 0
    finally:
        child.kill()
        child.wait()
    assert out.read_text() == "AnalysisException\n1\n"
    lines = err.read_text().splitlines()
    assert lines[:2] == ["event=seen number=1", "event=seen number=0"]
    assert lines[-1] == "KeyboardInterrupt"
    assert not [line for line in lines if re.search("ERROR|WARN|Exception|own words", line)]


def test_an_interruption_is_not_hidden_by_what_fails_after_it() -> None:
    """Spark's Python takes back the name of a call when it is left, and the JVM may not answer by then."""

    def interrupted() -> None:
        try:
            raise KeyboardInterrupt
        finally:
            raise Py4JNetworkError("Answer from Java side is empty")

    with pytest.raises(KeyboardInterrupt), session_of("sample", JobOptions()):
        interrupted()
    with pytest.raises(Py4JNetworkError), session_of("sample", JobOptions()):
        raise Py4JNetworkError("the JVM has ended")
