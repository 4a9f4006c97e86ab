"""Promises of what reads a connection: frames, headers in both serializations, typed headers, and replication.

Known: bytes come cut anywhere, and a peer may be anybody.
"""

from __future__ import annotations

import struct
from collections.abc import Iterable, Iterator
from itertools import pairwise
from typing import Any

import msgspec

from fuzz.promise import Target, cuts, is_refused, outcome
from orbitmq.errors import BodyError, FrameError, HeaderError
from orbitmq.replication.protocol import HEAD, PIECE_MAX, REPORT, Pieces, Reports
from orbitmq.wire.codes import SerializeType
from orbitmq.wire.command import Command, request
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.header import Header, from_ext
from orbitmq.wire.header_codec import decode_binary_header, decode_json_header
from orbitmq.wire.headers import PullMessageHeader, SendMessageHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.signature import Credentials, sign, signed_fields
from orbitmq.wire.text_map import to_ext

FRAME_SIZE_MAX = 1 << 16  # of the decoder under test, so that short inputs reach the limit
FRAME_HEAD = 8
INT64 = range(-(1 << 63), 1 << 63)

# -------------------------------------------------------------------------------------------------------------- frames

_STRAIGHT: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2Header,
    RequestCode.PULL_MESSAGE: PullMessageHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageHeader,
}
"""Spelled out, so that a row of the table without `is_straight` is found."""


def _fed(chunks: Iterable[bytes]) -> list[Command] | type[Exception]:
    decoder = FrameDecoder(typed=False, size_max=FRAME_SIZE_MAX)
    commands: list[Command] = []

    def feed() -> list[Command]:
        for chunk in chunks:
            commands.extend(decoder.feed(chunk))
            assert decoder.pending_size <= FRAME_SIZE_MAX
        return commands

    found: list[Command] | type[Exception] = outcome((FrameError, HeaderError), feed)
    return found


def _fields(command: Command) -> tuple[Any, ...]:
    """All but the number: a command that came without one gets the next."""
    return command.code, command.ext, command.flag, command.language, command.remark, command.version, command.body


def _check_command(command: Command) -> None:
    """It can be written, and reads as the same; and whether it is signed can be asked of any."""
    command.ext = command.ext or None  # an empty set and none are the same to a binary header
    again = FrameDecoder(typed=False).feed(encode_frame(command))
    assert len(again) == 1
    again[0].ext = again[0].ext or None
    assert again[0] == command
    assert signed_fields(command, b"a secret nobody knows") is None


def _check_straight(typed: Command, plain: Command) -> None:
    """The quick way reads what the slow way reads."""
    assert typed.code == plain.code
    kind = _STRAIGHT.get(plain.code)
    if kind is not None and not plain.is_response:
        quick = outcome(HeaderError, lambda: typed.header(kind))
        assert quick == outcome(HeaderError, lambda: plain.header(kind))


def check_frame(data: bytes) -> None:
    stream = data[1:]
    plain = _fed([stream])
    in_pieces = _fed(cuts(data))
    if is_refused(plain):
        assert in_pieces is plain
        return
    assert isinstance(plain, list)
    assert isinstance(in_pieces, list)
    assert list(map(_fields, in_pieces)) == list(map(_fields, plain))
    assert len(plain) * FRAME_HEAD + sum(len(command.body) for command in plain) <= len(stream)
    quick = outcome(HeaderError, lambda: FrameDecoder(size_max=FRAME_SIZE_MAX).feed(stream))
    if is_refused(quick):
        assert not _is_text(stream)
        return
    for typed, command in zip(quick, plain, strict=True):
        _check_straight(typed, command)
        _check_command(command)


def check_json_header(data: bytes) -> None:
    plain = outcome(HeaderError, lambda: decode_json_header(data, typed=False))
    typed = outcome(HeaderError, lambda: decode_json_header(data))
    assert is_refused(typed) == is_refused(plain) or not _is_text(data)
    if not is_refused(typed) and not is_refused(plain):
        _check_straight(typed, plain)
        _check_command(plain)


