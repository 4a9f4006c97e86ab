"""100,000 damaged frames thrown at a live name server and broker leave them serving and their memory flat.

The frames are captured ones, damaged in bytes, in fields or in their length. Each is followed by an honest question on
the same connection, so that it is known to have been looked at: the question is answered, or the connection closed.
"""

from __future__ import annotations

import asyncio
import contextlib
import random
import struct
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path

import uvloop

from orbitmq.message.config import TopicConfig
from orbitmq.net.remoting import Remoting
from orbitmq.operations.pulls import pull
from orbitmq.operations.routes import route
from orbitmq.operations.sends import send
from orbitmq.operations.topics import create_topic
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers import PullMessageHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from tests.support.abusers import Page
from tests.support.frames import all_frames
from tests.support.orbit_process import OrbitUp
from tests.support.process import free_port

FRAMES = 100_000
WARM_UP = 30_000  # tables and buffers have their size by then
# Bytes from there to the end. Damaged requests legally create topics, groups and offsets, in all 3 MiB; what is kept of
# every frame, and be it 250 bytes, would be more than this.
GROWTH_MAX = 16 << 20
THROWERS = 12
ANSWER_TIMEOUT_SECONDS = 20.0
SEED = 20_261_121
QUESTION_CODE = 31_999  # nobody's request code: answered by every server, and at once
TOPIC = "StillServed"

# A damaged permission or path is a legal order to stop serving.
NOT_THROWN = {RequestCode.UPDATE_BROKER_CONFIG, RequestCode.UPDATE_NAMESRV_CONFIG}
ODD_VALUES = (
    "",
    "-1",
    "0",
    "x",
    "true",
    "2147483648",
    "-9223372036854775809",
    "1e9",
    "\x00",
    "中🚀",
    "%RETRY%",
    "a" * 300,
)


@dataclass
class Tally:
    """What became of the frames."""

    thrown: int = 0
    outcomes: Counter[str] = field(default_factory=Counter)


def sources() -> tuple[list[bytes], list[bytes]]:
    """The captured requests to name servers and to brokers, a few of each kind and serialization."""
    kept: tuple[list[bytes], list[bytes]] = ([], [])
    seen: Counter[tuple[str, str, bool]] = Counter()
    for frame in all_frames():
        to_namesrv = frame.row["peer"] == "namesrv"
        key = (frame.name, frame.row["ser"], to_namesrv)
        if (
            frame.row["dir"] == "c2s"
            and frame.row["code"] not in NOT_THROWN
            and len(frame.data) < 8192
            and seen[key] < 6
        ):
            seen[key] += 1
            kept[0 if to_namesrv else 1].append(frame.data)
    return kept


def damaged_bytes(frame: bytes, dice: random.Random) -> bytes:
    """Some bytes behind the length replaced."""
    data = bytearray(frame)
    for _ in range(dice.choice((1, 1, 2, 4, 16))):
        data[dice.randrange(4, len(data))] = dice.randrange(256)
    return bytes(data)


def damaged_fields(frame: bytes, dice: random.Random) -> bytes:
    """A frame without fault that says odd things."""
    (command,) = FrameDecoder(typed=False).feed(frame)
    fields = dict(command.ext or {})
    for name in dice.sample(sorted(fields), min(len(fields), dice.choice((1, 1, 2, 5)))):
        if dice.random() < 0.2:
            del fields[name]
        else:
            fields[name] = dice.choice(ODD_VALUES)
    command.ext = fields
    if dice.random() < 0.2:
        command.code = dice.choice([code for code in RequestCode if code not in NOT_THROWN])
    if dice.random() < 0.3:
        command.body = damaged_bytes(b"    " + command.body + b"?", dice)[4 : dice.randrange(4, len(command.body) + 6)]
    if dice.random() < 0.1:
        command.flag = dice.choice((1, 2, 3, -1, 1 << 30))
    return encode_frame(command)


