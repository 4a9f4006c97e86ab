"""Messages pulled from a live broker over TCP: every outcome, the checks before it, and pulls that wait."""

from __future__ import annotations

import asyncio
import json
import random
from pathlib import Path

import pytest

from orbitmq.broker import held_pulls
from orbitmq.broker.broker import Broker
from orbitmq.broker.pull_handler import EXPRESSION_SHARE
from orbitmq.errors import SendRequestError
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SubscriptionData, SubscriptionGroup, TopicConfig
from orbitmq.message.flags import PULL_COMMIT_OFFSET, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.wire.bodies import MessageModel
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import PullMessageHeader, PullMessageResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import (
    Client,
    Time,
    bounds,
    client_of,
    consumer,
    live,
    made_broker,
    pull_header,
    running,
)
from tests.support.loops import LoopFactory, settle, until

WAITING = PULL_SUBSCRIPTION | PULL_SUSPEND
OFFSETS = {"suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"}


def found(answer: Command) -> tuple[int, str | None, tuple[int, int, int]]:
    """Code, status and offsets of an answer that has them."""
    assert set(answer.ext or {}) == OFFSETS
    assert bool(answer.body) == (answer.code == 0)
    return answer.code, answer.remark, bounds(answer)


async def fill(client: Client, count: int, *tags: str, topic: str = "Orders") -> None:
    """Messages `0`, `1`, ... into queue 0, their tags in turn."""
    for number in range(count):
        properties = {"TAGS": tags[number % len(tags)]} if tags else {}
        assert (await client.send(topic, b"%d" % number, properties)).code == 0


def texts(messages: list[object]) -> list[str]:
    return [message.body.decode() for message in messages]  # type: ignore[attr-defined]


# ------------------------------------------------------------------------------------------------------------ outcomes


@pytest.mark.parametrize(
    ("offset", "code", "status", "expected"),
    [
        (0, 0, "FOUND", (10, 0, 10)),
        (7, 0, "FOUND", (10, 0, 10)),
        (10, 19, "OFFSET_OVERFLOW_ONE", (10, 0, 10)),
        (11, 21, "OFFSET_OVERFLOW_BADLY", (10, 0, 10)),
        (-1, 21, "OFFSET_TOO_SMALL", (0, 0, 10)),
    ],
)
@pytest.mark.parametrize("request_code", [RequestCode.PULL_MESSAGE, RequestCode.LITE_PULL_MESSAGE])
async def test_the_offset_decides_what_is_found(
    tmp_path: Path, request_code: RequestCode, offset: int, code: int, status: str, expected: tuple[int, int, int]
) -> None:
    async with live(tmp_path) as client:
        await fill(client, 10)
        assert found(await client.ask(request_code, pull_header("Orders", 0, offset))) == (code, status, expected)


