"""A broker in this process on a free port, and a client that asks it over TCP with typed headers.

Time is the test's: `Time.pass_by` moves the broker's clock and the loop's together.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterable, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Protocol

from orbitmq.broker.broker import Broker
from orbitmq.broker.options import BrokerOptions
from orbitmq.message.batch import encode_batch
from orbitmq.message.config import SubscriptionData
from orbitmq.message.flags import PULL_SUBSCRIPTION
from orbitmq.message.model import MessageExt
from orbitmq.message.properties import encode_properties
from orbitmq.message.unit import decode_units, message_of
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.runtime.clock import Clock, ManualClock
from orbitmq.store.options import StoreOptions
from orbitmq.wire.bodies import ConsumerData, HeartbeatData, ProducerData
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header
from orbitmq.wire.headers import PullMessageHeader, PullMessageResponseHeader, SendMessageHeader, SendMessageV2Header
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from tests.support.loops import settle, turned_loop, until

BROKER, CLUSTER = "broker-a", "DefaultCluster"
CALL_TIMEOUT_MS = 600_000  # far beyond the time tests let pass: what a broker holds back is to be seen
BORN_MS = 1_650_000_000_000


_running: list[Broker] = []  # in this process


class Time:
    """The broker's clock and the loop's, turned together."""

    def __init__(self) -> None:
        self.clock = ManualClock()

    async def pass_by(self, seconds: float, *, while_disks_stand: bool = False) -> None:
        """Let so much time pass, and all happen that is due. Disks take real time: what waits for room in a queue gets
        it, unless the test keeps the disk from it.
        """
        self.clock.advance(round(seconds * 1000))
        await turned_loop().turn(seconds)
        while not while_disks_stand and any(broker.store._room._waiting for broker in _running):
            await until(lambda: not any(broker.store._room._waiting for broker in _running), "room in the queues")
            await settle()


def made_broker(directory: Path, clock: Clock | None = None, **pairs: str) -> Broker:
    """A broker with small files; `pairs` are options as they stand in a broker.conf."""
    defaults = {
        "brokerName": BROKER,
        "listenPort": "0",
        "waitTimeMillsInSendQueue": "30000",  # a busy test machine must not make it refuse what waited a little
        "osPageCacheBusyTimeOutMills": "30000",  # nor its disk
        "storePathRootDir": str(directory),
        "mappedFileSizeCommitLog": str(1 << 20),
        "mappedFileSizeConsumeQueue": str(20 * 300),
        "maxHashSlotNum": "100",
        "maxIndexNum": "1000",
    }
    found = {**defaults, **pairs}
    return Broker(BrokerOptions.parse(found), StoreOptions.parse(found), clock)


class Addressed(Protocol):
    """A broker of this process or of another one."""

    @property
    def address(self) -> str: ...


class Client:
    """Asks one broker; `heard` keeps what the broker asks in turn."""

    def __init__(self, broker: Addressed, client_id: str = "client") -> None:
        self.client_id = client_id
        self.address = broker.address
        self.heard: list[Command] = []
        router = Router(client_id)
        router.add(list(RequestCode), self._hear)
        self.remoting = Remoting(router)

    def _hear(self, _connection: object, command: Command) -> None:
        self.heard.append(command)

    async def call(self, command: Command) -> Command:
        return await self.remoting.call(self.address, command, CALL_TIMEOUT_MS)

    async def ask(
        self,
        code: int,
        header: Header | None = None,
        body: bytes = b"",
        kind: SerializeType = SerializeType.JSON,
    ) -> Command:
        """One request; its answer, whatever the code."""
        command = request(code, header, body)
        command.serialize_type = kind
        return await self.call(command)

    async def send(
        self, topic: str, body: bytes = b"body", properties: Mapping[str, str] = {}, **fields: Any
    ) -> Command:
        """SEND_MESSAGE_V2; `fields` are members of its header."""
        header = send_header(topic, properties, **fields)
        return await self.ask(RequestCode.SEND_MESSAGE_V2, header, body)

    async def send_batch(
        self, topic: str, bodies: Iterable[bytes], properties: Mapping[str, str] = {}, **fields: Any
    ) -> Command:
        """SEND_BATCH_MESSAGE; every message has `properties`."""
        text = encode_properties(properties)
        body = encode_batch((0, one, text) for one in bodies)
        return await self.ask(RequestCode.SEND_BATCH_MESSAGE, send_header(topic, batch=True, **fields), body)

    async def pull(self, topic: str, queue_id: int = 0, offset: int = 0, **fields: Any) -> Command:
        """PULL_MESSAGE with the subscription `*` on the request, unless `fields` say otherwise."""
        return await self.ask(RequestCode.PULL_MESSAGE, pull_header(topic, queue_id, offset, **fields))

    async def read(self, topic: str, queue_id: int = 0, offset: int = 0, **fields: Any) -> list[MessageExt]:
        """The messages of one pull."""
        answer = await self.pull(topic, queue_id, offset, **fields)
        return [message_of(unit, BROKER) for unit in decode_units(answer.body)]

    async def heartbeat(self, *consumers: ConsumerData, producers: Iterable[str] = ()) -> Command:
        data = HeartbeatData(self.client_id, list(consumers), [ProducerData(group) for group in producers])
        return await self.ask(RequestCode.HEART_BEAT, body=encode(data))


def send_header(topic: str, properties: Mapping[str, str] = {}, **fields: Any) -> SendMessageV2Header:
    """The header of a producer's send; `text` instead of `properties` gives the encoded text itself."""
    text = fields.pop("text", None) or encode_properties(properties)
    known = {"producer_group": "producers", "default_topic": "TBW102", "default_topic_queue_nums": 4, "queue_id": 0}
    times = {"sys_flag": 0, "born_timestamp": BORN_MS, "flag": 0, "reconsume_times": 0}
    return SendMessageV2Header(topic=topic, properties=text, **{**known, **times, **fields})


