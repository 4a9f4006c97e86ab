"""The fault campaign in its short form: some faults at a time in a cluster of two pairs, and every promise kept.

`make soak` is the long one; what is promised stands in `bench.soak.checker`, and that it is seen when a promise is
broken in `tests/bench/test_soak_checker.py`.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from operator import attrgetter

import msgspec
import pytest

from bench.soak.campaign import TOPIC, Outcome, Settings, run
from bench.soak.checker import AGAIN, Pair, check
from bench.soak.cluster import PAIRS
from bench.soak.history import (
    ACKED,
    SEND_OK,
    Copied,
    Delivered,
    Fault,
    Popped,
    Posted,
    Probe,
    Progress,
    Promoted,
    Sent,
    Worked,
    of_kind,
)
from bench.soak.popping import GRPC, REMOTING
from bench.soak.report import lines

# Among the first faults: a master that is frozen and replaced, one that dies for good, a worker that is ended.
SETTINGS = Settings(seed=275, faults=20, seconds=30, hold_max=1.0, pause_max=0.3)
FAULTS_MIN = 6  # of a machine that is so busy that the time is over first


@pytest.fixture(scope="module")
def outcome(tmp_path_factory: pytest.TempPathFactory) -> Outcome:
    return run(tmp_path_factory.mktemp("soak") / "campaign", SETTINGS)


def test_promises_are_kept_under_faults(outcome: Outcome, capsys: pytest.CaptureFixture[str]) -> None:
    with capsys.disabled():
        print("\n" + "\n".join(lines(outcome)))
    assert outcome.verdict.violations == []
    assert len(of_kind(outcome.events, Fault)) >= FAULTS_MIN
    confirmed = {one.broker for one in of_kind(outcome.events, Sent) if one.status == SEND_OK}
    assert confirmed == {"sync", "async"}, "there was something to promise"
    assert of_kind(outcome.events, Copied)
    assert of_kind(outcome.events, Progress)
    assert {one.thawed for one in of_kind(outcome.events, Promoted)} == {False, True}
    assert of_kind(outcome.events, Probe)
    assert of_kind(outcome.events, Worked)
    assert len({one.member for one in of_kind(outcome.events, Delivered)}) > 1, "the group has several members"
    assert {one.by for one in of_kind(outcome.events, Posted) if one.status} == {GRPC, REMOTING}
    assert {one.by for one in of_kind(outcome.events, Popped) if one.fate == ACKED} == {GRPC, REMOTING}
    assert any(one.times for one in of_kind(outcome.events, Popped)), "something was redelivered"


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_one_message_less_in_what_is_left_would_be_found(outcome: Outcome, pair: Pair) -> None:
    """Of both logs of a pair the last message of a queue is taken, so that nothing but its receipt tells of it."""
    kept = {row.key for row in outcome.logs[pair.master].rows}
    own = (one for one in of_kind(outcome.events, Sent) if one.broker == pair.name and one.key in kept)
    last = max(own, key=attrgetter("place"))
    logs = dict(outcome.logs)
    for node in (pair.master, pair.slave):
        logs[node] = replace(logs[node], rows=[row for row in logs[node].rows if row.key != last.key])
    verdict = check(outcome.events, PAIRS, logs, dict.fromkeys(("sync", "async")), TOPIC)
    assert any(text.startswith(f"lost: {last.key} ") for text in verdict.violations)


@pytest.mark.parametrize("by", [GRPC, REMOTING])
def test_a_delivery_by_pop_less_or_more_would_be_found(outcome: Outcome, by: str) -> None:
    """Of the last message that was acknowledged at once: nobody knows of its delivery, or it comes once more."""
    popped = of_kind(outcome.events, Popped)
    posted = {one.key for one in of_kind(outcome.events, Posted) if one.status == SEND_OK}
    counts = Counter(one.key for one in popped)
    own = (one for one in popped if one.by == by and one.fate == ACKED and one.key in posted and counts[one.key] == 1)
    last = max(own, key=attrgetter("at"))
    differences = dict.fromkeys(("sync", "async"))
    less = check([one for one in outcome.events if one is not last], PAIRS, outcome.logs, differences, TOPIC)
    assert any(text.startswith(f"never popped: {last.key} ") for text in less.violations)
    second = msgspec.structs.replace(last, popped=last.due, at=last.due, decided=last.due)
    more = check([*outcome.events, second], PAIRS, outcome.logs, differences, TOPIC)
    assert any(text.startswith(f"{AGAIN}: {last.key} ") for text in more.violations)
