"""The language of a process and of a request, and texts in it."""

from __future__ import annotations

import asyncio
from pathlib import Path

import pytest
from babel.messages.catalog import Catalog
from babel.messages.mofile import write_mo

from orbitmq.runtime import languages
from orbitmq.runtime.languages import (
    CHINESE,
    ENGLISH,
    gettext,
    html_tag,
    in_language,
    language,
    ngettext,
    of_environment,
    of_header,
)


@pytest.fixture
def _chinese(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A catalogue with two texts."""
    made = Catalog(locale=CHINESE)
    made.add("topic", "主题")
    made.add(("{n} queue", "{n} queues"), ("{n} 个队列",))
    place = tmp_path / CHINESE / "LC_MESSAGES" / "orbitmq.mo"
    place.parent.mkdir(parents=True)
    with place.open("wb") as file:
        write_mo(file, made)
    monkeypatch.setattr(languages, "LOCALES", tmp_path)
    monkeypatch.setattr(languages, "catalogue", languages.catalogue.__wrapped__)


@pytest.mark.parametrize(
    ("environment", "chosen"),
    [
        ({}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8"}, CHINESE),
        ({"LANG": "zh_SG.UTF-8"}, CHINESE),
        ({"LANG": "zh_TW.UTF-8"}, ENGLISH),
        ({"LANG": "de_DE.UTF-8"}, ENGLISH),
        ({"LANG": "en_US.UTF-8", "LC_MESSAGES": "zh_CN"}, CHINESE),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "en_US.UTF-8"}, ENGLISH),
        ({"LANG": "de_DE.UTF-8", "LANGUAGE": "de:zh_CN:en"}, CHINESE),
        ({"LANG": "zh_CN.UTF-8", "LANGUAGE": "en:zh"}, ENGLISH),
        ({"LANG": "C.UTF-8", "LANGUAGE": "zh_CN"}, ENGLISH),
        ({"LANGUAGE": "zh_CN"}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": "C"}, ENGLISH),
        ({"LANG": "zh_CN.UTF-8", "LC_ALL": ""}, CHINESE),
    ],
)
def test_the_language_of_a_process_is_that_of_its_locale(environment: dict[str, str], chosen: str) -> None:
    assert of_environment(environment) == chosen


@pytest.mark.parametrize(
    ("header", "chosen"),
    [
        (None, ENGLISH),
        ("", ENGLISH),
        ("zh-CN,zh;q=0.9,en;q=0.8", CHINESE),
        ("zh-Hans-SG", CHINESE),
        ("zh", CHINESE),
        ("en-US,en;q=0.9,zh;q=0.8", ENGLISH),
        ("en;q=0.3, zh-CN;q=0.7", CHINESE),
        ("fr-FR, zh;q=0.1", CHINESE),
        ("zh-TW,zh;q=0.5", CHINESE),
        ("zh-Hant-HK", ENGLISH),
        ("zh;q=0", ENGLISH),
        ("*", ENGLISH),
        ("zh;q=seven,, ;", ENGLISH),
    ],
)
def test_the_language_of_a_request_is_the_best_of_its_header(header: str | None, chosen: str) -> None:
    assert of_header(header) == chosen


@pytest.mark.usefixtures("_chinese")
def test_texts_are_in_the_language_of_the_context() -> None:
    assert (language(), gettext("topic"), ngettext("{n} queue", "{n} queues", 2)) == (ENGLISH, "topic", "{n} queues")
    with in_language(CHINESE):
        assert (language(), gettext("topic"), ngettext("{n} queue", "{n} queues", 1)) == (CHINESE, "主题", "{n} 个队列")
        assert (gettext("not in the catalogue"), gettext("")) == ("not in the catalogue", "")
    assert gettext("topic") == "topic"


@pytest.mark.usefixtures("_chinese")
async def test_tasks_of_one_process_have_languages_of_their_own() -> None:
    both = asyncio.Barrier(2)

    async def text(name: str) -> str:
        with in_language(name):
            await both.wait()
            return gettext("topic")

    assert await asyncio.gather(text(ENGLISH), text(CHINESE)) == ["topic", "主题"]


def test_pages_spell_a_language_as_html_does() -> None:
    assert [html_tag(name) for name in languages.LANGUAGES] == ["en", "zh-CN"]


def test_without_a_compiled_catalogue_texts_are_english(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(languages, "LOCALES", tmp_path)
    monkeypatch.setattr(languages, "catalogue", languages.catalogue.__wrapped__)
    with in_language(CHINESE):
        assert gettext("topic") == "topic"
