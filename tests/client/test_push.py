"""A push consumer delivers everything at least once, commits only what is done, and ends when told."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Callable, Collection
from pathlib import Path
from typing import Any

import pytest

from orbitmq.client import (
    AllocateByCircle,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    MessageExt,
    MessageModel,
    MessageQueue,
    OffsetStore,
    OffsetTable,
    OrderlyContext,
    PushConsumer,
)
from orbitmq.client.core.flow import MIB
from orbitmq.errors import ClientError, ConfigurationError, InvalidStateError
from orbitmq.message.config import SubscriptionData
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.net.connection import Connection
from orbitmq.wire.bodies import ConsumeType, HeartbeatData, TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.headers import (
    PullMessageHeader,
    PullMessageResponseHeader,
    SendMessageV2Header,
    UpdateConsumerOffsetHeader,
)
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.fake_system import BROKER, FakeSystem, fake_system, refuse
from tests.support.loops import TurnedLoop, run, settle, turned_loop, until
from tests.support.process import free_port

SUCCESS, LATER = ConsumeConcurrentlyStatus.CONSUME_SUCCESS, ConsumeConcurrentlyStatus.RECONSUME_LATER
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
Q0 = MessageQueue("T", BROKER, 0)


class Listener:
    """Keeps bodies, answers as told."""

    def __init__(self, says: Callable[[MessageExt], ConsumeConcurrentlyStatus | None] = lambda _: SUCCESS) -> None:
        self.got: list[MessageExt] = []
        self.says = says

    async def __call__(self, messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus | None:
        self.got += messages
        return self.says(messages[0])

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.got]


def push(system: FakeSystem, listener: Any, expression: str = "*", **settings: Any) -> PushConsumer:
    system.topics.setdefault("T", 1)
    consumer = PushConsumer("g", system.address, **{"consume_from_where": FIRST, **settings})
    consumer.subscribe("T", expression)
    consumer.set_listener(listener)
    return consumer


def test_messages_that_wait_and_messages_that_come_are_delivered() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"before")
            listener = Listener()
            async with push(system, listener):
                await until(lambda: listener.bodies == [b"before"])
                system.put("T", 0, b"after")
                await until(lambda: listener.bodies == [b"before", b"after"])
            assert system.offsets["g", "T", 0] == 2

    run(scenario())


def test_the_group_is_announced_with_all_it_subscribes() -> None:
    async def scenario() -> None:
        async with fake_system() as system, push(system, Listener(), "TagA || TagB"):
            (data,) = system.heartbeats[-1].consumer_data_set
            assert data.group_name == "g"
            assert data.consume_type is ConsumeType.CONSUME_PASSIVELY
            assert data.message_model is MessageModel.CLUSTERING
            assert data.consume_from_where is FIRST
            subscriptions = {s.topic: s for s in data.subscription_data_set}
            assert set(subscriptions) == {"T", "%RETRY%g"}
            assert subscriptions["T"].tags == {"TagA", "TagB"}
            assert subscriptions["T"].version > 0

    run(scenario())


def test_a_tag_that_shares_a_hash_is_not_delivered() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for tag in ("BBBB", "AaAa"):  # equal in Java's hash, so a broker lets both through
                system.put("T", 0, tag.encode(), encode_properties({"TAGS": tag}))
            listener = Listener()
            async with push(system, listener, "AaAa"):
                await until(lambda: listener.bodies == [b"AaAa"])
            assert system.offsets["g", "T", 0] == 2

    run(scenario())


def test_pulls_ask_as_java_asks_and_carry_the_offset() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            async with push(system, Listener(), "TagA") as consumer:
                await until(lambda: len(pulls(system)) >= 2)
                first = pulls(system)[0]
                assert (first.consumer_group, first.queue_offset, first.max_msg_nums) == ("g", 0, 32)
                assert (first.sys_flag, first.commit_offset, first.suspend_timeout_millis) == (2, 0, 15_000)
                assert (first.subscription, first.expression_type, first.broker_name) == (None, "TAG", BROKER)
                assert first.sub_version == consumer._subscriptions["T"].version
                assert pulls(system)[1].queue_offset == 1
                system.put("T", 0, b"y")
                await until(lambda: len(pulls(system)) >= 3)
                assert pulls(system)[2].sys_flag == 3
                assert pulls(system)[2].commit_offset in (1, 2)  # what is done by then
            async with push(system, Listener(), "TagA", post_subscription_when_pull=True):
                await until(lambda: pulls(system)[-1].subscription == "TagA")
                assert pulls(system)[-1].sys_flag & 4

    run(scenario())


def pulls(system: FakeSystem, topic: str = "T") -> list[PullMessageHeader]:
    found = [c.header(PullMessageHeader) for c in system.asked if c.code == RequestCode.PULL_MESSAGE]
    return [header for header in found if header.topic == topic]


def test_the_offset_waits_for_the_oldest_message() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(3):
                system.put("T", 0, b"%d" % i)
            release = asyncio.Event()
            done: list[bytes] = []

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                if messages[0].body == b"0":
                    await release.wait()
                done.append(messages[0].body)
                return SUCCESS

            async with push(system, listener, persist_offset_interval_ms=10):
                await until(lambda: sorted(done) == [b"1", b"2"])
                await until(lambda: system.offsets.get(("g", "T", 0)) == 0)
                release.set()
                await until(lambda: system.offsets.get(("g", "T", 0)) == 3)

    run(scenario())


@pytest.mark.parametrize("answer", [LATER, None, ValueError("x"), asyncio.CancelledError()])
def test_what_did_not_succeed_is_sent_back(answer: Any) -> None:
    """A CancelledError comes out of what the listener waits for, when somebody cancels that."""

    def says(message: MessageExt) -> Any:
        if isinstance(answer, BaseException):
            raise answer
        return answer

    async def scenario() -> None:
        async with fake_system() as system:
            unit = system.put("T", 0, b"x", encode_properties({"UNIQ_KEY": "U"}))
            async with push(system, Listener(says)):
                await until(lambda: system.sent_back)
                (header,) = system.sent_back
                assert (header.offset, header.group, header.delay_level) == (unit.physical_offset, "g", 0)
                assert (header.origin_msg_id, header.origin_topic) == ("U", "T")
                assert (header.max_reconsume_times, header.broker_name, header.unit_mode) == (16, BROKER, False)
            assert system.offsets["g", "T", 0] == 1

    run(scenario())


def test_a_listener_names_what_succeeded_and_when_the_rest_comes_again() -> None:
    async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        assert context.message_queue == Q0
        assert [message.body for message in messages] == [b"0", b"1", b"2"]
        context.ack_index, context.delay_level_when_next_consume = 0, 5
        return SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(3):
                system.put("T", 0, b"%d" % i)
            async with push(system, listener, consume_batch_max_size=3, max_reconsume_times=7):
                await until(lambda: len(system.sent_back) == 2)
            assert [(h.offset, h.delay_level, h.max_reconsume_times) for h in system.sent_back] == [
                (1000, 5, 7),
                (2000, 5, 7),
            ]

    run(scenario())


def test_a_message_no_broker_takes_back_goes_to_the_retry_topic() -> None:
    async def scenario() -> None:
        async with fake_system() as system:

            def join(_: Connection, command: Command) -> Command:
                """And make no retry topic, so that it has no route."""
                system.members["g"] = [decode(HeartbeatData, command.body).client_id]
                return command.response(0)

            for _ in range(8):
                system.put("T", 0, b"x")
            system.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = refuse(1)
            system.answers[RequestCode.HEART_BEAT] = join
            async with push(system, Listener(lambda _: LATER)):
                await until(lambda: sum(map(len, (system.messages["%RETRY%g", queue] for queue in range(4)))) == 8)
            sent, *rest = [c.header(SendMessageV2Header) for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            assert {one.queue_id for one in (sent, *rest)} == {0}, "brokers create such a topic with one queue"
            assert sent.producer_group == "CLIENT_INNER_PRODUCER"
            assert (sent.reconsume_times, sent.max_reconsume_times) == (1, 16)
            assert "RETRY_TOPIC\x01T" in (sent.properties or "")
            assert system.offsets["g", "T", 0] == 8

    run(scenario())


@pytest.mark.parametrize(
    ("size", "tries", "more"), [(32_600, 3, {"RETRY_TOPIC": "T"}), (32_750, 2, {"RETRY_TOPIC": "T"}), (32_766, 1, {})]
)
def test_a_message_without_room_for_a_retry_becomes_a_dead_letter(size: int, tries: int, more: dict[str, str]) -> None:
    """Also where the broker finds out: it needs some room of its own for the delay."""

    def take_no_delay(_: Connection, command: Command) -> Command | None:
        if "DELAY\x01" in (command.header(SendMessageV2Header).properties or ""):
            return command.response(ResponseCode.MESSAGE_ILLEGAL, "too long")
        return None

    async def scenario() -> None:
        async with fake_system() as system:
            known = {"UNIQ_KEY": "U", "CLUSTER": "C", "x": ""}
            sent = known | {"x": "x" * (size - len(encode_properties(known)))}
            system.put("T", 0, b"x", encode_properties(sent))
            system.answers[RequestCode.CONSUMER_SEND_MSG_BACK] = refuse(1)
            system.answers[RequestCode.SEND_MESSAGE_V2] = take_no_delay
            async with push(system, Listener(lambda _: LATER)):
                await until(lambda: system.messages["%RETRY%g", 0])
            copies = [c.header(SendMessageV2Header) for c in system.asked if c.code == RequestCode.SEND_MESSAGE_V2]
            taken = next(copy for copy in copies if "DELAY\x01" not in (copy.properties or ""))
            assert copies.index(taken) == tries - 1, "no copy leaves that is longer than properties may be"
            assert (taken.reconsume_times, taken.max_reconsume_times) == (1, 0), "which brokers bury at once"
            stored = decode_properties(taken.properties or "")
            assert stored == {"UNIQ_KEY": "U", "x": sent["x"], **more}
            assert system.offsets["g", "T", 0] == 1

    run(scenario())


def test_a_message_nobody_takes_is_tried_again_here() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            for code in (RequestCode.CONSUMER_SEND_MSG_BACK, RequestCode.SEND_MESSAGE_V2):
                system.answers[code] = refuse(ResponseCode.MESSAGE_ILLEGAL)
            listener = Listener(lambda message: SUCCESS if message.reconsume_times else LATER)
            async with push(system, listener):
                await until(lambda: system.count(RequestCode.SEND_MESSAGE_V2) == 4)  # as short as it can be
                await settle()
                await turned_loop().turn(5.1)
                await until(lambda: len(listener.got) == 2)
            assert system.offsets["g", "T", 0] == 1

    run(scenario(), TurnedLoop)


def test_a_message_from_the_retry_topic_shows_where_it_came_from() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["%RETRY%g"] = 1
            system.put("%RETRY%g", 0, b"again", encode_properties({"RETRY_TOPIC": "T"}))
            listener = Listener()
            async with push(system, listener):
                await until(lambda: listener.got)
            assert listener.got[0].topic == "T"
            assert system.offsets["g", "%RETRY%g", 0] == 1

    run(scenario())


def test_a_retry_topic_that_comes_later_is_read_soon() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            listener = Listener()
            async with push(system, listener):
                system.topics["%RETRY%g"] = 1
                system.put("%RETRY%g", 0, b"again")
                await turned_loop().turn(2.1)
                await until(lambda: listener.bodies == [b"again"])

    run(scenario(), TurnedLoop)


def test_pulling_stops_while_enough_is_cached() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(40):
                system.put("T", 0, b"%d" % i)
            release = asyncio.Event()
            got: list[bytes] = []

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                await release.wait()
                got.append(messages[0].body)
                return SUCCESS

            async with push(system, listener, pull_threshold_for_queue=9, pull_batch_size=5):
                await until(lambda: len(pulls(system)) == 2)
                await asyncio.sleep(0.05)
                assert len(pulls(system)) == 2  # 10 are cached, more than 9
                release.set()
                await until(lambda: len(got) == 40)

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"pull_threshold_for_topic": 4}, 1),
        ({"consume_max_span": 4}, 2),
        ({"pull_interval_ms": 60_000}, 1),
    ],
    ids=str,
)
def test_every_limit_of_pulling_counts(settings: dict[str, int], count: int) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 1
            for i in range(40):
                system.put("T", 0, b"%d" % i)
            release = asyncio.Event()

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                await release.wait()
                return SUCCESS

            def of_the_topic() -> int:
                return sum(one.topic == "T" for one in pulls(system))

            async with push(system, listener, pull_batch_size=5, **settings):
                await until(lambda: of_the_topic() == count)
                await asyncio.sleep(0.05)
                assert of_the_topic() == count
                release.set()

    run(scenario())


@pytest.mark.parametrize(
    ("settings", "count"),
    [
        ({"pull_threshold_size_for_queue": 1}, 4),  # two of each queue: pulling waits above the threshold
        ({"pull_threshold_size_for_topic": 6}, 6),  # two mebibytes for each queue, that of the retry topic among them
    ],
    ids=str,
)
def test_bytes_are_limited_as_messages_are(settings: dict[str, int], count: int) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 2
            body = bytes(MIB)
            for i in range(10):
                system.put("T", i % 2, body)
            release = asyncio.Event()
            got: list[bytes] = []

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                await release.wait()
                got.append(messages[0].body)
                return SUCCESS

            async with push(system, listener, pull_batch_size=1, **settings):
                await until(lambda: len(pulls(system)) == count)
                await asyncio.sleep(0.05)
                assert len(pulls(system)) == count
                release.set()
                await until(lambda: len(got) == 10)

    run(scenario())


def test_pause_and_resume() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            listener = Listener()
            async with push(system, listener) as consumer:
                await until(lambda: len(pulls(system)) == 1)
                consumer.suspend()
                assert consumer.paused
                system.put("T", 0, b"x")  # the pull that waits is answered
                await until(lambda: listener.bodies == [b"x"])
                await asyncio.sleep(0.05)
                assert len(pulls(system)) == 1
                consumer.resume()
                await until(lambda: len(pulls(system)) == 2)

    run(scenario())


def test_an_offset_outside_the_queue_is_corrected_at_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.offsets["g", "T", 0] = 50
            for i in range(3):
                system.put("T", 0, b"%d" % i)
            listener = Listener()
            async with push(system, listener):
                await until(lambda: system.offsets["g", "T", 0] == 3)
                system.put("T", 0, b"new")
                await until(lambda: listener.bodies == [b"new"])

    run(scenario())


@pytest.mark.parametrize(("code", "seconds"), [(ResponseCode.SYSTEM_ERROR, 1.1), (ResponseCode.FLOW_CONTROL, 0.03)])
def test_a_refused_pull_is_repeated_after_its_pause(code: int, seconds: float) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            system.answers[RequestCode.PULL_MESSAGE] = refuse(code, times=1)
            listener = Listener()
            async with push(system, listener):
                await until(lambda: len(pulls(system)) == 1)
                await turned_loop().turn(seconds)
                await until(lambda: listener.bodies == [b"x"])

    run(scenario(), TurnedLoop)


def test_an_answer_that_cannot_be_decoded_loses_nothing() -> None:
    def garbage(_: Any, command: Any) -> Any:
        system_offsets = PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=1, min_offset=0, max_offset=1
        )
        return (
            None if command.header(PullMessageHeader).topic != "T" else command.response(0, None, system_offsets, b"?")
        )

    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            system.answers[RequestCode.PULL_MESSAGE] = garbage
            listener = Listener()
            async with push(system, listener):
                await until(lambda: len(pulls(system)) == 1)
                system.answers.clear()
                await turned_loop().turn(1.1)
                await until(lambda: listener.bodies == [b"x"])

    run(scenario(), TurnedLoop)


@pytest.mark.parametrize(
    ("where", "expected"),
    [
        (ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET, 4),
        (ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET, 0),
        (ConsumeFromWhere.CONSUME_FROM_TIMESTAMP, 2),
    ],
)
def test_a_new_group_begins_where_it_wants(where: ConsumeFromWhere, expected: int) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(4):
                system.put("T", 0, b"%d" % i)
            async with push(system, Listener(), consume_from_where=where):
                await until(lambda: pulls(system))
                assert pulls(system)[0].queue_offset == expected

    run(scenario())


def test_a_position_nobody_knows_is_asked_for_again() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            system.answers[RequestCode.QUERY_CONSUMER_OFFSET] = refuse(ResponseCode.SYSTEM_BUSY, times=1)
            listener = Listener()
            async with push(system, listener, consume_from_where=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET):
                system.offsets["g", "T", 0] = 0
                await turned_loop().turn(1.1)
                await until(lambda: listener.bodies == [b"x"])

    run(scenario(), TurnedLoop)


def test_members_divide_the_queues_when_a_broker_says_so() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 4
            async with push(system, Listener()) as one:
                assert len(of_topic(one)) == 4
                async with push(system, Listener()) as two:
                    system.notify("g")
                    await until(lambda: len(of_topic(one)) == len(of_topic(two)) == 2)
                    assert not of_topic(one) & of_topic(two)
                system.notify("g")
                await until(lambda: len(of_topic(one)) == 4)

    run(scenario())


def of_topic(consumer: PushConsumer) -> set[MessageQueue]:
    return {queue for queue in consumer.assignment() if queue.topic == "T"}


def test_a_member_that_a_broker_does_not_list_keeps_its_queues_for_a_round() -> None:
    async def scenario() -> None:
        async with fake_system() as system, push(system, Listener()) as consumer:
            await settle(100)  # the rounds that the start has brought about
            system.members["g"] = ["somebody-else"]
            asked = system.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
            system.notify("g")
            await until(lambda: system.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) > asked)
            assert of_topic(consumer) == {Q0}
            await turned_loop().turn(1.1)
            await until(lambda: not of_topic(consumer))

    run(scenario(), TurnedLoop)


def test_a_broker_that_cannot_tell_the_members_takes_no_queue_away() -> None:
    async def scenario() -> None:
        async with fake_system() as system, push(system, Listener()) as consumer:
            await settle(100)
            for answer in (refuse(ResponseCode.SYSTEM_ERROR), _nobody):
                system.answers[RequestCode.GET_CONSUMER_LIST_BY_GROUP] = answer
                for _ in range(3):
                    asked = system.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP)
                    await turned_loop().turn(1.1)
                    system.notify("g")
                    await until(lambda asked=asked: system.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) > asked)  # type: ignore[misc]
                    await settle()
                assert of_topic(consumer) == {Q0}

    run(scenario(), TurnedLoop)


def _nobody(_: Connection, command: Command) -> Command:
    return command.response(0, body=b'{"consumerIdList":[]}')


def test_a_topic_that_fails_unexpectedly_keeps_no_other_waiting(
    monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    async def scenario() -> None:
        async with fake_system() as system, push(system, Listener()) as consumer:
            usual = consumer._instance.any_broker

            async def fails(topic: str) -> str:
                if topic == "T":
                    raise KeyError("nobody thought of that")
                return await usual(topic)

            monkeypatch.setattr(consumer._instance, "any_broker", fails)
            system.topics["U"] = 1
            consumer.subscribe("U")
            await until(lambda: MessageQueue("U", BROKER, 0) in consumer.assignment())
            assert of_topic(consumer) == {Q0}
        assert "event=not_rebalanced group=g topic=T" in caplog.text
        assert "Traceback" in caplog.text

    run(scenario())


def test_a_strategy_that_fails_takes_no_queue_away(caplog: pytest.LogCaptureFixture) -> None:
    class Moody(AllocateByCircle):
        def allocate(self, *args: Any) -> list[MessageQueue]:
            if failing:
                raise KeyError("no room")
            return super().allocate(*args)

    failing: list[int] = []

    async def scenario() -> None:
        async with fake_system() as system, push(system, Listener(), allocate_strategy=Moody()) as consumer:
            assert of_topic(consumer) == {Q0}
            failing.append(1)
            await until(lambda: "event=not_allocated" in caplog.text or system.notify("g"))
            assert of_topic(consumer) == {Q0}
            failing.clear()
            system.topics["U"] = 1
            consumer.subscribe("U")
            await until(lambda: any(queue.topic == "U" for queue in consumer.assignment()))

    run(scenario())


def test_results_for_a_queue_that_went_away_do_not_count() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            called, release = asyncio.Event(), asyncio.Event()

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                called.set()
                await release.wait()
                return LATER

            async with push(system, listener) as consumer:
                await called.wait()
                consumer.unsubscribe("T")
                await until(lambda: not of_topic(consumer))
                release.set()
                await asyncio.sleep(0.02)
            assert not system.sent_back
            assert system.offsets.get(("g", "T", 0), 0) == 0

    run(scenario())


def test_a_topic_may_be_subscribed_later() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["U"] = 1
            system.put("U", 0, b"x")
            listener = Listener()
            async with push(system, listener) as consumer:
                consumer.subscribe("U")
                await until(lambda: listener.bodies == [b"x"])

    run(scenario())


def test_broadcasting_reads_everything_and_keeps_its_offsets_here(tmp_path: Path) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(3):
                system.put("T", 0, b"%d" % i)
            settings = {"message_model": MessageModel.BROADCASTING, "local_offset_dir": str(tmp_path)}
            listener = Listener(lambda _: LATER)
            async with push(system, listener, **settings):
                await until(lambda: len(listener.got) == 3)
            listener = Listener()
            system.put("T", 0, b"3")
            async with push(system, listener, **settings):
                await until(lambda: listener.bodies == [b"3"])
            assert not system.sent_back  # failed messages of a broadcast are dropped
            assert not system.offsets
            assert system.count(RequestCode.GET_CONSUMER_LIST_BY_GROUP) == 0

    run(scenario())


def test_a_function_is_called_on_threads() -> None:
    import threading

    names: list[str] = []

    def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        names.append(threading.current_thread().name.rpartition("-")[0])
        return SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(100):
                system.put("T", 0, b"%d" % i)
            async with push(system, listener, consume_threads=3):
                await until(lambda: len(names) == 100)
            assert system.offsets["g", "T", 0] == 100
        assert set(names) == {"g"}

    run(scenario())


def test_an_overdue_message_is_delivered_elsewhere_and_no_longer_holds_the_offset() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            called = asyncio.Event()

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                messages[0].properties["CONSUME_START_TIME"] = "1"  # as if it had begun long ago
                called.set()
                await asyncio.Event().wait()
                return SUCCESS

            async with push(system, listener, consume_timeout_min=1, await_termination_ms=0):
                await called.wait()
                await turned_loop().turn(60.1)
                await until(lambda: system.sent_back)
                assert system.sent_back[0].delay_level == 3
            assert system.offsets["g", "T", 0] == 1

    run(scenario(), TurnedLoop)


def test_shutdown_waits_for_listeners_and_keeps_what_they_did() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(5):
                system.put("T", 0, b"%d" % i)
            started = asyncio.Event()

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                started.set()
                await asyncio.sleep(0.05)
                return SUCCESS

            async with push(system, listener, consume_threads=2):
                await started.wait()
            assert system.offsets["g", "T", 0] == 2  # the two that ran; the three that waited come again

    run(scenario())


def test_a_pull_that_takes_effect_late_does_not_set_back_what_a_shutdown_stores() -> None:
    """As at RocketMQ's brokers, whose threads for pulls and for commits know no order."""

    async def scenario() -> None:
        async with fake_system() as system:
            listener, late = Listener(), [1]

            def commit(_: Connection, command: Command) -> Command:
                header = command.header(UpdateConsumerOffsetHeader)
                place = (header.consumer_group, header.topic, header.queue_id)
                system.offsets[place] = late.pop() if late and header.commit_offset == 2 else header.commit_offset
                return command.response(0)

            system.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = commit
            async with push(system, listener):
                for number in range(2):
                    system.put("T", 0, b"x")
                    await until(lambda: len(listener.got) == number + 1)  # noqa: B023
            assert not late
            assert system.offsets["g", "T", 0] == 2

    run(scenario())


