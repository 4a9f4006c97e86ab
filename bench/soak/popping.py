"""The clients of POP consumption in a campaign's load: senders, and members of one group that acknowledge most of what
they get, leave some, and change the invisible time of some. To each pair one sender speaks remoting and one gRPC, and
so do the members; those that speak gRPC ask the pair's other node when one does not serve them.

While nothing is sent any more, members acknowledge everything. What they did is written down when they are through
with a message.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import itertools
import random
import time
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Sequence
from typing import Any

import grpc

from bench.soak.disks import KEY_END
from bench.soak.history import ACKED, LEFT, TRIED, Journal, Popped, Posted, now
from bench.soak.links import OUTSIDE
from orbitmq.client import Message, MessageExt, Producer, SimpleConsumer
from orbitmq.errors import OrbitMQError
from orbitmq.message.model import MessageQueue
from orbitmq.message.pop import NORMAL, POP_CK, Receipt
from orbitmq.proxy.handles import parse_handle
from orbitmq.proxy.statuses import OF_STORED
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import Code
from tests.support.five import Five, channel, message

TOPIC, GROUP = "SoakPop", "soak-pop"
REMOTING, GRPC = "remoting", "gRPC"
MEMBERS = 2  # that speak remoting; as many as there are pairs speak gRPC
BODY_MAX = 400
PAUSE_S = 0.05  # of a sender between two sends
AFTER_ERROR_S = 0.2  # a dead broker refuses at once
CALL_S = 5.0  # longer than a SYNC_MASTER waits for its slave
LEFT_SHARE, CHANGED_SHARE = 0.1, 0.1  # of what members get
INVISIBLE_S, CHANGED_S = (1.0, 4.0), (0.5, 3.0)
FIVE_INVISIBLE_S = 10.0  # the least that a client of RocketMQ 5 may choose
MOST = 8  # messages at once: all of them are decided on while the first is invisible
AWAIT_S = 1.0
ROUTE_MS, HEARTBEAT_MS = 1000, 2000
FAILURES = (OrbitMQError, grpc.aio.AioRpcError, TimeoutError, AssertionError)


def places(popped: Iterable[Popped]) -> set[tuple[str, str]]:
    """Brokers and queues in which the group has begun."""
    kinds = ((one.broker, *one.copy.split("/")) for one in popped)
    return {(broker, queue) for broker, kind, queue, _ in kinds if kind == NORMAL}


class Work:
    """What all of them share. Times of brokers, which are of the day, are turned into those of the history."""

    def __init__(
        self, pairs: Iterable[str], arguments: argparse.Namespace, journal: Journal, ended: asyncio.Event
    ) -> None:
        self.queues: int = arguments.queues
        self.ended = ended
        self.begun = asyncio.Event()
        """The group has its place in every queue of every broker."""
        self._places_left = {(pair, str(queue)) for pair in pairs for queue in range(self.queues)}
        self._journal = journal
        self._dice = random.Random(f"{arguments.seed}.pop")
        self._ahead_ns = time.time_ns() - now()

    # --------------------------------------------------------------------------------------------------------- sends

    async def post(self, pair: str, by: str, send: Callable[[int, bytes], Awaitable[str]]) -> None:
        """One message after another, each attempted once. `send` has the status of the receipt."""
        index = 0
        while not self.ended.is_set():
            key = f"pop.{by}.{pair}.{index}"
            body = key.encode() + KEY_END + self._dice.randbytes(self._dice.randrange(BODY_MAX))
            begun, status, error = now(), "", ""
            try:
                status = await send(index, body)
            except FAILURES as failure:
                error = type(failure).__name__
            self._journal.add(Posted(key, pair, by, begun, now(), status, error))
            await asyncio.sleep(PAUSE_S if status else AFTER_ERROR_S)
            index += 1

    # ------------------------------------------------------------------------------------------------------ deliveries

    async def decide(
        self,
        by: str,
        body: bytes,
        receipt: Receipt,
        times: int,
        acknowledge: Callable[[], Awaitable[object]],
        change: Callable[[float], Awaitable[Receipt]],
    ) -> None:
        """Be through with one message. A request whose response was not heard, or late, may have had its effect."""
        at, due_ms, fate = now(), receipt.pop_ms + receipt.invisible_ms, LEFT
        draw = 1.0 if self.ended.is_set() else self._dice.random()
        with contextlib.suppress(*FAILURES):
            if LEFT_SHARE < draw < LEFT_SHARE + CHANGED_SHARE:
                seconds, usual_ms = self._dice.uniform(*CHANGED_S), due_ms
                due_ms = min(due_ms, _now_ms() + int(seconds * 1000))
                renewed = await change(seconds)
                if _now_ms() < usual_ms:
                    due_ms = renewed.pop_ms + renewed.invisible_ms
            elif draw >= LEFT_SHARE:
                fate = TRIED
                await acknowledge()
                fate = ACKED if _now_ms() < due_ms else TRIED
        key, copy = body.partition(KEY_END)[0].decode(), f"{receipt.kind}/{receipt.queue_id}/{receipt.offset}"
        popped, due = self._time_of(receipt.pop_ms), self._time_of(due_ms)
        one = Popped(key, receipt.broker_name, by, copy, times, popped, due, at, now(), fate)
        self._journal.add(one)
        self._places_left -= places([one])
        if not self._places_left:
            self.begun.set()

    def _time_of(self, ms: int) -> int:
        return ms * 1_000_000 - self._ahead_ns


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


async def begin(
    group: asyncio.TaskGroup, producer: Producer, arguments: argparse.Namespace, journal: Journal, ended: asyncio.Event
) -> None:
    """Start all of them. Those that speak gRPC come last: for them a group begins at the end of a queue."""
    nodes = {name: ports.split(",") for name, _, ports in (one.partition("=") for one in arguments.fronts.split(";"))}
    work = Work(nodes, arguments, journal, ended)
    for pair in nodes:
        group.create_task(_post(producer, pair, work))
    for number in range(MEMBERS):
        group.create_task(_receive(f"popper-{number}", arguments.namesrv, work))
    await work.begun.wait()
    for pair, ports in nodes.items():
        group.create_task(_post_by_five(pair, ports, work))
        group.create_task(_receive_by_five(pair, ports, work))


# ------------------------------------------------------------------------------------------------------------ remoting


async def _post(producer: Producer, pair: str, work: Work) -> None:
    async def send(index: int, body: bytes) -> str:
        queue = MessageQueue(TOPIC, pair, index % work.queues)
        return (await producer.send(Message(TOPIC, body), queue=queue)).status.name

    await work.post(pair, REMOTING, send)


async def _receive(name: str, namesrv: str, work: Work) -> None:
    consumer = SimpleConsumer(
        GROUP,
        namesrv,
        instance_name=name,
        await_ms=round(AWAIT_S * 1000),
        max_reconsume_times=1_000_000,
        poll_namesrv_interval_ms=ROUTE_MS,
        heartbeat_interval_ms=HEARTBEAT_MS,
    )
    consumer.subscribe(TOPIC)
    async with consumer:
        while True:
            try:
                found = await consumer.receive(MOST, invisible=random.uniform(*INVISIBLE_S))
            except OrbitMQError:
                await asyncio.sleep(AFTER_ERROR_S)
                continue
            await asyncio.gather(*(_decide(consumer, one, work) for one in found))


async def _decide(consumer: SimpleConsumer, one: MessageExt, work: Work) -> None:
    async def change(seconds: float) -> Receipt:
        await consumer.change_invisible(one, seconds)
        return Receipt.decode(one.properties[POP_CK])

    receipt = Receipt.decode(one.properties[POP_CK])
    await work.decide(REMOTING, one.body, receipt, one.reconsume_times, lambda: consumer.ack(one), change)


# ---------------------------------------------------------------------------------------------------------------- gRPC


@contextlib.asynccontextmanager
async def _client(port: str, name: str) -> AsyncIterator[Five]:
    async with channel(int(port), OUTSIDE) as opened:
        yield Five(opened, name)


async def _post_by_five(pair: str, ports: Sequence[str], work: Work) -> None:
    statuses = {int(code): "SEND_OK" if code is Code.OK else code.name for code in OF_STORED.values()}
    turn = 0
    async with contextlib.AsyncExitStack() as stack:
        clients = [await stack.enter_async_context(_client(port, f"{pair}-five")) for port in ports]

        async def send(_index: int, body: bytes) -> str:
            """Each failure is the other node's turn."""
            nonlocal turn
            request = v2.SendMessageRequest(messages=[message(TOPIC, body)])
            try:
                answer = await clients[turn % len(clients)].call("SendMessage", request, timeout=CALL_S)
                assert answer.status.code in statuses, answer.status
            except FAILURES:
                turn += 1
                raise
            return statuses[answer.status.code]

        await work.post(pair, GRPC, send)


