"""Paths and names of the files of a lake. Pure.

    <root>/topic=<topic>/dt=<UTC day of storing>/<name>.parquet     messages
    <root>/_orbit_log/...                                           the log of a plain Parquet lake, see `parquet_log`
    <root>/_iceberg/...                                             what Iceberg keeps of its table

The folders are for people and for engines that discover partitions; the file itself has the topic of each message.
Names contain the writer and a unique part, so that two attempts of a task never collide.
"""

from __future__ import annotations

import re

from orbitmq.errors import LakeError

PARQUET = ".parquet"
LOG_FOLDER = "_orbit_log"
TABLE_FOLDER = "_iceberg"
_PATH = re.compile(r"topic=(?P<topic>[^/]+)/dt=(?P<day>\d{4}-\d{2}-\d{2})/[^/]+\.parquet")
_ESCAPES = {"%": ".25", "|": ".7C"}  # a topic may hold these two, and no dot
_NOT_IN_NAMES = re.compile(r"[^A-Za-z0-9-]")


def file_path(topic: str, day: str, writer: str, unique: str) -> str:
    """The relative path of a new file. `writer` names its job, `unique` differs in every attempt.

    Topics may contain `%` and `|`, which have a meaning in file systems and engines.
    """
    for letter, escape in _ESCAPES.items():
        topic = topic.replace(letter, escape)
    return f"topic={topic}/dt={day}/{_NOT_IN_NAMES.sub('-', writer)}-{unique}{PARQUET}"


def topic_and_day(path: str) -> tuple[str, str]:
    """The topic and the day of a path. LakeError for a path that `file_path` did not make."""
    found = _PATH.fullmatch(path)
    if found is None:
        raise LakeError(f"{path} is not the path of a message file; expected topic=<topic>/dt=<day>/<name>.parquet")
    topic = found["topic"]
    for letter, escape in _ESCAPES.items():
        topic = topic.replace(escape, letter)
    return topic, found["day"]


def written_by(path: str, writer: str) -> bool:
    """Whether a file's writer was called so, or began with it and a `-`."""
    return path.rpartition("/")[2].startswith(f"{writer}-")


def is_message_file(path: str) -> bool:
    """Whether a relative path is one that `file_path` makes."""
    return _PATH.fullmatch(path) is not None
