"""A lake as an Iceberg table: a snapshot a batch, published by the catalog.

The files come from our tasks; `pyiceberg` adds them. The number of each query's last batch, and how far the queues of a
topic are archived, are properties of the table, set in the same commit: snapshots expire, properties stay. A version
that tells both is a file of metadata; the number of a snapshot names its files alone.

Other engines may write to the table: manifests say which files there are and what they hold, whatever they are called.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import suppress
from datetime import UTC, date, datetime, timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError, ValidationException
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.transforms import IdentityTransform

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.lake.lakes import GRACE_MS, Snapshot, repeated
from orbitmq.lake.layout import TABLE_FOLDER
from orbitmq.lake.manifest import LakeFile, Reached
from orbitmq.lake.message_files import read_schema
from orbitmq.lake.schemas import DAY, PARTITIONS, TOPIC, changes, plain_schema
from orbitmq.lake.storage import StorageLocation

TABLE = "orbitmq.messages"
CATALOG = "orbitmq"
BATCH_PROPERTY = "orbitmq.batch."
PROGRESS_PROPERTY = "orbitmq.archived."  # of a topic: JSON broker -> queue -> first offset that is not archived
EPOCH = date(1970, 1, 1)


class IcebergLake:
    """The table `orbitmq.messages` of a catalog, with its files at `place`; created with the first batch.

    `catalog` are properties of pyiceberg's `load_catalog`; without any a SQLite file next to the messages is the
    catalog, if the place is a directory.
    """

    widens = True

    def __init__(self, place: StorageLocation, catalog: Mapping[str, str] | None = None) -> None:
        self.place = place
        self._properties = dict(catalog) if catalog else _own_catalog(place)

    def last_batch(self, query_id: str) -> int:
        table = self._table()
        return -1 if table is None else _last_batch(table, query_id)

    def schema(self) -> pa.Schema | None:
        table = self._table()
        return None if table is None else _schema(table)

    def commit(self, query_id: str, batch_id: int, files: Sequence[LakeFile], reached: Sequence[Reached] = ()) -> bool:
        if not files:
            return True
        schema = read_schema(self.place, files[0].path)

        def change() -> bool:
            table = self._table() or self._created(schema)
            if _last_batch(table, query_id) >= batch_id:
                return False
            with _Changing(self.place), table.transaction() as changing:
                if changes(_schema(table), schema, widens=self.widens):
                    with changing.update_schema() as update:
                        update.union_by_name(schema)
                changing.set_properties({BATCH_PROPERTY + query_id: str(batch_id), **_progress(table, reached)})
                changing.add_files([self._uri(file.path) for file in files])
            return True

        return repeated(change)

    def replace(self, removed: Sequence[LakeFile], added: Sequence[LakeFile]) -> None:
        def change() -> None:
            table = self._table()
            known = {self._path(task.file.file_path): task.file for task in _tasks(table)} if table is not None else {}
            missing = {file.path for file in removed} - known.keys()
            if table is None or missing:
                raise LakeConflict(f"another job has replaced {min(missing)}")
            with (
                _Changing(self.place),
                table.transaction() as changing,
                changing.update_snapshot().overwrite() as files,
            ):
                for file in removed:
                    files.delete_data_file(known[file.path])
                for file in added:
                    files.append_data_file(
                        parquet_file_to_data_file(
                            io=table.io, table_metadata=changing.table_metadata, file_path=self._uri(file.path)
                        )
                    )

        repeated(change)

    def files(self) -> list[LakeFile]:
        table = self._table()
        return [] if table is None else self._files(table)

    def snapshot(self, version: str = "") -> Snapshot:
        table = self._existing("" if version.isdecimal() else version)
        if not version.isdecimal():
            return Snapshot(table.metadata_location, _schema(table), self._files(table))
        found = table.snapshot_by_id(int(version))
        if found is None:
            raise LakeError(f"the Iceberg table at {self.place.root} has no snapshot {version}; it may have expired")
        schemas = table.schemas()
        schema = schemas[found.schema_id] if found.schema_id in schemas else table.schema()
        return Snapshot(version, plain_schema(schema.as_arrow()), self._files(table, found.snapshot_id))

    def version_at(self, time_ms: int) -> str:
        found = self._existing().snapshot_as_of_timestamp(time_ms)
        if found is None:
            raise LakeError(
                f"the Iceberg table at {self.place.root} has no snapshot of that time; snapshots expire after an hour"
            )
        return str(found.snapshot_id)

    def reached(self, version: str, topics: Collection[str]) -> list[Reached]:
        if version.isdecimal():
            raise LakeError(f"snapshot {version} does not tell how far topics are archived; use a file of metadata")
        table = self._existing(version)
        return [
            Reached(topic=topic, broker=broker, queue=int(queue), next=point)
            for topic in sorted(topics)
            for broker, queues in sorted(_reached(table, topic).items())
            for queue, point in sorted(queues.items(), key=lambda item: int(item[0]))
        ]

    def settle(self, now_ms: int) -> Collection[str]:
        """Snapshots expire; files of the remaining ones are kept."""
        oldest = datetime.fromtimestamp((now_ms - GRACE_MS) / 1000, UTC)

        def change() -> Table | None:
            table = self._table()
            if table is not None:
                with _Changing(self.place):
                    table.maintenance.expire_snapshots().older_than(oldest).commit()
            return table

        table = repeated(change)
        if table is None:
            return set()
        return {self._path(uri) for uri in table.inspect.all_files()["file_path"].to_pylist()}

    # ----------------------------------------------------------------------------------------------------- the table

    def _catalog(self) -> Catalog:
        try:
            return load_catalog(CATALOG, **self._properties)
        except Exception as error:  # any error of the catalog's own library
            raise LakeError(f"the Iceberg catalog cannot be opened: {error}") from error

    def _table(self) -> Table | None:
        try:
            return self._catalog().load_table(TABLE)
        except NoSuchTableError:
            return None

    def _existing(self, version: str = "") -> Table:
        """At a file of metadata, or now."""
        if version:
            try:
                return StaticTable.from_metadata(version, self._properties)
            except (OSError, ValueError) as error:
                raise LakeError(f"{version} is no version of an Iceberg table: {error}") from error
        table = self._table()
        if table is None:
            raise LakeError(f"the Iceberg table at {self.place.root} does not exist yet, or is in another catalog")
        return table

    def _files(self, table: Table, snapshot_id: int | None = None) -> list[LakeFile]:
        tasks = table.scan(snapshot_id=snapshot_id).plan_files()
        return sorted((self._file(table, task) for task in tasks), key=lambda file: file.path)

    def _created(self, schema: pa.Schema) -> Table:
        catalog = self._catalog()
        with _Changing(self.place), suppress(TableAlreadyExistsError):  # another archive was faster
            catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])
            location = f"{self._base}/{TABLE_FOLDER}"
            with catalog.create_table_transaction(TABLE, schema, location) as making, making.update_spec() as spec:
                for column in PARTITIONS:
                    spec.add_identity(column)
        return catalog.load_table(TABLE)

    @property
    def _base(self) -> str:
        root = self.place.root
        return root.rstrip("/") if "://" in root else f"file://{root}"

    def _uri(self, path: str) -> str:
        return path if "://" in path else f"{self._base}/{path}"

    def _path(self, uri: str) -> str:
        """Relative where it can be. Hadoop writes `file:/` for `file:///`."""
        if uri.startswith("file:/") and not uri.startswith("file://"):
            uri = f"file://{uri.removeprefix('file:')}"
        return uri.removeprefix(self._base + "/")

    def _file(self, table: Table, task: FileScanTask) -> LakeFile:
        data = task.file
        partition = {
            table.schema().find_column_name(field.source_id): data.partition[position]
            for position, field in enumerate(table.specs()[data.spec_id].fields)
            if isinstance(field.transform, IdentityTransform)
        }
        days = partition.get(DAY)
        return LakeFile(
            path=self._path(data.file_path),
            topic=str(partition.get(TOPIC) or ""),
            day="" if days is None else (EPOCH + timedelta(days=int(str(days)))).isoformat(),
            rows=data.record_count,
            size=data.file_size_in_bytes,
            is_whole=not task.delete_files,
        )


class _Changing:
    """Foreign errors of a change in our own words."""

    def __init__(self, place: StorageLocation) -> None:
        self._place = place

    def __enter__(self) -> None:
        return None

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, (CommitFailedException, ValidationException)):
            raise LakeConflict(f"the Iceberg table at {self._place.root} was changed by another job") from error
        if isinstance(error, (OSError, ValueError)):
            raise LakeError(f"the Iceberg table at {self._place.root} cannot be written: {error}") from error


def _own_catalog(place: StorageLocation) -> dict[str, str]:
    if not place.is_local:
        raise LakeError(f"an Iceberg table at {place.root} needs a catalog: set its properties (uri, type, ...)")
    place.folder.mkdir(parents=True, exist_ok=True)
    file = place.folder / "_iceberg_catalog.sqlite"
    return {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": f"file://{place.folder}"}


def _last_batch(table: Table, query_id: str) -> int:
    return int(table.properties.get(BATCH_PROPERTY + query_id, "-1"))


def _reached(table: Table, topic: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(table.properties.get(PROGRESS_PROPERTY + topic, "{}"))
    return found


def _progress(table: Table, reached: Iterable[Reached]) -> dict[str, str]:
    """The properties for the progress of a batch."""
    topics: dict[str, dict[str, dict[str, int]]] = {}
    for each in reached:
        brokers = topics.setdefault(each.topic, _reached(table, each.topic))
        brokers.setdefault(each.broker, {})[str(each.queue)] = each.next
    return {PROGRESS_PROPERTY + topic: json.dumps(brokers, separators=(",", ":")) for topic, brokers in topics.items()}


def _schema(table: Table) -> pa.Schema:
    return plain_schema(table.schema().as_arrow())


def _tasks(table: Table) -> Iterable[FileScanTask]:
    return table.scan().plan_files()
