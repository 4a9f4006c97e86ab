"""Messages sent to a live broker over TCP: what is stored, what is answered, what is refused and how."""

from __future__ import annotations

import asyncio
import re
from pathlib import Path
from threading import Event

import pytest

from orbitmq.broker.send_handler import OUTCOMES
from orbitmq.message.config import MULTI_TAG, TopicConfig
from orbitmq.message.flags import MULTI_TAGS, PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.records import PutStatus
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.headers import ConsumerSendMsgBackHeader, SendMessageResponseHeader
from orbitmq.wire.requests import RequestCode
from tests.support.live import (
    BORN_MS,
    CLUSTER,
    Client,
    Time,
    client_of,
    live,
    long_header,
    made_broker,
    running,
    send_header,
)
from tests.support.loops import LoopFactory, until

JSON, ROCKETMQ = SerializeType.JSON, SerializeType.ROCKETMQ


def stored(answer: Command) -> SendMessageResponseHeader:
    """The header of an answer that says the message was stored."""
    assert answer.code == 0, answer
    assert set(answer.ext or {}) == {"msgId", "queueId", "queueOffset", "MSG_REGION", "TRACE_ON"}
    return answer.header(SendMessageResponseHeader)


def assert_refused(answer: Command, code: int) -> None:
    """Producers read region and trace switch from every answer."""
    assert answer.code == code
    assert answer.remark
    assert answer.ext == {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


# ------------------------------------------------------------------------------------------------------------ stored


@pytest.mark.parametrize("kind", [JSON, ROCKETMQ])
@pytest.mark.parametrize("code", [RequestCode.SEND_MESSAGE, RequestCode.SEND_MESSAGE_V2])
async def test_a_message_is_stored_as_it_was_sent(tmp_path: Path, code: RequestCode, kind: SerializeType) -> None:
    async with live(tmp_path) as client:
        properties = {"UNIQ_KEY": "0A", "WAIT": "true", "TAGS": "TagÄ", "color": "rot"}
        short = send_header("Orders", properties, queue_id=2, flag=7)
        header = long_header(short) if code == RequestCode.SEND_MESSAGE else short
        answer = await client.ask(code, header, b"one body \x00\xff", kind)
        assert answer.serialize_type == kind
        place = stored(answer)
        assert (place.queue_id, place.queue_offset) == (2, 0)
        (message,) = await client.read("Orders", 2)
        assert (message.body, message.flag, message.born_timestamp) == (b"one body \x00\xff", 7, BORN_MS)
        assert message.properties == {"UNIQ_KEY": "0A", "TAGS": "TagÄ", "color": "rot", "CLUSTER": CLUSTER}
        assert (message.queue_id, message.queue_offset, message.reconsume_times) == (2, 0, 0)
        connection = client.remoting.connection(client.address)
        assert connection is not None
        assert message.born_host == "{}:{}".format(*connection.local)
        assert message.store_host == client.address
        assert message.offset_msg_id == place.msg_id
        assert decode_offset_message_id(place.msg_id).physical_offset == message.commit_log_offset == 0


async def test_offsets_count_up_in_each_queue(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        places = [stored(await client.send("Orders", queue_id=queue)) for queue in (0, 1, 0, 1, 1, 3)]
        assert [(place.queue_id, place.queue_offset) for place in places] == [
            (0, 0),
            (1, 0),
            (0, 1),
            (1, 1),
            (1, 2),
            (3, 0),
        ]
        assert len({place.msg_id for place in places}) == 6


async def test_what_is_sent_in_a_row_is_stored_in_that_order(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.send("Orders")
        for number in range(200):
            command = request(RequestCode.SEND_MESSAGE_V2, send_header("Orders", queue_id=1), b"%d" % number)
            await client.remoting.oneway(client.address, command)
        await client.send("Orders", queue_id=1, body=b"200")
        found: list[bytes] = []
        while len(found) < 201:
            found += [message.body for message in await client.read("Orders", 1, len(found))]
        assert found == [b"%d" % number for number in range(201)]


async def test_a_batch_is_stored_message_by_message(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        await client.send("Orders")
        answer = await client.send_batch(
            "Orders", [b"a", b"b", b"c"], {"TAGS": "T", "WAIT": "true"}, text="common\x01x"
        )
        place = stored(answer)
        assert (place.queue_id, place.queue_offset) == (0, 1)
        ids = place.msg_id.split(",")
        messages = await client.read("Orders", 0, 1)
        assert [message.body for message in messages] == [b"a", b"b", b"c"]
        assert [message.queue_offset for message in messages] == [1, 2, 3]
        assert [message.offset_msg_id for message in messages] == ids
        for message in messages:
            assert message.properties == {"TAGS": "T", "WAIT": "true", "common": "x", "CLUSTER": CLUSTER}


async def test_a_batch_is_known_by_its_flag_whatever_the_code(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        batch = await client.send_batch("Orders", [b"a", b"b"])
        assert batch.code == 0
        body = (await client.read("Orders"))[0].body
        assert body == b"a"
        again = await client.ask(RequestCode.SEND_MESSAGE_V2, send_header("Orders", batch=True), b"no batch")
        assert_refused(again, 13)


@pytest.mark.parametrize("queues", [1, 4])
async def test_the_broker_chooses_a_queue_when_asked_to(tmp_path: Path, queues: int) -> None:
    async with live(tmp_path) as client:
        for _ in range(20):
            place = stored(await client.send("Orders", queue_id=-1, default_topic_queue_nums=queues))
            assert 0 <= place.queue_id < queues
            messages = await client.read("Orders", place.queue_id, place.queue_offset)
            assert messages[0].queue_id == place.queue_id


async def test_region_and_trace_switch_are_the_operators(tmp_path: Path) -> None:
    async with live(tmp_path, regionId="eu-1", traceOn="false") as client:
        for answer in (await client.send("Orders"), await client.send("SELF_TEST_TOPIC")):
            assert answer.ext is not None
            assert (answer.ext["MSG_REGION"], answer.ext["TRACE_ON"]) == ("eu-1", "false")


async def test_with_synchronous_flush_the_answer_means_on_disk(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, flushDiskType="SYNC_FLUSH", flushIntervalCommitLog="600000")
    async with running(broker), client_of(broker) as client:
        for number in range(5):
            stored(await client.send("Orders", properties={"WAIT": "true"} if number % 2 else {}))
            assert broker.store.flushed_offset == broker.store.commit_log_max_offset
        stored(await client.send("Orders", properties={"WAIT": "false"}))
        stored(await client.send_batch("Orders", [b"a", b"b"]))
        assert broker.store.flushed_offset == broker.store.commit_log_max_offset


async def test_many_sends_share_a_flush(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """All that came while the disk was busy are made durable by the next flush, and answered together."""
    broker = made_broker(tmp_path, flushDiskType="SYNC_FLUSH")
    async with running(broker), client_of(broker) as client:
        stored(await client.send("Orders"))
        flush, gate, flushes = broker.store._log.flush, Event(), 0

        def gated() -> PhysicalOffset:
            nonlocal flushes
            flushes += 1
            assert gate.wait(60)
            return flush()

        monkeypatch.setattr(broker.store._log, "flush", gated)
        size = broker.store.commit_log_max_offset
        sends = [asyncio.create_task(client.send("Orders")) for _ in range(64)]
        await until(lambda: broker.store.commit_log_max_offset == 65 * size)
        assert not any(send.done() for send in sends)
        gate.set()
        answers = await asyncio.gather(*sends)
        assert sorted(stored(answer).queue_offset for answer in answers) == list(range(1, 65))
        assert flushes <= 2, "the one under way, and one for all the rest"


async def test_a_pull_is_woken_by_what_is_on_disk(
    tmp_path: Path, turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, flushDiskType="SYNC_FLUSH")
    async with running(broker), client_of(broker) as client:
        stored(await client.send("Orders", b"first"))
        flush = broker.store._log.flush
        monkeypatch.setattr(broker.store._log, "flush", lambda: broker.store.flushed_offset)
        flags = PULL_SUBSCRIPTION | PULL_SUSPEND
        pulling = asyncio.create_task(client.read("Orders", 0, 1, sys_flag=flags))
        sending = asyncio.create_task(client.send("Orders", b"second"))
        await until(lambda: broker.store.commit_log_max_offset > broker.store.flushed_offset)
        await time.pass_by(1)
        assert not pulling.done()
        assert not sending.done()
        monkeypatch.setattr(broker.store._log, "flush", flush)
        broker.store._request_flush()
        stored(await sending)
        assert [message.body for message in await pulling] == [b"second"]


async def test_a_flush_that_takes_too_long_is_told_and_the_message_is_stored_all_the_same(
    tmp_path: Path, turned_clock: LoopFactory, monkeypatch: pytest.MonkeyPatch
) -> None:
    time = Time()
    broker = made_broker(tmp_path, time.clock, flushDiskType="SYNC_FLUSH", syncFlushTimeout="5000")
    async with running(broker), client_of(broker) as client:
        stored(await client.send("Orders", b"quick"))
        monkeypatch.setattr(broker.store._log, "flush", lambda: broker.store.flushed_offset)
        sending = asyncio.create_task(client.send("Orders", b"slow"))
        await until(lambda: broker.store.commit_log_max_offset > broker.store.flushed_offset)
        await time.pass_by(4.9)
        assert not sending.done()
        await time.pass_by(0.2)
        answer = await sending
        assert answer.code == 10
        assert answer.header(SendMessageResponseHeader).queue_offset == 1
        assert [message.body for message in await client.read("Orders")] == [b"quick"], "not safe, so not seen"
        monkeypatch.undo()
        stored(await client.send("Orders", b"next"))
        assert [message.body for message in await client.read("Orders", 0, 1)] == [b"slow", b"next"]


async def test_a_multi_tag_topic_marks_its_messages(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("Many", filter_type=MULTI_TAG))
        await client.send("Many", sys_flag=8)
        (message,) = await client.read("Many")
        assert message.sys_flag == 8 | MULTI_TAGS


# ------------------------------------------------------------------------------------------------------ auto creation


async def test_the_first_message_creates_its_topic(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        version = broker.topics.version.counter
        stored(await client.send("Orders", default_topic_queue_nums=3))
        assert broker.topics.get("Orders") == TopicConfig("Orders", 3, 3, 6)
        assert broker.topics.version.counter == version + 1
        assert '"Orders"' in broker.topics.file.path.read_text()
        stored(await client.send("Units", unit_mode=True))
        assert broker.topics.table["Units"].sys_flag == 1


async def test_many_first_messages_at_once_create_one_topic_and_keep_their_order(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        for number in range(2000):
            command = request(RequestCode.SEND_MESSAGE_V2, send_header("Orders"), b"%d" % number)
            await client.remoting.oneway(client.address, command)
        assert stored(await client.send("Orders")).queue_offset == 2000
        assert broker.topics.version.counter == 1
        found: list[bytes] = []
        while len(found) < 2000:
            found += [message.body for message in await client.read("Orders", 0, len(found))]
        assert found[:2000] == [b"%d" % number for number in range(2000)]


async def test_a_topic_that_cannot_be_written_down_fails_its_own_messages_alone(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        stored(await client.send("Known"))
        obstacle = broker.topics.file.path.with_name("topics.json.tmp")
        obstacle.mkdir()
        assert_refused(await client.send("Orders"), 14)
        stored(await client.send("Known"))
        obstacle.rmdir()
        stored(await client.send("Orders"))
        assert '"Orders"' in broker.topics.file.path.read_text()


async def test_without_auto_creation_only_retry_topics_come_to_life(tmp_path: Path) -> None:
    broker = made_broker(tmp_path, autoCreateTopicEnable="false")
    async with running(broker), client_of(broker) as client:
        assert_refused(await client.send("Orders"), 17)
        assert "Orders" not in broker.topics.table
        stored(await client.send("%RETRY%g"))
        assert broker.topics.get("%RETRY%g") == TopicConfig("%RETRY%g", 1, 1, 6)


# ---------------------------------------------------------------------------------------------------------- refusals

REFUSALS = {
    "schedule topic": ("SCHEDULE_TOPIC_XXXX", {}, 16),
    "half topic": ("RMQ_SYS_TRANS_HALF_TOPIC", {}, 16),
    "op topic": ("RMQ_SYS_TRANS_OP_HALF_TOPIC", {}, 16),
    "check topic": ("TRANS_CHECK_MAX_TIME_TOPIC", {}, 16),
    "self test topic": ("SELF_TEST_TOPIC", {}, 16),
    "offset moved topic": ("OFFSET_MOVED_EVENT", {}, 16),
    "illegal character": ("Orders!", {}, 1),
    "blank topic": (" ", {}, 1),
    "no topic": ("", {}, 1),
    "long topic": ("t" * 128, {}, 1),
    "unknown template": ("Orders", {"default_topic": "Nowhere"}, 17),
    "template that hands nothing down": ("Orders", {"default_topic": "BenchmarkTest"}, 17),
    "queue beyond": ("Orders", {"queue_id": 4}, 1),
    "long properties": ("Orders", {"text": "p\x01" + "x" * 32_767}, 13),
    "large body": ("Orders", {"body": bytes(2001)}, 13),
}


@pytest.mark.parametrize("name", REFUSALS)
async def test_what_cannot_be_stored_is_refused_with_rocketmqs_code(tmp_path: Path, name: str) -> None:
    topic, fields, code = REFUSALS[name]
    async with live(tmp_path, maxMessageSize="2000") as client:
        assert_refused(await client.send(topic, **fields), code)
        assert_refused(await client.ask(RequestCode.SEND_MESSAGE, *long_form(topic, fields)), code)
        stored(await client.send("Orders"))
        (message,) = await client.read("Orders")
        assert message.commit_log_offset == 0


@pytest.mark.parametrize(
    ("bodies", "fields", "limit"),
    [
        ([bytes(2001)], {}, r"its body has 2001 bytes, maxMessageSize is 2000"),
        ([b""], {"text": "p\x01" + "x" * 32_767}, r"its properties exceed 32767 bytes"),
        ([bytes(1500), bytes(1500)], {}, r"the bodies of the batch have 3000 bytes, maxMessageSize is 2000"),
        ([b"a", b"b"], {"text": "p\x01" + "x" * 32_767}, r"its properties exceed 32767 bytes"),
        ([b"a"] * 300, {"text": "p\x01" + "x" * 20_000}, r"the messages of the batch are larger than \d+ bytes"),
        ([bytes(9)], {"topic": "t" * 128}, r"longer than 127 characters"),
    ],
)
async def test_a_refusal_names_the_limit_that_a_message_passed(
    tmp_path: Path, bodies: list[bytes], fields: dict[str, str], limit: str
) -> None:
    async with live(tmp_path, maxMessageSize="2000") as client:
        topic, rest = fields.get("topic", "Orders"), {name: text for name, text in fields.items() if name != "topic"}
        if len(bodies) == 1:
            answer = await client.send(topic, bodies[0], **rest)
        else:
            answer = await client.send_batch(topic, bodies, **rest)
        assert answer.code != 0
        assert re.search(limit, answer.remark or ""), answer.remark


def long_form(topic: str, fields: dict[str, object]) -> tuple[object, bytes]:
    rest = dict(fields)
    body = rest.pop("body", b"")
    return long_header(send_header(topic, **rest)), body  # type: ignore[return-value]


@pytest.mark.parametrize(
    ("bodies", "fields", "code"),
    [
        ([], {}, 13),
        ([bytes(1500), bytes(1500)], {}, 13),
        ([b"a"], {"sys_flag": 4}, 13),
        ([b"a"], {"text": "DELAY\x013"}, 13),
        ([b"a"], {"text": "p\x01" + "x" * 32_767}, 13),
        ([b"a"], {"queue_id": 9}, 1),
    ],
)
async def test_a_batch_that_cannot_be_stored_is_refused_whole(
    tmp_path: Path, bodies: list[bytes], fields: dict[str, object], code: int
) -> None:
    async with live(tmp_path, maxMessageSize="2000") as client:
        assert_refused(await client.send_batch("Orders", bodies, **fields), code)
        assert await client.read("Orders") == []


async def test_a_body_cut_short_is_no_batch(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        for body in (b"\x00\x00\x00\x20", bytes(40), b"\xff" * 40):
            header = send_header("Orders", batch=True)
            assert_refused(await client.ask(RequestCode.SEND_BATCH_MESSAGE, header, body), 13)


async def test_a_missing_field_is_named(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        answer = await client.ask(RequestCode.SEND_MESSAGE_V2)
        assert_refused(answer, 1)
        assert "`a`" in (answer.remark or "")


async def test_nothing_is_accepted_before_the_configured_time(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    opens = time.clock.now_ms() + 5000
    async with live(tmp_path, time, startAcceptSendRequestTimeStamp=str(opens)) as client:
        assert_refused(await client.send("Orders"), 1)
        assert_refused(await client.send("BenchmarkTest"), 1)
        await time.pass_by(5)
        stored(await client.send("Orders"))


async def test_a_broker_without_write_permission_refuses_order_topics_alone(tmp_path: Path) -> None:
    """RocketMQ leaves it to clients to follow the route; the permission of a topic is not looked at either."""
    broker = made_broker(tmp_path, brokerPermission="4")
    async with running(broker), client_of(broker) as client:
        broker.topics.put(TopicConfig("Ordered", 1, 1, order=True))
        broker.topics.put(TopicConfig("ReadOnly", 1, 1, perm=4))
        assert_refused(await client.send("Ordered"), 16)
        stored(await client.send("ReadOnly"))


async def test_a_poisoned_store_says_so_in_every_answer(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        stored(await client.send("Orders"))
        broker.store._poison(OSError(5, "Input/output error"))
        for topic in ("Orders", "Unknown"):
            assert_refused(await client.send(topic), 14)
        assert_refused(await client.send_batch("Orders", [b"a"]), 14)
        assert len(await client.read("Orders")) == 1


# ------------------------------------------------------------------------------------------------------ dead letters


async def test_a_retry_sent_once_too_often_becomes_a_dead_letter(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        place = stored(await client.send("%RETRY%g", b"again", reconsume_times=2, max_reconsume_times=3))
        assert (place.queue_id, place.queue_offset) == (0, 0)
        stored(await client.send("%RETRY%g", b"enough", reconsume_times=3, max_reconsume_times=3))
        stored(await client.send("%RETRY%g", b"16 is enough", reconsume_times=16))
        assert [message.body for message in await client.read("%RETRY%g")] == [b"again"]
        dead = await client.read("%DLQ%g")
        assert [(message.body, message.reconsume_times) for message in dead] == [(b"enough", 3), (b"16 is enough", 16)]
        assert broker.topics.get("%DLQ%g") == TopicConfig("%DLQ%g", 1, 1, 6)


async def test_an_old_client_cannot_say_how_often(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        command = request(
            RequestCode.SEND_MESSAGE_V2, send_header("%RETRY%g", reconsume_times=3, max_reconsume_times=3), b"old"
        )
        command.version = 120
        stored(await client.call(command))
        assert len(await client.read("%RETRY%g")) == 1


async def test_a_retry_for_a_group_that_may_not_exist_is_refused(tmp_path: Path) -> None:
    async with live(tmp_path, autoCreateSubscriptionGroup="false") as client:
        assert_refused(await client.send("%RETRY%g"), 26)


async def test_two_clients_are_served_beside_each_other(tmp_path: Path) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker, "one") as one, client_of(broker, "two") as two:
        await one.send("Orders", b"1")
        await two.send("Orders", b"2")
        assert [message.body for message in await one.read("Orders")] == [b"1", b"2"]
        hosts = {message.born_host for message in await two.read("Orders")}
        assert hosts == {local(one), local(two)}


def local(client: Client) -> str:
    connection = client.remoting.connection(client.address)
    assert connection is not None
    return "{}:{}".format(*connection.local)


# ---------------------------------------------------------------------------------------------------- further queues


async def test_a_disk_that_is_slow_to_give_room_costs_one_message_and_then_they_are_refused_at_once(
    tmp_path: Path,
) -> None:
    broker = made_broker(tmp_path, osPageCacheBusyTimeOutMills="1", mappedFileSizeCommitLog="4096")
    async with running(broker), client_of(broker) as client:
        broker.store._reserve_worker.stop()
        stored(await client.send("Orders", bytes(1000)))
        sent = 1
        with broker.store._log._reserving:  # the worker is in the middle of a step
            while (answer := await client.send("Orders", bytes(1000))).code == 0:
                sent += 1
            assert_refused(answer, 1)
            assert str(answer.remark).startswith("[PC_SYNCHRONIZED]")
            end = broker.store.commit_log_max_offset
            back = ConsumerSendMsgBackHeader(0, "g", 3)
            for answer in (
                await client.send("Orders"),
                await client.send_batch("Orders", [b"a", b"b"]),
                await client.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back),
            ):
                assert (answer.code, answer.ext) == (2, None), "before anybody has looked into it"
                assert str(answer.remark).startswith("[REJECTREQUEST]")
            assert broker.store.commit_log_max_offset == end
            assert len(await client.read("Orders")) == sent
        broker.store._log.reserve_ahead()
        assert stored(await client.send("Orders")).queue_offset == sent


async def test_messages_are_refused_while_no_buffer_of_the_transient_pool_is_free(tmp_path: Path) -> None:
    never = str(1 << 40)
    pool = {"transientStorePoolEnable": "true", "transientStorePoolSize": "2", "commitIntervalCommitLog": never}
    broker = made_broker(tmp_path, mappedFileSizeCommitLog="4096", **pool)
    async with running(broker), client_of(broker) as client:
        broker.store._commit_worker.stop()
        while (answer := await client.send("Orders", bytes(1000))).code == 0:
            pass
        assert (answer.code, answer.ext) == (2, None)
        assert str(answer.remark).startswith("[REJECTREQUEST]")
        assert await client.read("Orders") == [], "nothing is committed"
        broker.store._log_committer.step()
        stored(await client.send("Orders", bytes(1000)))
        broker.store._log_committer.ask()
        broker.store._log_committer.step()


async def test_a_full_disk_is_told_with_its_use(tmp_path: Path) -> None:
    async with live(tmp_path) as client:
        stored(await client.send("Orders", properties={"KEYS": "k"}))
    ratio = {"rocketmq.broker.diskSpaceWarningLevelRatio": "0.0"}
    async with live(tmp_path, **ratio) as client:
        for answer in (await client.send("Orders"), await client.send_batch("Orders", [b"a", b"b"])):
            assert_refused(answer, 14)
            assert re.search(r"CL:  \d\.\d\d CQ:  \d\.\d\d INDEX:  \d\.\d\d$", str(answer.remark))
        assert len(await client.read("Orders")) == 1


def test_every_outcome_of_a_put_has_an_answer() -> None:
    assert set(OUTCOMES) == set(PutStatus)


async def test_a_message_is_entered_in_the_queues_it_names(tmp_path: Path) -> None:
    options = {"enableMultiDispatch": "true", "enableLmq": "true", "maxLmqConsumeQueueNum": "1"}
    async with live(tmp_path, **options) as client:
        await client.send("Copy")
        stored(await client.send("Orders", b"one", {"INNER_MULTI_DISPATCH": "%LMQ%a,Copy", "WAIT": "true"}, queue_id=2))
        (message,) = await client.read("Copy", 2)
        assert (message.topic, message.body) == ("Orders", b"one")
        assert message.properties["INNER_MULTI_QUEUE_OFFSET"] == "0,0"
        refused = await client.send("Orders", b"two", {"INNER_MULTI_DISPATCH": "%LMQ%b"})
        assert_refused(refused, 1)
        assert "[LMQ_CONSUME_QUEUE_NUM_EXCEEDED]" in (refused.remark or "")
