"""The promises of what all verbs share: formats, exit codes, confirmation, partial answers, streams."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Annotated, Any

import pytest
import typer
import yaml
from msgspec import Struct
from typer.testing import CliRunner

from orbitmq.admin.plans import Change, Plan, Step, StepOutcome, Value
from orbitmq.admin.results import Result, failure_of
from orbitmq.admin.session import Session
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.cli import output, undo_files
from orbitmq.cli.execution import Aside
from orbitmq.cli.verbs import changes, feeds, noun, reads, streams
from orbitmq.errors import (
    AdminError,
    BadArgument,
    BrokerError,
    Conflict,
    ConnectError,
    NotFound,
    OrbitMQError,
    RemotingTimeout,
)
from orbitmq.wire.codes import ResponseCode

app = noun("thing", "Things of the test.")
COLUMNS = ("NAME=name", "SIZE=sizeBytes", "SEEN=seenAtMs", "+OWNER=owner.name")
LONG = "n" * 300
ERRORS: dict[str, tuple[OrbitMQError, int]] = {
    "not-found": (NotFound("there is no thing", "orbitmq thing list"), 3),
    "forbidden": (BrokerError(ResponseCode.NO_PERMISSION, "no"), 4),
    "unreachable": (ConnectError("127.0.0.1:1: refused"), 5),
    "late": (RemotingTimeout("no answer in 5 s"), 6),
    "conflict": (Conflict("it is there already"), 7),
    "other": (AdminError("cannot be"), 1),
    "unknown topic": (BrokerError(ResponseCode.TOPIC_NOT_EXIST, "No topic"), 3),
}
values: dict[str, Value] = {}


class Owner(Struct, frozen=True, rename="camel"):
    name: str


class Thing(Struct, frozen=True, rename="camel"):
    name: str
    size_bytes: int | None
    seen_at_ms: int | None
    owner: Owner


THINGS = [
    Thing("one", 2048, 1_795_000_000_000, Owner("Ada")),
    Thing(LONG, None, None, Owner("Bob\x1b[31m")),
]


@reads(app, "list", "ThingList", COLUMNS)
async def things(_session: Session, fails: Annotated[str | None, typer.Option("--fails")] = None) -> Result[Thing]:
    """Things."""
    if fails == "partly":
        return Result(THINGS[:1], ["look twice"], [failure_of("broker-b (127.0.0.1:2)", ConnectError("refused"))])
    if fails == "check":
        return Result(THINGS[:1], check_failed=True)
    if fails is not None:
        raise ERRORS[fails][0]
    return Result(list(THINGS))


@feeds(app, "send", "Thing", COLUMNS)
async def send(_session: Session) -> AsyncIterator[Thing]:
    """Send a thing."""
    values["sent"] = 1
    yield THINGS[0]


@streams(app, "tail", "Thing", COLUMNS)
async def tail(
    _session: Session, aside: Aside, fails: Annotated[bool, typer.Option("--fails")] = False
) -> AsyncIterator[Thing]:
    """Things as they come."""
    for one in THINGS:
        yield one
    if fails:
        aside.warning("look twice")
        aside.failure(failure_of("broker-b (127.0.0.1:2)", ConnectError("refused")))


@feeds(app, "feed", "Thing", COLUMNS)
async def feed(_session: Session) -> AsyncIterator[Thing]:
    """Things as they are made."""
    for one in THINGS:
        values[one.name] = "made"
        yield one


@changes(app, "set")
async def set_(
    _session: Session,
    name: Annotated[str, typer.Argument()],
    value: Annotated[str, typer.Argument()],
    destroys: Annotated[bool, typer.Option("--destroys")] = False,
    breaks: Annotated[bool, typer.Option("--breaks")] = False,
    forgets: Annotated[bool, typer.Option("--forgets")] = False,
) -> Plan:
    """Set a thing."""

    async def make() -> None:
        if breaks:
            raise BrokerError(1, "it broke")
        if not forgets:
            values[name] = value

    async def read_back() -> Value:
        return values.get(name)

    step = Step("broker-a", "set", name, values.get(name), value)
    undo = {"command": "thing undo", "old": values.get(name)} if destroys else None
    return Plan(f"set {name}", [Change(step, make, read_back)], destroys=name if destroys else None, undo=undo)


@pytest.fixture(autouse=True)
def own_files(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for name in ("NAMESRV_ADDR", "ORBITMQ_CONTEXT", "ORBITMQ_CONFIG", "ORBITMQ_ACCESS_KEY", "ROCKETMQ_HOME"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    values.clear()


def run(*arguments: str, code: int = 0) -> Any:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return result


def test_a_table_through_a_pipe_cuts_nothing_and_steers_no_terminal() -> None:
    told = run("list", "-o", "wide").stdout
    heading, one, long = told.splitlines()
    assert heading.split() == ["NAME", "SIZE", "SEEN", "OWNER"]
    assert "2.0 KiB" in one
    assert LONG in long
    assert "\x1b" not in told
    assert "OWNER" not in run("list").stdout


class _Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def test_a_terminal_of_80_columns_shows_reasons_and_commands_whole(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "80")
    terminal, reason = _Terminal(), " ".join(f"word{number}" for number in range(30))
    found = Result([Finding(Severity.CRITICAL, "stuck", "payments", reason, "orbitmq group why payments --watch 10")])
    columns = ("SEVERITY=severity", "REASON=message", "COMMAND=remedy")
    output.write("GroupDiagnosis", found, columns, "table", cluster=None, now_ms=0, stream=terminal)
    _, *rows = terminal.getvalue().splitlines()  # the heading is bold
    assert max(map(len, rows)) <= 80
    words = terminal.getvalue().split()
    assert "critical" in words
    assert set(reason.split()) | {"payments", "--watch", "10"} <= set(words), "nothing is cut"


def on_terminal(kind: str, items: list[Any], columns: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> str:
    monkeypatch.setenv("COLUMNS", "80")
    terminal = _Terminal()
    output.write(kind, Result(items), columns, "table", cluster=None, now_ms=0, stream=terminal)
    return terminal.getvalue()


def test_a_table_that_is_too_wide_for_a_terminal_is_shown_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = tuple(f"HEADING {number}=name" for number in range(12))
    lines = on_terminal("ThingList", [THINGS[0], THINGS[0]], columns, monkeypatch).splitlines()
    assert lines[0] == "HEADING 0   one"
    assert (len(lines), lines[12]) == (25, ""), "a line for each value, and an empty one between"


def test_a_name_that_is_too_long_for_a_terminal_is_folded(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "n" * 70
    things = [Thing(one, 2048, None, Owner("Ada")) for one in (name, "two", "three")]
    shown = on_terminal("ThingList", things, ("NAME=name", "SIZE=sizeBytes", "OWNER=owner.name"), monkeypatch)
    assert max(len(line) for line in shown.splitlines()[1:]) <= 80
    assert "\x1b[1mNAME" in shown, "a table"
    assert shown.count("n") == len(name), "nothing is cut"
    assert "2.0 KiB" in shown


def test_a_table_in_which_words_would_break_everywhere_is_shown_as_records(monkeypatch: pytest.MonkeyPatch) -> None:
    things = [Thing(f"{number}.example.org:10911", 2048, None, Owner("n" * 60)) for number in range(3)]
    shown = on_terminal("ThingList", things, ("NAME=name", "SIZE=sizeBytes", "OWNER=owner.name"), monkeypatch)
    assert shown.splitlines()[:4] == ["NAME   0.example.org:10911", "SIZE   2.0 KiB", f"OWNER  {'n' * 60}", ""]


def test_words_and_numbers_of_a_table_stay_whole_while_sentences_wrap(monkeypatch: pytest.MonkeyPatch) -> None:
    name, owner = "n" * 32, "a sentence of many short words that takes the room which others leave"
    columns = ("NAME=name", "SIZE=sizeBytes", "OWNER=owner.name")
    _, first, *_ = on_terminal("ThingList", [Thing(name, 2048, None, Owner(owner))], columns, monkeypatch).splitlines()
    assert first.split("  ")[:2] == [name, "2.0 KiB"]


def test_a_terminal_says_so_if_there_is_nothing_to_show(monkeypatch: pytest.MonkeyPatch) -> None:
    columns = ("TOPIC=topic", "QUEUES=writeQueues")
    assert on_terminal("ThingList", [], columns, monkeypatch) == "nothing to show\n"
    assert "`orbitmq topic create TOPIC` creates one" in on_terminal("TopicList", [], columns, monkeypatch)
    script = io.StringIO()
    output.write("TopicList", Result[Any]([]), columns, "table", cluster=None, now_ms=0, stream=script)
    assert script.getvalue() == "TOPIC  QUEUES\n"


def test_json_has_an_envelope_with_both_forms_of_time() -> None:
    told = json.loads(run("list", "-o", "json").stdout)
    assert {key: value for key, value in told.items() if key != "items" and not key.startswith("generated")} == {
        "apiVersion": "orbitmq/v1", "kind": "ThingList", "cluster": None, "partial": False,
        "warnings": [], "errors": [],
    }  # fmt: skip
    first, second = told["items"]
    assert first == {
        "name": "one", "sizeBytes": 2048, "owner": {"name": "Ada"},
        "seenAtMs": 1_795_000_000_000, "seenAt": "2026-11-18T11:06:40.000Z",
    }  # fmt: skip
    assert (second["sizeBytes"], second["seenAt"], second["name"]) == (None, None, LONG)
    assert yaml.safe_load(run("list", "-o", "yaml").stdout)["items"] == told["items"]
    assert [json.loads(one) for one in run("list", "-o", "jsonl").stdout.splitlines()] == told["items"]


def test_the_other_formats() -> None:
    rows = list(csv.reader(io.StringIO(run("list", "-o", "csv").stdout)))
    assert rows[:2] == [["NAME", "SIZE", "SEEN", "OWNER"], ["one", "2048", "1795000000000", "Ada"]]
    assert run("list", "-o", "name").stdout.splitlines() == ["one", LONG]
    assert run("list", "-o", "template=$name of $owner_name").stdout.splitlines()[0] == "one of Ada"
    assert "-o xml: use one of table" in run("list", "-o", "xml", code=2).stderr


@pytest.mark.parametrize("fails", ERRORS)
def test_each_failure_has_its_exit_code_and_is_told_in_json(fails: str) -> None:
    error, code = ERRORS[fails]
    told = run("list", "--fails", fails, code=code)
    assert told.stdout == ""
    assert told.stderr.startswith("orbitmq thing list: ")
    in_json = json.loads(run("list", "--fails", fails, "-o", "json", code=code).stdout)
    assert (in_json["items"], len(in_json["errors"])) == ([], 1)
    if isinstance(error, NotFound):
        assert "orbitmq thing list" in told.stderr


def test_a_part_is_told_as_a_part() -> None:
    told = run("list", "--fails", "partly", "-o", "json", code=5)
    answer = json.loads(told.stdout)
    assert (answer["partial"], answer["errors"][0]["target"]) == (True, "broker-b (127.0.0.1:2)")
    assert (answer["errors"][0]["name"], answer["errors"][0]["retryable"]) == ("UNREACHABLE", True)
    assert answer["warnings"] == ["look twice"]
    assert "broker-b (127.0.0.1:2): UNREACHABLE" in told.stderr
    assert run("list", "--fails", "partly", "-q", code=5).stderr == ""


def test_a_check_that_says_no_is_no_failure_to_ask() -> None:
    assert json.loads(run("list", "--fails", "check", "-o", "json", code=8).stdout)["partial"] is False


def test_a_stream_is_a_line_an_item() -> None:
    lines = run("tail", "-o", "jsonl").stdout.splitlines()
    assert [json.loads(line)["name"] for line in lines] == ["one", LONG]


def test_a_stream_is_written_in_every_format_item_by_item() -> None:
    objects = [json.loads(line) for line in run("tail", "-o", "jsonl").stdout.splitlines()]
    assert [json.loads(line) for line in run("tail", "-o", "json").stdout.splitlines()] == objects
    assert list(yaml.safe_load_all(run("tail", "-o", "yaml").stdout)) == objects
    assert run("tail", "-o", "csv").stdout == run("list", "-o", "csv").stdout
    assert "Ada" in run("tail", "-o", "wide").stdout.splitlines()[0]
    assert "Ada" not in run("tail").stdout


def test_a_stream_that_misses_a_node_goes_on_and_says_so_in_its_exit_code() -> None:
    told = run("tail", "-o", "jsonl", "--fails", code=5)
    assert [json.loads(line)["name"] for line in told.stdout.splitlines()] == ["one", LONG]
    assert told.stderr.startswith("warning: look twice\nbroker-b (127.0.0.1:2): UNREACHABLE: refused")
    assert run("tail", "--fails", "-q", code=5).stderr == ""


def outcomes(told: Any) -> list[str]:
    return [item["outcome"] for item in json.loads(told.stdout)["items"]]


def test_a_change_is_shown_made_and_read_back() -> None:
    assert outcomes(run("set", "a", "1", "--dry-run", "-o", "json")) == [StepOutcome.PLANNED]
    assert values == {}
    assert outcomes(run("set", "a", "1", "--yes", "-o", "json")) == [StepOutcome.CONFIRMED]
    assert outcomes(run("set", "a", "2", "--yes", "--no-verify", "-o", "json")) == [StepOutcome.DONE]
    assert outcomes(run("set", "a", "2", "--yes", "-o", "json")) == [StepOutcome.UNCHANGED]
    assert outcomes(run("set", "a", "2", "--fail-if-unchanged", "-o", "json", code=10)) == [StepOutcome.UNCHANGED]
    assert outcomes(run("set", "a", "3", "--yes", "--forgets", "-o", "json", code=8)) == [StepOutcome.NOT_APPLIED]
    assert outcomes(run("set", "a", "3", "--yes", "--breaks", "-o", "json", code=1)) == [StepOutcome.FAILED]
    assert values == {"a": "2"}


@changes(app, "several")
async def several(_session: Session) -> Plan:
    """Three steps, and Ctrl-C in the second."""

    async def make() -> None:
        if values:
            raise KeyboardInterrupt
        values["first"] = 1

    return Plan("set three", [Change(Step("broker-a", "set", name, None, 1), make) for name in ("a", "b", "c")])


def test_an_interrupted_change_tells_what_was_done() -> None:
    """One step that was made, one that nobody knows about, one that was not begun."""
    told = json.loads(run("several", "--yes", "-o", "json", code=130).stdout)
    assert [(step["subject"], step["outcome"]) for step in told["items"]] == [("a", "done"), ("c", "skipped")]
    assert "set b was interrupted" in told["warnings"][0]


def test_nothing_is_done_that_nobody_confirms() -> None:
    assert "--yes" in run("set", "a", "1", code=9).stderr
    assert values == {}


def test_an_undo_file_is_there_before_the_change() -> None:
    values["a"] = "old"
    told = run("set", "a", "new", "--destroys", "--yes")
    words = told.stderr.split("to undo it: orbitmq ")[1].splitlines()[0].split()
    assert words[:2] == ["thing", "undo"]
    assert undo_files.load(Path(words[2]), "thing undo")["old"] == "old"


def test_an_undo_command_has_a_line_of_its_own_on_a_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    values["a"] = "old"
    monkeypatch.setattr("sys.stderr", screen := _Terminal())
    with pytest.raises(SystemExit):
        app(["set", "a", "new", "--destroys", "--yes"])
    title, command, *_ = screen.getvalue().splitlines()
    assert title == "to undo it:"
    assert command.startswith("  orbitmq thing undo /")
    assert command.endswith(".json")


def test_an_undo_file_that_cannot_be_read_says_where_they_are(tmp_path: Path) -> None:
    with pytest.raises(BadArgument, match=r"no\.json: No such file or directory") as caught:
        undo_files.load(tmp_path / "no.json", "thing undo")
    assert str(caught.value.hint).startswith("undo files are in /")


@pytest.mark.parametrize(("flag", "code", "word"), [("readonly", 4, "readonly"), ("protected", 9, "protected")])
def test_a_context_can_forbid_changes(tmp_path: Path, flag: str, code: int, word: str) -> None:
    (tmp_path / "orbitmq").mkdir(exist_ok=True)
    (tmp_path / "orbitmq" / "config.toml").write_text(f'current = "p"\n[contexts.p]\n{flag} = true\n')
    assert word in run("set", "a", "1", "--yes", code=code).stderr
    assert word in run("send", code=code).stderr
    assert values == {}


def test_a_readonly_context_lets_nothing_be_sent(tmp_path: Path) -> None:
    (tmp_path / "orbitmq").mkdir(exist_ok=True)
    (tmp_path / "orbitmq" / "config.toml").write_text('current = "p"\n[contexts.p]\nreadonly = true\n')
    assert "readonly" in run("feed", code=4).stderr
    assert values == {}
    assert run("tail").stdout
    assert "\x1b" not in run("tail").stdout
    (tmp_path / "orbitmq" / "config.toml").write_text('current = "p"\n[contexts.p]\n')
    assert run("feed").stdout == run("tail").stdout
