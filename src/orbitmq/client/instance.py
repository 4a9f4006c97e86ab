"""One client as brokers see it: a client id, connections, routes and heartbeats for the groups that share it.

Producers and consumers of one event loop share an instance if their settings agree and none of them is of the same
group; a consumer that shares a group with another needs its own client id, or brokers take the two for one. The
instance lives from the first of them to the last. Must not know what they send or consume.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import math
import os
import random
import time
from collections import defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from weakref import WeakKeyDictionary

from orbitmq.client.background import Background, one_round
from orbitmq.client.broker_requests import BrokerRequests, GroupMember
from orbitmq.client.core.addresses import VIP_CODES, lookup_url, vip_address
from orbitmq.client.core.identity import DEFAULT_INSTANCE, address_bytes, client_address, client_id, own_instance_name
from orbitmq.client.core.retry import BROKER_MISSING
from orbitmq.client.machine import own_addresses
from orbitmq.client.nameservers import LookUp, NameServers, look_up
from orbitmq.client.protection import PROTECTION, signer_of, tls_of
from orbitmq.client.replies import PendingReplies
from orbitmq.client.routes import Routes
from orbitmq.client.settings import ClientSettings
from orbitmq.client.transaction_checks import TransactionChecks
from orbitmq.errors import BrokerError, ClientError, OrbitMQError, RemotingError
from orbitmq.message.ids import UniqueIds
from orbitmq.message.model import MASTER_ID
from orbitmq.message.topics import RETRY_PREFIX
from orbitmq.net.connection import Connection
from orbitmq.net.remoting import Remoting, RpcHook
from orbitmq.net.routing import Router
from orbitmq.operations import membership
from orbitmq.runtime.clock import Clock, SystemClock
from orbitmq.wire.bodies import HeartbeatData, ProducerData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.requests import RequestCode

_log = logging.getLogger(__name__)

IDENTITY = ("instance_name", "client_ip", "unit_name")  # settings that determine the client id
STREAM_FIELDS = {"ReqT": "0"}  # in every request of a client of streams
MISSING_ROUTE_PAUSE_S = 0.5  # a consumer waits for the first message of a new topic: it shall have it within a second
DOUBT_PAUSE_S = 0.5  # between two looks for the master of brokers that do not respond
MASTER_LOOK_S = 0.1  # the same while sends wait for that
MISSING_ROUTE_PAUSE_MAX_S = 5.0  # the pause grows to this while no name server responds
ABSENT_MASTER_LOOK_S = (
    1.0  # how often a connection is retried to a lost master that may have pending transactions of this client
)


@dataclass(slots=True)
class _Search:
    """For another master of a broker."""

    task: asyncio.Task[None] = field(init=False)
    waiting: int = 0
    """Sends."""


class Instance:
    """See the module. Created by `join`, released by `leave`."""

    def __init__(
        self,
        addresses: tuple[str, ...],
        settings: ClientSettings,
        *,
        clock: Clock,
        chance: random.Random,
        hooks: tuple[RpcHook, ...] = (),
        stream: bool = False,
    ) -> None:
        self.settings = settings
        self.given_addresses = addresses
        self.hooks = hooks
        self.stream = stream
        self.clock = clock
        self.chance = chance
        self.client_ip = settings["client_ip"] or client_address(own_addresses())
        name = settings["instance_name"]
        if name == DEFAULT_INSTANCE:
            name = own_instance_name(os.getpid(), time.monotonic_ns())
        self.client_id = client_id(self.client_ip, name, settings["unit_name"], stream=stream)
        self._consumers: dict[str, GroupMember] = {}
        self.unique_ids = UniqueIds(address_bytes(self.client_ip), os.getpid(), os.urandom(4))
        router = Router("client")
        BrokerRequests(self._consumers).add_to(router)
        self.transaction_checks = TransactionChecks()
        self.transaction_checks.add_to(router)
        self.replies = PendingReplies(self.clock)
        self.replies.add_to(router)
        self.remoting = Remoting(
            router,
            on_open=self._connected,
            fields=STREAM_FIELDS if stream else None,
            hooks=hooks,
            sign=signer_of(settings),
            direct=_vip if settings["vip_channel"] else None,
            tls=tls_of(settings),
        )
        self.name_servers = NameServers(addresses, chance, _look_up_of(settings))
        self.routes = Routes(
            self.remoting, self.name_servers, timeout_ms=settings["api_timeout_ms"], on_change=self._route_changed
        )
        self._producers: set[str] = set()
        self._deciders: set[str] = set()
        """The producer groups that decide transactions: every master may send them checks."""
        self._finding_masters: asyncio.Task[None] | None = None
        self._background = Background(self.client_id)
        self._leaving: set[tuple[str, bool]] = set()
        self._greeting: defaultdict[str, asyncio.Lock] = defaultdict(asyncio.Lock)
        """One heartbeat or unregistration at a time per broker, so that none overtakes another."""
        self._greeted: set[str] = set()
        """Addresses that have had a heartbeat over their current connection."""
        self._silent: set[str] = set()
        """Addresses whose last heartbeat failed; logged once."""
        self._changed_topics: set[str] = set()
        self._route_news = asyncio.Event()
        self._routes_wanted = asyncio.Event()
        self._doubted: set[str] = set()
        """Names of brokers that may have another master by now."""
        self._doubted_at = -DOUBT_PAUSE_S
        self._searches: dict[tuple[str, str], _Search] = {}
        """Broker name and address of its last master -> the search for another one, for which sends wait."""
        self._looked_at: dict[str, float] = {}
        """Broker name -> when such a search began last; only one without slaves is not looked for again at once."""
        self._masters_known = True  # until a name server fails to return them
        self._closed = False

    # -------------------------------------------------------------------------------------------------------- groups

    @property
    def is_unused(self) -> bool:
        """Whether no group shares the instance any more."""
        return not self._producers and not self._consumers

    def has_group(self, group: str, *, consumer: bool) -> bool:
        """Whether a producer or consumer of this group shares the instance, or is leaving it."""
        present = group in (self._consumers if consumer else self._producers)
        return present or (group, consumer) in self._leaving

    def add_producer(self, group: str) -> None:
        """Add a producer group."""
        self._producers.add(group)

    async def add_decider(self, group: str) -> None:
        """Add a producer group that decides transactions. Any master may hold some that earlier members left undecided,
        so all masters get heartbeats from now on, whether or not the group ever sends there.
        """
        self._producers.add(group)
        self._deciders.add(group)
        await self._find_masters()
        await self.beat()
        if self._finding_masters is None or self._finding_masters.done():
            self._finding_masters = self._background.spawn(self._follow_masters())

    def add_consumer(self, member: GroupMember) -> None:
        """Add a consumer."""
        self._consumers[member.group] = member

    def remove(self, group: str, *, consumer: bool) -> None:
        """Remove a group without unregistering it, as one whose start failed."""
        if consumer:
            self._consumers.pop(group, None)
        else:
            self._producers.discard(group)
            self._deciders.discard(group)

    async def dismiss(self, group: str, *, consumer: bool) -> None:
        """Remove a group and unregister it at every connected broker. At a broker that cannot be reached it expires."""
        addresses = [address for address in self._broker_addresses(slaves=True) if self.remoting.connection(address)]
        self.remove(group, consumer=consumer)
        self._leaving.add((group, consumer))
        try:
            async with asyncio.timeout(self.settings["api_timeout_ms"] / 1000):
                await asyncio.gather(*(self._unregister_at(address, group, consumer=consumer) for address in addresses))
        except TimeoutError:
            _log.info("event=not_unregistered group=%s", group)
        finally:
            self._leaving.discard((group, consumer))

    async def _unregister_at(self, address: str, group: str, *, consumer: bool) -> None:
        try:
            async with self._greeting[address]:
                await membership.unregister_client(
                    self.remoting,
                    address,
                    self.client_id,
                    producer_group=None if consumer else group,
                    consumer_group=group if consumer else None,
                    timeout_ms=self.settings["api_timeout_ms"],
                )
        except OrbitMQError as error:
            _log.info("event=not_unregistered group=%s broker=%s error=%s", group, address, error)

    # ----------------------------------------------------------------------------------------------------- lifecycle

    def start(self) -> None:
        """Start refreshing routes and sending heartbeats."""
        self._background.spawn(self._refresh_routes())
        self._background.spawn(self._follow_routes())
        self._background.spawn(self._beat_regularly())
        if not self.name_servers.addresses:
            self._background.spawn(self.name_servers.follow())

    async def close(self) -> None:
        """End every task and connection."""
        self._closed = True
        await self._background.stop()
        await self.remoting.close()

    # -------------------------------------------------------------------------------------------------------- routes

    async def _refresh_routes(self) -> None:
        """Refresh all known routes every interval; missing routes of subscribed topics more often."""
        interval_s = self.settings["poll_namesrv_interval_ms"] / 1000
        loop = asyncio.get_running_loop()
        all_due, pause_s = loop.time() + interval_s, interval_s
        while True:
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(pause_s):
                    await self._routes_wanted.wait()
                pause_s = MISSING_ROUTE_PAUSE_S
            self._routes_wanted.clear()
            with one_round(self.client_id, "routes"):
                doubted, self._doubted = self._doubted, set()
                await self.routes.refresh_each(self._missing_topics())
                await self.routes.find_masters(doubted)
            if loop.time() >= all_due:
                all_due = loop.time() + interval_s
                with one_round(self.client_id, "routes"):
                    await self.routes.refresh_each(self.routes.topics())
                    self.routes.forget_brokers()
            until_all_s = max(0.0, all_due - loop.time())
            pause_s = min(self._pause_s(pause_s), until_all_s)

    def _pause_s(self, last_s: float) -> float:
        """Until missing routes are requested again. The retry topic of a group may be missing for ever, and a name
        server that does not respond costs each request its timeout: then pauses grow.
        """
        missing = self._missing_topics()
        if self.name_servers.is_silent or all(topic.startswith(RETRY_PREFIX) for topic in missing):
            return min(2 * last_s, MISSING_ROUTE_PAUSE_MAX_S) if missing else math.inf
        return MISSING_ROUTE_PAUSE_S

    def _missing_topics(self) -> list[str]:
        wanted = {topic for member in self._consumers.values() for topic in member.wanted_topics()}
        return [topic for topic in wanted if not self.routes.subscribed(topic)]

    def want_routes(self) -> None:
        """A consumer waits for a route: refresh now, and often until it is there."""
        self._routes_wanted.set()

    def doubt(self, broker_name: str, error: Exception) -> bool:
        """A broker may not have served a request because it is no master any more: look whether there is another one.
        RocketMQ's clients do so at the next regular refresh of routes, up to 30 s later.
        """
        if not isinstance(error, RemotingError) and not (
            isinstance(error, BrokerError) and error.code == ResponseCode.SERVICE_NOT_AVAILABLE
        ):
            return False
        self._doubted.add(broker_name)
        now = asyncio.get_running_loop().time()
        if now - self._doubted_at >= DOUBT_PAUSE_S:
            self._doubted_at = now
            self._routes_wanted.set()
        return True

    async def another_master(self, broker_name: str, address: str, within_s: float) -> None:
        """Return when a broker name has another master than the one at `address`, or that one again after it was away,
        or this time is over. A broker without slaves, one of which could become the master, may have come back at
        another address, which one lookup shows.
        """
        if within_s <= 0:
            return
        search = self._searches.get((broker_name, address))
        if search is None:
            now = asyncio.get_running_loop().time()
            looked_at = self._looked_at.get(broker_name, -DOUBT_PAUSE_S)
            if not self._has_slaves(broker_name) and now - looked_at < DOUBT_PAUSE_S:
                return
            self._looked_at[broker_name] = now
            search = self._searches[broker_name, address] = _Search()
            search.task = self._background.spawn(self._search(broker_name, address, search))
        search.waiting += 1
        try:
            await asyncio.wait({search.task}, timeout=within_s)
        finally:
            search.waiting -= 1

    async def _search(self, broker_name: str, address: str, search: _Search) -> None:
        """For as long as sends wait for it: once for all of them."""
        was_away = False
        try:
            while search.waiting:
                found = await self.routes.find_master(broker_name)
                is_back = was_away and bool(found)
                if is_back or not self._is_master(broker_name, address) or not self._has_slaves(broker_name):
                    return
                was_away = was_away or found == ""
                await asyncio.sleep(MASTER_LOOK_S)
        finally:
            del self._searches[broker_name, address]

    def _is_master(self, broker_name: str, address: str) -> bool:
        """Whether the master is still the one at `address`, or there is none."""
        return self.routes.addresses(broker_name).get(MASTER_ID) in (None, address)

    def _has_slaves(self, broker_name: str) -> bool:
        return any(number != MASTER_ID for number in self.routes.addresses(broker_name))

    def _route_changed(self, topic: str) -> None:
        self._changed_topics.add(topic)
        self._route_news.set()

    async def _follow_routes(self) -> None:
        """Send heartbeats to new brokers before a consumer requests the members of its group."""
        while True:
            await self._route_news.wait()
            self._route_news.clear()
            changed, self._changed_topics = self._changed_topics, set()
            with one_round(self.client_id, "greeting"):
                addresses = self._broker_addresses(slaves=bool(self._consumers))
                await asyncio.gather(*(self._beat_at(address) for address in addresses if address not in self._greeted))
            for member in self._consumers.values():
                if not changed.isdisjoint(member.wanted_topics()):
                    member.wake_rebalance()

    async def _follow_masters(self) -> None:
        """While there are transaction producers: register them with masters that join, return or replace another. One
        that does not respond is retried after a second, and then at growing intervals.
        """
        interval_s = self.settings["poll_namesrv_interval_ms"] / 1000
        loop = asyncio.get_running_loop()
        asks_at = loop.time() + (interval_s if self._masters_known else MISSING_ROUTE_PAUSE_MAX_S)
        waits: dict[str, tuple[float, float]] = {}  # absent master -> when it is tried again, the pause after that
        while self._deciders:
            await asyncio.sleep(min(ABSENT_MASTER_LOOK_S, interval_s))
            now = loop.time()
            waits = {address: waits.get(address, (now, ABSENT_MASTER_LOOK_S)) for address in self._absent_masters()}
            late = {address: pause_s for address, (at, pause_s) in waits.items() if at <= now}
            if not late and now < asks_at:
                continue
            waits |= {address: (now + pause_s, min(2 * pause_s, interval_s)) for address, pause_s in late.items()}
            with one_round(self.client_id, "masters"):
                await self._find_masters()
                absent = [address for address in self._absent_masters() if address in late or address not in waits]
                await asyncio.gather(*map(self._beat_at, absent))
            asks_at = now + (interval_s if self._masters_known else MISSING_ROUTE_PAUSE_MAX_S)

    async def _find_masters(self) -> None:
        """Request all masters from a name server; a failure is retried soon."""
        try:
            await self.routes.refresh_registered()
            self._masters_known = True
        except OrbitMQError as error:
            if self._masters_known:
                _log.warning("event=masters_not_found client=%s error=%s", self.client_id, error)
            self._masters_known = False

    def _absent_masters(self) -> list[str]:
        """The masters without a heartbeat over a current connection."""
        return [
            address
            for address in sorted(self.routes.registered_masters())
            if address not in self._greeted or self.remoting.connection(address) is None
        ]

    async def any_broker(self, topic: str) -> str:
        """The address of some broker of the topic: its master, else a slave. ClientError when there is none."""
        names = {queue.broker_name for queue in await self.routes.find_subscribed(topic)}
        candidates = [addresses for name in sorted(names) if (addresses := self.routes.addresses(name))]
        if not candidates:
            raise ClientError(BROKER_MISSING, f"no broker of topic {topic} has an address")
        addresses = self.chance.choice(candidates)
        return addresses.get(MASTER_ID) or self.chance.choice(sorted(addresses.values()))

    def _broker_addresses(self, *, slaves: bool) -> list[str]:
        """Of every known broker the master, with `slaves` all of it; and the masters that only deciders need."""
        brokers: list[Mapping[int, str]] = list(self.routes.brokers().values())
        routed = {address for broker in brokers for i, address in broker.items() if slaves or i == MASTER_ID}
        return sorted(routed | self.routes.registered_masters() if self._deciders else routed)

    # ---------------------------------------------------------------------------------------------------- heartbeats

    async def _beat_regularly(self) -> None:
        while True:
            await asyncio.sleep(self.settings["heartbeat_interval_ms"] / 1000)
            with one_round(self.client_id, "heartbeat"):
                await self.beat()

    async def beat(self) -> None:
        """Send heartbeats: to masters always, to slaves as well if there are consumers."""
        addresses = self._broker_addresses(slaves=bool(self._consumers))
        await asyncio.gather(*(self._beat_at(address) for address in addresses))

    async def _beat_at(self, address: str) -> None:
        async with self._greeting[address]:
            if self.is_unused:
                return
            try:
                timeout_ms = self.settings["api_timeout_ms"]
                await membership.heartbeat(self.remoting, address, self._heartbeat_data(), timeout_ms=timeout_ms)
                self._greeted.add(address)
                self._silent.discard(address)
            except OrbitMQError as error:
                level = logging.DEBUG if address in self._silent else logging.WARNING
                text = "event=heartbeat_failed client=%s broker=%s error=%s"
                _log.log(level, text, self.client_id, address, error)
                self._silent.add(address)

    def _heartbeat_data(self) -> HeartbeatData:
        return HeartbeatData(
            client_id=self.client_id,
            producer_data_set=[ProducerData(group_name=group) for group in sorted(self._producers)],
            consumer_data_set=[self._consumers[group].heartbeat_data() for group in sorted(self._consumers)],
        )

    def _connected(self, address: str, _: Connection) -> None:
        """A broker forgets the client when its connection closes, so a new one starts with a heartbeat."""
        self._greeted.discard(address)
        if self._closed or self._greeting[address].locked() or self.is_unused:
            return
        if address in self._broker_addresses(slaves=bool(self._consumers)):
            self._background.spawn(self._beat_at(address))


def _vip(address: str, command: Command) -> str:
    """A oneway unlock is the only form of these requests that Java does not send over the VIP channel."""
    oneway_unlock = command.code == RequestCode.UNLOCK_BATCH_MQ and command.is_oneway
    return vip_address(address) if command.code in VIP_CODES and not oneway_unlock else address


def _look_up_of(settings: ClientSettings) -> LookUp | None:
    if not settings["namesrv_domain"]:
        return None
    return partial(look_up, lookup_url(settings["namesrv_domain"], settings["namesrv_subgroup"], settings["unit_name"]))


_instances: WeakKeyDictionary[asyncio.AbstractEventLoop, list[Instance]] = WeakKeyDictionary()


def join(
    addresses: tuple[str, ...],
    settings: ClientSettings,
    group: str,
    *,
    consumer: bool,
    hooks: tuple[RpcHook, ...] = (),
    stream: bool = False,
) -> Instance:
    """The instance a new member of `group` shares, or a new one. ClientError when a named one has this group.

    The caller adds itself before it next waits for anything.
    """
    own = _shared_settings(settings)
    named = settings["instance_name"] != DEFAULT_INSTANCE
    pool = _instances.setdefault(asyncio.get_running_loop(), [])
    for instance in pool:
        theirs = _shared_settings(instance.settings)
        if instance.stream != stream:
            continue  # the client id differs
        alike = own == theirs and instance.given_addresses == addresses and instance.hooks == hooks
        if not alike and not (named and all(own[name] == theirs[name] for name in IDENTITY)):
            continue
        if instance.has_group(group, consumer=consumer):
            if named:
                raise _taken(settings["instance_name"], group, consumer=consumer)
            continue
        if instance.hooks != hooks or any(own[name] != theirs[name] for name in PROTECTION):
            raise _protected_otherwise(settings["instance_name"])
        if not alike:
            _log.warning("event=settings_ignored client=%s group=%s", instance.client_id, group)
        return instance
    chance = random.Random()  # noqa: S311 - spreads load, keeps no secret
    instance = Instance(addresses, settings, clock=SystemClock(), chance=chance, hooks=hooks, stream=stream)
    instance.start()
    pool.append(instance)
    return instance


def _shared_settings(settings: ClientSettings) -> dict[str, object]:
    """The settings that all groups of an instance must share; names are wrapped before."""
    return {name: settings.get(name) for name in ClientSettings.__annotations__ if name != "namespace"}


def _protected_otherwise(name: str) -> ClientError:
    """Groups that share an instance use its account, so one with another account must not share it."""
    return ClientError(
        BROKER_MISSING,
        f"the instance {name!r} exists already with another account, other TLS settings or other hooks; "
        "use another instance_name for this client",
    )


def _taken(name: str, group: str, *, consumer: bool) -> ClientError:
    kind = "consumer" if consumer else "producer"
    return ClientError(
        BROKER_MISSING,
        f"a {kind} of group {group} exists already under the instance name {name!r}; "
        f"use another group or instance_name for this one",
    )


async def leave(instance: Instance) -> None:
    """Close the instance when no group shares it any more."""
    if instance.is_unused:
        pool = _instances.get(asyncio.get_running_loop(), [])
        if instance in pool:
            pool.remove(instance)
        await instance.close()
