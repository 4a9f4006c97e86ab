"""The key index of stores written by RocketMQ 4.9.7: read as it is, and built anew to the last byte."""

from __future__ import annotations

import shutil
from collections import defaultdict
from collections.abc import Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.schedule import entry_codes
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.message.unit import decode_unit
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.index.key_scan import key_hash
from orbitmq.store.options import StoreOptions
from tests.golden.test_stores import CLEAN, CRASHED
from tests.support.golden import manifest, unpack

FOREVER = (1 << 63) - 1

Query = dict[str, Any]


class Indexed:
    """A golden store opened by orbitmq, its index as RocketMQ left it or `rebuilt` from the log."""

    def __init__(self, case: str, directory: Path, *, rebuilt: bool) -> None:
        self.case = case
        self.rebuilt = rebuilt
        self.manifest = manifest(case)
        self.root = unpack(case, directory)
        self.before = self.files()
        if rebuilt:
            shutil.rmtree(self.root / "index", ignore_errors=True)
        config = {key: str(value) for key, value in self.manifest["store_config"].items()}
        levels = parse_delay_levels(config.get("messageDelayLevel", DEFAULT_DELAY_LEVELS))
        options = StoreOptions.parse({**config, "storePathRootDir": str(self.root)})
        self.store = MessageStore(options, clock=SystemClock(), entry_codes=entry_codes(levels))
        self.store.open()
        assert self.store._keys.indexer.catch_up(self.store.commit_log_max_offset, 60_000)

    def files(self) -> list[bytes]:
        directory = self.root / "index"
        return [path.read_bytes() for path in sorted(directory.iterdir())] if directory.is_dir() else []

    def find(self, query: Query) -> list[int]:
        wanted = key_hash(query["topic"].encode(), query["key"].encode())
        found = self.store._keys.index.find(wanted, query["begin"], query["end"])
        return list(islice(found, min(query["maxNum"], 64)))

    def places(self) -> dict[tuple[str, str], list[int]]:
        """Where the log has messages of each key of each topic, newest first."""
        found: dict[tuple[str, str], list[int]] = defaultdict(list)
        for message in reversed(self.manifest["messages"]):
            for key in reversed([message["uniqKey"], *(message["keys"] or "").split(" ")]):
                if key:
                    found[message["topic"], key].append(message["physicalOffset"])
        return found


@pytest.fixture(
    scope="module", params=[(case, rebuilt) for case in CLEAN + CRASHED for rebuilt in (False, True)], ids=str
)
def indexed(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Indexed]:
    case, rebuilt = request.param
    found = Indexed(case, tmp_path_factory.mktemp(case), rebuilt=rebuilt)
    yield found
    found.store.close()


def test_look_ups_find_what_rocketmq_finds_in_its_order(indexed: Indexed) -> None:
    first = indexed.manifest["indexFiles"][0]["beginPhyOffset"]  # RocketMQ's recovery has lost what lies before
    start = indexed.store.commit_log_min_offset if indexed.rebuilt else 0
    assert indexed.manifest["indexQueries"]
    for query in indexed.manifest["indexQueries"]:
        expected = [place for place in query["phyOffsets"] if place >= start]
        assert [place for place in indexed.find(query) if place >= first] == expected, query


def test_every_message_of_the_log_is_found_by_each_of_its_keys(indexed: Indexed) -> None:
    """Also where RocketMQ's own recovery has lost them."""
    for (topic, key), places in indexed.places().items():
        wanted = key_hash(topic.encode(), key.encode())
        found = indexed.store._keys.index.find(wanted, 0, FOREVER)
        assert [place for place in found if place >= indexed.store.commit_log_min_offset] == places, (topic, key)


def test_headers_are_those_of_rocketmq(indexed: Indexed) -> None:
    found = [
        {
            "beginTimestamp": file.begin_timestamp,
            "endTimestamp": file.end_timestamp,
            "beginPhyOffset": file.begin_offset,
            "endPhyOffset": file.end_offset,
            "hashSlotCount": file.slots_used,
            "indexCount": file.count,
        }
        for file in indexed.store._keys.index.files
    ]
    same = ["endTimestamp", "endPhyOffset"] if begins_elsewhere(indexed) else list(found[0])
    expected = [[file[name] for name in same] for file in indexed.manifest["indexFiles"]]
    assert [[file[name] for name in same] for file in found] == expected


def begins_elsewhere(indexed: Indexed) -> bool:
    """Not where RocketMQ's index begins: the log has lost its first files since, or RocketMQ some of its entries."""
    return indexed.case == "crash_checkpoint" or (indexed.case == "expired" and indexed.rebuilt)


@pytest.mark.parametrize(
    "case", sorted({*CLEAN, "crash", "crash_checkpoint", "crash_rebuild", "crash_tailgarbage"} - {"expired"})
)
def test_an_index_built_anew_has_rocketmqs_bytes(case: str, tmp_path: Path) -> None:
    """Header, slots and entries of every file, ten of them in one case. The other cases lost a part of their log."""
    indexed = Indexed(case, tmp_path, rebuilt=True)
    assert indexed.before
    assert indexed.files() == indexed.before
    indexed.store.close()


def test_queries_by_unique_id_give_the_messages_themselves(indexed: Indexed) -> None:
    by_id: dict[tuple[str, str], list[int]] = defaultdict(list)
    for message in indexed.manifest["messages"]:
        if message["uniqKey"]:
            by_id[message["topic"], message["uniqKey"]].append(message["physicalOffset"])
    for (topic, unique), places in by_id.items():
        found = indexed.store.query(topic, unique, 32, 0, FOREVER)
        units = [decode_unit(buffer) for buffer in found.buffers]
        assert [unit.physical_offset for unit in units] == places[-32:]
        assert all(f"UNIQ_KEY\x01{unique}" in unit.properties for unit in units)
