"""What is told as text: a story, a message, the graph of a trace. What is in messages cannot steer the terminal."""

from __future__ import annotations

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
