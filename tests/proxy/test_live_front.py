"""The front at a live broker: sends, receives, receipts, renewal, transactions, settings, accounts and limits.
`tests/interop/test_grpc_clients.py` compares it with RocketMQ's by the official clients.
"""

from __future__ import annotations

import asyncio
import hmac
import socket
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any
from unittest.mock import AsyncMock

import grpc
import pytest

from orbitmq.broker.broker import Broker
from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ConfigurationError, RemotingTimeout
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.net.brake import FREE_TRIES
from orbitmq.operations import pops
from orbitmq.proxy import renewal, sessions
from orbitmq.runtime.clock import ManualClock
from orbitmq.store.options import StoreOptions
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import ClientType, Code, MessageType, Permission, TransactionResolution
from tests.support.five import Five, channel, message
from tests.support.live import client_of, made_broker, running
from tests.support.loops import until
from tests.support.process import free_port

TOPIC, GROUP = "Orders", "billing"


@asynccontextmanager
async def front(tmp_path: Path, clock: ManualClock | None = None, **pairs: str) -> AsyncIterator[tuple[Broker, Any]]:
    """A broker that serves gRPC, with the topic, and a channel to it."""
    async with running(made_broker(tmp_path, clock, grpcServerPort="0", **pairs)) as broker:
        assert broker.front is not None
        topic(broker, TOPIC, "NORMAL")
        async with channel(broker.front.port) as made:
            yield broker, made


def undecided(broker: Broker) -> int:
    return len(list(broker.transactions.ledger.undecided(broker.store.max_offset(HALF_TOPIC, 0))))


def members(broker: Broker) -> int:
    group = broker.consumers.groups.get(GROUP)
    return 0 if group is None else len(group.client_ids())


def begin(broker: Broker, name: str = TOPIC, queues: int = 1) -> None:
    """Have the group read what is sent from now on, without a first receive that waits in vain."""
    for queue in range(queues):
        broker.offsets.commit(GROUP, name, queue, 0)


def topic(broker: Broker, name: str, kind: str, queues: int = 1) -> None:
    broker.topics.put(TopicConfig(name, queues, queues, attributes={"message.type": kind}))