def _is_text(data: bytes) -> bool:
    """Bytes that are no UTF-8 matter only to who reads the member they stand in."""
    return "\ufffd" not in data.decode(errors="replace")


def check_binary_header(data: bytes) -> None:
    command = outcome(HeaderError, lambda: decode_binary_header(data))
    if not is_refused(command):
        assert sum(map(len, command.ext or {})) + sum(map(len, (command.ext or {}).values())) <= len(data)
        _check_command(command)


def _requests() -> Iterator[Command]:
    send = SendMessageV2Header(
        "g", "T", "TBW102", 4, 1, 0, 1_700_000_000_000, 0, "KEYS\x01k\x02TAGS\x01a", 0, batch=True
    )
    for code, header in (
        (RequestCode.SEND_MESSAGE_V2, send),
        (RequestCode.SEND_BATCH_MESSAGE, send),
        (RequestCode.SEND_MESSAGE, SendMessageHeader("g", "T", "TBW102", 4, 1, 0, 1, 0, unit_mode=True)),
        (RequestCode.PULL_MESSAGE, PullMessageHeader("g", "T", 1, 2, 32, 6, 0, 15_000, 0, "a || b", "TAG")),
        (RequestCode.LITE_PULL_MESSAGE, PullMessageHeader("g", "T", 1, 2, 32, 6, 0, 15_000, 0)),
        (RequestCode.HEART_BEAT, None),
    ):
        command = request(code, header, b"body")
        sign(command, Credentials("accesskey", "secretkey"))
        yield command
        yield command.response(1, "remark: äöü")


def _both_ways(commands: Iterable[Command]) -> Iterator[bytes]:
    for command in commands:
        command.opaque = 7
        for kind in SerializeType:
            command.serialize_type = kind
            yield encode_frame(command)


def _frame_seeds() -> Iterator[bytes]:
    frames = list(_both_ways(_requests()))
    yield from (b"\0" + frame for frame in frames)
    yield from (b"\7" + one + other for one, other in pairwise(frames[::3]))


def _header_seeds(kind: SerializeType) -> Iterator[bytes]:
    for frame in _both_ways(_requests()):
        if frame[4] == kind:
            yield frame[FRAME_HEAD : FRAME_HEAD + int.from_bytes(frame[5:8], "big")]


def _json_seeds() -> Iterator[bytes]:
    yield from _header_seeds(SerializeType.JSON)
    yield b"{'code':\"310\",flag:'0',language:3,opaque:1,extFields:{a:1,k:'1',m:null,n:{x:[1.5]}},remark:['\\u00e4']}"


# ------------------------------------------------------------------------------------------------------- typed headers

HEADERS = sorted(
    (kind for kind in Header.__subclasses__() if kind.__module__.startswith(Header.__module__.rpartition(".")[0])),
    key=lambda kind: kind.__name__,
)
"""Of every request, whose table imports them, and of every response."""
_NAMES = sorted({name for kind in HEADERS for name in kind.__struct_encode_fields__})


def _pairs(text: str) -> dict[str, str | None]:
    """A text map out of lines `name=value`; without a sign there is no value."""
    lines = (line.partition("=") for line in text.split("\n"))
    return {name: value if equals else None for name, equals, value in lines}


def check_header(data: bytes) -> None:
    kind = HEADERS[(data[0] if data else 0) % len(HEADERS)]
    ext = _pairs(data[1:].decode(errors="replace"))
    header = outcome(HeaderError, lambda: from_ext(kind, ext))
    if is_refused(header):
        return
    assert from_ext(kind, to_ext(header)) == header
    assert all(value in INT64 for value in msgspec.structs.astuple(header) if type(value) is int)


def _typed_seeds() -> Iterator[bytes]:
    for number, kind in enumerate(HEADERS):
        for value in ("1", "true", ""):
            lines = "\n".join(f"{name}={value}" for name in kind.__struct_encode_fields__)
            yield bytes([number]) + lines.encode()


