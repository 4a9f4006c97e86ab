"""The ledger of redelivered messages, so that none is sent twice: a SQLite file with a row for each message.

Messages are sent in chunks. A chunk is recorded before it is sent, and marked afterwards. An unmarked chunk was in
flight when a run failed. It is sent again under the same name, by which the sink finds the messages that are stored.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple

from orbitmq.errors import ConfigurationError

SCHEMA = """
CREATE TABLE IF NOT EXISTS chunk (name TEXT PRIMARY KEY, target TEXT NOT NULL, sent INTEGER NOT NULL DEFAULT 0);
CREATE TABLE IF NOT EXISTS message (
    topic TEXT, broker TEXT, queue INTEGER, offset INTEGER, msg_id TEXT, chunk TEXT NOT NULL REFERENCES chunk,
    PRIMARY KEY (topic, broker, queue, offset, msg_id)
);
"""
BUSY_SECONDS = 1.0  # a second run at the same time is refused, not waited for


class Origin(NamedTuple):
    """The origin of a message. The id distinguishes it from a message of a recreated topic."""

    topic: str
    broker: str
    queue: int
    offset: int
    msg_id: str


@dataclass(frozen=True)
class Chunk:
    """Messages that are sent together, under a name."""

    name: str
    target: str
    messages: Sequence[Origin]


class RedeliveryLedger:
    """An open ledger, locked for this process."""

    def __init__(self, connection: sqlite3.Connection) -> None:
        self._connection = connection

    def known(self) -> set[Origin]:
        """The messages that are in some chunk, sent or in flight."""
        rows = self._connection.execute("SELECT topic, broker, queue, offset, msg_id FROM message")
        return {Origin(*row) for row in rows}

    def unfinished(self) -> list[Chunk]:
        """Chunks that were in flight when a run ended."""
        names = self._connection.execute("SELECT name, target FROM chunk WHERE NOT sent ORDER BY rowid").fetchall()
        return [Chunk(name, target, self._messages(name)) for name, target in names]

    def plan(self, target: str, messages: Sequence[Origin]) -> Chunk:
        """A new chunk, on disk before this returns."""
        name = uuid.uuid4().hex
        with self._connection:
            self._connection.execute("INSERT INTO chunk (name, target) VALUES (?, ?)", (name, target))
            rows = [(*message, name) for message in messages]
            self._connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
        return Chunk(name, target, messages)

    def finish(self, chunk: Chunk) -> None:
        """All of the chunk is stored."""
        with self._connection:
            self._connection.execute("UPDATE chunk SET sent = 1 WHERE name = ?", (chunk.name,))

    def _messages(self, chunk: str) -> list[Origin]:
        text = "SELECT topic, broker, queue, offset, msg_id FROM message WHERE chunk = ? ORDER BY rowid"
        return [Origin(*row) for row in self._connection.execute(text, (chunk,))]


@contextmanager
def open_ledger(path: Path) -> Iterator[RedeliveryLedger]:
    """The ledger in this file, which is created if missing. ConfigurationError when it is in use or not a ledger."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT;")
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"option ledger: {path}: {error}") from error
        yield RedeliveryLedger(connection)
    finally:
        connection.close()
