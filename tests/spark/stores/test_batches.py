"""Every store that RocketMQ has written is read as RocketMQ's own library reads it, damaged ones included."""

from __future__ import annotations

import hashlib
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import pytest

from orbitmq.errors import SourceError
from orbitmq.message.compression import compress
from orbitmq.message.flags import COMPRESSED, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK
from orbitmq.message.topics import HALF_TOPIC, TIMER_TOPIC
from orbitmq.message.unit import decode_unit
from orbitmq.spark.stores import batches as batches_module
from orbitmq.spark.stores.columns import LOG_COLUMNS
from tests.spark.stores.scanning import Row, batches, places, rows
from tests.support import golden
from tests.support.store_reader import StoreReader
from tests.support.stores import open_store, record

STORES = sorted(path.name.removesuffix(".json.gz") for path in (golden.GOLDEN / "stores").glob("*.json.gz"))
# What a store lacks that was damaged after its broker was killed; RocketMQ's own library made it up when it was opened.
LACKS_QUEUES = {"crash_cq_behind", "crash_cut", "crash_rebuild"}
BROKEN = {"crash_crc": "does not match its CRC", "crash_cq_ahead": "nothing was written here, but the log continues"}


def as_told(row: Row) -> dict[str, Any]:
    """A row with the names of the manifest."""
    return {
        "physicalOffset": row["physOffset"],
        "size": row["size"],
        "topic": row["topic"],
        "queueId": row["queueId"],
        "queueOffset": row["queueOffset"],
        "flag": row["flag"],
        "sysFlag": row["sysFlag"],
        "bornTimestamp": round(row["bornTimestamp"].timestamp() * 1000),
        "bornHost": row["bornHost"],
        "storeTimestamp": round(row["storeTimestamp"].timestamp() * 1000),
        "storeHost": row["storeHost"],
        "reconsumeTimes": row["reconsumeTimes"],
        "preparedTransactionOffset": row["preparedTransactionOffset"],
        "bodyCRC": row["bodyCrc"],
        "tags": row["tags"],
        "keys": row["keys"],
        "msgId": row["offsetMsgId"],
        "uniqKey": row["properties"].get("UNIQ_KEY"),
        "properties": row["properties"],
        "bodyLen": len(row["body"]),
        "bodySha256": hashlib.sha256(row["body"]).hexdigest(),
    }


def told(path: Path, **options: object) -> list[dict[str, Any]]:
    found = rows(path, columns=",".join(LOG_COLUMNS), splitBytes=400_000, **options)
    return [as_told({**row, "properties": dict(row["properties"])}) for row in found]


def in_manifest(case: str) -> list[dict[str, Any]]:
    left_out = ("storedBodyLen", "recordSha256")
    return [
        {
            name: as_host(value) if name in ("bornHost", "storeHost") else value
            for name, value in message.items()
            if name not in left_out
        }
        for message in golden.manifest(case)["messages"]
    ]


def as_host(text: str) -> str:
    """The manifest has Java's form of IPv6 addresses."""
    address, _, port = text.rpartition(":")
    return f"[{ip_address(address)}]:{port}" if ":" in address else text


@pytest.mark.parametrize("case", STORES)
def test_messages_are_those_of_the_manifest(case: str, tmp_path: Path) -> None:
    root = golden.unpack(case, tmp_path)
    expected = in_manifest(case)
    if case not in BROKEN:
        assert told(root) == expected
        return
    with pytest.raises(SourceError, match=f"^ORBITMQ_CORRUPT_RECORD: .*{BROKEN[case]}"):
        told(root)
    found = told(root, onCorruptRecord="skip")
    assert found[: len(expected)] == expected  # behind its damage RocketMQ throws away what is still whole


