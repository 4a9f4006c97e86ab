"""Where RocketMQ 4.9.7 loses messages: each loss shown on the real broker, and its absence on orbitmq, from one store.

A RocketMQ broker is filled, its disk hangs, and it is killed. Then its files are made to look as a power cut may leave
them: what was not on disk yet is gone, a file here and there is damaged. Both systems start on copies of that store.
What they are asked is the same; RocketMQ has to have lost what the test says, orbitmq must have everything.

Known as apache/rocketmq issues 8239 (readers ahead of the disk), 1434 and 678 (queues behind the checkpoint), 467 (an
unfinished dispatch), 7355 (damaged queues) and 8007 (the last index file).
"""

from __future__ import annotations

import asyncio
import json
import shutil
import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

from orbitmq.message.model import MessageExt
from orbitmq.message.unit import decode_unit, decode_units, message_of
from orbitmq.operations.pulls import PULLED
from orbitmq.wire.headers import (
    GetMaxOffsetHeader,
    GetMaxOffsetResponseHeader,
    PullMessageResponseHeader,
    QueryConsumerOffsetHeader,
    QueryConsumerOffsetResponseHeader,
    QueryMessageHeader,
    SendMessageResponseHeader,
    ViewMessageHeader,
)
from orbitmq.wire.requests import RequestCode
from tests.support.java_rocketmq import JavaBroker
from tests.support.live import Client
from tests.support.orbit_process import OrbitUp
from tests.support.process import Daemon, free_port
from tests.support.stalled_disk import StalledJavaBroker, StalledOrbitUp

LOG_FILE, QUEUE_FILE = 32 << 10, 12 * 20
CHECKPOINT, ENTRY = struct.Struct(">qqq"), struct.Struct(">qiq")
CONFIG: dict[str, Any] = {
    "mappedFileSizeCommitLog": LOG_FILE,
    "mappedFileSizeConsumeQueue": QUEUE_FILE,
    "maxHashSlotNum": 100,
    "maxIndexNum": 180,
    "flushDiskType": "SYNC_FLUSH",
    "syncFlushTimeout": 3000,
    "messageDelayLevel": "10s 1h",
}
SYSTEMS = ("java", "orbitmq")
FLUSH_DISK_TIMEOUT = 10
ORDERS = 240  # seven files of the log and of each queue; two full index files, of 179 keys, and one more
AT_ONCE = 40
DELAYED = {"soon": 10_000, "hour": 3_600_000}
PATIENCE_S = 90
FLUSHED, STALLED, NEW = ([f"{word}{number}" for number in range(5)] for word in ("flushed", "stalled", "new"))


@dataclass
class Sent:
    """What was acknowledged: where it lies in the log, by topic, queue and queue offset."""

    places: dict[tuple[str, int], dict[int, int]] = field(default_factory=dict)
    keys: dict[str, dict[str, int]] = field(default_factory=dict)  # topic -> key -> place

    def add(self, topic: str, answer: SendMessageResponseHeader, key: str) -> int:
        place = int(answer.msg_id[16:], 16)
        self.places.setdefault((topic, answer.queue_id), {})[answer.queue_offset] = place
        self.keys.setdefault(topic, {})[key] = place
        return place

    @property
    def end(self) -> int:
        """Where the last message begins."""
        return max(place for places in self.places.values() for place in places.values())


async def send(client: Client, sent: Sent, topic: str, queue_id: int, key: str, **properties: str) -> int:
    """Send a message that must be acknowledged; where it lies."""
    named = {"KEYS": key, "UNIQ_KEY": f"unique-{key}", "TAGS": "A", **properties}
    answer = await client.send(topic, key.encode().ljust(800), named, queue_id=queue_id)
    assert answer.code == 0, answer.remark
    return sent.add(topic, answer.header(SendMessageResponseHeader), key)


async def read(client: Client, topic: str, queue_id: int = 0, offset: int = 0) -> list[MessageExt]:
    """Everything from an offset on that a consumer gets, which goes where the broker tells it to. One that gets an
    error instead gets no further.
    """
    found: list[MessageExt] = []
    end = (await client.ask(RequestCode.GET_MAX_OFFSET, GetMaxOffsetHeader(topic, queue_id))).header(
        GetMaxOffsetResponseHeader
    )
    while offset < end.offset:
        answer = await client.pull(topic, queue_id, offset)
        if answer.code not in PULLED:
            break
        found += [message_of(unit, "") for unit in decode_units(answer.body)]
        following = answer.header(PullMessageResponseHeader).next_begin_offset
        if following <= offset:
            break
        offset = following
    return found


def keys_of(messages: list[MessageExt]) -> list[str]:
    return [message.body.decode().strip() for message in messages]


def asked(daemon: Daemon, question: Any) -> Any:
    """Run a coroutine function on a client of the daemon."""

    async def ask() -> Any:
        client = Client(daemon)  # type: ignore[arg-type]
        try:
            return await question(client)
        finally:
            await client.remoting.close()

    return asyncio.run(ask())


# ---------------------------------------------------------------------------------------------------- a disk that hangs


