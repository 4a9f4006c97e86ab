"""Databases for the tests of the outbox, and what a relay made of them."""

from __future__ import annotations

from pathlib import Path

from sqlalchemy import Engine, create_engine
from sqlalchemy.ext.asyncio import AsyncEngine, create_async_engine

from orbitmq.client import MessageExt, PullConsumer
from orbitmq.client.idempotent import serialised_sqlite

BUSY_S = 30  # SQLite waits so long for other writers


def sqlite_url(folder: Path) -> str:
    return f"sqlite:///{folder}/shop.db?timeout={BUSY_S}"


def made_engine(url: str) -> Engine:
    engine = create_engine(url)
    return serialised_sqlite(engine) if engine.dialect.name == "sqlite" else engine


def made_async_engine(url: str) -> AsyncEngine:
    engine = create_async_engine(url.replace("sqlite://", "sqlite+aiosqlite://"))
    if engine.dialect.name == "sqlite":
        serialised_sqlite(engine.sync_engine)
    return engine


async def arrived(namesrv_address: str, topic: str) -> list[MessageExt]:
    """All messages of a topic, those of a queue in its order."""
    async with PullConsumer("outbox-readers", namesrv_address) as consumer:
        return [message async for message in consumer.read_all(topic)]
