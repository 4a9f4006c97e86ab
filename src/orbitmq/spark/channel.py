"""One blocking connection to a broker or name server, for code that runs in a Spark task without an event loop.

Requests may be pipelined; their answers come in any order and are told apart by their correlation number.
Must not know what is asked.
"""

from __future__ import annotations

import socket
import ssl
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Self

from orbitmq.errors import ConnectError, RemotingTimeout, SendRequestError
from orbitmq.net.tls import asking_context
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.signature import Credentials, sign

CONNECT_TIMEOUT_S = 3.0  # as Java clients wait
RECEIVE_SIZE = 1 << 18  # about one full pull answer a call


@dataclass(frozen=True)
class Protection:
    """What protects connections: a signature on each request, and TLS. Travels to the executors."""

    credentials: Credentials | None = None
    tls: bool = False
    verify: bool = True
    check_host: bool = True
    trusted: str = ""
    """File of the authorities, on each machine that connects; empty means those the machine trusts."""

    def wrapped(self, plain: socket.socket, host: str) -> socket.socket:
        """The socket as requests go over it. OSError when the peer cannot be believed; ConfigurationError."""
        if not self.tls:
            return plain
        context = asking_context(verify=self.verify, check_host=self.check_host, trusted=self.trusted)
        try:
            return context.wrap_socket(plain, server_hostname=host)
        except (OSError, ssl.SSLError):
            plain.close()
            raise


PLAIN = Protection()


class Channel:
    """A connection to `host:port`. ConnectError when there is none; any later error leaves it unusable."""

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
        self._decoder = FrameDecoder(typed=False)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *error: object) -> None:
        self._socket.close()

    def send(self, requests: Iterable[Command]) -> None:
        """Write requests without waiting for their answers. SendRequestError when the connection is broken."""
        requests = list(requests)
        if self._credentials is not None:
            for request in requests:
                sign(request, self._credentials)
        try:
            self._socket.sendall(b"".join(map(encode_frame, requests)))
        except OSError as error:
            raise SendRequestError(f"the connection to {self.address} broke: {error}") from error

    def receive(self) -> list[Command]:
        """The answers that are there, at least one; waits for it.

        RemotingTimeout when none comes in time; FrameError and HeaderError as in `wire.frame`.
        """
        answers: list[Command] = []
        while not answers:
            try:
                data = self._socket.recv(RECEIVE_SIZE)
            except TimeoutError as error:
                raise RemotingTimeout(f"no answer from {self.address} within {self._socket.gettimeout()} s") from error
            except OSError as error:
                raise SendRequestError(f"the connection to {self.address} broke: {error}") from error
            if not data:
                raise SendRequestError(f"{self.address} closed the connection")
            answers = [command for command in self._decoder.feed(data) if command.is_response]
        return answers

    def call(self, *requests: Command) -> list[Command]:
        """Send requests and wait for the answers, in the order of the requests; nothing else may be under way."""
        self.send(requests)
        answers: dict[int | None, Command] = {}
        while len(answers) < len(requests):
            answers.update((answer.opaque, answer) for answer in self.receive())
        return [answers[request.opaque] for request in requests]
