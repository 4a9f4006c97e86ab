"""FastAPI: a producer by dependency, 503 while no broker stores, and an outbox in the application's own transaction."""

from __future__ import annotations

import logging
import os
import tempfile
import time
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Annotated, TypedDict

from fastapi import Depends, FastAPI, Header, HTTPException, Request
from fastapi.responses import JSONResponse
from fastapi.testclient import TestClient
from pydantic import BaseModel
from sqlalchemy import Column, MetaData, String, Table, create_engine, insert
from sqlalchemy.ext.asyncio import AsyncConnection, AsyncEngine, create_async_engine

from orbitmq.client import BrokerError, ClientError, Message, Producer, RemotingError
from orbitmq.client.idempotent import TOKEN_PROPERTY, serialised_sqlite
from orbitmq.integrations.outbox import OutboxRelay, OutboxTable
from orbitmq.testing import Cluster

metadata = MetaData()
orders = Table("orders", metadata, Column("number", String(50), primary_key=True))
outbox = OutboxTable(metadata)


class State(TypedDict):
    engine: AsyncEngine
    producer: Producer
    relay: OutboxRelay


@asynccontextmanager
async def lifespan(app: FastAPI) -> AsyncIterator[State]:
    """One of everything for each process: uvicorn and gunicorn run this in each worker, after the fork."""
    engine = create_async_engine(f"sqlite+aiosqlite:///{os.environ['SHOP_DATABASE']}?timeout=30")
    serialised_sqlite(engine.sync_engine)  # PostgreSQL and MySQL need no such care
    try:
        async with Producer("example-fastapi") as producer, OutboxRelay(engine, producer, outbox) as relay:
            yield {"engine": engine, "producer": producer, "relay": relay}
    finally:
        await engine.dispose()


app = FastAPI(lifespan=lifespan)


def running_producer(request: Request) -> Producer:
    producer: Producer = request.state.producer
    return producer


async def transaction(request: Request) -> AsyncIterator[AsyncConnection]:
    """It is committed when the endpoint returns, before the response, and rolled back when the endpoint raises."""
    async with request.state.engine.begin() as connection:
        yield connection


class Order(BaseModel):
    number: str
    item: str


@app.post("/clicks", status_code=202)
async def click(
    page: str,
    producer: Annotated[Producer, Depends(running_producer)],
    idempotency_key: Annotated[str, Header()],
) -> dict[str, str]:
    """Responds when a broker has stored the message, two seconds later at most. Who tries again sends the same key."""
    message = Message("ExampleClicks", page.encode(), properties={TOKEN_PROPERTY: idempotency_key})
    result = await producer.send(message, timeout=2.0)
    return {"id": result.msg_id}


@app.post("/orders", status_code=201)
async def place(
    order: Order, connection: Annotated[AsyncConnection, Depends(transaction, scope="function")]
) -> dict[str, str]:
    """The order and its message are committed together or not at all, whether a broker is there or not."""
    await connection.execute(insert(orders).values(number=order.number))
    message = Message("ExampleOrders", order.model_dump_json().encode(), tags="placed", keys=order.number)
    await connection.execute(outbox.insert(message, sharding_key=order.number))
    if order.item == "nothing":
        raise HTTPException(422, "an order of nothing")
    return {"number": order.number}


async def unavailable(request: Request, error: Exception) -> JSONResponse:
    """The brokers, or the network: the message may or may not be stored, so the client tries again."""
    return JSONResponse({"detail": "try again later"}, 503, {"Retry-After": "5"})


for kind in (BrokerError, ClientError, RemotingError):
    app.add_exception_handler(kind, unavailable)


@app.get("/readyz")
async def ready(request: Request) -> dict[str, float]:
    """Without a request to the brokers: an outage of them must not take every process out of service."""
    waiting = await request.state.relay.backlog()
    return {"outbox": waiting.messages, "oldest_s": waiting.oldest_s}


def create_tables() -> None:
    """Yours are made by a migration: `metadata` has the tables of the outbox, too."""
    metadata.create_all(create_engine(f"sqlite:///{os.environ['SHOP_DATABASE']}"))


def main(cluster: Cluster) -> None:
    create_tables()
    with TestClient(app) as client:
        headers = {"Idempotency-Key": "K-1"}
        print(f"click: {client.post('/clicks', params={'page': 'home'}, headers=headers).status_code}")
        cluster.kill()
        refused = client.post("/clicks", params={"page": "home"}, headers=headers)
        print(f"broker down, click: {refused.status_code}, again after {refused.headers['retry-after']} s")
        for number, item in (("O-1", "kettle"), ("O-2", "nothing"), ("O-3", "cup")):
            response = client.post("/orders", json={"number": number, "item": item})
            print(f"broker down, order {number}: {response.status_code}")
        print(f"waiting in the outbox: {client.get('/readyz').json()['outbox']:g}")
        cluster.restart()
        deadline = time.monotonic() + 60
        while client.get("/readyz").json()["outbox"] and time.monotonic() < deadline:
            time.sleep(0.05)
        print(f"broker back: the topic has {cluster.message_count('ExampleOrders')} orders")


if __name__ == "__main__":
    logging.getLogger("orbitmq").setLevel(logging.CRITICAL)  # of a broker that is killed here on purpose
    with Cluster() as started, tempfile.TemporaryDirectory() as directory:
        os.environ |= {"NAMESRV_ADDR": started.namesrv_address, "SHOP_DATABASE": f"{directory}/shop.db"}
        main(started)
