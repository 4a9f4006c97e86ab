"""A range becomes rows: complete, checked and filtered, or an error that names place and reason."""

from __future__ import annotations

import logging

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import to_arrow_schema

from orbitmq.errors import SourceError
from orbitmq.spark import batches
from orbitmq.spark.batches import BatchSettings, RangeBatches, regions
from orbitmq.spark.damage import CORRUPT
from orbitmq.spark.fetch import OffsetRange
from orbitmq.spark.forms import read_schema
from orbitmq.spark.pulls import FetchSettings
from orbitmq.spark.row_filters import PropertyIn
from tests.spark.queue_model import stored_unit
from tests.spark.scripted_peer import queue

RANGE = OffsetRange(queue(0), 100, 110)


def decode(
    bodies: list[bytes],
    *,
    expression: str = "*",
    strict: bool = True,
    verify_crc: bool = True,
    on_corrupt: str = "fail",
    columns: tuple[str, ...] = ("queueOffset", "tags", "body"),
) -> pa.Table:
    if on_corrupt == "raw":
        columns = (*columns, CORRUPT)
    schema = to_arrow_schema(read_schema(columns, "map"), timezone="UTC")
    pulls = FetchSettings("readers", expression, batch_size=32, pipeline=4, timeout_ms=5000, strict=strict)
    filters = () if expression == "*" else (PropertyIn("TAGS", frozenset(expression.split("||"))),)
    settings = BatchSettings(schema, filters, verify_crc, decompress=True, on_corrupt=on_corrupt)
    range_batches = RangeBatches(RANGE, pulls, settings)
    return pa.Table.from_batches(range_batches.decode([[body] for body in bodies]), schema)


def units(*offsets: int) -> list[bytes]:
    return [stored_unit(offset, "a" if offset % 2 else "b") for offset in offsets]


def test_every_message_of_the_range_is_a_row() -> None:
    rows = decode(units(*range(100, 110)))
    assert rows["queueOffset"].to_pylist() == list(range(100, 110))
    assert rows["body"].to_pylist() == [b"body %d" % offset for offset in range(100, 110)]


@pytest.mark.parametrize(
    ("offsets", "text"),
    [
        ((100, 101, 103, 104, 105, 106, 107, 108, 109), "offset 101 is followed by 103"),
        ((101, 102, 103, 104, 105, 106, 107, 108, 109), "offset 99 is followed by 101"),
        ((100, 101, 102, 103, 104, 105, 106, 107, 108), "1 of the 10 messages from offset 100 on are gone"),
        ((100, 101, 101, 102, 103, 104, 105, 106, 107, 108, 109), "offset 101 is followed by 101"),
        ((), "10 of the 10 messages from offset 100 on are gone"),
    ],
    ids=["hole", "start", "end", "repeated", "nothing"],
)
def test_a_hole_in_an_unfiltered_range_is_data_loss(offsets: tuple[int, ...], text: str) -> None:
    with pytest.raises(SourceError, match=rf"^ORBITMQ_DATA_LOSS: queue 0 of topic orders on broker-a: {text}"):
        decode(units(*offsets))


