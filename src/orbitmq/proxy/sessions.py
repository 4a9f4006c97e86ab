"""The clients of the front. To a broker each is a client like any other, with its id, its groups and subscriptions."""

from __future__ import annotations

import asyncio
import logging
from collections import deque
from collections.abc import Iterable, Iterator
from typing import Any, Final

from orbitmq.errors import BrokerError, OrbitMQError, RemotingError, StatusError
from orbitmq.filter.tags import tag_subscription
from orbitmq.message.config import SQL92, SubscriptionData
from orbitmq.message.model import MASTER_ID
from orbitmq.net.grpc import Call
from orbitmq.net.routing import Router
from orbitmq.operations.membership import unregister_client
from orbitmq.proxy.backend import Backend, Peer, TopicRoute
from orbitmq.proxy.checks import resource_name
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import (
    ConsumeFromWhere,
    ConsumerData,
    ConsumeType,
    HeartbeatData,
    MessageModel,
    ProducerData,
)
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import request
from orbitmq.wire.objects import encode
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.v2.enums import ClientType, Code, FilterType

_log = logging.getLogger(__name__)

SILENCE_MS: Final = 120_000  # Rust's clients send a heartbeat every 30 s
DEAD_MS: Final = 300_000  # with an open stream, which a client without power leaves behind
SESSIONS_MAX: Final = 20_000  # some 20 KiB each
CALL_MS: Final = 3000
ROUTED_MAX: Final = 200  # topics of a client; each of its heartbeats looks them up
# Clients send these names; brokers know only the languages of RocketMQ's own list.
LANGUAGES: Final = {
    "JAVA": "JAVA", "CPP": "CPP", "DOTNET": "DOTNET", "DOT_NET": "DOTNET", "PYTHON": "PYTHON", "RUBY": "RUBY",
    "GO": "GO", "GOLANG": "GO", "PHP": "PHP", "RUST": "RUST", "NODE_JS": "NODE_JS", "HTTP": "HTTP",
}  # fmt: skip
CONSUMERS: Final = (ClientType.PUSH_CONSUMER, ClientType.SIMPLE_CONSUMER)


class Session:
    """One client. `settings` is None until it has sent them over a Telemetry stream."""

    def __init__(
        self, client_id: str, language: str, peer: Peer, access_key: str | None, backend: Backend, clock: Clock
    ) -> None:
        self.client_id = client_id
        self.language = LANGUAGES.get(language, "OTHER")
        self.peer = peer
        self.access_key = access_key
        self.settings: Any = None
        self.telemetry: Call | None = None
        self.last_heard_ms = clock.now_ms()
        self._routed: dict[str, None] = {}  # what a consumer without subscriptions has asked routes of
        self.router = Router("gRPC client")
        self.remoting = backend.remoting(self.router, peer, access_key)
        self._backend = backend
        self._clock = clock

    def heard(self) -> None:
        self.last_heard_ms = self._clock.now_ms()

    def is_silent(self) -> bool:
        """Whether it has sent nothing for so long that it is thought to be gone."""
        limit_ms = SILENCE_MS if self.telemetry is None else DEAD_MS
        return self._clock.now_ms() - self.last_heard_ms > limit_ms

    @property
    def kind(self) -> int:
        """The type of the client, 0 before it has sent its settings."""
        return int(self.settings.client_type) if self.settings is not None else 0

    @property
    def group(self) -> str:
        """Of a consumer."""
        return resource_name(self.settings.subscription.group) if self.settings is not None else ""

    @property
    def is_orderly(self) -> bool:
        return bool(self.settings is not None and self.settings.subscription.fifo)

    @property
    def max_attempts(self) -> int:
        return int(self.settings.backoff_policy.max_attempts) if self.settings is not None else 0

    def topics(self) -> list[str]:
        """Those it publishes or subscribes to. The settings of Rust's consumers name none: then those that it has asked
        routes of, as it does before it receives.
        """
        if self.settings is None:
            return []
        if self.settings.WhichOneof("pub_sub") == "publishing":
            return [resource_name(one) for one in self.settings.publishing.topics]
        return [resource_name(one.topic) for one in self.settings.subscription.subscriptions] or list(self._routed)

    def note_route(self, topic: str) -> bool:
        """The client has asked the route of a topic. Whether brokers have to be told of the client now."""
        if self.kind not in CONSUMERS or self.settings.subscription.subscriptions:
            return False
        if topic in self._routed or len(self._routed) >= ROUTED_MAX:
            return False
        self._routed[topic] = None
        return True

    def subscription(self, topic: str) -> SubscriptionData | None:
        """What it has subscribed to of a topic."""
        for one in self.settings.subscription.subscriptions if self.settings is not None else ():
            if resource_name(one.topic) == topic:
                return subscription_of(topic, one.expression, self.last_heard_ms)
        return None

    # ---------------------------------------------------------------------------------------------- at the brokers

    async def heartbeat(self) -> None:
        """Send a heartbeat with its subscriptions to every broker of its topics. StatusError if a broker
        refuses it, RemotingError if none responds; a single one that does not gets the next heartbeat.
        """
        data = self._data()
        if data is None:
            return
        body = encode(data)
        told = await asyncio.gather(
            *(self._tell(address, body) for address in await self._masters()), return_exceptions=True
        )
        failures = [one for one in told if one is not None]
        for error in failures:
            # A broker that cannot be reached must not keep the client from the others.
            if not isinstance(error, RemotingError) or len(failures) == len(told):
                raise error

    async def _tell(self, address: str, body: bytes) -> None:
        command = request(RequestCode.HEART_BEAT, None, body, language=self.language)
        response = await self.remoting.call(address, command, CALL_MS)
        if response.code != ResponseCode.SUCCESS:
            raise BrokerError(response.code, response.remark, address)

    def _data(self) -> HeartbeatData | None:
        if self.kind == ClientType.PRODUCER:
            producers = [ProducerData(topic) for topic in self.topics()]
            return HeartbeatData(self.client_id, producer_data_set=producers) if producers else None
        if self.kind not in CONSUMERS:
            return None
        kind = (
            ConsumeType.CONSUME_ACTIVELY if self.kind == ClientType.SIMPLE_CONSUMER else ConsumeType.CONSUME_PASSIVELY
        )
        found = [self.subscription(topic) for topic in self.topics()]
        member = ConsumerData(
            self.group, kind, MessageModel.CLUSTERING, ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET,
            [one for one in found if one is not None],
        )  # fmt: skip
        return HeartbeatData(self.client_id, consumer_data_set=[member])

    async def _masters(self) -> list[str]:
        routes = [await self._backend.route(topic) for topic in self.topics()]
        return list(dict.fromkeys(address for route in routes if route is not None for address in masters(route)))

    async def leave(self) -> None:
        """Brokers forget the client at once, and its connections close."""
        try:
            await asyncio.gather(*(self._leave(address) for address in await self._masters()))
        except OrbitMQError as error:  # brokers see its connections close
            _log.info("event=client_not_unregistered client=%.300s error=%s", self.client_id, error)
        finally:
            await self.remoting.close()

    async def _leave(self, address: str) -> None:
        try:
            for topic in self.topics() if self.kind == ClientType.PRODUCER else ():
                await unregister_client(self.remoting, address, self.client_id, producer_group=topic)
            if self.kind in CONSUMERS:
                await unregister_client(self.remoting, address, self.client_id, consumer_group=self.group)
        except OrbitMQError as error:
            text = "event=client_not_unregistered client=%.300s broker=%s error=%s"
            _log.info(text, self.client_id, address, error)


