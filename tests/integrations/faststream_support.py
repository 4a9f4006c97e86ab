"""What tests of the FastStream broker share."""

from __future__ import annotations

import uuid
from collections.abc import AsyncIterator, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import Any

from orbitmq.integrations.faststream import RocketMQBroker, TestRocketMQBroker

Opened = Callable[[RocketMQBroker], AbstractAsyncContextManager[RocketMQBroker]]
"""Starts a broker, and stops it in the end."""


def new_topic() -> str:
    return f"t-{uuid.uuid4().hex[:12]}"


def quiet(address: str, **options: Any) -> RocketMQBroker:
    """A broker that logs nothing."""
    return RocketMQBroker(address, logger=None, **options)


@asynccontextmanager
async def live(broker: RocketMQBroker) -> AsyncIterator[RocketMQBroker]:
    """Started at a broker of orbitmq or RocketMQ."""
    async with broker:
        await broker.start()
        yield broker


def memory(broker: RocketMQBroker) -> AbstractAsyncContextManager[RocketMQBroker]:
    """Started without one."""
    return TestRocketMQBroker(broker, connect_only=False)  # type: ignore[return-value]
