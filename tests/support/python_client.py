"""orbitmq's client in live tests, with rows like those the Java drivers print, so that the same assertions hold.

Both faces send; consumers collect what they get. Knows neither which broker it talks to nor what a test expects.
"""

from __future__ import annotations

import asyncio
import contextlib
import hashlib
from collections.abc import Callable, Iterable, Sequence
from typing import Any

from orbitmq.client import (
    ClientError,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    MessageQueue,
    Producer,
    PushConsumer,
    SendResult,
)
from orbitmq.client import sync as threads
from tests.support.loops import PATIENCE_SECONDS, until
from tests.support.messages import message as content_of
from tests.support.process import wait_until

FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS
LATER = ConsumeConcurrentlyStatus.RECONSUME_LATER
BATCH = 32
BATCH_LINGER_MS = 2
IN_FLIGHT = 256
ONEWAY_AHEAD = 500
LINGER_S = 0.3
AGAIN_S = 0.002  # a broker that is looked at gets its turn to be ready

Row = dict[str, Any]


def message(topic: str, run: str, index: int) -> Message:
    """The message of this index."""
    content = content_of(run, index)
    return Message(
        topic, content.body, tags=content.tags, keys=content.keys, flag=content.flag, properties=content.properties
    )


def until_indexed(name_server: str, topic: str, key: str) -> None:
    """Wait until the newest message with this key is found by it: RocketMQ indexes what it has acknowledged later."""

    def is_found() -> bool:
        with contextlib.suppress(ClientError):
            return bool(client.query_message(topic, key))
        return False

    with threads.Producer("askers", name_server) as client:
        wait_until(is_found, PATIENCE_SECONDS, f"{key} in the index")


def sent_row(index: int, result: SendResult, position: int = 0) -> Row:
    """What the broker said of one message; `position` is its place in a batch."""
    return {
        "index": index,
        "status": result.status.name,
        "msgId": result.msg_id.split(",")[position],
        "offsetMsgId": result.offset_msg_id.split(",")[position],
        "broker": result.queue.broker_name,
        "queueId": result.queue.queue_id,
        "queueOffset": result.queue_offset + position,
    }


def received_row(message: MessageExt) -> Row:
    """What a consumer saw."""
    host, _, port = message.born_host.rpartition(":")
    return {
        "event": "message",
        "topic": message.topic,
        "broker": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "msgId": message.msg_id,
        "tags": message.tags,
        "keys": message.keys,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "bodySize": len(message.body),
        "bodySha256": hashlib.sha256(message.body).hexdigest(),
        "bornHost": host,
        "bornPort": int(port),
        "storeHost": message.store_host,
        "bornTimestamp": message.born_timestamp,
        "storeTimestamp": message.store_timestamp,
        "commitLogOffset": message.commit_log_offset,
        "reconsumeTimes": message.reconsume_times,
        "properties": dict(message.properties),
    }


async def send(
    namesrv: str, topic: str, run: str, count: int, mode: str = "async", *, group: str = "producers"
) -> list[Row]:
    """Send the messages [0, count) with the asyncio producer; rows of what was acknowledged, when readers see it."""
    linger_ms = BATCH_LINGER_MS if mode == "linger" else 0
    async with Producer(group, namesrv, send_timeout_ms=10_000, linger_ms=linger_ms) as producer:
        if mode == "oneway":
            for i in range(count):
                await producer.send_oneway(message(topic, run, i))
                if i % ONEWAY_AHEAD == 0 or i == count - 1:
                    await _until_stored(producer, topic, i + 1)
            return []
        rows: list[Row] = []
        if mode == "sync":
            rows = [sent_row(i, await producer.send(message(topic, run, i))) for i in range(count)]
        elif mode == "batch":
            for start in range(0, count, BATCH):
                indexes = range(start, min(start + BATCH, count))
                result = await producer.send_batch([message(topic, run, i) for i in indexes])
                rows += [sent_row(i, result, i - start) for i in indexes]
        else:
            rows = await _send_async(producer, topic, run, count)
        await _until_readable(producer, topic, rows)
        return rows


async def _until_readable(producer: Producer, topic: str, rows: Iterable[Row]) -> None:
    """RocketMQ acknowledges what it has in its log; its queues know it a moment later."""
    ends: dict[tuple[str, int], int] = {}
    for row in rows:
        place = (row["broker"], row["queueId"])
        ends[place] = max(ends.get(place, 0), row["queueOffset"] + 1)
    async with asyncio.timeout(PATIENCE_SECONDS):
        for (broker, queue_id), end in ends.items():
            seen = -1
            while seen < end:
                seen = await producer.max_offset(MessageQueue(topic, broker, queue_id))
                await asyncio.sleep(AGAIN_S)


async def _until_stored(producer: Producer, topic: str, count: int) -> None:
    """A broker drops oneway messages it has no time for, so no more of them are sent than it surely has."""
    queues = await producer.fetch_publish_queues(topic)
    async with asyncio.timeout(PATIENCE_SECONDS):
        while sum([await producer.max_offset(queue) for queue in queues]) < count:
            pass


async def _send_async(producer: Producer, topic: str, run: str, count: int) -> list[Row]:
    free = asyncio.Semaphore(IN_FLIGHT)
    tasks = []
    for i in range(count):
        await free.acquire()
        tasks.append(producer.send_async(message(topic, run, i)))
        tasks[-1].add_done_callback(lambda _: free.release())
    return [sent_row(i, result) for i, result in enumerate(await asyncio.gather(*tasks))]


def send_from_threads(namesrv: str, topic: str, run: str, count: int, mode: str) -> list[Row]:
    """The same with the synchronous producer."""
    with threads.Producer("producers", namesrv, send_timeout_ms=10_000) as producer:
        if mode == "sync":
            return [sent_row(i, producer.send(message(topic, run, i))) for i in range(count)]
        futures = [producer.send_async(message(topic, run, i)) for i in range(count)]
        return [sent_row(i, future.result()) for i, future in enumerate(futures)]


class Collector:
    """A listener that keeps what it gets, and fails deliveries that `fails` names."""

    def __init__(self, fails: Callable[[MessageExt], bool] = lambda _: False) -> None:
        self.rows: list[Row] = []
        self._fails = fails

    async def __call__(
        self, messages: Sequence[MessageExt], context: ConcurrentContext
    ) -> ConsumeConcurrentlyStatus | None:
        return self.take(messages)

    def take(self, messages: Sequence[MessageExt]) -> ConsumeConcurrentlyStatus:
        """For listeners that are plain functions."""
        self.rows += map(received_row, messages)
        return LATER if any(map(self._fails, messages)) else SUCCESS

    async def until(self, count: int) -> list[Row]:
        """The rows once there are `count`, and those that come a moment later: surplus ones must show."""
        await until(lambda: len(self.rows) >= count, f"{count} deliveries")
        await asyncio.sleep(LINGER_S)
        return self.rows


async def consume(
    namesrv: str, topic: str, group: str, count: int, expression: str = "*", **settings: Any
) -> list[Row]:
    """What one push consumer with a coroutine listener gets of `topic`, from its first message on."""
    collector = Collector()
    consumer = PushConsumer(group, namesrv, consume_from_where=FIRST, **settings)
    consumer.subscribe(topic, expression)
    consumer.set_listener(collector)
    async with consumer:
        return await collector.until(count)


def indexes(rows: Iterable[Row]) -> list[int]:
    """The index of each row's message."""
    return [int(row["properties"]["index"]) for row in rows]
