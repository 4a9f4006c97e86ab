"""However a log is cut into parts, each message is in one of them; damage is told once, and hides nothing behind it."""

from __future__ import annotations

from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.message.unit import MAGIC_LONG_TOPIC, Unit, body_crc, encode_unit
from orbitmq.spark.stores.log import Damage, Found, Gone, LogWalk, Run, next_unit
from orbitmq.store.reader import StoreDirectory
from tests.spark.stores.scanning import everything
from tests.support.stores import HOST, HOST_V6

FILE_SIZE = 8192
BLANK = 0xCBD43194


def stored(body: bytes, place: int, *, topic: str = "orders", sys_flag: int = 0) -> bytes:
    host = HOST_V6 if sys_flag else HOST
    unit = Unit(0, body_crc(body), 1, 0, 0, place, sys_flag, 1, host, 2, host, 0, 0, body, topic, "KEYS\x01k")
    return encode_unit(unit)


def long_topic(unit: bytes) -> bytes:
    """The unit as RocketMQ 5 writes it for a topic with a name of two-byte length."""
    at = unit.rindex(b"\x06orders")
    data = unit[:4] + (MAGIC_LONG_TOPIC & 0xFFFFFFFF).to_bytes(4, "big") + unit[8:at] + b"\0" + unit[at:]
    return len(data).to_bytes(4, "big") + data[4:]


