"""The store's tools on stores written by RocketMQ 4.9.7: what they print is what its own store library said."""

from __future__ import annotations

import shutil
from pathlib import Path
from typing import Any

import pytest

from orbitmq.broker.schedule import entry_codes
from orbitmq.message.delay import DEFAULT_DELAY_LEVELS, parse_delay_levels
from orbitmq.runtime.clock import SystemClock
from orbitmq.store.engine import MessageStore
from orbitmq.store.options import StoreOptions
from orbitmq.store.tools.dump import Wanted, dump, row
from orbitmq.store.tools.findings import Level, State
from orbitmq.store.tools.rebuild import Rebuilt, rebuild
from orbitmq.store.tools.verify import verify
from tests.golden.test_stores import CLEAN, CRASHED
from tests.support.golden import manifest, unpack
from tests.support.store_reader import StoreReader
from tests.support.stores import CODES

# What the tool must name: (start of the path, position or None, part of the text). The two plain crashes lost nothing.
DAMAGE: dict[str, list[tuple[str, int | None, str]]] = {
    "crash": [],
    "crash_checkpoint": [],
    "crash_cut": [("commitlog/00000000000001048576", 122657, "not whole: 1,017 bytes, 0 whole messages behind")],
    "crash_crc": [("commitlog/00000000000000000000", 381623, "checksum: 719 bytes, 2 whole messages behind")],
    "crash_tailgarbage": [("commitlog/00000000000000000000", 642085, "not whole: 342 bytes, 0 whole messages behind")],
    "crash_cq_behind": [
        ("consumequeue/StoreB_119/3/00000000000000000000", 700, "9 messages from queue offset 35 on: no")
    ],
    "crash_cq_ahead": [
        (
            "consumequeue/StoreA_120/3/00000000000000000000",
            900,
            "3 entries from queue offset 45 on: the log ends before",
        ),
        ("index/20261121102855929", 29820, "22 entries, the first for 140586 of the log: the log ends before"),
    ],
    "crash_rebuild": [
        ("checkpoint", 0, "is missing"),
        ("consumequeue/StoreB_121/3", 0, "the queue is missing; 92 messages, the first at 1040 of the log"),
    ],
}


@pytest.mark.parametrize("case", CLEAN)
def test_a_clean_store_is_sound(case: str, tmp_path: Path) -> None:
    report = verify(unpack(case, tmp_path))
    expected = manifest(case)
    assert report.is_sound, report.findings
    assert report.state is State.STOPPED
    assert (report.log_start, report.log_end) == (
        expected["commitlog"]["minOffset"],
        expected["commitlog"]["maxOffset"],
    )
    assert report.messages == len(expected["messages"])
    assert report.queues >= len(expected["queues"])
    assert report.index_entries == sum(file["indexCount"] - 1 for file in expected["indexFiles"])
    removed = [finding for finding in report.findings if "the topic was removed" in finding.text]
    assert report.findings == removed
    assert bool(removed) == (case == "topics")


@pytest.mark.parametrize("case", CRASHED)
def test_the_damage_of_a_crash_is_named(case: str, tmp_path: Path) -> None:
    report = verify(unpack(case, tmp_path))
    assert report.state is State.CRASHED
    assert report.is_sound == (not DAMAGE[case])
    for path, position, text in DAMAGE[case]:
        assert [
            finding
            for finding in report.findings
            if finding.level is Level.DAMAGE
            and (finding.path, finding.position) == (path, position)
            and text in finding.text
        ], (path, report.findings)


def as_rows(expected: dict[str, Any]) -> list[dict[str, Any]]:
    """The messages of a manifest as `dump` prints them."""
    names = {
        "topic": "topic", "queue_id": "queueId", "queue_offset": "queueOffset", "physical_offset": "physicalOffset",
        "size": "size", "store_timestamp": "storeTimestamp", "born_timestamp": "bornTimestamp", "sys_flag": "sysFlag",
        "tags": "tags", "keys": "keys", "properties": "properties", "body_sha256": "bodySha256", "msg_id": "msgId",
    }  # fmt: skip
    return [{name: message[java] for name, java in names.items()} for message in expected["messages"]]


