"""A broker on a small disk that fills up: what it refuses and how, what goes on, and that nothing is damaged by it.

The disk is a file system of its own: one in memory, and one in a file. Sends fill it, a ballast takes what is left.
"""

from __future__ import annotations

import asyncio
import json
import re
import subprocess
from collections.abc import Iterator, Mapping
from itertools import cycle
from pathlib import Path

import pytest

from orbitmq.errors import BrokerError
from orbitmq.message.model import MessageQueue
from orbitmq.message.unit import decode_units
from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.operations.offsets import max_offset, min_offset, query_consumer_offset, update_consumer_offset
from orbitmq.operations.pulls import pull
from orbitmq.operations.sends import send
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.cleaner import FIRST_ROUND_MS
from orbitmq.store.engine import MessageStore
from orbitmq.store.files import Files
from orbitmq.store.options import StoreOptions
from orbitmq.store.records import PutStatus
from orbitmq.store.retention import HOUR_MS
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.requests import RequestCode
from tests.support.live import pull_header, send_header
from tests.support.loops import PATIENCE_SECONDS, until
from tests.support.mounts import KINDS, Ballast, CannotMount, mounted
from tests.support.orbit_process import ORBITMQ, OrbitUp
from tests.support.process import ProcessFailed
from tests.support.store_reader import StoreReader
from tests.support.stores import CODES, bodies, record

MIB = 1 << 20
QUEUES = 4
TOPIC = "FullTopic"
GROUP = "auditors"
REMARK = re.compile(r"CL:  \d\.\d\d CQ:  \d\.\d\d INDEX:  \d\.\d\d")
REFUSALS_ENOUGH = 40  # in a row, of all sizes: a small message may fit where a large one did not

SMALL_FILES = {
    "mappedFileSizeCommitLog": MIB,
    "mappedFileSizeConsumeQueue": 20 * 100,
    "maxHashSlotNum": 1000,
    "maxIndexNum": 50_000,
    "flushConsumerOffsetInterval": 50,
}
# The disk says no before any ratio does.
WITHOUT_RATIOS = {
    **SMALL_FILES,
    "rocketmq.broker.diskSpaceWarningLevelRatio": 1.0,
    "rocketmq.broker.diskSpaceCleanForciblyRatio": 1.0,
}

Place = tuple[int, int]  # queue id, queue offset


@pytest.fixture(params=KINDS)
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    yield from of_its_own(request.param, tmp_path, 16 * MIB)


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    yield from of_its_own("tmpfs", tmp_path, 24 * MIB)


def of_its_own(kind: str, directory: Path, size: int) -> Iterator[Path]:
    try:
        with mounted(kind, directory / "disk", size) as disk:
            yield disk
    except CannotMount as error:
        pytest.skip(f"needs a file system of its own: {error}")


class Client:
    """Sends and reads; `acknowledged` is body -> place."""

    def __init__(self, address: str) -> None:
        self.address = address
        self.remoting = Remoting()
        self.acknowledged: dict[bytes, Place] = {}
        self.refusals: list[BrokerError] = []
        self._sizes = cycle((3000, 1, 700, 60_000, 64))

    async def send(self) -> bool:
        """One message more; whether it was taken."""
        number = len(self.acknowledged) + len(self.refusals)
        body = b"%d:" % number + bytes(next(self._sizes))
        header = send_header(TOPIC, {"KEYS": f"k{number}"}, queue_id=number % QUEUES)
        try:
            reply = await send(self.remoting, self.address, header, body, timeout_ms=30_000)
        except BrokerError as error:
            self.refusals.append(error)
            return False
        self.acknowledged[body] = reply.queue_id, reply.queue_offset
        return True

    async def fill(self) -> None:
        """Send until nothing is taken any more."""
        refused = 0
        while refused < REFUSALS_ENOUGH:
            refused = 0 if await self.send() else refused + 1

    async def read_back(self) -> dict[bytes, Place]:
        found: dict[bytes, Place] = {}
        for queue_id in range(QUEUES):
            queue = MessageQueue(TOPIC, "", queue_id)
            offset = await min_offset(self.remoting, self.address, queue)
            end = await max_offset(self.remoting, self.address, queue)
            while offset < end:
                reply = await pull(self.remoting, self.address, pull_header(TOPIC, queue_id, offset))
                for unit in decode_units(reply.body):
                    assert (unit.queue_offset, found.get(unit.body)) == (offset, None)
                    found[unit.body] = queue_id, offset
                    offset += 1
        return found


def assert_refused_as_full(refusals: list[BrokerError]) -> None:
    assert {error.code for error in refusals} == {ResponseCode.SERVICE_NOT_AVAILABLE}
    assert all(REMARK.search(str(error)) for error in refusals), refusals[0]