def long_header(header: SendMessageV2Header) -> SendMessageHeader:
    """The same under its long names."""
    return SendMessageHeader(**{name: getattr(header, name) for name in header.__struct_fields__})


def pull_header(topic: str, queue_id: int = 0, offset: int = 0, **fields: Any) -> PullMessageHeader:
    known = {"consumer_group": "readers", "max_msg_nums": 32, "sys_flag": PULL_SUBSCRIPTION, "commit_offset": 0}
    rest = {"suspend_timeout_millis": 15_000, "sub_version": 0, "subscription": "*", "expression_type": "TAG"}
    return PullMessageHeader(topic=topic, queue_id=queue_id, queue_offset=offset, **{**known, **rest, **fields})


def consumer(group: str, *subscriptions: SubscriptionData, **fields: Any) -> ConsumerData:
    """One group of a heartbeat."""
    return ConsumerData(group, subscription_data_set=list(subscriptions), **fields)


def bounds(answer: Command) -> tuple[int, int, int]:
    """Next, smallest and largest offset a pull answer tells."""
    header = answer.header(PullMessageResponseHeader)
    assert header.suggest_which_broker_id == 0
    return header.next_begin_offset, header.min_offset, header.max_offset


@asynccontextmanager
async def running(broker: Broker) -> AsyncIterator[Broker]:
    await broker.start()
    _running.append(broker)
    try:
        yield broker
    finally:
        _running.remove(broker)
        await broker.stop()


@asynccontextmanager
async def live(directory: Path, time: Time | None = None, **pairs: str) -> AsyncIterator[Client]:
    """A running broker's first client."""
    broker = made_broker(directory, time.clock if time else None, **pairs)
    async with running(broker), client_of(broker) as client:
        yield client


@asynccontextmanager
async def client_of(broker: Broker, client_id: str = "client") -> AsyncIterator[Client]:
    made = Client(broker, client_id)
    try:
        yield made
    finally:
        await made.remoting.close()
