"""The ledger of redelivered messages, so that none is sent twice: a SQLite file with a row for each message.

What a run selects is in a temporary table beside it, so that the memory of a run does not depend on how many there are.
Messages are sent in chunks. A chunk is recorded before it is sent, and marked afterwards. An unmarked chunk was in
flight when a run failed. It is sent again under the same name, by which the sink finds the messages that are stored.
"""

from __future__ import annotations

import sqlite3
import uuid
from collections.abc import Iterable, Iterator, Sequence
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
CREATE INDEX IF NOT EXISTS message_of_chunk ON message (chunk);
"""
SELECTED = """
CREATE TEMP TABLE selected (
    topic TEXT, broker TEXT, queue INTEGER, offset INTEGER, msg_id TEXT,
    PRIMARY KEY (topic, broker, queue, offset, msg_id)
) WITHOUT ROWID;
"""
NEXT = """
SELECT topic, broker, queue, offset, msg_id FROM selected ORDER BY topic, broker, queue, offset, msg_id LIMIT ?
"""
DROP = "DELETE FROM selected WHERE (topic, broker, queue, offset, msg_id) <= (?, ?, ?, ?, ?)"
COUNT = "SELECT count(*) FROM message JOIN chunk ON chunk = name WHERE sent = ?"
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

    def knows(self, message: Origin) -> bool:
        """Whether it is in some chunk, sent or in flight."""
        text = "SELECT 1 FROM message WHERE topic = ? AND broker = ? AND queue = ? AND offset = ? AND msg_id = ?"
        return self._connection.execute(text, message).fetchone() is not None

    @property
    def sent(self) -> int:
        """Messages of chunks that are stored."""
        return self._count(COUNT, 1)

    @property
    def in_flight(self) -> int:
        """Messages of chunks that were in flight when a run ended."""
        return self._count(COUNT, 0)

    @property
    def selected(self) -> int:
        """Messages that were selected and are in no chunk yet."""
        return self._count("SELECT count(*) FROM selected")

    def unfinished(self) -> Iterator[Chunk]:
        """Chunks that were in flight when a run ended. They may be finished meanwhile."""
        names = self._connection.execute("SELECT name, target FROM chunk WHERE NOT sent ORDER BY rowid").fetchall()
        return (Chunk(name, target, self._messages(name)) for name, target in names)

    def select(self, messages: Iterable[Origin]) -> None:
        """Select messages for the chunks of this run. They are forgotten with it."""
        with self._connection:
            self._connection.executemany("INSERT OR IGNORE INTO selected VALUES (?, ?, ?, ?, ?)", messages)

    def plan(self, target: str, size: int) -> Chunk | None:
        """A new chunk of at most so many selected messages in the order of their places, on disk before this returns.
        None when nothing is selected."""
        messages = [Origin(*row) for row in self._connection.execute(NEXT, (size,))]
        if not messages:
            return None
        name = uuid.uuid4().hex
        with self._connection:
            self._connection.execute("INSERT INTO chunk (name, target) VALUES (?, ?)", (name, target))
            rows = [(*message, name) for message in messages]
            self._connection.executemany("INSERT INTO message VALUES (?, ?, ?, ?, ?, ?)", rows)
            self._connection.execute(DROP, messages[-1])
        return Chunk(name, target, messages)

    def finish(self, chunk: Chunk) -> None:
        """All of the chunk is stored."""
        with self._connection:
            self._connection.execute("UPDATE chunk SET sent = 1 WHERE name = ?", (chunk.name,))

    def _messages(self, chunk: str) -> list[Origin]:
        text = "SELECT topic, broker, queue, offset, msg_id FROM message WHERE chunk = ? ORDER BY rowid"
        return [Origin(*row) for row in self._connection.execute(text, (chunk,))]

    def _count(self, text: str, *values: int) -> int:
        return int(self._connection.execute(text, values).fetchone()[0])


@contextmanager
def open_ledger(path: Path) -> Iterator[RedeliveryLedger]:
    """The ledger in this file, which is created if missing. ConfigurationError when it is in use or not a ledger."""
    connection = sqlite3.connect(path, timeout=BUSY_SECONDS)
    try:
        try:
            connection.execute("PRAGMA locking_mode = EXCLUSIVE")
            connection.execute("PRAGMA synchronous = FULL")
            connection.executescript(f"BEGIN EXCLUSIVE; {SCHEMA} COMMIT; {SELECTED}")
        except sqlite3.DatabaseError as error:
            raise ConfigurationError(f"option ledger: {path}: {error}") from error
        yield RedeliveryLedger(connection)
    finally:
        connection.close()