async def test_a_message_is_sent_received_and_acknowledged_once(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        assert await client.receive(GROUP, TOPIC) == [], "a new group begins at the end"
        sent = message(TOPIC, b"body", tag="paid", keys=["a", "b"])
        sent.user_properties["colour"] = "red"
        answer = await client.call("SendMessage", v2.SendMessageRequest(messages=[sent]))
        assert (answer.status.code, answer.entries[0].message_id) == (Code.OK, sent.system_properties.message_id)
        (got,) = await client.receive(GROUP, TOPIC)
        system = got.system_properties
        assert (got.body, got.topic.name, dict(got.user_properties)) == (b"body", TOPIC, {"colour": "red"})
        assert (system.tag, list(system.keys), system.message_id) == (
            "paid",
            ["a", "b"],
            sent.system_properties.message_id,
        )
        assert (system.delivery_attempt, system.message_type) == (1, MessageType.NORMAL)
        assert (await client.ack(GROUP, TOPIC, got)).status.code == Code.OK
        assert not len(broker.journal.in_flight)


async def test_what_is_not_acknowledged_comes_again_and_then_is_a_dead_letter(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        broker.groups.put(SubscriptionGroup(GROUP, retry_max=1))
        client = Five(made)
        settings = await client.consume(GROUP, TOPIC)
        assert settings.backoff_policy.max_attempts == 2
        begin(broker)
        await client.send(TOPIC, b"poison")
        for attempt in (1, 2):
            (got,) = await client.receive(GROUP, TOPIC)
            assert got.system_properties.delivery_attempt == attempt
            clock.advance(30_000)
            await until(lambda: not len(broker.journal.in_flight), "its redelivery")
        assert await client.receive(GROUP, TOPIC) == []
        assert broker.store.max_offset(f"%DLQ%{GROUP}", 0) == 1
        assert not len(broker.journal.in_flight)


async def test_a_handle_that_was_changed_or_has_expired_is_void(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        begin(broker)
        await client.send(TOPIC, b"x")
        (got,) = await client.receive(GROUP, TOPIC)
        old = got.system_properties.receipt_handle
        changed = await client.change(GROUP, TOPIC, old, 60)
        assert changed.status.code == Code.OK
        assert changed.receipt_handle != old
        await client.ack(GROUP, TOPIC, got)
        assert len(broker.journal.in_flight) == 1, "the old handle acknowledges nothing"
        clock.advance(30_000)
        answer = await client.ack(GROUP, TOPIC, got)
        assert answer.status.code == answer.entries[0].status.code == Code.INVALID_RECEIPT_HANDLE
        got.system_properties.receipt_handle = changed.receipt_handle
        assert (await client.ack(GROUP, TOPIC, got)).status.code == Code.OK
        assert not len(broker.journal.in_flight)


async def test_the_front_renews_what_a_push_consumer_works_on(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC, kind=ClientType.PUSH_CONSUMER)
        begin(broker)
        await client.send(TOPIC, b"slow")
        (got,) = await client.receive(GROUP, TOPIC, renew=True)
        assert broker.front is not None
        renewals = broker.front.receiving.renewal
        for _ in range(3):
            clock.advance(55_000)
            await renewals.look()
        assert len(broker.journal.in_flight) == len(renewals) == 1
        assert (await client.ack(GROUP, TOPIC, got)).status.code == Code.OK, "by the handle that it has"
        assert not len(broker.journal.in_flight)
        await client.send(TOPIC, b"hangs")
        await client.receive(GROUP, TOPIC, renew=True)
        clock.advance(renewal.LONGEST_MS)
        await renewals.look()
        assert not len(renewals), "after so long it is not renewed any more"


def fails_at_once(*arguments: Any) -> object:
    waiter = arguments[-1]
    waiter.set_exception(RemotingTimeout("no response"))
    return waiter


@pytest.mark.parametrize("is_at_once", [True, False])
async def test_an_acknowledgement_that_failed_is_made_again_by_the_same_handle(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, is_at_once: bool
) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC, kind=ClientType.PUSH_CONSUMER)
        begin(broker)
        await client.send(TOPIC, b"x")
        (got,) = await client.receive(GROUP, TOPIC, renew=True)
        assert broker.front is not None
        clock.advance(55_000)
        await broker.front.receiving.renewal.look()
        with monkeypatch.context() as patched:
            patched.setattr(pops, "start_acknowledge", fails_at_once if is_at_once else lambda *_: None)
            patched.setattr(pops, "acknowledge", AsyncMock(side_effect=RemotingTimeout("no response")))
            assert (await client.ack(GROUP, TOPIC, got)).status.code == Code.PROXY_TIMEOUT
        assert len(broker.front.receiving.renewal) == 1, "it is still renewed"
        assert (await client.ack(GROUP, TOPIC, got)).status.code == Code.OK
        assert not len(broker.journal.in_flight)


async def test_messages_of_a_consumer_that_leaves_are_others_soon(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client, other = Five(made), Five(made)
        for one in (client, other):
            await one.consume(GROUP, TOPIC, kind=ClientType.PUSH_CONSUMER)
        begin(broker)
        await client.send(TOPIC, b"x")
        await client.receive(GROUP, TOPIC, renew=True)
        assert members(broker) == 2
        answer = await client.call("NotifyClientTermination", v2.NotifyClientTerminationRequest())
        assert answer.status.code == Code.OK
        assert members(broker) == 1
        clock.advance(renewal.GONE_MS + 10)  # a receipt may be some milliseconds ahead
        await until(lambda: not len(broker.journal.in_flight), "its redelivery")
        (got,) = await other.receive(GROUP, TOPIC, renew=True)
        assert got.system_properties.delivery_attempt == 2


async def test_a_consumer_without_subscriptions_is_a_member_where_its_topics_are(tmp_path: Path) -> None:
    """As Rust's client is, whose settings name no topic."""
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        settings = v2.Settings(client_type=ClientType.SIMPLE_CONSUMER)
        settings.subscription.group.name = GROUP
        await client.settle(settings)
        assert members(broker) == 0, "nobody knows yet where"
        answer = await client.call("QueryRoute", v2.QueryRouteRequest(topic=v2.Resource(name=TOPIC)))
        assert answer.status.code == Code.OK
        await until(lambda: members(broker) == 1, "its membership")
        await client.call("NotifyClientTermination", v2.NotifyClientTerminationRequest())
        assert members(broker) == 0


async def test_a_silent_client_is_forgotten(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        assert broker.front is not None
        table = broker.front.sessions
        clock.advance(sessions.SILENCE_MS + 1)
        assert table.silent() == [], "its stream is open"
        client.stream.cancel()
        await until(lambda: next(iter(table)).telemetry is None, "the stream to end")
        clock.advance(sessions.SILENCE_MS + 1)
        assert len(table.silent()) == 1
        await broker.front._forget_silent()
        assert (len(table), members(broker)) == (0, 0)
        answer = await client.call("Heartbeat", v2.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER))
        assert answer.status.code == Code.UNRECOGNIZED_CLIENT_TYPE, "so that it sends its settings again"


@pytest.mark.parametrize("resolution", ["COMMIT", "ROLLBACK"])
@pytest.mark.parametrize("how", ["at once", "when asked", "by another front"])
async def test_a_transaction_ends_as_its_producer_says(tmp_path: Path, resolution: str, how: str) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        topic(broker, "Payments", "TRANSACTION")
        client = Five(made)
        await client.produce("Payments")
        answer = await client.send("Payments", b"half", message_type=MessageType.TRANSACTION)
        entry = answer.entries[0]
        assert entry.transaction_id == entry.message_id
        assert broker.store.max_offset("Payments", 0) == 0
        request = v2.EndTransactionRequest(
            message_id=entry.message_id,
            transaction_id=entry.transaction_id,
            resolution=TransactionResolution[resolution],
        )
        request.topic.name = "Payments"
        assert broker.front is not None
        if how == "when asked":
            clock.advance(120_000)
            await broker.transactions.checking.round()
            asked = await asyncio.wait_for(client.stream.read(), 10)
            command = asked.recover_orphaned_transaction_command
            assert (command.transaction_id, command.message.body) == (entry.transaction_id, b"half")
            assert command.message.topic.name == "Payments"
            client = Five(made)  # any producer may answer
        elif how == "by another front":
            broker.front.sending._halves.clear()
        assert (await client.call("EndTransaction", request)).status.code == Code.OK
        committed = int(resolution == "COMMIT")
        await until(lambda: not undecided(broker), "the decision")
        assert broker.store.max_offset("Payments", 0) == committed


async def test_a_message_of_the_wrong_type_is_not_stored(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        topic(broker, "Ordered", "FIFO")
        answer = await Five(made).send("Ordered", b"x")
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert "expected type is FIFO, but actual type is NORMAL" in answer.status.message
        assert broker.store.max_offset("Ordered", 0) == 0


async def test_messages_of_a_group_go_to_one_queue_and_come_in_order(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        topic(broker, "Ordered", "FIFO", queues=4)
        broker.groups.put(SubscriptionGroup(GROUP, consume_orderly=True))
        client = Five(made)
        settings = await client.consume(GROUP, "Ordered", ClientType.PUSH_CONSUMER)
        assert settings.subscription.fifo
        request = v2.QueryAssignmentRequest()
        request.topic.name, request.group.name = "Ordered", GROUP
        answer = await client.call("QueryAssignment", request)
        queues = [one.message_queue.id for one in answer.assignments]
        assert queues == [0, 1, 2, 3]
        begin(broker, "Ordered", 4)
        for number in range(6):
            await client.send("Ordered", b"%d" % number, message_group="customer")
        (queue,) = [one for one in queues if broker.store.max_offset("Ordered", one)]
        got = []
        for _ in range(3):
            found = await client.receive(GROUP, "Ordered", 2, queue=queue)
            got += [one.body for one in found]
            await client.ack(GROUP, "Ordered", *found)
        assert got == [b"%d" % number for number in range(6)]


async def test_a_delayed_message_can_be_recalled(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock, recallMessageEnable="true") as (broker, made):
        topic(broker, "Later", "DELAY")
        client = Five(made)
        handles = []
        for body in (b"kept", b"recalled"):
            answer = await client.send("Later", body, delivery_ms=clock.now_ms() + 60_000)
            assert answer.status.code == Code.OK
            handles.append(answer.entries[0].recall_handle)
        assert broker.store.max_offset("Later", 0) == 0
        request = v2.RecallMessageRequest(recall_handle=handles[1])
        request.topic.name = "Later"
        assert (await client.call("RecallMessage", request)).status.code == Code.OK
        clock.advance(60_000)
        await until(lambda: broker.store.max_offset("Later", 0) == 1, "the one that is left")
        answer = await client.send("Later", b"x", delivery_ms=clock.now_ms() + 40 * 86_400_000)
        assert answer.status.code == Code.ILLEGAL_DELIVERY_TIME


async def test_the_route_lists_queues_by_what_may_be_done(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        broker.topics.put(TopicConfig("Lopsided", 3, 1))
        assert broker.front is not None
        request = v2.QueryRouteRequest()
        request.topic.name = "Lopsided"
        request.endpoints.scheme = 3
        request.endpoints.addresses.add(host="broker.example", port=1)
        answer = await Five(made).call("QueryRoute", request)
        permissions = [one.permission for one in answer.message_queues]
        assert permissions == [Permission.READ, Permission.READ, Permission.READ_WRITE]
        places = {(one.host, one.port) for queue in answer.message_queues for one in queue.broker.endpoints.addresses}
        assert places == {("broker.example", broker.front.port)}, "where the client has found it"
        request.topic.name = "Unknown"
        assert (await Five(made).call("QueryRoute", request)).status.code == Code.TOPIC_NOT_FOUND


async def test_a_stream_with_wrong_settings_ends(tmp_path: Path) -> None:
    async with front(tmp_path) as (_, made):
        for settings in (
            v2.Settings(client_type=ClientType.PRODUCER),
            v2.Settings(client_type=ClientType.PUSH_CONSUMER, subscription=v2.Subscription()),
            v2.Settings(client_type=ClientType.PRODUCER, publishing=v2.Publishing(topics=[v2.Resource(name="a b")])),
        ):
            stream = Five(made).open()
            await stream.write(v2.TelemetryCommand(settings=settings))
            with pytest.raises(grpc.aio.AioRpcError) as raised:
                await stream.read()
            assert raised.value.code() == grpc.StatusCode.INVALID_ARGUMENT


async def test_what_has_no_id_or_no_settings_is_told(tmp_path: Path) -> None:
    async with front(tmp_path) as (_, made):
        client = Five(made)
        client.metadata = client.metadata[1:]
        assert (await client.send(TOPIC, b"x")).status.code == Code.CLIENT_ID_REQUIRED
        client = Five(made)
        request = v2.ReceiveMessageRequest(batch_size=1)
        request.group.name, request.message_queue.topic.name = GROUP, TOPIC
        v2.set_time(request.invisible_duration, 30_000)
        (answer, end) = await client.call("ReceiveMessage", request)
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        assert end.HasField("delivery_timestamp")


async def test_nothing_is_delivered_to_a_call_that_was_cancelled(tmp_path: Path) -> None:
    clock = ManualClock()
    async with front(tmp_path, clock) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        begin(broker)
        waiting = asyncio.create_task(client.receive(GROUP, TOPIC, poll_s=20))
        await until(lambda: len(broker._popping.waiting) == 1, "it to wait")
        waiting.cancel()
        await until(lambda: not len(broker._popping.waiting), "it to wait no longer")
        five = broker.front
        assert five is not None
        await until(lambda: not five._tasks, "the call to be forgotten")
        await client.send(TOPIC, b"x")
        (got,) = await client.receive(GROUP, TOPIC)
        assert (got.body, got.system_properties.delivery_attempt) == (b"x", 1)


async def test_a_call_that_ends_before_it_waits_does_not_come_to_wait(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        await client.consume(GROUP, TOPIC)
        begin(broker)
        five, begun = broker.front, broker._popping.waiting.begun
        assert five is not None
        go_on = asyncio.Event()
        monkeypatch.setattr(broker.journal, "restored", go_on.wait)
        waiting = asyncio.create_task(client.receive(GROUP, TOPIC, poll_s=20))
        await until(lambda: bool(begun), "it to be asked")
        waiting.cancel()
        await until(lambda: not begun, "the broker to know that nobody wants it")
        go_on.set()
        await until(lambda: not five._tasks, "the call to be forgotten")
        assert not len(broker._popping.waiting)


async def test_a_batch_is_stored_as_one(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, made):
        client = Five(made)
        answer = await client.send(TOPIC, b"0", b"1", b"2")
        (entry,) = answer.entries
        assert (entry.status.code, entry.message_id.count(",")) == (Code.OK, 2)
        assert broker.store.max_offset(TOPIC, 0) == 3
        mixed = v2.SendMessageRequest(messages=[message(TOPIC, b"0"), message("Other", b"1")])
        assert (await client.call("SendMessage", mixed)).status.code == Code.MESSAGE_CORRUPTED


async def test_the_remoting_port_takes_such_clients_too(tmp_path: Path) -> None:
    async with front(tmp_path) as (broker, _), channel(broker.port) as made, client_of(broker) as old:
        assert (await Five(made).send(TOPIC, b"x")).status.code == Code.OK
        assert (await old.send(TOPIC, b"y")).code == 0


@pytest.mark.parametrize("host", ["localhost", "::1"])
async def test_a_broker_may_have_a_name_or_any_address(tmp_path: Path, host: str) -> None:
    async with running(made_broker(tmp_path, grpcServerPort="0", brokerIP1=host, bindAddress="127.0.0.1")) as broker:
        assert broker.front is not None
        topic(broker, TOPIC, "NORMAL")
        async with channel(broker.front.port) as made:
            assert (await Five(made).send(TOPIC, b"x")).status.code == Code.OK


async def test_a_promoted_slave_starts_also_when_its_grpc_port_is_taken(tmp_path: Path) -> None:
    async with front(tmp_path / "first") as (first, _):
        assert first.front is not None
        options = BrokerOptions(broker_name="b", listen_port=0, grpc_server_port=first.front.port)
        store = StoreOptions(store_path_root_dir=str(tmp_path / "second"))
        with pytest.raises(ConfigurationError, match="grpcServerPort"):
            await Broker(options, store).start()
        async with running(Broker(options, store, is_successor=True)) as promoted:
            await serves_at_its_own_port(promoted)


async def serves_at_its_own_port(promoted: Broker) -> None:
    topic(promoted, TOPIC, "NORMAL")
    async with channel(promoted.port) as made:
        assert (await Five(made).send(TOPIC, b"x")).status.code == Code.OK
        request = v2.QueryRouteRequest()
        request.topic.name = TOPIC
        (queue,) = (await Five(made).call("QueryRoute", request)).message_queues
        assert queue.broker.endpoints.addresses[0].port == promoted.port


async def test_of_two_that_have_bound_the_grpc_port_the_second_to_listen_names_it(tmp_path: Path) -> None:
    port = free_port()

    def late(*, is_successor: bool) -> Broker:
        options = BrokerOptions(broker_name="b", listen_port=0, grpc_server_port=port)
        store = StoreOptions(store_path_root_dir=str(tmp_path / "store"))
        broker = Broker(options, store, is_successor=is_successor)
        assert broker.front is not None
        bind = broker.front.bind

        async def bind_both(host: str, port: int) -> int:
            bound = await bind(host, port)
            other.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            other.bind((host, port))
            other.listen()
            return bound

        broker.front.bind = bind_both  # type: ignore[method-assign]
        return broker

    with socket.socket() as other, pytest.raises(ConfigurationError, match=f"grpcServerPort.*:{port}: Address already"):
        await late(is_successor=False).start()
    with socket.socket() as other:
        async with running(late(is_successor=True)) as promoted:
            await serves_at_its_own_port(promoted)


async def test_without_the_option_there_is_no_front(tmp_path: Path) -> None:
    async with running(made_broker(tmp_path)) as broker:
        assert broker.front is None
        async with channel(broker.port) as made:
            with pytest.raises(grpc.aio.AioRpcError):
                await Five(made).call("QueryRoute", v2.QueryRouteRequest(), timeout=3)


ACCOUNTS = """
accounts:
- accessKey: sender-account
  secretKey: sender-secret
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Orders=PUB]
"""


def signed(account: str, secret: str) -> dict[str, str]:
    moment = "20261129T120000Z"
    signature = hmac.digest(secret.encode(), moment.encode(), "sha1").hex()
    text = f"MQv2-HMAC-SHA1 Credential={account}, SignedHeaders=x-mq-date-time, Signature={signature}"
    return {"x_mq_date_time": moment, "authorization": text}


async def test_an_account_may_what_it_may_over_remoting(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    pairs = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with front(tmp_path / "store", **pairs) as (broker, made):
        right = Five(made, **signed("sender-account", "sender-secret"))
        assert (await right.send(TOPIC, b"x")).status.code == Code.OK
        topic(broker, "Other", "NORMAL")
        answer = await right.send("Other", b"x")
        assert answer.status.code == Code.UNAUTHORIZED
        assert (await right.produce(TOPIC)).publishing.topics
        with pytest.raises(grpc.aio.AioRpcError, match="may not send to topic Other"):
            await right.produce(TOPIC, "Other")  # and be asked about its half messages
        for wrong in (
            Five(made, **signed("sender-account", "another-secret")), Five(made, **signed("nobody", "sender-secret")),
            Five(made, authorization="Basic x"), Five(made),
        ):  # fmt: skip
            answer = await wrong.send(TOPIC, b"x")
            assert answer.status.code == Code.UNAUTHORIZED, answer
        assert broker.store.max_offset(TOPIC, 0) == 1
        stolen = Five(made, right.client_id)
        assert (await stolen.send(TOPIC, b"x")).status.code == Code.UNAUTHORIZED, "the id belongs to another account"


async def test_an_account_that_may_send_may_end_its_transactions(tmp_path: Path) -> None:
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    pairs = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with front(tmp_path / "store", **pairs) as (broker, made):
        topic(broker, TOPIC, "TRANSACTION")
        client = Five(made, **signed("sender-account", "sender-secret"))
        (entry,) = (await client.send(TOPIC, b"half", message_type=MessageType.TRANSACTION)).entries
        assert broker.front is not None
        broker.front.sending._halves.clear()  # as after a restart
        request = v2.EndTransactionRequest(
            message_id=entry.message_id, transaction_id=entry.transaction_id, resolution=TransactionResolution.COMMIT
        )
        request.topic.name = "Other"
        topic(broker, "Other", "TRANSACTION")
        refused = await client.call("EndTransaction", request)
        assert refused.status.code == Code.INTERNAL_SERVER_ERROR, "there is none of this topic"
        request.topic.name = TOPIC
        assert (await client.call("EndTransaction", request)).status.code == Code.OK
        await until(lambda: broker.store.max_offset(TOPIC, 0) == 1, "the decision")


async def test_who_guesses_secrets_waits_and_is_cut_off(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("orbitmq.proxy.front.REST_SECONDS", 0.2)
    (tmp_path / "conf").mkdir()
    (tmp_path / "conf" / "plain_acl.yml").write_text(ACCOUNTS)
    pairs = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with front(tmp_path / "store", **pairs) as (broker, made):
        loop = asyncio.get_running_loop()
        wrong, right = signed("sender-account", "another-secret"), signed("sender-account", "sender-secret")
        for _ in range(FREE_TRIES):
            assert (await Five(made, **wrong).send(TOPIC, b"x")).status.code == Code.UNAUTHORIZED
        began = loop.time()
        assert (await Five(made, **wrong).send(TOPIC, b"x")).status.code == Code.UNAUTHORIZED
        assert loop.time() - began > 0.3
        assert (await Five(made, **right).send(TOPIC, b"x")).status.code == Code.OK, "nobody else waits"
        guesses = [Five(made, **wrong).send(TOPIC, b"x") for _ in range(4)]
        await asyncio.gather(*guesses, return_exceptions=True)
        assert broker.front is not None
        await until(lambda: broker.front is not None and not broker.front.server.connections, "the connection to close")
