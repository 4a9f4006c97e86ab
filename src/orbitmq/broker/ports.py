"""The ports of a broker, and the address in its messages."""

from __future__ import annotations

import asyncio
import socket

from orbitmq.broker.options import BrokerOptions
from orbitmq.errors import ConfigurationError, cause_of
from orbitmq.message.hosts import encode_host
from orbitmq.net.server import Server
from orbitmq.replication.master import Replicas
from orbitmq.replication.slave import REPLICATION_DISTANCE

VIP_DISTANCE = 2  # how far the VIP port is below the port, for every client of RocketMQ
PORT_TRIES = 16  # any free port will do, but the one two below it may be taken: try a few times


async def bind_ports(server: Server, replicas: Replicas, options: BrokerOptions) -> int:
    """Bind the port for clients, which is returned, the one for the VIP channel, which serves the same, and the one for
    slaves. ConfigurationError if one cannot be bound.
    """
    is_given = options.listen_port != 0
    for tries_left in reversed(range(1 if is_given else PORT_TRIES)):
        port = await server.bind(options.listen_address, options.listen_port)
        second = options.fast_listen_port or port - VIP_DISTANCE
        try:
            await replicas.bind(options.listen_address, port + REPLICATION_DISTANCE, reuse=is_given)
            if second > 0:
                await _bind_vip(server, options.listen_address, second, reuse=is_given or options.fast_listen_port != 0)
            return port
        except ConfigurationError:
            server.release()
            replicas.release()
            if not tries_left:
                raise
    raise AssertionError("the last try returns or raises")


async def _bind_vip(server: Server, address: str, port: int, *, reuse: bool) -> None:
    try:
        await server.bind(address, port, reuse=reuse)
    except ConfigurationError as error:
        raise ConfigurationError(f"option fastListenPort: {error}") from cause_of(error)


async def host_field(name: str, port: int) -> bytes:
    """The store host of messages. brokerIP1 may be a host's name, too; IPv4 is preferred, as Java does."""
    try:
        found = await asyncio.get_running_loop().getaddrinfo(name.strip("[]"), port, type=socket.SOCK_STREAM)
    except (OSError, UnicodeError) as error:
        raise ConfigurationError(f"option brokerIP1: {name!r} is no address of a host: {error}") from error
    ip = str(min(found, key=lambda entry: entry[0] != socket.AF_INET)[4][0])
    return encode_host(ip, port)
