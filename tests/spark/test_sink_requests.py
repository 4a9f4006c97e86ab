"""Rows become the bytes a client would send: properties, batch items, and the places where requests are cut."""

from __future__ import annotations

import itertools
import struct
import zlib
from collections.abc import Sequence
from typing import Any

import numpy as np
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pyspark.sql.types import ArrayType, DataType, DoubleType, IntegerType, MapType, StringType, StructField, StructType

from orbitmq.errors import SourceError
from orbitmq.message.properties import RESERVED, decode_properties
from orbitmq.spark.sink_columns import SinkColumns, sink_columns
from orbitmq.spark.sink_keys import KeyCounts, RowKeys, TaskIdentity, TaskMark, digest
from orbitmq.spark.sink_options import write_options
from orbitmq.spark.sink_requests import ANY_QUEUE, EncodedRows, SendRequest, SinkRows

MAP = pa.map_(pa.string(), pa.string())
TASK = TaskIdentity("job", "7", 3)


def encoded(
    columns: dict[str, pa.Array], *, mark: TaskMark | None = None, keys: Sequence[str] | None = None, **options: object
) -> EncodedRows:
    batch = pa.record_batch(columns)
    places = SinkColumns({name: place for place, name in enumerate(columns)})
    settings = write_options(
        {"nameServer": "n:1", "topic": "orders", **{key: str(value) for key, value in options.items()}}
    )
    numbers = itertools.count()
    found = RowKeys(places, TASK).of(batch) if keys is None else keys
    return EncodedRows(SinkRows(batch, found), places, settings, "orders", lambda: f"ID{next(numbers)}", mark)


def requests(made: EncodedRows, queues: Sequence[int] | None = None) -> list[SendRequest]:
    return list(made.requests(np.array([ANY_QUEUE] * len(made) if queues is None else queues, np.int64)))


def messages(request: SendRequest) -> list[tuple[int, bytes, str]]:
    """Flag, body and properties text of each message of a request, read with nothing but struct."""
    if not request.batch:
        return [(request.flag, request.body, request.properties)]
    found, at = [], 0
    while at < len(request.body):
        size, magic, crc, flag, body_size = struct.unpack_from(">5i", request.body, at)
        assert (magic, crc) == (0, 0)
        body_end = at + 20 + body_size
        (text_size,) = struct.unpack_from(">h", request.body, body_end)
        assert body_end + 2 + text_size == at + size
        found.append((flag, request.body[at + 20 : body_end], request.body[body_end + 2 : at + size].decode()))
        at += size
    return found


texts = st.text(st.characters(exclude_characters="\x01\x02", exclude_categories=("Cs",)), max_size=8)
rows = st.lists(
    st.tuples(
        st.binary(min_size=1, max_size=40),
        st.none() | texts,
        st.none() | st.dictionaries(texts | st.sampled_from(sorted(RESERVED)), st.none() | texts, max_size=4),
        st.integers(-(2**31), 2**31 - 1),
    ),
    min_size=1,
    max_size=12,
)


@given(rows, st.data())
def test_every_row_arrives_with_its_body_flag_and_properties(drawn: list[Any], data: st.DataObject) -> None:
    bodies, tags, properties, flags = zip(*drawn, strict=True)
    columns = {
        "body": pa.array(bodies, pa.binary()),
        "tags": pa.array(tags, pa.string()),
        "properties": pa.array([None if p is None else list(p.items()) for p in properties], MAP),
        "flag": pa.array(flags, pa.int32()),
    }
    start = data.draw(st.integers(0, len(bodies) - 1))  # slices of a batch have offsets of their own
    made = encoded({name: column.slice(start) for name, column in columns.items()}, batchBytes=1024)
    found = [message for request in requests(made) for message in messages(request)]
    expected = drawn[start:]
    assert [(flag, body) for flag, body, _ in found] == [(flag, body) for body, _, _, flag in expected]
    for row, ((_, _, text), (_, tag, given_properties, _)) in enumerate(zip(found, expected, strict=True)):
        kept = {k: v for k, v in (given_properties or {}).items() if k and v and (k not in RESERVED or k == "KEYS")}
        own = {"TAGS": tag} if tag else {}
        found_properties = decode_properties(text)
        assert len(found_properties.pop("ORBIT_IK")) == 32
        assert found_properties == {**kept, **own, "UNIQ_KEY": f"ID{row}"}
        assert not text.endswith("\x02")


