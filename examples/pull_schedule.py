"""Call a function regularly for each queue of this group member. It decides what to pull, and when it is called
next.
"""

from __future__ import annotations

import time
from collections import Counter

from orbitmq.client import Message, MessageQueue, PullContext
from orbitmq.client.sync import Producer, PullSchedule

TOPIC = "ExamplePullSchedule"
COUNT = 40
done: Counter[MessageQueue] = Counter()


def work(queue: MessageQueue, context: PullContext[PullSchedule]) -> None:
    """Called on a thread; for one queue never twice at a time."""
    offset = max(0, context.consumer.fetch_offset(queue))
    result = context.consumer.pull(queue, "*", offset, 4)
    done[queue] += len(result.messages)
    context.consumer.update_offset(queue, result.next_begin_offset)
    context.next_delay_ms = 0 if result.messages else 200  # soon again, as long as there is something


def main() -> None:
    with Producer("example-pull-schedule") as producer:
        for n in range(COUNT):
            producer.send(Message(TOPIC, f"job {n}".encode()))

    schedule = PullSchedule("example-pull-schedule-workers", pull_threads=2)
    schedule.register(TOPIC, work)
    with schedule:
        while done.total() < COUNT:
            time.sleep(0.02)
    print(f"{done.total()} messages of {len(done)} queues")


main()
