"""A broker that reads common sends in place stores and responds as one that decodes them all."""

from __future__ import annotations

import asyncio
import random
from pathlib import Path

import pytest

from orbitmq.broker.broker import Broker
from orbitmq.message.batch import encode_batch
from orbitmq.message.unit import decode_unit
from orbitmq.net.connection import Connection
from orbitmq.net.routing import Answer
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.command import FLAG_ONEWAY, Command
from orbitmq.wire.frame import FrameDecoder, SendFrame
from orbitmq.wire.send_loops import IS_COMPILED, JSON
from tests.broker.test_send_loops import COMMON, PAIRS, binary_header, frame, json_header
from tests.support.live import client_of, made_broker, running
from tests.support.loops import LoopFactory, until

pytestmark = pytest.mark.skipif(not IS_COMPILED, reason="interpreted brokers decode every send")

COUNT = 600
TOPICS = ("T",) * 30 + ("Other", "SCHEDULE_TOPIC_XXXX", "no topic")
OPTIONS = {"mappedFileSizeCommitLog": str(8 << 20), "mappedFileSizeConsumeQueue": str(20 * 30_000)}


def batch(chance: random.Random) -> bytes:
    """A few messages; now and then they are damaged, or none."""
    items = [
        (chance.randrange(3), chance.randbytes(chance.randrange(40)), "TAGS\x01t") for _ in range(chance.randrange(9))
    ]
    body = bytearray(encode_batch(items))
    if body and not chance.randrange(8):
        body[chance.randrange(len(body))] ^= 255
    return bytes(body)


def requests(seed: int) -> list[bytes]:
    """Frames of sends, most of them common."""
    chance = random.Random(seed)
    frames = []
    for number in range(COUNT):
        ext = {
            **COMMON,
            "b": chance.choice(TOPICS),
            "e": str(chance.randrange(9) % 5),
            "h": str(chance.randrange(-2, 3)),
        }
        pairs = [f"KEYS\x01k{number}\x02", *chance.sample(PAIRS, chance.choice([0, 0, 1, 2])), "WAIT\x01true"]
        ext["i"] = "".join(pairs)
        if not chance.randrange(12):
            ext["f"] = chance.choice(["1", "4", "8", "12", "16", "32", "x"])
        if not chance.randrange(10):
            ext["f"], ext["i"] = "4", f"TRAN_MSG\x01{chance.choice(['true', 'true', 'false'])}\x02{ext['i']}"
        if not chance.randrange(20):
            ext["m"] = "true"
        if not chance.randrange(20):
            ext["l"] = "0"
        if not chance.randrange(20):
            del ext[chance.choice("abcdefgh")]
        flag = FLAG_ONEWAY if not chance.randrange(10) else 0
        body, code = chance.randbytes(chance.choice([0, 1, 10, 100, 5000])), 310
        if not chance.randrange(6):
            body, code, ext["m"] = batch(chance), 320, "true"
            if chance.randrange(4):
                ext["i"] = chance.choice(["WAIT\x01true", "", "é\x01é\x02", f"n\x01{number}"])
        kind = chance.randrange(2)
        header = (
            json_header(ext, {"code": code, "opaque": number, "flag": flag}, escapes=not chance.randrange(9))
            if kind == JSON
            else binary_header(ext, code, flag=flag, opaque=number)
        )
        frames.append(frame(header, kind, body))
    return frames


