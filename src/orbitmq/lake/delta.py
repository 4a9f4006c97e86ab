"""A lake as a Delta table: its transaction log publishes the files, and keeps the number of each query's last batch.

The tasks write the files; the `deltalake` library only commits them. A table accepts the same application transaction
twice, so published batches must be looked up first. How far a queue is archived is an application transaction as well:
it is set by the commit of the files, and stays when the log is cleaned. Transactions can only be looked up by name, so
a property of the table lists the queues.

Other engines may write to the table: the log says which files there are and what they hold, whatever they are called.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from datetime import UTC, datetime
from urllib.parse import unquote

import pyarrow as pa
from deltalake import DeltaTable
from deltalake import Schema as DeltaSchema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, CommitProperties, RemoveAction, Transaction

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.lake.lakes import Snapshot, Versions, changing, check_repeated, repeated
from orbitmq.lake.layout import is_message_file
from orbitmq.lake.manifest import LakeFile, Reached
from orbitmq.lake.message_files import read_row_count, read_schema
from orbitmq.lake.schemas import DAY, PARTITIONS, TOPIC, changes, plain_schema
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import DAY_MS, KEEP_MS, interval, interval_ms

# What a table may demand of its readers and these jobs cannot do: to omit rows of a file, and to rename its columns.
FOREIGN_FEATURES = {"deletionVectors", "columnMapping"}
KEEP_FILES = "delta.deletedFileRetentionDuration"  # for how long VACUUM leaves replaced files, 7 days by default
KEEP_LOG = "delta.logRetentionDuration"  # for how long the log has the versions
LOG_MS = 30 * DAY_MS  # the default of the second
QUEUES_PROPERTY = "orbitmq.queues"  # JSON topic -> broker -> list of queue ids
Queues = dict[str, dict[str, list[int]]]


class DeltaLake:
    """The table at `place`; it is made with the first batch. `now_ms` gives milliseconds since the epoch."""

    widens = False  # a wider type would need a feature of the table that the library does not write

    def __init__(self, place: StorageLocation, now_ms: Callable[[], int]) -> None:
        self.place = place
        self._name = f"the Delta table {place.root}"
        self._now_ms = now_ms

    def last_batch(self, query_id: str) -> int:
        table = self._table()
        version = table.transaction_version(query_id) if table is not None else None
        return -1 if version is None else version

    def schema(self) -> pa.Schema | None:
        table = self._table()
        return None if table is None else _schema(table)

    def commit(self, query_id: str, batch_id: int, files: Sequence[LakeFile], reached: Sequence[Reached] = ()) -> bool:
        if not files:
            return True
        schema = read_schema(self.place, files[0].path)
        actions = [self._add(file, is_new=True) for file in files]
        progress = [Transaction(_progress_of(each.topic, each.broker, each.queue), each.next) for each in reached]
        properties = CommitProperties(app_transactions=[Transaction(query_id, batch_id), *progress])

        def change() -> bool:
            table = self._table() or self._created(schema)
            published = table.transaction_version(query_id)
            if published is not None and published >= batch_id:
                check_repeated(self._name, published, batch_id, is_reached=_is_reached(table, reached))
                return False
            if changes(_schema(table), schema, widens=self.widens):
                self._add_columns(table, schema)
            self._add_queues(table, reached)
            self._write(table, actions, properties)
            return True

        return repeated(change)

    def replace(self, removed: Sequence[LakeFile], added: Sequence[LakeFile]) -> None:
        actions = [self._add(file, is_new=False) for file in added]
        gone = [RemoveAction(file.path, data_change=False, deletion_timestamp=self._now_ms()) for file in removed]

        def change() -> None:
            table = self._table()
            missing = {file.path for file in removed} - (_paths(table) if table is not None else set())
            if table is None or missing:
                raise LakeConflict(f"another job has replaced {min(missing)}")
            self._write(table, [*actions, *gone], CommitProperties(max_commit_retries=0))

        repeated(change)

    def files(self) -> list[LakeFile]:
        table = self._table()
        return [] if table is None else sorted(map(self._file, _actions(table)), key=lambda file: file.path)

    def snapshot(self, version: str = "") -> Snapshot:
        table = self._existing(version)
        files = sorted(map(self._file, _actions(table)), key=lambda file: file.path)
        return Snapshot(str(table.version()), _schema(table), files)

    def version_at(self, time_ms: int) -> str:
        table = self._existing()
        try:
            table.load_as_version(datetime.fromtimestamp(time_ms / 1000, UTC))
        except (DeltaError, OSError) as error:
            raise LakeError(f"{self._name} has no version of that time: {error}") from error
        return str(table.version())

    def reached(self, version: str, topics: Collection[str]) -> list[Reached]:
        table = self._existing(version)
        points = []
        for topic, broker, queue in _each(_queues(table)):
            point = table.transaction_version(_progress_of(topic, broker, queue)) if topic in topics else None
            if point is not None:  # the list of queues is written first
                points.append(Reached(topic=topic, broker=broker, queue=queue, next=point))
        return points

    def keep_ms(self) -> int:
        table = self._table()
        text = None if table is None else table.metadata().configuration.get(KEEP_FILES)
        return KEEP_MS if text is None else interval_ms(text)

    def set_keep_ms(self, keep_ms: int) -> None:
        properties = {KEEP_FILES: interval(keep_ms), KEEP_LOG: interval(max(keep_ms, LOG_MS))}

        def change() -> None:
            table = self._table()
            if table is not None and properties.items() - table.metadata().configuration.items():
                with self._changing():
                    table.alter.set_table_properties(properties)

        repeated(change)

    def owns(self, path: str) -> bool:
        return is_message_file(path)

    def settle(self, since_ms: int) -> Versions:
        """The log is not read for the versions since then: files that only they have are younger."""
        table = self._table()
        if table is None:
            return Versions()
        return Versions(_paths(table), _paths(self._opened(int(self.version_at(since_ms)))))

    # ----------------------------------------------------------------------------------------------------- the table

    def _existing(self, version: str = "") -> DeltaTable:
        if version and not version.isdecimal():
            raise LakeError(f"{version!r} is no version of a Delta table; versions are numbers")
        table = self._table(int(version) if version else None)
        if table is None:
            raise LakeError(f"{self._name} does not exist yet")
        return table

    def _table(self, version: int | None = None) -> DeltaTable | None:
        try:
            table = self._opened(version)
        except TableNotFoundError:
            return None
        if foreign := FOREIGN_FEATURES.intersection(table.protocol().reader_features or ()):
            raise LakeError(
                f"{self._name} has the feature {min(foreign)}, which the jobs cannot read; "
                "purge its deleted rows and drop the feature with the engine that added it"
            )
        return table

    def _opened(self, version: int | None = None) -> DeltaTable:
        try:
            return DeltaTable(self.place.root, version=version, storage_options=self.place.s3.delta)
        except TableNotFoundError:
            raise
        except (DeltaError, OSError) as error:
            at = "" if version is None else f" at version {version}"
            raise LakeError(f"{self._name} cannot be opened{at}: {error}") from error

    def _changing(self) -> AbstractContextManager[None]:
        return changing(self._name, (CommitFailedError,), (DeltaError, OSError))

    def _created(self, schema: pa.Schema) -> DeltaTable:
        by = list(PARTITIONS)
        with self._changing():
            DeltaTable.create(
                self.place.root,
                schema,
                mode="ignore",
                name="orbitmq",
                partition_by=by,
                storage_options=self.place.s3.delta,
            )
        return self._opened()

    def _add_columns(self, table: DeltaTable, schema: pa.Schema) -> None:
        """A commit of its own, before the files that need it: without them, the columns are empty."""
        with self._changing():
            table.alter.add_columns(list(DeltaSchema.from_arrow(schema).fields))

    def _add_queues(self, table: DeltaTable, reached: Sequence[Reached]) -> None:
        """Before the progress of new queues is committed: a queue in the list without progress has none yet."""
        known = {*_each(_queues(table))}
        every = known | {(each.topic, each.broker, each.queue) for each in reached}
        if every > known:
            nested: Queues = {}
            for topic, broker, queue in sorted(every):
                nested.setdefault(topic, {}).setdefault(broker, []).append(queue)
            with self._changing():
                properties = {QUEUES_PROPERTY: json.dumps(nested, separators=(",", ":"))}
                table.alter.set_table_properties(properties, raise_if_not_exists=False)

    def _add(self, file: LakeFile, *, is_new: bool) -> AddAction:
        """With what lets readers skip a file by its times."""
        lowest = {"storeTimestamp": _text(file.first_stored_ms)}
        highest = {"storeTimestamp": _text(file.last_stored_ms + 1)}
        counts = {"numRecords": file.rows, "minValues": lowest, "maxValues": highest, "nullCount": {}}
        partition = {TOPIC: file.topic, DAY: file.day}
        return AddAction(file.path, file.size, partition, self._now_ms(), is_new, json.dumps(counts))

    def _write(
        self, table: DeltaTable, actions: Sequence[AddAction | RemoveAction], properties: CommitProperties
    ) -> None:
        with self._changing():
            table.create_write_transaction(
                list(actions), "append", table.schema(), list(PARTITIONS), commit_properties=properties
            )

    def _file(self, row: dict[str, object]) -> LakeFile:
        path = unquote(str(row["path"]))  # the log escapes it
        rows = row.get("num_records")  # engines need not tell
        return LakeFile(
            path=path,
            topic=str(row.get(f"partition.{TOPIC}") or ""),
            day=str(row.get(f"partition.{DAY}") or ""),
            rows=read_row_count(self.place, path) if rows is None else int(str(rows)),
            size=int(str(row["size_bytes"])),
        )


def _schema(table: DeltaTable) -> pa.Schema:
    return plain_schema(pa.schema(table.schema().to_arrow()))


def _progress_of(topic: str, broker: str, queue: int) -> str:
    """The name of the transaction whose version is the progress of a queue."""
    return f"orbitmq.archived/{topic}/{broker}/{queue}"


def _is_reached(table: DeltaTable, points: Iterable[Reached]) -> bool:
    """Whether the progress of the table includes these points."""
    known = ((table.transaction_version(_progress_of(each.topic, each.broker, each.queue)), each) for each in points)
    return all(at is not None and at >= each.next for at, each in known)


def _queues(table: DeltaTable) -> Queues:
    configuration: Mapping[str, str] = table.metadata().configuration
    found: Queues = json.loads(configuration.get(QUEUES_PROPERTY, "{}"))
    return found


def _each(queues: Queues) -> Iterator[tuple[str, str, int]]:
    for topic, brokers in queues.items():
        for broker, ids in brokers.items():
            for queue in ids:
                yield topic, broker, queue


def _actions(table: DeltaTable) -> list[dict[str, object]]:
    rows: list[dict[str, object]] = pa.table(table.get_add_actions(flatten=True)).to_pylist()
    return rows


def _paths(table: DeltaTable) -> set[str]:
    return {unquote(str(row["path"])) for row in _actions(table)}


def _text(milliseconds: int) -> str:
    """As statistics of Delta write times."""
    return datetime.fromtimestamp(milliseconds / 1000, UTC).isoformat().replace("+00:00", "Z")
