"""The common send, read in place: what it reads, stores and answers is what the readable codec does, or it declines."""

from __future__ import annotations

import json
import struct
from typing import Any

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from orbitmq.broker.stored_properties import with_cluster, without_wait
from orbitmq.errors import OrbitMQError
from orbitmq.message.hosts import encode_host
from orbitmq.message.ids import offset_message_id
from orbitmq.message.java_hash import tags_code
from orbitmq.message.properties import DELAY, TRAN_MSG, decode_properties, find_property
from orbitmq.message.unit import body_crc, pack_unit, unit_size
from orbitmq.message.unit_loops import pack_common
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.headers import SendMessageV2Header
from orbitmq.wire.send_loops import BINARY, JSON, read, respond, stored

HEAD = 8
HOST = encode_host("127.0.0.1", 10911)
PAIRS = (
    "KEYS\x01k\x02", "TAGS\x01TagA\x02", "TAGS\x01标签\x02", "WAIT\x01true\x02", "WAIT\x01false\x02", "a\x01b", "\x02",
    "UNIQ_KEY\x01AC\x02", "DELAY\x013\x02", "TRAN_MSG\x01true\x02", "XWAIT\x011\x02", "x\x01WAIT\x011\x02",
    "TAGS\x01\x02",
    'q\x01"\\/\x02', "n\x01\n\t\x02", "é\x01ü\x02", "INNER_MULTI_DISPATCH\x01%LMQ%a\x02", "\x01", "TAGS",
    "CLUSTER\x01old\x02", "WAIT\x01true", "TAGS\x01b",
)  # fmt: skip
texts = st.one_of(st.lists(st.sampled_from(PAIRS)).map("".join), st.text(max_size=30))
numbers = st.one_of(
    st.integers(-(2**31), 2**31 - 1).map(str),
    st.sampled_from(
        ["0", "-0", "00", "007", "", "-", "+1", "1.0", "1e3", "2147483648", "9" * 18, "9" * 19, " 1", "true", "null"]
    ),
)
FIELDS = {
    "a": texts, "b": st.one_of(st.sampled_from(["T", "Orders-1", "%RETRY%g"]), texts), "c": texts, "d": numbers,
    "e": numbers, "f": numbers, "g": numbers, "h": numbers, "i": texts, "j": numbers,
    "k": st.sampled_from(["true", "false", "True", ""]), "l": numbers, "m": st.sampled_from(["true", "false", "1"]),
    "n": texts, "z": texts, "topic": texts,
}  # fmt: skip
COMMON = {
    "a": "g", "b": "T", "c": "TBW102", "d": "4", "e": "1", "f": "0", "g": "1700000000000", "h": "0",
    "i": "KEYS\x01k\x02TAGS\x01t\x02UNIQ_KEY\x01AC11\x02WAIT\x01true", "j": "0", "k": "false", "m": "false",
}  # fmt: skip


@st.composite
def fields(draw: st.DrawFn) -> dict[str, str]:
    """Common fields, of which some are missing or are others."""
    found = {name: value for name, value in COMMON.items() if draw(st.integers(0, 30))}
    for name in draw(st.lists(st.sampled_from(sorted(FIELDS)), max_size=3)):
        found[name] = draw(FIELDS[name])
    return found


def json_header(ext: dict[str, str], members: dict[str, Any] | None = None, *, escapes: bool = False) -> bytes:
    """As Java writes it: no spaces, only control characters are escaped."""
    command = {
        "code": 310, "extFields": ext, "flag": 0, "language": "JAVA", "opaque": 5, "serializeTypeCurrentRPC": "JSON",
        "version": 401, **(members or {}),
    }  # fmt: skip
    return json.dumps(command, separators=(",", ":"), ensure_ascii=escapes).encode("utf-8", "surrogatepass")


def binary_header(ext: dict[str, str], code: int = 310, flag: int = 0, opaque: int = 5) -> bytes:
    entries = b"".join(
        struct.pack(">h", len(key)) + key + struct.pack(">i", len(value)) + value
        for key, value in (
            (k.encode("utf-8", "surrogatepass"), v.encode("utf-8", "surrogatepass")) for k, v in ext.items()
        )
    )
    return struct.pack(">hBhiii", code, 0, 401, opaque, flag, 0) + struct.pack(">i", len(entries)) + entries


def frame(header: bytes, kind: int, body: bytes = b"body") -> bytes:
    return struct.pack(">II", 4 + len(header) + len(body), kind << 24 | len(header)) + header + body


def readable(data: bytes) -> Command | None:
    """What the readable codec makes of it; None for what it refuses."""
    try:
        (command,) = FrameDecoder().feed(data)
        command.typed = command.header(SendMessageV2Header)
    except OrbitMQError:
        return None
    return command


def check(header: bytes, kind: int) -> bool:
    """Whether it is read in place; then it must be read as by the readable codec."""
    data = frame(header, kind)
    found = read(data, HEAD, HEAD + len(header), kind)
    made = None if found is None else stored(data, found[9], found[10], kind, b"CLUSTER\x01c")
    if found is None or made is None:
        return False
    command = readable(data)
    assert command is not None, "it reads nothing that is refused"
    typed = command.typed
    assert found[:9] == (
        command.opaque, command.flag, command.version, typed.topic, typed.queue_id, typed.sys_flag,
        typed.born_timestamp, typed.flag, typed.reconsume_times or 0,
    )  # fmt: skip
    assert (command.code, typed.batch) in ((310, False), (320, True))
    assert found[11] == command.code
    text = typed.properties or ""
    properties = with_cluster(without_wait(text), "c").encode()
    assert made == (properties, tags_code(find_property(properties, b"TAGS\x01")))
    assert not {DELAY, TRAN_MSG} & decode_properties(text).keys()
    return True


