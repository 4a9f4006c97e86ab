"""The promises of runtime.logging."""

from __future__ import annotations

import contextvars
import io
import logging
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator

import pytest

from orbitmq.runtime import logging as log_lines
from orbitmq.runtime.logging import LineFormat, configure, flush, spare_this_thread


class Flushed(io.StringIO):
    """Read when everything has been written."""

    def getvalue(self) -> str:
        assert flush(30)
        return super().getvalue()


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger("orbitmq")
    before = root.handlers, root.level, root.propagate
    stream = Flushed()
    configure(stream, "info")
    yield stream
    root.handlers, root.level, root.propagate = before


def test_a_line_has_time_level_room_and_fact(lines: io.StringIO) -> None:
    logging.getLogger("orbitmq.broker.topics").info("event=topic_created topic=%s queues=%d", "orders", 8)
    pattern = (
        r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    broker\.topics event=topic_created topic=orders queues=8\n"
    )
    assert re.fullmatch(pattern, lines.getvalue())


def test_a_fact_stays_one_line_whatever_a_peer_writes_into_it(lines: io.StringIO) -> None:
    logging.getLogger("orbitmq.net").warning("event=refused remark=%s", "no\r\n2026-01-01 ERROR forged")
    assert lines.getvalue().count("\n") == 1
    assert "remark=no␍␊2026-01-01 ERROR forged" in lines.getvalue()


def test_no_text_of_a_peer_steers_the_terminal_that_shows_the_log(lines: io.StringIO) -> None:
    log, hostile = logging.getLogger("orbitmq.net"), "c\x1b]0;title\x07\x9b31m\u202egnp"
    log.warning("event=client_came client=%s", hostile)
    log.warning(f"event=client_came client={hostile}")  # noqa: G004 - ready texts come as well
    try:
        raise ValueError(hostile)
    except ValueError as error:
        log.error("event=handler_failed code=%d", 10, exc_info=error)
    text = lines.getvalue()
    assert all(sign.isprintable() or sign == "\n" for sign in text)
    assert text.count("c␛]0;title␇⟨U+009B⟩31m⟨U+202E⟩gnp") == 3
    assert "code=10\nTraceback" in text, "a stack keeps its lines"


def test_a_stack_that_another_handler_has_written_before_is_shown_by_marks_as_well() -> None:
    try:
        raise ValueError("c\x1b]0;title\x07")
    except ValueError:
        record = logging.LogRecord("orbitmq.net", logging.ERROR, "", 0, "fact", None, sys.exc_info())
    plain = logging.Formatter().format(record)
    assert "\x1b" in plain
    assert "\x1b" not in LineFormat().format(record)
    assert logging.Formatter().format(record) == plain, "the others' text is theirs"


def test_lines_below_the_level_are_not_written(lines: io.StringIO) -> None:
    logging.getLogger("orbitmq.store").debug("event=flushed")
    assert lines.getvalue() == ""


def test_the_stack_of_a_failure_is_kept(lines: io.StringIO) -> None:
    try:
        {}["missing"]
    except KeyError as error:
        logging.getLogger("orbitmq.net").error("event=handler_failed code=%d", 10, exc_info=error)
    assert "event=handler_failed code=10\nTraceback" in lines.getvalue()
    assert "KeyError: 'missing'" in lines.getvalue()


class Slow(io.StringIO):
    """A pipe that nobody reads until `is_read` is set."""

    def __init__(self) -> None:
        super().__init__()
        self.is_read = threading.Event()

    def write(self, text: str) -> int:
        self.is_read.wait(60)
        return super().write(text)