def write_log(root: Path, bodies: list[bytes], *, with_copies: bool = False) -> list[int]:
    """Files of FILE_SIZE bytes with a message for each body; where they begin. `with_copies`: each body has the whole
    record before it inside.
    """
    (root / "commitlog").mkdir(parents=True)
    (root / "consumequeue").mkdir()
    files, places, last = [bytearray()], [], b""
    for number, body in enumerate(bodies):
        for _ in range(2):
            place = (len(files) - 1) * FILE_SIZE + len(files[-1])
            unit = stored(body + last if with_copies else body, place, sys_flag=0x30 if number % 5 == 0 else 0)
            unit = long_topic(unit) if number % 7 == 3 else unit
            if len(files[-1]) + len(unit) + 8 <= FILE_SIZE:
                break
            left = FILE_SIZE - len(files[-1])
            files[-1] += left.to_bytes(4, "big") + BLANK.to_bytes(4, "big") + b"\xda\xa3\x20\xa7" * (left // 4)
            files.append(bytearray())
        last = unit[: FILE_SIZE // 4]
        places.append(place)
        files[-1] += unit
    for number, data in enumerate(files):
        (root / "commitlog" / f"{number * FILE_SIZE:020d}").write_bytes(data[:FILE_SIZE].ljust(FILE_SIZE, b"\0"))
    return places


def walked(root: Path, cuts: list[int], window: int = 1 << 20) -> list[Found | int]:
    """Everything found in the parts between the cuts: places of messages, damage, what is gone."""
    log = StoreDirectory(root).log()
    found: list[Found | int] = []
    for start, end in pairwise(cuts):
        walk = LogWalk(log, start, end, is_aligned=start == cuts[0], range_end=cuts[-1], window_size=window)
        for each in walk:
            if isinstance(each, Run):
                found += each.units.field("physical_offset").tolist()
            else:
                found.append(each)
    return found


def end_of_log(root: Path) -> int:
    return StoreDirectory(root).whole_end()


BODIES = st.lists(st.binary(max_size=900), min_size=1, max_size=60)


@settings(max_examples=60)
@given(BODIES, st.booleans(), st.integers(1 << 10, 40_000), st.sampled_from([600, 3000, 1 << 20]))
def test_splits_of_any_size_have_each_message_once(bodies: list[bytes], copies: bool, size: int, window: int) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        places = write_log(root, bodies, with_copies=copies)
        end = end_of_log(root)
        assert walked(root, [*range(0, end, size), end], window) == places


@settings(max_examples=40)
@given(BODIES, st.data())
def test_cuts_at_any_bytes_have_each_message_once(bodies: list[bytes], data: st.DataObject) -> None:
    with TemporaryDirectory() as directory:
        root = Path(directory)
        places = write_log(root, bodies, with_copies=True)
        end = end_of_log(root)
        inside = st.one_of(st.integers(0, end), st.sampled_from(places))
        cuts = data.draw(st.lists(inside, max_size=8))
        assert walked(root, [0, *sorted(cuts), end]) == places


@settings(max_examples=60)
@given(BODIES, st.data())
def test_damage_hides_no_message_but_those_it_hits(bodies: list[bytes], data: st.DataObject) -> None:
    """Damage to what holds a unit together: size, magic number, physical offset, lengths."""
    with TemporaryDirectory() as directory:
        root = Path(directory)
        places = write_log(root, bodies)
        end = end_of_log(root)
        hit = data.draw(st.sampled_from(places))
        field = data.draw(st.sampled_from([0, 1, 2, 3, 4, 7, 28, 35]))
        path = root / "commitlog" / f"{hit - hit % FILE_SIZE:020d}"
        content = bytearray(path.read_bytes())
        content[hit % FILE_SIZE + field] ^= data.draw(st.integers(1, 255))
        path.write_bytes(content)
        cuts = data.draw(st.lists(st.one_of(st.integers(0, end), st.just(hit)), max_size=4))
        found = walked(root, [0, *sorted(set(cuts)), end], 2000)
        assert [each for each in found if isinstance(each, int)] == [place for place in places if place != hit]
        (damage,) = [each for each in found if isinstance(each, Damage)]
        assert damage.start == hit


def test_a_hole_of_zeros_is_damage_when_the_log_goes_on(tmp_path: Path) -> None:
    places = write_log(tmp_path, [b"x" * 500] * 30)
    path = tmp_path / "commitlog" / f"{0:020d}"
    content = path.read_bytes()
    first, behind = places[3], places[6]
    path.write_bytes(content[:first] + bytes(behind - first) + content[behind:])
    found = [each for each in everything(tmp_path) if not isinstance(each, Run)]
    assert found[0] == Damage(first, behind, path, "nothing was written here, but the log continues")


def test_a_file_that_is_cut_off_is_damage(tmp_path: Path) -> None:
    places = write_log(tmp_path, [b"x" * 500] * 30)
    log = StoreDirectory(tmp_path).log()
    path = tmp_path / "commitlog" / f"{0:020d}"
    path.write_bytes(path.read_bytes()[: places[3] + 50])
    found = [each for each in LogWalk(log, 0, end_of_log(tmp_path)) if not isinstance(each, Run)]
    assert found == [Damage(places[3], FILE_SIZE, path, "the file is cut off")]


def test_what_a_broker_removes_meanwhile_is_gone_not_damaged(tmp_path: Path) -> None:
    """Also when the file is open: the name goes first, and the bytes in steps behind it."""
    places = write_log(tmp_path, [b"x" * 500] * 30)
    log = StoreDirectory(tmp_path).log()
    path = tmp_path / "commitlog" / f"{0:020d}"
    walk = iter(LogWalk(log, 0, 2 * FILE_SIZE, window_size=1500))
    first = next(walk)
    assert isinstance(first, Run)
    with path.open("r+b") as file:
        path.unlink()
        file.truncate(0)
        rest = list(walk)
    assert Gone(places[2], FILE_SIZE, path) in rest
    assert not [each for each in rest if isinstance(each, Damage)]
    units = [place for each in rest if isinstance(each, Run) for place in each.units.field("physical_offset").tolist()]
    assert units == [place for place in places if FILE_SIZE <= place < 2 * FILE_SIZE]


def test_the_next_unit_is_found_from_any_byte(tmp_path: Path) -> None:
    places = write_log(tmp_path, [b"y" * 300] * 40, with_copies=True)
    directory, end = StoreDirectory(tmp_path), end_of_log(tmp_path)
    for position in range(0, end, 997):
        assert next_unit(directory, position, end) == next((place for place in places if place >= position), end)


@pytest.mark.parametrize("size", [100, 3000, 7000])
def test_a_message_larger_than_the_window_is_read(tmp_path: Path, size: int) -> None:
    places = write_log(tmp_path, [b"z" * size] * 5)
    assert walked(tmp_path, [0, end_of_log(tmp_path)], 512) == places