def damaged_length(frame: bytes, dice: random.Random) -> bytes:
    """A frame that says it is longer or shorter than it is."""
    size = dice.choice((0, 1, 3, len(frame) // 2, len(frame) + 1000, 1 << 24, (1 << 31) - 1, (1 << 32) - 1))
    return struct.pack(">I", size) + frame[4 : dice.randrange(5, len(frame))]


def damaged_frames(count: int, seed: int) -> Iterator[tuple[int, bytes, bool]]:
    """(0 name server, 1 broker; bytes; whether a question behind the frame can still be understood)."""
    dice = random.Random(seed)
    kept = sources()
    for _ in range(count):
        target = int(dice.random() < 0.8)
        frame = dice.choice(kept[target])
        kind = dice.random()
        if kind < 0.45:
            yield target, damaged_bytes(frame, dice), True
        elif kind < 0.9:
            yield target, damaged_fields(frame, dice), True
        else:
            yield target, damaged_length(frame, dice), False


class Thrower:
    """One hostile client with a connection to each server."""

    def __init__(self, addresses: tuple[str, str], tally: Tally) -> None:
        self._addresses = addresses
        self._tally = tally
        self._streams: dict[int, tuple[asyncio.StreamReader, asyncio.StreamWriter]] = {}
        self._opaque = 0

    async def throw_all(self, frames: Iterator[tuple[int, bytes, bool]]) -> None:
        for target, data, answerable in frames:
            outcome = await self._throw(target, data, answerable=answerable)
            self._tally.thrown += 1
            self._tally.outcomes[outcome] += 1
        for target in list(self._streams):
            self._hang_up(target)

    async def _throw(self, target: int, data: bytes, *, answerable: bool) -> str:
        try:
            reader, writer = await self._stream(target)
            if not answerable:
                writer.write(data)
                await writer.drain()
                self._hang_up(target)
                return "hung up"
            self._opaque += 1
            writer.write(data + encode_frame(Command(code=QUESTION_CODE, opaque=self._opaque, version=407)))
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                await self._answer(reader)
            return "answered"
        except (ConnectionError, asyncio.IncompleteReadError):
            self._hang_up(target)
            return "closed"
        except TimeoutError as error:
            raise AssertionError(f"server {target} neither answered nor closed after {data.hex()}") from error

    async def _stream(self, target: int) -> tuple[asyncio.StreamReader, asyncio.StreamWriter]:
        if target not in self._streams:
            host, _, port = self._addresses[target].rpartition(":")
            self._streams[target] = await asyncio.open_connection(host, int(port))
        return self._streams[target]

    async def _answer(self, reader: asyncio.StreamReader) -> None:
        """Read until the answer to the question; what else the servers say is of no interest."""
        wanted = f"request type {QUESTION_CODE} not supported".encode()
        opaque = f'"opaque":{self._opaque},'.encode()
        while True:
            size = int.from_bytes(await reader.readexactly(4), "big")
            frame = await reader.readexactly(size)
            if wanted in frame and opaque in frame:
                return

    def _hang_up(self, target: int) -> None:
        _, writer = self._streams.pop(target, (None, None))
        if writer is not None:
            writer.transport.abort()


async def is_served(up: OrbitUp, remoting: Remoting, count: int) -> None:
    """An honest client sends `count` messages and reads every one of them back."""
    found = await route(remoting, up.namesrv_address, TOPIC)
    assert found is not None
    assert found.broker_datas[0].addresses[0] == up.address
    header = SendMessageV2Header("g", TOPIC, "TBW102", 4, 0, 0, 1_700_000_000_000, 0, "TAGS\x01t")
    for number in range(count):
        reply = await send(remoting, up.address, header, f"message {number}".encode(), timeout_ms=5000)
        question = PullMessageHeader("g", TOPIC, 0, reply.queue_offset, 1, 4, 0, 0, 0, subscription="*")
        answer = await pull(remoting, up.address, question)
        assert f"message {number}".encode() in bytes(answer.body)


def anonymous_bytes(pid: int) -> int:
    """Memory of the process that is not the page cache of its files."""
    status = Path(f"/proc/{pid}/status").read_text()
    return int(status.split("RssAnon:")[1].split()[0]) << 10


async def throw(up: OrbitUp, count: int, seed: int, tally: Tally, remoting: Remoting) -> None:
    frames = damaged_frames(count, seed)
    throwers = [Thrower((up.namesrv_address, up.address), tally) for _ in range(THROWERS)]
    attack = asyncio.gather(*(thrower.throw_all(frames) for thrower in throwers))
    while not attack.done():
        await is_served(up, remoting, 3)
        with contextlib.suppress(TimeoutError):
            await asyncio.wait_for(asyncio.shield(attack), 1)
    await attack


def test_damaged_frames_leave_the_servers_serving_and_their_memory_flat() -> None:
    tally = Tally()

    async def run(up: OrbitUp) -> tuple[int, int]:
        remoting = Remoting()
        try:
            await create_topic(remoting, up.address, TopicConfig(TOPIC, 4, 4))
            async with asyncio.timeout(ANSWER_TIMEOUT_SECONDS):
                while await route(remoting, up.namesrv_address, TOPIC) is None:  # noqa: ASYNC110 - the name server learns it from the broker, not from us
                    await asyncio.sleep(0.01)
            await throw(up, WARM_UP, SEED, tally, remoting)
            warm = anonymous_bytes(up.process.pid)
            await throw(up, FRAMES - WARM_UP, SEED + 1, tally, remoting)
            await is_served(up, remoting, 100)
            return warm, anonymous_bytes(up.process.pid)
        finally:
            await remoting.close()

    # Captured frames register and unregister `broker-a`, which would be a legal order, too.
    page = Page(free_port())
    with OrbitUp(name="honest", metricsExporterType="PROM", metricsPromExporterPort=page.port) as up:
        warm, end = uvloop.run(run(up))
        refused = page.refused("malformed") + page.refused("malformed", "orbitmq_namesrv")
        process = up.process
        exit_code = up.stop()
        errors = process.errors()
    print(f"{tally.thrown} frames: {dict(tally.outcomes)}; memory {warm >> 20} MiB, then {end >> 20} MiB; seed {SEED}")
    assert tally.thrown == FRAMES
    assert tally.outcomes["answered"] > FRAMES // 2
    assert end - warm < GROWTH_MAX
    assert exit_code == 0
    assert "event=handler_failed" not in errors
    assert "Traceback" not in errors
    assert refused >= tally.outcomes["closed"]
    assert 1 <= errors.count("event=bad_frame") < refused
