"""What others have chosen is shown with marks for what is not seen."""

from __future__ import annotations

import json
import sys
import unicodedata

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.runtime.printable import printable, printable_json, readable_json

WRITING = {0x200C, 0x200D}
"""Joiners: languages and pictures are written with them."""
SEEN_FORMATS = {
    *range(0x600, 0x606), 0x6DD, 0x70F, 0x890, 0x891, 0x8E2, 0x110BD, 0x110CD, *range(0x13430, 0x13440)
}  # fmt: skip
"""Signs that span numbers in Arabic, Syriac and Kaithi, and joints of hieroglyphs."""


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("a\x00b\x07\x7f", "a␀b␇␡"),
        ("one\ntwo\t", "one␊two␉"),
        ("\u202egnp.exe", "⟨U+202E⟩gnp.exe"),
        ("pay\u200bpal\ufeff", "pay⟨U+200B⟩pal⟨U+FEFF⟩"),
        ("\x9b31m", "⟨U+009B⟩31m"),
        ("\ud800", "⟨U+D800⟩"),
        ("עברית 東京\u3000 👩\u200d🚀", "עברית 東京\u3000 👩\u200d🚀"),
        (7, "7"),
    ],
)
def test_what_cannot_be_seen_is_written_as_a_mark(text: object, shown: str) -> None:
    assert printable(text) == shown


def test_lines_of_a_body_stay() -> None:
    assert printable("one\n\ttwo\r\n\x1b[0m", lines=True) == "one\n\ttwo␍\n␛[0m"


def test_no_control_or_format_character_is_left() -> None:
    """Of all there are in Unicode, but those that writing needs."""
    for code in range(sys.maxunicode + 1):
        hidden = unicodedata.category(chr(code)) in ("Cc", "Cf", "Cs", "Zl", "Zp")
        if hidden and code not in WRITING | SEEN_FORMATS:
            assert printable(chr(code)) != chr(code), f"U+{code:04X}"
            assert printable_json(f'"x{chr(code)}"') != f'"x{chr(code)}"' or code < 0x20, f"U+{code:04X}"


VALUES = st.recursive(st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner), max_leaves=9)


@given(VALUES)
def test_json_means_the_same_with_readable_characters(value: object) -> None:
    assert json.loads(readable_json(json.dumps(value))) == value


def test_characters_that_json_has_escaped_are_shown() -> None:
    assert readable_json(r'{"\u4e66": "\uD83D\ude00 \u0041 \u0022 \u202E \\u4e66", "cut": "\u4e') == (
        r'{"书": "😀 A \" \u202e \\u4e66", "cut": "\u4e'
    )
    assert readable_json(r"\ud83d") == r"\ud83d", "half a character"


@given(VALUES)
def test_json_means_the_same(value: object) -> None:
    shown = printable_json(json.dumps(value, ensure_ascii=False))
    assert json.loads(shown) == value
    assert not any(unicodedata.category(sign) == "Cc" for sign in shown)