def test_headers_of_kafka_are_properties() -> None:
    pair = pa.struct([("key", pa.string()), ("value", pa.binary())])
    headers = pa.array([[{"key": "city", "value": b"K\xc3\xb6ln"}], None], pa.list_(pair))
    made = encoded({"body": pa.array(["a", "b"]), "properties": headers}, idempotencyKeyIn="none")
    first, second = (decode_properties(text) for _, _, text in messages(requests(made)[0]))
    assert first == {"city": "Köln", "UNIQ_KEY": "ID0"}
    assert second == {"UNIQ_KEY": "ID1"}


def test_requests_are_cut_by_queue_and_size_and_keep_the_order_of_each_queue() -> None:
    bodies = [bytes([n]) * 300 for n in range(12)]
    bodies[5] = b"L" * 2000  # larger than a request may be: goes alone
    made = encoded({"body": pa.array(bodies, pa.binary())}, batchBytes=1024)
    cut = requests(made, [n % 2 for n in range(12)])
    assert all(len(request.body) <= 1024 for request in cut if request.batch)
    assert [request.queue for request in cut] == sorted(request.queue for request in cut)
    for queue in (0, 1):
        sent = [body for request in cut if request.queue == queue for _, body, _ in messages(request)]
        assert sent == bodies[queue::2]
    (large,) = [request for request in cut if not request.batch]
    assert (large.body, large.queue, large.count) == (bodies[5], 1, 1)


def test_delayed_messages_go_alone() -> None:
    made = encoded({"body": pa.array(["a", "b", "c"]), "delayLevel": pa.array([0, 3, None], pa.int32())})
    cut = requests(made)
    assert [(request.batch, request.count) for request in cut] == [(True, 1), (False, 1), (True, 1)]
    assert decode_properties(cut[1].properties)["DELAY"] == "3"
    assert "DELAY" not in cut[0].body.decode(errors="replace")


def test_a_time_of_expiry_replaces_that_of_a_message_that_was_read() -> None:
    columns = {
        "body": pa.array(["a", "b"]),
        "properties": pa.array([[("EXPIRES_AT_MS", "1"), ("city", "Rome")], [("EXPIRES_AT_MS", "1")]], MAP),
    }
    times = pa.array([1_700_000_000_123_000, None], pa.timestamp("us", tz="Europe/Berlin"))
    for more, expected in (({}, ["1", "1"]), ({"expiryTime": times}, ["1700000000123", None])):
        (request,) = requests(encoded({**columns, **more}, idempotencyKeyIn="none"))
        found = [decode_properties(text) for _, _, text in messages(request)]
        assert [one.get("EXPIRES_AT_MS") for one in found] == expected
        assert found[0]["city"] == "Rome"


@pytest.mark.parametrize(
    ("column", "expected"), [("tags", "customer-7"), ("queueKey", "customer-7"), ("shardingKey", "other")]
)
def test_a_sharding_key_that_was_read_is_kept_unless_a_column_replaces_it(column: str, expected: str) -> None:
    properties = pa.array([[("__SHARDINGKEY", "customer-7")]], MAP)
    made = encoded({"body": pa.array(["a"]), "properties": properties, column: pa.array(["other"])})
    (text,) = (text for request in requests(made) for _, _, text in messages(request))
    assert decode_properties(text)["__SHARDINGKEY"] == expected
    assert "other" not in text or column != "queueKey"


def test_a_born_time_is_kept_by_messages_that_go_alone() -> None:
    born = pa.array([1_700_000_000_123_000], pa.timestamp("us", tz="Europe/Berlin"))
    (request,) = requests(encoded({"body": pa.array(["a"]), "bornTimestamp": born}, sendMode="single"))
    assert request.born_ms == 1_700_000_000_123


