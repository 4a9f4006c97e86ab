"""The load of the timer benchmark says when its messages are due, and its rows say which bar was missed."""

from __future__ import annotations

import json

from bench.timers import QUEUES, Measurement, Requests
from orbitmq.message.properties import decode_properties


def test_each_request_has_its_time_queue_and_id() -> None:
    requests = Requests()
    found = []
    for number in range(2 * QUEUES):
        frame = requests.next(1_800_000_000_000 + number)
        size = int.from_bytes(frame[4:8], "big") & 0xFFFFFF
        fields = json.loads(frame[8 : 8 + size])["extFields"]
        found.append((int(fields["e"]), decode_properties(fields["i"])))
        assert len(frame) == 4 + int.from_bytes(frame[:4], "big")
    assert [queue for queue, _ in found] == [*range(QUEUES)] * 2
    assert [int(one["TIMER_DELIVER_MS"]) - 1_800_000_000_000 for _, one in found] == [*range(2 * QUEUES)]
    assert len({one["UNIQ_KEY"] for _, one in found}) == 2 * QUEUES


def test_a_row_says_whether_its_bar_is_missed() -> None:
    assert Measurement("memory", 1234.5, "MiB", 2000).row() == ["memory", "1,234.5 MiB", "≤2,000"]
    missed = Measurement("delivery", 0.31, "core", 0.3)
    assert missed.is_missed
    assert missed.row() == ["delivery", "0.31 core", "≤0.3 !"]
    assert Measurement("restart", 2, "s").row() == ["restart", "2 s", ""]