def test_a_lenient_read_counts_what_is_lost(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        assert decode(units(100, 101, 105), strict=False).num_rows == 3
    assert "7 of the 10 messages from offset 100 on are gone" in caplog.text


def test_gaps_are_what_a_filter_leaves(caplog: pytest.LogCaptureFixture) -> None:
    assert decode(units(101, 105), expression="a").num_rows == 2
    assert decode([], expression="a").num_rows == 0
    assert not caplog.text


def test_tags_of_equal_hash_are_filtered_out_here() -> None:
    strangers = [stored_unit(102, "BB"), stored_unit(103), *units(104)]
    assert decode([*units(101), *strangers], expression="a||Aa")["queueOffset"].to_pylist() == [101]
    assert decode(strangers, expression="Aa").num_rows == 0


def test_a_damaged_body_is_named_with_its_place() -> None:
    run = bytearray(b"".join(units(*range(100, 110))))
    run[run.index(b"body 104")] ^= 1
    with pytest.raises(SourceError, match=r"^ORBITMQ_CORRUPT_RECORD: queue 0 of .*queue offset 104 and .*CRC"):
        decode([bytes(run)])
    assert decode([bytes(run)], verify_crc=False).num_rows == 10
    assert decode([bytes(run)], columns=("queueOffset",)).num_rows == 10


def test_bytes_that_are_no_units_are_named_with_their_place() -> None:
    with pytest.raises(SourceError, match=r"^ORBITMQ_CORRUPT_RECORD: queue 0 of .*at or after offset 100: no message"):
        decode([b"junk" * 50])


def test_answers_are_decoded_many_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "DECODE_SIZE", 10)
    assert list(regions([[b"abcd", b"efgh"], [b"ijkl", b"mn"], [b"opqrstuvwxyz"]])) == [
        b"abcdefghijkl",
        b"mnopqrstuvwxyz",
    ]
    assert list(regions([])) == []


def test_a_message_that_is_damaged_may_be_skipped(caplog: pytest.LogCaptureFixture) -> None:
    run = bytearray(b"".join(units(*range(100, 110))))
    run[run.index(b"body 104")] ^= 1
    rows = decode([bytes(run)], on_corrupt="skip")
    assert rows["queueOffset"].to_pylist() == [100, 101, 102, 103, 105, 106, 107, 108, 109]
    assert "queue offset 104" in caplog.text


def test_a_message_that_is_damaged_may_come_as_stored() -> None:
    messages = units(*range(100, 110))
    messages[4] = messages[4].replace(b"body 104", b"body 10_")
    rows = decode([b"".join(messages)], on_corrupt="raw")
    assert rows["queueOffset"].to_pylist() == list(range(100, 110))
    assert rows["body"][4].as_py() == messages[4]
    assert "CRC" in rows[CORRUPT][4].as_py()
    assert rows[CORRUPT].null_count == 9


SIZE, MAGIC, BODY_SIZE = slice(0, 4), slice(4, 8), slice(84, 88)


@pytest.mark.parametrize("field", [SIZE, MAGIC, BODY_SIZE], ids=["size", "magic", "body size"])
@pytest.mark.parametrize("number", [0, 4, 9], ids=["first", "middle", "last"])
def test_what_is_no_message_is_kept_apart_from_its_neighbours(number: int, field: slice) -> None:
    messages = [bytearray(one) for one in units(*range(100, 110))]
    messages[number][field] = b"\x7f\xff\xff\xff"
    sound = [offset for offset in range(100, 110) if offset != 100 + number]
    skipped = decode([b"".join(messages)], on_corrupt="skip")
    assert skipped["queueOffset"].to_pylist() == sound
    raw = decode([b"".join(messages)], on_corrupt="raw")
    assert raw["queueOffset"].to_pylist() == list(range(100, 110))
    assert raw["body"][number].as_py() == bytes(messages[number])
    assert [text is None for text in raw[CORRUPT].to_pylist()] == [offset in sound for offset in range(100, 110)]


def test_a_copy_of_a_message_in_a_broken_one_is_no_message() -> None:
    messages = units(*range(100, 110))
    stranger, earlier = stored_unit(50), stored_unit(101)
    messages[4] = b"\x00" * 8 + stranger + earlier
    raw = decode([b"".join(messages)], on_corrupt="raw")
    assert raw["queueOffset"].to_pylist() == list(range(100, 110))
    assert raw["body"][4].as_py() == messages[4]


def test_a_message_that_did_not_come_is_lost_whatever_else_is_broken() -> None:
    messages = [bytearray(one) for one in units(*range(100, 105), 106, 107, 108, 109)]
    messages[1][MAGIC] = b"junk"
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: .*offset 104 is followed by 106"):
        decode([b"".join(messages)], on_corrupt="skip")
