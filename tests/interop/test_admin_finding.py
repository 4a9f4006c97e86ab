"""Where a message is, told of either system: stored, consumed, filtered, retried, dead, delayed, half, rolled back."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass

import pytest

from orbitmq.admin.message_history import GroupState, MessageHistory, MessageState
from orbitmq.admin.message_send import plan_resend
from orbitmq.admin.search import find
from orbitmq.admin.session import Session
from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.core.model import SendResult
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.message.ids import UniqueIds
from orbitmq.runtime.clock import SystemClock
from tests.interop.conftest import LONG_DELAY_LEVEL, System
from tests.support.process import wait_until
from tests.support.sessions import asked
from tests.support.transactions import COMMIT, ROLLBACK, Prepared, RawProducer, raw_producer

PATIENCE_S = 60
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
DONE, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
HOUR_MS = 3_600_000


@dataclass(frozen=True)
class Finder:
    system: System

    def __call__(self, name: str, topic: str | None = None) -> list[MessageHistory]:
        found = asked(
            self.system.namesrv_address,
            lambda session: find(session, name, time.time_ns() // 1_000_000, topic=topic),
            timeout_ms=20_000,
        )
        assert found.failures == []
        return found.items

    def until(self, name: str, holds: Callable[[MessageHistory], bool], topic: str | None = None) -> MessageHistory:
        """The only story of this name, once it holds."""
        last: list[MessageHistory] = []

        def holding() -> bool:
            last[:] = self(name, topic)
            return len(last) == 1 and holds(last[0])

        wait_until(holding, PATIENCE_S, f"the story to hold; it is {last}")
        return last[0]


def send(system: System, message: Message) -> SendResult:
    with Producer(f"p-{message.topic}", system.namesrv_address, enable_trace=True) as producer:
        return producer.send(message)


def consumer(system: System, group: str, topic: str, tags: str = "*", fails: int = 0) -> PushConsumer:
    """A consumer that fails so often, and is allowed two retries."""

    def listen(messages: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        return LATER if messages[0].reconsume_times < fails else DONE

    made = PushConsumer(
        group, system.namesrv_address, consume_from_where=FIRST, max_reconsume_times=2, enable_trace=True,
        persist_offset_interval_ms=1000,
    )  # fmt: skip
    made.subscribe(topic, tags)
    made.set_listener(listen)
    return made


def kinds(found: MessageHistory, source: str = "store") -> list[str]:
    return [event.kind for event in found.timeline if event.source == source]


@pytest.mark.with_five
def test_stored_and_then_consumed_and_found_by_every_name(system: System, label: str) -> None:
    find_it = Finder(system)
    sent = send(system, Message(label, b"x", keys=f"key-{label}", tags="red"))
    plain = find_it.until(sent.msg_id, lambda one: one.state is MessageState.STORED and "sent" in kinds(one, "trace"))
    where = f"It is in {label} (broker-a, queue {sent.queue.queue_id}, offset {sent.queue_offset}) since "
    assert plain.sentence.startswith(where)
    assert plain.sentence.endswith("; no group consumes its topic.")
    assert (plain.topic, plain.msg_id, kinds(plain)) == (label, sent.msg_id, ["born", "stored"])
    assert plain.message
    assert plain.message.offset_msg_id == sent.offset_msg_id
    for name, topic in (
        (sent.offset_msg_id, None),
        (f"key-{label}", None),
        (f"key-{label}", label),
        (sent.msg_id, label),
    ):
        (same,) = find_it(name, topic)
        assert (same.msg_id, same.state) == (sent.msg_id, MessageState.STORED)

    with consumer(system, f"a-{label}", label), consumer(system, f"b-{label}", label, tags="blue"):
        done = find_it.until(
            sent.msg_id,
            lambda one: (
                [(group.group, group.state) for group in one.groups]
                == [(f"a-{label}", GroupState.CONSUMED), (f"b-{label}", GroupState.FILTERED)]
                and "consumed" in kinds(one, "trace")
            ),
        )
    assert f"; consumed by a-{label}; " in done.sentence
    assert f"left out by b-{label}, which subscribes blue." in done.sentence
    assert kinds(done, "trace") == ["sent", "consuming", "consumed"]


def test_consumed_with_a_retry(system: System, label: str) -> None:
    sent = send(system, Message(label, b"x"))
    with consumer(system, f"g-{label}", label, fails=1):
        found = Finder(system).until(
            sent.msg_id, lambda one: any(group.state is GroupState.CONSUMED and group.retries for group in one.groups)
        )
    assert found.sentence.endswith(f"; consumed by g-{label} with retry 1.")
    assert kinds(found) == ["born", "stored", "delayed", "retry"]


@pytest.mark.with_five
def test_given_up_and_a_dead_letter(system: System, label: str) -> None:
    find_it = Finder(system)
    sent = send(system, Message(label, b"x", keys=f"key-{label}"))
    with consumer(system, f"g-{label}", label, fails=9):
        found = find_it.until(sent.msg_id, lambda one: any(group.state is GroupState.DEAD for group in one.groups))
    assert f"g-{label} gave it up after 3 attempts: a dead letter in %DLQ%g-{label} since " in found.sentence
    assert kinds(found) == ["born", "stored", "delayed", "retry", "delayed", "retry", "dead"]
    (group,) = found.groups
    assert (group.retries, group.next_at_ms) == (2, None)
    (dead,) = [event for event in found.timeline if event.kind == "dead"]
    (same,) = find_it(dead.offset_msg_id or "")
    assert (same.msg_id, same.topic) == (sent.msg_id, label), "the id of any record leads to the whole story"

    async def come_again(session: Session) -> None:
        plan = await plan_resend(session, [dead.offset_msg_id or ""], SystemClock())
        assert [(step.before, step.after) for step in plan.steps] == [(f"%DLQ%g-{label}", f"%RETRY%g-{label}")]
        assert not (await plan.make()).failures

    asked(system.namesrv_address, come_again, timeout_ms=20_000)
    with consumer(system, f"g-{label}", label):
        done = find_it.until(sent.msg_id, lambda one: [g.state for g in one.groups] == [GroupState.CONSUMED])
    assert done.sentence.endswith(f"; consumed by g-{label} when it came again.")


def test_delayed(system: System, label: str) -> None:
    find_it = Finder(system)
    sent = send(system, Message(label, b"x", delay_level=LONG_DELAY_LEVEL))
    found = find_it.until(sent.msg_id, lambda one: one.state is MessageState.DELAYED)
    assert found.message
    due_ms = found.message.stored_at_ms + HOUR_MS
    assert [(event.kind, event.at_ms) for event in found.timeline if event.kind == "due"] == [("due", due_ms)]
    assert found.sentence.startswith(f"It waits for its delay (level {LONG_DELAY_LEVEL}, due at ")
    assert found.sentence.endswith(f") and is delivered to {label} then.")
    soon = send(system, Message(label, b"x", delay_level=1))
    come = find_it.until(soon.msg_id, lambda one: one.state is MessageState.STORED)
    assert kinds(come) == ["born", "delayed", "stored"]


def transaction(system: System, label: str, then: Callable[[RawProducer, Prepared], Awaitable[None]]) -> str:
    """The unique id of a half message that a producer, who is not asked afterwards, has decided so."""

    async def prepared() -> str:
        now_ms = time.time_ns() // 1_000_000
        unique = UniqueIds(bytes([127, 0, 0, 1]), 77, label.encode()[-4:]).create(now_ms)
        async with raw_producer(system.address, f"p-{label}") as producer:
            half = await producer.prepare(label, b"x", unique, born_ms=now_ms)
            await then(producer, half)
        return unique

    return asyncio.run(prepared())


async def nothing(_producer: RawProducer, _half: Prepared) -> None:
    return None


async def commit(producer: RawProducer, half: Prepared) -> None:
    await producer.end(half, COMMIT)


async def roll_back(producer: RawProducer, half: Prepared) -> None:
    await producer.end(half, ROLLBACK)


@pytest.mark.with_five
def test_pending_committed_and_rolled_back(system: System, label: str) -> None:
    find_it = Finder(system)
    rolled_back = find_it.until(
        transaction(system, f"r-{label}", roll_back), lambda one: one.state is MessageState.ROLLED_BACK
    )
    assert rolled_back.sentence == f"It was rolled back, so r-{label} never got it."
    committed = find_it.until(transaction(system, f"c-{label}", commit), lambda one: one.state is MessageState.STORED)
    assert kinds(committed) == ["born", "prepared", "committed"]
    pending = find_it.until(transaction(system, f"h-{label}", nothing), lambda one: one.state is MessageState.PENDING)
    assert pending.sentence.startswith(f"It is a half message of h-{label} whose producer has not decided since ")
    assert pending.topic == f"h-{label}"


def test_what_is_not_there_is_told_with_where_it_was_looked_for(system: System, label: str) -> None:
    (found,) = Finder(system)(f"nothing-{label}")
    assert (found.state, found.timeline) == (MessageState.NOT_FOUND, [])
    assert found.sentence.startswith(
        f"There is no message nothing-{label}: searched delayed and half messages, traces in RMQ_SYS_TRACE_TOPIC, "
    )
    assert found.trace_note
