"""Questions of an administrator's session, asked from a test that is not a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitmq.admin.session import Session
from orbitmq.net.remoting import Remoting

T = TypeVar("T")


def asked(name_servers: str, question: Callable[[Session], Awaitable[T]], *, timeout_ms: float = 5000) -> T:
    """What `question` answers of the cluster behind these name servers, several joined by `;`."""

    async def ask() -> T:
        remoting = Remoting()
        try:
            return await question(Session(remoting, name_servers.split(";"), timeout_ms=timeout_ms))
        finally:
            await remoting.close()

    return asyncio.run(ask())
