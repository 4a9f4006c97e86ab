"""The outbox's order of sending: lines in order, pauses, doubt about a topic."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import Bundle, RuleBasedStateMachine, consumes, invariant, rule

from orbitmq.client.outbox.backlog import FAILURES_BEFORE_DOUBT, Backlog, BacklogEntry, Line


def backlog(*lines: Line) -> Backlog:
    found = Backlog()
    for sequence, line in enumerate(lines):
        found.add(BacklogEntry(sequence, line, 10, 0))
    return found


def trust(found: Backlog, topic: str) -> None:
    """Let the first message of the topic get through."""
    first = found.take(0)
    assert first is not None
    found.remove(first.sequence)
    found.reached(topic, 0)


def test_only_the_head_of_a_line_goes() -> None:
    found = backlog(("T", "k"), ("T", "k"), ("T", "k"))
    trust(found, "T")
    head = found.take(0)
    assert head is not None
    assert head.sequence == 1
    assert found.take(0) is None
    found.remove(1)
    following = found.take(0)
    assert following is not None
    assert following.sequence == 2


def test_a_head_that_fails_holds_up_its_line_alone() -> None:
    found = backlog(("T", "warm"), ("T", "a"), ("T", "a"), ("T", "b"))
    trust(found, "T")
    assert [message.sequence for message in (found.take(0), found.take(0)) if message] == [1, 3]
    found.failed(1, 500)
    assert found.next_due_ms() == 500
    assert found.take(499) is None
    again = found.take(500)
    assert again is not None
    assert (again.sequence, again.attempts) == (1, 1)


def test_one_message_finds_out_about_a_topic_in_doubt() -> None:
    found = backlog(*((("T", key)) for key in range(5)), ("U", "x"))
    assert [message.topic for message in (found.take(0), found.take(0)) if message] == ["T", "U"]
    assert found.take(0) is None, "a second message of the topic would only fail as well"
    found.failed(0, 90)
    probe = found.take(0)
    assert probe is not None
    assert probe.sequence == 1
    found.remove(1)
    found.reached("T", 7)
    assert {message.sequence for message in (found.take(7), found.take(7), found.take(7)) if message} == {2, 3, 4}
    assert found.take(7) is not None, "the one that failed need not wait for its pause"


def test_a_broken_line_does_not_make_the_others_wait() -> None:
    found = backlog(("T", "warm"), ("T", "broken"), *((("T", key)) for key in range(9)))
    trust(found, "T")
    for _ in range(FAILURES_BEFORE_DOUBT - 1):
        message = found.take(0)
        assert message is not None
        found.failed(message.sequence, 1000)
    assert found.take(0) is not None
    assert found.take(0) is not None


class Lines(RuleBasedStateMachine):
    """Any mixture of events keeps the order of each line and every message until it is removed."""

    waiting = Bundle("waiting")

    def __init__(self) -> None:
        super().__init__()
        self.backlog = Backlog()
        self.lines: dict[Line, list[int]] = {}
        self.in_flight: set[int] = set()
        self.now = 0
        self.count = 0

    @rule(target=waiting, topic=st.sampled_from("TU"), key=st.integers(0, 2), size=st.integers(1, 9))
    def add(self, topic: str, key: int, size: int) -> int:
        self.count += 1
        self.lines.setdefault((topic, key), []).append(self.count)
        self.backlog.add(BacklogEntry(self.count, (topic, key), size, self.now))
        return self.count

    @rule()
    def take(self) -> None:
        message = self.backlog.take(self.now)
        if message is not None:
            assert self.lines[message.line][0] == message.sequence
            assert message.sequence not in self.in_flight
            self.in_flight.add(message.sequence)

    @rule(pause=st.integers(0, 50))
    def fail(self, pause: int) -> None:
        if self.in_flight:
            sequence = min(self.in_flight)
            self.in_flight.remove(sequence)
            self.backlog.failed(sequence, self.now + pause)

    @rule(sequence=consumes(waiting))
    def leave(self, sequence: int) -> None:
        message = self.backlog.find(sequence)
        assert message is not None
        self.lines[message.line].remove(sequence)
        if not self.lines[message.line]:
            del self.lines[message.line]
        self.in_flight.discard(sequence)
        self.backlog.remove(sequence)

    @rule(topic=st.sampled_from("TU"))
    def reach(self, topic: str) -> None:
        self.backlog.reached(topic, self.now)

    @rule(passed=st.integers(1, 40))
    def wait(self, passed: int) -> None:
        self.now += passed

    @invariant()
    def nothing_is_forgotten(self) -> None:
        backlog = self.backlog
        assert backlog.bytes == sum(message.size for message in backlog), "bytes is the sum of the sizes"
        due = {s for topic in backlog._topics.values() for _, t, s in topic.due if backlog._is_valid(s, t)}
        heads = {line[0].sequence for line in backlog._lines.values() if not line[0].is_in_flight}
        assert due == heads, "every head is in flight or due"
        assert len(self.backlog) == sum(map(len, self.lines.values()))
        assert all(self.backlog.holds(line) for line in self.lines)
        if self.lines and not self.in_flight:
            assert self.backlog.next_due_ms() is not None


Lines.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestLines = Lines.TestCase
