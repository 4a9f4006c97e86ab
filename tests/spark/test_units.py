"""The column decoder gives what the plain decoder of `orbitmq.message.unit` gives, for units of Java and others."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.errors import UnitError
from orbitmq.message.compression import COMPRESSION_FLAGS, compress
from orbitmq.message.flags import BORN_HOST_V6, COMPRESSED, STORE_HOST_V6
from orbitmq.message.hosts import encode_host
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import KEYS, TAGS, UNIQ_KEY
from orbitmq.message.unit import MAGIC_LONG_TOPIC, Unit, body_crc, decode_unit, decode_units, encode_unit, message_of
from orbitmq.spark import unit_loops
from orbitmq.spark.units import Units, unit_positions
from tests.support import golden
from tests.support.frames import Frame, files, frames

STORES = sorted(path.name.removesuffix(".json.gz") for path in (golden.GOLDEN / "stores").glob("*.json.gz"))


@pytest.fixture(autouse=True, scope="module", params=[True, False], ids=["loops", "columns"])
def by_loops(request: pytest.FixtureRequest) -> Iterator[None]:
    """Everything below by the loops that are compiled in the platform wheel, and by operations on columns."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(unit_loops, "IS_COMPILED", request.param)
        yield


def decoded(units: Units) -> list[dict[str, Any]]:
    """Everything the column decoder says about the units, one row each."""
    properties = units.properties
    names = ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag", "born_timestamp", "store_timestamp")
    numbers = (*names, "reconsume_times", "prepared_transaction_offset", "body_crc")
    columns = {
        **{name: units.field(name).tolist() for name in numbers},
        "topic": units.topics().to_pylist(),
        "born_host": units.born_hosts.to_pylist(),
        "store_host": units.store_hosts.to_pylist(),
        "offset_msg_id": units.offset_ids().to_pylist(),
        "stored_body": units.stored_bodies().to_pylist(),
        "body": units.bodies().to_pylist(),
        "properties_text": units.properties_text().to_pylist(),
        "properties": [dict(pairs) for pairs in properties.maps().to_pylist()],
        "tags": properties.column(TAGS).to_pylist(),
        "keys": properties.column(KEYS).to_pylist(),
        "unique": properties.column(UNIQ_KEY).to_pylist(),
    }
    return [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]


def expected(unit: Unit) -> dict[str, Any]:
    """The same, by the plain decoder."""
    message: MessageExt = message_of(unit)
    return {
        **{name: getattr(unit, name) for name in ("queue_id", "flag", "queue_offset", "physical_offset", "sys_flag")},
        **{name: getattr(unit, name) for name in ("born_timestamp", "store_timestamp", "reconsume_times")},
        "prepared_transaction_offset": unit.prepared_transaction_offset,
        "body_crc": unit.body_crc,
        "topic": unit.topic,
        "born_host": message.born_host,
        "store_host": message.store_host,
        "offset_msg_id": message.offset_msg_id,
        "stored_body": unit.body,
        "body": message.body,
        "properties_text": unit.properties,
        "properties": message.properties,
        "tags": message.properties.get(TAGS),
        "keys": message.properties.get(KEYS),
        "unique": message.properties.get(UNIQ_KEY),
    }


def runs_of(commit_log: Path) -> Iterator[bytes]:
    """The run of units at the start of each commit log file."""
    for path in sorted(commit_log.iterdir()):
        data = path.read_bytes()
        end = 0
        while end < len(data):
            try:
                end += decode_unit(data, end).size
            except UnitError:
                break
        yield data[:end]


@pytest.mark.parametrize("case", STORES)
def test_commit_logs_of_java_are_decoded_as_the_plain_decoder_does(case: str, tmp_path: Path) -> None:
    found = 0
    for run in filter(None, runs_of(golden.unpack(case, tmp_path) / "commitlog")):
        units = [expected(unit) for unit in decode_units(run)]
        assert decoded(Units(run, unit_positions(run))) == units
        found += len(units)
    manifest = golden.manifest(case)
    if manifest["clean_shutdown"]:
        assert found == len(manifest["messages"])
    assert found


def test_pull_answers_of_java_are_decoded_as_the_plain_decoder_does() -> None:
    answers = [frame for name in files() if "consumer" in name for frame in frames(name) if is_pulled(frame)]
    assert len(answers) > 100
    for frame in answers:
        units = Units(frame.body, unit_positions(frame.body))
        assert decoded(units) == [expected(unit) for unit in decode_units(frame.body)], frame


def is_pulled(frame: Frame) -> bool:
    return frame.is_response and frame.name == "PULL_MESSAGE" and frame.row["code"] == 0


V4 = st.builds(encode_host, st.ip_addresses(v=4).map(str), st.integers(0, 65535))
V6 = st.builds(encode_host, st.ip_addresses(v=6).map(str), st.integers(0, 65535))
INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT64 = st.integers(-(1 << 63), (1 << 63) - 1)
# Few distinct characters, so that separators, empty names, equal names and look-alikes meet often.
PAIRS = ["TAGS\x01a", "TAGS\x01b", "KEYS\x01k 2", "x\x01", "\x01y", "zz", "", "n\x01v\x01w", "U\x01漢"]
PROPERTY_TEXTS = st.one_of(
    st.text("\x01\x02KEYS=é", max_size=40),
    st.lists(st.sampled_from(PAIRS)).map("\x02".join),
    st.dictionaries(st.text("abcdefgh", min_size=1), st.text("xyz", min_size=1), min_size=70, max_size=80).map(
        lambda pairs: "\x02".join(f"{name}\x01{value}" for name, value in pairs.items())
    ),
)


