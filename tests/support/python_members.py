"""Members of many groups in one process, of orbitmq's client, told line by line on standard input what to do.

Lines and rows are those of the Java driver Members; here stands what differs. Knows neither broker nor expectation.

    join --member m --namesrv n --group g --topic t --kind push|orderly|lite --strategy s --instance i
    leave --member m
"""

from __future__ import annotations

import asyncio
import json
import sys
import time
from abc import ABC, abstractmethod
from collections.abc import Iterable, Mapping, Sequence

from orbitmq.client import (
    AllocateAveragely,
    AllocateByCircle,
    AllocateByConfig,
    AllocateByMachineRoom,
    AllocateConsistentHash,
    AllocateMachineRoomNearby,
    AllocateStrategy,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    ConsumeOrderlyStatus,
    LitePullConsumer,
    MessageExt,
    MessageQueue,
    OrderlyContext,
    PushConsumer,
)

HOST = "127.0.0.1"
LOOK_S = 0.02
PERSIST_MS = 1000
POLL_S = 0.1
ROOMS = ("east", "west")
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def broker_room(queue: MessageQueue) -> str:
    """Brokers are named room@name."""
    return queue.broker_name.split("@")[0]


def client_room(client_id: str) -> str:
    """Clients are named host@room-name."""
    return client_id.split("@")[1].split("-")[0]


def strategy(name: str, topic: str, queues: str = "") -> AllocateStrategy:
    """The strategy Java knows under this name; `queues` are those of CONFIG, `broker:id,...`."""
    everywhere: Sequence[AllocateStrategy] = (
        AllocateAveragely(),
        AllocateByCircle(),
        AllocateConsistentHash(),
        AllocateByConfig([queue_of(topic, text) for text in queues.split(",") if text]),
        AllocateByMachineRoom(ROOMS),
        AllocateMachineRoomNearby(AllocateAveragely(), broker_room, client_room),
    )
    return next(one for one in everywhere if one.name == name)


def queue_of(topic: str, text: str) -> MessageQueue:
    broker, _, number = text.partition(":")
    return MessageQueue(topic, broker, int(number))


def name_of(queue: MessageQueue | MessageExt) -> str:
    return f"{queue.broker_name}:{queue.queue_id}"


def row(event: str, **fields: object) -> None:
    """Print it, visible to the reader at once."""
    print(json.dumps({"event": event, **fields}), flush=True)


def _now_ms() -> int:
    return round(time.time() * 1000)


class Member(ABC):
    """One member of one group."""

    consumer: PushConsumer | LitePullConsumer

    def __init__(self, told: Mapping[str, str]) -> None:
        self.name = told["member"]
        self.topic = told["topic"]
        self.known: list[str] | None = None

    @abstractmethod
    async def start(self) -> None:
        """Join."""

    async def stop(self) -> None:
        """Leave."""
        await self.consumer.shutdown()

    def got(self, messages: Iterable[MessageExt]) -> None:
        for one in messages:
            row("message", member=self.name, queue=name_of(one), offset=one.queue_offset, at=_now_ms())

    def look(self) -> None:
        """Print the queues when they have changed."""
        queues = sorted(name_of(queue) for queue in self.consumer.assignment() if queue.topic == self.topic)
        if queues != self.known:
            self.known = queues
            row("queues", member=self.name, queues=queues, at=_now_ms())


class Pushed(Member):
    def __init__(self, told: Mapping[str, str]) -> None:
        super().__init__(told)
        self.consumer = PushConsumer(
            told["group"],
            told["namesrv"],
            consume_from_where=FIRST,
            allocate_strategy=strategy(told["strategy"], self.topic, told.get("queues", "")),
            client_ip=HOST,
            instance_name=told["instance"],
            persist_offset_interval_ms=PERSIST_MS,
        )
        self.consumer.subscribe(self.topic)
        if told["kind"] == "orderly":
            self.consumer.set_listener(self._in_order, orderly=True)
        else:
            self.consumer.set_listener(self._at_once)

    async def _in_order(self, messages: Sequence[MessageExt], _: OrderlyContext) -> ConsumeOrderlyStatus:
        self.got(messages)
        return ConsumeOrderlyStatus.SUCCESS

    async def _at_once(self, messages: Sequence[MessageExt], _: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        self.got(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    async def start(self) -> None:
        await self.consumer.start()


class Pulling(Member):
    def __init__(self, told: Mapping[str, str]) -> None:
        super().__init__(told)
        self.consumer: LitePullConsumer = LitePullConsumer(
            told["group"],
            told["namesrv"],
            consume_from_where=FIRST,
            allocate_strategy=strategy(told["strategy"], self.topic, told.get("queues", "")),
            client_ip=HOST,
            instance_name=told["instance"],
            persist_offset_interval_ms=PERSIST_MS,
            auto_commit_interval_ms=PERSIST_MS,
        )
        self.consumer.subscribe(self.topic)
        self._leaving = False

    async def start(self) -> None:
        await self.consumer.start()
        self._reader = asyncio.create_task(self._read())

    async def _read(self) -> None:
        while not self._leaving:
            self.got(await self.consumer.poll(POLL_S))

    async def stop(self) -> None:
        self._leaving = True
        await self._reader
        await self.consumer.commit()  # it is done with all it got
        await super().stop()


async def _watch(members: Mapping[str, Member]) -> None:
    while True:
        for member in members.values():
            member.look()
        await asyncio.sleep(LOOK_S)


async def _join(told: Mapping[str, str], members: dict[str, Member]) -> None:
    member = Pulling(told) if told["kind"] == "lite" else Pushed(told)
    await member.start()
    members[member.name] = member
    row("joined", member=member.name, clientId=member.consumer.client_id)


async def _leave(member: Member) -> None:
    await member.stop()
    row("queues", member=member.name, queues=[], at=_now_ms())
    row("left", member=member.name)


async def main() -> None:
    """Until the end of the input."""
    members: dict[str, Member] = {}
    lines = asyncio.StreamReader()
    await asyncio.get_running_loop().connect_read_pipe(lambda: asyncio.StreamReaderProtocol(lines), sys.stdin)
    watching = asyncio.create_task(_watch(members))
    row("started")
    async for line in lines:
        verb, *words = line.decode().split()
        told = {name.removeprefix("--"): value for name, value in zip(words[::2], words[1::2], strict=True)}
        if verb == "join":
            await _join(told, members)
        else:
            await _leave(members.pop(told["member"]))
    watching.cancel()


if __name__ == "__main__":
    asyncio.run(main())
