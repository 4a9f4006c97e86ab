"""Requests that make a broker delete data now. It responds when it has started; log files are deleted later."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.call import call
from orbitmq.wire.requests import RequestCode


async def clean_expired_queues(remoting: Remoting, address: str, *, timeout_ms: float = 30_000) -> None:
    """CLEAN_EXPIRED_CONSUMEQUEUE: delete queues whose messages are all expired."""
    await call(remoting, address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, timeout_ms=timeout_ms)


async def clean_unused_topics(remoting: Remoting, address: str, *, timeout_ms: float = 30_000) -> None:
    """CLEAN_UNUSED_TOPIC: delete queues of topics that are not in the broker's table."""
    await call(remoting, address, RequestCode.CLEAN_UNUSED_TOPIC, timeout_ms=timeout_ms)


async def delete_expired_log(remoting: Remoting, address: str, *, timeout_ms: float = 30_000) -> None:
    """DELETE_EXPIRED_COMMITLOG: delete log files that have expired, without waiting for the night."""
    await call(remoting, address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=timeout_ms)
