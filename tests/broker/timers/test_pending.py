"""Timer messages wait in order of their times, and a moved one is found under its new key only."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from orbitmq.broker.timers import pending as module
from orbitmq.broker.timers.pending import Pending, due_of, is_recall, key_of, place_of

FILE = 1000


def drain(pending: Pending, now_ms: int, limit: int = 1000) -> list[int]:
    found = []
    more = True
    while more:
        more = pending.take(now_ms, limit)
        while (key := pending.first()) is not None:
            found.append(key)
            pending.done()
    return found


def test_a_key_holds_time_kind_and_place() -> None:
    message, recall = key_of(5000, 77), key_of(5000, 99, is_recall=True)
    assert (due_of(message), place_of(message), is_recall(message)) == (5000, 77, False)
    assert (due_of(recall), place_of(recall), is_recall(recall)) == (5000, 99, True)
    assert recall < message, "a recall comes before the messages of its time"


@given(st.lists(st.tuples(st.integers(1, 50), st.integers(0, 5000)), unique_by=lambda one: one[1]), st.integers(0, 60))
def test_what_is_due_comes_in_order_and_the_rest_waits(messages: list[tuple[int, int]], now_ms: int) -> None:
    pending = Pending(FILE)
    keys = [key_of(*one) for one in messages]
    for key in keys:
        pending.add(key)
    due = sorted(key for key in keys if due_of(key) <= now_ms)
    assert drain(pending, now_ms, 3) == due
    rest = set(keys) - set(due)
    assert len(pending) == len(rest)
    assert all(pending.waits(key) == (key in rest) for key in keys)
    files = {place_of(key) // FILE for key in rest}
    assert pending.lowest == (min(files) * FILE if files else None)
    assert pending.next_due_ms() == (due_of(min(rest)) if rest else None)


def test_one_that_becomes_known_too_late_comes_first_and_is_known_to_wait() -> None:
    pending = Pending(FILE)
    for place in (10, 20):
        pending.add(key_of(100, place))
    assert not pending.take(100, 10)
    assert pending.first() == key_of(100, 10)
    pending.done()
    late = key_of(50, 30)
    pending.add(late)
    assert pending.late == {late}
    assert pending.waits(late)
    assert drain(pending, 100) == [late, key_of(100, 20)]
    assert not pending.late


@given(st.data())
def test_moved_messages_are_delivered_once(data: st.DataObject) -> None:
    """Whatever is moved, and whenever, each message comes once, and none is forgotten."""
    stale_min, module.STALE_MIN = module.STALE_MIN, data.draw(st.sampled_from((0, 10_000)))
    try:
        pending = Pending(FILE)
        dues = data.draw(st.lists(st.integers(1, 40), min_size=1, max_size=40))
        waiting = {number * 100: (number, due) for number, due in enumerate(dues)}  # place -> message
        for place, (_, due) in waiting.items():
            pending.add(key_of(due, place))
        end, came = len(dues) * 100, []
        for now_ms in data.draw(st.lists(st.integers(0, 45), max_size=8).map(lambda times: [*sorted(times), 50])):
            came += [waiting.pop(place_of(key))[0] for key in drain(pending, now_ms, data.draw(st.integers(1, 5)))]
            target = data.draw(st.integers(0, end))
            for place in sorted(place for place in waiting if pending.moved <= place < target):
                number, due = waiting.pop(place)
                assert pending.waits(key_of(due, place))
                pending.move(key_of(due, place))
                waiting[end] = number, due
                pending.add(key_of(due, end))
                end += 100
            assert len(pending) == len(waiting)
            assert pending.lowest == (min(waiting) // FILE * FILE if waiting else None)
        came += [waiting.pop(place_of(key))[0] for key in drain(pending, 100)]
        assert sorted(came) == list(range(len(dues)))
    finally:
        module.STALE_MIN = stale_min
