"""What people type leads somewhere: words of other tools, help in any place, flags before the command, former names of
flags; and every help text fits a terminal of 80 columns.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import Any

import pytest
from typer import Context
from typer.core import TyperGroup
from typer.main import get_command

from orbitmq.cli.main import app
from orbitmq.cli.words import COMMANDS, MOVED, RENAMED, VERBS, leading, renamed
from orbitmq.testing.cluster import Cluster
from tests.support.commands import items, orbitmq

COLUMNS = 80
PROGRAM: Any = get_command(app)
OF_ANOTHER_PROGRAM = {"pipeline", "mqadmin"}
"""Commands that write their own help."""


def walked(command: Any, words: tuple[str, ...] = ()) -> Iterator[tuple[tuple[str, ...], Any]]:
    yield words, command
    if isinstance(command, TyperGroup):
        context = Context(command)
        for name in command.list_commands(context):
            if name not in OF_ANOTHER_PROGRAM:
                yield from walked(command.get_command(context, name), (*words, name))


ALL = dict(walked(PROGRAM))


@pytest.mark.parametrize("words", ALL, ids=" ".join)
def test_every_help_fits_80_columns_and_nothing_is_cut(words: tuple[str, ...], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(COLUMNS))
    shown = Context(ALL[words], info_name=" ".join(("orbitmq", *words))).get_help()  # a CliRunner has 2 columns more
    lines = shown.splitlines()
    assert [line for line in lines if len(line) > COLUMNS] == []
    assert "…" not in shown
    usage = next(at for at, line in enumerate(lines) if not line)
    assert [line for line in lines[usage:] if re.search(r"\.\.\.$", line)] == [], "the end of a sentence is cut"


def test_help_has_a_section_for_each_thing_people_want_with_an_example() -> None:
    sections = re.findall(r"^([A-Z][a-z ]+):\n(.*?)(?=\n\n|\Z)", orbitmq("--help").stdout, re.MULTILINE | re.DOTALL)
    found = dict(sections)
    for title in ("Messages", "Topics", "Groups", "Cluster", "Run", "Data"):
        (example,) = re.findall(r"^ *\$ orbitmq (.*)$", found[title], re.MULTILINE)
        words = [word for word in example.split() if not word.startswith("-")]
        assert (*words[:2],) in ALL or (*words[:1],) in ALL or words[0] in OF_ANOTHER_PROGRAM, example


@pytest.mark.parametrize(
    ("words", "shows"),
    [
        ("help", "Usage: orbitmq [OPTIONS] COMMAND"),
        ("help topic create", "Usage: orbitmq topic create"),
        ("topic help", "Usage: orbitmq topic [OPTIONS] COMMAND"),
        ("topic help create", "Usage: orbitmq topic create"),
        ("help broker", "Usage: orbitmq broker"),
        ("broker config help set", "Usage: orbitmq broker config set"),
    ],
)
def test_help_is_a_word_in_any_place(words: str, shows: str) -> None:
    assert orbitmq(*words.split()).stdout.startswith(shows)


@pytest.mark.parametrize(
    ("words", "proposed"),
    [
        ("produce Orders hello", "orbitmq msg send TOPIC BODY"),
        ("consume Orders", "orbitmq msg tail TOPIC"),
        ("tail Orders", "orbitmq msg tail TOPIC"),
        ("dlq billing", "orbitmq msg resend --from-dlq GROUP"),
        ("status", "orbitmq cluster overview"),
        ("describe Orders", "orbitmq topic status TOPIC"),
        ("topics", "orbitmq topic list"),
        ("topix", "orbitmq topic"),
        ("broker run", "orbitmq broker`"),
        ("broker set flushDiskType=SYNC_FLUSH", "orbitmq broker config"),
        ("grup list", "orbitmq group"),
        ("clusterList", "orbitmq mqadmin clusterList"),
        ("topic describe Orders", "orbitmq topic status"),
        ("group status billing", "orbitmq group progress"),
        ("topic ls", "orbitmq topic list"),
        ("msg produce", "orbitmq msg send"),
        ("topic crate Orders", "orbitmq topic create"),
        ("broker config get", "orbitmq broker config show"),
    ],
)
def test_another_word_leads_to_the_command(words: str, proposed: str) -> None:
    printed = orbitmq(*words.split(), code=2)
    assert (
        f"Use `{proposed}" in printed.stderr
        or f"or `{proposed}" in printed.stderr
        or f", `{proposed}" in printed.stderr
    )


def test_a_word_without_any_likeness_is_only_refused() -> None:
    assert orbitmq("xyzzy", code=2).stderr.endswith("No such command 'xyzzy'.\n")


@pytest.mark.parametrize(
    ("words", "remedy"),
    [
        ("msg find --key order-1", "ID|KEY is an argument: leave --key out"),
        ("offset reset --group g --topic t", "GROUP is an argument: leave --group out"),
        ("group why -g g", "GROUP is an argument: leave -g out"),
        ("msg find Orders order-1", "choose a topic with --topic"),
        ("offset show billing Orders", "choose a topic with --topic"),
        ("group why billing Orders", "Got unexpected extra argument(s) (Orders"),
        ("offset reset g t --to-latest", "use --to with a value"),
        ("offset reset g t --to", "Option '--to' requires an argument."),
        ("msg tail T --frm begin", "Possible options: --format, --from"),
    ],
)
def test_a_wrong_flag_or_argument_leads_to_what_is_meant(words: str, remedy: str) -> None:
    shown = orbitmq(*words.split(), code=2).stderr
    assert shown.rstrip(")\n").endswith(remedy)
    assert remedy.startswith("Possible") or "Possible" not in shown


@pytest.mark.parametrize("proposal", sorted(set(COMMANDS.values())))
def test_every_proposal_is_a_command(proposal: str) -> None:
    for words in re.findall(r"orbitmq ((?:[a-z-]+ ?)+)", proposal):
        path = tuple(words.split())
        assert path[:2] in ALL or path[:1] in ALL or path[0] == "--version", proposal


def test_every_verb_that_is_proposed_exists_somewhere() -> None:
    verbs = {words[-1] for words in ALL if words}
    assert {verb for verbs_of in VERBS.values() for verb in verbs_of} <= verbs


@pytest.mark.parametrize("command", RENAMED)
def test_a_former_name_of_a_flag_is_accepted_and_not_shown(command: str) -> None:
    words = tuple(command.split())
    leaves = [path for path in ALL if path[: len(words)] == words and not isinstance(ALL[path], TyperGroup)]
    assert leaves
    for leaf in leaves:
        flags = {flag for option in ALL[leaf].params for flag in option.opts}
        for old, new in RENAMED[command].items():
            assert new.partition("=")[0] in flags, f"{leaf} has no {new}"
            assert old not in flags
            assert renamed(" ".join(leaf), [old, f"{old}=x", "--", old]) == [new, f"{new}=x", "--", old]


def test_flags_that_may_stand_before_the_command_are_told_apart() -> None:
    taken = ["-n", "a:1", "--name-server=b:1", "-ojson", "-q", "--timeout", "3"]
    assert leading([*taken, "topic", "-n", "c:1"]) == (taken, ["topic", "-n", "c:1"])
    assert leading(["--version"]) == ([], ["--version"])
    assert leading(["-n"]) == (["-n"], [])


def test_every_reading_command_has_the_flags_that_may_stand_before_it() -> None:
    flags = {flag for option in ALL["topic", "list"].params for flag in option.opts}
    assert set(MOVED) <= flags


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        running.create_topic("Orders", 1)
        orbitmq("group", "create", "billing", "-n", running.namesrv_address)
        yield running


@pytest.mark.parametrize("form", ["before", "between", "after", "mixed"])
def test_flags_of_connection_and_output_may_stand_anywhere(form: str, cluster: Cluster) -> None:
    at = ["--name-server", cluster.namesrv_address, "-o", "name"]
    words = {
        "before": [*at, "topic", "list"],
        "between": ["topic", *at, "list"],
        "after": ["topic", "list", *at],
        "mixed": ["-q", *at[:2], "topic", *at[2:], "list"],
    }[form]
    assert orbitmq(*words).stdout == "Orders\n"


def test_former_flags_still_work(cluster: Cluster) -> None:
    at = ("-n", cluster.namesrv_address)
    assert items("msg", "query", "Orders", "--begin", "@2h", *at) == []
    assert orbitmq("wait", "topic", "Orders", "--for", "exists", "--within", "0", *at).exit_code == 0
    assert orbitmq("check", "connection", "--format", "json", *at).stdout.startswith("{")


@pytest.mark.parametrize(
    ("words", "meant"),
    [
        ("topic status Orderz", "Orders"),
        ("topic alter orders --queues 2", "Orders"),
        ("topic delete Order", "Orders"),
        ("msg tail Ordres -e", "Orders"),
        ("msg send Ordes x", "Orders"),
        ("offset reset billing Ordrs --to end", "Orders"),
        ("group progress biling", "billing"),
        ("group alter bilingg --retry-max-times 3", "billing"),
        ("group connections biling", "billing"),
        ("client show Billing", "billing"),
        ("offset show biling", "billing"),
        ("offset clone biling other", "billing"),
        ("wait group biling --for lag=0 --wait 0", "billing"),
        ("broker config set fileReservedTme=48", "fileReservedTime"),
        ("namesrv config set orderMessageEnabl=true", "orderMessageEnable"),
    ],
)
def test_a_typo_is_answered_with_the_name_that_is_meant(words: str, meant: str, cluster: Cluster) -> None:
    printed = orbitmq(*words.split(), "-n", cluster.namesrv_address, code=None)
    assert printed.exit_code in (3, 8)
    assert f"did you mean {meant}" in printed.output
    assert "create" not in printed.output, "a typo is not to be created"


def test_what_is_not_there_is_said_with_what_to_do(cluster: Cluster) -> None:
    at = ("-n", cluster.namesrv_address)
    assert orbitmq("group", "why", "zzz", *at, code=3).stderr.count("orbitmq group list") == 1
    assert "`agreement` in the files of brokers" in orbitmq("cluster", "replicas", *at).stderr


def test_a_name_like_no_other_leads_to_the_list(cluster: Cluster) -> None:
    printed = orbitmq("topic", "status", "xyzzy", "-n", cluster.namesrv_address, code=3)
    assert printed.stderr.rstrip().endswith("there is no topic xyzzy; `orbitmq topic list` shows the topics")


def test_a_wrong_name_server_is_named_with_what_to_do(cluster: Cluster) -> None:
    printed = orbitmq("topic", "list", "-n", cluster.broker_address, code=5).stderr
    assert f"{cluster.broker_address} is no name server, it may be a broker" in printed
    assert "set it with -n HOST:PORT (usually port 9876)" in printed