class Exchange:
    """The responses of a broker and what it stored; addresses, which are of the connection, are left out."""

    def __init__(self) -> None:
        self.taken = self.batches_taken = self.halves_taken = 0
        self.answers: dict[int | None, Command] = {}
        self.units: list[object] = []
        self.entries: dict[tuple[str, int], list[object]] = {}

    def count(self, broker: Broker) -> None:
        taker = broker.router.send_taker
        assert taker is not None

        def counted(connection: Connection, sent: SendFrame) -> bytes | None:
            answer = taker(connection, sent)
            self.taken += answer is not None
            self.batches_taken += answer is not None and sent.code == 320
            self.halves_taken += answer is not None and sent.code == 310 and sent.fields[5] == 4
            return answer

        broker.router.send_taker = counted

    async def hold(self, broker: Broker, frames: list[bytes]) -> None:
        reader, writer = await asyncio.open_connection(*broker.address.split(":"))
        expected = {
            command.opaque
            for command in (one for data in frames for one in FrameDecoder(typed=False).feed(data))
            if not command.flag & FLAG_ONEWAY
        }
        writer.write(b"".join(frames))
        decoder = FrameDecoder()
        async with asyncio.timeout(60):
            while len(self.answers) < len(expected):
                for answer in decoder.feed(await reader.read(1 << 16)):
                    if answer.ext and "msgId" in answer.ext:
                        answer.ext["msgId"] = ",".join(one[16:] for one in answer.ext["msgId"].split(","))
                    self.answers[answer.opaque] = answer
        writer.close()
        self._read(broker)

    def _read(self, broker: Broker) -> None:
        log = broker.store.commit_log
        data, at = bytes(log.files.files[0].data[: log.end]), 0
        while at < len(data):
            unit = decode_unit(data, at)
            at += unit.size
            unit.born_host = unit.store_host = b""
            self.units.append(unit)
        for key, queue in broker.store._queues.table.items():
            self.entries[key] = list(queue.entries(0))


@pytest.mark.parametrize("seed", range(4))
async def test_both_ways_store_and_answer_the_same(tmp_path: Path, seed: int) -> None:
    frames = requests(seed)
    found = []
    for way in ("in place", "decoded"):
        broker = made_broker(tmp_path / way, ManualClock(), **OPTIONS)
        exchange = Exchange()
        if way == "in place":
            exchange.count(broker)
        else:
            broker.router.send_taker = None
        async with running(broker), client_of(broker) as client:
            for number in range(18):  # what waits for room in its queue is stored in another order
                await client.send("T", b"first", queue_id=number % 4)
                await client.send("Other", b"first", queue_id=number % 4)
                await client.send("T", b"first", {"DELAY": str(number + 1)})
                await client.send("T", b"first", {"TRAN_MSG": "true"})
            await exchange.hold(broker, frames)
        found.append(exchange)
    in_place, decoded = found
    assert in_place.taken > COUNT / 4
    assert in_place.batches_taken > COUNT / 20
    assert in_place.halves_taken > COUNT / 50
    assert in_place.answers == decoded.answers
    assert in_place.units == decoded.units
    assert in_place.entries == decoded.entries


async def test_a_handler_that_is_put_around_sees_every_send(tmp_path: Path, turned_clock: LoopFactory) -> None:
    broker = made_broker(tmp_path)
    async with running(broker), client_of(broker) as client:
        await client.send("T", b"1")
        seen = []
        inner = broker.router.handlers[310]

        def outer(connection: Connection, command: Command) -> Answer:
            seen.append(command.body)
            return inner(connection, command)  # type: ignore[return-value]

        await client.send("T", b"2")
        broker.router.handlers[310] = outer
        await client.send("T", b"3")
        assert seen == [b"3"]
        assert [message.body for message in await client.read("T")] == [b"1", b"2", b"3"]


async def test_oneway_sends_of_a_topic_that_the_first_one_made_are_common(tmp_path: Path) -> None:
    """Nobody waits there until the new topic is on disk, so nothing would make it a known one."""
    header = json_header({**COMMON, "b": "New", "i": "WAIT\x01true"}, {"opaque": 1, "flag": FLAG_ONEWAY}, escapes=False)
    broker, exchange = made_broker(tmp_path), Exchange()
    exchange.count(broker)
    async with running(broker), client_of(broker):
        _, writer = await asyncio.open_connection(*broker.address.split(":"))
        for stored in (1, 21):  # the first one waits for room in its queue
            writer.write(frame(header, JSON, b"body") * (stored - broker.store.put_count))
            await until(lambda stored=stored: broker.store.put_count >= stored, "all are stored")  # type: ignore[misc]
        writer.close()
    assert exchange.taken == 20
