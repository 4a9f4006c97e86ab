"""A cluster behind the front: its routes come from name servers, its brokers are reached by remoting."""

from __future__ import annotations

import asyncio
import logging
import ssl
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from typing import Any, Final, Generic, TypeVar

from orbitmq.errors import BrokerError, ConnectError, RemotingError
from orbitmq.message.model import MASTER_ID
from orbitmq.message.topic_types import MessageType, type_of
from orbitmq.message.topics import HALF_TOPIC
from orbitmq.net.remoting import Remoting
from orbitmq.net.routing import Router
from orbitmq.operations import groups, queries, routes, topics
from orbitmq.proxy.backend import Accounts, Peer, TopicRoute
from orbitmq.proxy.settings import GroupRules, group_rules
from orbitmq.runtime.clock import Clock
from orbitmq.wire.bodies import TopicRouteData
from orbitmq.wire.codes import ResponseCode
from orbitmq.wire.command import Command
from orbitmq.wire.signature import Credentials, sign

_log = logging.getLogger(__name__)

T = TypeVar("T")

FRESH_MS: Final = 20_000  # as RocketMQ's proxy keeps them
AGAIN_MS: Final = 2000  # between lookups while no name server responds, each of which may take seconds
KEPT_MAX: Final = 100_000  # topics and groups, some 2 KiB each
HALVES_MAX: Final = 32  # messages of one id; a broker sets its own number
UNKNOWN_CODES: Final = (ResponseCode.REQUEST_CODE_NOT_SUPPORTED, ResponseCode.NO_PERMISSION)


class _Lookups(Generic[T]):
    """What was looked up by name: kept for a while, and longer while no name server responds. One lookup at a time
    serves all who want it.
    """

    def __init__(
        self, find: Callable[[str], Coroutine[Any, Any, T | None]], clock: Clock, *, keeps_missing: bool
    ) -> None:
        self._find = find
        self._clock = clock
        self._keeps_missing = keeps_missing
        self._kept: dict[str, tuple[T | None, int]] = {}  # until when it is fresh
        self._running: dict[str, asyncio.Task[T | None]] = {}

    def fresh(self, name: str) -> T | None:
        kept = self._kept.get(name)
        return kept[0] if kept is not None and self._clock.now_ms() < kept[1] else None

    async def of(self, name: str) -> T | None:
        """RemotingError if no name server responds, and nothing is kept."""
        kept = self._kept.get(name)
        if kept is not None and self._clock.now_ms() < kept[1]:
            return kept[0]
        task = self._running.get(name)
        if task is None:
            task = self._running[name] = asyncio.get_running_loop().create_task(self._look_up(name))
            task.add_done_callback(lambda done: self._done(name, done))
        return await asyncio.shield(task)

    async def _look_up(self, name: str) -> T | None:
        try:
            found = await self._find(name)
        except RemotingError as error:
            if name not in self._kept:
                raise
            _log.warning("event=old_route_serves name=%.300s error=%s", name, error)
            self._keep(name, self._kept[name][0], AGAIN_MS)
            return self._kept[name][0]
        if found is not None or self._keeps_missing:
            self._keep(name, found, FRESH_MS)
        else:
            self._kept.pop(name, None)
        return found

    def _keep(self, name: str, value: T | None, fresh_ms: int) -> None:
        """Names come from clients, so the table has a limit; the oldest entry goes."""
        self._kept.pop(name, None)
        self._kept[name] = value, self._clock.now_ms() + fresh_ms
        if len(self._kept) > KEPT_MAX:
            del self._kept[next(iter(self._kept))]

    def _done(self, name: str, task: asyncio.Task[T | None]) -> None:
        self._running.pop(name, None)
        if not task.cancelled():
            task.exception()  # whoever has waited for it may be gone

    def doubt(self, name: str) -> None:
        """Look it up again at the next use."""
        if (kept := self._kept.get(name)) is not None:
            self._kept[name] = kept[0], 0

    async def stop(self) -> None:
        running = list(self._running.values())
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)


