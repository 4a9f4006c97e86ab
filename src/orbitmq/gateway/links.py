"""Connections to brokers, of each account in use its own: one that has signed wrongly too often is closed, which must
affect no other account. Knows no HTTP.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator, Iterable, Mapping, Sequence
from contextlib import asynccontextmanager
from typing import Any, Final

from orbitmq.client.deliveries import FROM_FIRST, FROM_LAST, Deliveries
from orbitmq.client.lag import QueueLag, lag_of, total_lag
from orbitmq.client.producer import Producer
from orbitmq.client.puller import Puller
from orbitmq.errors import BrokerError
from orbitmq.gateway.problems import Refused
from orbitmq.message.flags import PULL_SUBSCRIPTION, PULL_SUSPEND
from orbitmq.message.model import MessageQueue
from orbitmq.message.pop import pop_retry_topic
from orbitmq.message.topics import retry_topic
from orbitmq.net.brake import LATE_S, SignatureBrake
from orbitmq.operations import groups, offsets, pops, routes
from orbitmq.runtime.periodic import Periodic
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.signature import Credentials

GROUP: Final = "orbitmq-gateway"
"""The producer group of all sends."""
LINKS_MAX: Final = 500  # some 100 KB each, and a connection to every broker it has used
UNPROVEN_EACH_MAX: Final = 8  # accounts at a time that no broker has accepted yet, of one address: it may be guessing
TOPICS_MAX: Final = 1000  # of a link: some 3 KB each, and a look-up every 30 s; callers may name topics without end
IDLE_SECONDS: Final = 300.0
LOOK_SECONDS: Final = 30.0
HOLD_MS: Final = 15_000  # a pull at a broker that has nothing new
PULL_MS: Final = 5000  # beyond that


class Link(Producer):
    """What one account does at the brokers. It sends as any producer; what is delivered to groups needs no member."""

    def __init__(self, name_servers: Sequence[str], account: Credentials | None, settings: Mapping[str, Any]) -> None:
        super().__init__(
            GROUP,
            name_servers,
            access_key="" if account is None else account.access_key,
            secret_key="" if account is None else account.secret_key,
            security_token="",
            **settings,
        )
        self.users = 0
        self.used_at = 0.0
        self.is_proven = account is None
        """Whether a broker has accepted its signature."""
        self.opened_by = ""

    @property
    def topics(self) -> int:
        """How many it keeps routes of."""
        return len(self._instance.routes.topics())

    def forget_topics(self) -> None:
        """They are looked up again when they are next used."""
        self._instance.routes.forget_topics()
        self._chooser.forget_topics()

    def deliveries(self, group: str, start_from: str = "first") -> Deliveries:
        """What is delivered to a group."""
        return Deliveries(self._instance, group, begin=FROM_FIRST if start_from == "first" else FROM_LAST)

    def puller(self, group: str) -> Puller:
        """Reads queues in the name of a group, for which nothing is committed."""
        flags = PULL_SUBSCRIPTION | PULL_SUSPEND
        return Puller(self._instance, group, flags=flags, suspend_ms=HOLD_MS, timeout_ms=HOLD_MS + PULL_MS)

    async def lags(self, group: str, topic: str) -> list[QueueLag]:
        """The lag in each queue of a topic, then in those where its messages wait to be delivered again; those of push
        consumers are mixed with what the group has from other topics. BrokerError, ClientError when the topic does not
        exist, RemotingError.
        """
        instance = self._instance
        queues = await instance.routes.find_subscribed(topic)

        async def offset_of(queue: MessageQueue) -> int | None:
            address = await instance.routes.master(queue)
            return await offsets.query_consumer_offset(instance.remoting, address, group, queue)

        lags = await lag_of(instance, group, queues, offset_of)
        if total_lag(lags) is not None:
            for queue in _of_each_broker(queues):
                lags += await self._lags_of_retries(group, queue, pop_retry_topic(topic, group))
                lags += await self._lags_of_retries(group, queue, retry_topic(group))
        return lags

    async def _lags_of_retries(self, group: str, queue: MessageQueue, topic: str) -> list[QueueLag]:
        """Of a retry topic, at the broker of the queue; none if nothing was redelivered yet."""
        instance = self._instance
        address = await instance.routes.master(queue)
        found = await groups.consume_stats(instance.remoting, address, group, topic)
        return [
            QueueLag(one, at.consumer_offset, at.broker_offset, max(0, at.broker_offset - at.consumer_offset))
            for one, at in found.offset_table.items()
        ]

    async def in_flight(self, group: str, topic: str) -> int | None:
        """The messages that are delivered and not acknowledged; None if a broker does not say. BrokerError,
        ClientError, RemotingError.
        """
        instance, total = self._instance, 0
        for queue in _of_each_broker(await instance.routes.find_subscribed(topic)):
            address = await instance.routes.master(queue)
            try:
                total += (await pops.in_flight(instance.remoting, address, group, topic, limit=1)).messages
            except BrokerError as error:
                if error.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
                    return None
                raise
        return total

    async def check_name_servers(self) -> int:
        """How many brokers are registered. ClientError, RemotingError without a name server that responds."""
        remoting = self._instance.remoting
        found = await self._instance.name_servers.ask(lambda address: routes.cluster_info(remoting, address))
        return len(found.brokers)


def _of_each_broker(queues: Iterable[MessageQueue]) -> Iterable[MessageQueue]:
    """One queue of each."""
    return {queue.broker_name: queue for queue in queues}.values()


class Links:
    """A link for each account in use. An account that brokers refuse has none afterwards."""

    def __init__(self, name_servers: Sequence[str], settings: Mapping[str, Any]) -> None:
        self._name_servers = name_servers
        self._settings = settings
        self._links: dict[Credentials | None, Link] = {}
        self._opening = asyncio.Lock()
        self._brake = SignatureBrake()
        self._late: Counter[str] = Counter()
        self._closing: set[asyncio.Task[None]] = set()
        self._periodic = Periodic()
        self._periodic.every(LOOK_SECONDS, self._close_idle)
        self.refused = 0

    def __len__(self) -> int:
        return len(self._links)

    def start(self) -> None:
        self._periodic.start()

    async def stop(self) -> None:
        await self._periodic.stop()
        links, self._links = list(self._links.values()), {}
        await asyncio.gather(*(link.shutdown() for link in links), *self._closing)

    @asynccontextmanager
    async def use(self, account: Credentials | None, peer: str) -> AsyncIterator[Link]:
        """The link of an account, which stays open meanwhile. Refused when there are too many."""
        link = await self._of(account, peer)
        link.users += 1
        try:
            yield link
            link.is_proven = True
        finally:
            link.users -= 1
            link.used_at = asyncio.get_running_loop().time()
            if link.is_running and link.topics > TOPICS_MAX:
                link.forget_topics()

    async def _of(self, account: Credentials | None, peer: str) -> Link:
        async with self._opening:
            if (link := self._links.get(account)) is not None:
                return link
            if account is not None:
                self._check_room(peer)
            self._make_room()
            link = Link(self._name_servers, account, self._settings)
            link.opened_by = peer
            await link.start()
            self._links[account] = link
            return link

    def _check_room(self, peer: str) -> None:
        unproven = sum(not one.is_proven and one.users > 0 and one.opened_by == peer for one in self._links.values())
        if unproven + self._late[peer] >= UNPROVEN_EACH_MAX:
            self.refused += 1
            raise Refused(429, f"{UNPROVEN_EACH_MAX} other accounts of {peer} are being checked")

    def _make_room(self) -> None:
        if len(self._links) < LINKS_MAX:
            return
        idle = [(one.used_at, account) for account, one in self._links.items() if not one.users]
        if not idle:
            self.refused += 1
            raise Refused(503, f"{LINKS_MAX} accounts are in use, which is the limit of the gateway")
        self._close(min(idle, key=lambda one: one[0])[1])

    async def _close_idle(self) -> None:
        now = asyncio.get_running_loop().time()
        for account, link in list(self._links.items()):
            if not link.users and now - link.used_at >= IDLE_SECONDS:
                self._close(account)

    def _close(self, account: Credentials | None) -> None:
        """Without a wait: brokers that do not respond must not hold up other callers."""
        task = asyncio.get_running_loop().create_task(self._links.pop(account).shutdown())
        self._closing.add(task)
        task.add_done_callback(self._closing.discard)

    async def refuse(self, account: Credentials, peer: str) -> None:
        """Brokers do not know this account: forget it, and have one who guesses wait longer and longer."""
        link = self._links.get(account)
        if link is not None and not link.users:
            self._close(account)
        late_s = self._brake.wrong(peer, asyncio.get_running_loop().time())
        self._late[peer] += 1
        try:
            await asyncio.sleep(min(late_s, LATE_S))
        finally:
            self._late[peer] -= 1
            if not self._late[peer]:
                del self._late[peer]