@pytest.mark.parametrize("case", STORES)
def test_queue_entries_are_those_of_the_manifest(case: str, tmp_path: Path) -> None:
    root = golden.unpack(case, tmp_path)
    found = [
        (row["topic"], row["queueId"], row["queueOffset"], row["physOffset"], row["size"], row["tagsCode"])
        for row in rows(root, scan="consumequeue", splitBytes=10_000)
    ]
    expected = [
        (queue["topic"], queue["queueId"], number, *entry)
        for queue in golden.manifest(case)["queues"]
        for number, entry in enumerate(queue["entries"], queue["minOffset"])
    ]
    if case in LACKS_QUEUES:
        assert set(found) < set(expected)
    elif case in BROKEN:
        assert set(found) > set(expected)
    else:
        assert sorted(found) == sorted(expected)
    assert len(found) == len(set(found))


@pytest.mark.parametrize("case", [case for case in STORES if not case.startswith("crash")])
def test_index_entries_lead_where_the_manifest_says(case: str, tmp_path: Path) -> None:
    found = rows(golden.unpack(case, tmp_path), scan="index")
    manifest = golden.manifest(case)
    assert [row["indexFile"] for row in found] == [
        file["name"] for file in manifest["indexFiles"] for _ in range(file["indexCount"] - 1)
    ]
    if case != "expired":  # whose first messages are gone, but not their entries
        starts = {message["physicalOffset"] for message in manifest["messages"]}
        assert {row["physOffset"] for row in found} <= starts
    for row in found:
        assert row["previousEntry"] < row["entry"]


def test_light_queues_are_read_without_their_messages(tmp_path: Path) -> None:
    found = rows(golden.unpack("lmq", tmp_path), scan="consumequeue", columns="topic,size", topics="%LMQ%a,nothing")
    assert {row["topic"] for row in found} <= {"%LMQ%a"}


# ---------------------------------------------------------------------------------------------------- topics


@pytest.mark.parametrize("by", ["log", "queues", "auto"])
@pytest.mark.parametrize("split", [20_000, 1 << 28])
def test_chosen_topics_are_found_either_way(by: str, split: int, tmp_path: Path) -> None:
    root = golden.unpack("plain", tmp_path)
    messages = golden.manifest("plain")["messages"]
    for wanted in ({messages[0]["topic"]}, {messages[0]["topic"], messages[1]["topic"]}, {"nothing"}):
        expected = [message["physicalOffset"] for message in messages if message["topic"] in wanted]
        assert places(root, topics=",".join(wanted), topicsBy=by, splitBytes=split) == expected


TOPICS = ("orders", "pay-1", "pay-2", "%RETRY%g", "%DLQ%g", "%DLQ%h", HALF_TOPIC, "c_REPLY_TOPIC", "broker-a")