def assert_sound(store: Path) -> None:
    """`orbitmq store verify` finds nothing."""
    looked = subprocess.run([ORBITMQ, "store", "verify", store], capture_output=True, text=True, check=False)
    assert looked.returncode == 0, looked.stdout + looked.stderr


async def until_sent(client: Client) -> None:
    deadline = asyncio.get_running_loop().time() + PATIENCE_SECONDS
    while not await client.send():
        assert asyncio.get_running_loop().time() < deadline, f"still refused: {client.refusals[-1]}"
        await asyncio.sleep(0.02)


async def test_a_disk_without_a_free_block_costs_no_message_and_no_file(disk: Path, tmp_path: Path) -> None:
    """Full, killed while full, started while full, and with room again."""
    ballast = Ballast(disk)
    offsets = disk / "store/config/consumerOffset.json"
    queue = MessageQueue(TOPIC, "", 0)
    with OrbitUp(home=tmp_path, store_dir=disk / "store", **WITHOUT_RATIOS) as broker:
        client = Client(broker.address)
        remoting, address = client.remoting, broker.address
        assert await client.send()
        ballast.take(4 * MIB)
        await update_consumer_offset(remoting, address, GROUP, queue, 1)
        await until(lambda: offsets.exists() and GROUP in offsets.read_text())
        await client.fill()
        ballast.fill()
        await client.fill()
        assert_refused_as_full(client.refusals)
        assert await client.read_back() == client.acknowledged, "reads go on, and nothing is there by half"
        assert_sound(broker.store_dir)

        process = broker.process
        assert process is not None
        await update_consumer_offset(remoting, address, GROUP, queue, 2)
        await until(lambda: "event=save_failed" in process.errors())
        assert json.loads(offsets.read_text().replace("0:", '"0":'))["offsetTable"] == {f"{TOPIC}@{GROUP}": {"0": 1}}

        await remoting.close()
        broker.kill()
        broker.start()
        client.remoting = remoting = Remoting()
        assert await client.read_back() == client.acknowledged
        assert await query_consumer_offset(remoting, address, GROUP, queue) == 1
        assert not await client.send()
        await update_consumer_offset(remoting, address, GROUP, queue, 3)
        process = broker.process
        assert process is not None
        await until(lambda: "event=save_failed" in process.errors())

        ballast.drop()
        await until_sent(client)
        await until(lambda: "0:3" in offsets.read_text())
        assert await client.read_back() == client.acknowledged
        await remoting.close()
        assert broker.stop() == 0
        assert not (broker.store_dir / "abort").exists()
        assert_sound(broker.store_dir)
        broker.start()
        client.remoting = Remoting()
        assert await client.read_back() == client.acknowledged
        assert await client.send()
        await client.remoting.close()
    print(f"{len(client.acknowledged)} acknowledged, {len(client.refusals)} refused, 0 lost")


async def test_a_start_needs_no_room_for_what_was_never_written(small_disk: Path, tmp_path: Path) -> None:
    """Files have their full size from the beginning. In memory a look at their empty part would need blocks for it."""
    ballast = Ballast(small_disk)
    roomy = {key: value for key, value in WITHOUT_RATIOS.items() if key != "mappedFileSizeConsumeQueue"}
    with OrbitUp(home=tmp_path, store_dir=small_disk / "store", **roomy) as broker:
        client = Client(broker.address)
        for _ in range(500):
            assert await client.send()
        for stop in (broker.kill, broker.stop):
            await client.remoting.close()
            ballast.fill()
            stop()
            broker.start()
            client.remoting = Remoting()
            assert await client.read_back() == client.acknowledged
            with StoreReader(broker.store_dir) as reader:
                assert sum(reader.queue(TOPIC, number).max_offset for number in range(QUEUES)) == 500
            ballast.fill()
        await client.remoting.close()


@pytest.mark.parametrize("kind", ["commitlog", f"consumequeue/{TOPIC}/0", "index"])
async def test_a_start_needs_no_room_for_a_file_that_was_only_created(
    small_disk: Path, tmp_path: Path, kind: str
) -> None:
    """A kill came between the creation of the next file and the allocation of its first blocks."""
    ballast = Ballast(small_disk)
    with OrbitUp(home=tmp_path, store_dir=small_disk / "store", **WITHOUT_RATIOS) as broker:
        client = Client(broker.address)
        for _ in range(20):
            assert await client.send()
        await client.remoting.close()
        directory = broker.store_dir / kind
        await until(lambda: any(directory.glob("*")))
        broker.kill()
        last = max(directory.iterdir())
        size = last.stat().st_size
        following = directory / f"{int(last.name) + (size if kind != 'index' else 1):0{len(last.name)}d}"
        with following.open("xb") as file:
            file.truncate(size)
        ballast.fill()
        assert_sound(broker.store_dir)
        broker.start()
        client.remoting = Remoting()
        assert await client.read_back() == client.acknowledged
        await client.remoting.close()


