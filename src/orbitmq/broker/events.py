"""Messages the broker writes on its own account."""

from __future__ import annotations

from orbitmq.broker.options import BrokerOptions
from orbitmq.message.javajson import dumps
from orbitmq.message.properties import KEYS, TAGS, encode_properties
from orbitmq.message.topics import OFFSET_MOVED_TOPIC
from orbitmq.runtime.clock import Clock
from orbitmq.store.records import PutRecord
from orbitmq.wire.headers import PullMessageHeader


def offset_moved_event(
    header: PullMessageHeader, new_offset: int, options: BrokerOptions, host: bytes, clock: Clock
) -> PutRecord:
    """Tells monitors that a consumer asked outside a queue's range and was moved."""
    queue = {"brokerName": options.broker_name, "queueId": header.queue_id, "topic": header.topic}
    body = {
        "consumerGroup": header.consumer_group,
        "messageQueue": queue,
        "offsetNew": new_offset,
        "offsetRequest": header.queue_offset,
    }
    properties = encode_properties({TAGS: header.consumer_group, KEYS: header.consumer_group})
    return PutRecord(
        topic=OFFSET_MOVED_TOPIC,
        queue_id=0,
        body=dumps(body).encode(),
        properties=properties.encode(),
        born_timestamp=clock.now_ms(),
        born_host=host,
        store_host=host,
    )
