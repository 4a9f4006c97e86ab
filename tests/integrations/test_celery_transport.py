"""The transport of kombu at a live broker."""

from __future__ import annotations

import asyncio
import logging
import multiprocessing
import os
import resource
import select
import time
from collections.abc import Callable, Coroutine, Iterator
from concurrent.futures import ThreadPoolExecutor
from datetime import UTC, datetime, timedelta
from typing import Any

import kombu
import pytest

import orbitmq.integrations.celery
from orbitmq.client import Message, renewals
from orbitmq.client.sync import Producer, SimpleConsumer
from orbitmq.client.sync_wrapper import loop_thread
from orbitmq.errors import ConfigurationError, InvalidStateError, OrbitMQError
from orbitmq.integrations.celery import link
from orbitmq.integrations.celery.transport import settings_of
from orbitmq.testing import Cluster
from orbitmq.wire.requests import RequestCode
from tests.support.commands import items
from tests.support.popping import is_renewed
from tests.support.process import wait_until

assert orbitmq.integrations.celery  # registers the transport

QUEUE = kombu.Queue("work")
WAIT_S = 20


@pytest.fixture
def cluster() -> Iterator[Cluster]:
    with Cluster() as running:
        yield running


def connection(cluster: Cluster, **options: Any) -> Any:
    return kombu.Connection(f"orbitmq://{cluster.namesrv_address}", transport_options=options)


def put(conn: Any, body: Any, queue: Any = QUEUE, **more: Any) -> None:
    conn.Producer().publish(body, routing_key=queue.name, declare=[queue], **more)


def taken(conn: Any, count: int, queue: Any = QUEUE, **more: Any) -> list[Any]:
    """So many messages, not acknowledged; the consumer goes on."""
    messages: list[Any] = []
    consumer = conn.Consumer([queue], callbacks=[lambda _body, message: messages.append(message)], **more)
    consumer.consume()
    while len(messages) < count:
        conn.drain_events(timeout=WAIT_S)
    return messages


