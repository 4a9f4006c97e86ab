"""orbitmq's clients write traces that either broker keeps and RocketMQ's own query finds: who sent, who consumed."""

from __future__ import annotations

from collections.abc import Sequence

import pytest

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.core.trace import ConsumeBegun, ConsumeEnded, Outcome, Published, Record, decode_trace
from orbitmq.client.sync import LitePullConsumer, Producer, PushConsumer
from orbitmq.message.topics import TRACE_TOPIC
from tests.interop.conftest import System
from tests.support.process import wait_until

pytestmark = pytest.mark.with_five
PATIENCE_SECONDS = 60
COUNT = 5
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
SUCCESS = ConsumeConcurrentlyStatus.CONSUME_SUCCESS


def listen(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
    if messages[0].body == b"bad":
        raise RuntimeError("a bug")
    return SUCCESS


def test_what_was_sent_and_consumed_is_in_the_trace_topic(system: System, label: str) -> None:
    with LitePullConsumer(f"t-{label}", system.namesrv_address, consume_from_where=FIRST) as reader:
        reader.subscribe(TRACE_TOPIC)
        with Producer(f"p-{label}", system.namesrv_address, enable_trace=True) as producer:
            sent = [
                producer.send(Message(label, b"bad" if number == 0 else b"good", keys=f"{label}-{number}", tags="tag"))
                for number in range(COUNT)
            ]
        consumer = PushConsumer(f"c-{label}", system.namesrv_address, consume_from_where=FIRST, enable_trace=True)
        consumer.subscribe(label)
        consumer.set_listener(listen)
        found: dict[str, list[Record]] = {result.msg_id: [] for result in sent}
        keys: set[str] = set()

        def all_there() -> bool:
            for message in reader.poll(timeout=0.5):
                for record in decode_trace(message.body):
                    if record.msg_id in found:
                        found[record.msg_id].append(record)
                        keys.update((message.keys or "").split())
            return all(
                {type(record) for record in records} == {Published, ConsumeBegun, ConsumeEnded}
                for records in found.values()
            )

        with consumer:
            wait_until(all_there, PATIENCE_SECONDS, "every message's three records")
    for number, result in enumerate(sent):
        published = next(record for record in found[result.msg_id] if isinstance(record, Published))
        begun = next(record for record in found[result.msg_id] if isinstance(record, ConsumeBegun))
        ended = next(record for record in found[result.msg_id] if isinstance(record, ConsumeEnded))
        assert (published.group, published.topic, published.tags) == (f"p-{label}", label, "tag")
        assert (published.broker_address, published.offset_msg_id) == (system.address, result.offset_msg_id)
        assert (published.success, published.region_id) == (True, result.region_id)
        assert (begun.group, begun.request_id, begun.retries) == (f"c-{label}", ended.request_id, 0)
        assert ended.outcome == (Outcome.EXCEPTION if number == 0 else Outcome.SUCCESS)
        assert ended.success == (number != 0)
        assert {published.keys, begun.keys, ended.keys} == {f"{label}-{number}"}
        assert {result.msg_id, f"{label}-{number}"} <= keys, "the trace itself is found by id and by key"
