"""Offset message ids and unique ids."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import MessageIllegal
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import (
    UniqueIds,
    decode_offset_message_id,
    decode_unique_id,
    offset_message_id,
    offset_message_ids,
)

EAST = timezone(timedelta(hours=8))
PAST = datetime(2000, 1, 1, tzinfo=UTC)
FUTURE = datetime(2099, 1, 1, tzinfo=UTC)
MOMENTS = st.integers(int(PAST.timestamp() * 1000), int(FUTURE.timestamp() * 1000))


def make(zone: timezone = UTC) -> UniqueIds:
    return UniqueIds(bytes([10, 0, 0, 9]), 32018 + (1 << 16), b"\x18\xb4\xaa\xc2", zone)


def at(*date: int) -> int:
    return int(datetime(*date, tzinfo=UTC).timestamp() * 1000)  # type: ignore[misc,arg-type]


def test_offset_id_of_the_sheet() -> None:
    assert offset_message_id(encode_host("127.0.0.1", 10911), 1223) == "7F00000100002A9F00000000000004C7"
    assert offset_message_id(encode_host("::1", 10911), 1223) == (
        "0000000000000000000000000000000100002A9F00000000000004C7"
    )


@given(st.lists(st.integers(0, 2**63 - 1), min_size=1, max_size=5), st.sampled_from(["127.0.0.1", "::1"]))
def test_ids_of_a_batch_are_those_of_its_messages(offsets: list[int], host: str) -> None:
    field = encode_host(host, 10911)
    assert offset_message_ids(field, offsets) == ",".join(offset_message_id(field, offset) for offset in offsets)


@pytest.mark.parametrize("text", ["", "zz", "7F00000100002A9F00000000000004", "7F 00000100002A9F00000000000004C7", "é"])
def test_what_is_no_offset_id_is_refused(text: str) -> None:
    with pytest.raises(MessageIllegal):
        decode_offset_message_id(text)


def test_unique_id_layout() -> None:
    ids = make()
    ids.create(at(2026, 11, 1))
    assert ids.create(at(2026, 11, 1) + 100) == "0A0000097D1218B4AAC2000000640001"


@given(MOMENTS, st.sampled_from([UTC, EAST]))
def test_unique_id_tells_when_it_was_made(now_ms: int, zone: timezone) -> None:
    found = decode_unique_id(make(zone).create(now_ms), now_ms, zone)
    assert (found.ip, found.pid, found.token) == (bytes([10, 0, 0, 9]), 32018, b"\x18\xb4\xaa\xc2")
    assert abs(found.created_ms - now_ms) <= 1


def test_id_of_last_month_is_placed_in_last_month() -> None:
    made = at(2026, 10, 31, 23, 59)
    assert decode_unique_id(make().create(made), at(2026, 11, 1, 0, 1), UTC).created_ms == made


def test_a_new_month_starts_a_new_count() -> None:
    ids = make()
    assert int(ids.create(at(2026, 10, 31, 23))[20:28], 16) == (30 * 24 + 23) * 3_600_000
    assert int(ids.create(at(2026, 11, 1))[20:28], 16) == 0


def test_a_clock_that_steps_back_over_the_month_writes_zero() -> None:
    ids = make()
    ids.create(at(2026, 11, 1))
    assert int(ids.create(at(2026, 11, 1) - 5000)[20:28], 16) == 0


@given(st.lists(MOMENTS, min_size=2, max_size=50))
def test_ids_differ(moments: list[int]) -> None:
    ids = make()
    made = [ids.create(now_ms) for now_ms in moments]
    assert len(set(made)) == len(made)
