"""A worker as a whole program: it retries what fails, and ends by SIGTERM with nothing half done."""

from __future__ import annotations

import os
import signal
import sys
from collections import Counter

from orbitmq.client import Message, MessageExt, run_worker
from orbitmq.client.sync import Producer

NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
TOPIC = "ExampleJobs"
attempts: Counter[bytes] = Counter()


def work(message: MessageExt) -> None:
    attempts[message.body] += 1
    if attempts[message.body] == 1:
        print(f"{message.body.decode()} fails", flush=True)
        raise OSError("the mail server is away")
    print(f"{message.body.decode()} is sent", flush=True)
    os.kill(os.getpid(), signal.SIGTERM)  # as systemd and Kubernetes do; here the example is over


if __name__ == "__main__":
    with Producer("example-shop", NAME_SERVERS) as producer:
        producer.create_topic(TOPIC)
        producer.send(Message(TOPIC, b"invoice 1"))
    code = run_worker(work, "example-workers", NAME_SERVERS, topic=TOPIC, retry_delays=[0.5], concurrency=4)
    print(f"ended with code {code}")
    sys.exit(code)
