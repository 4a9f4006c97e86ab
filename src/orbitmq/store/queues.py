"""The table of consume queues and their directories: `consumequeue/<topic>/<queue id>/`.

Their extensions are in `consumequeue_ext/<topic>/<queue id>/`. Existing ones are read whether or not new ones are
written, for the entries of their queue are meaningless without them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from pathlib import Path

from orbitmq.errors import MessageIllegal
from orbitmq.message.topics import TOPIC_LENGTH_MAX, is_lmq
from orbitmq.store.extended_queue import ExtendedQueue
from orbitmq.store.files import Disk, Files
from orbitmq.store.numbered import NumberedFiles
from orbitmq.store.queue import ConsumeQueue


def is_storable(topic: str) -> bool:
    """Whether a topic can be a directory."""
    return topic not in ("", ".", "..") and not set("/\0") & set(topic) and len(topic.encode()) <= TOPIC_LENGTH_MAX


def check_storable(topic: str) -> None:
    """MessageIllegal for a topic that cannot be a directory."""
    if not is_storable(topic):
        raise MessageIllegal(f"a topic named {topic!r} cannot be stored")


class ConsumeQueues:
    """(topic, queue id) -> queue. A queue gets its directory with its first entry.

    `extended_file_size` is that of the extensions of new queues, 0 for none.

    Invariant: `_topics` holds the queues of `table`, by topic and queue id; no topic in it is without a queue.
    """

    def __init__(self, fs: Files, root: Path, file_size: int, extended_file_size: int = 0) -> None:
        self.table: dict[tuple[str, int], ConsumeQueue] = {}
        self._topics: dict[str, dict[int, ConsumeQueue]] = {}
        self._light_queues = 0
        self._fs = fs
        self._root = root
        self._disk: Disk | None = None
        self._directory = root / "consumequeue"
        self._extended_directory = root / "consumequeue_ext"
        self._file_size = file_size
        self._extended_file_size = extended_file_size

    def __iter__(self) -> Iterator[ConsumeQueue]:
        return iter(list(self.table.values()))  # a copy: workers iterate while queues are created

    def load(self) -> bool:
        """Map every queue on disk; False if files of one are missing. Directories without a number are ignored."""
        self._disk = self._fs.disk(self._root)
        is_whole = True
        for topic in self._fs.names(self._directory):
            for name in self._fs.names(self._directory / topic):
                if name.isdecimal() and self._fs.is_directory(self._directory / topic / name):
                    queue = self._add(topic, int(name))
                    queue.lost_files = not queue.files.load_up_to_gap()
                    is_whole = is_whole and not queue.lost_files
        return is_whole

    def counts(self) -> dict[str, int]:
        """Topics that have messages, and how many queues of each are used. For any thread."""
        found: dict[str, int] = {}
        for queue in self:
            found[queue.topic] = max(found.get(queue.topic, 0), queue.queue_id + 1)
        return found

    def create(self, topic: str, queue_id: int) -> ConsumeQueue:
        """A new, empty queue in the table. MessageIllegal for a topic that cannot be stored."""
        check_storable(topic)
        queue = self._add(topic, queue_id)
        if queue.extended is not None:
            queue.extended.recover(None, clean=False)  # an extension that its queue has not survived is of no use
        return queue

    def _add(self, topic: str, queue_id: int) -> ConsumeQueue:
        files = NumberedFiles(self._fs, self._directory / topic / str(queue_id), self._file_size)
        queue = ConsumeQueue(topic, queue_id, files, self.extension(topic, queue_id))
        self.table[topic, queue_id] = queue
        self._topics.setdefault(topic, {})[queue_id] = queue
        self._light_queues += is_lmq(topic)
        return queue

    def of(self, topic: str) -> list[ConsumeQueue]:
        """The queues of a topic, in the order of their ids. For any thread."""
        return [queue for _, queue in sorted(self._topics.get(topic, {}).items())]

    def extension(self, topic: str, queue_id: int) -> ExtendedQueue | None:
        """The extension on disk, which keeps the file size it began with; else an empty one if it shall have one."""
        directory = self._extended_directory / topic / str(queue_id)
        names = self._fs.names(directory)
        size = self._fs.size(directory / names[0]) if names else self._extended_file_size
        if size <= 0:
            return None
        files = NumberedFiles(self._fs, directory, size)
        files.load()
        return ExtendedQueue(files)

    def find_or_create(self, topic: str, queue_id: int) -> ConsumeQueue:
        return self.table.get((topic, queue_id)) or self.create(topic, queue_id)

    def has_light_queues(self, count: int) -> bool:
        """Whether there are `count` light queues."""
        return self._light_queues >= count

    def flush(self, queues: Iterable[ConsumeQueue]) -> bool:
        """Return when the entries of these queues that were made before the call are on disk. OSError if they are not.
        Returns whether their whole file system was flushed. Thread-safe after `load`.
        """
        assert self._disk is not None, "it was loaded"
        found = [(queue, queue.unflushed()) for queue in queues]
        came_along = self._disk.sync([file for _, unflushed in found for file in unflushed.files])
        for queue, unflushed in found:
            queue.came(unflushed)
        return came_along

    def furthest(self) -> ConsumeQueue | None:
        """The queue whose last message lies furthest in the log."""
        return max(self, key=lambda queue: queue.max_physical_offset, default=None)

    def has_directory(self, topic: str) -> bool:
        """Whether there is anything of the topic's queues on disk."""
        return self._fs.is_directory(self._directory / topic)

    def remove(self, queue: ConsumeQueue) -> None:
        """Remove a queue from disk, and with the last one all traces of its topic."""
        del self.table[queue.topic, queue.queue_id]
        self._light_queues -= is_lmq(queue.topic)
        queues = self._topics[queue.topic]
        del queues[queue.queue_id]
        if not queues:
            del self._topics[queue.topic]
        queue.destroy()
        self._fs.remove_directory(self._directory / queue.topic)

    def destroy(self) -> None:
        """Remove every queue from disk."""
        for queue in self:
            self.remove(queue)

    def close(self) -> None:
        for queue in self:
            queue.close()
        if self._disk is not None:
            self._disk.close()
