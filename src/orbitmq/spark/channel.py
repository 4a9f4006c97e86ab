"""A blocking connection to a broker or name server, for code in a Spark task without an event loop.

Requests may be pipelined. Responses come in any order and are matched by their correlation number (opaque). Knows no
request codes.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Self

from orbitmq.errors import ConnectError, RemotingTimeout, SendRequestError
from orbitmq.net.tls import outgoing_context
from orbitmq.spark.inbox import Inbox, Response
from orbitmq.wire.command import Command
from orbitmq.wire.frame import encode_frame
from orbitmq.wire.signature import Credentials, sign

CONNECT_TIMEOUT_S = 3.0  # as Java clients wait
# Requests in flight: enough to keep both ends busy, and about 64 KiB. More than the buffers of both ends hold would be
# a deadlock: this end writes, and the peer reads nothing before its responses are read.
IN_FLIGHT_MAX = 256


@dataclass(frozen=True)
class Protection:
    """How connections are protected: a signature on each request, and TLS. Sent to the executors."""

    credentials: Credentials | None = None
    tls: bool = False
    verify: bool = True
    check_host: bool = True
    trusted: str = ""
    """File with certificate authorities, on each machine that connects. Empty trusts those of the machine."""

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """The socket, with TLS if configured. OSError when the peer is not trusted; ConfigurationError."""
        if not self.tls:
            return plain
        context = outgoing_context(verify=self.verify, check_host=self.check_host, trusted=self.trusted)
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except (OSError, ssl.SSLError):
            plain.close()
            raise


PLAIN = Protection()


class Channel:
    """A connection to `host:port`. ConnectError when it fails. Any later error leaves the connection unusable."""

    def __init__(self, address: str, timeout_ms: int, protection: Protection = PLAIN) -> None:
        self.address = address
        self._credentials = protection.credentials
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        try:
            plain = socket.create_connection((host, int(port)), CONNECT_TIMEOUT_S)
            self._socket = protection.wrapped(plain, host)
        except (OSError, ValueError) as error:
            raise ConnectError(f"no connection to {address}: {error}") from error
        self._socket.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._socket.settimeout(timeout_ms / 1000)
        self._inbox = Inbox()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def send(self, requests: Iterable[Command]) -> None:
        """Write requests without waiting for responses. SendRequestError when the connection is broken."""
        requests = list(requests)
        if self._credentials is not None:
            for request in requests:
                sign(request, self._credentials)
        try:
            self._socket.sendall(b"".join(map(encode_frame, requests)))
        except OSError as error:
            raise SendRequestError(f"the connection to {self.address} broke: {error}") from error

    def receive(self) -> list[Response]:
        """Wait for responses and return those that arrived, at least one; bodies are views of what was received.

        RemotingTimeout when none comes in time; FrameError and HeaderError as in `wire.frame`.
        """
        responses: list[Response] = []
        while not responses:
            try:
                count = self._socket.recv_into(self._inbox.room())
            except TimeoutError as error:
                raise RemotingTimeout(
                    f"no response from {self.address} within {self._socket.gettimeout()} s"
                ) from error
            except OSError as error:
                raise SendRequestError(f"the connection to {self.address} broke: {error}") from error
            if not count:
                raise SendRequestError(f"{self.address} closed the connection")
            responses = [(command, body) for command, body in self._inbox.take(count) if command.is_response]
        return responses

    def call(self, *requests: Command) -> list[Command]:
        """Send requests and return the responses in the same order. No other request may be in flight."""
        responses = dict(self.each(requests))
        return [responses[number] for number in range(len(requests))]

    def each(self, requests: Sequence[Command]) -> Iterator[tuple[int, Command]]:
        """Send any number of requests, many in flight, and return each response when it comes, with the number of its
        request. No other request may be in flight.
        """
        numbers: dict[int | None, int] = {}
        sent = 0
        while numbers or sent < len(requests):
            if more := requests[sent : sent + IN_FLIGHT_MAX - len(numbers)]:
                numbers.update((request.opaque, number) for number, request in enumerate(more, sent))
                sent += len(more)
                self.send(more)
            for response, body in self.receive():
                if (number := numbers.pop(response.opaque, None)) is not None:
                    response.body = bytes(body)
                    yield number, response
