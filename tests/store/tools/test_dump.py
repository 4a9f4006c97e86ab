"""Messages of a store as values, filtered and beside damage."""

from __future__ import annotations

import base64
import hashlib
from pathlib import Path

import pytest

from orbitmq.message.compression import compress
from orbitmq.message.flags import COMPRESSED, TRANSACTION_PREPARED
from orbitmq.message.ids import decode_offset_message_id
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.tools.dump import Wanted, dump, row
from tests.support.stores import open_store, record

NOW = 1_700_000_000_000
HOUR = 3_600_000


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """60 messages in some files, ten hours apart each."""
    clock = ManualClock(NOW)
    store = open_store(tmp_path, clock)
    for number in range(60):
        properties = b"UNIQ_KEY\x01u%d\x02KEYS\x01k%d even%d" % (number, number, number % 2)
        store.put(record(b"%d" % number, "AB"[number % 2], number % 3, properties))
        clock.advance(10 * HOUR)
    store.close()
    return tmp_path


def numbers(root: Path, **wanted: object) -> list[int]:
    return [int(unit.body) for unit in dump(root, Wanted(**wanted), _fail)]  # type: ignore[arg-type]


def _fail(*told: object) -> None:
    pytest.fail(f"damage in a sound store: {told}")


@pytest.mark.parametrize(
    ("wanted", "expected"),
    [
        ({}, range(60)),
        ({"topic": "B"}, range(1, 60, 2)),
        ({"queue_id": 2}, range(2, 60, 3)),
        ({"topic": "A", "queue_id": 0}, range(0, 60, 6)),
        ({"begin": NOW + 500 * HOUR}, range(50, 60)),
        ({"end": NOW + 500 * HOUR}, range(51)),
        ({"begin": NOW + 1, "end": NOW + 20 * HOUR}, range(1, 3)),
        ({"begin": NOW + 600 * HOUR}, range(0)),
        ({"end": NOW - 1}, range(0)),
        ({"key": "k7"}, [7]),
        ({"key": "u59"}, [59]),
        ({"key": "even1"}, range(1, 60, 2)),
        ({"key": "even"}, []),
        ({"key": "even1", "topic": "A"}, []),
    ],
)
def test_messages_are_chosen(root: Path, wanted: dict[str, object], expected: range) -> None:
    assert numbers(root, **wanted) == list(expected)


def test_a_clock_that_was_set_back_hides_nothing(tmp_path: Path) -> None:
    clock = ManualClock(NOW)
    store = open_store(tmp_path, clock)
    for number in range(80):
        clock.advance(-HOUR if number == 40 else 1000)
        store.put(record(b"%d" % number))
    store.close()
    assert numbers(tmp_path, begin=NOW - HOUR, end=NOW) == list(range(40, 80))
    assert numbers(tmp_path, begin=NOW + 30_000) == list(range(29, 40))


def test_a_row_says_everything(tmp_path: Path) -> None:
    store = open_store(tmp_path, ManualClock(NOW))
    body = compress(b"text" * 100, "ZLIB", 5)
    put = store.put(record(body, properties=b"TAGS\x01t\x02KEYS\x01a b\x02x\x01y", queue_id=3, sys_flag=COMPRESSED))
    store.put(record(b"half", sys_flag=TRANSACTION_PREPARED))
    store.close()
    first, second = (row(unit, with_body=True) for unit in dump(tmp_path, Wanted(), _fail))
    assert first == {
        "topic": "T", "queue_id": 3, "queue_offset": 0, "physical_offset": 0, "size": put.size, "store_timestamp": NOW,
        "born_timestamp": 1_600_000_000_000, "sys_flag": COMPRESSED, "tags": "t", "keys": "a b",
        "properties": {"TAGS": "t", "KEYS": "a b", "x": "y"}, "body_sha256": hashlib.sha256(b"text" * 100).hexdigest(),
        "msg_id": put.message_id, "body": base64.b64encode(b"text" * 100).decode(),
    }  # fmt: skip
    assert decode_offset_message_id(second["msg_id"]).physical_offset == put.size
    assert second["tags"] is second["keys"] is None


def test_a_body_that_cannot_be_unpacked_is_null(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"no zlib", sys_flag=COMPRESSED))
    store.close()
    (found,) = (row(unit, with_body=True) for unit in dump(tmp_path, Wanted(), _fail))
    assert found["body_sha256"] is found["body"] is None


def test_damage_is_told_and_stepped_over(root: Path) -> None:
    path = root / "commitlog" / f"{0:020d}"
    second = next(unit.size for unit in dump(root, Wanted(), _fail))
    data = bytearray(path.read_bytes())
    data[second + 88] ^= 1
    path.write_bytes(data)
    told: list[tuple[Path, int, str]] = []
    found = [int(unit.body) for unit in dump(root, Wanted(), lambda *what: told.append(what))]
    assert found == [0, *range(2, 60)]
    assert [(where, at) for where, at, _ in told] == [(path, second)]


def test_what_a_running_broker_appends_meanwhile_is_left_out(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"1"))
    found = dump(tmp_path, Wanted(), _fail)
    assert int(next(found).body) == 1
    store.put(record(b"2"))
    assert list(found) == []
    assert numbers(tmp_path) == [1, 2]
    store.close()
