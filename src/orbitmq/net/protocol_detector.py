"""The first byte of a connection decides its protocol: TLS begins with 0x16, HTTP/2 with a P, a frame with neither.

A frame of such a length would be larger than any that is allowed. A plain connection passes the detector once; an
encrypted one keeps the TLS layer below, which is transport to the connection and protocol to the socket.
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import ssl
from collections.abc import Callable
from typing import Any, Protocol, cast

from orbitmq.net.tls import ServerTls
from orbitmq.runtime.refusals import Limit, Refusals
from orbitmq.wire.http2.frames import PREFACE

_log = logging.getLogger(__name__)

TLS_HANDSHAKE = 0x16
HANDSHAKE_SECONDS = 10.0  # a peer that has not finished by then only occupies a connection
READ_SIZE = 256 << 10  # decrypted bytes read at a time: what the loop reads from a socket at once


class Accepted(Protocol):
    """What a detector and a listener need of a connection, whatever it speaks."""

    transport: asyncio.Transport | None
    refusals: Refusals
    loop: asyncio.AbstractEventLoop
    peer: tuple[str, int]
    place_until: float

    @property
    def address(self) -> str: ...
    @property
    def has_left(self) -> bool: ...
    @property
    def is_idle(self) -> bool: ...
    @property
    def last_active(self) -> float: ...
    @property
    def frame_since(self) -> float: ...
    def connection_made(self, transport: asyncio.BaseTransport) -> None: ...
    def data_received(self, data: bytes) -> None: ...
    def pause_writing(self) -> None: ...
    def resume_writing(self) -> None: ...
    def connection_lost(self, exc: Exception | None, /) -> None: ...
    def close(self) -> None: ...
    def abort(self) -> None: ...


class ProtocolDetector(asyncio.Protocol):
    """The first protocol of an accepted connection, and with TLS also that of what it decrypts, if this may be gRPC."""

    def __init__(
        self, connection: Accepted, tls: ServerTls | None, accept_grpc: Callable[[], Accepted] | None = None
    ) -> None:
        self._connection = connection
        self._tls = tls if tls is not None and not tls.is_off else None
        self._accept_grpc = accept_grpc
        self._transport: asyncio.Transport | None = None
        self._opening: asyncio.Task[None] | None = None
        self._held: list[bytes] = []  # received while the certificate is made: next to nothing, reading is paused

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast("asyncio.Transport", transport)
        self._connection.connection_made(transport)

    def data_received(self, data: bytes) -> None:
        if self._opening is not None:
            self._held.append(data)
        elif self._tls is None:
            self._go_on(data)
        elif data[0] != TLS_HANDSHAKE:
            if self._tls.is_required:
                self._turn_away("it is plain, and tls.server.mode is enforcing")
            else:
                self._go_on(data)
        elif self._tls.ready is not None:
            self._begin(self._tls.ready, data)
        else:
            assert self._transport is not None
            self._transport.pause_reading()
            self._opening = asyncio.get_running_loop().create_task(self._begin_later(self._tls, data))

    def _go_on(self, data: bytes) -> None:
        """What comes now is not encrypted, or decrypted already."""
        transport = self._transport
        assert transport is not None
        connection = self._connection
        if self._accept_grpc is not None and data[0] == PREFACE[0]:
            connection.connection_lost(None)
            connection = self._accept_grpc()
            connection.connection_made(transport)
        transport.set_protocol(cast("asyncio.Protocol", connection))
        connection.data_received(data)

    async def _begin_later(self, tls: ServerTls, data: bytes) -> None:
        context = await tls.context()
        assert self._transport is not None
        if context is None:
            self._turn_away("there is no certificate")
        elif not self._transport.is_closing():
            self._transport.resume_reading()
            self._begin(context, b"".join((data, *self._held)))

    def _begin(self, context: ssl.SSLContext, data: bytes) -> None:
        assert self._transport is not None
        layer = TlsLayer(self._transport, context, self._connection)
        self._transport.set_protocol(layer)
        self._connection.transport = layer
        if self._accept_grpc is not None:
            self._transport, self._tls, self._opening = layer, None, None
            layer.receiver = self
        layer.data_received(data)

    def _turn_away(self, reason: str) -> None:
        text = "event=connection_refused peer=%s reason=%s"
        self._connection.refusals.note(Limit.MALFORMED, _log, text, self._connection.address, reason)
        self._connection.abort()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        if self._opening is not None:
            self._opening.cancel()
        self._connection.connection_lost(exc)


class TlsLayer(asyncio.Transport, asyncio.Protocol):
    """The server's end of TLS between a socket's transport and a connection.

    It buffers at most one incomplete record of the peer. Written data is encrypted at once, so that all pending data is
    in the socket's transport, where back-pressure and its limits apply.
    """

    def __init__(self, transport: asyncio.Transport, context: ssl.SSLContext, connection: Accepted) -> None:
        super().__init__()
        self._transport = transport
        self._connection = connection
        self.receiver: Accepted | ProtocolDetector = connection
        """What gets the decrypted bytes."""
        self._incoming, self._outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self._tls = context.wrap_bio(self._incoming, self._outgoing, server_side=True)
        self._is_ready = self._is_over = False
        self._deadline = asyncio.get_running_loop().call_later(HANDSHAKE_SECONDS, self._give_up)

    # ------------------------------------------------------------------------------------------ as protocol

    def data_received(self, data: bytes) -> None:
        self._incoming.write(data)
        if self._is_ready or self._shake_hands():
            self._read()

    def _shake_hands(self) -> bool:
        try:
            self._tls.do_handshake()
        except ssl.SSLWantReadError:
            self._send()
            return False
        except ssl.SSLError as error:
            text, reason = "event=tls_handshake_failed peer=%s reason=%s", error.reason or error
            self._connection.refusals.note(Limit.MALFORMED, _log, text, self._connection.address, reason)
            self._send()  # the alert that tells the peer the reason
            self._connection.close()
            return False
        self._is_ready = True
        self._deadline.cancel()
        self._send()
        return True

    def _give_up(self) -> None:
        text = "event=tls_handshake_failed peer=%s reason=timeout"
        self._connection.refusals.note(Limit.HANDSHAKE_TIME, _log, text, self._connection.address)
        self._connection.abort()

    def _read(self) -> None:
        chunks: list[bytes] = []
        try:
            while chunk := self._tls.read(READ_SIZE):
                chunks.append(chunk)
            self._is_over = True
        except ssl.SSLWantReadError:
            pass
        except ssl.SSLError as error:
            _log.info("event=tls_broken peer=%s reason=%s", self._connection.address, error.reason or error)
            self._is_over = True
        self._send()
        if chunks:
            self.receiver.data_received(chunks[0] if len(chunks) == 1 else b"".join(chunks))
        if self._is_over and not self._connection.has_left:
            self._transport.close()

    def eof_received(self) -> bool:
        return False

    def pause_writing(self) -> None:
        self._connection.pause_writing()

    def resume_writing(self) -> None:
        self._connection.resume_writing()

    def connection_lost(self, exc: Exception | None) -> None:
        self._deadline.cancel()
        self._connection.connection_lost(exc)

    # ----------------------------------------------------------------------------------------- as transport

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._is_ready or self._transport.is_closing():
            return
        rest = memoryview(data)
        try:
            while rest:
                rest = rest[self._tls.write(rest) :]
        except ssl.SSLError as error:
            _log.info("event=tls_broken peer=%s reason=%s", self._connection.address, error.reason or error)
            self.abort()
            return
        self._send()

    def _send(self) -> None:
        if self._outgoing.pending and not self._transport.is_closing():
            self._transport.write(self._outgoing.read())

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        """The connection that uses this transport from now on."""
        self._connection = self.receiver = cast("Accepted", protocol)

    def close(self) -> None:
        """Send close_notify, then close once everything is sent."""
        if self._is_ready and not self._transport.is_closing():
            with contextlib.suppress(ssl.SSLError):  # the peer's goodbye is not waited for
                self._tls.unwrap()
            self._send()
        self._transport.close()

    def abort(self) -> None:
        self._transport.abort()

    def is_closing(self) -> bool:
        return self._transport.is_closing()

    def pause_reading(self) -> None:
        self._transport.pause_reading()

    def resume_reading(self) -> None:
        """The connection has handled what it read: if a close_notify followed, it ends now."""
        if self._is_over:
            self._transport.close()
        else:
            self._transport.resume_reading()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._transport.set_write_buffer_limits(high, low)

    def get_write_buffer_size(self) -> int:
        return self._transport.get_write_buffer_size()

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return self._tls if name == "ssl_object" else self._transport.get_extra_info(name, default)


def opener(
    accept: Callable[[], Accepted], tls: ServerTls | None, accept_grpc: Callable[[], Accepted] | None = None
) -> Callable[[], asyncio.Protocol]:
    """What accepts: connections themselves where only one kind of them is taken. `accept_grpc` makes the connection of
    a peer that begins with HTTP/2.
    """
    if (tls is None or tls.is_off) and accept_grpc is None:
        return cast("Callable[[], asyncio.Protocol]", accept)
    return lambda: ProtocolDetector(accept(), tls, accept_grpc)
