"""The promises of every noun and verb: a schema of its answer, examples in its help, nothing heavy for help."""

from __future__ import annotations

import re
import subprocess
import sys
from collections import Counter
from importlib import import_module

import pytest
from typer import Context, Typer
from typer.core import TyperGroup
from typer.main import get_command
from typer.testing import CliRunner

from orbitmq.admin.envelope import rfc3339
from orbitmq.cli.lazy_commands import NOUNS, SECTIONS
from orbitmq.cli.main import app
from orbitmq.cli.verbs import RESULT_COLUMNS
from reference.schemas import KINDS, item_of, schema
from tests.cli.test_main import HEAVY, MODULES_MAX

APPS: dict[str, Typer] = {name: import_module(f"orbitmq.cli.nouns.{name}").app for name in NOUNS}
VERBS = [
    (name, str(command.name or command.callback.__name__))
    for name, noun in APPS.items()
    for command in noun.registered_commands
    if command.callback
]
OUR_KINDS = [kind for kind in RESULT_COLUMNS if not kind.startswith("Thing")]  # those are of the tests of verbs


@pytest.mark.parametrize("kind", OUR_KINDS)
def test_each_answer_has_a_schema_that_knows_every_column(kind: str) -> None:
    assert kind in KINDS, "name its items in reference.schemas"
    described = schema(kind, item_of(kind))
    for column in RESULT_COLUMNS[kind]:
        place = described["properties"]["items"]["items"]
        for part in column.partition("=")[2].split("."):
            place = _resolved(place, described["$defs"])
            assert part in place.get("properties", {}) or "additionalProperties" in place, f"{kind}: {column}"
            place = place.get("properties", {}).get(part, {})


def _resolved(place: dict[str, object], definitions: dict[str, dict[str, object]]) -> dict[str, object]:
    """What a reference, or the first alternative that is one, stands for."""
    for alternative in (place, *place.get("anyOf", ())):  # type: ignore[misc]
        if "$ref" in alternative:
            return definitions[str(alternative["$ref"]).rpartition("/")[2]]
    return place


@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_each_verb_shows_how_it_is_called(name: str, verb: str) -> None:
    command = next(one for one in APPS[name].registered_commands if (one.name or one.callback.__name__) == verb)  # type: ignore[union-attr]
    text = command.callback.__doc__ or ""
    words = name if verb == name else f"{name} {verb}"
    assert f"orbitmq {words}" in text.partition("Examples:")[2]


@pytest.mark.parametrize(("name", "verb"), VERBS)
def test_no_flag_of_a_verb_is_taken_twice(name: str, verb: str) -> None:
    noun = get_command(APPS[name])
    command = noun.commands[verb] if isinstance(noun, TyperGroup) else noun
    flags = Counter(flag for one in command.params for flag in (*one.opts, *one.secondary_opts))
    assert [flag for flag, times in flags.items() if times > 1] == []


@pytest.mark.parametrize("name", NOUNS)
def test_help_of_a_noun_loads_nothing_heavy(name: str) -> None:
    program = (
        "import sys\n"
        "from orbitmq.cli.main import main\n"
        f"sys.argv = ['orbitmq', '{name}', '--help']\n"
        "try: main()\n"
        "finally: print(*sys.modules, file=sys.stderr)"
    )
    ended = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    loaded = ended.stderr.split()
    assert len(loaded) < MODULES_MAX
    assert not set(HEAVY) & set(loaded)


def test_a_time_no_calendar_has_is_not_told() -> None:
    assert (rfc3339(0), rfc3339(-1), rfc3339(1 << 62)) == ("1970-01-01T00:00:00.000Z", None, None)


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (["lag"], "ORBITMQ LAG UNKNOWN - Missing argument 'GROUP'."),
        (["lag", "g", "-w", "many"], "ORBITMQ LAG UNKNOWN - Invalid value for '-w'"),
        (["disk", "--loud"], "ORBITMQ DISK UNKNOWN - No such option"),
        (["nothing"], "ORBITMQ CHECK UNKNOWN - No such command 'nothing'."),
        ([], "ORBITMQ CHECK UNKNOWN - name a check: orbitmq check -h"),
    ],
)
def test_a_check_that_is_called_wrongly_is_unknown_and_not_critical(words: list[str], told: str) -> None:
    result = CliRunner().invoke(app, ["check", *words], prog_name="orbitmq")
    assert (result.exit_code, result.stdout.startswith(told)) == (3, True), result.stdout


def test_help_lists_every_command_in_a_section() -> None:
    listed = [name for names, _ in SECTIONS.values() for name in names]
    assert sorted(listed) == sorted(get_command(app).list_commands(Context(get_command(app))))


@pytest.mark.parametrize("noun", ["", "health", "store", *NOUNS])
def test_every_summary_fits_a_narrow_terminal(noun: str) -> None:
    shown = CliRunner().invoke(app, [*noun.split(), "--help"], terminal_width=80, prog_name="orbitmq").stdout
    assert not re.findall(r"^  [a-z-]+ .*\.\.\.$", shown, re.MULTILINE)
