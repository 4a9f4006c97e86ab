"""Paths and names of the files of a lake. Pure.

    <root>/messages/<topic>/<UTC day of storing>/<name>.parquet     messages that these jobs wrote
    <root>/_delta_log/...                                           the transaction log of a Delta table
    <root>/_iceberg/...                                             what Iceberg keeps of its table

The folders are for people. The table knows the topic and the day of each file, and other engines name theirs as they
like. The folders are not called `topic=...`: the files have that column, and engines that guess partitions from folders
would see it twice. Names contain the writer and a unique part, so that two attempts of a task never collide.
"""

from __future__ import annotations

import re

PARQUET = ".parquet"
MESSAGES_FOLDER = "messages"
TABLE_FOLDER = "_iceberg"
_PATH = re.compile(rf"{MESSAGES_FOLDER}/[^/]+/\d{{4}}-\d{{2}}-\d{{2}}/[^/]+\.parquet")
_TABLE_PATH = re.compile(rf"{TABLE_FOLDER}/metadata/[^/]+\.(?:avro|metadata\.json)")
_ESCAPES = {"%": ".25", "|": ".7C"}  # a topic may hold these two, and no dot
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]")


def file_path(topic: str, day: str, writer: str, unique: str) -> str:
    """The relative path of a new file. `writer` names its job, `unique` differs in every attempt.

    Topics may contain `%` and `|`, which have a meaning in file systems and engines.
    """
    for letter, escape in _ESCAPES.items():
        topic = topic.replace(letter, escape)
    return f"{MESSAGES_FOLDER}/{topic}/{day}/{_NOT_IN_NAMES.sub('-', writer)}-{unique}{PARQUET}"


def written_by(path: str, writer: str) -> bool:
    """Whether a file's writer was called so, or began with it and a `-`."""
    return path.rpartition("/")[2].startswith(f"{writer}-")


def is_message_file(path: str) -> bool:
    """Whether a relative path is one that `file_path` makes."""
    return _PATH.fullmatch(path) is not None


def is_metadata(path: str) -> bool:
    """Whether a relative path may be that of a version of an Iceberg table, of a manifest, or of a list of them."""
    return _TABLE_PATH.fullmatch(path) is not None
