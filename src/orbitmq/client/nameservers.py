"""The name servers of a client: one is asked until it fails, then the next. Knows no route."""

from __future__ import annotations

import random
from collections.abc import Awaitable, Callable, Sequence
from typing import TypeVar

from orbitmq.client.core.retry import NO_NAME_SERVER
from orbitmq.errors import ClientError, ConnectError, RemotingError

T = TypeVar("T")


class NameServers:
    """A list of addresses and the one in use. They are independent of each other and hold the same routes."""

    def __init__(self, addresses: Sequence[str], chance: random.Random) -> None:
        self.addresses = tuple(addresses)
        self._current = chance.randrange(len(addresses)) if addresses else 0

    async def ask(self, question: Callable[[str], Awaitable[T]]) -> T:
        """The answer of the first server that gives one, each tried once.

        ClientError 10004 without addresses, ConnectError when none answers; other errors are the answer's own.
        """
        if not self.addresses:
            raise ClientError(
                NO_NAME_SERVER, "no name server: give namesrv_addr or set the environment variable NAMESRV_ADDR"
            )
        failures: list[str] = []
        for _ in self.addresses:
            try:
                return await question(self.addresses[self._current])
            except RemotingError as error:
                failures.append(str(error))
                self._current = (self._current + 1) % len(self.addresses)
        raise ConnectError(f"no name server answers: {'; '.join(failures)}")
