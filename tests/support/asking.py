"""Requests of this test process to a broker of either system, with typed headers. Knows no broker."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitmq.net.remoting import Remoting
from orbitmq.wire.command import Command, request
from orbitmq.wire.header import Header

T = TypeVar("T")
TIMEOUT_MS = 30_000


class Asker:
    """Asks one address; answers come back whatever their code."""

    def __init__(self, address: str, remoting: Remoting) -> None:
        self.address = address
        self.remoting = remoting

    async def ask(
        self, code: int, header: Header | None = None, body: bytes = b"", *, language: str = "JAVA"
    ) -> Command:
        return await self.remoting.call(self.address, request(code, header, body, language=language), TIMEOUT_MS)


def asking(address: str, work: Callable[[Asker], Awaitable[T]]) -> T:
    """Run `work` with an asker of `address` and close its connection."""

    async def main() -> T:
        remoting = Remoting()
        try:
            return await work(Asker(address, remoting))
        finally:
            await remoting.close()

    return asyncio.run(main())
