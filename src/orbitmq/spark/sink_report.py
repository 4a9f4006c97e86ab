"""The report of a task, a batch or a write: counts, and the first and last offset of each queue. Pure."""

from __future__ import annotations

import json
from collections.abc import Iterable
from dataclasses import dataclass, field

from orbitmq.message.model import MessageQueue
from orbitmq.spark.versions import WriterCommitMessage


@dataclass
class StoredSpan:
    """Stored messages of one queue. Messages of other producers may be between `first` and `last`."""

    count: int = 0
    first: int = -1
    last: int = -1

    def add(self, count: int, first: int, last: int) -> None:
        """More messages, the first and the last of them at these offsets."""
        self.first = first if self.first < 0 else min(self.first, first)
        self.last = max(self.last, last)
        self.count += count


@dataclass
class WriteReport(WriterCommitMessage):
    """Counts of a write. `skipped` rows were stored before, `oversize` ones went to the dead letter topic.
    `unconfirmed` counts messages by status that are stored, but not flushed or replicated as configured.
    """

    messages: int = 0
    skipped: int = 0
    oversize: int = 0
    unconfirmed: dict[str, int] = field(default_factory=dict)
    queues: dict[MessageQueue, StoredSpan] = field(default_factory=dict)

    def stored(self, queue: MessageQueue, offset: int, count: int) -> None:
        self.messages += count
        self.queues.setdefault(queue, StoredSpan()).add(count, offset, offset + count - 1)

    def not_confirmed(self, status: str, count: int) -> None:
        self.unconfirmed[status] = self.unconfirmed.get(status, 0) + count

    def merge(self, other: WriteReport) -> None:
        """Add the counts of another task."""
        self.messages += other.messages
        self.skipped += other.skipped
        self.oversize += other.oversize
        for status, count in other.unconfirmed.items():
            self.not_confirmed(status, count)
        for queue, span in other.queues.items():
            self.queues.setdefault(queue, StoredSpan()).add(span.count, span.first, span.last)

    def summary(self) -> str:
        """The counts in one line."""
        notes = [f"{count} {name}" for name, count in (("skipped", self.skipped), ("oversize", self.oversize)) if count]
        notes += [f"{count} with {status}" for status, count in sorted(self.unconfirmed.items())]
        return f"{self.messages} messages in {len(self.queues)} queues" + "".join(f", {note}" for note in notes)

    def line(self, event: str, batch: int | None, failed_tasks: int = 0) -> str:
        """One line of JSON."""
        queues = [
            {"topic": q.topic, "brokerName": q.broker_name, "queueId": q.queue_id, **vars(span)}
            for q, span in sorted(self.queues.items())
        ]
        told = {"messages": self.messages, "skipped": self.skipped, "oversize": self.oversize}
        about = {"event": event, "batch": batch, "failedTasks": failed_tasks}
        return json.dumps({**about, **told, "unconfirmed": self.unconfirmed, "queues": queues})


def merged(parts: Iterable[WriteReport]) -> WriteReport:
    """The sum of what tasks have stored."""
    total = WriteReport()
    for part in parts:
        total.merge(part)
    return total
