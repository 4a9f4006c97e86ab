"""The codec of the two serializations of a command's header.

Frequent requests (send, pull) are decoded directly into their typed header; every other header is decoded into the text
map. Pure, as the command.
"""

from __future__ import annotations

import struct
from typing import Any, Final

import msgspec

from orbitmq.errors import BodyError, HeaderError
from orbitmq.message import javajson
from orbitmq.wire.codes import LANGUAGE_CODES, LANGUAGES, SerializeType
from orbitmq.wire.command import FLAG_RESPONSE, LANGUAGE, Command, next_opaque
from orbitmq.wire.header import Header, true_fields
from orbitmq.wire.requests import RequestCode

# ---------------------------------------------------------------------------------------------------------- JSON


def _straight(header: type[Header]) -> msgspec.json.Decoder[Command]:
    """A decoder that reads `extFields` into `header` instead of into a text map."""
    field: Any = msgspec.field  # whose declared type is that of the default, which a compiler would insist on
    kind = msgspec.defstruct(
        f"Command{header.__name__}",
        [
            ("ext", Any, field(name="~ext", default=None)),
            ("typed", header | None, field(name="extFields", default=None)),
        ],
        bases=(Command,),
        gc=False,
    )
    return msgspec.json.Decoder(kind, strict=False)


# Peers write `code` first, so eleven bytes select the decoder: `{"code":11,` or `{"code":310`. The limit for a header
# that is no standard JSON, see javajson: 500 values, while real ones have at most 30; a millisecond to read.
_LENIENT_MAX: Final = 4_000
_PREFIX: Final = 11
_straight_decoders = {
    f'{{"code":{int(code)},'.encode()[:_PREFIX]: (int(code), _straight(code.header))
    for code in RequestCode
    if code.is_straight
}
_decode_any = msgspec.json.Decoder(Command, strict=False).decode
_encode_json = msgspec.json.encode
_LANGUAGE_TEXTS: Final = {name: _encode_json(name) for name in LANGUAGES}


def decode_json_header(data: bytes, *, typed: bool = True) -> Command:
    """Decode a JSON header; HeaderError if it is invalid. With `typed` False every field stays in `ext` as received."""
    straight = _straight_decoders.get(data[:_PREFIX]) if typed else None
    try:
        if straight is not None:
            command = straight[1].decode(data)
            if command.opaque is not None and _is_straight(command, straight[0], data):
                return command
        command = _decode_any(data)
        command.typed = None
        if command.opaque is None:
            command.opaque = next_opaque()
        return command
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return _decode_json_leniently(data)


def _is_straight(command: Command, code: int, data: bytes) -> bool:
    """Whether the decoder of `code` has read what Java reads."""
    if command.code != code or command.flag & FLAG_RESPONSE:
        return False  # `{"code":3100` has the prefix of 310 too; responses carry other fields under the same code
    return b'"1"' not in data or command.typed is None or not true_fields(command.typed)


def _decode_json_leniently(data: bytes) -> Command:
    """What Java's decoder takes beyond strict JSON: quoted numbers, bare names, ordinals, any type in `extFields`."""
    try:
        fields = javajson.loads(data, _LENIENT_MAX)
    except BodyError as error:
        raise HeaderError(f"header is not JSON: {error}") from error
    if not isinstance(fields, dict):
        raise HeaderError("header is not a JSON object")
    opaque = _whole(fields, "opaque", None)
    return Command(
        code=_whole(fields, "code", 0) or 0,
        ext=_ext_of(fields.get("extFields")),
        flag=_whole(fields, "flag", 0) or 0,
        language=_language_of(fields.get("language", LANGUAGE)),
        opaque=next_opaque() if opaque is None else opaque,
        remark=None if fields.get("remark") is None else str(fields["remark"]),
        version=_whole(fields, "version", 0) or 0,
    )


def _whole(fields: dict[Any, Any], name: str, default: int | None) -> int | None:
    value = fields.get(name, default)
    try:
        return None if value is None else int(value)
    except (TypeError, ValueError, OverflowError):
        raise HeaderError(f"header field {name} is not a whole number") from None


