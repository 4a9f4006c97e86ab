"""The same for programs with threads instead of asyncio: `orbitmq.client.sync` has the same names, without await."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor

from orbitmq.client import Message, MessageIllegal
from orbitmq.client.sync import Producer

TOPIC = "ExampleSendSync"

with Producer("example-send-sync") as producer:
    receipt = producer.send(Message(TOPIC, b"hello"), timeout=5.0)  # seconds, all attempts together
    print(f"{receipt.status.name} in queue {receipt.queue.queue_id}")

    with ThreadPoolExecutor(4) as threads:  # any number of threads may use one producer
        receipts = list(threads.map(lambda n: producer.send(Message(TOPIC, b"%d" % n)), range(40)))
    print(f"{len(receipts)} from four threads")

    try:
        producer.send(Message(TOPIC, b""))
    except MessageIllegal as error:
        print(f"refused before it was sent: {error}")
