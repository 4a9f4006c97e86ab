"""Java's and orbitmq's consumers in one group share its queues, whatever the strategy, while members come, go and die.

Eight groups of RocketMQ 4.9.7, as many of orbitmq and six of RocketMQ 5.3.3 go the same way at the same time, one
change of members after the other, while messages are sent. After each change everything waits until all members have
what the strategy gives them; the tests judge the course of each group then.
"""

from __future__ import annotations

import asyncio
import itertools
import threading
import time
from bisect import bisect_right
from collections import Counter, defaultdict
from collections.abc import AsyncIterator, Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from typing import TypeAlias

import pytest

from orbitmq.client import Message
from orbitmq.client.sync import Producer
from orbitmq.net.remoting import Remoting
from orbitmq.operations import offsets
from orbitmq.operations.call import call
from orbitmq.wire.bodies import ConsumerRunningInfo
from orbitmq.wire.headers_groups import GetConsumerRunningInfoHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.java_rocketmq import ROCKETMQ_4, ROCKETMQ_5, SMALL_JVM, JavaBroker, JavaNameServer
from tests.support.mixed_groups import (
    BROKERS,
    GROUPS,
    LAST_STEPS,
    ONE_A_STRATEGY,
    QUEUES,
    QUEUES_A_BROKER,
    STEPS,
    TOPIC,
    Course,
    Courses,
    Delivery,
    Group,
    Host,
    Seat,
    Step,
    hosts,
    queue_named,
)
from tests.support.orbit_process import OrbitBroker, OrbitNameServer
from tests.support.peers import remoting
from tests.support.process import ProcessFailed, wait_until
from tests.support.python_members import name_of

Broker: TypeAlias = JavaBroker | OrbitBroker

PATIENCE_S = 90
PAUSE_S = 0.06  # between two messages
IN_FLIGHT_MS = 1000  # a message that a member has when it loses the queue may be processed so long after
LATE_SHOWN = 3  # of the groups that kept a test waiting
# How long the queues of an orderly member that was killed stay locked; members renew their locks every 2 s (Java, as
# tests start it) or hold them as long as nobody else asks.
LOCK_LIFE = ("rocketmq.broker.rebalance.lockMaxLiveTime", 4000)
SYSTEMS: Mapping[str, Sequence[Group]] = {"java": GROUPS, "java-5": ONE_A_STRATEGY, "orbitmq": GROUPS}
VERSIONS = {"java": ROCKETMQ_4, "java-5": ROCKETMQ_5}
COURSES = tuple((name, group) for name, groups in SYSTEMS.items() for group in groups)


@dataclass
class System:
    """A name server with a broker in each of two rooms."""

    name: str
    namesrv: str
    brokers: dict[str, Broker]


@contextmanager
def system(name: str) -> Iterator[System]:
    with ExitStack() as stack, ThreadPoolExecutor(len(BROKERS)) as together:
        version = VERSIONS.get(name)
        names = stack.enter_context(JavaNameServer(version) if version else OrbitNameServer())
        jvm = (*SMALL_JVM, "-D{}={}".format(*LOCK_LIFE))
        made: list[Broker] = [
            JavaBroker(names.address, version, name=broker, jvm=jvm)
            if version
            else OrbitBroker(names.address, name=broker, **dict([LOCK_LIFE]))
            for broker in BROKERS
        ]
        started = list(together.map(stack.enter_context, made))
        yield System(name, names.address, dict(zip(BROKERS, started, strict=True)))


class Sender(threading.Thread):
    """Sends to the topic of one system until it is told to end."""

    def __init__(self, target: System) -> None:
        super().__init__(name=f"sender-{target.name}", daemon=True)
        self._over = threading.Event()
        self._producer = Producer("senders", target.namesrv, send_timeout_ms=30_000)
        self._producer.start()
        self._producer.create_topic(TOPIC, queues=QUEUES_A_BROKER)
        wait_until(lambda: len(self._producer.fetch_publish_queues(TOPIC)) == len(QUEUES), PATIENCE_S, "the topic")
        self.failure: Exception | None = None

    def run(self) -> None:
        try:
            for number in itertools.count():
                self._producer.send(Message(TOPIC, b"%d" % number))
                if self._over.wait(PAUSE_S):
                    return
        except Exception as error:  # the main thread raises it
            self.failure = error

    def end(self) -> None:
        self._over.set()
        self.join(PATIENCE_S)
        self._producer.shutdown()
        if self.failure is not None:
            raise self.failure


