"""The promises of runtime.logging."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from orbitmq.runtime.logging import configure


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger("orbitmq")
    before = root.handlers, root.level, root.propagate
    stream = io.StringIO()
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
