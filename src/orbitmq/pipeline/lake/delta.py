"""A lake as a Delta table: its transaction log publishes the files, and keeps the number of each query's last batch.

The tasks write the files; the `deltalake` library only commits them. A table accepts the same application transaction
twice, so published batches must be looked up first.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Sequence
from datetime import UTC, datetime
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.pipeline.lake.lakes import GRACE_MS
from orbitmq.pipeline.lake.layout import topic_and_day
from orbitmq.pipeline.lake.manifest import LakeFile
from orbitmq.pipeline.lake.message_files import read_schema
from orbitmq.pipeline.lake.storage import StorageLocation

REPLACE_TRIES = 5  # each batch of an archive that runs during a compaction causes one retry


class DeltaLake:
    """The table at `place`; it is made with the first batch. `now_ms` gives milliseconds since the epoch."""

    def __init__(self, place: StorageLocation, now_ms: Callable[[], int]) -> None:
        self.place = place
        self._now_ms = now_ms

    def last_batch(self, query_id: str) -> int:
        table = self._table()
        version = table.transaction_version(query_id) if table is not None else None
        return -1 if version is None else version

    def commit(self, query_id: str, batch_id: int, files: Sequence[LakeFile]) -> bool:
        if not files:
            return True
        table = self._table() or self._created(files[0])
        published = table.transaction_version(query_id)
        if published is not None and published >= batch_id:
            return False
        properties = CommitProperties(app_transactions=[Transaction(query_id, batch_id)])
        self._write(table, [self._add(file, is_new=True) for file in files], properties)
        return True

    def replace(self, removed: Sequence[LakeFile], added: Sequence[LakeFile]) -> None:
        actions = [self._add(file, is_new=False) for file in added]
        gone = [RemoveAction(file.path, data_change=False, deletion_timestamp=self._now_ms()) for file in removed]
        for tries_left in reversed(range(REPLACE_TRIES)):
            table = self._table()
            missing = {file.path for file in removed} - (_paths(table) if table is not None else set())
            if table is None or missing:
                raise LakeConflict(f"another compaction has replaced {min(missing)}")
            try:
                self._write(table, [*actions, *gone], CommitProperties(max_commit_retries=0))
            except LakeConflict:
                if not tries_left:
                    raise
            else:
                return

    def files(self) -> list[LakeFile]:
        table = self._table()
        return [] if table is None else sorted(map(_file, _actions(table)), key=lambda file: file.path)

    def settle(self, now_ms: int) -> Collection[str]:
        table = self._table()
        if table is None:
            return set()
        kept = _paths(table)
        for entry in table.history():  # the newest first
            version, written_ms = entry["version"], entry["timestamp"]
            if written_ms + GRACE_MS <= now_ms or not version:
                break
            kept |= _paths(DeltaTable(self.place.root, version=version - 1))
        return kept

    # ----------------------------------------------------------------------------------------------------- the table

    def _table(self) -> DeltaTable | None:
        try:
            return DeltaTable(self.place.root)
        except TableNotFoundError:
            return None
        except (DeltaError, OSError) as error:
            raise LakeError(f"the Delta table {self.place.root} cannot be opened: {error}") from error

    def _created(self, example: LakeFile) -> DeltaTable:
        try:
            return DeltaTable.create(
                self.place.root, read_schema(self.place, example.path), mode="ignore", name="orbitmq"
            )
        except (DeltaError, OSError) as error:
            raise LakeError(f"the Delta table {self.place.root} cannot be created: {error}") from error

    def _add(self, file: LakeFile, *, is_new: bool) -> AddAction:
        """With what lets readers skip a file: its topic, where it holds one, and the times."""
        lowest: dict[str, object] = {"storeTimestamp": _text(file.first_stored_ms)}
        highest: dict[str, object] = {"storeTimestamp": _text(file.last_stored_ms + 1)}
        if file.queues:
            topics = sorted({span.topic for span in file.queues})
            lowest["topic"], highest["topic"] = topics[0], topics[-1]
        counts = {"numRecords": file.rows, "minValues": lowest, "maxValues": highest, "nullCount": {}}
        return AddAction(file.path, file.size, {}, self._now_ms(), is_new, json.dumps(counts))

    def _write(self, table: DeltaTable, actions: list[AddAction | RemoveAction], properties: CommitProperties) -> None:
        try:
            table.create_write_transaction(actions, "append", table.schema(), commit_properties=properties)
        except CommitFailedError as error:
            raise LakeConflict(f"the Delta table {self.place.root} was changed by another job: {error}") from error
        except (DeltaError, OSError) as error:
            raise LakeError(f"the Delta table {self.place.root} cannot be written: {error}") from error


def _actions(table: DeltaTable) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return rows


def _paths(table: DeltaTable) -> set[str]:
    return {unquote(str(row["path"])) for row in _actions(table)}


def _file(row: dict[str, object]) -> LakeFile:
    path = unquote(str(row["path"]))
    topic, day = topic_and_day(path)
    return LakeFile(
        path=path, topic=topic, day=day, rows=int(str(row["num_records"])), size=int(str(row["size_bytes"]))
    )


def _text(milliseconds: int) -> str:
    """As statistics of Delta write times."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")