@pytest.mark.parametrize("case", CLEAN + CRASHED)
def test_dump_prints_the_same_messages(case: str, tmp_path: Path) -> None:
    told: list[object] = []
    units = dump(unpack(case, tmp_path), Wanted(), lambda *what: told.append(what))
    rows = [row(unit, with_body=False) for unit in units]
    expected = as_rows(manifest(case))
    # RocketMQ stops at the damage; two whole messages lie behind it.
    assert rows[: len(expected)] == expected
    assert len(rows) - len(expected) == (2 if case == "crash_crc" else 0)
    assert len(told) == (1 if case in ("crash_cut", "crash_crc", "crash_tailgarbage") else 0)


def remade(case: str, root: Path, *, tells_sizes: bool) -> Rebuilt:
    """Rebuilt; unless the directory tells the sizes of its files, the configuration does."""
    pairs = {key: str(value) for key, value in manifest(case)["store_config"].items()}
    codes = entry_codes(parse_delay_levels(pairs.get("messageDelayLevel", DEFAULT_DELAY_LEVELS)))
    return rebuild(root, StoreOptions.parse({} if tells_sizes else pairs), codes, SystemClock())


@pytest.mark.parametrize("case", CLEAN + CRASHED)
@pytest.mark.parametrize("lost", [False, True])
def test_rebuilt_queues_are_those_of_java(case: str, lost: bool, tmp_path: Path) -> None:
    expected = manifest(case)
    root = unpack(case, tmp_path)
    if lost:
        shutil.rmtree(root / "consumequeue", ignore_errors=True)
        shutil.rmtree(root / "index", ignore_errors=True)
    had_sizes = (root / "consumequeue").exists() and (root / "index").exists()
    made = remade(case, root, tells_sizes=had_sizes)
    assert made.log_end == expected["commitlog"]["maxOffset"]
    assert made.messages == len(expected["messages"])
    assert (made.stopped_by is None) == (case not in ("crash_cut", "crash_crc", "crash_tailgarbage"))
    with StoreReader(root) as reader:
        assert set(reader.queues()) == {(queue["topic"], queue["queueId"]) for queue in expected["queues"]}
        for queue in expected["queues"]:
            found = reader.queue(queue["topic"], queue["queueId"])
            assert found.min_offset == queue["minOffset"]
            entries = found.entries(queue["minOffset"], found.max_offset)
            assert [list(entry) for entry in entries] == queue["entries"], (queue["topic"], queue["queueId"])
    assert sorted(path.name for path in root.iterdir() if path.name not in ("checkpoint", "index")) == sorted(
        {path.split("/")[0] for path in paths(case)} - {"checkpoint", "index"} | {"consumequeue"}
    )
    damaged = {finding.path.split("/")[0] for finding in verify(root).findings if finding.level is Level.DAMAGE}
    assert damaged == ({"commitlog"} if made.stopped_by else set())


def paths(case: str) -> list[str]:
    return [file["path"] for file in manifest(case)["files"]]


@pytest.mark.parametrize("case", [case for case in CLEAN if case != "expired"])
def test_a_rebuilt_index_is_that_of_java(case: str, tmp_path: Path) -> None:
    """All its bytes but the first entry's seconds, which RocketMQ leaves open, and the names of the files."""
    root = unpack(case, tmp_path)
    before = [path.read_bytes() for path in sorted((root / "index").iterdir())]
    remade(case, root, tells_sizes=True)
    assert [path.read_bytes() for path in sorted((root / "index").iterdir())] == before


def test_searches_by_time_find_every_message(tmp_path: Path) -> None:
    root = unpack("plain", tmp_path)
    remade("plain", root, tells_sizes=True)
    pairs = {key: str(value) for key, value in manifest("plain")["store_config"].items()}
    store = MessageStore(
        StoreOptions.parse({**pairs, "storePathRootDir": str(root)}), clock=SystemClock(), entry_codes=CODES
    )
    store.open()
    times = {
        (message["topic"], message["queueId"], message["queueOffset"]): message["storeTimestamp"]
        for message in manifest("plain")["messages"]
    }
    assert max(queue_offset for _, _, queue_offset in times) > 300  # a second file
    for (topic, queue_id, _), timestamp in times.items():
        found = store.offset_by_time(topic, queue_id, timestamp)
        assert times[topic, queue_id, found] == timestamp
    store.close()