async def send_while_stalled(client: Client, sent: Sent, stalled: Path) -> tuple[list[int], list[str]]:
    """Five messages are acknowledged, then the disk hangs, five more are sent. Their answers, and what readers see."""
    for key in FLUSHED:
        await send(client, sent, "seen", 0, key)
    await asyncio.to_thread(stalled.touch)
    answers = await asyncio.gather(*(client.send("seen", key.encode()) for key in STALLED))
    return [answer.code for answer in answers], keys_of(await read(client, "seen"))


async def read_until(client: Client, topic: str, count: int) -> list[MessageExt]:
    """What a consumer gets, once it gets so many."""
    async with asyncio.timeout(PATIENCE_S):
        while True:
            found = await read(client, topic)
            if len(found) >= count:
                return found
            await asyncio.sleep(0.02)


# ------------------------------------------------------------------------------------------------------------ the store


@dataclass
class Story:
    """The killed store. `codes` answered the sends to the hanging disk, `seen` is what readers saw then."""

    store: Path
    sent: Sent = field(default_factory=Sent)
    codes: list[int] = field(default_factory=list)
    seen: list[str] = field(default_factory=list)
    due_ms: dict[str, int] = field(default_factory=dict)  # of delayed messages, by key
    stored_ms: int = 0  # when the last of these was stored


async def fill(client: Client, story: Story) -> None:
    """Orders over all files, then delayed messages that surely lie in the last file of the log."""
    sent = story.sent
    for first in range(0, ORDERS, AT_ONCE):
        numbers = range(first, min(first + AT_ONCE, ORDERS))
        await asyncio.gather(*(send(client, sent, "orders", number % 3, f"k{number}") for number in numbers))
    while sent.end % LOG_FILE > LOG_FILE // 2:
        await send(client, sent, "padding", 0, "padding")
    for level, (key, delay_ms) in enumerate(DELAYED.items(), 1):
        place = await send(client, Sent(), "later", 0, key, DELAY=str(level))
        answer = await client.ask(RequestCode.VIEW_MESSAGE_BY_ID, ViewMessageHeader(place))
        story.stored_ms = decode_unit(answer.body).store_timestamp
        story.due_ms[key] = story.stored_ms + delay_ms


def queue_files(store: Path, topic: str, queue_id: int) -> list[Path]:
    return sorted((store / "consumequeue" / topic / str(queue_id)).iterdir())


def zero(path: Path, position: int = 0) -> None:
    data = path.read_bytes()
    path.write_bytes(data[:position].ljust(len(data), b"\0"))


def zero_entries(files: list[Path], place: int) -> None:
    """Those of messages at a place of the log or behind."""
    for path in files:
        entries = list(ENTRY.iter_unpack(path.read_bytes()))
        zero(path, next((20 * number for number, entry in enumerate(entries) if entry[0] >= place), QUEUE_FILE))


def cut_power(story: Story) -> None:
    """What was not on disk is gone, and of what was some is damaged."""
    store, files = story.store, queue_files
    assert (store / "abort").exists()
    last_log = story.sent.end - story.sent.end % LOG_FILE
    end = story.sent.end + unit_size(store, story.sent.end)
    for path in (store / "commitlog").iterdir():
        zero(path, min(max(0, end - int(path.name)), LOG_FILE))
    zero_entries(files(store, "seen", 0), end)
    # The checkpoint is ahead of a queue: RocketMQ also writes it when an index file is full, without a look at queues.
    _, _, index_ms = CHECKPOINT.unpack_from((store / "checkpoint").read_bytes())
    later_ms = story.stored_ms + 10_000
    (store / "checkpoint").write_bytes(CHECKPOINT.pack(later_ms, later_ms, index_ms).ljust(4096, b"\0"))
    zero_entries(files(store, "orders", 2), last_log - LOG_FILE)
    # Damage to what was on disk long ago.
    files(store, "orders", 0)[4].unlink()
    zero(files(store, "orders", 1)[4])
    shutil.rmtree(store / "consumequeue" / "SCHEDULE_TOPIC_XXXX")
    _, full, _ = sorted((store / "index").iterdir())
    full.unlink()
    # What the consumer has come to; a broker saves it every few seconds.
    progress = {"offsetTable": {"seen@watchers": {0: len(story.seen)}}}
    (store / "config" / "consumerOffset.json").write_text(json.dumps(progress))


def unit_size(store: Path, place: int) -> int:
    data = (store / "commitlog" / f"{place - place % LOG_FILE:020d}").read_bytes()
    size: int = struct.unpack_from(">i", data, place % LOG_FILE)[0]
    return size


@pytest.fixture(scope="module")
def story(tmp_path_factory: pytest.TempPathFactory) -> Story:
    directory = tmp_path_factory.mktemp("losses")
    told = Story(directory / "store")
    stalled = directory / "stalled"
    with StalledJavaBroker(f"127.0.0.1:{free_port()}", stalled, store_dir=told.store, **CONFIG) as broker:
        asked(broker, lambda client: fill(client, told))
        told.codes, told.seen = asked(broker, lambda client: send_while_stalled(client, told.sent, stalled))
        broker.kill()
    cut_power(told)
    return told


