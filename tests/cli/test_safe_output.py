"""The promises of cli.cleaning: a terminal is not steered, and a pipe gets every byte."""

from __future__ import annotations

import io

from orbitmq.cli.safe_output import safe, shown

STEERING = "a\x1b]0;title\x07b\x9b31mc\r\n\tπ"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_text_only() -> None:
    screen, file = Terminal(), io.StringIO()
    for stream in (screen, file):
        print(STEERING, file=safe(stream), flush=True)
    assert screen.getvalue() == "a␛]0;title␇b⟨U+009B⟩31mc␍\n\tπ\n"
    assert file.getvalue() == STEERING + "\n"


def test_texts_for_people_are_shown_through_a_pipe_as_well() -> None:
    file = io.StringIO()
    print(STEERING, file=shown(file))
    assert file.getvalue() == "a␛]0;title␇b⟨U+009B⟩31mc␍\n\tπ\n"
