"""Texts of large tables are those of the ordinary writers, whatever changes in between."""

from __future__ import annotations

from typing import Any

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.message.config import DataVersion, SubscriptionGroup, TopicConfig
from orbitmq.message.javajson import dumps_pretty
from orbitmq.wire import table_texts
from orbitmq.wire.bodies import SubscriptionGroupTable, TopicTable
from orbitmq.wire.objects import encode, plain
from orbitmq.wire.table_texts import TableTexts

NAMES = st.text(min_size=1, max_size=8)
TOPICS = st.dictionaries(NAMES, st.builds(TopicConfig, NAMES, st.integers(0, 9), st.integers(0, 9)))
GROUPS = st.dictionaries(NAMES, st.builds(SubscriptionGroup, NAMES, retry_max=st.integers(0, 9)))
VERSIONS = st.builds(DataVersion, st.integers(0, 1 << 40), st.integers(0, 1 << 40))


def assert_same(texts: TableTexts[Any], version: DataVersion, table: dict[str, Any], whole: Any) -> None:
    for _ in ("unknown", "known"):
        text = texts.of(version, table)
        assert text.compact().encode() == encode(whole)
        assert text.pretty() == dumps_pretty(plain(whole))
        texts.keep(table)
    assert texts.size == sum(len(entry.compact) for entry in texts._known.values())
    assert texts._known.keys() == table.keys()


@given(st.lists(st.tuples(VERSIONS, TOPICS), max_size=4))
def test_topics(tables: list[tuple[DataVersion, dict[str, TopicConfig]]]) -> None:
    texts: TableTexts[TopicConfig] = TableTexts("topicConfigTable")
    for version, table in tables:
        assert_same(texts, version, table, TopicTable(version, table))


@given(VERSIONS, GROUPS)
def test_groups(version: DataVersion, table: dict[str, SubscriptionGroup]) -> None:
    texts: TableTexts[SubscriptionGroup] = TableTexts("subscriptionGroupTable")
    assert_same(texts, version, table, SubscriptionGroupTable(version, table))


def test_an_entry_is_written_once(monkeypatch: Any) -> None:
    written = []
    write = table_texts._written
    monkeypatch.setattr(table_texts, "_written", lambda name, value: (written.append(name), write(name, value))[1])
    texts: TableTexts[TopicConfig] = TableTexts("topicConfigTable")
    table = {f"T{number}": TopicConfig(f"T{number}") for number in range(1000)}
    for _ in range(3):
        texts.keep(table)
        texts.of(DataVersion(), table).compact()
        texts.of(DataVersion(), table).pretty()
    table["T5"] = TopicConfig("T5", 1, 1)
    texts.write("T5", table["T5"])
    texts.of(DataVersion(), table).compact()
    assert len(written) == 1001


def test_a_text_is_that_of_its_moment_whatever_changes_before_it_is_written() -> None:
    texts: TableTexts[TopicConfig] = TableTexts("topicConfigTable")
    table = {f"T{number}": TopicConfig(f"T{number}") for number in range(5)}
    texts.keep(table)
    text, then = texts.of(DataVersion(1), table), dict(table)
    texts.write("T1", TopicConfig("T1", 1, 1))
    texts.forget("T2")
    table.clear()
    assert text.compact().encode() == encode(TopicTable(DataVersion(1), then))
    assert "T2" not in texts._known, "who writes a text adds nothing to what is known"
