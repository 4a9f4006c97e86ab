"""The official Python client as a test driver; README.md of the directory above describes the commands."""

from __future__ import annotations

import base64
import json
import os
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from itertools import count

from rocketmq import (
    ClientConfiguration,
    ConsumeResult,
    Credentials,
    FilterExpression,
    Message,
    MessageListener,
    Producer,
    PushConsumer,
    SimpleConsumer,
    TransactionChecker,
)
from rocketmq.grpc_protocol import FilterType, TransactionResolution

REQUEST_TIMEOUT_S = 10
WAIT_S = 20

clients = {}
received = {}  # ref -> message
refs = count()
printing = threading.Lock()


def show(row):
    with printing:
        print(json.dumps(row), flush=True)


def outgoing(fields):
    message = Message()
    message.topic = fields["topic"]
    message.body = base64.b64decode(fields["body"])
    if "tag" in fields:
        message.tag = fields["tag"]
    for key in fields.get("keys", ()):
        message.keys = key
    for name, value in fields.get("properties", {}).items():
        message.add_property(name, value)
    if "group" in fields:
        message.message_group = fields["group"]
    if "deliver_at_ms" in fields:
        message.delivery_timestamp = -(-fields["deliver_at_ms"] // 1000)  # the client takes full seconds
    return message


def incoming(message):
    return {
        "topic": message.topic,
        "body": base64.b64encode(message.body).decode(),
        "tag": message.tag,
        "keys": sorted(message.keys),
        "properties": dict(message.properties),
        "group": message.message_group,
        "deliver_at_ms": message.delivery_timestamp or None,
        "id": message.message_id,
        "attempt": message.delivery_attempt,
    }


class Checker(TransactionChecker):
    def __init__(self, name, decisions):
        self.name = name
        self.decisions = decisions

    def check(self, message):
        decision = self.decisions.get(message.body.decode(), "UNKNOWN")
        show({"event": "checked", "name": self.name, "message": incoming(message), "decision": decision})
        if decision == "UNKNOWN":
            return TransactionResolution.TRANSACTION_RESOLUTION_UNSPECIFIED
        return TransactionResolution.Value(decision)


class Listener(MessageListener):
    def __init__(self, name, failures):
        self.name = name
        self.failures = failures
        self.deciding = threading.Lock()

    def consume(self, message):
        body = message.body.decode(errors="replace")
        with self.deciding:
            left = self.failures.get(body, 0)
            self.failures[body] = left - 1
        result = ConsumeResult.FAILURE if left > 0 else ConsumeResult.SUCCESS
        show({"event": "delivered", "name": self.name, "message": incoming(message), "result": result.name})
        return result


def configuration(endpoints):
    return ClientConfiguration(endpoints, Credentials(), request_timeout=REQUEST_TIMEOUT_S)


def filters(subscriptions):
    return {
        topic: FilterExpression(one["expression"], FilterType.Value(one["type"]))
        for topic, one in subscriptions.items()
    }


def start(name, client):
    client.startup()
    clients[name] = client


def start_producer(name, endpoints, tls=False, topics=(), decisions=None):
    checker = Checker(name, decisions or {})
    start(name, Producer(configuration(endpoints), topics, checker, tls_enable=tls))


def start_simple_consumer(name, endpoints, group, subscriptions, tls=False, wait_s=WAIT_S):
    settings = configuration(endpoints)
    consumer = SimpleConsumer(settings, group, filters(subscriptions), await_duration=wait_s, tls_enable=tls)
    start(name, consumer)
    # Alone of the clients it does not wait for the server to know it, and RocketMQ refuses strangers.
    if not consumer._init_settings_event.wait(REQUEST_TIMEOUT_S):
        raise TimeoutError("the server has not answered the settings")


def start_push_consumer(name, endpoints, group, subscriptions, tls=False, failures=None):
    listener = Listener(name, failures or {})
    start(name, PushConsumer(configuration(endpoints), group, listener, filters(subscriptions), tls_enable=tls))


def send(name, message):
    receipt = clients[name].send(outgoing(message))
    return {"id": receipt.message_id, "recall_handle": receipt.recall_handle}


def send_in_transaction(name, message, then=None):
    transaction = clients[name].begin_transaction()
    receipt = clients[name].send(outgoing(message), transaction)
    if then == "commit":
        transaction.commit()
    elif then == "rollback":
        transaction.rollback()
    return {"id": receipt.message_id}


def recall(name, topic, recall_handle):
    return {"id": clients[name].recall_message(topic, recall_handle)}


def receive(name, most, invisible_s):
    rows = []
    for message in clients[name].receive(most, invisible_s):
        ref = next(refs)
        received[ref] = message
        rows.append({**incoming(message), "ref": ref})
    return rows


def ack(name, ref):
    clients[name].ack(received[ref])


def change_invisible_duration(name, ref, invisible_s):
    clients[name].change_invisible_duration(received[ref], invisible_s)


def load(name, topic, size, threads, seconds):
    """Send one message after another in each of some threads, and count."""

    def send_one():
        message = Message()
        message.topic, message.body = topic, bytes(size)
        clients[name].send(message)
        return 1

    return counted(send_one, threads, seconds)


def drain(name, threads, seconds):
    """Receive and acknowledge what there is in each of some threads, and count."""

    def receive_some():
        found = clients[name].receive(32, 60)
        for message in found:
            clients[name].ack(message)
        return len(found)

    return counted(receive_some, threads, seconds)


def counted(work, threads, seconds):
    begun = time.monotonic()

    def repeat():
        count = 0
        while time.monotonic() < begun + seconds:
            count += work()
        return count

    with ThreadPoolExecutor(threads) as workers:
        counts = [workers.submit(repeat) for _ in range(threads)]
        messages = sum(one.result() for one in counts)
    return {"messages": messages, "seconds": time.monotonic() - begun}


def stop(name):
    clients.pop(name).shutdown()


COMMANDS = {
    function.__name__: function
    for function in (
        start_producer,
        start_simple_consumer,
        start_push_consumer,
        send,
        send_in_transaction,
        recall,
        receive,
        ack,
        change_invisible_duration,
        load,
        drain,
        stop,
    )
}


def obey(number, do, arguments):
    try:
        show({"id": number, "result": COMMANDS[do](**arguments)})
    except Exception as error:
        code = getattr(error, "code", None)
        problem = {"kind": type(error).__name__, "code": code if isinstance(code, int) else None, "message": str(error)}
        show({"id": number, "error": problem})


if __name__ == "__main__":
    pool = ThreadPoolExecutor(64)
    for line in sys.stdin:
        asked = json.loads(line)
        pool.submit(obey, asked.pop("id"), asked.pop("do"), asked)
    os._exit(0)  # clients that were not stopped would keep it
