"""Verdicts on groups whose members are Java's and orbitmq's, at either broker, at once and with the clock turned by a
minute between two looks. Java's clients tell neither that they are suspended nor why a listener fails.
"""

from __future__ import annotations

import asyncio
import contextlib
import threading
import time
from collections.abc import Iterator
from contextlib import ExitStack

import pytest

from orbitmq.admin.evidence import why
from orbitmq.admin.pace import Paces
from orbitmq.admin.progress import progress
from orbitmq.admin.session import Session
from orbitmq.admin.topic_changes import TopicChanges, plan_create
from orbitmq.admin.verdict import Finding, Severity
from orbitmq.client import ConsumeConcurrentlyStatus, ConsumeFromWhere, Message
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.errors import NotFound
from orbitmq.net.remoting import Remoting
from orbitmq.testing.cluster import ShiftedClock
from tests.interop.conftest import System
from tests.support.java_rocketmq import ROCKETMQ_4
from tests.support.mixed_groups import java_host
from tests.support.process import ProcessFailed, wait_until
from tests.support.sessions import asked

MINUTE_MS = 61_000
AT_ONCE_MS = 40_000  # after the members came, at most: a machine may take longer to make all situations
PATIENCE_S = 40
WELL, UNKNOWN, CRITICAL = Severity.WELL, Severity.UNKNOWN, Severity.CRITICAL
Verdict = tuple[Severity, str]

# Members, and what is wrong with them: what is told at once, and a minute later.
TABLE: dict[tuple[str, str], tuple[Verdict, Verdict]] = {
    ("java", "nothing"): ((WELL, "well"), (WELL, "well")),
    ("java", "hang"): ((UNKNOWN, "too-early"), (CRITICAL, "stuck-listener")),
    ("java", "fail"): ((CRITICAL, "listener-fails"), (CRITICAL, "listener-fails")),
    ("java", "suspended"): ((WELL, "well"), (CRITICAL, "not-pulling")),  # it was at work a moment ago
    ("java", "unsubscribed"): ((CRITICAL, "no-subscription"), (CRITICAL, "no-subscription")),
    ("python", "nothing"): ((WELL, "well"), (WELL, "well")),
    ("python", "hang"): ((UNKNOWN, "too-early"), (CRITICAL, "stuck-listener")),
    ("python", "fail"): ((CRITICAL, "listener-fails"), (CRITICAL, "listener-fails")),
    ("python", "suspended"): ((Severity.WARNING, "suspended"), (CRITICAL, "suspended")),
    ("python", "unsubscribed"): ((CRITICAL, "no-subscription"), (CRITICAL, "no-subscription")),
}
Looks = dict[tuple[str, str], tuple[list[Finding], list[Finding]]]


def name_of(members: str, trouble: str) -> str:
    return f"verdict-{members}-{trouble}"


@pytest.fixture(scope="module")
def looks(system: System) -> Iterator[Looks]:
    address, done = system.namesrv_address, threading.Event()
    with ExitStack() as stack:
        asked(address, _make_topics)
        producer = stack.enter_context(Producer("verdict-producers", address))
        for members, trouble in TABLE:
            for _ in range(5):
                producer.send(Message(name_of(members, trouble), b"x"))
        java = stack.enter_context(java_host("java", ROCKETMQ_4))
        began = time.monotonic()
        stack.callback(done.set)
        for members, trouble in TABLE:
            name = name_of(members, trouble)
            if members == "java":
                java.process.tell(
                    f"join --member {name} --namesrv {address} --group {name} --topic {name} --kind push "
                    f"--strategy AVG --instance verdicts --trouble {trouble}"
                )
            else:
                stack.enter_context(_consumer(address, name, trouble, done))
        _leave_some(address, producer)
        yield asyncio.run(_look(address, began))


def _leave_some(address: str, producer: Producer) -> None:
    """For the member of Java that suspends itself: the pull that is under way then still gets a message."""
    name = name_of("java", "suspended")

    def is_through() -> bool:
        try:
            return asked(address, lambda session: progress(session, name)).items[0].lag_messages == 0
        except NotFound:  # its heartbeat makes it
            return False

    wait_until(is_through, PATIENCE_S, "it has its first messages")
    producer.send(Message(name, b"x"))
    with contextlib.suppress(ProcessFailed):  # no pull was under way
        wait_until(is_through, 8, "the pull has ended")
    for _ in range(5):
        producer.send(Message(name, b"x"))


async def _make_topics(session: Session) -> None:
    for members, trouble in TABLE:
        await (
            await plan_create(session, name_of(members, trouble), TopicChanges(read_queues=1, write_queues=1))
        ).make()


def _consumer(address: str, name: str, trouble: str, done: threading.Event) -> PushConsumer:
    def listen(*_: object) -> ConsumeConcurrentlyStatus:
        if trouble == "hang":
            done.wait(300)
        if trouble == "fail":
            raise ValueError("the bank is closed")
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    consumer = PushConsumer(name, address, consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    if trouble != "unsubscribed":
        consumer.subscribe(name)
    consumer.set_listener(listen)
    if trouble == "suspended":
        consumer.suspend()
    return consumer


async def _look(address: str, began: float) -> Looks:
    clock, paces, remoting = ShiftedClock(), Paces(), Remoting()
    session = Session(remoting, address.split(";"))

    async def ask(key: tuple[str, str]) -> list[Finding]:
        return (await why(session, name_of(*key), clock=clock, paces=paces)).items

    async def each() -> dict[tuple[str, str], list[Finding]]:
        return dict(zip(TABLE, await asyncio.gather(*map(ask, TABLE)), strict=True))

    async def each_at_once() -> dict[tuple[str, str], list[Finding]]:
        clock.shift_ms = min(0, int(AT_ONCE_MS - (time.monotonic() - began) * 1000))
        return await each()

    now = await each_at_once()
    for _ in range(PATIENCE_S):
        if all(verdict(now[key]) == TABLE[key][0] for key in TABLE):
            break
        await asyncio.sleep(1)  # a client samples its rates every 10 s
        now = await each_at_once()
    clock.shift_ms = MINUTE_MS
    later = await each()
    await remoting.close()
    return {key: (now[key], later[key]) for key in TABLE}


def verdict(findings: list[Finding]) -> Verdict:
    return findings[0].severity, findings[0].rule


@pytest.mark.parametrize(("members", "trouble"), TABLE)
def test_a_situation_has_its_verdict_at_once_and_a_minute_later(looks: Looks, members: str, trouble: str) -> None:
    now, later = looks[members, trouble]
    assert (verdict(now), verdict(later)) == TABLE[members, trouble], (now, later)


def test_a_client_tells_why_its_listener_fails_and_of_javas_it_is_said_that_they_do_not(looks: Looks) -> None:
    (ours, _), (javas, _) = looks["python", "fail"], looks["java", "fail"]
    assert "ValueError('the bank is closed')" in ours[0].message
    assert ours[0].evidence["lastError"] == "ValueError('the bank is closed')"
    assert "clients do not report why" in javas[0].message
