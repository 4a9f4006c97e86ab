"""What goes into a put and what comes out."""

from __future__ import annotations

import pytest

from orbitmq.message.flags import BORN_HOST_V6, STORE_HOST_V6
from orbitmq.message.unit import Unit
from orbitmq.store import records
from orbitmq.store.positions import PhysicalOffset
from orbitmq.store.records import PutResult, PutStatus, copy_of
from tests.support.stores import HOST


def test_a_stored_message_has_a_place_and_an_id() -> None:
    result = PutResult(PutStatus.PUT_OK, PhysicalOffset(1223), size=100, store_host=HOST)
    assert (result.count, result.end_offset) == (1, 1323)
    assert result.message_id == "7F00000100002A9F00000000000004C7"


def test_a_stored_batch_has_one_id_a_message() -> None:
    places = (PhysicalOffset(0), PhysicalOffset(1223))
    result = PutResult(PutStatus.PUT_OK, places[0], size=2446, store_host=HOST, places=places)
    assert (result.count, result.end_offset) == (2, 2446)
    assert result.message_id == "7F00000100002A9F0000000000000000,7F00000100002A9F00000000000004C7"


@pytest.mark.parametrize(
    "refusal",
    [each for each in vars(records).values() if isinstance(each, PutResult)],
    ids=lambda refusal: refusal.status.name,
)
def test_a_refusal_has_no_place(refusal: PutResult) -> None:
    assert refusal.status is not PutStatus.PUT_OK
    assert (refusal.physical_offset, refusal.count, refusal.size) == (-1, 0, 0)


def test_the_flags_of_addresses_are_those_of_the_format() -> None:
    assert (BORN_HOST_V6, STORE_HOST_V6) == (0x10, 0x20)


def test_a_copy_says_what_the_message_said_and_may_be_as_long() -> None:
    unit = Unit(99, 0, 1, 2, 3, 4, 5, 6, HOST, 7, HOST[::-1], 8, 9, b"body", "T", "a\x01b\x02")
    record = copy_of(unit, "U", 11, b"c")
    assert (record.topic, record.queue_id, record.properties, record.body) == ("U", 11, b"c", b"body")
    assert (record.flag, record.sys_flag, record.reconsume_times) == (2, 5, 8)
    assert (record.born_timestamp, record.born_host, record.store_host) == (6, HOST, HOST[::-1])
    assert (record.is_known, record.prepared_transaction_offset) == (True, 0)
