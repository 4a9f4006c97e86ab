"""What a broker removes when it is told to. It answers when it has begun; expired files of the log go later."""

from __future__ import annotations

from orbitmq.net.remoting import Remoting
from orbitmq.operations.asking import ask
from orbitmq.wire.requests import RequestCode


async def clean_expired_queues(remoting: Remoting, address: str, *, timeout_ms: float = 30_000) -> None:
    """CLEAN_EXPIRED_CONSUMEQUEUE: queues that hold no message that is left."""
    await ask(remoting, address, RequestCode.CLEAN_EXPIRED_CONSUMEQUEUE, timeout_ms=timeout_ms)


async def clean_unused_topics(remoting: Remoting, address: str, *, timeout_ms: float = 30_000) -> None:
    """CLEAN_UNUSED_TOPIC: queues of topics that are not in the broker's table."""
    await ask(remoting, address, RequestCode.CLEAN_UNUSED_TOPIC, timeout_ms=timeout_ms)


async def delete_expired_log(remoting: Remoting, address: str, *, timeout_ms: float = 30_000) -> None:
    """DELETE_EXPIRED_COMMITLOG: files of the log that are older than they are kept, now instead of at night."""
    await ask(remoting, address, RequestCode.DELETE_EXPIRED_COMMITLOG, timeout_ms=timeout_ms)