class ClusterBackend:
    """Implements `proxy.backend.Backend`. Without `accounts` signatures are not checked. `credentials`
    are the account by which the front asks brokers itself.
    """

    def __init__(
        self,
        name_servers: Sequence[str],
        clock: Clock,
        *,
        delay_max_ms: int,
        accounts: Accounts | None = None,
        credentials: Credentials | None = None,
        tls: ssl.SSLContext | None = None,
    ) -> None:
        self._name_servers = list(name_servers)
        self._clock = clock
        self.delay_max_ms = delay_max_ms
        self._accounts = accounts
        self._tls = tls
        own = None if credentials is None else (lambda command: sign(command, credentials))
        self._remoting = Remoting(sign=own, tls=tls)
        # A topic that is created after its first use is found at once; of a group, push consumers ask all the time.
        self._routes = _Lookups(self._find_route, clock, keeps_missing=False)
        self._groups = _Lookups(self._find_group, clock, keeps_missing=True)

    def known(self, topic: str) -> TopicRoute | None:
        return self._routes.fresh(topic)

    async def route(self, topic: str) -> TopicRoute | None:
        return await self._routes.of(topic)

    def doubt(self, topic: str) -> None:
        self._routes.doubt(topic)

    async def _find_route(self, topic: str) -> TopicRoute | None:
        data = await self._ask(lambda address: routes.route(self._remoting, address, topic))
        if data is None:
            return None
        # Every front must find the queue of a message group at the same place: RocketMQ's sorts them, too.
        data.queue_datas.sort(key=lambda one: one.broker_name)
        return TopicRoute(data, await self._type(topic, data))

    async def _ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """The response of the first name server that sends one, which is asked first from then on."""
        failures = []
        for address in list(self._name_servers):
            try:
                answer = await question(address)
            except RemotingError as error:
                failures.append(str(error))
                continue
            if failures:
                self._name_servers.remove(address)
                self._name_servers.insert(0, address)
            return answer
        raise ConnectError(f"no name server responds: {'; '.join(failures)}")

    async def _type(self, topic: str, data: TopicRouteData) -> MessageType:
        """The type of its messages, as its brokers have it. Brokers of 4.x have none: nothing is checked then."""
        for broker in data.broker_datas:
            if (address := broker.addresses.get(MASTER_ID)) is None:
                continue
            try:
                return type_of((await topics.topic_config(self._remoting, address, topic)).attributes)
            except BrokerError as error:
                if error.code in UNKNOWN_CODES:
                    return MessageType.MIXED
            except RemotingError as error:
                _log.info("event=type_not_looked_up topic=%.300s broker=%s error=%s", topic, address, error)
        return MessageType.MIXED

    async def group(self, name: str) -> GroupRules | None:
        return await self._groups.of(name)

    async def _find_group(self, name: str) -> GroupRules | None:
        info = await self._ask(lambda address: routes.cluster_info(self._remoting, address))
        unreachable: RemotingError | None = None
        has_answer = False
        for broker in info.brokers.values():
            if (address := broker.addresses.get(MASTER_ID)) is None:
                continue
            try:
                return group_rules(await groups.group_config(self._remoting, address, name))
            except BrokerError as error:  # a broker of 4.x, or one that does not have the group
                has_answer = True
                _log.debug("event=group_not_looked_up group=%.300s broker=%s error=%s", name, address, error)
            except RemotingError as error:
                unreachable = error
                _log.info("event=group_not_looked_up group=%.300s broker=%s error=%s", name, address, error)
        if unreachable is not None and not has_answer:
            raise unreachable
        return None

    async def half_messages(self, address: str, transaction_id: str) -> bytes:
        now_ms = self._clock.now_ms()
        found = await queries.query_messages(
            self._remoting, address, HALF_TOPIC, transaction_id, HALVES_MAX, 0, now_ms, unique=True
        )
        return found.body

    def remoting(self, router: Router, _peer: Peer, access_key: str | None) -> Remoting:
        def sign_as(command: Command) -> None:
            if access_key is not None and (secret := self.secret(access_key)) is not None:
                sign(command, Credentials(access_key, secret))

        return Remoting(router, sign=None if access_key is None else sign_as, tls=self._tls)

    def drop_pop(self, _remoting: Remoting, _address: str, _number: int) -> bool:
        """The protocol has no request for it: what is popped for nobody is given back."""
        return False

    def secret(self, access_key: str) -> str | None:
        return None if self._accounts is None else self._accounts.secret(access_key)

    def may_send(self, access_key: str | None, topic: str) -> bool:
        """Without an account, brokers decide what an unsigned request may."""
        return self._accounts is None or access_key is None or self._accounts.may_send(access_key, topic)

    @property
    def has_accounts(self) -> bool:
        return self._accounts is not None

    async def stop(self) -> None:
        await self._routes.stop()
        await self._groups.stop()
        await self._remoting.close()
