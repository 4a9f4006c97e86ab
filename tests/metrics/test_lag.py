"""How far a group is behind, in each state its offset may be in."""

from __future__ import annotations

import pytest

from orbitmq.metrics.lag import queue_lags
from orbitmq.wire.bodies import QueueRange


@pytest.mark.parametrize(
    ("low", "high", "offsets", "plain", "waiting", "ahead"),
    [
        (0, 10, {}, 10, 10, 0),
        (0, 10, {0: 10}, 0, 0, 0),
        (0, 10, {0: 4}, 6, 6, 0),
        (0, 10, {0: 12}, -2, 0, 2),
        (6, 10, {0: 4}, 6, 4, 0),
        (0, 10, {0: -1}, 10, 10, 0),
        (0, 0, {0: 0}, 0, 0, 0),
    ],
    ids=["no offset", "caught up", "behind", "ahead", "expired", "forgotten", "empty"],
)
def test_a_queue_is_read_rightly(
    low: int, high: int, offsets: dict[int, int], plain: int, waiting: int, ahead: int
) -> None:
    (lag,) = queue_lags(1, {0: QueueRange(max_offset=high, min_offset=low)}, offsets)
    assert (lag.plain, lag.waiting, lag.ahead) == (plain, waiting, ahead)


def test_only_read_queues_count_and_one_without_messages_is_empty() -> None:
    lags = list(queue_lags(2, {0: QueueRange(max_offset=5), 7: QueueRange(max_offset=9)}, {}))
    assert [lag.plain for lag in lags] == [5, 0]
