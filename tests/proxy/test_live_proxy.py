"""The proxy in front of two live brokers and a name server: what one front does for several brokers. What it does for
each is in test_live_front.py.
"""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncIterator, Callable, Iterable
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import grpc
import pytest

from orbitmq.broker.broker import Broker
from orbitmq.cli.daemons import accounts_of
from orbitmq.errors import ConfigurationError, RemotingTimeout
from orbitmq.message.config import SubscriptionGroup, TopicConfig
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.metrics.daemons import parts_of, served
from orbitmq.metrics.options import MetricsOptions
from orbitmq.metrics.table_native import PROCESS, PROXY
from orbitmq.namesrv.options import NamesrvOptions
from orbitmq.namesrv.server import NameServer
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.operations import routes
from orbitmq.proxy.cluster import FRESH_MS
from orbitmq.proxy.options import ProxyOptions
from orbitmq.proxy.proxy import Proxy
from orbitmq.proxy.sending import AVOIDED_MS
from orbitmq.runtime.clock import ManualClock
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.v2 import messages as v2
from orbitmq.wire.v2.enums import ClientType, Code, MessageType, TransactionResolution
from tests.proxy.test_live_front import signed
from tests.support.five import Five, channel
from tests.support.live import made_broker
from tests.support.loops import until
from tests.support.scraped import Scraped

TOPIC, GROUP = "Orders", "billing"
NAMES = ("broker-a", "broker-b")


@dataclass
class Cluster:
    """Two brokers, broker-a and broker-b, their name server, and a proxy with a channel to it. One clock is theirs."""

    names: NameServer
    clock: ManualClock = field(default_factory=ManualClock)
    brokers: list[Broker] = field(default_factory=list)
    proxy: Proxy = None  # type: ignore[assignment]  # the last to be made
    channel: Any = None

    def topic(self, name: str, kind: str = "NORMAL", queues: int = 2) -> str:
        for broker in self.brokers:
            broker.topics.put(TopicConfig(name, queues, queues, attributes={"message.type": kind}))
        return name

    async def announced(self) -> None:
        """Until the name server knows all topics."""
        for broker in self.brokers:
            await broker.announced()

    def begin(self, name: str = TOPIC, queues: int = 2) -> None:
        """Have the group read from the first message on."""
        for broker in self.brokers:
            for queue in range(queues):
                broker.offsets.commit(GROUP, name, queue, 0)

    def stored(self, name: str = TOPIC, queues: int = 2) -> list[list[int]]:
        """The messages of each queue, by broker."""
        return [[broker.store.max_offset(name, queue) for queue in range(queues)] for broker in self.brokers]

    def in_flight(self) -> list[int]:
        return [len(broker.journal.in_flight) for broker in self.brokers]

    async def stop_broker(self) -> None:
        """The second one."""
        await self.brokers.pop().stop()

    async def another(self, stack: AsyncExitStack) -> Any:
        """A channel to a second proxy."""
        proxy = await stack.enter_async_context(_proxy(self.names.address, self.clock))
        return await stack.enter_async_context(channel(proxy.port))


@asynccontextmanager
async def _proxy(names: str, clock: ManualClock, accounts: Any = None, **pairs: str) -> AsyncIterator[Proxy]:
    made = Proxy(_options(names, **pairs), clock=clock, accounts=accounts)
    await made.start()
    try:
        yield made
    finally:
        await made.stop()


def _options(names: str, **pairs: str) -> ProxyOptions:
    return ProxyOptions.parse({"namesrvAddr": names, "grpcServerPort": "0", **pairs})


@asynccontextmanager
async def cluster(
    tmp_path: Path, accounts: ProxyOptions | None = None, broker: Iterable[tuple[str, str]] = (), **pairs: str
) -> AsyncIterator[Cluster]:
    """With TOPIC. `pairs` are options of the proxy, `broker` those of the brokers."""
    async with AsyncExitStack() as stack:
        names = NameServer(
            NamesrvOptions(
                listen_port=0, kv_config_path=str(tmp_path / "kv"), config_store_path=str(tmp_path / "names.conf")
            )
        )
        await names.start()
        stack.push_async_callback(names.stop)
        made = Cluster(names)
        for name in NAMES:
            options = {"brokerName": name, "namesrvAddr": names.address, **dict(broker)}
            one = made_broker(tmp_path / name, made.clock, **options)
            await one.start()
            made.brokers.append(one)
        stack.push_async_callback(_stop_all, made.brokers)
        made.topic(TOPIC)
        await made.announced()
        found = None if accounts is None else await stack.enter_async_context(accounts_of(accounts))
        made.proxy = await stack.enter_async_context(_proxy(names.address, made.clock, found, **pairs))
        made.channel = await stack.enter_async_context(channel(made.proxy.port))
        yield made


