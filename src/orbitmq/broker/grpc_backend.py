"""The broker as its front for RocketMQ 5 clients sees it: requests come over a connection inside the process."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from orbitmq.broker.access.control import AccessControl
from orbitmq.broker.advertised import AdvertisedBroker
from orbitmq.broker.groups import Groups
from orbitmq.broker.options import BrokerOptions
from orbitmq.broker.pop.waiting import WaitingPops
from orbitmq.broker.topics import Topics
from orbitmq.message.config import TopicConfig
from orbitmq.message.model import MASTER_ID
from orbitmq.message.topic_types import type_of
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.net.server import Server
from orbitmq.proxy.backend import Peer, TopicRoute
from orbitmq.proxy.settings import GroupRules, group_rules
from orbitmq.runtime.clock import Clock
from orbitmq.store.engine import MessageStore
from orbitmq.wire.bodies import BrokerData, QueueData, TopicRouteData
from orbitmq.wire.command import Command
from orbitmq.wire.signature import Credentials, sign

LOOPBACK = "127.0.0.1"


class LocalBackend:
    """Implements `proxy.backend.Backend`."""

    def __init__(
        self, topics: Topics, groups: Groups, identity: AdvertisedBroker, options: BrokerOptions,
        access: AccessControl | None, store: MessageStore, clock: Clock,
    ) -> None:  # fmt: skip
        self.server: Server | None = None
        """Where the requests go to; set before the first one."""
        self.waiting: WaitingPops | None = None
        """Where those for messages wait; set before the first one."""
        self._topics = topics
        self._groups = groups
        self._identity = identity
        self._options = options
        self._access = access
        self._store = store
        self._clock = clock
        self.delay_max_ms = options.max_delay_time_ms
        self._routes: dict[str, tuple[TopicConfig, int, TopicRoute]] = {}

    def known(self, topic: str) -> TopicRoute | None:
        config = self._topics.get(topic)
        if config is None:
            self._routes.pop(topic, None)
            return None
        kept = self._routes.get(topic)
        if kept is not None and kept[0] is config and kept[1] == self._options.broker_permission:
            return kept[2]
        return self._remember(config)

    def _remember(self, config: TopicConfig) -> TopicRoute:
        permission = self._options.broker_permission
        queues = QueueData(
            self._identity.name, config.perm & permission, config.read_queues, config.write_queues, config.sys_flag
        )
        broker = BrokerData(self._identity.name, self._identity.cluster, {MASTER_ID: self._identity.address()})
        route = TopicRoute(TopicRouteData([broker], queue_datas=[queues]), type_of(config.attributes))
        self._routes[config.name] = config, permission, route
        return route

    async def route(self, topic: str) -> TopicRoute | None:
        return self.known(topic)

    def doubt(self, topic: str) -> None:
        """The route is always that of this moment."""

    async def group(self, name: str) -> GroupRules | None:
        found = self._groups.table.get(name)
        return None if found is None else group_rules(found)

    async def half_messages(self, _address: str, transaction_id: str) -> bytes:
        count, end_ms = self._store.options.default_query_max_num, self._clock.now_ms()
        found = await asyncio.to_thread(self._store.query, HALF_TOPIC, transaction_id, count, 0, end_ms)
        return b"".join(found.buffers)

    def remoting(self, router: Router, peer: Peer, access_key: str | None) -> Remoting:
        async def dial(make: Callable[[], Connection], _address: str) -> Connection:
            assert self.server is not None, "the broker has a server before its front has a client"
            # The address that clients get may be a name; who is connected has a number.
            return self.server.connect_inside(make, peer, (LOOPBACK, self._identity.port))

        def sign_as(command: Command) -> None:
            """By the secret of this moment: accounts change while clients are connected."""
            if access_key is not None and (secret := self.secret(access_key)) is not None:
                sign(command, Credentials(access_key, secret))

        return Remoting(router, sign=None if access_key is None else sign_as, dial=dial)

    def drop_pop(self, remoting: Remoting, address: str, number: int) -> bool:
        connection = remoting.connection(address)
        if connection is None or connection.transport is None or self.waiting is None:
            return False
        return self.waiting.drop(connection.transport.get_extra_info("other_end"), number)

    def secret(self, access_key: str) -> str | None:
        return None if self._access is None else self._access.secret(access_key)

    def may_send(self, access_key: str | None, topic: str) -> bool:
        """Without an account the address decides, which the broker looks at."""
        return self._access is None or access_key is None or self._access.may_send(access_key, topic)

    @property
    def has_accounts(self) -> bool:
        return self._access is not None
