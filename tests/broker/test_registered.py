"""The body of a registration is what the generic writer makes, once a change."""

from __future__ import annotations

from pathlib import Path

import pytest

from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.registered import RegisteredTopics
from orbitmq.broker.topics import Topics
from orbitmq.message.config import TopicConfig
from orbitmq.runtime.clock import ManualClock
from orbitmq.runtime.options import change
from orbitmq.wire.bodies import BrokerRegistration
from orbitmq.wire.registration import decode_registration, encode_registration


@pytest.mark.parametrize("compressed", [False, True])
async def test_it_tells_all_topics_as_they_are_now(tmp_path: Path, compressed: bool) -> None:
    options = BrokerOptions(broker_name="b", compressed_register=compressed)
    topics = Topics(tmp_path, options, ManualClock())
    registered = RegisteredTopics(topics, options)
    for number in range(3):
        topics.put(TopicConfig(f"T{number}", number, number))
        expected = encode_registration(BrokerRegistration(topic_table=topics.snapshot()), compressed=compressed)
        assert await registered.body(None) == expected
        assert await registered.body(None) is await registered.body(None)
    part = decode_registration(await registered.body([topics.table["T1"]]), compressed=compressed).topic_table
    assert (set(part.topics), part.data_version) == ({"T1"}, topics.version)
    await topics.file.flush()


async def test_a_narrower_permission_of_the_broker_holds_for_every_topic(tmp_path: Path) -> None:
    options = BrokerOptions(broker_name="b")
    registered = RegisteredTopics(Topics(tmp_path, options, ManualClock()), options)
    for permission, expected in ((6, {1, 6, 7}), (4, {4}), (6, {1, 6, 7})):
        change(options, {"brokerPermission": str(permission)})
        table = decode_registration(await registered.body(None)).topic_table
        assert {config.perm for config in table.topics.values()} <= expected
