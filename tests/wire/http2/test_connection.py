"""The server's end of HTTP/2 against the client's end of another implementation, and against peers that break rules."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator

import h2.config
import h2.connection
import h2.events
import h2.settings
import hpack
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from orbitmq.wire.http2 import connection as module
from orbitmq.wire.http2 import frames
from orbitmq.wire.http2.connection import (
    CONTENT,
    CONTINUATIONS_MAX,
    REQUEST,
    RESET,
    STREAM_WINDOW,
    STREAMS_MAX,
    Event,
    Http2Connection,
    Stream,
)
from orbitmq.wire.http2.frames import frame_head
from orbitmq.wire.http2.hpack import encode_field

EVERY = 1 << 30
REQUEST_FIELDS = [(":method", "POST"), (":scheme", "http"), (":path", "/a/B"), (":authority", "me"), ("x-a", "1")]
RESPONSE = encode_field(":status", "200")
TRAILERS = encode_field("grpc-status", "0")
START = frames.PREFACE + frames.settings_frame({})


def request_block(fields: list[tuple[str, str]] | None = None) -> bytes:
    return b"".join([encode_field(name, value) for name, value in fields or REQUEST_FIELDS])


def headers(number: int, *, flags: int = frames.END_HEADERS, block: bytes | None = None) -> bytes:
    block = request_block() if block is None else block
    return frame_head(frames.HEADERS, flags, number, len(block)) + block


def data(number: int, payload: bytes = b"", *, is_last: bool = False) -> bytes:
    return frame_head(frames.DATA, frames.END_STREAM if is_last else 0, number, len(payload)) + payload


def frame(kind: int, number: int = 0, payload: bytes = b"", flags: int = 0) -> bytes:
    return frame_head(kind, flags, number, len(payload)) + payload


def opened(**limits: int) -> Http2Connection:
    connection = Http2Connection(**limits)
    assert connection.receive(START, 0.0, EVERY) == []
    connection.take()
    return connection


def fed(connection: Http2Connection, stream: bytes, now: float = 0.0) -> list[Event]:
    return connection.receive(stream, now, EVERY)


def kinds(events: list[Event]) -> list[int]:
    return [event.kind for event in events]


def sent_frames(stream: bytes) -> Iterator[tuple[int, int, int, bytes]]:
    """Type, flags, stream and payload."""
    while stream:
        size = int.from_bytes(stream[:3], "big")
        yield stream[3], stream[4], int.from_bytes(stream[5:9], "big"), stream[9 : 9 + size]
        stream = stream[9 + size :]


class Client:
    """The other implementation, connected to a server that echoes."""

    def __init__(self, *, window: int = 65_535, frame_size: int = 16_384) -> None:
        self.h2 = h2.connection.H2Connection(h2.config.H2Configuration(client_side=True))
        self.server = Http2Connection()
        self.received: dict[int, bytearray] = {}
        self.ended: set[int] = set()
        self.bodies: dict[int, bytearray] = {}
        self.h2.initiate_connection()
        self.h2.update_settings(
            {h2.settings.SettingCodes.INITIAL_WINDOW_SIZE: window, h2.settings.SettingCodes.MAX_FRAME_SIZE: frame_size}
        )

    def pump(self, size: int = EVERY) -> None:
        """Pass bytes on in pieces of `size`, until neither side has any."""
        while True:
            out = self.h2.data_to_send()
            for at in range(0, len(out), size):
                self._serve(fed(self.server, out[at : at + size]))
            back = self.server.take()
            if not out and not back:
                return
            for at in range(0, len(back), size):
                for event in self.h2.receive_data(back[at : at + size]):
                    self._note(event)

    def _serve(self, events: list[Event]) -> None:
        assert self.server.failure is None, self.server.failure
        for event in events:
            number = event.stream.number
            self.bodies.setdefault(number, bytearray()).extend(event.data)
            if event.is_last:
                self.server.send_headers(event.stream, RESPONSE, is_last=False)
                self.server.send_data(event.stream, bytes(self.bodies[number]))
                self.server.send_last_headers(event.stream, TRAILERS)

    def _note(self, event: h2.events.Event) -> None:
        if isinstance(event, h2.events.DataReceived):
            number = event.stream_id
            self.received.setdefault(number, bytearray()).extend(event.data)
            self.h2.acknowledge_received_data(event.flow_controlled_length, number)
        elif isinstance(event, h2.events.StreamEnded):
            self.ended.add(event.stream_id)

    def send(self, body: bytes, pad: int | None = None) -> int:
        number = self.h2.get_next_available_stream_id()
        self.h2.send_headers(number, REQUEST_FIELDS)
        rest = memoryview(body)
        while rest:
            self.pump()
            size = min(self.h2.local_flow_control_window(number) - 300, 16_000)
            self.h2.send_data(number, bytes(rest[:size]), pad_length=pad)
            rest = rest[size:]
        self.h2.end_stream(number)
        return number


@given(
    st.lists(st.tuples(st.integers(0, 20_000), st.none() | st.integers(0, 255)), min_size=1, max_size=3),
    st.sampled_from([100, 1000, 65_535, 1 << 20]),
    st.sampled_from([7, 500, EVERY]),
)
@settings(max_examples=30)
def test_bodies_come_back_through_any_window(bodies: list[tuple[int, int | None]], window: int, cut: int) -> None:
    if window == 100:  # each frame of the response costs a round
        bodies = [(size % 2000, pad) for size, pad in bodies]
    client = Client(window=window)
    sent = {client.send(bytes(range(256)) * (size // 256 + 1), pad): size // 256 + 1 for size, pad in bodies}
    client.pump(cut)
    assert client.ended == set(sent)
    for number, times in sent.items():
        assert client.received[number] == bytes(range(256)) * times
    assert client.server.streams == {}
    assert client.server.unsent_size == 0


def test_a_large_body_needs_updates_both_ways() -> None:
    client = Client(frame_size=1 << 20)
    number = client.send(b"x" * (STREAM_WINDOW + 1))
    client.pump()
    assert client.received[number] == b"x" * (STREAM_WINDOW + 1)


def test_a_stream_is_read_alike_wherever_it_is_cut() -> None:
    encoder = hpack.Encoder()
    block = encoder.encode(REQUEST_FIELDS)
    stream = START + frame(frames.HEADERS, 1, block[:3]) + frame(frames.CONTINUATION, 1, block[3:], frames.END_HEADERS)
    stream += data(1, b"hello") + frame(frames.PING, 0, b"12345678") + data(1, b"", is_last=True)
    whole = Http2Connection()
    expected = [(one.kind, one.data, one.is_last) for one in fed(whole, stream)]
    answer = whole.take()
    for cut in range(1, len(stream)):
        connection = Http2Connection()
        found = fed(connection, stream[:cut]) + fed(connection, stream[cut:])
        assert [(one.kind, one.data, one.is_last) for one in found] == expected
        assert connection.take() == answer
        assert connection.incomplete_since == math.inf
    single = Http2Connection()
    found = [one for byte in stream for one in fed(single, bytes((byte,)))]
    assert [(one.kind, one.data, one.is_last) for one in found] == expected
    assert found[0].stream.headers == {"x-a": "1"}
    assert (found[0].stream.method, found[0].stream.path) == ("POST", "/a/B")


def test_after_so_many_events_the_rest_is_left() -> None:
    connection = opened()
    events = connection.receive(b"".join([headers(number) for number in range(1, 21, 2)]), 0.0, 4)
    assert [event.stream.number for event in events] == [1, 3, 5, 7]
    assert connection.has_more
    assert len(connection.receive(b"", 0.0, 4)) == 4
    assert len(connection.receive(b"", 0.0, 4)) == 2
    assert not connection.has_more


def test_the_beginning_of_an_incomplete_frame_is_known() -> None:
    connection = opened()
    fed(connection, headers(1) + data(1, b"abc")[:-1], 5.0)
    assert connection.incomplete_since == 5.0
    fed(connection, b"c" + data(1, b"abc")[:4], 7.0)
    assert connection.incomplete_since == 7.0
    fed(connection, data(1, b"abc")[4:6], 8.0)
    assert connection.incomplete_since == 7.0
    fed(connection, data(1, b"abc")[6:], 9.0)
    assert connection.incomplete_since == math.inf


def test_a_response_leaves_in_one_piece() -> None:
    connection = opened()
    [event] = fed(connection, headers(1, flags=frames.END_HEADERS | frames.END_STREAM))
    connection.respond(event.stream, RESPONSE, b"hello", TRAILERS)
    found = list(sent_frames(connection.take()))
    assert [(kind, flags, payload) for kind, flags, _, payload in found] == [
        (frames.HEADERS, frames.END_HEADERS, RESPONSE),
        (frames.DATA, 0, b"hello"),
        (frames.HEADERS, frames.END_HEADERS | frames.END_STREAM, TRAILERS),
    ]
    assert connection.streams == {}


def test_whoever_still_sends_after_the_response_is_told_to_stop_and_forgiven() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    connection.send_headers(event.stream, RESPONSE, is_last=True)
    assert [kind for kind, *_ in sent_frames(connection.take())] == [frames.HEADERS, frames.RST_STREAM]
    assert fed(connection, data(1, b"late") + data(1, b"", is_last=True)) == []
    assert connection.failure is None


def test_streams_that_wait_take_turns() -> None:
    connection = opened()
    streams = [event.stream for event in fed(connection, headers(1) + headers(3))]
    fed(connection, frames.window_update(1, 1 << 20) + frames.window_update(3, 1 << 20))
    for stream in streams:
        connection.send_headers(stream, RESPONSE, is_last=False)
        connection.send_data(stream, b"x" * 500_000)
        connection.send_last_headers(stream, TRAILERS)
    connection.take()
    assert connection.unsent_size == 1_000_000 - 65_535
    fed(connection, frames.window_update(0, 256 << 10))
    sizes = {1: 0, 3: 0}
    for kind, _, number, payload in sent_frames(connection.take()):
        if kind == frames.DATA:
            sizes[number] += len(payload)
    assert sizes == {1: 128 << 10, 3: 128 << 10}
    assert set(connection.freed) == set(streams)
    fed(connection, frames.window_update(0, 1 << 20))
    assert connection.unsent_size == 0
    assert connection.streams == {}


def test_streams_whose_window_is_full_are_not_looked_at_again() -> None:
    connection = opened()
    fed(connection, frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 0}))
    for event in fed(connection, headers(1) + headers(3) + headers(5)):
        connection.send_data(event.stream, b"hello")
    assert connection._ready == {}
    fed(connection, frames.window_update(3, 100))
    assert b"hello" in connection.take()
    fed(connection, frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 100}))
    assert connection.take().count(b"hello") == 2
    assert connection.unsent_size == 0


def test_a_smaller_window_stops_a_stream_until_it_is_positive_again() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    connection.send_data(event.stream, b"x" * 60_000)
    connection.take()
    fed(connection, frames.settings_frame({frames.INITIAL_WINDOW_SIZE: 10_000}))
    assert event.stream.send_window == 10_000 - 60_000
    connection.send_data(event.stream, b"y" * 100)
    fed(connection, frames.window_update(1, 50_000))
    connection.take()
    assert event.stream.unsent_size == 100
    fed(connection, frames.window_update(1, 100))
    assert b"y" * 100 in connection.take()


def test_too_much_for_a_peer_that_takes_nothing_resets_the_stream() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    piece = b"x" * (16 << 20)
    assert [connection.send_data(event.stream, piece) for _ in range(4)] == [True] * 4
    assert not connection.send_data(event.stream, piece)
    assert event.stream.is_over
    assert connection.unsent_size == 0
    assert (frames.RST_STREAM, 1) in [(kind, number) for kind, _, number, _ in sent_frames(connection.take())]


def test_a_reset_ends_a_stream_and_what_waits() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    connection.send_data(event.stream, b"x" * 100_000)
    assert kinds(fed(connection, frames.rst_stream(1, frames.CANCEL))) == [RESET]
    assert connection.unsent_size == 0
    assert connection.streams == {}
    connection.take()
    connection.send_data(event.stream, b"more")
    connection.send_last_headers(event.stream, TRAILERS)
    assert connection.take() == b""


def test_after_the_goodbye_new_streams_are_not_served() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    connection.go_away("bye")
    connection.go_away("bye")
    [(kind, _, _, payload)] = sent_frames(connection.take())
    assert (kind, payload) == (frames.GOAWAY, b"\0\0\0\1\0\0\0\0bye")
    assert fed(connection, headers(3) + data(3, b"lost", is_last=True)) == []
    assert kinds(fed(connection, data(1, b"kept"))) == [CONTENT]
    connection.respond(event.stream, RESPONSE, b"", TRAILERS)
    assert connection.failure is None


def test_more_streams_than_allowed_are_refused_one_by_one() -> None:
    connection = opened(streams_max=2)
    assert kinds(fed(connection, headers(1) + headers(3) + headers(5) + data(5, b"x"))) == [REQUEST, REQUEST]
    [(kind, _, number, payload)] = sent_frames(connection.take())
    assert (kind, number, payload[3]) == (frames.RST_STREAM, 5, frames.REFUSED_STREAM)


@pytest.mark.parametrize(
    "fields",
    [
        [(":method", "POST"), (":scheme", "http")],
        [(":method", "POST"), (":path", "/"), ("x-a", "b"), (":scheme", "http")],
        [(":method", "POST"), (":method", "POST"), (":path", "/"), (":scheme", "http")],
        [*REQUEST_FIELDS, ("connection", "close")],
        [*REQUEST_FIELDS, ("Upper", "case")],
        [(":status", "200"), *REQUEST_FIELDS],
    ],
)
def test_malformed_requests_are_reset(fields: list[tuple[str, str]]) -> None:
    connection = opened()
    assert fed(connection, headers(1, block=request_block(fields))) == []
    [(kind, _, _, payload)] = sent_frames(connection.take())
    assert (kind, payload[3]) == (frames.RST_STREAM, frames.PROTOCOL_ERROR)
    assert kinds(fed(connection, headers(3))) == [REQUEST], "the others go on"


def test_trailers_end_a_request() -> None:
    connection = opened()
    trailers = headers(1, flags=frames.END_HEADERS | frames.END_STREAM, block=encode_field("x-a", "b"))
    events = fed(connection, headers(1) + data(1, b"x") + trailers)
    assert [(event.kind, event.is_last) for event in events] == [(REQUEST, False), (CONTENT, False), (CONTENT, True)]


def test_equal_names_are_joined() -> None:
    connection = opened()
    [event] = fed(connection, headers(1, block=request_block([*REQUEST_FIELDS, ("x-a", "2")])))
    assert event.stream.headers == {"x-a": "1,2"}


# ---------------------------------------------------------------------------------------- what ends the connection

FAULTS: list[tuple[str, bytes, int]] = [
    ("a frame that is too large", frame_head(frames.DATA, 0, 1, 16_385), frames.FRAME_SIZE_ERROR),
    ("data without a stream", data(1, b"x"), frames.PROTOCOL_ERROR),
    ("data on the connection", data(0, b"x"), frames.PROTOCOL_ERROR),
    ("headers on an even stream", headers(2), frames.PROTOCOL_ERROR),
    ("headers on the connection", headers(0), frames.PROTOCOL_ERROR),
    ("a lower stream", headers(5) + headers(3), frames.STREAM_CLOSED),
    ("data after the end", headers(1, flags=5) + data(1, b"x"), frames.STREAM_CLOSED),
    ("an incomplete block", frame(frames.HEADERS, 1, b"\x82") + data(1), frames.PROTOCOL_ERROR),
    ("a block of two streams", frame(1, 1, b"\x82") + frame(9, 3, b"", 4), frames.PROTOCOL_ERROR),
    ("a continuation of nothing", frame(frames.CONTINUATION, 1, b"\x82", 4), frames.PROTOCOL_ERROR),
    ("an unreadable block", headers(1, block=b"\xbe"), frames.COMPRESSION_ERROR),
    ("no padding", headers(1) + frame(0, 1, b"", frames.PADDED), frames.FRAME_SIZE_ERROR),
    ("too much padding", headers(1) + frame(0, 1, b"\x05abc", frames.PADDED), frames.PROTOCOL_ERROR),
    ("a stream that depends on itself", frame(1, 1, b"\0\0\0\1\0\x82", 0x24), frames.PROTOCOL_ERROR),
    ("a short priority", frame(1, 1, b"\0\0", 0x24), frames.FRAME_SIZE_ERROR),
    ("a priority of the wrong size", frame(frames.PRIORITY, 1, b"abc"), frames.FRAME_SIZE_ERROR),
    ("a reset of the wrong size", headers(1) + frame(frames.RST_STREAM, 1, b"abc"), frames.FRAME_SIZE_ERROR),
    ("a reset of no stream", frames.rst_stream(1, 8), frames.PROTOCOL_ERROR),
    ("a reset of the connection", frames.rst_stream(0, 8), frames.PROTOCOL_ERROR),
    ("settings of a stream", frame(frames.SETTINGS, 1), frames.PROTOCOL_ERROR),
    ("settings of the wrong size", frame(frames.SETTINGS, 0, b"abc"), frames.FRAME_SIZE_ERROR),
    ("an acknowledgement with settings", frame(frames.SETTINGS, 0, b"\0\1\0\0\0\0", 1), frames.FRAME_SIZE_ERROR),
    ("a window too large", frames.settings_frame({4: 1 << 31}), frames.FLOW_CONTROL_ERROR),
    ("frames too small", frames.settings_frame({5: 100}), frames.PROTOCOL_ERROR),
    ("a choice of three", frames.settings_frame({2: 2}), frames.PROTOCOL_ERROR),
    ("a short ping", frame(frames.PING, 0, b"abc"), frames.FRAME_SIZE_ERROR),
    ("a ping of a stream", frame(frames.PING, 1, b"12345678"), frames.PROTOCOL_ERROR),
    ("a short goodbye", frame(frames.GOAWAY, 0, b"abc"), frames.FRAME_SIZE_ERROR),
    ("a push", frame(frames.PUSH_PROMISE, 1, b"\0\0\0\2"), frames.PROTOCOL_ERROR),
    ("no more window", frames.window_update(0, 0), frames.PROTOCOL_ERROR),
    ("an update of the wrong size", frame(frames.WINDOW_UPDATE, 0, b"abc"), frames.FRAME_SIZE_ERROR),
    ("a window that overflows", frames.window_update(0, (1 << 31) - 1), frames.FLOW_CONTROL_ERROR),
    ("an update of no stream", frames.window_update(7, 1), frames.PROTOCOL_ERROR),
    (
        "a stream window that the settings make overflow",
        headers(1) + frames.window_update(1, (1 << 31) - 1 - 65_535) + frames.settings_frame({4: 65_536}),
        frames.FLOW_CONTROL_ERROR,
    ),
]


@pytest.mark.parametrize(("stream", "code"), [one[1:] for one in FAULTS], ids=[one[0] for one in FAULTS])
def test_faults_end_the_connection_with_their_code(stream: bytes, code: int) -> None:
    connection = opened()
    fed(connection, stream)
    assert connection.failure is not None
    assert connection.failure.code == code
    *_, (kind, _, _, payload) = sent_frames(connection.take())
    assert (kind, int.from_bytes(payload[4:8], "big")) == (frames.GOAWAY, code)
    assert fed(connection, headers(9)) == [], "nothing is read any more"
    assert not connection.has_more


@pytest.mark.parametrize("start", [b"GET / HTTP/1.1\r\n", b"PRI * HTTP/1", frames.PREFACE + headers(1)])
def test_what_does_not_begin_as_it_must_is_refused(start: bytes) -> None:
    connection = Http2Connection()
    fed(connection, start)
    assert connection.failure is not None
    assert connection.failure.code == frames.PROTOCOL_ERROR


def test_a_stream_window_that_overflows_ends_the_stream_only() -> None:
    connection = opened()
    events = fed(connection, headers(1) + frames.window_update(1, (1 << 31) - 1))
    assert kinds(events) == [REQUEST, RESET]
    assert connection.failure is None


def test_more_data_than_a_window_ends_the_stream_then_the_connection() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    event.stream.receive_window = 10
    assert kinds(fed(connection, data(1, b"x" * 11))) == [RESET]
    connection._receive_window = 10
    fed(connection, headers(3) + data(3, b"x" * 11))
    assert connection.failure is not None
    assert connection.failure.code == frames.FLOW_CONTROL_ERROR


def test_windows_are_enlarged_in_batches() -> None:
    connection = opened()
    fed(connection, headers(1))
    piece = data(1, b"x" * 16_384)
    for _ in range(STREAM_WINDOW // 2 // 16_384):
        fed(connection, piece)
    assert connection.take() == b""
    fed(connection, piece)
    [(kind, _, number, payload)] = sent_frames(connection.take())
    assert (kind, number) == (frames.WINDOW_UPDATE, 1)
    assert int.from_bytes(payload, "big") == STREAM_WINDOW // 2 + 16_384


def floods() -> list[tuple[str, Callable[[int], bytes]]]:
    return [
        ("pings", lambda _: frame(frames.PING, 0, b"12345678")),
        ("settings", lambda _: frames.settings_frame({})),
        ("priorities", lambda _: frame(frames.PRIORITY, 9, b"\0\0\0\0\0")),
        ("unknown frames", lambda _: frame(77, 0, b"")),
        ("empty data", lambda _: data(1)),
        ("rapid resets", lambda turn: headers(2 * turn + 3) + frames.rst_stream(2 * turn + 3, frames.CANCEL)),
        ("malformed requests", lambda turn: headers(2 * turn + 3, block=b"\x82")),
        ("bad updates", lambda turn: headers(2 * turn + 3) + frames.window_update(2 * turn + 3, 0)),
    ]


@pytest.mark.parametrize("flood", [one[1] for one in floods()], ids=[one[0] for one in floods()])
def test_floods_end_the_connection(flood: Callable[[int], bytes]) -> None:
    connection = opened()
    fed(connection, headers(1))
    for turn in range(5000):
        fed(connection, flood(turn), turn / 10_000)
        connection.take()
        if connection.failure is not None:
            break
    assert connection.failure is not None
    assert connection.failure.code == frames.ENHANCE_YOUR_CALM
    assert turn >= 2000, "a burst is allowed"


@pytest.mark.parametrize("flood", [one[1] for one in floods()], ids=[one[0] for one in floods()])
def test_the_same_at_leisure_is_allowed(flood: Callable[[int], bytes]) -> None:
    connection = opened()
    fed(connection, headers(1))
    for turn in range(5000):
        fed(connection, flood(turn), turn / 50)
        connection.take()
    assert connection.failure is None


@pytest.mark.parametrize("is_whole", [True, False])
def test_a_ping_at_each_response_measures_the_bandwidth(is_whole: bool) -> None:
    """As gRPC's clients do; a second one before the next response is without use."""
    connection = opened()
    ping = frame(frames.PING, 0, b"12345678")
    for turn in range(5000):
        [event] = fed(connection, headers(2 * turn + 1, flags=frames.END_HEADERS | frames.END_STREAM))
        if is_whole:
            connection.respond(event.stream, b"\x88", b"x", b"\x88")
        else:
            connection.send_headers(event.stream, b"\x88", is_last=False)
            connection.send_data(event.stream, b"x")
            connection.send_last_headers(event.stream, b"\x88")
        fed(connection, ping)
        assert connection.failure is None, turn
        connection.take()
    for _ in range(5000):
        fed(connection, ping)
    assert connection.failure is not None


