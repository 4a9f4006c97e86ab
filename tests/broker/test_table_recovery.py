"""What a start after damage, or a promotion, finds on disk."""

from __future__ import annotations

from pathlib import Path

from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.table_recovery import find_topics
from orbitmq.broker.topics import Topics
from orbitmq.runtime.clock import ManualClock


async def test_topics_found_on_disk_come_back_though_there_are_as_many_as_may_be(tmp_path: Path) -> None:
    topics = Topics(tmp_path, BrokerOptions(topics_max=1), ManualClock())
    await find_topics(topics, {"%RETRY%group": 1, "%DLQ%group": 1, "plain": 2})
    assert {"%RETRY%group", "%DLQ%group", "plain"} <= topics.table.keys()
