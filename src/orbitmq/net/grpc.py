"""Methods of gRPC and the calls of them, as their handlers see both. Must not know what a call means.

A handler is a plain function: it responds at once, or keeps the call and responds later, on the event loop.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Final

from orbitmq.errors import GrpcError
from orbitmq.wire.http2.connection import Stream
from orbitmq.wire.http2.frames import CANCEL
from orbitmq.wire.http2.grpc import (
    INTERNAL,
    OK_TRAILERS,
    RESPONSE_HEADERS,
    MessageReader,
    only_trailers,
    prefixed,
    trailers,
)

if TYPE_CHECKING:
    from orbitmq.net.grpc_connection import GrpcConnection

ROOM_FROM: Final = 64 << 10  # unsent bytes of a call up to which it may send more


class Method:
    """What handles calls of one path.

    `handler(call, message)` for one request message, `handler(call)` for a stream of them: it sets `call.on_message`
    before it returns. If it raises, the call ends with INTERNAL.
    """

    def __init__(self, handler: Callable[..., object], is_stream_of_requests: bool = False) -> None:
        self.handler = handler
        self.is_stream_of_requests = is_stream_of_requests
        self.count = 0
        """How many calls of it have begun."""


class Call:
    """One call. Its handler calls `reply`, or `send` any number of times and then `end`."""

    def __init__(self, connection: GrpcConnection, stream: Stream, method: Method, encoding: str) -> None:
        self._connection = connection
        self._stream = stream
        self._method = method
        self._reader = MessageReader(connection.message_size_max, encoding)
        self._message: bytes | None = None  # the only one of a request, until the peer has ended its stream
        self._has_headers = False  # whether those of the response are sent
        self._waits_for_room = False
        self._count = 0  # of messages passed to `send`
        self.path = stream.path
        """`/package.Service/Method`."""
        self.metadata = stream.headers
        """The headers of the request, names in lower case; values of equal names are joined by commas."""
        self.timeout_seconds: float | None = None
        """As the peer has sent it; None without one. The call ends by itself when it has passed."""
        self.is_over = False
        """Whether nothing can be sent any more: then all methods do nothing."""
        self.on_over: Callable[[], None] | None = None
        """Called once if the call ends before its handler has ended it, or before the peer was sent everything: it has
        cancelled the call, its connection is lost, or its time has passed."""
        self.on_message: Callable[[bytes], None] | None = None
        """Called with each message of a stream of requests."""
        self.on_half_close: Callable[[], None] | None = None
        """Called when the peer has sent its last message of a stream of requests."""
        self.on_room: Callable[[], None] | None = None
        """Called when `unsent` has fallen to ROOM_FROM or below, after it was above."""
        # For the connection:
        self.deadline = math.inf  # seconds of the loop's clock
        self.open_size = 0  # bytes of the message of a call that stays open
        self.pending_size = 0  # bytes of a message that is not complete
        self.incomplete_since = math.inf if method.is_stream_of_requests else connection.now

    @property
    def peer(self) -> str:
        """`host:port` of the peer."""
        return self._connection.address

    @property
    def connection(self) -> GrpcConnection:
        """The connection of this call."""
        return self._connection

    @property
    def unsent(self) -> int:
        """Bytes that wait because the peer does not take more now."""
        return self._stream.unsent_size + self._connection.unread_size

    @property
    def sent_count(self) -> int:
        """How many of the messages passed to `send` the peer was sent whole, also once the call is over."""
        return self._count - self._stream.unsent_count

    def reply(self, message: bytes) -> None:
        """The only message of the response, and its successful end."""
        if self.is_over:
            return
        if self._has_headers:
            self.send(message)
            self.end()
            return
        self._connection.http.respond(self._stream, RESPONSE_HEADERS, prefixed(message), OK_TRAILERS)
        self._close()

    def send(self, message: bytes) -> None:
        """One message of the response. If the peer takes too few of them, the call is over: see `unsent`."""
        if self.is_over:
            return
        http, stream = self._connection.http, self._stream
        if not self._has_headers:
            self._has_headers = True
            http.send_headers(stream, RESPONSE_HEADERS, is_last=False)
        self._count += 1
        if not http.send_data(stream, prefixed(message)):
            self._connection.note_unread(stream)
            self.cut_off()
            return
        if self.unsent > ROOM_FROM:
            self._waits_for_room = True
        self._connection.write_soon()

    def end(self, code: int = 0, text: str = "") -> None:
        """End the response with a gRPC status `code`, 0 for success, and `text` that says why."""
        if self.is_over:
            return
        http = self._connection.http
        if self._has_headers:
            http.send_last_headers(self._stream, trailers(code, text))
        else:
            http.send_headers(self._stream, only_trailers(code, text), is_last=True)
        self._close()

    def _close(self) -> None:
        self.is_over = True
        self._message = self.on_message = self.on_half_close = self.on_room = None
        self._connection.release(self)
        if self._stream.is_over:
            self._let_go()
        else:
            self.incomplete_since = self._connection.now  # its last bytes wait

    def _let_go(self) -> None:
        self.on_over = self._stream.owner = None  # otherwise each would hold the other until the next collection

    @property
    def is_sent(self) -> bool:
        """Whether nothing of the response waits any more."""
        return self._stream.is_over

    # ------------------------------------------------------------------------------------------- for the connection

    def open(self) -> None:
        """The headers are here: a stream of requests begins."""
        if self._method.is_stream_of_requests:
            try:
                self._method.handler(self)
            except Exception as error:  # it becomes the status
                self._fail(error)

    def take(self, data: bytes, *, is_last: bool) -> None:
        """Data of the peer; `is_last`: it sends no more."""
        try:
            messages = self._reader.feed(data) if data else []
            if self._keep(self._reader.pending_size, is_new=bool(messages)):
                if self._method.is_stream_of_requests:
                    self._pass_on(messages, is_last=is_last)
                else:
                    self._collect(messages, is_last=is_last)
        except GrpcError as error:
            self.end(error.status, str(error))
        except Exception as error:  # it becomes the status
            self._fail(error)

    def _keep(self, pending_size: int, *, is_new: bool) -> bool:
        """Account for a message that is not complete, `is_new` if one before it is. False if the connection ends."""
        if pending_size == self.pending_size:
            return True
        if not pending_size:
            self.incomplete_since = math.inf
        elif is_new or not self.pending_size:
            self.incomplete_since = self._connection.now
        return self._connection.hold_pending(self, pending_size)

    def _pass_on(self, messages: list[bytes], *, is_last: bool) -> None:
        for message in messages:
            if self.on_message is not None:  # as it is once the call is over
                self.on_message(message)
        if not is_last:
            return
        if self.pending_size:
            raise GrpcError(INTERNAL, "the stream ends within a message")
        if self.on_half_close is not None:
            self.on_half_close()

    def _collect(self, messages: list[bytes], *, is_last: bool) -> None:
        if messages:
            if len(messages) > 1 or self._message is not None:
                raise GrpcError(INTERNAL, "more than one message for a method that takes one")
            self._message = messages[0]
        if not is_last:
            return
        message, self._message = self._message, None
        if message is None or self.pending_size:
            raise GrpcError(INTERNAL, "the stream ends without a complete message")
        self._method.handler(self, message)
        if not self.is_over:
            self.incomplete_since = math.inf
            self._connection.hold_open(self, len(message))

    def _fail(self, error: Exception) -> None:
        self._connection.note_failure(self, error)
        self.end(INTERNAL, f"{type(error).__name__}: {error}")

    def cut_off(self) -> None:
        """Nothing more is sent, though the handler did not end the call or some of the response waits."""
        on_over, self.on_over = self.on_over, None
        self._close()
        if on_over is not None:
            try:
                on_over()
            except Exception as error:  # the other calls go on
                self._connection.note_failure(self, error)

    def end_for(self, code: int, text: str) -> None:
        """End the call for a reason that its handler does not know yet."""
        on_over = self.on_over
        if self._stream.unsent_size:
            self._connection.http.reset(self._stream, CANCEL)  # what waits is of no use any more
        else:
            self.end(code, text)
        self.on_over = on_over
        self.cut_off()

    def tell_room(self) -> None:
        """The peer has taken bytes."""
        if self.is_over:
            self.incomplete_since = self._connection.now
            if self._stream.is_over:
                self._let_go()
        if self._waits_for_room and self.unsent <= ROOM_FROM:
            self._waits_for_room = False
            if self.on_room is not None:
                try:
                    self.on_room()
                except Exception as error:  # it becomes the status
                    self._fail(error)