async def _stop_all(brokers: list[Broker]) -> None:
    for broker in brokers:
        await broker.stop()


def place(message: Any) -> str:
    """The broker of a message, by its handle."""
    return str(message.system_properties.receipt_handle.split()[5])


async def receive_all(client: Five, count: int, topic: str = TOPIC, **how: Any) -> list[Any]:
    """So many messages; a receive brings those of one broker."""
    found: list[Any] = []
    for _ in range(20):
        if len(found) < count:
            found += await client.receive(GROUP, topic, poll_s=0.2, **how)
    assert len(found) == count
    return found


async def test_messages_go_to_all_queues_and_are_acknowledged_where_they_are(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        made.begin()
        for number in range(8):
            assert (await client.send(TOPIC, b"%d" % number)).status.code == Code.OK
        assert made.stored() == [[2, 2], [2, 2]]
        found = await receive_all(client, 8)
        assert sorted(one.body for one in found) == [b"%d" % number for number in range(8)]
        assert all(made.in_flight())
        of_b = [one for one in found if place(one) == "broker-b"]
        assert (await client.ack(GROUP, TOPIC, *of_b)).status.code == Code.OK
        assert list(map(bool, made.in_flight())) == [True, False]
        of_a = [one for one in found if place(one) == "broker-a"]
        handle = of_a[0].system_properties.receipt_handle
        changed = await client.change(GROUP, TOPIC, handle, 60)
        assert changed.status.code == Code.OK
        of_a[0].system_properties.receipt_handle = changed.receipt_handle
        assert (await client.ack(GROUP, TOPIC, *of_a)).status.code == Code.OK
        assert made.in_flight() == [0, 0]


async def test_what_nobody_is_there_to_take_is_given_back_at_once(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        made.begin()
        waiting = asyncio.create_task(client.receive(GROUP, TOPIC, poll_s=20, broker=NAMES[0]))
        popping = made.brokers[0]._popping
        await until(lambda: len(popping.waiting) == 1, "it to wait")
        waiting.cancel()
        await asyncio.gather(waiting, return_exceptions=True)
        for number in range(4):
            await client.send(TOPIC, b"%d" % number)
        soon_ms = made.clock.now_ms() + 10
        due_ms = made.brokers[0].journal.in_flight.next_due_ms
        await until(lambda: (due_ms() or soon_ms + 1) <= soon_ms, "it to be popped and given back")
        made.clock.advance(10)
        assert sorted(one.body for one in await receive_all(client, 4)) == [b"0", b"1", b"2", b"3"]


async def test_a_call_that_ends_before_its_broker_is_connected_asks_nothing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        made.begin()
        front = made.proxy.front
        session = front.sessions.get(client.client_id)
        assert session is not None
        remoting, go_on = session.remoting, asyncio.Event()
        dial = remoting._dial

        async def slow(make: Callable[[], Connection], address: str) -> Connection:
            await go_on.wait()
            return await dial(make, address)

        monkeypatch.setattr(remoting, "_dial", slow)
        remoting.disconnect(made.brokers[0].address)
        waiting = asyncio.create_task(client.receive(GROUP, TOPIC, poll_s=20, broker=NAMES[0]))
        await until(lambda: bool(remoting._connecting), "the broker to be connected")
        waiting.cancel()
        async with asyncio.timeout(15):  # 25 s are the most that the request may take
            await until(lambda: not front._tasks, "the call to be forgotten")
        go_on.set()


async def test_a_receive_names_its_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        made.begin()
        for _ in range(4):
            await client.send(TOPIC, b"x")
        for name in NAMES:
            assert {place(one) for one in await receive_all(client, 2, broker=name)} == {name}


async def test_a_message_group_has_one_queue_of_one_broker(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, AsyncExitStack() as stack:
        made.topic("Ordered", "FIFO", queues=3)
        await made.announced()
        client, other = Five(made.channel), Five(await made.another(stack))
        for number in range(3):
            for one in (client, other):
                answer = await one.send("Ordered", b"%d" % number, message_group="customer")
                assert answer.status.code == Code.OK
        counts = [count for queues in made.stored("Ordered", 3) for count in queues]
        assert sorted(counts) == [0, 0, 0, 0, 0, 6], "whichever proxy it came by"
        for broker in made.brokers:
            broker.groups.put(SubscriptionGroup(GROUP, consume_orderly=True))
        settings = await client.consume(GROUP, "Ordered", kind=ClientType.PUSH_CONSUMER)
        assert settings.subscription.fifo
        request = v2.QueryAssignmentRequest()
        request.topic.name, request.group.name = "Ordered", GROUP
        queues = [one.message_queue for one in (await client.call("QueryAssignment", request)).assignments]
        assert [(one.broker.name, one.id) for one in queues] == [(name, queue) for name in NAMES for queue in range(3)]
        made.begin("Ordered", 3)
        at = counts.index(6)
        found = await receive_all(client, 6, "Ordered", broker=NAMES[at // 3], queue=at % 3)
        assert [one.body for one in found] == [b"0", b"0", b"1", b"1", b"2", b"2"]


async def test_the_order_of_routes_does_not_matter_to_message_groups(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async with cluster(tmp_path) as made, AsyncExitStack() as stack:
        topic = made.topic("Ordered", "FIFO")
        await made.announced()
        other = await made.another(stack)
        await Five(made.channel).send(topic, b"x", message_group="customer")
        found = routes.route

        async def turned(*arguments: Any, **more: Any) -> Any:
            data = await found(*arguments, **more)
            assert data is not None
            data.queue_datas.sort(key=lambda one: one.broker_name, reverse=True)
            return data

        monkeypatch.setattr(routes, "route", turned)
        await Five(other).send(topic, b"x", message_group="customer")
        assert sorted(count for queues in made.stored(topic) for count in queues) == [0, 0, 0, 2]


async def test_a_stopped_broker_is_left_out(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        made.begin()
        for _ in range(4):
            await client.send(TOPIC, b"early")
        found = await receive_all(client, 4)
        await made.stop_broker()
        codes = [(await client.send(TOPIC, b"late")).status.code for _ in range(8)]
        assert codes.count(Code.INTERNAL_SERVER_ERROR) == 1, codes
        assert codes.count(Code.OK) == 7, "a failure has the route looked up again"
        answer = await client.ack(GROUP, TOPIC, *found)
        of_entries = [one.status.code for one in answer.entries]
        assert answer.status.code == Code.MULTIPLE_RESULTS
        assert of_entries == [Code.OK if place(one) == "broker-a" else Code.BAD_REQUEST for one in found], of_entries
        late = await receive_all(client, 7, broker="broker-b")
        assert {place(one) for one in late} == {"broker-a"}, "the broker that is named is gone"
        heartbeat = await client.call("Heartbeat", v2.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER))
        assert heartbeat.status.code == Code.OK


async def test_sends_avoid_a_broker_that_does_not_respond(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    async with cluster(tmp_path) as made:
        ordered = made.topic("Ordered", "FIFO")
        await made.announced()
        client = Five(made.channel)
        await client.send(ordered, b"x", message_group="customer")
        (of_group,) = (name for name, queues in zip(NAMES, made.stored(ordered), strict=True) if sum(queues))
        at = NAMES.index(of_group)
        address, call, start_call = made.brokers[at].address, Remoting.call, Remoting.start_call

        async def late(remoting: Remoting, to: str, command: Command, timeout_ms: float) -> Command:
            if to == address and command.code == RequestCode.SEND_MESSAGE_V2:
                raise RemotingTimeout("frozen")
            return await call(remoting, to, command, timeout_ms)

        def start_late(remoting: Remoting, to: str, *rest: Any) -> Any:
            return None if to == address else start_call(remoting, to, *rest)

        with monkeypatch.context() as patched:
            patched.setattr(Remoting, "call", late)
            patched.setattr(Remoting, "start_call", start_late)
            codes = [(await client.send(TOPIC, b"x")).status.code for _ in range(8)]
            assert sorted(codes) == [Code.OK] * 7 + [Code.PROXY_TIMEOUT]
            of_a_group = await client.send(ordered, b"x", message_group="customer")
            assert of_a_group.status.code == Code.PROXY_TIMEOUT, "a message group stays where it is"
        made.clock.advance(AVOIDED_MS)
        for _ in range(4):
            assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        assert sum(made.stored()[at]) == 2, "it is tried again"


async def test_clients_come_and_go_while_a_broker_in_the_route_is_down(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        await made.stop_broker()  # and the proxy has its old route
        other = Five(made.channel)
        await other.consume(GROUP, TOPIC)
        heartbeat = await other.call("Heartbeat", v2.HeartbeatRequest(client_type=ClientType.SIMPLE_CONSUMER))
        assert heartbeat.status.code == Code.OK
        (broker,) = made.brokers
        assert broker.consumers.groups[GROUP].client_ids() == [other.client_id]
        gone = await other.call("NotifyClientTermination", v2.NotifyClientTerminationRequest())
        assert gone.status.code == Code.OK
        assert GROUP not in broker.consumers.groups or not broker.consumers.groups[GROUP].client_ids()


async def test_a_receive_ends_when_its_broker_stops(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        made.begin()
        request = client.to_receive(GROUP, TOPIC, poll_s=20, broker="broker-b")
        waiting = asyncio.create_task(client.call("ReceiveMessage", request))
        await until(lambda: len(made.brokers[1]._popping.waiting) == 1, "it to wait")
        await made.stop_broker()
        (answer, end) = await asyncio.wait_for(waiting, 10)
        assert answer.status.code in (Code.INTERNAL_SERVER_ERROR, Code.MESSAGE_NOT_FOUND)
        assert end.HasField("delivery_timestamp")


async def test_a_topic_that_is_made_later_is_found(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        answer = await client.send("Later", b"x")
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert "there is no topic Later" in answer.status.message
        made.topic("Later")
        await made.announced()
        assert (await client.send("Later", b"x")).status.code == Code.OK


async def test_queues_and_types_that_change_are_seen_in_time(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        made.topic(TOPIC, "FIFO", queues=3)
        await made.announced()
        made.clock.advance(FRESH_MS - 1)
        assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        made.clock.advance(1)
        answer = await client.send(TOPIC, b"x")
        assert answer.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE
        assert (await client.send(TOPIC, b"x", message_group="g")).status.code == Code.OK
        request = v2.QueryRouteRequest()
        request.topic.name = TOPIC
        route = await client.call("QueryRoute", request)
        assert len(route.message_queues) == 6
        assert {tuple(one.accept_message_types) for one in route.message_queues} == {(MessageType.FIFO,)}


async def test_what_is_known_serves_while_no_name_server_responds(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        await made.names.stop()
        made.clock.advance(FRESH_MS)
        assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        answer = await client.send("Unknown", b"x")
        assert answer.status.code == Code.INTERNAL_SERVER_ERROR
        assert made.names.address in answer.status.message


def _end(entry: Any, resolution: str, topic: str) -> Any:
    request = v2.EndTransactionRequest(
        message_id=entry.message_id, transaction_id=entry.transaction_id, resolution=TransactionResolution[resolution]
    )
    request.topic.name = topic
    return request


@pytest.mark.parametrize("how", ["by its proxy", "by another proxy", "when asked"])
async def test_a_transaction_ends_at_its_broker(tmp_path: Path, how: str) -> None:
    async with cluster(tmp_path) as made, AsyncExitStack() as stack:
        topic = made.topic("Payments", "TRANSACTION", queues=1)
        await made.announced()
        client = Five(made.channel)
        await client.produce(topic)
        answers = [
            await client.send(topic, body, message_type=MessageType.TRANSACTION) for body in (b"a", b"b", b"c", b"d")
        ]
        assert {answer.status.code for answer in answers} == {Code.OK}
        halves = [broker.store.max_offset(HALF_TOPIC, 0) for broker in made.brokers]
        assert halves == [2, 2]
        decider = client
        if how == "by another proxy":
            decider = Five(await made.another(stack))
        elif how == "when asked":
            made.clock.advance(120_000)
            decider = Five(await made.another(stack))
            await decider.produce(topic)
            await client.call("NotifyClientTermination", v2.NotifyClientTerminationRequest())
            for broker in made.brokers:
                await broker.transactions.checking.round()
            asked = [await asyncio.wait_for(decider.stream.read(), 10) for _ in range(4)]
            bodies = sorted(one.recover_orphaned_transaction_command.message.body for one in asked)
            assert bodies == [b"a", b"b", b"c", b"d"]
        for answer, resolution in zip(answers, ("COMMIT", "COMMIT", "ROLLBACK", "COMMIT"), strict=True):
            ended = await decider.call("EndTransaction", _end(answer.entries[0], resolution, topic))
            assert ended.status.code == Code.OK, ended
        await until(lambda: not any(map(undecided, made.brokers)), "the decisions")
        assert sum(count for (count,) in made.stored(topic, 1)) == 3
        assert (1,) in {tuple(one) for one in made.stored(topic, 1)}


def undecided(broker: Broker) -> int:
    return len(list(broker.transactions.ledger.undecided(broker.store.max_offset(HALF_TOPIC, 0))))


async def test_a_half_message_is_found_though_a_broker_is_down(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made, AsyncExitStack() as stack:
        topic = made.topic("Payments", "TRANSACTION", queues=1)
        await made.announced()
        client = Five(made.channel)
        found = [await client.send(topic, b"x", message_type=MessageType.TRANSACTION) for _ in range(2)]
        decider = Five(await made.another(stack))
        await decider.produce(topic)
        at_b = [made.proxy.front.sending._halves[topic, one.entries[0].transaction_id].broker_name for one in found]
        of_a, of_b = found[at_b.index("broker-a")], found[at_b.index("broker-b")]
        await made.stop_broker()  # the deciding proxy has the old route
        ended = await decider.call("EndTransaction", _end(of_a.entries[0], "COMMIT", topic))
        assert ended.status.code == Code.OK
        lost = await decider.call("EndTransaction", _end(of_b.entries[0], "COMMIT", topic))
        assert lost.status.code == Code.INTERNAL_SERVER_ERROR
        await until(lambda: not undecided(made.brokers[0]), "the decision")


# ------------------------------------------------------------------------------------------------------- accounts

_ACCOUNTS = """
accounts:
- accessKey: proxy-account
  secretKey: proxy-secret
  admin: true
- accessKey: sender-account
  secretKey: {secret}
  admin: false
  defaultTopicPerm: DENY
  defaultGroupPerm: DENY
  topicPerms: [Orders=PUB|SUB]
  groupPerms: [billing=SUB]
"""


def _write_accounts(tmp_path: Path, secret: str) -> None:
    (tmp_path / "conf").mkdir(exist_ok=True)
    made = tmp_path / "conf" / "new"
    made.write_text(_ACCOUNTS.format(secret=secret))
    os.replace(made, tmp_path / "conf" / "plain_acl.yml")


async def test_accounts_may_what_they_may_at_the_brokers(tmp_path: Path) -> None:
    _write_accounts(tmp_path, "first-secret")
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    own = {**acl, "accessKey": "proxy-account", "secretKey": "proxy-secret"}
    accounts = ProxyOptions.parse({"namesrvAddr": "unused:1", **own})
    async with cluster(tmp_path, accounts, broker=acl.items(), **own) as made:
        made.topic("Other", "FIFO")
        await made.announced()
        client = Five(made.channel, **signed("sender-account", "first-secret"))
        await client.consume(GROUP, TOPIC)
        made.begin()
        for _ in range(4):
            assert (await client.send(TOPIC, b"x")).status.code == Code.OK
        found = await receive_all(client, 4)
        assert (await client.ack(GROUP, TOPIC, *found)).status.code == Code.OK
        assert made.in_flight() == [0, 0]
        assert (await client.send("Other", b"x", message_group="g")).status.code == Code.UNAUTHORIZED
        typed = await client.send("Other", b"x")
        assert typed.status.code == Code.MESSAGE_PROPERTY_CONFLICT_WITH_TYPE, "the proxy may look its type up"
        for wrong in (
            Five(made.channel, **signed("sender-account", "another-secret")),
            Five(made.channel, **signed("nobody", "first-secret")), Five(made.channel),
        ):  # fmt: skip
            assert (await wrong.send(TOPIC, b"x")).status.code == Code.UNAUTHORIZED
        assert made.stored() == [[1, 1], [1, 1]]
        _write_accounts(tmp_path, "second-secret")
        new = Five(made.channel, **signed("sender-account", "second-secret"))
        deadline = asyncio.get_running_loop().time() + 20
        while (await new.send(TOPIC, b"x")).status.code != Code.OK:
            assert asyncio.get_running_loop().time() < deadline, "the file to be read again"
            await asyncio.sleep(0.1)
        assert (await client.send(TOPIC, b"x")).status.code == Code.UNAUTHORIZED


async def test_an_account_that_may_send_may_end_its_transactions(tmp_path: Path) -> None:
    _write_accounts(tmp_path, "first-secret")
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    own = {**acl, "accessKey": "proxy-account", "secretKey": "proxy-secret"}
    accounts = ProxyOptions.parse({"namesrvAddr": "unused:1", **own})
    async with cluster(tmp_path, accounts, broker=acl.items(), **own) as made:
        made.topic(TOPIC, "TRANSACTION")
        client = Five(made.channel, **signed("sender-account", "first-secret"))
        sent = await client.send(TOPIC, b"half", message_type=MessageType.TRANSACTION)
        assert sent.status.code == Code.OK
        made.proxy.front.sending._halves.clear()  # as after a restart
        ended = await client.call("EndTransaction", _end(sent.entries[0], "COMMIT", TOPIC))
        assert ended.status.code == Code.OK, ended
        await until(lambda: not any(map(undecided, made.brokers)), "the decision")


async def test_a_producer_is_asked_only_about_topics_that_its_account_may_send_to(tmp_path: Path) -> None:
    _write_accounts(tmp_path, "first-secret")
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    own = {**acl, "accessKey": "proxy-account", "secretKey": "proxy-secret"}
    accounts = ProxyOptions.parse({"namesrvAddr": "unused:1", **own})
    async with cluster(tmp_path, accounts, broker=acl.items(), **own) as made:
        made.topic("Other", "TRANSACTION")
        await made.announced()
        client = Five(made.channel, **signed("sender-account", "first-secret"))
        await client.produce(TOPIC)
        curious = Five(made.channel, **signed("sender-account", "first-secret"))
        with pytest.raises(grpc.aio.AioRpcError, match="may not send to topic Other"):
            await curious.produce("Other")
        assert not any(broker.producers.groups.get("Other") for broker in made.brokers)


async def test_without_accounts_brokers_refuse(tmp_path: Path) -> None:
    """The signatures of clients do not reach them."""
    _write_accounts(tmp_path, "first-secret")
    acl = {"aclEnable": "true", "rocketmqHome": str(tmp_path)}
    async with cluster(tmp_path, broker=acl.items()) as made:
        client = Five(made.channel, **signed("sender-account", "first-secret"))
        assert (await client.send(TOPIC, b"x")).status.code == Code.UNAUTHORIZED


# ------------------------------------------------------------------------------------------------ start and stop


def test_a_proxy_needs_a_name_server() -> None:
    with pytest.raises(ConfigurationError, match="namesrvAddr"):
        Proxy(_options(" ; "))


async def test_its_metrics_are_those_of_the_table(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        options = MetricsOptions(exporter_type="PROM", port=0)
        async with served(options, parts_of(options, made.proxy)) as page:
            assert page is not None
            client = Five(made.channel)
            await client.produce(TOPIC)
            for _ in range(3):
                await client.send(TOPIC, b"x")
            pages = (page, page.replace("/metrics", "/healthz"))
            text, health = [await asyncio.to_thread(lambda at=at: urlopen(at).read().decode()) for at in pages]
        found = Scraped(text)
        node = {"cluster": "", "node_type": "proxy", "node_id": made.proxy.address}
        assert found.value("orbitmq_proxy_calls_total", method="SendMessage", **node) == 3
        assert found.value("orbitmq_proxy_calls_total", method="Telemetry") == 1
        assert found.value("orbitmq_proxy_calls_total", method="AckMessage") == 0
        assert (found.value("orbitmq_proxy_connections"), found.value("orbitmq_proxy_clients")) == (1, 1)
        assert set(found.values("orbitmq_proxy_refusals_total")) == {0}
        names = {metric.name.removesuffix("_total") for metric in (*PROXY, *PROCESS)}
        assert found.families.keys() == names
        assert health == "ok\n"


async def test_it_stops_while_clients_wait(tmp_path: Path) -> None:
    async with cluster(tmp_path) as made:
        client = Five(made.channel)
        await client.consume(GROUP, TOPIC)
        waiting = [asyncio.create_task(client.receive(GROUP, TOPIC, poll_s=20, broker=name)) for name in NAMES]
        await until(lambda: all(len(one._popping.waiting) == 1 for one in made.brokers), "them to wait")
        await asyncio.wait_for(made.proxy.stop(), 15)
        ended = await asyncio.wait_for(asyncio.gather(*waiting, return_exceptions=True), 5)
        assert all(isinstance(one, grpc.aio.AioRpcError | list) for one in ended), ended
        for broker in made.brokers:
            await until(lambda broker=broker: not broker.consumers.groups.get(GROUP), "it to be no member")