def test_a_first_start_on_a_full_disk_says_so_and_one_with_room_succeeds(small_disk: Path, tmp_path: Path) -> None:
    (small_disk / "store").mkdir()
    ballast = Ballast(small_disk)
    ballast.fill()
    broker = OrbitUp(home=tmp_path, store_dir=small_disk / "store", **SMALL_FILES)
    with pytest.raises(ProcessFailed, match="ended with 1"):
        broker.start()
    process, broker.process = broker.process, None
    assert process is not None
    assert process.output() == ""
    (line,) = [one for one in process.errors().splitlines() if "event=loop_stalled" not in one]  # on a slow machine
    assert "No space left on device" in line
    assert str(broker.store_dir) in line
    ballast.drop()
    with broker:
        pass


def test_a_rebuild_that_finds_no_room_leaves_what_was_there(small_disk: Path) -> None:
    root = small_disk / "store"
    store = MessageStore(
        StoreOptions.parse({**texts(SMALL_FILES), "storePathRootDir": str(root)}),
        clock=ManualClock(),
        entry_codes=CODES,
    )
    store.open()
    for number in range(2000):
        store.put(record(b"%d" % number, properties=b"KEYS\x01k%d" % number))
    store.close()
    before = {path: path.read_bytes() for path in root.rglob("*") if path.is_file()}
    ballast = Ballast(small_disk)
    ballast.fill()
    done = subprocess.run([ORBITMQ, "store", "rebuild", root], capture_output=True, text=True, check=False)
    assert (done.returncode, "No space left" in done.stderr) == (2, True), done.stderr
    assert {path: path.read_bytes() for path in root.rglob("*") if path.is_file()} == before
    assert_sound(root)
    ballast.drop()
    done = subprocess.run([ORBITMQ, "store", "rebuild", root], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert_sound(root)


def texts(pairs: Mapping[str, object]) -> dict[str, str]:
    return {key: str(value) for key, value in pairs.items()}


async def test_on_request_the_oldest_files_of_a_full_disk_go_and_sends_resume(small_disk: Path, tmp_path: Path) -> None:
    quick = {**SMALL_FILES, "cleanResourceInterval": 50}
    with OrbitUp(home=tmp_path, store_dir=small_disk / "store", **quick) as broker:
        client = Client(broker.address)
        await client.fill()
        assert_refused_as_full(client.refusals)
        before = dict(client.acknowledged)
        assert await client.read_back() == before, "in its first minute a broker removes nothing by itself"
        await call(client.remoting, broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=10_000)
        await until_sent(client)
        await until(lambda: Files().used_ratio(small_disk) <= 0.85, "the clean-up to end")
        await client.remoting.close()
        assert broker.stop() == 0
        assert_sound(broker.store_dir)
        broker.start()
        client.remoting = Remoting()
        found = await client.read_back()
        gone = [body for body in client.acknowledged if body not in found]
        assert found.items() <= client.acknowledged.items()
        assert gone == list(before)[: len(gone)] != [], "those that were sent first"
        await client.remoting.close()


async def test_a_full_disk_takes_no_acknowledged_message_that_a_group_has_not_read(
    small_disk: Path, tmp_path: Path
) -> None:
    """Messages are refused instead, `doctor` says whose group holds them, and its progress frees the disk."""
    quick = {**SMALL_FILES, "cleanResourceInterval": 50}
    queues = [MessageQueue(TOPIC, "", queue_id) for queue_id in range(QUEUES)]
    with OrbitUp(home=tmp_path, store_dir=small_disk / "store", **quick) as broker:
        client = Client(broker.address)
        for queue in queues:
            await update_consumer_offset(client.remoting, broker.address, GROUP, queue, 0)
        await client.fill()
        assert_refused_as_full(client.refusals)
        process = broker.process
        assert process is not None
        await call(client.remoting, broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=10_000)
        await until(lambda: "event=unread_log_file_kept" in process.errors())
        await client.fill()
        assert await client.read_back() == client.acknowledged, "nothing is gone"
        told = await asyncio.to_thread(
            subprocess.run,
            [ORBITMQ, "doctor", "-n", broker.namesrv_address],
            capture_output=True,
            text=True,
            check=False,
        )
        assert f"accepts no messages; old files stay, for {GROUP} has not read message" in " ".join(told.stdout.split())
        for queue in queues:
            end = await max_offset(client.remoting, broker.address, queue)
            await update_consumer_offset(client.remoting, broker.address, GROUP, queue, end)
        await call(client.remoting, broker.address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=10_000)
        await until_sent(client)
        await client.remoting.close()
        assert broker.stop() == 0
        assert_sound(broker.store_dir)
    print(f"{len(client.acknowledged)} acknowledged, {len(client.refusals)} refused, 0 lost before they were read")


@pytest.mark.parametrize(("full", "forcible", "refuse"), [(75, 85, 90), (50, 60, 70)])
def test_how_full_the_disk_is_decides_what_goes_and_whether_messages_are_taken(
    small_disk: Path, full: int, forcible: int, refuse: int
) -> None:
    """Each level counts from one percent above it on."""
    pairs = {
        "storePathRootDir": str(small_disk / "store"),
        "mappedFileSizeCommitLog": str(MIB),
        "messageIndexEnable": "false",
        "deleteWhen": "",
        "diskMaxUsedSpaceRatio": str(full),
        "rocketmq.broker.diskSpaceCleanForciblyRatio": str(forcible / 100),
        "rocketmq.broker.diskSpaceWarningLevelRatio": str(refuse / 100),
    }
    clock = ManualClock()
    store = opened(StoreOptions.parse({**pairs, "cleanFileForciblyEnable": "false"}), clock)
    while store.commit_log_max_offset < 6 * MIB:
        store.put(record(bytes(100_000)))
    written(store, range(7), clock.now_ms())
    written(store, range(3), clock.now_ms() - 73 * HOUR_MS)
    assert removed(store, clock, small_disk, full) == 0
    assert removed(store, clock, small_disk, full + 1) == 1, "expired, and there is room enough after it"
    written(store, range(7), clock.now_ms())
    for percent in (forcible + 1, refuse, refuse + 1):
        assert removed(store, clock, small_disk, percent) == 0, "nothing has expired, and nothing may be forced"
        taken = store.put(record(b"x")).status is PutStatus.PUT_OK
        assert taken == (percent <= refuse)
    kept = bodies(store)
    store.close()

    Ballast(small_disk).fill_to(refuse + 1)
    store = opened(StoreOptions.parse(pairs), clock)
    assert store.put(record(b"x")).status is PutStatus.SERVICE_NOT_AVAILABLE
    assert removed(store, clock, small_disk, forcible) == 0
    assert store.put(record(b"x")).status is PutStatus.PUT_OK
    assert removed(store, clock, small_disk, forcible + 1) == 1
    found = bodies(store)
    assert found == [*kept, b"x"][-len(found) :]
    store.close()


def test_of_several_disks_a_full_one_is_passed_over(small_disk: Path, tmp_path: Path) -> None:
    """Files take turns until one disk has no block left; the next look at the disks tells where there is room."""
    (tmp_path / "other").mkdir()
    for other in of_its_own("tmpfs", tmp_path / "other", 5 * MIB):
        logs = [small_disk / "log", other / "log"]
        pairs = {
            "storePathRootDir": str(small_disk / "store"),
            "storePathCommitLog": ",".join(map(str, logs)),
            "mappedFileSizeCommitLog": str(MIB),
            "messageIndexEnable": "false",
            "cleanFileForciblyEnable": "false",
        }
        store = opened(StoreOptions.parse(pairs), ManualClock())
        sent, refused = 0, 0
        while store.commit_log_max_offset < 16 * MIB:
            if store.put(record(b"%04d" % sent + bytes(100_000))).status is PutStatus.PUT_OK:
                sent += 1
            else:
                refused += 1
                store._cleaner.step()
        assert refused == 1
        files = [sorted(int(path.name) // MIB for path in log.iterdir()) for log in logs]
        assert files[1] == [1, 3, 5, 7, 9], "five mebibytes are five files"
        assert set(range(10, 16)) <= set(files[0])
        assert [body[:4] for body in bodies(store)] == [b"%04d" % number for number in range(sent)]
        store.close()


def opened(options: StoreOptions, clock: ManualClock) -> MessageStore:
    store = MessageStore(options, clock=clock, entry_codes=CODES)
    store.open()
    for worker in store._workers:  # the test makes their steps
        worker.stop()
    clock.advance(FIRST_ROUND_MS)
    return store


def written(store: MessageStore, numbers: range, time_ms: int) -> None:
    """Let these files of the log look as if last written then."""
    for number, file in enumerate(store._log.files.files):
        if number in numbers:
            file.set_modified_ms(time_ms)


def removed(store: MessageStore, clock: ManualClock, disk: Path, percent: int) -> int:
    """How many files of the log go while the disk is filled to so many percent, looked at for half a minute."""
    store._log_flusher.flush()
    store._queue_flusher.flush()
    Ballast(disk).take(0)
    while store._log.reserve_ahead():
        pass
    Ballast(disk).fill_to(percent)
    before = store.commit_log_min_offset
    for _ in range(300):
        store._cleaner.step()
        clock.advance(100)
    return (store.commit_log_min_offset - before) // MIB
