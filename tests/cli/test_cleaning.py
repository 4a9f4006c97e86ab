"""The promises of cli.cleaning: a terminal is not steered, and a pipe gets every byte."""

from __future__ import annotations

import io

from orbitmq.cli.cleaning import clean, safe

STEERING = "a\x1b]0;title\x07b\x9b31mc\r\n\tπ"


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_gets_text_only() -> None:
    screen, file = Terminal(), io.StringIO()
    for stream in (screen, file):
        print(STEERING, file=safe(stream), flush=True)
    assert screen.getvalue() == "a?]0;title?b?31mc?\n\tπ\n".replace("?", "\N{REPLACEMENT CHARACTER}")
    assert file.getvalue() == STEERING + "\n"
    assert clean("plain π") == "plain π"
