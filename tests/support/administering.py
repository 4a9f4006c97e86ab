"""One administrator's look at a system, as a coroutine that is run to its end. Knows no question."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitmq.admin.session import Session
from orbitmq.net.remoting import Remoting

T = TypeVar("T")
TIMEOUT_MS = 20_000.0  # a loaded machine must not make a system look partly dead


def looking(namesrv: str, work: Callable[[Session], Awaitable[T]], *, timeout_ms: float = TIMEOUT_MS) -> T:
    """Run `work` with a session of its own over this name server and close its connections."""

    async def main() -> T:
        remoting = Remoting()
        try:
            return await work(Session(remoting, [namesrv], timeout_ms=timeout_ms))
        finally:
            await remoting.close()

    return asyncio.run(main())
