"""Thousands of dead letters are sent again: counted before, at a rate, with progress, and taken back as far as
possible.
"""

from __future__ import annotations

import asyncio
import json
import re
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any, TypeVar

import pytest

from orbitmq.admin import resends
from orbitmq.admin.plans import Plan, StepOutcome
from orbitmq.admin.resends import IN_FLIGHT, MARK, STEP, ResendWish, _Resend
from orbitmq.admin.retry_places import RetryPlaces
from orbitmq.admin.scan import Stretch
from orbitmq.admin.session import Session
from orbitmq.client import Message
from orbitmq.client.sync import Producer, SimpleConsumer
from orbitmq.errors import AdminError, BadArgument, BrokerError, NotFound
from orbitmq.message.model import MessageExt, MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.runtime.clock import SystemClock
from orbitmq.testing.cluster import Cluster
from orbitmq.wire.codes import ResponseCode
from tests.support.commands import answer, items, orbitmq
from tests.support.popping import received

T = TypeVar("T")
CLOCK = SystemClock()
GROUP, DLQ, RETRY = "billing", "%DLQ%billing", "%RETRY%billing"
COUNT = 2 * STEP + 200


@pytest.fixture(scope="module")
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        for topic in (DLQ, RETRY, "Copies"):
            running.create_topic(topic, 1)
        with Producer("dead", running.namesrv_address) as producer:
            for start in range(0, COUNT, 100):
                producer.send_batch(
                    [Message(DLQ, b"%d" % number, keys=f"k{number}") for number in range(start, start + 100)]
                )
        yield running


def on(cluster: Cluster, work: Callable[[Session], Awaitable[T]]) -> T:
    async def scenario() -> T:
        remoting = Remoting()
        try:
            return await work(Session(remoting, [cluster.namesrv_address]))
        finally:
            await remoting.close()

    return asyncio.run(scenario())


def planned(cluster: Cluster, wish: ResendWish, then: Callable[[Plan], Awaitable[T]]) -> T:
    async def work(session: Session) -> T:
        return await then(await resends.plan_resend_all(session, wish, SystemClock()))

    return on(cluster, work)


def test_all_are_sent_in_steps_with_progress(cluster: Cluster) -> None:
    before, printed = cluster.message_count(RETRY), list[str]()

    async def made(plan: Plan) -> list[StepOutcome]:
        plan.report = printed.append
        assert plan.title == f"send {COUNT:,} dead letters of billing to it again"
        return [step.outcome for step in (await plan.make()).items]

    assert planned(cluster, ResendWish(GROUP), made) == [StepOutcome.DONE] * 3
    assert cluster.message_count(RETRY) - before == COUNT
    assert printed[0] == f"1 of {COUNT:,} sent again", "whatever the rate, it is seen to begin"
    assert printed[-1] == f"{COUNT:,} of {COUNT:,} sent again"
    assert cluster.message_count(DLQ) == COUNT, "they stay where they are"


def test_a_rate_is_kept(cluster: Cluster) -> None:
    async def took(plan: Plan) -> float:
        began = asyncio.get_running_loop().time()
        await plan.make()
        return asyncio.get_running_loop().time() - began

    assert planned(cluster, ResendWish(GROUP, to="Copies", rate=100, limit=30), took) >= 0.29


def test_only_those_since_a_time_are_sent(cluster: Cluster) -> None:
    later_ms = SystemClock().now_ms() + 3_600_000

    async def total(plan: Plan) -> tuple[str, bool]:
        return plan.title, plan.changing

    assert planned(cluster, ResendWish(GROUP, since_ms=later_ms), total) == (
        "send 0 dead letters of billing to it again",
        False,
    )


def test_a_failure_says_how_far_it_came_and_how_to_go_on(cluster: Cluster) -> None:
    async def made(plan: Plan) -> Any:
        return await plan.make()

    cluster.refuse("send", topic="Copies")
    done = planned(cluster, ResendWish(GROUP, to="Copies", rate=1000), made)
    assert [step.outcome for step in done.items] == [StepOutcome.FAILED, StepOutcome.SKIPPED, StepOutcome.SKIPPED]
    assert f"of {COUNT} were sent, then:" in done.failures[0].message
    assert done.failures[0].hint.startswith(f"go on with --queue {cluster.broker_names[0]}/0 --since 1")


