"""Any command survives its frame, any cut of the stream gives the same commands, and no bytes do harm."""

from __future__ import annotations

import json
from contextlib import suppress

import pytest
from hypothesis import given
from hypothesis import strategies as st

from orbitmq.errors import FrameError, HeaderError
from orbitmq.wire.codes import LANGUAGES, SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FRAME_SIZE_MAX, FrameDecoder, encode_frame
from orbitmq.wire.headers import PullMessageHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.text_map import to_ext

INT32 = st.integers(-(1 << 31), (1 << 31) - 1)
INT16 = st.integers(-(1 << 15), (1 << 15) - 1)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)
BODIES = st.binary(max_size=100)
FILLED = TEXTS.filter(bool)  # a binary header cannot tell an empty text from none

JSON_COMMANDS = st.builds(
    Command,
    code=INT32,
    ext=st.none() | st.dictionaries(TEXTS, TEXTS, max_size=5),
    flag=INT32,
    language=st.sampled_from(LANGUAGES),
    opaque=INT32,
    remark=st.none() | TEXTS,
    version=INT32,
    body=BODIES,
    serialize_type=st.just(int(SerializeType.JSON)),
)
BINARY_COMMANDS = st.builds(
    Command,
    code=INT16,
    ext=st.none() | st.dictionaries(FILLED, FILLED, min_size=1, max_size=5),
    flag=INT32,
    language=st.sampled_from(LANGUAGES),
    opaque=INT32,
    remark=st.none() | FILLED,
    version=INT16,
    body=BODIES,
    serialize_type=st.just(int(SerializeType.ROCKETMQ)),
)
COMMANDS = JSON_COMMANDS | BINARY_COMMANDS


def pull_request(serialize_type: int = SerializeType.JSON) -> Command:
    header = PullMessageHeader("g", "T", 1, 2, 32, 6, 0, 15_000, 0)
    command = request(RequestCode.PULL_MESSAGE, header)
    command.serialize_type = serialize_type
    return command


@given(COMMANDS)
def test_command_survives_its_frame(command: Command) -> None:
    assert FrameDecoder(typed=False).feed(encode_frame(command)) == [command]


@given(st.lists(COMMANDS, max_size=6), st.data())
def test_any_cut_of_the_stream_gives_the_same_commands(commands: list[Command], data: st.DataObject) -> None:
    stream = b"".join(map(encode_frame, commands))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=12)))
    chunks = [stream[start:end] for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True)]
    decoder = FrameDecoder(typed=False)
    assert [command for chunk in chunks for command in decoder.feed(chunk)] == commands
    assert decoder.pending_size == 0


@given(st.lists(COMMANDS, max_size=6), st.integers(1, 4), st.data())
def test_so_many_commands_at_a_time_are_the_same_commands(
    commands: list[Command], count_max: int, data: st.DataObject
) -> None:
    stream = b"".join(map(encode_frame, commands))
    cuts = sorted(data.draw(st.lists(st.integers(0, len(stream)), max_size=4)))
    decoder, found = FrameDecoder(typed=False, count_max=count_max), []
    for start, end in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        portions = [decoder.feed(stream[start:end])]
        while decoder.has_more and data.draw(st.booleans()):  # new data may also find what is left
            portions.append(decoder.feed(b""))
        assert all(len(portion) <= count_max for portion in portions)
        found += portions
    while decoder.has_more:
        found.append(decoder.feed(b""))
    assert [command for portion in found for command in portion] == commands
    assert decoder.pending_size == 0


def test_stream_may_come_byte_by_byte() -> None:
    frame = encode_frame(pull_request())
    decoder = FrameDecoder()
    assert [len(decoder.feed(bytes([byte]))) for byte in frame] == [0] * (len(frame) - 1) + [1]


@given(INT32, INT32, TEXTS)
def test_headers_of_the_load_are_typed_whatever_their_values(count: int, flags: int, group: str) -> None:
    header = PullMessageHeader(group, "T", 1, 2, count, flags, 0, 15_000, 0, subscription="a || b")
    (command,) = FrameDecoder().feed(encode_frame(request(RequestCode.PULL_MESSAGE, header)))
    assert command.header(PullMessageHeader) == header


@pytest.mark.parametrize("name", ["queueId", "queueOffset"])
@pytest.mark.parametrize("kind", SerializeType)
def test_number_that_java_could_not_hold_is_refused(name: str, kind: SerializeType) -> None:
    command = pull_request(kind)
    assert command.ext is not None
    command.ext[name] = str(1 << 63)
    (again,) = FrameDecoder().feed(encode_frame(command))
    with pytest.raises(HeaderError, match=name):
        again.header(PullMessageHeader)


@given(st.dictionaries(st.sampled_from("abcdefghijklmn"), TEXTS))
def test_incomplete_or_odd_headers_of_the_load_do_no_harm(ext: dict[str, str]) -> None:
    text = json.dumps({"code": 310, "extFields": ext, "opaque": 1}, separators=(",", ":")).encode()
    frame = (4 + len(text)).to_bytes(4, "big") + len(text).to_bytes(4, "big") + text
    (command,) = FrameDecoder().feed(frame)
    assert command.code == RequestCode.SEND_MESSAGE_V2
    with suppress(HeaderError):
        header = to_ext(command.header(SendMessageV2Header))
        assert header["b"] == ext["b"]


@given(st.binary(max_size=200), st.booleans())
def test_any_bytes_give_commands_or_an_error_of_the_peer(data: bytes, typed: bool) -> None:
    with suppress(FrameError, HeaderError):
        FrameDecoder(typed=typed).feed(data)