def test_acknowledged_messages_are_done(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        for number in range(5):
            put(conn, {"number": number})
        messages = taken(conn, 5)
        assert [message.payload for message in messages] == [{"number": number} for number in range(5)]
        for message in messages:
            message.ack()
    with connection(cluster) as conn:
        assert QUEUE(conn.default_channel).queue_declare(passive=True).message_count == 0
        assert QUEUE(conn.default_channel).get() is None


def test_unacknowledged_messages_are_given_back_when_the_connection_closes(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        put(conn, "again")
        taken(conn, 1)
    with connection(cluster) as conn:
        (message,) = taken(conn, 1)
        assert message.payload == "again"
        assert message.delivery_info["redelivered"] is True


def test_a_rejected_message_is_a_dead_letter(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        put(conn, "bad")
        taken(conn, 1)[0].reject()
    assert cluster.message_count("%DLQ%work") == 1


def test_a_message_that_kombu_has_not_made_is_a_dead_letter(cluster: Cluster, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with Producer("other", cluster.namesrv_address) as producer, connection(cluster) as conn:
        producer.send(Message("work", b"{}"))
        put(conn, "good")
        (message,) = taken(conn, 1)
        assert message.payload == "good"
        message.ack()
    assert cluster.message_count("%DLQ%work") == 1
    assert "event=message_rejected queue=work" in caplog.text


def test_no_more_messages_are_held_than_the_prefetch_count_allows(cluster: Cluster) -> None:
    with connection(cluster) as conn, connection(cluster) as other:
        for number in range(5):
            put(conn, number)
        messages = taken(conn, 2, prefetch_count=2)
        rest = taken(other, 3)
        assert sorted(message.payload for message in [*messages, *rest]) == [0, 1, 2, 3, 4]


def until(true: Callable[[], object]) -> None:
    wait_until(true, WAIT_S, "the condition")


def test_messages_that_a_cancelled_consumer_has_not_taken_are_for_others(cluster: Cluster) -> None:
    with connection(cluster) as conn, connection(cluster) as other:
        for number in range(3):
            put(conn, number)
        with conn.Consumer([QUEUE], callbacks=[lambda _body, _message: pytest.fail("taken")]):
            until(lambda: len(conn.transport.link.received) == 3)
        assert not conn.transport.link.received
        assert sorted(message.payload for message in taken(other, 3)) == [0, 1, 2]


def test_channels_of_a_connection_share_a_queue(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        got: dict[str, list[Any]] = {"first": [], "second": []}
        consumers = {
            name: conn.Consumer([QUEUE], channel=conn.channel(), prefetch_count=1, tag_prefix=name,
                                callbacks=[lambda _body, message, name=name: got[name].append(message)])
            for name in got
        }  # fmt: skip
        for consumer in consumers.values():
            consumer.consume()
        for number in range(3):
            put(conn, number)
        while not all(got.values()):
            conn.drain_events(timeout=WAIT_S)
        consumers["second"].cancel()
        got["first"][0].ack()
        while len(got["first"]) < 2:
            conn.drain_events(timeout=WAIT_S)
        assert [len(messages) for messages in got.values()] == [2, 1]


def test_a_consumer_of_a_queue_goes_on_when_another_one_is_cancelled(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        got: list[Any] = []
        conn.Consumer([QUEUE], no_ack=True, callbacks=[lambda body, _message: got.append(body)]).consume()
        with conn.Consumer([QUEUE], callbacks=[lambda _body, _message: pytest.fail("cancelled")]):
            pass
        put(conn, "on")
        conn.drain_events(timeout=WAIT_S)
        assert got == ["on"]


def test_a_queue_of_its_own_keeps_its_messages_for_the_next_consumer(cluster: Cluster) -> None:
    queue = kombu.Queue("reply.1", exclusive=True, auto_delete=True)
    with connection(cluster) as conn, connection(cluster) as replier:
        with conn.Consumer([queue], no_ack=True, callbacks=[lambda _body, _message: pytest.fail("taken")]):
            replier.Producer().publish("pong", routing_key=queue.name)
            until(lambda: conn.transport.link.received)
        with pytest.raises(TimeoutError):
            conn.drain_events(timeout=0.1)
        assert [message.payload for message in taken(conn, 1, queue)] == ["pong"]


def test_a_queue_of_its_own_outlives_the_channel_that_declared_it(cluster: Cluster) -> None:
    exchange = kombu.Exchange("news", "topic")
    queue = kombu.Queue("n1", exchange, routing_key="a.*", auto_delete=True)
    with connection(cluster) as conn:
        with conn.channel() as channel:
            queue(channel).declare()
        conn.Producer().publish("hello", exchange=exchange, routing_key="a.b")
        assert [message.payload for message in taken(conn, 1, queue, auto_declare=False)] == ["hello"]


def test_a_queue_that_is_consumed_follows_another_exchange_at_once(cluster: Cluster) -> None:
    first, second = kombu.Exchange("first", "fanout"), kombu.Exchange("second", "fanout")
    queue = kombu.Queue("n1", first, auto_delete=True)
    with connection(cluster) as conn:
        got: list[Any] = []
        conn.Consumer([queue], no_ack=True, callbacks=[lambda body, _message: got.append(body)]).consume()
        for exchange in (first, second):
            exchange(conn.default_channel).declare()
            queue(conn.default_channel).bind_to(exchange)
            conn.Producer().publish(exchange.name, exchange=exchange, declare=[exchange])
            conn.drain_events(timeout=5)  # less than a pull is held
        assert got == ["first", "second"]


def test_an_acknowledgement_is_tried_again_until_the_broker_takes_it(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        put(conn, "done")
        (message,) = taken(conn, 1)
        refused = cluster.refuse(RequestCode.ACK_MESSAGE, times=5)
        message.ack()
        until(lambda: refused.hits == 5)
    cluster.advance(61)
    with connection(cluster) as conn, conn.Consumer([QUEUE]), pytest.raises(TimeoutError):
        conn.drain_events(timeout=3)


def test_messages_after_one_whose_callback_fails_are_delivered_by_an_event_loop(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        got: list[Any] = []

        def take(body: Any, _message: Any) -> None:
            got.append(body)
            if body == 0:
                raise ArithmeticError

        for number in range(2):
            put(conn, number)
        conn.Consumer([QUEUE], callbacks=[take]).consume()
        until(lambda: len(conn.transport.link.received) == 2)
        with pytest.raises(ArithmeticError):
            conn.transport.on_readable(conn, None)
        assert select.select([conn.transport.link.fileno], [], [], 0)[0]
        conn.transport.on_readable(conn, None)
        assert got == [0, 1]


def test_a_process_with_many_open_files_receives(cluster: Cluster) -> None:
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    files = [os.open(os.devnull, os.O_RDONLY) for _ in range(1024)]
    try:
        with connection(cluster) as conn:
            put(conn, "here")
            assert taken(conn, 1)[0].payload == "here"
    finally:
        for file in files:
            os.close(file)
        resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))


def test_messages_come_again_when_the_broker_has_crashed(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        put(conn, "before")
        (before,) = taken(conn, 1)
        cluster.kill()
        before.ack()  # while it is away
        cluster.restart()
        put(conn, "after")
        got: list[Any] = []
        conn.Consumer([QUEUE], no_ack=True, callbacks=[lambda body, _message: got.append(body)]).consume()
        while "after" not in got:
            conn.drain_events(timeout=WAIT_S)


def test_a_message_that_is_worked_on_longer_than_its_visibility_is_not_delivered_again(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(renewals, "RENEWALS", 600)  # each of them soon
    with connection(cluster, visibility_timeout=60) as conn, connection(cluster, visibility_timeout=60) as other:
        put(conn, "slow")
        (message,) = taken(conn, 1)
        for _ in range(2):
            cluster.advance(40)
            wait_until(is_renewed(cluster, QUEUE.name, 60), WAIT_S, "its renewal")
        consumer = other.Consumer([QUEUE], callbacks=[lambda _body, one: one.ack()])
        with consumer, pytest.raises(TimeoutError):
            other.drain_events(timeout=2.5)
        message.ack()


def test_a_queue_of_its_own_gets_what_is_published_to_a_fanout_exchange(cluster: Cluster) -> None:
    exchange = kombu.Exchange("news", "fanout")
    with connection(cluster) as publisher, connection(cluster) as first, connection(cluster) as second:
        got: list[Any] = []
        for conn, name in ((first, "n1"), (second, "n2")):
            queue = kombu.Queue(name, exchange, auto_delete=True)
            conn.Consumer([queue], no_ack=True, callbacks=[lambda body, _message: got.append(body)]).consume()
        publisher.Producer().publish("hello", exchange=exchange, declare=[exchange])
        first.drain_events(timeout=WAIT_S)
        second.drain_events(timeout=WAIT_S)
        assert got == ["hello", "hello"]


def test_a_queue_of_its_own_gets_replies_and_leaves_no_topic_and_no_group(cluster: Cluster) -> None:
    with connection(cluster) as asker, connection(cluster) as replier:
        queue = kombu.Queue("reply.4711", exclusive=True, auto_delete=True)
        got: list[Any] = []
        asker.Consumer([queue], no_ack=True, callbacks=[lambda body, _message: got.append(body)]).consume()
        replier.Producer().publish("other", routing_key="reply.4712")
        replier.Producer().publish("mine", routing_key="reply.4711")
        asker.drain_events(timeout=WAIT_S)
        assert got == ["mine"]
        groups = items("group", "list", "--no-members", "--no-lag", "-n", cluster.namesrv_address)
        assert "reply" not in str(groups)
    with SimpleConsumer("g", cluster.namesrv_address) as consumer, pytest.raises(OrbitMQError, match="no route"):
        consumer.fetch_queues("reply-4711")


@pytest.mark.parametrize("is_temporary", [True, False])
@pytest.mark.parametrize("bindings", [0, 1, 2])
def test_a_queue_that_is_deleted_has_no_messages_and_no_reader(
    cluster: Cluster, bindings: int, is_temporary: bool
) -> None:
    exchanges = [kombu.Exchange(f"e{number}", "fanout") for number in range(bindings)]
    with connection(cluster) as conn:
        queue = kombu.Queue("gone", bindings=map(kombu.binding, exchanges), auto_delete=is_temporary)
        put(conn, "lost", queue)
        bound = queue(conn.default_channel)
        bound.delete()
        assert not conn.transport.link._readers
        bound.declare()
        assert bound.get() is None


def test_a_task_whose_eta_is_beyond_what_brokers_delay_waits_again(cluster: Cluster) -> None:
    eta = datetime.now(UTC) + timedelta(hours=3)
    with connection(cluster, max_delay=7200) as conn:
        put(conn, "later", headers={"eta": eta.isoformat()})
        taken_early: list[Any] = []
        with conn.Consumer([QUEUE], callbacks=[lambda _body, message: taken_early.append(message)]):
            cluster.advance(7201)
            deadline = time.monotonic() + WAIT_S
            while cluster.message_count("work") < 1 and time.monotonic() < deadline:
                with pytest.raises(TimeoutError):
                    conn.drain_events(timeout=0.1)
        assert not taken_early
        assert cluster.message_count("work") == 1


def test_a_task_that_waits_again_is_no_dead_letter_while_brokers_refuse_it(
    cluster: Cluster, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(link, "PAUSE_S", 0.05)
    eta = datetime.now(UTC) + timedelta(hours=3)
    with connection(cluster, max_delay=7200, max_redeliveries=1) as conn:
        put(conn, "later", headers={"eta": eta.isoformat()})
        refused = cluster.refuse("send", times=12, topic="work")
        with conn.Consumer([QUEUE], callbacks=[lambda _body, _message: pytest.fail("early")]):
            cluster.advance(7201)
            until(lambda: refused.hits == 12 or cluster.message_count("%DLQ%work"))
            until(lambda: not conn.transport.link._unsettled)
        assert cluster.message_count("%DLQ%work") == 0


def test_queues_that_share_an_exchange_get_a_task_whose_eta_is_far_ahead_once(cluster: Cluster) -> None:
    exchange = kombu.Exchange("broadcast", "fanout")
    eta = datetime.now(UTC) + timedelta(hours=3)
    with connection(cluster, max_delay=7200) as first, connection(cluster, max_delay=7200) as second:
        got: list[Any] = []
        for conn, name in ((first, "b1"), (second, "b2")):
            queue = kombu.Queue(name, exchange, auto_delete=True)
            conn.Consumer([queue], no_ack=True, callbacks=[lambda body, _message: got.append(body)]).consume()
        first.Producer().publish("later", exchange=exchange, headers={"eta": eta.isoformat()})
        cluster.advance(7201)
        first.drain_events(timeout=WAIT_S)
        second.drain_events(timeout=WAIT_S)
        assert got == ["later", "later"]
        assert cluster.message_count("exchange-broadcast") == 1


def test_messages_of_a_higher_priority_come_first(cluster: Cluster) -> None:
    with connection(cluster, priority_steps=[0, 3, 6, 9]) as conn:
        for priority in (0, 9, 3):
            put(conn, priority, priority=priority)
        got: list[int] = []
        with conn.Consumer([QUEUE], no_ack=True, callbacks=[lambda body, _message: got.append(body)], prefetch_count=1):
            while len(got) < 3:
                conn.drain_events(timeout=WAIT_S)
        assert got == [9, 3, 0]


def test_threads_that_first_use_a_queue_at_once_share_its_clients(cluster: Cluster) -> None:
    with connection(cluster) as conn:
        for number in range(4):
            put(conn, number)
        channels = [conn.channel() for _ in range(4)]
        with ThreadPoolExecutor(4) as threads:
            messages = list(threads.map(lambda channel: channel.basic_get(QUEUE.name), channels))
        assert sorted(message.payload for message in messages) == [0, 1, 2, 3]


@pytest.mark.parametrize(
    ("options", "text"),
    [
        ({"visiblity_timeout": 3}, "'visiblity_timeout' is not known"),
        ({"visibility_timeout": 0}, "visibility_timeout is 0: use a number"),
        ({"queues": "many"}, "queues is 'many'"),
        ({"priority_steps": [0, 12]}, "priority_steps is"),
    ],
)
def test_wrong_options_are_named(cluster: Cluster, options: dict[str, Any], text: str) -> None:
    with pytest.raises(ConfigurationError, match=text):
        connection(cluster, **options).transport.establish_connection()


def test_what_a_new_connection_does_not_mend_is_not_tried_again(cluster: Cluster) -> None:
    attempts: list[Exception] = []
    conn = connection(cluster, visiblity_timeout=3)
    with pytest.raises(ConfigurationError):
        conn.ensure_connection(lambda error, _pause: attempts.append(error), max_retries=2, interval_start=0)
    assert not attempts


def test_the_account_of_the_url_signs_requests() -> None:
    found = kombu.Connection("orbitmq://shop:s%2Fecret@127.0.0.1:9876/prod")
    assert settings_of(found) == {"access_key": "shop", "secret_key": "s/ecret", "namespace": "prod"}
    assert "s/ecret" not in found.as_uri()


def test_a_wrong_address_fails(cluster: Cluster) -> None:
    with pytest.raises(OrbitMQError):
        kombu.Connection("orbitmq://127.0.0.1:1").connect()


def _publish(conn: Any) -> None:
    put(conn, "from a child")


def _drain(conn: Any) -> None:
    conn.drain_events(timeout=1)


def _note(work: Callable[[Any], None], conn: Any, results: Any) -> None:
    try:
        work(conn)
    except Exception as error:
        results.put(str(error))


@pytest.mark.parametrize("work", [_publish, _drain])
def test_a_connection_of_the_parent_says_so_in_a_child(cluster: Cluster, work: Callable[[Any], None]) -> None:
    with connection(cluster) as conn:
        put(conn, "first")
        context = multiprocessing.get_context("fork")
        results = context.Queue()
        child = context.Process(target=_note, args=(work, conn, results))
        child.start()
        assert "belongs to the parent process" in results.get(timeout=WAIT_S)
        child.join()


def _use_on_the_loop(address: str, results: Any) -> None:
    conn = kombu.Connection(f"orbitmq://{address}")

    async def publish() -> None:
        put(conn, "there", retry=True)

    async def close() -> None:
        conn.transport.close_connection(conn.connection)

    def refused(work: Coroutine[Any, Any, None]) -> None:
        try:
            asyncio.run_coroutine_threadsafe(work, loop_thread().loop).result()
        except InvalidStateError as error:
            results.put(str(error))

    refused(publish())  # which would have to open the connection
    put(conn, "here")
    refused(publish())
    refused(close())
    put(conn, "here")
    conn.release()
    results.put("closed")


def test_a_coroutine_on_the_clients_loop_cannot_wait_for_it(cluster: Cluster) -> None:
    context = multiprocessing.get_context("fork")
    results = context.Queue()
    child = context.Process(target=_use_on_the_loop, args=(cluster.namesrv_address, results))
    child.start()
    try:
        for _ in range(3):
            assert "asyncio.to_thread" in results.get(timeout=WAIT_S)
        assert results.get(timeout=WAIT_S) == "closed"
    finally:
        child.kill()  # it may wait for itself
        child.join()
    assert cluster.message_count("work") == 2
