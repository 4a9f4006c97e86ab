"""Evaluates the result of a listener that consumes in order. Pure."""

from __future__ import annotations

from enum import Enum, auto

from orbitmq.client.core.model import ConsumeOrderlyStatus, OrderlyContext

SUSPEND_MIN_MS, SUSPEND_MAX_MS = 10, 30_000  # Java's bounds: no busy loop, and no queue that seems dead
RECONSUME_TIMES_MAX = 2**31 - 1  # an orderly message is retried for ever, unless the consumer sets a limit


class OrderlyStep(Enum):
    """What becomes of the messages the listener had."""

    COMMIT = auto()  # they are done, and with them all earlier ones that are not committed
    KEEP = auto()  # they are done, but the listener commits later
    ROLLBACK = auto()  # they and all uncommitted ones are delivered again
    RETRY = auto()  # they come again


def step_after(status: ConsumeOrderlyStatus | None, context: OrderlyContext) -> OrderlyStep:
    """No result means SUSPEND_CURRENT_QUEUE_A_MOMENT. With auto_commit COMMIT and ROLLBACK count as SUCCESS."""
    if status is None or status is ConsumeOrderlyStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT:
        return OrderlyStep.RETRY
    if context.auto_commit or status is ConsumeOrderlyStatus.COMMIT:
        return OrderlyStep.COMMIT
    return OrderlyStep.ROLLBACK if status is ConsumeOrderlyStatus.ROLLBACK else OrderlyStep.KEEP


def suspend_ms(context: OrderlyContext, usual_ms: int) -> int:
    """How long the queue rests before its messages come again."""
    wanted = usual_ms if context.suspend_current_queue_ms == -1 else context.suspend_current_queue_ms
    return min(max(wanted, SUSPEND_MIN_MS), SUSPEND_MAX_MS)
