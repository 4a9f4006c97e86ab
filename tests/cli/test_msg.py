"""What `orbitmq msg` does without a cluster: ids that are read, flags that are refused."""

from __future__ import annotations

import pytest

from tests.support.commands import items, orbitmq


def test_ids_are_read() -> None:
    place, made, key = items(
        "msg", "decode", "7F00000100002A9F00000000001E8480", "7F0000011A2B18B4AAC21D9C4F000007", "k"
    )
    assert (place["kind"], place["place"]) == (
        "offset",
        {"host": "127.0.0.1", "port": 10911, "commitLogOffset": 2_000_000},
    )
    assert (made["kind"], made["made"]["ip"], made["made"]["pid"], made["made"]["counter"]) == (
        "unique",
        "127.0.0.1",
        0x1A2B,
        7,
    )
    assert (key["kind"], key["place"], key["made"]) == ("key", None, None)
    assert orbitmq("msg", "decode", "k", "-o", "name").stdout == "key\n"


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("msg", "query", "T", "--offset", "5"), "--offset needs --broker and --queue"),
        (("msg", "query", "T", "--property", "x"), "--property x: use NAME=VALUE"),
        (("msg", "show", "x", "--body", "xml"), "--body xml: use none or one of auto, text, json, hex, base64"),
        (("msg", "show", "x", "--charset", "klingon"), "there is no charset klingon"),
        (("msg", "tail", "T", "--from", "-99999"), "at most the last 10000"),
        (("msg", "tail", "T", "-f", "%x"), "%x is not a field of a format"),
        (("msg", "send", "T", "x", "--queue", "1"), "--broker and --queue name a queue together"),
        (("msg", "resend", "x", "--client", "c"), "a client is a member of a group; give --group"),
        (("msg", "resend", "x", "--to", "T", "--group", "g"), "to a topic or to a group, not to both"),
    ],
)
def test_flags_that_make_no_sense_are_refused_before_anybody_is_asked(words: tuple[str, ...], told: str) -> None:
    ended = orbitmq(*words, "-n", "127.0.0.1:1", code=2)
    assert told in ended.stderr


def test_bytes_that_are_no_text_are_read_as_they_are() -> None:
    ended = orbitmq("msg", "send", "T", "-n", "127.0.0.1:1", typed=b"caf\xe9\n", code=5)
    assert "no name server responds" in ended.stderr