class Play:
    """All groups of all systems on their way."""

    def __init__(self, systems: Sequence[System], seats: dict[tuple[Seat, bool], Host]) -> None:
        self._systems = systems
        self._seats = seats
        self.courses: Courses = {(name, group.name): Course(group) for name, group in COURSES}

    def host(self, seat: Seat, course: Course) -> Host:
        return self._seats[seat, course.group.kind == "lite"]

    def hosts(self, seat: Seat | None = None) -> set[Host]:
        return {host for (own, _), host in self._seats.items() if seat in (None, own)}

    def each(self) -> Iterator[tuple[System, Course]]:
        for one in self._systems:
            for group in SYSTEMS[one.name]:
                yield one, self.courses[one.name, group.name]

    def listen(self) -> bool:
        """Take in what members have reported since; whether that was anything."""
        reported = [host.report(self.courses) for host in self.hosts()]
        return any(reported)

    def until(self, condition: Callable[[Course], bool], what: str) -> None:
        """Wait until it holds for every group, and say for which not if it does not."""

        def late() -> list[str]:
            return [
                f"{system} {group}: {course.queues} instead of {course.expected()}"
                for (system, group), course in self.courses.items()
                if not condition(course)
            ]

        try:
            if late():
                wait_until(lambda: self.listen() and not late(), PATIENCE_S, what)
        except ProcessFailed as error:
            raise ProcessFailed("\n".join([str(error), *late()[:LATE_SHOWN]])) from None

    def go(self, step: Step) -> None:
        """One change, up to the next quiet point and some messages beyond."""
        began = time.monotonic()
        self.settle(step)
        shared = time.monotonic()
        self.until(Course.all_at_work, f"messages for every member after {step}")
        print(f"{step.verb} {step.seat}: quiet after {shared - began:.1f} s, all at work after ", end="")
        print(f"{time.monotonic() - began:.1f} s")

    def settle(self, step: Step) -> None:
        """One change, up to the next quiet point, and who reads what then."""
        self.change(step)
        self.until(lambda course: (step.seat in course.client_ids) == (step.verb == "join"), f"{step}")
        self.until(Course.is_quiet, f"every group quiet after {step}")
        for _, course in self.each():
            course.owners.append(dict(course.readers()))
            course.heard.clear()
            assert len(course.readers()) == len(course.owners[-1]), f"two read one queue: {course.readers()}"
        asyncio.run(self._ask_members())

    def change(self, step: Step) -> None:
        for one, course in self.each():
            course.changed_at.append(round(time.time() * 1000))
            if step.verb == "join":
                course.shares[step.seat] = step.share
                self.host(step.seat, course).join(one.name, one.namesrv, course.group, step.share)
            elif step.verb == "leave":
                self.host(step.seat, course).leave(one.name, course.group)
        if step.verb == "kill":
            for host in self.hosts(step.seat):
                host.kill()
            self.listen()
            for _, course in self.each():
                course.left(step.seat)

    async def _ask_members(self) -> None:
        """What brokers tell a tool about the members; a pull consumer does not say which queues it reads."""
        async with remoting() as asking:
            for one, course in self.each():
                if course.group.kind != "lite":
                    course.told.append([answer async for answer in _told(asking, one, course)])

    def finish(self) -> None:
        """Everything sent is consumed, the last members leave, and the brokers say what was committed."""
        for one, course in self.each():
            course.ends = asyncio.run(_ends(one))
        self.until(Course.is_complete, "every message")
        for step in LAST_STEPS:
            self.settle(step)
        for one, course in self.each():
            course.committed = asyncio.run(_committed(one, course))


async def _ends(one: System) -> dict[str, int]:
    async with remoting() as asking:
        return {name: await offsets.max_offset(asking, _address(one, name), queue_named(name)) for name in QUEUES}


async def _committed(one: System, course: Course) -> dict[str, int]:
    async with remoting() as asking:
        found = {
            name: await offsets.query_consumer_offset(asking, _address(one, name), course.group.name, queue_named(name))
            for name in QUEUES
        }
    return {name: -1 if offset is None else offset for name, offset in found.items()}


def _address(one: System, queue: str) -> str:
    return one.brokers[queue_named(queue).broker_name].address


async def _told(asking: Remoting, one: System, course: Course) -> AsyncIterator[tuple[str, Seat]]:
    """Each queue with each member that tells a broker that it reads it. The brokers are asked in turn."""
    brokers = itertools.cycle(one.brokers.values())
    for seat, client_id in course.client_ids.items():
        header = GetConsumerRunningInfoHeader(course.group.name, client_id)
        address, code = next(brokers).address, RequestCode.GET_CONSUMER_RUNNING_INFO
        answer = await call(asking, address, code, header, timeout_ms=PATIENCE_S * 1000)
        for queue in decode(ConsumerRunningInfo, answer.body).mq_table:
            if queue.topic == TOPIC:
                yield name_of(queue), seat


