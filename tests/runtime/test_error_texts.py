"""Errors are recognised by what does not vary, and what varies is kept, or translated if it is an error itself."""

from __future__ import annotations

from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from orbitmq.runtime import error_texts, languages
from orbitmq.runtime.error_texts import CONTEXT, templates, translated
from orbitmq.runtime.languages import CHINESE, in_language

TEXTS = {
    "no {thing}": "没有{thing}",
    "there is no topic {topic}": "没有主题 {topic}",
    "there is no topic {topic} at {broker}": "{broker} 上没有主题 {topic}",
    "{address}: connection refused": "{address} 拒绝连接",
    "none of the name servers responds: {reasons}": "没有 NameServer 应答：{reasons}",
    "use one of {names}": "请使用 {names} 之一",
    "{{braces}} around {name}": "{name} 外面有 {{braces}}",
    "{name} is not {name}": "{name} 不是 {name}",
    "{count} queues": "{count} 个队列",
    "not yet consumed by {group}": "尚未被 {group} 消费",
    "; the last error is {error}": "；最后的错误是 {error}",
    "(and {found} more)": "（还有 {found} 项）",
    "{n} messages": "{n} 条消息",
    "lost ({reasons})": "丢失（{reasons}）",
    "{address} is no name server but {kind}": "{address} 不是 NameServer，而是 {kind}",
}


@pytest.fixture(autouse=True)
def _catalogue(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = Catalog(locale=CHINESE)
    for text, translation in TEXTS.items():
        made.add(text, translation, context=CONTEXT)
    made.add("topic", "主题")
    place = tmp_path / CHINESE / "LC_MESSAGES" / "orbitmq.mo"
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        write_mo(file, made)
    monkeypatch.setattr(languages, "LOCALES", tmp_path)
    monkeypatch.setattr(error_texts, "catalogue", languages.catalogue.__wrapped__)
    monkeypatch.setattr(error_texts, "templates", templates.__wrapped__)


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("there is no topic Orders", "没有主题 Orders"),
        ("there is no topic Orders at broker-a", "broker-a 上没有主题 Orders"),
        ("10.0.0.1:9876: connection refused", "10.0.0.1:9876 拒绝连接"),
        (
            "none of the name servers responds: 10.0.0.1:9876: connection refused",
            "没有 NameServer 应答：10.0.0.1:9876 拒绝连接",
        ),
        ("there is no topic Orders; use one of a, b", "没有主题 Orders；请使用 a, b 之一"),
        ("orders: there is no topic Orders", "orders：没有主题 Orders"),
        (
            "there is no topic Orders; not yet consumed by a; not yet consumed by b.",
            "没有主题 Orders；尚未被 a 消费；尚未被 b 消费。",
        ),
        ("not yet consumed by a; the last error is E; F", "尚未被 a 消费；最后的错误是 E; F"),
        ("there is no topic Orders (and 5 more)", "没有主题 Orders（还有 5 项）"),
        ("{braces} around x", "x 外面有 {braces}"),
        ("a is not a", "a 不是 a"),
        ("use one of 1,204 messages", "请使用 1,204 条消息 之一"),
        ("use one of few messages", "请使用 few messages 之一"),
        ("lost (10.0.0.1:9876 is no name server but x)", "丢失（10.0.0.1:9876 不是 NameServer，而是 x）"),
        ("a is not b", "a is not b"),
        ("something else; and this: too", "something else; and this: too"),
        ("", ""),
        ("topic", "topic"),
    ],
)
def test_an_error_is_translated_with_what_varies(text: str, chinese: str) -> None:
    with in_language(CHINESE):
        assert translated(text) == chinese


def test_in_english_a_text_stays_as_it_is() -> None:
    assert translated("there is no topic Orders") == "there is no topic Orders"


@pytest.mark.parametrize(
    ("text", "chinese"),
    [
        ("there is no topic a, 3 queues", "没有主题 a、3 个队列"),
        ("there is no topic Orders ...", "没有主题 Orders ..."),
    ],
)
def test_a_short_template_takes_no_list_and_no_remedy_for_a_value(text: str, chinese: str) -> None:
    with in_language(CHINESE):
        assert translated(text) == chinese


def test_a_text_of_many_parts_takes_no_long_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """The web page shows errors of brokers, and of what anyone typed, while it serves others."""
    tries, made = list[str](), error_texts.templates

    def counted(name: str) -> list[error_texts.Template]:
        tries.append(name)
        return made(name)

    monkeypatch.setattr(error_texts, "templates", counted)
    text = "a: b, c. d: e, f. " * 6
    with in_language(CHINESE):
        assert translated(text) == text.strip()
        assert len(tries) < 1000, "without memory of what was tried, 90,000"
        tries.clear()
        assert translated("no such thing " * 1000).startswith("no such thing")
    assert not tries