def test_a_coroutine_listener_may_shut_its_consumer_down_and_does_not_wait_for_itself() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            ended: list[int] = []

            async def last(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
                await consumer.shutdown()
                ended.append(1)
                return SUCCESS

            consumer = push(system, last, await_termination_ms=3_600_000)
            system.put("T", 0, b"x")
            await consumer.start()
            await until(lambda: ended)
            assert not consumer.is_running

    run(scenario())


def test_no_listener_is_called_once_its_consumer_shuts_down() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(5):
                system.put("T", 0, b"%d" % i)
            shutdowns: list[asyncio.Task[None]] = []

            async def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
                shutdowns.append(asyncio.create_task(consumer.shutdown()))
                await asyncio.sleep(0)
                return SUCCESS

            consumer = push(system, listener, consume_threads=1)
            await consumer.start()
            await until(lambda: shutdowns and shutdowns[0].done())
            assert len(shutdowns) == 1
            assert system.offsets["g", "T", 0] == 1

    run(scenario())


def test_a_user_may_send_a_message_back() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.put("T", 0, b"x")
            listener = Listener()
            async with push(system, listener) as consumer:
                await until(lambda: listener.got)
                await consumer.send_message_back(listener.got[0], -1)
            assert [header.delay_level for header in system.sent_back] == [-1]

    run(scenario())


def test_a_consumer_without_any_subscription_says_so(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = PushConsumer("g", system.address)
            consumer.set_listener(Listener())
            async with consumer:
                assert caplog.text.count("event=nothing_subscribed group=g; no messages are delivered until") == 1
            caplog.clear()
            async with push(system, Listener()):
                assert "event=nothing_subscribed" not in caplog.text

    run(scenario())


def test_a_consumer_whose_name_servers_do_not_answer_says_so_once(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        consumer = PushConsumer("g", f"127.0.0.1:{free_port()};127.0.0.1:{free_port()}")
        consumer.subscribe("T")
        consumer.subscribe("U")
        consumer.set_listener(Listener())
        async with consumer:
            assert caplog.text.count("event=no_name_server_answers") == 1

    run(scenario())


async def test_a_start_that_is_cancelled_leaves_no_thread_and_calls_no_listener_any_more() -> None:
    async with fake_system() as system:
        for _ in range(3):
            system.put("T", 0, b"x")
        assigned, begun, gate, calls = asyncio.Event(), threading.Event(), threading.Event(), list[int]()

        def listener(messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
            calls.append(1)
            begun.set()
            gate.wait(20)
            return SUCCESS

        async def hang(_: object) -> None:
            assigned.set()
            await asyncio.Event().wait()

        consumer = push(system, listener, consume_threads=1)
        consumer.on_assigned(hang)
        starting = asyncio.create_task(consumer.start())
        await assigned.wait()
        await until(begun.is_set)
        (thread,) = [thread for thread in threading.enumerate() if thread.name == "g-0"]
        starting.cancel()
        await asyncio.gather(starting, return_exceptions=True)
        gate.set()
        await until(lambda: not thread.is_alive())
        assert len(calls) == 1


def test_a_listener_is_needed_and_set_before_the_start() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = PushConsumer("g", system.address)
            consumer.subscribe("T")
            with pytest.raises(ClientError, match="has no listener"):
                await consumer.start()
            async with push(system, Listener()) as running:
                with pytest.raises(InvalidStateError, match="has been started"):
                    running.set_listener(Listener())

    run(scenario())


def test_a_shutdown_is_not_forgotten_when_the_group_changes_at_that_moment() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = push(system, Listener())
            await consumer.start()
            consumer.wake_rebalance()
            await asyncio.sleep(0)  # the waiting task has its event, and has not run yet
            async with asyncio.timeout(20):
                await consumer.shutdown()

    run(scenario())


def test_with_sync_commits_the_next_pull_waits_for_listener_and_broker() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(6):
                system.put("T", 0, b"%d" % i)
            release = asyncio.Event()

            async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
                if messages[0].body == b"1":
                    await release.wait()
                return SUCCESS

            settings = {"offset_commit": "sync", "pull_batch_size": 2, "pull_error_delay_ms": 10}
            system.answers[RequestCode.UPDATE_CONSUMER_OFFSET] = refuse(ResponseCode.SYSTEM_BUSY)
            async with push(system, listener, **settings):
                await until(lambda: pulls(system))
                await settle(50)
                assert len(pulls(system)) == 1, "the listener is at work"
                release.set()
                await until(lambda: system.count(RequestCode.UPDATE_CONSUMER_OFFSET) > 2)
                assert len(pulls(system)) == 1, "the broker has not confirmed"
                system.answers.clear()
                await until(lambda: len(pulls(system)) == 4)
            assert system.offsets["g", "T", 0] == 6

    run(scenario())


def test_in_order_with_sync_commits_everything_comes_and_is_confirmed() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(6):
                system.put("T", 0, b"%d" % i)
            got: list[tuple[int, int]] = []

            async def listener(messages: Any, context: OrderlyContext) -> ConsumeOrderlyStatus:
                got.append((messages[0].queue_offset, system.offsets.get(("g", "T", 0), 0)))
                return ConsumeOrderlyStatus.SUCCESS

            consumer = PushConsumer(
                "g", system.address, consume_from_where=FIRST, offset_commit="sync", pull_batch_size=2
            )
            system.topics["T"] = 1
            consumer.subscribe("T")
            consumer.on_message_orderly(listener)
            async with consumer:
                await until(lambda: len(got) == 6)
        assert got == [(offset, offset // 2 * 2) for offset in range(6)], "those before are confirmed"

    run(scenario())


def test_a_store_of_the_application_keeps_the_offsets() -> None:
    class Notebook(OffsetStore):
        """Two lines to a page."""

        def __init__(self) -> None:
            self.table = OffsetTable()
            self.kept = {Q0: 2}
            self.closed = False

        async def open(self) -> None: ...

        async def stored(self, queue: MessageQueue) -> int:
            return self.kept.get(queue, -1)

        async def persist(self, queues: Collection[MessageQueue]) -> None:
            self.kept.update(self.table.of(queues))

        commit = persist

        async def release(self, queue: MessageQueue) -> None: ...

        def close(self) -> None:
            self.closed = True

    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(4):
                system.put("T", 0, b"%d" % i)
            listener, notebook = Listener(), Notebook()
            async with push(system, listener, offset_store=notebook):
                await until(lambda: listener.bodies == [b"2", b"3"])
            assert notebook.kept[Q0] == 4
            assert notebook.closed
            assert system.count(RequestCode.UPDATE_CONSUMER_OFFSET) == 0

    run(scenario())


class Hanging:
    """A listener that does not return."""

    def __init__(self) -> None:
        self.called = asyncio.Event()

    async def __call__(self, messages: Any, context: Any) -> ConsumeConcurrentlyStatus:
        self.called.set()
        await asyncio.Event().wait()
        return SUCCESS


async def test_an_offset_that_was_only_looked_at_is_not_committed_when_the_queue_is_assigned() -> None:
    async with fake_system() as system:
        listener = Hanging()
        system.topics["U"] = 1
        for _ in range(4):
            system.put("U", 0, b"x")
        system.offsets["g", "U", 0] = 4
        async with push(system, listener, await_termination_ms=0) as consumer:
            (lag,) = await consumer.lag("U")
            assert lag.consumer_offset == 4
            system.offsets["g", "U", 0] = 2  # an operator reset it
            consumer.subscribe("U")
            await listener.called.wait()
            assert pulls(system, "U")[0].queue_offset == 2
            assert {pull.commit_offset for pull in pulls(system, "U")} == {0}


async def test_a_new_reader_does_not_undo_what_the_one_before_commits_meanwhile() -> None:
    async with fake_system() as system:
        listener = Hanging()

        def committed_meanwhile(_: Any, command: Command) -> None:
            if command.header(PullMessageHeader).topic == "U":
                system.offsets["g", "U", 0] = 4

        system.topics["U"] = 1
        for _ in range(4):
            system.put("U", 0, b"x")
        system.offsets["g", "U", 0] = 2
        system.answers[RequestCode.PULL_MESSAGE] = committed_meanwhile
        async with push(system, listener, await_termination_ms=0) as consumer:
            consumer.subscribe("U")
            await listener.called.wait()
            await until(lambda: len(pulls(system, "U")) == 2, "the next pull")
            assert system.offsets["g", "U", 0] == 4
        assert system.offsets["g", "U", 0] == 4


def test_what_is_given_up_while_the_consumer_shuts_down_is_stored() -> None:
    class Slow(OffsetStore):
        """Nothing given up is ever written down."""

        def __init__(self) -> None:
            self.table = OffsetTable()
            self.kept: dict[MessageQueue, int] = {}
            self.asked = False

        async def open(self) -> None: ...

        async def stored(self, queue: MessageQueue) -> int:
            return self.kept.get(queue, -1)

        async def persist(self, queues: Collection[MessageQueue]) -> None: ...

        async def commit(self, queues: Collection[MessageQueue]) -> None:
            self.kept.update(self.table.of(queues))

        async def release(self, queue: MessageQueue) -> None:
            self.asked = True
            await asyncio.Event().wait()

        def close(self) -> None: ...

    async def scenario() -> None:
        async with fake_system() as system:
            for body in (b"0", b"1"):
                system.put("T", 0, body)
            listener, store = Listener(), Slow()
            async with push(system, listener, offset_store=store) as consumer:
                await until(lambda: listener.bodies == [b"0", b"1"])
                consumer.unsubscribe("T")
                await until(lambda: store.asked)
                assert Q0 not in store.kept
            assert store.kept[Q0] == 2

    run(scenario())


@pytest.mark.parametrize("offset_commit", ["async", "sync"])
def test_a_store_of_the_application_that_fails_stops_nothing(
    offset_commit: str, caplog: pytest.LogCaptureFixture
) -> None:
    class Broken(OffsetStore):
        """Each page can be torn out."""

        def __init__(self) -> None:
            self.table = OffsetTable()
            self.kept: dict[MessageQueue, int] = {}
            self.torn = 2

        async def open(self) -> None: ...

        async def stored(self, queue: MessageQueue) -> int:
            self._tear()
            return self.kept.get(queue, -1)

        async def persist(self, queues: Collection[MessageQueue]) -> None:
            self._tear()
            self.kept.update(self.table.of(queues))

        commit = persist

        async def release(self, queue: MessageQueue) -> None:
            raise KeyError(queue)

        def close(self) -> None: ...

        def _tear(self) -> None:
            self.torn -= 1
            if self.torn >= 0:
                raise KeyError("a page is missing")

    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["U"] = 1
            for topic in ("T", "U"):
                system.put(topic, 0, topic.encode())
            listener, store = Listener(), Broken()
            settings = {"persist_offset_interval_ms": 50, "pull_error_delay_ms": 10, "offset_commit": offset_commit}
            consumer = push(system, listener, offset_store=store, **settings)
            consumer.subscribe("U")
            async with consumer:
                await turned_loop().turn(1.1)
                await until(lambda: sorted(listener.bodies) == [b"T", b"U"])
                store.torn = 2
                await turned_loop().turn(0.1)
                await until(lambda: store.torn < 0, "it is tried again")
                consumer.unsubscribe("U")
                await until(lambda: not [q for q in consumer.assignment() if q.topic == "U"])
                system.put("T", 0, b"later")
                await until(lambda: listener.bodies[2:] == [b"later"])
            assert store.kept[Q0] == 2

    run(scenario(), TurnedLoop)


def test_the_number_of_threads_can_be_changed_while_it_runs() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            consumer = push(system, Listener(), consume_threads=2)
            with pytest.raises(InvalidStateError):
                consumer.set_consume_threads(3)
            async with consumer:
                consumer.set_consume_threads(3)
                assert consumer.running_info(stacks=False).properties["PROP_THREADPOOL_CORE_SIZE"] == "3"
                with pytest.raises(ConfigurationError, match="consume_threads"):
                    consumer.set_consume_threads(1001)

    run(scenario())


def test_a_group_goes_back_to_a_time() -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(4):
                system.put("T", 0, b"%d" % i)
            listener = Listener()
            async with push(system, listener) as consumer:
                assert await consumer.fetch_subscribe_queues("T") == [Q0]
                await until(lambda: len(listener.got) == 4)
                await consumer.reset_offset_by_timestamp(123)  # the fake says the offset in the middle
                await until(lambda: listener.bodies[4:] == [b"2", b"3"])

    run(scenario())


def test_unsubscribing_is_announced_at_once() -> None:
    async def scenario() -> None:
        async with fake_system() as system, push(system, Listener()) as consumer:
            consumer.unsubscribe("T")
            await until(lambda: [s.topic for s in _announced(system)] == ["%RETRY%g"])
            await until(lambda: not of_topic(consumer))

    run(scenario())


def _announced(system: FakeSystem) -> list[SubscriptionData]:
    return system.heartbeats[-1].consumer_data_set[0].subscription_data_set


@pytest.mark.parametrize("kind", ["coroutine", "function"])
def test_a_slow_listener_ends_and_nothing_is_lost_or_counted_twice(kind: str) -> None:
    """One member leaves in the middle of slow work; another goes on where it stopped."""
    done: list[bytes] = []

    async def coroutine(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        await asyncio.sleep(0.002)
        done.extend(message.body for message in messages)
        return SUCCESS

    def function(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        time.sleep(0.002)
        done.extend(message.body for message in messages)
        return SUCCESS

    async def scenario() -> None:
        async with fake_system() as system:
            for i in range(60):
                system.put("T", 0, b"%d" % i)
            for enough in (10, 25, 60):
                async with push(system, coroutine if kind == "coroutine" else function, consume_threads=1):
                    await until(lambda enough=enough: len(done) >= enough)  # type: ignore[misc]
                assert system.offsets["g", "T", 0] == len(done), "every call that ran has ended and is committed"
        assert done == [b"%d" % i for i in range(60)]

    run(scenario())


def test_pulls_go_to_a_slave_when_told_and_back_to_the_master() -> None:
    def advising(system: FakeSystem, broker_id: int) -> None:
        def pull(_: Connection, command: Command) -> Command | None:
            header = command.header(PullMessageHeader)
            if header.topic != "T":
                return None
            advice = PullMessageResponseHeader(
                suggest_which_broker_id=broker_id,
                next_begin_offset=header.queue_offset + 1,
                min_offset=0,
                max_offset=100,
            )
            return command.response(ResponseCode.PULL_RETRY_IMMEDIATELY, header=advice)

        system.answers[RequestCode.PULL_MESSAGE] = pull

    async def scenario() -> None:
        async with fake_system() as system, fake_system() as slave:
            system.topics["T"] = 1
            usual = system.route

            def route(topic: str, perm: int = 6) -> TopicRouteData:
                found = usual(topic, perm)
                found.broker_datas[0].addresses[1] = slave.address
                return found

            system.route = route  # type: ignore[method-assign]
            advising(system, 1)
            advising(slave, 1)
            async with push(system, Listener(), pull_error_delay_ms=10):
                await until(lambda: len(pulls(slave)) > 5)
                assert len(pulls(system)) == 1, "the advice of every answer counts, also of one without messages"
                assert all(not header.sys_flag & 1 for header in pulls(slave)), "slaves take no offsets"
                advising(slave, 0)
                await until(lambda: len(pulls(system)) > 1)
                for trouble in (refuse(ResponseCode.TOPIC_NOT_EXIST), _hang_up):
                    slave.answers[RequestCode.PULL_MESSAGE] = trouble
                    before = len(pulls(system))
                    await until(lambda before=before: len(pulls(system)) > before + 1, "the master, not that slave")  # type: ignore[misc]

    run(scenario())


def _hang_up(connection: Connection, command: Command) -> Command:
    connection.close()
    return command.response(ResponseCode.SYSTEM_ERROR)


def test_what_no_listener_has_consumed_comes_again_when_the_log_has_lost_its_end() -> None:
    """Another master has less: the broker sends the reader to the end of its queue, behind what is only cached."""

    async def scenario() -> None:
        going_on = asyncio.Event()
        got: list[bytes] = []

        async def listener(messages: Any, context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
            if messages[0].queue_offset >= 2:
                await going_on.wait()
            got.extend(message.body for message in messages)
            return SUCCESS

        async with fake_system() as system:
            for number in range(10):
                system.put("T", 0, b"%d" % number)
            async with push(system, listener):
                await until(lambda: len(got) == 2 and last_offset(system) == 10)
                del system.messages["T", 0][6:]
                system.put("T", 0, b"new")
                await until(lambda: last_offset(system) == 7)
                pulls = [c.header(PullMessageHeader) for c in system.asked if c.code == RequestCode.PULL_MESSAGE]
                assert max(one.commit_offset for one in pulls if one.topic == "T") == 2, "progress passes nothing"
                going_on.set()
                await until(lambda: b"new" in got)
            assert set(got) >= {b"2", b"3", b"4", b"5", b"new"}
            assert system.offsets["g", "T", 0] == 7

    run(scenario())


def last_offset(system: FakeSystem) -> int:
    pulls = [c.header(PullMessageHeader) for c in system.asked if c.code == RequestCode.PULL_MESSAGE]
    return max(one.queue_offset for one in pulls[-2:] if one.topic == "T") if pulls else -1


def test_pulls_that_fail_are_one_line_a_broker_and_minute(caplog: pytest.LogCaptureFixture) -> None:
    async def scenario() -> None:
        async with fake_system() as system:
            system.topics["T"] = 8
            system.answers[RequestCode.PULL_MESSAGE] = refuse(ResponseCode.SYSTEM_ERROR, "no")
            async with push(system, Listener()):
                for _ in range(10):
                    await turned_loop().turn(1.1)
                await until(lambda: system.count(RequestCode.PULL_MESSAGE) > 16)
                assert caplog.text.count("event=pull_failed") == 1
                assert f"event=pull_failed group=g broker={BROKER}" in caplog.text

    run(scenario(), TurnedLoop)