async def test_a_pull_in_bulk_returns_more_than_32(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await fill(client, 100)
        header = pull_header("Orders", 0, 0)
        header.max_msg_nums = 1024
        assert found(await client.ask(RequestCode.PULL_MESSAGE, header)) == (0, "FOUND", (32, 0, 100))
        header.bulk = True
        assert found(await client.ask(RequestCode.PULL_MESSAGE, header)) == (0, "FOUND", (100, 0, 100))


@pytest.mark.parametrize("kind", list(SerializeType))
async def test_an_answer_comes_in_the_serialization_of_its_request(tmp_path: Path, kind: SerializeType) -> None:
    async with live(tmp_path) as client:
        await fill(client, 1)
        for offset in (0, 1, 9):
            answer = await client.ask(RequestCode.PULL_MESSAGE, pull_header("Orders", 0, offset), kind=kind)
            assert answer.serialize_type == kind


async def test_an_empty_queue_is_waited_for_at_its_start_and_left_elsewhere(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.send("Orders", queue_id=1)
        assert found(await client.pull("Orders", 0, 0)) == (19, "NO_MESSAGE_IN_QUEUE", (0, 0, 0))
        assert found(await client.pull("Orders", 0, 5)) == (21, "NO_MESSAGE_IN_QUEUE", (0, 0, 0))


async def test_one_answer_holds_what_is_asked_for_and_at_most_32(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await fill(client, 50)
        assert texts(await client.read("Orders", max_msg_nums=3)) == ["0", "1", "2"]
        first = await client.read("Orders", max_msg_nums=100)
        assert texts(first) == [str(number) for number in range(32)]
        assert texts(await client.read("Orders", offset=32)) == [str(number) for number in range(32, 50)]


async def test_one_answer_holds_256_kib_but_always_one_message(tmp_path: Path) -> None:
    async with live(tmp_path, mappedFileSizeCommitLog=str(4 << 20)) as client:
        sizes = [300 << 10, 100 << 10, 100 << 10, 100 << 10]
        for size in sizes:
            await client.send("Orders", random.randbytes(size))
        assert [len(message.body) for message in await client.read("Orders", offset=0)] == sizes[:1]
        assert [len(message.body) for message in await client.read("Orders", offset=1)] == sizes[1:3]


async def test_a_tag_expression_filters_by_hash(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await fill(client, 9, "TagA", "TagB", "TagC")
        assert texts(await client.read("Orders", subscription="TagA")) == ["0", "3", "6"]
        assert texts(await client.read("Orders", subscription=" TagC || TagA ")) == ["0", "2", "3", "5", "6", "8"]
        assert texts(await client.read("Orders", subscription="*", max_msg_nums=2)) == ["0", "1"]
        assert texts(await client.read("Orders", subscription=None, max_msg_nums=1)) == ["0"]
        assert texts(await client.read("Orders", subscription="TagB", max_msg_nums=2)) == ["1", "4"]


async def test_the_hash_alone_decides_on_this_side(tmp_path: Path) -> None:
    """`Aa` and `BB` have the same hash: the client must look at the tag itself."""
    async with live(tmp_path) as client:
        await fill(client, 3, "Aa", "BB", "CC")
        assert texts(await client.read("Orders", subscription="BB")) == ["0", "1"]


async def test_messages_of_other_tags_are_passed_over(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await fill(client, 10, "TagA")
        answer = await client.pull("Orders", subscription="TagB")
        assert found(answer) == (20, "NO_MATCHED_MESSAGE", (10, 0, 10))


async def test_one_pull_looks_at_800_entries(tmp_path: Path) -> None:
    async with live(
        tmp_path, mappedFileSizeConsumeQueue=str(20 * 5000), mappedFileSizeCommitLog=str(8 << 20)
    ) as client:
        for _ in range(10):
            await client.send_batch("Orders", [b"x"] * 100, {"TAGS": "TagA"})
        await client.send("Orders", b"wanted", {"TAGS": "TagB"})
        answer = await client.pull("Orders", subscription="TagB")
        assert found(answer) == (20, "NO_MATCHED_MESSAGE", (800, 0, 1001))
        assert texts(await client.read("Orders", offset=800, subscription="TagB")) == ["wanted"]


async def test_a_consumer_outside_the_queue_leaves_an_event_for_monitors(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 3)
        await client.pull("Orders", 0, 9, consumer_group="lost")
        await until(lambda: broker.store.max_offset("OFFSET_MOVED_EVENT", 0) == 1, "its queue has a file")
        (event,) = await client.read("OFFSET_MOVED_EVENT")
        assert json.loads(event.body) == {
            "consumerGroup": "lost",
            "messageQueue": {"brokerName": "broker-a", "queueId": 0, "topic": "Orders"},
            "offsetNew": 3,
            "offsetRequest": 9,
        }
        assert (event.tags, event.keys) == ("lost", "lost")
        assert event.born_host == event.store_host == client.address


# -------------------------------------------------------------------------------------------------------------- checks


@pytest.mark.parametrize(
    ("topic", "queue", "fields", "code"),
    [
        ("Orders", 0, {"consumer_group": "forbidden"}, 16),
        ("Unreadable", 0, {}, 16),
        ("Unknown", 0, {}, 17),
        ("Orders", 4, {}, 1),
        ("Orders", -1, {}, 1),
        ("Orders", 0, {"subscription": "||"}, 23),
        ("Orders", 0, {"subscription": "a > 5", "expression_type": "SQL92"}, 1),  # enablePropertyFilter is off
        ("Orders", 0, {"sys_flag": 0, "consumer_group": "never-heard"}, 24),
        ("Bills", 0, {"sys_flag": 0, "consumer_group": "heard"}, 24),
        ("Orders", 0, {"sys_flag": 0, "consumer_group": "heard", "sub_version": 8}, 25),
        ("Orders", 0, {"sys_flag": 0, "consumer_group": "loud"}, 16),
    ],
)
async def test_what_may_not_be_read_is_refused_with_rocketmqs_code(
    tmp_path: Path, topic: str, queue: int, fields: dict[str, object], code: int
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders")
        await client.send("Bills")
        broker.topics.put(TopicConfig("Unreadable", perm=2))
        broker.groups.put(SubscriptionGroup("forbidden", consume_enabled=False))
        broker.groups.put(SubscriptionGroup("loud", consume_broadcast_enabled=False))
        await client.heartbeat(
            consumer("heard", SubscriptionData("Orders", version=7)),
            consumer("loud", SubscriptionData("Orders"), message_model=MessageModel.BROADCASTING),
        )
        answer = await client.pull(topic, queue, **fields)
        assert answer.code == code
        assert answer.remark
        assert not answer.ext
        assert not answer.body


async def test_a_broker_without_read_permission_gives_nothing(tmp_path: Path) -> None:
    async with live(tmp_path, brokerPermission="2") as client:
        await client.send("Orders")
        assert (await client.pull("Orders")).code == 16


async def test_a_group_that_may_not_exist_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path, autoCreateSubscriptionGroup="false") as client:
        await client.send("Orders")
        assert (await client.pull("Orders", consumer_group="g")).code == 26
        assert (await client.pull("Orders", consumer_group="TOOLS_CONSUMER")).code == 0


async def test_the_subscription_of_the_heartbeat_filters(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await fill(client, 6, "TagA", "TagB")
        await client.heartbeat(consumer("g", tag_subscription("Orders", "TagB", 7)))
        fields = {"consumer_group": "g", "sys_flag": 0, "subscription": None, "sub_version": 7}
        assert texts(await client.read("Orders", **fields)) == ["1", "3", "5"]
        await client.heartbeat(consumer("g", tag_subscription("Orders", "TagA", 9)))
        assert texts(await client.read("Orders", **fields)) == ["0", "2", "4"]


# ---------------------------------------------------------------------------------------------------------- committing


@pytest.mark.parametrize(("offset", "code"), [(0, 0), (3, 19), (9, 21)])
async def test_a_pull_commits_the_offset_it_carries_whatever_it_finds(tmp_path: Path, offset: int, code: int) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 3)
        fields = {"consumer_group": "g", "commit_offset": 2}
        await client.pull("Orders", 0, offset, **fields)
        assert broker.offsets.query("g", "Orders", 0) is None
        assert (
            await client.pull("Orders", 0, offset, sys_flag=PULL_SUBSCRIPTION | PULL_COMMIT_OFFSET, **fields)
        ).code == code
        assert broker.offsets.query("g", "Orders", 0) == 2


async def test_a_held_pull_commits_when_it_comes(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        await fill(client, 3)
        task = asyncio.create_task(
            client.pull("Orders", 0, 3, sys_flag=WAITING | PULL_COMMIT_OFFSET, commit_offset=3, consumer_group="g")
        )
        await until(lambda: held(broker) == 1)
        assert broker.offsets.query("g", "Orders", 0) == 3
        broker.offsets.commit("g", "Orders", 0, 1)
        await client.send("Orders")
        assert (await task).code == 0
        assert broker.offsets.query("g", "Orders", 0) == 1


# ------------------------------------------------------------------------------------------------------------- waiting


def held(broker: Broker) -> int:
    return len(broker._pulling.held)


async def test_a_waiting_pull_is_answered_by_the_next_message(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 3)
        waiting = asyncio.create_task(client.pull("Orders", 0, 3, sys_flag=WAITING))
        await until(lambda: held(broker) == 1)
        await client.send("Orders", b"next")
        answer = await waiting
        assert found(answer) == (0, "FOUND", (4, 0, 4))
        assert b"next" in answer.body
        assert held(broker) == 0


async def test_it_is_woken_by_its_own_tag_alone(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1, "TagA")
        waiting = asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING, subscription="TagB"))
        await until(lambda: held(broker) == 1)
        await client.send("Orders", b"not mine", {"TAGS": "TagA"})
        await client.send("Orders", b"nor mine")
        await settle()
        assert not waiting.done()
        await client.send("Orders", b"mine", {"TAGS": "TagB"})
        answer = await waiting
        assert found(answer) == (0, "FOUND", (4, 0, 4))
        assert b"not mine" not in answer.body


async def test_messages_of_one_turn_come_with_one_answer(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)
        waiting = asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING))
        await until(lambda: held(broker) == 1)
        await client.send_batch("Orders", [b"a", b"b", b"c"])
        assert found(await waiting) == (0, "FOUND", (4, 0, 4))


async def test_pulls_of_a_topic_that_many_groups_read_are_answered_together(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:

        def follow(count: int) -> list[asyncio.Task[Command]]:
            pulls = [client.pull("Orders", 0, 1, sys_flag=WAITING, max_msg_nums=9) for _ in range(count)]
            return [asyncio.create_task(pull) for pull in pulls]

        await fill(client, 1)
        pulls = follow(held_pulls.WIDE_FROM)
        await until(lambda: held(broker) == len(pulls))
        await fill(client, 1)
        await asyncio.gather(*pulls)
        broker._pulling.held._gathers_until = asyncio.get_running_loop().time() + 0.5
        pulls = follow(5)
        await until(lambda: held(broker) == len(pulls))
        full = await client.pull("Orders", 0, 0, sys_flag=WAITING, max_msg_nums=2)
        assert found(full) == (0, "FOUND", (2, 0, 2)), "it waits for nothing: it cannot get more"
        await fill(client, 1)
        assert held(broker) == len(pulls)
        await time.pass_by(0.5)
        assert {found(await pull) for pull in pulls} == {(0, "FOUND", (3, 0, 3))}


@pytest.mark.parametrize(("long_polling", "seconds"), [("true", 15), ("false", 1)])
async def test_a_pull_waits_as_long_as_it_may_and_learns_that_nothing_came(
    tmp_path: Path, turned_clock: LoopFactory, long_polling: str, seconds: int
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, longPollingEnable=long_polling)
    async with running(broker), client_of(broker) as client:
        await fill(client, 3)
        waiting = asyncio.create_task(client.pull("Orders", 0, 3, sys_flag=WAITING, suspend_timeout_millis=15_000))
        await until(lambda: held(broker) == 1)
        await time.pass_by(seconds - 0.5)
        assert not waiting.done()
        await time.pass_by(5.5)
        assert found(await waiting) == (19, "OFFSET_OVERFLOW_ONE", (3, 0, 3))


async def test_its_time_up_it_learns_of_what_it_does_not_want(tmp_path: Path, turned_clock: LoopFactory) -> None:
    """Its next pull begins behind the messages of other tags."""
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)
        waiting = asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING, subscription="TagB"))
        await until(lambda: held(broker) == 1)
        await fill(client, 4, "TagA")
        await time.pass_by(6)
        assert found(await waiting) == (20, "NO_MATCHED_MESSAGE", (5, 0, 5))


