"""A constant load: a fixed number of requests in flight, over any number of topics, connections and groups.

`python -m bench.growth_load WORK --address HOST:PORT ...` prints one row as JSON.

One process on one event loop sends requests from templates, so that it costs little compared with the broker: a Java
client has its own threads and routes for each connection and topic, and would dominate the measurement. Must not know
which system it loads.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import os
import sys
import time
from array import array
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from struct import Struct
from typing import Any, cast

import uvloop

from orbitmq.message.batch import encode_batch
from orbitmq.runtime.limits import raise_open_files
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode

SEND, SEND_BATCH, PULL, END_OF_QUEUE = (
    RequestCode.SEND_MESSAGE_V2,
    RequestCode.SEND_BATCH_MESSAGE,
    RequestCode.PULL_MESSAGE,
    RequestCode.GET_MAX_OFFSET,
)
BODY = os.urandom(1024)
BATCH = 32
FOLLOWED_MESSAGES = 32  # that a follower takes at most with one pull
HELD, COMPLETE = 2, 4  # flags of a pull: wait for messages; the subscription is in the request
HOLD_MS = 15_000
FILL_CONNECTIONS = 8
REFUSED_PAUSE_S = 0.1  # a broker that is late with its disk, or its work, says so
REFUSED_MAX = 600  # of one batch: a minute, and it does not recover
PERCENTILES = {"p50Micros": 0.50, "p99Micros": 0.99, "p999Micros": 0.999}
_LENGTH = Struct(">I")
_LENGTHS = Struct(">II")

Place = tuple[str, int]  # topic and queue


@dataclass
class Meter:
    """What happened while it was open."""

    messages: int = 0
    errors: int = 0
    delivered: int = 0
    refusal: str = ""
    is_open: bool = False
    times: array[float] = field(default_factory=lambda: array("d"))

    def done(self, messages: int, seconds: float) -> None:
        if self.is_open:
            self.messages += messages
            self.times.append(seconds)

    def row(self, seconds: float, cpu_seconds: float) -> dict[str, Any]:
        """As the Java load generator tells it."""
        ordered = sorted(self.times)
        times = {
            name: round(ordered[min(len(ordered) - 1, int(len(ordered) * share))] * 1e6, 1) if ordered else None
            for name, share in PERCENTILES.items()
        }
        cpu = cpu_seconds * 1e6 / self.messages if self.messages else None
        rates = {"rate": self.messages / seconds, "delivered": self.delivered / seconds, "cpuMicros": cpu}
        return {"messages": self.messages, "seconds": seconds, **rates, **times, "errors": self.errors}


class Answer:
    """One response, of which only what is asked for is read."""

    def __init__(self, frame: bytes) -> None:
        self._header = json.loads(frame[4 : 4 + (_LENGTH.unpack_from(frame)[0] & 0xFFFFFF)])

    @property
    def code(self) -> int:
        return int(self._header["code"])

    @property
    def remark(self) -> str:
        """Why it was refused."""
        return f"{self.code} {self._header.get('remark', '')}"

    @property
    def number(self) -> int:
        return int(self._header["opaque"])

    def field(self, name: str) -> int:
        return int(self._header["extFields"][name])


class Peer(asyncio.Protocol):
    """One connection. `heard` gets each whole frame without its length."""

    def __init__(self) -> None:
        self.heard: Callable[[bytes], None] = lambda _: None
        self.transport: asyncio.Transport
        self._kept = bytearray()

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self.transport = cast("asyncio.Transport", transport)  # uvloop's is none of asyncio's classes

    def data_received(self, data: bytes) -> None:
        self._kept += data
        while len(self._kept) >= 4:
            size = 4 + _LENGTH.unpack_from(self._kept)[0]
            if len(self._kept) < size:
                return
            frame = bytes(self._kept[4:size])
            del self._kept[:size]
            self.heard(frame)

    def ask(self, frame: bytes) -> None:
        self.transport.write(frame)


def frame(code: int, fields: dict[str, object], body: bytes = b"", number: int = 1) -> bytes:
    """One request in the JSON form of a header."""
    header = json.dumps(
        {
            "code": int(code),
            "language": "JAVA",
            "version": 399,
            "opaque": number,
            "flag": 0,
            "extFields": {name: str(value) for name, value in fields.items()},
            "serializeTypeCurrentRPC": "JSON",
        },
        separators=(",", ":"),
    ).encode()
    return _LENGTHS.pack(4 + len(header) + len(body), len(header)) + header + body


class Senders:
    """Makes requests that send, round the queues; each message has a key of its own."""

    NUMBER = b"0000000000"

    def __init__(self, places: Sequence[Place]) -> None:
        self._templates = [self._template(*place) for place in places]
        self._number = int(time.time() * 1000) % 1_000_000_000
        self._turn = 0

    def _template(self, topic: str, queue: int) -> tuple[bytes, bytes, bytes]:
        number = self.NUMBER.decode()
        properties = (
            f"KEYS\x01order-{number}\x02UNIQ_KEY\x01AC11000100002A9F4B2A{number}00\x02TAGS\x01TagA\x02WAIT\x01true"
        )
        fields = dict(zip("abcdefghijklm", _send_fields(topic, queue, properties, is_batch=False), strict=True))
        one, other, rest = frame(SEND, fields, BODY).split(self.NUMBER, 2)
        return one, other, rest

    def next(self) -> bytes:
        self._number += 1
        self._turn += 1
        number = b"%010d" % self._number
        return number.join(self._templates[self._turn % len(self._templates)])


def _send_fields(topic: str, queue: int, properties: str, *, is_batch: bool) -> tuple[object, ...]:
    now = int(time.time() * 1000)
    batch = str(is_batch).lower()
    return "growth-senders", topic, "TBW102", 8, queue, 0, now, 0, properties, 0, "false", 0, batch


def batch_frame(place: Place, first: int, count: int) -> bytes:
    """So many messages for one queue."""
    items = [
        (0, BODY, f"KEYS\x01order-{first + i}\x02UNIQ_KEY\x01AC11000100002A9F4B2A{first + i:012}\x02WAIT\x01true")
        for i in range(count)
    ]
    fields = dict(zip("abcdefghijklm", _send_fields(*place, "WAIT\x01true", is_batch=True), strict=True))
    return frame(SEND_BATCH, fields, encode_batch(items))


def pull_frame(group: str, place: Place, offset: int, count: int, flags: int, number: int = 1) -> bytes:
    fields = {
        "consumerGroup": group,
        "topic": place[0],
        "queueId": place[1],
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": flags | COMPLETE,
        "commitOffset": 0,
        "suspendTimeoutMillis": HOLD_MS,
        "subscription": "*",
        "subVersion": 0,
        "expressionType": "TAG",
    }
    return frame(PULL, fields, number=number)


Ask = Callable[[], bytes]  # the next request
Take = Callable[[Answer], int]  # messages that an answer stands for


class Lane:
    """One request at a time, round its connections."""

    def __init__(
        self, peers: Sequence[Peer], ask: Callable[[], bytes], take: Callable[[Answer], int], meter: Meter
    ) -> None:
        self._peers, self._ask, self._take, self._meter = peers, ask, take, meter
        self._turn = 0
        self._began = 0.0
        self.stopped = False
        for peer in peers:
            peer.heard = self._heard

    def go(self) -> None:
        self._turn = (self._turn + 1) % len(self._peers)
        self._began = time.perf_counter()
        self._peers[self._turn].ask(self._ask())

    def _heard(self, frame_: bytes) -> None:
        count = self._take(Answer(frame_))
        if count:
            self._meter.done(count, time.perf_counter() - self._began)
        else:
            self._meter.errors += 1
        if not self.stopped:
            self.go()


class Follower:
    """One group that pulls every queue from its end on, held while there is nothing."""

    def __init__(self, peer: Peer, group: str, places: Sequence[Place], meter: Meter) -> None:
        self._peer, self._group, self._places, self._meter = peer, group, places, meter
        self._offsets = [-1] * len(places)
        peer.heard = self._heard

    def go(self) -> None:
        for number, (topic, queue) in enumerate(self._places):
            self._peer.ask(frame(END_OF_QUEUE, {"topic": topic, "queueId": queue}, number=number))

    def _heard(self, frame_: bytes) -> None:
        answer = Answer(frame_)
        number, before = answer.number, self._offsets[answer.number]
        if before < 0:
            self._offsets[number] = answer.field("offset")
        elif answer.code == ResponseCode.SUCCESS:
            self._offsets[number] = answer.field("nextBeginOffset")
            self._meter.delivered += (self._offsets[number] - before) * self._meter.is_open
        offset = self._offsets[number]
        self._peer.ask(pull_frame(self._group, self._places[number], offset, FOLLOWED_MESSAGES, HELD, number))


def sent(answer: Answer) -> int:
    return int(answer.code == ResponseCode.SUCCESS)


class Pullers:
    """Makes requests that pull, round the queues, each somewhere in what is there."""

    def __init__(self, places: Sequence[Place], depth: int, count: int) -> None:
        self._places, self._steps, self._count = places, max(1, depth // count), count
        self._turn = 0

    def next(self) -> bytes:
        self._turn += 1
        step = (self._turn * 7919 // len(self._places)) % self._steps  # a prime: all over the queue, in no order
        place = self._places[self._turn % len(self._places)]
        return pull_frame("growth-pullers", place, step * self._count, self._count, 0)

    def taken(self, answer: Answer) -> int:
        return self._count if answer.code == ResponseCode.SUCCESS else 0


async def connect(address: str, count: int) -> list[Peer]:
    host, _, port = address.rpartition(":")
    loop = asyncio.get_running_loop()
    return [(await loop.create_connection(Peer, host, int(port)))[1] for _ in range(count)]


async def _run(arguments: argparse.Namespace) -> dict[str, Any]:
    places = [(topic, queue) for topic in topics(arguments) for queue in range(arguments.queues)]
    meter = Meter()
    if arguments.work == "fill":
        return await _fill(arguments, places, meter)
    peers = [peer for address in arguments.address for peer in await connect(address, arguments.connections)]
    pullers = Pullers(places, arguments.depth, arguments.batch)
    ask, take = (pullers.next, pullers.taken) if arguments.work == "pull" else (Senders(places).next, sent)
    for number in range(arguments.groups):
        (peer,) = await connect(arguments.address[0], 1)
        Follower(peer, f"growth-followers-{number}", places, meter).go()
    lanes = [Lane(peers[i :: arguments.in_flight], ask, take, meter) for i in range(arguments.in_flight)]
    for lane in lanes:
        lane.go()
    await asyncio.sleep(arguments.warm_up)
    began, cpu, meter.is_open, meter.errors = time.perf_counter(), cpu_seconds(arguments.pids), True, 0
    await asyncio.sleep(arguments.seconds)
    meter.is_open = False
    row = meter.row(time.perf_counter() - began, cpu_seconds(arguments.pids) - cpu)
    for lane in lanes:
        lane.stopped = True
    return row


async def _fill(arguments: argparse.Namespace, places: Sequence[Place], meter: Meter) -> dict[str, Any]:
    """Each queue gets `depth` messages, or a few more: whole batches."""
    count = min(BATCH, max(1, arguments.depth))
    todo = iter([place for _ in range(-(-arguments.depth // count)) for place in places])
    numbers = iter(range(0, sys.maxsize, BATCH))
    began, cpu, meter.is_open = time.perf_counter(), cpu_seconds(arguments.pids), True

    async def fill(peer: Peer) -> None:
        for place in todo:
            for _ in range(REFUSED_MAX):
                if await stored(peer, batch_frame(place, next(numbers), count)):
                    break
                meter.errors += 1
                await asyncio.sleep(REFUSED_PAUSE_S)
            else:
                raise RuntimeError(f"a batch was refused {REFUSED_MAX} times, at last for {meter.refusal}")
            meter.done(count, 0)

    async def stored(peer: Peer, batch: bytes) -> bool:
        answered: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        peer.heard = answered.set_result
        peer.ask(batch)
        answer = Answer(await answered)
        meter.refusal = "" if sent(answer) else answer.remark
        return not meter.refusal

    await asyncio.gather(*map(fill, await connect(arguments.address[0], FILL_CONNECTIONS)))
    return meter.row(time.perf_counter() - began, cpu_seconds(arguments.pids) - cpu)


def topics(arguments: argparse.Namespace) -> list[str]:
    return [topic_name(arguments.prefix, number) for number in range(arguments.topics)]


def topic_name(prefix: str, number: int) -> str:
    return f"{prefix}-{number:05}"


def cpu_seconds(pids: Sequence[int]) -> float:
    """Processor time of these processes so far, user and system."""
    ticks = 0
    for pid in pids:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        ticks += int(fields[11]) + int(fields[12])
    return ticks / os.sysconf("SC_CLK_TCK")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("work", choices=["send", "pull", "fill"])
    parser.add_argument("--address", nargs="+", required=True, help="of brokers; each gets its share")
    parser.add_argument("--pids", nargs="+", type=int, required=True, help="of their processes")
    parser.add_argument("--prefix", default="growth", help="of the topics' names")
    parser.add_argument("--topics", type=int, default=1)
    parser.add_argument("--queues", type=int, default=1, help="of each topic")
    parser.add_argument("--connections", type=int, default=10, help="to each broker")
    parser.add_argument("--groups", type=int, default=0, help="consumer groups that read what is sent")
    parser.add_argument("--in-flight", type=int, default=10, help="requests at a time")
    parser.add_argument("--depth", type=int, default=0, help="messages that are in each queue, or shall be")
    parser.add_argument("--batch", type=int, default=8, help="messages of a pull")
    parser.add_argument("--seconds", type=float, default=5)
    parser.add_argument("--warm-up", type=float, default=2)
    raise_open_files()
    print(json.dumps(uvloop.run(_run(parser.parse_args()))))
    return 0


if __name__ == "__main__":
    sys.exit(main())
