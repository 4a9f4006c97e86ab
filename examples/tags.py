"""Choose messages by their tag: `A || B`, or `*` for all. The broker leaves out the others."""

from __future__ import annotations

from orbitmq.client import ConsumeFromWhere, Message
from orbitmq.client.sync import LitePullConsumer, Producer

TOPIC = "ExampleTags"

with Producer("example-tags") as producer:
    for tag in ("OrderCreated", "OrderPaid", "OrderRefunded", "OrderPaid"):
        producer.send(Message(TOPIC, b"...", tags=tag))

first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
with LitePullConsumer("example-billing", consume_from_where=first) as consumer:
    consumer.subscribe(TOPIC, "OrderPaid || OrderRefunded")
    found: list[str] = []
    while len(found) < 3:
        found += [message.tags or "" for message in consumer.poll(5.0)]
    print(f"billing got {', '.join(sorted(found))}")
