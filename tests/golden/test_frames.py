"""Every frame captured between RocketMQ processes decodes to what the capture says and encodes to the same bytes."""

from __future__ import annotations

import typing
from typing import Any

import msgspec
import pytest

from orbitmq.wire import headers, headers_admin, headers_namesrv
from orbitmq.wire.codes import LANGUAGES, ResponseCode, SerializeType
from orbitmq.wire.command import Command
from orbitmq.wire.frame import FrameDecoder, encode_frame
from orbitmq.wire.header import Header, Int32, Int64
from orbitmq.wire.header_codec import decode_json_header
from orbitmq.wire.headers import PullMessageHeader, SendMessageHeader, SendMessageV2Header
from orbitmq.wire.requests import RequestCode
from orbitmq.wire.text_map import to_ext
from tests.support.frames import all_frames, files, frames
from tests.support.golden import vectors


def decoded(data: bytes, *, typed: bool = False) -> Command:
    (command,) = FrameDecoder(typed=typed).feed(data)
    return command


def language(value: str | int) -> str:
    return LANGUAGES[value] if isinstance(value, int) else value


def filled(fields: dict[str, str | None] | None) -> dict[str, str]:
    """Header fields without the empty ones, which a binary header cannot carry."""
    return {name: value for name, value in (fields or {}).items() if value}


@pytest.mark.parametrize("file", files())
def test_frames_decode_to_what_was_captured(file: str) -> None:
    for frame in frames(file):
        command, row = decoded(frame.data), frame.row
        assert (command.code, command.flag, command.opaque) == (row["code"], row["flag"], row["opaque"]), frame
        assert (command.version, command.language) == (row["version"], language(row["language"])), frame
        assert command.remark == row.get("remark"), frame
        assert filled(command.ext) == filled(row["ext"]), frame
        assert command.body == frame.body, frame
        assert SerializeType(command.serialize_type).name == row["ser"], frame
        assert command.is_response == frame.is_response, frame
        assert command.is_oneway == (row["kind"] == "oneway"), frame


@pytest.mark.parametrize("file", files())
def test_frames_encode_to_the_bytes_java_wrote(file: str) -> None:
    for frame in frames(file):
        command = decoded(frame.data)
        data = encode_frame(command)
        if data == frame.data:
            continue
        # Java writes the fields of some signed requests twice, and empty fields, into binary headers.
        assert command.serialize_type == SerializeType.ROCKETMQ, frame
        assert len(data) < len(frame.data), frame
        again = decoded(data)
        again.ext = filled(again.ext)
        command.ext = filled(command.ext)
        assert again == command, frame


def test_a_whole_capture_is_one_stream() -> None:
    captured = [frame for file in files()[:6] for frame in frames(file)]
    stream = b"".join(frame.data for frame in captured)
    decoder = FrameDecoder(typed=False)
    size = 1460
    commands = [c for at in range(0, len(stream), size) for c in decoder.feed(stream[at : at + size])]
    assert [command.opaque for command in commands] == [frame.row["opaque"] for frame in captured]
    assert decoder.pending_size == 0


STRAIGHT: dict[int, type[Header]] = {
    RequestCode.SEND_MESSAGE: SendMessageHeader,
    RequestCode.SEND_MESSAGE_V2: SendMessageV2Header,
    RequestCode.SEND_BATCH_MESSAGE: SendMessageV2Header,
    RequestCode.PULL_MESSAGE: PullMessageHeader,
    RequestCode.LITE_PULL_MESSAGE: PullMessageHeader,
}


INCOMPLETE = {"raw/pull_missing_fields", "raw/send_v2_empty_topic"}  # requests made by hand


@pytest.mark.parametrize("code", STRAIGHT, ids=lambda code: RequestCode(code).name)
def test_headers_of_the_load_are_read_alike_from_both_serializations(code: int) -> None:
    kind = STRAIGHT[code]
    serializations = set()
    for frame in all_frames():
        fields = filled(frame.row["ext"])
        if frame.is_response or frame.row["code"] != code or not fields or frame.row["note"] in INCOMPLETE:
            continue
        found = to_ext(decoded(frame.data, typed=True).header(kind))
        named = {n: v for n, v in fields.items() if n in kind.__struct_encode_fields__}
        assert named.items() <= found.items(), frame
        serializations.add(frame.row["ser"])
    assert serializations == {"JSON", "ROCKETMQ"} or code == RequestCode.LITE_PULL_MESSAGE


