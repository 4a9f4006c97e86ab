"""What a listener in order says, and what becomes of its messages."""

from __future__ import annotations

import pytest

from orbitmq.client.core.model import ConsumeOrderlyStatus as Status
from orbitmq.client.core.model import OrderlyContext
from orbitmq.client.core.orderly import OrderlyStep, step_after, suspend_ms
from orbitmq.message.model import MessageQueue

QUEUE = MessageQueue("T", "b", 0)


@pytest.mark.parametrize(
    ("status", "by_itself", "by_listener"),
    [
        (Status.SUCCESS, OrderlyStep.COMMIT, OrderlyStep.KEEP),
        (Status.COMMIT, OrderlyStep.COMMIT, OrderlyStep.COMMIT),
        (Status.ROLLBACK, OrderlyStep.COMMIT, OrderlyStep.ROLLBACK),
        (Status.SUSPEND_CURRENT_QUEUE_A_MOMENT, OrderlyStep.RETRY, OrderlyStep.RETRY),
        (None, OrderlyStep.RETRY, OrderlyStep.RETRY),
    ],
)
def test_who_commits_decides_what_an_answer_means(
    status: Status | None, by_itself: OrderlyStep, by_listener: OrderlyStep
) -> None:
    assert step_after(status, OrderlyContext(QUEUE)) is by_itself
    assert step_after(status, OrderlyContext(QUEUE, auto_commit=False)) is by_listener


@pytest.mark.parametrize(("wanted", "rests"), [(-1, 1000), (0, 10), (500, 500), (60_000, 30_000)])
def test_a_queue_rests_within_bounds(wanted: int, rests: int) -> None:
    assert suspend_ms(OrderlyContext(QUEUE, suspend_current_queue_ms=wanted), 1000) == rests