async def test_to_go_on_begins_with_the_first_one_that_failed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Sixteen are on their way: a later one may fail first, and none before it may be left out."""
    letters = [MessageExt(DLQ, b"x", store_timestamp=1000 + number) for number in range(3 * IN_FLIGHT)]
    sent: list[int] = []
    failed = asyncio.Event()

    class Scan:
        failures: tuple[()] = ()

        def __init__(self, *_: object, **__: object) -> None:
            self._left = iter(letters)

        def __aiter__(self) -> Scan:
            return self

        async def __anext__(self) -> MessageExt:
            for one in self._left:
                return one
            raise StopAsyncIteration

    async def send_packed(_packed: object, message: MessageExt, home: None) -> None:
        if message.store_timestamp == 1001:
            await failed.wait()
            for _ in range(10):
                await asyncio.sleep(0)
        if message.store_timestamp in (1001, 1005):
            failed.set()
            raise BrokerError(ResponseCode.SYSTEM_BUSY, f"busy at {message.store_timestamp}")
        sent.append(message.store_timestamp)

    monkeypatch.setattr(resends, "QueueScan", Scan)
    unused: Any = None
    outlet: Any = SimpleNamespace(send_packed=send_packed)
    resend = _Resend(unused, ResendWish(GROUP), Plan(""), outlet, RetryPlaces(GROUP), CLOCK, "mark", len(letters))
    with pytest.raises(
        AdminError, match=f"{IN_FLIGHT - 2} of {len(letters)} were sent, then: .*busy at 1001"
    ) as caught:
        await resend.part(Stretch(unused, MessageQueue(DLQ, "broker-a", 3), 0, len(letters)))
    assert caught.value.hint == "go on with --queue broker-a/3 --since 1001"
    assert sent == [1000, 1002, 1003, 1004, *range(1006, 1000 + IN_FLIGHT)]


def test_a_broker_that_cannot_be_read_on_says_how_far_it_came(cluster: Cluster) -> None:
    """The time is that of the last one that was sent, which is sent again rather than left out."""

    async def made(plan: Plan) -> Any:
        plan.report = stop
        return await plan.make()

    def stop(text: str) -> None:
        if text.startswith("1 of"):
            cluster.refuse("pull", topic=DLQ)

    done = planned(cluster, ResendWish(GROUP, to="Copies", rate=200), made)
    cluster.heal()
    (failure,) = done.failures
    assert re.match(rf"\d+ of {COUNT} were sent, then: .*refused", failure.message), failure
    said = re.fullmatch(rf"go on with --queue {cluster.broker_names[0]}/0 --since (\d+)", failure.hint)
    assert said is not None
    at = ("-n", cluster.namesrv_address)
    (last,) = items("msg", "query", "Copies", "--limit", 1, *at)
    (letter,) = items("msg", "query", DLQ, "--key", last["keys"][0], "--limit", 1, *at)
    assert letter["storedAtMs"] == int(said[1])


def test_those_of_a_time_are_counted_and_limited_without_the_second_before(cluster: Cluster) -> None:
    """Brokers find a time to the second only, and all were stored within a second or so."""
    found = items("msg", "query", DLQ, "--limit", COUNT, "-n", cluster.namesrv_address)
    times = sorted(one["storedAtMs"] for one in found)
    since_ms, until_ms = times[COUNT // 2], times[-200]
    wanted = sum(since_ms <= one <= until_ms for one in times)

    async def total(plan: Plan) -> tuple[int | None, str]:
        return plan.total, plan.steps[0].subject

    first = sum(one < since_ms for one in times)
    assert planned(cluster, ResendWish(GROUP, since_ms, until_ms), total)[0] == wanted
    at_most = ResendWish(GROUP, since_ms, until_ms, limit=10)
    assert planned(cluster, at_most, total) == (10, f"10 of queue 0 from offset {first}")


def test_one_queue_is_chosen(cluster: Cluster) -> None:
    async def total(plan: Plan) -> int | None:
        return plan.total

    assert planned(cluster, ResendWish(GROUP, queues=[f"{cluster.broker_names[0]}/0"]), total) == COUNT
    with pytest.raises(NotFound, match=f"has no queue {cluster.broker_names[0]}/1 to read"):
        planned(cluster, ResendWish(GROUP, queues=[f"{cluster.broker_names[0]}/1"]), total)


def test_members_that_pop_get_them_where_they_read(cluster: Cluster) -> None:
    """Push consumers read one retry topic, members that pop another: a retry in the former never reaches them."""
    group, topic = "popping", "Popped"
    at = ("-n", cluster.namesrv_address)
    cluster.create_topic(topic, 1)

    with (
        Producer("p", cluster.namesrv_address) as producer,
        SimpleConsumer(group, cluster.namesrv_address) as consumer,
    ):
        consumer.subscribe(topic)
        producer.send(Message(topic, b"one", keys="o1"))
        consumer.reject(*received(consumer))  # before there is any retry, so there is no topic for them
        printed = orbitmq("msg", "resend", "--from-dlq", group, "--yes", *at).stderr
        assert "the members of popping pop: what is sent to them cannot be taken back" in printed
        (resent,) = received(consumer, invisible=1)
        assert (resent.topic, resent.body, MARK in resent.properties) == (topic, b"one", True)
        (resent,) = received(consumer)
        consumer.reject(resent)  # as a retry: its origin is the retry topic
        (letter, _) = items("msg", "query", "%DLQ%popping", *at)
        orbitmq("msg", "resend", letter["offsetMsgId"], "--yes", *at)
        (resent,) = received(consumer)
        assert resent.body == b"one"
        consumer.ack(resent)


def test_a_failure_of_one_queue_is_none_of_another(cluster: Cluster) -> None:
    """Its broker may be another one, and the time to go on from is one of the queue that failed."""

    async def chains(plan: Plan) -> set[str | None]:
        return {change.chain for change in plan.changes}

    (chain,) = planned(cluster, ResendWish(GROUP), chains)
    assert chain is not None
    assert DLQ in chain
    assert chain != DLQ


def test_a_group_without_dead_letters_is_named_with_one_like_it(cluster: Cluster) -> None:
    async def never(_: Plan) -> None: ...

    with pytest.raises(NotFound, match="the group biling has no dead letters") as caught:
        planned(cluster, ResendWish("biling"), never)
    assert caught.value.hint == "did you mean billing?"
    with pytest.raises(BadArgument, match="above 0"):
        planned(cluster, ResendWish(GROUP, rate=0), never)


def test_what_is_not_consumed_yet_is_taken_back(
    cluster: Cluster, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    at = ("-n", cluster.namesrv_address)
    orbitmq("group", "create", GROUP, *at)
    end = cluster.message_count(RETRY)
    orbitmq("offset", "reset", GROUP, RETRY, "--to", "end", "--yes", *at)
    preview = items("msg", "resend", "--from-dlq", GROUP, "--limit", 50, "--dry-run", *at)
    assert [step["outcome"] for step in preview] == ["planned"]
    assert cluster.message_count(RETRY) == end, "a dry run sends nothing"

    printed = orbitmq("msg", "resend", "--from-dlq", GROUP, "--limit", 50, "--yes", *at).stderr
    words = printed.split("to undo it: orbitmq ")[1].splitlines()[0].split()
    assert words[:2] == ["msg", "undo"]
    with Producer("others", cluster.namesrv_address) as producer:
        producer.send(Message(RETRY, b"of another cause"))
    newest = items("msg", "query", RETRY, "--limit", 52, *at)
    assert [MARK in one["properties"] for one in newest[:51]] == [False] + [True] * 50
    assert newest[50]["properties"][MARK] != newest[51]["properties"][MARK], "each command has its own"

    orbitmq("offset", "reset", GROUP, RETRY, "--shift", 10, "--yes", *at)  # ten of them are consumed
    undone = answer("msg", "undo", words[2], "--yes", *at)
    assert [step["after"] for step in undone["items"]] == [end + 50]
    assert orbitmq("msg", "undo", words[2], "--dry-run", *at).stderr.count("nothing to change") == 1


def test_an_undo_behind_other_messages_leaves_them(cluster: Cluster) -> None:
    at = ("-n", cluster.namesrv_address)
    orbitmq("offset", "reset", GROUP, RETRY, "--to", "end", "--yes", *at)
    with Producer("others", cluster.namesrv_address) as producer:
        producer.send(Message(RETRY, b"first"))

    async def work(session: Session) -> Plan:
        plan = await resends.plan_resend_all(session, ResendWish(GROUP, limit=5), SystemClock())
        await plan.make()
        assert plan.undo is not None
        return await resends.plan_undo(session, json.loads(json.dumps(plan.undo)))

    plan = on(cluster, work)
    assert not plan.changing
    assert plan.warnings[0].startswith("5 more wait behind other messages of %RETRY%billing")


def test_a_file_of_another_form_is_refused(cluster: Cluster) -> None:
    with pytest.raises(AdminError, match="no undo file of a resend"):
        on(cluster, lambda session: resends.plan_undo(session, {"group": GROUP}))


@pytest.mark.parametrize(
    ("words", "printed"),
    [
        ((), "give ids, or all dead letters of a group; orbitmq msg resend --from-dlq GROUP"),
        (("x", "--since", "@2h"), "give ids, or all dead letters of a group"),
        (("x", "--from-dlq", GROUP), "--from-dlq takes no ids"),
        (("--from-dlq", GROUP, "--group", "g"), "--from-dlq takes no ids"),
        (("--from-dlq", GROUP, "--since", "3x"), "'3x' is no point in time"),
    ],
)
def test_flags_that_make_no_sense_are_refused(words: tuple[str, ...], printed: str) -> None:
    assert printed in orbitmq("msg", "resend", *words, "-n", "127.0.0.1:1", code=2).stderr
