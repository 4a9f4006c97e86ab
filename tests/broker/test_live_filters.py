"""SQL92 subscriptions at a live broker: pulls that bring one, those of heartbeats, held pulls, retries, bitmaps."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.properties import RETRY_TOPIC
from orbitmq.store.extended_queue import is_address
from orbitmq.wire.bodies import ConsumeQueueEntries
from orbitmq.wire.headers_admin import QueryConsumeQueueHeader
from orbitmq.wire.objects import decode
from orbitmq.wire.requests import RequestCode
from tests.support.live import Client, Time, client_of, consumer, made_broker, running
from tests.support.loops import LoopFactory, settle, until

ON = {"enablePropertyFilter": "true"}
NO_FILTER_SERVERS = (301, 302)  # RocketMQ before 4.9 registered filter servers and their classes with these


@asynccontextmanager
async def filtering(directory: Path, time: Time | None = None, **options: str) -> AsyncIterator[tuple[Broker, Client]]:
    broker = made_broker(directory, time.clock if time else None, **{**ON, **options})
    async with running(broker), client_of(broker) as client:
        yield broker, client


def sql(expression: str, topic: str = "Orders", version: int = 1) -> SubscriptionData:
    return SubscriptionData(topic, expression, version=version, expression_type=SQL92)


def own(expression: str) -> dict[str, object]:
    """A pull that brings its expression."""
    return {"subscription": expression, "expression_type": SQL92}


OF_HEARTBEAT = {"sys_flag": 0, "subscription": None, "expression_type": SQL92, "sub_version": 1}


async def fill(client: Client, *properties: Mapping[str, str], topic: str = "Orders") -> None:
    """Messages `0`, `1`, ... with these properties."""
    for number, one in enumerate(properties):
        assert (await client.send(topic, b"%d" % number, one)).code == 0


def texts(messages: list[object]) -> list[str]:
    return [message.body.decode() for message in messages]  # type: ignore[attr-defined]


async def test_a_pull_gets_what_its_own_expression_takes(tmp_path: Path) -> None:
    async with filtering(tmp_path) as (_, client):
        await fill(client, {"a": "5"}, {"a": "7", "color": "rot"}, {}, {"a": "x"}, {"a": "9", "color": "grün"})
        assert texts(await client.read("Orders", **own("a > 5"))) == ["1", "4"]
        assert texts(await client.read("Orders", **own("color = 'grün' OR a IS NULL"))) == ["2", "4"]
        assert texts(await client.read("Orders", max_msg_nums=1, **own("a > 5"))) == ["1"]
        answer = await client.pull("Orders", **own("a > 100"))
        assert (answer.code, answer.remark, (answer.ext or {})["nextBeginOffset"]) == (20, "NO_MATCHED_MESSAGE", "5")


async def test_a_group_gets_what_its_heartbeat_says(tmp_path: Path) -> None:
    async with filtering(tmp_path) as (_, client):
        await fill(client, {"a": "5", "TAGS": "TagA"}, {"a": "7", "TAGS": "TagB"}, {"a": "9", "TAGS": "TagA"})
        await client.heartbeat(consumer("readers", sql("a > 5 AND TAGS = 'TagA'")))
        assert texts(await client.read("Orders", **OF_HEARTBEAT)) == ["2"]
        await client.heartbeat(consumer("readers", sql("a > 5", version=2)))
        assert texts(await client.read("Orders", **OF_HEARTBEAT)) == ["1", "2"]


@pytest.mark.parametrize(
    ("fields", "code"),
    [
        (own("a >"), 23),
        (own(""), 23),
        ({"subscription": "a > 5", "expression_type": "SQL99"}, 23),
        ({**OF_HEARTBEAT, "sub_version": 8}, 25),
        ({**OF_HEARTBEAT, "consumer_group": "wrong"}, 27),
        ({**OF_HEARTBEAT, "consumer_group": "stranger"}, 24),
    ],
)
async def test_what_cannot_be_evaluated_is_refused(tmp_path: Path, fields: dict[str, object], code: int) -> None:
    async with filtering(tmp_path) as (_, client):
        await client.send("Orders")
        await client.heartbeat(consumer("readers", sql("a > 5", version=7)), consumer("wrong", sql("a > ")))
        answer = await client.pull("Orders", **fields)
        assert answer.code == code
        assert answer.remark
        assert not answer.ext


async def test_a_filter_older_than_the_subscription_is_refused(tmp_path: Path) -> None:
    async with filtering(tmp_path) as (broker, client):
        await client.send("Orders")
        await client.heartbeat(consumer("readers", sql("a > 5", version=7)))
        registered = broker._filters.find("Orders", "readers")
        assert registered is not None
        registered.version = 6
        assert (await client.pull("Orders", **{**OF_HEARTBEAT, "sub_version": 7})).code == 28


async def test_without_the_option_expressions_are_refused_in_rocketmqs_words(tmp_path: Path) -> None:
    async with filtering(tmp_path, enablePropertyFilter="false") as (_, client):
        await client.send("Orders")
        await client.heartbeat(consumer("readers", sql("a > 5")))
        for fields in (own("a > 5"), own("a >"), OF_HEARTBEAT):
            answer = await client.pull("Orders", **fields)
            assert answer.code == 1
            assert answer.remark == "The broker does not support consumer to filter message by SQL92"


async def test_a_held_pull_waits_for_a_message_its_expression_takes(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    async with filtering(tmp_path, time) as (broker, client):
        await client.send("Orders", queue_id=1)
        await client.heartbeat(consumer("readers", sql("a > 5")))
        waiting = {**OF_HEARTBEAT, "sys_flag": PULL_SUSPEND}
        by_heartbeat = asyncio.create_task(client.read("Orders", **waiting))
        by_request = asyncio.create_task(
            client.read("Orders", **{**own("a > 7"), "sys_flag": PULL_SUBSCRIPTION | PULL_SUSPEND})
        )
        await until(lambda: len(broker._pulling.held) == 2)
        await fill(client, {"a": "3"}, {"b": "9"}, {"a": "x"})
        await settle()
        assert len(broker._pulling.held) == 2
        await fill(client, {"a": "6"})
        assert [message.properties["a"] for message in await by_heartbeat] == ["6"]
        assert len(broker._pulling.held) == 1
        await fill(client, {"a": "8"})
        assert [message.properties["a"] for message in await by_request] == ["8"]


async def test_retries_are_filtered_by_the_expression_of_their_topic(tmp_path: Path) -> None:
    async with filtering(tmp_path, filterSupportRetry="true") as (_, client):
        retry = "%RETRY%readers"
        await client.heartbeat(consumer("readers", sql("a > 5"), SubscriptionData(retry, version=1)))
        await fill(
            client, {"a": "7", RETRY_TOPIC: "Orders"}, {"a": "3", RETRY_TOPIC: "Orders"},
            {"a": "3", RETRY_TOPIC: "Bills"}, {"a": "3"}, topic=retry,
        )  # fmt: skip
        for fields in ({"sys_flag": 0}, {}):
            assert texts(await client.read(retry, **fields)) == ["0", "2", "3"]


async def test_retries_come_unfiltered_without_the_option(tmp_path: Path) -> None:
    async with filtering(tmp_path) as (_, client):
        await client.heartbeat(consumer("readers", sql("a > 5"), SubscriptionData("%RETRY%readers", version=1)))
        await fill(client, {"a": "7", RETRY_TOPIC: "Orders"}, {"a": "3", RETRY_TOPIC: "Orders"}, topic="%RETRY%readers")
        assert texts(await client.read("%RETRY%readers", sys_flag=0)) == ["0", "1"]


BITMAPS = {"enableConsumeQueueExt": "true", "enableCalcFilterBitMap": "true"}


async def test_messages_a_bitmap_rules_out_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    time = Time()
    async with filtering(tmp_path, time, **BITMAPS) as (broker, client):
        await client.heartbeat(consumer("readers", sql("a > 5")))
        time.clock.advance(1)  # a bitmap of the filter's first millisecond may be older than the filter
        await fill(client, {"a": "3"}, {"a": "7"}, {"a": "x"}, {"a": "9"})
        registered = broker._filters.find("Orders", "readers")
        assert registered is not None
        read: list[str] = []
        matches = registered.expression.matches
        monkeypatch.setattr(registered.expression, "matches", lambda p: read.append(p.get("a")) or matches(p))
        assert texts(await client.read("Orders", **OF_HEARTBEAT)) == ["1", "3"]
        assert read == ["7", "9"]
        read.clear()
        registered.born_ms += 10
        assert texts(await client.read("Orders", **OF_HEARTBEAT)) == ["1", "3"]
        assert read == ["3", "7", "x", "9"], "a bitmap says nothing of a filter that came later"


async def test_a_tool_sees_the_bitmaps_and_what_the_filter_makes_of_them(tmp_path: Path) -> None:
    time = Time()
    async with filtering(tmp_path, time, **BITMAPS) as (broker, client):
        await client.heartbeat(consumer("readers", sql("a > 5")))
        time.clock.advance(1)
        await fill(client, {"a": "3"}, {"a": "7"})
        header = QueryConsumeQueueHeader("Orders", 0, 0, 9, "readers")
        body = decode(ConsumeQueueEntries, (await client.ask(RequestCode.QUERY_CONSUME_QUEUE, header)).body)
        assert json.loads(body.filter_data or "")["expression"] == "a > 5"
        assert [entry.eval for entry in body.queue_data] == [False, True]
        for entry, bitmap in zip(body.queue_data, bitmaps(broker), strict=True):
            assert int((entry.bit_map or "").replace("\n", ""), 2) == int.from_bytes(bitmap, "little")
            told = json.loads(entry.extend_data_json or "")
            assert (base64.b64decode(told["filterBitMap"]), told["size"]) == (bitmap, 34)


async def test_a_start_after_a_kill_makes_the_bitmaps_again(tmp_path: Path) -> None:
    async with filtering(tmp_path, **BITMAPS) as (broker, client):
        await client.heartbeat(consumer("readers", sql("a > 5")))
        await fill(client, {"a": "3"}, {"a": "7"})
        wanted = bitmaps(broker)
        assert [any(bitmap) for bitmap in wanted] == [False, True]
    for path in (tmp_path / "consumequeue/Orders", tmp_path / "consumequeue_ext/Orders"):
        for file in path.rglob("0*0*"):
            if file.is_file():
                file.unlink()
    (tmp_path / "abort").touch()
    async with filtering(tmp_path, **BITMAPS) as (broker, _):
        assert bitmaps(broker) == wanted


def bitmaps(broker: Broker) -> list[bytes]:
    queue = broker.store._queues.table["Orders", 0]
    codes = [code for _, _, code in queue.entries(0)]
    assert all(map(is_address, codes))
    return [extension.bitmap for code in codes if (extension := queue.extension(code)) is not None]


async def test_filters_survive_a_restart_and_die_with_their_group(tmp_path: Path, turned_clock: LoopFactory) -> None:
    time = Time()
    async with filtering(tmp_path, time) as (_, client):
        await client.heartbeat(consumer("readers", sql("a > 5")))
        await client.remoting.close()
        path = tmp_path / "config" / "consumerFilter.json"
        await time.pass_by(10)
        await until(path.exists)
        (kept,) = json.loads(path.read_text())["filterDataByTopic"]["Orders"]["groupFilterData"].values()
        assert (kept["expression"], kept["dead"]) == ("a > 5", True)
    async with filtering(tmp_path, time) as (broker, client):
        assert broker._filters.find("Orders", "readers") is not None
        await client.heartbeat(consumer("readers", sql("a > 5", version=2)))
        assert broker._filters.find("Orders", "readers").dead_ms == 0  # type: ignore[union-attr]


@pytest.mark.parametrize("code", NO_FILTER_SERVERS)
async def test_there_are_no_filter_servers(tmp_path: Path, code: int) -> None:
    """Classes uploaded to a broker do not run here, as they do not in RocketMQ 4.9."""
    async with filtering(tmp_path) as (_, client):
        answer = await client.ask(code)
        assert answer.code == 3
        class_mode = SubscriptionData("Orders", "example.Filter", version=1, class_filter_mode=True)
        await client.heartbeat(consumer("readers", class_mode))
        await fill(client, {"TAGS": "TagA"})
        assert texts(await client.read("Orders", **{**OF_HEARTBEAT, "expression_type": "TAG"})) == ["0"]


async def test_the_codes_of_filter_servers_are_known() -> None:
    assert [RequestCode(code).name for code in NO_FILTER_SERVERS] == [
        "REGISTER_FILTER_SERVER", "REGISTER_MESSAGE_FILTER_CLASS",
    ]  # fmt: skip
