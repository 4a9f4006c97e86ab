"""Keeps the broker registered with every name server: at start, every 30 s, and at once when topics change.

Each name server has its own task, so a failed one does not delay the others. Until the first success, and after a
change that could not be announced, the task retries with a growing pause; RocketMQ waits a whole period.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Container

from orbitmq.errors import OrbitMQError
from orbitmq.message.config import DataVersion, TopicConfig
from orbitmq.net.remoting import Remoting
from orbitmq.operations.registration import (
    register_broker,
    register_broker_oneway,
    topics_changed,
    unregister_broker,
)
from orbitmq.wire.headers_namesrv import (
    QueryDataVersionHeader,
    RegisterBrokerHeader,
    RegisterBrokerResponseHeader,
    UnregisterBrokerHeader,
)

_log = logging.getLogger(__name__)

PERIOD_MIN_MS, PERIOD_MAX_MS = 10_000, 60_000  # the limits of RocketMQ; name servers drop a broker after 120 s
RETRY_FIRST_SECONDS, RETRY_MAX_SECONDS = 0.1, 5.0
UNREGISTER_TIMEOUT_MS = 1000  # a stopping broker must not hang on a dead name server


class Registrar:
    """`body` returns the encoded registration of some topics, or of all for None. With `version` a name server is first
    asked whether it has that version of the topics, and they are sent only if not. While `is_withheld` nothing is
    registered. `must_tell_all` is awaited before each registration: whether to send all topics regardless of the
    version.
    """

    def __init__(
        self,
        remoting: Remoting,
        name_servers: list[str],
        identity: Callable[[], RegisterBrokerHeader],
        body: Callable[[list[TopicConfig] | None], Awaitable[bytes]],
        *,
        version: Callable[[], DataVersion] | None = None,
        take_order: Callable[[Container[str]], object] = lambda _: None,
        take_master: Callable[[RegisterBrokerResponseHeader], object] = lambda _: None,
        is_withheld: Callable[[], bool] = lambda: False,
        must_tell_all: Callable[[str], Awaitable[bool]] | None = None,
        period_ms: int,
        timeout_ms: int,
    ) -> None:
        self._remoting = remoting
        self._name_servers = name_servers
        self._identity = identity
        self._body = body
        self._version = version
        self._take_order = take_order
        self._take_master = take_master
        self._is_withheld = is_withheld
        self._must_tell_all = must_tell_all
        self._silent = set(name_servers)  # name servers that did not respond the last time
        self._period_seconds = min(max(period_ms, PERIOD_MIN_MS), PERIOD_MAX_MS) / 1000
        self._timeout_ms = timeout_ms
        self._tasks: dict[str, asyncio.Task[None]] = {}
        self._changed: dict[str, TopicConfig] = {}
        self._everything_changed = False
        self._announcing: asyncio.Task[None] | None = None
        self._is_started = False

    async def start(self) -> None:
        """Register everywhere; returns when every reachable name server knows the broker."""
        self._is_started = True
        registered = await asyncio.gather(*(self._try_once(address) for address in self._name_servers))
        for address, is_known in zip(self._name_servers, registered, strict=True):
            self._tasks[address] = asyncio.create_task(self._keep_registered(address, is_known=is_known))
        self._announce_soon()  # clients create topics as soon as one name server lists the broker

    async def again(self) -> None:
        """Register once more, out of turn; used by a slave that does not know its master."""
        await asyncio.gather(*(self._try_once(address) for address in self._name_servers))

    def abandon(self) -> None:
        """Stop registering, without unregistering."""
        for task in self._tasks.values():
            task.cancel()
        self._tasks.clear()
        if self._announcing is not None:
            self._announcing.cancel()

    async def stop(self) -> None:
        self.abandon()
        if not self._is_withheld():
            await self.leave()

    async def leave(self) -> None:
        """Unregister the broker from every name server."""
        header = self._identity()
        farewell = UnregisterBrokerHeader(header.broker_name, header.broker_addr, header.cluster_name, header.broker_id)
        await asyncio.gather(*(self._unregister(address, farewell) for address in self._name_servers))

    def topic_changed(self, config: TopicConfig | None) -> None:
        """Announce a created or changed topic soon; None (a topic was deleted) announces the whole table. Before the
        start there is nothing to do: it registers every topic.
        """
        if not self._is_started:
            return
        if config is None:
            self._everything_changed = True
        else:
            self._changed[config.name] = config
        self._announce_soon()

    def _announce_soon(self) -> None:
        if self._tasks and self._announcing is None and (self._everything_changed or self._changed):
            self._announcing = asyncio.create_task(self._announce())

    async def settled(self) -> None:
        """Return when changes made so far are on their way to the name servers."""
        if self._announcing is not None:
            await asyncio.shield(self._announcing)

    async def _announce(self) -> None:
        """Changes of one turn of the event loop are sent together, and so are those made while a body is encoded."""
        await asyncio.sleep(0)
        announced = []
        try:
            while self._everything_changed or self._changed:
                changed, self._changed = list(self._changed.values()), {}
                only = None if self._everything_changed else changed
                self._everything_changed = False
                body = await self._body(only)
                announced += [asyncio.create_task(self._announce_to(address, body)) for address in self._name_servers]
        finally:
            self._announcing = None
        await asyncio.gather(*announced)

    async def _announce_to(self, address: str, body: bytes) -> None:
        if self._is_withheld():
            return
        try:
            await register_broker_oneway(self._remoting, address, self._identity(), body, timeout_ms=self._timeout_ms)
        except OrbitMQError as error:
            _log.warning("event=announce_failed namesrv=%s error=%s", address, error)
            if address in self._tasks:
                self._tasks[address].cancel()
                self._tasks[address] = asyncio.create_task(self._keep_registered(address, is_known=False))

    async def _keep_registered(self, address: str, *, is_known: bool) -> None:
        pause = RETRY_FIRST_SECONDS
        while True:
            await asyncio.sleep(self._period_seconds if is_known else pause)
            is_known = await self._try_once(address) or is_known
            pause = min(pause * 2, RETRY_MAX_SECONDS)

    async def _try_once(self, address: str) -> bool:
        header, timeout_ms = self._identity(), self._timeout_ms
        anew = not self._is_withheld() and self._must_tell_all is not None and await self._must_tell_all(address)
        if self._is_withheld():
            return False
        try:
            if (
                not anew
                and self._version is not None
                and not await self._topics_changed(address, header, self._version())
            ):
                return True
            found = await register_broker(
                self._remoting, address, header, await self._body(None), timeout_ms=timeout_ms
            )
        except OrbitMQError as error:
            self._silent.add(address)
            _log.warning("event=register_failed namesrv=%s error=%s", address, error)
            return False
        self._silent.discard(address)
        self._take_master(found.master)
        first = next(one for one in self._name_servers if one not in self._silent)
        if found.order_settings is not None and address == first:  # one of them is believed, should they disagree
            self._take_order(found.order_settings)
        _log.debug("event=registered namesrv=%s", address)
        return True

    async def _topics_changed(self, address: str, header: RegisterBrokerHeader, version: DataVersion) -> bool:
        query = QueryDataVersionHeader(header.broker_name, header.broker_addr, header.cluster_name, header.broker_id)
        return await topics_changed(self._remoting, address, query, version, timeout_ms=self._timeout_ms)

    async def _unregister(self, address: str, header: UnregisterBrokerHeader) -> None:
        try:
            await unregister_broker(self._remoting, address, header, timeout_ms=UNREGISTER_TIMEOUT_MS)
        except OrbitMQError as error:
            _log.info("event=unregister_failed namesrv=%s error=%s", address, error)
