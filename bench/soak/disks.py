"""What brokers have left on their disks, in the nouns of the checker. Reads only; a broker may run meanwhile."""

from __future__ import annotations

from pathlib import Path

from bench.soak.checker import Log, Stored
from orbitmq.message.unit import Unit
from orbitmq.store.tools.findings import Level
from orbitmq.store.tools.verify import verify
from orbitmq.store.walk import Walk, WalkEnd
from tests.support.store_reader import StoreReader

KEY_END = b":"  # behind the key in the body of a message


def read_log(root: Path, topic: str) -> Log:
    """The log of a stopped broker, and whether log, queues and index of the store agree with one another."""
    with StoreReader(root) as reader:
        rows = [_row(unit, topic) for unit in reader.log_units()]
    report = verify(root)
    damage = [f"{one.path} at {one.position}: {one.text}" for one in report.findings if one.level is Level.DAMAGE]
    return Log(rows, report.log_end, damage)


def _row(unit: Unit, topic: str) -> Stored:
    key = unit.body.partition(KEY_END)[0].decode() if unit.topic == topic else ""
    return Stored(unit.topic, unit.queue_id, unit.queue_offset, unit.physical_offset, key)


def first_difference(master: Path, slave: Path, end: int) -> int | None:
    """The first byte below `end` that the two logs do not share."""
    for path in sorted((slave / "commitlog").iterdir()):
        start = int(path.name)
        size = min(end - start, path.stat().st_size)
        twin = master / "commitlog" / path.name
        if (
            size > 0
            and (at := _differs(twin.read_bytes() if twin.exists() else b"", path.read_bytes(), size)) is not None
        ):
            return start + at
    return None


def _differs(one: bytes, other: bytes, size: int) -> int | None:
    if one[:size] == other[:size]:
        return None
    return next((at for at in range(min(size, len(one))) if one[at] != other[at]), len(one))


class LogEnd:
    """Up to where the log of a running broker holds whole messages; each look goes on where the last one ended.

    What a slave has not got yet reads as zeros, and so may the rest of a message: one counts when its last byte is not
    zero, or when another one that counts stands behind it. What is left of a file behind its last message counts as
    soon as it is known to be left. A store that was moved away begins anew.
    """

    def __init__(self, root: Path, file_size: int) -> None:
        self._directory = root / "commitlog"
        self._file_size = file_size
        self._end = self._number = 0

    def look(self) -> int:
        try:
            return self._look()
        except FileNotFoundError:  # moved away meanwhile
            self._end = self._number = 0
            return 0

    def _look(self) -> int:
        number = self._directory.stat().st_ino
        if number != self._number:
            self._end, self._number = 0, number
        while True:
            path, begin = self._path(self._end), self._end
            if not path.exists():
                return self._end
            with path.open("rb") as file:
                file.seek(begin % self._file_size)
                data = file.read()
            walk = Walk(data, begin, check_crc=False)
            for unit in walk:
                end = unit.physical_offset + unit.size
                if data[end - begin - 1]:
                    self._end = end
            if walk.ended not in (WalkEnd.BLANK, WalkEnd.FILE_END):
                return self._end
            self._end = begin - begin % self._file_size + self._file_size

    def _path(self, place: int) -> Path:
        return self._directory / f"{place - place % self._file_size:020d}"
