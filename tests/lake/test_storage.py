"""Files are found by the names that tables have for them, in the lake and elsewhere."""

from __future__ import annotations

from pathlib import Path

from orbitmq.lake.iceberg import IcebergLake
from orbitmq.lake.storage import StorageLocation

NAME = "topic=%25DLQ%25a%7Cb/part-0.parquet"  # what an engine makes of a topic: nothing in it is an escape


def test_a_file_is_read_by_its_path_and_elsewhere_by_its_uri(tmp_path: Path) -> None:
    place, other = StorageLocation(str(tmp_path / "lake")), StorageLocation(str(tmp_path / "other"))
    for each, content in ((place, b"ours"), (other, b"theirs")):
        with each.open(NAME) as sink:
            sink.write(content)
    assert place.read(NAME).read() == b"ours"
    uri = f"file://{other.root}/{NAME}"
    assert place.uri(uri) == uri
    assert place.read(uri).read() == b"theirs"


def test_names_of_a_table_are_relative_where_they_can_be(tmp_path: Path) -> None:
    lake = IcebergLake(StorageLocation(str(tmp_path)))
    for prefix in ("file://", "file:"):  # Hadoop writes the second
        assert lake._path(f"{prefix}{tmp_path}/{NAME}") == NAME
        assert lake._path(f"{prefix}/elsewhere/{NAME}") == f"file:///elsewhere/{NAME}"
