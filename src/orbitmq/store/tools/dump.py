"""Every message of a store directory as plain values, for tools. Writes nothing; a broker may run meanwhile."""

from __future__ import annotations

import base64
import hashlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from orbitmq.errors import UnitError
from orbitmq.message.compression import decompress
from orbitmq.message.ids import offset_message_id
from orbitmq.message.properties import KEYS, TAGS, UNIQ_KEY, decode_properties
from orbitmq.message.unit import Unit, store_timestamp_of
from orbitmq.store.files import Files
from orbitmq.store.parting import PARTED
from orbitmq.store.pieces import Pieces
from orbitmq.store.tools.findings import State
from orbitmq.store.tools.log_scan import NO_LIMIT, Gap, LogScan
from orbitmq.store.tools.verify import dispatched_end, log_directories, state_of

HEAD_SIZE = 128  # of the first message of a file: enough for its store timestamp
CLOCK_STEP_MAX_MS = 7_200_000  # a clock may be set back by an hour, and by some minutes

Tell = Callable[[Path, int, str], None]


@dataclass(frozen=True)
class Wanted:
    """Which messages; None is all. Times are store times in milliseconds, both included."""

    topic: str | None = None
    queue_id: int | None = None
    begin: int | None = None
    end: int | None = None
    key: str | None = None

    def takes(self, unit: Unit) -> bool:
        return (
            (self.topic is None or unit.topic == self.topic)
            and (self.queue_id is None or unit.queue_id == self.queue_id)
            and (self.begin is None or unit.store_timestamp >= self.begin)
            and (self.end is None or unit.store_timestamp <= self.end)
            and (self.key is None or self._has_key(unit))
        )

    def _has_key(self, unit: Unit) -> bool:
        properties = decode_properties(unit.properties)
        return self.key == properties.get(UNIQ_KEY) or self.key in properties.get(KEYS, "").split(" ")


def dump(root: Path, wanted: Wanted, tell: Tell, commit_logs: Sequence[Path] = ()) -> Iterator[Unit]:
    """The selected messages in the order of the log; `tell` is called for damage. StoreError if there is no store.

    For a running broker, the messages that are dispatched to queues.
    """
    fs = Files()
    state = state_of(fs, root, commit_logs)
    limit = dispatched_end(fs, root) if state is State.LIVE else NO_LIMIT  # before the files are listed
    is_part = (root / PARTED).exists()
    log = Pieces(
        fs, log_directories(root, commit_logs), tell, is_live=state is State.LIVE, begins_anywhere=is_part
    )  # fmt: skip
    start, end = _bounds(log, wanted)
    for found in LogScan(fs, log, start=start, limit=min(limit, end)):
        if isinstance(found, Gap):
            start = log.start_of(found.start)
            tell(log.path(start), found.start - start, found.text)
        elif wanted.takes(found):
            yield found


def _bounds(log: Pieces, wanted: Wanted) -> tuple[int, int]:
    """The files that may hold messages of that time: times rise along the log, but for a clock that was set back."""
    start, end = log.start, NO_LIMIT
    for file_start in log.starts:
        head = log.read(file_start, HEAD_SIZE)
        time_ms = store_timestamp_of(head) if len(head) == HEAD_SIZE else 0
        if time_ms > 0 and wanted.begin is not None and time_ms < wanted.begin - CLOCK_STEP_MAX_MS:
            start = file_start
        if time_ms > 0 and wanted.end is not None and time_ms > wanted.end + CLOCK_STEP_MAX_MS:
            end = min(end, file_start)
    return start, end


def row(unit: Unit, *, with_body: bool) -> dict[str, Any]:
    """A message as it is printed. The body is decompressed; null if that fails."""
    properties = decode_properties(unit.properties)
    try:
        body = decompress(unit.body, unit.sys_flag)
    except UnitError:
        body = None
    values = {
        "topic": unit.topic,
        "queue_id": unit.queue_id,
        "queue_offset": unit.queue_offset,
        "physical_offset": unit.physical_offset,
        "size": unit.size,
        "store_timestamp": unit.store_timestamp,
        "born_timestamp": unit.born_timestamp,
        "sys_flag": unit.sys_flag,
        "tags": properties.get(TAGS),
        "keys": properties.get(KEYS),
        "properties": properties,
        "body_sha256": hashlib.sha256(body).hexdigest() if body is not None else None,
        "msg_id": offset_message_id(unit.store_host, unit.physical_offset),
    }
    if with_body:
        values["body"] = base64.b64encode(body).decode() if body is not None else None
    return values
