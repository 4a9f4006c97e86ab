"""Wide characters take two columns, and lines end where they may."""

from __future__ import annotations

import re

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.runtime.wide_text import width, wrapped


def test_a_wide_character_takes_two_columns() -> None:
    assert [width(text) for text in ("topic", "主题", "主题 a", "“x”")] == [5, 4, 6, 5]


@pytest.mark.parametrize(
    ("text", "columns", "lines"),
    [
        ("消费者组没有在线的成员", 10, ["消费者组没", "有在线的成", "员"]),
        ("主题，没有队列", 4, ["主", "题，", "没有", "队列"]),
        ("用 --name-server 指定", 16, ["用 --name-server", "指定"]),
        ("默认（见上文）", 8, ["默认（见", "上文）"]),
        ("a-word-that-is-longer 主题", 8, ["a-word-that-is-longer", "主题"]),
        ("", 8, [""]),
    ],
)
def test_lines_end_between_any_two_of_them_but_not_before_punctuation(
    text: str, columns: int, lines: list[str]
) -> None:
    assert wrapped(text, columns) == lines


@example("[[[[` `。））", 12)
@given(st.text("主题消费 abc，。（）[]-`", max_size=80), st.integers(12, 40))
def test_nothing_is_lost_and_no_line_is_too_long(text: str, columns: int) -> None:
    lines = wrapped(text, columns)
    assert "".join("".join(lines).split()) == "".join(text.split())
    assert all(width(line) <= columns or " " not in re.sub("`[^`]*`", "", line) for line in lines)