@given(COMMANDS, st.data(), st.booleans())
def test_mutated_frame_gives_commands_or_an_error_of_the_peer(
    command: Command, data: st.DataObject, typed: bool
) -> None:
    frame = bytearray(encode_frame(command))
    for _ in range(data.draw(st.integers(1, 4))):
        frame[data.draw(st.integers(4, len(frame) - 1))] = data.draw(st.integers(0, 255))
    with suppress(FrameError, HeaderError):
        for found in FrameDecoder(typed=typed).feed(bytes(frame)):
            with suppress(HeaderError):
                found.header(PullMessageHeader)


def framed(header: bytes, *, kind: int = 0, header_size: int | None = None, size: int | None = None) -> bytes:
    inner = len(header) if header_size is None else header_size
    total = 4 + len(header) if size is None else size
    return total.to_bytes(4, "big") + bytes([kind]) + inner.to_bytes(3, "big") + header


@pytest.mark.parametrize(
    ("data", "error"),
    [
        ((FRAME_SIZE_MAX - 3).to_bytes(4, "big"), FrameError),
        (b"\xff\xff\xff\xff", FrameError),
        (framed(b"{}", header_size=3), FrameError),
        (framed(b"{}", kind=2), FrameError),
        (b"\x00\x00\x00\x03\x00\x00\x00", FrameError),
        (framed(b"{not json"), HeaderError),
        (framed(b"[]"), HeaderError),
        (framed(b'{"code":{}}'), HeaderError),
        (framed(b'{"extFields":7}'), HeaderError),
        (framed(b"\xff\xfe"), HeaderError),
        (framed(b"short", kind=1), HeaderError),
        (framed(bytes(13) + b"\x00\x00\x00\x01\xff\x00\x00\x00\x00", kind=1), HeaderError),
    ],
)
def test_what_java_closes_the_connection_for_is_an_error(data: bytes, error: type[Exception]) -> None:
    with pytest.raises(error):
        FrameDecoder().feed(data)


def test_a_length_that_cannot_be_met_fails_when_its_last_byte_is_there() -> None:
    decoder = FrameDecoder()
    assert [decoder.feed(b"\xff") for _ in range(3)] == [[], [], []]
    with pytest.raises(FrameError):
        decoder.feed(b"\xff")


def test_a_language_that_is_no_name_survives_its_frame() -> None:
    command = pull_request()
    command.language = 'a "language"\n\x00'
    assert FrameDecoder(typed=False).feed(encode_frame(command)) == [command]


def test_largest_frame_is_accepted_and_one_byte_more_is_not() -> None:
    assert FrameDecoder().feed((FRAME_SIZE_MAX - 4).to_bytes(4, "big")) == []
    with pytest.raises(FrameError, match=str(FRAME_SIZE_MAX)):
        FrameDecoder().feed((FRAME_SIZE_MAX - 3).to_bytes(4, "big"))


def test_decoder_holds_no_more_than_one_frame() -> None:
    frame = encode_frame(pull_request())
    decoder = FrameDecoder()
    for at in range(0, 200 * len(frame), 37):
        decoder.feed((frame * 2)[at % len(frame) : at % len(frame) + 37])
        assert decoder.pending_size < len(frame)


def test_duplicate_keys_of_a_binary_header_are_legal_and_the_last_wins() -> None:
    def entry(key: bytes, value: bytes) -> bytes:
        return len(key).to_bytes(2, "big") + key + len(value).to_bytes(4, "big") + value

    ext = entry(b"a", b"1") + entry(b"b", b"") + entry(b"a", b"2") + entry(b"", b"x")
    header = bytes.fromhex("000b 00 0197 00000009 00000000 00000000") + len(ext).to_bytes(4, "big") + ext
    (command,) = FrameDecoder().feed(framed(header, kind=1))
    assert command.ext == {"a": "2"}


def test_body_parts_are_sent_as_one_body() -> None:
    command = pull_request()
    command.body_parts = (b"one", memoryview(b"two"))
    (again,) = FrameDecoder().feed(encode_frame(command))
    assert again.body == b"onetwo"


def test_answer_has_the_serialization_and_number_of_its_request() -> None:
    for kind in SerializeType:
        command = pull_request(kind)
        answer = command.response(19, "nothing")
        assert (answer.opaque, answer.serialize_type, answer.is_response) == (command.opaque, kind, True)


def test_members_a_peer_must_not_set_are_not_taken_from_the_header() -> None:
    text = b'{"code":34,"opaque":1,"~body":"AAAA","~parts":["x"],"~type":1,"~typed":{}}'
    (command,) = FrameDecoder().feed(framed(text))
    assert command.body == b""
    assert command.serialize_type == SerializeType.JSON
    assert not command.body_parts
    assert command.typed is None


@pytest.mark.parametrize("piece", [100_000, 400_000])
def test_large_frames_in_pieces_are_the_same_commands(piece: int) -> None:
    """They take a way of their own, on which nothing is copied twice; what follows in the same piece is not lost."""
    commands = [
        request(10, body=bytes([number]) * size) for number, size in enumerate((900_000, 3, 700_000, 0, 300_000))
    ]
    stream = b"".join(map(encode_frame, commands))
    decoder = FrameDecoder()
    found = [one for at in range(0, len(stream), piece) for one in decoder.feed(stream[at : at + piece])]
    assert [(one.opaque, one.body) for one in found] == [(one.opaque, one.body) for one in commands]
    assert decoder.pending_size == 0
    assert all(type(one.body) is bytes for one in found)


def test_a_large_frame_whose_header_is_larger_is_none() -> None:
    frame = bytearray(encode_frame(request(10, body=bytes(600_000))))
    frame[5:8] = b"\xff\xff\xff"
    decoder = FrameDecoder()
    decoder.feed(bytes(frame[:500_000]))
    with pytest.raises(FrameError):
        decoder.feed(bytes(frame[500_000:]))
