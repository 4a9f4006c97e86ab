"""The catalogue of texts for people: `make texts`. Knows where texts are, not what they say.

`python -m supply.texts` extracts every text of the package, brings the catalogue of each language up to date, compiles
it, and lists what lacks a translation; its exit code is 1 then. `--compile` only compiles.
"""

from __future__ import annotations

import argparse
import re
import sys
from collections.abc import Iterable, Iterator
from pathlib import Path

from babel.messages.catalog import Catalog, Message
from babel.messages.extract import DEFAULT_KEYWORDS, extract_from_dir
from babel.messages.mofile import write_mo
from babel.messages.pofile import read_po, write_po

from orbitmq.runtime.error_texts import CONTEXT
from orbitmq.runtime.languages import DOMAIN
from supply import error_texts, help_texts
from supply.locks import ROOT

PACKAGE = ROOT / "src" / "orbitmq"
LOCALES = PACKAGE / "locale"
HEADER = """\
# The texts of orbitmq in another language. `make texts` brings this file up to date.
msgid ""
msgstr ""
"Language: {language}\\n"
"Plural-Forms: {plural}\\n"
"Content-Type: text/plain; charset=utf-8\\n"

"""
"""Without dates and versions, which would change with every run."""
METHODS = [("**/templates/**.html", "jinja2"), ("**.py", "python")]
OPTIONS = {
    "**/templates/**.html": {
        "trimmed": "true", "newstyle_gettext": "true", "trim_blocks": "true", "lstrip_blocks": "true",
        "silent": "false", "encoding": "utf-8",
    }
}  # fmt: skip
"""As `orbitmq.dashboard.formats` sets up Jinja."""
_PLACEHOLDER = re.compile(r"%\(\w+\)[sd]|\{\w*\}|%[sd](?!\w)")


def template() -> Catalog:
    """Every text of the package, without translations."""
    made = Catalog(project=DOMAIN, domain=DOMAIN)
    for file, line, text, comments, context in extract_from_dir(
        PACKAGE, METHODS, OPTIONS, DEFAULT_KEYWORDS, ("Translators:",), strip_comment_tags=True
    ):
        made.add(text, None, [(file, line)], auto_comments=comments, context=context)
    for line, (file, text) in enumerate(help_texts.texts()):
        made.add(text, None, [(file, line)])
    for file, line, text in error_texts.templates(PACKAGE):
        made.add(text, None, [(file, line)], context=CONTEXT)
    return made


def catalogue(path: Path) -> Catalog:
    """What is in a `.po`."""
    with path.open("rb") as file:
        return read_po(file, locale=path.parents[1].name, domain=DOMAIN)


def catalogues() -> list[Path]:
    return sorted(LOCALES.glob(f"*/LC_MESSAGES/{DOMAIN}.po"))


def update(path: Path, texts: Catalog) -> Catalog:
    """Bring a catalogue up to date: new texts are without a translation, those that are gone are removed."""
    made = catalogue(path)
    made.update(texts, no_fuzzy_matching=True)
    made.obsolete.clear()
    with path.open("wb") as file:
        file.write(HEADER.format(language=path.parents[1].name, plural=made.plural_forms).encode())
        write_po(file, made, width=0, omit_header=True, include_lineno=False, sort_by_file=True)
    return made


def compile_stale() -> None:
    """Write each `.mo` that is older than its `.po`; other processes see the old one or the new one."""
    for path in catalogues():
        target = path.with_suffix(".mo")
        if not target.exists() or target.stat().st_mtime_ns < path.stat().st_mtime_ns:
            made = target.with_suffix(".new")
            with made.open("wb") as file:
                write_mo(file, catalogue(path))
            made.replace(target)


def untranslated(texts: Catalog) -> Iterator[str]:
    """The texts without a translation, or with one that nobody has confirmed."""
    for message in _messages(texts):
        if message.fuzzy or not all(_forms(message.string)):
            yield _forms(message.id)[0]


def misplaced(texts: Catalog) -> Iterator[str]:
    """The texts whose translation has other placeholders."""
    for message in _messages(texts):
        wanted = {name for form in _forms(message.id) for name in _PLACEHOLDER.findall(form)}
        # A form for one may leave the number out, and Chinese has one form for all numbers.
        if any(set(_PLACEHOLDER.findall(form)) != wanted for form in _forms(message.string) if form):
            yield _forms(message.id)[0]


def _messages(texts: Iterable[Message]) -> Iterator[Message]:
    return (message for message in texts if message.id)


def _forms(text: str | tuple[str, ...] | list[str] | None) -> tuple[str, ...]:
    """The forms of a text; of a new one, which has no translation, an empty one."""
    return (text,) if isinstance(text, str) else tuple(text or [""])


def main(arguments: list[str] | None = None) -> int:
    made = argparse.ArgumentParser(prog="python -m supply.texts", description=__doc__)
    made.add_argument("--compile", action="store_true", help="only compile")
    if made.parse_args(arguments).compile:
        compile_stale()
        return 0
    texts, lacking = template(), 0
    for path in catalogues():
        found = update(path, texts)
        for text in [*untranslated(found), *misplaced(found)]:
            print(f"{path.parents[1].name}: {text!r}")
            lacking += 1
        print(f"{path.parents[1].name}: {len(found)} texts, {lacking} without a right translation")
    compile_stale()
    return 1 if lacking else 0


if __name__ == "__main__":
    sys.exit(main())