@pytest.fixture(scope="module")
def survivors(story: Story, tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Daemon]]:
    """Both systems, each started on a copy of the store."""
    directory = tmp_path_factory.mktemp("survivors")
    stores = {name: shutil.copytree(story.store, directory / name) for name in SYSTEMS}
    made: dict[str, Daemon] = {
        "java": JavaBroker(f"127.0.0.1:{free_port()}", store_dir=stores["java"], **CONFIG),
        "orbitmq": OrbitUp(store_dir=stores["orbitmq"], **CONFIG),
    }
    try:
        with ThreadPoolExecutor() as pool:
            list(pool.map(Daemon.start, made.values()))
        yield made
    finally:
        for daemon in made.values():
            daemon.kill()
            shutil.rmtree(daemon.home, ignore_errors=True)


@pytest.fixture(params=SYSTEMS)
def system(request: pytest.FixtureRequest, survivors: dict[str, Daemon]) -> Daemon:
    return survivors[request.param]


@pytest.fixture
def loses(system: Daemon) -> bool:
    """Whether messages must be missing."""
    return isinstance(system, JavaBroker)


# ------------------------------------------------------------------------------------------------------- what is left


@pytest.mark.parametrize(
    "queue_id",
    [
        pytest.param(0, id="a file in the middle is missing"),
        pytest.param(1, id="a file in the middle is zero"),
        pytest.param(2, id="the end is behind the checkpoint"),
    ],
)
def test_a_queue_has_everything_of_the_log(system: Daemon, loses: bool, story: Story, queue_id: int) -> None:
    expected = story.sent.places["orders", queue_id]
    found = asked(system, lambda client: read(client, "orders", queue_id))
    places = {message.queue_offset: message.commit_log_offset for message in found}
    missing = {offset: place for offset, place in expected.items() if places.get(offset) != place}
    print(f"{type(system).__name__}: {len(missing)} of {len(expected)} messages of queue {queue_id} are missing")
    assert bool(missing) is loses
    if not loses:
        assert places == expected


def test_every_key_is_found(system: Daemon, loses: bool, story: Story) -> None:
    """RocketMQ has removed the last index file, and does not see that one is missing."""
    keys = story.sent.keys["orders"]

    async def ask(client: Client) -> list[str]:
        missing = []
        for key, place in keys.items():
            header = QueryMessageHeader("orders", key, 32, 0, 1 << 60)
            answer = await client.ask(RequestCode.QUERY_MESSAGE, header)
            units = decode_units(answer.body) if answer.code == 0 else []
            if place not in [unit.physical_offset for unit in units]:
                missing.append(key)
        return missing

    missing = asked(system, ask)
    print(f"{type(system).__name__}: {len(missing)} of {len(keys)} keys find nothing")
    in_order = sorted(keys, key=keys.__getitem__)
    if loses:
        assert set(in_order[95:175]) <= set(missing), "those of the file in the middle"
        assert set(in_order[185:220]) <= set(missing), "those of the last file, before the log that was read again"
    else:
        assert not missing


def test_delayed_messages_come_at_their_time(system: Daemon, loses: bool, story: Story) -> None:
    """RocketMQ enters the hash of the tag for the time when a message is due, so that all are due at once."""

    found = asked(system, lambda client: read_until(client, "later", 2 if loses else 1))
    early = [message for message in found if message.store_timestamp < story.due_ms[message.keys]]
    if loses:
        assert "hour" in [message.keys for message in early]
    else:
        assert [message.keys for message in found] == ["soon"]
        assert not early


def test_a_consumer_misses_no_message_after_a_crash(system: Daemon, loses: bool) -> None:
    """It had seen messages that the crash took; others come in their place, and it goes on where its progress says."""

    async def ask(client: Client) -> list[str]:
        for key in NEW:
            await send(client, Sent(), "seen", 0, key)
        header = QueryConsumerOffsetHeader("watchers", "seen", 0)
        answer = await client.ask(RequestCode.QUERY_CONSUMER_OFFSET, header)
        return keys_of(await read(client, "seen", 0, answer.header(QueryConsumerOffsetResponseHeader).offset))

    assert asked(system, ask) == ([] if loses else NEW)


# ------------------------------------------------------------------------------------------------- while the disk hangs


def test_readers_of_rocketmq_see_what_is_not_on_disk(story: Story) -> None:
    assert story.codes == [FLUSH_DISK_TIMEOUT] * 5
    assert sorted(story.seen) == FLUSHED + STALLED


def test_readers_see_only_what_is_on_disk(tmp_path: Path) -> None:
    stalled = tmp_path / "stalled"
    with StalledOrbitUp(stalled, **CONFIG) as system:
        codes, seen = asked(system, lambda client: send_while_stalled(client, Sent(), stalled))
        assert codes == [FLUSH_DISK_TIMEOUT] * 5
        assert seen == FLUSHED
        stalled.unlink()
        found = asked(system, lambda client: read_until(client, "seen", 10))
        assert sorted(keys_of(found)) == FLUSHED + STALLED
