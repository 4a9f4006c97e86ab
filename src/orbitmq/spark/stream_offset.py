"""The offset of a stream, as Spark keeps it in the checkpoint. Pure.

    {"from": {"orders": {"broker-a": {"0": 100}}}, "lost": 7, "q": {"orders": {"broker-a": {"0": 123}}}, "v": 1}

`q` is the next offset of each queue. `from` has the queues whose batch does not start where the previous batch ended:
queues of the first batch, new queues, and queues that lost messages. Spark keeps only the ends of batches, and requests
the initial offset again when it repeats the first batch; messages that arrived meanwhile would be lost without `from`.
`lost` counts the messages that were deleted before they were read, since the query started.

Spark compares offsets as text, so equal offsets must be written equally.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

from orbitmq.errors import SourceError
from orbitmq.message.model import MessageQueue
from orbitmq.spark.fetch import OffsetRange

VERSION = 1

Offsets = Mapping[MessageQueue, int]


@dataclass(frozen=True)
class StreamOffset:
    """The end of one batch, and the starts of those queues that do not start at the end of the previous batch."""

    at: Offsets
    begins: Offsets = field(default_factory=dict)
    lost: int = 0

    def as_json(self) -> dict[str, Any]:
        """The form Spark keeps."""
        form: dict[str, Any] = {"from": _nested(self.begins)} if self.begins else {}
        if self.lost:
            form["lost"] = self.lost
        return {**form, "q": _nested(self.at), "v": VERSION}

    @classmethod
    def of_json(cls, form: Any) -> StreamOffset:
        """SourceError when the checkpoint is not of this data source."""
        try:
            if form["v"] != VERSION:
                raise ValueError
            return cls(dict(_flat(form["q"])), dict(_flat(form.get("from", {}))), form.get("lost", 0))
        except (AttributeError, KeyError, TypeError, ValueError):
            raise SourceError(
                "ORBITMQ_BAD_CHECKPOINT", f"{str(form)[:200]} is not an offset of this version; use another checkpoint"
            ) from None

    @property
    def kept_begins(self) -> dict[MessageQueue, int]:
        """Starts that the next batch must repeat, as those queues were in no batch yet."""
        return {queue: at for queue, at in self.begins.items() if self.at.get(queue) == at}


def ranges(start: StreamOffset, end: StreamOffset) -> Iterator[OffsetRange]:
    """The ranges of the batch from `start` to `end`, which depend only on these offsets."""
    for queue, stop in end.at.items():
        begin = end.begins.get(queue, start.at.get(queue))
        if begin is None:
            raise SourceError("ORBITMQ_BAD_CHECKPOINT", f"{OffsetRange(queue, 0, stop)} has an end but no start")
        yield OffsetRange(queue, begin, stop)


def _nested(offsets: Offsets) -> dict[str, dict[str, dict[str, int]]]:
    form: dict[str, dict[str, dict[str, int]]] = defaultdict(lambda: defaultdict(dict))
    for queue in sorted(offsets):
        form[queue.topic][queue.broker_name][str(queue.queue_id)] = offsets[queue]
    return {topic: dict(brokers) for topic, brokers in form.items()}


def _flat(form: Any) -> Iterator[tuple[MessageQueue, int]]:
    for topic, brokers in form.items():
        for broker, queues in brokers.items():
            for queue_id, offset in queues.items():
                yield MessageQueue(topic, broker, int(queue_id)), int(offset)
