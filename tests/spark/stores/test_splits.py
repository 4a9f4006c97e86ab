"""What a read takes: which stores, from where to where, in which splits; refused with a hint when that cannot be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.hosts import encode_host
from orbitmq.message.unit import Unit, body_crc, encode_unit
from orbitmq.spark.stores.options import ScanOptions, scan_options
from orbitmq.spark.stores.splits import Bounds, LogSplit, QueueSplit, batch_splits, known_bounds, log_splits
from orbitmq.store.reader import StoreDirectory
from tests.spark.stores.scanning import places
from tests.support import golden
from tests.support.store_reader import StoreReader
from tests.support.stores import open_store, record


def options(**given: object) -> ScanOptions:
    return scan_options({name: str(value) for name, value in given.items()})


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """100 messages over some files, four fifths of topic A."""
    store = open_store(tmp_path / "store")
    for number in range(100):
        store.put(record(b"x" * 100, "B" if number % 5 == 0 else "A"))
    store.close()
    return tmp_path / "store"


def all_places(root: Path) -> list[int]:
    with StoreReader(root) as reader:
        return [unit.physical_offset for unit in reader.log_units()]


def test_splits_lie_side_by_side() -> None:
    given, directory = options(path="/x", splitBytes=1024), StoreDirectory(Path("/x"))
    for start, end in ((0, 1), (0, 1024), (0, 1025), (17, 100_000)):
        splits = log_splits(given, "a", directory, Bounds(start, end), may_look=False)
        assert [split.start for split in splits] == [start, *(split.end for split in splits[:-1])]
        assert splits[-1].end == end
        assert max(split.end - split.start for split in splits) <= 1024
        assert [split.is_aligned for split in splits] == [True] + [False] * (len(splits) - 1)
    assert log_splits(given, "a", directory, Bounds(5, 5), may_look=False) == []


@pytest.mark.parametrize(("topics", "by_queues"), [("B", True), ("A", False), ("A,B", False), ("none", True)])
def test_few_messages_are_picked_out_and_many_walked_to(root: Path, topics: str, by_queues: bool) -> None:
    splits = batch_splits(options(path=root, topics=topics))
    assert {split.by_queues for split in splits if isinstance(split, LogSplit)} == {by_queues}


def test_queues_are_put_together(root: Path) -> None:
    together = batch_splits(options(path=root, scan="consumequeue"))
    assert [split.queues for split in together if isinstance(split, QueueSplit)] == [(("A", 0), ("B", 0))]
    apart = batch_splits(options(path=root, scan="consumequeue", splitBytes=1024))
    assert len(apart) == 2


@pytest.mark.parametrize("which", [0, 1, 37, 99])
def test_a_range_takes_messages_by_their_first_byte(root: Path, which: int) -> None:
    whole = all_places(root)
    for offset in (whole[which], whole[which] + 1):
        expected = [place for place in whole if place >= offset]
        assert places(root, startingPhysicalOffset=offset, splitBytes=2000) == expected
        before = [place for place in whole if place < offset]
        assert places(root, endingPhysicalOffset=offset, splitBytes=2000) == before
        by_queues = places(root, startingPhysicalOffset=offset, topics="A,B", topicsBy="queues")
        assert by_queues == expected


def test_latest_has_nothing(root: Path) -> None:
    assert places(root, startingPhysicalOffset="latest") == []


def test_bounds_may_differ_by_broker(root: Path) -> None:
    whole = all_places(root)
    path = json.dumps({"a": str(root), "b": str(root), "c": str(root)})
    start = json.dumps({"a": whole[-1], "b": "latest"})
    assert places(path, startingPhysicalOffset=start) == [whole[-1], *whole]  # type: ignore[arg-type]


def test_a_start_the_log_no_longer_has_is_lost_data(tmp_path: Path) -> None:
    root = golden.unpack("expired", tmp_path)
    first = golden.manifest("expired")["messages"][0]["physicalOffset"]
    with pytest.raises(
        SourceError, match=r"^ORBITMQ_DATA_LOSS: store of store: the read starts at 7, but the log starts at"
    ):
        places(root, startingPhysicalOffset=7)
    assert places(root, startingPhysicalOffset=7, failOnDataLoss=False)[0] == first
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*but the log ends at \d+; it is another log"):
        places(root, startingPhysicalOffset=1 << 40)
    assert places(root, startingPhysicalOffset=1 << 40, failOnDataLoss=False) == []


def test_a_broker_that_runs_is_read_up_to_what_its_queues_hold(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for _ in range(3):
        store.put(record())
    directory = StoreDirectory(tmp_path)
    assert directory.is_live
    whole = known_bounds(directory, "auto")
    path = tmp_path / "consumequeue" / "T" / "0" / f"{0:020d}"
    data = path.read_bytes()
    path.write_bytes(data[:40].ljust(len(data), b"\0"))  # as if the third were not entered yet
    shorter = known_bounds(directory, "auto")
    assert shorter.end < whole.end == known_bounds(directory, "magic").end
    store.close()
    assert known_bounds(directory, "auto") == whole
    assert known_bounds(directory, "dispatched") == shorter


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({}, "no store directory; pass it to load"),
        ({"path": "/x", "subscribe": "orders"}, "option subscribe is unknown; use topics"),
        ({"path": "/x", "splitbyte": "9"}, "option splitbyte is unknown; did you mean splitBytes"),
        ({"path": "/x", "splitBytes": "9"}, "splitBytes"),
        (
            {"path": "/x", "startingPhysicalOffset": "now"},
            "option startingPhysicalOffset: 'now' is not a physical offset",
        ),
        (
            {"path": "/x", "endingPhysicalOffset": "earliest"},
            "option endingPhysicalOffset: 'earliest' is not a physical",
        ),
        ({"path": "{", "columns": "body"}, "option path is not JSON"),
        ({"path": "{}"}, "option path: use a JSON object"),
        ({"path": '{"a":"/x"}', "storePathCommitLog": '{"b":"/y"}'}, "storePathCommitLog names b, which path does not"),
    ],
)
def test_options_that_cannot_be_are_refused(given: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError, match=f"^ORBITMQ_BAD_OPTION: .*{text}"):
        scan_options(given)


def test_names_are_not_case_sensitive() -> None:
    found = scan_options({"PATH": "/x/store", "SPLITBYTES": "2048", "maxOffsetsPerTrigger": "5"})
    assert (found.split_size, found.rows_max, list(found.stores)) == (2048, 5, ["store"])


def test_paths_may_begin_with_the_home_directory(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", "/home/me")
    home, logs = Path("/home/me"), (Path("/home/me/log"), Path("/more"))
    assert options(path="~/a", storePathCommitLog="~/log,/more").stores == {"a": StoreDirectory(home / "a", logs)}
    assert options(path='{"b": "~/a"}', storePathCommitLog='{"b": "~/log,/more"}').stores == {
        "b": StoreDirectory(home / "a", logs)
    }


def test_a_log_may_lie_elsewhere(tmp_path: Path) -> None:
    root = golden.unpack("plain", tmp_path)
    whole = [message["physicalOffset"] for message in golden.manifest("plain")["messages"]]
    (root / "commitlog").rename(tmp_path / "log")
    other = tmp_path / "other"
    other.mkdir()
    last = max((tmp_path / "log").iterdir())
    last.rename(other / last.name)
    assert places(root, storePathCommitLog=f"{tmp_path / 'log'},{other}") == whole
    paths = {"path": json.dumps({"a": str(root)}), "logs": json.dumps({"a": f"{tmp_path / 'log'},{other}"})}
    assert places(paths["path"], storePathCommitLog=paths["logs"]) == whole  # type: ignore[arg-type]


def dledger(root: Path) -> Any:
    (root / "commitlog").mkdir(parents=True)
    entry = (1).to_bytes(4, "big") + bytes(44) + bytes(4) + bytes.fromhex("daa320a7")
    (root / "commitlog" / f"{0:020d}").write_bytes(entry.ljust(4096, b"\0"))


def test_what_is_no_store_is_refused(tmp_path: Path) -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_STORE_UNREADABLE: .*nowhere: there is no such directory"):
        places(tmp_path / "nowhere")
    with pytest.raises(SourceError, match=r"^ORBITMQ_STORE_UNREADABLE: .*commitlog: there is no such directory"):
        places(tmp_path)
    dledger(tmp_path / "entries")
    (tmp_path / "named" / "dledger-n0" / "data").mkdir(parents=True)
    for name in ("entries", "named"):
        with pytest.raises(SourceError, match=r"^ORBITMQ_STORE_UNREADABLE: .*DLedger has written its log"):
            places(tmp_path / name)


def forged_body(place: int, count: int) -> bytes:
    """A body that was made for its place in the log: messages that say the offsets they lie at, the last of which ends
    where the body does.
    """
    host = encode_host("10.0.0.1", 10911)
    body, at = b"", place + 88
    for number in range(count):
        inner = b"forged %d" % number
        unit = Unit(0, body_crc(inner), 0, 0, number, at, 0, 1, host, 2, host, 0, 0, inner, "forged", "")
        body += encode_unit(unit)
        at = place + 88 + len(body)
    return body


@pytest.mark.parametrize("size", [1024, 1500, 3000])
def test_messages_forged_for_their_place_are_no_messages(tmp_path: Path, size: int) -> None:
    store = open_store(tmp_path, mapped_file_size_commit_log=1 << 20)
    place = 0
    for number in range(60):
        body = forged_body(place, 8)
        store.put(record(body, "AB"[number % 2], number % 3))
        place += 88 + len(body) + 1 + 1 + 2
    store.close()
    whole = all_places(tmp_path)
    assert len(whole) == 60
    assert places(tmp_path, splitBytes=size) == whole
    inside = whole[30] + 300
    assert places(tmp_path, startingPhysicalOffset=inside) == whole[31:]
