"""The routes a client knows, kept fresh. Knows neither producers nor consumers.

A route that the name server no longer has is kept: a deleted topic fails at its brokers, while a name server that
restarts empty must not stop clients.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass

from orbitmq.client.core.retry import BROKER_MISSING, NO_ROUTE
from orbitmq.client.core.route import (
    PublishQueues,
    awaits_master,
    broker_addresses,
    from_template,
    no_queue_cause,
    publish_queues,
    same_route,
    subscribe_queues,
)
from orbitmq.client.nameservers import NameServers
from orbitmq.errors import BrokerError, ClientError, OrbitMQError, RemotingError
from orbitmq.message.model import MASTER_ID, MessageQueue
from orbitmq.net.remoting import Remoting
from orbitmq.operations import routes as operations
from orbitmq.wire.bodies import TopicRouteData

_log = logging.getLogger(__name__)

LOOKUPS_AT_ONCE = 8  # a name server that hangs costs its time limit once for so many topics; more would crowd it


@dataclass(frozen=True, slots=True)
class KnownRoute:
    """A topic's route and what follows from it."""

    route: TopicRouteData
    publish: PublishQueues
    subscribe: tuple[MessageQueue, ...]
    from_template: bool = False
    """The topic does not exist yet; its first message creates it like its template."""


