"""What is told as text: a story, a message, the graph of a trace. What is in messages cannot steer the terminal."""

from __future__ import annotations

import time

import pytest

from orbitmq.admin.bodies import BodyForm, shown
from orbitmq.admin.envelope import plain
from orbitmq.admin.message_history import Facts, history_of
from orbitmq.admin.traces import Trace, Traced, graph
from orbitmq.cli import texts
from orbitmq.message.model import MessageExt

T0 = 1_700_000_000_000
ESCAPE = "\x1b[2J"


def message(**fields: object) -> MessageExt:
    known = {"broker_name": "broker-a", "queue_id": 3, "queue_offset": 17, "store_timestamp": T0, "born_timestamp": T0}
    body = fields.pop("body", b"line 1\nline 2")
    return MessageExt("Orders", body, 0, {"KEYS": f"a{ESCAPE}", "city": "Rome"}, msg_id="A1", **(known | fields))  # type: ignore[arg-type]


def test_a_story_is_its_sentence_and_its_timeline() -> None:
    sent = Traced(
        kind="Pub", at_ms=T0, msg_id="A1", group=f"p{ESCAPE}", client_host="c", store_host="b", cost_ms=1, success=True
    )
    told = texts.history(
        plain(history_of(Facts("A1", T0, "Orders", "A1", copies=[message()], trace=Trace("A1", "T", [sent], []))))
    )
    first, empty, *events = told.rstrip().splitlines()
    assert first.startswith("It is in Orders (broker-a, queue 3, offset 17) since 2023-11-14T22:13:20.000Z")
    assert empty == ""
    assert [line.split()[2] for line in events] == ["born", "stored", "sent"]
    assert "\x1b" not in told


def test_a_story_on_a_terminal_wraps_below_its_event_and_has_local_times(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("TZ", "Asia/Shanghai")
    time.tzset()
    try:
        copy = message(broker_name="broker-of-a-long-name")
        facts = Facts("A1", T0, "Orders", "A1", copies=[copy], trace=Trace("A1", "T", [], []))
        shown = texts.history(plain(history_of(facts)), 80)
    finally:
        monkeypatch.undo()
        time.tzset()
    sentence, events, *_ = shown.split("\n\n")
    assert "since 2023-11-15 06:13:20.000; no group consumes" in sentence.replace("\n", " ")
    born, stored, rest = events.splitlines()
    assert born.startswith("  2023-11-15 06:13:20.000  born    made by a producer")
    head, _, text = stored.partition("stored  stored in")
    assert rest.startswith(" " * len(f"{head}stored  ")), "the rest stands below the beginning"
    assert f"{text} {rest.strip()}".split() == ["Orders", "(broker-of-a-long-name,", "queue", "3,", "offset", "17)"]


def test_a_message_is_its_fields_and_its_body() -> None:
    told = texts.message(plain(shown(message())))
    assert "queue        broker-a, queue 3, offset 17\n" in told
    assert "property     city = Rome\n" in told
    assert told.endswith("\n\nline 1\nline 2\n\n")
    assert "\x1b" not in told
    cut = texts.message(plain(shown(message(body=b"x" * 100), limit=10)))
    assert "xxxxxxxxxx\n[the beginning of 100 bytes; all of it with --full]\n" in cut
    doubtful = texts.message(plain(shown(message(body=f"{ESCAPE}".encode()), BodyForm.TEXT)))
    assert "\x1b" not in doubtful
    assert "[it holds bytes that are no utf-8 text]" in doubtful
    assert "\n\n" not in texts.message(plain(shown(message(), None))).rstrip("\n")


def test_a_graph_has_a_bar_for_what_each_step_took() -> None:
    begun = Traced(kind="SubBefore", at_ms=T0 + 5, msg_id="A1", group="g", client_host="c", request_id="q", retries=1)
    ended = Traced(
        kind="SubAfter", at_ms=None, msg_id="A1", group=None, client_host="c", request_id="q", cost_ms=40, success=False
    )
    sent = Traced(
        kind="Pub", at_ms=T0, msg_id="A1", group="p", client_host="c", store_host="b", cost_ms=10, success=True
    )
    first, second = texts.graph(plain(graph([sent, begun, ended]))).splitlines()
    assert first.count("█") * 4 == second.count("█") == texts.BAR
    assert first.endswith("p at c sent it to b")
    assert "40 ms  failed" in second
    assert second.endswith("g at c consumed it, retry 1")
    lone = texts.graph(plain(graph([begun])))
    assert "unknown" in lone
    assert texts.graph(plain(graph([]))) == ""


def test_json_is_indented_on_a_terminal_with_its_numbers_as_they_are() -> None:
    body = b'{"amount":1.10,"id":12345678901234567890,"item":"\\u4e66"}'
    item = plain(shown(message(body=body)))
    assert '{\n  "amount": 1.10,\n  "id": 12345678901234567890,\n  "item": "书"\n}\n' in texts.message(item, 80)
    assert f"\n\n{body.decode()}\n" in texts.message(item), "scripts get it as it is"
    for other in (b"{no json", b"[1, 2", b"plain"):
        assert texts.message(plain(shown(message(body=other))), 80).endswith(f"\n\n{other.decode()}\n\n")


def test_a_stack_is_shown_line_by_line() -> None:
    told = texts.stack({"clientId": "10.0.0.7@1", "stack": f"Thread 1\n    at listener.py:17{ESCAPE}\n"})
    assert told.startswith("10.0.0.7@1\n\nThread 1\n    at listener.py:17")
    assert "\x1b" not in told


def test_a_finding_on_a_terminal_has_its_command_in_one_piece() -> None:
    command = "orbitmq group lag payments --topic Orders --watch 10 --name-server 10.0.0.1:9876"
    item = {
        "severity": "critical", "rule": "stuck", "subject": "payments", "message": "word " * 30, "remedy": command,
    }  # fmt: skip
    first, *reason, last, _ = texts.finding(item, 60).split("\n")[:-1]
    assert first == "critical  stuck  payments"
    assert max(map(len, reason)) <= 60
    assert last == f"  {command}"


def test_a_step_on_a_terminal_shows_what_it_changes_and_nothing_else() -> None:
    item = {
        "outcome": "planned", "target": "broker-a (127.0.0.1:10911)", "action": "alter topic", "subject": "Orders",
        "before": {"readQueues": 4, "writeQueues": 4, "perm": "RW-"},
        "after": {"readQueues": 8, "writeQueues": 8, "perm": "RW-"},
    }  # fmt: skip
    assert texts.step(item, 80) == (
        "planned   broker-a (127.0.0.1:10911): alter topic Orders\n  readQueues: 4 -> 8\n  writeQueues: 4 -> 8\n"
    )
    assert texts.step({**item, "before": None}, 80).endswith("  readQueues: 8\n  writeQueues: 8\n  perm: RW-\n")
    assert texts.step({**item, "before": "7", "after": "9"}, 80).endswith("Orders\n  7 -> 9\n")
    assert texts.step({**item, "after": None}, 80).endswith("  perm: RW- -> -\n")
