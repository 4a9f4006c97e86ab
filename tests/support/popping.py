"""Members that receive by POP, in tests."""

from __future__ import annotations

from collections.abc import Callable

from orbitmq.client import MessageExt
from orbitmq.client.sync import SimpleConsumer
from orbitmq.message.pop import POP_CK
from orbitmq.testing import Cluster
from tests.support.loops import turned_loop, until
from tests.support.process import wait_until


def received(member: SimpleConsumer, *, invisible: float | None = None) -> list[MessageExt]:
    """The next messages; on a busy machine they may take several requests. They come again after `invisible`
    seconds, by default long after whatever settles them.
    """
    return wait_until(lambda: member.receive(timeout=1.0, invisible=invisible), 60, "a message")


def is_renewed(cluster: Cluster, topic: str, seconds: float) -> Callable[[], bool]:
    """Whether a message of the topic that is in flight was renewed for so many seconds after this call."""
    at_ms = cluster._clock.now_ms()
    broker = cluster._running(cluster._nodes[0])

    async def due_ms() -> list[int]:
        return [one.due_ms for one in broker.journal.in_flight if one.key.topic == topic]

    return lambda: any(due >= at_ms + seconds * 1000 for due in cluster._call(due_ms()))


async def renewed(cluster: Cluster, messages: list[MessageExt], seconds: float) -> None:
    """Let so much time pass at the brokers and on the running loop, and wait until the messages are renewed."""
    receipts = {message.properties[POP_CK] for message in messages}
    cluster.advance(seconds)
    await turned_loop().turn(seconds)
    await until(lambda: receipts.isdisjoint(message.properties[POP_CK] for message in messages), "the renewal")