async def test_an_empty_queue_can_be_waited_for(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders", queue_id=1)
        waiting = asyncio.create_task(client.pull("Orders", 0, 0, sys_flag=WAITING))
        await until(lambda: held(broker) == 1)
        await client.send("Orders", b"first", queue_id=0)
        assert found(await waiting) == (0, "FOUND", (1, 0, 1))


@pytest.mark.parametrize("offset", [0, 9])
async def test_only_a_pull_at_the_end_waits(tmp_path: Path, offset: int) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 3)
        assert (await client.pull("Orders", 0, offset, sys_flag=WAITING)).code in (0, 21)
        assert held(broker) == 0


async def test_many_pulls_of_one_connection_wait_beside_each_other(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("Orders")
        pulls = [asyncio.create_task(client.pull("Orders", queue, 0, sys_flag=WAITING)) for queue in (1, 2, 3)]
        await until(lambda: held(broker) == 3)
        for queue in (3, 1, 2):
            await client.send("Orders", b"%d" % queue, queue_id=queue)
            assert (await pulls[queue - 1]).code == 0
        assert held(broker) == 0


async def test_a_waiting_pull_keeps_nothing_that_its_answer_does_not_need(tmp_path: Path) -> None:
    """A megabyte of fields, a remark or a body would be kept for as long as nothing comes, thousands of times."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)
        command = request(RequestCode.PULL_MESSAGE, pull_header("Orders", 0, 1, sys_flag=WAITING), bytes(1 << 20))
        assert command.ext is not None
        command.ext["surplus"], command.remark = "x" * 100_000, "y" * 100_000
        asking = asyncio.create_task(client.remoting.call(client.address, command, 60_000))
        await until(lambda: held(broker) == 1)
        ((pull,),) = broker._pulling.held._held.values()
        assert (pull.command.ext, pull.command.remark, pull.command.body) == (None, None, b"")
        await client.send("Orders", b"next")
        assert (await asking).code == 0


@pytest.mark.parametrize("own", [True, False])
async def test_a_waiting_pull_keeps_of_its_header_what_is_read_again(tmp_path: Path, own: bool) -> None:
    """Its expression when it brought one, which has a longest; else that of the heartbeat counts, whatever it says."""
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)
        await client.heartbeat(consumer("readers", tag_subscription("Orders", "*")))
        long = {"broker_name": "b" * 300_000} | ({} if own else {"expression_type": "e" * 300_000})
        said = pull_header(
            "Orders", 0, 1, sys_flag=WAITING if own else PULL_SUSPEND, subscription="TagA || TagB", **long
        )
        command = request(RequestCode.PULL_MESSAGE, said)
        command.language, command.version = "l" * 300_000, 10**4000
        asking = asyncio.create_task(client.remoting.call(client.address, command, 60_000))
        await until(lambda: held(broker) == 1)
        ((pull,),) = broker._pulling.held._held.values()
        kept = pull.command.header(PullMessageHeader)
        assert (pull.command.language, pull.command.version, kept.broker_name) == ("JAVA", 0, None)
        assert (kept.subscription, kept.expression_type) == (("TagA || TagB", "TAG") if own else (None, None))
        await client.send("Orders", b"next", {"TAGS": "TagB"})
        answer = await asking
        assert (answer.code, answer.opaque) == (0, command.opaque)
        assert b"next" in answer.body


async def test_a_waiting_pull_with_a_long_expression_counts_as_many(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiled it takes up to a megabyte, which 25,000 of a connection may not have each."""
    monkeypatch.setattr(held_pulls, "HELD_BY_ONE_MAX", 20)
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)

        async def waits(subscription: str) -> bool:
            before = held(broker)
            asking = asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING, subscription=subscription))
            await until(lambda: asking.done() or held(broker) > before)
            waiting.append(asking)
            return not asking.done()

        waiting: list[asyncio.Task[Command]] = []
        assert await waits("T" * (10 * EXPRESSION_SHARE))
        assert not await waits("T" * (10 * EXPRESSION_SHARE))
        assert await waits("TagA")
        await client.send("Orders", b"next", {"TAGS": "TagA"})
        assert [(await waiting[number]).code for number in (1, 2)] == [19, 0]
        waiting[0].cancel()


