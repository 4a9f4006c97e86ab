"""A peer that is no name server is named as what it is."""

from __future__ import annotations

import asyncio

import pytest

from orbitmq.errors import NotNameServer, SendRequestError
from orbitmq.net.grpc_server import GrpcServer
from orbitmq.net.routing import Router
from orbitmq.operations import routes
from tests.support.peers import remoting, serving


def test_a_broker_is_no_name_server() -> None:
    async def scenario() -> None:
        async with serving(Router("broker")) as (_, address), remoting() as asking:
            with pytest.raises(NotNameServer, match=f"{address} is no name server, it may be a broker"):
                await routes.route(asking, address, "T")
            with pytest.raises(NotNameServer, match="does not support GET_BROKER_CLUSTER_INFO"):
                await routes.cluster_info(asking, address)

    asyncio.run(scenario())


def test_a_web_server_is_named_as_one() -> None:
    async def respond(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.read(1)
        writer.write(b"HTTP/1.1 400 Bad Request\r\n\r\n")
        writer.close()

    async def scenario() -> None:
        async with await asyncio.start_server(respond, "127.0.0.1", 0) as server, remoting() as asking:
            port = server.sockets[0].getsockname()[1]
            with pytest.raises(SendRequestError, match="the peer speaks HTTP: this is the port of a web server"):
                await routes.topics(asking, f"127.0.0.1:{port}")

    asyncio.run(scenario())


def test_a_grpc_port_is_named_as_one() -> None:
    async def scenario() -> None:
        server = GrpcServer({})
        port = await server.start("127.0.0.1", 0)
        async with remoting() as asking:
            with pytest.raises(
                SendRequestError, match="the peer speaks gRPC: this is a port for clients of RocketMQ 5"
            ):
                await routes.topics(asking, f"127.0.0.1:{port}")
        await server.stop(0)

    asyncio.run(scenario())
