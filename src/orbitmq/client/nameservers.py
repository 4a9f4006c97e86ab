"""The name servers of a client: one is used until it fails, then the next. Knows no route."""

from __future__ import annotations

import asyncio
import contextlib
import http.client
import logging
import random
from collections.abc import Awaitable, Callable, Iterable, Sequence
from typing import TypeAlias, TypeVar
from urllib.parse import urlsplit

from orbitmq.client.background import one_round
from orbitmq.client.core.addresses import name_servers
from orbitmq.client.core.retry import NO_NAME_SERVER
from orbitmq.errors import ClientError, ConnectError, OrbitMQError, RemotingError

_log = logging.getLogger(__name__)

T = TypeVar("T")
LookUp: TypeAlias = Callable[[], Awaitable[Sequence[str]]]

LOOK_UP_FIRST_S = 10.0
LOOK_UP_S = 120.0
"""When addresses that were looked up are looked up again; RocketMQ's times."""
LOOK_UP_TIMEOUT_S = 3.0
PAGE_BYTES_MAX = 64 << 10  # of the list; a thousand servers take less


class NameServers:
    """A list of addresses and the one in use. The servers are independent of each other and hold the same routes.

    With `look_up` an empty list is looked up at the first request, and again regularly.
    """

    def __init__(self, addresses: Sequence[str], chance: random.Random, look_up: LookUp | None = None) -> None:
        self.addresses = tuple(addresses)
        self._chance = chance
        self._look_up = look_up
        self._looking = asyncio.Lock()
        self._current = chance.choice(self.addresses) if addresses else ""
        self.is_silent = False
        """Whether none of them responded to the last request; logged once."""

    async def known(self) -> tuple[str, ...]:
        """All addresses. ClientError 10004 without any."""
        if not self.addresses:
            await self._look_up_once()
        return self.addresses

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """The response of the first server that sends one; each is tried once.

        ClientError 10004 without addresses, ConnectError when none answers; other errors are the answer's own.
        """
        await self.known()
        failures: list[str] = []
        for address in self._in_turn():
            try:
                answer = await question(address)
            except RemotingError as error:
                failures.append(str(error))
            else:
                self._current = address
                self.is_silent = False
                return answer
        self._log_silence()
        raise ConnectError(
            f"no name server responds: {'; '.join(failures)}; check namesrv_addr and that one of them runs"
        )

    def _log_silence(self) -> None:
        if not self.is_silent:
            self.is_silent = True
            _log.warning(
                "event=no_name_server_answers addresses=%s; topics that are not known yet can be neither sent to nor "
                "consumed until one of them does; check namesrv_addr and that one of them runs",
                ";".join(self.addresses),
            )

    def _in_turn(self) -> list[str]:
        """All addresses, the one in use first."""
        at = self.addresses.index(self._current) if self._current in self.addresses else 0
        return [*self.addresses[at:], *self.addresses[:at]]

    def update(self, addresses: Iterable[str]) -> None:
        """Use these instead; the one in use stays if it is among them. An empty list changes nothing."""
        new = tuple(dict.fromkeys(addresses))
        if not new or set(new) == set(self.addresses):
            return
        _log.info("event=name_servers_changed from=%s to=%s", ";".join(self.addresses), ";".join(new))
        if self._current not in new:
            self._current = self._chance.choice(new)
        self.addresses = new

    async def follow(self) -> None:
        """Look addresses up regularly until cancelled; return at once without a URL."""
        pause_s = LOOK_UP_FIRST_S
        while self._look_up is not None:
            await asyncio.sleep(pause_s)
            pause_s = LOOK_UP_S
            with one_round("client", "name servers"):
                try:
                    self.update(await self._look_up())
                except OrbitMQError as error:
                    _log.warning("event=name_servers_not_looked_up error=%s", error)

    async def _look_up_once(self) -> None:
        if self._look_up is None:
            raise ClientError(
                NO_NAME_SERVER,
                "no name server: set namesrv_addr, the environment variable NAMESRV_ADDR, or namesrv_domain",
            )
        async with self._looking:
            if self.addresses:
                return
            try:
                self.update(await self._look_up())
            except ConnectError as error:
                raise ClientError(NO_NAME_SERVER, f"no name server: {error}") from error


async def look_up(url: str) -> tuple[str, ...]:
    """The addresses in the first line of the page at `url`, a list of name servers that a web server publishes.
    ConnectError when there is no response, or one without addresses.
    """
    return await asyncio.to_thread(_look_up, url)


def _look_up(url: str) -> tuple[str, ...]:
    parts = urlsplit(url)
    path = f"{parts.path}?{parts.query}" if parts.query else parts.path
    try:
        with contextlib.closing(http.client.HTTPConnection(parts.netloc, timeout=LOOK_UP_TIMEOUT_S)) as connection:
            connection.request("GET", path)
            response = connection.getresponse()
            text = response.read(PAGE_BYTES_MAX).decode(errors="replace")
    except (OSError, http.client.HTTPException) as error:
        raise ConnectError(f"cannot look name servers up at {url}: {error}") from error
    found = name_servers(text.splitlines()[0] if text.strip() else "")
    if response.status != http.client.OK or not found:
        raise ConnectError(f"{url} returned no addresses of name servers (status {response.status})")
    return found