def test_messages_to_a_retry_topic_go_alone() -> None:
    batch = pa.record_batch({"body": pa.array(["a", "b"])})
    options = write_options({"nameServer": "n:1", "idempotencyKeyIn": "none"})
    made = EncodedRows(SinkRows(batch, []), SinkColumns({"body": 0}), options, "%RETRY%group", lambda: "ID")
    assert [request.batch for request in requests(made)] == [False, False]


def test_only_a_message_to_a_retry_topic_keeps_what_consumers_of_retries_look_for() -> None:
    origin = {"RETRY_TOPIC": "orders", "ORIGIN_MESSAGE_ID": "0A"}
    batch = pa.record_batch({"body": pa.array(["a"]), "properties": pa.array([list(origin.items())], MAP)})
    options = write_options({"nameServer": "n:1", "idempotencyKeyIn": "none"})
    for topic, kept in (("%RETRY%group", origin), ("orders", {})):
        made = EncodedRows(SinkRows(batch, []), SinkColumns({"body": 0, "properties": 1}), options, topic, lambda: "ID")
        ((_, _, text),) = messages(requests(made)[0])
        assert {name: value for name, value in decode_properties(text).items() if name in origin} == kept


@pytest.mark.parametrize(
    ("columns", "expected"),
    [
        ({"keys": pa.array(["k1 k2", None])}, ["k1 k2 M", "M"]),
        ({"keys": pa.array([["k1", "k2"], None], pa.list_(pa.string()))}, ["k1 k2 M", "M"]),
        ({"properties": pa.array([[("KEYS", "p1")], None], MAP)}, ["p1 M", "M"]),
        ({}, ["M", "M"]),
    ],
)
def test_a_mark_stands_behind_the_keys_of_the_row(columns: dict[str, pa.Array], expected: list[str]) -> None:
    made = encoded({"body": pa.array(["a", "b"]), **columns}, mark=TaskMark("M", frozenset({"b", "a"})))
    (request,) = requests(made)
    found = [decode_properties(text) for _, _, text in messages(request)]
    assert [each["KEYS"] for each in found] == expected
    assert {each["ORBIT_BROKERS"] for each in found} == {"a,b"}
    assert request.marked