@pytest.mark.parametrize("by", ["log", "queues", "auto"])
@pytest.mark.parametrize(
    ("named", "expected"),
    [
        ("orders,pay-*", {"orders", "pay-1", "pay-2"}),
        ("*", {"orders", "pay-1", "pay-2"}),
        ("pay-*,%DLQ%g", {"pay-1", "pay-2", "%DLQ%g"}),
        ("broker-a,%DLQ%*", {"broker-a"}),
        ("p.y-1,pay", set()),
        ("", set(TOPICS)),
    ],
)
def test_stars_mean_topics_that_are_nobodys_own(by: str, named: str, expected: set[str], tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for topic in TOPICS * 3:
        store.put(record(topic=topic))
    store.close()
    told: dict[str, object] = {"topics": named, "brokerName": "broker-a", "splitBytes": 1024}
    found = [row["topic"] for row in rows(tmp_path, topicsBy=by, columns="topic", **told)]
    assert sorted(found) == sorted(3 * list(expected))
    entries = rows(tmp_path, scan="consumequeue", columns="topic", **told)
    assert {row["topic"] for row in entries} == expected


@pytest.mark.parametrize("by", ["log", "queues"])
def test_waiting_messages_show_where_they_are_meant_for(by: str, tmp_path: Path) -> None:
    root = golden.unpack("delay", tmp_path)
    messages = golden.manifest("delay")["messages"]
    real = [
        (m["properties"]["REAL_TOPIC"], int(m["properties"]["REAL_QID"]))
        if m["topic"] == "SCHEDULE_TOPIC_XXXX"
        else (m["topic"], m["queueId"])
        for m in messages
    ]
    assert len({topic for topic, _ in real}) < len({m["topic"] for m in messages})
    topics = ",".join({topic for topic, _ in real})
    found = rows(root, resolveSystemTopics=True, topics=topics, topicsBy=by, columns="topic,queueId")
    assert [(row["topic"], row["queueId"]) for row in found] == real
    assert {row["topic"] for row in rows(root, columns="topic")} == {m["topic"] for m in messages}


@pytest.mark.parametrize("by", ["log", "queues"])
def test_timer_messages_show_where_they_are_meant_for_and_recalls_do_not(by: str, tmp_path: Path) -> None:
    store = open_store(tmp_path)
    real = b"REAL_TOPIC\x01T\x02REAL_QID\x017\x02TIMER_OUT_MS\x011700000000999"
    store.put(record(b"1", topic=TIMER_TOPIC, properties=real))
    store.put(record(b"0", topic=TIMER_TOPIC, properties=real + b"\x02TIMER_DEL_UNIQKEY\x01T+id"))
    store.put(record(b"2", topic="T"))
    store.close()
    found = rows(tmp_path, resolveSystemTopics=True, topics="T", topicsBy=by, columns="body,topic,queueId")
    assert [(row["body"], row["topic"], row["queueId"]) for row in found] == [(b"1", "T", 7), (b"2", "T", 0)]
    found = rows(tmp_path, resolveSystemTopics=True, columns="topic,queueId")
    assert [(row["topic"], row["queueId"]) for row in found] == [("T", 7), (TIMER_TOPIC, 0), ("T", 0)]
    assert [row["topic"] for row in rows(tmp_path, columns="topic")] == [TIMER_TOPIC, TIMER_TOPIC, "T"]


def test_messages_that_no_queue_has_are_read(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    for flag in (0, TRANSACTION_PREPARED, TRANSACTION_ROLLBACK, 0):
        store.put(record(b"%d" % flag, sys_flag=flag))
    store.close()
    assert [row["sysFlag"] for row in rows(tmp_path, columns="sysFlag")] == [0, 4, 12, 0]
    assert [row["sysFlag"] for row in rows(tmp_path, columns="sysFlag", topics="T", topicsBy="queues")] == [0, 0]


# ---------------------------------------------------------------------------------------------------- damage


@pytest.fixture
def damaged(tmp_path: Path) -> tuple[Path, int]:
    """40 messages over some files, the eighth with a flipped byte in its body; with its physical offset."""
    store = open_store(tmp_path)
    for number in range(40):
        store.put(record(b"body %02d " % number * 20, properties=b"KEYS\x01k%d" % number))
    store.close()
    with StoreReader(tmp_path) as reader:
        place, _, _ = next(iter(reader.queue("T", 0).entries(7, 8)))
    flip(tmp_path, place + 100)
    return tmp_path, place


def flip(root: Path, place: int, file_size: int = 4096) -> None:
    path = root / "commitlog" / f"{place - place % file_size:020d}"
    data = bytearray(path.read_bytes())
    data[place % file_size] ^= 0xFF
    path.write_bytes(data)


@pytest.mark.parametrize("by", [{}, {"topics": "T", "topicsBy": "queues"}])
def test_a_corrupt_body_is_named_with_its_coordinates(damaged: tuple[Path, int], by: dict[str, str]) -> None:
    root, place = damaged
    with pytest.raises(SourceError) as caught:
        rows(root, **by)
    file_start = place - place % 4096
    path = root / "commitlog" / f"{file_start:020d}"
    assert str(caught.value).startswith(
        f"ORBITMQ_CORRUPT_RECORD: {path} at {place % 4096}, physical offset {place} to "
    )
    assert f"queue offset 7 and physical offset {place}: the body does not match its CRC" in str(caught.value)
    assert [row["keys"] for row in rows(root, onCorruptRecord="skip", **by)] == [
        f"k{number}" for number in range(40) if number != 7
    ]
    assert len(rows(root, verifyCrc=False, **by)) == 40


def test_corrupt_bytes_may_come_as_rows(damaged: tuple[Path, int]) -> None:
    root, place = damaged
    found = rows(root, onCorruptRecord="raw")
    (raw,) = [row for row in found if row["corrupt"]]
    assert raw["body"].count(b"body 07") == 19
    assert (raw["topic"], raw["brokerName"], raw["storeTimestamp"]) == (None, root.name, None)
    assert f"physical offset {place} to " in raw["corrupt"]
    assert len(found) == 40


def test_raw_rows_need_the_column_that_tells_them_apart(tmp_path: Path) -> None:
    open_store(tmp_path).close()
    with pytest.raises(SourceError, match=r"^ORBITMQ_BAD_OPTION: option onCorruptRecord: raw needs the column corrupt"):
        rows(tmp_path, onCorruptRecord="raw", columns="body")


def test_a_queue_that_leads_to_no_message_is_named(damaged: tuple[Path, int]) -> None:
    root, place = damaged
    flip(root, place + 4)  # its magic number
    with pytest.raises(
        SourceError, match=rf"physical offset {place} to .*a queue entry points here, but there is no such"
    ):
        rows(root, topics="T", topicsBy="queues")
    assert len(rows(root, topics="T", topicsBy="queues", onCorruptRecord="skip")) == 39


def test_a_file_that_is_gone_is_lost_data(damaged: tuple[Path, int], caplog: pytest.LogCaptureFixture) -> None:
    root, _ = damaged
    (root / "commitlog" / f"{4096:020d}").unlink()
    for by in ({}, {"topics": "T", "topicsBy": "queues"}):
        with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: store of .*4096 is gone, with \d+ bytes"):
            rows(root, onCorruptRecord="skip", **by)
        left = rows(root, onCorruptRecord="skip", failOnDataLoss=False, **by)
        assert 20 < len(left) < 39
        assert left[-1]["keys"] == "k39"
    assert "event=data_loss" in caplog.text


# ---------------------------------------------------------------------------------------------------- bodies


def test_compressed_bodies_are_unpacked_in_portions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches_module, "PACKED_SIZE", 300)
    store = open_store(tmp_path)
    bodies = [bytes([number]) * 5000 for number in range(30)]
    for number, body in enumerate(bodies):
        packed = number % 3 > 0
        store.put(record(compress(body, "ZLIB", 5), sys_flag=COMPRESSED) if packed else record(body[:50]))
    store.close()
    sizes = [batch.num_rows for batch in batches(tmp_path)]
    assert len(sizes) > 5
    found = [row["body"] for row in rows(tmp_path)]
    assert found == [body if number % 3 else body[:50] for number, body in enumerate(bodies)]
    stored = [row["body"] for row in rows(tmp_path, decompress=False)]
    with StoreReader(tmp_path) as reader:
        assert stored == [unit.body for unit in reader.log_units()]


def test_a_body_that_cannot_be_unpacked_is_damage(tmp_path: Path) -> None:
    store = open_store(tmp_path)
    store.put(record(b"good"))
    store.put(record(b"no zlib stream", sys_flag=COMPRESSED))
    store.put(record(b"good"))
    store.close()
    with pytest.raises(SourceError, match=r"^ORBITMQ_CORRUPT_RECORD: .*queue offset 1"):
        rows(tmp_path)
    assert len(rows(tmp_path, onCorruptRecord="skip")) == 2
    (raw,) = [row for row in rows(tmp_path, onCorruptRecord="raw") if row["corrupt"]]
    assert decode_unit(raw["body"]).body == b"no zlib stream"