@pytest.mark.parametrize("kind", [JSON, BINARY])
@given(ext=fields(), escapes=st.booleans(), code=st.sampled_from([310, 320]))
@example(ext=COMMON, escapes=False, code=310)
def test_a_header_is_read_as_by_the_readable_codec(kind: int, ext: dict[str, str], escapes: bool, code: int) -> None:
    check(json_header(ext, {"code": code}, escapes=escapes) if kind == JSON else binary_header(ext, code), kind)


MEMBERS = {
    "code": st.sampled_from([310, 320, 10, 3100, "310", 310.0, None, -1]),
    "flag": st.sampled_from([0, 1, 2, 3, "2", 1 << 40]),
    "opaque": st.sampled_from([0, -1, -(2**31), 2**31, None, "7", 1.5]),
    "version": st.sampled_from([0, 401, "x", None]),
    "remark": st.sampled_from([None, "r"]),
    "language": st.sampled_from(["JAVA", "GO", 'a"b', "é", 3]),
    "other": st.sampled_from([1, {}, []]),
    "extFields": st.sampled_from([None, {}, [], {"a": None}, {"e": 1}]),
}


@given(
    members=st.lists(st.sampled_from(sorted(MEMBERS)), max_size=2).flatmap(
        lambda names: st.fixed_dictionaries({name: MEMBERS[name] for name in names})
    ),
    data=st.data(),
)
def test_a_json_header_with_other_members_is_read_as_by_the_readable_codec(
    members: dict[str, Any], data: st.DataObject
) -> None:
    header = json_header(COMMON, members)
    position, byte = data.draw(st.integers(0, len(header) - 1)), data.draw(st.binary(max_size=2))
    check(header, JSON)
    check(header[:position] + byte + header[position + 1 :], JSON)


@given(data=st.data())
def test_a_damaged_binary_header_is_read_as_by_the_readable_codec(data: st.DataObject) -> None:
    header = binary_header(COMMON)
    position, byte = data.draw(st.integers(0, len(header) - 1)), data.draw(st.binary(max_size=2))
    check(header[:position] + byte + header[position + 1 :], BINARY)


@pytest.mark.parametrize("kind", [JSON, BINARY])
@pytest.mark.parametrize(
    "text",
    [
        COMMON["i"],
        "",
        "WAIT\x01true",
        "WAIT\x01true\x02",
        "KEYS\x01k\x02WAIT\x01true\x02",
        "TAGS\x01标签\x02KEYS\x01" + "k" * 9000,
        'q\x01"\\',
    ],
)
def test_common_sends_are_read_in_place(kind: int, text: str) -> None:
    for code, batch in ((310, "false"), (320, "true")):
        ext = {**COMMON, "i": text, "m": batch}
        assert check(json_header(ext, {"code": code}) if kind == JSON else binary_header(ext, code), kind)


@pytest.mark.parametrize("kind", [JSON, BINARY])
@pytest.mark.parametrize(("code", "batch"), [(310, "true"), (320, "false"), (10, "false")])
def test_the_code_must_be_that_of_a_message_or_of_a_batch(kind: int, code: int, batch: str) -> None:
    ext = {**COMMON, "m": batch}
    assert not check(json_header(ext, {"code": code}) if kind == JSON else binary_header(ext, code), kind)


@given(
    offset=st.integers(0, 2**62),
    queue_id=st.integers(0, 2**31 - 1),
    queue_offset=st.integers(0, 2**62),
    opaque=st.integers(-(2**31), 2**31 - 1),
)
def test_a_response_is_that_of_the_readable_codec(offset: int, queue_id: int, queue_offset: int, opaque: int) -> None:
    for kind in (JSON, BINARY):
        request = Command(code=310, opaque=opaque, serialize_type=kind)
        answer = request.response(0)
        answer.ext = {"MSG_REGION": "R", "TRACE_ON": "true", "msgId": "0" * 32, "queueId": "1", "queueOffset": "2"}
        empty = encode_frame(answer)
        answer.ext |= {
            "msgId": offset_message_id(HOST, offset), "queueId": str(queue_id), "queueOffset": str(queue_offset),
        }  # fmt: skip
        head = empty[: empty.index(b"0" * 32)]
        tail = empty[empty.index(b',"serialize') :] if kind == JSON else b""
        assert respond(head, tail, kind, HOST, offset, queue_id, queue_offset, opaque) == encode_frame(answer)


@given(
    body=st.binary(max_size=100),
    topic=st.sampled_from(["T", "t" * 127]),
    properties=st.binary(max_size=300),
    queue_id=st.integers(0, 2**31 - 1),
    flag=st.integers(-(2**31), 2**31 - 1),
    offsets=st.tuples(st.integers(0, 2**62), st.integers(0, 2**62)),
    born=st.integers(-(2**62), 2**62),
)
def test_a_unit_is_that_of_the_readable_codec(
    body: bytes, topic: str, properties: bytes, queue_id: int, flag: int, offsets: tuple[int, int], born: int
) -> None:
    name, crc, (queue_offset, place) = topic.encode(), body_crc(body), offsets
    size = unit_size(0, body, name, properties)
    expected = pack_unit(
        size, crc, queue_id, flag, queue_offset, place, 0, born, HOST, 5, HOST, 7, 0, body, name, properties
    )
    data = b"head" + body + b"tail"
    made = pack_common(
        data, 4, 4 + len(body), name, properties, crc, queue_id, flag, queue_offset, place, 0, born, HOST, 5, HOST, 7
    )
    assert bytes(made) == expected