def test_idempotency_keys_are_found_among_the_keys_when_asked_for() -> None:
    made = encoded({"body": pa.array(["a"]), "keys": pa.array(["k"])}, keys=["f" * 32], idempotencyKeyIn="keys")
    ((_, _, text),) = messages(requests(made)[0])
    assert decode_properties(text)["KEYS"] == f"k {'f' * 32}"


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ({"body": pa.array(["a", None])}, "row 1 of a batch of 2 has no body"),
        ({"body": pa.array(["", "a"])}, "row 0 of a batch of 2 has no body"),
        ({"body": pa.array(["a"]), "tags": pa.array(["x\x02y"])}, "TAGS: the character 0x02"),
        ({"body": pa.array(["a"]), "properties": pa.array([[("a\x01", "b")]], MAP)}, "properties: the character 0x01"),
        ({"body": pa.array(["a"]), "keys": pa.array([b"\xff"])}, "column keys: "),
    ],
)
def test_a_row_that_cannot_be_a_message_is_refused(columns: dict[str, pa.Array], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        requests(encoded(columns))
    assert str(caught.value).startswith(f"ORBITMQ_BAD_ROW: {text}")


def test_keys_tell_what_a_row_is_from_the_best_that_is_known() -> None:
    body = pa.array(["a", "b"])
    places = {"topic": 1, "brokerName": 2, "queueId": 3, "queueOffset": 4}
    origin = [pa.array(["t", "t"]), pa.array(["b-a", "b-a"]), pa.array([0, 1], pa.int32()), pa.array([5, 6])]
    given_key = pa.array(["order-1", None])
    batch = pa.RecordBatch.from_arrays([body, *origin, given_key], ["body", *places, "idempotencyKey"])
    by_all = RowKeys(SinkColumns({"body": 0, **places, "idempotencyKey": 5}), TASK).of(batch)
    by_origin = RowKeys(SinkColumns({"body": 0, **places}), TASK).of(batch)
    by_row = RowKeys(SinkColumns({"body": 0}), TASK)
    assert by_all == [digest("k", "order-1"), by_origin[1]]
    sums = [zlib.crc32(b"a"), zlib.crc32(b"b")]
    assert by_origin == [digest("c", "t", "b-a", 0, 5, sums[0]), digest("c", "t", "b-a", 1, 6, sums[1])]
    assert by_row.of(batch.slice(1)) == [digest("p", "job", "7", 3, 0, sums[1])]
    assert by_row.of(batch) == [digest("p", "job", "7", 3, 1, sums[0]), digest("p", "job", "7", 3, 2, sums[1])]
    # Programs that drop repetitions may make such keys themselves: this value must never change.
    assert digest("k", "order-1") == "6dc6a6020efc389a6d542ecd9b10372c"


@pytest.mark.parametrize(
    "changed",
    [
        {"body": pa.array(["a", "x"])},
        {"keys": pa.array(["k", None])},
        {"tags": pa.array([None, "x"])},
        {"properties": pa.array([[("n", "1")], [("n", "3")]], MAP)},
        {"flag": pa.array([1, 9])},
        {"delayLevel": pa.array([None, 3])},
        {"deliverTime": pa.array([None, 5])},
        {"expiryTime": pa.array([None, 5])},
        {"shardingKey": pa.array(["s", "x"])},
    ],
)
def test_another_message_in_the_same_place_has_another_key(changed: dict[str, pa.Array]) -> None:
    columns = {
        "body": pa.array(["a", "b"]),
        "keys": pa.array(["k", "k"]),
        "tags": pa.array([None, "t"]),
        "properties": pa.array([[("n", "1")], [("n", "2")]], MAP),
        "flag": pa.array([1, 2]),
        "delayLevel": pa.array([None, 2]),
        "deliverTime": pa.array([None, 4]),
        "expiryTime": pa.array([None, 4]),
        "shardingKey": pa.array(["s", "t"]),
    }
    places = SinkColumns({name: place for place, name in enumerate(columns)})
    before, again, after = (
        RowKeys(places, TASK).of(pa.record_batch(each)) for each in (columns, columns, {**columns, **changed})
    )
    assert before == again
    assert (before[0] == after[0], before[1] == after[1]) == (True, False)


def exploded(messages: Sequence[tuple[int | None, str]]) -> pa.RecordBatch:
    """Rows made of the messages with these offsets."""
    offsets, texts = zip(*messages, strict=True)
    origin = {"topic": pa.array(["t"] * len(texts)), "brokerName": pa.array(["b"] * len(texts))}
    queue = {"queueId": pa.array([0] * len(texts)), "queueOffset": pa.array(offsets, pa.int64())}
    return pa.record_batch({"body": pa.array(texts), **origin, **queue})


ROWS = [(offset, text) for offset in range(4) for text in ("a", "b", "b", "c")]
BY_ORIGIN = SinkColumns({"body": 0, "topic": 1, "brokerName": 2, "queueId": 3, "queueOffset": 4})


@given(st.permutations(ROWS), st.integers(1, len(ROWS)))
def test_rows_made_of_one_message_have_keys_of_their_own_in_any_order(shuffled: list[Any], size: int) -> None:
    keys: dict[tuple[int, str], list[str]] = {}
    made = RowKeys(BY_ORIGIN, TaskIdentity("other", "", 9))
    for at in range(0, len(shuffled), size):
        piece = shuffled[at : at + size]
        for row, key in zip(piece, made.of(exploded(piece)), strict=True):
            keys.setdefault(row, []).append(key)
    assert len(set(itertools.chain(*keys.values()))) == len(ROWS)
    in_order = RowKeys(BY_ORIGIN, TASK).of(exploded(ROWS))
    for row, found in keys.items():
        assert found == [key for key, other in zip(in_order, ROWS, strict=True) if other == row]


def test_rows_without_a_message_are_told_apart_by_their_place() -> None:
    made = RowKeys(BY_ORIGIN, TASK)
    keys = [*made.of(exploded([(None, "a"), (None, "a"), (3, "a")])), *made.of(exploded([(None, "a"), (3, "a")]))]
    assert len(set(keys)) == 5
    assert keys[0] == digest("p", "job", "7", 3, 0, zlib.crc32(b"a"))


@given(st.lists(st.lists(st.integers(0, 30), max_size=40), max_size=12))
def test_keys_are_counted_over_all_batches(batches: list[list[int]]) -> None:
    counts, seen = KeyCounts(), [0] * 31
    for batch in batches:
        expected = []
        for place, number in enumerate(batch):
            if seen[number]:
                expected.append((place, seen[number]))
            seen[number] += 1
        assert counts.repeats([digest(number) for number in batch]) == expected


def schema(*columns: tuple[str, DataType]) -> StructType:
    return StructType([StructField(name, kind) for name, kind in columns])


TEXT, NUMBER = StringType(), IntegerType()


@pytest.mark.parametrize(
    ("columns", "text"),
    [
        ([("amount", DoubleType()), ("body", TEXT)], "a message has no amount; the columns are body (or value), topic"),
        ([("keys", TEXT)], "there is no column body (or value); add one, e.g. to_json(struct(*)) AS body"),
        ([("body", TEXT), ("value", TEXT)], "column value occurs twice"),
        ([("body", NUMBER)], "column body is int; it may be string, binary"),
        ([("body", TEXT), ("properties", MapType(TEXT, NUMBER))], "column properties is map<string,int>"),
        ([("body", TEXT), ("keys", ArrayType(NUMBER))], "column keys is array<int>"),
    ],
)
def test_a_schema_that_is_no_message_is_refused_with_a_hint(columns: list[tuple[str, DataType]], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        sink_columns(schema(*columns), topic_given=True)
    assert str(caught.value).startswith(f"ORBITMQ_BAD_SCHEMA: {text}")


def test_a_frame_without_a_topic_needs_the_option() -> None:
    with pytest.raises(SourceError, match="neither option topic nor a column topic"):
        sink_columns(schema(("body", TEXT)), topic_given=False)
    assert "topic" in sink_columns(schema(("body", TEXT), ("topic", TEXT)), topic_given=False)


@pytest.mark.parametrize(
    ("given_options", "text"),
    [
        ({"topic": "a", "path": "b"}, "option topic is a, but save() got b"),
        ({"topic": "SCHEDULE_TOPIC_XXXX"}, "option topic: sending to the system topic"),
        ({"onOversize": "dlq:"}, "option onOversize: value 'dlq:' is not allowed"),
        ({"onOversize": "dlq:a b"}, "option onOversize: the topic 'a b' holds other characters"),
        ({"deliveryGuarantee": "effectively-once", "idempotencyKeyIn": "none"}, "option idempotencyKeyIn: effec"),
        ({"deliveryGuarantee": "effectively-once", "ackPolicy": "safe"}, "option ackPolicy: safe sends a stored"),
        ({"expectBrokers": "a"}, "option expectBrokers needs deliveryGuarantee=effectively-once"),
        ({"subscribe": "a"}, "option subscribe is unknown; that is an option of reads"),
        ({"mode": "append"}, 'option mode is unknown; call .mode("append")'),
    ],
)
def test_a_mistaken_option_is_refused_by_name(given_options: dict[str, str], text: str) -> None:
    with pytest.raises(SourceError) as caught:
        write_options({"nameServer": "n:1", **given_options})
    assert str(caught.value).startswith(f"ORBITMQ_BAD_OPTION: {text}")


def test_options_of_the_engine_are_let_through() -> None:
    given_options = {"nameServer": "n:1", "path": "orders", "checkpointLocation": "/c", "queryName": "q"}
    assert write_options(given_options).topic == "orders"
