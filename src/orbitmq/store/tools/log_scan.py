"""Scans a whole commit log, skipping damaged parts. Writes nothing.

A start ends the log at the first unit that is not intact. This scan says why it is not, and finds the next one: after
it if its lengths agree, else where a consume queue has a message.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NamedTuple

from orbitmq.errors import UnitError
from orbitmq.message.unit import BLANK, TOPIC_LENGTHS, Unit, decode_unit
from orbitmq.store.files import Files
from orbitmq.store.pieces import Pieces
from orbitmq.store.walk import Walk, WalkEnd

NO_LIMIT = 1 << 63
ZEROS = "nothing was written here, but the log continues"


class Gap(NamedTuple):
    """A stretch of the log without a whole message, by physical offsets."""

    start: int
    end: int
    text: str


KnownPlaces = Callable[[int, int], Iterable[int]]  # where messages begin between two offsets, in order


def nowhere(start: int, end: int) -> Iterable[int]:  # noqa: ARG001
    """Nothing is known."""
    return ()


class LogScan:
    """Iterates once over units and gaps below `limit`, from the file that holds `start` on. `end` is behind the last
    whole unit so far. Zeros at the end of the log are no gap; `zeros_from` is where they begin, -1 without any.
    """

    def __init__(
        self,
        fs: Files,
        pieces: Pieces,
        *,
        start: int = 0,
        limit: int = NO_LIMIT,
        known_places: KnownPlaces = nowhere,
    ) -> None:
        self.end = pieces.start
        self._fs = fs
        self._pieces = pieces
        self._start = start
        self._limit = limit
        self._known_places = known_places
        self.zeros_from = -1  # a gap if the log continues after it, else its end

    def __iter__(self) -> Iterator[Unit | Gap]:
        for start in self._pieces.starts:
            if start + self._pieces.file_size <= self._start or start >= self._limit:
                continue
            try:
                file = self._fs.open(self._pieces.path(start), self._pieces.file_size, writable=False)
            except FileNotFoundError:  # a running broker has removed it meanwhile
                continue
            try:
                if not file.filled:  # only created so far
                    self.zeros_from = start
                    continue
                for found in self._in_file(file.view, start):
                    if self.zeros_from >= 0:
                        yield Gap(self.zeros_from, _start_of(found), ZEROS)
                        self.zeros_from = -1
                    yield found
            finally:
                file.close()

    def _in_file(self, view: memoryview, start: int) -> Iterator[Unit | Gap]:
        position = 0
        while True:
            walk = Walk(view, start, position, check_text=True)
            for unit in walk:
                if unit.physical_offset >= self._limit:
                    return
                self.end = unit.physical_offset + unit.size
                yield unit
            position = walk.position
            if start + position >= self._limit or walk.ended is WalkEnd.FILE_END:
                return
            if walk.ended is WalkEnd.BLANK:
                yield from _odd_blank(view, start, position)
                return
            following = self._next_unit(view, start, position)
            if following is None and walk.ended is WalkEnd.NOTHING:
                self.zeros_from = start + position
                return
            text, claimed_end = _why(view, start, position)
            if following is None:
                yield Gap(start + position, start + min(claimed_end, len(view)), text)
                return
            yield Gap(start + position, start + following, text)
            position = following

    def _next_unit(self, view: memoryview, start: int, position: int) -> int | None:
        """Where the next whole unit of the file begins."""
        try:
            behind = position + decode_unit(view, position, with_body=False).size
            if _is_unit(view, start, behind):
                return behind
        except UnitError:
            pass
        for place in self._known_places(start + position + 1, start + len(view)):
            if _is_unit(view, start, place - start):
                return place - start
        return None


def _is_unit(view: memoryview, start: int, position: int) -> bool:
    return next(iter(Walk(view, start, position, check_text=True)), None) is not None


def _start_of(found: Unit | Gap) -> int:
    return found.start if isinstance(found, Gap) else found.physical_offset


def _odd_blank(view: memoryview, start: int, position: int) -> Iterator[Gap]:
    size, _ = BLANK.unpack_from(view, position)
    if size != len(view) - position:
        text = f"the record at the end of the file has {size} bytes left, not {len(view) - position}"
        yield Gap(start + position, start + len(view), text)


def _why(view: memoryview, start: int, position: int) -> tuple[str, int]:
    """The problem at a position, and the maximum end of the damage."""
    size, magic = BLANK.unpack_from(view, position)
    try:
        unit = decode_unit(view, position, with_body=False)
    except UnitError:
        if size == magic == 0:
            return "nothing was written here, but queues know messages", len(view)
        if magic in TOPIC_LENGTHS and size > 0:
            return "a message begins here that is not whole", position + size
        return "no message begins here", len(view)
    if unit.physical_offset != start + position:
        text = f"a message of topic {unit.topic} lies here that belongs to {unit.physical_offset}"
    else:
        text = f"the body of a message of topic {unit.topic} does not match its checksum"
    return text, position + unit.size