@pytest.fixture(scope="module")
def courses() -> Iterator[Courses]:
    with ExitStack() as stack, ThreadPoolExecutor() as together:
        seats = hosts()
        for host in set(seats.values()):
            stack.enter_context(host)
        systems = list(together.map(stack.enter_context, map(system, SYSTEMS)))
        play = Play(systems, seats)
        senders = [Sender(one) for one in systems]
        for sender in senders:
            sender.start()
        for step in STEPS:
            play.go(step)
        for sender in senders:
            sender.end()
        play.finish()
        yield play.courses


def course_name(one: tuple[str, Group]) -> str:
    name, group = one
    return f"{name}-{group.name}"


@pytest.fixture(params=COURSES, ids=course_name)
def course(request: pytest.FixtureRequest, courses: Courses) -> Course:
    name, group = request.param
    return courses[name, group.name]


def test_every_queue_has_one_reader_after_each_change(course: Course) -> None:
    for count, owners in enumerate(course.owners, 1):
        assert set(owners) == _covered(course, (STEPS + LAST_STEPS)[:count])
    if course.group.kind != "lite":
        assert [sorted(told) for told in course.told] == [sorted(owners.items()) for owners in course.owners]


def _covered(course: Course, steps: Sequence[Step]) -> set[str]:
    """The queues somebody must read now: all, or those of the configurations of the members present."""
    present: dict[Seat, Sequence[str]] = {}
    for step in steps:
        present.pop(step.seat, None)
        if step.verb == "join":
            present[step.seat] = step.share
    if course.group.strategy != "CONFIG":
        return set(QUEUES) if present else set()
    return {queue for share in present.values() for queue in share}


def test_only_who_has_a_queue_gets_its_messages(course: Course) -> None:
    for one in course.deliveries:
        step = step_of(course, one)
        by_steps = {owners.get(one.queue) for owners in course.owners[max(0, step - 1) : step + 1]}
        held = course.held(one.seat, one.queue, one.at - IN_FLIGHT_MS, one.at)
        assert one.seat in by_steps or True in held, one


def step_of(course: Course, one: Delivery) -> int:
    """The last change that was begun before this delivery."""
    return bisect_right(course.changed_at, one.at) - 1


def test_every_message_is_consumed_and_comes_twice_only_where_its_queue_changed_hands(course: Course) -> None:
    deliveries: dict[tuple[str, int], list[Delivery]] = defaultdict(list)
    for one in sorted(course.deliveries, key=lambda one: one.at):
        deliveries[one.queue, one.offset].append(one)
    assert set(deliveries) == {(queue, offset) for queue, end in course.ends.items() for offset in range(end)}
    again: Counter[str] = Counter()
    for times in deliveries.values():
        for first, second in itertools.pairwise(times):
            changes = range(max(1, step_of(course, first)), step_of(course, second) + 1)
            owners = [course.owners[step].get(first.queue) for step in (changes.start - 1, *changes)]
            has_changed = len(set(owners)) > 1 or course.changed_hands(first.queue, first.at, second.at)
            assert has_changed, (first, second)
            again[" ".join((STEPS + LAST_STEPS)[step_of(course, second)][:2])] += 1
    print(f"{course.group.name}: {len(deliveries)} messages, again after {dict(again)}")


@pytest.mark.parametrize("course", [one for one in COURSES if one[1].kind == "orderly"], ids=course_name, indirect=True)
def test_members_that_keep_the_order_keep_it_over_all_changes(course: Course) -> None:
    for queue in QUEUES:
        for seat in {one.seat for one in course.deliveries}:
            own = [one for one in course.deliveries if (one.seat, one.queue) == (seat, queue)]
            for before, after in itertools.pairwise(own):
                lost = [
                    owners.get(queue) != seat
                    for owners in course.owners[step_of(course, before) : step_of(course, after)]
                ]
                has_lost = any(lost) or False in course.held(seat, queue, before.at, after.at)
                assert after.offset == before.offset + 1 or has_lost, (before, after)
        first: dict[int, int] = {}
        for one in course.deliveries:
            if one.queue == queue:
                first[one.offset] = min(one.at, first.get(one.offset, one.at))
        times = [first[offset] for offset in sorted(first)]
        assert times == sorted(times), "whoever has it, nothing overtakes"


def test_what_is_committed_ends_at_the_end(course: Course) -> None:
    assert min(course.ends.values()) > 0
    assert course.committed == course.ends
