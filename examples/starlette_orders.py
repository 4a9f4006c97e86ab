"""Starlette: a producer and a background consumer in the lifespan, and a server that ends with nothing half done."""

from __future__ import annotations

import asyncio
import json
import logging
import os
import socket
import threading
import urllib.request
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import TypedDict

import uvicorn
from starlette.applications import Starlette
from starlette.requests import Request
from starlette.responses import JSONResponse, PlainTextResponse, Response
from starlette.routing import Route

from orbitmq.client import (
    BrokerError,
    ClientError,
    ConcurrentContext,
    ConsumeConcurrentlyStatus,
    ConsumeFromWhere,
    Message,
    MessageExt,
    Producer,
    PushConsumer,
    RemotingError,
    sync,
)

TOPIC = "ExampleStarlette"
NAME_SERVERS = os.environ.get("NAMESRV_ADDR", "127.0.0.1:9876")
begun, ended = set[str](), set[str]()
is_working = threading.Event()
log = logging.getLogger("uvicorn.error")  # of the server, despite its name


async def bill(messages: Sequence[MessageExt], context: ConcurrentContext) -> ConsumeConcurrentlyStatus:
    for message in messages:
        begun.add(message.keys)
        is_working.set()
        await asyncio.sleep(0.2)  # the work
        ended.add(message.keys)
        log.info("%s is billed", message.keys)
    return ConsumeConcurrentlyStatus.CONSUME_SUCCESS


class State(TypedDict):
    producer: Producer
    consumer: PushConsumer


@asynccontextmanager
async def lifespan(app: Starlette) -> AsyncIterator[State]:
    """On SIGTERM the server finishes its requests, then this leaves: listeners end, offsets are stored."""
    consumer = PushConsumer(
        "example-starlette-billing", NAME_SERVERS, consume_threads=2, await_termination_ms=10_000,
        consume_from_where=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
    )  # fmt: skip
    consumer.subscribe(TOPIC)
    consumer.set_listener(bill)
    async with Producer("example-starlette", NAME_SERVERS) as producer, consumer:
        yield {"producer": producer, "consumer": consumer}


async def place(request: Request) -> Response:
    order = await request.json()
    message = Message(TOPIC, await request.body(), keys=order["number"])
    result = await request.state.producer.send(message, sharding_key=order["number"], timeout=2.0)
    return JSONResponse({"id": result.msg_id}, 202)


async def ready(request: Request) -> Response:
    """Traffic may come: both clients have started. An outage of brokers changes nothing here."""
    is_ready = request.state.producer.is_running and request.state.consumer.is_running
    return PlainTextResponse("ready\n" if is_ready else "starting\n", 200 if is_ready else 503)


async def unavailable(request: Request, error: Exception) -> Response:
    return JSONResponse({"detail": "try again later"}, 503, {"Retry-After": "5"})


app = Starlette(
    routes=[Route("/orders", place, methods=["POST"]), Route("/readyz", ready)],
    exception_handlers=dict.fromkeys((BrokerError, ClientError, RemotingError), unavailable),
    lifespan=lifespan,
)


def use(address: str, server: uvicorn.Server) -> None:
    """A client of the application, on a thread of its own."""
    with urllib.request.urlopen(f"{address}/readyz") as response:
        print(f"ready: {response.status}")
    for number in range(8):
        body = json.dumps({"number": f"O-{number}"}).encode()
        request = urllib.request.Request(f"{address}/orders", body, {"Content-Type": "application/json"})
        with urllib.request.urlopen(request) as response:
            assert response.status == 202
    print("8 orders are stored")
    is_working.wait(30)
    server.should_exit = True  # as SIGTERM does


def main() -> None:
    with sync.Producer("example-starlette", NAME_SERVERS) as producer:
        producer.create_topic(TOPIC)  # yours is there: `orbitmq topic create`
    with socket.create_server(("127.0.0.1", 0)) as listening:
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        server = uvicorn.Server(uvicorn.Config(app, log_level="warning"))
        threading.Thread(target=use, args=(address, server)).start()  # its first request waits for the start
        server.run([listening])
    print(f"stopped: {len(begun)} begun, {'all' if begun == ended else 'not all'} ended")


if __name__ == "__main__":
    main()
