"""`orbitmq msg` and `orbitmq trace` against either system: the real commands, their JSON held against its schema."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Sequence

from orbitmq.client import ConcurrentContext, ConsumeConcurrentlyStatus, ConsumeFromWhere, Message, MessageExt
from orbitmq.client.sync import Producer, PushConsumer
from orbitmq.message.config import TopicConfig
from orbitmq.message.ids import UniqueIds
from orbitmq.net.remoting import Remoting
from orbitmq.operations.topics import create_topic
from tests.interop.conftest import ASKED_FROM_MS, LONG_DELAY_LEVEL, System
from tests.support.commands import answer, items, orbitmq
from tests.support.java_rocketmq import JavaSystem
from tests.support.process import wait_until
from tests.support.transactions import left_alone, raw_producer

PATIENCE_S = 60
FIRST = ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET


def create(system: System, topic: str, queues: int = 2) -> None:
    async def created() -> None:
        remoting = Remoting()
        try:
            await create_topic(remoting, system.address, TopicConfig(topic, queues, queues))
        finally:
            await remoting.close()

    asyncio.run(created())
    wait_until(
        lambda: orbitmq_or_none("topic", "route", topic, "-n", system.namesrv_address),
        PATIENCE_S,
        f"a route of {topic}",
    )


def orbitmq_or_none(*words: object) -> object | None:
    try:
        return orbitmq(*words)
    except AssertionError:
        return None


def found(system: System, name: str) -> dict[str, object]:
    """The only story of a message, once it is in the index."""

    def story() -> dict[str, object] | None:
        try:
            (one,) = items("msg", "find", name, "-n", system.namesrv_address)
        except AssertionError:
            return None
        return one

    return wait_until(story, PATIENCE_S, f"the story of {name}")


def lines(text: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in text.splitlines()]


def test_messages_are_sent_found_shown_queried_counted(system: System, label: str) -> None:
    create(system, label)
    to = ("-n", system.namesrv_address)
    sent = lines(
        orbitmq(
            "msg", "send", label, "one", "two", "--tags", "red", "-k", f"key-{label}", "--property", "city=東京",
            *to, "-o", "jsonl",
        ).stdout
    )  # fmt: skip
    assert [row["result"] for row in sent] == ["SEND_OK", "SEND_OK"]
    first = sent[0]
    story = found(system, str(first["msgId"]))
    assert (story["state"], story["topic"]) == ("stored", label)
    told = orbitmq("msg", "find", first["msgId"], *to).stdout
    assert told.startswith(
        f"It is in {label} (broker-a, queue {first['queueId']}, offset {first['queueOffset']}) since "
    )
    assert "  stored " in told
    assert len(items("msg", "find", f"key-{label}", "-t", label, *to)) == 2

    (shown,) = items("msg", "show", first["offsetMsgId"], *to)
    assert (shown["tags"], shown["keys"], shown["body"]["content"]) == ("red", [f"key-{label}"], "one")
    assert shown["properties"]["city"] == "東京"
    assert shown["storedAt"].endswith("Z")
    text = orbitmq("msg", "show", first["msgId"], "--body", "hex", *to).stdout
    assert "\n6f6e65\n" in text

    by_key = items("msg", "query", label, "-k", f"key-{label}", *to)
    assert [row["body"]["content"] for row in by_key] == ["two", "one"]
    by_time = items("msg", "query", label, "--begin", "@1h", "--grep", "tw", "--oldest-first", *to)
    assert [row["msgId"] for row in by_time] == [sent[1]["msgId"]]
    place = ("--broker", "broker-a", "--queue", first["queueId"], "--offset", first["queueOffset"])
    assert [row["msgId"] for row in items("msg", "query", label, *place, *to)] == [first["msgId"]]
    assert items("msg", "count", label, *to) == [{"tag": "red", "messages": 2, "bodyBytes": 6}]


def test_what_is_not_there_is_an_error_that_says_where_it_was_looked_for(system: System, label: str) -> None:
    to = ("-n", system.namesrv_address)
    ended = orbitmq("msg", "find", f"nothing-{label}", *to, code=3)
    assert f"There is no message nothing-{label}: searched delayed and half messages" in ended.stderr
    assert answer("msg", "find", f"nothing-{label}", *to, code=3)["errors"]
    orbitmq("msg", "query", f"nowhere-{label}", *to, code=3)
    orbitmq("msg", "send", f"nowhere-{label}", "x", *to, code=3)
    orbitmq("msg", "show", "0" * 32, *to, code=3)
    orbitmq("msg", "query", label, "--begin", "soon", *to, code=2)


def test_tail_and_send_are_a_round_trip(system: System, label: str) -> None:
    """Text, bytes that are none, tags, keys, properties; in the order they were stored."""
    to = ("-n", system.namesrv_address)
    origin, copy = f"o-{label}", f"c-{label}"
    create(system, origin)
    create(system, copy)
    with Producer(f"p-{label}", system.namesrv_address) as producer:
        for number in range(12):
            body = bytes([255, number]) if number % 3 == 0 else f"text {number} 東京".encode()
            producer.send(
                Message(origin, body, tags=f"t{number % 2}", keys=[f"k{number}"], properties={"n": str(number)})
            )
    written = orbitmq("msg", "tail", origin, "--from", "begin", "-e", "-o", "jsonl", *to).stdout
    assert [row["properties"]["n"] for row in lines(written)] == [str(number) for number in range(12)]
    receipts = orbitmq("msg", "send", copy, "--jsonl", *to, "-o", "jsonl", typed=written).stdout
    assert len(lines(receipts)) == 12

    def content(topic: str) -> list[tuple[object, ...]]:
        rows = lines(orbitmq("msg", "tail", topic, "--from", "begin", "-e", "-o", "jsonl", *to).stdout)
        return [(row["tags"], row["keys"], row["properties"]["n"], row["body"]) for row in rows]

    assert content(copy) == content(origin)
    last = orbitmq("msg", "tail", origin, "--from", "-3", "-e", "-f", "%t %k\\n", *to).stdout
    assert last == "t1 k9\nt0 k10\nt1 k11\n"
    some = orbitmq("msg", "tail", origin, "--from", "begin", "-e", "--tag", "t1", "-c", "2", "-f", "%k,", *to).stdout
    assert some == "k1,k3,"
    assert orbitmq("msg", "tail", origin, "--from", "end", "-e", *to).stdout == ""
    bad = orbitmq("msg", "send", copy, "--jsonl", *to, typed='{"body":"x"}\n{"body":7}\n', code=2)
    assert "line 2: the body must be a text" in bad.stderr
    plain = lines(orbitmq("msg", "send", copy, *to, "-o", "jsonl", typed="a\n\nb\n").stdout)
    assert len(plain) == 2


def test_tail_shows_what_comes(system: System, label: str) -> None:
    create(system, label)
    to = ("-n", system.namesrv_address)
    with Producer(f"p-{label}", system.namesrv_address) as producer:
        producer.send(Message(label, b"before"))
        producer.send(Message(label, b"after"))
    followed = orbitmq("msg", "tail", label, "--from", "begin", "-c", "2", "-f", "%v\\n", *to).stdout
    assert followed == "before\nafter\n"
    until = time.time_ns() // 1_000_000 + 1500
    assert orbitmq("msg", "tail", label, "--until", until, "-f", "%v\\n", *to).stdout == "before\nafter\n"


def test_a_message_comes_again_to_a_topic_a_group_and_a_member(system: System, label: str) -> None:
    create(system, label, queues=1)
    create(system, f"to-{label}", queues=1)
    to = ("-n", system.namesrv_address)
    heard: list[MessageExt] = []

    def listen(messages: Sequence[MessageExt], _context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
        heard.extend(messages)
        return ConsumeConcurrentlyStatus.CONSUME_SUCCESS

    with Producer(f"p-{label}", system.namesrv_address) as producer:
        sent = producer.send(Message(label, b"again", tags="red", keys=f"key-{label}"))
    found(system, sent.msg_id)
    consumer = PushConsumer(f"g-{label}", system.namesrv_address, consume_from_where=FIRST)
    consumer.subscribe(label)
    consumer.set_listener(listen)
    with consumer:
        wait_until(lambda: len(heard) == 1, PATIENCE_S, "the message")
        (step,) = items("msg", "resend", sent.offset_msg_id, "--to", f"to-{label}", "--dry-run", *to)
        assert (step["outcome"], step["before"], step["after"]) == ("planned", label, f"to-{label}")
        orbitmq("msg", "resend", sent.offset_msg_id, "--to", f"to-{label}", *to, code=9)
        orbitmq("msg", "resend", sent.offset_msg_id, "--to", f"to-{label}", "--yes", *to)
        (copy,) = lines(orbitmq("msg", "tail", f"to-{label}", "--from", "begin", "-e", "-o", "jsonl", *to).stdout)
        assert (copy["tags"], copy["keys"], copy["body"]["content"]) == ("red", [f"key-{label}"], "again")
        assert copy["msgId"] != sent.msg_id

        orbitmq("msg", "resend", sent.msg_id, "-t", label, "-g", f"g-{label}", "--yes", *to)
        wait_until(lambda: len(heard) == 2, PATIENCE_S, "the retry")
        assert (heard[1].msg_id, heard[1].topic, heard[1].body) == (sent.msg_id, label, b"again")

        (member,) = items("client", "consumers", f"g-{label}", *to)
        orbitmq("msg", "resend", sent.offset_msg_id, "-g", f"g-{label}", "--client", member["clientId"], "--yes", *to)
        assert len(heard) == 3
        orbitmq("msg", "resend", sent.offset_msg_id, "-g", f"g-{label}", "--client", "nobody", "--yes", *to, code=1)


def test_half_messages_are_listed_and_asked_about_again(system: System, label: str) -> None:
    to = ("-n", system.namesrv_address)
    if isinstance(system, JavaSystem):
        ended = orbitmq("msg", "pending", *to, code=1)
        assert "brokers of RocketMQ do not list pending transactions; orbitmq msg find ID" in ended.stderr
        return
    now_ms = time.time_ns() // 1_000_000
    unique = UniqueIds(bytes([127, 0, 0, 1]), 78, b"half").create(now_ms)

    async def prepared() -> None:
        async with raw_producer(system.address, f"p-{label}") as producer:
            await producer.prepare(label, b"x", unique, born_ms=now_ms)

    with left_alone(system.address, ASKED_FROM_MS):
        asyncio.run(prepared())
        (half,) = items("msg", "pending", "-t", label, *to)
        assert (half["msgId"], half["producerGroup"]) == (unique, f"p-{label}")
        (step,) = items("msg", "resume", half["offsetMsgId"], "--yes", *to)
        assert step["outcome"] == "done"
        (again,) = items("msg", "pending", "-t", label, *to)
    assert again["halfOffset"] > half["halfOffset"]
    assert again["checks"] == 0


def test_delayed_messages_are_counted_by_level(system: System, label: str) -> None:
    to = ("-n", system.namesrv_address)

    def waiting() -> dict[str, object]:
        rows = [one for one in items("msg", "delayed", *to) if one["level"] == LONG_DELAY_LEVEL]
        return rows[0] if rows else {"waitingMessages": 0}

    before = waiting()["waitingMessages"]
    create(system, label)
    orbitmq("msg", "send", label, "a", "b", "--delay-level", LONG_DELAY_LEVEL, *to)
    wait_until(lambda: waiting()["waitingMessages"] == int(str(before)) + 2, PATIENCE_S, "both to wait")
    row = waiting()
    assert row["lateMs"] == 0
    assert row["nextTopic"]


def test_a_trace_is_shown_and_drawn(system: System, label: str) -> None:
    to = ("-n", system.namesrv_address)
    with Producer(f"p-{label}", system.namesrv_address, enable_trace=True) as producer:
        sent = producer.send(Message(label, b"x", keys=f"key-{label}"))
    found(system, sent.msg_id)
    records = wait_until(lambda: items("trace", "show", sent.msg_id, *to), PATIENCE_S, "the trace")
    assert [(one["kind"], one["group"], one["msgId"]) for one in records] == [("Pub", f"p-{label}", sent.msg_id)]
    (graph,) = items("trace", "graph", f"key-{label}", *to)
    assert graph["producerNode"]["offSetMsgId"] == sent.offset_msg_id
    assert f"p-{label} at " in orbitmq("trace", "graph", sent.msg_id, *to).stdout
    none = answer("trace", "show", f"nothing-{label}", *to)
    assert none["items"] == []
    assert none["warnings"][0].startswith(f"no trace of nothing-{label}: no client wrote one")
    absent = answer("trace", "show", "x", "-t", f"nowhere-{label}", *to)
    assert "there is no trace topic" in absent["warnings"][0]
