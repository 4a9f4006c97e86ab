"""The language of texts for people: English, or Simplified Chinese by the catalogue `orbitmq/locale`.

English is what stands in the source. What programs read stays English: JSON, log lines, and everything on the wire,
because clients of RocketMQ compare remarks. A process may serve several languages at a time: the language is that of
the context, of a command as a whole or of one request of the web page.

Light: commands import it before they print help.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from functools import cache
from gettext import GNUTranslations, NullTranslations
from pathlib import Path
from typing import Final

ENGLISH: Final = "en"
CHINESE: Final = "zh_CN"
LANGUAGES: Final = {ENGLISH: "English", CHINESE: "简体中文"}
"""Language -> its own name."""
DOMAIN: Final = "orbitmq"
LOCALES: Final = Path(__file__).parents[1] / "locale"
"""`LANGUAGE/LC_MESSAGES/orbitmq.mo` below it is compiled from its `.po` when a wheel is built, and before tests."""

_TRADITIONAL: Final = {"hant", "tw", "hk", "mo"}
_RANGE: Final = re.compile(r"([A-Za-z0-9*-]+)\s*(?:;\s*q\s*=\s*([01](?:\.\d{0,3})?)\s*)?$")
_language: Final = ContextVar("orbitmq.language", default=ENGLISH)


def language() -> str:
    """The language of this context, `en` unless it was set."""
    return _language.get()


def set_language(name: str) -> None:
    """For the rest of this context and the tasks that it starts."""
    _language.set(name)


@contextmanager
def in_language(name: str) -> Iterator[None]:
    """For the time of the block."""
    token = _language.set(name)
    try:
        yield
    finally:
        _language.reset(token)


def html_tag(name: str) -> str:
    """As HTML and HTTP spell it: `zh-CN`."""
    return name.replace("_", "-")


def gettext(text: str) -> str:
    """The text in the language of this context; itself if the catalogue does not have it."""
    return catalogue(language()).gettext(text) if text else ""


def N_(text: str) -> str:  # noqa: N802 - the name that gettext's tools look for
    """The text itself: marks it for the catalogue where it is defined, to be translated where it is shown."""
    return text


def ngettext(singular: str, plural: str, count: int) -> str:
    """The form for this number, in the language of this context."""
    return catalogue(language()).ngettext(singular, plural, count)


@cache
def catalogue(name: str) -> NullTranslations:
    """The texts of a language: those of the source for English, and where no catalogue is compiled."""
    path = LOCALES / name / "LC_MESSAGES" / f"{DOMAIN}.mo"
    if name == ENGLISH or not path.is_file():
        return NullTranslations()
    with path.open("rb") as file:
        return GNUTranslations(file)


def of_environment(environment: Mapping[str, str]) -> str:
    """The language that a process speaks: by LANGUAGE, a list, unless the locale (LC_ALL, else LC_MESSAGES, else LANG)
    is C, as GNU gettext has it; English for one that is not in `LANGUAGES`.
    """
    locale = next(filter(None, map(environment.get, ("LC_ALL", "LC_MESSAGES", "LANG"))), "C")
    if locale.partition(".")[0] in ("C", "POSIX"):
        return ENGLISH
    wanted = environment.get("LANGUAGE") or locale
    return next(filter(None, map(_known, wanted.split(":"))), ENGLISH)


def of_header(accepted: str | None) -> str:
    """The best language for an Accept-Language header, English for None and for what cannot be read."""
    found = (_RANGE.fullmatch(one.strip()) for one in (accepted or "").split(","))
    ranges = [(float(one[2] or 1), one[1]) for one in found if one]
    ranges.sort(key=lambda one: -one[0])
    return next(filter(None, (_known(tag) for quality, tag in ranges if quality > 0)), ENGLISH)


def _known(tag: str) -> str | None:
    """The language of `LANGUAGES` for `zh_SG.UTF-8` or `zh-Hans`: readers of traditional characters get English."""
    name, *rest = re.split(r"[-_]", re.split(r"[.@]", tag.strip().lower())[0])
    if name == "zh":
        return None if _TRADITIONAL & set(rest) and "hans" not in rest else CHINESE
    return ENGLISH if name == ENGLISH else None
