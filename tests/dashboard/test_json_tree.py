"""JSON folds, loses nothing, and brings no markup of its own."""

from __future__ import annotations

import json
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st
from markupsafe import Markup

from orbitmq.dashboard.json_tree import DEPTH_MAX, NODES_MAX, OPEN_DEPTH, json_tree

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(alphabet=st.characters(categories=("L", "N", "P", "Zs"))),
    lambda inner: (
        st.lists(inner, max_size=4) | st.dictionaries(st.text(alphabet="ab<&\"'", max_size=3), inner, max_size=4)
    ),
    max_leaves=20,
)


def words(tree: Markup) -> list[str]:
    """Its texts in order, without the sizes of objects and lists."""
    plain = re.sub(r'<span class="soft">[^<]*</span>', "<>", tree)
    return [text for text in (Markup(one).unescape().strip() for one in re.split(r"<[^>]*>", plain)) if text]


def test_every_key_and_value_stands_in_it_as_written() -> None:
    tree = json_tree(
        '{"price": 9.50, "big": 12345678901234567890, "ok": true, "none": null, "list": ["a\\nb", {}, []]}'
    )
    assert tree is not None
    assert words(tree) == [
        "{", "}", '"price"', ":", "9.50", '"big"', ":", "12345678901234567890",
        '"ok"', ":", "true", '"none"', ":", "null",
        '"list"', ":", "[", "]", '"a\\nb"', "{}", "[]",
    ]  # fmt: skip


def test_objects_and_lists_fold_and_the_deeper_ones_are_folded() -> None:
    tree = json_tree('{"a": {"b": {"c": {"d": [1]}}}}')
    assert tree is not None
    assert tree.count("<details") == 5
    assert tree.count("<details open>") == OPEN_DEPTH
    assert "1 field" in tree
    assert "1 element" in tree


@given(VALUES.filter(lambda value: isinstance(value, (dict, list)) and value))
def test_what_is_in_it_is_never_markup(value: object) -> None:
    tree = json_tree(json.dumps(value))
    assert tree is not None
    tags = set(re.findall(r"</?([a-z]+)", tree))
    assert tags <= {"details", "summary", "ul", "li", "span"}


@pytest.mark.parametrize("text", ["", "12", '"text"', "{", "order 7", "[" * 100_000])
def test_other_texts_are_no_tree(text: str) -> None:
    assert json_tree(text) is None


def test_what_is_too_large_or_too_deep_is_no_tree() -> None:
    assert json_tree(json.dumps(list(range(NODES_MAX - 1)))) is not None
    assert json_tree(json.dumps(list(range(NODES_MAX)))) is None
    assert json_tree("[" * (DEPTH_MAX - 1) + "]" * (DEPTH_MAX - 1)) is not None
    assert json_tree("[" * (DEPTH_MAX + 1) + "]" * (DEPTH_MAX + 1)) is None


def test_invisible_characters_are_marks() -> None:
    tree = json_tree(json.dumps({"a": "x\u202ey"}, ensure_ascii=False))
    assert tree is not None
    assert "⟨U+202E⟩" in tree
