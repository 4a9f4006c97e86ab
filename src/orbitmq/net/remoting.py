"""The client side: one shared connection per address, made on demand. Must not know what any request means.

A request passes, in this order: fields that every request has, hooks of the application, the signature; fields that a
hook adds are signed.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import os
import socket
import ssl
from collections.abc import Awaitable, Callable, Mapping, Sequence
from typing import NamedTuple, Protocol

from orbitmq.errors import ConnectError, HookFailed, InvalidStateError, OrbitMQError, RemotingTimeout
from orbitmq.net.connection import Connection, Waiter
from orbitmq.net.routing import Router
from orbitmq.wire.command import FLAG_ONEWAY, Command

_log = logging.getLogger(__name__)

CONNECT_TIMEOUT_MS = 3000
IDLE_SECONDS = 120.0  # both sides of RocketMQ close a connection that was silent so long
IDLE_SCAN_SECONDS = 10.0
PORT_DIGITS = 5  # of an address; `int` refuses thousands of them otherwise than others


class RpcHook(Protocol):
    """Called on the event loop around every request of a client, also to name servers; it must not block. It may add
    fields to `request.ext`. An exception fails the request.
    """

    def before(self, address: str, request: Command, /) -> None:
        """A request is about to go to `address` (`host:port`)."""

    def after(self, address: str, request: Command, response: Command, /) -> None:
        """Called with the response. Not called for requests without a response."""


Dial = Callable[[Callable[[], Connection], str], Awaitable[Connection]]
"""Connects what its first argument makes to an address. ConnectError."""


class RequestInFlight(NamedTuple):
    """A request in flight."""

    connection: Connection
    number: int

    def forget(self) -> None:
        """Nobody waits for the response any more."""
        self.connection.forget(self.number)


class Remoting:
    """Connections to many peers. `router` handles requests that the peers send over them.

    `fields` are added to every outgoing request, then `hooks` see it, and `sign` is last; responses of the router pass
    none of them. `direct` returns the address to which a request is actually sent. `tls` encrypts every connection.
    `dial` makes connections otherwise than by the network.
    """

    def __init__(
        self,
        router: Router | None = None,
        *,
        connect_timeout_ms: float = CONNECT_TIMEOUT_MS,
        idle_seconds: float = IDLE_SECONDS,
        on_open: Callable[[str, Connection], None] | None = None,
        fields: Mapping[str, str] | None = None,
        hooks: Sequence[RpcHook] = (),
        sign: Callable[[Command], None] | None = None,
        direct: Callable[[str, Command], str] | None = None,
        tls: ssl.SSLContext | None = None,
        dial: Dial | None = None,
    ) -> None:
        self._dial = dial or self._dial_network
        self._fields = fields or {}
        self._hooks = tuple(hooks)
        self._sign = sign
        self.signs = sign is not None
        """Whether requests carry the signature of an account."""
        self.is_watched = bool(self._hooks)
        """Whether there are hooks, which see every response before its caller does."""
        self._direct = direct
        self._changes = bool(self._fields or self._hooks or sign)
        self._tls = tls
        self.router = router or Router("client")
        self._connect_timeout_ms = connect_timeout_ms
        self._idle_seconds = idle_seconds
        self._on_open = on_open
        self._connections: dict[str, Connection] = {}
        self._connecting: dict[str, asyncio.Task[Connection]] = {}
        self._scan: asyncio.TimerHandle | None = None
        self._closed = False

    async def call(self, address: str, command: Command, timeout_ms: float) -> Command:
        """Send a request to `address` (`host:port`) and return its response, whatever its code.

        `timeout_ms` covers connecting and waiting. ConnectError, SendRequestError, RemotingTimeout.
        """
        loop = asyncio.get_running_loop()
        deadline = loop.time() + timeout_ms / 1000
        if self._direct is not None:
            address = self._direct(address, command)
        connection = self._usable(address) or await self._connect(address, timeout_ms)
        left_ms = (deadline - loop.time()) * 1000
        if left_ms <= 0:
            raise RemotingTimeout(f"no time left of {timeout_ms:.0f} ms after connecting to {address}")
        if self._changes:
            self._prepare(address, command)
        response = await connection.call(command, left_ms)
        if self._hooks:
            self._show(address, command, response)
        return response

    def start_call(self, address: str, command: Command, timeout_ms: float, waiter: Waiter) -> RequestInFlight | None:
        """`call` if that needs no wait; `waiter` gets the response. None, and nothing is sent, if there is no open
        connection, its peer does not read at the moment, or there are hooks.
        """
        if self._direct is not None:
            address = self._direct(address, command)
        connection = self._usable(address)
        if connection is None or not connection.takes_more or self.is_watched:
            return None
        if self._changes:
            self._prepare(address, command)
        return RequestInFlight(connection, connection.start_call(command, timeout_ms, waiter))

    async def oneway(self, address: str, command: Command, timeout_ms: float = CONNECT_TIMEOUT_MS) -> None:
        """Send a oneway request; ConnectError if there is no connection."""
        command.flag |= FLAG_ONEWAY
        if self._direct is not None:
            address = self._direct(address, command)
        connection = self._usable(address) or await self._connect(address, timeout_ms)
        await connection.wait_writable(timeout_ms)
        if self._changes:
            self._prepare(address, command)
        connection.send(command)

    def oneway_nowait(self, address: str, command: Command) -> bool:
        """`oneway` if that needs no wait; False, and nothing is sent, if there is no open connection or its peer does
        not read at the moment. HookFailed.
        """
        if self._direct is not None:
            address = self._direct(address, command)
        connection = self._usable(address)
        if connection is None or not connection.takes_more:
            return False
        self.tell(connection, command)
        return True

    def tell(self, connection: Connection, command: Command) -> None:
        """Send a oneway request over this connection; a closed one drops it."""
        command.flag |= FLAG_ONEWAY
        if self._changes:
            self._prepare(connection.address, command)
        connection.send(command)

    def _prepare(self, address: str, command: Command) -> None:
        """What happens to a request before it is written. HookFailed names the hook that did not let it go."""
        if self._fields:
            command.ext = {**(command.ext or {}), **self._fields}
        for hook in self._hooks:
            try:
                hook.before(address, command)
            except Exception as error:
                raise _failed(hook, address, command, error) from error
        if self._sign is not None:
            self._sign(command)

    def _show(self, address: str, command: Command, response: Command) -> None:
        for hook in self._hooks:
            try:
                hook.after(address, command, response)
            except Exception as error:
                raise _failed(hook, address, command, error) from error

    def connection(self, address: str) -> Connection | None:
        """The open connection to `address`, if there is one."""
        return self._usable(address)

    def disconnect(self, address: str) -> None:
        """Close the connection to `address`; calls in flight fail at once."""
        connection = self._connections.pop(address, None)
        if connection is not None:
            connection.close()

    def _usable(self, address: str) -> Connection | None:
        connection = self._connections.get(address)
        return connection if connection is not None and connection.is_open else None

    async def _connect(self, address: str, timeout_ms: float) -> Connection:
        """Join a connection attempt in progress or begin one: all callers of an address share it."""
        if self._closed:
            raise InvalidStateError("this client is shut down")
        task = self._connecting.get(address)
        if task is None:
            task = asyncio.get_running_loop().create_task(self._open(address))
            self._connecting[address] = task
            task.add_done_callback(lambda done: self._connect_done(address, done))
        try:
            # Shielded: one caller's timeout must not cancel the attempt the others wait for. Not wait_for: in Python
            # 3.11 it loses a cancellation that coincides with the result.
            async with asyncio.timeout(timeout_ms / 1000):
                return await asyncio.shield(task)
        except asyncio.CancelledError:
            if task.cancelled():  # by `close`, not by the caller
                raise InvalidStateError("this client is shut down") from None
            raise
        except TimeoutError as error:
            raise ConnectError(f"no connection to {address} in {timeout_ms:.0f} ms") from error

    def _connect_done(self, address: str, task: asyncio.Task[Connection]) -> None:
        self._connecting.pop(address, None)
        if not task.cancelled():
            task.exception()  # every waiter may have timed out; the failure is theirs, not the loop's to report

    async def _open(self, address: str) -> Connection:
        connection = await self._dial(lambda: Connection(self.router, serving=False), address)
        if self._closed:
            connection.abort()
            raise InvalidStateError("this client is shut down")
        self._connections[address] = connection
        connection.when_closed(lambda gone: self._gone(address, gone))
        if self._scan is None:
            self._scan = asyncio.get_running_loop().call_later(IDLE_SCAN_SECONDS, self._close_idle)
        if self._on_open:
            self._on_open(address, connection)
        return connection

    async def _dial_network(self, make: Callable[[], Connection], address: str) -> Connection:
        host, port = split_address(address)
        name = host if self._tls is not None else None
        loop = asyncio.get_running_loop()
        try:
            async with asyncio.timeout(self._connect_timeout_ms / 1000):
                _, connection = await loop.create_connection(make, host, port, ssl=self._tls, server_hostname=name)
        except (OSError, ValueError) as error:  # routes may contain invalid host names: a ValueError of their encoding
            raise ConnectError(f"cannot connect to {address}: {_reason(error)}") from error
        return connection

    def _gone(self, address: str, connection: Connection) -> None:
        if self._connections.get(address) is connection:
            del self._connections[address]

    def _close_idle(self) -> None:
        loop = asyncio.get_running_loop()
        deadline = loop.time() - self._idle_seconds
        for connection in list(self._connections.values()):
            if connection.last_active < deadline:
                connection.close()
        self._scan = loop.call_later(IDLE_SCAN_SECONDS, self._close_idle)

    def hang_up(self) -> None:
        """End every connection of an event loop that does not run any more, as far as the peers are concerned."""
        for connection in self._connections.values():
            transport = connection.transport
            open_socket = transport.get_extra_info("socket") if transport is not None else None
            if open_socket is None:
                continue  # the loop has closed it
            with contextlib.suppress(OSError), socket.socket(fileno=os.dup(open_socket.fileno())) as copy:
                copy.shutdown(socket.SHUT_RDWR)

    async def close(self) -> None:
        """Close every connection after writing what is queued; calls in flight fail at once."""
        self._closed = True
        if self._scan is not None:
            self._scan.cancel()
        for task in list(self._connecting.values()):
            task.cancel()
        for connection in list(self._connections.values()):
            connection.close()
        await asyncio.sleep(0)
        self._connections.clear()


def _failed(hook: RpcHook, address: str, command: Command, error: Exception) -> OrbitMQError:
    if isinstance(error, OrbitMQError):
        return error
    name = type(hook).__name__
    return HookFailed(f"hook {name} failed request {command.code} to {address}: {type(error).__name__}: {error}")


def _reason(error: OSError | ValueError) -> str:
    """Without the address, which asyncio repeats. Errors of TLS and of names have numbers of their own."""
    if isinstance(error, OSError) and not isinstance(error, (ssl.SSLError, socket.gaierror)) and error.errno:
        return os.strerror(error.errno)
    return (error.strerror if isinstance(error, socket.gaierror) else None) or str(error) or "timed out"


def split_address(address: str) -> tuple[str, int]:
    """`host:port` -> (host, port); the last colon splits, brackets around an IPv6 address are taken off."""
    host, colon, port = address.rpartition(":")
    if not colon or not port.isdecimal() or len(port) > PORT_DIGITS or not 0 < int(port) < 65536:
        raise ConnectError(f"address {address!r} is not host:port")
    return host.strip("[]"), int(port)