def test_a_daemon_does_not_wait_for_whoever_reads_its_log(lines: io.StringIO, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(log_lines, "WAITING_MAX", 100)
    pipe = Slow()
    configure(pipe)
    for number in range(200):  # returns, however long the pipe stays full
        logging.getLogger("orbitmq.broker").info("event=fact number=%d", number)
    pipe.is_read.set()
    assert flush(30)
    assert flush(), "the count of the dropped ones is a line itself"
    written = pipe.getvalue()
    kept = len(re.findall("event=fact", written))
    assert 100 <= kept <= 102
    assert f"event=log_records_dropped count={200 - kept}" in written


def _on_a_spared_thread(work: Callable[[], object]) -> None:
    def run() -> None:
        spare_this_thread()
        work()

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(10)
    assert not thread.is_alive(), "it waits"


class Locked(logging.Handler):
    """The application's, on the root logger."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str | None]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.getMessage(), threading.current_thread().name))


@pytest.mark.parametrize(
    ("name", "where"),
    [
        ("orbitmq.client.consumer", ""),
        ("orbitmq.client.consumer", "orbitmq"),
        ("orbitmq.client.consumer", "orbitmq.client.consumer"),
        ("asyncio", ""),
        ("asyncio", "asyncio"),
        ("concurrent.futures", ""),
    ],
)
def test_a_spared_thread_does_not_wait_for_the_lock_of_a_handler(name: str, where: str) -> None:
    handler, owner, logger = Locked(), logging.getLogger(where), logging.getLogger(name)

    def write() -> None:
        for number in range(3):
            logger.error("event=%d", number)

    owner.addHandler(handler)
    try:
        with handler.lock or threading.RLock():
            _on_a_spared_thread(write)
            assert handler.seen == []
        assert flush(30)
        assert handler.seen == [(f"event={number}", "orbitmq-log") for number in range(3)]
        logger.error("event=here")
        assert handler.seen[3:] == [("event=here", threading.current_thread().name)], "others write as ever"
    finally:
        owner.removeHandler(handler)


def test_a_handler_that_fails_keeps_no_later_record_from_the_others(capsys: pytest.CaptureFixture[str]) -> None:
    class Failing(logging.Handler):
        def handle(self, record: logging.LogRecord) -> bool:
            raise ValueError(record.getMessage())

    logger, failing, handler = logging.getLogger("orbitmq.failing"), Failing(), Locked()
    logger.addHandler(failing)
    _on_a_spared_thread(lambda: logger.error("first"))
    assert flush(30)
    logger.removeHandler(failing)
    logger.addHandler(handler)
    _on_a_spared_thread(lambda: logger.error("second"))
    assert flush(30)
    logger.removeHandler(handler)
    assert [text for text, _ in handler.seen] == ["second"]
    assert "ValueError: first" in capsys.readouterr().err


AT_EXIT = """
import logging, os, sys, threading
from orbitmq.runtime.logging import spare_this_thread
logging.basicConfig(stream=sys.stdout, format="%(process)d %(message)s")
logger = logging.getLogger("orbitmq.fork")
def write(text):
    spare_this_thread()
    for number in range(500):
        logger.error("%s %d", text, number)
def on_a_thread(text):
    thread = threading.Thread(target=write, args=(text,))
    thread.start()
    thread.join()
on_a_thread("parent")
if os.fork() == 0:
    on_a_thread("child")
else:
    os.wait()
"""


def test_what_was_written_before_the_end_of_a_process_is_not_lost_and_a_forked_child_writes_its_own() -> None:
    done = subprocess.run(
        [sys.executable, "-c", AT_EXIT], capture_output=True, text=True, timeout=60, check=True, env={**os.environ}
    )
    lines = done.stdout.splitlines()
    parent = [line for line in lines if " parent " in line]
    child = [line for line in lines if " child " in line]
    assert [line.split()[-1] for line in parent] == [str(number) for number in range(500)]
    assert [line.split()[-1] for line in child] == [str(number) for number in range(500)]
    assert {line.split()[0] for line in parent}.isdisjoint(line.split()[0] for line in child)


DAEMON = """
import asyncio, logging
from orbitmq.cli.daemons import run_until_stopped
async def main(stopped):
    for number in range(20_000):
        logging.getLogger("orbitmq.broker").info("event=fact number=%d %s", number, "-" * 100)
    print("the loop goes on", flush=True)
    await stopped.wait()
    print("stopped", flush=True)
run_until_stopped(main, "info")
"""


def test_a_daemon_whose_log_nobody_reads_goes_on_and_stops() -> None:
    nobody_reads, log = os.pipe()
    command = [sys.executable, "-c", DAEMON]
    with subprocess.Popen(command, stderr=log, stdout=subprocess.PIPE, text=True) as daemon:
        os.close(log)
        assert daemon.stdout is not None
        assert daemon.stdout.readline() == "the loop goes on\n"
        daemon.send_signal(signal.SIGTERM)
        assert daemon.stdout.readline() == "stopped\n"
        assert daemon.wait(60) == 0
    os.close(nobody_reads)


NAME: contextvars.ContextVar[str] = contextvars.ContextVar("NAME", default="none")


class Leaving(logging.Handler):
    """Ends the process, as it believes, at the first record."""

    def __init__(self) -> None:
        super().__init__()
        self.seen: list[tuple[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.seen.append((record.getMessage(), NAME.get()))
        if len(self.seen) == 1:
            raise SystemExit(3)


@pytest.fixture
def leaving() -> Iterator[Leaving]:
    handler = Leaving()
    logging.getLogger().addHandler(handler)
    yield handler
    logging.getLogger().removeHandler(handler)


def test_a_handler_that_exits_keeps_no_later_record_from_the_others(leaving: Leaving) -> None:
    log = logging.getLogger("orbitmq.client")
    _on_a_spared_thread(lambda: (log.error("first"), log.error("second")))
    assert flush(10)
    assert [text for text, _name in leaving.seen] == ["first", "second"]


def test_a_handler_sees_the_context_in_which_a_record_was_written(leaving: Leaving) -> None:
    log = logging.getLogger("orbitmq.client")
    _on_a_spared_thread(lambda: (NAME.set("order 7"), log.error("fact")))
    assert flush(10)
    assert leaving.seen == [("fact", "order 7")]
