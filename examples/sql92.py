"""Choose messages by their properties, with SQL92. The broker needs `enablePropertyFilter=true`."""

from __future__ import annotations

from orbitmq.client import ConsumeFromWhere, Message, MessageSelector
from orbitmq.client.sync import LitePullConsumer, Producer

TOPIC = "ExampleSql"

with Producer("example-sql") as producer:
    for region, amount in (("north", 120), ("north", 20), ("south", 500), ("east", 300)):
        properties = {"region": region, "amount": str(amount)}
        producer.send(Message(TOPIC, f"{region} {amount}".encode(), properties=properties))

first = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
with LitePullConsumer("example-auditors", consume_from_where=first) as consumer:
    consumer.subscribe(TOPIC, MessageSelector.sql("region IN ('north', 'south') AND amount BETWEEN 100 AND 1000"))
    found: list[str] = []
    while len(found) < 2:
        found += [message.body.decode() for message in consumer.poll(5.0)]
    print(f"auditors got {' and '.join(sorted(found))}")
