"""On a terminal sentences wrap at words and commands stay whole; scripts get one line."""

from __future__ import annotations

import io

import pytest

from orbitmq.cli.main import app
from orbitmq.cli.wrapping import remedy_lines, with_remedy, wrapped

LONG = "a reason of many words that does not fit into a line of a terminal by far, so it has to be wrapped"
COMMAND = "orbitmq group lag payments-of-a-long-name --topic Orders --watch 10 -n 10.0.0.1:9876"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_words_are_kept_and_lines_fit() -> None:
    lines = wrapped(LONG, 60, "  ").splitlines()
    assert max(map(len, lines)) <= 60
    assert " ".join(" ".join(lines).split()) == LONG


def test_a_command_in_a_sentence_is_not_broken() -> None:
    assert f"`{COMMAND}`" in wrapped(f"{LONG}: `{COMMAND}` and go on", 60).splitlines()


def test_a_remedy_that_is_a_command_can_be_copied_whole() -> None:
    assert remedy_lines(COMMAND, 60) == f"  {COMMAND}"
    assert len(remedy_lines(LONG, 60).splitlines()) == 2


def test_a_terminal_gets_two_paragraphs_and_a_script_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    assert with_remedy("it failed", COMMAND, io.StringIO()) == f"it failed; {COMMAND}"
    assert with_remedy("it failed", None, Terminal()) == "it failed"
    *printed, remedy = with_remedy(LONG, COMMAND, Terminal()).splitlines()
    assert (len(printed), remedy) == (2, f"  {COMMAND}")


def test_an_error_in_what_was_typed_wraps_and_keeps_commands_whole(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    monkeypatch.setattr("sys.stderr", screen := Terminal())
    with pytest.raises(SystemExit):
        app(["dlq", "billing"], prog_name="orbitmq")
    _, _, *error = [line for line in screen.getvalue().splitlines() if line]
    assert max(map(len, error)) <= 80
    assert any("`orbitmq msg resend --from-dlq GROUP`" in line for line in error)
