"""A pull consumer gives out what was asked for, commits what it is told to, and forgets the old place on every seek."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from orbitmq.client import ConsumeFromWhere, LitePullConsumer, MessageQueue
from orbitmq.client.core.flow import MIB
from orbitmq.errors import BrokerError, ClientError, ConfigurationError, InvalidStateError
from orbitmq.message.properties import encode_properties
from orbitmq.message.topics import TRACE_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import ConsumeType
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import PullMessageHeader, PullMessageResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse, silence
from tests.support.loops import TurnedLoop, run, turned_loop, until

Q = [MessageQueue("T", BROKER, n) for n in range(2)]


def lite(system: FakeSystem, queues: int = 1, messages: int = 0, **settings: Any) -> LitePullConsumer:
    """A consumer that has subscribed a topic with messages."""
    system.topics["T"] = queues
    for i in range(messages):
        system.put("T", i % queues, b"%d" % i)
    first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
    consumer = LitePullConsumer("g", system.address, **{"consume_from_where": first, "auto_commit": False, **settings})
    consumer.subscribe("T")
    return consumer


async def bodies(consumer: LitePullConsumer, count: int) -> list[bytes]:
    found: list[bytes] = []
    while len(found) < count:
        messages = await consumer.poll(5)
        assert messages, f"{len(found)} of {count} came"
        found += [message.body for message in messages]
    return found


def pulls(system: FakeSystem) -> list[PullMessageHeader]:
    return [c.header(PullMessageHeader) for c in system.asked if c.code == RequestCode.PULL_MESSAGE]


def test_poll_gives_one_pull_at_a_time_in_order() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=25, pull_batch_size=10) as consumer:
            sizes = [len(await consumer.poll(5)) for _ in range(3)]
            assert sizes == [10, 10, 5]
            assert await consumer.poll(0) == []
            system.put("T", 0, b"new")
            assert await bodies(consumer, 1) == [b"new"]

    run(scenario())


def test_pulls_ask_as_java_asks() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=1) as consumer:
            await consumer.poll(5)
            first = pulls(system)[0]
            assert (first.sys_flag, first.max_msg_nums, first.suspend_timeout_millis) == (22, 10, 20_000)
            assert (first.subscription, first.expression_type, first.commit_offset) == ("*", "TAG", 0)
            (data,) = system.heartbeats[-1].consumer_data_set
            assert data.consume_type is ConsumeType.CONSUME_ACTIVELY
            assert [s.topic for s in data.subscription_data_set] == ["T"]

    run(scenario())


def test_how_long_a_broker_may_hold_a_pull_and_how_long_it_may_take_is_set() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.answers[RequestCode.PULL_MESSAGE] = silence()
            async with lite(system, broker_suspend_max_ms=4000, pull_timeout_ms=7000, pull_error_delay_ms=500):
                await until(lambda: pulls(system))
                assert pulls(system)[0].suspend_timeout_millis == 4000
                await turned_loop().turn(6.9)
                await turned_loop().turn(0.6)
                assert len(pulls(system)) == 1
                await turned_loop().turn(0.6)
                await until(lambda: len(pulls(system)) == 2)

    run(scenario(), TurnedLoop)


def test_a_confirmed_commit_has_arrived() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=15) as consumer:
            await consumer.poll(5)
            assert await consumer.committed(Q[0]) == -1
            await consumer.commit(wait=True)
            assert system.offsets == {("g", "T", 0): 10}
            assert await consumer.committed(Q[0]) == 10
            await consumer.commit({Q[0]: 3}, wait=True)
            assert system.offsets == {("g", "T", 0): 3}
            system.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse(ResponseCode.SYSTEM_BUSY)
            await consumer.poll(5)
            with pytest.raises(BrokerError):
                await consumer.commit(wait=True)

    run(scenario())


def test_a_commit_that_does_not_wait_arrives_at_the_interval() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=5) as consumer:
            await consumer.poll(5)
            await consumer.commit()
            assert not system.offsets
            await turned_loop().turn(5.1)
            await until(lambda: system.offsets == {("g", "T", 0): 5})

    run(scenario(), TurnedLoop)


def test_auto_commit_commits_what_earlier_polls_returned() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with lite(system, messages=20, auto_commit=True, auto_commit_interval_ms=1) as consumer:
                await consumer.poll(5)
                await asyncio.sleep(0.002)
                assert await consumer.committed(Q[0]) == -1
                await consumer.poll(5)
                assert await consumer.committed(Q[0]) == 10
            assert system.offsets == {("g", "T", 0): 20}  # leaving means that the last messages are done with

    run(scenario())


def test_without_auto_commit_nothing_is_committed_unasked() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with lite(system, messages=20) as consumer:
                await bodies(consumer, 20)
            assert not system.offsets

    run(scenario())


def test_after_a_seek_nothing_old_is_returned() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=30) as consumer:
            await consumer.poll(5)
            await until(lambda: len(pulls(system)) >= 3)  # more is cached already
            await consumer.seek(Q[0], 25)
            assert await bodies(consumer, 5) == [b"25", b"26", b"27", b"28", b"29"]
            await consumer.seek_to_begin(Q[0])
            assert (await bodies(consumer, 10))[0] == b"0"
            await consumer.seek_to_end(Q[0])
            assert await consumer.poll(0.05) == []
            system.put("T", 0, b"30")
            assert await bodies(consumer, 1) == [b"30"]

    run(scenario())


def test_a_place_outside_the_queue_is_refused() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=3) as consumer:
            for offset in (-1, 4):
                with pytest.raises(ClientError, match=f"has offsets 0 to 3, not {offset}"):
                    await consumer.seek(Q[0], offset)
            with pytest.raises(ClientError, match="is not assigned"):
                await consumer.seek(Q[1], 0)

    run(scenario())


def test_assigned_queues_are_read_without_a_group() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 2
            for i in range(6):
                system.put("T", i % 2, b"%d" % i, encode_properties({"TAGS": "ab"[i // 4]}))
            first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            consumer = LitePullConsumer("g", system.address, consume_from_where=first)
            consumer.set_assign_expression("T", "a")
            consumer.assign([Q[1]])
            async with consumer:
                assert await bodies(consumer, 2) == [b"1", b"3"]
                assert consumer.assignment() == {Q[1]}
                consumer.assign(Q)
                assert await bodies(consumer, 2) == [b"0", b"2"]
                consumer.assign([Q[0]])
                await until(lambda: consumer.assignment() == {Q[0]})
                assert system.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == 0
                with pytest.raises(InvalidStateError):
                    consumer.subscribe("T")
                with pytest.raises(InvalidStateError):
                    consumer.set_assign_expression("T", "b")

    run(scenario())


def test_subscribing_excludes_assigning() -> None:
    consumer = LitePullConsumer("g", "h:1")
    consumer.subscribe("T")
    with pytest.raises(InvalidStateError, match="has subscribed"):
        consumer.assign(Q)


def test_paused_queues_rest() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, queues=2, messages=4) as consumer:
            await bodies(consumer, 4)
            consumer.pause([Q[0]])
            await consumer.seek_to_begin(Q[0])
            await consumer.seek_to_begin(Q[1])
            assert await bodies(consumer, 2) == [b"1", b"3"]
            assert await consumer.poll(0.05) == []
            consumer.resume([Q[0]])
            assert await bodies(consumer, 2) == [b"0", b"2"]

    run(scenario())


def test_fetching_ahead_is_limited() -> None:
    async def scenario() -> None:
        async with (
            fake_system() as system,
            lite(system, messages=100, pull_batch_size=10, pull_threshold_for_all=25) as consumer,
        ):
            await until(lambda: len(pulls(system)) == 3)
            await asyncio.sleep(0.05)
            assert len(pulls(system)) == 3  # 30 are cached, more than 25
            await consumer.poll(5)
            await until(lambda: len(pulls(system)) == 4)

    run(scenario())


def test_the_bytes_fetched_ahead_are_limited() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for _ in range(6):
                system.put("T", 0, bytes(MIB))
            async with lite(system, pull_batch_size=1, pull_threshold_size_for_queue=1) as consumer:
                await until(lambda: len(pulls(system)) == 2)
                await asyncio.sleep(0.05)
                assert len(pulls(system)) == 2  # 2 MiB are cached, more than 1
                assert len(await bodies(consumer, 6)) == 6

    run(scenario())


def test_messages_can_be_iterated() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=12) as consumer:
            found = []
            async for message in consumer:
                found.append(message.body)
                if len(found) == 12:
                    break
            assert found == [b"%d" % i for i in range(12)]

    run(scenario())


def test_a_loop_that_is_left_has_had_what_it_was_given_and_no_more() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with lite(system, messages=12, auto_commit=True) as consumer:
                async for message in consumer:
                    if message.body == b"3":
                        break
                assert [m.body for m in await consumer.poll(5, max_messages=2)] == [b"4", b"5"]
                async for message in consumer:
                    assert message.body == b"6", "the next loop goes on where the other was left"
                    break
            assert system.offsets == {("g", "T", 0): 7}, "nothing is committed that nobody was given"

    run(scenario())


class Broken(Exception):
    """What the application raises in the middle of its work."""


async def read_singly(consumer: LitePullConsumer, at_work: Callable[[bytes], Awaitable[None]]) -> None:
    async for message in consumer:
        await at_work(message.body)


async def read_pulls(consumer: LitePullConsumer, at_work: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        for message in await consumer.poll(5):
            await at_work(message.body)


async def read_parts(consumer: LitePullConsumer, at_work: Callable[[bytes], Awaitable[None]]) -> None:
    while True:
        for message in await consumer.poll(5, max_messages=4):
            await at_work(message.body)


READERS = [(read_singly, 13), (read_pulls, 10), (read_parts, 10)]
"""How to read, and what is committed when the work at the fourteenth message fails."""


@pytest.mark.parametrize(("read", "committed"), READERS)
@pytest.mark.parametrize("how", ["exception", "cancellation"])
@pytest.mark.parametrize("commits", ["async", "sync"])
def test_leaving_in_the_middle_of_work_commits_only_what_was_done_before(
    read: Any, committed: int, how: str, commits: str
) -> None:
    done: list[bytes] = []

    async def scenario() -> None:
        at_thirteen = asyncio.Event()

        async def at_work(body: bytes) -> None:
            if body == b"13" and how == "exception":
                raise Broken
            if body == b"13":
                at_thirteen.set()
                await asyncio.Event().wait()
            done.append(body)

        async def work() -> None:
            async with lite(system, messages=20, auto_commit=True, offset_commit=commits) as consumer:
                await read(consumer, at_work)

        async with fake_system() as system:
            working = asyncio.ensure_future(work())
            if how == "cancellation":
                await at_thirteen.wait()
                working.cancel()
            with pytest.raises((Broken, asyncio.CancelledError)):
                await working
            assert system.offsets == {("g", "T", 0): committed}
            assert done == [b"%d" % i for i in range(13)]

    run(scenario())


def test_leaving_by_an_exception_hands_nothing_to_a_commit_when_queues_are_revoked() -> None:
    async def work(system: FakeSystem) -> None:
        consumer = lite(system, messages=20)
        consumer.on_revoked(lambda queues: consumer.commit(queues=queues, wait=True))
        async with consumer:
            await consumer.poll(5)
            await consumer.poll(5)
            raise Broken

    async def scenario() -> None:
        async with fake_system() as system:
            with pytest.raises(Broken):
                await work(system)
            assert system.offsets == {("g", "T", 0): 10}

    run(scenario())


def test_a_new_group_that_fails_at_its_first_message_begins_with_that_again() -> None:
    """Else it would begin behind all that came meanwhile, as groups without offsets do."""
    last = ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET

    async def work(system: FakeSystem) -> None:
        async with lite(system, auto_commit=True, consume_from_where=last) as consumer:
            await until(lambda: pulls(system))
            system.put("T", 0, b"first")
            await bodies(consumer, 1)
            system.put("T", 0, b"second")
            raise Broken

    async def scenario() -> None:
        async with fake_system() as system:
            for _ in range(3):
                system.put("T", 0, b"old")
            with pytest.raises(Broken):
                await work(system)
            async with lite(system, consume_from_where=last) as consumer:
                assert await bodies(consumer, 2) == [b"first", b"second"]

    run(scenario())


def test_what_was_committed_stays_so_when_an_exception_leaves() -> None:
    async def work(system: FakeSystem) -> None:
        async with lite(system, messages=20, auto_commit=True) as consumer:
            await consumer.poll(5)
            await consumer.commit()
            raise Broken

    async def scenario() -> None:
        async with fake_system() as system:
            with pytest.raises(Broken):
                await work(system)
            assert system.offsets == {("g", "T", 0): 10}

    run(scenario())


def test_a_plain_shutdown_does_not_take_the_last_messages_for_done() -> None:
    """It comes from a handler or another task, and the work may be in the middle of them."""

    async def scenario() -> None:
        async with fake_system() as system:
            consumer = lite(system, messages=20, auto_commit=True)
            await consumer.start()
            await consumer.poll(5)
            await consumer.poll(5)
            await consumer.shutdown()
            assert system.offsets == {("g", "T", 0): 10}

    run(scenario())


def test_a_poll_for_no_message_is_refused() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system) as consumer:
            with pytest.raises(ConfigurationError, match="max_messages 0"):
                await consumer.poll(max_messages=0)

    run(scenario())


def test_uncommitted_offsets_of_a_queue_that_went_away_are_not_committed() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, queues=2, messages=4) as one:
            await bodies(one, 4)
            async with lite(system, queues=2) as two:
                system.notify("g")
                await until(lambda: len(one.assignment()) == len(two.assignment()) == 1)
                await one.commit(wait=True)
                (kept,) = one.assignment()
                assert set(system.offsets) == {("g", "T", kept.queue_id)}

    run(scenario())


def test_questions_about_queues() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, queues=2, messages=8) as consumer:
            assert await consumer.fetch_queues("T") == Q
            assert await consumer.min_offset(Q[0]) == 0
            assert await consumer.max_offset(Q[0]) == 4
            assert await consumer.offset_for_timestamp(Q[0], 123) == 2
            with pytest.raises(ClientError, match="no route to topic Nowhere"):
                await consumer.fetch_queues("Nowhere")

    run(scenario())


def test_a_consumer_that_is_not_running_gives_nothing() -> None:
    async def scenario() -> None:
        consumer = LitePullConsumer("g", "h:1")
        for call in (consumer.poll(0), consumer.commit(), consumer.committed(Q[0])):
            with pytest.raises(InvalidStateError):
                await call

    run(scenario())


def test_a_commit_may_be_told_now_without_waiting() -> None:
    """All but the first of a topic, which the others must not meet."""

    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=5, pull_batch_size=1) as consumer:
            for end in range(1, 4):
                await bodies(consumer, 1)
                await consumer.commit(persist=True)
                await until(lambda end=end: system.offsets == {("g", "T", 0): end})  # type: ignore[misc]
            told = [c for c in system.asked if c.code == RequestCode.UPDATE_CONSUMER_OFFSET]
            assert [command.is_oneway for command in told] == [False, True, True]

    run(scenario())


def test_with_sync_commits_nothing_is_given_out_before_the_last_is_confirmed() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            settings = {"auto_commit": True, "offset_commit": "sync", "pull_error_delay_ms": 10}
            async with lite(system, messages=30, **settings) as consumer:
                assert len(await consumer.poll(5)) == 10
                system.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse(ResponseCode.SYSTEM_BUSY)
                assert await consumer.poll(0) == []
                assert system.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 1
                assert await consumer.poll(0.05) == []
                assert not system.offsets
                assert system.count(RequestCode.UPDATE_CONSUMER_OFFSET) > 2, "it asks until it is confirmed"
                system.answers.clear()
                assert len(await consumer.poll(0)) == 10
                await consumer.seek(Q[0], 10)
                assert [message.body for message in await consumer.poll(5)] == [b"%d" % i for i in range(10, 20)]
                assert system.offsets == {("g", "T", 0): 10}
            assert system.offsets == {("g", "T", 0): 20}

    run(scenario())


def test_with_sync_commits_an_explicit_one_waits() -> None:
    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=5, offset_commit="sync") as consumer:
            await consumer.poll(5)
            await consumer.commit()
            assert system.offsets == {("g", "T", 0): 5}
            await consumer.commit({Q[0]: 2}, wait=False)
            assert system.offsets == {("g", "T", 0): 5}

    run(scenario())


def test_a_poll_that_waits_ends_with_the_consumer() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = lite(system)
            await consumer.start()
            waiting = asyncio.ensure_future(consumer.poll(3600))
            await asyncio.sleep(0)
            await consumer.shutdown()
            assert await waiting == []

    run(scenario())


def test_one_node_of_every_broker_can_be_read() -> None:
    async def scenario() -> None:
        async with fake_system() as system, fake_system() as slave:
            system.topics["T"] = slave.topics["T"] = 1
            slave.put("T", 0, b"of the slave")
            route = system.route("T")
            route.broker_datas[0].addresses[1] = slave.address
            system.route = lambda topic, perm=6: route  # type: ignore[method-assign]
            async with lite(system, pull_from_broker_id=1) as consumer:
                assert await bodies(consumer, 1) == [b"of the slave"]
            assert system.count(RequestCode.PULL_MESSAGE) == 0

    run(scenario())


def test_what_was_pulled_is_traced() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            async with lite(system, enable_trace=True) as consumer:
                system.put("T", 0, b"x", encode_properties({"UNIQ_KEY": "U", "KEYS": "order-1"}))
                await bodies(consumer, 1)
            traced = [unit for (topic, _), units in system.messages.items() if topic == TRACE_TOPIC for unit in units]
            records = b"".join(unit.body for unit in traced).decode().split("\x02")
            before, after = (record.split("\x01") for record in records if record)
            assert (before[0], before[3], before[5], before[7]) == ("SubBefore", "g", "U", "order-1")
            assert (after[0], after[2], after[4]) == ("SubAfter", "U", "true")
            assert before[4] == after[1], "both are of one delivery"

    run(scenario())


def test_a_seek_does_not_outlive_its_assignment() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            for i in range(4):
                system.put("T", 0, b"%d" % i)
            consumer = LitePullConsumer("g", system.address, auto_commit=False)
            consumer.assign(Q[:1])

            async def seek(queues: list[MessageQueue]) -> None:
                await consumer.seek_to_begin(queues[0])

            consumer.on_revoked(seek)
            async with consumer:
                consumer.assign([])
                await until(lambda: not consumer.assignment())
                consumer.assign(Q[:1])
                await until(lambda: consumer.assignment())
                assert await consumer.poll(0.05) == [], "a group without offset begins at the end"

    run(scenario())


def test_what_no_poll_has_returned_comes_again_when_the_log_has_lost_its_end() -> None:
    """Another master has less: the broker sends the reader to the end of its queue, behind what is only cached."""

    async def scenario() -> None:
        async with fake_system() as system, lite(system, messages=10) as consumer:
            assert [one.body for one in await consumer.poll(5, max_messages=2)] == [b"0", b"1"]
            assert [one.body for one in await consumer.poll(5, max_messages=1)] == [b"2"]
            await until(lambda: pulls(system)[-1].queue_offset == 10)
            del system.messages["T", 0][6:]
            system.put("T", 0, b"new")
            await until(lambda: pulls(system)[-1].queue_offset == 7)
            assert await bodies(consumer, 5) == [b"2", b"3", b"4", b"5", b"new"]
            await consumer.commit(wait=True)
            assert system.offsets == {("g", "T", 0): 7}

    run(scenario())


def test_what_was_pulled_before_it_expired_is_returned() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.answers[RequestCode.PULL_MESSAGE] = expired(10, 20)
            async with lite(system, messages=21) as consumer:
                await until(lambda: pulls(system) and pulls(system)[-1].queue_offset == 21)
                assert await bodies(consumer, 11) == [b"%d" % n for n in (*range(10), 20)]
                await consumer.commit(wait=True)
                assert system.offsets == {("g", "T", 0): 21}

    run(scenario())


def expired(begin: int, end: int) -> Callable[[Connection, Command], Command | None]:
    """Responds to a pull of messages that have expired."""

    def respond(_: Connection, command: Command) -> Command | None:
        if not begin <= command.header(PullMessageHeader).queue_offset < end:
            return None
        header = PullMessageResponseHeader(0, end, end, end + 1)
        return command.response(ResponseCode.PULL_OFFSET_MOVED, header=header)

    return respond