def test_frame_vectors() -> None:
    for vector in vectors()["remoting_frame"]:
        data = bytes.fromhex(vector["frame"])
        command = decoded(data)
        assert command.code == vector["code"]
        assert (command.version, command.opaque, command.flag) == (
            vector["version"],
            vector["opaque"],
            vector["flag"],
        )
        assert command.language == vector["language"]
        assert (command.remark or None) == (vector["remark"] or None)
        assert filled(command.ext) == filled(vector["extFields"])
        assert command.body == bytes.fromhex(vector["body"] or "")
        again = decoded(encode_frame(command))
        assert (filled(again.ext), again.remark, again.body) == (filled(command.ext), command.remark, command.body)


def test_lenient_header_vectors() -> None:
    for vector in vectors()["remoting_json_lenient"]:
        result: dict[str, Any] = vector["result"]
        if "error" in result:
            continue
        command = decode_json_header(vector["header"].encode())
        assert (command.code, command.flag, command.version) == (result["code"], result["flag"], result["version"])
        if "opaque" in vector["header"]:
            assert command.opaque == result["opaque"]
        assert filled(command.ext) == filled(result["extFields"])
        if result["language"] is not None:  # a name Java does not know is null there and kept here
            assert command.language == result["language"]


EXTRA_FIELDS = {  # fields that Java adds outside the header class, or only in 5.x, or orbitmq alone
    "DeleteSubscriptionGroupHeader": {"cleanOffset"},
    "PullMessageHeader": {"bulk"},
    "QueryMessageHeader": {"_UNIQUE_KEY_QUERY"},
    "SendMessageResponseHeader": {"MSG_REGION", "TRACE_ON"},
    "RegisterBrokerHeader": {"masterEpoch"},
    "RegisterBrokerResponseHeader": {"masterEpoch"},
    "SearchOffsetHeader": {"boundaryType"},
    "SearchOffsetResponseHeader": {"boundaryType"},
    "UpdateConsumerOffsetHeader": {"onlyForward"},
    "CreateTopicHeader": {"attributes"},
}
UNUSED_FIELDS = {"SendMessageV2Header": {"bname"}}  # inherited in Java; this header says it as `n`
ONLY_IN_5 = {
    "GetTopicConfigHeader", "GetSubscriptionGroupConfigHeader", "QueryTopicsByConsumerHeader",
    "QuerySubscriptionByConsumerHeader",
}  # fmt: skip
JAVA_NAMES = {
    "SendMessageV2Header": "SendMessageRequestHeaderV2",
    "GetBrokerConsumeStatsHeader": "GetConsumeStatsInBrokerHeader",
}


def declared_headers() -> list[type[Header]]:
    modules = (headers, headers_admin, headers_namesrv)
    values = [value for module in modules for value in vars(module).values()]
    return [v for v in values if isinstance(v, type) and issubclass(v, Header) and v is not Header]


TYPES = {
    "String": str, "Integer": Int32, "int": Int32, "Long": Int64, "long": Int64, "Boolean": bool, "boolean": bool,
}  # fmt: skip


@pytest.mark.parametrize("kind", declared_headers(), ids=lambda kind: kind.__name__)
def test_declared_headers_have_javas_fields_and_types(kind: type[Header]) -> None:
    name = kind.__name__
    if name in ONLY_IN_5:
        return
    base = name.removesuffix("Header").lower()
    table = {java.lower(): fields for java, fields in vectors()["command_headers"].items()}
    java = table.get(JAVA_NAMES.get(name, "").lower()) or table.get(base + "requestheader") or table[base + "header"]
    types = {field["name"]: TYPES[field["type"]] for field in java if field["name"] not in UNUSED_FIELDS.get(name, ())}
    hints = typing.get_type_hints(kind, include_extras=True)
    declared = {field.encode_name: without_none(hints[field.name]) for field in msgspec.structs.fields(kind)}
    assert {field: declared[field] for field in declared.keys() - EXTRA_FIELDS.get(name, set())} == types


def without_none(hint: Any) -> Any:
    kinds = [kind for kind in typing.get_args(hint) if kind is not type(None)]
    return kinds[0] if type(None) in typing.get_args(hint) else hint


def test_codes_have_javas_numbers() -> None:
    codes = {name: number for name, number in vectors()["request_codes"].items() if name in RequestCode.__members__}
    assert codes == {name: RequestCode[name] for name in codes}
    assert len(codes) > 90
    responses = vectors()["response_codes"]
    assert all(ResponseCode[name] == number for name, number in responses.items() if name in ResponseCode.__members__)
