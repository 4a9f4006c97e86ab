"""orbitmq's ordered consumers keep the order of every queue, alone, among themselves and beside Java's, with failures
and members that come and go.
"""

from __future__ import annotations

import threading
from collections import defaultdict
from collections.abc import Sequence

import pytest

from orbitmq.client import ConsumeFromWhere, ConsumeOrderlyStatus, Message, MessageExt, OrderlyContext
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer
from tests.interop.conftest import System
from tests.support.delivery import by_queue, messages
from tests.support.java_rocketmq import Driver
from tests.support.process import wait_until

pytestmark = pytest.mark.with_five
PATIENCE_SECONDS = 90
COUNT = 200
KEYS = 8
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS, SUSPEND = ConsumeOrderlyStatus.SUCCESS, ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT


class Ordered:
    """A consumer, and the queue offsets it was done with and those that failed, in the order they came."""

    def __init__(self, system: System, label: str, *, fails_at: int = 0, **settings: int) -> None:
        self.done: defaultdict[int, list[int]] = defaultdict(list)
        self.failed: defaultdict[int, list[int]] = defaultdict(list)
        self._fails_at = fails_at
        self._guard = threading.Lock()
        self.consumer = PushConsumer(
            label, system.namesrv_address, consume_from_where=FIRST, suspend_current_queue_ms=10, **settings
        )
        self.consumer.subscribe(label)
        self.consumer.set_listener(self._listen, orderly=True)

    def _listen(self, messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
        (message,) = messages
        with self._guard:
            if self._fails_at and message.queue_offset % self._fails_at == 1 and message.reconsume_times == 0:
                self.failed[message.queue_id].append(message.queue_offset)
                return SUSPEND
            self.done[message.queue_id].append(message.queue_offset)
            return SUCCESS

    @property
    def count(self) -> int:
        return sum(map(len, self.done.values()))


def send(system: System, topic: str, count: int = COUNT) -> None:
    with Producer(f"p-{topic}", system.namesrv_address) as producer:
        for number in range(count):
            producer.send(Message(topic, b"%d" % number), sharding_key=str(number % KEYS))


def assert_without_gap(offsets: list[int]) -> None:
    assert offsets == list(range(offsets[0], offsets[0] + len(offsets)))


def test_every_queue_is_consumed_in_order_over_failures(system: System, label: str) -> None:
    send(system, label)
    ordered = Ordered(system, label, fails_at=7)
    with ordered.consumer:
        wait_until(lambda: ordered.count >= COUNT, PATIENCE_SECONDS, "every message")
    assert ordered.count == COUNT
    for queue, offsets in ordered.done.items():
        assert offsets[0] == 0
        assert_without_gap(offsets)
        assert ordered.failed[queue] == [offset for offset in offsets if offset % 7 == 1]


def test_members_that_leave_hand_their_queues_on_in_order(system: System, label: str) -> None:
    send(system, label)
    one, other = Ordered(system, label), Ordered(system, label)

    def shared() -> bool:
        """Without the queue of the retry topic, which only one of them can have."""
        held = [{queue for queue in each.consumer.assignment() if queue.topic == label} for each in (one, other)]
        return len(held[0]) == len(held[1])

    with other.consumer:
        with one.consumer:
            wait_until(shared, PATIENCE_SECONDS, "the queues are shared")
            send(system, label)
            wait_until(lambda: one.count > 20, PATIENCE_SECONDS, "the first one is at work")
        send(system, label)
        wait_until(lambda: one.count + other.count >= 3 * COUNT, PATIENCE_SECONDS, "every message")
    for queue in range(4):
        theirs = one.done[queue] + other.done[queue]
        assert sorted(set(theirs)) == list(range(len(set(theirs)))), "nothing is left out"
        seen: list[int] = sorted(one.done[queue]), sorted(other.done[queue])  # type: ignore[assignment]
        assert list(seen) == [one.done[queue], other.done[queue]], "each of them kept the order"
    print(f"{one.count} + {other.count} deliveries of {3 * COUNT} messages")


def test_java_and_python_share_the_queues_of_one_group_in_order(system: System, label: str) -> None:
    send(system, label, KEYS)  # the topic is there
    client = ("--namesrv", system.namesrv_address, "--topic", label)
    with Driver("consume", *client, "--group", label, "--orderly", "true") as java:
        ours = Ordered(system, label)
        with ours.consumer:

            def shared() -> bool:
                assigned = [row["queues"] for row in java.rows() if row["event"] == "assigned"]
                mine = [queue for queue in ours.consumer.assignment() if queue.topic == label]
                return bool(assigned) and len(assigned[-1]) == len(mine) == 2

            java.process.wait_for(shared, PATIENCE_SECONDS, "both have half of the queues")
            send(system, label)
            java.process.wait_for(
                lambda: ours.count + len(messages(java.rows())) >= COUNT + KEYS, PATIENCE_SECONDS, "every message"
            )
        send(system, label)
        java.process.wait_for(
            lambda: ours.count + len(messages(java.rows())) >= 2 * COUNT + KEYS, PATIENCE_SECONDS, "the rest"
        )
        theirs = {
            queue: [row["queueOffset"] for row in rows] for queue, rows in by_queue(messages(java.rows())).items()
        }
    for queue in range(4):
        assert ours.done[queue] == sorted(ours.done[queue])
        assert theirs.get(queue, []) == sorted(theirs.get(queue, []))
        both = {*ours.done[queue], *theirs.get(queue, [])}
        assert both == set(range(len(both)))


def test_a_message_that_keeps_failing_ends_among_the_dead_letters(system: System, label: str) -> None:
    dead_topic = f"%DLQ%{label}"

    class Failing(Ordered):
        def _listen(self, messages: Sequence[MessageExt], context: OrderlyContext) -> ConsumeOrderlyStatus:
            if messages[0].body == b"1":
                return SUSPEND
            return super()._listen(messages, context)

    failing = Failing(system, label, max_reconsume_times=2)
    with Producer(f"p-{label}", system.namesrv_address) as producer, failing.consumer:
        for number in range(3):
            producer.send(Message(label, b"%d" % number), sharding_key="one")
        wait_until(lambda: failing.count >= 2, PATIENCE_SECONDS, "those before and behind it")
        reader = LitePullConsumer(f"d-{label}", system.namesrv_address, consume_from_where=FIRST)
        reader.subscribe(dead_topic)
        with reader:
            found: list[MessageExt] = []
            wait_until(lambda: found.extend(reader.poll(timeout=1)) or found, PATIENCE_SECONDS, "the dead letter")
    assert [message.body for message in found] == [b"1"]
    assert list(failing.done.values()) == [[0, 2]]