async def test_a_client_that_goes_takes_its_waiting_pulls_along(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as stays:
        await fill(stays, 1)
        async with client_of(broker) as goes:
            waiting = asyncio.create_task(goes.pull("Orders", 0, 1, sys_flag=WAITING))
            await until(lambda: held(broker) == 1)
        with pytest.raises(SendRequestError):
            await waiting
        await time.pass_by(5.1)
        assert held(broker) == 0


async def test_a_topic_that_vanishes_is_told_to_those_who_wait_for_it(
    tmp_path: Path, turned_clock: LoopFactory
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)
        waiting = asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING))
        await until(lambda: held(broker) == 1)
        broker.topics.delete("Orders")
        await time.pass_by(20)
        assert (await waiting).code == 17


async def test_a_failing_read_is_one_answer_and_the_others_get_theirs(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await fill(client, 1)
        pulls = [asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING)) for _ in range(3)]
        await until(lambda: held(broker) == 3)
        read, fails = broker.store.get, iter([True])

        def once_broken(*arguments: object, **named: object) -> object:
            if next(fails, False):
                raise ZeroDivisionError("a bug")
            return read(*arguments, **named)  # type: ignore[arg-type]

        monkeypatch.setattr(broker.store, "get", once_broken)
        await client.send("Orders")
        assert sorted([(await pull).code for pull in pulls]) == [0, 0, 1]


async def test_a_stopping_broker_answers_those_who_wait(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    await broker.start()
    async with client_of(broker) as client:
        await fill(client, 1)
        pulls = [asyncio.create_task(client.pull("Orders", 0, 1, sys_flag=WAITING)) for _ in range(3)]
        await until(lambda: held(broker) == 3)
        await broker.stop()
        assert [(await pull).code for pull in pulls] == [19, 19, 19]


@pytest.mark.parametrize(("ratio", "enabled", "suggested"), [("0", "true", 3), ("40", "true", 0), ("0", "false", 0)])
async def test_readers_of_what_is_no_longer_in_memory_may_be_sent_to_a_slave(
    tmp_path: Path, ratio: str, enabled: str, suggested: int
) -> None:
    options = {"accessMessageInMemoryMaxRatio": ratio, "slaveReadEnable": enabled}
    broker = made_broker(tmp_path, **options)
    async with running(broker), client_of(broker) as client:
        broker.groups.put(SubscriptionGroup("readers", broker_id_when_slow=3))
        await fill(client, 3)
        answer = await client.pull("Orders")
        assert answer.code == 0
        assert answer.header(PullMessageResponseHeader).suggest_which_broker_id == suggested
