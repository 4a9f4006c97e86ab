"""Puts that wait for room in a queue keep their order, whatever else is stored meanwhile."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from orbitmq.message.properties import INNER_MULTI_DISPATCH
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.dispatch import TAGS_ONLY
from orbitmq.store.engine import MessageStore
from orbitmq.store.queue_room import RoomAwaited
from tests.support.stores import bodies, record, small_options

LIGHT = "%LMQ%anna"
TO_LIGHT = f"{INNER_MULTI_DISPATCH}\x01{LIGHT}".encode()


class Bench:
    """A store whose loop and whose room worker are stepped by hand."""

    def __init__(self, root: Path) -> None:
        self.jobs: deque[Callable[[], object]] = deque()
        options = small_options(root, enable_multi_dispatch=True, enable_lmq=True)
        self.store = MessageStore(options, clock=ManualClock(), entry_codes=TAGS_ONLY, deliver=self.jobs.append)
        self.store.open()
        self.store._room_worker.stop()

    def send(self, body: bytes, properties: bytes = b"") -> bool:
        """Whether it was stored at once; else it waits for its turn."""
        one = record(body, properties=properties)
        try:
            self.store.put(one, at_once=True)
        except RoomAwaited as awaited:
            self.store.when_room(awaited, lambda _: self.store.put(one))
            return False
        return True

    def finish(self) -> None:
        self.store._room.step()
        while self.jobs:
            self.jobs.popleft()()


@pytest.fixture
def bench(tmp_path: Path) -> Iterator[Bench]:
    bench = Bench(tmp_path)
    yield bench
    bench.store.close()


def test_what_a_broker_stores_itself_lets_nobody_pass_those_that_wait(bench: Bench) -> None:
    """A transaction that is committed takes its room where it is; who sends after it still waits for its turn."""
    assert not bench.send(b"first")
    bench.store.put(record(b"committed"))
    assert not bench.send(b"second")
    bench.finish()
    assert bodies(bench.store) == [b"committed", b"first", b"second"]
    assert bench.send(b"third"), "nobody waits any more"


def test_a_message_whose_further_queue_has_no_room_is_not_passed_in_its_own(bench: Bench) -> None:
    bench.store.put(record(b"zero"))
    assert not bench.send(b"first", TO_LIGHT)
    assert not bench.send(b"second")
    bench.finish()
    assert bodies(bench.store) == [b"zero", b"first", b"second"]
    assert bodies(bench.store, LIGHT) == [b"first"]


def test_a_message_finds_the_room_it_waited_for_in_all_its_queues(
    bench: Bench, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert not bench.send(b"first", TO_LIGHT)
    bench.store._room.step()
    monkeypatch.setattr("orbitmq.store.queue.ConsumeQueue._claim_step", lambda _: pytest.fail("on the loop"))
    bench.finish()
    assert bodies(bench.store, LIGHT) == [b"first"]
