"""The walk over units of a file, and where it ends."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.message.unit import BLANK, BLANK_MAGIC, Unit, body_crc, encode_unit
from orbitmq.store.walk import SECTOR, Walk, WalkEnd
from tests.support.stores import HOST

START = 8192


def log_of(bodies: list[bytes]) -> bytes:
    data = b""
    for number, body in enumerate(bodies):
        unit = Unit(0, body_crc(body), 0, 0, number, START + len(data), 0, 1, HOST, 2, HOST, 0, 0, body, "T", "")
        data += encode_unit(unit)
    return data


def walked(data: bytes, **options: bool) -> tuple[list[bytes], int, WalkEnd | None]:
    walk = Walk(data, START, **options)
    return [unit.body for unit in walk], walk.position, walk.ended


@pytest.mark.parametrize(
    ("rest", "ended"),
    [
        (b"", WalkEnd.FILE_END),
        (bytes(7), WalkEnd.FILE_END),
        (bytes(100), WalkEnd.NOTHING),
        (BLANK.pack(100, BLANK_MAGIC) + bytes(92), WalkEnd.BLANK),
        (b"\0\0\0\1" + bytes(100), WalkEnd.DAMAGED),
    ],
)
@given(bodies=st.lists(st.binary(max_size=50), max_size=5))
def test_a_walk_says_how_it_ended(rest: bytes, ended: WalkEnd, bodies: list[bytes]) -> None:
    data = log_of(bodies)
    assert walked(data + rest) == (bodies, len(data), ended)


def test_a_flipped_bit_in_a_body_ends_the_walk() -> None:
    data = bytearray(log_of([b"one", b"two", b"three"]))
    data[data.index(b"two")] ^= 1
    assert walked(bytes(data))[0] == [b"one"]
    assert walked(bytes(data))[2] is WalkEnd.DAMAGED
    assert walked(bytes(data), check_crc=False)[0] == [b"one", b"uwo", b"three"]


def test_a_unit_of_another_place_is_garbage() -> None:
    one = log_of([b"one"])
    assert walked(one + one)[0] == [b"one"]


@given(st.lists(st.binary(max_size=50), min_size=1, max_size=5), st.data())
def test_a_cut_log_keeps_whole_units(bodies: list[bytes], data: st.DataObject) -> None:
    log = log_of(bodies)
    cut = data.draw(st.integers(0, len(log) - 1))
    found, position, _ = walked(log[:cut] + bytes(len(log) - cut))
    assert found == bodies[: len(found)]
    assert len(found) == len(bodies) or cut < len(log_of(bodies[: len(found) + 1])), "a whole unit is missing"
    assert position == len(log_of(found))


def with_text(body: bytes, properties: str) -> bytes:
    return encode_unit(Unit(0, body_crc(body), 0, 0, 0, START, 0, 1, HOST, 2, HOST, 0, 0, body, "Topic", properties))


@given(body_size=st.integers(0, 1200), lost=st.integers(0, 6))
@example(body_size=417, lost=1)  # half of the properties' length goes with them
def test_a_lost_sector_of_the_text_ends_the_walk_where_it_is_looked_for(body_size: int, lost: int) -> None:
    """A power cut can leave topic and properties out, and no sum covers them."""
    data = bytearray(with_text(b"\x01" * body_size, "K\x01" + "v" * 2500))
    whole = bytes(data)
    sector = slice(lost * SECTOR, min((lost + 1) * SECTOR, len(data)))
    in_text = sector.start >= 88 + body_size
    if not in_text or sector.start >= len(data):
        assert walked(whole, check_text=True)[0] == [b"\x01" * body_size]
        return
    data[sector] = bytes(sector.stop - sector.start)
    lengths = (88 + body_size, 88 + body_size + 1 + len("Topic"), 88 + body_size + 2 + len("Topic"))
    if not any(sector.start <= place < sector.stop for place in lengths):
        assert walked(bytes(data))[1] == len(data), "nothing else tells"
    assert walked(bytes(data), check_text=True) == ([], 0, WalkEnd.DAMAGED)


@pytest.mark.parametrize("zeros", [1, 100, 511])
def test_zeros_that_a_sender_has_put_into_the_text_are_no_damage(zeros: int) -> None:
    data = with_text(b"body", "K\x01v" + "\0" * zeros + "end" + "w" * 1000)
    assert walked(data, check_text=True) == ([b"body"], len(data), WalkEnd.FILE_END)
