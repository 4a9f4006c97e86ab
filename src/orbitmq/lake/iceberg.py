"""A lake as an Iceberg table: a snapshot a batch, published by the catalog.

The files come from our tasks; `pyiceberg` adds them. The number of each query's last batch, and how far the queues of a
topic are archived, are properties of the table, set in the same commit: snapshots expire, properties stay. A version
that tells both is a file of metadata; the number of a snapshot names its files alone.

Other engines may write to the table: manifests say which files there are and what they hold, whatever they are called.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping, Sequence
from contextlib import AbstractContextManager, suppress
from datetime import date, timedelta

import pyarrow as pa
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import (
    CommitFailedException,
    NamespaceAlreadyExistsError,
    NoSuchTableError,
    TableAlreadyExistsError,
    ValidationException,
)
from pyiceberg.io.pyarrow import parquet_file_to_data_file
from pyiceberg.table import FileScanTask, StaticTable, Table
from pyiceberg.table.snapshots import Snapshot as IcebergSnapshot
from pyiceberg.transforms import IdentityTransform
from pyiceberg.utils.concurrent import ExecutorFactory
from sqlalchemy.exc import IntegrityError, SQLAlchemyError

from orbitmq.errors import LakeConflict, LakeError
from orbitmq.lake.lakes import Snapshot, Versions, changing, check_repeated, repeated
from orbitmq.lake.layout import TABLE_FOLDER, is_message_file, is_metadata
from orbitmq.lake.manifest import LakeFile, Reached
from orbitmq.lake.message_files import read_schema
from orbitmq.lake.schemas import DAY, PARTITIONS, TOPIC, changes, plain_schema
from orbitmq.lake.storage import StorageLocation
from orbitmq.lake.versions import KEEP_MS, duration_text, replaced_before

TABLE = "orbitmq.messages"
CATALOG = "orbitmq"
BATCH_PROPERTY = "orbitmq.batch."
PROGRESS_PROPERTY = "orbitmq.archived."  # of a topic: JSON broker -> queue -> first offset that is not archived
EPOCH = date(1970, 1, 1)
# The last two are what a catalog in a database says when several archives begin at the same time.
CONFLICTS = (CommitFailedException, ValidationException, NamespaceAlreadyExistsError, IntegrityError)
# The library would repeat a commit that has met another one, and not see that the other one was the same batch.
RETRIES = "commit.retry.num-retries"
KEEP_PROPERTY = "history.expire.max-snapshot-age-ms"  # what engines expire snapshots by
TABLE_PROPERTIES = {"commit.manifest-merge.enabled": "true"}  # else each batch adds a file that later readers open


class IcebergLake:
    """The table `orbitmq.messages` of a catalog, with its files at `place`; created with the first batch.

    `catalog` are properties of pyiceberg's `load_catalog`; without any a SQLite file next to the messages is the
    catalog, if the place is a directory.
    """

    widens = True

    def __init__(self, place: StorageLocation, catalog: Mapping[str, str] | None = None) -> None:
        self.place = place
        self._name = f"the Iceberg table at {place.root}"
        self._properties = place.s3.iceberg | dict(catalog or _own_catalog(place))

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
            if (published := _last_batch(table, query_id)) >= batch_id:
                check_repeated(self._name, published, batch_id, is_reached=_is_reached(table, reached))
                return False
            with self._changing(), table.transaction() as changing:
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
                self._changing(),
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
            raise LakeError(f"{self._name} has no snapshot {version}; it may have expired")
        schemas = table.schemas()
        schema = schemas[found.schema_id] if found.schema_id in schemas else table.schema()
        return Snapshot(version, plain_schema(schema.as_arrow()), self._files(table, found.snapshot_id))

    def version_at(self, time_ms: int) -> str:
        found = self._existing().snapshot_as_of_timestamp(time_ms)
        if found is None:
            raise LakeError(
                f"{self._name} has no snapshot of that time; snapshots expire {duration_text(self.keep_ms())} after "
                "they were replaced"
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

    def keep_ms(self) -> int:
        table = self._table()
        return KEEP_MS if table is None else int(table.properties.get(KEEP_PROPERTY, KEEP_MS))

    def set_keep_ms(self, keep_ms: int) -> None:
        def change() -> None:
            table = self._table()
            if table is not None and table.properties.get(KEEP_PROPERTY) != str(keep_ms):
                with self._changing(), table.transaction() as changing:
                    changing.set_properties({KEEP_PROPERTY: str(keep_ms)})

        repeated(change)

    def owns(self, path: str) -> bool:
        return is_message_file(path) or is_metadata(path)

    def settle(self, since_ms: int) -> Versions:
        """Snapshots of the main branch expire. Those that branches and tags name stay."""

        def change() -> Table | None:
            table = self._table()
            if table is not None and (gone := _replaced_before(table, since_ms)):
                with self._changing():
                    table.maintenance.expire_snapshots().by_ids(sorted(gone)).commit()
            return table

        table = repeated(change)
        current = None if table is None else table.current_snapshot()
        if table is None or current is None:
            return Versions()
        files = {task.file.file_path for task in _tasks(table)}
        files |= {table.metadata_location, *_manifests(table, [current])}
        older = {*table.inspect.all_files()["file_path"].to_pylist(), *_manifests(table, table.snapshots())}
        older |= {entry.metadata_file for entry in table.metadata.metadata_log}  # the last one was current until now
        return Versions(*({self._path(uri) for uri in uris} for uris in (files, older)))

    # ----------------------------------------------------------------------------------------------------- the table

    def _catalog(self) -> Catalog:
        def opened() -> Catalog:
            try:
                return load_catalog(CATALOG, **self._properties)
            except SQLAlchemyError as error:
                raise LakeConflict(f"the Iceberg catalog cannot be opened: {error}") from error
            except Exception as error:  # any error of the catalog's own library
                raise LakeError(f"the Iceberg catalog cannot be opened: {error}") from error

        return repeated(opened, 2)  # another archive may be creating the tables of a new catalog

    def _table(self) -> Table | None:
        try:
            table = self._catalog().load_table(TABLE)
        except NoSuchTableError:
            return None
        table.metadata.properties[RETRIES] = "0"  # in this copy only
        return table

    def _changing(self) -> AbstractContextManager[None]:
        return changing(self._name, CONFLICTS, (OSError, ValueError, SQLAlchemyError))

    def _existing(self, version: str = "") -> Table:
        """At a file of metadata, or now."""
        if version:
            try:
                return StaticTable.from_metadata(version, self._properties)
            except (OSError, ValueError) as error:
                raise LakeError(f"{version} is no version of an Iceberg table: {error}") from error
        table = self._table()
        if table is None:
            raise LakeError(f"{self._name} does not exist yet, or is in another catalog")
        return table

    def _files(self, table: Table, snapshot_id: int | None = None) -> list[LakeFile]:
        tasks = table.scan(snapshot_id=snapshot_id).plan_files()
        return sorted((self._file(table, task) for task in tasks), key=lambda file: file.path)

    def _created(self, schema: pa.Schema) -> Table:
        catalog = self._catalog()
        with self._changing(), suppress(TableAlreadyExistsError):  # another archive was faster
            catalog.create_namespace_if_not_exists(TABLE.partition(".")[0])
            location = f"{self._base}/{TABLE_FOLDER}"
            created = catalog.create_table_transaction(TABLE, schema, location, properties=TABLE_PROPERTIES)
            with created as making, making.update_spec() as spec:
                for column in PARTITIONS:
                    spec.add_identity(column)
        table = self._table()
        assert table is not None, "it was created"
        return table

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


def _own_catalog(place: StorageLocation) -> dict[str, str]:
    if not place.is_local:
        raise LakeError(f"an Iceberg table at {place.root} needs a catalog: set option lakeCatalog to its properties")
    place.folder.mkdir(parents=True, exist_ok=True)
    file = place.folder / "_iceberg_catalog.sqlite"
    return {"type": "sql", "uri": f"sqlite:///{file}", "warehouse": f"file://{place.folder}"}


def _last_batch(table: Table, query_id: str) -> int:
    return int(table.properties.get(BATCH_PROPERTY + query_id, "-1"))


def _reached(table: Table, topic: str) -> dict[str, dict[str, int]]:
    found: dict[str, dict[str, int]] = json.loads(table.properties.get(PROGRESS_PROPERTY + topic, "{}"))
    return found


def _is_reached(table: Table, points: Iterable[Reached]) -> bool:
    """Whether the progress of the table includes these points."""
    known = ((_reached(table, each.topic).get(each.broker, {}).get(str(each.queue), -1), each) for each in points)
    return all(at >= each.next for at, each in known)


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


def _replaced_before(table: Table, time_ms: int) -> set[int]:
    """Snapshots that may expire: other engines may have expired some, and named others."""
    metadata = table.metadata
    history = [(entry.snapshot_id, entry.timestamp_ms) for entry in metadata.snapshot_log]
    named = {ref.snapshot_id for ref in metadata.refs.values()}
    return (replaced_before(history, time_ms) & {snapshot.snapshot_id for snapshot in metadata.snapshots}) - named


def _manifests(table: Table, snapshots: Sequence[IcebergSnapshot]) -> set[str]:
    """The lists of manifests of the snapshots, and the manifests in them."""
    lists = ExecutorFactory.get_or_create().map(lambda snapshot: snapshot.manifests(table.io), snapshots)
    return {manifest.manifest_path for found in lists for manifest in found} | {
        snapshot.manifest_list for snapshot in snapshots
    }