class Routes:
    """Topic -> route, broker name -> addresses. `on_change` is called with a topic whose route became another."""

    def __init__(
        self,
        remoting: Remoting,
        name_servers: NameServers,
        *,
        timeout_ms: int = 3000,
        on_change: Callable[[str], None] | None = None,
    ) -> None:
        self._remoting = remoting
        self._name_servers = name_servers
        self._timeout_ms = timeout_ms
        self._on_change = on_change
        self._topics: dict[str, KnownRoute] = {}
        self._brokers: dict[str, Mapping[int, str]] = {}
        self._registered: dict[str, Mapping[int, str]] = {}
        self._lookups: dict[str, asyncio.Task[TopicRouteData | None]] = {}

    def publish(self, topic: str) -> PublishQueues | None:
        """The queues to send to, None when they must be looked up."""
        known = self._topics.get(topic)
        return known.publish if known is not None and known.publish.queues else None

    def subscribed(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues to consume, empty while the topic is unknown."""
        known = self._topics.get(topic)
        return known.subscribe if known is not None and not known.from_template else ()

    def topics(self) -> list[str]:
        """Every topic with a route."""
        return list(self._topics)

    def forget_topics(self) -> None:
        """Each route is looked up again when it is next used."""
        self._topics.clear()

    async def find_masters(self, brokers: Iterable[str]) -> None:
        """`find_master` of each."""
        for broker in brokers:
            await self.find_master(broker)

    async def find_master(self, broker: str) -> str | None:
        """Ask where this broker has its master now: the address, "" if there is none, None if that cannot be found out.
        Queues stay as they are until the next regular refresh: all members of a group have to know the same ones.
        """
        try:
            addresses = await self._addresses_now(broker)
        except OrbitMQError as error:
            _log.debug("event=master_not_found broker=%s error=%s", broker, error)
            return None
        if MASTER_ID in addresses:
            self._brokers[broker] = addresses
        return addresses.get(MASTER_ID, "")

    async def _addresses_now(self, broker: str) -> Mapping[int, str]:
        """By a topic that it has. If no broker has that topic any more, as one with a new disk, by its registration."""
        topic = next((one for one, known in self._topics.items() if broker in broker_addresses(known.route)), None)
        if topic is None:
            return {}
        found = await self._lookup(topic)
        if found is not None:
            return broker_addresses(found).get(broker, {})
        await self.refresh_registered()
        return self._registered.get(broker, {})

    async def find_publish(self, topic: str, template: str, queue_count: int) -> PublishQueues:
        """The queues to send to, looked up if unknown. ClientError names the cause when there are none."""
        known = self.publish(topic)
        if known is not None:
            return known
        try:
            found = await self.refresh(topic) or await self._adopt_template(topic, template, queue_count)
        except (RemotingError, BrokerError) as error:
            raise ClientError(NO_ROUTE, f"no route to topic {topic}: {error}") from error
        if not found.publish.queues:
            raise ClientError(NO_ROUTE, f"no route to topic {topic}: {no_queue_cause(topic, found.route)}")
        return found.publish

    async def find_subscribed(self, topic: str) -> tuple[MessageQueue, ...]:
        """The queues to consume, looked up if the topic is unknown. ClientError when it does not exist."""
        queues = self.subscribed(topic)
        if not queues:
            known = await self.refresh(topic)
            queues = known.subscribe if known is not None else ()
        if not queues:
            raise ClientError(NO_ROUTE, f"no route to topic {topic}: it has no readable queue on any broker")
        return queues

    async def refresh(self, topic: str) -> KnownRoute | None:
        """Request the route of the topic from the name server and return it, None when there has never been one."""
        route = await self._lookup(topic)
        if route is not None:
            self._learn(topic, KnownRoute(route, self._publish_queues(topic, route), subscribe_queues(topic, route)))
        return self._topics.get(topic)

    def _publish_queues(self, topic: str, route: TopicRouteData) -> PublishQueues:
        """Those that are known stay while the only brokers have no master: sends wait for the next one. RocketMQ's
        clients refuse them until then.
        """
        found, known = publish_queues(topic, route), self._topics.get(topic)
        return known.publish if known is not None and not found.queues and awaits_master(route) else found

    async def refresh_each(self, topics: Iterable[str]) -> None:
        """Request the routes of these topics, a few at a time; a failure is logged and does not stop the others."""
        turns = asyncio.Semaphore(LOOKUPS_AT_ONCE)

        async def refresh(topic: str) -> None:
            async with turns:
                await self._refresh_logged(topic)

        await asyncio.gather(*map(refresh, sorted(set(topics))))

    async def _refresh_logged(self, topic: str) -> None:
        try:
            await self.refresh(topic)
        except OrbitMQError as error:
            _log.warning("event=route_not_refreshed topic=%s error=%s", topic, error)
        except Exception:  # of one topic's route: other topics get theirs all the same
            _log.exception("event=route_not_refreshed topic=%s", topic)

    def addresses(self, broker_name: str) -> Mapping[int, str]:
        """Broker id -> address; empty for a broker no route names."""
        return self._brokers.get(broker_name, {})

    def brokers(self) -> dict[str, Mapping[int, str]]:
        """Every broker that some route names."""
        return dict(self._brokers)

    async def refresh_registered(self) -> None:
        """Fetch every broker from the name server, whatever topics it has. ClientError, BrokerError, RemotingError."""
        found = await self._name_servers.ask(
            lambda address: operations.cluster_info(self._remoting, address, timeout_ms=self._timeout_ms)
        )
        self._registered = {name: broker.addresses for name, broker in found.brokers.items()}

    def registered_masters(self) -> set[str]:
        """The master of every broker, as the name server last returned them; empty before all were requested."""
        return {addresses[MASTER_ID] for addresses in self._registered.values() if MASTER_ID in addresses}

    def known_master(self, queue: MessageQueue) -> str | None:
        """The address of the queue's master at this moment, None when that must be looked up."""
        return self._brokers.get(queue.broker_name, {}).get(MASTER_ID)

    async def master(self, queue: MessageQueue) -> str:
        """The address of the queue's master. ClientError when none is registered."""
        address = self.known_master(queue)
        if address is not None:
            return address
        await self.refresh(queue.topic)
        address = self.known_master(queue)
        if address is None:
            raise ClientError(
                BROKER_MISSING,
                f"broker {queue.broker_name} has no master for topic {queue.topic}; it is down or not yet registered",
            )
        return address

    async def _adopt_template(self, topic: str, template: str, queue_count: int) -> KnownRoute:
        route = await self._lookup(template)
        if route is None:
            raise ClientError(
                NO_ROUTE,
                f"no route to topic {topic}: it does not exist, and no broker offers the template topic {template} to "
                f"create it from (autoCreateTopicEnable=false); create the topic first",
            )
        taken = from_template(route, queue_count)
        known = KnownRoute(taken, publish_queues(topic, taken), (), from_template=True)
        self._learn(topic, known)
        return known

    async def _lookup(self, topic: str) -> TopicRouteData | None:
        """One request at a time per topic; concurrent callers share the response."""
        task = self._lookups.get(topic)
        if task is None:
            task = asyncio.create_task(self._fetch(topic))
            self._lookups[topic] = task
            task.add_done_callback(lambda done: self._looked_up(topic, done))
        # Shielded: a caller that gives up must not cancel the request of the others.
        return await asyncio.shield(task)

    def _looked_up(self, topic: str, task: asyncio.Task[TopicRouteData | None]) -> None:
        self._lookups.pop(topic, None)
        if not task.cancelled():
            task.exception()  # every caller may have been cancelled; the loop must not report the failure

    async def _fetch(self, topic: str) -> TopicRouteData | None:
        return await self._name_servers.ask(
            lambda address: operations.route(self._remoting, address, topic, timeout_ms=self._timeout_ms)
        )

    def _learn(self, topic: str, known: KnownRoute) -> None:
        before = self._topics.get(topic)
        self._brokers.update(broker_addresses(known.route))  # `find_master` may have found others since
        if before is not None and before.from_template == known.from_template and same_route(before.route, known.route):
            return
        self._topics[topic] = known
        if self._on_change:
            self._on_change(topic)

    def forget_brokers(self) -> None:
        """Brokers that no route names any more are offline."""
        named: dict[str, Mapping[int, str]] = {}
        for known in self._topics.values():
            named.update(broker_addresses(known.route))
        self._brokers = {name: self._brokers.get(name, addresses) for name, addresses in named.items()}
