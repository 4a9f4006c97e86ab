"""The table of consume queues and their place on disk: `consumequeue/<topic>/<queue id>/`."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from orbitmq.errors import MessageIllegal
from orbitmq.message.topics import TOPIC_LENGTH_MAX
from orbitmq.store.files import Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.queue import ConsumeQueue


class ConsumeQueues:
    """(topic, queue id) -> queue. A queue gets its directory with its first entry."""

    def __init__(self, door: Files, directory: Path, file_size: int) -> None:
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        self._door = door
        self._directory = directory
        self._file_size = file_size

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self.table.values()))  # a copy: workers iterate while queues are created

    def load(self) -> None:
        """Map every queue on disk. Directories that are not named by a number are left alone."""
        for topic in self._door.names(self._directory):
            for name in self._door.names(self._directory / topic):
                if name.isdecimal() and self._door.is_directory(self._directory / topic / name):
                    self.create(topic, int(name)).files.load()

    def create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new, empty queue in the table. MessageIllegal for a topic that cannot be stored."""
        if topic in ("", ".", "..") or "/" in topic or "\0" in topic or len(topic.encode()) > TOPIC_LENGTH_MAX:
            raise MessageIllegal(f"a topic named {topic!r} cannot be stored")
        files = NumberedFiles(self._door, self._directory / topic / str(queue_id), self._file_size)
        queue = self.table[topic, queue_id] = ConsumeQueue(topic, queue_id, files)
        return queue

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self.table.get((topic, queue_id)) or self.create(topic, queue_id)

    def furthest(self) -> ConsumeQueue | None:
        """The queue whose last message lies furthest in the log."""
        return max(self, key=lambda queue: queue.max_physical_offset, default=None)

    def destroy(self) -> None:
        """Remove every queue from disk."""
        for queue in self:
            queue.destroy()
        self.table.clear()

    def close(self) -> None:
        for queue in self:
            queue.close()
