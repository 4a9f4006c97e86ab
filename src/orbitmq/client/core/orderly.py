"""What follows from the answer of a listener that gets a queue's messages in order. Pure."""

from __future__ import annotations

from enum import Enum, auto

from orbitmq.client.core.model import ConsumeOrderlyStatus, OrderlyContext

SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10, 30_000  # Java's bounds: no busy loop, and no queue that seems dead
RECONSUME_TIMES_MAX = 2**31 - 1  # in order a message is tried for ever, unless the consumer says otherwise


class OrderlyStep(Enum):
    """What becomes of the messages the listener had."""

    COMMIT = auto()  # they are done, and with them all that were kept before
    KEEP = auto()  # they are done, but the listener commits later
    ROLLBACK = auto()  # they and all that were kept come again
    RETRY = auto()  # they come again


def step_after(status: ConsumeOrderlyStatus | None, context: OrderlyContext) -> OrderlyStep:
    """No answer is SUSPEND_CURRENT_QUEUE_A_MOMENT. Who lets the consumer commit cannot do it himself: with auto_commit
    COMMIT and ROLLBACK count as SUCCESS.
    """
    if status is None or status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
        return OrderlyStep.RETRY
    if context.auto_commit or status is ConsumeOrderlyStatus.COMMIT:
        return OrderlyStep.COMMIT
    return OrderlyStep.ROLLBACK if status is ConsumeOrderlyStatus.ROLLBACK else OrderlyStep.KEEP


def suspend_ms(context: OrderlyContext, usual_ms: int) -> int:
    """How long the queue rests before its messages come again."""
    wanted = usual_ms if context.suspend_current_queue_ms == -1 else context.suspend_current_queue_ms
    return min(max(wanted, SUSPEND_MIN_MS), SUSPEND_MAX_MS)
