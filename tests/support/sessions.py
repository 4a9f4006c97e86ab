"""Questions of an administrator's session, asked from a test that is not a coroutine."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import TypeVar

from orbitmq.admin.session import Session
from orbitmq.net.remoting import Remoting
from orbitmq.wire.bodies import BrokerData

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


async def without_master(session: Session, name: str = "broker-z") -> None:
    """From now on the session knows one broker name more, of which only a slave is registered that does not answer."""
    info = await session.info()
    cluster = next(iter(info.clusters))
    info.brokers[name] = BrokerData(name, cluster, {1: "127.0.0.1:1"})
    info.clusters[cluster].append(name)
