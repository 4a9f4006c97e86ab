"""The examples, and the facts that each of them prints."""

from __future__ import annotations

import os
import re
import subprocess
import sys
from pathlib import Path

from tests.support.spark_jvm import quick

EXAMPLES = Path(__file__).parents[2] / "examples"
PATIENCE_SECONDS = 180  # three times what the longest needs, in which Spark starts three times

# File -> what its output must be: regular expressions, one a line.
FACTS: dict[str, list[str]] = {
    "send.py": [
        r"SEND_OK: message [0-9A-F]{32}",
        r"it is number \d+ in queue [0-3] of \S+",
        r"100 more went together to 4 queues",
    ],
    "send_sync.py": [
        r"SEND_OK in queue [0-3]",
        r"40 from four threads",
        r"refused before it was sent: the body is empty",
    ],
    "send_async.py": [r"1000 stored, never more than 50 in flight", r"waited for room: yes"],
    "oneway.py": [
        r"100 handed to the network after SEND_OK; no receipt, no retry",
        r"the broker has 100 of them",
    ],
    "celery_tasks.py": [
        r"O-1 is billed",
        r"O-2 is reminded, after its time",
        r"O-3 is not shipped: try again",
        r"O-3 is shipped",
    ],
    "taskiq_tasks.py": [
        r"O-1 is billed",
        r"O-2 is reminded, after its time",
        r"O-3 is not shipped: try again",
        r"O-3 is shipped",
    ],
    "faststream_orders.py": [
        r"O-1 costs 49\.90",
        r"O-2 is not billed: try again in a second",
        r"O-2 costs 5\.50",
        r"O-3 is a dead letter",
        r"the reminder comes after its time",
    ],
    "fastapi_orders.py": [
        r"click: 202",
        r"broker down, click: 503, again after 5 s",
        r"broker down, order O-1: 201",
        r"broker down, order O-2: 422",
        r"broker down, order O-3: 201",
        r"waiting in the outbox: 2",
        r"broker back: the topic has 2 orders",
    ],
    "starlette_orders.py": [
        r"ready: 200",
        r"8 orders are stored",
        r"stopped: [1-8] begun, all ended",
    ],
    "django_orders.py": [
        r"click: 202",
        r"order O-1: 201",
        r"order O-2: 422",
        r"waiting in the outbox: 1",
        r"after the relay: 0",
        r"O-1 is billed",
    ],
    "batch.py": [
        r"SEND_OK: 50 messages, 50 ids, one queue",
        r"refused before it was sent: a delayed message cannot go in a batch",
    ],
    "delay.py": [r"'remind me' came after [1-9]\d*\.\d s"],
    "ordered.py": [rf"O-{n}: created > paid > packed > shipped" for n in (1, 2, 3)],
    "request_reply.py": [r"the answer: 49.90 for a kettle", r"code 10006: nobody answered in time"],
    "transactions.py": [
        r"O-1: COMMIT_MESSAGE",
        r"O-2: ROLLBACK_MESSAGE",
        r"O-3: COMMIT_MESSAGE",
        r"delivered: O-1, O-3",
    ],
    "outbox.py": [
        r"O-4 was sent nowhere and kept nowhere",
        r"broker down: 3 wait on disk",
        r"lost O-4: LIMIT_COUNT",
        r"broker back: 3 sent, the topic has 4",
    ],
    "fault_tolerance.py": [
        r"in turn: 24 sent, ([3-9]|1\d) attempts failed on the way",
        r"with latency_fault: 24 sent, [12] attempts failed on the way",
        r"left out for a while: broker-b",
    ],
    "push_consumer.py": [r"begun (\d+), ended \1: nothing was cut off", r"each came once"],
    "lite_pull.py": [
        r"30 messages, the first one is 0",
        r"committed: the group goes on behind 30 messages",
        r"after a seek: 25, 26, 27, 28, 29",
        r"paused: 0 messages",
    ],
    "pull_schedule.py": [r"40 messages of 4 queues"],
    "rebalance.py": [
        r"one gets 4 queues",
        r"one gives 4 queues up",
        r"another gets 4 queues",
        r"another gives 4 queues up",
        r"60 deliveries of 60 messages",
    ],
    "pull_consumer.py": [
        r"4 queues",
        r"FOUND: 0 1 2 3 4",
        r"FOUND: 5 7 9 11",
        r"the group goes on 12 further",
        r"nothing new in the queue",
    ],
    "read_all.py": [r"4950 in all", r"Paid: 75", r"Refunded: 25", r"new: \['100'\]"],
    "tags.py": [r"billing got OrderPaid, OrderPaid, OrderRefunded"],
    "sql92.py": [r"auditors got north 120 and south 500"],
    "broadcasting.py": [rf"{name}: key-0, key-1, key-2, key-3, key-4" for name in ("left", "right")],
    "allocation.py": [
        r"AVG: 4 queues, 0 read twice; \[0, 1\] and \[2, 3\]",
        r"AVG_BY_CIRCLE: 4 queues, 0 read twice; \[0, 2\] and \[1, 3\]",
        r"CONSISTENT_HASH: 4 queues, 0 read twice; .*",
    ],
    "retries.py": [
        r"attempt 1 of 'bad' from ExampleRetries",
        r"attempt 2 of 'bad' from ExampleRetries",
        r"dead letter: 'cannot be done', sent to ExampleRetries",
    ],
    "worker.py": [r"invoice 1 fails", r"invoice 1 is sent", r"ended with code 0"],
    "typed_messages.py": [
        r"version 1 is registered",
        r"version 2 is registered",
        r"refused: version 1: field id is string, and was long",
        r"Order\(id=1, item='book'\) Order\(id=2, item='pen'\)",
        r"dead letter: b'no order' no data of the schema: .+",
    ],
    "idempotent.py": [r"P-1 booked once: 10", r"P-2 booked once: 10", r"2 done, 2 recognised"],
    "lag.py": [
        r"behind before: 40 messages",
        r"behind after: 0 messages",
        r"T1 is \d+\.\d\d ms of computing, T2 \d\d\.\d\d ms of waiting a message",
        r"use \d+ threads a machine: \d+ messages/s",
        r"for a peak of 5,000 messages/s: \d+ machines",
    ],
    "lakehouse.py": [
        r"sent (\d,\d{3}) orders, archived \1 in \d+ files",
        *(rf"{city}: \d{{3}} orders, \d\d,\d{{3}}\.\d\d €" for city in ("Berlin", "Köln", "Leipzig")),
        r"the lag was [\d,]+ at most, and 0 at the end",
        r"pictures: (\S+)/rates.png \1/lag.png",
        r"replayed [\d,]+ orders of the evening",
        r"the evening in the lake: ([\d,]+ orders, [\d,.]+ €); in ExampleLakehouseAgain: \1",
    ],
    "namespace.py": [
        r"north got 'for north' from ExampleShared",
        r"south got 'for south' from ExampleShared",
        r"without a namespace the topic is called north%ExampleShared",
    ],
    "hooks.py": [
        r"sent: SEND_OK",
        r"forbidden: no card numbers in messages",
        r"listener said CONSUME_SUCCESS",
    ],
    "message_trace.py": [
        r"1 O-1 sent by example-trace",
        r"2 O-1 came to example-trace-readers",
        r"3 O-1 consumed: True",
    ],
    "spans.py": [
        r"checkout: in the trace of checkout",
        r"send ExampleSpans: in the trace of checkout",
        r"process ExampleSpans: in the trace of checkout",
    ],
    "metrics.py": [
        r'orbitmq_client_send_attempts_total{group="example-metrics",outcome="send_ok",topic="ExampleMetrics"} 7.0',
        r'orbitmq_client_received_messages_total{group="example-metrics-readers",topic="ExampleMetrics"} 7.0',
    ],
    "acl.py": [
        r"the shop, to its topic: SEND_OK",
        r"the shop, elsewhere: refused with code 1",
        r"somebody else: refused with code 1",
    ],
    "tls.py": [
        r"encrypted and checked: SEND_OK",
        r"signed by a stranger: refused with code 10005",
        r"without TLS: refused with code 10005",
    ],
    "test_orders.py": [r"\.\.\s+\[100%\]", r"2 passed in .*"],
}
# File -> the pictures it draws, and the colour of what they show.
PICTURES: dict[str, dict[str, str]] = {"lakehouse.py": {"rates.png": "#1e6fb3", "lag.png": "#b3541e"}}
# What any broker of the protocol must do.
EVERYWHERE = [
    "allocation.py", "batch.py", "lite_pull.py", "namespace.py", "ordered.py", "pull_consumer.py", "request_reply.py",
    "retries.py", "send_async.py", "send_sync.py", "sql92.py", "transactions.py",
    "typed_messages.py",
]  # fmt: skip


def run_example(name: str, namesrv_address: str, folder: Path) -> None:
    """Run it as a reader would; AssertionError unless it prints its facts, each a line, and nothing else. Its temporary
    files are made in the folder.
    """
    runner = ["-m", "pytest", "-q", "-p", "no:cacheprovider"] if name.startswith("test_") else []
    ended = subprocess.run(
        [sys.executable, *runner, str(EXAMPLES / name)],
        env={**os.environ, "NAMESRV_ADDR": namesrv_address, "TMPDIR": str(folder), "JDK_JAVA_OPTIONS": quick()},
        capture_output=True, text=True, timeout=PATIENCE_SECONDS, check=False,
    )  # fmt: skip
    assert ended.returncode == 0, f"{ended.stdout}\n{ended.stderr}"
    lines = ended.stdout.splitlines()
    wrong = [pair for pair in zip(FACTS[name], lines, strict=False) if not re.fullmatch(*pair)]
    assert not wrong, f"{wrong}\n{ended.stderr}"
    assert len(lines) == len(FACTS[name]), ended.stdout