def masters(route: TopicRoute) -> Iterable[str]:
    return (one.addresses[MASTER_ID] for one in route.data.broker_datas if MASTER_ID in one.addresses)


def subscription_of(topic: str, expression: Any, version: int) -> SubscriptionData:
    text = expression.expression or "*"
    if expression.type == FilterType.SQL:
        return SubscriptionData(topic, text, version=version, expression_type=SQL92)
    return tag_subscription(topic, text, version)


class Sessions:
    """All clients, by id."""

    def __init__(self, backend: Backend, clock: Clock) -> None:
        self._backend = backend
        self._clock = clock
        self._all: dict[str, Session] = {}
        self._new: deque[Session] = deque()  # those that had no settings at first, the oldest in front
        self._closing: set[asyncio.Task[None]] = set()

    def __len__(self) -> int:
        return len(self._all)

    def __iter__(self) -> Iterator[Session]:
        return iter(list(self._all.values()))

    def get(self, client_id: str) -> Session | None:
        return self._all.get(client_id)

    def of(self, client_id: str, language: str, peer: Peer, access_key: str | None) -> Session:
        """The client of a call. StatusError when there are too many, or the id belongs to another account."""
        found = self._all.get(client_id)
        if found is None:
            if len(self._all) >= SESSIONS_MAX and not self._make_room():
                raise StatusError(Code.TOO_MANY_REQUESTS, f"there are {SESSIONS_MAX} clients already")
            found = self._all[client_id] = Session(client_id, language, peer, access_key, self._backend, self._clock)
            self._new.append(found)
            if len(self._new) > 2 * SESSIONS_MAX:
                self._new = deque(one for one in self._new if self._is_bare(one))
        elif found.access_key != access_key:
            raise StatusError(Code.UNAUTHORIZED, f"client id {client_id[:300]} belongs to another account")
        found.heard()
        return found

    def _make_room(self) -> bool:
        """Forget the oldest client that has sent no settings: a real one loses nothing by it, and anybody may use
        thousands of names, also without an account.
        """
        while self._new:
            oldest = self._new.popleft()
            if self._is_bare(oldest):
                self.forget(oldest)
                task = asyncio.get_running_loop().create_task(oldest.remoting.close())
                self._closing.add(task)
                task.add_done_callback(self._closing.discard)
                return True
        return False

    def _is_bare(self, session: Session) -> bool:
        return session.settings is None and self._all.get(session.client_id) is session

    def forget(self, session: Session) -> None:
        if self._all.get(session.client_id) is session:
            del self._all[session.client_id]

    def silent(self) -> list[Session]:
        """Those that have sent nothing for long."""
        return [one for one in self._all.values() if one.is_silent()]
