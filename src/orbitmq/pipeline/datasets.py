"""What a job reads and writes, under the names that OpenLineage gives to data: a namespace, and a name in it. Pure.

A topic is named as one of Kafka is: `rocketmq://` with the first name server, and the topic. Files and tables are named
by where they are: `file` and the path, or the bucket or file system and the path in it.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

UNKNOWN_SERVER = "unknown"
WHOLE_PATH = ("hdfs", "viewfs")  # schemes whose names keep the first slash; buckets have none


@dataclass(frozen=True)
class Dataset:
    """A topic, a table or a folder, and what one run read of it or wrote into it, as far as known."""

    namespace: str
    name: str
    rows: int | None = None
    size: int | None = None
    """Bytes."""
    files: int | None = None


@dataclass(frozen=True)
class Lineage:
    """The data of a run."""

    inputs: Sequence[Dataset] = ()
    outputs: Sequence[Dataset] = ()


def topics(name_servers: Sequence[str], names: Iterable[str], rows: int | None = None) -> list[Dataset]:
    """Topics. `rows` is the number of messages of all of them together, which says nothing of several."""
    namespace = f"rocketmq://{name_servers[0] if name_servers else UNKNOWN_SERVER}"
    found = sorted(set(names))
    return [Dataset(namespace, name, rows if len(found) == 1 else None) for name in found]


def counted_topics(name_servers: Sequence[str], rows: Mapping[str, int]) -> list[Dataset]:
    """Topics with the number of messages of each."""
    return [found for name in rows for found in topics(name_servers, [name], rows[name])]


def location(root: str, rows: int | None = None, size: int | None = None, files: int | None = None) -> Dataset:
    """A folder, or a URI of a file system of Arrow, without the credentials and settings that it may contain."""
    scheme, is_uri, rest = root.partition("://")
    if not is_uri or scheme == "file":
        path = rest if is_uri else str(Path(root).expanduser().absolute())
        return Dataset("file", path.rstrip("/") or "/", rows, size, files)
    host, slash, path = rest.partition("?")[0].partition("/")
    account, _, server = host.rpartition("@")
    plain = server if ":" in account else host  # `container@account` is a place, `key:secret@bucket` has a secret
    name = path.strip("/") or "/"
    return Dataset(f"{scheme}://{plain}", slash + name if scheme in WHOLE_PATH and path else name, rows, size, files)