async def _receive_by_five(pair: str, ports: Sequence[str], work: Work) -> None:
    for port in itertools.cycle(ports):
        with contextlib.suppress(*FAILURES):
            async with _client(port, f"{pair}-five-popper") as client:
                await asyncio.wait_for(client.consume(GROUP, TOPIC), CALL_S)
                while True:
                    found = await client.receive(
                        GROUP, TOPIC, MOST, invisible_s=FIVE_INVISIBLE_S, poll_s=AWAIT_S, timeout=AWAIT_S + CALL_S
                    )
                    await asyncio.gather(*(_decide_by_five(client, one, work) for one in found))
        await asyncio.sleep(AFTER_ERROR_S)


async def _decide_by_five(client: Five, one: Any, work: Work) -> None:
    system = one.system_properties

    async def acknowledge() -> None:
        request = v2.AckMessageRequest()
        request.group.name, request.topic.name = GROUP, TOPIC
        request.entries.add(message_id=system.message_id, receipt_handle=system.receipt_handle)
        answer = await client.call("AckMessage", request, timeout=CALL_S)
        assert answer.status.code == Code.OK, answer.status

    async def change(seconds: float) -> Receipt:
        request = v2.ChangeInvisibleDurationRequest(receipt_handle=system.receipt_handle)
        request.group.name, request.topic.name = GROUP, TOPIC
        v2.set_time(request.invisible_duration, round(seconds * 1000))
        answer = await client.call("ChangeInvisibleDuration", request, timeout=CALL_S)
        assert answer.status.code == Code.OK, answer.status
        return parse_handle(answer.receipt_handle).receipt

    receipt = parse_handle(system.receipt_handle).receipt
    await work.decide(GRPC, one.body, receipt, system.delivery_attempt - 1, acknowledge, change)