@st.composite
def stored_units(draw: st.DrawFn) -> bytes:
    """One unit as some broker might have stored it."""
    sys_flag = draw(st.sampled_from([0, 0x4, 0x8, BORN_HOST_V6, STORE_HOST_V6, BORN_HOST_V6 | STORE_HOST_V6]))
    body = draw(st.binary(max_size=60))
    kind = draw(st.sampled_from([None, None, *COMPRESSION_FLAGS]))
    if kind:
        body = compress(body * 100, kind)
        sys_flag |= COMPRESSED | COMPRESSION_FLAGS[kind]
    unit = Unit(
        0, body_crc(body), draw(INT32), draw(INT32), draw(INT64), draw(INT64), sys_flag, draw(INT64),
        draw(V6 if sys_flag & BORN_HOST_V6 else V4), draw(INT64), draw(V6 if sys_flag & STORE_HOST_V6 else V4),
        draw(INT32), draw(INT64), body, draw(st.text("abc%", max_size=20)), draw(PROPERTY_TEXTS),
    )  # fmt: skip
    return encode_unit(unit)


RUNS = st.lists(stored_units(), min_size=1, max_size=12).map(b"".join)


@given(RUNS)
def test_any_units_are_decoded_as_the_plain_decoder_does(run: bytes) -> None:
    units = Units(run, unit_positions(run))
    assert decoded(units) == [expected(unit) for unit in decode_units(run)]
    units.check_bodies()


def with_long_topic(unit: bytes, topic: bytes) -> bytes:
    """The unit as RocketMQ 5 writes it for a topic of more than 127 bytes."""
    plain = decode_unit(unit)
    body_end = len(unit) - 1 - len(plain.topic.encode()) - 2 - len(plain.properties.encode())
    properties = unit[body_end + 1 + len(plain.topic.encode()) :]
    rest = unit[8:body_end] + len(topic).to_bytes(2, "big") + topic + properties
    return (len(rest) + 8).to_bytes(4, "big") + (MAGIC_LONG_TOPIC & 0xFFFFFFFF).to_bytes(4, "big") + rest


@given(stored_units(), stored_units(), st.integers(1, 400))
def test_long_topics_of_rocketmq_5_are_read(first: bytes, second: bytes, size: int) -> None:
    run = first + with_long_topic(second, b"t" * size) + first
    rows = decoded(Units(run, unit_positions(run)))
    assert rows == [expected(unit) for unit in decode_units(run)]
    assert rows[1]["topic"] == "t" * size


@given(stored_units(), st.binary(min_size=1, max_size=30))
def test_malformed_text_becomes_replacement_characters(unit: bytes, junk: bytes) -> None:
    plain = decode_unit(unit)
    raw = junk + b"\x01\xff\x02TAGS\x01\xc3" + junk
    start = len(unit) - len(plain.properties.encode()) - 2
    run = unit[:start] + len(raw).to_bytes(2, "big") + raw
    run = len(run).to_bytes(4, "big") + run[4:]
    assert decoded(Units(run, unit_positions(run))) == [expected(unit) for unit in decode_units(run)]


@settings(max_examples=150)
@given(RUNS, st.data())
def test_broken_units_are_refused_exactly_when_the_plain_decoder_refuses_them(run: bytes, data: st.DataObject) -> None:
    broken = bytearray(run)
    for _ in range(data.draw(st.integers(1, 3))):
        broken[data.draw(st.integers(0, len(run) - 1))] = data.draw(st.integers(0, 255))
    broken = broken[: data.draw(st.sampled_from([len(run), len(run) - 1, len(run) // 2]))]
    try:
        units = decode_units(broken)
    except UnitError:
        with pytest.raises(UnitError):
            Units(broken, unit_positions(broken))
        return
    found = Units(broken, unit_positions(broken)) if units else None
    assert [] if found is None else found.field("queue_offset").tolist() == [unit.queue_offset for unit in units]


def test_a_flipped_body_byte_is_named_by_its_offsets() -> None:
    run = b"".join(encode_unit(unit_with_body(b"body", offset)) for offset in range(3))
    size = len(run) // 3
    damaged = bytearray(run)
    damaged[size + 88] ^= 1
    with pytest.raises(UnitError, match=r"queue offset 1 and physical offset 1000.*CRC"):
        Units(damaged, unit_positions(damaged)).check_bodies()


def test_a_body_that_cannot_be_unpacked_is_named_by_its_offsets() -> None:
    unit = unit_with_body(b"no zlib stream", 7)
    unit.sys_flag = COMPRESSED
    run = encode_unit(unit)
    units = Units(run, unit_positions(run))
    assert units.stored_bodies().to_pylist() == [b"no zlib stream"]
    with pytest.raises(UnitError, match="queue offset 7"):
        units.bodies()


def unit_with_body(body: bytes, queue_offset: int) -> Unit:
    host = encode_host("10.0.0.1", 10911)
    return Unit(0, body_crc(body), 0, 0, queue_offset, queue_offset * 1000, 0, 1, host, 2, host, 0, 0, body, "t", "")


@given(RUNS, st.data())
def test_units_may_be_picked_out_of_a_run(run: bytes, data: st.DataObject) -> None:
    positions = unit_positions(run)
    keep = data.draw(st.lists(st.booleans(), min_size=len(positions), max_size=len(positions)).filter(any))
    wanted = [unit for unit, kept in zip(decode_units(run), keep, strict=True) if kept]
    assert decoded(Units(run, positions[keep])) == [expected(unit) for unit in wanted]
