"""The clients of a campaign, a process of its own: senders that number their messages, a consumer, and a watcher that
asks every broker for the group's progress. Each event is one line of the history given with `--history`.

A line on standard input ends the sending; consuming and watching go on until the process is ended.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import random
import sys
from collections.abc import Sequence
from pathlib import Path

import uvloop

from bench.soak.disks import KEY_END
from bench.soak.history import Delivered, Journal, Moved, Progress, Sent, now
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
    async with producer, consumer, asyncio.TaskGroup() as group:
        for pair in arguments.pairs.split(","):
            for number in range(arguments.senders):
                group.create_task(_send(producer, f"{pair}.{number}", pair, arguments, journal, ended))
        for member in range(1, arguments.members + 1):
            group.create_task(_come_and_go(member, arguments, journal, ended))
        for node in arguments.nodes.split(","):
            name, _, port = node.partition("=")
            group.create_task(_watch(name, f"127.0.0.1:{port}", arguments.topic, journal))
        await asyncio.to_thread(sys.stdin.readline)
        ended.set()


def _member(number: int, arguments: argparse.Namespace, journal: Journal) -> PushConsumer:
    """One of the group."""
    consumer = PushConsumer(
        GROUP,
        arguments.namesrv,
        instance_name=f"member-{number}",
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
        poll_namesrv_interval_ms=ROUTE_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
        persist_offset_interval_ms=1000,
    )
    consumer.subscribe(arguments.topic)

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
    parser.add_argument("--members", type=int, default=2, help="of the group, that come and go")
    parser.add_argument("--seed", type=int, required=True)
    parser.add_argument("--history", type=Path, required=True)
    return parser.parse_args()


if __name__ == "__main__":
    uvloop.run(_main(_arguments()))
