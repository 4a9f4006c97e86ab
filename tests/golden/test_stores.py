"""Stores written by RocketMQ 4.9.7, opened by orbitmq: everything its own store library said about them must hold.

The manifests of the crash cases tell the state after RocketMQ's recovery; here the recovery is orbitmq's.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.schedule import entry_codes
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.message.java_hash import tags_code
from orbitmq.message.unit import decode_unit, encode_unit, message_of
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.extended_queue import ExtendedQueue, Extension, is_address
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.options import StoreOptions
from orbitmq.store.pull_batch import GetStatus, Selection
from orbitmq.store.records import PutRecord
from orbitmq.store.time_search import store_time
from tests.support.golden import manifest, unpack
from tests.support.store_reader import StoreReader
from tests.support.stores import CODES, units_of

CLEAN = [
    "batch", "broadcast", "compressed", "cqext", "delay", "expired", "index", "ipv6", "lmq", "plain", "retry_dlq",
    "slave", "sync_flush", "topics", "transaction",
]  # fmt: skip
CRASHED = [
    "crash", "crash_checkpoint", "crash_cq_ahead", "crash_cq_behind", "crash_crc", "crash_cut", "crash_rebuild",
    "crash_tailgarbage",
]  # fmt: skip

Manifest = dict[str, Any]


class Opened:
    """A golden store opened by orbitmq, and what RocketMQ says about it."""

    def __init__(self, case: str, directory: Path) -> None:
        self.manifest = manifest(case)
        self.root = unpack(case, directory)
        config = {key: str(value) for key, value in self.manifest["store_config"].items()}
        levels = parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))
        options = StoreOptions.parse({**config, "storePathRootDir": str(self.root)})
        self.store = MessageStore(options, clock=SystemClock(), entry_codes=entry_codes(levels))
        self.store.open()


@pytest.fixture(scope="module", params=CLEAN + CRASHED)
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Opened]:
    found = Opened(request.param, tmp_path_factory.mktemp(request.param))
    yield found
    found.store.close()
    assert not (found.root / "abort").exists()


def test_log_has_the_same_bounds(opened: Opened) -> None:
    expected = opened.manifest["afterLoad"]
    assert opened.store.commit_log_min_offset == expected["minPhyOffset"]
    assert opened.store.commit_log_max_offset == expected["maxPhyOffset"]
    assert opened.store.flushed_offset == expected["flushedWhere"]


def test_every_message_is_read_and_encodes_to_its_own_bytes(opened: Opened) -> None:
    for expected in opened.manifest["messages"]:
        data = opened.store.unit_at(expected["physicalOffset"])
        assert data is not None
        assert hashlib.sha256(data).hexdigest() == expected["recordSha256"]
        unit = decode_unit(data)
        assert encode_unit(unit) == bytes(data)
        assert (unit.size, unit.topic, unit.queue_id) == (expected["size"], expected["topic"], expected["queueId"])
        assert (unit.queue_offset, unit.physical_offset) == (expected["queueOffset"], expected["physicalOffset"])
        message = message_of(unit)
        assert message.offset_msg_id == expected["msgId"]
        assert message.properties == expected["properties"]
        assert (message.tags, message.keys or None) == (expected["tags"], expected["keys"])
        assert message.store_timestamp == expected["storeTimestamp"]
        assert message.reconsume_times == expected["reconsumeTimes"]
        assert message.prepared_transaction_offset == expected["preparedTransactionOffset"]
        assert len(message.body) == expected["bodyLen"]
        assert hashlib.sha256(message.body).hexdigest() == expected["bodySha256"]
        assert len(unit.body) == expected["storedBodyLen"]


def test_queues_have_the_same_entries(opened: Opened) -> None:
    assert opened.manifest["queues"]
    for expected in opened.manifest["queues"]:
        topic, queue_id = expected["topic"], expected["queueId"]
        assert opened.store.min_offset(topic, queue_id) == expected["minOffset"]
        assert opened.store.max_offset(topic, queue_id) == expected["maxOffset"]
        assert opened.store.earliest_store_time(topic, queue_id) == expected["earliestMessageTime"]
        queue = opened.store._queues.table[topic, queue_id]
        assert queue.max_physical_offset == expected["maxPhysicOffset"]
        found = [list(entry) for entry in queue.entries(queue.min_offset)]
        assert found == expected["entries"], (topic, queue_id)


def test_no_queue_was_made_up(opened: Opened) -> None:
    expected = {(queue["topic"], queue["queueId"]) for queue in opened.manifest["queues"]}
    assert {key for key, queue in opened.store._queues.table.items() if queue.max_offset} == expected


def test_times_find_the_first_message_since_where_java_finds_one_near_it(opened: Opened) -> None:
    """RocketMQ 4.9 answers with the nearest message, so it is off by what lies between; the same for one exact time."""
    store = opened.store
    for topic, queue_id, timestamp, java in opened.manifest["offsetByTime"]:
        queue = store._queues.table[topic, queue_id]
        times = {
            queue.min_offset + number: store_time(store._log, place)
            for number, (place, _, _) in enumerate(queue.entries(queue.min_offset))
        }
        since = [offset for offset, time in times.items() if time >= timestamp]
        found = store.offset_by_time(topic, queue_id, timestamp)
        assert found == min(since, default=store.max_offset(topic, queue_id)), (topic, queue_id, timestamp)
        if times.get(java) == timestamp:
            assert found <= java


def test_pulls_get_the_same_messages(opened: Opened) -> None:
    for expected in opened.manifest["getMessage"]:
        codes = {tags_code(tag.strip()) for tag in (expected["sub"] or "*").split("||")}
        wanted = Selection(None if expected["sub"] in (None, "*") else codes.__contains__)
        found = opened.store.get(
            expected["topic"], expected["queueId"], expected["offset"], expected["maxNums"], wanted
        )
        assert found.status is GetStatus[expected["status"]], expected
        assert (found.min_offset, found.max_offset) == (expected["minOffset"], expected["maxOffset"])
        assert [decode_unit(unit).physical_offset for unit in units_of(found)] == expected["physicalOffsets"], expected
        assert (found.count, found.size) == (expected["count"], expected["bytes"])
        if is_corrected(opened.manifest, found.status):
            assert found.next_offset == expected["nextBeginOffset"], expected


def is_corrected(expected: Manifest, status: GetStatus) -> bool:
    """The crash manifests were taken with the role of a slave, which sends a reader outside the queue nowhere else."""
    outside = (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY, GetStatus.NO_MESSAGE_IN_QUEUE)
    return expected["clean_shutdown"] or status not in outside


def test_a_reader_sees_the_same_messages(opened: Opened) -> None:
    with StoreReader(opened.root) as reader:
        found = [unit.physical_offset for unit in reader.log_units()]
        assert found == [message["physicalOffset"] for message in opened.manifest["messages"]]
        for expected in opened.manifest["queues"]:
            queue = reader.queue(expected["topic"], expected["queueId"])
            assert queue.max_offset == expected["maxOffset"]
            entries = list(queue.entries(expected["minOffset"], queue.max_offset))
            assert [list(entry) for entry in entries] == expected["entries"]
            units = list(reader.units(expected["topic"], expected["queueId"], 0, queue.max_offset))
            assert [unit.physical_offset for unit in units][-len(entries) :] == [entry[0] for entry in entries]


def test_extensions_have_the_same_units_and_bytes(opened: Opened, tmp_path: Path) -> None:
    for expected in opened.manifest["queues"]:
        units = [unit for unit in expected.get("ext") or [] if unit]
        queue = opened.store._queues.table[expected["topic"], expected["queueId"]]
        if not units:
            continue
        assert queue.extended is not None
        addresses = [entry[2] for entry in queue.entries(0) if is_address(entry[2])]
        wanted = [
            Extension(unit["tagsCode"], unit["msgStoreTime"], bytes.fromhex(unit["filterBitMap"] or ""))
            for unit in units
        ]
        assert [queue.extended.find(address) for address in addresses] == wanted
        directory = tmp_path / expected["topic"] / str(expected["queueId"])
        again = ExtendedQueue(NumberedFiles(Files(), directory, queue.extended.files.file_size))
        assert [again.put(*unit) for unit in wanted] == addresses
        assert bytes(again.files.files[0].view) == bytes(queue.extended.files.files[0].view)
        again.close()


@pytest.mark.parametrize("case", ["plain", "expired", "crash_cut", "ipv6", "cqext", "lmq"])
def test_the_store_goes_on_where_java_left_it(case: str, tmp_path: Path) -> None:
    """New messages follow the old ones, and both are there after the next start."""
    opened = Opened(case, tmp_path)
    end = opened.store.commit_log_max_offset
    queues = opened.manifest["queues"]
    for queue in queues:
        record = PutRecord(queue["topic"], queue["queueId"], b"new", b"TAGS\x01TagN", 1, bytes(8), bytes(8))
        assert opened.store.put(record).queue_offset == queue["maxOffset"]
    opened.store.close()
    again = MessageStore(opened.store.options, clock=SystemClock(), entry_codes=CODES)
    again.open()
    assert again.commit_log_max_offset > end
    for queue in queues:
        found = again.get(queue["topic"], queue["queueId"], queue["maxOffset"] - 1, 32)
        assert [decode_unit(unit).body for unit in units_of(found)][1:] == [b"new"]
        assert found.max_offset == queue["maxOffset"] + 1
    again.close()


def test_a_message_enters_the_light_queues_java_made(tmp_path: Path) -> None:
    opened = Opened("lmq", tmp_path)
    before = {queue["topic"]: queue["maxOffset"] for queue in opened.manifest["queues"]}
    properties = b"INNER_MULTI_DISPATCH\x01%LMQ%dev0,%LMQ%new\x02WAIT\x01true"
    opened.store.put(PutRecord("StoreA_111", 3, b"new", properties, 1, bytes(8), bytes(8)))
    for topic, offset in (("%LMQ%dev0", before["%LMQ%dev0"]), ("%LMQ%new", 0)):
        unit = decode_unit(opened.store.get(topic, 0, offset, 1).buffers[0])
        found = message_of(unit).properties
        assert unit.body == b"new"
        assert found["INNER_MULTI_QUEUE_OFFSET"] == f"{before['%LMQ%dev0']},0"
        assert "WAIT" not in found
    opened.store.close()
