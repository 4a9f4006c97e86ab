"""A range becomes rows: complete, checked and filtered, or an error that names place and reason."""

from __future__ import annotations

import logging
from collections.abc import Sequence

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.pandas.types import from_arrow_type, to_arrow_schema
from pyspark.sql.types import LongType, StructField, StructType

from orbitmq.errors import SourceError
from orbitmq.spark import batches
from orbitmq.spark.batches import BatchSettings, RangeBatches, regions
from orbitmq.spark.bodies.reader import BodyReader
from orbitmq.spark.bodies.schema import BodySchema
from orbitmq.spark.damage import CORRUPT
from orbitmq.spark.fetch import OffsetRange, Piece
from orbitmq.spark.forms import read_schema
from orbitmq.spark.pulls import FetchSettings
from orbitmq.spark.row_filters import PropertyIn
from tests.spark.queue_model import stored_unit
from tests.spark.scripted_peer import queue

RANGE = OffsetRange(queue(0), 100, 110)
NEXT = OffsetRange(queue(1), 0, 5)


def decode(
    bodies: Sequence[bytes | Piece],
    *others: OffsetRange,
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
    pieces = [(RANGE, body) if isinstance(body, bytes) else body for body in bodies]
    range_batches = RangeBatches([RANGE, *others], pulls, settings)
    return pa.Table.from_batches(range_batches.decode([[piece] for piece in pieces]), schema)


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
    runs = [[(RANGE, b"abcd"), (RANGE, b"efgh")], [(RANGE, b"ijkl"), (RANGE, b"mn")], [(NEXT, b"opqrstuvwxyz")]]
    assert list(regions(runs)) == [
        [(RANGE, [b"abcd", b"efgh", b"ijkl"])],
        [(RANGE, [b"mn"]), (NEXT, [b"opqrstuvwxyz"])],
    ]
    assert list(regions([])) == []


def test_answers_in_another_block_are_decoded_apart(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "DECODE_SIZE", 10)
    first, second = memoryview(b"abcdefgh"), memoryview(b"ijklmnop")
    runs = [[(RANGE, first[:3]), (RANGE, first[3:6])], [(RANGE, second[:2]), (NEXT, first[6:]), (NEXT, second[2:4])]]
    assert list(regions(runs)) == [
        [(RANGE, [b"abc", b"def"])],
        [(RANGE, [b"ij"]), (NEXT, [b"gh", b"kl"])],  # too little for a region of its own, so it will be copied
    ]


@given(st.lists(st.integers(0, 9), min_size=1, max_size=9), st.booleans())
def test_answers_are_rows_wherever_they_were_received(sizes: list[int], backwards: bool) -> None:
    """Bodies of one block, in their order or not, with other bytes between them, or each on its own."""
    offsets = iter(range(100, 200))
    bodies = [b"".join(units(*(next(offsets) for _ in range(size)))) for size in sizes if size]
    bodies = bodies or units(100)
    wanted = OffsetRange(queue(0), 100, 100 + sum(body.count(b"body ") for body in bodies))
    order = range(len(bodies))[:: -1 if backwards else 1]
    block, starts = b"", {}
    for number in order:
        block += b"header"
        starts[number] = len(block)
        block += bodies[number]
    views = [memoryview(block)[starts[number] : starts[number] + len(bodies[number])] for number in range(len(bodies))]
    expected = decode([(wanted, b"".join(bodies))], wanted, strict=False)
    assert decode([(wanted, view) for view in views], wanted, strict=False).equals(expected)


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


# ------------------------------------------------------------------------------------------- several ranges of a task

NEIGHBOURS = (NEXT, OffsetRange(queue(2), 7, 9), OffsetRange(queue(3), 0, 2))
DAMAGES = {"size": SIZE, "magic": MAGIC, "body size": BODY_SIZE, "body": slice(88, 90)}


def together(numbers: Sequence[int] = range(4)) -> list[Piece]:
    """A region with the messages of all ranges, or of those with these numbers."""
    ranges = (RANGE, *NEIGHBOURS)
    return [(ranges[number], b"".join(units_of(ranges[number]))) for number in numbers]


def units_of(range_: OffsetRange) -> list[bytes]:
    return [stored_unit(offset, queue_id=range_.queue.queue_id) for offset in range(range_.start, range_.end)]


def test_short_ranges_share_a_batch() -> None:
    rows = decode(together(), *NEIGHBOURS, columns=("queueId", "queueOffset"))
    assert rows["queueOffset"].num_chunks == 1
    wanted = [(each.queue.queue_id, at) for each in (RANGE, *NEIGHBOURS) for at in range(each.start, each.end)]
    assert list(zip(rows["queueId"].to_pylist(), rows["queueOffset"].to_pylist(), strict=True)) == wanted


@pytest.mark.parametrize(("missing", "text"), [(1, "queue 1 .*5 of the 5"), (3, "queue 3 .*2 of the 2")])
def test_a_range_of_which_nothing_came_is_named(missing: int, text: str) -> None:
    there = [number for number in range(4) if number != missing]
    with pytest.raises(SourceError, match=f"^ORBITMQ_DATA_LOSS: {text} messages"):
        decode(together(there), *NEIGHBOURS)


def test_a_body_of_several_ranges_that_does_not_fit_is_named_by_its_queue() -> None:
    region: list[Piece] = []
    for each in (RANGE, NEXT):
        for at in range(each.start, each.end):
            body = b"[]" if (each, at) == (NEXT, 2) else b'{"at": %d}' % at
            region.append((each, stored_unit(at, queue_id=each.queue.queue_id, body=body)))
    kind = pa.struct([("at", pa.int64())])

    def read(mode: str) -> pa.Table:
        columns = StructType([StructField("queueOffset", LongType()), StructField("value", from_arrow_type(kind))])
        schema = to_arrow_schema(columns, timezone="UTC")
        reader = BodyReader(BodySchema("json", kind), kind, mode, rescues=False)
        pulls = FetchSettings("readers", "*", batch_size=32, pipeline=4, timeout_ms=5000, strict=True)
        settings = BatchSettings(schema, (), verify_crc=True, decompress=True, bodies=reader)
        return pa.Table.from_batches(RangeBatches([RANGE, NEXT], pulls, settings).decode([region]), schema)

    with pytest.raises(
        SourceError, match=r"^ORBITMQ_BAD_BODY: the body of queue 1 of topic orders on broker-a at offset 2 does not"
    ):
        read("failfast")
    kept = read("dropmalformed")
    assert kept["queueOffset"].to_pylist() == [*range(100, 110), 0, 1, 3, 4]
    assert [value["at"] for value in kept["value"].to_pylist()] == kept["queueOffset"].to_pylist()


def test_a_hole_in_one_of_several_ranges_names_its_queue() -> None:
    region = together()
    region[1] = NEXT, b"".join(units_of(NEXT)[:2] + units_of(NEXT)[3:])
    with pytest.raises(SourceError, match=r"^ORBITMQ_DATA_LOSS: queue 1 of .*: offset 1 is followed by 3"):
        decode(region, *NEIGHBOURS)


@pytest.mark.parametrize("damage", DAMAGES.values(), ids=DAMAGES)
@pytest.mark.parametrize("number", [0, 1, 4], ids=["first", "middle", "last"])
def test_damage_in_one_of_several_ranges_is_told_of_its_queue_and_costs_no_other(number: int, damage: slice) -> None:
    messages = [bytearray(one) for one in units_of(NEXT)]
    messages[number][damage] = b"\x7f\xff\xff\xff"[: damage.stop - damage.start]
    region = together()
    region[1] = NEXT, b"".join(messages)
    with pytest.raises(SourceError, match=r"^ORBITMQ_CORRUPT_RECORD: queue 1 of topic orders on broker-a, at or after"):
        decode(region, *NEIGHBOURS)
    everything = [(each.queue.queue_id, at) for each in (RANGE, *NEIGHBOURS) for at in range(each.start, each.end)]
    for how, rows in (("skip", [place for place in everything if place != (1, number)]), ("raw", everything)):
        found = decode(region, *NEIGHBOURS, on_corrupt=how, columns=("queueId", "queueOffset", "body"))
        assert list(zip(found["queueId"].to_pylist(), found["queueOffset"].to_pylist(), strict=True)) == rows
    broken = [text for text in found[CORRUPT].to_pylist() if text]
    assert len(broken) == 1
    assert broken[0].startswith("queue 1 of topic orders on broker-a: ")


def test_a_unit_that_claims_the_next_range_does_not_get_it() -> None:
    """The last unit of a range is damaged so that it seems to end with the first one of the next range."""
    after = OffsetRange(queue(1), 200, 205)
    first, *others = units_of(after)
    long = bytearray(units_of(RANGE)[-1])
    for field in (SIZE, BODY_SIZE):
        long[field] = (int.from_bytes(long[field], "big") + len(first)).to_bytes(4, "big")
    region = [(RANGE, b"".join([*units_of(RANGE)[:-1], long])), (after, b"".join([first, *others]))]
    found = decode(region, after, on_corrupt="raw", columns=("queueId", "queueOffset", "body"))
    places = list(zip(found["queueId"].to_pylist(), found["queueOffset"].to_pylist(), strict=True))
    assert places == [(0, at) for at in range(100, 110)] + [(1, at) for at in range(200, 205)]
    assert [text is not None for text in found[CORRUPT].to_pylist()] == [False] * 9 + [True] + [False] * 5
