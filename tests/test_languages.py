"""No text of the catalogue lacks a translation, and each translation has what its text has."""

from __future__ import annotations

from pathlib import Path

import pytest

from supply import texts

TEMPLATE = texts.template()


@pytest.mark.parametrize("path", texts.catalogues(), ids=lambda path: path.parents[1].name)
def test_every_text_is_translated(path: Path) -> None:
    found = texts.catalogue(path)
    assert {(one.id, one.context) for one in found if one.id} == {
        (one.id, one.context) for one in TEMPLATE if one.id
    }, "run make texts"
    assert list(texts.untranslated(found)) == []


@pytest.mark.parametrize("path", texts.catalogues(), ids=lambda path: path.parents[1].name)
def test_a_translation_has_the_placeholders_of_its_text(path: Path) -> None:
    assert list(texts.misplaced(texts.catalogue(path))) == []


def test_what_is_missing_or_misplaced_is_found() -> None:
    made = texts.Catalog(locale="zh_CN")
    made.add("{count} queues", "{count} 个队列")
    made.add("no {topic}", "没有 {group}")
    made.add("topics", "")
    made.add(("%(n)s member", "%(n)s members"), ("%(n)s 个成员",))
    made.add("brokers", "Broker", flags=["fuzzy"])
    assert list(texts.untranslated(made)) == ["topics", "brokers"]
    assert list(texts.misplaced(made)) == ["no {topic}"]
