"""What RocketMQ's broker made of transactions, field by field and properties by properties, is what orbitmq makes."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from orbitmq.broker.transactions.half import (
    Half,
    check_unit,
    checked_copy,
    committed,
    copy_record,
    decided_offsets,
    discard_record,
    immune_copy,
    is_transactional,
    make_half,
    op_record,
    read_half,
    resumed_copy,
)
from orbitmq.message.flags import COMPRESSED, TRANSACTION_COMMIT, TRANSACTION_PREPARED
from orbitmq.message.hosts import encode_host
from orbitmq.message.properties import decode_properties, encode_properties
from orbitmq.message.topics import HALF_TOPIC, OP_HALF_TOPIC, TRANSACTION_CHECK_MAX_TOPIC
from orbitmq.message.unit import Unit, decode_unit, encode_unit
from orbitmq.store.records import PutRecord
from orbitmq.wire.header_codec import decode_json_header
from tests.support.golden import manifest, rows, unpack

HOST = encode_host("127.0.0.1", 10911)


@pytest.fixture(scope="module")
def units(tmp_path_factory: pytest.TempPathFactory) -> list[Unit]:
    """Everything in the log of a RocketMQ broker that had transactions of every kind."""
    log = unpack("transaction", tmp_path_factory.mktemp("transaction")) / "commitlog" / "00000000000000000000"
    data = log.read_bytes()
    return [decode_unit(data, message["physicalOffset"]) for message in manifest("transaction")["messages"]]


def of_topic(units: list[Unit], topic: str) -> list[Unit]:
    return [unit for unit in units if unit.topic == topic]


def half_of(unit: Unit, topic: str = HALF_TOPIC) -> Half:
    half = read_half(encode_unit(unit), topic)
    assert half is not None
    return half


def assert_stored_as(record: PutRecord, unit: Unit) -> None:
    """The record becomes this unit, but for place, time and the order of the properties, which is that of a hash map
    with RocketMQ."""
    assert decode_properties(record.properties.decode()) == decode_properties(unit.properties)
    names = ("topic", "queue_id", "body", "flag", "sys_flag", "born_timestamp", "born_host", "store_host")
    names += ("reconsume_times", "prepared_transaction_offset")
    assert {name: getattr(record, name) for name in names} == {name: getattr(unit, name) for name in names}


def originals(units: list[Unit]) -> Iterator[tuple[Half, list[Half]]]:
    """Each half message with its copies, the oldest first."""
    chains: dict[str, list[Half]] = {}
    for half in map(half_of, of_topic(units, HALF_TOPIC)):
        chains.setdefault(half.unique_id, []).append(half)
    for first, *copies in chains.values():
        yield first, copies


def test_a_send_becomes_the_half_message_that_rocketmq_stored(units: list[Unit]) -> None:
    count = 0
    for half, _ in originals(units):
        sent = {name: value for name, value in half.properties.items() if name not in ("REAL_TOPIC", "REAL_QID")}
        record = PutRecord(
            half.topic,
            half.queue_id,
            half.unit.body,
            b"",
            half.unit.born_timestamp,
            half.unit.born_host,
            half.unit.store_host,
            flag=half.unit.flag,
            sys_flag=half.unit.sys_flag | TRANSACTION_PREPARED,
        )
        assert is_transactional(encode_properties(sent))
        make_half(record, encode_properties(sent))
        assert_stored_as(record, half.unit)
        count += 1
    assert count == 30


def test_the_committed_message_is_rocketmqs(units: list[Unit]) -> None:
    places = {unit.physical_offset: unit for unit in units}
    delivered = [unit for unit in units if unit.sys_flag & TRANSACTION_COMMIT]
    assert len(delivered) == 14
    for unit in delivered:
        half = half_of(places[unit.prepared_transaction_offset])
        assert_stored_as(committed(half), unit)
        assert committed(half).properties.decode() == unit.properties, "the text is taken over as it stands"


def test_the_op_message_is_rocketmqs(units: list[Unit]) -> None:
    ops = of_topic(units, OP_HALF_TOPIC)
    assert len(ops) == 21
    for unit in ops:
        (offset,) = decided_offsets(unit.body)
        record = op_record(offset, unit.born_timestamp, unit.store_host)
        assert_stored_as(record, unit)


def test_copies_of_undecided_messages_are_rocketmqs(units: list[Unit]) -> None:
    count = 0
    for first, copies in originals(units):
        for before, copy in zip([first, *copies], copies, strict=False):
            assert_stored_as(copy_record(checked_copy(before)), copy.unit)
            assert not first.is_copy
            assert copy.is_copy
            assert copy.identity == first.identity
            count += 1
    assert count == 60 - sum(1 for _ in originals(units)) > 0


def test_a_message_that_is_given_up_is_rocketmqs(units: list[Unit]) -> None:
    newest = {first.unique_id: (copies or [first])[-1] for first, copies in originals(units)}
    given_up = of_topic(units, TRANSACTION_CHECK_MAX_TOPIC)
    assert len(given_up) == 6
    for unit in given_up:
        half = half_of(unit, TRANSACTION_CHECK_MAX_TOPIC)
        assert half.checks == 3
        assert_stored_as(discard_record(newest[half.unique_id]), unit)


def test_a_producer_is_asked_with_rocketmqs_body() -> None:
    """The captured question is made from the captured send."""
    sends, questions = {}, []
    for row in rows("sessions/client497_broker497__producer_transaction.jsonl"):
        data = bytes.fromhex(row["hex"])
        size = int.from_bytes(data[5:8], "big")
        body = data[8 + size :]
        if row["name"] == "SEND_MESSAGE_V2" and row["kind"] == "request":
            ext = decode_json_header(data[8 : 8 + size], typed=False).ext or {}
            sends[decode_properties(ext.get("i", "")).get("UNIQ_KEY")] = (ext, body)
        elif row["name"] == "CHECK_TRANSACTION_STATE" and row["kind"] == "oneway":
            questions.append((decode_unit(body), body))
    assert len(questions) > 2
    for asked, body in questions:
        ext, sent_body = sends[decode_properties(asked.properties)["UNIQ_KEY"]]
        record = PutRecord(
            ext["b"], asked.queue_id, sent_body, b"", int(ext["g"]), asked.born_host, asked.store_host, int(ext["h"])
        )
        make_half(record, ext["i"] + "\x02CLUSTER\x01DefaultCluster")
        stored = Unit(
            0, asked.body_crc, 0, record.flag, 0, 0, record.sys_flag, record.born_timestamp, record.born_host,
            asked.store_timestamp, record.store_host, 0, 0, bytes(record.body), record.topic,
            record.properties.decode(),
        )  # fmt: skip
        half = half_of(stored)
        for _ in range(int(decode_properties(asked.properties)["TRANSACTION_CHECK_TIMES"])):
            half = checked_copy(half)
        made = decode_unit(check_unit(half, asked.queue_offset, asked.physical_offset))
        assert decode_properties(made.properties) == decode_properties(asked.properties)
        made.properties = asked.properties
        assert encode_unit(made) == body


def unit(**properties: str) -> Unit:
    known = {"REAL_TOPIC": "Orders", "REAL_QID": "2", "PGROUP": "g", "UNIQ_KEY": "u", "TRAN_MSG": "true"}
    text = encode_properties({name: value for name, value in (known | properties).items() if value})
    return Unit(0, 0, 0, 5, 7, 1000, COMPRESSED, 11, HOST, 12, HOST, 0, 0, b"body", HALF_TOPIC, text)


def test_a_delayed_message_is_committed_without_the_mark() -> None:
    """RocketMQ writes the properties of a delayed message anew, after it has cleared the mark."""
    assert decode_properties(committed(half_of(unit(DELAY="3"))).properties.decode()).get("TRAN_MSG") is None
    for delay in ("0", "x", ""):
        assert b"TRAN_MSG\x01true" in committed(half_of(unit(DELAY=delay))).properties


def test_a_spared_copy_remembers_the_first_place() -> None:
    once = half_of(decode_unit(encode_unit(unit())))
    twice = immune_copy(half_of(unit(TRAN_PREPARED_QUEUE_OFFSET="3")))
    assert (immune_copy(once).origin, twice.origin, once.origin) == (7, 3, None)
    assert immune_copy(once).checks == 0
    assert immune_copy(once).is_copy


def test_a_resumed_copy_has_not_been_asked_about() -> None:
    assert resumed_copy(half_of(unit(TRANSACTION_CHECK_TIMES="15"))).properties["TRANSACTION_CHECK_TIMES"] == "0"


@pytest.mark.parametrize(
    "properties", [{"REAL_TOPIC": ""}, {"REAL_QID": ""}, {"REAL_QID": "x"}, {"REAL_QID": "-1"}], ids=str
)
def test_a_message_without_a_real_place_is_no_half_message(properties: dict[str, str]) -> None:
    assert read_half(encode_unit(unit(**properties))) is None


def test_what_is_no_half_message_is_not_read_as_one() -> None:
    stored = encode_unit(unit())
    assert read_half(None) is None
    assert read_half(stored[:-1]) is None
    assert read_half(b"") is None
    assert read_half(stored, TRANSACTION_CHECK_MAX_TOPIC) is None


def test_nonsense_in_properties_counts_as_nothing() -> None:
    half = half_of(unit(TRANSACTION_CHECK_TIMES="often", CHECK_IMMUNITY_TIME_IN_SECONDS="long", UNIQ_KEY=""))
    assert half.checks == 0
    assert half.immunity_ms(6000) == 6000
    assert half.identity is None


@pytest.mark.parametrize(("text", "expected"), [("10", 10_000), ("-1", 6000), ("x", 6000), ("0", 0), ("", None)])
def test_the_time_of_immunity_is_in_seconds(text: str, expected: int | None) -> None:
    assert half_of(unit(CHECK_IMMUNITY_TIME_IN_SECONDS=text)).immunity_ms(6000) == expected


@pytest.mark.parametrize(
    ("body", "offsets"), [(b"7", [7]), (b"7,8,10", [7, 8, 10]), (b"", []), (b"x", []), (b"3,", [3]), (b"-3", [])]
)
def test_an_op_message_may_name_several(body: bytes, offsets: list[int]) -> None:
    assert decided_offsets(body) == offsets


@pytest.mark.parametrize(("value", "expected"), [("true", True), ("TRUE", True), ("false", False), ("yes", False)])
def test_a_message_is_transactional_when_it_says_true(value: str, expected: bool) -> None:
    assert is_transactional(f"KEYS\x01k\x02TRAN_MSG\x01{value}") is expected