def test_windows_made_larger_byte_by_byte_are_a_flood() -> None:
    connection = opened()
    [event] = fed(connection, headers(1))
    connection.send_data(event.stream, b"x" * 100_000)
    for _ in range(5000):
        fed(connection, frames.window_update(0, 1) + frames.window_update(1, 1))
    assert connection.failure is not None
    assert connection.failure.code == frames.ENHANCE_YOUR_CALM


@pytest.mark.parametrize("payload", [b"", b"\x82", b"\x82" * 16_000])
def test_endless_continuations_end_the_connection(payload: bytes) -> None:
    connection = opened()
    fed(connection, frame(frames.HEADERS, 1, payload))
    for _ in range(CONTINUATIONS_MAX):
        fed(connection, frame(frames.CONTINUATION, 1, payload))
        if connection.failure is not None:
            break
    assert connection.failure is not None
    assert connection.failure.code == frames.ENHANCE_YOUR_CALM


def test_headers_that_are_too_large_are_a_request_that_can_be_refused() -> None:
    connection = opened()
    block = request_block([*REQUEST_FIELDS, *[(f"x-{number}", "v" * 1000) for number in range(15)]])
    [event] = fed(connection, headers(1, block=block))
    assert not event.stream.is_too_large
    block = request_block([*REQUEST_FIELDS, *[(f"x-{number}", "v" * 1000) for number in range(17)]])
    pieces = [block[at : at + 16_000] for at in range(0, len(block), 16_000)]
    stream = frame(frames.HEADERS, 3, pieces[0]) + frame(frames.CONTINUATION, 3, pieces[1], frames.END_HEADERS)
    [event] = fed(connection, stream)
    assert event.stream.is_too_large


@given(st.lists(st.binary(max_size=60), max_size=20), st.data())
def test_any_bytes_are_events_or_a_failure(pieces: list[bytes], draw: st.DataObject) -> None:
    """Frames whose heads are right and whose payloads are not."""
    connection = opened()
    for piece in pieces:
        kind, flags = draw.draw(st.integers(0, 10)), draw.draw(st.integers(0, 255))
        number = draw.draw(st.sampled_from([0, 1, 3, 5, 7]))
        for event in fed(connection, frame(kind, number, piece, flags)):
            assert isinstance(event.stream, Stream)
        connection.take()
    assert len(connection.streams) <= STREAMS_MAX
    assert connection._receive_window <= module.CONNECTION_WINDOW