def _ext_of(value: Any) -> dict[str, str] | None:
    if value is None:
        return None
    if not isinstance(value, dict):
        raise HeaderError("header field extFields is not an object")
    return {str(k): v if isinstance(v, str) else javajson.dumps(v) for k, v in value.items() if v is not None}


def _language_of(value: Any) -> str:
    if isinstance(value, int):
        return LANGUAGES[value] if 0 <= value < len(LANGUAGES) else "OTHER"
    return str(value)


def encode_json_header(command: Command) -> bytes:
    """The header text: members in alphabetical order, null members left out, no spaces."""
    ext, remark = command.ext, command.remark
    language = _LANGUAGE_TEXTS.get(command.language) or _encode_json(command.language)
    return b'{"code":%d,%b"flag":%d,"language":%b,"opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        b"" if ext is None else b'"extFields":%b,' % _encode_json(ext),
        command.flag,
        language,
        command.opaque or 0,
        b"" if remark is None else b'"remark":%b,' % _encode_json(remark),
        command.version,
    )


# -------------------------------------------------------------------------------------------------------- binary

# code i16, language u8, version i16, opaque i32, flag i32, remark length i32
_FIXED: Final = struct.Struct(">hBhiii")
_LENGTH: Final = struct.Struct(">i")
_SHORT: Final = struct.Struct(">h")


def decode_binary_header(data: bytes) -> Command:
    """Decode a ROCKETMQ header; HeaderError when lengths disagree. Of duplicate keys the last one wins."""
    try:
        code, language, version, opaque, flag, remark_size = _FIXED.unpack_from(data)
        remark, at = _slice(data, _FIXED.size, remark_size)
        remark_text = remark.decode()
        (ext_size,) = _LENGTH.unpack_from(data, at)
        ext = _decode_entries(data, at + 4, ext_size)
    except (struct.error, UnicodeDecodeError) as error:
        raise HeaderError(f"binary header cannot be decoded: {error}") from error
    return Command(
        code=code,
        ext=ext,
        flag=flag,
        language=_language_of(language),
        opaque=opaque,
        remark=remark_text or None,
        version=version,
        serialize_type=SerializeType.ROCKETMQ,
    )


def _slice(data: bytes, start: int, size: int) -> tuple[bytes, int]:
    end = start + size
    if size < 0 or end > len(data):
        raise HeaderError(f"binary header: {size} bytes wanted at {start}, the header has {len(data)}")
    return data[start:end], end


def _decode_entries(data: bytes, at: int, size: int) -> dict[str, str] | None:
    """Entries of i16 key length, key, i32 value length, value. Empty keys and values count as absent."""
    end = at + size
    if size < 0 or end > len(data):
        raise HeaderError(f"binary header: {size} bytes of fields wanted at {at}, the header has {len(data)}")
    if size == 0:
        return None
    ext: dict[str, str] = {}
    while at < end:
        key, at = _slice(data, at + 2, _SHORT.unpack_from(data, at)[0])
        value, at = _slice(data, at + 4, _LENGTH.unpack_from(data, at)[0])
        if key and value:
            ext[key.decode()] = value.decode()
    return ext


def encode_binary_header(command: Command) -> bytes:
    """The header bytes. Codes beyond 16 bits lose their high part, as they do in Java."""
    remark = (command.remark or "").encode()
    entries = [_encode_entry(key.encode(), value.encode()) for key, value in (command.ext or {}).items() if value]
    ext = b"".join(entries)
    fixed = _FIXED.pack(
        ((command.code + 0x8000) & 0xFFFF) - 0x8000,
        LANGUAGE_CODES.get(command.language, LANGUAGE_CODES["OTHER"]),
        command.version,
        command.opaque or 0,
        command.flag,
        len(remark),
    )
    return b"".join((fixed, remark, _LENGTH.pack(len(ext)), ext))


def _encode_entry(key: bytes, value: bytes) -> bytes:
    return b"".join((_SHORT.pack(len(key)), key, _LENGTH.pack(len(value)), value))
