"""What master and slave say to each other, cut anywhere."""

from __future__ import annotations

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import BodyError
from orbitmq.replication.protocol import (
    CONFIRMED,
    HEAD,
    INTRODUCTION_MAX,
    PIECE_MAX,
    REPORT,
    Introduction,
    Pieces,
    Reports,
    first_place,
    piece_size,
)


def cut(data: bytes, places: set[int]) -> list[bytes]:
    edges = [0, *sorted(place for place in places if place < len(data)), len(data)]
    return [data[start:end] for start, end in pairwise(edges)]


@given(reports=st.lists(st.integers(0, 1 << 62), min_size=1), cuts=st.sets(st.integers(1, 200)))
def test_the_last_whole_report_counts(reports: list[int], cuts: set[int]) -> None:
    reader, data, told, position = Reports(), b"".join(map(REPORT.pack, reports)), [], 0
    for part in cut(data, cuts):
        position += len(part)
        found = reader.feed(part)
        whole = position // REPORT.size
        if found is not None:
            assert found == reports[whole - 1]
            told.append(whole)
    assert told[-1] == len(reports)


MEMBER = Introduction("4f3c2a", 7)


@given(reports=st.lists(st.integers(0, 1 << 62), min_size=1), cuts=st.sets(st.integers(1, 200)))
def test_a_member_introduces_itself_before_its_reports(reports: list[int], cuts: set[int]) -> None:
    reader, last = Reports(elects=True), None
    for part in cut(MEMBER.encode() + b"".join(map(REPORT.pack, reports)), cuts):
        last = reader.feed(part) or last
    assert (reader.introduction, last or 0) == (MEMBER, reports[-1] or last or 0)


def test_a_slave_that_is_no_member_says_only_where_it_is() -> None:
    reader = Reports(elects=True)
    assert (reader.feed(REPORT.pack(5)), reader.introduction) == (5, None)
    assert Reports().feed(REPORT.pack(-5)) == -5, "a master that is not elected refuses it"


@pytest.mark.parametrize(
    ("data", "text"),
    [
        (REPORT.pack(-INTRODUCTION_MAX - 1) + bytes(INTRODUCTION_MAX), "1025 bytes, 1024 are allowed"),
        (REPORT.pack(-2) + b"[]", "is invalid"),
    ],
)
def test_an_introduction_that_nobody_sends_is_an_error(data: bytes, text: str) -> None:
    with pytest.raises(BodyError, match=text):
        Reports(elects=True).feed(data)


@given(places=st.lists(st.integers(0, 1 << 40), min_size=1), cuts=st.sets(st.integers(1, 200)))
def test_the_last_place_that_is_confirmed_counts(places: list[int], cuts: set[int]) -> None:
    reader = Pieces(elects=True)
    data = b"".join(HEAD.pack(place, CONFIRMED) + HEAD.pack(place, 3) + b"abc" for place in places)
    found = b"".join(bytes(body) for part in cut(data, cuts) for _, body in reader.feed(part))
    assert (reader.confirmed, found) == (places[-1], b"abc" * len(places))


@given(pieces=st.lists(st.tuples(st.integers(0, 1 << 40), st.binary(max_size=60))), cuts=st.sets(st.integers(1, 2000)))
def test_pieces_come_out_as_they_went_in(pieces: list[tuple[int, bytes]], cuts: set[int]) -> None:
    data = b"".join(HEAD.pack(offset, len(body)) + body for offset, body in pieces)
    reader = Pieces()
    found: list[tuple[int, bytes]] = []
    for part in cut(data, cuts):
        for offset, body in reader.feed(part):
            if found and body and found[-1][1] and found[-1][0] + len(found[-1][1]) == offset:
                found[-1] = found[-1][0], found[-1][1] + bytes(body)
            else:
                found.append((offset, bytes(body)))
    expected: list[tuple[int, bytes]] = []
    for offset, body in pieces:
        if expected and body and expected[-1][1] and expected[-1][0] + len(expected[-1][1]) == offset:
            expected[-1] = expected[-1][0], expected[-1][1] + body
        else:
            expected.append((offset, body))
    assert found == expected


@pytest.mark.parametrize("size", [-1, PIECE_MAX + 1, (1 << 31) - 1])
def test_a_length_no_master_sends_is_an_error(size: int) -> None:
    with pytest.raises(BodyError, match=f"announces {size} bytes"):
        list(Pieces().feed(HEAD.pack(0, size)))


@pytest.mark.parametrize(
    ("reported", "end", "place"),
    [
        (0, 168_419, 131_072),
        (0, 0, 0),
        (0, 65_536, 65_536),
        (0, 65_535, 0),
        (100, 168_419, 100),
        (168_419, 168_419, 168_419),
    ],
)
def test_an_empty_slave_begins_with_the_last_file(reported: int, end: int, place: int) -> None:
    assert first_place(reported, end, 65_536) == place


@pytest.mark.parametrize(
    ("place", "end", "size"),
    [
        (131_072, 168_419, 32_768),
        (163_840, 168_419, 4_579),
        (168_419, 168_419, 0),
        (60_000, 168_419, 5_536),
        (0, 10, 10),
    ],
)
def test_a_piece_ends_with_its_file(place: int, end: int, size: int) -> None:
    assert piece_size(place, end, 65_536, 32_768) == size
