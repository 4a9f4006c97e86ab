"""The cache of a queue counts and answers as Java's does."""

from __future__ import annotations

from typing import Any

import pytest

from orbitmq.client.core.process_queue import ProcessQueue
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import CONSUME_START_TIME
from tests.support.golden import vectors


def message(offset: int, size: int = 1) -> MessageExt:
    return MessageExt("T", b"x" * size, queue_offset=offset)


class Replay:
    """Applies the steps of one golden case and compares every answer."""

    def __init__(self) -> None:
        self.queue = ProcessQueue()
        self.known: dict[int, MessageExt] = {}

    def put(self, step: dict[str, Any]) -> None:
        found = [message(m["offset"], m["size"]) for m in step["messages"]]
        self.known.update({m.queue_offset: m for m in found})
        assert self.queue.put(found, int(step["messages"][-1]["maxOffset"])) is step["dispatchToConsume"]
        assert self.queue.backlog == step["msgAccCnt"]

    def remove(self, step: dict[str, Any]) -> None:
        assert self.queue.remove([self.known[offset] for offset in step["offsets"]]) == step["result"]

    def take(self, step: dict[str, Any]) -> None:
        assert [m.queue_offset for m in self.queue.take(max(1, len(step["result"])))] == step["result"]

    def commit(self, step: dict[str, Any]) -> None:
        assert self.queue.commit() == step["result"]

    def rollback(self, step: dict[str, Any]) -> None:
        self.queue.rollback()

    def consumeAgain(self, step: dict[str, Any]) -> None:  # noqa: N802 - the step's name in the golden file
        self.queue.put_back([self.known[offset] for offset in step["offsets"]])

    def state(self, step: dict[str, Any]) -> None:
        found = (self.queue.span, self.queue.count, self.queue.size)
        assert found == (step["maxSpan"], step["msgCount"], step["msgSize"])


@pytest.mark.parametrize("case", vectors()["process_queue"])
def test_every_step_answers_as_in_java(case: dict[str, Any]) -> None:
    replay = Replay()
    for step in case["ops"]:
        getattr(replay, step["op"])(step)


def test_the_safe_offset_is_the_smallest_unfinished_one() -> None:
    queue = ProcessQueue()
    queue.put([message(5), message(6), message(7)])
    assert queue.remove([message(6)]) == 5
    assert queue.remove([message(5)]) == 7
    assert queue.remove([message(7)]) == 8
    assert queue.remove([message(7)]) == -1


def test_a_message_pulled_twice_counts_once() -> None:
    queue = ProcessQueue()
    queue.put([message(5, 10)])
    queue.put([message(5, 10), message(6, 20)])
    assert (queue.count, queue.size) == (2, 30)


def test_only_the_oldest_message_can_be_overdue() -> None:
    queue = ProcessQueue()
    old, young = message(5), message(6)
    queue.put([old, young])
    young.properties[CONSUME_START_TIME] = "1000"
    assert queue.overdue(now_ms=10_000, timeout_ms=5_000) is None
    old.properties[CONSUME_START_TIME] = "6000"
    assert queue.overdue(now_ms=10_000, timeout_ms=5_000) is None
    assert queue.overdue(now_ms=11_001, timeout_ms=5_000) is old
    assert queue.is_smallest(old)
    queue.remove([old])
    assert not queue.is_smallest(old)


def test_clear_forgets_everything() -> None:
    queue = ProcessQueue()
    queue.put([message(5), message(6)])
    queue.take(1)
    queue.clear()
    assert (len(queue), queue.count, queue.size, queue.span, queue.commit()) == (0, 0, 0, 0, -1)
    assert queue.put([message(9)])