# --------------------------------------------------------------------------------------------------------- replication


def check_reports(data: bytes) -> None:
    reports = Reports()
    told = [place for chunk in cuts(data) if (place := reports.feed(chunk)) is not None]
    stream = data[1:]
    whole = len(stream) // REPORT.size
    last = [REPORT.unpack_from(stream, (whole - 1) * REPORT.size)[0]] if whole else []
    assert told[-1:] == last
    assert len(told) <= whole


def _copied(chunks: Iterable[bytes]) -> tuple[list[tuple[int, bytes]], bool]:
    """What a slave is given, parts that follow one another joined, and whether it was refused at last."""
    pieces = Pieces()
    found: list[tuple[int, bytes]] = []
    try:
        for chunk in chunks:
            for place, part in pieces.feed(chunk):
                if found and part and found[-1][1] and found[-1][0] + len(found[-1][1]) == place:
                    found[-1] = found[-1][0], found[-1][1] + part
                else:
                    found.append((place, bytes(part)))
    except BodyError:
        return found, True
    return found, False


def check_pieces(data: bytes) -> None:
    whole, was_refused = _copied([data[1:]])
    assert (whole, was_refused) == _copied(cuts(data))
    assert sum(len(part) for _, part in whole) <= len(data)
    assert sum(not part for _, part in whole) * HEAD.size <= len(data)


def _report_seeds() -> Iterator[bytes]:
    for size in (0, 7, 63):
        yield bytes([size]) + b"".join(map(REPORT.pack, (0, 1 << 40, -1)))


def _piece_seeds() -> Iterator[bytes]:
    stream = HEAD.pack(0, 5) + b"abcde" + HEAD.pack(5, 0) + HEAD.pack(5, 3) + b"fgh"
    for size in (0, 4, 63):
        yield bytes([size]) + stream
    for length in (PIECE_MAX, PIECE_MAX + 1, -1):
        yield b"\3" + HEAD.pack(1 << 40, length) + b"some"


_JSON_WORDS = (
    b'{"code":', b'"extFields":{', b'"flag":', b'"language":"', b'"opaque":', b'"remark":"', b'"version":', b"null",
    b'"serializeTypeCurrentRPC":"JSON"', b"\\u0000", b"\\ud83d", b"1e5", b"-1", b"true", b"'", b"{", b"[", b'"$ref"',
    b'{"code":310,', b'{"code":10,"', b'{"code":11,"', b'{"code":320,', b'{"code":361,',
)  # fmt: skip
_BINARY_WORDS = (
    struct.pack(">i", 0),
    struct.pack(">i", -1),
    struct.pack(">i", 1),
    struct.pack(">h", -1),
    b"\0\1k\0\0\0\1v",
)

TARGETS = (
    Target(
        "frame", "commands or FrameError, HeaderError; the same however the stream is cut, and written again",
        check_frame, _frame_seeds, 30, _JSON_WORDS + _BINARY_WORDS,
    ),
    Target(
        "json-header", "a command or HeaderError; the quick way reads what the slow one does",
        check_json_header, _json_seeds, 30, _JSON_WORDS,
    ),
    Target(
        "binary-header", "a command or HeaderError; written again it reads the same",
        check_binary_header, lambda: _header_seeds(SerializeType.ROCKETMQ), 120, _BINARY_WORDS,
    ),
    Target(
        "typed-header", "any declared header or HeaderError; numbers fit into 64 bits",
        check_header, _typed_seeds, 40, tuple(name.encode() + b"=" for name in _NAMES),
    ),
    Target("reports", "how far a slave is, by its last whole report", check_reports, _report_seeds, 80),
    Target(
        "pieces", "what a master sends or BodyError; the same however the stream is cut",
        check_pieces, _piece_seeds, 120,
    ),
)  # fmt: skip
