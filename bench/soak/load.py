"""The clients of a campaign, a process of its own: senders that number their messages, some of them timer messages, a
consumer for each of the two kinds, and a watcher that asks every broker for the group's progress; `popping` has those
of POP consumption. Each event is one line of the history given with `--history`.

A line on standard input ends the sending; consuming and watching go on until the process is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
import time
from collections.abc import Sequence
from datetime import UTC, datetime
from pathlib import Path

import uvloop

from bench.soak import popping
from bench.soak.disks import KEY_END
from bench.soak.history import Delivered, Journal, Moved, Progress, Rang, Sent, Timed, now
from orbitmq.client import (
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
)
from orbitmq.errors import OrbitMQError
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.message.model import MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations.tables import all_consumer_offsets

GROUP = "soak-readers"
TIMED_TOPIC, TIMED_GROUP = "SoakTimed", "soak-timed"
AHEAD_MAX_S = 10.0  # of a timer message: longer than a node is away, so some fall due while it is
PAUSE_S = 0.03  # of a sender between two sends
AFTER_ERROR_S = 0.2  # a dead broker refuses at once
BODY_MAX = 400
SEND_TIMEOUT_MS = 4000  # longer than a SYNC_MASTER waits for its slave
STAY_MAX_S, AWAY_MAX_S = 8.0, 4.0  # of a member that comes and goes
WATCH_S = 0.5
WATCH_TIMEOUT_MS = 1500
ROUTE_MS, HEARTBEAT_MS = 1000, 2000  # clients of a campaign notice soon who is dead and who is back


async def _main(arguments: argparse.Namespace) -> None:
    journal = Journal(arguments.history)
    ended = asyncio.Event()
    consumer = _member(0, arguments, journal)
    producer = Producer(
        "soak-senders", arguments.namesrv, send_timeout_ms=SEND_TIMEOUT_MS, poll_namesrv_interval_ms=ROUTE_MS
    )
    async with contextlib.AsyncExitStack() as stack:
        await stack.enter_async_context(producer)
        await stack.enter_async_context(consumer)
        if arguments.timers:
            await stack.enter_async_context(_timed(arguments, journal))
        group = await stack.enter_async_context(asyncio.TaskGroup())
        for pair in arguments.pairs.split(","):
            for number in range(arguments.timers):
                group.create_task(_send_timed(producer, f"timed.{pair}.{number}", pair, arguments, journal, ended))
            for number in range(arguments.senders):
                group.create_task(_send(producer, f"{pair}.{number}", pair, arguments, journal, ended))
        for member in range(1, arguments.members + 1):
            group.create_task(_come_and_go(member, arguments, journal, ended))
        for node in arguments.nodes.split(","):
            name, _, port = node.partition("=")
            group.create_task(_watch(name, f"127.0.0.1:{port}", arguments.topic, journal))
        if arguments.fronts:
            await popping.begin(group, producer, arguments, journal, ended)
        await asyncio.to_thread(sys.stdin.readline)
        ended.set()


def _consumer(group: str, name: str, topic: str, namesrv: str) -> PushConsumer:
    consumer = PushConsumer(
        group,
        namesrv,
        instance_name=name,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_namesrv_interval_ms=ROUTE_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        persist_offset_interval_ms=1000,
    )
    consumer.subscribe(topic)
    return consumer


def _timed(arguments: argparse.Namespace, journal: Journal) -> PushConsumer:
    """Consumes timer messages."""
    consumer = _consumer(TIMED_GROUP, "timed", TIMED_TOPIC, arguments.namesrv)

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:  # noqa: ARG001
        for one in messages:
            key = one.body.partition(KEY_END)[0].decode()
            journal.add(Rang(key, one.broker_name, one.queue_id, one.queue_offset, one.store_timestamp))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    return consumer


def _member(number: int, arguments: argparse.Namespace, journal: Journal) -> PushConsumer:
    """One of the group."""
    consumer = _consumer(GROUP, f"member-{number}", arguments.topic, arguments.namesrv)

    @consumer.on_message
    async def handle(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:  # noqa: ARG001
        for one in messages:
            key, place = one.body.partition(KEY_END)[0].decode(), one.commit_log_offset
            journal.add(Delivered(key, one.broker_name, one.queue_id, one.queue_offset, now(), place, number))
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    return consumer


async def _come_and_go(number: int, arguments: argparse.Namespace, journal: Journal, ended: asyncio.Event) -> None:
    """A member that works for a while, leaves, and comes again, until the sending ends; then it stays away."""
    dice = random.Random(f"{arguments.seed}.member.{number}")
    while not ended.is_set():
        await _pass(ended, dice.uniform(0, AWAY_MAX_S))
        member = _member(number, arguments, journal)
        begun = now()
        try:
            await member.start()
        except OrbitMQError:
            await member.shutdown()  # it could not even begin: no name server answers
            continue
        journal.add(Moved(number, True, begun, now()))
        await _pass(ended, dice.uniform(1, STAY_MAX_S))
        begun = now()
        await member.shutdown()
        journal.add(Moved(number, False, begun, now()))


async def _pass(ended: asyncio.Event, seconds: float) -> None:
    with contextlib.suppress(TimeoutError):
        await asyncio.wait_for(ended.wait(), seconds)


async def _send(
    producer: Producer, sender: str, pair: str, arguments: argparse.Namespace, journal: Journal, ended: asyncio.Event
) -> None:
    """One after another, each attempted once, round the queues of one broker."""
    dice = random.Random(f"{arguments.seed}.{sender}")
    topic, index = arguments.topic, 0
    while not ended.is_set():
        key, queue = f"{sender}.{index}", index % arguments.queues
        body = key.encode() + KEY_END + dice.randbytes(dice.randrange(BODY_MAX))
        begun = now()
        try:
            result = await producer.send(Message(topic, body), queue=MessageQueue(topic, pair, queue))
        except OrbitMQError as error:
            journal.add(Sent(key, sender, pair, queue, begun, now(), error=f"{type(error).__name__}: {error}"))
            await asyncio.sleep(AFTER_ERROR_S)
        else:
            ended_at = now()
            place = decode_offset_message_id(result.offset_msg_id).physical_offset
            status = result.status.name
            journal.add(Sent(key, sender, pair, queue, begun, ended_at, status, result.queue_offset, place))
            await asyncio.sleep(PAUSE_S)
        index += 1


async def _send_timed(
    producer: Producer, sender: str, pair: str, arguments: argparse.Namespace, journal: Journal, ended: asyncio.Event
) -> None:
    """Timer messages to one broker, each attempted once."""
    dice = random.Random(f"{arguments.seed}.{sender}")
    index = 0
    while not ended.is_set():
        key, queue = f"{sender}.{index}", index % arguments.queues
        body = key.encode() + KEY_END + dice.randbytes(dice.randrange(BODY_MAX))
        due_ms = time.time_ns() // 1_000_000 + int(dice.uniform(0.5, AHEAD_MAX_S) * 1000)
        message = Message(TIMED_TOPIC, body, deliver_at=datetime.fromtimestamp(due_ms / 1000, UTC))
        begun = now()
        try:
            result = await producer.send(message, queue=MessageQueue(TIMED_TOPIC, pair, queue))
        except OrbitMQError as error:
            journal.add(Timed(key, pair, due_ms, begun, now(), error=f"{type(error).__name__}: {error}"))
            await asyncio.sleep(AFTER_ERROR_S)
        else:
            ended_at, place = now(), decode_offset_message_id(result.offset_msg_id).physical_offset
            journal.add(Timed(key, pair, due_ms, begun, ended_at, result.status.name, place))
            await asyncio.sleep(PAUSE_S)
        index += 1


async def _watch(node: str, address: str, topic: str, journal: Journal) -> None:
    """What a node says of the group's progress, past the proxy; a node that does not answer says nothing."""
    remoting = Remoting()
    told: dict[int, int] = {}
    while True:
        at = now()
        try:
            offsets = await all_consumer_offsets(remoting, address, timeout_ms=WATCH_TIMEOUT_MS)
        except OrbitMQError:
            told.clear()
        else:
            for queue, offset in offsets.get(f"{topic}@{GROUP}", {}).items():
                if told.get(queue) != offset:
                    told[queue] = offset
                    journal.add(Progress(node, queue, offset, at))
        await asyncio.sleep(WATCH_S)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--namesrv", required=True)
    parser.add_argument("--topic", required=True)
    parser.add_argument("--queues", type=int, required=True)
    parser.add_argument("--pairs", required=True, help="broker names, separated by commas")
    parser.add_argument("--nodes", required=True, help="name=port of every broker, separated by commas")
    parser.add_argument("--senders", type=int, default=3, help="of each pair")
    parser.add_argument("--timers", type=int, default=1, help="senders of timer messages to each pair")
    parser.add_argument("--members", type=int, default=2, help="of the group, that come and go")
    parser.add_argument("--fronts", default="", help="pair=port,port of gRPC, separated by semicolons; empty: no POP")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(_main(_arguments()))
