"""The promises of runtime.logging."""

from __future__ import annotations

import io
import logging
import re
from collections.abc import Iterator

import pytest

from orbitmq.runtime.logging import Log, configure


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    root = logging.getLogger("orbitmq")
    before = root.handlers, root.level, root.propagate
    stream = io.StringIO()
    configure(stream, "info")
    yield stream
    root.handlers, root.level, root.propagate = before


def test_a_line_has_time_level_room_sentence_and_fields(lines: io.StringIO) -> None:
    Log("orbitmq.broker.topics").info("topic created", topic="orders", queues=8)
    pattern = r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}Z INFO    broker\.topics: topic created topic=orders queues=8\n"
    assert re.fullmatch(pattern, lines.getvalue())


@pytest.mark.parametrize(
    ("value", "text"),
    [
        ("a b", '"a b"'),
        ("", '""'),
        ("two\nlines", r'"two\nlines"'),
        ('say "x"', r'"say \"x\""'),
        (("127.0.0.1", 9876), "127.0.0.1:9876"),
        (OSError("disk full"), '"OSError: disk full"'),
        ("北京", "北京"),
    ],
)
def test_a_fact_stays_one_line_and_a_value_one_word(lines: io.StringIO, value: object, text: str) -> None:
    Log("orbitmq.store").warning("fact", field=value)
    assert lines.getvalue().endswith(f"store: fact field={text}\n")
    assert lines.getvalue().count("\n") == 1


def test_lines_below_the_level_are_not_written(lines: io.StringIO) -> None:
    Log("orbitmq.store").debug("fact")
    assert lines.getvalue() == ""


def test_the_stack_of_a_bug_is_kept(lines: io.StringIO) -> None:
    try:
        {}["missing"]
    except KeyError:
        Log("orbitmq.net").bug("handler failed", code=10)
    assert "handler failed code=10" in lines.getvalue()
    assert "KeyError: 'missing'" in lines.getvalue()


def test_fields_reach_the_handlers_of_an_embedding_application(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level("INFO", logger="orbitmq"):
        Log("orbitmq.broker").info("started", port=10911)
    assert caplog.records[0].msg.fields == {"port": 10911}
    assert caplog.records[0].filename == "test_logging.py"
